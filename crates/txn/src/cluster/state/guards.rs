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

/// Counts what needs a guard, for ever.
const HELD: u32 = 1 << 31;

/// The guards of a transaction, each once.
///
/// A row that was missing needs its guard until it has a record for the insertion: from then on,
/// the record's version says whether another transaction has inserted the same key. So insertions
/// of other keys at the same place, which change the guard, are no conflict.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Guards {
    all: Vec<Guard>,
    /// The count of each guard. Where one was divided, both parts have the same.
    count_of: Vec<u32>,
    /// How many rows need guards, or [`HELD`].
    counts: Vec<u32>,
    /// By the numbers of rows, one more than the count that each is in. 0: none.
    of_rows: Vec<u32>,
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
        self.count_of.clear();
        self.counts.clear();
        self.of_rows.clear();
        self.finder.clear();
        (self.indexed, self.noted) = (0, 0);
    }

    /// Returns a guard by its number.
    pub(in crate::cluster) fn get(&self, number: u32) -> Guard {
        self.all[number as usize]
    }

    /// Returns the numbers of guards that are needed.
    pub(in crate::cluster) fn needed(&self) -> impl Iterator<Item = u32> {
        let counts = self.count_of.iter().zip(0..);
        counts.filter(|(count, _)| self.counts[**count as usize] > 0).map(|(_, number)| number)
    }

    /// Returns how often keys were found missing.
    pub(super) fn noted(&self) -> usize {
        self.noted
    }

    /// Notes that no key was found where this guard is: that of a row, or none of a range.
    pub(in crate::cluster) fn note(&mut self, head: ShardId, absence: Absence, row: Option<u32>) {
        self.noted += 1;
        let guard = Guard { head, absence };
        let count = match self.find(&guard) {
            Some(number) => self.count_of[number as usize],
            None => {
                self.counts.push(0);
                let count = self.counts.len() as u32 - 1;
                self.add(guard, count);
                count
            }
        };
        let needs = &mut self.counts[count as usize];
        let Some(row) = row.map(|row| row as usize) else {
            *needs |= HELD;
            return;
        };
        if self.of_rows.len() <= row {
            self.of_rows.resize(row + 1, 0);
        }
        // What a row has needed before, it needs for ever.
        if std::mem::replace(&mut self.of_rows[row], count + 1) != count + 1 {
            *needs += 1;
        }
    }

    /// Notes that a row which was missing has a record now, which is validated instead.
    pub(in crate::cluster) fn release(&mut self, row: u32) {
        if let Some(count) = self.of_rows.get_mut(row as usize).map(std::mem::take)
            && count > 0
        {
            self.counts[count as usize - 1] -= 1;
        }
    }

    fn add(&mut self, guard: Guard, count: u32) {
        self.all.push(guard);
        self.count_of.push(count);
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
                && let Some(number) = self.find(&Guard { head, absence: shift.after })
            {
                let (count, guard) = (self.count_of[number as usize], Guard { head, absence });
                match self.find(&guard) {
                    Some(other) if self.count_of[other as usize] == count => {}
                    // Which of both are needed by whom is not known any more.
                    Some(other) => self.counts[self.count_of[other as usize] as usize] |= HELD,
                    None => self.add(guard, count),
                }
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

    /// A guard of the model, and the rows that need it. Ranges need it for ever.
    #[derive(Clone, Debug)]
    struct Needed {
        guard: Guard,
        rows: Vec<u32>,
        is_held: bool,
    }

    /// A step of a transaction.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Misses { row: u32, version: u64 },
        Scans { version: u64 },
        Inserts { row: u32, before: u64, divides: bool },
    }

    fn steps() -> impl Strategy<Value = Vec<(u16, Step)>> {
        let step = prop_oneof![
            (0..30_u32, 0..40_u64).prop_map(|(row, version)| Step::Misses { row, version }),
            (0..40_u64).prop_map(|version| Step::Scans { version }),
            (0..30_u32, 0..80_u64, any::<bool>()).prop_map(|(row, before, divides)| Step::Inserts {
                row,
                before,
                divides
            }),
        ];
        proptest::collection::vec((0..3_u16, step), 0..100)
    }

    proptest! {
        /// Compares with a list in which each guard knows the rows that need it. What is needed
        /// there is needed; what is not may be, where guards were divided or rows missed twice.
        #[test]
        fn guards_are_needed_until_all_rows_have_records(steps in steps()) {
            let (mut guards, mut model) = (Guards::default(), Vec::<Needed>::new());
            for ((owner, step), number) in steps.into_iter().zip(0..) {
                let head = ShardId(owner);
                let of = |version| Guard { head, absence: absence(version) };
                let needs = |model: &mut Vec<Needed>, guard: Guard| match model.iter().position(|known| known.guard == guard) {
                    Some(at) => at,
                    None => {
                        model.push(Needed { guard, rows: Vec::new(), is_held: false });
                        model.len() - 1
                    }
                };
                match step {
                    Step::Misses { row, version } => {
                        guards.note(head, absence(version), Some(row));
                        let at = needs(&mut model, of(version));
                        model[at].rows.push(row);
                    }
                    Step::Scans { version } => {
                        guards.note(head, absence(version), None);
                        let at = needs(&mut model, of(version));
                        model[at].is_held = true;
                    }
                    Step::Inserts { row, before, divides } => {
                        // Versions that no place has had before.
                        let (after, split) = (40 + 2 * number, divides.then_some(41 + 2 * number));
                        let split_off = split.map(absence);
                        guards.shift(head, &[Shifted { before: absence(before), after: absence(after), split_off }]);
                        guards.release(row);
                        if let Some(at) = model.iter().position(|known| known.guard == of(before)) {
                            model[at].guard = of(after);
                        }
                        if let Some(version) = split && let Some(at) = model.iter().position(|known| known.guard == of(after)) {
                            let Needed { rows, is_held, .. } = model[at].clone();
                            let other = needs(&mut model, of(version));
                            model[other].rows.extend(rows);
                            model[other].is_held |= is_held;
                        }
                        // It has a record.
                        model.iter_mut().for_each(|known| known.rows.retain(|other| *other != row));
                    }
                }
                let needed: Vec<Guard> = guards.needed().map(|number| guards.get(number)).collect();
                for known in model.iter().filter(|known| known.is_held || !known.rows.is_empty()) {
                    prop_assert!(needed.contains(&known.guard), "{:?} is needed, of {:?}", known, needed);
                }
                prop_assert!(needed.iter().all(|guard| model.iter().any(|known| known.guard == *guard)));
            }
        }
    }

    #[test]
    fn insertions_at_one_place_leave_no_guard() {
        let (mut guards, head) = (Guards::default(), ShardId(0));
        for row in 0..3 {
            guards.note(head, absence(1), Some(row));
        }
        for row in 0..3_u64 {
            assert_eq!(guards.needed().count(), if row < 2 { 1 } else { 2 });
            let split_off = (row == 1).then(|| absence(9));
            guards.shift(head, &[Shifted { before: absence(row + 1), after: absence(row + 2), split_off }]);
            guards.release(row as u32);
        }
        assert_eq!(guards.needed().count(), 0);
        guards.note(head, absence(4), None);
        assert_eq!(guards.needed().count(), 2, "a range needs both parts");
    }
}
