//! Threads on one hash table, with invariants that any lost, torn or stale row would break.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use drtm_htm::{Emulated, Engine, NoHtm};
use drtm_kv::{Bytes, HashConfig, HashTable, Inline, Keys, KvTable, Store, Version};

use crate::{
    support::{MIB, mapped_twice, rounds, store, tight, turn_of, value},
    visit::visit,
};

const OWNERS: u64 = 3;
const KEYS: u64 = 400;

/// Each key has one owner, which inserts, updates and removes it, and knows its state. All threads
/// read all keys meanwhile.
fn owners_and_readers<E: Engine>(stores: &[Store<E>], base: u64) {
    let made = stores[0].hash_table(HashConfig::default().with_occupancy(0.3)).expect("a table");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                let (store, stop) = (&stores[reader % stores.len()], &stop);
                let table: HashTable<E> = store.open_hash_table(made.location()).expect("the same table");
                scope.spawn(move || read_until_stopped(&table, stop, reader as u64))
            })
            .collect();
        let owners: Vec<_> = (0..OWNERS)
            .map(|owner| {
                let store = &stores[owner as usize % stores.len()];
                let table: HashTable<E> = store.open_hash_table(made.location()).expect("the same table");
                scope.spawn(move || own_keys(store, &table, owner, rounds(base)))
            })
            .collect();
        // If an owner panics, the readers must stop all the same.
        let left: Vec<_> = owners.into_iter().map(|owner| owner.join()).collect();
        stop.store(true, Relaxed);
        let left: u64 = left.into_iter().map(|left| left.expect("no owner panics")).sum();
        let reads: u64 = readers.into_iter().map(|reader| reader.join().expect("no reader panics")).sum();
        assert!(reads > 0);
        let mut visited = 0;
        visit(&made, |key, found, _| {
            turn_of(found, key);
            visited += 1;
        });
        assert_eq!((made.count().expect("sound"), visited), (left, left));
    });
}

/// Returns the number of keys left.
fn own_keys<E: Engine>(store: &Store<E>, table: &HashTable<E>, owner: u64, turns: u64) -> u64 {
    let mut worker = store.worker().expect("a worker");
    let mut random = fastrand::Rng::with_seed(owner);
    let mut present: Vec<Option<u64>> = vec![None; KEYS as usize];
    let mut highest = vec![Version::default(); KEYS as usize];
    let mut found = vec![0; 400];
    for turn in 0..turns {
        let index = random.usize(0..KEYS as usize);
        let key = owner + OWNERS * index as u64;
        let expected = present[index];
        let read = table.get(key, &mut found).expect("sound");
        assert_eq!(read.map(|read| turn_of(&found[..read.length], key)), expected, "key {key}");
        let value = value(key, turn);
        let written = match (expected.is_some(), random.u8(0..4)) {
            (false, _) => {
                assert!(table.update(&mut worker, key, &value).expect("room").is_none());
                assert!(table.remove(&mut worker, key).expect("sound").is_none());
                Some(table.insert(&mut worker, key, &value).expect("room").expect("it was not there"))
            }
            (true, 0) => {
                let removed = table.remove(&mut worker, key).expect("sound").expect("it was there");
                assert_eq!(removed, highest[index]);
                None
            }
            (true, _) => {
                assert!(table.insert(&mut worker, key, &value).expect("room").is_none());
                Some(table.update(&mut worker, key, &value).expect("room").expect("it was there"))
            }
        };
        present[index] = written.map(|_| turn);
        if let Some(version) = written {
            assert!(version > highest[index], "key {key}: {version:?} after {:?}", highest[index]);
            highest[index] = version;
        }
    }
    present.iter().flatten().count() as u64
}

/// Returns the number of values read.
fn read_until_stopped<E: Engine>(table: &HashTable<E>, stop: &AtomicBool, seed: u64) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut found = vec![0; 400];
    let mut reads = 0;
    let mut last = vec![Version::default(); (OWNERS * KEYS) as usize];
    while !stop.load(Relaxed) || reads == 0 {
        let key = random.u64(0..OWNERS * KEYS);
        if let Some(read) = table.get(key, &mut found).expect("sound") {
            turn_of(&found[..read.length], key);
            assert!(read.version >= last[key as usize], "a reader went back in time");
            last[key as usize] = read.version;
            reads += 1;
        }
    }
    reads
}

#[test]
fn without_regions() {
    owners_and_readers(&[store(NoHtm, 256 * MIB)], 30_000);
}

#[test]
fn through_two_mappings() {
    owners_and_readers(&mapped_twice(256 * MIB), 30_000);
}

#[test]
fn in_emulated_regions() {
    owners_and_readers(&[store(Emulated::default(), 256 * MIB)], 4_000);
}

#[test]
fn in_regions_that_often_fail() {
    owners_and_readers(&[store(tight(1), 256 * MIB)], 4_000);
}

/// A handle reaches overflow buckets that were created after it was opened, also within an htm
/// transaction, where it must not search for them.
#[test]
fn in_regions_with_a_handle_that_is_behind() {
    const MANY: u64 = 10_000;
    let store = store(Emulated::default(), 64 * MIB);
    let (mut worker, made) =
        (store.worker().expect("a worker"), store.hash_table(HashConfig::default()).expect("a table"));
    let behind: HashTable<Emulated> = store.open_hash_table(made.location()).expect("the same table");
    for key in 0..MANY {
        made.insert(&mut worker, key, b"ahead").expect("room").expect("new");
    }
    for key in 0..2 * MANY {
        let is_new = behind.insert(&mut worker, key, b"behind").expect("room").is_some();
        assert_eq!(is_new, key >= MANY, "key {key}");
    }
    let late: HashTable<Emulated> = store.open_hash_table(made.location()).expect("the same table");
    for key in 0..2 * MANY {
        assert!(late.remove(&mut worker, key).expect("sound").is_some(), "key {key}");
    }
    assert_eq!(made.count().expect("sound"), 0);
}

