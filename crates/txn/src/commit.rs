//! The commit: one sequence, for any number of rows.
//!
//! 1. *Lock* the write set.
//! 2. *Read the snapshot number*: the transaction's epoch.
//! 3. *Validate* the read set. If it is unchanged, and no other transaction has any of it locked,
//!    the transaction has a serialization point: after the last lock and before the first
//!    validation. What it has read was true then, and what it is going to write was not visible
//!    yet.
//! 4. *Prepare*: check that no validated counter can have wrapped (`docs/decisions/0036`), that the
//!    database is open and its schema unchanged; reserve memory; find out which older versions
//!    snapshots need. From here on only the sink can stop the transaction.
//! 5. *Call the sink*, which may refuse.
//! 6. *Apply and unlock*. A reader of a locked row waits; one that has read it before finds the
//!    lock, or the new version.
//!
//! Where there is transactional memory, the first three steps of a large commit are one htm
//! transaction. A commit of one row runs the same sequence, compiled for one row.

mod apply;
pub(crate) mod epoch;
pub(crate) mod guards;
mod htm;
mod lock;
mod participant;
pub(crate) mod read_set;
pub(crate) mod sink;
mod validate;
pub(crate) mod write_set;

use std::slice;

use drtm_htm::{Engine, fence_locked};
use drtm_kv::{Holder, KvError, ReadEntry, Records, Version, Worker};

pub(crate) use self::participant::{apply_row, lock_in_htm, lock_row, log_rows};
pub(crate) use self::validate::validate_all;
use self::{
    apply::apply,
    lock::{NotLocked, Summary, lock, lock_in_order, unlock},
    validate::validate_reads,
};
use crate::{
    Commit, Config, Conflict, Error, Mode,
    commit::{
        epoch::{advance_beyond, has_version_in, last_of},
        read_set::ReadSet,
        write_set::{Write, WriteOp},
    },
    db::{inner::Inner, lifecycle::Admission, stats::Counters},
    durability::Log,
    memory::{arena::Arena, reclaim},
    mutation::Mutation,
    tx::{
        state::{Scratch, Session, TxState},
        ticket::Claim,
    },
};

/// The bytes that a logged row counts beside its key and its value.
const ROW_OVERHEAD: usize = 40;

/// Returns whether a transaction has nothing left to do at its commit: it writes nothing, and all
/// its reads are of one moment.
#[inline(always)]
pub(crate) fn is_trivially_committed<S: Config, M: Mode>(db: &Inner<S>, state: &TxState<S::Engine>) -> bool {
    let writes_nothing = !M::WRITES || state.writes.is_empty() && state.writes.undone().is_empty();
    writes_nothing
        && state.reads.is_of_one_moment()
        && !reclaim::is_to_be_tried(state)
        && db.lifecycle.is_unchanged(db.engine(), state.session.admission)
}

/// Commits a transaction.
///
/// # Errors
///
/// A conflict, a refusal of the sink, or when memory has run out. The writes are then not applied.
#[inline]
pub(crate) fn commit<S: Config, M: Mode>(db: &Inner<S>, state: &mut TxState<S::Engine>) -> Result<(), Error> {
    // This comes before anything is locked, or an epoch of the log held open.
    if M::WRITES && db.ticket.is_taken() {
        yield_to_ticket(db, state);
    }
    match &db.log {
        None => run::<S, M>(db, state),
        Some(log) => run_logged::<S, M>(db, state, log),
    }
}

/// Waits if the holder of the ticket claims what this transaction is going to write.
#[cold]
#[inline(never)]
fn yield_to_ticket<S: Config>(db: &Inner<S>, state: &TxState<S::Engine>) {
    let places = state.writes.as_slice().iter().map(|write| Claim::Record(write.at));
    if !S::has(Mutation::ClaimsIgnored) {
        db.ticket.yield_to_ticket(db.this_thread(), places);
    }
}

/// [Runs](run) a commit under an epoch that is held open until the commit ends.
#[inline(never)]
fn run_logged<S: Config, M: Mode>(
    db: &Inner<S>,
    state: &mut TxState<S::Engine>,
    log: &Log<S::Engine>,
) -> Result<(), Error> {
    state.session.logged_in = 0;
    match state.session.participant.clone() {
        Some(participant) if M::WRITES && !state.writes.is_empty() => {
            let rows = state.writes.len() * ROW_OVERHEAD;
            let bytes = state.arena.values.bytes().len() + state.arena.keys.len() + rows;
            let most = log.most_logged();
            if bytes > most {
                return Err(Error::TooLarge { bytes, most });
            }
            let _open = log.enter(&participant)?;
            run::<S, M>(db, state)
        }
        _ => run::<S, M>(db, state),
    }
}

