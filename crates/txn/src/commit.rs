//! The commit: lock, number, validate, tell, write, unlock.
//!
//! Everything that is written is locked first. Then the snapshot number is read, which is the
//! transaction's epoch; then everything that was read is looked at again. If all of it is as it was, and nobody else has it locked, then
//! there is one moment, after the last lock and before the first look, at which the transaction happens: what it has read was true then, and nobody can have
//! seen what it is about to write. Who reads what it has locked waits; who has read it before finds the lock, or the new version.
//!
//! Where there is transactional memory the first three steps are one region over nothing but states and versions; values are always written
//! under the locks.

mod lock;
mod region;
mod single;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use drtm_htm::{Engine, fence_locked};
use drtm_kv::{Kept, KvError, Records, Sighting, Version};

use crate::{
    Change, Conflict, Error, Hook, Mode, Setting,
    budget::Spent,
    db::Inner,
    epoch::{advance_beyond, has_version_in, last_of, version_in},
    garbage::{self, NewPast},
    gate,
    index::Encoded,
    kept::encoded,
    mutation::Mutation,
    snapshots::Needs,
    work::{Fate, Work, Write},
};
use lock::{Locked, lock, unlock};

/// Whether all that was read, and is not written, is still so; if not, why.
#[inline(always)]
fn holds<S: Setting>(db: &Inner<S>, work: &Work<S::Engine>) -> Result<(), Conflict> {
    // Many only change rows.
    if work.has_read() { all_hold(db, work) } else { Ok(()) }
}

/// The same where something was read.
#[inline(never)]
fn all_hold<S: Setting>(db: &Inner<S>, work: &Work<S::Engine>) -> Result<(), Conflict> {
    let records = db.store.records();
    if !work.reads.iter().all(|seen| records.is_still(*seen, work.holder)) && !S::has(Mutation::CommitWithoutValidation)
    {
        return Err(Conflict::Validation);
    }
    let is_unchanged = work.leaves.iter().all(|leaf| records.is_unchanged(leaf))
        && work.buckets.iter().all(|bucket| records.is_unchanged(bucket));
    if is_unchanged || S::has(Mutation::CommitDespitePhantoms) { Ok(()) } else { Err(Conflict::Phantom) }
}

/// Whether all that was seen is true together: what was read, and that keys which are to be written have the records that were found for them. The commit
/// finds out about those when it locks them. But before it, a transaction would no more know its own writes.
pub(crate) fn is_true<S: Setting>(db: &Inner<S>, work: &Work<S::Engine>) -> Result<(), Conflict> {
    holds(db, work)?;
    let records = db.store.records();
    for write in &work.writes {
        if write.is_read && !records.is_still(write.seen(), work.holder) {
            return Err(Conflict::Validation);
        }
        if !records.is_there(write.at, work.holder) {
            return Err(Conflict::Moved);
        }
    }
    Ok(())
}

/// Whether all that was read was read at one moment, and so was true then. A range's rows are looked at one after the other, and one that goes meanwhile leaves nothing but
/// its leaf.
#[inline(always)]
fn is_of_one_moment<E: Engine>(work: &Work<E>) -> bool {
    work.leaves.is_empty() && work.reads.len() + work.buckets.len() <= 1
}

/// Whether there is nothing to do for a transaction to happen: it writes nothing, what it has read was true at one moment, and nothing else is due.
#[inline(always)]
pub(crate) fn has_happened<S: Setting, M: Mode>(work: &Work<S::Engine>) -> bool {
    let writes_nothing = !M::WRITES || work.writes.is_empty() && work.undone.is_empty();
    writes_nothing && is_of_one_moment(work) && !garbage::is_to_be_tried(work)
}

/// Makes a transaction happen, or not. For each mode by itself: it is part of what ends a transaction then, and who only reads has the end of one that does.
#[inline]
pub(crate) fn commit<S: Setting, M: Mode>(db: &Inner<S>, work: &mut Work<S::Engine>) -> Result<(), Error> {
    if !M::WRITES || work.writes.is_empty() {
        if !is_of_one_moment(work) {
            holds(db, work)?;
        }
    } else if !single::commit(db, work)? {
        commit_all(db, work)?;
    }
    if !work.undone.is_empty() {
        garbage::take_back(db, work);
    }
    Ok(garbage::try_again(db, work)?)
}

/// Makes all that is written happen, or nothing of it.
#[inline(always)]
fn commit_all<S: Setting>(db: &Inner<S>, work: &mut Work<S::Engine>) -> Result<(), Error> {
    let (epoch, locked) = lock_and_validate(db, work)?;
    let may_go_on = gate::confirm(db, work);
    if let Err(error) = may_go_on.and_then(|()| if locked.lacks_room() { reserve(db, work) } else { Ok(()) }) {
        unlock(&db.store.records(), &work.writes);
        return Err(error);
    }
    if S::Hook::LISTENS
        && let Err(panic) = catch_unwind(AssertUnwindSafe(|| tell(db, work, epoch)))
    {
        // Nothing has been written, and nobody is to wait for it.
        give_back_reserved(work);
        unlock(&db.store.records(), &work.writes);
        resume_unwind(panic);
    }
    work.needs.clear();
    if locked.may_be_needed(epoch) {
        db.snapshots.needs(&db.store, &mut work.needs)?;
    }
    let has_removed = if locked.lacks_room() || locked.has_past() || !work.needs.is_empty() {
        apply_to_any(db, work, epoch)?
    } else {
        apply(db, work, epoch)?
    };
    if has_removed { Ok(take_out_removed(db, work)?) } else { Ok(()) }
}

