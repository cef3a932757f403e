//! Several threads: epochs that are held open, and crashes while threads commit.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_testing::rounds;
use drtm_txn::{
    Commit, Db, Durability, Error, Mutation, Pod, Sink, SinkError, Table, TableDef,
    durability::storage::{Fault, Image},
};
use parking_lot::Mutex;

use super::{Sound, builder, open_with, with};

const COUNTS: TableDef<u32, Pod<u64>> = TableDef::hash("counts");

/// The row whose writer is stopped while it commits.
const STOPPED: u32 = 100;

/// Stops a transaction that writes a row to a value above zero, after its locks and before its
/// record.
#[derive(Debug)]
struct Stop {
    reached: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

impl Sink for Stop {
    fn commit(&self, commit: &Commit<'_>) -> Result<(), SinkError> {
        if commit.rows().any(|row| row.key() == STOPPED.to_be_bytes()) {
            self.reached.lock().send(())?;
            self.go_on.lock().recv()?;
        }
        Ok(())
    }
}

struct Stopping {
    db: Db<Sound>,
    disk: Image,
    counts: Table<u32, Pod<u64>>,
    reached: Mutex<Receiver<()>>,
    go_on: Sender<()>,
}

impl Stopping {
    fn new(fault: Option<Mutation>) -> Self {
        let (disk, (reached_in, reached), (go_on, go_on_out)) = (Image::default(), channel(), channel());
        let stop = Stop { reached: Mutex::new(reached_in), go_on: Mutex::new(go_on_out) };
        let builder = with(builder(&disk, Durability::Sync).sink(Arc::new(stop)), fault);
        let db = builder.build_with::<Sound>(NoHtm).expect("a database");
        let counts = db.table(COUNTS).expect("a table");
        Self { db, disk, counts, reached: Mutex::new(reached), go_on }
    }

