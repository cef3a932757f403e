//! The guards of keys that a transaction has found missing, and of ranges that it has read.

use std::hash::{Hash, Hasher};

use super::finder::{Finder, INDEX_FROM};
use crate::{
    cluster::{shard::ShardId, wire::parts::Shifted},
    memory::storage::Absence,
};

/// A guard: no key has come to where one was missing as long as it holds. Shards of one node share
/// its tables, and so their guards, which have the name of the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cluster) struct Guard {
    pub(in crate::cluster) head: ShardId,
    pub(in crate::cluster) absence: Absence,
}

impl Guard {
    fn hash(&self) -> u64 {
        let mut hasher = rustc_hash::FxHasher::default();
        self.head.0.hash(&mut hasher);
        match &self.absence {
            Absence::Bucket(bucket) => bucket.to_words().hash(&mut hasher),
            Absence::Leaf(leaf) => leaf.hash(&mut hasher),
        }
        hasher.finish()
    }
}

/// The guards of a transaction, each once.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Guards {
    all: Vec<Guard>,
    finder: Finder,
    /// How many guards are in the finder: the first ones.
    indexed: usize,
    /// How often a guard was noted, again or not.
    noted: usize,
}

impl Guards {
    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.finder.clear();
        (self.indexed, self.noted) = (0, 0);
    }

    /// Returns all guards, by their numbers.
    pub(in crate::cluster) fn all(&self) -> &[Guard] {
        &self.all
    }

    /// Returns how often keys were found missing.
    pub(super) fn noted(&self) -> usize {
        self.noted
    }

    /// Notes that no key was found where this guard is.
    pub(in crate::cluster) fn note(&mut self, head: ShardId, absence: Absence) {
        self.noted += 1;
        self.add(Guard { head, absence });
    }

    fn add(&mut self, guard: Guard) {
        if self.find(&guard).is_none() {
            self.all.push(guard);
        }
    }

    fn find(&mut self, guard: &Guard) -> Option<u32> {
        if self.all.len() < INDEX_FROM {
            return self.all.iter().position(|other| other == guard).map(|number| number as u32);
        }
        let all = &self.all;
        for number in self.indexed..all.len() {
            self.finder.add(number as u32, |number| all[number as usize].hash());
        }
        self.indexed = all.len();
        self.finder.find(guard.hash(), |number| all[number as usize] == *guard)
    }

    /// Replaces guards that the transaction's own insertion at a node has changed, so that it is
    /// not taken for another's.
    pub(in crate::cluster) fn shift(&mut self, head: ShardId, shifts: &[Shifted]) {
        if self.all.is_empty() {
            return;
        }
        let mut changed: smallvec::SmallVec<[(u32, Absence); 2]> = smallvec::SmallVec::new();
        for shift in shifts {
            let before = self.find(&Guard { head, absence: shift.before });
            changed.extend(before.map(|number| (number, shift.after)));
        }
        for (number, after) in changed {
            self.all[number as usize].absence = after;
            if (number as usize) < self.indexed {
                let all = &self.all;
                self.finder.add(number, |number| all[number as usize].hash());
            }
        }
        // Where some of a guard's keys belong now that it was divided.
        for shift in shifts {
            if let Some(absence) = shift.split_off
                && self.find(&Guard { head, absence: shift.after }).is_some()
            {
                self.add(Guard { head, absence });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use drtm_kv::BucketVersion;
    use proptest::prelude::*;

    use super::*;

    fn absence(version: u64) -> Absence {
        Absence::Bucket(BucketVersion::from_words(64, version))
    }

    proptest! {
        /// Compares with a list in which each guard is looked for from the beginning.
        #[test]
        fn own_insertions_replace_guards(steps in prop::collection::vec((0..3_u16, 0..40_u64, 0..40_u64, any::<Option<u8>>()), 0..100)) {
            let (mut guards, mut model) = (Guards::default(), Vec::<Guard>::new());
            for (owner, before, after, split) in steps {
                let head = ShardId(owner);
                let of = |version| Guard { head, absence: absence(version) };
                let add = |model: &mut Vec<Guard>, guard| if !model.contains(&guard) { model.push(guard) };
                if before % 2 == 0 {
                    guards.note(head, absence(before));
                    add(&mut model, of(before));
                } else {
                    let split_off = split.map(|version| absence(u64::from(version)));
                    guards.shift(head, &[Shifted { before: absence(before - 1), after: absence(after), split_off }]);
                    if let Some(guard) = model.iter_mut().find(|guard| **guard == of(before - 1)) {
                        *guard = of(after);
                    }
                    if let Some(absence) = split_off && model.contains(&of(after)) {
                        add(&mut model, Guard { head, absence });
                    }
                }
                // Which of two that have become equal is replaced does not matter.
                let sorted = |guards: &[Guard]| {
                    let mut hashes: Vec<u64> = guards.iter().map(Guard::hash).collect();
                    hashes.sort_unstable();
                    hashes
                };
                prop_assert_eq!(sorted(guards.all()), sorted(&model));
            }
        }
    }
}
