//! Threads on one tree, with invariants that any lost, torn, stale or misplaced row would break.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use drtm_htm::{Emulated, Engine, NoHtm};
use drtm_kv::{Bytes, Inline, KvTable, Scan, Store, Tree, TreeKeys, Version};

use crate::support::{AsKey, MIB, each_row, mapped_twice, rounds, store, tight, turn_of, value};

const OWNERS: u64 = 3;

/// Keys of each owner. Every seventh is inserted at first and never removed.
const KEYS: u64 = 400;
const KEPT: u64 = 7;

/// Numbers as keys of some kind, in the same order.
trait Spelling: TreeKeys {
    type Spelled: AsKey<Self>;

    fn spell(number: u64) -> Self::Spelled;

    fn is(spelled: &Self::Spelled, key: Self::Key<'_>) -> bool;
}

impl Spelling for Inline {
    type Spelled = u64;

    fn spell(number: u64) -> u64 {
        number
    }

    fn is(spelled: &u64, key: u64) -> bool {
        *spelled == key
    }
}

impl Spelling for Bytes {
    type Spelled = Vec<u8>;

    /// Twelve keys each share a prefix of up to four slices. The first of them is the prefix; some
    /// are much longer.
    fn spell(number: u64) -> Vec<u8> {
        let (group, member) = (number / 12, number % 12);
        let mut key = group.to_be_bytes()[4..].to_vec();
        key.resize(4 + (group % 26) as usize, b'x');
        key.extend((member > 0).then_some(20 * member as u8));
        key.resize(key.len() + (member % 3) as usize * 5, 0);
        key
    }

    fn is(spelled: &Vec<u8>, key: &[u8]) -> bool {
        spelled == key
    }
}

/// Each key has one owner, which inserts, updates and removes it, and knows its state. All threads
/// read and scan all keys meanwhile.
fn owners_and_scanners<E: Engine, K: Spelling>(stores: &[Store<E>], base: u64) {
    let made = stores[0].tree_of::<K>().expect("a tree");
    let stop = AtomicBool::new(false);
    let mut worker = stores[0].worker().expect("a worker");
    for key in (0..OWNERS * KEYS).filter(|key| (key / OWNERS).is_multiple_of(KEPT)) {
        made.insert(&mut worker, K::spell(key).as_key(), &value(key, 0)).expect("room");
    }
    thread::scope(|scope| {
        let scanners: Vec<_> = (0..2)
            .map(|scanner| {
                let (store, stop) = (&stores[scanner % stores.len()], &stop);
                let tree = store.open_tree::<K>(made.location()).expect("the same tree");
                scope.spawn(move || scan_until_stopped(&tree, stop, scanner as u64))
            })
            .collect();
        let owners: Vec<_> = (0..OWNERS)
            .map(|owner| {
                let store = &stores[owner as usize % stores.len()];
                let tree = store.open_tree::<K>(made.location()).expect("the same tree");
                scope.spawn(move || own_keys(store, &tree, owner, rounds(base)))
            })
            .collect();
        // If an owner panics, the scanners must stop all the same.
        let left: Vec<_> = owners.into_iter().map(|owner| owner.join()).collect();
        stop.store(true, Relaxed);
        let left: u64 = left.into_iter().map(|left| left.expect("no owner panics")).sum();
        let rows: u64 = scanners.into_iter().map(|scanner| scanner.join().expect("no scanner panics")).sum();
        assert!(rows > 0);
        assert_eq!(made.count().expect("sound"), left);
        assert_eq!(in_order(made.range(..), |_| true), left);
        assert_eq!(in_order(made.range_back(..), |_| true), left);
    });
}

/// Returns the number of keys left. Sometimes removes runs of keys, so that leaves become empty.
fn own_keys<E: Engine, K: Spelling>(store: &Store<E>, tree: &Tree<E, K>, owner: u64, turns: u64) -> u64 {
    let mut worker = store.worker().expect("a worker");
    let mut random = fastrand::Rng::with_seed(owner);
    let mut present: Vec<Option<u64>> = (0..KEYS).map(|index| index.is_multiple_of(KEPT).then_some(0)).collect();
    let mut highest = vec![Version::default(); KEYS as usize];
    let mut found = vec![0; 400];
    let (mut from, mut emptying) = (0, false);
    for turn in 0..turns {
        if turn % 200 == 0 {
            (from, emptying) = (random.usize(0..KEYS as usize), random.bool());
        }
        let index =
            if emptying { (from + turn as usize % 200) % KEYS as usize } else { random.usize(0..KEYS as usize) };
        let number = owner + OWNERS * index as u64;
        let spelled = K::spell(number);
        let key = spelled.as_key();
        let expected = present[index];
        let read = tree.get(key, &mut found).expect("sound");
        assert_eq!(read.map(|read| turn_of(&found[..read.length], number)), expected, "key {number}");
        let value = value(number, turn);
        let removes = !(index as u64).is_multiple_of(KEPT) && (emptying || random.u8(0..4) == 0);
        let written = match (expected.is_some(), removes) {
            (false, true) => {
                assert!(tree.update(&mut worker, key, &value).expect("room").is_none());
                assert!(tree.remove(&mut worker, key).expect("sound").is_none());
                continue;
            }
            (false, false) => Some(tree.insert(&mut worker, key, &value).expect("room").expect("it was not there")),
            (true, true) => {
                let removed = tree.remove(&mut worker, key).expect("sound").expect("it was there");
                assert!(removed >= highest[index]);
                None
            }
            (true, false) => {
                assert!(tree.insert(&mut worker, key, &value).expect("room").is_none());
                Some(tree.update(&mut worker, key, &value).expect("room").expect("it was there"))
            }
        };
        if let Some(version) = written {
            assert!(version > highest[index], "versions grow");
            highest[index] = version;
        }
        present[index] = written.map(|_| turn);
    }
    present.iter().flatten().count() as u64
}

fn scan_until_stopped<E: Engine, K: Spelling>(tree: &Tree<E, K>, stop: &AtomicBool, seed: u64) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut rows = 0;
    while !stop.load(Relaxed) {
        let (from, to) = (random.u64(0..OWNERS * KEYS), random.u64(0..OWNERS * KEYS));
        let (from, to) = (from.min(to), from.max(to));
        let spelled = (K::spell(from), K::spell(to));
        let range = spelled.0.as_key()..=spelled.1.as_key();
        rows += match random.u8(0..3) {
            0 => in_order(tree.range(range), |key| (from..=to).contains(&key)),
            1 => in_order(tree.range_back(range), |key| (from..=to).contains(&key)),
            _ => in_order(tree.range(..), |_| true),
        };
    }
    rows
}

