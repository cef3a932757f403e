//! Random operations on a tree against a `BTreeMap`.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
};

use crate::transacted::Transacted;
use drtm_htm::{Emulated, Engine, NoHtm};
use drtm_kv::{Current, KvTable, NoValue, Scan, Store, Tree, Version, Worker};
use proptest::prelude::*;

use crate::support::{MIB, each_row, is_backward, mapped_twice, store, tight};

type Bounds = (Bound<u16>, Bound<u16>);

#[derive(Clone, Debug)]
enum Op {
    Insert(u16, usize),
    Update(u16, usize),
    Put(u16, usize),
    ReadOrInsert(u16, usize),
    Remove(u16),
    /// Inserts a run of keys, upward or downward: nodes split.
    InsertRun(u16, u16, bool),
    /// Removes a run of present keys: leaves become empty.
    RemoveRun(u16, u16),
    Get(u16),
    Scan(Bounds, bool),
    Ends,
    /// Corrupts the hints.
    Scribble(u64),
}

fn bound(keys: u16) -> impl Strategy<Value = Bound<u16>> {
    prop_oneof![
        3 => (0..keys).prop_map(Bound::Included),
        3 => (0..keys).prop_map(Bound::Excluded),
        1 => Just(Bound::Unbounded),
    ]
}

fn ops(keys: u16) -> impl Strategy<Value = Vec<Op>> {
    let length = || prop_oneof![4 => 0..40usize, 1 => 250..260usize, 1 => Just(1_000)];
    let op = prop_oneof![
        4 => (0..keys, length()).prop_map(|(key, length)| Op::Insert(key, length)),
        3 => (0..keys, length()).prop_map(|(key, length)| Op::Update(key, length)),
        2 => (0..keys, length()).prop_map(|(key, length)| Op::Put(key, length)),
        2 => (0..keys, length()).prop_map(|(key, length)| Op::ReadOrInsert(key, length)),
        3 => (0..keys).prop_map(Op::Remove),
        2 => (0..keys, 1..100u16, any::<bool>()).prop_map(|(key, count, up)| Op::InsertRun(key, count, up)),
        2 => (0..keys, 1..200u16).prop_map(|(key, count)| Op::RemoveRun(key, count)),
        3 => (0..keys).prop_map(Op::Get),
        2 => (bound(keys), bound(keys), any::<bool>()).prop_map(|(from, to, up)| Op::Scan((from, to), up)),
        1 => Just(Op::Ends),
        2 => any::<u64>().prop_map(Op::Scribble),
    ];
    prop::collection::vec(op, 1..200)
}

/// The numbers include the lowest and the highest key.
fn spread(number: u16) -> u64 {
    if number == 0 { u64::MAX } else { u64::from(number - 1) << 45 }
}

/// Returns the value that the `turn`th operation writes.
fn value(turn: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (turn * 31 + at) as u8).collect()
}

fn rows<E: Engine>(mut scan: Scan<'_, E>) -> Vec<(u64, Vec<u8>, Version)> {
    let mut rows = Vec::new();
    each_row(&mut scan, |key, value, version| rows.push((key, value.to_vec(), version)));
    rows
}

struct Checked<E: Engine> {
    trees: Vec<(Tree<E>, Worker<E>)>,
    model: BTreeMap<u64, (Vec<u8>, Version)>,
    /// The highest version of each key so far.
    highest: HashMap<u64, Version>,
}

impl<E: Engine> Checked<E> {
    /// Runs the operations, each by the next of the tree's handles.
    fn run(&mut self, ops: &[Op]) -> Result<(), TestCaseError> {
        for (turn, op) in ops.iter().enumerate() {
            self.step(turn % self.trees.len(), turn, op)?;
        }
        for handle in 0..self.trees.len() {
            self.agrees_on(handle, (Bound::Unbounded, Bound::Unbounded), true)?;
            self.agrees_on(handle, (Bound::Unbounded, Bound::Unbounded), false)?;
            for key in self.highest.keys() {
                self.agrees_on_key(handle, *key)?;
            }
            prop_assert_eq!(self.trees[handle].0.count().expect("sound"), self.model.len() as u64);
        }
        Ok(())
    }

