//! Random operations on a hash table against a `HashMap`.

use std::collections::HashMap;

use drtm_htm::{Emulated, Engine, NoHtm};
use drtm_kv::{Bytes, HashConfig, HashTable, Inline, Keys, KvTable, Store, Version, Worker};
use proptest::prelude::*;

use crate::{
    support::{MIB, Numbered, length, mapped_twice, store, tight},
    visit::visit,
};

#[derive(Clone, Debug)]
enum Op {
    Insert(u16, usize),
    Update(u16, usize),
    Put(u16, usize),
    Remove(u16),
    Get(u16),
    Visit,
}

/// Few keys, so that operations conflict, or more, so that the table grows.
fn ops(keys: u16) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (0..keys, length()).prop_map(|(key, length)| Op::Insert(key, length)),
        3 => (0..keys, length()).prop_map(|(key, length)| Op::Update(key, length)),
        2 => (0..keys, length()).prop_map(|(key, length)| Op::Put(key, length)),
        3 => (0..keys).prop_map(Op::Remove),
        3 => (0..keys).prop_map(Op::Get),
        1 => Just(Op::Visit),
    ];
    prop::collection::vec(op, 1..400)
}

/// Returns the value that the `turn`th operation writes.
fn value(turn: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (turn * 31 + at) as u8).collect()
}

struct Checked<'t, E: Engine, K: Keys> {
    tables: Vec<(&'t HashTable<E, K>, Worker<E>)>,
    model: HashMap<u16, (Vec<u8>, Version)>,
    /// The highest version of each key so far.
    highest: HashMap<u16, Version>,
}

impl<E: Engine, K: Numbered> Checked<'_, E, K> {
    /// Runs the operations, each by the next of the table's handles.
    fn run(&mut self, ops: &[Op]) -> Result<(), TestCaseError> {
        for (turn, op) in ops.iter().enumerate() {
            let handle = turn % self.tables.len();
            let (table, worker) = &mut self.tables[handle];
            match *op {
                Op::Insert(key, length) => {
                    let value = value(turn, length);
                    let inserted = K::with(key, |key| table.insert(worker, key, &value)).expect("room");
                    prop_assert_eq!(inserted.is_some(), !self.model.contains_key(&key));
                    if let Some(version) = inserted {
                        self.written(key, value, version)?;
                    }
                }
                Op::Update(key, length) => {
                    let value = value(turn, length);
                    let updated = K::with(key, |key| table.update(worker, key, &value)).expect("room");
                    prop_assert_eq!(updated.is_some(), self.model.contains_key(&key));
                    if let Some(version) = updated {
                        self.written(key, value, version)?;
                    }
                }
                Op::Put(key, length) => {
                    let value = value(turn, length);
                    let version = K::with(key, |key| table.put(worker, key, &value)).expect("room");
                    self.written(key, value, version)?;
                }
                Op::Remove(key) => {
                    let removed = K::with(key, |key| table.remove(worker, key)).expect("sound");
                    prop_assert_eq!(removed, self.model.remove(&key).map(|(_, version)| version));
                }
                Op::Get(key) => self.agrees_on(handle, key)?,
                Op::Visit => self.agrees_on_all(handle)?,
            }
        }
        for handle in 0..self.tables.len() {
            self.agrees_on_all(handle)?;
            for key in self.highest.keys().copied().collect::<Vec<_>>() {
                self.agrees_on(handle, key)?;
            }
        }
        Ok(())
    }

    fn written(&mut self, key: u16, value: Vec<u8>, version: Version) -> Result<(), TestCaseError> {
        if let Some(highest) = self.highest.insert(key, version) {
            prop_assert!(version > highest, "versions grow, over removal too: {:?} after {:?}", version, highest);
        }
        self.model.insert(key, (value, version));
        Ok(())
    }

    fn agrees_on(&self, handle: usize, key: u16) -> Result<(), TestCaseError> {
        let (table, _) = &self.tables[handle];
        let mut found = vec![0; 6_000];
        let read = K::with(key, |key| table.get(key, &mut found)).expect("sound");
        let expected = self.model.get(&key);
        prop_assert_eq!(
            read.map(|read| (read.length, read.version)),
            expected.map(|(value, version)| (value.len(), *version))
        );
        if let (Some(read), Some((value, _))) = (read, expected) {
            prop_assert_eq!(&found[..read.length], &value[..]);
            let mut beginning = [0; 3];
            K::with(key, |key| table.get(key, &mut beginning)).expect("sound");
            prop_assert!(value.starts_with(&beginning[..value.len().min(3)]));
        }
        Ok(())
    }

    fn agrees_on_all(&self, handle: usize) -> Result<(), TestCaseError> {
        let (table, _) = &self.tables[handle];
        let mut visited = Vec::new();
        visit(table, |_, value, version| visited.push((value.to_vec(), version)));
        let mut expected: Vec<_> = self.model.values().cloned().collect();
        visited.sort();
        expected.sort();
        prop_assert_eq!(visited, expected);
        prop_assert_eq!(table.count().expect("sound"), self.model.len() as u64);
        Ok(())
    }
}

