//! The straight way to commit a transaction that writes one row, and has read nothing else: what it has read is locked, so there is nothing to look at again.
//!
//! It takes the steps that [`commit`](super::commit) takes, of one record in registers instead of many in memory. Where anything is not as it mostly is, it unlocks the
//! record, and nothing has happened: then all of it is done the other way, which knows what there is to do.

use std::hint::cold_path;

use drtm_htm::{Engine, Plain, fence_locked};
use drtm_kv::Locking;

use super::{lock::Locked, unlock_too_early, write_in_place};
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
    let (records, at) = (db.store.records(), write.at);
    // Gone rows are taken out afterwards.
    if write.fate == Fate::Remove {
        return Ok(false);
    }
    let Locking::Taken { version, head } = records.lock(at, work.holder)? else {
        cold_path();
        return Ok(false);
    };
    let mut locked = Locked::NOTHING;
    let Ok(is_as_seen) = locked.take::<S, _>(&mut Plain::new(db.engine()), &records, write, (version, head));
    fence_locked();
    let epoch = db.engine().load(db.snapshot_number()?);
    let new = version_in(epoch, version);
    let is_usual = is_as_seen && locked.is_plain() && epoch_of(new) <= epoch && !locked.may_be_needed(epoch);
    if is_usual && gate::has_same_terms(db, work.terms) {
        unlock_too_early::<S>(&records, std::slice::from_ref(write));
        write_in_place(&records, write, work.values.bytes(), new)?;
        return Ok(true);
    }
    cold_path();
    records.unlock(at);
    Ok(false)
}
