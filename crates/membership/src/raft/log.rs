//! A voter's log and vote, as openraft asks for them.

use std::{
    fmt::Debug,
    io,
    ops::{Bound, RangeBounds},
    sync::Arc,
};

use openraft::{
    AnyError, ErrorSubject, ErrorVerb, LogState, OptionalSend, RaftLogReader, StorageIOError,
    storage::{LogFlushed, RaftLogStorage},
};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    disk::{Disk, Kept, Log},
    types::{Entry, LogId, StorageError, Types, Vote},
};
use crate::{error::Error, mutation::Mutation};

/// The log of a voter. Clones read the same log.
#[derive(Clone, Debug)]
pub(crate) struct LogStore {
    disk: Disk,
    state: Arc<Mutex<State>>,
    snapshots: DurableSnapshots,
    fault: Option<Mutation>,
}

/// Up to where the snapshot on disk reaches, or why none can be written.
pub(crate) type Reach = Result<Option<LogId>, Error>;

pub(crate) type DurableSnapshots = watch::Receiver<Reach>;

#[derive(Debug)]
struct State {
    vote: Option<Vote>,
    log: Log,
}

/// Returns what openraft is told when the disk fails. It stops the voter: what is on the disk is
/// not known.
pub(crate) fn failed(subject: ErrorSubject<u64>, error: &Error) -> StorageError {
    StorageIOError::new(subject, ErrorVerb::Write, AnyError::new(error)).into()
}

impl LogStore {
    pub(crate) fn new(disk: Disk, kept: &Kept, snapshots: DurableSnapshots, fault: Option<Mutation>) -> Self {
        let state = State { vote: kept.vote, log: kept.log.clone() };
        Self { disk, state: Arc::new(Mutex::new(state)), snapshots, fault }
    }

    /// Waits until a snapshot that reaches as far as `upto` is durable.
    async fn snapshot_reaches(&self, upto: LogId) -> Result<(), Error> {
        if self.fault == Some(Mutation::PurgedTooEarly) {
            return Ok(());
        }
        let mut snapshots = self.snapshots.clone();
        let is_settled = |reaches: &Reach| match reaches {
            Ok(reaches) => *reaches >= Some(upto),
            Err(_) => true,
        };
        match snapshots.wait_for(is_settled).await {
            Ok(reaches) => reaches.clone().map(drop),
            Err(_) => Err(Error::Closed),
        }
    }

    /// Changes the log, and returns when the change is durable.
    async fn change(&self, change: impl FnOnce(&mut Log)) -> Result<(), Error> {
        let log = {
            let mut state = self.state.lock();
            change(&mut state.log);
            state.log.clone()
        };
        self.disk.save_log(log).await
    }
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, StorageError> {
        let bounds: (Bound<u64>, Bound<u64>) = (range.start_bound().cloned(), range.end_bound().cloned());
        let state = self.state.lock();
        Ok(state.log.entries.iter().filter(|entry| bounds.contains(&entry.log_id.index)).cloned().collect())
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let log = &self.state.lock().log;
        let last = log.entries.last().map(|entry| entry.log_id);
        Ok(LogState { last_purged_log_id: log.purged, last_log_id: last.or(log.purged) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        self.state.lock().vote = Some(*vote);
        self.disk.save_vote(*vote).await.map_err(|error| failed(ErrorSubject::Vote, &error))
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(self.state.lock().vote)
    }

    /// Remembers what is committed, and writes it with the next change of the log: a voter that
    /// has forgotten it hears of it from the leader.
    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        self.state.lock().log.committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        Ok(self.state.lock().log.committed)
    }

    async fn append<I>(&mut self, entries: I, flushed: LogFlushed<Types>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let outcome = self.change(|log| log.entries.extend(entries)).await;
        flushed.log_io_completed(outcome.clone().map_err(io::Error::other));
        outcome.map_err(|error| failed(ErrorSubject::Logs, &error))
    }

    async fn truncate(&mut self, since: LogId) -> Result<(), StorageError> {
        let outcome = self.change(|log| log.entries.retain(|entry| entry.log_id.index < since.index)).await;
        outcome.map_err(|error| failed(ErrorSubject::Logs, &error))
    }

    /// Removes what a snapshot covers. openraft does not wait until a snapshot that it has received
    /// is durable, so this does.
    async fn purge(&mut self, upto: LogId) -> Result<(), StorageError> {
        self.snapshot_reaches(upto).await.map_err(|error| failed(ErrorSubject::Logs, &error))?;
        let purge = |log: &mut Log| {
            log.purged = Some(upto);
            log.entries.retain(|entry| entry.log_id.index > upto.index);
        };
        self.change(purge).await.map_err(|error| failed(ErrorSubject::Logs, &error))
    }
}
