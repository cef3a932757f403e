//! The core package's workloads, shared by the workers of a run.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use drtm_drive::{
    mix::Mix,
    zipf::{Zipf, ZipfError},
};

/// The exponent of Zipf's distribution, in the core package and in most papers.
pub const EXPONENT: f64 = 0.99;

/// The range of the core package's Zipf distribution, before its numbers are hashed to records.
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
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Read, Self::Update, Self::Insert, Self::Scan, Self::ReadModifyWrite];
}

/// The distribution of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Uniform.
    Uniform,
    /// Scrambled Zipf: ten thousand million numbers by Zipf's distribution, hashed to records. The
    /// hottest number has 3.8 % of all draws, whatever the number of records. Numbers that hash to
    /// the same record add up.
    Zipfian,
    /// The newest records most often, by Zipf's distribution.
    Latest,
}

/// A workload, as data.
///
/// # Example
///
/// ```
/// use drtm_workloads::ycsb::{Choice, Kind, Workload};
///
/// let uniform = Workload { choice: Choice::Uniform, ..Workload::B };
/// assert_eq!((uniform.mix.share(Kind::Read), uniform.mix.share(Kind::Update)), (95, 5));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The mix of operations.
    pub mix: Mix<Kind>,
    /// The distribution of records.
    pub choice: Choice,
    /// Records of the longest scan. All lengths from one are equally likely.
    pub longest_scan: u16,
    /// Fields of a record. An update writes one.
    pub fields: u8,
}

impl Workload {
    /// Half reads, half updates.
    pub const A: Self = Self::core([(Kind::Read, 50), (Kind::Update, 50)], Choice::Zipfian);
    /// Mostly reads.
    pub const B: Self = Self::core([(Kind::Read, 95), (Kind::Update, 5)], Choice::Zipfian);
    /// Only reads.
    pub const C: Self = Self::core([(Kind::Read, 100)], Choice::Zipfian);
    /// Reads of the newest records.
    pub const D: Self = Self::core([(Kind::Read, 95), (Kind::Insert, 5)], Choice::Latest);
    /// Short scans.
    pub const E: Self = Self::core([(Kind::Scan, 95), (Kind::Insert, 5)], Choice::Zipfian);
    /// Half reads, half read-modify-writes.
    pub const F: Self = Self::core([(Kind::Read, 50), (Kind::ReadModifyWrite, 50)], Choice::Zipfian);

    const fn core<const N: usize>(shares: [(Kind, u8); N], choice: Choice) -> Self {
        Self { mix: Mix::constant(shares), choice, longest_scan: 100, fields: 10 }
    }
}

/// A workload over records that workers share.
///
/// Workers take turns at the numbers of new records. Each worker publishes how many it has
/// inserted. All of these counts together give the existing records. A worker reads them when it
/// has inserted a record itself, so workers share no counter.
///
/// # Example
///
/// ```
/// use drtm_workloads::ycsb::{Plan, PlanError, Workload};
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
    /// The number of records that a run is expected to insert.
    pub(super) room: u64,
    pub(super) zipf: Zipf,
    inserted: Box<[CachePadded<AtomicU64>]>,
}

/// An invalid plan, or a worker outside of it.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// There are no records.
    #[error("a workload over no records: ask for one at least")]
    NoRecords,
    /// More records than numbers can identify.
    #[error("{0} records, with those to be inserted: ask for less than 2^48")]
    TooManyRecords(u64),
    /// Empty scans or empty rows.
    #[error("scans or rows of nothing: let the longest scan have a record, and a row a field")]
    Nothing,
    /// The worker does not exist.
    #[error("worker {worker} of {workers}: workers are counted from zero")]
    Worker {
        /// The worker.
        worker: usize,
        /// The number of workers.
        workers: usize,
    },
    /// Zipf's distribution does not exist.
    #[error(transparent)]
    Zipf(#[from] ZipfError),
}

impl From<PlanError> for drtm_drive::Error {
    fn from(error: PlanError) -> Self {
        Self::size(error)
    }
}

impl Plan {
    /// Creates a plan over `records` for workers that insert about `room` records: 5 % of the
    /// operations in D and E. If they insert more, the distribution is no longer exactly that of
    /// the core package.
    ///
    /// # Errors
    ///
    /// Returns an error if there are no records, or too many, or if a scan or a row would be empty.
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

    /// Returns the number of workers that share it.
    pub fn workers(&self) -> usize {
        self.inserted.len()
    }

    /// Returns a number below which all records exist.
    pub fn present(&self) -> u64 {
        let next = |(worker, inserted): (u64, &CachePadded<AtomicU64>)| {
            // Acquire: a worker that learns of a record must find it.
            self.numbered(worker, inserted.load(Ordering::Acquire))
        };
        (0..).zip(&self.inserted).map(next).min().unwrap_or(self.records)
    }

    /// Returns the number of the record that a worker inserts after `inserted` others.
    pub(super) fn numbered(&self, worker: u64, inserted: u64) -> u64 {
        self.records + worker + inserted * self.workers() as u64
    }

    /// Publishes how many records a worker has inserted. Only that worker may call it.
    pub(super) fn set_inserted(&self, worker: usize, inserted: u64) {
        self.inserted[worker].store(inserted, Ordering::Release);
    }
}
