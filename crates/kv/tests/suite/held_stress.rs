//! Threads run record operations of transactions on few keys, which come, go, move and have older
//! versions. No count may be lost, and every read must return the value of the reported version.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use drtm_htm::{Engine, NoHtm};
use drtm_kv::{
    Bytes, ForHolder, HashConfig, Inline, KvTable, Locking, Past, Placed, ReadEntry, Store, Version, Worker,
};

use crate::{
    support::{MIB, Numbered, mapped_twice, rounds, store, tight},
    transacted::Transacted,
};

const KEYS: u16 = 6;
const HEADER: usize = 24;

/// Returns a value that contains its key, its version, and a count. Key and version determine its
/// length and its other bytes.
fn value(key: u16, version: Version, count: u64) -> Vec<u8> {
    let mut value = Vec::new();
    value.extend(u64::from(key).to_le_bytes());
    value.extend(version.number().to_le_bytes());
    value.extend(count.to_le_bytes());
    value.extend((0..filler(key, version)).map(|at| (u64::from(key) + version.number() + at) as u8));
    value
}

fn filler(key: u16, version: Version) -> u64 {
    (u64::from(key) * 7 + version.number() * 13) % 300
}

/// Returns the count in a value. Asserts that it is not torn, and is of this key and version.
fn count_of(found: &[u8], key: u16, version: Version) -> u64 {
    let count = u64::from_le_bytes(found[16..HEADER].try_into().expect("eight bytes"));
    assert!(found == value(key, version, count), "a mix, or another version than {version:?} of key {key}");
    count
}

/// The results of a thread.
#[derive(Debug, Default)]
struct Done {
    counted: u64,
    /// The counts of rows that it has removed.
    removed: u64,
    /// Reads of older versions.
    looks_back: u64,
}

struct Hand<'t, E: Engine, T> {
    store: &'t Store<E>,
    table: &'t T,
    worker: Worker<E>,
    random: fastrand::Rng,
    highest: [Version; KEYS as usize],
    done: Done,
}

impl<E: Engine, T> Hand<'_, E, T> {
    /// Locks a record if it is unchanged since it was read.
    fn lock(&self, seen: ReadEntry) -> bool {
        let records = self.store.records();
        match records.lock(seen.at, self.worker.holder()).expect("sound") {
            Locking::Taken { version, .. } if version == seen.version => true,
            Locking::Taken { .. } => {
                records.unlock(seen.at);
                false
            }
            Locking::Mine { .. } | Locking::Held(_) | Locking::Gone => false,
        }
    }

    /// Frees versions that are too old, and may keep the current one.
    fn settle(&mut self, seen: ReadEntry) {
        let records = self.store.records();
        let oldest = seen.version.number().saturating_sub(4);
        records.forget(&mut self.worker, seen.at, |_, until| until.number() > oldest).expect("sound");
        let may_take = self.random.u8(0..8) > 0;
        let is_kept = seen.is_present() && self.random.u8(0..4) > 0;
        if is_kept {
            let _ = records.keep(&mut self.worker, seen.at, may_take).expect("sound");
        }
    }

    fn turn<K: Numbered>(&mut self)
    where
        T: Transacted<E, K>,
    {
        let key = self.random.u16(0..KEYS);
        let (me, mut found) = (self.worker.holder(), Vec::new());
        let seen = match K::with(key, |key| self.table.fetch(key, me, &mut found)).expect("sound") {
            Ok(seen) => seen,
            Err(place) => {
                let placed =
                    K::with(key, |key| self.table.place::<ForHolder>(&mut self.worker, key, &[7; 40], None, |_| ()));
                let placed = placed.expect("room");
                if let Placed::Made(_) = placed {
                    assert!(!self.store.records().is_unchanged(&place), "a record has come where nothing has changed");
                }
                return;
            }
        };
        assert!(seen.version >= self.highest[usize::from(key)], "time goes back for key {key}");
        self.highest[usize::from(key)] = seen.version;
        let count = if seen.is_present() { count_of(&found, key, seen.version) } else { 0 };
        match self.random.u8(0..8) {
            0..4 => {
                if self.lock(seen) {
                    self.settle(seen);
                    let next = seen.version.next();
                    let value = value(key, next, count + 1);
                    K::with(key, |key| self.table.write(&mut self.worker, key, seen.at, next, &value)).expect("room");
                    self.done.counted += 1;
                }
            }
            4 if seen.is_present() => {
                if self.lock(seen) {
                    self.settle(seen);
                    let gone = ReadEntry { version: seen.version.next().as_removed(), ..seen };
                    self.store.records().publish(gone.at, gone.version).expect("sound");
                    self.done.removed += count;
                    K::with(key, |key| self.table.reap(&mut self.worker, key, gone, || ())).expect("sound");
                }
            }
            5 if !seen.is_present() => drop(K::with(key, |key| self.table.reap(&mut self.worker, key, seen, || ()))),
            _ => self.look_back::<K>(key, seen.version),
        }
    }

    fn look_back<K: Numbered>(&mut self, key: u16, before: Version)
    where
        T: Transacted<E, K>,
    {
        let mut found = Vec::new();
        if let Past::Present(version) =
            K::with(key, |key| self.table.fetch_past(key, before, &mut found)).expect("sound")
        {
            assert!(version.number() < before.number());
            count_of(&found, key, version);
            self.done.looks_back += 1;
        }
    }
}

