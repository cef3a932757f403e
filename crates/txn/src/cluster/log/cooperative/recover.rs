//! What an owner makes of the logs of nodes that have died: what they had decided to write to its
//! rows is written, and what they had locked otherwise is free.
//!
//! Each owner does that for its own rows, without the others. What a slot says does not change once
//! an owner has acted on it, so all agree, and each step can be repeated.

use std::{convert::Infallible, sync::atomic::Ordering::Relaxed, time::Duration};

use drtm_kv::Holder;
use drtm_rdma::{Fabric, FabricError, Incarnation, NodeId, NvError, NvRegion};

use super::{Kind, Life, Logged, SlotState, logged};
use crate::{
    Config, Error,
    cluster::{ClusterError, coordinator::Coordinator, log::Recorded},
    memory::storage::KeyRef,
    mutation::Mutation,
};

/// How often an owner looks whether a node has died, and how long after that it goes through all
/// its rows: a swap at an outdated place may have locked a row that no log names.
const LOOK_AFTER: Duration = Duration::from_millis(1);
const SWEEP_AFTER: Duration = Duration::from_millis(10);

impl<F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'_, F, S> {
    /// Recovers this node's rows from the logs of nodes that have died, for ever. One worker of a
    /// node does that.
    pub(in crate::cluster) async fn keep_recovering(&self) -> Infallible {
        let Some(cooperative) = self.node.cooperative.as_ref().filter(|all| !all.is_kept.swap(true, Relaxed)) else {
            return std::future::pending().await;
        };
        loop {
            // One that cannot be read now may be later.
            let others = cooperative.others().unwrap_or_default();
            let is_left = |life: &Life| !cooperative.recovered.lock().contains(life);
            for life in others.into_iter().filter(is_left) {
                if !self.has_ended(life) {
                    continue;
                }
                if self.recover(life).await.is_ok() {
                    self.endpoint().sleep(SWEEP_AFTER).await;
                    let (NodeId(node), Incarnation(incarnation)) = life;
                    while self.free_rows_of(node, incarnation).await.is_err() {
                        self.endpoint().sleep(LOOK_AFTER).await;
                    }
                    cooperative.recovered.lock().push(life);
                }
            }
            self.endpoint().sleep(LOOK_AFTER).await;
        }
    }

    /// Returns whether a life of a node has ended, and nothing takes effect any more that it has
    /// posted.
    fn has_ended(&self, (node, incarnation): Life) -> bool {
        if !self.has_gone(node, incarnation.0) {
            return false;
        }
        node == self.id()
            || match self.node.fabric.revoke(self.id(), node, incarnation) {
                Ok(is_done) => is_done,
                // It was never here.
                Err(error) => matches!(error, FabricError::UnknownNode { .. }),
            }
    }

    /// Recovers from one life's logs.
    async fn recover(&self, life: Life) -> Result<(), Error> {
        let Some(cooperative) = &self.node.cooperative else { return Ok(()) };
        let path = cooperative.path_of(life);
        let region = NvRegion::open(self.node.home.db.engine().clone(), &path).map_err(ClusterError::Logs)?;
        for slot in logged(&region).map_err(ClusterError::Logs)? {
            let is_decided = match slot.state.kind {
                Kind::Decided => true,
                _ => !refuse(&region, &slot).map_err(ClusterError::Logs)?,
            };
            if is_decided && !S::has(Mutation::DecidedNotCarried) {
                let view = self.view();
                let is_its = |shard| view.primary(shard).filter(|primary| *primary == self.id());
                self.carry(slot.holder, &slot.decided, &mut Vec::new(), is_its).await?;
            }
            self.free_named(slot.holder, &slot.ahead)?;
        }
        Ok(())
    }

    /// Frees rows that a lock-ahead log names, if its transaction has them locked.
    fn free_named(&self, holder: Holder, ahead: &[u8]) -> Result<(), Error> {
        let (home, view, mut buffer) = (&self.node.home, self.view(), Vec::new());
        let Some(ahead) = Recorded::read(ahead, &mut buffer) else { return Ok(()) };
        for (shard, redo) in ahead.redo().filter(|(shard, _)| view.is_here(*shard, self.id())) {
            for entry in redo.entries() {
                let Ok(entry) = entry else { break };
                let Ok(stored) = home.store(view.store_of(entry.table, shard)) else { continue };
                let key_size = home.tables.get(usize::from(entry.table)).map_or(0, |table| table.key_size);
                let word_size = stored.storage.takes(KeyRef::Word(0)).then_some(key_size);
                let Some(key) = KeyRef::of_encoding(entry.key, word_size) else { continue };
                let lock = home.lock_of(stored, key)?;
                if let Some((at, _)) = lock.filter(|(_, found)| *found == holder) {
                    self.participant().unlock(at, holder);
                }
            }
        }
        Ok(())
    }
}

/// Refuses a transaction that is not decided. Returns false if it is decided by now.
pub(super) fn refuse<E: drtm_htm::Engine>(region: &NvRegion<E>, slot: &Logged) -> Result<bool, NvError> {
    let memory = region.region();
    let [word] = memory.array(slot.at)?;
    let (from, to) = (slot.state.to_word(), slot.state.but(Kind::Refused).to_word());
    Ok(match memory.engine().compare_exchange(word, from, to) {
        Ok(_) => true,
        Err(found) => SlotState::of_word(found).kind != Kind::Decided,
    })
}
