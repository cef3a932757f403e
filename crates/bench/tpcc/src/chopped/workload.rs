//! TPC-C in pieces as a workload: its terminals, and what pieces run within.

use std::{fmt, hint::black_box, sync::Arc};

use drtm_drive::{Client, Done, Error, Workload};
use drtm_txn::{
    Config, Db, Error as DbError, Hash,
    chopped::{Around, Bare, Code},
};
use serde_json::Value;

use super::{
    Chopped, Reads, chopped,
    writers::{Delivering, Ordering, Paying},
};
use crate::{
    Chances, Delivery, HistoryKey, Kind, MixName, NewOrderInput, OrderStatus, Payment, Scale, StockLevel, Tpcc,
    audit::{Audit, Payments},
    tables::Tables,
    terminals::{KINDS, Seats},
};

/// What each piece of a thread's transactions runs within: an htm transaction, say.
pub trait Section: Send {
    /// Runs a piece, by its transaction and its place among that one's pieces, and returns its
    /// result.
    fn piece(&mut self, of: Kind, place: usize, run: &mut dyn FnMut() -> Result<(), DbError>) -> Result<(), DbError>;

    /// Returns counters for the report.
    fn counted(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

/// TPC-C whose transactions run in pieces.
///
/// # Example
///
/// ```
/// use drtm_drive::{Pace, Until, Workload, run_in};
/// use drtm_htm::NoHtm;
/// use drtm_tpcc::{Chances, ChoppedTpcc, MixName, Scale};
///
/// let scale = Scale::sized(1, true)?;
/// let tpcc = ChoppedTpcc::new(scale, MixName::Standard, Chances::STANDARD, 7);
/// let pace = Pace { threads: 1, until: Until::Transactions(100), memory: 1 << 30, prefault: 0 };
/// let finished = run_in::<drtm_drive::Plain, _>(&tpcc, NoHtm, pace)?;
/// assert!(finished.violations.is_empty() && finished.tally.committed > 90);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ChoppedTpcc<'s> {
    tpcc: Tpcc,
    section: Option<MakeSection<'s>>,
}

/// Makes the section of a thread.
type MakeSection<'s> = Box<dyn Fn() -> Box<dyn Section + 's> + Sync + 's>;

impl fmt::Debug for ChoppedTpcc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChoppedTpcc").field("tpcc", &self.tpcc).finish_non_exhaustive()
    }
}

impl ChoppedTpcc<'_> {
    /// Creates the workload. Its pieces are transactions of the database.
    pub fn new(scale: Scale, mix: MixName, chances: Chances, seed: u64) -> Self {
        Self { tpcc: Tpcc::<Hash>::new(scale, mix, chances, seed), section: None }
    }

    /// Lets the pieces of each thread run within a section.
    #[must_use]
    pub fn within<'t>(self, section: impl Fn() -> Box<dyn Section + 't> + Sync + 't) -> ChoppedTpcc<'t> {
        ChoppedTpcc { tpcc: self.tpcc, section: Some(Box::new(section)) }
    }
}

/// A transaction, with its inputs.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, on the stack")]
enum Work {
    Order(NewOrderInput),
    Pay(Payment, HistoryKey),
    Deliver(Delivery),
    Status(OrderStatus),
    Level(StockLevel),
}

