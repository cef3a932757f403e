//! The life cycle of a database: whether it is open, which transactions are active, and what has
//! changed since they began.
//!
//! One word holds the state of the database and a count. The count advances when the indexes of a
//! table change, and with each [turn](drtm_kv::Turn) of the store. A transaction reads the word
//! when it begins, its *admission*, and again after its validation. Nearly always the word is
//! unchanged, and that read is the only cost.
//!
//! ```text
//!  63                                        2 1     0
//! +-------------------------------------------+-------+
//! | count (62)                                | state |   0 open, 1 closing, 2 closed, 3 unfinished
//! +-------------------------------------------+-------+
//! ```
//!
//! # Closing
//!
//! An active transaction marks a slot of its own, by a plain store. It uses no fence, since every
//! transaction pays for it. So the closing thread may miss a transaction that is just beginning,
//! and closes in two steps:
//!
//! 1. *Closing*: no transaction is admitted any more, and the closing thread waits for every one
//!    that it sees active.
//! 2. *Closed*: a transaction that was missed is refused after it has locked its write set. Locking
//!    is a fence, and so is the change of the word: of a beginning transaction and a closing
//!    thread, at least one sees the other. A transaction that read the word just before is seen
//!    now, and waited for.
//!
//! A transaction that has locked nothing has no such fence, unless it opens a snapshot. So a
//! read-only one that began at that very moment may continue reading after the end: what it reads
//! no longer changes.
//!
//! # Unfinished
//!
//! A database whose log has the rest of chopped transactions serves nothing before these are
//! finished. Only a thread that finishes them is admitted meanwhile, or one that builds an index.
//!
//! # Indexes
//!
//! When a table gets another index, its writers must know the index from some moment on. The thread
//! that opens the index publishes it first, and then advances the count. A writer that has locked
//! its write set and finds the count of its admission comes before that moment: a later reader of
//! the table waits for its locks, or finds what it has written. A writer that was admitted before,
//! and has written to that table, is retried, and then knows the index. Snapshots and commit epochs
//! are ordered in the same way, by another word.
//!
//! # Dropped tables
//!
//! A dropped table is first detached from its database, and then the count advances (see
//! `catalog::change`). A transaction that finds the count of its admission comes before the drop.
//!
//! # Turns
//!
//! What a transaction has read may look unchanged although it has changed: reused memory gets the
//! same incarnation again after some thousand uses, and a bucket the same version after some
//! million changes. The store counts several turns before that can happen. So if a transaction has
//! validated and then finds the count advanced by fewer than [`ROUND_TURNS`], its validation is
//! sound. Any other transaction is retried.
//!
//! To keep such retries rare, before it reuses memory that often the store checks whether
//! transactions that began before are active ([`has_passed`](Lifecycle::has_passed)). A snapshot,
//! whose slot was published by a fence, is never missed there: no incarnation repeats while it is
//! open.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Relaxed, SeqCst},
            compiler_fence,
        },
    },
    thread,
    time::{Duration, Instant},
};

use drtm_htm::{Engine, Line, Waiter, Word, fence_acquire, fence_locked};
use drtm_kv::ROUND_TURNS;

use super::unfinished::{Admitted, Programs};
use crate::{
    Conflict, Error,
    model::{bounds::MODEL, sync::Mutex},
};

const STATE: u64 = 0b11;
const OPEN: u64 = 0;
const CLOSING: u64 = 1;
const CLOSED: u64 = 2;
const UNFINISHED: u64 = 3;

/// The increment of the count, which begins with one.
const CHANGE: u64 = STATE + 1;

/// The next name of a thread that begins explicit transactions. Names of slots are below.
static NAMES: AtomicU64 = AtomicU64::new(1 << 32);

thread_local! {
    static NAME: Cell<u64> = const { Cell::new(IDLE) };
}

/// Returns the name of the calling thread, which is unique for ever: an explicit transaction may
/// outlive its thread. (A slot's name is reused by another thread.)
pub(crate) fn thread_name() -> u64 {
    if NAME.get() == IDLE {
        NAME.set(NAMES.fetch_add(1, Relaxed));
    }
    NAME.get()
}

/// No transaction is active in a slot: no admission is zero.
const IDLE: u64 = 0;

/// How often the closing thread checks for active transactions before it sleeps between checks, and
/// how long it sleeps.
const LOOKS: u32 = 64;
const NAP: Duration = Duration::from_millis(1);

/// The word under which a transaction was admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Admission(u64);

impl Admission {
    /// An admission later than all others. A caller outside of a transaction passes it: it waits
    /// until a table has been cleared, and gets no conflict.
    pub(crate) const LATEST: Self = Self(u64::MAX);

