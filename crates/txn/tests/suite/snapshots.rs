//! Snapshots: each is one moment, whatever happens meanwhile, and no version is kept longer than
//! needed.

use std::{
    sync::atomic::{
        AtomicBool, AtomicU64, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
    time::{Duration, Instant},
};

use drtm_htm::{Emulated, EmulatedConfig, NoHtm};
use drtm_testing::rounds;
use drtm_txn::{Builder, Config, Db, Error, Hash, Mode, Ordered, Pod, Raw, Serde, Table, TableDef, Tx};
use proptest::prelude::*;

use crate::On;

fn plain() -> Db<On<NoHtm>> {
    Builder::new().memory(64 << 20).build_with(NoHtm).expect("a database")
}

fn with_regions() -> Db<On<Emulated>> {
    let engine = Emulated::new(EmulatedConfig::default()).expect("an engine");
    Builder::new().memory(64 << 20).build_with(engine).expect("a database")
}

const BY_HASH: TableDef<u64, Serde<(i64, String)>> = TableDef::hash("by hash");
const IN_ORDER: TableDef<u64, Serde<(i64, String)>, Ordered> = TableDef::ordered("in order");
const BY_NAME: TableDef<String, Serde<(i64, String)>, Ordered> = TableDef::ordered("by name");

type Row = (i64, String);

/// The number of ways to read all rows.
const WAYS: usize = 6;

#[derive(Clone, Copy)]
struct Tables {
    by_hash: Table<u64, Serde<Row>, Hash>,
    in_order: Table<u64, Serde<Row>, Ordered>,
    by_name: Table<String, Serde<Row>, Ordered>,
}

impl Tables {
    fn of<S: Config>(db: &Db<S>) -> Self {
        let error = "there is room for tables";
        Self {
            by_hash: db.table(BY_HASH).expect(error),
            in_order: db.table(IN_ORDER).expect(error),
            by_name: db.table(BY_NAME).expect(error),
        }
    }

    /// Writes a key's amount to all tables, or removes the key for zero. The text gives rows all
    /// lengths.
    fn set<S: Config>(self, tx: &mut Tx<'_, S>, key: u64, amount: i64) -> Result<(), Error> {
        let name = format!("account number {key}");
        if amount == 0 {
            tx.remove(self.by_hash, key)?;
            tx.remove(self.in_order, key)?;
            tx.remove(self.by_name, &name)?;
            return Ok(());
        }
        let row = (amount, "x".repeat(amount.unsigned_abs() as usize % 300));
        tx.put(self.by_hash, key, &row)?;
        tx.put(self.in_order, key, &row)?;
        tx.put(self.by_name, &name, &row)
    }

    fn amount<S: Config, M: Mode>(self, tx: &Tx<'_, S, M>, key: u64) -> Result<i64, Error> {
        Ok(tx.get(self.by_hash, key)?.map_or(0, |row| row.0))
    }

    /// Returns the sum of all accounts, from each table, by each way to read.
    fn sums<S: Config, M: Mode>(self, tx: &Tx<'_, S, M>, keys: u64) -> Result<[i64; WAYS], Error> {
        let mut by_key = 0;
        for key in 0..keys {
            by_key += self.amount(tx, key)?;
        }
        let all: Vec<_> = (0..keys).collect();
        let many = tx.get_many(self.by_hash, &all)?.into_iter().flatten().map(|row| row.0).sum();
        let mut each = 0;
        tx.range(self.in_order, ..)?.view_each(|_, row| {
            each += row.0;
        })?;
        let up = tx.range(self.in_order, ..)?.rows().map(|row| Ok(row?.1.0)).sum::<Result<_, Error>>()?;
        let down = tx.range(self.in_order, ..)?.rev().rows().map(|row| Ok(row?.1.0)).sum::<Result<_, Error>>()?;
        let named = tx.range(self.by_name, ..)?.rows().map(|row| Ok(row?.1.0)).sum::<Result<_, Error>>()?;
        Ok([by_key, many, each, up, down, named])
    }
}

/// Writers move money between accounts, which come and go; every reader sees the same sum.
fn money_is_neither_made_nor_lost<S: Config>(db: &Db<S>) {
    const KEYS: u64 = 12;
    const TOTAL: i64 = 40;
    let tables = Tables::of(db);
    db.transact(|tx| tables.set(tx, 0, TOTAL)).expect("room");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(writer);
                    for _ in 0..rounds(2_000) {
                        let (from, to) = (random.u64(0..KEYS), random.u64(0..KEYS));
                        if from == to {
                            continue;
                        }
                        let moved = db.transact(|tx| {
                            let (has, other) = (tables.amount(tx, from)?, tables.amount(tx, to)?);
                            let moved = random.i64(0..=has.min(25));
                            tables.set(tx, from, has - moved)?;
                            tables.set(tx, to, other + moved)
                        });
                        moved.expect("there is room");
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !is_over.load(Relaxed) || reads < 50 {
                let sums = db.read(|tx| tables.sums(tx, KEYS)).expect("nothing is forgotten");
                assert_eq!(sums, [TOTAL; WAYS]);
                let long = db.snapshot().expect("a slot");
                let one = (0..KEYS).map(|key| tables.amount(&long, key).expect("kept")).collect::<Vec<_>>();
                std::thread::yield_now();
                let two = (0..KEYS).map(|key| tables.amount(&long, key).expect("kept")).collect::<Vec<_>>();
                assert_eq!(one, two);
                assert_eq!(tables.sums(&long, KEYS).expect("kept"), [TOTAL; WAYS]);
                reads += 1;
            }
        });
        for writer in writers {
            writer.join().expect("no panic");
        }
        is_over.store(true, Relaxed);
        reader.join().expect("no panic");
    });
    // Without open snapshots, old versions are freed soon.
    for key in 0..KEYS {
        for _ in 0..40 {
            db.transact(|tx| tables.amount(tx, key).and_then(|amount| tables.set(tx, key, amount))).expect("room");
        }
    }
    assert_eq!(db.read(|tx| tables.sums(tx, KEYS)).expect("it can be read"), [TOTAL; WAYS]);
    assert_eq!(db.older_versions(), 0);
}

