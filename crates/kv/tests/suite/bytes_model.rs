//! Random operations on a tree of byte strings against a `BTreeMap`.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
};

use crate::transacted::Transacted;
use drtm_htm::{Emulated, Engine, NoHtm};
use drtm_kv::{Bytes, Current, KvTable, MAX_KEY, NoValue, Scan, Store, Tree, Version, Worker};
use proptest::prelude::*;

use crate::support::{Key, MIB, each_row, is_backward, key, key_bound as bound, mapped_twice, store, tight};

type Bounds = (Bound<Key>, Bound<Key>);

#[derive(Clone, Debug)]
enum Op {
    Insert(Key, usize),
    Update(Key, usize),
    Put(Key, usize),
    ReadOrInsert(Key, usize),
    Remove(Key),
    /// Inserts keys with this prefix: nodes split in some layer.
    InsertRun(Key, u16),
    /// Removes all keys with this prefix: leaves and layers become empty.
    RemoveAll(Key),
    Get(Key),
    Scan(Bounds, bool),
    Ends,
    /// Corrupts the hints.
    Scribble(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let length = || prop_oneof![4 => 0..40usize, 1 => 250..260usize, 1 => Just(1_000)];
    let op = prop_oneof![
        5 => (key(), length()).prop_map(|(key, length)| Op::Insert(key, length)),
        3 => (key(), length()).prop_map(|(key, length)| Op::Update(key, length)),
        2 => (key(), length()).prop_map(|(key, length)| Op::Put(key, length)),
        2 => (key(), length()).prop_map(|(key, length)| Op::ReadOrInsert(key, length)),
        3 => key().prop_map(Op::Remove),
        1 => (key(), 1..100u16).prop_map(|(key, count)| Op::InsertRun(key, count)),
        2 => key().prop_map(Op::RemoveAll),
        3 => key().prop_map(Op::Get),
        4 => (bound(), bound(), any::<bool>()).prop_map(|(from, to, up)| Op::Scan((from, to), up)),
        1 => Just(Op::Ends),
        2 => any::<u64>().prop_map(Op::Scribble),
    ];
    prop::collection::vec(op, 1..200)
}

/// Returns the value that the `turn`th operation writes.
fn value(turn: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (turn * 31 + at) as u8).collect()
}

fn rows<E: Engine>(mut scan: Scan<'_, E, Bytes>) -> Vec<(Key, Vec<u8>, Version)> {
    let mut rows = Vec::new();
    each_row(&mut scan, |key, value, version| rows.push((key.to_vec(), value.to_vec(), version)));
    rows
}

struct Checked<E: Engine> {
    trees: Vec<(Tree<E, Bytes>, Worker<E>)>,
    model: BTreeMap<Key, (Vec<u8>, Version)>,
    /// The highest version of each key so far.
    highest: HashMap<Key, Version>,
}

impl<E: Engine> Checked<E> {
    /// Runs the operations, each by the next of the tree's handles. Removes everything at the end.
    fn run(&mut self, ops: &[Op]) -> Result<(), TestCaseError> {
        for (turn, op) in ops.iter().enumerate() {
            self.step(turn % self.trees.len(), turn, op)?;
        }
        for handle in 0..self.trees.len() {
            self.agrees_on(handle, &(Bound::Unbounded, Bound::Unbounded), true)?;
            self.agrees_on(handle, &(Bound::Unbounded, Bound::Unbounded), false)?;
            for key in self.highest.keys() {
                self.agrees_on_key(handle, key)?;
            }
            prop_assert_eq!(self.trees[handle].0.count().expect("sound"), self.model.len() as u64);
        }
        self.remove_all(0, b"")?;
        // An empty tree is one empty leaf, and no layers are left.
        let mut scan = self.trees[0].0.range(..);
        prop_assert!(scan.next().expect("sound").is_none());
        prop_assert_eq!(scan.passed().len(), 1);
        Ok(())
    }