    fn step(&mut self, handle: usize, turn: usize, op: &Op) -> Result<(), TestCaseError> {
        let (tree, worker) = &mut self.trees[handle];
        match *op {
            Op::Insert(key, length) => self.insert(handle, spread(key), value(turn, length))?,
            Op::Update(key, length) => {
                let (key, value) = (spread(key), value(turn, length));
                let updated = tree.update(worker, key, &value).expect("room");
                prop_assert_eq!(updated.is_some(), self.model.contains_key(&key));
                if let Some(version) = updated {
                    self.written(key, value, version)?;
                }
            }
            Op::Put(key, length) => {
                let (key, value) = (spread(key), value(turn, length));
                let version = tree.put(worker, key, &value).expect("room");
                self.written(key, value, version)?;
            }
            Op::ReadOrInsert(key, length) => {
                let (key, value, mut found) = (spread(key), value(turn, length), Vec::new());
                match (tree.read(key, Current, &mut found).expect("sound"), self.model.get(&key)) {
                    (Err(leaf), None) => {
                        // The leaf of the absent key is where it is inserted.
                        let version = tree.insert_noting(worker, key, &value, Some(leaf), |_| ()).expect("room");
                        self.written(key, value, version.expect("it was not there"))?;
                    }
                    (Ok(seen), Some((value, version))) => prop_assert_eq!((&found, seen.version), (value, *version)),
                    (existing, expected) => prop_assert!(false, "{:?} and {:?}", existing, expected),
                }
            }
            Op::Remove(key) => self.remove(handle, spread(key))?,
            Op::InsertRun(first, count, up) => {
                for step in 0..count {
                    let key = if up { first.wrapping_add(step) } else { first.wrapping_sub(step) };
                    self.insert(handle, spread(key), value(turn, 8))?;
                }
            }
            Op::RemoveRun(first, count) => {
                let keys = self.model.range(spread(first)..).take(usize::from(count)).map(|(key, _)| *key);
                for key in keys.collect::<Vec<_>>() {
                    self.remove(handle, key)?;
                }
            }
            Op::Get(key) => self.agrees_on_key(handle, spread(key))?,
            Op::Scan((from, to), up) => self.agrees_on(handle, (from.map(spread), to.map(spread)), up)?,
            Op::Scribble(seed) => tree.scribble_hints(seed),
            Op::Ends => {
                let expected = |row: Option<(&u64, &(Vec<u8>, Version))>| {
                    row.map(|(key, (value, version))| (*key, value.len(), *version))
                };
                for (mut scan, model) in
                    [(tree.range(..), self.model.first_key_value()), (tree.range_back(..), self.model.last_key_value())]
                {
                    let row = scan.next().expect("sound").map(|row| (row.key, row.value.len(), row.version));
                    prop_assert_eq!(row, expected(model));
                }
            }
        }
        Ok(())
    }

    fn insert(&mut self, handle: usize, key: u64, value: Vec<u8>) -> Result<(), TestCaseError> {
        let (tree, worker) = &mut self.trees[handle];
        let inserted = tree.insert(worker, key, &value).expect("room");
        prop_assert_eq!(inserted.is_some(), !self.model.contains_key(&key));
        match inserted {
            Some(version) => self.written(key, value, version),
            None => Ok(()),
        }
    }

    fn remove(&mut self, handle: usize, key: u64) -> Result<(), TestCaseError> {
        let (tree, worker) = &mut self.trees[handle];
        let removed = tree.remove(worker, key).expect("sound");
        prop_assert_eq!(removed, self.model.remove(&key).map(|(_, version)| version));
        Ok(())
    }

    fn written(&mut self, key: u64, value: Vec<u8>, version: Version) -> Result<(), TestCaseError> {
        if let Some(highest) = self.highest.insert(key, version) {
            prop_assert!(version > highest, "versions grow, over removal too: {:?} after {:?}", version, highest);
        }
        self.model.insert(key, (value, version));
        Ok(())
    }

    fn agrees_on_key(&self, handle: usize, key: u64) -> Result<(), TestCaseError> {
        let (tree, _) = &self.trees[handle];
        let mut found = vec![0; 2_000];
        let read = tree.get(key, &mut found).expect("sound");
        match (read, self.model.get(&key)) {
            (None, None) => {
                let absent = tree.read(key, Current, &mut NoValue).expect("sound");
                prop_assert!(matches!(absent, Err(leaf) if tree.unchanged(&leaf)));
            }
            (Some(read), Some((value, version))) => {
                prop_assert_eq!((&found[..read.length], read.version), (&value[..], *version));
                prop_assert_eq!(tree.version(key).expect("sound"), Some(*version));
            }
            (read, expected) => prop_assert!(false, "{:?} and {:?}", read, expected),
        }
        Ok(())
    }

