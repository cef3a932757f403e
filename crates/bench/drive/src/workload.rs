//! Loads, runs and checks any workload on any engine.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use drtm_txn::{Builder, Config, Conflict, Db, Durability};

use super::{
    engine::Task,
    log::{LogPlace, Logged},
    progress::Progress,
    workers::{self, Client, Tally, Until},
};
use crate::{Error, memory};

/// A workload, with its size.
pub trait Workload: Sync {
    /// The workload's name on the command line.
    const NAME: &'static str;

    /// The handles of its tables.
    type Tables: Copy + Send + Sync;

    /// A thread's client.
    type Client<'w, S: Config>: Client
    where
        Self: 'w;

    /// Returns its size for the report: names and numbers.
    fn size(&self) -> Vec<(&'static str, serde_json::Value)>;

    /// Opens its tables.
    fn open<S: Config>(&self, db: &Db<S>) -> Result<Self::Tables, Error>;

    /// Returns the number of pieces of the population, which threads share.
    fn pieces(&self) -> u64;

    /// Inserts the rows of one piece of the population.
    fn load<S: Config>(&self, db: &Db<S>, tables: Self::Tables, piece: u64) -> Result<(), Error>;

    /// Creates a client for each thread.
    fn clients<'w, S: Config>(
        &'w self,
        db: &'w Db<S>,
        tables: Self::Tables,
        threads: usize,
    ) -> Result<Vec<Self::Client<'w, S>>, Error>;

    /// Returns additional counters of its clients, for the report.
    fn counted<S: Config>(_clients: &[Self::Client<'_, S>]) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Returns the violations after all transactions, in words.
    fn check<S: Config>(
        &self,
        db: &Db<S>,
        tables: Self::Tables,
        clients: &[&Self::Client<'_, S>],
    ) -> Result<Vec<String>, Error>;
}

/// The duration, threads and memory of a run.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Threads that run transactions.
    pub threads: usize,
    /// When the run ends.
    pub until: Until,
    /// Bytes that the database may use.
    pub memory: u64,
    /// Bytes of it to pre-fault at open.
    pub prefault: u64,
}

/// Loads, runs and checks a workload on one engine.
pub fn run_in<S: Config, W: Workload>(workload: &W, engine: S::Engine, pace: Pace) -> Result<Finished, Error> {
    Run { workload, pace, log: None }.execute::<S>(engine)
}

/// A workload to load, run and check.
#[derive(Debug)]
pub struct Run<'w, W> {
    /// The workload.
    pub workload: &'w W,
    /// How long it runs, and on what.
    pub pace: Pace,
    /// The place of its log; `None` if there is no log.
    pub log: Option<LogPlace<'w>>,
}

impl<W> Clone for Run<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for Run<'_, W> {}

/// The result of a run.
#[derive(Debug)]
pub struct Finished {
    /// The counters of the clients.
    pub tally: Tally,
    /// The number of conflicts, by cause.
    pub conflicts: Vec<(Conflict, u64)>,
    /// Statistics of htm transactions.
    pub regions: drtm_htm::Stats,
    /// Additional counters of clients.
    pub counted: Vec<(String, u64)>,
    /// Counters of the log.
    pub log: Option<Logged>,
    /// The violations, also those after reopening the database.
    pub violations: Vec<String>,
    /// The peak of resident bytes; `None` where the system does not report it.
    pub most_memory: Option<u64>,
}

impl Finished {
    /// Creates the result of clients that use no database.
    pub fn of(tally: Tally) -> Self {
        let (conflicts, counted, violations) = (Vec::new(), Vec::new(), Vec::new());
        let (regions, log, most_memory) = (drtm_htm::Stats::default(), None, None);
        Self { tally, conflicts, regions, counted, log, violations, most_memory }
    }
}

impl<W: Workload> Task for Run<'_, W> {
    type Output = Finished;

