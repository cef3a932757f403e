//! The log of an open database: buffers, epochs, and the thread that leads.

mod participant;
mod writer;

use std::{
    hint::cold_path,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Release, SeqCst},
        },
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use drtm_htm::{Engine, Waiter, Word, fence_locked};
use drtm_kv::{KvError, Store};
use parking_lot::{Condvar, Mutex};

use self::participant::Open;
pub(crate) use self::participant::Participant;
pub(super) use self::writer::{UNFINISHED, Writer};
use super::{Durability, LogError, format::Created, storage::DirectoryLock};
use crate::{Commit, Error, mutation::Mutation, snapshots::Snapshots, trace::event};

/// How many bytes may wait in one buffer. A thread that has more writes them itself before its next commit, so that a
/// disk that is slower than memory slows writers down.
const MOST_PENDING: u64 = 4 << 20;

/// How often the leader looks for open epochs before it sleeps between looks.
const LOOKS: u32 = 1 << 10;
const NAP: Duration = Duration::from_micros(50);

/// How long an epoch may stay open before that is reported.
const LONG: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Log<E: Engine> {
    store: Store<E>,
    snapshots: Snapshots,
    mode: Durability,
    fault: Option<Mutation>,
    /// The last epoch of which, and of those before, every transaction is durable.
    durable: AtomicU64,
    /// Whether something may have been appended since the last flush began.
    is_dirty: AtomicBool,
    /// Whether a flush is under way.
    is_flushing: AtomicBool,
    /// Why nothing can be written any more.
    failed: OnceLock<String>,
    participants: Mutex<Vec<Arc<Participant>>>,
    /// What appends changes of the catalog.
    catalog: Mutex<Arc<Participant>>,
    writer: Mutex<Writer>,
    /// Whether a thread leads. Threads that wait are woken when none does.
    is_led: Mutex<bool>,
    led: Condvar,
    flusher: Mutex<Option<JoinHandle<()>>>,
    is_stopped: AtomicBool,
    lock: Mutex<Option<Box<dyn DirectoryLock>>>,
}

