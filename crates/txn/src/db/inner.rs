//! The shared state of all handles of a database, and the state that each thread keeps.

use std::{
    cell::{Cell, RefCell},
    fmt,
    sync::Arc,
};

use crossbeam_queue::SegQueue;
use drtm_htm::{Engine, Word};
use drtm_kv::{KvError, Shortage, Store, Watch};
use thread_local::ThreadLocal;

use crate::{
    Config, Error, Sink,
    db::{
        lifecycle::{ActiveSlot, Admission, Lifecycle},
        stats::Registry,
    },
    durability::{Log, format::CatalogChange},
    memory::{budget::Budget, garbage, quiescence::Quiescence},
    model::{
        bounds::MODEL,
        sync::{ThreadName, this_thread},
    },
    mutation::Mutation,
    schema::catalog::Catalog,
    snapshot::Snapshots,
    trace::event,
    tx::{state::TxState, ticket::Ticket},
};

#[derive(Debug)]
pub(crate) struct Inner<S: Config> {
    /// The number of the database in this process.
    pub(crate) number: u32,
    pub(crate) store: Store<S::Engine>,
    pub(crate) catalog: Catalog<S::Engine>,
    /// The observer of commits, if there is one.
    pub(crate) sink: Option<Arc<dyn Sink>>,
    /// The log, if the database is durable.
    pub(crate) log: Option<Arc<Log<S::Engine>>>,
    /// Whether peers write rows by verbs, which no counter shows.
    pub(crate) for_peers: bool,
    /// Whether a commit is passed to a sink or a log.
    pub(crate) is_told: bool,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) threads: ThreadLocal<Thread<S::Engine>>,
    /// Unused transaction states, beside one for each thread.
    pub(crate) idle: SegQueue<Box<TxState<S::Engine>>>,
    pub(crate) registry: Registry,
    pub(crate) snapshots: Snapshots,
    pub(crate) past: Budget,
    pub(crate) garbage: garbage::Queue,
    /// What keeps records in their tables beside their locks, if there is such.
    #[cfg(feature = "hades")]
    pub(crate) keeper: std::sync::OnceLock<Arc<dyn crate::memory::keeper::Keeper>>,
    pub(crate) ticket: Ticket,
    pub(crate) quiescence: Quiescence,
}

/// A row that was in conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Culprit {
    pub(crate) table: &'static str,
    /// The row's key, encoded.
    pub(crate) key: Vec<u8>,
}

/// What a thread keeps from one transaction to the next. It is aligned to lines, since every
/// transaction writes it, and those of other threads are adjacent.
#[repr(align(128))]
pub(crate) struct Thread<E: Engine> {
    /// An unused transaction state.
    spare: Cell<Option<Box<TxState<E>>>>,
    /// The row that was in conflict in the last run of a closure whose options bound its runs.
    pub(crate) culprit: RefCell<Option<Culprit>>,
    /// The number of rows that the last failed run of a closure had read or written.
    pub(crate) tried: Cell<usize>,
    /// The slot that says whether a closure is running.
    pub(crate) slot: Arc<ActiveSlot>,
    /// The epoch that the last submitted transaction depends on.
    pub(crate) submitted: Cell<u64>,
}

impl<E: Engine> fmt::Debug for Thread<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").field("slot", &self.slot).finish_non_exhaustive()
    }
}

/// A running closure of a thread. Dropping it ends the closure, however the closure returns.
pub(crate) struct Inside<'t, E: Engine> {
    engine: &'t E,
    slot: &'t ActiveSlot,
}

impl<E: Engine> Drop for Inside<'_, E> {
    #[inline(always)]
    fn drop(&mut self) {
        self.slot.leave(self.engine);
    }
}

impl<S: Config> Drop for Inner<S> {
    fn drop(&mut self) {
        if let Some(log) = &self.log
            && let Err(_why) = log.shut_down_for_good()
        {
            event!(error, database = self.number, why = %_why, "not everything is durable of a database that was dropped");
        }
    }
}

impl<S: Config> Watch for Inner<S> {
    fn turned(&self) -> u64 {
        self.snapshots.turned(&self.store);
        self.lifecycle.advance_count(self.engine())
    }

    fn has_passed(&self, turn: u64) -> bool {
        self.lifecycle.has_passed(self.engine(), turn)
    }

    fn is_certain(&self) -> bool {
        self.quiescence.is_certain()
    }

    fn have_all_ended(&self, turn: u64) -> bool {
        S::has(Mutation::MemoryCutEarly) || self.quiescence.check(turn, self.engine(), &self.lifecycle, &self.garbage)
    }

    fn explain(&self, shortage: &mut Shortage) {
        shortage.older_versions = self.past.used();
        shortage.snapshots = self.snapshots.count(&self.store).unwrap_or(0);
        shortage.oldest = self.snapshots.oldest(&self.store);
    }
}