/// Returns the number of rows. Asserts that they are ordered, unique, not torn and in range, and
/// contain all permanent ones.
fn in_order<E: Engine, K: Spelling>(mut scan: Scan<'_, E, K>, within: impl Fn(u64) -> bool) -> u64 {
    let mut keys: Vec<u64> = Vec::new();
    each_row(&mut scan, |key, value, _| {
        let (number, _) = value.split_first_chunk().expect("values begin with their key's number");
        let number = u64::from_le_bytes(*number);
        turn_of(value, number);
        assert!(K::is(&K::spell(number), key), "another key's value");
        keys.push(number);
    });
    let rows = keys.len() as u64;
    assert!(keys.is_sorted_by(|a, b| a < b) || keys.is_sorted_by(|a, b| a > b), "out of order: {keys:?}");
    assert!(keys.iter().all(|key| within(*key)));
    keys.sort_unstable();
    for key in (0..OWNERS * KEYS).filter(|key| (key / OWNERS).is_multiple_of(KEPT) && within(*key)) {
        assert!(keys.binary_search(&key).is_ok(), "{key} was always there, and is not in {keys:?}");
    }
    rows
}

#[test]
fn without_regions() {
    owners_and_scanners::<_, Inline>(&[store(NoHtm, 256 * MIB)], 30_000);
}

#[test]
fn of_byte_strings_without_regions() {
    owners_and_scanners::<_, Bytes>(&[store(NoHtm, 256 * MIB)], 30_000);
}

#[test]
fn through_two_mappings() {
    owners_and_scanners::<_, Inline>(&mapped_twice(256 * MIB), 30_000);
}

#[test]
fn of_byte_strings_through_two_mappings() {
    owners_and_scanners::<_, Bytes>(&mapped_twice(256 * MIB), 30_000);
}

#[test]
fn on_an_emulated_engine() {
    owners_and_scanners::<_, Inline>(&[store(Emulated::default(), 256 * MIB)], 3_000);
    owners_and_scanners::<_, Bytes>(&[store(Emulated::default(), 256 * MIB)], 3_000);
}

#[test]
fn on_a_tight_engine() {
    owners_and_scanners::<_, Inline>(&[store(tight(1), 256 * MIB)], 3_000);
    owners_and_scanners::<_, Bytes>(&[store(tight(1), 256 * MIB)], 3_000);
}