    fn step(&mut self, handle: usize, turn: usize, op: &Op) -> Result<(), TestCaseError> {
        let (tree, worker) = &mut self.trees[handle];
        match op {
            Op::Insert(key, length) => self.insert(handle, key, value(turn, *length))?,
            Op::Update(key, length) => {
                let value = value(turn, *length);
                let updated = tree.update(worker, key, &value).expect("room");
                prop_assert_eq!(updated.is_some(), self.model.contains_key(key));
                if let Some(version) = updated {
                    self.written(key, value, version)?;
                }
            }
            Op::Put(key, length) => {
                let value = value(turn, *length);
                let version = tree.put(worker, key, &value).expect("room");
                self.written(key, value, version)?;
            }
            Op::ReadOrInsert(key, length) => {
                let (value, mut found) = (value(turn, *length), Vec::new());
                match (tree.read(key, Current, &mut found).expect("sound"), self.model.get(key)) {
                    (Err(leaf), None) => {
                        // The leaf of the absent key is where it is inserted.
                        let version = tree.insert_noting(worker, key, &value, Some(leaf), |_| ()).expect("room");
                        self.written(key, value, version.expect("it was not there"))?;
                    }
                    (Ok(seen), Some((value, version))) => prop_assert_eq!((&found, seen.version), (value, *version)),
                    (existing, expected) => prop_assert!(false, "{:?} and {:?}", existing, expected),
                }
            }
            Op::Remove(key) => self.remove(handle, key)?,
            Op::InsertRun(prefix, count) => {
                for step in 0..u32::from(*count) {
                    let key = [&prefix[..], &(step * 7_919 % u32::from(*count)).to_be_bytes()[2..]].concat();
                    self.insert(handle, &key, value(turn, 8))?;
                }
            }
            Op::RemoveAll(prefix) => self.remove_all(handle, prefix)?,
            Op::Get(key) => self.agrees_on_key(handle, key)?,
            Op::Scan(bounds, up) => self.agrees_on(handle, bounds, *up)?,
            Op::Scribble(seed) => tree.scribble_hints(*seed),
            Op::Ends => {
                let expected = |row: Option<(&Key, &(Vec<u8>, Version))>| {
                    row.map(|(key, (value, version))| (key.clone(), value.len(), *version))
                };
                for (mut scan, model) in
                    [(tree.range(..), self.model.first_key_value()), (tree.range_back(..), self.model.last_key_value())]
                {
                    let row = scan.next().expect("sound");
                    let row = row.map(|row| (row.key.to_vec(), row.value.len(), row.version));
                    prop_assert_eq!(row, expected(model));
                }
            }
        }
        Ok(())
    }

    fn insert(&mut self, handle: usize, key: &[u8], value: Vec<u8>) -> Result<(), TestCaseError> {
        let (tree, worker) = &mut self.trees[handle];
        let inserted = tree.insert(worker, key, &value).expect("room");
        prop_assert_eq!(inserted.is_some(), !self.model.contains_key(key));
        match inserted {
            Some(version) => self.written(key, value, version),
            None => Ok(()),
        }
    }

    fn remove(&mut self, handle: usize, key: &[u8]) -> Result<(), TestCaseError> {
        let (tree, worker) = &mut self.trees[handle];
        let removed = tree.remove(worker, key).expect("sound");
        prop_assert_eq!(removed, self.model.remove(key).map(|(_, version)| version));
        Ok(())
    }

    fn remove_all(&mut self, handle: usize, prefix: &[u8]) -> Result<(), TestCaseError> {
        let from = self.model.range(prefix.to_vec()..).map(|(key, _)| key.clone());
        for key in from.take_while(|key| key.starts_with(prefix)).collect::<Vec<_>>() {
            self.remove(handle, &key)?;
        }
        Ok(())
    }

    fn written(&mut self, key: &[u8], value: Vec<u8>, version: Version) -> Result<(), TestCaseError> {
        if let Some(highest) = self.highest.insert(key.to_vec(), version) {
            prop_assert!(version > highest, "versions grow, over removal too: {:?} after {:?}", version, highest);
        }
        self.model.insert(key.to_vec(), (value, version));
        Ok(())
    }