#[test]
fn readers_see_one_moment_without_regions() {
    money_is_neither_made_nor_lost(&plain());
}

#[test]
fn readers_see_one_moment_with_regions() {
    money_is_neither_made_nor_lost(&with_regions());
}

#[test]
fn what_does_not_fit_is_forgotten_and_the_reader_is_told() {
    const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    let db = Builder::new().memory(64 << 20).older_versions(1_000).build().expect("a database");
    let notes = db.table(NOTES).expect("a table");
    db.transact(|tx| (0..100).try_for_each(|key| tx.put(notes, key, &[1; 100]))).expect("room");
    let snapshot = db.snapshot().expect("a slot");
    db.transact(|tx| (0..100).try_for_each(|key| tx.put(notes, key, &[2; 100]))).expect("writers are not told");
    let read: Vec<_> = (0..100).map(|key| snapshot.get(notes, key)).collect();
    let kept = read.iter().filter(|row| matches!(row, Ok(Some(note)) if note[0] == 1)).count();
    let forgotten = read.iter().filter(|row| matches!(row, Err(Error::SnapshotTooOld { table: "notes" }))).count();
    assert!(kept > 0 && forgotten > 0 && kept + forgotten == 100, "{kept} kept, {forgotten} forgotten");
    assert!(matches!(snapshot.get_many(notes, Vec::from_iter(0..100)), Err(Error::SnapshotTooOld { table: "notes" })));
    drop(snapshot);
    let now = db.snapshot().expect("a slot").get(notes, 7).expect("no thread has written since");
    assert_eq!(now, Some(vec![2; 100]));
}

#[test]
fn a_range_is_told_where_something_has_been_forgotten() {
    const NOTES: TableDef<u64, Raw, Ordered> = TableDef::ordered("notes");
    let db = Builder::new().memory(64 << 20).older_versions(1_000).build().expect("a database");
    let notes = db.table(NOTES).expect("a table");
    db.transact(|tx| (0..100).try_for_each(|key| tx.put(notes, key, &[1; 100]))).expect("room");
    let snapshot = db.snapshot().expect("a slot");
    // In the order of keys, so that no budget is left for the last ones.
    for key in 50..100 {
        db.transact(|tx| tx.put(notes, key, &[2; 100])).expect("writers are not told");
    }
    let mut seen = Vec::new();
    let read = snapshot.range(notes, ..).expect("it is this database's").view_each(|key, note| {
        seen.push((key, note[0]));
    });
    assert!(matches!(read, Err(Error::SnapshotTooOld { table: "notes" })), "{read:?}");
    let known = seen.len() as u64;
    assert!((51..100).contains(&known), "{known} rows were known");
    assert!(seen.into_iter().eq((0..known).map(|key| (key, 1))));
}