    fn agrees_on(&self, handle: usize, bounds: (Bound<u64>, Bound<u64>), up: bool) -> Result<(), TestCaseError> {
        let (tree, _) = &self.trees[handle];
        let found = rows(if up { tree.range(bounds) } else { tree.range_back(bounds) });
        let mut expected = Vec::new();
        if !is_backward(&bounds) {
            let range = self.model.range(bounds);
            expected.extend(range.map(|(key, (value, version))| (*key, value.clone(), *version)));
        }
        if !up {
            expected.reverse();
        }
        prop_assert_eq!(found, expected);
        Ok(())
    }
}

fn agrees<E: Engine>(stores: &[Store<E>], loaded: u16, ops: &[Op]) -> Result<(), TestCaseError> {
    let made = stores[0].tree().expect("a tree");
    let trees = stores
        .iter()
        .map(|store| (store.open_tree(made.location()).expect("the same tree"), store.worker().expect("a worker")))
        .collect();
    let mut checked = Checked { trees, model: BTreeMap::new(), highest: HashMap::new() };
    let mut worker = stores[0].worker().expect("a worker");
    let rows = (1..=loaded).map(|number| (spread(number), value(0, 20)));
    for (key, value) in rows {
        let version = made.insert(&mut worker, key, &value).expect("room").expect("new");
        checked.written(key, value, version)?;
    }
    checked.run(ops)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn few_keys(ops in ops(12)) {
        agrees(&[store(NoHtm, 64 * MIB)], 0, &ops)?;
    }

    #[test]
    fn some_keys(ops in ops(300)) {
        agrees(&[store(NoHtm, 64 * MIB)], 0, &ops)?;
    }

    #[test]
    fn many_keys(ops in ops(u16::MAX)) {
        agrees(&[store(NoHtm, 64 * MIB)], 0, &ops)?;
    }

    #[test]
    fn loaded_before(loaded in 0..3_000u16, ops in ops(3_000)) {
        agrees(&[store(NoHtm, 64 * MIB)], loaded, &ops)?;
    }

    #[test]
    fn two_mappings(ops in ops(700)) {
        agrees(&mapped_twice(64 * MIB), 0, &ops)?;
    }

    #[test]
    fn on_an_emulated_engine(loaded in 0..200u16, ops in ops(300)) {
        agrees(&[store(Emulated::default(), 64 * MIB)], loaded, &ops)?;
    }

    #[test]
    fn on_a_tight_engine(ops in ops(300), seed: u64) {
        agrees(&[store(tight(seed), 64 * MIB)], 0, &ops)?;
    }
}

/// Insertions and removals that change the tree at its edges, in its middle, and everywhere, with
/// several levels.
#[test]
fn every_order_of_filling_and_emptying() {
    const KEYS: u64 = 20_000;
    let up = |step: u64| step;
    let down = |step: u64| KEYS - 1 - step;
    let outward = |step: u64| if step.is_multiple_of(2) { KEYS / 2 + step / 2 } else { KEYS / 2 - 1 - step / 2 };
    let inward = |step: u64| if step.is_multiple_of(2) { step / 2 } else { KEYS - 1 - step / 2 };
    // Odd and not a multiple of 5, so that all keys occur.
    let scattered = |step: u64| step * 7_919 % KEYS;
    let orders: [fn(u64) -> u64; 5] = [up, down, outward, inward, scattered];
    let store = store(NoHtm, 256 * MIB);
    let tree = store.tree().expect("a tree");
    let mut worker = store.worker().expect("a worker");
    for fill in orders {
        for empty in orders {
            for step in 0..KEYS {
                let key = fill(step);
                assert!(tree.insert(&mut worker, key, &key.to_le_bytes()).expect("room").is_some(), "{key}");
            }
            let all: Vec<_> = rows(tree.range(..)).into_iter().map(|(key, ..)| key).collect();
            assert!(all.into_iter().eq(0..KEYS));
            for step in 0..KEYS {
                let key = empty(step);
                assert!(tree.remove(&mut worker, key).expect("sound").is_some(), "{key}");
                assert!(!tree.contains(key).expect("sound"), "{key}");
                if step % 2_500 == 0 {
                    assert_eq!(rows(tree.range(..)).len() as u64, KEYS - 1 - step);
                    assert_eq!(rows(tree.range_back(..)).len() as u64, KEYS - 1 - step);
                }
            }
            // An empty tree is one empty leaf, wherever its nodes were.
            let mut scan = tree.range(..);
            assert_eq!(scan.next().expect("sound"), None);
            assert_eq!(scan.passed().len(), 1);
        }
    }
}
