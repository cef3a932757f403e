//! Guards of leaves follow the worker's own changes: they are unchanged until another worker
//! changes the leaves.

use std::{collections::BTreeSet, ops::RangeInclusive, thread};

use drtm_htm::{Engine, NoHtm};
use drtm_kv::{Current, Inline, Keys, KvTable, NoValue, NodeVersion, Store, Tree, TreeKeys, Worker};
use proptest::{collection::vec, prelude::*};

use crate::{
    support::{AsKey, MIB, rounds, store, tight},
    transacted::{Transacted, carry},
};

/// Keys are below this: some hundred leaves when all are present.
const KEYS: u64 = 3_000;

/// A program's operation on a run of keys.
#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(u64, u64),
    ReadOrInsert(u64, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let run = || (0..KEYS, prop_oneof![1..3_u64, 1..400_u64]);
    prop_oneof![
        run().prop_map(|(from, length)| Step::Insert(from, length)),
        run().prop_map(|(from, length)| Step::ReadOrInsert(from, length)),
    ]
}

/// A tree and a worker that changes it.
pub(crate) struct World<E: Engine, K: Keys = Inline> {
    pub(crate) tree: Tree<E, K>,
    worker: Worker<E>,
    /// Guards of leaves, updated after each of the worker's changes.
    pub(crate) seen: Vec<NodeVersion>,
}

impl<E: Engine, K: TreeKeys> World<E, K> {
    fn new(store: &Store<E>, tree: Tree<E, K>) -> Self {
        Self { tree, worker: store.worker().expect("a worker"), seen: Vec::new() }
    }

    pub(crate) fn filled(store: &Store<E>, keys: impl IntoIterator<Item = impl AsKey<K>>) -> Self {
        let mut world = Self::new(store, store.tree_of().expect("a tree"));
        keys.into_iter().for_each(|key| _ = world.insert(key.as_key()));
        world
    }

    pub(crate) fn insert(&mut self, key: K::Key<'_>) -> bool {
        let Self { tree, worker, seen } = self;
        tree.insert_noting(worker, key, b"", None, |change| carry(&change, seen)).expect("room").is_some()
    }

    /// Inserts a key at the guard of its absence.
    pub(crate) fn read_or_insert(&mut self, key: K::Key<'_>) -> bool {
        let Self { tree, worker, seen } = self;
        let Err(leaf) = tree.read(key, Current, &mut NoValue).expect("sound") else { return false };
        let inserted = tree.insert_noting(worker, key, b"", Some(leaf), |change| carry(&change, seen)).expect("room");
        assert!(inserted.is_some(), "no other is here");
        true
    }

    /// Removes a key before any guard is taken: guards do not follow a removal.
    pub(crate) fn remove(&mut self, key: K::Key<'_>) -> bool {
        self.tree.remove(&mut self.worker, key).expect("sound").is_some()
    }

    /// Another worker's change, which guards do not follow.
    pub(crate) fn disturb(&mut self, key: K::Key<'_>) {
        if self.tree.insert(&mut self.worker, key, b"").expect("room").is_none() {
            assert!(self.tree.remove(&mut self.worker, key).expect("sound").is_some());
        }
    }

    pub(crate) fn holds(&self) -> bool {
        self.seen.iter().all(|leaf| self.tree.unchanged(leaf))
    }
}

impl<E: Engine> World<E> {
    /// Reads a range with its leaves' guards, and returns its keys.
    fn scan(&mut self, range: RangeInclusive<u64>, up: bool) -> BTreeSet<u64> {
        let mut scan = if up { self.tree.range(range) } else { self.tree.range_back(range) };
        let mut keys = BTreeSet::new();
        while let Some(row) = scan.next().expect("sound") {
            keys.insert(row.key);
        }
        self.seen = scan.passed().to_vec();
        keys
    }