/// Locks what is written. Gives the epoch if all that was read is still so, and keeps the locks then.
#[inline]
fn lock_and_validate<S: Setting>(db: &Inner<S>, work: &mut Work<S::Engine>) -> Result<(u64, Locked), Error> {
    loop {
        let (epoch, locked) = match region::lock_and_validate(db, work)? {
            Some(done) => done,
            None => lock_and_validate_plainly(db, work)?,
        };
        if locked.has_changed()
            && let Err(error) = check_keys(db, work)
        {
            unlock(&db.store.records(), &work.writes);
            return Err(error);
        }
        if has_version_in(epoch, locked.newest()) {
            return Ok((epoch, locked));
        }
        // A row was written tens of thousands of times in this epoch: time for the next.
        unlock(&db.store.records(), &work.writes);
        advance_beyond(db.engine(), db.snapshot_number()?, last_of(locked.newest()));
    }
}

/// Makes sure that the records that are locked are those of their keys. A handle alone does not tell for ever: a record can be taken out, and its memory be used
/// again so often that it has the same incarnation at last. As long as the version is the one that was seen, it is the same record.
#[cold]
fn check_keys<S: Setting>(db: &Inner<S>, work: &Work<S::Engine>) -> Result<(), Error> {
    for write in work.writes.iter().filter(|write| write.before != write.seen) {
        let Some(opened) = db.catalog.get(write.table) else { continue };
        if !opened.index.leads_to(work.key_of(write.key), write.at)? {
            return Err(Conflict::Moved.into());
        }
    }
    Ok(())
}

#[inline]
fn lock_and_validate_plainly<S: Setting>(db: &Inner<S>, work: &mut Work<S::Engine>) -> Result<(u64, Locked), Error> {
    let too_early = S::has(Mutation::ValidateBeforeLocks).then(|| holds(db, work));
    let locked = lock(db, work)?;
    fence_locked();
    let epoch = db.engine().load(db.snapshot_number()?);
    match too_early.unwrap_or_else(|| holds(db, work)) {
        Ok(()) => Ok((epoch, locked)),
        Err(conflict) => {
            unlock(&db.store.records(), &work.writes);
            Err(conflict.into())
        }
    }
}

/// Takes memory for values that have no room where their records are: while the transaction can still be given up.
#[inline(never)]
fn reserve<S: Setting>(db: &Inner<S>, work: &mut Work<S::Engine>) -> Result<(), Error> {
    // What a commit has left that came upon a corrupt store.
    give_back_reserved(work);
    for (write, index) in work.writes.iter().zip(0..) {
        let Fate::Put(value) = write.fate else { continue };
        let (false, Some(opened)) = (write.has_room, db.catalog.get(write.table)) else { continue };
        match opened.index.reserve(&mut work.worker, write.at, value.length()) {
            Ok(None) => {}
            Ok(Some(memory)) => work.reserved.push((index, memory)),
            Err(error) => {
                give_back_reserved(work);
                return Err(error.into());
            }
        }
    }
    Ok(())
}

#[cold]
fn give_back_reserved<E: Engine>(work: &mut Work<E>) {
    let Work { reserved, worker, .. } = work;
    reserved.drain(..).for_each(|(_, memory)| worker.give_back(memory));
}

#[cold]
fn tell<S: Setting>(db: &Inner<S>, work: &Work<S::Engine>, epoch: u64) {
    for write in &work.writes {
        let Some(opened) = db.catalog.get(write.table) else { continue };
        let word;
        let key = match work.key_of(write.key) {
            Encoded::Bytes(bytes) => bytes,
            Encoded::Word(packed) => {
                word = packed.to_be_bytes();
                &word[word.len() - opened.key_size.min(word.len())..]
            }
        };
        let value = match write.fate {
            Fate::Put(value) | Fate::Fresh(value) => Some(value.of(work.values.bytes())),
            Fate::Patch { .. } => unreachable!("where somebody listens, values are written as a whole"),
            Fate::Remove => None,
        };
        let version = new_version(epoch, write);
        db.hook.changed(Change { epoch, table: opened.name, key, version, value });
    }
}

/// The version that a write makes.
#[inline(always)]
fn new_version(epoch: u64, write: &Write) -> Version {
    let version = version_in(epoch, write.before);
    if write.fate == Fate::Remove { version.as_removed() } else { version }
}