#[test]
fn what_is_forgotten_takes_no_memory() {
    const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    let db = Builder::new().memory(64 << 20).older_versions(1_000).build().expect("a database");
    let notes = db.table(NOTES).expect("a table");
    let set = |key: u64, byte: u8| db.transact(|tx| tx.put(notes, key, &[byte; 500])).expect("writers are not told");
    (1..=2).for_each(|key| set(key, 0));
    // So many that there is no room for the old versions of one row.
    let mut open = Vec::new();
    for byte in 1..20 {
        open.push(db.snapshot().expect("a slot"));
        set(1, byte);
        assert!(db.older_versions() <= 1_600);
    }
    assert!(matches!(open[0].get(notes, 1), Err(Error::SnapshotTooOld { table: "notes" })));
    drop(open);
    set(1, 20);
    assert_eq!(db.older_versions(), 0, "no reader asks for it, nor finds it");
    let snapshot = db.snapshot().expect("a slot");
    set(2, 1);
    assert_eq!(snapshot.get(notes, 2).expect("there is room again"), Some(vec![0; 500]));
}

#[test]
fn there_is_one_older_version_for_each_open_snapshot() {
    const COUNTERS: TableDef<u64, Raw> = TableDef::hash("counters");
    let db = plain();
    let counters = db.table(COUNTERS).expect("a table");
    let set = |byte: u8| db.transact(|tx| tx.put(counters, 1, &[byte; 64])).expect("room");
    set(0);
    let first = db.snapshot().expect("a slot");
    set(1);
    let one = db.older_versions();
    assert!(one > 0);
    // Later snapshots leave nothing behind, however long the first stays open.
    for byte in 2..50 {
        let passing = db.snapshot().expect("a slot");
        set(byte);
        assert_eq!(passing.get(counters, 1).expect("kept"), Some(vec![byte - 1; 64]));
        assert!(db.older_versions() <= 2 * one);
    }
    assert_eq!(first.get(counters, 1).expect("kept"), Some(vec![0; 64]));
    drop(first);
    set(99);
    assert_eq!(db.older_versions(), 0);
}

/// Far more snapshots than writers track individually: each sees its own moment, and nothing is
/// kept afterwards.
#[test]
fn snapshots_do_not_run_out() {
    const SNAPSHOTS: u8 = 250;
    let db = plain();
    let numbers = db.table(NUMBERS).expect("a table");
    let set = |value: u8| db.transact(|tx| (0..3).try_for_each(|key| tx.put(numbers, key, &[value]))).expect("room");
    let mut open: Vec<_> = (0..SNAPSHOTS)
        .map(|value| {
            set(value);
            (value, db.snapshot().expect("memory"))
        })
        .collect();
    set(SNAPSHOTS);
    assert_eq!(db.snapshot_count().expect("sound"), u64::from(SNAPSHOTS));
    // They end in random order.
    let mut random = fastrand::Rng::with_seed(5);
    while !open.is_empty() {
        for (value, snapshot) in &mut open {
            for key in 0..3 {
                assert_eq!(snapshot.get(numbers, key).expect("kept"), Some(vec![*value]), "row {key}");
            }
        }
        for _ in 0..open.len().min(10) {
            open.swap_remove(random.usize(..open.len()));
        }
        set(SNAPSHOTS);
    }
    set(SNAPSHOTS);
    assert_eq!((db.older_versions(), db.snapshot_count().expect("sound")), (0, 0));
}

/// Four hundred long readers at once, beside writers: none fails, and each sees one moment, not
/// before its beginning.
#[test]
fn four_hundred_readers_at_once() {
    const ROWS: u64 = 1_500;
    const READERS: usize = 400;
    let db = plain();
    let numbers = db.table(TableDef::<u64, Pod<u64>, Ordered>::ordered("numbers")).expect("a table");
    let set = |value: u64| (0..ROWS).step_by(250).map(move |key| (key, value));
    db.transact(|tx| (0..ROWS).try_for_each(|key| tx.put(numbers, key, &0))).expect("room");
    let (written, inside) = (AtomicU64::new(0), AtomicUsize::new(0));
    let late = Instant::now() + Duration::from_secs(60);
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                let mut is_first = true;
                let acknowledged = written.load(Acquire);
                let seen = db.read(|tx| {
                    let mut seen = None;
                    tx.range(numbers, ..)?.view_each(|key, value| {
                        if key % 250 == 0 {
                            assert_eq!(*seen.get_or_insert(value), value, "a transaction in part");
                        }
                    })?;
                    // All have read more than fits into a validated transaction, and none ends
                    // before all have.
                    if std::mem::take(&mut is_first) {
                        inside.fetch_add(1, Relaxed);
                    }
                    while inside.load(Relaxed) < READERS && Instant::now() < late {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    Ok(seen)
                });
                let seen = seen.expect("a reader never fails").expect("there are rows");
                assert!(seen >= acknowledged, "what was acknowledged is not there");
            });
        }
        scope.spawn(|| {
            for value in 1..=200 {
                db.transact(|tx| set(value).try_for_each(|(key, value)| tx.put(numbers, key, &value))).expect("room");
                written.store(value, Release);
                std::thread::yield_now();
            }
        });
    });
    db.transact(|tx| set(0).try_for_each(|(key, value)| tx.put(numbers, key, &value))).expect("room");
    assert_eq!(db.snapshot_count().expect("sound"), 0);
}