    fn put(&self, key: u32) -> Result<(), Error> {
        self.db.transact(|tx| tx.put(self.counts, key, &1))
    }
}

fn get(disk: &Image, fault: Option<Mutation>, keys: &[u32]) -> Vec<Option<u64>> {
    let db = open_with(disk, fault).expect("it can be opened");
    let counts = db.table(COUNTS).expect("it is there");
    db.read(|tx| tx.get_many(counts, keys)).expect("memory")
}

/// Commits a transaction that is stopped before its record, while another waits to be durable.
/// Returns whether the first, which was acknowledged, survives a crash that loses everything
/// unsynced.
fn acknowledges_truly(fault: Option<Mutation>) -> bool {
    let test = Stopping::new(fault);
    test.put(0).expect("it is not stopped");
    thread::scope(|scope| {
        let stopped = scope.spawn(|| test.put(STOPPED));
        test.reached.lock().recv().expect("it gets there");
        let other = scope.spawn(|| test.put(1));
        // Without the fault the other transaction waits for the first, however long that takes;
        // with it, it need not.
        thread::sleep(Duration::from_millis(50));
        test.go_on.send(()).expect("it waits for it");
        stopped.join().expect("no panic").expect("it is acknowledged");
        let is_there = get(&test.disk.after_crash(&mut |most| most - 1), None, &[STOPPED]);
        other.join().expect("no panic").expect("it is acknowledged");
        is_there == [Some(1)]
    })
}

#[test]
fn an_epoch_is_not_closed_while_a_transaction_may_commit_in_it() {
    assert!(acknowledges_truly(None));
    assert!((0..10).any(|_| !acknowledges_truly(Some(Mutation::EpochNotPublished))), "the fault is noticed");
}

/// Writes a record in a frame that does not close its epoch, and crashes before the next frame.
/// Reopens the database, commits, and opens it again. Returns whether the record's row has
/// reappeared; `None` if the threads ran in an order without such a record.
fn is_revived(fault: Option<Mutation>) -> Option<bool> {
    let test = Stopping::new(fault);
    test.put(0).expect("it is not stopped");
    let is_late = thread::scope(|scope| {
        // The leader knows only threads that committed before it leads.
        let (begin, begins) = channel();
        let (ready, is_ready) = channel();
        let test = &test;
        let late = scope.spawn(move || {
            test.put(0).and_then(|()| {
                ready.send(()).expect("it waits for it");
                begins.recv().expect("it is told");
                test.put(2)
            })
        });
        is_ready.recv().expect("it commits");
        let stopped = scope.spawn(|| test.put(STOPPED));
        test.reached.lock().recv().expect("it gets there");
        // This thread advances the number, and waits for the epoch of the first.
        let leader = scope.spawn(|| test.put(1));
        thread::sleep(Duration::from_millis(80));
        begin.send(()).expect("it waits for it");
        thread::sleep(Duration::from_millis(80));
        // A write and a sync close the first epoch; the next write finds the machine stopped.
        test.disk.fail_at(test.disk.calls() + 2, Fault::Crash);
        test.go_on.send(()).expect("it waits for it");
        stopped.join().expect("no panic").expect("it is durable");
        leader.join().expect("no panic").expect("it is durable");
        late.join().expect("no panic").is_err()
    });
    if !is_late {
        return None;
    }
    let disk = test.disk.after_crash(&mut |most| most - 1);
    assert_eq!(get(&disk.after_kill(), fault, &[0, 1, STOPPED, 2]), [Some(1), Some(1), Some(1), None]);
    let db = open_with(&disk, fault).expect("it can be opened");
    let counts = db.table(COUNTS).expect("it is there");
    db.transact(|tx| tx.put(counts, 3, &1)).expect("there is no fault");
    let found = get(&disk.after_crash(&mut |most| most - 1), fault, &[0, 1, STOPPED, 3, 2]);
    assert_eq!(found[..4], [Some(1); 4]);
    Some(found[4].is_some())
}

#[test]
fn what_was_void_once_stays_void() {
    assert!((0..3).all(|_| is_revived(None) != Some(true)));
    assert!((0..20).any(|_| is_revived(Some(Mutation::VoidRevived)) == Some(true)), "the fault is noticed");
}

const THREADS: u32 = 4;
const TOTAL: u32 = 99;

/// Each thread increments a row of its own and a shared one, until the machine stops. Returns the
/// acknowledged increments of each thread.
fn count(disk: &Image, durability: Durability) -> Vec<u64> {
    let delay = Duration::from_millis(1);
    let db = builder(disk, durability)
        .flush_within(delay)
        .checkpoint_every(4 << 10)
        .build_with::<Sound>(NoHtm)
        .expect("a database");
    let counts = db.table(COUNTS).expect("a table");
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let db = &db;
                scope.spawn(move || {
                    let mut acknowledged = 0;
                    loop {
                        let counted = db.transact(|tx| {
                            for key in [thread, TOTAL] {
                                let count = tx.get(counts, key)?.unwrap_or(0);
                                tx.put(counts, key, &(count + 1))?;
                            }
                            Ok(())
                        });
                        match counted {
                            Ok(()) => acknowledged += 1,
                            Err(Error::OutcomeUnknown { .. } | Error::Poisoned { .. }) => return acknowledged,
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn counts_survive(durability: Durability, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let disk = Image::default();
    // Opening takes a few calls.
    disk.fail_at(random.u64(20..120), Fault::Crash);
    let acknowledged = count(&disk, durability);
    let disk = disk.after_crash(&mut |most| random.u64(0..most));
    let keys: Vec<u32> = (0..THREADS).chain([TOTAL]).collect();
    let found: Vec<u64> = get(&disk, None, &keys).into_iter().map(Option::unwrap_or_default).collect();
    let (each, total) = found.split_at(THREADS as usize);
    assert_eq!(each.iter().sum::<u64>(), total[0], "no transaction is there in part");
    for (found, acknowledged) in each.iter().zip(&acknowledged) {
        let least = if durability == Durability::Sync { *acknowledged } else { 0 };
        let most = acknowledged + 1;
        assert!((least..=most).contains(found), "{durability:?}, seed {seed}: {found} of {acknowledged}");
    }
}

#[test]
fn threads_that_commit_when_the_machine_stops_lose_nothing_that_was_acknowledged() {
    (0..rounds(20)).for_each(|seed| counts_survive(Durability::Sync, seed));
}

#[test]
fn what_survives_of_commits_that_were_not_waited_for_is_a_prefix() {
    (0..rounds(10)).for_each(|seed| counts_survive(Durability::Async, seed));
}
