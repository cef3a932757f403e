//! Updating phantom guards after the transaction's own insertions.
//!
//! A guard holds the version that a bucket or a leaf had when a key was absent there. The
//! transaction's own insertion changes that version, and must not look like another transaction's.
//! So every insertion replaces the guard. Few guards are searched linearly. Many have an index,
//! which is brought up to date by the first change that needs it.

use drtm_kv::{GuardChange, PhantomGuard};
use drtm_rdma::Offset;
use rustc_hash::FxHashMap;

/// The number of guards from which on a list has an index.
const INDEX_FROM: usize = if cfg!(test) { 4 } else { 64 };

/// Maps places to the positions of their guards in a list.
#[derive(Debug, Default)]
pub(crate) struct GuardIndex {
    /// The positions of guards among the first `indexed`.
    positions: FxHashMap<Offset, usize>,
    indexed: usize,
}

impl GuardIndex {
    /// Returns its approximate size on the heap, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.positions.capacity() * size_of::<(Offset, usize)>()
    }

    /// Updates the guards of a list after a change.
    #[inline]
    pub(crate) fn carry<G: PhantomGuard>(&mut self, guards: &mut Vec<G>, change: GuardChange<G>) {
        if guards.len() < INDEX_FROM && self.indexed == 0 {
            let mut is_there = false;
            for guard in guards.iter_mut().filter(|guard| **guard == change.before) {
                *guard = change.after;
                is_there = true;
            }
            if is_there {
                guards.extend(change.split_off);
            }
        } else {
            self.carry_many(guards, change);
        }
    }

    #[inline(never)]
    fn carry_many<G: PhantomGuard>(&mut self, guards: &mut Vec<G>, change: GuardChange<G>) {
        self.update(guards);
        let position = self.positions.get(&change.before.place()).copied();
        let Some(position) = position.filter(|at| guards[*at] == change.before) else { return };
        guards[position] = change.after;
        if change.after.place() != change.before.place() {
            self.positions.remove(&change.before.place());
            self.positions.insert(change.after.place(), position);
        }
        guards.extend(change.split_off);
        self.update(guards);
    }

    /// Indexes the guards at the end of a list, and removes duplicates.
    fn update<G: PhantomGuard>(&mut self, guards: &mut Vec<G>) {
        let mut kept = self.indexed;
        for at in self.indexed..guards.len() {
            let guard = guards[at];
            match self.positions.get(&guard.place()) {
                Some(known) if guards[*known] == guard => continue,
                // Another transaction has changed the place meanwhile. Only one of the two guards
                // can hold, so the transaction cannot commit, whichever is found.
                Some(_) => {}
                None => drop(self.positions.insert(guard.place(), kept)),
            }
            guards[kept] = guard;
            kept += 1;
        }
        guards.truncate(kept);
        self.indexed = kept;
    }

    /// Clears the index after its list was cleared.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        if self.indexed > 0 {
            self.clear_slow();
        }
    }

    #[cold]
    fn clear_slow(&mut self) {
        self.positions.clear();
        self.indexed = 0;
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use std::collections::BTreeSet;

    use drtm_htm::NoHtm;
    use drtm_kv::{Current, ForHolder, HashConfig, HashTable, KvTable, Placed, Store, Tree};
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// Looks up a key.
        Look(u64),
        /// Inserts a key in the transaction.
        Insert(u64),
        /// Inserts a key in another transaction.
        Disturb(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let keys = || 0..3_000_u64;
        let alone = prop_oneof![keys().prop_map(Step::Look), keys().prop_map(Step::Insert)];
        let disturbed = prop_oneof![40 => alone.clone(), 1 => keys().prop_map(Step::Disturb)];
        prop_oneof![prop::collection::vec(alone, 0..400), prop::collection::vec(disturbed, 0..400)]
    }

    /// Checks that guards hold while only the transaction itself inserts, and fail if another one
    /// inserts into a guarded place.
    fn run<T: KvTable<NoHtm, drtm_kv::Inline>>(store: &Store<NoHtm>, table: &T, steps: &[Step]) {
        let mut worker = store.worker().expect("a worker");
        let (mut guards, mut index) = (Vec::new(), GuardIndex::default());
        // The keys that the transaction has seen absent, and whether another transaction has
        // inserted one of them.
        let (mut absent, mut is_disturbed) = (BTreeSet::new(), false);
        for step in steps {
            match *step {
                Step::Look(key) => {
                    if let Err(guard) = table.read(key, Current, &mut drtm_kv::NoValue).expect("sound") {
                        guards.push(guard);
                        absent.insert(key);
                    }
                }
                Step::Insert(key) => {
                    let placed = table
                        .place::<ForHolder>(&mut worker, key, b"", None, |change| index.carry(&mut guards, change));
                    if let Placed::Made(_) = placed.expect("room") {
                        absent.remove(&key);
                    }
                }
                Step::Disturb(key) => {
                    if let Placed::Made(_) =
                        table.place::<ForHolder>(&mut worker, key, b"", None, |_| ()).expect("room")
                    {
                        is_disturbed |= absent.contains(&key);
                    }
                }
            }
            let records = store.records();
            let hold = guards.iter().all(|guard| records.is_unchanged(guard));
            assert!(!(is_disturbed && hold), "a phantom is overlooked");
            if !steps.iter().any(|step| matches!(step, Step::Disturb(_))) {
                assert!(hold, "the transaction's own insertion is taken for another's");
                if let Some(key) = absent.iter().nth(absent.len() / 2) {
                    let guard = table.read(*key, Current, &mut drtm_kv::NoValue).expect("sound").expect_err("absent");
                    assert!(guards.contains(&guard), "where {key} would come is not guarded");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn guards_follow_own_insertions_and_no_others(steps in steps()) {
            let store = Store::in_memory(NoHtm, 64 << 20).expect("a store");
            let hash: HashTable<NoHtm> = store.hash_table(HashConfig::default()).expect("a table");
            run(&store, &hash, &steps);
            let tree: Tree<NoHtm> = store.tree().expect("a tree");
            run(&store, &tree, &steps);
        }
    }
}
