//! Histories of random chopped programs. The checker judges whole transactions.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::Ordering::Relaxed,
    thread,
};

use drtm::{
    Builder, Db, Error, Pod, Table,
    chopped::{PieceTx, Procedures, Stop, Sum},
    chopping::{Chopping, Execution, Options, Program},
};
use drtm_history::{Anomaly, History, Log, Order, Recorder, check};
use drtm_htm::NoHtm;
use drtm_testing::rounds;
use drtm_txn::Mutation;
use fastrand::Rng;

use crate::{
    Chosen,
    drawn::{
        ADDITIONS, BITS, Bits, Counted, DESCRIBED, Does, Done, Drawn, Handed, KEYS, NAMES, ROWS, TABLES, WRITERS, draw,
        note, row,
    },
    inherit, with_fault,
};

const THREADS: u64 = 3;
/// Transactions of each thread.
const RUNS: usize = 12;

type Tables = [Table<u64, Pod<Counted>>; TABLES];
type Sums = [Sum<drtm::Column<u64, Pod<Counted>, drtm::Hash, u64>>; TABLES];

/// The code of a piece.
fn piece(
    place: usize,
    accesses: &[(usize, Does)],
    (tables, sums): (Tables, Sums),
    bits: &'static Bits,
) -> impl Fn(&mut PieceTx<'_, '_, Chosen>, &mut Handed) -> Result<(), Stop> + Send + Sync + use<> {
    let accesses = accesses.to_vec();
    move |tx, handed| {
        let mut random = Rng::with_seed(handed.seed ^ place as u64);
        for &(table, does) in &accesses {
            let key = random.u64(..KEYS);
            let read = |row: &Counted, done: &mut Vec<Done>| {
                done.push(Done::Read { table, key, count: row.count, bits: row.bits });
            };
            match does {
                Does::Read => read(&tx.get(tables[table], key)?.expect("no row is removed"), &mut handed.done),
                Does::Update => {
                    let change = |row: &mut Counted| {
                        read(row, &mut handed.done);
                        row.count += 1;
                        row.count
                    };
                    let count = tx.update(tables[table], key, change)?.expect("no row is removed");
                    handed.done.push(Done::Update { table, key, count });
                }
                Does::Add => {
                    let bit = bits[table][key as usize].fetch_add(1, Relaxed);
                    if bit < ADDITIONS {
                        tx.add(sums[table], key, 1 << bit)?;
                        handed.done.push(Done::Add { table, key, bit });
                    }
                }
            }
            // Lets others in between.
            thread::yield_now();
        }
        Ok(())
    }
}

/// Records a transaction that has ended. It was invoked when `log` began to.
fn record(log: &mut Log<u64>, run: impl FnOnce() -> Vec<Done>) {
    let mut recording = log.begin();
    note(&mut recording, &run());
    recording.commit();
}

/// Runs a program, and returns the anomalies of its history.
fn anomalies(drawn: &Drawn, seed: u64) -> Result<Vec<String>, Error> {
    let db: Db<Chosen> = Builder::new().memory(16 << 20).build_with(NoHtm)?;
    let [a, b, c, d] = NAMES.map(|name| db.table(ROWS.named(name)));
    let tables = [a?, b?, c?, d?];
    let nothing = Counted { count: 1, bits: 0 };
    db.transact(|tx| {
        tables.into_iter().try_for_each(|table| (0..KEYS).try_for_each(|key| tx.put(table, key, &nothing)))
    })?;

    let mut program = Procedures::new(&db, "random");
    let mut sums = Vec::new();
    for (described, table) in DESCRIBED.into_iter().zip(tables) {
        sums.push(program.sum(described.add("*"), table.column(BITS))?);
    }
    let sums: Sums = sums.try_into().expect("as many as tables");
    let bits: &'static Bits = Box::leak(Box::default());
    let described = drawn.described();
    let mut calls = Vec::new();
    for ((pieces, _), described) in drawn.writers.iter().zip(&described) {
        let code = |place: usize| piece(place, &pieces[place], (tables, sums), bits);
        let procedure = program.procedure::<Handed>(*described);
        calls.push(program.add(procedure.piece("one", code(0)).piece("two", code(1)).piece("three", code(2))));
    }
    let read = drawn.read.clone();
    let reader = program.reader(described[WRITERS], move |tx, _: &()| {
        let mut done = Vec::new();
        for &table in &read {
            for key in 0..KEYS {
                let Counted { count, bits } = tx.get(tables[table], key)?.expect("no row is removed");
                done.push(Done::Read { table, key, count, bits });
                thread::yield_now();
            }
        }
        Ok(done)
    });
    let program = program.register()?;
    let chopping = program.chopping();
    assert!(matches!(chopping.transactions()[WRITERS].execution(), Execution::TwoRounds { .. }));

    let mut recorder = Recorder::start();
    let mut first = recorder.log().expect("a few logs");
    let mut recording = first.begin();
    (0..TABLES as u32).for_each(|table| (0..KEYS).for_each(|key| recording.write(table, row(key, None), 1)));
    recording.commit();
    let mut logs = vec![first];
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let mut log = recorder.log().expect("a few logs");
                let (calls, reader, program) = (&calls, &reader, &program);
                let run = inherit(move || {
                    let mut random = Rng::with_seed(seed << 8 | number);
                    for _ in 0..RUNS {
                        let which = random.usize(..=WRITERS);
                        if random.u8(..4) == 0 {
                            program.publish().expect("no row is removed");
                        }
                        let handed = Handed { seed: random.u64(..), done: Vec::new() };
                        record(&mut log, || match calls.get(which) {
                            Some(call) => call.run(handed).expect("nothing but conflicts").done,
                            None => reader.read(&()).expect("nothing but conflicts"),
                        });
                    }
                    log
                });
                scope.spawn(run)
            })
            .collect();
        threads.into_iter().for_each(|thread| logs.push(thread.join().expect("no panic")));
    });
    program.publish()?;
    let mut last = recorder.log().expect("a few logs");
    record(&mut last, || {
        let all = (0..TABLES).flat_map(|table| (0..KEYS).map(move |key| (table, key)));
        let read = |(table, key): (usize, u64)| -> Result<Done, Error> {
            let Counted { count, bits } = db.read(|tx| tx.get(tables[table], key))?.expect("no row is removed");
            Ok(Done::Read { table, key, count, bits })
        };
        all.map(|place| read(place).expect("sound")).collect()
    });
    logs.push(last);
    // What is deferred does not keep the order of real time, and nor do transactions on both sides
    // of one that has run a piece, and not yet the next.
    let are_whole = chopping.transactions().iter().all(|chopped| chopped.pieces().len() < 2);
    let order = if are_whole && chopping.deferrals().is_empty() { Order::RealTime } else { Order::Any };
    let told = |anomalies: Vec<Anomaly<u64>>| anomalies.iter().map(ToString::to_string).collect();
    // What contradicts itself is an anomaly, too: a version that was written twice, say.
    Ok(check(&History::of(logs), order).map_or_else(|malformed| vec![malformed.to_string()], told))
}

