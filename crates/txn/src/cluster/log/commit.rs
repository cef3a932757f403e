//! The logging phase of a worker's transactions.
//!
//! 1. *Reserve*, before the first lock: space for the records at all backups, or none.
//! 2. *Log*, after validation: the records are written, and all backups have acknowledged them when
//!    this ends. Then the transaction is decided.
//! 3. *Settle*: once a decided transaction is carried out, its records count. Those of one that was
//!    given up are made void first. Backups are told lazily: by the head of the next record, or
//!    after a while by a message or a WRITE of their own.

use std::{mem, rc::Rc};

use drtm_rdma::{Fabric, NodeId, Phase, VerbError};
use smallvec::SmallVec;

use super::{
    outgoing::Outgoing,
    pending::{Logged, Logging, Piece},
    record::{self, Head, Participant},
    reserve::Written,
    ring::DATA,
    tell::AGAIN_AFTER,
};
use crate::{
    Config, Error,
    cluster::{
        ClusterError,
        ask::{Ask, Asks},
        coordinator::Coordinator,
        state::{Op, Row, State},
        view::View,
    },
    commit::epoch::version_in,
    durability::format::{Change, Entry, MOST_VALUE, RecordKind, RecordWriter},
};

/// What a message has beside a piece of a record.
const BESIDE: usize = 128;

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Writes a transaction's records to all backups, and waits until they are there.
    ///
    /// # Errors
    ///
    /// When that is not known of one.
    pub(in crate::cluster) async fn log(&self, state: &mut State<'e, F::Port>) -> Result<(), Error> {
        if self.node.cooperative.is_some() {
            return self.write_ahead(state);
        }
        if !self.is_recorded() || state.log.reserved.is_empty() {
            return Ok(());
        }
        // Before a look at the view: a node that has closed it waits for this transaction, or this
        // one finds it closed.
        state.log.has_begun = true;
        self.unsettled.begin();
        self.check_view(state)?;
        self.encode_log(state)?;
        let asks: Asks = (0..state.log.pieces.len() as u32).map(Ask::Log).collect();
        self.round(state, Phase::Log, &asks).await?;
        for Logged { ring, settled, .. } in &state.log.records {
            ring.producer.borrow_mut().note_told(*settled);
        }
        Ok(())
    }

    /// Makes the records, and gives them positions.
    fn encode_log(&self, state: &mut State<'e, F::Port>) -> Result<(), Error> {
        let mut written = self.written(state)?;
        let mut log = mem::take(&mut state.log);
        let encoded = self.encode_redo(state, &mut written, &mut log);
        if encoded.is_ok() {
            let (holder, sequence) = (state.holder.to_word(), self.rings.next_sequence());
            for (ring, reserved) in mem::take(&mut log.reserved) {
                self.encode_record((&mut log, &state.view), &written, (ring, reserved), (holder, sequence));
            }
        }
        state.log = log;
        encoded
    }

    /// Makes one redo record for each owner that is written to, one behind the other, and replaces
    /// the bounds of their lengths by their lengths.
    pub(super) fn encode_redo(
        &self,
        state: &State<'e, F::Port>,
        written: &mut Written,
        log: &mut Logging,
    ) -> Result<(), Error> {
        log.redo.clear();
        for (shard, length) in written {
            let (start, epoch) = (log.redo.len(), state.epoch_at(state.node_at(*shard)));
            let mut writer = RecordWriter::begin(&mut log.redo, epoch, RecordKind::Rows);
            for (row, number) in state.rows.iter().zip(0..).filter(|(row, _)| row.is_written() && row.shard == *shard) {
                let Row { table, key, seen, op, .. } = *row;
                let change = match op {
                    Op::Put(_) | Op::Publish(_) => Change::Put(state.value(number).unwrap_or_default()),
                    Op::Remove | Op::Nothing => Change::Remove,
                };
                let (mut word, key) = ([0; 8], key.in_bytes(&state.arena.keys));
                let key = key.encoded(self.key_size(table), &mut word);
                let version = version_in(epoch, seen).number();
                let entry = Entry { table, key, version, change };
                let most = MOST_VALUE;
                writer.entry(&entry).map_err(|_| ClusterError::LogTooLarge { bytes: key.len(), most })?;
            }
            writer.finish().map_err(|damage| ClusterError::LogTooLarge { bytes: damage.offset, most: MOST_VALUE })?;
            let encoded = log.redo.len() - start;
            debug_assert!(encoded <= *length, "at most what was reserved");
            *length = encoded;
        }
        Ok(())
    }

    /// Makes the record of one backup, and what would make it void.
    fn encode_record(
        &self,
        (log, view): (&mut Logging, &View),
        written: &Written,
        (ring, reserved): (Rc<Outgoing>, u64),
        (holder, sequence): (u64, u64),
    ) {
        let node = ring.node;
        let (mut participants, mut parts, mut start) = (SmallVec::<[_; 8]>::new(), SmallVec::<[_; 8]>::new(), 0);
        for (shard, length) in written {
            let is_its = self.copies().recorded_at(view, *shard).any(|other| other == node);
            participants.push(Participant::new(*shard, is_its));
            if is_its {
                parts.push(&log.redo[start..start + length]);
            }
            start += length;
        }
        let length = record::length(participants.len(), parts.iter().map(|part| part.len()).sum());
        let mut producer = ring.producer.borrow_mut();
        let position = producer.begin(length as u64);
        // Another run of this transaction may have needed more.
        producer.give_back(reserved - length as u64);
        let settled = producer.settled();
        drop(producer);
        let head = Head { position, settled, holder, sequence, view: view.number() };
        let begin = log.bytes.len();
        record::encode(&mut log.bytes, head, &participants, parts.into_iter());
        let void = log.bytes.len();
        record::encode_void(&mut log.bytes, head, length);
        let most = self.longest_piece(node);
        let mut from = 0;
        while from < length as u64 {
            let to_end = ring.place.size - ((position + from) & (ring.place.size - 1));
            let bytes = (length as u64 - from).min(to_end).min(most);
            let at = begin + from as usize;
            let (record, position) = (log.records.len() as u32, position + from);
            log.pieces.push(Piece { record, position, bytes: at..at + bytes as usize });
            from += bytes;
        }
        log.records.push(Logged { node, ring, position, settled, void: void..void + record::HEAD });
    }

    /// Returns how many bytes of a record are written at once, at most.
    fn longest_piece(&self, node: NodeId) -> u64 {
        let capabilities = self.endpoint().capabilities();
        let most = match self.logs_by_verbs(node) {
            true => capabilities.max_write_bytes,
            false => capabilities.max_message_bytes.saturating_sub(BESIDE),
        };
        (most as u64 & !(record::ALIGN - 1)).max(record::HEAD as u64)
    }

    /// Posts pieces of records, or what makes records void, by verbs: one doorbell for each backup.
    pub(in crate::cluster) async fn write_log(
        &self,
        state: &mut State<'e, F::Port>,
        phase: Phase,
        mut asks: &[Ask],
    ) -> Result<(), Error> {
        let verbs = self.endpoint().during(phase);
        while !asks.is_empty() {
            let mut batch = verbs.batch();
            let mut failed = None;
            while let Some((ask, others)) = asks.split_first() {
                let (ring, position, words) = state.log.words_of(*ask);
                let node = ring.node;
                // Pieces end where the ring does; the head of a void record may lie around that.
                let offset = position & (ring.place.size - 1);
                let (before, after) = words.split_at(words.len().min((ring.place.size - offset) as usize / 8));
                let mut post = |offset, words: &[u64]| match words {
                    [] => Ok(()),
                    words => batch.write(ring.at(DATA + offset), words).map(|pending| {
                        state.written.push((node, pending));
                    }),
                };
                // If there is no room for both, both are written once more.
                match post(offset, before).and_then(|()| post(0, after)) {
                    Ok(()) => {}
                    Err(VerbError::QueueFull { .. } | VerbError::BuffersExhausted { .. }) => break,
                    Err(error) => failed = Some(ClusterError::OneSided { node, source: error.into() }),
                }
                asks = others;
            }
            batch.ring();
            if let Some(failed) = failed {
                return Err(failed.into());
            }
            if !asks.is_empty() {
                self.endpoint().yield_now().await;
            }
        }
        Ok(())
    }

    /// Notes that a transaction's records count: it is decided and carried out, or they are void.
    pub(in crate::cluster) fn settle_log(&self, state: &mut State<'e, F::Port>) {
        if mem::take(&mut state.log.has_begun) {
            self.unsettled.end();
        }
        if state.log.records.is_empty() && state.log.reserved.is_empty() {
            return;
        }
        self.release_log(state);
        let is_out = self.is_out();
        for Logged { ring, position, .. } in state.log.records.drain(..) {
            // What a node that is out leaves is others' to decide. Some may still listen to it.
            if !is_out {
                ring.producer.borrow_mut().settle(position);
            }
        }
        self.rings.wake_sender();
    }

    /// Makes the records of a transaction void that is given up, where it has any.
    pub(in crate::cluster) async fn void_log(&self, state: &mut State<'e, F::Port>) {
        loop {
            let records = state.log.records.iter().zip(0..);
            let left = records.filter(|(record, _)| !self.is_gone(&record.ring));
            let asks: Asks = left.map(|(_, number)| Ask::Void(number)).collect();
            if asks.is_empty() {
                break;
            }
            if self.is_out() {
                // Its rings are closed: others decide.
                state.log.is_in_doubt = true;
                break;
            }
            match self.round(state, Phase::Commit, &asks).await {
                // A ring that refuses is read no more.
                Ok(()) | Err(Error::Cluster(ClusterError::Refused { .. } | ClusterError::Nonsense { .. })) => break,
                // Unless the backup is gone, it must not wait for these records for ever.
                Err(_) => self.endpoint().sleep(AGAIN_AFTER).await,
            }
        }
        self.settle_log(state);
    }
}