/// Writes everything, and unlocks each record when it is written. All have room where they are, and nobody needs what they were. Gives whether a row is gone.
#[inline]
fn apply<S: Setting>(db: &Inner<S>, work: &mut Work<S::Engine>, epoch: u64) -> Result<bool, Error> {
    let records = db.store.records();
    let Work { writes, values, .. } = work;
    let values = values.bytes();
    unlock_too_early::<S>(&records, writes);
    let mut has_removed = false;
    for write in writes {
        let version = new_version(epoch, write);
        has_removed |= write_in_place(&records, write, values, version)?;
    }
    Ok(has_removed)
}

/// The same, wherever there is room, and whatever open snapshots need of what they were.
#[inline(never)]
fn apply_to_any<S: Setting>(db: &Inner<S>, work: &mut Work<S::Engine>, epoch: u64) -> Result<bool, Error> {
    let records = db.store.records();
    let Work { writes, values, keys, worker, needs, reserved, .. } = work;
    unlock_too_early::<S>(&records, writes);
    let (mut spent, mut has_removed, mut new_past) = (Spent::default(), false, NewPast::new(&db.garbage));
    for (write, index) in writes.iter_mut().zip(0..) {
        let version = new_version(epoch, write);
        let mut now_at = write.at;
        let had_past = records.has_past(write.at)?;
        // A row that was not there before, and never was as far as anybody knows, needs nothing to say so.
        let may_be_kept = had_past || !needs.is_empty() && !write.before.is_removed();
        let has_past = may_be_kept && settle_past(db, worker, needs, write, had_past, version, &mut spent)?;
        if write.has_room {
            has_removed |= write_in_place(&records, write, values.bytes(), version)?;
        } else if let (Fate::Put(value), Some(opened)) = (write.fate, db.catalog.get(write.table)) {
            let memory = reserved.iter().position(|(reserved, _)| *reserved == index);
            let memory = memory.map(|memory| reserved.swap_remove(memory).1);
            let (key, value) = (encoded(keys, write.key), value.of(values.bytes()));
            now_at = opened.index.write(worker, key, write.at, memory, version, value)?;
        }
        // Who had a past is in the queue already, unless it has moved.
        if has_past && (!had_past || now_at != write.at) {
            new_past.add(now_at, version);
        }
    }
    db.past.enter(spent);
    Ok(has_removed)
}

/// What a broken commit does, that tests have to notice.
#[inline(always)]
fn unlock_too_early<S: Setting>(records: &Records<'_, S::Engine>, writes: &[Write]) {
    if S::has(Mutation::UnlockBeforeVersions) {
        unlock(records, writes);
        // Whoever waits for them is let in.
        std::thread::yield_now();
    }
}

/// Writes what becomes of a row that has room for it, and unlocks its record. Gives whether the row is gone.
#[inline(always)]
fn write_in_place<E: Engine>(
    records: &Records<'_, E>,
    write: &mut Write,
    values: &[u8],
    version: Version,
) -> Result<bool, KvError> {
    let (bytes, skipped) = match write.fate {
        Fate::Fresh(_) => return records.publish(write.at, version).map(|()| false),
        Fate::Remove => {
            write.before = version;
            return records.publish(write.at, version).map(|()| true);
        }
        Fate::Patch { bytes, skipped } => (bytes, skipped),
        Fate::Put(value) => (value, 0),
    };
    records.write_part(write.at, version, skipped as usize, bytes.of(values)).map(|()| false)
}

/// Keeps what a row is, if that is needed once it has been written, and forgets what is not needed of what it was. Whether it has older versions then.
#[cold]
fn settle_past<S: Setting>(
    db: &Inner<S>,
    worker: &mut drtm_kv::Worker<S::Engine>,
    needs: &Needs,
    write: &Write,
    had_past: bool,
    version: Version,
    spent: &mut Spent,
) -> Result<bool, Error> {
    let records = db.store.records();
    let mut has_past = had_past;
    if had_past {
        spent.give_back(records.forget(worker, write.at, |from, until| needs.include(from, until))?);
        has_past = records.has_past(write.at)?;
    }
    // As above.
    if needs.include(write.before, version) && (has_past || !write.before.is_removed()) {
        match records.keep(worker, write.at, db.past.allows_more(spent))? {
            Kept::Copy { bytes } => spent.take(bytes),
            Kept::Forgotten { freed } => spent.give_back(freed),
        }
        has_past = true;
    }
    Ok(has_past)
}

/// Takes out the records of rows that are gone now.
#[inline(never)]
fn take_out_removed<S: Setting>(db: &Inner<S>, work: &mut Work<S::Engine>) -> Result<(), KvError> {
    let Work { writes, keys, worker, .. } = work;
    for write in writes.iter().filter(|write| write.fate == Fate::Remove) {
        let seen = Sighting { at: write.at, version: write.before };
        garbage::reap(db, worker, write.table, encoded(keys, write.key), seen)?;
    }
    Ok(())
}
