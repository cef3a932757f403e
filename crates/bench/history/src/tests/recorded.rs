//! Records of running threads, on a correct store and on two broken ones.

use std::{collections::BTreeMap, sync::Mutex, thread};

use super::super::*;

const KEYS: u64 = 16;

/// Versions by key.
type Table = Mutex<BTreeMap<u64, u64>>;

/// A fault of the store.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Other transactions may run between a transaction's reads and its writes.
    LetsGo,
    /// Reads use a copy that is refreshed now and then.
    IsLate,
}

/// Runs four threads that move, put and remove rows.
fn run(fault: Fault) -> History<u64> {
    let table: &Table = &Mutex::default();
    let old: &Table = &Mutex::default();
    let mut recorder = Recorder::start();
    let logs = [(); 4].map(|()| recorder.log().expect("four logs"));
    let logs = thread::scope(|scope| {
        let mut seed = 0;
        let threads = logs.map(|mut log| {
            seed += 1;
            let mut random = fastrand::Rng::with_seed(seed);
            scope.spawn(move || {
                for turn in 0..500 {
                    if turn % 50 == 0 {
                        old.lock().expect("no thread panics").clone_from(&table.lock().expect("no thread panics"));
                    }
                    transact(&mut log, &mut random, if fault == Fault::IsLate { old } else { table }, table, fault);
                }
                log
            })
        });
        threads.map(|thread| thread.join().expect("no thread panics"))
    });
    History::of(logs)
}

fn transact(log: &mut Log<u64>, random: &mut fastrand::Rng, read: &Table, write: &Table, fault: Fault) {
    let mut recording = log.begin();
    if random.u8(..20) == 0 {
        recording.write(0, random.u64(..KEYS), u64::MAX);
        recording.retry();
    }
    let (first, second) = (random.u64(..KEYS), random.u64(..KEYS));
    let start = random.u64(..KEYS);
    // The guards are taken one after the other, because both keys can be the same.
    let guard = (fault == Fault::None).then(|| write.lock().expect("no thread panics"));
    let seen: BTreeMap<u64, u64> = match &guard {
        Some(rows) => (*rows).clone(),
        None => read.lock().expect("no thread panics").clone(),
    };
    recording.read(0, first, seen.get(&first).copied());
    recording.read(0, second, seen.get(&second).copied());
    recording.scan(0, start..start + 4, seen.range(start..start + 4).map(|(key, version)| (*key, *version)));
    if fault == Fault::LetsGo {
        thread::yield_now();
    }
    let mut rows = guard.unwrap_or_else(|| write.lock().expect("no thread panics"));
    let version = recording.version();
    recording.write(0, first, version);
    rows.insert(first, version);
    if second != first && rows.contains_key(&second) && random.bool() {
        let version = recording.version();
        recording.remove(0, second, version);
        rows.remove(&second);
    }
    drop(rows);
    recording.commit();
}

#[test]
fn a_store_that_is_right_is_clean() {
    let history = run(Fault::None);
    assert!(history.transactions.iter().filter(|one| one.outcome == Outcome::Committed).count() == 2_000);
    assert!(history.transactions.iter().any(|one| one.outcome == Outcome::Aborted));
    assert_eq!(check(&history, Order::RealTime), Ok(vec![]));
}

#[test]
fn stores_that_are_wrong_are_found() {
    for fault in [Fault::LetsGo, Fault::IsLate] {
        let found = check(&run(fault), Order::RealTime).expect("it is recorded as it should be");
        assert!(found.iter().any(|anomaly| matches!(anomaly, Anomaly::Cycle(_))), "{:?}", found.first());
    }
}

#[test]
fn versions_are_unique_and_grow() {
    let mut recorder = Recorder::start();
    let mut logs: Vec<Log<u64>> = (0..3).map(|_| recorder.log().expect("three logs")).collect();
    let mut versions = Vec::new();
    for turn in 0..3_000 {
        // The next log may have a lower number than the last.
        versions.push(logs[(turn * 2) % 3].begin().version());
    }
    assert!(versions.is_sorted_by(|one, next| one < next));
}

#[test]
fn transactions_of_one_thread_follow_each_other() {
    let mut log = Recorder::start().log::<u64>().expect("one log");
    for _ in 0..1_000 {
        log.begin().commit();
    }
    let history = History::of([log]);
    let times: Vec<u64> = history.transactions.iter().flat_map(|one| [one.invoked, one.responded]).collect();
    assert!(times.is_sorted_by(|one, next| one < next));
}

#[test]
fn a_retry_before_the_first_operation_is_none() {
    let mut log = Recorder::start().log().expect("one log");
    let mut recording = log.begin();
    recording.retry();
    recording.write(0, 1, 1);
    recording.retry();
    recording.write(0, 1, 2);
    recording.abort();
    let outcomes: Vec<_> = History::of([log]).transactions.iter().map(|one| one.outcome).collect();
    assert_eq!(outcomes, [Outcome::Aborted, Outcome::Aborted]);
}

/// A store may begin the next run of a closure, and take its snapshot, before it calls the closure.
#[test]
fn a_retried_run_is_recorded_from_before_its_snapshot() {
    let mut recorder = Recorder::start();
    let [mut one, mut other] = [(); 2].map(|()| recorder.log().expect("two logs"));
    let mut first = other.begin();
    first.write(0, 1, 1);
    first.commit();
    let mut reading = one.begin();
    reading.read(0, 1, Some(1));
    // The run fails, the store takes a snapshot for the next one, and another transaction commits.
    let mut writing = other.begin();
    writing.read(0, 1, Some(1));
    writing.write(0, 1, 2);
    writing.commit();
    reading.retry();
    reading.read(0, 1, Some(1));
    reading.commit();
    assert_eq!(check(&History::of([one, other]), Order::RealTime), Ok(vec![]));
}
