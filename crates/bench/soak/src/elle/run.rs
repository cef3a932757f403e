//! Runs all clients, and the last reads.

use std::{sync::atomic::AtomicU64, thread};

use drtm_drive::{Task, spread};
use drtm_history::Recorder;
use drtm_txn::{Builder, Config};

use super::{
    client::Client,
    draw::{Draw, Workload},
    journal::Journal,
    record::Observed,
    store::Store,
};
use drtm_drive::Error;

/// Bytes that the database may use. They are reserved, and allocated as rows are inserted.
pub(super) const MEMORY: u64 = 16 << 30;

/// A run of random transactions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) workload: Workload,
    pub(super) threads: usize,
    /// The number of transactions of all threads.
    pub(super) transactions: u64,
    pub(super) seed: u64,
}

impl Task for Run {
    /// The recorded transactions, in the order of invocations. The last reads belong to a client of
    /// their own.
    type Output = Vec<Observed>;

    fn execute<S: Config>(self, engine: S::Engine) -> Result<Vec<Observed>, Error> {
        let Self { workload, threads, transactions, seed } = self;
        let db = Builder::new().memory(MEMORY).build_with::<S>(engine)?;
        let store = Store::open(&db, workload == Workload::Predicate)?;
        let (begun, mut recorder) = (AtomicU64::new(0), Recorder::start());
        let mut client = |process: usize| {
            let draw = Draw::new(workload, spread(seed, process), process, threads + 1);
            let clock = recorder.clock().map_err(Error::size)?;
            Ok::<_, Error>(Client { db: &db, store, draw, journal: Journal::new(clock, process), begun: &begun })
        };
        let mut clients = (0..threads).map(&mut client).collect::<Result<Vec<_>, _>>()?;
        let mut last = client(threads)?;
        thread::scope(|scope| {
            let mut running = Vec::new();
            for (client, share) in clients.iter_mut().zip(shares(transactions, threads)) {
                let body = move || client.run(share);
                running.push(thread::Builder::new().spawn_scoped(scope, body).map_err(Error::Thread)?);
            }
            running.into_iter().try_for_each(|client| match client.join() {
                Ok(ended) => ended,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
        workload.last_reads(transactions).into_iter().try_for_each(|reads| last.read_last(reads))?;
        let mut record: Vec<Observed> =
            clients.into_iter().chain([last]).flat_map(|client| client.journal.record).collect();
        record.sort_by_key(|observed| (observed.invoked, observed.process));
        Ok(record)
    }
}

/// Divides the transactions among the threads.
fn shares(transactions: u64, threads: usize) -> impl Iterator<Item = u64> {
    let threads = threads as u64;
    (0..threads).map(move |thread| transactions / threads + u64::from(thread < transactions % threads))
}
