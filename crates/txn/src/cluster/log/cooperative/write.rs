//! What a coordinator logs of its own transactions.
//!
//! 1. *Lock-ahead*, before the first lock at another node, and once more if more is to be locked.
//! 2. *Decide*, when nothing can refuse the transaction any more: the write-ahead log.
//! 3. *Free*, when all is written and unlocked.

use std::{
    collections::hash_map::Entry::{Occupied, Vacant},
    mem,
};

use drtm_htm::Engine as _;
use drtm_rdma::{Fabric, die};
use smallvec::SmallVec;

use super::{Kind, RECORDS, SlotState, slots::Slot};
use crate::{
    Config, Conflict, Error,
    cluster::{
        ClusterError,
        coordinator::Coordinator,
        log::record::{self, Head, Participant},
        shard::ShardId,
        state::State,
    },
    durability::format::{Change, Entry, MOST_VALUE, RecordKind, RecordWriter},
    mutation::Mutation,
};

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Logs that rows are going to be locked, those of them that other nodes have; and of this
    /// node, where it has a log: what others read of it may not be durable yet. Rows that are named
    /// already stay so.
    ///
    /// # Errors
    ///
    /// [`ClusterError::LogTooLarge`] if there are too many, and [`ClusterError::Logs`].
    pub(in crate::cluster) fn lock_ahead(
        &self,
        state: &mut State<'e, F::Port>,
        rows: impl Iterator<Item = u32>,
    ) -> Result<(), Error> {
        let Some(cooperative) = &self.node.cooperative else { return Ok(()) };
        let mut slots = self.slots.slots.borrow_mut();
        let holder = state.holder.to_word();
        let known = slots.get(&holder).map_or(&[][..], |slot| &slot.named);
        let is_logged = self.node.home.db.log.is_some();
        let is_new = |row: &u32| (state.node_of(*row) != self.id() || is_logged) && !known.contains(row);
        let new: SmallVec<[u32; 8]> = rows.filter(is_new).collect();
        if new.is_empty() {
            return Ok(());
        }
        let slot = match slots.entry(holder) {
            Occupied(slot) => slot.into_mut(),
            Vacant(place) => {
                let at = cooperative.add_slot().map_err(ClusterError::Logs)?;
                place.insert(Slot { at, state: SlotState::FREE, named: Vec::new(), length: 0 })
            }
        };
        let before = slot.state;
        let next = match before.kind {
            Kind::Free => SlotState { sequence: before.sequence + 1, kind: Kind::Ahead },
            Kind::Ahead => before,
            // An owner has refused it, and it gives up.
            Kind::Decided | Kind::Refused => return Err(Conflict::View.into()),
        };
        let mut named = slot.named.clone();
        named.extend(&new);
        let bytes = self.encode_ahead(state, next, &named)?;
        if bytes.len() > RECORDS {
            return Err(ClusterError::LogTooLarge { bytes: bytes.len(), most: RECORDS }.into());
        }
        self.commit(slot, next, (0, &bytes))?;
        (slot.named, slot.length) = (named, bytes.len());
        die::site("cooperative.ahead");
        Ok(())
    }

    /// Makes the lock-ahead log: removals of the rows, in no version.
    fn encode_ahead(&self, state: &State<'e, F::Port>, next: SlotState, rows: &[u32]) -> Result<Vec<u8>, Error> {
        let mut by_shard: Vec<(ShardId, u32)> =
            rows.iter().map(|row| (state.rows[*row as usize].shard, *row)).collect();
        by_shard.sort_unstable();
        let (mut redo, mut participants) = (Vec::new(), SmallVec::<[_; 8]>::new());
        for rows in by_shard.chunk_by(|one, other| one.0 == other.0) {
            let mut writer = RecordWriter::begin(&mut redo, 0, RecordKind::Rows);
            for (_, row) in rows.iter().filter(|_| !S::has(Mutation::LockAheadLeftOut)) {
                let row = &state.rows[*row as usize];
                let (mut word, key) = ([0; 8], row.key.in_bytes(&state.arena.keys));
                let key = key.encoded(self.key_size(row.table), &mut word);
                let entry = Entry { table: row.table, key, version: 0, change: Change::Remove };
                let most = MOST_VALUE;
                writer.entry(&entry).map_err(|_| ClusterError::LogTooLarge { bytes: key.len(), most })?;
            }
            let too_large = |_| ClusterError::LogTooLarge { bytes: RECORDS + 1, most: RECORDS };
            writer.finish().map_err(too_large)?;
            participants.push(Participant::new(rows[0].0, true));
        }
        let (mut bytes, head) = (Vec::new(), self.head(state, next, next.positions()[0]));
        record::encode(&mut bytes, head, &participants, [&redo[..]].into_iter());
        Ok(bytes)
    }

    fn head(&self, state: &State<'e, F::Port>, SlotState { sequence, .. }: SlotState, position: u64) -> Head {
        Head { position, settled: 0, holder: state.holder.to_word(), sequence, view: state.view.number() }
    }

    /// Checks that all that a transaction writes has room in its slot, and logs that it is going to
    /// be locked.
    ///
    /// # Errors
    ///
    /// As for [`lock_ahead`](Self::lock_ahead).
    pub(in crate::cluster) fn write_ahead_fits(&self, state: &mut State<'e, F::Port>) -> Result<(), Error> {
        if self.node.cooperative.is_none() {
            return Ok(());
        }
        let written = self.written(state)?;
        let rows = state.rows.iter().zip(0..).filter(|(row, _)| row.is_written());
        let rows: Vec<u32> = rows.map(|(_, number)| number).collect();
        self.lock_ahead(state, rows.into_iter())?;
        let slots = self.slots.slots.borrow();
        let slot = slots.get(&state.holder.to_word()).filter(|slot| !slot.named.is_empty());
        let Some(slot) = slot else { return Ok(()) };
        let bytes = slot.length + record::length(written.len(), written.iter().map(|(_, bytes)| bytes).sum());
        if bytes > RECORDS {
            return Err(ClusterError::LogTooLarge { bytes, most: RECORDS }.into());
        }
        Ok(())
    }

    /// Logs all that a transaction writes: it is decided with that. One that has locked nothing at
    /// other nodes needs no log.
    ///
    /// # Errors
    ///
    /// [`Conflict::View`] if an owner has refused it, which has lost its locks; and
    /// [`ClusterError::Logs`].
    pub(in crate::cluster) fn write_ahead(&self, state: &mut State<'e, F::Port>) -> Result<(), Error> {
        die::site("cooperative.locked");
        let mut slots = self.slots.slots.borrow_mut();
        let Some(slot) = slots.get_mut(&state.holder.to_word()).filter(|slot| !slot.named.is_empty()) else {
            return Ok(());
        };
        if S::has(Mutation::WriteAheadLeftOut) {
            return Ok(());
        }
        let mut written = self.written(state)?;
        let mut log = mem::take(&mut state.log);
        let encoded = self.encode_redo(state, &mut written, &mut log);
        let next = slot.state.but(Kind::Decided);
        let participants: SmallVec<[_; 8]> = written.iter().map(|(shard, _)| Participant::new(*shard, true)).collect();
        let (mut bytes, head) = (Vec::new(), self.head(state, next, next.positions()[1]));
        record::encode(&mut bytes, head, &participants, [&log.redo[..]].into_iter());
        state.log = log;
        encoded?;
        self.commit(slot, next, (slot.length, &bytes))?;
        state.log.decided = bytes;
        die::site("cooperative.decided");
        Ok(())
    }

    /// Writes a record into a slot that goes to its next state with that.
    fn commit(&self, slot: &mut Slot, next: SlotState, (from, bytes): (usize, &[u8])) -> Result<(), Error> {
        let Some(cooperative) = &self.node.cooperative else { return Ok(()) };
        let mut writer = self.slots.writer.borrow_mut();
        if writer.is_none() {
            *writer = Some(cooperative.region.writer().map_err(ClusterError::Logs)?);
        }
        let Some(writer) = &mut *writer else { return Ok(()) };
        let chunks = bytes.chunks_exact(size_of::<u64>());
        let words: Vec<u64> =
            chunks.map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))).collect();
        let states = (slot.state.to_word(), next.to_word());
        match writer.commit_if(slot.at, states, &[(slot.records(from), &words)]).map_err(ClusterError::Logs)? {
            Ok(()) => {
                slot.state = next;
                Ok(())
            }
            // An owner that has been started again has lost its locks.
            Err(_) => Err(Conflict::View.into()),
        }
    }

    /// Frees a transaction's slot: it has written and unlocked all.
    pub(in crate::cluster) fn free_slot(&self, state: &State<'e, F::Port>) {
        let Some(cooperative) = &self.node.cooperative else { return };
        let mut slots = self.slots.slots.borrow_mut();
        let Some(slot) = slots.get_mut(&state.holder.to_word()).filter(|slot| !slot.named.is_empty()) else { return };
        die::site("cooperative.written");
        slot.state = slot.state.but(Kind::Free);
        slot.named.clear();
        slot.length = 0;
        let region = cooperative.region.region();
        if let Ok([word]) = region.array(slot.at) {
            region.engine().store(word, slot.state.to_word());
        }
        die::site("cooperative.settled");
    }
}
