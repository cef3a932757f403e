//! What the workers of a run do together: the core package's workloads.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::{
    mix::Mix,
    zipf::{Zipf, ZipfError},
};

/// The exponent of Zipf's distribution, in the core package and in most papers.
pub const EXPONENT: f64 = 0.99;

/// Of the numbers that Zipf's distribution of the core package is over, before they are hashed to
/// those of records.
const SCRAMBLED: u64 = 10_000_000_000;

/// Kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the core package's names")]
pub enum Kind {
    Read,
    Update,
    Insert,
    Scan,
    ReadModifyWrite,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Read, Self::Update, Self::Insert, Self::Scan, Self::ReadModifyWrite];
}

/// Which records are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Each as often as any other.
    Uniform,
    /// Few of them often, wherever they are: ten thousand million numbers by Zipf's distribution,
    /// hashed to records. The hottest number has 3.8 % of all draws, however many records there
    /// are; those of numbers that hash to the same record add up.
    Zipfian,
    /// Those that were inserted last most often, by Zipf's distribution.
    Latest,
}

/// A workload, as data.
///
/// # Example
///
/// ```
/// use drtm_bench::ycsb::{Choice, Kind, Workload};
///
/// let uniform = Workload { choice: Choice::Uniform, ..Workload::B };
/// assert_eq!((uniform.mix.share(Kind::Read), uniform.mix.share(Kind::Update)), (95, 5));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// How much of what.
    pub mix: Mix<Kind>,
    /// Of which records.
    pub choice: Choice,
    /// Records of the longest scan. Each length from one on is as likely.
    pub longest_scan: u16,
    /// Fields of a record, of which an update writes one.
    pub fields: u8,
}

impl Workload {
    /// Half reads, half updates.
    pub const A: Self = Self::core([(Kind::Read, 50), (Kind::Update, 50)], Choice::Zipfian);
    /// Mostly reads.
    pub const B: Self = Self::core([(Kind::Read, 95), (Kind::Update, 5)], Choice::Zipfian);
    /// Only reads.
    pub const C: Self = Self::core([(Kind::Read, 100)], Choice::Zipfian);
    /// Reads of what was inserted last.
    pub const D: Self = Self::core([(Kind::Read, 95), (Kind::Insert, 5)], Choice::Latest);
    /// Short scans.
    pub const E: Self = Self::core([(Kind::Scan, 95), (Kind::Insert, 5)], Choice::Zipfian);
    /// Half reads, half reads with a write of what was read.
    pub const F: Self = Self::core([(Kind::Read, 50), (Kind::ReadModifyWrite, 50)], Choice::Zipfian);

    const fn core<const N: usize>(shares: [(Kind, u8); N], choice: Choice) -> Self {
        Self { mix: Mix::constant(shares), choice, longest_scan: 100, fields: 10 }
    }
}

/// A workload over records, which workers share.
///
/// Workers take turns at the numbers of new records. How many it has inserted, each writes for
/// itself; which records are there is what all of them say together, and a worker asks for it when
/// it has inserted one itself. So they share no counter.
///
/// # Example
///
/// ```
/// use drtm_bench::ycsb::{Plan, PlanError, Workload};
///
/// let plan = Plan::new(Workload::D, 1_000, 100, 2)?;
/// assert_eq!(plan.present(), 1_000);
/// assert_eq!(Plan::new(Workload::D, 0, 100, 2).err(), Some(PlanError::NoRecords));
/// # Ok::<(), PlanError>(())
/// ```
#[derive(Debug)]
pub struct Plan {
    pub(super) workload: Workload,
    pub(super) records: u64,
    /// Records that a run is expected to insert.
    pub(super) room: u64,
    pub(super) zipf: Zipf,
    inserted: Box<[CachePadded<AtomicU64>]>,
}

/// A plan that cannot be, or in which somebody has no place.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Nothing to ask for.
    #[error("a workload over no records: ask for one at least")]
    NoRecords,
    /// Records beyond what numbers are for.
    #[error("{0} records, with those to be inserted: ask for less than 2^48")]
    TooManyRecords(u64),
    /// A scan of nothing, or rows of nothing.
    #[error("scans or rows of nothing: let the longest scan have a record, and a row a field")]
    Nothing,
    /// There is no such worker.
    #[error("worker {worker} of {workers}: workers are counted from zero")]
    Worker {
        /// Who asks.
        worker: usize,
        /// How many there are.
        workers: usize,
    },
    /// Zipf's distribution does not exist.
    #[error(transparent)]
    Zipf(#[from] ZipfError),
}

impl Plan {
    /// A plan over so many records, for so many workers, who insert about `room` records: 5 % of
    /// the operations in D and E. Should they insert more, the distribution over records is no
    /// longer exactly that of the core package.
    ///
    /// # Errors
    ///
    /// When there are no records, or too many, or a scan or a row would be of nothing.
    pub fn new(workload: Workload, records: u64, room: u64, workers: usize) -> Result<Self, PlanError> {
        if records == 0 {
            return Err(PlanError::NoRecords);
        }
        let all = records.saturating_add(room);
        if all >= 1 << 48 {
            return Err(PlanError::TooManyRecords(all));
        }
        if workload.longest_scan == 0 || workload.fields == 0 {
            return Err(PlanError::Nothing);
        }
        let zipf = Zipf::new(if workload.choice == Choice::Zipfian { SCRAMBLED } else { all }, EXPONENT)?;
        let inserted = (0..workers).map(|_| CachePadded::default()).collect();
        Ok(Self { workload, records, room, zipf, inserted })
    }

    /// Workers that share it.
    pub fn workers(&self) -> usize {
        self.inserted.len()
    }

    /// All records that are numbered below this are there.
    pub fn present(&self) -> u64 {
        let next = |(worker, inserted): (u64, &CachePadded<AtomicU64>)| {
            // Acquire: whoever is told of a record finds it.
            self.numbered(worker, inserted.load(Ordering::Acquire))
        };
        (0..).zip(&self.inserted).map(next).min().unwrap_or(self.records)
    }

    /// The number of the record that a worker inserts after so many.
    pub(super) fn numbered(&self, worker: u64, inserted: u64) -> u64 {
        self.records + worker + inserted * self.workers() as u64
    }

    /// Tells that a worker, and nobody else tells so, has inserted so many records.
    pub(super) fn tell(&self, worker: usize, inserted: u64) {
        self.inserted[worker].store(inserted, Ordering::Release);
    }
}
