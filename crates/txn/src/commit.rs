//! The commit: one sequence, for any number of rows.
//!
//! 1. *Lock* the write set.
//! 2. *Read the snapshot number*: the transaction's epoch.
//! 3. *Validate* the read set. If all of it is as it was, and no other transaction has it locked, then there is one
//!    moment at which the transaction happens, after the last lock and before the first look: what it has read was
//!    true then, and what it is going to write could not be seen.
//! 4. *Prepare*: check that the database is open and its schema unchanged, reserve memory, find out which older
//!    versions snapshots need. From here on only the sink can stop the transaction.
//! 5. *Tell the sink*, which may refuse.
//! 6. *Apply and unlock*. A reader of a locked row waits; one that has read it before finds the lock, or the new
//!    version.
//!
//! Where there is transactional memory, the first three steps of a large commit are one htm transaction. A commit of
//! one row runs the same sequence, compiled for one row.

mod apply;
mod lock;
mod region;
mod validate;

use std::slice;

use drtm_htm::{Engine, fence_locked};
use drtm_kv::{Holder, KvError, ReadEntry, Records, Worker};

pub(crate) use self::validate::validate_all;
use self::{
    apply::apply,
    lock::{Summary, Waiting, lock, unlock},
    validate::validate_reads,
};
use crate::{
    Commit, Conflict, Error, Mode, Setting,
    arena::Arena,
    epoch::{advance_beyond, has_version_in, last_of},
    inner::Inner,
    lifecycle::Admission,
    mutation::Mutation,
    read_set::ReadSet,
    reclaim,
    state::{Scratch, TxState},
    write_set::{Write, WriteOp},
};

/// Returns whether a transaction has committed already, since it writes nothing and has read at one moment.
#[inline(always)]
pub(crate) fn is_trivially_committed<S: Setting, M: Mode>(state: &TxState<S::Engine>) -> bool {
    let writes_nothing = !M::WRITES || state.writes.is_empty() && state.writes.undone().is_empty();
    writes_nothing && state.reads.is_of_one_moment() && !reclaim::is_to_be_tried(state)
}

/// Commits a transaction.
///
/// # Errors
///
/// A conflict, a refusal of the sink, or when memory has run out. Nothing has happened then.
#[inline]
pub(crate) fn commit<S: Setting, M: Mode>(db: &Inner<S>, state: &mut TxState<S::Engine>) -> Result<(), Error> {
    let TxState { worker, holder, reads, writes, arena, scratch, session, .. } = &mut *state;
    let parts = Parts {
        db,
        records: db.store.records(),
        worker,
        reads,
        arena,
        scratch,
        holder: *holder,
        admission: session.admission,
    };
    match writes.as_mut_slice() {
        writes if !M::WRITES || writes.is_empty() => {
            if !parts.reads.is_of_one_moment() {
                validate_reads::<S>(db.engine(), &parts.records, parts.reads, parts.holder)?;
            }
        }
        // The sequence is compiled once more for this.
        [write] => parts.commit(slice::from_mut(write))?,
        writes => parts.commit(writes)?,
    }
    if !state.writes.undone().is_empty() {
        reclaim::undo_inserts(db, state);
    }
    Ok(reclaim::try_again(db, state)?)
}

/// What the sequence works with, beside the write set.
struct Parts<'c, S: Setting> {
    db: &'c Inner<S>,
    records: Records<'c, S::Engine>,
    worker: &'c mut Worker<S::Engine>,
    reads: &'c ReadSet,
    arena: &'c Arena,
    scratch: &'c mut Scratch,
    holder: Holder,
    admission: Admission,
}

/// Rows that are locked. Dropped, by an error or a panic, they are unlocked.
struct LockedRows<'l, 's, E: Engine> {
    records: &'l Records<'s, E>,
    writes: &'l mut [Write],
}

impl<E: Engine> Drop for LockedRows<'_, '_, E> {
    #[cold]
    fn drop(&mut self) {
        unlock(self.records, self.writes);
    }
}

