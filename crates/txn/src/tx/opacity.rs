//! Opacity: a running transaction sees a consistent state, whether it is going to commit or not
//! (`docs/decisions/0033`).
//!
//! Each worker counts its writing commits in a word of its own, between locking and writing. In
//! another word it counts the records of absent rows that it removes from their tables, between
//! locking and removing: a transaction may be about to write such a record, and would not find its
//! own write. An opaque transaction samples these words after each read. While none has changed,
//! its earlier reads still hold, and only the new row is validated. Once one has changed, the whole
//! read set is validated.
//!
//! Why that is enough: let S be the commits counted at the last sample. Their rows were locked
//! before they were counted. So the validation after the sample found such a row locked, or
//! written: all earlier reads include what S has written, and no write of S is still to come. A row
//! that is read later is found unlocked, so it includes the writes of S too. It includes no write
//! of a later commit: that commit would have been counted before it wrote, and the sample after the
//! read would show it.

use std::sync::Arc;

use drtm_htm::Engine;

use crate::{
    db::stats::{Counters, Registry},
    model::bounds::MODEL,
};

/// What an opaque transaction knows of other transactions' commits.
#[derive(Debug, Default)]
pub(crate) struct Opacity {
    /// Each worker's counters.
    workers: Vec<Arc<Counters>>,
    /// The sum of changes at the last sample.
    changes: Option<u64>,
}

impl Opacity {
    /// Forgets the last sample, for a transaction that begins.
    pub(crate) fn begin(&mut self) {
        self.changes = None;
    }

    /// Samples the counts of changes. Returns whether a change may have been counted since the last
    /// sample. If validating this many rows is cheaper, returns true without a sample.
    pub(crate) fn sample<E: Engine>(&mut self, engine: &E, registry: &Registry, rows: usize) -> bool {
        // A model has a worker for each transaction, and few rows.
        if !MODEL && rows <= self.workers.len() {
            self.changes = None;
            return true;
        }
        registry.list(engine, &mut self.workers);
        let changes = self.workers.iter().fold(0_u64, |sum, worker| sum.wrapping_add(worker.changes(engine)));
        self.changes.replace(changes) != Some(changes)
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use drtm_htm::NoHtm;

    use super::*;

    #[test]
    fn all_is_validated_only_after_a_commit_that_writes() {
        let (registry, mut opacity) = (Registry::default(), Opacity::default());
        let one = registry.register(&NoHtm);
        let mut has_changed = || opacity.sample(&NoHtm, &registry, 100);
        assert!(has_changed(), "nothing is known at first");
        assert!(!has_changed());
        one.count_read();
        assert!(!has_changed(), "what only reads changes nothing");
        one.count_write(&NoHtm);
        assert!(has_changed() && !has_changed());
        one.count_taken_out(&NoHtm);
        assert!(has_changed() && !has_changed(), "a record that is gone may have been about to be written");
        // A new worker.
        let two = registry.register(&NoHtm);
        two.count_write(&NoHtm);
        assert!(has_changed() && !has_changed());
        assert_eq!(registry.sum(&NoHtm).commits, 3);
        opacity.begin();
        assert!(opacity.sample(&NoHtm, &registry, 100), "another transaction validates for itself");
        assert!(opacity.sample(&NoHtm, &registry, 1), "one row is validated sooner than sampled for");
        assert!(opacity.sample(&NoHtm, &registry, 100), "what happened meanwhile is not known");
    }
}
