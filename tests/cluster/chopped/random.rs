//! Histories of random chopped programs whose transactions are dropped anywhere, and resumed. The
//! checker judges whole transactions.

use std::{
    panic::catch_unwind,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use drtm::chopping::{Options, Piece, Table as Described};
use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_testing::rounds;
use drtm_txn::{
    Mutation, Transaction as _,
    chopped::{Stop, Sum},
    cluster::{
        Protocol, Worker,
        chopped::{Named, PieceTx, Procedures},
    },
};
use fastrand::Rng;

use crate::{
    bed::{Bed, Rings, Script, Setup, Size, Tables, Tested},
    chopped::Chopped,
    drawn::{ADDITIONS, Bits, Counted, DESCRIBED, Does, Done, Drawn, Handed, KEYS, TABLES, WRITERS, draw, note, row},
    drops::polled,
    history::{Logs, SIZES, judged},
};

/// What clusters have.
const OPTIONS: Options = Options { two_rounds: false, deferral: false, ..Options::ALL };

/// The last piece says what the transaction has done.
const LAST: [Piece<'static>; 1] =
    [Piece::new("end", &[Described::new("ended", &[]).append()]).after(&["one", "two", "three"])];

/// Of each coroutine.
const TRANSACTIONS: u64 = 8;

type Sums = [Sum<drtm_txn::Column<u64, drtm_txn::Pod<Counted>, drtm_txn::Hash, u64>>; TABLES];

#[derive(Clone)]
struct Random {
    drawn: Arc<Drawn>,
    seed: u64,
    rings: Rings,
    logs: Logs,
    bits: &'static Bits,
    /// Whether the rows are there.
    is_filled: Arc<AtomicBool>,
    /// For each node, how many coroutines are resuming what was left.
    resuming: Arc<Vec<AtomicU32>>,
}

/// Runs a piece.
async fn step<T: Named>(
    tx: &mut PieceTx<'_, T>,
    handed: &mut Handed,
    (place, accesses): (usize, &[(usize, Does)]),
    (chopped, sums): (Chopped, Sums),
    bits: &Bits,
) -> Result<(), Stop> {
    let mut random = Rng::with_seed(handed.seed ^ place as u64);
    for &(table, does) in accesses {
        let key = random.u64(..KEYS);
        let read = |row: &Counted, done: &mut Vec<Done>| {
            done.push(Done::Read { table, key, count: row.count, bits: row.bits });
        };
        match does {
            Does::Read => {
                read(&tx.get(chopped.rows[table], key).await?.expect("no row is removed"), &mut handed.done);
            }
            Does::Update => {
                let change = |row: &mut Counted| {
                    read(row, &mut handed.done);
                    row.count += 1;
                    row.count
                };
                let count = tx.update(chopped.rows[table], key, change).await?.expect("no row is removed");
                handed.done.push(Done::Update { table, key, count });
            }
            Does::Add => {
                let bit = bits[table][key as usize].fetch_add(1, Relaxed);
                if bit < ADDITIONS {
                    tx.add(sums[table], key, 1 << bit).await?;
                    handed.done.push(Done::Add { table, key, bit });
                }
            }
        }
    }
    Ok(())
}

impl Script for Random {
    fn rings(&self) -> Rings {
        self.rings
    }

    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        let mut log = self.logs.lock().expect("no thread panics")[number as usize].take().expect("one for each");
        let (chopped, bits) = (tables.chopped.expect("there are some"), self.bits);
        if number == 0 {
            let mut recording = log.begin();
            let filled = worker.transact(async |tx| {
                for table in chopped.rows {
                    for key in 0..KEYS {
                        tx.put(table, key, Counted { count: 1, bits: 0 }).await?;
                    }
                }
                Ok(())
            });
            filled.await.expect("room");
            (0..TABLES as u32).for_each(|table| (0..KEYS).for_each(|key| recording.write(table, row(key, None), 1)));
            recording.commit();
            self.is_filled.store(true, SeqCst);
        }
        worker.endpoint().until(|| self.is_filled.load(SeqCst)).await;

        let mut program = Procedures::new(&worker.node(), chopped.progress);
        let mut sums = Vec::new();
        for (described, column) in DESCRIBED.into_iter().zip(chopped.bits()) {
            sums.push(program.sum(described.add("*"), column).expect("few"));
        }
        let sums: Sums = sums.try_into().expect("as many as tables");
        let (described, rows) = (self.drawn.described(), (chopped, sums));
        let mut calls = Vec::new();
        for ((pieces, _), described) in self.drawn.writers.iter().zip(&described) {
            let [one, two, three] = pieces.clone();
            let writer = program
                .procedure::<Handed>(*described)
                .piece("one", async move |tx, handed| step(tx, handed, (0, &one), rows, bits).await)
                .piece("two", async move |tx, handed| step(tx, handed, (1, &two), rows, bits).await)
                .piece("three", async move |tx, handed| step(tx, handed, (2, &three), rows, bits).await)
                .piece("end", async move |tx, handed| tx.insert(chopped.ended, handed.seed, &handed.done).await);
            calls.push(program.add(writer));
        }
        let read = self.drawn.read.clone();
        let reader = program.procedure::<Handed>(described[WRITERS]).piece("read", async move |tx, handed| {
            for &table in &read {
                for key in 0..KEYS {
                    let row = tx.get(chopped.rows[table], key).await?.expect("no row is removed");
                    handed.done.push(Done::Read { table, key, count: row.count, bits: row.bits });
                }
            }
            Ok(())
        });
        let reader = program.add(reader);
        let program = program.register().expect("it is sound");

        let mut random = Rng::with_seed(self.seed << 16 | number);
        let resuming = &self.resuming[usize::from(worker.id().0)];
        for _ in 0..TRANSACTIONS {
            let which = random.usize(..=WRITERS);
            let handed = Handed { seed: random.u64(..), done: Vec::new() };
            let (seed, mut recording) = (handed.seed, log.begin());
            let polls = if random.u8(..2) == 0 { random.u32(1..80) } else { u32::MAX };
            let ended = match calls.get(which) {
                Some(call) => polled(call.run_on(&worker, handed), polls).await,
                None => polled(reader.run_on(&worker, handed), polls).await,
            };
            let done = match ended {
                Some(ended) => Some(ended.expect("nothing but conflicts").done),
                None => {
                    resuming.fetch_add(1, SeqCst);
                    program.resume_on(&worker).await.expect("all nodes are here");
                    resuming.fetch_sub(1, SeqCst);
                    // Another coroutine may be resuming it.
                    worker.endpoint().until(|| resuming.load(SeqCst) == 0).await;
                    worker.transact(async |tx| tx.get(chopped.ended, seed).await).await.expect("all nodes are here")
                }
            };
            match done {
                Some(done) => {
                    note(&mut recording, &done);
                    recording.commit();
                }
                None => recording.abort(),
            }
        }
        self.logs.lock().expect("no thread panics")[number as usize] = Some(log);
    }
}

/// Runs a random program, and returns what was wrong.
fn anomalies(bed: &Bed, protocol: Protocol, seed: u64, backups: usize) -> (Drawn, Vec<String>) {
    let size = SIZES[if backups > 0 { 0 } else { seed as usize % 2 }];
    let size = Size { protocol, coroutines: 2, ..size };
    let drawn = draw(&mut Rng::with_seed(seed), OPTIONS, false, &LAST);
    let anomalies = judged(bed, size, TRANSACTIONS, |logs| Random {
        drawn: Arc::new(drawn.clone()),
        seed,
        rings: Rings { backups, chops: true, ..Rings::default() },
        logs,
        bits: Box::leak(Box::default()),
        is_filled: Arc::default(),
        resuming: Arc::new((0..size.nodes).map(|_| AtomicU32::new(0)).collect()),
    });
    (drawn, anomalies.iter().map(ToString::to_string).collect())
}

fn check_all(bed: impl Fn(u64) -> Bed, protocols: &[Protocol], seeds: u64, backups: usize) {
    for seed in 0..rounds(seeds) {
        for protocol in protocols {
            let (drawn, told) = anomalies(&bed(seed), *protocol, seed, backups);
            assert!(told.is_empty(), "{}, seed {seed}, {drawn:?}:\n{}", protocol.name, told.join("\n"));
        }
    }
}

#[test]
fn random_programs_are_serializable_in_simulations() {
    check_all(Bed::atomic, &Protocol::ALL, 6, 0);
    check_all(Bed::rough, &[Protocol::FASST, Protocol::DRTM_H, Protocol::HADES, Protocol::HADES_H], 6, 0);
}

#[test]
fn random_programs_are_serializable_in_process() {
    check_all(|_| Bed::perfect(), &[Protocol::FASST, Protocol::DRTM_H, Protocol::HADES, Protocol::HADES_H], 6, 0);
    check_all(Bed::harsh_and_atomic, &[Protocol::FASST, Protocol::DRTM_H], 4, 0);
}

#[test]
fn random_programs_that_are_logged_are_serializable() {
    check_all(Bed::atomic, &[Protocol::FASST, Protocol::DRTM_H], 4, 1);
}

/// Whether a fault is found within some runs: by the history, or since a run panics.
fn is_found(fault: Mutation) -> bool {
    let is_wrong = |protocol, seed| {
        let run = || Setup::faulty(fault).run(|| anomalies(&Bed::atomic(seed), protocol, seed, 0));
        catch_unwind(run).map_or(true, |(_, told)| !told.is_empty())
    };
    (0..rounds(60)).any(|seed| [Protocol::FASST, Protocol::DRTM_H].into_iter().any(|protocol| is_wrong(protocol, seed)))
}

macro_rules! found {
    ($($name:ident: $fault:ident;)+) => {$(
        #[test]
        fn $name() {
            assert!(is_found(Mutation::$fault), "{:?} is not found", Mutation::$fault);
        }
    )+};
}

found! {
    pieces_that_are_not_merged_are_found: MergeLeftOut;
    progress_of_a_random_program_that_is_noted_apart_is_found: ProgressApart;
    runs_that_hand_over_although_they_failed_are_found: FailedRunHandedOver;
}
