//! Readers and kept handles on the store's own node.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use drtm_htm::{Emulated, Engine, NoHtm};
use drtm_kv::{Bytes, Current, ForHolder, HashConfig, HashTable, KvTable, Locking, NoValue, Placed, Store, Tree};

use crate::{ROUND, case};

fn store() -> Store<NoHtm> {
    Store::in_memory(NoHtm, 16 << 20).expect("memory")
}

/// Reuses the memory that was freed last this many times, for values of eight bytes.
fn use_memory(store: &Store<NoHtm>, worker: &mut drtm_kv::Worker<NoHtm>, times: u64) {
    let churn = store.tree().expect("memory");
    for _ in 0..times {
        churn.insert(worker, 1, &[0; 8]).expect("room").expect("it is new");
        churn.remove(worker, 1).expect("sound").expect("it is there");
    }
}

case! {
    /// A record that was read; its memory is now another record's with the same version.
    a_record_that_was_seen_is_told_from_a_later_one {
        let store = store();
        let (one, other) = (store.tree().expect("memory"), store.tree().expect("memory"));
        let mut worker = store.worker().expect("a worker");
        one.insert(&mut worker, 1, &[1; 8]).expect("room");
        let since = store.turn();
        let seen = one.read(1, Current, &mut NoValue).expect("sound").expect("it is there");
        one.remove(&mut worker, 1).expect("sound");
        use_memory(&store, &mut worker, ROUND - 1);
        other.insert(&mut worker, 1, &[2; 8]).expect("room");
        let me = worker.holder();
        let is_still = store.records().is_still(seen, me);
        assert!(!(is_still && store.is_within(since)), "wrong: it is taken for the one that was seen");
        // A caller with the handle and no turn may lock it, and detects the reuse.
        if let Locking::Taken { .. } = store.records().lock(seen.at, me).expect("in memory") {
            assert!(!store.is_within(since), "wrong: it is locked for another");
            store.records().unlock(seen.at);
        }
    }
}

case! {
    /// A bucket in which a key was absent, and whose version has wrapped around.
    a_key_is_not_inserted_twice_where_it_was_missed {
        let store = store();
        let table = store.hash_table(HashConfig::default().fixed()).expect("memory");
        let mut worker = store.worker().expect("a worker");
        let missed = |key| table.read(key, Current, &mut NoValue).expect("sound").expect_err("it is absent");
        let bucket = missed(0);
        let mut alike = (1..).filter(|key| missed(*key) == bucket);
        let (one, two) = (alike.next().expect("one"), alike.next().expect("another"));
        let turn = store.turn();
        for _ in 0..(ROUND - 2) / 2 {
            table.insert(&mut worker, one, &[0; 8]).expect("room");
            table.remove(&mut worker, one).expect("sound");
        }
        table.insert(&mut worker, two, &[0; 8]).expect("room");
        table.insert(&mut worker, 0, &[1; 8]).expect("room");
        assert!(store.records().is_unchanged(&bucket), "a round is over");
        assert!(!store.is_within(turn), "wrong: nothing tells that a round is over");
        let placed = table.place::<ForHolder>(&mut worker, 0, &[2; 8], Some((bucket, turn)), |_| ()).expect("room");
        assert!(matches!(placed, Placed::Found(_)), "wrong: it is there twice");
    }
}

/// The memory of a free record is locked in the name of the worker that freed it. Its handle cannot
/// lock it: neither for that worker, nor for a later one with the same number.
#[test]
fn free_memory_is_nobodys_record() {
    let store = store();
    let tree = store.tree().expect("memory");
    let mut worker = store.worker().expect("a worker");
    tree.insert(&mut worker, 1, &[1; 8]).expect("room");
    let seen = tree.read(1, Current, &mut NoValue).expect("sound").expect("it is there");
    tree.remove(&mut worker, 1).expect("sound");
    for _ in 0..3 * ROUND {
        use_memory(&store, &mut worker, 1);
        let locked = store.records().lock(seen.at, worker.holder()).expect("in memory");
        assert!(matches!(locked, Locking::Gone), "{locked:?}");
    }
    let former = worker.holder();
    drop(worker);
    let later = store.worker().expect("a worker");
    assert_eq!(later.holder(), former, "the number is used again");
    let locked = store.records().lock(seen.at, later.holder()).expect("in memory");
    assert!(matches!(locked, Locking::Gone), "{locked:?}");
}