    /// Returns the count.
    #[inline(always)]
    pub(crate) const fn count(self) -> u64 {
        self.0 / CHANGE
    }

    /// Returns whether no counter can have wrapped from this admission to `now`.
    #[inline(always)]
    pub(crate) const fn is_within_round(self, now: Self) -> bool {
        now.count() - self.count() < ROUND_TURNS
    }

    /// Returns whether closing the database has finished.
    pub(crate) const fn is_closed(self) -> bool {
        self.0 & STATE == CLOSED
    }
}

/// Marks a closure of one thread, or one explicit transaction, as active. The closing thread reads
/// it.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct ActiveSlot {
    /// The admission of the transaction, if one is active.
    admission: Word,
    /// The name of the thread that began the explicit transaction, or of the slot of the thread
    /// that runs the closure.
    thread: Word,
    /// The slot's name. If it is a thread's slot, it is also that thread's name.
    pub(crate) name: u64,
}

impl ActiveSlot {
    #[inline(always)]
    pub(crate) fn is_active<E: Engine>(&self, engine: &E) -> bool {
        engine.load_relaxed(&self.admission) != IDLE
    }

    /// Marks a transaction of the slot's thread as active.
    #[inline(always)]
    pub(crate) fn enter<E: Engine>(&self, engine: &E, admission: Admission) {
        engine.store_relaxed(&self.admission, admission.0);
        begun();
    }

    /// Marks a transaction that this thread began as active.
    #[inline(always)]
    pub(crate) fn enter_by<E: Engine>(&self, engine: &E, admission: Admission, thread: u64) {
        engine.store_relaxed(&self.thread, thread);
        engine.store(&self.admission, admission.0);
        begun();
    }

    /// Ends the transaction. All that it did happens before a thread sees this.
    #[inline(always)]
    pub(crate) fn leave<E: Engine>(&self, engine: &E) {
        engine.store(&self.admission, IDLE);
    }

    /// Returns the admission of the active transaction, if there is one. All that its thread did
    /// before marking it happens before this.
    fn active<E: Engine>(&self, engine: &E) -> Option<Admission> {
        let word = engine.load(&self.admission);
        (word != IDLE).then_some(Admission(word))
    }
}

/// Lets the compiler move nothing that a transaction reads before the mark that it is active. The
/// processor may, unless another thread has all processors pass a barrier (see `quiescence`).
#[inline(always)]
fn begun() {
    compiler_fence(SeqCst);
}

#[derive(Debug)]
pub(crate) struct Lifecycle {
    /// The word of the database, on a line that is seldom written.
    line: Line,
    slots: Mutex<Vec<Arc<ActiveSlot>>>,
    programs: Programs,
}

impl Lifecycle {
    /// Returns the life cycle of an open database.
    pub(crate) fn new<E: Engine>(engine: &E) -> Self {
        let lifecycle = Self { line: Line::default(), slots: Mutex::default(), programs: Programs::default() };
        engine.store(&lifecycle.line[0], CHANGE + OPEN);
        lifecycle
    }

    /// Adds a slot, which the closing thread checks, and the store when it counts a turn.
    pub(crate) fn slot(&self) -> Arc<ActiveSlot> {
        let mut slots = self.slots.lock();
        let name = slots.len() as u64 + 1;
        let slot = Arc::new(ActiveSlot { admission: Word::new(IDLE), thread: Word::new(name), name });
        slots.push(Arc::clone(&slot));
        slot
    }

    /// Admits a transaction that begins, or is retried.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    #[inline(always)]
    pub(crate) fn admit<E: Engine>(&self, engine: &E, is_active: bool) -> Result<Admission, Error> {
        let now = self.now(engine);
        let state = now.0 & STATE;
        if state == OPEN || is_active && state == CLOSING { Ok(now) } else { self.admit_to_finish(now) }
    }

    /// Admits a transaction of the thread that makes an unfinished database ready.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`ChoppedError::Unfinished`](crate::ChoppedError::Unfinished).
    #[cold]
    #[inline(never)]
    fn admit_to_finish(&self, now: Admission) -> Result<Admission, Error> {
        if now.0 & STATE != UNFINISHED {
            return Err(Error::Closed);
        }
        self.programs.admit(thread_name()).map(|()| now)
    }