/// A registered program, whose types a terminal does not know.
trait Runs<S: Config>: Send + Sync {
    /// Runs a transaction. Returns whether it committed.
    fn run(&self, work: &Work, date: u64, section: Option<&mut (dyn Section + '_)>) -> Result<bool, Error>;

    /// Publishes what was deferred.
    fn publish(&self) -> Result<(), Error>;
}

/// A transaction's pieces within a section.
struct Within<'s, 'a> {
    of: Kind,
    section: &'s mut (dyn Section + 'a),
}

impl Around for Within<'_, '_> {
    fn piece(&mut self, place: usize, mut run: impl FnMut() -> Result<(), DbError>) -> Result<(), DbError> {
        self.section.piece(self.of, place, &mut run)
    }
}

impl<S, C, P, D, O, L> Runs<S> for Chopped<S, (), C, P, D, O, L>
where
    S: Config,
    C: Code<S, Ordering<()>>,
    P: Code<S, Paying<()>>,
    D: Code<S, Delivering<()>>,
    O: Reads<S, OrderStatus, ()>,
    L: Reads<S, StockLevel, ()>,
{
    fn run(&self, work: &Work, date: u64, section: Option<&mut (dyn Section + '_)>) -> Result<bool, Error> {
        match work {
            Work::Order(input) => {
                let input = Ordering::new(input, date);
                let ran = match section {
                    None => self.order.run_within(input, &mut Bare),
                    Some(section) => self.order.run_within(input, &mut Within { of: Kind::NewOrder, section }),
                };
                match ran {
                    Ok(order) => drop(black_box(order.receipt())),
                    Err(DbError::Aborted { .. }) => return Ok(false),
                    Err(error) => return Err(error.into()),
                }
            }
            Work::Pay(input, key) => {
                let input = Paying::new(input, *key, date);
                let paid = match section {
                    None => self.pay.run_within(input, &mut Bare),
                    Some(section) => self.pay.run_within(input, &mut Within { of: Kind::Payment, section }),
                };
                black_box(paid?.balance);
            }
            Work::Deliver(input) => {
                let input = Delivering::new(input, date);
                let delivered = match section {
                    None => self.deliver.run_within(input, &mut Bare),
                    Some(section) => self.deliver.run_within(input, &mut Within { of: Kind::Delivery, section }),
                };
                black_box(delivered?.count());
            }
            Work::Status(input) => self.status.read(input)?,
            Work::Level(input) => self.level.read(input)?,
        }
        Ok(true)
    }

    fn publish(&self) -> Result<(), Error> {
        Ok(self.registered.publish()?)
    }
}

/// A thread with its terminals, whose transactions run in pieces.
#[repr(align(128))]
pub struct ChoppedTerminals<'w, S: Config> {
    program: Arc<dyn Runs<S>>,
    section: Option<Box<dyn Section + 'w>>,
    seats: Seats,
    /// Its number among the writers of payments.
    writer: u16,
    payments: u32,
}

impl<S: Config> fmt::Debug for ChoppedTerminals<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChoppedTerminals").field("seats", &self.seats).finish_non_exhaustive()
    }
}

impl<S: Config> Client for ChoppedTerminals<'_, S> {
    fn kinds() -> &'static [&'static str] {
        KINDS
    }

    fn run_next(&mut self, date: u64) -> Result<Done, Error> {
        let Self { program, section, seats, writer, payments } = self;
        let (kind, inputs) = seats.draw();
        let work = match kind {
            Kind::NewOrder => Work::Order(inputs.new_order()),
            Kind::Payment => {
                let input = inputs.payment();
                let key = (input.district.0, *writer, *payments);
                *payments += 1;
                Work::Pay(input, key)
            }
            Kind::OrderStatus => Work::Status(inputs.order_status()),
            Kind::Delivery => Work::Deliver(inputs.delivery()),
            Kind::StockLevel => Work::Level(inputs.stock_level()),
        };
        let is_committed = program.run(&work, date, section.as_deref_mut())?;
        Ok(Done { kind: kind as usize, is_committed })
    }
}

impl Workload for ChoppedTpcc<'_> {
    const NAME: &'static str = "chopped tpcc";
    type Tables = Tables;
    type Client<'w, S: Config>
        = ChoppedTerminals<'w, S>
    where
        Self: 'w;

    fn size(&self) -> Vec<(&'static str, Value)> {
        self.tpcc.size()
    }

    fn open<S: Config>(&self, db: &Db<S>) -> Result<Tables, Error> {
        self.tpcc.open(db)
    }

    fn pieces(&self) -> u64 {
        self.tpcc.pieces()
    }

    fn load<S: Config>(&self, db: &Db<S>, tables: Tables, piece: u64) -> Result<(), Error> {
        self.tpcc.load(db, tables, piece)
    }

    fn clients<'w, S: Config>(
        &'w self,
        db: &'w Db<S>,
        tables: Tables,
        threads: usize,
    ) -> Result<Vec<ChoppedTerminals<'w, S>>, Error> {
        let program: Arc<dyn Runs<S>> = Arc::new(chopped::<S, ()>(db, tables)?);
        let of_thread = |(seats, writer)| {
            let section = self.section.as_ref().map(|section| section());
            ChoppedTerminals { program: Arc::clone(&program), section, seats, writer, payments: 0 }
        };
        // Writer 0 is the loader.
        Ok(Seats::of_all(&self.tpcc.duty(), threads)?.into_iter().zip(1..).map(of_thread).collect())
    }

    fn counted<S: Config>(clients: &[ChoppedTerminals<'_, S>]) -> Vec<(String, u64)> {
        clients.iter().flat_map(|client| &client.section).flat_map(|section| section.counted()).collect()
    }

    fn check<S: Config>(
        &self,
        db: &Db<S>,
        tables: Tables,
        clients: &[&ChoppedTerminals<'_, S>],
    ) -> Result<Vec<String>, Error> {
        // Else deliveries are not in the balances.
        clients.first().map_or(Ok(()), |client| client.program.publish())?;
        let paid =
            clients.iter().map(|client| Payments { warehouse: None, writer: client.writer, count: client.payments });
        Audit::new(db, tables, self.tpcc.scale(), paid).violations()
    }
}
