//! Random schedules of longer runs, with more threads than the model checker can handle: the
//! scheduler chooses the next thread after every access to a word.
//!
//! ```text
//! cargo test --package drtm-kv --features shuttle --test shuttle
//! ```
//!
//! The code is the production code; only the words are the scheduler's, in a box. Tables and nodes
//! are as small as for the model checker, so that they grow, split and are reclaimed all the time.
//! Every load returns the last stored value: weak memory is left to the model checker.
//!
//! `DRTM_SHUTTLE=N` runs N times as many schedules. All follow from a seed, or from
//! `SHUTTLE_RANDOM_SEED` if that is set. A failure prints the schedule, which `shuttle::replay`
//! runs again.
#![cfg(not(feature = "loom"))]

#[path = "suite/tables.rs"]
mod tables;
#[path = "suite/visit.rs"]
mod visit;

use std::{collections::BTreeMap, sync::Arc};

use drtm_htm::NoHtm;
use drtm_kv::{HashConfig, Mutation, Store, mutated};
use shuttle::{
    Config, Runner,
    rand::{Rng, thread_rng},
    scheduler::{PctScheduler, RandomScheduler},
    thread,
};
use tables::Table;

/// Threads that change keys of their own.
const OWNERS: u64 = 3;

/// Keys of an owner. The first is never removed.
const KEYS: u64 = 4;

/// Operations of an owner.
const TURNS: u64 = 16;

/// Returns a value that shows its key and whether it is torn. Its length changes with its turn, so
/// that records move.
fn value(key: u64, turn: u64) -> Vec<u8> {
    [key, turn]
        .into_iter()
        .chain(std::iter::repeat_n(key ^ turn, turn as usize % 3))
        .flat_map(u64::to_le_bytes)
        .collect()
}

/// Returns the turn of a value. Asserts that it is not torn.
fn turn_of(key: u64, found: &[u8]) -> u64 {
    let turn = u64::from_le_bytes(found[8..16].try_into().expect("eight bytes"));
    assert_eq!(found, value(key, turn), "a torn value, or another key's");
    turn
}

/// Inserts, updates and removes keys of its own, and checks their state. Returns what is left.
fn own<T: Table>(store: &Store<NoHtm>, table: &T, owner: u64) -> BTreeMap<u64, u64> {
    let mut worker = store.worker().expect("a worker");
    let mut there: BTreeMap<u64, u64> = [(owner, 0)].into();
    let mut found = [0; 64];
    for turn in 1..=TURNS {
        let key = owner + OWNERS * thread_rng().gen_range(0..KEYS);
        let read = table.get(key, &mut found).expect("sound");
        assert_eq!(read.map(|read| turn_of(key, &found[..read.length])), there.get(&key).copied(), "key {key}");
        let value = value(key, turn);
        match there.get(&key) {
            None => {
                assert!(table.insert(&mut worker, key, &value).expect("room").is_some(), "key {key} was there");
                there.insert(key, turn);
            }
            Some(_) if key >= OWNERS && thread_rng().r#gen::<bool>() => {
                assert!(table.remove(&mut worker, key).expect("sound").is_some(), "key {key} was lost");
                there.remove(&key);
            }
            Some(_) => {
                assert!(table.update(&mut worker, key, &value).expect("room").is_some(), "key {key} was lost");
                there.insert(key, turn);
            }
        }
    }
    there
}

/// Visits the whole table, and looks up keys that are always present.
fn look<T: Table>(table: &T) {
    let mut found = [0; 64];
    for round in 0..3 {
        let key = round % OWNERS;
        let read = table.get(key, &mut found).expect("sound").unwrap_or_else(|| panic!("key {key} was lost"));
        turn_of(key, &found[..read.length]);
        let down = thread_rng().r#gen::<bool>();
        let all = table.all(down).expect("sound");
        all.iter().for_each(|(key, value)| _ = turn_of(*key, value));
        let mut keys: Vec<u64> = all.iter().map(|(key, _)| *key).collect();
        assert!(T::is_right_order(&keys, down), "out of order: {keys:?}");
        keys.sort_unstable();
        assert!(keys.is_sorted_by(|a, b| a < b), "some key came twice: {keys:?}");
        assert!((0..OWNERS).all(|key| keys.contains(&key)), "a key that is always there did not come: {keys:?}");
    }
}

fn run<T: Table>(make: impl Fn(&Store<NoHtm>) -> T) {
    let store = Store::in_memory(NoHtm, 64 << 10).expect("a store");
    let table = make(&store);
    for owner in 0..OWNERS {
        table
            .insert(&mut store.worker().expect("a worker"), owner, &value(owner, 0))
            .expect("room")
            .expect("not there");
    }
    let owners: Vec<_> = (0..OWNERS)
        .map(|owner| {
            let (store, table) = (store.clone(), table.clone());
            thread::spawn(move || own(&store, &table, owner))
        })
        .collect();
    let reader = table.clone();
    let reader = thread::spawn(move || look(&reader));
    let mut expected = BTreeMap::new();
    for owner in owners {
        expected.append(&mut owner.join().expect("no panic"));
    }
    reader.join().expect("no panic");
    let all = table.all(false).expect("sound");
    assert_eq!(all.len(), expected.len(), "some key came twice");
    assert_eq!(table.count().expect("sound"), expected.len() as u64);
    assert_eq!(all.iter().map(|(key, value)| (*key, turn_of(*key, value))).collect::<BTreeMap<_, _>>(), expected);
}

/// Runs schedules of two kinds: those that switch at every step with equal chances, and those that
/// switch at a few random places.
fn explore(schedules: usize, scenario: fn()) {
    let schedules = drtm_testing::schedules(schedules);
    let mut config = Config::new();
    config.stack_size = 256 << 10;
    config.silence_warnings = true;
    let scenario = Arc::new(scenario);
    let random = RandomScheduler::new_from_seed(1, schedules);
    let ran = Runner::new(random, config.clone()).run({
        let scenario = Arc::clone(&scenario);
        move || scenario()
    });
    let few_switches = PctScheduler::new_from_seed(2, 4, schedules);
    assert_eq!(ran, Runner::new(few_switches, config).run(move || scenario()));
}

#[test]
fn a_hash_table_that_grows() {
    explore(2_000, || run(|store| store.hash_table(HashConfig::default().with_occupancy(0.3)).expect("a table")));
}

#[test]
fn a_hash_table_with_long_chains() {
    explore(2_000, || run(|store| store.hash_table(HashConfig::default().fixed()).expect("a table")));
}

#[test]
fn a_tree() {
    explore(2_000, || run(|store| store.tree().expect("a tree")));
}

#[test]
#[should_panic(expected = "key ")]
fn mutation_with_keys_dropped_first_a_lost_key_is_found() {
    mutated(Mutation::SplitDropsKeysFirst, a_hash_table_that_grows);
}

#[test]
#[should_panic(expected = "key ")]
fn mutation_with_a_leaf_that_leaves_unchanged_a_lost_key_is_found() {
    mutated(Mutation::LeaveWithoutStamp, a_tree);
}