// It is compiled once for each caller, so that a commit without a log makes no call for it.
#[inline(always)]
fn run<S: Config, M: Mode>(db: &Inner<S>, state: &mut TxState<S::Engine>) -> Result<(), Error> {
    let mut done = match state.writes.len() {
        writes if !M::WRITES || writes == 0 => {
            if !state.reads.is_of_one_moment() {
                validate_reads(db, &state.reads, state.holder)?;
            }
            // A snapshot has nothing to validate.
            if !state.reads.is_empty() && !db.lifecycle.is_unchanged(db.engine(), state.session.admission) {
                confirm_reads(db, state.session.admission)?;
            }
            state.session.counters.count_read();
            None
        }
        1 => commit_one(db, state)?,
        _ => commit_many(db, state)?,
    };
    while let Some(newest) = done {
        // A row was written tens of thousands of times in this epoch: advance to the next one.
        advance_beyond(db.engine(), db.snapshot_number()?, last_of(newest));
        done = commit_many(db, state)?;
    }
    if !state.writes.undone().is_empty() {
        reclaim::undo_inserts(db, state);
    }
    Ok(reclaim::try_again(db, state)?)
}

/// Runs the sequence for one row, compiled for that case.
#[inline(always)]
fn commit_one<S: Config>(db: &Inner<S>, state: &mut TxState<S::Engine>) -> Result<Option<Version>, Error> {
    let (parts, writes) = Parts::of(db, state);
    match writes {
        [write] => parts.commit(slice::from_mut(write)),
        _ => Ok(None),
    }
}

/// Runs the sequence for any number of rows.
#[inline(never)]
fn commit_many<S: Config>(db: &Inner<S>, state: &mut TxState<S::Engine>) -> Result<Option<Version>, Error> {
    let (parts, writes) = Parts::of(db, state);
    parts.commit(writes)
}

/// What the sequence needs beside the write set.
struct Parts<'c, S: Config> {
    db: &'c Inner<S>,
    worker: &'c mut Worker<S::Engine>,
    reads: &'c ReadSet,
    arena: &'c Arena,
    scratch: &'c mut Scratch,
    holder: Holder,
    admission: Admission,
    session: &'c mut Session,
}

impl<'c, S: Config> Parts<'c, S> {
    #[inline(always)]
    fn of(db: &'c Inner<S>, state: &'c mut TxState<S::Engine>) -> (Self, &'c mut [Write]) {
        let TxState { worker, holder, reads, writes, arena, scratch, session, .. } = state;
        let parts = Self { db, worker, reads, arena, scratch, holder: *holder, admission: session.admission, session };
        (parts, writes.as_mut_slice())
    }
}

/// Locked rows. Dropping it, by an error or a panic, unlocks them.
struct LockedRows<'l, E: Engine> {
    records: Records<'l, E>,
    writes: &'l mut [Write],
}

impl<E: Engine> Drop for LockedRows<'_, E> {
    #[cold]
    fn drop(&mut self) {
        unlock(&self.records, self.writes);
    }
}

impl<S: Config> Parts<'_, S> {
    /// Runs the sequence. Returns `None` if the transaction has committed. Otherwise returns the
    /// version of a row that has no further version in this epoch, and nothing has been written.
    // Functions that are not inlined take the parts one by one: a reference to all of them would
    // force them into memory.
    #[inline(always)]
    fn commit(self, writes: &mut [Write]) -> Result<Option<Version>, Error> {
        let Self { db, worker, reads, arena, scratch, holder, admission, session } = self;
        let (epoch, summary) = match htm::lock_and_validate(db, worker, reads, writes, holder)? {
            Some(done) => done,
            None => lock_and_validate(db, scratch, reads, writes, holder)?,
        };
        let locked = LockedRows { records: db.store.records(), writes };
        if !has_version_in(epoch, summary.newest()) {
            return Ok(Some(summary.newest()));
        }
        let now = db.lifecycle.now(db.engine());
        if now != admission {
            confirm(db, admission, now, locked.writes)?;
        }
        let is_plain = summary.is_plain(epoch)
            || match prepare(db, worker, arena, scratch, locked.writes, (epoch, summary)) {
                Ok(is_plain) => is_plain,
                Err(error) => {
                    if S::has(Mutation::LocksKeptWhenFull) {
                        std::mem::forget(locked);
                    }
                    return Err(error);
                }
            };
        if db.is_told {
            call_sink(db, session, &Commit { epoch, writes: locked.writes, arena, tables: db.catalog.infos() })?;
        }
        if !S::has(Mutation::CommitsNotCounted) {
            session.counters.count_write(db.engine());
        }
        std::mem::forget(locked);
        if apply(db, worker, arena, scratch, writes, (epoch, is_plain))? {
            take_out_removed(db, (worker, &session.counters), arena, writes)?;
        }
        Ok(None)
    }
}

/// Calls the sink, which may refuse, and then appends to the log.
#[inline(never)]
fn call_sink<S: Config>(db: &Inner<S>, session: &mut Session, commit: &Commit<'_>) -> Result<(), Error> {
    if let Some(sink) = &db.sink {
        // The sink of an explicit transaction is under the same restrictions as that of a closure.
        let _until_told = db.enter_sink();
        sink.commit(commit).map_err(|source| Error::Refused { source })?;
    }
    if let (Some(log), Some(participant)) = (&db.log, &session.participant)
        && log.append(participant, &db.store.records(), commit)?
    {
        session.logged_in = commit.epoch();
    }
    Ok(())
}

