//! Validating the read set.

use drtm_htm::{Access, Plain};
use drtm_kv::{Holder, Records};

use super::confirm_reads;
use crate::{Config, Conflict, commit::read_set::ReadSet, db::inner::Inner, mutation::Mutation, tx::state::TxState};

/// Validates the read set. Returns the conflict, if any of it has changed.
#[inline(always)]
pub(super) fn validate<'s, S: Config, A: Access<'s>>(
    tx: &mut A,
    records: &Records<'s, S::Engine>,
    reads: &ReadSet,
    holder: Holder,
) -> Result<Option<Conflict>, A::Abort> {
    for seen in &reads.records {
        if !records.is_still_in(tx, *seen, holder)? && !S::has(Mutation::CommitWithoutValidation) {
            return Ok(Some(Conflict::Validation));
        }
    }
    for leaf in &reads.leaves {
        if !records.is_unchanged_in(tx, leaf)? && !S::has(Mutation::CommitDespitePhantoms) {
            return Ok(Some(Conflict::Phantom));
        }
    }
    for bucket in &reads.buckets {
        if !records.is_unchanged_in(tx, bucket)? && !S::has(Mutation::CommitDespitePhantoms) {
            return Ok(Some(Conflict::Phantom));
        }
    }
    Ok(None)
}

/// [Validates](validate) the read set, outside of an htm transaction.
#[inline(always)]
pub(super) fn validate_reads<S: Config>(db: &Inner<S>, reads: &ReadSet, holder: Holder) -> Result<(), Conflict> {
    // Many transactions only change rows.
    if reads.is_empty() { Ok(()) } else { validate_some(db, reads, holder) }
}

#[inline(never)]
fn validate_some<S: Config>(db: &Inner<S>, reads: &ReadSet, holder: Holder) -> Result<(), Conflict> {
    let Ok(conflict) = validate::<S, _>(&mut Plain::new(db.engine()), &db.store.records(), reads, holder);
    conflict.map_or(Ok(()), Err)
}

/// Validates all that a running transaction has seen, including the rows in its write set.
pub(crate) fn validate_all<S: Config>(db: &Inner<S>, state: &TxState<S::Engine>) -> Result<(), Conflict> {
    let records = db.store.records();
    validate_reads(db, &state.reads, state.holder)?;
    for write in state.writes.as_slice() {
        if write.is_read && !records.is_still(write.seen(), state.holder) {
            return Err(Conflict::Validation);
        }
        if !records.is_there(write.at, state.holder) {
            return Err(Conflict::Moved);
        }
    }
    // A snapshot has no reads that could have changed.
    if state.has_seen_nothing() || db.lifecycle.is_unchanged(db.engine(), state.session.admission) {
        return Ok(());
    }
    confirm_reads(db, state.session.admission)
}
