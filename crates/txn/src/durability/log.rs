//! The log of an open database: buffers, epochs, and the thread that leads.

mod background;
mod buffer;
mod lead;
mod notes;
mod pace;
mod participant;
mod refusals;
mod token;
mod writer;

use std::{
    hint::cold_path,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, SeqCst},
        },
    },
    task::Waker,
    thread,
    time::Duration,
};

use drtm_htm::{Engine, Word};
use drtm_kv::{KvError, Records, Store};
use parking_lot::{Condvar, Mutex};

pub(crate) use self::pace::MOST_PENDING;
pub use self::token::CommitToken;
pub(super) use self::writer::{Finished, UNFINISHED, Unwritten, Writer, WriterConfig, believed};
use self::{background::Background, notes::Notes, pace::Pace, refusals::Refusals};
pub(crate) use self::{
    participant::{Open, Participant},
    token::Choice,
};
use super::{
    Durability, LogError,
    format::CatalogChange,
    storage::{DirectoryLock, Storage},
};
use crate::{
    Commit, Error, model::sync, mutation::Mutation, schema::catalog::Catalog, snapshot::Snapshots, trace::event,
};

/// How a log is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogConfig {
    /// The durability of commits that choose no other.
    pub(crate) mode: Durability,
    pub(crate) flush_within: Duration,
    /// How long a commit waits, at most, until it is durable.
    pub(crate) sync_within: Option<Duration>,
    pub(crate) segment_bytes: u64,
    pub(crate) checkpoint_every: u64,
    /// The most bytes that a transaction can write: keys and values, and an overhead for each row.
    pub(crate) most_logged: usize,
    /// Whether records may be of later epochs than their rows' versions, as those of transactions
    /// that other nodes carry out here.
    pub(crate) lags: bool,
    /// Whether nothing is ever written.
    pub(crate) read_only: bool,
    pub(crate) fault: Option<Mutation>,
}

#[derive(Debug)]
pub(crate) struct Log<E: Engine> {
    me: Weak<Self>,
    pub(super) store: Store<E>,
    snapshots: Snapshots,
    pub(super) catalog: Catalog<E>,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) config: LogConfig,
    /// The last durable epoch: every transaction up to it is durable.
    durable: AtomicU64,
    /// The last epoch that was durable when the log was opened.
    recovered: u64,
    /// An epoch that a frame must close, even an empty frame.
    must_close: AtomicU64,
    /// Whether something may have been appended since the last flush began.
    is_dirty: AtomicBool,
    /// Whether a flush is running.
    is_flushing: AtomicBool,
    refusals: Refusals,
    pace: Pace,
    participants: sync::Mutex<Vec<Arc<Participant>>>,
    /// The participant that appends changes of the catalog.
    announcer: Mutex<Arc<Participant>>,
    notes: Notes,
    pub(super) writer: Mutex<Writer>,
    /// Whether a thread leads. Waiting threads are woken when the leader stops.
    is_led: Mutex<bool>,
    led: Condvar,
    /// Tasks that wait for an epoch.
    tasks: Mutex<Vec<(u64, Waker)>>,
    flusher: Background,
    checkpointer: Background,
    /// The number of the last checkpoint. It is locked while a checkpoint is made.
    pub(super) checkpoints: Mutex<u64>,
    /// The bytes that were written since the last checkpoint.
    pub(super) unsaved: AtomicU64,
    is_stopped: AtomicBool,
    lock: Mutex<Option<Box<dyn DirectoryLock>>>,
}

/// A database's memory, as its log uses it.
pub(crate) type Memory<'m, E> = (&'m Store<E>, &'m Snapshots, &'m Catalog<E>);

impl<E: Engine> Log<E> {
    /// Returns whether the log has this deliberate fault.
    pub(crate) fn has(&self, fault: Mutation) -> bool {
        self.config.fault == Some(fault)
    }