/// Readers of a key in one table, while its record's memory moves to another table's record of the
/// same key and back, and all counters wrap around continuously.
fn readers_see_their_own_table<E: Engine, T: KvTable<E, drtm_kv::Inline>>(
    store: &Store<E>,
    tables: [&T; 2],
    scan: impl Fn(&T, &mut dyn FnMut(u64, &[u8])) + Sync,
) {
    const KEYS: u64 = 6;
    let rounds = drtm_testing::rounds(20_000);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let changers = [0, 1].map(|seed| {
            scope.spawn(move || {
                let (mut worker, mut random) = (store.worker().expect("a worker"), fastrand::Rng::with_seed(seed));
                for _ in 0..rounds {
                    let (number, key) = (random.usize(0..2), random.u64(0..KEYS));
                    let value = [number as u8; 8];
                    match random.u32(0..3) {
                        0 => drop(tables[number].insert(&mut worker, key, &value).expect("room")),
                        1 => drop(tables[number].update(&mut worker, key, &value).expect("room")),
                        _ => drop(tables[number].remove(&mut worker, key).expect("sound")),
                    }
                }
            })
        });
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                for (table, number) in tables.iter().zip(0_u8..) {
                    for key in 0..KEYS {
                        let mut value = [9; 8];
                        if table.get(key, &mut value).expect("sound").is_some() {
                            assert_eq!(value, [number; 8], "another table's row");
                        }
                    }
                    scan(table, &mut |key, value| assert!(key < KEYS && value == [number; 8], "another table's row"));
                }
            }
        });
        let changed: Vec<_> = changers.into_iter().map(|changer| changer.join()).collect();
        is_over.store(true, Relaxed);
        changed.into_iter().for_each(|changer| changer.expect("a changer"));
    });
    // Each key is present at most once, and counted once.
    for table in tables {
        let mut keys = Vec::new();
        scan(table, &mut |key, _| keys.push(key));
        keys.sort_unstable();
        assert!(keys.is_sorted_by(|one, other| one < other), "a key is there twice: {keys:?}");
        assert_eq!(table.count().expect("sound"), keys.len() as u64);
    }
}

fn readers_of_hash_tables<E: Engine>(engine: E) {
    let store = Store::in_memory(engine, 16 << 20).expect("memory");
    let [one, other] = [(); 2].map(|()| store.hash_table(HashConfig::default().fixed()).expect("memory"));
    readers_see_their_own_table(&store, [&one, &other], |table: &HashTable<E>, see| {
        let (mut sweep, mut value) = (table.sweep().expect("sound"), [9; 8]);
        let mut look = |key| {
            if table.get(key, &mut value).expect("sound").is_some() {
                see(key, &value);
            }
        };
        while table.advance(&mut sweep, &mut look).expect("sound") {}
    });
}

#[test]
fn readers_of_hash_tables_see_their_own() {
    readers_of_hash_tables(NoHtm);
}

#[test]
fn readers_of_hash_tables_see_their_own_with_htm() {
    readers_of_hash_tables(Emulated::default());
}

#[test]
fn readers_of_trees_see_their_own() {
    let store = store();
    let [one, other] = [(); 2].map(|()| store.tree().expect("memory"));
    // Every other scan reads from both ends.
    let turning = AtomicBool::new(false);
    readers_see_their_own_table(&store, [&one, &other], |tree: &Tree<NoHtm>, see| {
        let (mut rows, turns) = (tree.range(..), turning.fetch_xor(true, Relaxed));
        while let Some(row) = rows.next().expect("sound") {
            see(row.key, row.value);
            if turns {
                rows.reverse();
            }
        }
    });
}

/// Byte strings that share their first words, in layers that are created and removed.
#[test]
fn byte_strings_are_found_while_others_come_and_go() {
    let store = store();
    let [one, other] = [(); 2].map(|()| store.tree_of::<Bytes>().expect("memory"));
    let keys: Vec<Vec<u8>> =
        (0..6_u8).map(|last| [b"a prefix of many bytes: ".as_slice(), &[last / 2, last]].concat()).collect();
    let rounds = drtm_testing::rounds(10_000);
    thread::scope(|scope| {
        for (tree, seed) in [&one, &other].into_iter().zip(0_u8..) {
            let (store, keys) = (&store, &keys);
            scope.spawn(move || {
                let (mut worker, mut random) =
                    (store.worker().expect("a worker"), fastrand::Rng::with_seed(seed.into()));
                let mut is_there = [false; 6];
                for _ in 0..rounds {
                    let number = random.usize(0..6);
                    let key = &keys[number];
                    let mut value = [9; 8];
                    let found = tree.get(key, &mut value).expect("sound");
                    assert_eq!(found.is_some(), is_there[number]);
                    assert!(found.is_none() || value == [seed; 8], "another tree's row");
                    let done = match is_there[number] {
                        true => tree.remove(&mut worker, key).expect("sound"),
                        false => tree.insert(&mut worker, key, &[seed; 8]).expect("room"),
                    };
                    assert!(done.is_some());
                    is_there[number] = !is_there[number];
                }
                for turns in [false, true] {
                    let (mut rows, mut left) = (tree.range(..), 0);
                    while let Some(row) = rows.next().expect("sound") {
                        assert_eq!(row.value, [seed; 8], "another tree's row");
                        left += 1;
                        if turns {
                            rows.reverse();
                        }
                    }
                    assert_eq!(left, is_there.iter().filter(|is_there| **is_there).count());
                }
            });
        }
    });
}
