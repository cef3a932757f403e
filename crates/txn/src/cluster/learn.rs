//! A node learns the rows of groups that it is going to back up: see
//! [`learning`](super::log) for what it applies, and `docs/decisions/0112`.

use std::{convert::Infallible, thread, time::Duration};

use drtm_rdma::{Fabric, NodeId};

use super::{
    ClusterError, Refusal,
    coordinator::Coordinator,
    log::{NotApplied, OfGroup},
    requests::{
        change::CarriedRow,
        learn::{Copied, CopyFrom, CopyRows},
    },
};
use crate::{
    Config, Error,
    durability::format::{Change, Entry},
    mutation::Mutation,
};

/// How often a node looks whether there is something to learn, and how long it waits before it
/// asks again for rows that it could not be given.
const LOOK_AFTER: Duration = Duration::from_millis(1);

/// How long it waits before it makes a checkpoint again that has failed.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Where the next rows of a table are.
#[derive(Debug, Default)]
struct Place {
    bucket: u64,
    buckets: u64,
    behind: Option<Vec<u8>>,
}

/// What has come of asking for rows.
enum Outcome {
    More,
    All {
        epoch: u64,
    },
    /// There was no room for all of them.
    Again,
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Learns what this node is to have, for ever. One worker of a node does so at a time.
    pub(super) async fn keep_learning(&self) -> Infallible {
        let Some(backup) = &self.node.home.backup else { return std::future::pending().await };
        let _kept = self.turn(&self.node.learns).await;
        loop {
            self.endpoint().sleep(LOOK_AFTER).await;
            let mut emptied = None;
            while backup.empty_some(&mut emptied) {
                self.endpoint().yield_now().await;
            }
            let taken_out = backup.taken_out();
            if !taken_out.is_empty() {
                match self.checkpoint().await {
                    true => backup.is_without(&taken_out),
                    // Its disk is full, for example.
                    false => self.endpoint().sleep(AGAIN_AFTER).await,
                }
            }
            while let Some(group) = backup.to_learn() {
                if self.learn_group(group).await.is_err() {
                    // Its primary is gone, for example, and another one comes.
                    self.endpoint().sleep(LOOK_AFTER).await;
                }
            }
        }
    }

    /// Makes a checkpoint of the node's directory, in a thread of its own. Returns whether there is
    /// one. The log before it is gone then, with the rows that are worth nothing.
    async fn checkpoint(&self) -> bool {
        let Some(log) = self.node.home.db.log.clone().filter(|_| !S::has(Mutation::OldRowsLeft)) else { return true };
        let made = thread::Builder::new().name("drtm-checkpoint".to_owned());
        let Ok(made) = made.spawn(move || log.checkpoint().is_ok()) else { return false };
        while !made.is_finished() {
            self.endpoint().sleep(LOOK_AFTER).await;
        }
        made.join().unwrap_or(false)
    }

    /// Waits until the node's log, if it has one, has all that was applied so far.
    async fn until_flushed(&self) -> Result<(), Error> {
        let Some(log) = &self.node.home.db.log else { return Ok(()) };
        let mut epoch = log.look(0)?;
        while epoch > 0 {
            self.endpoint().sleep(LOOK_AFTER).await;
            epoch = log.look(epoch)?;
        }
        Ok(())
    }

    /// Copies all rows of a group from its primary, as long as that is the same.
    async fn learn_group(&self, group: u16) -> Result<(), Error> {
        let Some(backup) = &self.node.home.backup else { return Ok(()) };
        let primary = || self.node.view.view().placement(group).map(|placed| placed.primary);
        let Some(from) = primary() else { return Ok(()) };
        // A log that has failed says so before anything is copied.
        self.until_flushed().await?;
        let (mut last, mut asked) = (0, self.endpoint().now());
        for table in (0..).zip(&self.node.home.tables).filter(|(_, table)| !table.is_replicated).map(|(table, _)| table)
        {
            let mut place = Place::default();
            loop {
                if primary() != Some(from) || backup.standing(group) != OfGroup::Learns {
                    return Ok(());
                }
                let before = self.bytes_learnt.get();
                let copied = self.copy_some((from, group, table), &mut place).await?;
                if let Outcome::Again = copied {
                    self.endpoint().sleep(LOOK_AFTER).await;
                }
                // The last part of a table counts, too: many tables fit one message.
                if let Some(rate) = self.node.log.copy_rate {
                    let bytes = self.bytes_learnt.get() - before;
                    asked = (asked + Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / rate.max(1)))
                        .max(self.endpoint().now());
                    self.endpoint().sleep(asked.since(self.endpoint().now())).await;
                }
                self.endpoint().yield_now().await;
                if let Outcome::All { epoch } = copied {
                    last = epoch.max(last);
                    break;
                }
            }
            if S::has(Mutation::PartLearnt) {
                break;
            }
        }
        // A replica's directory has all of it: it may be the last one.
        self.until_flushed().await?;
        if primary() == Some(from) {
            backup.has_learnt(group, last);
        }
        Ok(())
    }

    /// Copies some more rows of a table.
    async fn copy_some(&self, (from, group, table): (NodeId, u16, u16), place: &mut Place) -> Result<Outcome, Error> {
        self.in_time(from, self.patience(), self.greet(from)).await?;
        let body =
            CopyFrom { group, table, bucket: place.bucket, buckets: place.buckets, behind: place.behind.as_deref() };
        let taken = self.call::<CopyRows, _>(from, body, |copied| self.take_rows(group, &copied));
        let Some((outcome, next)) = self.in_time(from, self.patience(), taken).await?? else {
            return Ok(Outcome::Again);
        };
        *place = next;
        Ok(outcome)
    }

    /// Applies rows that were copied. Returns where the next ones are, unless there was no room.
    fn take_rows(&self, group: u16, copied: &Copied<'_>) -> Result<Option<(Outcome, Place)>, Error> {
        let Some(backup) = &self.node.home.backup else { return Ok(None) };
        let rows = || copied.rows.iter();
        let entry = |CarriedRow { table, key, version, value }| Entry {
            table,
            key,
            version,
            change: value.map_or(Change::Remove, Change::Put),
        };
        match backup.learn(group, rows().map(entry), !S::has(Mutation::ReplicasNotLogged)) {
            Ok(true) => {}
            Ok(false) | Err(NotApplied::Full) => return Ok(None),
            Err(NotApplied::Wrong) => {
                return Err(ClusterError::Refused { node: self.id(), reason: Refusal::Corrupt }.into());
            }
        }
        let (mut bytes, mut behind) = (0, None);
        for CarriedRow { key, value, .. } in rows() {
            bytes += (key.len() + value.map_or(0, <[u8]>::len)) as u64;
            behind = Some(key);
        }
        self.bytes_learnt.set(self.bytes_learnt.get() + bytes);
        let behind = behind.filter(|_| copied.is_cut).map(<[u8]>::to_vec);
        let outcome = if copied.is_all { Outcome::All { epoch: copied.epoch } } else { Outcome::More };
        Ok(Some((outcome, Place { bucket: copied.bucket, buckets: copied.buckets, behind })))
    }
}