/// All threads insert and remove runs of the same few keys. Of all that try to insert a key, one
/// succeeds.
fn contest<K: Spelling>() {
    let store = store(NoHtm, 64 * MIB);
    let tree = store.tree_of::<K>().expect("a tree");
    let balances: Vec<i64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|thread| {
                let (store, tree) = (&store, &tree);
                scope.spawn(move || {
                    let mut worker = store.worker().expect("a worker");
                    let mut random = fastrand::Rng::with_seed(thread);
                    let mut balance = 0;
                    for _ in 0..rounds(1_000) {
                        let from = random.u64(0..100);
                        let inserts = random.bool();
                        for number in from..from + 60 {
                            let spelled = K::spell(number);
                            let (key, value) = (spelled.as_key(), vec![number as u8; 8 + random.usize(0..2) * 300]);
                            if inserts {
                                balance += i64::from(tree.insert(&mut worker, key, &value).expect("room").is_some());
                            } else {
                                balance -= i64::from(tree.remove(&mut worker, key).expect("sound").is_some());
                            }
                        }
                    }
                    balance
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut keys = Vec::new();
    let mut scan = tree.range(..);
    while let Some(row) = scan.next().expect("sound") {
        let number = row.value[0];
        assert!(row.value.iter().all(|byte| *byte == number));
        assert!(K::is(&K::spell(u64::from(number)), row.key), "another key's value");
        keys.push(number);
    }
    assert!(keys.is_sorted_by(|a, b| a < b));
    assert_eq!(balances.iter().sum::<i64>(), keys.len() as i64);
    assert_eq!(tree.count().expect("sound"), keys.len() as u64);
}

#[test]
fn contested() {
    contest::<Inline>();
}

#[test]
fn contested_byte_strings() {
    contest::<Bytes>();
}

/// Nothing leaks: a window of keys that moves upward empties leaves at one end and creates them at
/// the other.
#[test]
fn churn_needs_no_more_memory_after_a_while() {
    let store = store(NoHtm, 256 * MIB);
    let tree = store.tree().expect("a tree");
    let mut next = 0;
    let mut churn = |tree: &Tree<NoHtm>| {
        thread::scope(|scope| {
            for thread in 0..2_u64 {
                let store = &store;
                scope.spawn(move || {
                    let mut worker = store.worker().expect("a worker");
                    let mut random = fastrand::Rng::with_seed(thread);
                    for key in (next..next + rounds(20_000)).filter(|key| key % 2 == thread) {
                        tree.insert(&mut worker, key, &vec![1; random.usize(0..200)]).expect("room");
                        if key >= 3_000 {
                            tree.remove(&mut worker, key - 3_000).expect("sound").expect("it was there");
                        }
                    }
                });
            }
        });
        next += rounds(20_000);
        store.region().allocated()
    };
    let settled = (0..5).map(|_| churn(&tree)).max().expect("five rounds");
    let later = (5..15).map(|_| churn(&tree)).max().expect("ten rounds");
    assert!(later <= settled + settled / 10, "grew from {settled} to {later} bytes");
    assert_eq!(tree.count().expect("sound"), 3_000);
    let mut scan = tree.range(..);
    while scan.next().expect("sound").is_some() {}
    assert!(scan.passed().len() < 1_000, "{} leaves for 3000 keys", scan.passed().len());
}

/// Nothing leaks with byte strings either: prefixes of every length are inserted and removed, with
/// the layers below them.
#[test]
fn churn_of_prefixes_needs_no_more_memory_after_a_while() {
    let store = store(NoHtm, 256 * MIB);
    let tree = store.tree_of::<Bytes>().expect("a tree");
    let mut round = 0;
    let mut churn = || {
        round += 1;
        thread::scope(|scope| {
            for thread in 0..2_u8 {
                let (store, tree) = (&store, &tree);
                scope.spawn(move || {
                    let mut worker = store.worker().expect("a worker");
                    let mut random = fastrand::Rng::with_seed(2 * round + u64::from(thread));
                    for _ in 0..rounds(60) {
                        // Both threads' keys share the prefix and what follows it.
                        let (length, byte) = (random.usize(0..120), random.u8(0..4));
                        let keys: Vec<_> = (0..random.u8(1..80))
                            .map(|number| [vec![byte; length], vec![number % 3; 9], vec![number, thread]].concat())
                            .collect();
                        for key in &keys {
                            let value = vec![1; random.usize(0..40)];
                            assert!(tree.insert(&mut worker, key, &value).expect("room").is_some());
                        }
                        for key in &keys {
                            assert!(tree.remove(&mut worker, key).expect("sound").is_some());
                        }
                    }
                });
            }
        });
        let mut scan = tree.range(..);
        assert!(scan.next().expect("sound").is_none());
        assert_eq!(scan.passed().len(), 1, "an empty tree is one empty leaf");
        store.region().allocated()
    };
    let settled = (0..5).map(|_| churn()).max().expect("five rounds");
    let later = (5..25).map(|_| churn()).max().expect("twenty rounds");
    assert!(later <= settled + settled / 10, "grew from {settled} to {later} bytes");
    assert_eq!(tree.count().expect("sound"), 0);
}
