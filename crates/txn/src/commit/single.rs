//! The straight way to commit a transaction that writes one row, and has read nothing else: what it has read is locked, so there is nothing to look at again.
//!
//! It takes the steps that [`commit`](super::commit) takes, of one record in registers instead of many in memory. Where anything is not as it mostly is, it unlocks the
//! record, and nothing has happened: then all of it is done the other way, which knows what there is to do.

use std::hint::cold_path;

use drtm_htm::{Engine, fence_locked};

use super::{unlock_too_early, write_in_place};
use crate::{
    Error, Hook, Setting,
    db::Inner,
    epoch::{epoch_of, version_in},
    gate,
    work::{Fate, Work},
};

/// Commits such a transaction. Gives whether it has: otherwise nothing is locked.
#[inline(always)]
pub(super) fn commit<S: Setting>(db: &Inner<S>, work: &mut Work<S::Engine>) -> Result<bool, Error> {
    // Where even one write is to be locked in a region, it is.
    if S::REGIONS_FROM <= 1 || S::Hook::LISTENS || work.has_read() {
        return Ok(false);
    }
    let [write] = &mut work.writes[..] else { return Ok(false) };
    // Gone rows are taken out afterwards.
    if write.fate == Fate::Remove {
        return Ok(false);
    }
    let records = db.store.records();
    let Ok(locked) = records.lock_record(write.at, work.holder)? else {
        cold_path();
        return Ok(false);
    };
    fence_locked();
    let epoch = db.engine().load(db.snapshot_number()?);
    let version = locked.version();
    let new = version_in(epoch, version);
    let is_needed = !write.is_made && epoch_of(version) < epoch;
    let is_usual = version == write.seen && epoch_of(new) <= epoch && !is_needed;
    let left = if is_usual && gate::has_same_terms(db, work.terms) {
        unlock_too_early::<S>(&records, std::slice::from_ref(write));
        let values = work.values.bytes();
        match write.fate {
            Fate::Put(value) => locked.write(new, value.of(values)),
            _ if locked.head().has_older() => Err(locked),
            _ => {
                write_in_place(&records, write, values, new)?;
                Ok(())
            }
        }
    } else {
        Err(locked)
    };
    match left {
        Ok(()) => Ok(true),
        Err(locked) => {
            cold_path();
            locked.unlock();
            Ok(false)
        }
    }
}
