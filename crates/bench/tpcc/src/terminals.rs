//! A thread that runs the transactions of its terminals one after the other, without think time.

use std::hint::black_box;

use drtm_drive::{Client, Done, Error};
use drtm_txn::{Config, Db};

use super::{
    Chances, Constants, DISTRICTS, Deck, Inputs, Kind, Mix, Random, Scale, ScaleError,
    audit::Payments,
    reading::Reading,
    tables::{Layout, Tables},
    transactions::{self, LastOrder, LowStock, Refused, Scratch},
};

/// The transactions' names, indexed by [`Kind`].
pub(super) const KINDS: &[&str] = &["new-order", "payment", "order-status", "delivery", "stock-level"];

/// A terminal: its inputs, and the order of its transactions (5.2.4.2).
#[derive(Clone, Debug)]
struct Terminal {
    inputs: Inputs,
    deck: Deck,
}

/// The terminals of a thread, of which one after the other has the next transaction.
#[derive(Debug)]
pub(super) struct Seats {
    terminals: Vec<Terminal>,
    /// The index of the next terminal.
    next: usize,
}

/// A thread with its terminals.
#[derive(Debug)]
#[repr(align(128))]
pub struct Terminals<'db, S: Config, O: Layout> {
    db: &'db Db<S>,
    tables: Tables<O>,
    seats: Seats,
    scratch: Scratch,
    reading: Reading,
    /// The retries of its read-only transactions.
    pub(super) reruns: u64,
    /// Its number among the writers of payments.
    writer: u16,
    /// The number of payments that it recorded.
    payments: u32,
}

/// The work of terminals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Duty {
    pub(super) scale: Scale,
    /// The population's constants.
    pub(super) constants: Constants,
    pub(super) chances: Chances,
    pub(super) mix: Mix,
    pub(super) reading: Reading,
    pub(super) seed: u64,
}

/// The first stream of a seed for terminals; warehouses use those from zero.
const STREAMS: u64 = 1 << 32;

impl Seats {
    /// Creates the terminals of all districts, divided among threads so that each has as few
    /// warehouses as possible. With more threads than terminals, some threads share a terminal.
    pub(super) fn of_all(duty: &Duty, threads: usize) -> Result<Vec<Self>, ScaleError> {
        let Duty { scale, constants, chances, mix, seed, .. } = *duty;
        let run = Constants::for_run(constants, &mut Random::stream(seed, STREAMS - 1));
        let all = usize::from(scale.warehouses()) * usize::from(DISTRICTS);
        let terminal = |thread: usize, number: usize| {
            let home = ((number / usize::from(DISTRICTS)) as u16 + 1, (number % usize::from(DISTRICTS)) as u8 + 1);
            // Threads that share a terminal draw different inputs.
            let random = Random::stream(seed, STREAMS + (thread << 24 | number) as u64);
            Ok(Terminal { inputs: Inputs::new(scale, run, chances, home, random)?, deck: Deck::new(mix) })
        };
        let of_thread = |thread: usize| {
            let (first, end) = (thread * all / threads, (thread + 1) * all / threads);
            let terminals =
                (first..end.max(first + 1)).map(|number| terminal(thread, number)).collect::<Result<_, _>>()?;
            Ok(Self { terminals, next: 0 })
        };
        (0..threads).map(of_thread).collect()
    }

    /// Draws the next transaction, and returns its kind and the inputs of its terminal.
    #[inline]
    pub(super) fn draw(&mut self) -> (Kind, &mut Inputs) {
        let Self { terminals, next } = self;
        let count = terminals.len();
        let Terminal { inputs, deck } = &mut terminals[*next];
        *next = if *next + 1 == count { 0 } else { *next + 1 };
        (deck.draw(inputs.random()), inputs)
    }
}

impl<'db, S: Config, O: Layout> Terminals<'db, S, O> {
    /// Creates the [terminals](Seats::of_all) of all threads.
    pub(super) fn of_all(
        db: &'db Db<S>,
        tables: Tables<O>,
        duty: &Duty,
        threads: usize,
    ) -> Result<Vec<Self>, ScaleError> {
        let of_thread = |(seats, writer)| {
            let (scratch, reading) = (Scratch::default(), duty.reading);
            Self { db, tables, seats, scratch, reading, reruns: 0, writer, payments: 0 }
        };
        // Writer 0 is the loader.
        Ok(Seats::of_all(duty, threads)?.into_iter().zip(1..).map(of_thread).collect())
    }

    /// Returns the payments that it recorded.
    pub(super) fn payments(&self) -> Payments {
        Payments { warehouse: None, writer: self.writer, count: self.payments }
    }
}

impl<S: Config, O: Layout> Client for Terminals<'_, S, O> {
    fn kinds() -> &'static [&'static str] {
        KINDS
    }

    fn run_next(&mut self, date: u64) -> Result<Done, Error> {
        let Self { db, tables, seats, scratch, reading, reruns, writer, payments } = self;
        let (kind, inputs) = seats.draw();
        let mut is_committed = true;
        match kind {
            Kind::NewOrder => match transactions::order(db, tables, &inputs.new_order(), date) {
                Ok(receipt) => drop(black_box(receipt)),
                Err(Refused::UnusedItem) => is_committed = false,
                Err(Refused::Failed(error)) => return Err(error),
            },
            Kind::Payment => {
                let input = inputs.payment();
                let key = (input.district.0, *writer, *payments);
                black_box(transactions::pay(db, tables, &input, key, date, scratch)?);
                *payments += 1;
            }
            Kind::OrderStatus => {
                let input = inputs.order_status();
                black_box(reading.run(db, LastOrder { tables, input, scratch }, reruns)?);
            }
            Kind::Delivery => {
                black_box(transactions::deliver(db, tables, &inputs.delivery(), date)?);
            }
            Kind::StockLevel => {
                let input = inputs.stock_level();
                black_box(reading.run(db, LowStock { tables, input, scratch }, reruns)?);
            }
        }
        Ok(Done { kind: kind as usize, is_committed })
    }
}
