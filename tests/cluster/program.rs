//! Random programs: transactions of both kinds over tables, indexes and ranges, whose futures are
//! dropped at random. What they saw and left is strictly serializable, and nothing stays locked.

mod restarting;

use std::{collections::BTreeMap, sync::Arc};

use drtm_history::{Log, Recording};
use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_testing::rounds;
use drtm_txn::{
    Error, Mutation, Options, Transaction,
    cluster::{ClusterTx, Protocol, Worker},
};
use fastrand::Rng;

use self::restarting::Restarts;
use crate::{
    bed::{Bed, Rings, Script, Setup, Size, Tables, Tested},
    drops::polled,
    hades::BY_LINES,
    history::{Logs, Random, SIZES, judged},
    indexes,
    leases::{Fetched, Step},
};

/// The row that says which of a coroutine's transactions has committed last.
pub(crate) const MARKS: u64 = 1_000;

#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) keys: u64,
    /// Of each coroutine.
    pub(crate) transactions: u64,
    pub(crate) seed: u64,
    pub(crate) rings: Rings,
    pub(crate) logs: Logs,
    /// What its owners do meanwhile. `None` if they stay.
    pub(crate) restarts: Option<Arc<Restarts>>,
}

impl Program {
    fn rows(&self) -> Random {
        let Self { keys, transactions, seed, rings, ref logs, .. } = *self;
        Random { keys, transactions, seed, pause: 0, rings, logs: logs.clone() }
    }

    fn people(&self) -> indexes::Random {
        let Self { keys, transactions, seed, ref logs, .. } = *self;
        indexes::Random { people: keys, transactions, seed, logs: logs.clone() }
    }

    fn fetched(&self) -> Fetched {
        let Self { keys, transactions, seed, rings, ref logs, .. } = *self;
        Fetched { keys, transactions, seed, only_updates: false, rings, logs: logs.clone() }
    }

    /// Runs steps of tables, and of a table with indexes.
    async fn optimistic<F: Fabric<Engine = NoHtm>>(
        &self,
        tx: &mut ClusterTx<'_, F, Tested>,
        tables: Tables,
        random: &mut Rng,
        recording: &mut Recording<'_, u64>,
        (mark, id): (u64, u64),
    ) -> Result<bool, Error> {
        recording.retry();
        let (mut own, mut people, mut is_torn) = (BTreeMap::new(), indexes::Own::new(), false);
        for _ in 0..random.u8(1..5) {
            if random.u8(0..4) == 0 {
                self.people().step(tx, tables, random, (recording, &mut is_torn), &mut people).await?;
            } else {
                self.rows().step(tx, tables, random, recording, &mut own).await?;
            }
        }
        tx.put(tables.words, mark, id.to_le_bytes().to_vec()).await?;
        Random::note(recording, own);
        indexes::Random::note(recording, people);
        Ok(is_torn)
    }

