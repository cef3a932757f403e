//! What has become of transactions: counted by each worker for itself, and added up for a report.
//!
//! The counts of commits that write, and of records that are taken out, are part of a protocol, too
//! (see `opacity`), so they are words.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use drtm_htm::{Engine, Word};

use crate::{Conflict, sync::Mutex};

/// What a table holds: see [`Db::table_stats`](crate::Db::table_stats).
///
/// # Example
///
/// See [`Db::table_stats`](crate::Db::table_stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableStats {
    /// Rows.
    pub rows: u64,
    /// Bytes of their keys, encoded.
    pub key_bytes: u64,
    /// Bytes of their values, encoded.
    pub value_bytes: u64,
    /// Bytes of memory that their records take: headers, keys and values, rounded up to size
    /// classes. Buckets or nodes, and older versions for snapshots, are not part of it.
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
    /// Bytes that the database may use: [`Builder::memory`](crate::Builder::memory).
    pub most: u64,
    /// Bytes that tables have taken: records, buckets and nodes. What rows no longer need is used
    /// for others, and not given back to the system.
    pub tables: u64,
    /// Those among them that hold what rows were, for open snapshots, or until a later commit
    /// notices that none needs them any longer.
    pub older_versions: u64,
    /// Bytes that say where keys of ordered tables were found before. They are given back when keys
    /// are removed, and when tables need them: with `tables` they are never more than `most`.
    pub hints: u64,
    /// Bytes of the heap that threads keep from one transaction to the next: at most a few MiB for
    /// each state of a transaction. Each is looked at when it is made, then every 32 commits.
    pub threads: u64,
    /// Bytes of the heap that name what is to be taken out of tables when snapshots have ended.
    /// They come back with `older_versions`.
    pub garbage: u64,
}

impl MemoryUse {
    /// Returns how many bytes that are in all.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.tables + self.hints + self.threads + self.garbage
    }
}

const CONFLICTS: usize = Conflict::ALL.len();

/// One worker's counts, which only it writes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    /// Commits that write.
    written: Word,
    /// Records that stood for absent rows, and were taken out of their tables.
    taken_out: Word,
    /// Commits that only read.
    read: AtomicU64,
    given_up: AtomicU64,
    conflicts: [AtomicU64; CONFLICTS],
    /// Bytes that the worker keeps.
    kept: AtomicU64,
}

/// Adds one to a count of one's own: nobody else writes it, so this need not be one step.
#[inline(always)]
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}

impl Counters {
    /// Counts a commit that has only read.
    #[inline(always)]
    pub(crate) fn has_read(&self) {
        count(&self.read);
    }

    /// Counts a commit that has locked what it writes, and is about to write it.
    #[inline(always)]
    pub(crate) fn writes<E: Engine>(&self, engine: &E) {
        engine.store(&self.written, engine.load_relaxed(&self.written) + 1);
    }

    /// Counts a record that is locked, and is about to be taken out of its table.
    #[inline(always)]
    pub(crate) fn takes_out<E: Engine>(&self, engine: &E) {
        engine.store(&self.taken_out, engine.load_relaxed(&self.taken_out) + 1);
    }

    /// Returns how often others' rows, or the records of absent ones, have changed, or are about
    /// to.
    #[inline]
    pub(crate) fn changes<E: Engine>(&self, engine: &E) -> u64 {
        engine.load(&self.written).wrapping_add(engine.load(&self.taken_out))
    }

    /// Notes how many bytes the worker keeps.
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
    /// How many there are.
    count: Word,
}

impl Registry {
    pub(crate) fn register<E: Engine>(&self, engine: &E) -> Arc<Counters> {
        let counters = Arc::<Counters>::default();
        self.workers.lock().push(Arc::clone(&counters));
        // Before the worker commits anything.
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

    /// Returns how many bytes all workers keep.
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

/// What has become of a database's transactions so far.
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
