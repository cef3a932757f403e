//! The steps of a commit for one row at a time, for transactions of other nodes: they lock, prepare
//! and write rows by separate calls.

use std::slice;

use drtm_htm::{Engine, fence_locked};
use drtm_kv::{Holder, KvError, ReadEntry, Reserved, Version};

use super::{
    LockedRows, apply, htm,
    lock::{NotLocked, lock},
    reserve, take_out_removed,
};
use crate::{
    Commit, Config, Conflict, Error,
    commit::{
        epoch::{advance_beyond, epoch_of, has_version_in, last_of},
        write_set::{Write, WriteOp},
    },
    db::inner::Inner,
    durability::{Log, Open, Participant},
    memory::arena::Arena,
    tx::state::TxState,
};

/// Locks a row for a holder, and reserves memory for its value. Returns the row's version.
///
/// # Errors
///
/// A conflict, or when memory has run out. Then nothing is locked.
pub(crate) fn lock_row<S: Config>(
    db: &Inner<S>,
    state: &mut TxState<S::Engine>,
    write: &mut Write,
    holder: Holder,
) -> Result<(Version, Option<Reserved>), Error> {
    let TxState { worker, arena, scratch, .. } = state;
    let writes = slice::from_mut(write);
    let summary = match lock(db, writes, holder) {
        Ok(summary) => summary,
        Err(NotLocked::Held) => return lock_again(db, state, write, holder),
        Err(NotLocked::Conflict(conflict)) => return Err(conflict.into()),
    };
    let locked = LockedRows { records: db.store.records(), writes };
    let before = summary.newest();
    ensure_further_version(db, before)?;
    let reserved = if summary.lacks_room() {
        scratch.reserved.clear();
        reserve(db, worker, arena, scratch, locked.writes)?;
        scratch.reserved.pop().map(|(_, memory)| memory)
    } else {
        None
    };
    std::mem::forget(locked);
    Ok((before, reserved))
}

/// Makes sure that a locked row has a further version in the epoch in which it will be written.
/// That epoch is read later, by all rows of the transaction here.
fn ensure_further_version<S: Config>(db: &Inner<S>, before: Version) -> Result<(), KvError> {
    let number = db.snapshot_number()?;
    fence_locked();
    if !has_version_in(db.engine().load(number), before) {
        advance_beyond(db.engine(), number, last_of(before));
    }
    Ok(())
}

/// Locks rows and validates others atomically, in an htm transaction. Returns whether it did; if
/// not, the rows are locked one by one.
///
/// # Errors
///
/// A conflict; then nothing is locked.
pub(crate) fn lock_in_htm<S: Config>(
    db: &Inner<S>,
    state: &mut TxState<S::Engine>,
    writes: &mut [Write],
    reads: &[ReadEntry],
    holder: Holder,
) -> Result<bool, Error> {
    let TxState { worker, reads: again, .. } = state;
    again.clear();
    again.records.extend_from_slice(reads);
    let entered = htm::lock_and_validate(db, worker, again, writes, holder);
    again.clear();
    Ok(entered?.is_some())
}

/// Reserves memory for the value of a row that this holder has locked already. It is a conflict if
/// another holder has.
fn lock_again<S: Config>(
    db: &Inner<S>,
    state: &mut TxState<S::Engine>,
    write: &Write,
    holder: Holder,
) -> Result<(Version, Option<Reserved>), Error> {
    let Some(before) = db.store.records().held_version(write.at, holder) else {
        return Err(Conflict::Locked.into());
    };
    ensure_further_version(db, before)?;
    let TxState { worker, arena, .. } = state;
    let reserved = match (write.op, db.catalog.get(write.table)) {
        (WriteOp::Put(value), Some(opened)) => {
            opened.storage.reserve(worker, write.key.in_bytes(&arena.keys), write.at, value.length())?
        }
        _ => None,
    };
    Ok((before, reserved))
}

/// Writes and unlocks a row that its holder has locked.
///
/// # Errors
///
/// When the store is corrupt, or the value is longer than the reserved memory.
pub(crate) fn apply_row<S: Config>(
    db: &Inner<S>,
    state: &mut TxState<S::Engine>,
    mut write: Write,
    epoch: u64,
    reserved: Option<Reserved>,
) -> Result<(), KvError> {
    let TxState { worker, arena, scratch, session, .. } = state;
    let has_past = db.store.records().has_past(write.at)?;
    // Without reserved memory, the value may still be of another length that fits in place.
    write.has_room = match write.op.new_length() {
        Some(length) => db.store.records().has_length(write.at, length)?,
        None => true,
    };
    scratch.reserved.clear();
    scratch.reserved.extend(reserved.map(|memory| (0, memory)));
    scratch.needs.clear();
    if has_past || epoch_of(write.before) < epoch {
        db.snapshots.needs(&db.store, &mut scratch.needs)?;
    }
    let is_plain = write.has_room && !has_past && scratch.needs.is_empty();
    session.counters.count_write(db.engine());
    let writes = slice::from_mut(&mut write);
    let applied = apply(db, worker, arena, scratch, writes, (epoch, is_plain));
    if let Some((_, unused)) = scratch.reserved.pop() {
        worker.give_back(unused);
    }
    applied?;
    if writes[0].op == WriteOp::Remove {
        take_out_removed(db, (worker, &session.counters), arena, writes)?;
    }
    Ok(())
}

/// Logs rows that their holder has locked and is going to write, as one record. Its epoch stays
/// open until what is returned is dropped, behind the last [`apply_row`].
///
/// The versions of the rows are of the transaction's own `epoch`, which it had read under its
/// locks. That may be closed by now, and is no later than the record's, which is read here. A
/// transaction that depends on the rows finds them unlocked, and so its record is of no earlier
/// epoch.
///
/// # Errors
///
/// [`Error::Poisoned`]; [`Error::TooLarge`]. Then nothing is logged.
pub(crate) fn log_rows<'l, S: Config>(
    db: &Inner<S>,
    log: &'l Log<S::Engine>,
    participant: &'l Participant,
    (arena, writes, epoch): (&Arena, &[Write], u64),
) -> Result<(Open<'l, S::Engine>, u64), Error> {
    let open = log.enter_at_once(participant)?;
    let now = db.engine().load(db.snapshot_number()?);
    log.append_in(participant, &db.store.records(), &Commit { epoch, writes, arena, tables: db.catalog.infos() }, now)?;
    Ok((open, now))
}