    /// Runs one transaction. Returns whether it has seen what never was at one moment.
    pub(crate) async fn attempt<F: Fabric<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, Tested>,
        tables: Tables,
        random: &mut Rng,
        recording: &mut Recording<'_, u64>,
        (mark, id): (u64, u64),
    ) -> Result<bool, Error> {
        if random.u8(0..4) == 0 {
            let (fetched, fails) = (self.fetched(), random.u8(0..8) == 0);
            let steps: Vec<Step> = fetched.steps(random);
            let done = worker.transact_on(
                |_| Ok(()),
                async |rows| {
                    fetched.run_fetched(rows, tables, &steps, recording).await?;
                    rows.put(tables.words, mark, id.to_le_bytes().to_vec()).await?;
                    if fails { Err(Error::aborted("on purpose")) } else { Ok(false) }
                },
            );
            return done.await;
        }
        let options = match random.u8(0..4) {
            0 => Options::new().opaque(),
            1 => Options::new().attempts(1 + random.u32(0..3)),
            _ => Options::new(),
        };
        let fails = random.u8(0..8) == 0;
        let done = worker.transact_with(options, async |tx| {
            let is_torn = self.optimistic(tx, tables, random, recording, (mark, id)).await?;
            if fails { Err(Error::aborted("on purpose")) } else { Ok(is_torn) }
        });
        done.await
    }

    /// Returns whether the transaction of this mark has committed, once it is over. Its row says
    /// so.
    async fn has_marked<F: Fabric<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, Tested>,
        tables: Tables,
        (mark, id): (u64, u64),
    ) -> bool {
        loop {
            worker.settle().await;
            match worker.transact(async |tx| tx.get(tables.words, mark).await).await {
                Ok(marked) => return marked.is_some_and(|marked| marked == id.to_le_bytes()),
                Err(error) if restarting::is_away(&error) && self.restarts.is_some() => {
                    self.restarts.iter().for_each(|restarts| restarts.check());
                    worker.endpoint().sleep(restarting::PAUSE).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

impl Script for Program {
    fn rings(&self) -> Rings {
        self.rings
    }

    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        let mut log: Log<u64> = self.logs.lock().expect("no thread panics")[number as usize].take().expect("one each");
        let mut random = Rng::with_seed(self.seed << 16 | number);
        let mark = MARKS + number;
        for id in 1..=self.transactions {
            let mut recording = log.begin();
            let polls = if random.u8(0..3) == 0 { random.u32(1..40) } else { u32::MAX };
            let attempt = self.attempt(&worker, tables, &mut random, &mut recording, (mark, id));
            let has_committed = match polled(attempt, polls).await {
                Some(Ok(is_torn)) => {
                    assert!(!is_torn, "it has seen what never was, and committed");
                    true
                }
                Some(Err(Error::Aborted { .. } | Error::Contended { .. })) => false,
                Some(Err(error)) if restarting::is_away(&error) && self.restarts.is_some() => {
                    self.restarts.iter().for_each(|restarts| restarts.note_interrupted());
                    self.has_marked(&worker, tables, (mark, id)).await
                }
                Some(Err(error)) => panic!("{error}"),
                None => self.has_marked(&worker, tables, (mark, id)).await,
            };
            if has_committed {
                recording.commit()
            } else {
                recording.abort()
            }
            if let Some(restarts) = &self.restarts {
                restarts.note();
            }
        }
        if let Some(restarts) = &self.restarts {
            worker.endpoint().until(|| restarts.are_over()).await;
        }
        indexes::agree(&worker, tables, self.keys).await;
        self.logs.lock().expect("no thread panics")[number as usize] = Some(log);
    }
}

/// Runs a program, and fails with what is wrong.
fn run(bed: &Bed, protocol: Protocol, seed: u64, rings: Rings) {
    let size = Size { protocol, ..SIZES[if rings.backups > 0 { 0 } else { seed as usize % 2 }] };
    let (keys, transactions) = ([2, 5, 12][seed as usize % 3], 15);
    let anomalies =
        judged(bed, size, transactions, |logs| Program { keys, transactions, seed, rings, logs, restarts: None });
    let told: Vec<String> = anomalies.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "seed {seed}, {size:?}:\n{}", told.join("\n"));
}

/// Beds of each kind that need no clocks of others.
fn beds(seed: u64) -> [Bed; 6] {
    [
        Bed::atomic(seed),
        Bed::rough(2 * seed),
        Bed::of_datagrams(seed),
        Bed::simulated(seed),
        Bed::harsh_and_atomic(seed),
        Bed::perfect(),
    ]
}

#[test]
fn programs_whose_futures_are_dropped_are_serializable() {
    for seed in 0..rounds(4) {
        for (protocol, turn) in Protocol::with_names().chain(BY_LINES).zip(0..) {
            for bed in beds(seed).into_iter().skip((seed + turn) as usize % 2).step_by(2) {
                run(&bed, protocol, seed, Rings::default());
            }
        }
    }
}

#[test]
fn programs_that_are_logged_and_dropped_are_serializable() {
    for seed in 0..rounds(2) {
        for protocol in [Protocol::FASST, Protocol::FARM, Protocol::DRTM_H] {
            for bed in [Bed::atomic(seed), Bed::of_datagrams(seed)] {
                run(&bed, protocol, seed, Rings { backups: 1 + seed as usize % 2, bytes: 1 << 16, ..Rings::default() });
            }
        }
    }
}

/// A swap by an outdated place locks another row's record. It must be unlocked where it is.
#[test]
fn a_lock_that_was_taken_at_an_outdated_place_and_kept_is_found() {
    let found = (0..rounds(60)).any(|seed| {
        let run = || {
            Setup::faulty(Mutation::StaleLocksKept)
                .run(|| run(&Bed::atomic(seed), Protocol::DRTM_H, seed, Rings::default()))
        };
        std::panic::catch_unwind(run).is_err()
    });
    assert!(found, "a lock stays, and no test sees it");
}
