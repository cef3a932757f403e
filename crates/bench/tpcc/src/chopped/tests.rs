//! Runs the program on several threads, and has it judged: by the twelve conditions, and by the
//! checker of histories.

use std::{
    cell::Cell,
    num::NonZeroU64,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

use drtm_history::{Order, Recorder, check};
use drtm_htm::NoHtm;
use drtm_txn::{Builder, Config, Db, Error, Mutation, chopped::Code};

use super::{
    Chopped, Reads, chopped,
    seen::{Recorded, Seen, history, loaded},
    writers::{Delivering, Ordering, Paying},
};
use crate::{
    Chances, DISTRICTS, Inputs, Loader, OrderStatus, Population, Random, Scale, StockLevel,
    audit::{Audit, Payments},
    tables::{Loading, Tables},
};

const DATE: u64 = 1_700_000_000_000_000;
const THREADS: u16 = 3;
const RUNS: u32 = 40;

thread_local! {
    static FAULT: Cell<Option<Mutation>> = const { Cell::new(None) };
}

/// A database with the fault of the thread that uses it.
#[derive(Debug)]
struct Chosen;

impl Config for Chosen {
    type Engine = NoHtm;

    fn fault() -> Option<Mutation> {
        FAULT.get()
    }
}

/// All that a transaction has seen.
type Kept = Vec<Seen>;

/// What a terminal has done: committed transactions, and how many payments.
type Work = (Vec<Recorded>, u32);

/// Runs the transactions of a terminal.
fn terminal<C, P, D, O, L>(
    program: &Chopped<Chosen, Kept, C, P, D, O, L>,
    inputs: &mut Inputs,
    writer: u16,
    clock: &mut drtm_history::Clock,
) -> Result<Work, Error>
where
    C: Code<Chosen, Ordering<Kept>>,
    P: Code<Chosen, Paying<Kept>>,
    D: Code<Chosen, Delivering<Kept>>,
    O: Reads<Chosen, OrderStatus, Kept>,
    L: Reads<Chosen, StockLevel, Kept>,
{
    let (mut recorded, mut payments) = (Vec::new(), 0);
    for run in 0..RUNS {
        let which = inputs.random().within(0, 9_u32);
        let invoked = clock.moment();
        let seen = match which {
            0..=3 => match program.order.run(Ordering::new(&inputs.new_order(), DATE)) {
                Ok(order) => order.seen,
                Err(Error::Aborted { .. }) => continue,
                Err(error) => return Err(error),
            },
            4..=5 => {
                let paying = Paying::new(&inputs.payment(), (1, writer, payments), DATE);
                payments += 1;
                program.pay.run(paying)?.seen
            }
            6 => program.deliver.run(Delivering::new(&inputs.delivery(), DATE + u64::from(run)))?.seen,
            7 => program.level.read(&inputs.stock_level())?,
            _ => program.status.read(&inputs.order_status())?,
        };
        recorded.push((invoked, clock.moment(), seen));
    }
    Ok((recorded, payments))
}

/// Runs TPC-C in one warehouse. Returns what is wrong, in words.
fn wrong(seed: u64) -> Result<Vec<String>, drtm_drive::Error> {
    let scale = Scale::new(1)?.with_customers(30)?.with_items(20)?;
    let loader = Loader::new(scale, seed, NonZeroU64::MIN);
    let db: Db<Chosen> = Builder::new().memory(64 << 20).build_with(NoHtm)?;
    let tables: Tables = Tables::open(&db, &scale)?;
    let sink = &mut Loading { db: &db, tables };
    loader.items(sink)?;
    loader.warehouse(1, sink)?;
    let program = chopped::<_, Kept>(&db, tables)?;

    let mut recorder = Recorder::start();
    let mut clock = recorder.clock().expect("a few");
    let mut recorded: Vec<Recorded> = vec![(clock.moment(), clock.moment(), loaded(&Population::of(&loader)))];
    let mut payments = Vec::new();
    let work: Vec<Result<Work, Error>> = thread::scope(|scope| {
        let threads: Vec<_> = (1..=THREADS)
            .map(|writer| {
                let home = (1, writer as u8 % DISTRICTS + 1);
                let random = Random::stream(seed, 1 << 32 | u64::from(writer));
                let chances = Chances { rollback: 10, ..Chances::STANDARD };
                let inputs = Inputs::new(scale, loader.constants(), chances, home, random);
                let mut inputs = inputs.expect("it is there").with_uniform_items(true);
                let mut clock = recorder.clock().expect("a few");
                let (program, fault) = (&program, FAULT.get());
                scope.spawn(move || {
                    FAULT.set(fault);
                    terminal(program, &mut inputs, writer, &mut clock)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    for (work, writer) in work.into_iter().zip(1..) {
        let (mut transactions, count) = work?;
        recorded.append(&mut transactions);
        payments.push(Payments { warehouse: None, writer, count });
    }
    program.registered.publish()?;
    // All balances, at the end.
    let all = (1..=DISTRICTS).flat_map(|district| (1..=30).map(move |customer| (1, district, customer)));
    let account = |key| Ok(db.read(|tx| tx.get(tables.customers, key))?.map(|row| Seen::of_account(key, &row.account)));
    let last = all.map(account).collect::<Result<Vec<_>, Error>>()?.into_iter().flatten().flatten().collect();
    recorded.push((clock.moment(), clock.moment(), last));

    let mut wrong = Audit::new(&db, tables, scale, payments).violations()?;
    // What is deferred does not keep the order of real time.
    match check(&history(&recorded), Order::Any) {
        Ok(anomalies) => wrong.extend(anomalies.iter().map(ToString::to_string)),
        Err(malformed) => wrong.push(malformed.to_string()),
    }
    Ok(wrong)
}

#[test]
fn the_analysis_chops_it_as_the_paper_does() {
    let db: Db<Chosen> = Builder::new().memory(64 << 20).build_with(NoHtm).expect("memory");
    let scale = Scale::new(1).expect("small");
    let program = chopped::<_, ()>(&db, Tables::open(&db, &scale).expect("memory")).expect("it is serializable");
    let chopping = program.registered.chopping();
    let pieces: Vec<String> = chopping
        .transactions()
        .iter()
        .take(3)
        .map(|chopped| {
            let name = |piece: &drtm_chopping::Merged| {
                piece
                    .members()
                    .iter()
                    .map(|&member| chopping.program().piece_name(member))
                    .collect::<Vec<_>>()
                    .join("+")
            };
            chopped.pieces().iter().map(name).collect::<Vec<_>>().join(" ")
        })
        .collect();
    assert_eq!(
        pieces,
        [
            "item warehouse district+order+queue+stock+order-line customer",
            "warehouse district customer-idx customer history",
            "queue order order-line customer",
        ]
    );
    let [deferral] = chopping.deferrals() else { panic!("{chopping}") };
    assert_eq!(deferral.column, "customer.balance");
}

#[test]
fn whole_transactions_are_serializable_and_the_conditions_hold() {
    for seed in 0..20 {
        assert_eq!(wrong(seed).expect("memory"), [""; 0], "seed {seed}");
    }
}

/// Returns whether a fault is found, by a panic or an error as well.
fn is_found(fault: Mutation) -> bool {
    FAULT.set(Some(fault));
    let found = (0..200)
        .any(|seed| !matches!(catch_unwind(AssertUnwindSafe(|| wrong(seed))), Ok(Ok(wrong)) if wrong.is_empty()));
    FAULT.set(None);
    found
}

#[test]
fn pieces_that_are_not_merged_are_noticed() {
    assert!(is_found(Mutation::MergeLeftOut));
}

#[test]
fn reads_without_a_moment_are_noticed() {
    assert!(is_found(Mutation::MomentNotAwaited));
}

#[test]
fn deliveries_that_are_published_again_are_noticed() {
    assert!(is_found(Mutation::AdditionsRepeated));
}

#[test]
fn pieces_that_run_twice_are_noticed() {
    assert!(is_found(Mutation::PieceRepeated));
}
