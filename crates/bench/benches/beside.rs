//! What durable commits and reads take beside busy writers that wait for nothing, compared with
//! what they take beside threads that only use the processor.
//!
//! Three threads commit with `Sync`, or read a row that was just written with `Async`. Beside them
//! run three threads that commit with `Async`, or three that compute. Prints medians of rounds, in
//! turns, and the ratios. `DRTM_BENCH_ROUNDS` (3) sets the rounds, `DRTM_BENCH_SECS` (2) the
//! seconds, and `DRTM_BENCH_PATH` (among the system's temporary files) the disk.

use std::{
    env, fs,
    hint::black_box,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use drtm_drive::rates::{Rates, interleave};
use drtm_txn::{Db, Durability, Error, Ordered, Pod, Table, TableDef};

const HOT: TableDef<u64, Pod<u64>> = TableDef::hash("hot");
const KEPT: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("kept");

/// Threads of each kind.
const THREADS: u64 = 3;

/// Rows that each writer changes.
const ROWS: u64 = 1_000;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Subject {
    /// Commits that wait, of rows that no other thread writes.
    Commits,
    /// Reads of a row that was written a moment ago by a commit that does not wait.
    Reads,
}

/// What runs beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Beside {
    Computing,
    Writing,
}

struct World {
    db: Db,
    hot: Table<u64, Pod<u64>>,
    kept: Table<u64, Pod<u64>, Ordered>,
    is_over: AtomicBool,
    done: AtomicU64,
    slowest: AtomicU64,
}

impl World {
    fn open(directory: &Path) -> Result<Self, Error> {
        let db = Db::create(directory)?;
        let (hot, kept) = (db.table(HOT)?, db.table(KEPT)?);
        Ok(Self { db, hot, kept, is_over: AtomicBool::new(false), done: AtomicU64::new(0), slowest: AtomicU64::new(0) })
    }

    fn write(&self, key: u64, value: u64) -> Result<(), Error> {
        self.db.transact(|tx| {
            tx.set_durability(Durability::Async)?;
            tx.put(self.hot, key, &value)
        })
    }

    fn run_beside(&self, beside: Beside, number: u64) -> Result<(), Error> {
        let mut count = 0_u64;
        while !self.is_over.load(Relaxed) {
            count += 1;
            match beside {
                Beside::Computing => (0..100).for_each(|_| count = black_box(count.wrapping_mul(7) + 1)),
                Beside::Writing => self.write(number * ROWS + count % ROWS, count)?,
            }
        }
        Ok(())
    }

    fn run_subject(&self, subject: Subject, number: u64) -> Result<(), Error> {
        let mut count = 0;
        while !self.is_over.load(Relaxed) {
            count += 1;
            let began = Instant::now();
            match subject {
                Subject::Commits => self.db.transact(|tx| tx.put(self.kept, number, &count))?,
                Subject::Reads => {
                    self.write(number * ROWS, count)?;
                    self.db.read(|tx| tx.get(self.hot, number * ROWS))?;
                }
            }
            self.slowest.fetch_max(began.elapsed().as_micros() as u64, Relaxed);
            self.done.fetch_add(1, Relaxed);
        }
        Ok(())
    }
}

/// Returns how often the subject was done per second.
fn measure(directory: &Path, (subject, beside): (Subject, Beside), time: Duration) -> Result<f64, Error> {
    let world = World::open(directory)?;
    let rate = thread::scope(|scope| {
        let (world, mut threads) = (&world, Vec::new());
        for number in 0..THREADS {
            threads.push(scope.spawn(move || world.run_beside(beside, number)));
            threads.push(scope.spawn(move || world.run_subject(subject, number)));
        }
        let began = Instant::now();
        thread::sleep(time);
        world.is_over.store(true, Relaxed);
        let rate = world.done.load(Relaxed) as f64 / began.elapsed().as_secs_f64();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))?;
        Ok::<_, Error>(rate)
    })?;
    println!("  {subject:?} beside {beside:?}: {rate:.0}/s, slowest {} us", world.slowest.load(Relaxed));
    drop(world);
    fs::remove_dir_all(directory).expect("it is there");
    Ok(rate)
}

fn setting(name: &str, usual: &str) -> String {
    env::var(name).unwrap_or_else(|_| usual.to_owned())
}

fn main() -> Result<(), Error> {
    // `cargo test` runs benches only to check that they compile.
    if !env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let rounds = setting("DRTM_BENCH_ROUNDS", "3").parse().expect("DRTM_BENCH_ROUNDS is a whole number");
    let secs = setting("DRTM_BENCH_SECS", "2").parse().expect("DRTM_BENCH_SECS is a number");
    let place = env::var_os("DRTM_BENCH_PATH").map_or_else(env::temp_dir, PathBuf::from);
    let directory = place.join(format!("drtm-beside-{}", std::process::id()));
    for subject in [Subject::Commits, Subject::Reads] {
        let subjects = [(subject, Beside::Computing), (subject, Beside::Writing)];
        let measured = interleave(rounds, &subjects, drop, |subject, ()| {
            measure(&directory, *subject, Duration::from_secs_f64(secs))
        })?;
        let [Rates { median: computing, .. }, Rates { median: writing, .. }] = measured[..] else { continue };
        println!("{subject:?} beside threads that compute {computing:>8.0}/s");
        println!("{subject:?} beside Async writers        {writing:>8.0}/s, {:.2} times slower", computing / writing);
    }
    Ok(())
}