impl<S: Config> Inner<S> {
    #[inline(always)]
    pub(crate) fn engine(&self) -> &S::Engine {
        self.store.region().engine()
    }

    #[inline(always)]
    pub(crate) fn snapshot_number(&self) -> Result<&Word, KvError> {
        self.snapshots.number(&self.store)
    }

    #[inline(always)]
    pub(crate) fn thread(&self) -> &Thread<S::Engine> {
        match self.threads.get() {
            Some(thread) => thread,
            None => self.begin_thread(),
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_thread(&self) -> &Thread<S::Engine> {
        self.threads.get_or(|| Thread {
            spare: Cell::default(),
            culprit: RefCell::default(),
            tried: Cell::new(0),
            slot: self.lifecycle.slot(),
            submitted: Cell::new(0),
        })
    }

    /// Returns the name of the calling thread.
    #[cold]
    pub(crate) fn this_thread(&self) -> ThreadName {
        this_thread(self.thread().slot.name)
    }

    /// Admits a closure of this thread and marks it as running, unless another one is.
    #[inline(always)]
    pub(crate) fn enter<'t>(
        &'t self,
        thread: &'t Thread<S::Engine>,
    ) -> Result<(Inside<'t, S::Engine>, Admission), Error> {
        let (engine, slot) = (self.engine(), &*thread.slot);
        // The model checker's threads are all one here, so another thread's closure may be running.
        if slot.is_active(engine) && !MODEL {
            return Err(Error::Nested);
        }
        let admission = self.lifecycle.admit(engine, false)?;
        slot.enter(engine, admission);
        Ok((Inside { engine, slot }, admission))
    }

    /// Admits another run of a closure of this thread.
    #[cold]
    pub(crate) fn admit_again(&self, thread: &Thread<S::Engine>) -> Result<Admission, Error> {
        let admission = self.lifecycle.admit(self.engine(), true)?;
        thread.slot.enter(self.engine(), admission);
        Ok(admission)
    }

    /// Marks this thread as running a sink, unless it runs a closure.
    pub(crate) fn enter_sink(&self) -> Option<Inside<'_, S::Engine>> {
        let (engine, slot) = (self.engine(), &*self.thread().slot);
        if MODEL || slot.is_active(engine) {
            return None;
        }
        // The transaction itself checks whether the database is being closed.
        slot.enter(engine, self.lifecycle.now(engine));
        Some(Inside { engine, slot })
    }

    /// Logs a change of the catalog, if there is a log.
    ///
    /// # Errors
    ///
    /// [`Error::Poisoned`], [`Error::ReadOnly`], [`Error::DiskFull`], or when a name is too long.
    pub(crate) fn announce(&self, change: &CatalogChange) -> Result<(), Error> {
        self.log.as_ref().map_or(Ok(()), |log| log.announce(change))
    }

    /// Waits for the announced changes, if the database's default durability does.
    ///
    /// # Errors
    ///
    /// [`Error::OutcomeUnknown`], [`Error::NotYetDurable`].
    pub(crate) fn after_announcement(&self) -> Result<(), Error> {
        self.log.as_ref().map_or(Ok(()), |log| log.after_announcement())
    }

    /// Returns a state for a transaction of this thread.
    #[inline(always)]
    pub(crate) fn take(&self, thread: &Thread<S::Engine>) -> Result<Box<TxState<S::Engine>>, Error> {
        // The model checker's threads are all one here. They must not share states, whose names
        // identify lock holders.
        let spare = if MODEL { None } else { thread.spare.take().or_else(|| self.take_idle()) };
        spare.map_or_else(|| self.new_state(), Ok)
    }

    #[cold]
    #[inline(never)]
    fn take_idle(&self) -> Option<Box<TxState<S::Engine>>> {
        self.idle.pop()
    }

    #[cold]
    #[inline(never)]
    fn new_state(&self) -> Result<Box<TxState<S::Engine>>, Error> {
        let mut state = Box::new(TxState::new(self.store.worker()?, self.registry.register(self.engine())));
        state.session.participant = self.log.as_ref().map(|log| log.participant());
        state.note_bytes();
        Ok(state)
    }

    /// Keeps a state for this thread's next transaction.
    #[inline(always)]
    pub(crate) fn give_back(&self, thread: &Thread<S::Engine>, mut state: Box<TxState<S::Engine>>) {
        state.session.leave(self.engine());
        if let Some(other) = thread.spare.replace(Some(state)) {
            self.give_to_others(other);
        }
    }

    /// Leaves a state to any thread: another thread began the transaction, and lacks the state now;
    /// or several transactions were open at once; or it has failed.
    #[cold]
    #[inline(never)]
    pub(crate) fn give_to_others(&self, mut state: Box<TxState<S::Engine>>) {
        state.session.leave(self.engine());
        self.idle.push(state);
    }
}
