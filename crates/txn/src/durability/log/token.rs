//! Commit tokens, to be waited for by a thread or awaited as futures.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use drtm_htm::Engine;
use drtm_kv::Version;

use super::{Log, lead::Deadline};
use crate::{
    Durability, Error, LogError,
    commit::{epoch::epoch_of, read_set::ReadSet},
};

/// When a transaction's commit returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Choice {
    /// As the database's durability says.
    #[default]
    Default,
    Sync,
    Async,
    /// At once, with a token.
    Token,
}

/// A log, as tokens use it.
trait Awaited: Send + Sync {
    fn is_durable(&self, epoch: u64) -> bool;
    fn wait(&self, epoch: u64, patience: Option<Duration>) -> Result<(), Error>;
    fn poll(&self, epoch: u64, task: &Waker) -> Poll<Result<(), Error>>;
}

// Not the log's own, which would be compiled into every application with all that a log has.
impl fmt::Debug for dyn Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}

/// A commit that is visible in memory, and becomes durable later. A thread can [wait](Self::wait)
/// for it. It is also a future, which needs no particular runtime.
///
/// Dropping the token has no effect: the transaction becomes durable like an
/// [`Async`](crate::Durability::Async) one.
///
/// A database in memory only has nothing to wait for: its tokens are ready at once. So the same
/// code runs with a directory and, in a test, without one.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, Raw, TableDef};
///
/// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
/// let directory = std::env::temp_dir().join(format!("drtm-token-{}", std::process::id()));
/// let db = Db::create(&directory)?;
/// let notes = db.table(NOTES)?;
/// let ((), first) = db.submit(|tx| tx.put(notes, &1, b"one"))?;
/// let ((), second) = db.submit(|tx| tx.put(notes, &2, b"two"))?;
/// // Both are visible. Now both become durable, by one write.
/// second.wait()?;
/// assert!(first.is_durable());
/// # drop((first, second, db));
/// # std::fs::remove_dir_all(&directory).expect("it is there");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a transaction that was submitted is not durable yet"]
pub struct CommitToken {
    /// `None` in a database in memory only.
    log: Option<Arc<dyn Awaited>>,
    epoch: u64,
}

impl CommitToken {
    /// Creates the token of a commit that depends on this epoch.
    pub(crate) fn new<E: Engine>(log: Option<&Arc<Log<E>>>, epoch: u64) -> Self {
        let log = log.map(|log| Arc::clone(log) as Arc<dyn Awaited>);
        Self { log, epoch }
    }

    /// Returns whether the transaction is durable.
    ///
    /// # Example
    ///
    /// See [`CommitToken`].
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.log.as_ref().is_none_or(|log| log.is_durable(self.epoch))
    }

    /// Waits until the transaction is durable.
    ///
    /// # Errors
    ///
    /// [`Error::OutcomeUnknown`] if the log fails meanwhile. [`Error::NotYetDurable`] if the disk
    /// is full: the token can be waited for again.
    ///
    /// # Example
    ///
    /// See [`CommitToken`].
    pub fn wait(&self) -> Result<(), Error> {
        self.log.as_ref().map_or(Ok(()), |log| log.wait(self.epoch, None))
    }

    /// Waits until the transaction is durable, for this time at most.
    ///
    /// # Errors
    ///
    /// [`Error::NotYetDurable`] when the time is over, too. Otherwise as for [`wait`](Self::wait).
    ///
    /// # Example
    ///
    /// See [`Error::NotYetDurable`].
    pub fn wait_within(&self, patience: Duration) -> Result<(), Error> {
        self.log.as_ref().map_or(Ok(()), |log| log.wait(self.epoch, Some(patience)))
    }
}

impl Future for CommitToken {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.log.as_ref().map_or(Poll::Ready(Ok(())), |log| log.poll(self.epoch, context.waker()))
    }
}

impl<E: Engine> Awaited for Log<E> {
    fn is_durable(&self, epoch: u64) -> bool {
        self.durable() >= epoch
    }

    fn wait(&self, epoch: u64, patience: Option<Duration>) -> Result<(), Error> {
        self.wait_until_durable(epoch, Deadline::within(patience))
    }