fn counters<E: Engine, K: Numbered, T: Transacted<E, K>>(sides: &[(&Store<E>, &T)], base: u64) {
    let is_over = &AtomicBool::new(false);
    let hand = |thread: usize| {
        let (store, table) = sides[thread % sides.len()];
        let random = fastrand::Rng::with_seed(thread as u64);
        Hand {
            store,
            table,
            worker: store.worker().expect("a worker"),
            random,
            highest: Default::default(),
            done: Done::default(),
        }
    };
    let done = thread::scope(|scope| {
        let readers: Vec<_> = (0..1)
            .map(|thread| {
                scope.spawn(move || {
                    let mut hand = hand(10 + thread);
                    while !is_over.load(Relaxed) {
                        let (key, before) = (hand.random.u16(0..KEYS), hand.random.u64(0..rounds(base)));
                        hand.look_back::<K>(key, Version::new(before));
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (0..3)
            .map(|thread| {
                scope.spawn(move || {
                    let mut hand = hand(thread);
                    (0..rounds(base)).for_each(|_| hand.turn::<K>());
                    hand.done
                })
            })
            .collect();
        let done: Vec<Done> = writers.into_iter().map(|writer| writer.join().expect("no writer panics")).collect();
        is_over.store(true, Relaxed);
        readers.into_iter().for_each(|reader| reader.join().expect("no reader panics"));
        done
    });
    let (store, table) = sides[0];
    let (me, mut left, mut found) = (store.worker().expect("a worker").holder(), 0, Vec::new());
    for key in 0..KEYS {
        if let Ok(seen) = K::with(key, |key| table.fetch(key, me, &mut found)).expect("sound")
            && seen.is_present()
        {
            left += count_of(&found, key, seen.version);
        }
    }
    let sum = |part: fn(&Done) -> u64| done.iter().map(part).sum::<u64>();
    assert_eq!(left + sum(|done| done.removed), sum(|done| done.counted), "what was counted is lost");
    assert!(sum(|done| done.counted) > 0 && sum(|done| done.looks_back) > 0, "nothing was tried: {done:?}");
}

#[test]
fn in_a_hash_table() {
    let store = store(NoHtm, 256 * MIB);
    let table = store.hash_table_of::<Inline>(HashConfig::default()).expect("a table");
    counters(&[(&store, &table)], 30_000);
}

#[test]
fn in_a_hash_table_of_byte_strings_through_two_mappings() {
    let [one, other] = mapped_twice(256 * MIB);
    let table = one.hash_table_of::<Bytes>(HashConfig::default()).expect("a table");
    let again = other.open_hash_table::<Bytes>(table.location()).expect("the same table");
    // Workers of two stores have distinct lock names only if they are numbered apart.
    drop((0..100).map(|_| other.worker().expect("a worker")).collect::<Vec<_>>());
    counters(&[(&one, &table), (&other, &again)], 30_000);
}

#[test]
fn in_a_hash_table_with_regions_that_often_fail() {
    let store = store(tight(1), 256 * MIB);
    let table = store.hash_table_of::<Inline>(HashConfig::default()).expect("a table");
    counters(&[(&store, &table)], 4_000);
}

#[test]
fn in_a_tree() {
    let store = store(NoHtm, 256 * MIB);
    let tree = store.tree_of::<Inline>().expect("a tree");
    counters(&[(&store, &tree)], 30_000);
}

#[test]
fn in_a_tree_of_byte_strings() {
    let store = store(NoHtm, 256 * MIB);
    let tree = store.tree_of::<Bytes>().expect("a tree");
    counters(&[(&store, &tree)], 30_000);
}