fn agrees<E: Engine, K: Numbered>(stores: &[Store<E>], config: HashConfig, ops: &[Op]) -> Result<(), TestCaseError> {
    let made = stores[0].hash_table_of::<K>(config).expect("a table");
    let tables: Vec<_> =
        stores.iter().map(|store| store.open_hash_table::<K>(made.location()).expect("the same table")).collect();
    let tables = tables.iter().zip(stores).map(|(table, store)| (table, store.worker().expect("a worker"))).collect();
    Checked { tables, model: HashMap::new(), highest: HashMap::new() }.run(ops)
}

/// Chains of several overflow buckets, in a table that cannot grow.
fn crowded() -> HashConfig {
    HashConfig::default().with_occupancy(4.0).fixed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn few_keys(ops in ops(12)) {
        agrees::<_, Inline>(&[store(NoHtm, 64 * MIB)], HashConfig::default(), &ops)?;
    }

    #[test]
    fn growing(ops in ops(3_000)) {
        agrees::<_, Inline>(&[store(NoHtm, 64 * MIB)], HashConfig::default().with_occupancy(0.05), &ops)?;
    }

    #[test]
    fn overflowing(ops in ops(3_000)) {
        agrees::<_, Inline>(&[store(NoHtm, 64 * MIB)], crowded(), &ops)?;
    }

    #[test]
    fn byte_strings(ops in ops(700)) {
        agrees::<_, Bytes>(&[store(NoHtm, 64 * MIB)], HashConfig::default().with_occupancy(0.1), &ops)?;
    }

    #[test]
    fn two_mappings(ops in ops(700)) {
        agrees::<_, Inline>(&mapped_twice(64 * MIB), HashConfig::default().with_occupancy(0.1), &ops)?;
    }

    #[test]
    fn in_emulated_regions(ops in ops(300)) {
        agrees::<_, Inline>(&[store(Emulated::default(), 64 * MIB)], HashConfig::default().with_occupancy(0.1), &ops)?;
    }

    #[test]
    fn in_regions_that_often_fail(ops in ops(300), seed: u64) {
        agrees::<_, Bytes>(&[store(tight(seed), 64 * MIB)], HashConfig::default().with_occupancy(0.1), &ops)?;
    }
}

#[test]
fn a_table_grows_to_its_occupancy_and_finds_everything() {
    let store = store(NoHtm, 256 * MIB);
    let table = store.hash_table(HashConfig::default()).expect("a table");
    let mut worker = store.worker().expect("a worker");
    for key in 0..100_000_u64 {
        assert!(table.insert(&mut worker, key, &key.to_le_bytes()).expect("room").is_some());
    }
    let occupancy = 100_000.0 / (8.0 * table.buckets().expect("sound") as f64);
    assert!((0.74..=0.751).contains(&occupancy), "{occupancy}");
    let mut value = [0; 8];
    for key in 0..100_000_u64 {
        assert!(table.get(key, &mut value).expect("sound").is_some());
        assert_eq!(u64::from_le_bytes(value), key);
    }
    assert!(!table.contains(100_000).expect("sound"));
}
