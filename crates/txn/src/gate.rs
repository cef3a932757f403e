//! The gate: who may come in, who is inside, and what was so when they came.
//!
//! One word, the *terms*, says whether the database is open and how often a table's indexes have become others. A transaction reads it when it begins, and
//! again when it has locked what it writes. Nearly always it is the same, and that is all that it costs; otherwise [`reconsider`] decides.
//!
//! ```text
//!  63                                        2 1     0
//! +-------------------------------------------+-------+
//! | changes of indexes (62)                   | state |   0 open, 1 closing, 2 closed
//! +-------------------------------------------+-------+
//! ```
//!
//! # Closing
//!
//! Whoever is inside says so in a word of its own, its *presence*, by a plain store without a fence, since that is done for every transaction. So who closes
//! may overlook one who is just coming in, and therefore it takes two steps:
//!
//! 1. *Closing*: nobody comes in any more, and everybody who is seen inside is waited for.
//! 2. *Closed*: whoever was overlooked is refused when it has locked what it writes. Locking is a fence, and so is the change of the terms: of one who comes in and one who
//!    closes, at least one sees the other. Who looked at the terms just before is seen now, and waited for.
//!
//! A transaction that has not locked anything has no such fence, unless it opens a snapshot. So one that only reads, and came in at that very moment, may go on reading after
//! the end: what it reads does not change any more.
//!
//! # Indexes
//!
//! When a table gets another index, its writers must know it from some moment on. Who opens the index shows it first and changes the terms then. A writer that
//! still finds the old terms when it has locked what it writes comes before that moment: whoever reads the table after the change waits for its locks, or finds what it has
//! written. One that finds new terms, and has written to that table, is run again and knows the index then. It is how snapshots and epochs meet, in another word.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use drtm_htm::{Engine, Line, Waiter, Word, fence_locked};

use crate::{Conflict, Error, Setting, bounds::MODEL, db::Inner, mutation::Mutation, sync::Mutex, work::Work};

const STATE: u64 = 0b11;
const OPEN: u64 = 0;
const CLOSING: u64 = 1;
const CLOSED: u64 = 2;

/// One change of indexes.
const CHANGE: u64 = STATE + 1;

/// Nobody is inside.
const OUTSIDE: u64 = 0;

/// How often who closes looks whether everybody is out before it goes to sleep between one look and the next, and how long it sleeps.
const LOOKS: u32 = 64;
const NAP: Duration = Duration::from_millis(1);

/// Whether somebody is inside, said by one thread or one transaction, and read by who closes.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Presence {
    /// The name of the thread that is inside, or has begun the transaction that is.
    who: Word,
    /// This one's own name, if it is a thread's.
    pub(crate) name: u64,
}

impl Presence {
    #[inline(always)]
    pub(crate) fn is_inside<E: Engine>(&self, engine: &E) -> bool {
        engine.load_relaxed(&self.who) != OUTSIDE
    }

    #[inline(always)]
    pub(crate) fn enter<E: Engine>(&self, engine: &E, who: u64) {
        engine.store_relaxed(&self.who, who);
    }

    /// What was done inside is over for whoever sees this.
    #[inline(always)]
    pub(crate) fn leave<E: Engine>(&self, engine: &E) {
        engine.store(&self.who, OUTSIDE);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// The first word, on a line that hardly anybody writes.
    terms: Line,
    presences: Mutex<Vec<Arc<Presence>>>,
}

impl Gate {
    /// A presence that who closes looks at.
    pub(crate) fn presence(&self) -> Arc<Presence> {
        let mut presences = self.presences.lock();
        let presence = Arc::new(Presence { who: Word::new(OUTSIDE), name: presences.len() as u64 + 1 });
        presences.push(Arc::clone(&presence));
        presence
    }

    /// The terms for a transaction that comes in, or is run once more.
    #[inline(always)]
    pub(crate) fn admit<E: Engine>(&self, engine: &E, is_inside: bool) -> Result<u64, Error> {
        let terms = engine.load(&self.terms[0]);
        if terms & STATE == OPEN || is_inside && terms & STATE == CLOSING { Ok(terms) } else { Err(Error::Closed) }
    }

