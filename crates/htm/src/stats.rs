//! Counters by cause: each worker counts in its own block, and a reader adds them up.
//!
//! A worker has a block on cache lines of its own and is the only one to write it, with a plain
//! load and store. There is no read-modify-write, and no line shared between workers. A reader sums
//! the blocks of live workers and the totals of ended ones. It sees each counter at some recent
//! moment, and never slows a worker.

use std::{
    iter::Sum,
    ops::{Add, Sub},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use crate::cause::Cause;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// The outcomes of the htm transactions of an engine's workers.
        ///
        /// # Example
        ///
        /// ```
        /// use drtm_htm::{Access, Emulated, Htm, Policy, Word};
        ///
        /// let htm = Htm::new(Emulated::default());
        /// let word = Word::new(0);
        /// let mut worker = htm.worker();
        /// let _ = worker.attempt(Policy::DBX, |tx| tx.store(&word, 1));
        /// let _ = worker.attempt(Policy::DBX, |tx| Err::<(), _>(tx.abort::<5>()));
        /// let stats = htm.stats();
        /// assert_eq!((stats.commits, stats.explicit, stats.fallbacks), (1, 1, 1));
        /// assert_eq!(stats.attempts(), 2);
        /// ```
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats { $($(#[$doc])* pub $name: u64),+ }

        #[derive(Debug, Default)]
        struct Block { $($name: AtomicU64),+ }

        impl Block {
            fn read(&self) -> Stats {
                Stats { $($name: self.$name.load(Relaxed)),+ }
            }
        }

        impl Add for Stats {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self { $($name: self.$name + other.$name),+ }
            }
        }

        impl Sub for Stats {
            type Output = Self;
            /// Returns what happened since an `earlier` reading.
            fn sub(self, earlier: Self) -> Self {
                Self { $($name: self.$name - earlier.$name),+ }
            }
        }
    };
}

counters! {
    /// Transactions that committed.
    commits,
    /// Aborts by conflict.
    conflict,
    /// Aborts by capacity.
    capacity,
    /// Aborts by system events.
    system,
    /// Aborts by the body itself.
    explicit,
    /// Aborts because the fallback lock was held.
    lock_held,
    /// Aborts by too deep nesting.
    nested,
    /// Aborts by a panic.
    panicked,
    /// Attempts that gave up, so that the caller took the software path.
    fallbacks,
}

impl Stats {
    /// Returns the number of aborts of every cause.
    #[must_use]
    pub fn aborts(&self) -> u64 {
        self.conflict + self.capacity + self.system + self.explicit + self.lock_held + self.nested + self.panicked
    }

    /// Returns the number of transactions begun: those that committed and those that aborted.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.commits + self.aborts()
    }
}

impl Sum for Stats {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), Add::add)
    }
}

/// One worker's counters.
#[derive(Debug)]
pub(crate) struct Counters {
    block: Arc<CachePadded<Block>>,
    registry: Arc<Registry>,
}

impl Counters {
    #[inline(always)]
    pub(crate) fn committed(&self) {
        bump(&self.block.commits);
    }

    pub(crate) fn aborted(&self, cause: Cause) {
        bump(match cause {
            Cause::Conflict => &self.block.conflict,
            Cause::Capacity => &self.block.capacity,
            Cause::System => &self.block.system,
            Cause::Explicit(_) => &self.block.explicit,
            Cause::LockHeld => &self.block.lock_held,
            Cause::Nested => &self.block.nested,
            Cause::Panicked => &self.block.panicked,
            // These are not aborts: no transaction was begun.
            Cause::Unavailable | Cause::NotTried => return,
        });
    }

    pub(crate) fn gave_up(&self) {
        bump(&self.block.fallbacks);
    }
}

/// Adds one to a counter. Only one thread writes the counter.
#[inline(always)]
fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}

impl Drop for Counters {
    fn drop(&mut self) {
        let mut workers = self.registry.workers.lock();
        workers.living.retain(|block| !Arc::ptr_eq(block, &self.block));
        workers.departed = workers.departed + self.block.read();
    }
}

/// The counters of all workers of one [`Htm`](crate::Htm).
#[derive(Debug, Default)]
pub(crate) struct Registry {
    workers: Mutex<Workers>,
}

#[derive(Debug, Default)]
struct Workers {
    living: Vec<Arc<CachePadded<Block>>>,
    departed: Stats,
}

impl Registry {
    pub(crate) fn register(self: &Arc<Self>) -> Counters {
        let block = Arc::new(CachePadded::default());
        self.workers.lock().living.push(Arc::clone(&block));
        Counters { block, registry: Arc::clone(self) }
    }

    pub(crate) fn read(&self) -> Stats {
        let workers = self.workers.lock();
        workers.departed + workers.living.iter().map(|block| block.read()).sum()
    }
}