/// All threads insert and remove the same few keys. Of all that try to insert a key, one succeeds.
fn contested<E: Engine>(store: &Store<E>, base: u64) {
    let table = store.hash_table_of::<Bytes>(HashConfig::default()).expect("a table");
    let balances: Vec<i64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|thread| {
                let table = &table;
                scope.spawn(move || {
                    let mut worker = store.worker().expect("a worker");
                    let mut random = fastrand::Rng::with_seed(thread);
                    let mut balance = 0;
                    for _ in 0..rounds(base) {
                        let key = [random.u8(0..5); 40];
                        let value = vec![key[0]; random.usize(0..2) * 300];
                        match random.u8(0..4) {
                            0 => balance += i64::from(table.insert(&mut worker, &key, &value).expect("room").is_some()),
                            1 => balance -= i64::from(table.remove(&mut worker, &key).expect("sound").is_some()),
                            2 => drop(table.update(&mut worker, &key, &value).expect("room")),
                            _ => {
                                let mut found = [0xFF; 300];
                                if let Some(read) = table.get(&key, &mut found).expect("sound") {
                                    assert!(found[..read.length].iter().all(|byte| *byte == key[0]));
                                }
                            }
                        }
                    }
                    balance
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let left = table.count().expect("sound");
    assert_eq!(balances.iter().sum::<i64>(), left as i64);
    let mut visited = 0;
    visit(&table, |_, _, _| visited += 1);
    assert_eq!(visited, left);
}

#[test]
fn contested_without_regions() {
    contested(&store(NoHtm, 64 * MIB), 20_000);
}

#[test]
fn contested_in_emulated_regions() {
    contested(&store(tight(2), 64 * MIB), 2_000);
}

/// Nothing leaks: after a while, churn needs no more memory, although values change their size and
/// workers come and go.
#[test]
fn churn_needs_no_more_memory_after_a_while() {
    let store = store(NoHtm, 256 * MIB);
    let table = store.hash_table_of::<Inline>(HashConfig::default()).expect("a table");
    let churn = |seed| {
        thread::scope(|scope| {
            for thread in 0..2_u64 {
                let (store, table) = (&store, &table);
                scope.spawn(move || {
                    let mut worker = store.worker().expect("a worker");
                    let mut random = fastrand::Rng::with_seed(seed + thread);
                    for _ in 0..rounds(20_000) {
                        let key = random.u64(0..2_000);
                        if random.bool() {
                            table.put(&mut worker, key, &vec![1; random.usize(0..500)]).expect("room");
                        } else {
                            table.remove(&mut worker, key).expect("sound");
                        }
                    }
                });
            }
        });
        store.region().allocated()
    };
    // Each round has workers of its own, whose pages begin small.
    let settled = (0..20).map(churn).max().expect("twenty rounds");
    let later = (20..30).map(churn).max().expect("ten rounds");
    assert!(later <= settled + settled / 10, "grew from {settled} to {later} bytes");
}

/// A sweep visits each permanent key once, while the table grows, records change their size, and
/// other keys come and go.
fn sweeps_beside_growth<K: Keys, E: Engine>(engine: E, base: u64) {
    const STEADY: u64 = 300;
    let store = store(engine, 64 * MIB);
    let table = store.hash_table_of::<K>(HashConfig::default()).expect("a table");
    let is_over = AtomicBool::new(false);
    let put = |worker: &mut _, key: u64, length: usize| {
        let name = key.to_le_bytes();
        let key = K::from_bytes(&name).expect("eight bytes are a key of either kind");
        table.put(worker, key, &vec![1; length]).expect("room");
    };
    let mut worker = store.worker().expect("a worker");
    (0..STEADY).for_each(|key| put(&mut worker, key, 8));
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut worker, mut random) = (store.worker().expect("a worker"), fastrand::Rng::with_seed(7));
            for other in STEADY..STEADY + rounds(base) {
                put(&mut worker, other, 8);
                put(&mut worker, random.u64(0..STEADY), random.usize(0..200));
                if random.bool() {
                    let name = random.u64(STEADY..=other).to_le_bytes();
                    table.remove(&mut worker, K::from_bytes(&name).expect("as above")).expect("sound");
                }
            }
            is_over.store(true, Relaxed);
        });
        let mut sweeps = 0;
        while !is_over.load(Relaxed) || sweeps < 2 {
            let (mut sweep, mut come_to) = (table.sweep().expect("sound"), [0_u8; STEADY as usize]);
            let mut has_more = true;
            while has_more {
                let advanced = table.advance(&mut sweep, |key| {
                    let key = K::with_bytes(key, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
                    if let Some(count) = come_to.get_mut(key as usize) {
                        *count += 1;
                    }
                });
                has_more = advanced.expect("sound");
            }
            assert_eq!(come_to, [1; STEADY as usize]);
            sweeps += 1;
        }
    });
}

#[test]
fn a_sweep_comes_once_to_what_is_there_all_the_while() {
    sweeps_beside_growth::<Inline, _>(NoHtm, 20_000);
    sweeps_beside_growth::<Bytes, _>(NoHtm, 20_000);
    sweeps_beside_growth::<Bytes, _>(tight(2), 2_000);
}