/// A program in which a transaction that runs alone sees two sums in pieces of its own, to which
/// another adds: these additions are deferred.
fn hot() -> Drawn {
    let subscriber = ([vec![(0, Does::Update)], vec![(1, Does::Update)], vec![(2, Does::Add)]], true);
    let publisher = ([vec![(0, Does::Add)], vec![(1, Does::Add)], vec![(3, Does::Update)]], false);
    let other = ([vec![(3, Does::Read)], vec![(3, Does::Update)], vec![(3, Does::Read)]], false);
    Drawn { writers: [subscriber, publisher, other], read: vec![0, 1], last: &[] }
}

#[test]
fn random_programs_are_serializable() {
    for seed in 0..rounds(100) {
        let drawn = draw(&mut Rng::with_seed(seed), Options::ALL, true, &[]);
        let told = anomalies(&drawn, seed).expect("memory");
        assert!(told.is_empty(), "seed {seed}, {drawn:?}:\n{}", told.join("\n"));
    }
}

#[test]
fn sums_that_are_deferred_are_serializable() {
    let chopping = Chopping::finest(&Program::new(&hot().described()).expect("it makes sense"), Options::ALL);
    assert_eq!(chopping.deferrals().len(), 2, "{chopping}");
    for seed in 0..rounds(50) {
        let told = anomalies(&hot(), seed).expect("memory");
        assert!(told.is_empty(), "seed {seed}:\n{}", told.join("\n"));
    }
}

/// Runs random programs, and the one with deferred sums, with a fault until it is found. A panic
/// finds it, too: a sum can overflow.
fn finds(fault: Mutation) {
    let is_found = |drawn: &Drawn, seed: u64| {
        let told = catch_unwind(AssertUnwindSafe(|| anomalies(drawn, seed).expect("memory")));
        told.is_err() || told.is_ok_and(|told| !told.is_empty())
    };
    let found = with_fault(fault, || {
        (0..rounds(300)).any(|seed| {
            is_found(&draw(&mut Rng::with_seed(seed), Options::ALL, true, &[]), seed) || is_found(&hot(), seed)
        })
    });
    assert!(found, "{fault:?} is not found");
}

macro_rules! found {
    ($($name:ident: $fault:ident;)+) => {$(
        #[test]
        fn $name() {
            finds(Mutation::$fault);
        }
    )+};
}

found! {
    pieces_that_are_not_merged: MergeLeftOut;
    additions_that_are_deferred_without_the_premise: DeferralWithoutPremise;
    pieces_that_run_twice: PieceRepeated;
    runs_that_hand_over_although_they_failed: FailedRunHandedOver;
    additions_that_are_published_again: AdditionsRepeated;
    publications_without_a_barrier: BarrierSkipped;
    reads_without_a_moment: MomentNotAwaited;
    transactions_beside_themselves: AloneIgnored;
}
