//! Statistics of transactions: each worker counts for itself, and a report adds the counts up.
//!
//! The counts of writing commits, and of records that are taken out, are also part of a protocol
//! (see `opacity`), so they are words.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use drtm_htm::{Engine, Word};

use crate::{Conflict, model::sync::Mutex};

/// The size of a table: see [`Db::table_stats`](crate::Db::table_stats).
///
/// # Example
///
/// See [`Db::table_stats`](crate::Db::table_stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableStats {
    /// The number of rows.
    pub rows: u64,
    /// The bytes of their keys, encoded.
    pub key_bytes: u64,
    /// The bytes of their values, encoded.
    pub value_bytes: u64,
    /// The bytes of memory of their records: headers, keys and values, rounded up to size classes.
    /// Buckets or nodes, and older versions for snapshots, are not included.
    pub record_bytes: u64,
}

/// How much memory a database uses, by kind: see [`Db::memory`](crate::Db::memory).
///
/// # Example
///
/// ```
/// use drtm::{Builder, Error, Ordered, Raw, TableDef};
///
/// const NOTES: TableDef<u64, Raw, Ordered> = TableDef::ordered("notes");
/// let db = Builder::new().memory(64 << 20).build()?;
/// let notes = db.table(NOTES)?;
/// db.transact(|tx| tx.put(notes, 1, b"one"))?;
/// let snapshot = db.snapshot()?;
/// db.transact(|tx| tx.put(notes, 1, b"two"))?;
/// let memory = db.memory();
/// assert!(memory.older_versions > 0 && memory.threads > 0 && memory.total() < memory.most);
/// # drop(snapshot);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// The bytes that the database may use: [`Builder::memory`](crate::Builder::memory).
    pub most: u64,
    /// The bytes that tables have taken: records, buckets and nodes. Freed memory is reused for
    /// rows of the same size, or becomes [free](Self::free).
    pub tables: u64,
    /// The bytes of tables and free memory that are in physical memory. The system provides pages
    /// whole, and where it can, huge ones of 2 MiB. `None` if it does not tell.
    pub resident: Option<u64>,
    /// The bytes that rows of any size can take, which `tables` does not count. Memory gets here by
    /// [`Db::compact`](crate::Db::compact), or when an allocation needs it.
    pub free: u64,
    /// Those bytes among `tables` that hold older versions for open snapshots. A version that no
    /// snapshot needs counts until a later commit frees it.
    pub older_versions: u64,
    /// The bytes of hints of where keys of ordered tables were found before. They are freed when
    /// keys are removed, and when tables need the memory. Together with `tables` they never exceed
    /// `most`.
    pub hints: u64,
    /// The bytes of the heap that threads keep from one transaction to the next: at most a few MiB
    /// for each transaction state. Each state is measured when it is created, then every 32
    /// commits.
    pub threads: u64,
    /// The bytes of the heap that list what must be removed from tables when snapshots have ended.
    /// They are freed along with `older_versions`.
    pub garbage: u64,
}

impl MemoryUse {
    /// Returns how many bytes are in use in all: those that are [free](Self::free) are not.
    ///
    /// # Example
    ///
    /// See [`Db::memory`](crate::Db::memory).
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.tables + self.hints + self.threads + self.garbage
    }
}

const CONFLICTS: usize = Conflict::ALL.len();

/// The counters of one worker, which only that worker writes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    /// Commits that write.
    written: Word,
    /// Records of absent rows that were taken out of their tables.
    taken_out: Word,
    /// Commits that only read.
    read: AtomicU64,
    given_up: AtomicU64,
    conflicts: [AtomicU64; CONFLICTS],
    /// The bytes that the worker keeps.
    kept: AtomicU64,
}

/// Increments a counter that only this thread writes, so that no atomic increment is needed.
#[inline(always)]
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}

impl Counters {
    /// Counts a read-only commit.
    #[inline(always)]
    pub(crate) fn count_read(&self) {
        count(&self.read);
    }