impl<S: Setting> Parts<'_, S> {
    #[inline(always)]
    fn commit(mut self, writes: &mut [Write]) -> Result<(), Error> {
        let (epoch, summary) = self.lock_and_validate(writes)?;
        let records = self.db.store.records();
        let locked = LockedRows { records: &records, writes };
        let is_plain = self.prepare(epoch, summary, locked.writes)?;
        if let Some(sink) = &self.db.sink {
            let commit = Commit { epoch, writes: locked.writes, arena: self.arena, tables: self.db.catalog.infos() };
            sink.commit(&commit).map_err(|source| Error::Refused { source })?;
        }
        std::mem::forget(locked);
        let Self { db, records, worker, arena, scratch, .. } = &mut self;
        if apply(db, records, worker, arena, scratch, writes, (epoch, is_plain))? {
            self.take_out_removed(writes)?;
        }
        Ok(())
    }

    /// Locks the write set, reads the snapshot number, and validates the read set.
    #[inline(always)]
    fn lock_and_validate(&mut self, writes: &mut [Write]) -> Result<(u64, Summary), Error> {
        loop {
            let Self { db, records, worker, reads, holder, .. } = &mut *self;
            let (epoch, summary) = match region::lock_and_validate(*db, records, worker, reads, writes, *holder)? {
                Some(done) => {
                    fence_locked();
                    done
                }
                None => self.lock_and_validate_plainly(writes)?,
            };
            if has_version_in(epoch, summary.newest()) {
                return Ok((epoch, summary));
            }
            // A row was written tens of thousands of times in this epoch: time for the next.
            unlock(&self.records, writes);
            advance_beyond(self.db.engine(), self.db.snapshot_number()?, last_of(summary.newest()));
        }
    }

    #[inline(always)]
    fn lock_and_validate_plainly(&mut self, writes: &mut [Write]) -> Result<(u64, Summary), Error> {
        let Self { db, records, reads, scratch, holder, .. } = self;
        let engine = db.engine();
        let too_early =
            S::has(Mutation::ValidateBeforeLocks).then(|| validate_reads::<S>(engine, records, reads, *holder));
        let waiting = Waiting { holder: *holder, ticket: &db.ticket, has_ticket: !reads.held.is_empty() };
        let summary = lock::<S>(engine, records, writes, &mut scratch.order, waiting)?;
        fence_locked();
        let epoch = engine.load(db.snapshot_number()?);
        match too_early.unwrap_or_else(|| validate_reads::<S>(engine, records, reads, *holder)) {
            Ok(()) => Ok((epoch, summary)),
            Err(conflict) => {
                unlock(records, writes);
                Err(conflict.into())
            }
        }
    }

    /// Makes sure that nothing but the sink can stop the transaction any more. Returns whether all its values fit where
    /// they are, and no snapshot needs what they replace.
    #[inline(always)]
    fn prepare(&mut self, epoch: u64, summary: Summary, writes: &[Write]) -> Result<bool, Error> {
        let now = self.db.lifecycle.now(self.db.engine());
        if now != self.admission {
            self.confirm(now, writes)?;
        }
        if summary.has_changed() {
            self.check_keys(writes)?;
        }
        if summary.lacks_room() {
            self.reserve(writes)?;
        }
        self.scratch.needs.clear();
        if summary.may_be_needed(epoch) {
            self.db.snapshots.needs(&self.db.store, &mut self.scratch.needs)?;
        }
        Ok(!summary.lacks_room() && !summary.has_past() && self.scratch.needs.is_empty())
    }

    /// Checks that a transaction that was admitted before the database or its schema changed may commit.
    #[cold]
    #[inline(never)]
    fn confirm(&self, now: Admission, writes: &[Write]) -> Result<(), Error> {
        if now.is_closed() && !S::has(Mutation::CommitDespiteClosing) {
            return Err(Error::Closed);
        }
        let admitted = self.admission.schema_epoch();
        let is_outdated =
            |table: u16| self.db.catalog.get(table).is_some_and(|opened| opened.indexes.changed_at() > admitted);
        if now.schema_epoch() != admitted && writes.iter().any(|write| is_outdated(write.table)) {
            return Err(Conflict::Indexed.into());
        }
        Ok(())
    }

    /// Checks that the records of rows that others have written meanwhile are still those of their keys.
    #[cold]
    #[inline(never)]
    fn check_keys(&self, writes: &[Write]) -> Result<(), Error> {
        for write in writes.iter().filter(|write| write.before != write.seen) {
            let Some(opened) = self.db.catalog.get(write.table) else { continue };
            if !opened.storage.leads_to(write.key.in_bytes(&self.arena.keys), write.at)? {
                return Err(Conflict::Moved.into());
            }
        }
        Ok(())
    }

    /// Reserves memory for the values that do not fit where they are.
    #[cold]
    #[inline(never)]
    fn reserve(&mut self, writes: &[Write]) -> Result<(), Error> {
        for (write, number) in writes.iter().zip(0..) {
            let WriteOp::Put(value) = write.op else { continue };
            let (false, Some(opened)) = (write.has_room, self.db.catalog.get(write.table)) else { continue };
            if let Some(memory) =
                opened.storage.reserve(self.worker, write.key.in_bytes(&self.arena.keys), write.at, value.length())?
            {
                self.scratch.reserved.push((number, memory));
            }
        }
        Ok(())
    }

    /// Takes the records of removed rows out of their tables.
    #[cold]
    #[inline(never)]
    fn take_out_removed(&mut self, writes: &[Write]) -> Result<(), KvError> {
        for write in writes.iter().filter(|write| write.op == WriteOp::Remove) {
            let seen = ReadEntry { at: write.at, version: write.before };
            reclaim::reap(self.db, self.worker, write.table, write.key.in_bytes(&self.arena.keys), seen)?;
        }
        Ok(())
    }
}