    fn agrees_on_key(&self, handle: usize, key: &[u8]) -> Result<(), TestCaseError> {
        let (tree, _) = &self.trees[handle];
        let mut found = vec![0; 2_000];
        let read = tree.get(key, &mut found).expect("sound");
        match (read, self.model.get(key)) {
            (None, None) => {
                prop_assert!(!tree.contains(key).expect("sound"));
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

    fn agrees_on(&self, handle: usize, bounds: &Bounds, up: bool) -> Result<(), TestCaseError> {
        let (tree, _) = &self.trees[handle];
        let (from, to) = (bounds.0.as_ref().map(Vec::as_slice), bounds.1.as_ref().map(Vec::as_slice));
        let found = rows(if up { tree.range((from, to)) } else { tree.range_back((from, to)) });
        let mut expected = Vec::new();
        if !is_backward(bounds) {
            let range = self.model.range(bounds.clone());
            expected.extend(range.map(|(key, (value, version))| (key.clone(), value.clone(), *version)));
        }
        if !up {
            expected.reverse();
        }
        prop_assert_eq!(found, expected);
        Ok(())
    }
}

fn agrees<E: Engine>(stores: &[Store<E>], loaded: &[Key], ops: &[Op]) -> Result<(), TestCaseError> {
    let made = stores[0].tree_of::<Bytes>().expect("a tree");
    let trees = stores
        .iter()
        .map(|store| (store.open_tree(made.location()).expect("the same tree"), store.worker().expect("a worker")))
        .collect();
    let mut checked = Checked { trees, model: BTreeMap::new(), highest: HashMap::new() };
    let rows = loaded.iter().map(|key| (key, value(0, 20)));
    let mut worker = stores[0].worker().expect("a worker");
    for (key, value) in rows {
        let version = made.insert(&mut worker, key, &value).expect("room").expect("new");
        checked.written(key, value, version)?;
    }
    checked.run(ops)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn random_operations(ops in ops()) {
        agrees(&[store(NoHtm, 64 * MIB)], &[], &ops)?;
    }

    #[test]
    fn loaded_before(keys in prop::collection::btree_set(key(), 0..200), runs in prop::collection::vec((key(), 0..400u16), 0..3), ops in ops()) {
        let mut keys = keys;
        for (prefix, count) in runs {
            keys.extend((0..count).map(|number| [&prefix[..], &number.to_be_bytes()].concat()));
        }
        let keys: Vec<_> = keys.into_iter().collect();
        agrees(&[store(NoHtm, 64 * MIB)], &keys, &ops)?;
    }

    #[test]
    fn two_mappings(ops in ops()) {
        agrees(&mapped_twice(64 * MIB), &[], &ops)?;
    }

    #[test]
    fn on_an_emulated_engine(ops in ops()) {
        agrees(&[store(Emulated::default(), 64 * MIB)], &[], &ops)?;
    }

    #[test]
    fn on_a_tight_engine(ops in ops(), seed: u64) {
        agrees(&[store(tight(seed), 64 * MIB)], &[], &ops)?;
    }
}

/// The longest keys use the most layers, and leave none of them behind.
#[test]
fn the_longest_keys_that_differ_only_in_their_last_byte() {
    let store = store(NoHtm, 64 * MIB);
    let (tree, mut worker) = (store.tree_of::<Bytes>().expect("a tree"), store.worker().expect("a worker"));
    let keys: Vec<Key> = (0..100).map(|last| [vec![255; MAX_KEY - 1], vec![last]].concat()).collect();
    let mut settled = 0;
    for round in 0..10 {
        for key in &keys {
            assert!(tree.insert(&mut worker, key, &key[MAX_KEY - 1..]).expect("room").is_some());
        }
        for up in [true, false] {
            let mut found = rows(if up { tree.range(..) } else { tree.range_back(..) });
            if !up {
                found.reverse();
            }
            assert!(found.into_iter().map(|(key, ..)| key).eq(keys.iter().cloned()));
        }
        let from = &keys[40][..];
        assert_eq!(rows(tree.range(from..)).len(), 60);
        assert_eq!(rows(tree.range_back(..from)).len(), 40);
        for key in &keys {
            assert!(tree.remove(&mut worker, key).expect("sound").is_some());
        }
        let mut scan = tree.range(..);
        assert!(scan.next().expect("sound").is_none());
        assert_eq!(scan.passed().len(), 1);
        match round {
            0 => settled = store.region().allocated(),
            _ => assert_eq!(store.region().allocated(), settled, "round {round}"),
        }
    }
}