    /// Whether nobody comes in any more.
    pub(crate) fn is_closed<E: Engine>(&self, engine: &E) -> bool {
        engine.load(&self.terms[0]) & STATE != OPEN
    }

    /// Lets writers who have come in before know that indexes are others now. Gives the number of the change.
    pub(crate) fn change_indexes<E: Engine>(&self, engine: &E) -> u64 {
        let before = engine.fetch_add(&self.terms[0], CHANGE);
        fence_locked();
        changes(before) + 1
    }

    /// Closes, and waits until everybody is out. `own` is the name of the thread that does.
    pub(crate) fn close<E: Engine>(&self, engine: &E, own: u64, patience: Option<Duration>) -> Result<(), Error> {
        // The model checker's threads have all the same name.
        if !MODEL && self.all().iter().any(|presence| engine.load(&presence.who) == own) {
            return Err(Error::InTransaction);
        }
        let until = patience.and_then(|patience| Instant::now().checked_add(patience));
        for (from, to) in [(OPEN, CLOSING), (CLOSING, CLOSED)] {
            self.advance(engine, from, to);
            self.wait_until_empty(engine, until)?;
        }
        Ok(())
    }

    /// Goes to a state from the one before. Another may have done it; it is a fence anyway.
    fn advance<E: Engine>(&self, engine: &E, from: u64, to: u64) {
        loop {
            let now = engine.load(&self.terms[0]);
            let next = if now & STATE == from { now - from + to } else { now };
            if engine.compare_exchange(&self.terms[0], now, next).is_ok() {
                break;
            }
        }
        fence_locked();
    }

    fn wait_until_empty<E: Engine>(&self, engine: &E, until: Option<Instant>) -> Result<(), Error> {
        let waiter = Waiter::new();
        let mut looks = 0;
        loop {
            let transactions = self.all().iter().filter(|presence| engine.load(&presence.who) != OUTSIDE).count();
            if transactions == 0 {
                return Ok(());
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(Error::StillRunning { transactions });
            }
            if looks < LOOKS || MODEL {
                looks += 1;
                waiter.pause();
            } else {
                thread::sleep(NAP);
            }
        }
    }

    /// Whoever can be inside. A copy, as nobody touches words while holding the list.
    fn all(&self) -> Vec<Arc<Presence>> {
        self.presences.lock().clone()
    }
}

/// How often indexes have changed.
pub(crate) const fn changes(terms: u64) -> u64 {
    terms / CHANGE
}

/// Lets a transaction that has locked what it writes go on, if it still may.
#[inline(always)]
pub(crate) fn confirm<S: Setting>(db: &Inner<S>, work: &Work<S::Engine>) -> Result<(), Error> {
    if has_same_terms(db, work.terms) { Ok(()) } else { reconsider(db, work) }
}

/// Whether the terms are still those under which a transaction came in that has locked what it writes.
#[inline(always)]
pub(crate) fn has_same_terms<S: Setting>(db: &Inner<S>, terms: u64) -> bool {
    fence_locked();
    db.engine().load(&db.gate.terms[0]) == terms
}

/// Whether a transaction can go on under other terms than those it came in under.
#[cold]
#[inline(never)]
fn reconsider<S: Setting>(db: &Inner<S>, work: &Work<S::Engine>) -> Result<(), Error> {
    let terms = db.engine().load(&db.gate.terms[0]);
    if terms & STATE == CLOSED && !S::has(Mutation::CommitDespiteClosing) {
        return Err(Error::Closed);
    }
    let came = changes(work.terms);
    let is_outdated = |table: u16| db.catalog.get(table).is_some_and(|opened| opened.indexes.changed_at() > came);
    if changes(terms) != came && work.writes.iter().any(|write| is_outdated(write.table)) {
        return Err(Conflict::Indexed.into());
    }
    Ok(())
}
