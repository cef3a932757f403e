//! A participant's logs: its node's own, and the rings that the node keeps as a backup.

use std::sync::Arc;

use drtm_kv::{Holder, ReadEntry};

use super::Participant;
use crate::{
    Config,
    cluster::{
        log::Backup,
        wire::{Change, ChangedRow, Refusal, RingPlace},
    },
    commit::{
        self,
        write_set::{Write, WriteOp},
    },
    durability::{Log, Open, Participant as LogParticipant},
};

impl<S: Config> Participant<S> {
    /// Refuses to lock what could not be logged when it is written.
    pub(super) fn check_log(&self) -> Result<(), Refusal> {
        let (Some(log), Some(participant)) = (&self.home.db.log, &self.state.session.participant) else {
            return Ok(());
        };
        if let Err(refused) = log.check() {
            // A flush finds out whether a full disk has room by now.
            return log.request_flush().map_err(|_| Refusal::LogFailed).and(Err(refused.into()));
        }
        if participant.is_full() {
            // The disk is slower than memory. It is tried again after a pause.
            return log.request_flush().map_err(|_| Refusal::LogFailed).and(Err(Refusal::Locked));
        }
        Ok(())
    }

    /// Logs rows that are about to be written, as one record, whose epoch is open until what is
    /// returned is dropped.
    pub(super) fn log_rows<'a, 'l>(
        &mut self,
        (log, participant): (&'l Log<S::Engine>, &'l LogParticipant),
        holder: Holder,
        epoch: u64,
        rows: impl Iterator<Item = ChangedRow<'a>>,
    ) -> Result<Open<'l, S::Engine>, Refusal> {
        let (home, mut writes) = (Arc::clone(&self.home), Vec::new());
        self.state.arena.clear();
        for ChangedRow { table, key, at, change, .. } in rows {
            let number = Self::table_to_write(&home, table, key)?.number;
            let before = home.db.store.records().held_version(at, holder).ok_or(Refusal::NotHeld)?;
            let value: &[u8] = match change {
                Change::Put(value) | Change::Publish(Some(value)) => value,
                Change::Remove => &[],
                // Nodes know of each other whether they have logs.
                Change::Publish(None) => return Err(Refusal::Other),
            };
            let arena = &mut self.state.arena;
            let value = arena.keep_value(|bytes| {
                bytes.extend_from_slice(value);
                Ok(())
            })?;
            let op = if change == Change::Remove { WriteOp::Remove } else { WriteOp::Put(value) };
            let key = arena.keep_key(key)?;
            let seen = ReadEntry { at, version: before };
            writes.push(Write { before, ..Write::found(seen, number, op, key, false) });
        }
        Ok(commit::log_rows(&home.db, log, participant, (&self.state.arena, &writes, epoch))?)
    }

    /// Looks whether the log has all up to an epoch, or all that is visible now, if that is zero.
    /// Returns zero if it has; otherwise the epoch for the next look.
    pub(in crate::cluster) fn durable(&self, epoch: u64) -> Result<u64, Refusal> {
        match &self.home.db.log {
            Some(log) => log.look(epoch).map_err(|_| Refusal::LogFailed),
            None => Ok(0),
        }
    }

    fn backup(&self) -> Result<&Backup<S::Engine>, Refusal> {
        self.home.backup.as_ref().ok_or(Refusal::Other)
    }

    /// Makes a ring for a worker of any node.
    pub(in crate::cluster) fn open_ring(&self, producer: Holder) -> Result<RingPlace, Refusal> {
        self.backup()?.open(producer)
    }

    /// Writes bytes of a record into a ring. Gives up to where the ring is free.
    pub(in crate::cluster) fn append(&self, ring: (u32, Holder), position: u64, bytes: &[u8]) -> Result<u64, Refusal> {
        self.backup()?.write(ring, position, bytes)
    }

    /// Notes up to where records of a ring are settled. Gives up to where the ring is free.
    pub(in crate::cluster) fn settle_ring(&self, ring: (u32, Holder), settled: u64) -> Result<u64, Refusal> {
        self.backup()?.settle(ring, settled)
    }
}
