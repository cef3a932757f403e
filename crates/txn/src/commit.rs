//! The commit: lock, number, validate, tell, write, unlock.
//!
//! Everything that is written is locked first, in the order of memory, so that nobody waits in a circle. Then the snapshot number is read, which is the
//! transaction's epoch; then everything that was read is looked at again. If all of it is as it was, and nobody else has it locked, then
//! there is one moment, after the last lock and before the first look, at which the transaction happens: what it has read was true then, and nobody can have
//! seen what it is about to write. Who reads what it has locked waits; who has read it before finds the lock, or the new version.
//!
//! Where there is transactional memory the first three steps are one region over nothing but states and versions; values are always written
//! under the locks.

mod region;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use drtm_htm::{Engine, Waiter, fence_locked};
use drtm_kv::{Handle, Locking, Records, Reserved, Sighting, State, Version};

use crate::{
    Change, Conflict, Error, Hook, Setting,
    catalog::Opened,
    db::Inner,
    epoch::{advance_beyond, epoch_of, version_in},
    garbage::{self, Garbage},
    gate,
    index::Encoded,
    mutation::Mutation,
    snapshots::Needs,
    ticket::Ticket,
    work::{Fate, Work, Write, encoded, slice},
};

/// How often a lock that somebody else has is asked for. Its holder is in the midst of a commit, or was interrupted there.
const PATIENCE: u32 = 256;

/// Whether all that was read is still so; if not, why.
#[inline]
fn holds<S: Setting>(db: &Inner<S>, work: &Work<S::Engine>) -> Result<(), Conflict> {
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
    if work.writes.iter().all(|write| records.is_there(write.at, work.holder)) { Ok(()) } else { Err(Conflict::Moved) }
}

/// Makes a transaction happen, or not.
#[inline]
pub(crate) fn commit<S: Setting>(db: &Inner<S>, work: &mut Work<S::Engine>) -> Result<(), Error> {
    if work.writes.is_empty() {
        // What was read at one moment was true then.
        if work.reads.len() + work.leaves.len() + work.buckets.len() > 1 && S::ISOLATED {
            holds(db, work)?;
        }
    } else {
        put_in_order(work);
        let epoch = lock_and_validate(db, work)?;
        let reserved = match gate::confirm(db, work).and_then(|()| reserve(db, work)) {
            Ok(reserved) => reserved,
            Err(error) => {
                unlock(&db.store.records(), &work.order);
                return Err(error);
            }
        };
        if S::Hook::LISTENS
            && let Err(panic) = catch_unwind(AssertUnwindSafe(|| tell(db, work, epoch)))
        {
            // Nothing has been written, and nobody is to wait for it.
            reserved.into_iter().for_each(|(_, memory)| work.worker.give_back(memory));
            unlock(&db.store.records(), &work.order);
            resume_unwind(panic);
        }
        apply(db, work, epoch, reserved)?;
    }
    tidy(db, work)
}

fn put_in_order<E: Engine>(work: &mut Work<E>) {
    work.order.clear();
    work.order.extend(work.writes.iter().zip(0..).map(|(write, index)| (write.at, index)));
    work.order.sort_unstable_by_key(|(at, _)| *at);
}

/// Locks what is written, in order. Gives the epoch if all that was read is still so, and keeps the locks then.
#[inline]
fn lock_and_validate<S: Setting>(db: &Inner<S>, work: &mut Work<S::Engine>) -> Result<u64, Error> {
    loop {
        let epoch = match region::lock_and_validate(db, work)? {
            Some(epoch) => epoch,
            None => lock_and_validate_plainly(db, work)?,
        };
        if !are_their_keys(db, work)? {
            unlock(&db.store.records(), &work.order);
            return Err(Conflict::Moved.into());
        }
        let exhausted = work.writes.iter().find(|write| version_in(epoch, write.before).is_none());
        match exhausted.map(|write| write.before) {
            None => return Ok(epoch),
            // A row was written tens of thousands of times in this epoch: time for the next.
            Some(before) => {
                unlock(&db.store.records(), &work.order);
                advance_beyond(db.engine(), db.snapshot_number()?, crate::epoch::last_of(before));
            }
        }
    }
}

/// Whether the records that are locked are those of their keys. A handle alone does not tell for ever: a record can be taken out, and its memory be used
/// again so often that it has the same incarnation at last. As long as the version is the one that was seen, it is the same record.
#[inline]
fn are_their_keys<S: Setting>(db: &Inner<S>, work: &Work<S::Engine>) -> Result<bool, Error> {
    for write in work.writes.iter().filter(|write| write.before != write.seen) {
        let Some(opened) = db.catalog.get(write.table) else { continue };
        match opened.index.leads_to(work.key_of(write.key), write.at) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) => {
                unlock(&db.store.records(), &work.order);
                return Err(error.into());
            }
        }
    }
    Ok(true)
}

