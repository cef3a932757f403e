//! What has become of transactions: counted by each thread for itself, added up when somebody asks.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use parking_lot::Mutex;

use crate::Conflict;

const CONFLICTS: usize = Conflict::ALL.len();

/// One worker's counts, which only it writes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    commits: AtomicU64,
    given_up: AtomicU64,
    conflicts: [AtomicU64; CONFLICTS],
}

/// Adds one to a count of one's own: nobody else writes it, so this need not be one step.
#[inline(always)]
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}

impl Counters {
    #[inline(always)]
    pub(crate) fn committed(&self) {
        count(&self.commits);
    }

    pub(crate) fn gave_up(&self) {
        count(&self.given_up);
    }

    pub(crate) fn conflicted(&self, conflict: Conflict) {
        count(&self.conflicts[conflict.index()]);
    }
}

/// The counters of all workers of a database.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<Vec<Arc<Counters>>>);

impl Registry {
    pub(crate) fn register(&self) -> Arc<Counters> {
        let counters = Arc::<Counters>::default();
        self.0.lock().push(Arc::clone(&counters));
        counters
    }

    pub(crate) fn sum(&self) -> Stats {
        let mut stats = Stats::default();
        for counters in self.0.lock().iter() {
            stats.commits += counters.commits.load(Relaxed);
            stats.given_up += counters.given_up.load(Relaxed);
            for (sum, count) in stats.conflicts.iter_mut().zip(&counters.conflicts) {
                *sum += count.load(Relaxed);
            }
        }
        stats
    }
}

/// What has become of a database's transactions so far.
///
/// # Example
///
/// ```
/// use drtm_txn::{Conflict, Db, Error};
///
/// let db = Db::new()?;
/// db.transact(|_| Ok(()))?;
/// let _ = db.transact(|_| Err::<(), _>(Error::aborted("no")));
/// let stats = db.stats();
/// assert_eq!((stats.commits, stats.given_up, stats.conflicts(Conflict::Validation)), (1, 1, 0));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Transactions that committed.
    pub commits: u64,
    /// Transactions that their application gave up, or that failed.
    pub given_up: u64,
    conflicts: [u64; CONFLICTS],
}

impl Stats {
    /// How often a transaction could not go on for this cause. Most were run again.
    #[must_use]
    pub const fn conflicts(&self, cause: Conflict) -> u64 {
        self.conflicts[cause.index()]
    }

    /// The same for all causes.
    #[must_use]
    pub fn all_conflicts(&self) -> u64 {
        self.conflicts.iter().sum()
    }
}
