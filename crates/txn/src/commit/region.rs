//! Locking and validating in one hardware region: nothing but states and versions, so that it stays small.

use drtm_htm::{Access, Cause, Engine, Outcome, Policy};
use drtm_kv::Locking;

use super::lock::Locked;
use crate::{Conflict, Error, Setting, db::Inner, mutation::Mutation, work::Work};

/// Codes with which the region gives up.
const HELD: u8 = 1;
const MOVED: u8 = 2;
const CHANGED: u8 = 3;
const PHANTOM: u8 = 4;

/// Locks what is written and validates what was read. Gives the epoch then, and what is locked; `None` where there are no regions, none pays, or they gave up: then
/// nothing is locked.
#[inline(always)]
pub(super) fn lock_and_validate<S: Setting>(
    db: &Inner<S>,
    work: &mut Work<S::Engine>,
) -> Result<Option<(u64, Locked)>, Error> {
    if work.writes.len() < S::REGIONS_FROM || !db.engine().has_regions() {
        return Ok(None);
    }
    let (records, number) = (db.store.records(), db.snapshot_number()?);
    let Work { writes, reads, leaves, buckets, holder, worker, .. } = work;
    let mut locked = Locked::NOTHING;
    let outcome = worker.htm().attempt(Policy::DBX, |tx| {
        // What an attempt has seen that was given up counts for nothing.
        locked = Locked::NOTHING;
        for write in writes.iter_mut() {
            match records.lock_in(tx, write.at, *holder)? {
                Locking::Taken { version, head } => {
                    if !locked.take::<S, _>(tx, &records, write, (version, head))? {
                        return Err(tx.abort::<CHANGED>());
                    }
                }
                Locking::Held(_) => return Err(tx.abort::<HELD>()),
                Locking::Gone => return Err(tx.abort::<MOVED>()),
            }
        }
        let epoch = tx.load(number)?;
        for seen in reads.iter() {
            if !records.is_still_in(tx, *seen, *holder)? && !S::has(Mutation::CommitWithoutValidation) {
                return Err(tx.abort::<CHANGED>());
            }
        }
        for leaf in leaves.iter() {
            if !records.is_unchanged_in(tx, leaf)? && !S::has(Mutation::CommitDespitePhantoms) {
                return Err(tx.abort::<PHANTOM>());
            }
        }
        for bucket in buckets.iter() {
            if !records.is_unchanged_in(tx, bucket)? && !S::has(Mutation::CommitDespitePhantoms) {
                return Err(tx.abort::<PHANTOM>());
            }
        }
        Ok(epoch)
    });
    match outcome {
        Outcome::Committed(epoch) => Ok(Some((epoch, locked))),
        Outcome::Fallback(Cause::Explicit(MOVED)) => Err(Conflict::Moved.into()),
        Outcome::Fallback(Cause::Explicit(CHANGED)) => Err(Conflict::Validation.into()),
        Outcome::Fallback(Cause::Explicit(PHANTOM)) => Err(Conflict::Phantom.into()),
        // Also where somebody has a lock: that can be waited for, but not in here.
        Outcome::Fallback(_) => Ok(None),
    }
}