#[inline]
fn lock_and_validate_plainly<S: Setting>(db: &Inner<S>, work: &mut Work<S::Engine>) -> Result<u64, Error> {
    let records = db.store.records();
    let too_early = S::has(Mutation::ValidateBeforeLocks).then(|| holds(db, work));
    lock(&records, &db.ticket, work)?;
    fence_locked();
    let epoch = db.engine().load(db.snapshot_number()?);
    match too_early.unwrap_or_else(|| holds(db, work)) {
        Ok(()) => Ok(epoch),
        Err(conflict) => {
            unlock(&records, &work.order);
            Err(conflict.into())
        }
    }
}

/// Locks all records, or none.
#[inline]
fn lock<E: Engine>(records: &Records<'_, E>, ticket: &Ticket, work: &mut Work<E>) -> Result<(), Error> {
    let Work { order, writes, holder, held, .. } = work;
    for (locked, (at, index)) in order.iter().enumerate() {
        let failed = match records.lock(*at, *holder) {
            Ok(Locking::Taken { version, length, has_past }) => {
                took(&mut writes[*index as usize], version, length, has_past);
                continue;
            }
            Ok(Locking::Gone) => Conflict::Moved.into(),
            Ok(Locking::Held(state)) => match lock_patiently(records, *at, *holder, state, ticket, !held.is_empty()) {
                Ok((version, length, has_past)) => {
                    took(&mut writes[*index as usize], version, length, has_past);
                    continue;
                }
                Err(error) => error,
            },
            Err(error) => error.into(),
        };
        unlock(records, &order[..locked]);
        return Err(failed);
    }
    Ok(())
}

#[cold]
fn lock_patiently<E: Engine>(
    records: &Records<'_, E>,
    at: Handle,
    holder: State,
    found: State,
    ticket: &Ticket,
    has_ticket: bool,
) -> Result<(Version, Option<u8>, bool), Error> {
    if found == holder {
        // When it was read.
        return match records.held(at)? {
            Locking::Taken { version, length, has_past } => Ok((version, length, has_past)),
            Locking::Held(_) | Locking::Gone => Err(Conflict::Moved.into()),
        };
    }
    let waiter = Waiter::new();
    for _ in 0..PATIENCE {
        if ticket.is_taken() && !has_ticket {
            return Err(Conflict::Yielded.into());
        }
        waiter.pause();
        match records.lock(at, holder)? {
            Locking::Taken { version, length, has_past } => return Ok((version, length, has_past)),
            Locking::Gone => return Err(Conflict::Moved.into()),
            Locking::Held(_) => {}
        }
    }
    Err(Conflict::Locked.into())
}

/// Remembers what a record was like when it was locked.
#[inline(always)]
pub(super) fn took(write: &mut Write, version: Version, length: Option<u8>, has_past: bool) {
    write.before = version;
    write.has_past = has_past;
    write.has_room = match write.fate {
        Fate::Put { length: new, .. } => length.is_some_and(|length| u32::from(length) == new),
        Fate::Fresh { .. } | Fate::Remove => true,
    };
}

#[inline]
fn unlock<E: Engine>(records: &Records<'_, E>, locked: &[(Handle, u32)]) {
    locked.iter().for_each(|(at, _)| records.unlock(*at));
}

/// Takes memory for values that have no room where their records are: while the transaction can still be given up.
#[inline]
fn reserve<S: Setting>(db: &Inner<S>, work: &mut Work<S::Engine>) -> Result<Vec<(u32, Reserved)>, Error> {
    // Empty, it is no allocation.
    let mut reserved = Vec::new();
    if work.writes.iter().all(|write| write.has_room) {
        return Ok(reserved);
    }
    for (write, index) in work.writes.iter().zip(0..) {
        let Fate::Put { length, .. } = write.fate else { continue };
        let (false, Some(opened)) = (write.has_room, db.catalog.get(write.table)) else { continue };
        match opened.index.reserve(&mut work.worker, write.at, length as usize) {
            Ok(None) => {}
            Ok(Some(memory)) => reserved.push((index, memory)),
            Err(error) => {
                reserved.into_iter().for_each(|(_, memory)| work.worker.give_back(memory));
                return Err(error.into());
            }
        }
    }
    Ok(reserved)
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
            Fate::Put { start, length } | Fate::Fresh { start, length } => Some(slice(&work.values, start, length)),
            Fate::Remove => None,
        };
        let version = new_version(epoch, write);
        db.hook.changed(Change { epoch, table: opened.name, key, version, value });
    }
}

/// The version that a write makes. There is one: that has been seen to.
#[inline(always)]
fn new_version(epoch: u64, write: &Write) -> Version {
    let version = version_in(epoch, write.before).unwrap_or(write.before.next());
    if write.fate == Fate::Remove { version.as_removed() } else { version }
}

