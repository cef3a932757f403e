//! Carries decided transactions out from their records: those of coordinators that are dead, when
//! the view [changes](super::change), and those of this node of which an owner may not have heard.
//!
//! A row that its holder has locked is written and unlocked. One that it has not was carried out
//! already. So this can be done as often as it takes.

use drtm_kv::Holder;
use drtm_rdma::{Fabric, NodeId};

use super::{
    coordinator::Coordinator,
    log::{AGAIN_AFTER, Recorded},
    requests::change::{CarriedRow, Carry, CarryRows},
    shard::ShardId,
    state::State,
    wire::{Many, Wire as _},
};
use crate::{Config, Error, durability::format::Change};

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Tells owners once more what they may not have heard of a decided transaction, unless they
    /// are gone. A worker that serves does it later if one cannot be asked now.
    pub(super) async fn carry_unheard(&self, state: &mut State<'e, F::Port>) {
        loop {
            let mut unheard = std::mem::take(&mut state.log.unheard);
            let is_here = |node: NodeId| self.may_be_met_again(node, state.met(node));
            unheard.retain(|node| is_here(*node) || self.restores(*node));
            state.log.unheard = unheard;
            for node in state.log.unheard.clone() {
                let is_done = match self.may_be_met_again(node, state.met(node)) {
                    true => self.carry_at(state, node).await.is_ok(),
                    // Its next life has restored it before it serves.
                    false => self.greet(node).await.is_ok(),
                };
                if is_done {
                    state.log.unheard.retain(|other| *other != node);
                }
            }
            if state.log.unheard.is_empty() || self.serves.get() {
                return;
            }
            self.endpoint().sleep(AGAIN_AFTER).await;
        }
    }

    /// Returns whether an owner that is gone will restore what is in the logs of others, when it is
    /// started again.
    pub(super) fn restores(&self, node: NodeId) -> bool {
        self.node.cooperative.is_some() && self.durability_of(node).is_some() && node != self.id()
    }

    /// Carries a transaction of this node out at one owner.
    async fn carry_at(&self, state: &State<'e, F::Port>, owner: NodeId) -> Result<(), Error> {
        self.greet(owner).await?;
        let mut carried = Vec::new();
        for record in state.log.whole_records() {
            let is_its = |shard| state.view.primary(shard).filter(|primary| *primary == owner);
            self.carry(state.holder, record, &mut carried, is_its).await?;
        }
        Ok(())
    }

    /// Carries out what a record has, where the shards' primaries are to be asked. Adds the shards
    /// to those that were `carried` out.
    pub(super) async fn carry(
        &self,
        holder: Holder,
        record: &[u8],
        carried: &mut Vec<ShardId>,
        primary: impl Fn(ShardId) -> Option<NodeId>,
    ) -> Result<(), Error> {
        let mut buffer = Vec::new();
        let Some(record) = Recorded::read(record, &mut buffer) else { return Ok(()) };
        let most = self.room_for_list();
        for (shard, redo) in record.redo() {
            let Some(primary) = primary(shard).filter(|_| !carried.contains(&shard)) else { continue };
            carried.push(shard);
            let (mut rows, mut count) = (Vec::new(), 0);
            for entry in redo.entries() {
                let Ok(entry) = entry else { break };
                let value = if let Change::Put(value) = entry.change { Some(value) } else { None };
                let before = rows.len();
                CarriedRow { table: entry.table, key: entry.key, version: entry.version, value }.put(&mut rows);
                if rows.len() > most && before > 0 {
                    let more = rows.split_off(before);
                    self.carry_rows(primary, holder, (redo.epoch, shard), (&rows, count)).await?;
                    (rows, count) = (more, 0);
                }
                count += 1;
            }
            self.carry_rows(primary, holder, (redo.epoch, shard), (&rows, count)).await?;
        }
        Ok(())
    }

    /// # Errors
    ///
    /// [`ClusterError::NotReady`](super::ClusterError::NotReady) if the primary does not answer in
    /// time.
    async fn carry_rows(
        &self,
        primary: NodeId,
        holder: Holder,
        (epoch, shard): (u64, ShardId),
        (rows, count): (&[u8], usize),
    ) -> Result<(), Error> {
        let body = CarryRows { holder, epoch, shard: shard.0, rows: Many::new(rows, count) };
        self.in_time(primary, self.patience(), self.call::<Carry, _>(primary, body, |()| ())).await
    }
}