/// Locks the write set, reads the snapshot number, and validates the read set. If that fails,
/// nothing is locked.
#[inline(always)]
fn lock_and_validate<S: Config>(
    db: &Inner<S>,
    scratch: &mut Scratch,
    reads: &ReadSet,
    writes: &mut [Write],
    holder: Holder,
) -> Result<(u64, Summary), Error> {
    let too_early = S::has(Mutation::ValidateBeforeLocks).then(|| validate_reads(db, reads, holder));
    let summary = match lock(db, writes, holder) {
        Ok(summary) => summary,
        Err(NotLocked::Conflict(conflict)) => return Err(conflict.into()),
        Err(NotLocked::Held) => lock_in_order(db, writes, &mut scratch.order, holder)?,
    };
    fence_locked();
    let epoch = db.engine().load(db.snapshot_number()?);
    match too_early.unwrap_or_else(|| validate_reads(db, reads, holder)) {
        Ok(()) => Ok((epoch, summary)),
        Err(conflict) => {
            unlock(&db.store.records(), writes);
            Err(conflict.into())
        }
    }
}

/// Prepares rows that are not plain. Reserves memory for values that do not fit in place, and finds
/// out what snapshots need. Returns whether the rows can be written in place all the same.
///
/// A row that another transaction has written since it was found is still its key's: the lock has
/// checked the record's incarnation, and [`confirm`] that it cannot have wrapped.
#[inline(never)]
fn prepare<S: Config>(
    db: &Inner<S>,
    worker: &mut Worker<S::Engine>,
    arena: &Arena,
    scratch: &mut Scratch,
    writes: &[Write],
    (epoch, summary): (u64, Summary),
) -> Result<bool, Error> {
    if summary.lacks_room() {
        reserve(db, worker, arena, scratch, writes)?;
    }
    scratch.needs.clear();
    if summary.may_be_needed(epoch) {
        db.snapshots.needs(&db.store, &mut scratch.needs)?;
    }
    Ok(!summary.lacks_room() && !summary.has_past() && scratch.needs.is_empty())
}

/// Checks that a transaction that was admitted before the database or its schema changed may
/// commit, and that no counter that it has validated can have wrapped.
#[cold]
#[inline(never)]
fn confirm<S: Config>(db: &Inner<S>, admitted: Admission, now: Admission, writes: &[Write]) -> Result<(), Error> {
    if now.is_closed() && !S::has(Mutation::CommitDespiteClosing) {
        return Err(Error::Closed);
    }
    if !admitted.is_within_round(now) {
        return Err(Conflict::Validation.into());
    }
    if now.count() == admitted.count() {
        return Ok(());
    }
    let admitted = admitted.count();
    let tables = || writes.iter().filter_map(|write| db.catalog.get(write.table));
    if let Some(dropped) = tables().find(|opened| opened.is_dropped() && !opened.is_index())
        && !S::has(Mutation::DropsNotChecked)
    {
        // A retry would be refused.
        return Err(dropped.dropped());
    }
    if !S::has(Mutation::IndexedNotChecked) && tables().any(|opened| opened.indexes.changed_at() > admitted) {
        return Err(Conflict::Indexed.into());
    }
    if !S::has(Mutation::DropsNotChecked) {
        db.catalog.check_drops(admitted)?;
    }
    Ok(())
}

/// Checks that no counter that a transaction has validated can have wrapped since it was admitted,
/// and that no table was dropped.
#[cold]
#[inline(never)]
fn confirm_reads<S: Config>(db: &Inner<S>, admitted: Admission) -> Result<(), Conflict> {
    db.lifecycle.check_turns(db.engine(), admitted)?;
    if S::has(Mutation::DropsNotChecked) { Ok(()) } else { db.catalog.check_drops(admitted.count()) }
}

/// Reserves memory for the values that do not fit in place.
#[cold]
#[inline(never)]
fn reserve<S: Config>(
    db: &Inner<S>,
    worker: &mut Worker<S::Engine>,
    arena: &Arena,
    scratch: &mut Scratch,
    writes: &[Write],
) -> Result<(), Error> {
    for (write, number) in writes.iter().zip(0..) {
        let WriteOp::Put(value) = write.op else { continue };
        let (false, Some(opened)) = (write.has_room, db.catalog.get(write.table)) else { continue };
        if let Some(memory) =
            opened.storage.reserve(worker, write.key.in_bytes(&arena.keys), write.at, value.length())?
        {
            scratch.reserved.push((number, memory));
        }
    }
    Ok(())
}

/// Removes the records of removed rows from their tables.
#[cold]
#[inline(never)]
fn take_out_removed<S: Config>(
    db: &Inner<S>,
    (worker, counters): (&mut Worker<S::Engine>, &Counters),
    arena: &Arena,
    writes: &[Write],
) -> Result<(), KvError> {
    for write in writes.iter().filter(|write| write.op == WriteOp::Remove) {
        let seen = ReadEntry { at: write.at, version: write.before };
        reclaim::reap(db, (worker, counters), write.table, write.key.in_bytes(&arena.keys), seen)?;
    }
    Ok(())
}