/// Writes everything, and unlocks each record when it is written.
#[inline]
fn apply<S: Setting>(
    db: &Inner<S>,
    work: &mut Work<S::Engine>,
    epoch: u64,
    mut reserved: Vec<(u32, Reserved)>,
) -> Result<(), Error> {
    let records = db.store.records();
    learn_needs(db, work, epoch)?;
    let Work { order, writes, values, keys, worker, needs, .. } = work;
    if S::has(Mutation::UnlockBeforeVersions) {
        unlock(&records, order);
        // Whoever waits for them is let in.
        std::thread::yield_now();
    }
    for (at, index) in order.iter() {
        let write = &writes[*index as usize];
        let version = new_version(epoch, write);
        let mut now_at = *at;
        let has_past = (write.has_past || !needs.is_empty()) && settle_past(db, worker, needs, write, version)?;
        match write.fate {
            Fate::Fresh { .. } | Fate::Remove => records.publish(*at, version)?,
            Fate::Put { start, length } => {
                let Some(opened) = db.catalog.get(write.table) else { continue };
                let value = slice(values, start, length);
                let memory = reserved.iter().position(|(reserved, _)| reserved == index);
                match memory.map(|memory| reserved.swap_remove(memory).1) {
                    None => opened.index.write_held(*at, version, value)?,
                    Some(memory) => {
                        let key = encoded(keys, write.key);
                        now_at = opened.index.move_held(worker, key, *at, memory, version, value)?;
                    }
                }
            }
        }
        if has_past {
            db.garbage.push(Garbage::Past { at: now_at, until: version });
        }
        if write.fate == Fate::Remove {
            writes[*index as usize].before = version;
        }
    }
    Ok(())
}

/// Finds out what open snapshots need, if anything that is written may be needed.
#[inline(always)]
fn learn_needs<S: Setting>(db: &Inner<S>, work: &mut Work<S::Engine>, epoch: u64) -> Result<(), Error> {
    let is_concerned = |write: &Write| write.has_past || write.made.is_none() && epoch_of(write.before) < epoch;
    if work.writes.iter().any(is_concerned) {
        db.snapshots.needs(&db.store, &mut work.needs)?;
    } else {
        work.needs.clear();
    }
    Ok(())
}

/// Keeps what a row is, if that is needed once it has been written, and forgets what is not needed of what it was. Whether it has older versions then.
#[cold]
fn settle_past<S: Setting>(
    db: &Inner<S>,
    worker: &mut drtm_kv::Worker<S::Engine>,
    needs: &Needs,
    write: &Write,
    version: Version,
) -> Result<bool, Error> {
    let records = db.store.records();
    let mut has_past = write.has_past;
    if has_past {
        db.past.give_back(records.forget(worker, write.at, |from, until| needs.include(from, until))?);
        has_past = records.has_past(write.at)?;
    }
    // A row that was not there before, and never was as far as anybody knows, needs nothing to say so.
    if needs.include(write.before, version) && (has_past || !write.before.is_removed()) {
        let kept = records.keep(worker, write.at, db.past.allows_more())?;
        db.past.take(kept.unwrap_or(0));
        has_past = true;
    }
    Ok(has_past)
}

/// Takes out the records of rows that are gone now, and what was left before.
#[inline]
fn tidy<S: Setting>(db: &Inner<S>, work: &mut Work<S::Engine>) -> Result<(), Error> {
    let Work { writes, undone, keys, worker, .. } = work;
    for write in writes.iter().filter(|write| write.fate == Fate::Remove) {
        let seen = Sighting { at: write.at, version: write.before };
        garbage::reap(&db.catalog, &db.ticket, worker, &db.garbage, write.table, encoded(keys, write.key), seen)?;
    }
    if !undone.is_empty() {
        garbage::take_back(db, work);
    }
    Ok(garbage::try_again(db, work)?)
}

/// Without isolation: does what the transaction has just been asked to write, at once.
#[inline]
pub(crate) fn write_through<S: Setting>(
    db: &Inner<S>,
    work: &mut Work<S::Engine>,
    opened: &Opened<S::Engine>,
) -> Result<(), Error> {
    let records = db.store.records();
    let Work { writes, values, keys, worker, holder, .. } = work;
    for write in writes.iter_mut() {
        let Locking::Taken { version, length, has_past } = records.lock(write.at, *holder)? else {
            return Err(Conflict::Locked.into());
        };
        took(write, version, length, has_past);
        let version = new_version(1, write);
        match write.fate {
            Fate::Fresh { .. } => records.publish(write.at, version)?,
            Fate::Remove => {
                records.publish(write.at, version)?;
                let seen = Sighting { at: write.at, version };
                garbage::reap(
                    &db.catalog,
                    &db.ticket,
                    worker,
                    &db.garbage,
                    write.table,
                    encoded(keys, write.key),
                    seen,
                )?;
            }
            Fate::Put { start, length } => {
                let value = slice(values, start, length);
                let memory = if write.has_room { None } else { opened.index.reserve(worker, write.at, value.len())? };
                match memory {
                    None => opened.index.write_held(write.at, version, value)?,
                    Some(memory) => {
                        let key = encoded(keys, write.key);
                        opened.index.move_held(worker, key, write.at, memory, version, value)?;
                    }
                }
            }
        }
    }
    Ok(())
}