    /// Counts a commit that has locked its write set, and is about to write.
    #[inline(always)]
    pub(crate) fn count_write<E: Engine>(&self, engine: &E) {
        engine.store(&self.written, engine.load_relaxed(&self.written) + 1);
    }

    /// Counts a record that is locked, and is about to be taken out of its table.
    #[inline(always)]
    pub(crate) fn count_taken_out<E: Engine>(&self, engine: &E) {
        engine.store(&self.taken_out, engine.load_relaxed(&self.taken_out) + 1);
    }

    /// Returns how often this worker has changed rows, or taken out records of absent ones, or is
    /// about to.
    #[inline]
    pub(crate) fn changes<E: Engine>(&self, engine: &E) -> u64 {
        engine.load(&self.written).wrapping_add(engine.load(&self.taken_out))
    }

    /// Records how many bytes the worker keeps.
    pub(crate) fn keeps(&self, bytes: usize) {
        self.kept.store(bytes as u64, Relaxed);
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
pub(crate) struct Registry {
    workers: Mutex<Vec<Arc<Counters>>>,
    /// The number of workers.
    count: Word,
}

impl Registry {
    pub(crate) fn register<E: Engine>(&self, engine: &E) -> Arc<Counters> {
        let counters = Arc::<Counters>::default();
        self.workers.lock().push(Arc::clone(&counters));
        // This comes before the worker commits anything.
        engine.fetch_add(&self.count, 1);
        counters
    }

    /// Completes a list of all workers' counters.
    #[inline]
    pub(crate) fn list<E: Engine>(&self, engine: &E, known: &mut Vec<Arc<Counters>>) {
        if engine.load(&self.count) as usize > known.len() {
            known.extend(self.workers.lock()[known.len()..].iter().cloned());
        }
    }

    /// Returns the total bytes that the workers keep.
    pub(crate) fn kept(&self) -> u64 {
        self.workers.lock().iter().map(|counters| counters.kept.load(Relaxed)).sum()
    }

    pub(crate) fn sum<E: Engine>(&self, engine: &E) -> Stats {
        let mut stats = Stats::default();
        let mut workers = Vec::new();
        self.list(engine, &mut workers);
        for counters in &workers {
            stats.commits += engine.load(&counters.written) + counters.read.load(Relaxed);
            stats.given_up += counters.given_up.load(Relaxed);
            for (sum, count) in stats.conflicts.iter_mut().zip(&counters.conflicts) {
                *sum += count.load(Relaxed);
            }
        }
        stats
    }
}

/// The counts of a database's transactions, by outcome.
///
/// # Example
///
/// ```
/// use drtm::{Conflict, Db, Error};
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
    /// Transactions that the application aborted, or that failed.
    pub given_up: u64,
    conflicts: [u64; CONFLICTS],
}

impl Stats {
    /// Returns how often a transaction conflicted for this cause. Most were retried.
    ///
    /// # Example
    ///
    /// See [`Stats`].
    #[must_use]
    pub const fn conflicts(&self, cause: Conflict) -> u64 {
        self.conflicts[cause.index()]
    }

    /// Returns how often a transaction conflicted for any cause.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef};
    ///
    /// const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
    /// let db = Db::new()?;
    /// let counters = db.table(COUNTERS)?;
    /// let mut runs = 0;
    /// db.transact(|tx| {
    ///     let count = tx.get(counters, 1)?.unwrap_or(0);
    ///     runs += 1;
    ///     if runs == 1 {
    ///         // Another thread is faster.
    ///         let put = || db.transact(|tx| tx.put(counters, 1, &7));
    ///         std::thread::scope(|scope| scope.spawn(put).join()).expect("no panic")?;
    ///     }
    ///     tx.put(counters, 1, &(count + 1))
    /// })?;
    /// assert_eq!((runs, db.stats().all_conflicts()), (2, 1));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn all_conflicts(&self) -> u64 {
        self.conflicts.iter().sum()
    }
}
