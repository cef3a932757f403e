//! Soaks: keys are inserted, removed and resized continuously, and workers come and go. After a
//! warm-up, memory must not grow, neither the region's nor the process's. It is a program of its
//! own, because all tests of a program share its memory.
#![cfg(all(not(feature = "model"), target_os = "linux"))]

#[path = "suite/support.rs"]
#[expect(dead_code, reason = "some of what the suite shares is not needed here")]
mod support;
#[path = "suite/tables.rs"]
mod tables;
#[path = "suite/visit.rs"]
mod visit;

use std::{fs, thread};

use drtm_htm::NoHtm;
use drtm_kv::{HashConfig, Store};
use support::{MIB, rounds, store, turn_of, value};
use tables::Table;

const THREADS: u64 = 3;

/// Keys of a thread, of which about half are present.
const KEYS: u64 = 4_000;

/// Operations of a thread in a phase.
const PHASE: u64 = 25_000;

/// Operations after which a worker is replaced.
const WORKER: u64 = 1_500;

/// The phases of the warm-up, and those after it.
const SETTLING: u64 = 6;
const SETTLED: u64 = 6;

/// A thread's knowledge of its keys: the turn of each present one.
type Known = Vec<Option<u64>>;

/// One thread's phase.
fn churn<T: Table>(store: &Store<NoHtm>, table: &T, thread: u64, phase: u64, known: &mut Known) {
    let mut random = fastrand::Rng::with_seed(phase * THREADS + thread);
    let mut worker = store.worker().expect("a worker");
    let mut found = [0; 400];
    for turn in 0..rounds(PHASE) {
        if turn % WORKER == WORKER - 1 {
            worker = store.worker().expect("a worker");
        }
        let index = random.usize(0..known.len());
        let key = thread + THREADS * index as u64;
        match random.u8(0..8) {
            0..3 => {
                let removed = table.remove(&mut worker, key).expect("sound");
                assert_eq!(removed.is_some(), known[index].take().is_some(), "key {key}");
            }
            3..6 => {
                let value = value(key, turn);
                let written = match known[index].replace(turn) {
                    Some(_) => table.update(&mut worker, key, &value),
                    None => table.insert(&mut worker, key, &value),
                };
                assert!(written.expect("room").is_some(), "key {key}");
            }
            _ => {
                let read = table.get(key, &mut found).expect("sound");
                assert_eq!(read.map(|read| turn_of(&found[..read.length], key)), known[index], "key {key}");
            }
        }
    }
}

/// Returns this process's resident bytes.
fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").expect("this is Linux");
    let pages: u64 = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * rustix::param::page_size() as u64
}

fn soak<T: Table>(make: impl Fn(&Store<NoHtm>) -> T) {
    let store = store(NoHtm, 512 * MIB);
    let table = make(&store);
    let mut known: Vec<Known> = vec![vec![None; KEYS as usize]; THREADS as usize];
    let mut phase = |phase: u64| {
        thread::scope(|scope| {
            for (thread, known) in (0..).zip(&mut known) {
                let (store, table) = (&store, &table);
                scope.spawn(move || churn(store, table, thread, phase, known));
            }
        });
        let there = known.iter().flatten().flatten().count();
        let down = phase.is_multiple_of(2);
        let all = table.all(down).expect("sound");
        all.iter().for_each(|(key, value)| _ = turn_of(value, *key));
        let keys: Vec<u64> = all.iter().map(|(key, _)| *key).collect();
        assert!(T::is_right_order(&keys, down));
        assert_eq!((table.count().expect("sound"), keys.len()), (there as u64, there));
        (store.region().allocated(), resident())
    };
    let (region, process) = (0..SETTLING).map(&mut phase).last().expect("some phases");
    for number in SETTLING..SETTLING + SETTLED {
        let (region_now, process_now) = phase(number);
        // A few spans of 64 KiB, of size classes that had fewer objects until now.
        assert!(
            region_now <= region + region / 20 + MIB / 2,
            "phase {number}: the region went from {region} to {region_now} bytes"
        );
        // Four huge pages, some of which the system may allocate at any time.
        assert!(
            process_now <= process + 8 * MIB,
            "phase {number}: the process went from {process} to {process_now} bytes"
        );
    }
}

/// One test for both, because both measure the process's memory.
#[test]
#[ignore = "a soak: scripts/test --all runs it"]
fn memory_stays_what_it_was() {
    soak(|store| store.hash_table(HashConfig::default()).expect("a table"));
    soak(|store| store.tree().expect("a tree"));
}