    fn run(&mut self, step: Step) {
        let keys = |from: u64, length: u64| from..(from + length).min(KEYS);
        match step {
            Step::Insert(from, length) => keys(from, length).for_each(|key| _ = self.insert(key)),
            Step::ReadOrInsert(from, length) => keys(from, length).for_each(|key| _ = self.read_or_insert(key)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn what_was_seen_follows_ones_own_changes_and_nobody_elses(
        // None, so that the root is a leaf; or many.
        first in prop_oneof![Just(1), 20..40_u64, 1..KEYS],
        (from, length, up) in (0..KEYS, 0..KEYS, any::<bool>()),
        before in vec(step(), 0..12),
        at in 0..KEYS,
        after in vec(step(), 0..6),
    ) {
        let store = store(NoHtm, 16 * MIB);
        let mut world = World::filled(&store, (0..first).map(|number| number * 1_009 % KEYS));
        let range = from..=from + length;
        world.scan(range.clone(), up);
        prop_assert!(world.holds());
        for step in before {
            world.run(step);
            prop_assert!(world.holds(), "{step:?}");
        }
        world.disturb(range.start() + at % (length + 1));
        prop_assert!(!world.holds());
        for step in after {
            world.run(step);
            prop_assert!(!world.holds(), "{step:?} hides what another thread did");
        }
    }

    #[test]
    fn a_key_that_is_absent_stays_so_through_ones_own_changes(
        first in 1..KEYS, absent in 0..KEYS, steps in vec(step(), 0..8),
    ) {
        let store = store(NoHtm, 16 * MIB);
        let mut world = World::filled(&store, (0..first).map(|number| number * 1_009 % KEYS));
        world.remove(absent);
        let Err(leaf) = world.tree.read(absent, Current, &mut NoValue).expect("sound") else { panic!("it was removed") };
        world.seen = vec![leaf];
        for step in steps {
            world.run(step);
            prop_assert!(world.holds(), "{step:?}");
        }
        world.disturb(absent);
        prop_assert!(!world.holds());
    }
}

#[test]
fn everything_comes() {
    let store = store(NoHtm, 16 * MIB);
    let mut world = World::filled(&store, 0..KEYS);
    (0..KEYS / 2).for_each(|key| assert!(world.remove(key) && world.remove(KEYS - 1 - key)));
    assert_eq!(world.scan(0..=u64::MAX, true).len(), 0);
    assert_eq!(world.seen.len(), 1, "the root is a leaf again");
    (0..KEYS).for_each(|key| assert!(world.insert(key * 1_009 % KEYS)));
    assert!(world.holds() && world.seen.len() > 90);
    assert!(world.remove(7) && !world.holds(), "nothing follows a removal");
}

#[test]
fn nothing_is_told_if_nothing_changes() {
    let store = store(NoHtm, 16 * MIB);
    let mut world = World::filled(&store, 0..100);
    let World { tree, worker, .. } = &mut world;
    let told = |change| panic!("{change:?}");
    assert!(tree.insert_noting(worker, 7, b"", None, told).expect("sound").is_none());
}

/// All threads scan a range, change one of its keys, and scan it again. If the guards of the first
/// scan, updated after the change, still hold, only that change may differ.
fn scan_change_scan<E: Engine>(store: &Store<E>, turns: u64) {
    const RANGE: u64 = 90;
    let made = World::filled(store, (0..300).map(|key| 2 * key)).tree;
    let held: u64 = thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|number| {
                let mut world = World::new(store, made.clone());
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(number);
                    let mut held = 0;
                    for turn in 0..turns {
                        let from = random.u64(0..600);
                        let range = from..=from + RANGE;
                        let mut expected = world.scan(range.clone(), turn % 2 == 0);
                        // Over thirty turns each, leaves become empty and full. Guards do not
                        // follow a leaf that becomes empty.
                        let removing = turn / 30 % 2 == 0;
                        for key in random.u64(range.clone())..=*range.end() {
                            match removing {
                                true => _ = world.remove(key),
                                false if world.insert(key) => _ = expected.insert(key),
                                false => (),
                            }
                        }
                        let followed = std::mem::take(&mut world.seen);
                        let found = world.scan(range, turn % 3 == 0);
                        world.seen = followed;
                        if !removing && world.holds() {
                            assert_eq!(found, expected, "another thread has changed what held");
                            held += 1;
                        }
                    }
                    held
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("no thread panics")).sum()
    });
    assert!(held > 0, "no thread was ever alone");
}

#[test]
fn what_holds_is_what_was_seen_and_ones_own_changes() {
    scan_change_scan(&store(NoHtm, 64 * MIB), rounds(1_500));
}

#[test]
fn what_holds_is_what_was_seen_and_ones_own_changes_beside_regions() {
    scan_change_scan(&store(tight(5), 64 * MIB), rounds(60));
}