    pub(super) fn new(
        (store, snapshots, catalog): Memory<'_, E>,
        config: LogConfig,
        (storage, lock): (Arc<dyn Storage>, Box<dyn DirectoryLock>),
        (writer, last_checkpoint, read_only): (Writer, u64, Option<String>),
        note: Option<Vec<u8>>,
    ) -> Arc<Self> {
        let announcer = Arc::new(Participant::default());
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            store: store.clone(),
            snapshots: snapshots.clone(),
            catalog: catalog.clone(),
            storage,
            config,
            durable: AtomicU64::new(writer.closed()),
            recovered: writer.closed_by_frame(),
            must_close: AtomicU64::new(0),
            is_dirty: AtomicBool::new(false),
            is_flushing: AtomicBool::new(false),
            refusals: Refusals::new(read_only),
            pace: Pace::default(),
            participants: sync::Mutex::new(vec![Arc::clone(&announcer)]),
            announcer: Mutex::new(announcer),
            notes: Notes::new(note),
            writer: Mutex::new(writer),
            is_led: Mutex::new(false),
            led: Condvar::new(),
            tasks: Mutex::default(),
            flusher: Background::default(),
            checkpointer: Background::default(),
            checkpoints: Mutex::new(last_checkpoint),
            unsaved: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            lock: Mutex::new(Some(lock)),
        })
    }

    fn engine(&self) -> &E {
        self.store.region().engine()
    }

    fn number(&self) -> Result<&Word, KvError> {
        self.snapshots.number(&self.store)
    }

    /// Returns the snapshot number.
    pub(super) fn now(&self) -> Result<u64, KvError> {
        Ok(self.engine().load(self.number()?))
    }

    /// Returns the last epoch that was durable when the log was opened: what was logged in a later
    /// one before is void.
    pub(crate) fn recovered(&self) -> u64 {
        self.recovered
    }

    /// Returns the last durable epoch: every transaction up to it is durable.
    pub(super) fn durable(&self) -> u64 {
        self.durable.load(Acquire)
    }

    /// Returns the most bytes that a transaction can write.
    pub(crate) fn most_logged(&self) -> usize {
        self.config.most_logged
    }

    /// Returns whether the log is being shut down.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Acquire)
    }

    /// Starts flushing at intervals, where commits do not wait for a flush.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    #[inline(never)]
    pub(crate) fn start_flusher(&self) -> Result<(), LogError> {
        let Some(log) = self.me.upgrade() else { return Ok(()) };
        let flush = move || {
            while !log.is_stopped() {
                thread::park_timeout(log.config.flush_within);
                // The failure is stored, and reported to every later commit.
                let _ = log.flush_if_dirty();
            }
        };
        self.flusher.start("drtm-log", Box::new(flush)).map_err(LogError::io("start the thread that writes", "the log"))
    }

    /// Requests a checkpoint from a background thread.
    #[inline(never)]
    fn request_checkpoint(&self) {
        let Some(log) = self.me.upgrade() else { return };
        let make = move || {
            while !log.is_stopped() {
                if log.unsaved.load(Relaxed) >= log.config.checkpoint_every
                    && let Err(_why) = log.checkpoint()
                {
                    event!(warn, why = %_why, "a checkpoint could not be made");
                }
                thread::park();
            }
        };
        if self.checkpointer.is_running() {
            self.checkpointer.wake();
        } else if let Err(_why) = self.checkpointer.start("drtm-checkpoint", Box::new(make)) {
            event!(warn, why = %_why, "no thread can be had that makes checkpoints");
        }
    }

    /// Registers a thread's state as a participant.
    pub(crate) fn participant(&self) -> Arc<Participant> {
        let participant = Arc::new(Participant::default());
        self.participants.lock().push(Arc::clone(&participant));
        participant
    }

    /// Publishes the epoch in which a transaction may commit, until the returned value is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Poisoned`], [`Error::ReadOnly`], [`Error::DiskFull`].
    pub(crate) fn enter<'p>(&'p self, participant: &'p Participant) -> Result<Open<'p, E>, Error> {
        if participant.pending() > self.pace.allowance() || self.refusals.are_any() {
            cold_path();
            self.flush_before_entering(participant)?;
        }
        self.publish(participant)
    }

    /// Waits until a flush has taken what the thread has pending, and checks that there is room for
    /// more. So a disk that is slower than memory slows writers down.
    #[inline(never)]
    fn flush_before_entering(&self, participant: &Participant) -> Result<(), Error> {
        loop {
            self.refusals.check_lasting()?;
            // The flush looks for room. Its failure is kept, and refuses this transaction.
            let _ = self.flush_once();
            self.refusals.check()?;
            if participant.pending() <= self.pace.allowance() {
                return Ok(());
            }
        }
    }

    /// Like [`enter`](Self::enter), but never waits for a flush, and takes transactions on a full
    /// disk: they were decided when it had room.
    ///
    /// # Errors
    ///
    /// [`Error::Poisoned`], [`Error::ReadOnly`].
    pub(crate) fn enter_at_once<'p>(&'p self, participant: &'p Participant) -> Result<Open<'p, E>, Error> {
        if self.refusals.are_any() {
            cold_path();
            self.refusals.check_lasting()?;
        }
        self.publish(participant)
    }

    #[inline(always)]
    fn publish<'p>(&'p self, participant: &'p Participant) -> Result<Open<'p, E>, Error> {
        participant.note_thread();
        let epoch = self.now()?;
        let is_published = self.config.fault != Some(Mutation::EpochNotPublished);
        Ok(participant.open(self.engine(), if is_published { epoch } else { 0 }))
    }

    /// Checks that the log can be written.
    ///
    /// # Errors
    ///
    /// [`Error::Poisoned`], [`Error::ReadOnly`]. [`Error::DiskFull`] if there was no room when it
    /// was tried last.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.refusals.check()
    }

    /// Like [`check`](Self::check), whether the disk is full or not.
    pub(super) fn check_lasting(&self) -> Result<(), Error> {
        self.refusals.check_lasting()
    }

    /// Appends a transaction's record. Returns whether it has any rows to log.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`]; the record is then not appended.
    pub(crate) fn append(
        &self,
        participant: &Participant,
        records: &Records<'_, E>,
        commit: &Commit<'_>,
    ) -> Result<bool, Error> {
        let is_appended = self.append_in(participant, records, commit, commit.epoch())?;
        if self.config.fault == Some(Mutation::EpochClearedEarly) {
            participant.clear_early(self.engine());
        }
        Ok(is_appended)
    }

    /// Appends a transaction's record in an epoch that is open now, and not before its rows'
    /// versions. Returns whether it has any rows to log.
    ///
    /// # Errors
    ///
    /// As for [`append`](Self::append).
    pub(crate) fn append_in(
        &self,
        participant: &Participant,
        records: &Records<'_, E>,
        commit: &Commit<'_>,
        epoch: u64,
    ) -> Result<bool, Error> {
        let is_appended = participant.append(records, commit, epoch)?;
        if is_appended {
            self.mark_dirty();
        }
        Ok(is_appended)
    }

    /// Appends a record of rows that a backup has applied, in the present epoch.
    ///
    /// # Errors
    ///
    /// [`Error::Poisoned`]; [`Error::TooLarge`]. The record is then not appended.
    pub(crate) fn append_rows(
        &self,
        participant: &Participant,
        rows: &[super::format::Entry<'_>],
    ) -> Result<(), Error> {
        participant.append_rows(self.now()?, rows)?;
        self.mark_dirty();
        Ok(())
    }

    /// Logs a change of the catalog, which other threads may see from then on.
    ///
    /// # Errors
    ///
    /// [`Error::Poisoned`], [`Error::ReadOnly`], [`Error::DiskFull`], or when a name is too long.
    pub(crate) fn announce(&self, created: &CatalogChange) -> Result<(), Error> {
        let participant = self.announcer.lock();
        let open = self.enter(&participant)?;
        // The change is the only one of its epoch, so that changes have an order.
        let epoch = self.engine().fetch_add(self.number()?, 1) + 1;
        participant.announce(created, epoch)?;
        self.mark_dirty();
        drop(open);
        Ok(())
    }

    // A flush clears the mark before it advances the number. If it advances to or beyond this
    // record's epoch, it waits for this thread's word, and takes the record. Otherwise this thread
    // has read the number afterwards, and sees the mark cleared.
    fn mark_dirty(&self) {
        if !self.is_dirty.load(SeqCst) {
            self.is_dirty.store(true, SeqCst);
        }
    }

    /// Returns whether all that was visible when this was called is durable.
    // A flush marks itself as running before it clears the dirty mark, and stores its failure
    // before it stops running.
    fn is_clean(&self) -> bool {
        !self.is_dirty.load(SeqCst) && !self.is_flushing.load(SeqCst) && self.refusals.failed().is_none()
    }
}
