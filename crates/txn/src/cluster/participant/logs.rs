//! A participant's logs: its node's own, and the rings that the node keeps as a backup.

use drtm_kv::ReadEntry;

use super::{Held, Home, Participant};
use crate::{
    Config,
    cluster::{
        Refusal,
        log::Backup,
        wire::parts::{Change, ChangedRow},
    },
    commit::{
        self,
        write_set::{Write, WriteOp},
    },
    durability::{Log, Open, Participant as LogParticipant},
};

impl<S: Config> Participant<S> {
    /// Refuses to lock what could not be logged when it is written.
    pub(in crate::cluster) fn check_log(&self) -> Result<(), Refusal> {
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

    /// Logs rows that are about to be written, as one record. Returns its epoch, which is open
    /// until what is returned is dropped.
    pub(in crate::cluster) fn log_rows<'l>(
        &mut self,
        home: &Home<S>,
        (log, participant): (&'l Log<S::Engine>, &'l LogParticipant),
        rows: &[Held<'_>],
        epoch: u64,
    ) -> Result<(Open<'l, S::Engine>, u64), Refusal> {
        let mut writes = Vec::with_capacity(rows.len());
        self.state.arena.clear();
        for Held { row: ChangedRow { key, at, change, .. }, number, before } in rows {
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
            let op = if *change == Change::Remove { WriteOp::Remove } else { WriteOp::Put(value) };
            let key = arena.keep_key(*key)?;
            let seen = ReadEntry { at: *at, version: *before };
            writes.push(Write { before: *before, ..Write::found(seen, *number, op, key, false) });
        }
        Ok(commit::log_rows(&home.db, log, participant, (&self.state.arena, &writes, epoch))?)
    }

    /// Returns what this node keeps as a backup.
    pub(in crate::cluster) fn backup(&self) -> Result<&Backup<S::Engine>, Refusal> {
        self.home.backup.as_ref().ok_or(Refusal::Other)
    }
}