    fn execute<S: Config>(self, engine: S::Engine) -> Result<Finished, Error> {
        let Self { workload, pace: Pace { threads, until, memory, prefault }, log } = self;
        let builder = Builder::new().memory(memory).prefault(prefault);
        let log = log.map(|place| Ok::<_, Error>((place.fresh()?, place.mode))).transpose()?;
        let open = |mode| match &log {
            None => Ok(builder.clone().build_with::<S>(engine.clone())?),
            Some((meter, _)) => meter.database::<S>(builder.clone(), mode, engine.clone()),
        };
        // Loading does not wait for the log.
        let mut db = open(Durability::Async)?;
        let mut tables = workload.open(&db)?;
        let progress = Progress::new("loading", workload.pieces());
        load(workload, &db, tables, threads, || progress.step())?;
        if let Some((_, Durability::Sync)) = log {
            db.close()?;
            drop(db);
            db = open(Durability::Sync)?;
            tables = workload.open(&db)?;
        }
        let loaded = log.as_ref().map(|(meter, _)| meter.settle());
        let (before, regions_before) = (db.stats(), db.htm_stats());
        let mut clients = workload.clients(&db, tables, threads)?;
        let tally = match until {
            Until::Time(time) => {
                let progress = Progress::new("running", time.as_millis() as u64);
                run(&mut clients, &db, until, &progress, |time, _| time.as_millis() as u64)?
            }
            Until::Transactions(count) => {
                let progress = Progress::new("running", count * threads as u64);
                run(&mut clients, &db, until, &progress, |_, commits| commits)?
            }
        };
        let (after, regions) = (db.stats(), db.htm_stats() - regions_before);
        let conflicts =
            Conflict::ALL.map(|cause| (cause, after.conflicts(cause) - before.conflicts(cause))).into_iter().collect();
        // Before the check, which allocates memory of its own.
        let most_memory = memory::peak().ok();
        let _checking = Progress::spinner("checking");
        let references: Vec<_> = clients.iter().collect();
        let mut violations = workload.check(&db, tables, &references)?;
        let log = match log.as_ref().zip(loaded) {
            None => None,
            Some(((meter, mode), loaded)) => {
                db.close()?;
                let written = meter.written();
                let began = Instant::now();
                let again = open(*mode)?;
                let recovery = began.elapsed();
                let tables = workload.open(&again)?;
                let found = workload.check(&again, tables, &references)?;
                violations.extend(found.into_iter().map(|violation| format!("opened again: {violation}")));
                let rows = again.tables()?.iter().map(|(_, rows)| rows).sum();
                again.close()?;
                Some(Logged::of(&tally, (loaded, written), (recovery, rows)))
            }
        };
        let counted = W::counted(&clients);
        Ok(Finished { tally, conflicts, regions, counted, log, violations, most_memory })
    }
}

fn run<C: Client, S: Config>(
    clients: &mut [C],
    db: &Db<S>,
    until: Until,
    progress: &Progress,
    position: impl Fn(Duration, u64) -> u64,
) -> Result<Tally, Error> {
    let before = db.stats().commits;
    workers::run(clients, until, |time| {
        let commits = db.stats().commits - before;
        progress.show(position(time, commits), &format!("{:.0} tx/s", commits as f64 / time.as_secs_f64()));
    })
}

/// Loads all pieces without a progress bar.
pub fn load_quietly<W: Workload, S: Config>(
    workload: &W,
    db: &Db<S>,
    tables: W::Tables,
    threads: usize,
) -> Result<(), Error> {
    load(workload, db, tables, threads, || ())
}

/// Loads all pieces, each in the next free thread.
pub fn load<W: Workload, S: Config>(
    workload: &W,
    db: &Db<S>,
    tables: W::Tables,
    threads: usize,
    step: impl Fn() + Sync,
) -> Result<(), Error> {
    let (next, has_failed) = (&AtomicU64::new(0), &AtomicBool::new(false));
    let body = || {
        loop {
            let piece = next.fetch_add(1, Relaxed);
            if piece >= workload.pieces() || has_failed.load(Relaxed) {
                return Ok(());
            }
            workload.load(db, tables, piece).inspect_err(|_| has_failed.store(true, Relaxed))?;
            step();
        }
    };
    thread::scope(|scope| {
        let mut loaders = Vec::new();
        for _ in 1..threads {
            loaders.push(thread::Builder::new().spawn_scoped(scope, body).map_err(Error::Thread)?);
        }
        let own = body();
        for loader in loaders {
            match loader.join() {
                Ok(loaded) => loaded?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        own
    })
}

/// Returns the tables whose number of records differs from the expected one. Such a table has rows
/// that no check has read, or lacks rows.
pub fn miscounted<S: Config>(db: &Db<S>, expected: &[(&str, u64)]) -> Result<Vec<String>, Error> {
    let tables = db.tables()?;
    let of = |name: &str| tables.iter().find(|(table, _)| *table == name).map_or(0, |(_, records)| *records);
    let wrong = expected.iter().filter(|(name, rows)| of(name) != *rows);
    Ok(wrong.map(|(name, rows)| format!("`{name}` has {} records where {rows} rows are expected", of(name))).collect())
}