impl<E: Engine> Log<E> {
    pub(super) fn new(
        (store, snapshots): (&Store<E>, &Snapshots),
        mode: Durability,
        fault: Option<Mutation>,
        (writer, lock): (Writer, Box<dyn DirectoryLock>),
    ) -> Arc<Self> {
        let catalog = Arc::new(Participant::default());
        Arc::new(Self {
            store: store.clone(),
            snapshots: snapshots.clone(),
            mode,
            fault,
            durable: AtomicU64::new(writer.closed()),
            is_dirty: AtomicBool::new(false),
            is_flushing: AtomicBool::new(false),
            failed: OnceLock::new(),
            participants: Mutex::new(vec![Arc::clone(&catalog)]),
            catalog: Mutex::new(catalog),
            writer: Mutex::new(writer),
            is_led: Mutex::new(false),
            led: Condvar::new(),
            flusher: Mutex::new(None),
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

    /// Begins to flush at intervals, where commits do not wait for it.
    pub(super) fn flush_every(self: &Arc<Self>, interval: Duration) -> Result<(), LogError> {
        let log = Arc::clone(self);
        let flush = move || {
            while !log.is_stopped.load(Acquire) {
                thread::park_timeout(interval);
                // A failure is kept, and told to every later commit.
                let _ = log.flush_if_dirty();
            }
        };
        let flusher = thread::Builder::new().name("drtm-log".to_owned()).spawn(flush);
        *self.flusher.lock() = Some(flusher.map_err(LogError::io("start the thread that writes", "the log"))?);
        Ok(())
    }

    /// Registers a thread's state as one that appends.
    pub(crate) fn participant(&self) -> Arc<Participant> {
        let participant = Arc::new(Participant::default());
        self.participants.lock().push(Arc::clone(&participant));
        participant
    }

    /// Publishes the epoch in which a transaction may be going to commit, until the returned value is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Poisoned`].
    pub(crate) fn enter<'p>(&'p self, participant: &'p Participant) -> Result<Open<'p, E>, Error> {
        if participant.pending() > MOST_PENDING {
            cold_path();
            self.wait_until_durable(self.engine().load(self.number()?))?;
        }
        self.check()?;
        let epoch = self.engine().load(self.number()?);
        let is_published = self.fault != Some(Mutation::EpochNotPublished);
        Ok(participant.open(self.engine(), if is_published { epoch } else { 0 }))
    }

    fn check(&self) -> Result<(), Error> {
        match self.failed.get() {
            None => Ok(()),
            Some(reason) => Err(Error::Poisoned { reason: reason.clone() }),
        }
    }

    /// Appends a transaction's record. Returns whether it has any row to log.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`]; the record is not appended then.
    pub(crate) fn append(&self, participant: &Participant, commit: &Commit<'_>) -> Result<bool, Error> {
        let is_appended = participant.append(commit)?;
        if is_appended {
            self.mark_dirty();
        }
        Ok(is_appended)
    }

    /// Logs a change of the catalog, which others may know from then on.
    ///
    /// # Errors
    ///
    /// [`Error::Poisoned`], or when a name is too long.
    pub(crate) fn announce(&self, created: &Created) -> Result<(), Error> {
        let participant = self.catalog.lock();
        let open = self.enter(&participant)?;
        participant.announce(created, self.engine().load(self.number()?))?;
        self.mark_dirty();
        drop(open);
        Ok(())
    }

    // A flush clears the mark before it advances the number. If it advances to or beyond this record's epoch, it waits
    // for this thread's word, and takes the record. Otherwise this thread has read the number afterwards, and sees the
    // mark cleared.
    fn mark_dirty(&self) {
        if !self.is_dirty.load(SeqCst) {
            self.is_dirty.store(true, SeqCst);
        }
    }

    /// Waits, where transactions wait, until a transaction of this epoch is durable. Epoch zero is that of one that has
    /// logged nothing: everything that it can have read is durable then.
    ///
    /// # Errors
    ///
    /// [`Error::OutcomeUnknown`].
    #[inline(never)]
    pub(crate) fn after_commit(&self, epoch: u64) -> Result<(), Error> {
        match epoch {
            _ if self.mode != Durability::Sync => Ok(()),
            0 if self.is_clean() => Ok(()),
            0 => {
                let now = self.engine().load(self.number()?);
                self.wait_until_durable(now)
            }
            epoch => self.wait_until_durable(epoch),
        }
    }

    /// Returns whether everything that was visible when this was called is durable.
    // A flush says that it is under way before it clears the mark, and that it has failed before it says that it is over.
    fn is_clean(&self) -> bool {
        !self.is_dirty.load(SeqCst) && !self.is_flushing.load(SeqCst) && self.failed.get().is_none()
    }

    /// Waits until every transaction of this epoch, and of those before, is durable.
    ///
    /// # Errors
    ///
    /// [`Error::OutcomeUnknown`].
    fn wait_until_durable(&self, epoch: u64) -> Result<(), Error> {
        while self.durable.load(Acquire) < epoch {
            if let Some(reason) = self.failed.get() {
                return Err(Error::OutcomeUnknown { reason: reason.clone() });
            }
            let mut is_led = self.is_led.lock();
            if *is_led {
                self.led.wait(&mut is_led);
                continue;
            }
            // Another thread may have led meanwhile.
            if self.durable.load(Acquire) < epoch {
                *is_led = true;
                drop(is_led);
                let leading = Leading(self);
                self.flush();
                drop(leading);
            }
        }
        Ok(())
    }

    fn flush_if_dirty(&self) -> Result<(), Error> {
        if self.is_clean() {
            return Ok(());
        }
        self.wait_until_durable(self.engine().load(self.number()?))
    }

    /// Closes the present epoch and makes it durable. The calling thread leads.
    fn flush(&self) {
        let mut writer = self.writer.lock();
        if self.failed.get().is_some() {
            return;
        }
        self.is_flushing.store(true, SeqCst);
        self.is_dirty.store(false, SeqCst);
        if let Err(error) = self.flush_with(&mut writer) {
            let reason = error.to_string();
            event!(error, reason = reason.as_str(), "the log cannot be written any more");
            self.failed.get_or_init(|| reason);
            // What was taken is not durable, and will not be.
            self.is_dirty.store(true, SeqCst);
        }
        self.is_flushing.store(false, SeqCst);
    }

    fn flush_with(&self, writer: &mut Writer) -> Result<(), Error> {
        let epoch = self.engine().fetch_add(self.number()?, 1);
        fence_locked();
        // A copy, since no word is accessed while the list is locked.
        let participants = self.participants.lock().clone();
        self.wait_until_closed(&participants, epoch);
        writer.begin();
        participants.iter().for_each(|participant| participant.drain(writer));
        writer.write(epoch)?;
        self.durable.store(epoch, Release);
        drop(participants);
        // The list has one reference; a state that is gone has none, and appends nothing any more.
        self.participants.lock().retain(|one| Arc::strong_count(one) > 1 || one.pending() > 0);
        Ok(())
    }

    fn wait_until_closed(&self, participants: &[Arc<Participant>], epoch: u64) {
        let (waiter, mut looks, began) = (Waiter::new(), 0_u32, Instant::now());
        let mut is_reported = false;
        while participants.iter().any(|participant| participant.holds(self.engine(), epoch)) {
            looks += 1;
            if looks < LOOKS {
                waiter.pause();
            } else {
                thread::sleep(NAP);
            }
            if !is_reported && looks > LOOKS && began.elapsed() > LONG {
                is_reported = true;
                event!(warn, epoch, "a transaction that is committing has held an epoch open for a second");
            }
        }
    }

    /// Makes everything durable, and ends: nothing is appended any more.
    ///
    /// # Errors
    ///
    /// [`Error::OutcomeUnknown`] if not everything is durable.
    pub(crate) fn shut_down(&self) -> Result<(), Error> {
        let flushed = self.flush_if_dirty();
        self.is_stopped.store(true, Release);
        let flusher = self.flusher.lock().take();
        if let Some(flusher) = flusher {
            flusher.thread().unpark();
            // It does not panic; if it did, there is nothing left to do for it.
            let _ = flusher.join();
        }
        if self.lock.lock().take().is_some() && flushed.is_ok() {
            // The space is the system's again. If that fails, it is the next recovery's.
            let _ = self.writer.lock().trim();
        }
        flushed
    }
}

/// A thread that leads: dropped, by a panic too, another may.
struct Leading<'l, E: Engine>(&'l Log<E>);

impl<E: Engine> Drop for Leading<'_, E> {
    fn drop(&mut self) {
        *self.0.is_led.lock() = false;
        self.0.led.notify_all();
    }
}
