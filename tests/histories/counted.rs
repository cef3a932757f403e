//! One-row commits and patches, as an application makes them. No sink is attached, and htm
//! transactions begin at their usual size, so that commits take their fast paths. Many readers run
//! in snapshots concurrently.
//!
//! Without a sink, no version numbers are known. Instead each row counts its writes: a transaction
//! that writes a row reads its count and adds one, so that the count is the version.

use std::thread;

use drtm_history::{Anomaly, CycleKind, Order, Recorder, Recording, check};
use drtm_htm::{Emulated, Engine, NoHtm};
use drtm_testing::rounds;
use drtm_txn::{Builder, Config, Db, Error, Mode, Mutation, Ordered, Part, Pod, Snapshot, Table, TableDef, Tx, part};
use fastrand::Rng;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::settings::{Fault, Sound};

/// A row that counts its writes, between bytes that never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Row {
    before: [u64; 3],
    count: u64,
    behind: [u64; 2],
}

const COUNT: Part<Row, u64> = part!(Row, count);
const HASHED: TableDef<u64, Pod<Row>> = TableDef::hash("hashed");
const SORTED: TableDef<u64, Pod<Row>, Ordered> = TableDef::ordered("sorted");

/// An engine and a fault, without settings that disable fast paths.
#[derive(Debug)]
struct Quiet<E, F>(std::marker::PhantomData<fn() -> (E, F)>);

impl<E: Engine, F: Fault> Config for Quiet<E, F> {
    type Engine = E;

    fn fault() -> Option<Mutation> {
        F::FAULT
    }
}

/// Rows of each table.
const ROWS: u64 = 4;

struct World<S: Config> {
    db: Db<S>,
    hashed: Table<u64, Pod<Row>>,
    sorted: Table<u64, Pod<Row>, Ordered>,
}

/// A row's table, hashed or sorted, and its key.
type Place = (u32, u64);

impl<S: Config> World<S> {
    fn new(db: Db<S>) -> Self {
        let (hashed, sorted) = (db.table(HASHED).expect("memory"), db.table(SORTED).expect("memory"));
        Self { db, hashed, sorted }
    }

    /// Counts a write of a row in one of several ways. Returns the old count.
    fn count(&self, tx: &mut Tx<'_, S>, (table, key): Place, way: u8) -> Result<u64, Error> {
        let more = |count: &mut u64| std::mem::replace(count, *count + 1);
        let was = match (table, way % 3) {
            (0, 0) => tx.update(self.hashed.column(COUNT), key, more)?,
            (_, 0) => tx.update(self.sorted.column(COUNT), key, more)?,
            (0, 1) => tx.update(self.hashed, key, |row| more(&mut row.count))?,
            (_, 1) => tx.update(self.sorted, key, |row| more(&mut row.count))?,
            _ => {
                let mut row = self.row(tx, (table, key))?;
                let was = more(&mut row.count);
                match table {
                    0 => tx.put(self.hashed, key, &row)?,
                    _ => tx.put(self.sorted, key, &row)?,
                }
                Some(was)
            }
        };
        Ok(was.expect("no row is removed"))
    }

    fn row<M: Mode>(&self, tx: &Tx<'_, S, M>, (table, key): Place) -> Result<Row, Error> {
        let row = if table == 0 { tx.get(self.hashed, key)? } else { tx.get(self.sorted, key)? };
        let row = row.expect("no row is removed");
        assert_eq!((row.before, row.behind), ([key; 3], [key; 2]), "bytes that no transaction writes");
        Ok(row)
    }

    /// Reads a row, or only its count.
    fn read<M: Mode>(&self, tx: &Tx<'_, S, M>, (table, key): Place, is_whole: bool) -> Result<u64, Error> {
        if is_whole {
            return Ok(self.row(tx, (table, key))?.count);
        }
        let count =
            if table == 0 { tx.get(self.hashed.column(COUNT), key)? } else { tx.get(self.sorted.column(COUNT), key)? };
        Ok(count.expect("no row is removed"))
    }
}

/// Draws rows to read and rows to write, ordered, no row twice.
fn steps(random: &mut Rng, most: usize) -> Vec<(Place, bool)> {
    let mut places: Vec<Place> = (0..2).flat_map(|table| (0..ROWS).map(move |key| (table, key))).collect();
    random.shuffle(&mut places);
    // Most write one row and read none.
    let count = if random.bool() { 1 } else { random.usize(1..=most) };
    places.into_iter().take(count).map(|place| (place, count == 1 || random.bool())).collect()
}

/// Runs the steps of a transaction, and records their results.
fn run<S: Config>(
    world: &World<S>,
    tx: &mut Tx<'_, S>,
    steps: &[(Place, bool)],
    way: u8,
    recording: &mut Recording<'_, u64>,
) -> Result<(), Error> {
    for (place, writes) in steps {
        let (table, key) = *place;
        let seen =
            if *writes { world.count(tx, *place, way)? } else { world.read(tx, *place, way.is_multiple_of(2))? };
        recording.read(table, key, Some(seen));
        if *writes {
            recording.write(table, key, seen + 1);
        }
    }
    Ok(())
}

