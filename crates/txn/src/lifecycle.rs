//! The life cycle of a database: whether it is open, which transactions are active, and what has
//! changed since they began.
//!
//! One word says whether the database is open, and has a count. It goes up when the indexes of a
//! table change, and with each [turn](drtm_kv::Turn) of the store. A transaction reads the word
//! when it begins, its *admission*, and again when it has validated. Nearly always it is unchanged,
//! and that is all that it costs.
//!
//! ```text
//!  63                                        2 1     0
//! +-------------------------------------------+-------+
//! | count (62)                                | state |   0 open, 1 closing, 2 closed
//! +-------------------------------------------+-------+
//! ```
//!
//! # Closing
//!
//! An active transaction says so in a slot of its own, by a plain store without a fence, since that
//! is done for every transaction. So the closing thread may overlook one that is just beginning,
//! and closes in two steps:
//!
//! 1. *Closing*: no transaction is admitted any more, and every one that is seen to be active is
//!    waited for.
//! 2. *Closed*: a transaction that was overlooked is refused when it has locked its write set.
//!    Locking is a fence, and so is the change of the word: of a transaction that begins and a
//!    thread that closes, at least one sees the other. A transaction that read the word just before
//!    is seen now, and waited for.
//!
//! A transaction that has not locked anything has no such fence, unless it opens a snapshot. So a
//! read-only one that began at that very moment may go on reading after the end: what it reads does
//! not change any more.
//!
//! # Indexes
//!
//! When a table gets another index, its writers must know it from some moment on. The thread that
//! opens the index shows it first, and then advances the count. A writer that finds the count of
//! its admission when it has locked its write set comes before that moment: a reader of the table
//! after the change waits for its locks, or finds what it has written. A writer that was admitted
//! before, and has written to that table, is run again, and knows the index then. Snapshots and
//! commit epochs meet in the same way, in another word.
//!
//! # Dropped tables
//!
//! A table that is dropped is taken from its database first, and then the count advances (see
//! `catalog::change`). A transaction that finds the count of its admission comes before the drop.
//!
//! # Turns
//!
//! What a transaction has read may be unchanged by name only: memory that is used again has the
//! same name after some thousand uses, and a bucket the same version after some million changes.
//! The store counts a turn before that can happen, several times. So a transaction that finds the
//! count advanced by fewer than [`ROUND_TURNS`] after it has validated has validated what it has
//! read, and any other is run again.
//!
//! So that few are, the store asks, before memory is used that often, whether transactions are
//! active that began before ([`has_passed`](Lifecycle::has_passed)). A snapshot, whose slot was
//! made visible by a fence, is never overlooked there: no memory comes round while it is open.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use drtm_htm::{Engine, Line, Waiter, Word, fence_acquire, fence_locked};
use drtm_kv::ROUND_TURNS;

use crate::{Conflict, Error, bounds::MODEL, sync::Mutex};

const STATE: u64 = 0b11;
const OPEN: u64 = 0;
const CLOSING: u64 = 1;
const CLOSED: u64 = 2;

/// One more of the count, which begins with one.
const CHANGE: u64 = STATE + 1;

/// The names of threads that begin explicit transactions. Those of slots are below.
static NAMES: AtomicU64 = AtomicU64::new(1 << 32);

thread_local! {
    static NAME: Cell<u64> = const { Cell::new(IDLE) };
}

/// Returns the name of the calling thread, which no other thread ever has: an explicit transaction
/// may outlive its thread. (A slot's name goes to another thread then.)
pub(crate) fn thread_name() -> u64 {
    if NAME.get() == IDLE {
        NAME.set(NAMES.fetch_add(1, Relaxed));
    }
    NAME.get()
}

/// No transaction is active in a slot: no admission is zero.
const IDLE: u64 = 0;

/// How often the closing thread looks for active transactions before it sleeps between one look and
/// the next, and how long it sleeps.
const LOOKS: u32 = 64;
const NAP: Duration = Duration::from_millis(1);

/// The word under which a transaction was admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Admission(u64);

impl Admission {
    /// Returns the count.
    #[inline(always)]
    pub(crate) const fn count(self) -> u64 {
        self.0 / CHANGE
    }

    /// Returns whether nothing has come round from this admission to now.
    #[inline(always)]
    pub(crate) const fn is_within_round(self, now: Self) -> bool {
        now.count() - self.count() < ROUND_TURNS
    }

    /// Returns whether the database was closed for good.
    pub(crate) const fn is_closed(self) -> bool {
        self.0 & STATE == CLOSED
    }
}

/// Marks a closure of one thread, or one explicit transaction, as active. Read by the thread that
/// closes.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct ActiveSlot {
    /// The admission of the transaction, if one is active.
    admission: Word,
    /// The name of the thread that has begun the explicit transaction, or of the slot of the one
    /// that runs the closure.
    thread: Word,
    /// The name of this slot, which is a thread's name if it is a thread's slot.
    pub(crate) name: u64,
}

impl ActiveSlot {
    #[inline(always)]
    pub(crate) fn is_active<E: Engine>(&self, engine: &E) -> bool {
        engine.load_relaxed(&self.admission) != IDLE
    }

    /// Marks a transaction as active, of the thread whose slot it is.
    #[inline(always)]
    pub(crate) fn enter<E: Engine>(&self, engine: &E, admission: Admission) {
        engine.store_relaxed(&self.admission, admission.0);
    }

    /// Marks a transaction as active, begun by this thread.
    #[inline(always)]
    pub(crate) fn enter_by<E: Engine>(&self, engine: &E, admission: Admission, thread: u64) {
        engine.store_relaxed(&self.thread, thread);
        engine.store(&self.admission, admission.0);
    }