const NUMBERS: TableDef<u64, Raw> = TableDef::hash("numbers");

/// Returns a database of this many rows, each with one byte.
fn numbers(rows: u64) -> (Db<On<NoHtm>>, Table<u64, Raw>) {
    let db = plain();
    let numbers = db.table(NUMBERS).expect("a table");
    db.transact(|tx| (0..rows).try_for_each(|key| tx.put(numbers, key, &[0]))).expect("room");
    (db, numbers)
}

#[test]
fn only_long_reads_go_on_in_snapshots() {
    let (db, numbers) = numbers(1_100);
    let open_after = |rows: u64| {
        let read = db.read(|tx| {
            (0..rows).try_for_each(|key| tx.get(numbers, key).map(drop))?;
            db.snapshot_count()
        });
        read.expect("it can be read")
    };
    assert_eq!((open_after(1_000), open_after(1_100)), (0, 1));
    assert_eq!(db.snapshot_count().expect("it can be read"), 0);
}

#[test]
fn a_read_that_fails_is_noticed_on_the_way_and_goes_to_a_snapshot_at_once() {
    let (db, numbers) = numbers(1_000);
    let mut read = Vec::new();
    let open = db.read(|tx| {
        read.push(0);
        for key in 0..1_000 {
            let byte = tx.get(numbers, key)?.map_or(0, |row| row[0]);
            let runs = read.len() as u8;
            if let Some(rows) = read.last_mut() {
                *rows += 1;
            }
            // A snapshot sees what was written before it was opened.
            assert!(runs == 1 || byte == 1, "row {key} is {byte}");
            if key == 0 {
                let write_all = || db.transact(|tx| (0..1_000).try_for_each(|key| tx.put(numbers, key, &[runs])));
                let written = std::thread::scope(|scope| scope.spawn(write_all).join());
                written.expect("no panic").expect("there is room");
            }
        }
        db.snapshot_count()
    });
    assert_eq!(open.expect("nothing is forgotten"), 1);
    let [first, 1_000] = read[..] else { panic!("{read:?}") };
    assert!(first < 300, "{first} rows were read by a transaction that could not commit");
}

#[derive(Clone, Debug)]
enum Step {
    Set(u64, i64),
    Open,
    Close(usize),
    Look(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6_u64, 0..400_i64).prop_map(|(key, amount)| Step::Set(key, amount)),
        1 => (0..6_u64).prop_map(|key| Step::Set(key, 0)),
        2 => Just(Step::Open),
        1 => any::<usize>().prop_map(Step::Close),
        2 => any::<usize>().prop_map(Step::Look),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn each_snapshot_is_what_everything_was(steps in prop::collection::vec(step(), 1..80)) {
        let db = plain();
        let tables = Tables::of(&db);
        let mut now = [0; 6];
        let mut open = Vec::new();
        for step in steps {
            match step {
                Step::Set(key, amount) => {
                    db.transact(|tx| tables.set(tx, key, amount)).expect("room");
                    now[key as usize] = amount;
                }
                Step::Open => open.push((db.snapshot().expect("a slot"), now)),
                Step::Close(which) if !open.is_empty() => {
                    let which = which % open.len();
                    open.swap_remove(which);
                }
                Step::Look(which) if !open.is_empty() => {
                    let which = which % open.len();
                    let (snapshot, was) = &mut open[which];
                    for (key, amount) in was.iter().enumerate() {
                        prop_assert_eq!(tables.amount(snapshot, key as u64).expect("kept"), *amount);
                    }
                    prop_assert_eq!(tables.sums(snapshot, 6).expect("kept"), [was.iter().sum::<i64>(); WAYS]);
                }
                Step::Close(_) | Step::Look(_) => {}
            }
        }
    }
}