/// Reads all rows in a read-only transaction, in any order.
fn read_all<S: Config>(
    world: &World<S>,
    tx: &Snapshot<'_, S>,
    random: &mut Rng,
    recording: &mut Recording<'_, u64>,
) -> Result<(), Error> {
    let mut places: Vec<Place> = (0..2).flat_map(|table| (0..ROWS).map(move |key| (table, key))).collect();
    random.shuffle(&mut places);
    for place in places {
        recording.read(place.0, place.1, Some(world.read(tx, place, random.bool())?));
        // Lets writers run.
        thread::yield_now();
    }
    Ok(())
}

/// The size of a run.
#[derive(Clone, Copy, Debug)]
struct Size {
    writers: u64,
    readers: u64,
    /// Transactions of each thread.
    transactions: usize,
    /// Snapshots that are open throughout.
    open: usize,
}

/// Runs random transactions, and returns the anomalies.
fn anomalies<E: Engine, F: Fault>(engine: &E, size: Size, seed: u64) -> Vec<Anomaly<u64>> {
    let db: Db<Quiet<E, F>> = Builder::new().memory(64 << 20).build_with(engine.clone()).expect("memory");
    let world = &World::new(db);
    let mut recorder = Recorder::start();
    let mut first = recorder.log().expect("a few logs");
    let mut recording = first.begin();
    let row = |key| Row { before: [key; 3], count: 1, behind: [key; 2] };
    let filled = world.db.transact(|tx| {
        (0..ROWS).try_for_each(|key| {
            tx.put(world.hashed, key, &row(key))?;
            tx.put(world.sorted, key, &row(key))
        })
    });
    filled.expect("memory");
    (0..2).for_each(|table| (0..ROWS).for_each(|key| recording.write(table, key, 1)));
    recording.commit();
    let open: Vec<_> = (0..size.open).map(|_| world.db.snapshot().expect("memory")).collect();
    let mut logs = vec![first];
    thread::scope(|scope| {
        let threads: Vec<_> = (0..size.writers + size.readers)
            .map(|number| {
                let mut log = recorder.log().expect("a few logs");
                scope.spawn(move || {
                    let mut random = Rng::with_seed(seed << 16 | number);
                    for _ in 0..size.transactions {
                        let mut recording = log.begin();
                        if number >= size.writers {
                            let read = match random.bool() {
                                true => {
                                    world.db.snapshot().and_then(|tx| read_all(world, &tx, &mut random, &mut recording))
                                }
                                false => world.db.read(|tx| {
                                    recording.retry();
                                    read_all(world, tx, &mut random, &mut recording)
                                }),
                            };
                            read.expect("a reader never fails");
                            recording.commit();
                            continue;
                        }
                        let (steps, way) = (steps(&mut random, 4), random.u8(..));
                        let ended = if random.u8(..4) > 0 {
                            world.db.transact(|tx| {
                                recording.retry();
                                run(world, tx, &steps, way, &mut recording)
                            })
                        } else {
                            world.db.begin().and_then(|mut tx| {
                                run(world, &mut tx, &steps, way, &mut recording)?;
                                tx.commit()
                            })
                        };
                        match ended {
                            Ok(()) => recording.commit(),
                            Err(Error::Conflict(_)) => recording.abort(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                    log
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| logs.push(thread.join().expect("no panic")));
    });
    drop(open);
    let history = drtm_history::History::of(logs);
    check(&history, Order::RealTime).expect("what was noted makes sense")
}

fn none_in<E: Engine>(engine: &E, size: Size, runs: u64) {
    for seed in 0..rounds(runs) {
        let told: Vec<String> = anomalies::<E, Sound>(engine, size, seed).iter().map(ToString::to_string).collect();
        assert!(told.is_empty(), "seed {seed}, {size:?}:\n{}", told.join("\n"));
    }
}

const SMALL: Size = Size { writers: 3, readers: 1, transactions: 1_000, open: 0 };

#[test]
fn one_row_commits_and_patches() {
    none_in(&NoHtm, SMALL, 12);
}

#[test]
fn one_row_commits_and_patches_beside_regions() {
    none_in(&Emulated::default(), SMALL, 4);
}

/// Far more snapshots than writers track individually, and readers that share numbers.
#[test]
fn many_readers_in_snapshots() {
    none_in(&NoHtm, Size { writers: 2, readers: 100, transactions: 30, open: 110 }, 3);
}

/// Runs random transactions until an expected anomaly is found.
fn finds<F: Fault>(is_expected: impl Fn(&Anomaly<u64>) -> bool) {
    let found = (0..rounds(200)).any(|seed| anomalies::<NoHtm, F>(&NoHtm, SMALL, seed).iter().any(&is_expected));
    assert!(found, "nothing that is expected of {:?}", F::FAULT);
}

drtm_testing::faults!(CommitWithoutValidation);

/// Matches two writers of one version, or rows read at different moments.
fn missed_a_write(anomaly: &Anomaly<u64>) -> bool {
    match anomaly {
        Anomaly::TwoWriters { .. } => true,
        Anomaly::Cycle(cycle) => matches!(cycle.kind, CycleKind::LostUpdate | CycleKind::GSingle),
        _ => false,
    }
}

#[test]
fn one_row_commits_without_validation() {
    finds::<CommitWithoutValidation>(missed_a_write);
}
