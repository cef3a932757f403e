//! Reserving space at backups, before the first lock.

use std::{mem, rc::Rc, time::Duration};

use drtm_rdma::{Fabric, NodeId};
use smallvec::SmallVec;

use super::{copies::Copies, outgoing::Outgoing, record};
use crate::{
    Config, Conflict, Error,
    cluster::{
        ClusterError,
        coordinator::Coordinator,
        requests::log::{OpenRing, OpenRingFor},
        shard::ShardId,
        state::{Row, State},
    },
    durability::format::{MOST_BESIDE, MOST_VALUE, record_length},
};

/// How often space is asked for, and the longest pause between: two to this power of microseconds.
const PATIENCE: u32 = 256;
const LONGEST: u32 = 12;

/// The shards that a transaction writes to, in order, and bytes of each one's rows.
pub(super) type Written = SmallVec<[(ShardId, usize); 4]>;

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Returns whether transactions are recorded, so that others complete or undo those of a node
    /// that has died.
    pub(in crate::cluster) fn is_recorded(&self) -> bool {
        self.node.log.copies > 0
    }

    /// Returns where this node's transactions are recorded.
    pub(super) fn copies(&self) -> Copies {
        Copies { coordinator: self.id(), count: self.node.log.copies }
    }

    /// Returns the shards that a transaction writes to, in order, and how long their redo records
    /// will be at most.
    pub(super) fn written(&self, state: &State<'e, F::Port>) -> Result<Written, Error> {
        let mut written = Written::new();
        for (row, number) in state.rows.iter().zip(0..).filter(|(row, _)| row.is_written()) {
            let key = row.key.in_bytes(&state.arena.keys);
            let key = key.encoded(self.key_size(row.table), &mut [0; 8]).len();
            let value = state.value(number).map_or(0, <[u8]>::len);
            if value > MOST_VALUE || key > usize::from(u16::MAX) {
                return Err(ClusterError::LogTooLarge { bytes: key.max(value), most: MOST_VALUE }.into());
            }
            let bytes = MOST_BESIDE + key + value;
            match written.binary_search_by_key(&row.shard, |(shard, _)| *shard) {
                Ok(at) => written[at].1 += bytes,
                Err(at) => written.insert(at, (row.shard, bytes)),
            }
        }
        written.iter_mut().for_each(|(_, content)| *content = record_length(*content));
        Ok(written)
    }

    /// Reserves space for a transaction's records at all nodes that get one.
    ///
    /// # Errors
    ///
    /// [`ClusterError::LogTooLarge`], [`ClusterError::LogFull`]; or when a backup cannot be asked.
    /// A transaction that has locked rows does not wait: it conflicts.
    pub(in crate::cluster) async fn reserve_log(&self, state: &mut State<'e, F::Port>) -> Result<(), Error> {
        if !self.is_recorded() {
            return Ok(());
        }
        let (written, copies) = (self.written(state)?, self.copies());
        let mut needs = mem::take(&mut state.log.needs);
        needs.clear();
        for (shard, _) in &written {
            for node in copies.recorded_at(&state.view, *shard) {
                if needs.iter().any(|(known, _)| *known == node) {
                    continue;
                }
                let has = |shard| copies.recorded_at(&state.view, shard).any(|other| other == node);
                let its = written.iter().filter(|(shard, _)| has(*shard));
                let redo = its.map(|(_, bytes)| bytes).sum();
                needs.push((node, record::length(written.len(), redo) as u64));
            }
        }
        state.log.needs = needs;
        let waits = !state.rows.iter().any(Row::may_be_locked);
        self.reserve(state, waits).await
    }

    /// Reserves what the last run has needed, before a transaction claims its rows.
    pub(in crate::cluster) async fn reserve_log_for_claims(&self, state: &mut State<'e, F::Port>) -> Result<(), Error> {
        if state.log.needs.is_empty() { Ok(()) } else { self.reserve(state, true).await }
    }

    async fn reserve(&self, state: &mut State<'e, F::Port>, waits: bool) -> Result<(), Error> {
        let most = self.node.log.ring_bytes;
        if let Some((_, bytes)) = state.log.needs.iter().find(|(_, bytes)| *bytes > most) {
            return Err(ClusterError::LogTooLarge { bytes: *bytes as usize, most: most as usize }.into());
        }
        let mut tries = 0;
        loop {
            let Some(full) = self.try_reserve(state).await? else { return Ok(()) };
            if !waits {
                // Next time, so much is reserved before rows are claimed.
                return Err(Conflict::Locked.into());
            }
            // Another transaction may need just this at one backup to go on at another.
            self.release_log(state);
            if tries == PATIENCE {
                return Err(ClusterError::LogFull { node: full }.into());
            }
            self.endpoint().sleep(Duration::from_micros(1 << tries.min(LONGEST))).await;
            tries += 1;
        }
    }

    /// Reserves as much as there is. Gives the backup whose ring is full, if one's is.
    async fn try_reserve(&self, state: &mut State<'e, F::Port>) -> Result<Option<NodeId>, Error> {
        for need in 0..state.log.needs.len() {
            let (node, bytes) = state.log.needs[need];
            let has = state.log.reserved.iter().find(|(ring, _)| ring.node == node).map_or(0, |(_, bytes)| *bytes);
            let Some(bytes) = bytes.checked_sub(has).filter(|bytes| *bytes > 0) else { continue };
            // Requests go to nodes that the transaction knows.
            state.owner(node);
            if node != self.id() {
                self.meet(state, node).await?;
            }
            let ring = self.ring_at(node).await?;
            let mut is_reserved = ring.producer.borrow_mut().reserve(bytes);
            if !is_reserved {
                self.tell(&ring).await?;
                is_reserved = ring.producer.borrow_mut().reserve(bytes);
            }
            if !is_reserved {
                return Ok(Some(node));
            }
            match state.log.reserved.iter_mut().find(|(other, _)| Rc::ptr_eq(other, &ring)) {
                Some((_, reserved)) => *reserved += bytes,
                None => state.log.reserved.push((ring, bytes)),
            }
        }
        Ok(None)
    }

    /// Gives back what was reserved, and not used.
    pub(super) fn release_log(&self, state: &mut State<'e, F::Port>) {
        for (ring, bytes) in state.log.reserved.drain(..) {
            ring.producer.borrow_mut().give_back(bytes);
        }
    }

    /// Returns this worker's ring at a backup, which makes one at the first use.
    async fn ring_at(&self, node: NodeId) -> Result<Rc<Outgoing>, Error> {
        loop {
            let (mut here, mut region) = (None, Some(self.node.region));
            if node != self.id() {
                here = Some(self.greet(node).await?);
                region = self.peer(node).map(|peer| peer.region());
            }
            if let Some(ring) = self.rings.at(node).filter(|ring| here.is_none() || ring.incarnation == here) {
                return Ok(ring);
            }
            let Some(_opening) = self.rings.begin_opening(node) else {
                self.endpoint().until(|| !self.rings.is_opening(node)).await;
                continue;
            };
            let region = region.ok_or(ClusterError::NotHere { node })?;
            let request = OpenRingFor { producer: self.holder() };
            let place = self.call::<OpenRing, _>(node, request, |place| place).await?;
            self.rings.keep(Rc::new(Outgoing::new(node, here, region, place)));
        }
    }
}
