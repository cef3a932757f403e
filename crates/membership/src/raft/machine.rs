//! The state machine: a ledger, which every voter has, and its snapshots.

use std::sync::Arc;

use openraft::{
    EntryPayload, ErrorSubject, OptionalSend, RaftSnapshotBuilder, Snapshot, StorageIOError, storage::RaftStateMachine,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex as Turn, watch};

use super::{
    disk::{Disk, KeptSnapshot},
    log::{DurableSnapshots, Reach, failed},
    types::{Applied, Entry, LogId, Logged, SnapshotMeta, StorageError, StoredMembership, Types},
};
use crate::{
    error::Error,
    latest::Latest,
    ledger::{Ledger, RequestName},
    mutation::Mutation,
};

/// The state machine of a voter. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    disk: Disk,
    latest: Arc<Latest>,
    state: Arc<Mutex<State>>,
    /// Up to where the snapshot on disk reaches. A build of one and the receipt of a newer one may
    /// go on at once, and this is locked while either is written.
    durable: Arc<Turn<watch::Sender<Reach>>>,
    fault: Option<Mutation>,
}

#[derive(Debug)]
struct State {
    applied: Option<LogId>,
    voters: StoredMembership,
    ledger: Ledger,
    snapshot: Option<KeptSnapshot>,
}

/// A ledger in a snapshot.
#[derive(Serialize, Deserialize)]
struct Image {
    number: u32,
    content: Vec<u8>,
    names: Vec<RequestName>,
}

impl Machine {
    pub(crate) fn new(
        disk: Disk,
        latest: Arc<Latest>,
        snapshot: Option<KeptSnapshot>,
        fault: Option<Mutation>,
    ) -> Result<(Self, DurableSnapshots), Error> {
        let state =
            State { applied: None, voters: StoredMembership::default(), ledger: Ledger::new(fault), snapshot: None };
        let reaches = snapshot.as_ref().and_then(|kept| kept.meta.last_log_id);
        let (durable, snapshots) = watch::channel(Ok(reaches));
        let durable = Arc::new(Turn::new(durable));
        let machine = Self { disk, latest, state: Arc::new(Mutex::new(state)), durable, fault };
        if let Some(kept) = snapshot {
            machine.restore(kept)?;
        }
        Ok((machine, snapshots))
    }

    /// Replaces the state by a snapshot's.
    fn restore(&self, kept: KeptSnapshot) -> Result<(), Error> {
        let image: Image = postcard::from_bytes(&kept.data).map_err(|why| self.disk.damaged_snapshot(why))?;
        let Image { number, content, names } = image;
        let mut state = self.state.lock();
        state.ledger = Ledger::restored(number, content, names, self.fault);
        state.applied = kept.meta.last_log_id;
        state.voters = kept.meta.last_membership.clone();
        state.snapshot = Some(kept);
        let current = state.ledger.current();
        drop(state);
        self.latest.publish(&current);
        Ok(())
    }
}

impl RaftSnapshotBuilder<Types> for Machine {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError> {
        let kept = {
            let State { applied, voters, ledger, .. } = &*self.state.lock();
            let (number, content, names) = ledger.parts();
            let image = Image { number, content: content.to_vec(), names: names.collect() };
            let data = postcard::to_stdvec(&image).map_err(|why| StorageIOError::write_snapshot(None, &why))?;
            let snapshot_id = applied.map(|id| id.to_string()).unwrap_or_default();
            KeptSnapshot {
                meta: SnapshotMeta { last_log_id: *applied, last_membership: voters.clone(), snapshot_id },
                data,
            }
        };
        self.keep(kept.clone()).await?;
        Ok(Snapshot { meta: kept.meta, snapshot: Box::new(kept.data) })
    }
}

impl Machine {
    /// Keeps a snapshot, durably, in place of an older one.
    async fn keep(&self, kept: KeptSnapshot) -> Result<(), StorageError> {
        let durable = self.durable.lock().await;
        let reaches = kept.meta.last_log_id;
        if self.state.lock().snapshot.as_ref().is_some_and(|newer| newer.meta.last_log_id >= reaches) {
            return Ok(());
        }
        let saved = self.disk.save_snapshot(kept.clone()).await;
        let reach = saved.clone().map(|()| reaches);
        durable.send_modify(|known| *known = reach);
        saved.map_err(|error| failed(ErrorSubject::Snapshot(Some(kept.meta.signature())), &error))?;
        self.state.lock().snapshot = Some(kept);
        Ok(())
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), StorageError> {
        let state = self.state.lock();
        Ok((state.applied, state.voters.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Applied>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut state = self.state.lock();
        let mut applied = Vec::new();
        for entry in entries {
            state.applied = Some(entry.log_id);
            applied.push(match entry.payload {
                EntryPayload::Blank | EntryPayload::Normal(Logged::Barrier) => Applied::Nothing,
                EntryPayload::Normal(Logged::Proposal(proposal)) => {
                    state.ledger.replace(proposal.name, proposal.expected, &proposal.content).into()
                }
                EntryPayload::Membership(voters) => {
                    state.voters = StoredMembership::new(Some(entry.log_id), voters);
                    Applied::Nothing
                }
            });
        }
        let current = state.ledger.current();
        drop(state);
        self.latest.publish(&current);
        Ok(applied)
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Vec<u8>>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, data: Box<Vec<u8>>) -> Result<(), StorageError> {
        let kept = KeptSnapshot { meta: meta.clone(), data: *data };
        self.keep(kept.clone()).await?;
        self.restore(kept).map_err(|error| failed(ErrorSubject::Snapshot(Some(meta.signature())), &error))
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError> {
        let kept = self.state.lock().snapshot.clone();
        Ok(kept.map(|kept| Snapshot { meta: kept.meta, snapshot: Box::new(kept.data) }))
    }
}
