//! Locking and validating in one htm transaction. It only accesses states and versions, so that it
//! stays small.

use drtm_htm::{Access, Cause, Engine, Outcome, Policy, fence_locked};
use drtm_kv::{Holder, Worker};

use super::{
    lock::{NotLocked, Summary, lock_rows},
    validate::validate,
};
use crate::{
    Config, Conflict, Error,
    commit::{read_set::ReadSet, write_set::Write},
    db::inner::Inner,
};

const HELD: u8 = 1;
const MOVED: u8 = 2;
const CHANGED: u8 = 3;
const PHANTOM: u8 = 4;

/// Locks the write set, reads the snapshot number and validates the read set atomically. Returns
/// `None` if that is not worth while or does not succeed; the caller then locks row by row.
///
/// # Errors
///
/// A conflict; then nothing is locked.
#[inline(always)]
pub(super) fn lock_and_validate<S: Config>(
    db: &Inner<S>,
    worker: &mut Worker<S::Engine>,
    reads: &ReadSet,
    writes: &mut [Write],
    holder: Holder,
) -> Result<Option<(u64, Summary)>, Error> {
    // An htm transaction is not atomic with swaps of a NIC that are atomic with each other only.
    let is_looped = db.store.region().is_swapped_by_nic();
    if writes.len() < S::HTM_FROM || !db.engine().has_htm() || is_looped {
        return Ok(None);
    }
    let (records, number) = (&db.store.records(), db.snapshot_number()?);
    let outcome = worker.htm().attempt(Policy::DBX, |tx| {
        let conflict = match lock_rows::<S, _>(tx, records, writes, |tx, at| records.lock_in(tx, at, holder))? {
            Ok(summary) => {
                let epoch = tx.load(number)?;
                match validate::<S, _>(tx, records, reads, holder)? {
                    None => return Ok((epoch, summary)),
                    Some(conflict) => conflict,
                }
            }
            Err((_, NotLocked::Held)) => return Err(tx.abort::<HELD>()),
            Err((_, NotLocked::Conflict(conflict))) => conflict,
        };
        Err(match conflict {
            Conflict::Moved => tx.abort::<MOVED>(),
            Conflict::Phantom => tx.abort::<PHANTOM>(),
            _ => tx.abort::<CHANGED>(),
        })
    });
    match outcome {
        Outcome::Committed(done) => {
            fence_locked();
            Ok(Some(done))
        }
        Outcome::Fallback(Cause::Explicit(MOVED)) => Err(Conflict::Moved.into()),
        Outcome::Fallback(Cause::Explicit(CHANGED)) => Err(Conflict::Validation.into()),
        Outcome::Fallback(Cause::Explicit(PHANTOM)) => Err(Conflict::Phantom.into()),
        // This includes a row that another transaction has locked: the slow path can wait for it.
        Outcome::Fallback(_) => Ok(None),
    }
}
