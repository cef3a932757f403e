//! Applying the write set: writing the locked rows, and unlocking them.

use std::hint::cold_path;

use drtm_htm::Engine;
use drtm_kv::{KvError, Records, RetainOutcome, Version, Worker};

use super::lock::unlock;
use crate::{
    Config,
    commit::write_set::{Write, WriteOp},
    db::inner::Inner,
    memory::{arena::Arena, budget::Spent, garbage::NewPast},
    mutation::Mutation,
    snapshot::Needs,
    tx::state::Scratch,
};

/// Writes and unlocks each row. Returns whether a row was removed, whose record must be taken out
/// of its table.
///
/// # Errors
///
/// When the store is corrupt. The other rows are still unlocked.
#[inline(always)]
pub(super) fn apply<S: Config>(
    db: &Inner<S>,
    worker: &mut Worker<S::Engine>,
    arena: &Arena,
    scratch: &mut Scratch,
    writes: &mut [Write],
    (epoch, is_plain): (u64, bool),
) -> Result<bool, KvError> {
    let records = db.store.records();
    if S::has(Mutation::UnlockBeforeVersions) {
        unlock(&records, writes);
        // Lets a waiting transaction in.
        std::thread::yield_now();
    }
    if !is_plain {
        cold_path();
        return Special::new(db, worker, arena, scratch, epoch).write_all(writes);
    }
    let (values, mut has_removed) = (arena.values.bytes(), false);
    for number in 0..writes.len() {
        let write = &mut writes[number];
        let version = write.version_in(epoch);
        match write_in_place(&records, write, values, version) {
            Ok(is_removed) => has_removed |= is_removed,
            Err(error) => return Err(leave(db, &writes[number..], error)),
        }
    }
    Ok(has_removed)
}

/// Unlocks the row that could not be written, and those after it.
#[cold]
fn leave<S: Config>(db: &Inner<S>, left: &[Write], error: KvError) -> KvError {
    unlock(&db.store.records(), left);
    error
}

/// Writes and unlocks a row whose value fits in place. Returns whether the row was removed.
#[inline(always)]
fn write_in_place<E: Engine>(
    records: &Records<'_, E>,
    write: &mut Write,
    values: &[u8],
    version: Version,
) -> Result<bool, KvError> {
    let (bytes, skipped) = match write.op {
        WriteOp::Insert(_) => return records.publish(write.at, version).map(|()| false),
        WriteOp::Remove => {
            // The record has this version when it is taken out.
            write.before = version;
            return records.publish(write.at, version).map(|()| true);
        }
        WriteOp::Patch { bytes, skipped } => (bytes, skipped),
        WriteOp::Put(value) => (value, 0),
    };
    records.write_part(write.at, version, skipped as usize, bytes.of(values)).map(|()| false)
}

/// Writes rows that have older versions, or values that do not fit in place.
struct Special<'a, S: Config> {
    db: &'a Inner<S>,
    worker: &'a mut Worker<S::Engine>,
    arena: &'a Arena,
    scratch: &'a mut Scratch,
    epoch: u64,
    spent: Spent,
    new_past: NewPast<'a>,
}

impl<'a, S: Config> Special<'a, S> {
    fn new(
        db: &'a Inner<S>,
        worker: &'a mut Worker<S::Engine>,
        arena: &'a Arena,
        scratch: &'a mut Scratch,
        epoch: u64,
    ) -> Self {
        // They were reserved in the order of the writes, and are popped from the end.
        scratch.reserved.reverse();
        let new_past = NewPast::new(&db.garbage);
        Self { db, worker, arena, scratch, epoch, spent: Spent::default(), new_past }
    }

    #[inline(never)]
    fn write_all(mut self, writes: &mut [Write]) -> Result<bool, KvError> {
        let records = &self.db.store.records();
        let (mut has_removed, mut failed) = (false, None);
        for number in 0..writes.len() {
            match self.write(records, &mut writes[number], number as u32) {
                Ok(is_removed) => has_removed |= is_removed,
                Err(error) => {
                    failed = Some(leave(self.db, &writes[number..], error));
                    break;
                }
            }
        }
        self.db.past.enter(self.spent);
        failed.map_or(Ok(has_removed), Err)
    }

    fn write(&mut self, records: &Records<'_, S::Engine>, write: &mut Write, number: u32) -> Result<bool, KvError> {
        let version = write.version_in(self.epoch);
        let (mut now_at, mut is_removed) = (write.at, false);
        let had_past = records.has_past(write.at)?;
        // A row that was absent, and has no older versions, needs no version that says so.
        let may_be_kept = had_past || !self.scratch.needs.is_empty() && !write.before.is_removed();
        let has_past = may_be_kept && self.update_version_chain(records, write, had_past, version)?;
        if write.has_room {
            is_removed = write_in_place(records, write, self.arena.values.bytes(), version)?;
        } else if let (WriteOp::Put(value), Some(opened)) = (write.op, self.db.catalog.get(write.table)) {
            let memory = self.scratch.reserved.pop_if(|(reserved, _)| *reserved == number).map(|(_, memory)| memory);
            let (key, value) = (write.key.in_bytes(&self.arena.keys), value.of(self.arena.values.bytes()));
            now_at = opened.storage.write(self.worker, key, write.at, memory, version, value)?;
        }
        // A row that had older versions is in the queue already, unless it has moved.
        if has_past && (!had_past || now_at != write.at) {
            self.new_past.add(now_at, version);
        }
        Ok(is_removed)
    }

    /// Drops the older versions that no snapshot needs, and keeps the present one if a snapshot
    /// does. Returns whether the row then has older versions.
    fn update_version_chain(
        &mut self,
        records: &Records<'_, S::Engine>,
        write: &Write,
        had_past: bool,
        version: Version,
    ) -> Result<bool, KvError> {
        let needs: &Needs = &self.scratch.needs;
        let mut has_past = had_past;
        if had_past {
            let freed = records.forget(self.worker, write.at, |from, until| needs.include(from, until))?;
            self.spent.give_back(freed);
            has_past = records.has_past(write.at)?;
        }
        if needs.include(write.before, version) && (has_past || !write.before.is_removed()) {
            match records.keep(self.worker, write.at, self.db.past.allows_more(&self.spent))? {
                RetainOutcome::Copied { bytes } => self.spent.take(bytes),
                RetainOutcome::Discarded { freed } => self.spent.give_back(freed),
            }
            has_past = true;
        }
        Ok(has_past)
    }
}