    /// Ends the transaction: whatever it did happens before for a thread that sees this.
    #[inline(always)]
    pub(crate) fn leave<E: Engine>(&self, engine: &E) {
        engine.store(&self.admission, IDLE);
    }

    /// Returns the admission of the active transaction, and whatever its thread did before happens
    /// before.
    fn active<E: Engine>(&self, engine: &E) -> Option<Admission> {
        let word = engine.load(&self.admission);
        (word != IDLE).then_some(Admission(word))
    }
}

#[derive(Debug)]
pub(crate) struct Lifecycle {
    /// The first word, on a line that is seldom written.
    line: Line,
    slots: Mutex<Vec<Arc<ActiveSlot>>>,
}

impl Lifecycle {
    /// Begins with an open database.
    pub(crate) fn new<E: Engine>(engine: &E) -> Self {
        let lifecycle = Self { line: Line::default(), slots: Mutex::default() };
        engine.store(&lifecycle.line[0], CHANGE + OPEN);
        lifecycle
    }

    /// Makes a slot that the closing thread looks at, and the store when it counts a turn.
    pub(crate) fn slot(&self) -> Arc<ActiveSlot> {
        let mut slots = self.slots.lock();
        let name = slots.len() as u64 + 1;
        let slot = Arc::new(ActiveSlot { admission: Word::new(IDLE), thread: Word::new(name), name });
        slots.push(Arc::clone(&slot));
        slot
    }

    /// Admits a transaction that begins, or is run once more.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    #[inline(always)]
    pub(crate) fn admit<E: Engine>(&self, engine: &E, is_active: bool) -> Result<Admission, Error> {
        let now = self.now(engine);
        let state = now.0 & STATE;
        if state == OPEN || is_active && state == CLOSING { Ok(now) } else { Err(Error::Closed) }
    }

    /// Returns the word as it is now.
    #[inline(always)]
    pub(crate) fn now<E: Engine>(&self, engine: &E) -> Admission {
        Admission(engine.load(&self.line[0]))
    }

    /// Returns whether no transaction is admitted any more.
    pub(crate) fn is_closed<E: Engine>(&self, engine: &E) -> bool {
        engine.load(&self.line[0]) & STATE != OPEN
    }

    /// Advances the count, for transactions that were admitted before. Returns the new one.
    pub(crate) fn advance_count<E: Engine>(&self, engine: &E) -> u64 {
        let before = engine.fetch_add(&self.line[0], CHANGE);
        fence_locked();
        Admission(before).count() + 1
    }

    /// Returns whether all transactions have ended that were admitted before this count, as far as
    /// can be seen.
    #[cold]
    pub(crate) fn has_passed<E: Engine>(&self, engine: &E, count: u64) -> bool {
        // Behind the swap of the mutex that the caller had last: a snapshot that this overlooks has
        // read nothing yet.
        fence_locked();
        !self.all().iter().any(|slot| slot.active(engine).is_some_and(|admitted| admitted.count() < count))
    }

    /// Checks that what a transaction has validated has not come round since it was admitted.
    #[inline(always)]
    pub(crate) fn check_turns<E: Engine>(&self, engine: &E, admitted: Admission) -> Result<(), Conflict> {
        if admitted.is_within_round(self.seen(engine)) { Ok(()) } else { Err(Conflict::Validation) }
    }

    /// Returns whether nothing at all has changed since a transaction was admitted, after it has
    /// read.
    #[inline(always)]
    pub(crate) fn is_unchanged<E: Engine>(&self, engine: &E, admitted: Admission) -> bool {
        self.seen(engine) == admitted
    }

    /// Returns the word as it is after everything that was read.
    #[inline(always)]
    fn seen<E: Engine>(&self, engine: &E) -> Admission {
        fence_acquire();
        self.now(engine)
    }

    /// Closes, and waits until no transaction is active. `own` is the name of the calling thread's
    /// slot.
    pub(crate) fn close<E: Engine>(&self, engine: &E, own: u64, patience: Option<Duration>) -> Result<(), Error> {
        // The model checker's threads have all the same name.
        let is_own = |slot: &Arc<ActiveSlot>| {
            let name = engine.load(&slot.thread);
            slot.active(engine).is_some() && (name == own || name == thread_name())
        };
        if !MODEL && self.all().iter().any(is_own) {
            return Err(Error::InTransaction);
        }
        let until = patience.and_then(|patience| Instant::now().checked_add(patience));
        for (from, to) in [(OPEN, CLOSING), (CLOSING, CLOSED)] {
            self.advance(engine, from, to);
            self.wait_until_empty(engine, until)?;
        }
        Ok(())
    }

    /// Advances the state, unless another thread has done so. Is a fence either way.
    fn advance<E: Engine>(&self, engine: &E, from: u64, to: u64) {
        loop {
            let now = engine.load(&self.line[0]);
            let next = if now & STATE == from { now - from + to } else { now };
            if engine.compare_exchange(&self.line[0], now, next).is_ok() {
                break;
            }
        }
        fence_locked();
    }

    fn wait_until_empty<E: Engine>(&self, engine: &E, until: Option<Instant>) -> Result<(), Error> {
        let waiter = Waiter::new();
        let mut looks = 0;
        loop {
            let transactions = self.all().iter().filter(|slot| slot.active(engine).is_some()).count();
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

    /// Returns all slots. A copy, since no word is accessed while the list is locked.
    fn all(&self) -> Vec<Arc<ActiveSlot>> {
        self.slots.lock().clone()
    }
}