    fn poll(&self, epoch: u64, task: &Waker) -> Poll<Result<(), Error>> {
        if let Some(ended) = self.has_ended(epoch) {
            return Poll::Ready(ended);
        }
        let mut tasks = self.tasks.lock();
        if !tasks.iter().any(|(awaited, waker)| *awaited == epoch && waker.will_wake(task)) {
            tasks.push((epoch, task.clone()));
        }
        drop(tasks);
        // A flush that ended before the task was registered did not wake it.
        if let Some(ended) = self.has_ended(epoch) {
            return Poll::Ready(ended);
        }
        self.pace.hurry();
        match self.request_flush() {
            Ok(()) => Poll::Pending,
            // No background thread can be started, so this thread waits.
            Err(_) => Poll::Ready(self.wait_until_durable(epoch, Deadline::within(None))),
        }
    }
}

impl<E: Engine> Log<E> {
    /// Lets the background thread close the present epoch, and make it durable.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub(crate) fn request_flush(&self) -> Result<(), LogError> {
        self.start_flusher()?;
        // The epoch that is waited for may have begun behind the last record.
        self.mark_dirty();
        self.flusher.wake();
        Ok(())
    }

    /// Looks, without waiting, whether all is durable up to an epoch. The first look passes zero,
    /// for all that is visible now. Returns zero if it is durable; otherwise a flush is under way,
    /// and the returned epoch is to be passed to the next look.
    ///
    /// # Errors
    ///
    /// [`Error::OutcomeUnknown`] if the log has failed; or when no thread can be started.
    pub(crate) fn look(&self, epoch: u64) -> Result<u64, Error> {
        let epoch = match epoch {
            0 if self.is_clean() => return Ok(0),
            0 => self.now()?,
            epoch => epoch,
        };
        match self.has_ended(epoch) {
            Some(ended) => ended.map(|()| 0),
            None => self.request_flush().map(|()| epoch).map_err(Error::from),
        }
    }

    /// Returns when commits that choose no durability return.
    pub(crate) fn mode(&self) -> Durability {
        self.config.mode
    }

    /// Returns the outcome of an epoch. `None` if it is still pending.
    fn has_ended(&self, epoch: u64) -> Option<Result<(), Error>> {
        if self.durable() >= epoch {
            return Some(Ok(()));
        }
        self.refusals.failed().map(|reason| Err(Error::OutcomeUnknown { reason: reason.clone() }))
    }

    /// Returns the last epoch that a transaction without logged rows depends on. It was validated
    /// just now. It has read `reads`, or `snapshot`, which ends before that version.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    #[inline(never)]
    pub(crate) fn depends_on(
        &self,
        reads: &ReadSet,
        has_only_read: bool,
        snapshot: Option<Version>,
    ) -> Result<u64, Error> {
        Ok(match snapshot {
            // Every transaction that it can have seen is durable.
            _ if self.is_clean() => 0,
            _ if self.config.lags => self.now()?,
            Some(before) => epoch_of(before) - 1,
            // An absent row has no version, and index entries are not logged.
            None if reads.has_guards() || !has_only_read => self.now()?,
            None => reads.records.iter().map(|seen| epoch_of(seen.version)).max().unwrap_or(0),
        })
    }

    /// Waits until everything up to this epoch is durable, if the transaction's durability demands
    /// it.
    ///
    /// # Errors
    ///
    /// [`Error::OutcomeUnknown`], [`Error::NotYetDurable`].
    #[inline(never)]
    pub(crate) fn after_commit(&self, epoch: u64, choice: Choice) -> Result<(), Error> {
        let waits = match choice {
            Choice::Default => self.config.mode == Durability::Sync,
            Choice::Sync => true,
            // If no background thread can be started, this thread does its work.
            Choice::Async => !self.flusher.is_running() && self.start_flusher().is_err(),
            Choice::Token => false,
        };
        if waits && self.durable() < epoch {
            return self.wait_until_durable(epoch, Deadline::within(self.config.sync_within));
        }
        Ok(())
    }

    /// Waits until all announcements are durable, if the database's default durability does.
    ///
    /// # Errors
    ///
    /// As for [`after_commit`](Self::after_commit).
    pub(crate) fn after_announcement(&self) -> Result<(), Error> {
        if self.is_clean() { Ok(()) } else { self.after_commit(self.now()?, Choice::Default) }
    }
}
