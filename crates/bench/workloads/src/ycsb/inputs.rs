//! The operations of one worker in a workload of the core package.

use std::sync::Arc;

use drtm_drive::Random;

use super::{Choice, Kind, Plan, PlanError};

/// An operation on a record, which is given by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the core package's operations")]
pub enum Operation {
    /// Reads all fields.
    Read { number: u64 },
    /// Writes a field.
    Update { number: u64, field: u8 },
    /// Inserts a new record.
    Insert { number: u64 },
    /// Reads `length` records in the order of keys, starting at this one.
    Scan { number: u64, length: u16 },
    /// Reads all fields, and writes one.
    ReadModifyWrite { number: u64, field: u8 },
}

impl Operation {
    /// Returns the kind.
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

/// The operations of one worker, determined by a seed and by when other workers insert.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
///
/// use drtm_workloads::ycsb::{Inputs, Operation, Plan, Workload};
///
/// let plan = Arc::new(Plan::new(Workload::D, 1_000, 1_000, 1)?);
/// let mut inputs = Inputs::new(&plan, 0, 42)?;
/// for _ in 0..100 {
///     match inputs.draw() {
///         // Insert the record here, then say so. Until then no worker reads it.
///         Operation::Insert { .. } => inputs.inserted(),
///         Operation::Read { number } => assert!(number < plan.present()),
///         other => unreachable!("{other:?}"),
///     }
/// }
/// assert!(plan.present() > 1_000);
/// # Ok::<(), drtm_workloads::ycsb::PlanError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Inputs {
    plan: Arc<Plan>,
    worker: usize,
    /// The number of records that this worker inserted.
    inserted: u64,
    /// All records below this number exist, as far as this worker knows.
    present: u64,
    random: Random,
}

impl Inputs {
    /// Creates the operations of one of a plan's workers, counted from zero. Call it once for each
    /// worker, because each inserts records of its own. Each worker needs a seed of its own.
    ///
    /// # Errors
    ///
    /// Returns an error if the worker does not exist.
    pub fn new(plan: &Arc<Plan>, worker: usize, seed: u64) -> Result<Self, PlanError> {
        let workers = plan.workers();
        if worker >= workers {
            return Err(PlanError::Worker { worker, workers });
        }
        let (plan, present) = (Arc::clone(plan), plan.present());
        Ok(Self { plan, worker, inserted: 0, present, random: Random::seeded(seed) })
    }

    /// Draws the next operation. An insertion is of the same record until
    /// [`inserted`](Self::inserted) is called.
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

    /// Reports that the last insertion's record exists, and updates the knowledge of others'
    /// records.
    pub fn inserted(&mut self) {
        self.inserted += 1;
        self.plan.set_inserted(self.worker, self.inserted);
        self.present = self.plan.present();
    }

    /// Draws the number of an existing record.
    #[inline]
    fn number(&mut self) -> u64 {
        let Self { plan, present, random, .. } = self;
        match plan.workload.choice {
            Choice::Uniform => random.within(0, *present - 1),
            Choice::Latest => *present - 1 - plan.zipf.draw_below(*present, random),
            Choice::Zipfian => loop {
                // The hash range includes records to be inserted, so that the hotness of existing
                // ones does not change.
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

/// Computes FNV-1a of the number's eight bytes, without the sign bit, as the core package does.
#[inline]
pub(super) fn hash(number: u64) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    let hash = number.to_le_bytes().into_iter().fold(0xCBF2_9CE4_8422_2325, step);
    hash.cast_signed().unsigned_abs()
}
