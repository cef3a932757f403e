//! Random transactions of several threads on a few rows, checked for anomalies.

use std::{
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    thread,
};

use drtm_history::{Anomaly, Order, Recorder, check};
use drtm_htm::{Emulated, Native, NoHtm};
use drtm_testing::rounds;
use drtm_txn::{Config, Error, Savepoint, Tx};
use fastrand::Rng;

use crate::{
    notes::{Attempt, Notes},
    settings::{Fault, Sound, Tested, database},
    world::{FIRST_SORTED, Place, SHORTEST, TABLES, World, value},
};

/// The size of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Whether rows come, go and move, or only get other values.
    pub(crate) is_wild: bool,
    pub(crate) threads: u64,
    /// Transactions of each thread.
    pub(crate) transactions: usize,
    /// Keys of each table.
    pub(crate) keys: u64,
}

impl Size {
    fn write(self, attempt: &mut Attempt<'_>) -> u64 {
        loop {
            let write = attempt.write();
            if self.is_wild || value(write).len() == SHORTEST {
                return write;
            }
        }
    }
}

/// Runs random transactions, and returns the anomalies.
pub(crate) fn anomalies<E: Tested, F: Fault>(engine: &E, size: Size, seed: u64) -> Vec<Anomaly<u64>> {
    let world = World::new(database::<E, F>(engine));
    let mut recorder = Recorder::start();
    let mut notes = |thread| Notes::new(recorder.log().expect("a few logs"), thread);
    let mut first = notes(0);
    fill(&world, &mut first, size);
    let pairs: Vec<[Notes; 2]> = (0..size.threads).map(|thread| [1, 2].map(|log| notes(2 * thread + log))).collect();
    let mut all = vec![first];
    thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(pairs)
            .map(|(number, notes)| {
                let random = Rng::with_seed(seed << 8 | number);
                let mut user = User { world: &world, size, random };
                scope.spawn(move || user.run(notes))
            })
            .collect();
        threads.into_iter().for_each(|thread| all.extend(thread.join().expect("no panic")));
    });
    check(&Notes::history(all), Order::RealTime).expect("what was noted makes sense")
}

/// Inserts half of the rows.
fn fill<S: Config>(world: &World<S>, notes: &mut Notes, size: Size) {
    let mut attempt = notes.begin();
    let filled = world.db.transact(|tx| {
        attempt.again();
        for (table, key) in (0..TABLES).flat_map(|table| (0..size.keys).step_by(2).map(move |key| (table, key))) {
            let (place, write) = (Place { table, key }, size.write(&mut attempt));
            world.put(tx, place, write)?;
            attempt.wrote(place, Some(write));
        }
        Ok(())
    });
    filled.expect("memory");
    attempt.committed();
}

/// The reason of a deliberate abort, by an error or a panic.
const ON_PURPOSE: &str = "on purpose";

/// Savepoints, each with the writes before it.
type Points = Vec<(Savepoint, std::collections::BTreeMap<Place, Option<u64>>)>;

struct User<'w, S: Config> {
    world: &'w World<S>,
    size: Size,
    random: Rng,
}