    /// Admits the opening of a table or an index, which an unfinished database needs, too.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    pub(crate) fn admit_opening<E: Engine>(&self, engine: &E) -> Result<(), Error> {
        if [OPEN, UNFINISHED].contains(&(self.now(engine).0 & STATE)) { Ok(()) } else { Err(Error::Closed) }
    }

    /// Admits transactions of the calling thread, which builds an index, to an unfinished database
    /// as well. Returns `None` if it is open.
    ///
    /// # Errors
    ///
    /// [`Error::Nested`].
    pub(crate) fn admit_building<E: Engine>(&self, engine: &E) -> Result<Option<Admitted<'_>>, Error> {
        let is_unfinished = self.now(engine).0 & STATE == UNFINISHED;
        is_unfinished.then(|| Admitted::begin(&self.programs, thread_name())).transpose()
    }

    /// Admits no transaction before these programs have been finished.
    pub(crate) fn begin_unfinished<E: Engine>(&self, engine: &E, programs: Vec<String>) {
        if !programs.is_empty() {
            self.programs.begin(programs);
            self.advance(engine, OPEN, UNFINISHED);
        }
    }

    /// Registers a program: `finish` finishes what it has left, and its transactions are admitted
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// [`ChoppedError::Registered`](crate::ChoppedError::Registered), or the error of `finish`:
    /// then the program is not registered.
    #[cfg(all(feature = "chopping", not(feature = "model")))]
    pub(crate) fn register<E: Engine, R>(
        &self,
        engine: &E,
        program: &str,
        finish: impl FnOnce() -> Result<R, Error>,
    ) -> Result<R, Error> {
        let (registered, is_last) = self.programs.register(program, thread_name(), finish)?;
        if is_last {
            self.advance(engine, UNFINISHED, OPEN);
        }
        Ok(registered)
    }

    /// Returns the current word.
    #[inline(always)]
    pub(crate) fn now<E: Engine>(&self, engine: &E) -> Admission {
        Admission(engine.load(&self.line[0]))
    }

    /// Returns whether no transaction is admitted any more.
    pub(crate) fn is_closed<E: Engine>(&self, engine: &E) -> bool {
        [CLOSING, CLOSED].contains(&(engine.load(&self.line[0]) & STATE))
    }

    /// Advances the count, so that transactions that were admitted before notice. Returns the new
    /// count.
    pub(crate) fn advance_count<E: Engine>(&self, engine: &E) -> u64 {
        let before = engine.fetch_add(&self.line[0], CHANGE);
        fence_locked();
        Admission(before).count() + 1
    }

    /// Returns whether all transactions that were admitted before this count have ended, as far as
    /// this thread can see.
    #[cold]
    pub(crate) fn has_passed<E: Engine>(&self, engine: &E, count: u64) -> bool {
        // The fence follows the caller's last locking of a mutex: a snapshot that this misses has
        // read nothing yet.
        fence_locked();
        !self.all().iter().any(|slot| slot.active(engine).is_some_and(|admitted| admitted.count() < count))
    }

    /// Checks that no counter that a transaction has validated can have wrapped since it was
    /// admitted.
    #[inline(always)]
    pub(crate) fn check_turns<E: Engine>(&self, engine: &E, admitted: Admission) -> Result<(), Conflict> {
        if admitted.is_within_round(self.seen(engine)) { Ok(()) } else { Err(Conflict::Validation) }
    }

    /// Returns whether nothing at all has changed since a transaction was admitted. Called after
    /// its reads.
    #[inline(always)]
    pub(crate) fn is_unchanged<E: Engine>(&self, engine: &E, admitted: Admission) -> bool {
        self.seen(engine) == admitted
    }

    /// Returns the word as it is after all earlier reads.
    #[inline(always)]
    fn seen<E: Engine>(&self, engine: &E) -> Admission {
        fence_acquire();
        self.now(engine)
    }

    /// Closes the database, and waits until no transaction is active. `own` is the name of the
    /// calling thread's slot.
    pub(crate) fn close<E: Engine>(&self, engine: &E, own: u64, patience: Option<Duration>) -> Result<(), Error> {
        // All threads of the model checker have the same name.
        let is_own = |slot: &Arc<ActiveSlot>| {
            let name = engine.load(&slot.thread);
            slot.active(engine).is_some() && (name == own || name == thread_name())
        };
        if !MODEL && self.all().iter().any(is_own) {
            return Err(Error::InTransaction);
        }
        let until = patience.and_then(|patience| Instant::now().checked_add(patience));
        self.advance(engine, UNFINISHED, CLOSING);
        for (from, to) in [(OPEN, CLOSING), (CLOSING, CLOSED)] {
            self.advance(engine, from, to);
            self.wait_until_empty(engine, until)?;
        }
        Ok(())
    }

    /// Advances the state, unless another thread has done so. It is a fence either way.
    fn advance<E: Engine>(&self, engine: &E, from: u64, to: u64) {
        loop {
            let now = engine.load(&self.line[0]);
            let next = if now & STATE == from { now & !STATE | to } else { now };
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

    /// Returns all slots. It is a copy, since no word may be accessed while the list is locked.
    fn all(&self) -> Vec<Arc<ActiveSlot>> {
        self.slots.lock().clone()
    }
}
