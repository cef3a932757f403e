//! What one worker does in a workload of the core package.

use std::sync::Arc;

use super::{Choice, Kind, Plan, PlanError};
use crate::tpcc::Random;

/// What is to be done with a record, which is given by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the core package's operations")]
pub enum Operation {
    /// Reads all fields.
    Read { number: u64 },
    /// Writes a field.
    Update { number: u64, field: u8 },
    /// Inserts a new record.
    Insert { number: u64 },
    /// Reads so many records, from one on in the order of keys.
    Scan { number: u64, length: u16 },
    /// Reads all fields, and writes one.
    ReadModifyWrite { number: u64, field: u8 },
}

impl Operation {
    /// Which kind it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Read { .. } => Kind::Read,
            Self::Update { .. } => Kind::Update,
            Self::Insert { .. } => Kind::Insert,
            Self::Scan { .. } => Kind::Scan,
            Self::ReadModifyWrite { .. } => Kind::ReadModifyWrite,
        }
    }
}

/// The operations of one worker: a function of a seed, and of when others insert.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
///
/// use drtm_bench::ycsb::{Inputs, Operation, Plan, Workload};
///
/// let plan = Arc::new(Plan::new(Workload::D, 1_000, 1_000, 1)?);
/// let mut inputs = Inputs::new(&plan, 0, 42)?;
/// for _ in 0..100 {
///     match inputs.draw() {
///         // Insert the record here, then say so. Until then nobody is asked to read it.
///         Operation::Insert { .. } => inputs.inserted(),
///         Operation::Read { number } => assert!(number < plan.present()),
///         other => unreachable!("{other:?}"),
///     }
/// }
/// assert!(plan.present() > 1_000);
/// # Ok::<(), drtm_bench::ycsb::PlanError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Inputs {
    plan: Arc<Plan>,
    worker: usize,
    /// Records that were inserted by this worker.
    inserted: u64,
    /// Those below are there, as far as this worker knows.
    present: u64,
    random: Random,
}

impl Inputs {
    /// The operations of one of a plan's workers, counted from zero: once for each, since what it
    /// inserts nobody else does. Each worker has a seed of its own.
    ///
    /// # Errors
    ///
    /// When there is no such worker.
    pub fn new(plan: &Arc<Plan>, worker: usize, seed: u64) -> Result<Self, PlanError> {
        let workers = plan.workers();
        if worker >= workers {
            return Err(PlanError::Worker { worker, workers });
        }
        let (plan, present) = (Arc::clone(plan), plan.present());
        Ok(Self { plan, worker, inserted: 0, present, random: Random::seeded(seed) })
    }

    /// The next operation. An insertion is of the same record until it is said to be
    /// [`inserted`](Self::inserted).
    #[inline]
    pub fn draw(&mut self) -> Operation {
        let kind = self.plan.workload.mix.draw(&mut self.random);
        match kind {
            Kind::Read => Operation::Read { number: self.number() },
            Kind::Update => Operation::Update { number: self.number(), field: self.field() },
            Kind::Insert => Operation::Insert { number: self.plan.numbered(self.worker as u64, self.inserted) },
            Kind::Scan => {
                let number = self.number();
                Operation::Scan { number, length: self.random.within(1, self.plan.workload.longest_scan) }
            }
            Kind::ReadModifyWrite => Operation::ReadModifyWrite { number: self.number(), field: self.field() },
        }
    }

    /// Tells that the record of the last insertion is there, and learns which of others' are.
    pub fn inserted(&mut self) {
        self.inserted += 1;
        self.plan.tell(self.worker, self.inserted);
        self.present = self.plan.present();
    }

    /// The number of a record that is there.
    #[inline]
    fn number(&mut self) -> u64 {
        let Self { plan, present, random, .. } = self;
        match plan.workload.choice {
            Choice::Uniform => random.within(0, *present - 1),
            Choice::Latest => *present - 1 - plan.zipf.draw_below(*present, random),
            Choice::Zipfian => loop {
                // Those to be inserted are hashed to as well, so that those that are there stay as
                // hot as they were.
                let number = hash(plan.zipf.draw(random)) % (plan.records + plan.room);
                if number < *present {
                    return number;
                }
            },
        }
    }

    fn field(&mut self) -> u8 {
        self.random.within(0, self.plan.workload.fields - 1)
    }
}

/// FNV-1a of the number's eight bytes, without the sign bit that the core package loses.
#[inline]
pub(super) fn hash(number: u64) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    let hash = number.to_le_bytes().into_iter().fold(0xCBF2_9CE4_8422_2325, step);
    hash.cast_signed().unsigned_abs()
}