impl<S: Config> User<'_, S> {
    fn run(&mut self, [mut one, mut two]: [Notes; 2]) -> [Notes; 2] {
        for _ in 0..self.size.transactions {
            match self.random.u8(0..10) {
                0..7 => self.transact(one.begin()),
                7..9 => self.begin(one.begin()),
                _ => self.begin_two(one.begin(), two.begin()),
            }
        }
        [one, two]
    }

    /// Runs a closure until it commits, or ends it deliberately by an error or a panic.
    fn transact(&mut self, mut attempt: Attempt<'_>) {
        let (end, db) = (self.random.u8(0..20), self.world.db.clone());
        let ended = catch_unwind(AssertUnwindSafe(|| {
            db.transact(|tx| {
                attempt.again();
                match (self.steps(tx, &mut attempt), end) {
                    // Whether the closure ignores the conflict or not, it must not commit.
                    (Err(Error::Conflict(_)), 0..5) => Ok(()),
                    (Ok(()), 0) => Err(Error::aborted(ON_PURPOSE)),
                    (Ok(()), 1) => resume_unwind(Box::new(ON_PURPOSE)),
                    (ended, _) => ended,
                }
            })
        }));
        match ended {
            Ok(Ok(())) => attempt.committed(),
            Ok(Err(Error::Aborted { reason })) if reason == ON_PURPOSE => attempt.given_up(),
            Err(panic) if panic.downcast_ref() == Some(&ON_PURPOSE) => attempt.given_up(),
            Ok(Err(error)) => panic!("{error}"),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Runs an explicit transaction once.
    fn begin(&mut self, mut attempt: Attempt<'_>) {
        let db = self.world.db.clone();
        let mut tx = db.begin().expect("a transaction");
        let ended = self.steps(&mut tx, &mut attempt);
        self.end(tx, ended, attempt);
    }

    /// Runs two explicit transactions at once.
    fn begin_two(&mut self, mut one: Attempt<'_>, mut two: Attempt<'_>) {
        let db = self.world.db.clone();
        let (mut first, mut second) = (db.begin().expect("a transaction"), db.begin().expect("a transaction"));
        let (mut one_ended, mut two_ended) = (Ok(()), Ok(()));
        for _ in 0..2 {
            one_ended = one_ended.and_then(|()| self.steps(&mut first, &mut one));
            two_ended = two_ended.and_then(|()| self.steps(&mut second, &mut two));
        }
        self.end(second, two_ended, two);
        self.end(first, one_ended, one);
    }

    fn end(&mut self, tx: Tx<'_, S>, ended: Result<(), Error>, attempt: Attempt<'_>) {
        match ended {
            Ok(()) if self.random.u8(0..20) == 0 => {
                drop(tx);
                attempt.given_up();
            }
            Ok(()) => match tx.commit() {
                Ok(()) => attempt.committed(),
                Err(Error::Conflict(_)) => attempt.given_up(),
                Err(error) => panic!("{error}"),
            },
            Err(Error::Conflict(_)) => {
                assert!(self.random.bool() || tx.commit().is_err(), "committed in spite of a conflict");
                attempt.given_up();
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Runs the operations of a transaction.
    fn steps(&mut self, tx: &mut Tx<'_, S>, attempt: &mut Attempt<'_>) -> Result<(), Error> {
        let mut points = Points::new();
        for _ in 0..self.random.u8(1..7) {
            match self.random.u8(0..20) {
                0 => points.push((tx.savepoint(), attempt.own.clone())),
                1 => {
                    if let Some((point, own)) = points.last() {
                        tx.return_to(*point)?;
                        attempt.own = own.clone();
                    }
                }
                2 => thread::yield_now(),
                3..9 => self.look(tx, attempt)?,
                9..11 => self.scan(tx, attempt)?,
                11 => self.walk(tx, attempt)?,
                _ => self.change(tx, attempt)?,
            }
        }
        Ok(())
    }

    fn place(&mut self) -> Place {
        Place { table: self.random.u32(0..TABLES), key: self.random.u64(0..self.size.keys) }
    }

    /// Reads a row.
    fn look(&mut self, tx: &mut Tx<'_, S>, attempt: &mut Attempt<'_>) -> Result<(), Error> {
        let (place, world) = (self.place(), self.world);
        match self.random.u8(0..6) {
            0 => {
                let is_there = world.contains(tx, place)?;
                attempt.looked(place, is_there);
            }
            1 => {
                let seen = world.view(tx, place)?;
                attempt.read(place, seen);
            }
            _ => {
                let seen = world.get(tx, place)?;
                attempt.read(place, seen);
            }
        }
        Ok(())
    }

    /// Writes a row, with or without reading it.
    fn change(&mut self, tx: &mut Tx<'_, S>, attempt: &mut Attempt<'_>) -> Result<(), Error> {
        let (place, write, world) = (self.place(), self.size.write(attempt), self.world);
        match if self.size.is_wild { self.random.u8(0..9) } else { 2 } {
            0..2 => {
                world.put(tx, place, write)?;
                attempt.wrote(place, Some(write));
            }
            2..4 => {
                let was = world.update(tx, place, write)?;
                attempt.read(place, was);
                if was.is_some() {
                    attempt.wrote(place, Some(write));
                }
            }
            4..6 => {
                let is_new = world.insert(tx, place, write)?;
                attempt.looked(place, !is_new);
                if is_new {
                    attempt.wrote(place, Some(write));
                }
            }
            6 => {
                let was_there = world.remove(tx, place)?;
                attempt.looked(place, was_there);
                if was_there {
                    attempt.wrote(place, None);
                }
            }
            7 => {
                let was = world.take(tx, place)?;
                attempt.read(place, was);
                if was.is_some() {
                    attempt.wrote(place, None);
                }
            }
            _ => {
                let end = self.size.keys.min(place.key + self.random.u64(1..5));
                let places = (place.key..end).map(|key| Place { key, ..place });
                let writes: Vec<_> = places.clone().map(|_| self.size.write(attempt)).collect();
                // On failure, it is unknown which row existed.
                if world.insert_many(tx, place, &writes)? {
                    for (place, write) in places.zip(writes) {
                        attempt.looked(place, false);
                        attempt.wrote(place, Some(write));
                    }
                }
            }
        }
        Ok(())
    }

    fn bound(&mut self) -> Bound<u64> {
        let key = self.random.u64(0..=self.size.keys);
        match self.random.u8(0..3) {
            0 => Bound::Included(key),
            1 => Bound::Excluded(key),
            _ => Bound::Unbounded,
        }
    }

    /// Reads a prefix of a range, which may be empty or inverted, or writes its rows in turn.
    fn scan(&mut self, tx: &mut Tx<'_, S>, attempt: &mut Attempt<'_>) -> Result<(), Error> {
        let (table, range, is_up) =
            (self.random.u32(FIRST_SORTED..TABLES), (self.bound(), self.bound()), self.random.bool());
        let (mut rows, mut has_enough, enough) = (Vec::new(), false, self.random.usize(1..6));
        let mut writes = Vec::new();
        let scanned = match self.random.u8(0..8) {
            0..2 => self.world.end_of(tx, table, range, is_up).map(|row| {
                has_enough = row.is_some();
                rows.extend(row);
            }),
            2..4 if self.size.is_wild => {
                writes.extend((0..enough).map(|_| self.size.write(attempt)));
                self.world.change_range(tx, table, range, is_up, &writes, |key, was| {
                    rows.push((key, was));
                    has_enough = rows.len() == enough;
                })
            }
            _ => self.world.range(tx, table, range, is_up, |key, write| {
                rows.push((key, write));
                has_enough = rows.len() == enough;
                !has_enough
            }),
        };
        let (start, end) = range;
        // The part that was scanned: up to the last row, or everything.
        let passed = match rows.last() {
            _ if scanned.is_ok() && !has_enough => Some(range),
            Some((last, _)) if is_up => Some((start, Bound::Included(*last))),
            Some((last, _)) => Some((Bound::Included(*last), end)),
            None => None,
        };
        assert!(
            rows.is_sorted_by(|(one, _), (next, _)| one != next && (one < next) == is_up),
            "out of order: {rows:?}"
        );
        if let Some(passed) = passed {
            attempt.scanned(table, passed, &rows);
        }
        for ((key, _), write) in rows.into_iter().zip(writes) {
            attempt.wrote(Place { table, key }, Some(write));
        }
        scanned
    }

    /// Reads a part of a whole table, or removes some of its rows.
    fn walk(&mut self, tx: &mut Tx<'_, S>, attempt: &mut Attempt<'_>) -> Result<(), Error> {
        let (table, enough) = (self.random.u32(0..TABLES), self.random.usize(1..20));
        let (mut rows, mut has_enough) = (Vec::new(), false);
        if self.size.is_wild && self.random.u8(0..4) == 0 {
            let rest = self.random.u64(0..8);
            let removed = self.world.retain(tx, table, |key, write| {
                rows.push((key, write));
                write % 8 != rest
            })?;
            rows.sort_unstable();
            attempt.scanned(table, (Bound::Unbounded, Bound::Unbounded), &rows);
            rows.retain(|(_, write)| write % 8 == rest);
            assert_eq!(rows.len() as u64, removed);
            rows.into_iter().for_each(|(key, _)| attempt.wrote(Place { table, key }, None));
            return Ok(());
        }
        let walked = self.world.walk(tx, table, |key, write| {
            rows.push((key, write));
            has_enough = rows.len() == enough;
            !has_enough
        });
        rows.sort_unstable();
        assert!(rows.is_sorted_by(|(one, _), (next, _)| one != next), "a row twice: {rows:?}");
        if walked.is_ok() && !has_enough {
            attempt.scanned(table, (Bound::Unbounded, Bound::Unbounded), &rows);
        } else {
            rows.into_iter().for_each(|(key, write)| attempt.read(Place { table, key }, Some(write)));
        }
        walked
    }
}

/// The number of runs on each engine.
const RUNS: u64 = 36;

/// Keys of each table: few enough to conflict always, or more than fit into a leaf of a tree.
pub(crate) const KEYS: [u64; 3] = [3, 6, 50];

/// Checks runs on every engine of a type.
fn check_all<E: Tested>() {
    for (name, engine) in E::all() {
        for seed in 0..rounds(RUNS) {
            let size = Size { is_wild: true, threads: 2 + seed % 3, transactions: 600, keys: KEYS[seed as usize % 3] };
            let anomalies = anomalies::<E, Sound>(&engine, size, seed);
            let told: Vec<String> = anomalies.iter().map(ToString::to_string).collect();
            assert!(told.is_empty(), "{name}, seed {seed}, {size:?}:\n{}", told.join("\n"));
        }
    }
}

#[test]
fn without_regions() {
    check_all::<NoHtm>();
}

#[test]
fn in_emulated_regions() {
    check_all::<Emulated>();
}

#[test]
fn with_what_the_machine_has() {
    check_all::<Native>();
}
