//! The errors of a database.

mod chopped;
mod display;

use std::time::Duration;

pub use chopped::ChoppedError;
use drtm_kv::{KvError, Shortage};
use drtm_rdma::RegionError;

use crate::{CodecError, LogError};

/// The reason why a [sink](crate::Sink) refuses a transaction.
pub type SinkError = Box<dyn std::error::Error + Send + Sync>;

/// Why a transaction conflicted with others. Its writes were not applied, and a retry may succeed.
///
/// # Example
///
/// ```
/// use drtm::{Conflict, Db, Error, Pod, TableDef};
///
/// const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
/// let db = Db::new()?;
/// let counters = db.table(COUNTERS)?;
/// db.transact(|tx| tx.put(counters, &1, &0))?;
///
/// // Two transactions read the same, and both want to write it.
/// let (mut one, mut two) = (db.begin()?, db.begin()?);
/// let (a, b) = (one.get(counters, &1)?, two.get(counters, &1)?);
/// one.put(counters, &1, &(a.unwrap_or(0) + 1))?;
/// two.put(counters, &1, &(b.unwrap_or(0) + 1))?;
/// one.commit()?;
/// assert!(matches!(two.commit(), Err(Error::Conflict(Conflict::Validation))));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Conflict {
    /// Something in the read set has been changed since. Or so much else was changed that this
    /// cannot be ruled out. Or a table was dropped, possibly one that the transaction has not read.
    Validation,
    /// Another transaction inserted a key into a scanned range, or a key that was read as absent.
    Phantom,
    /// Another transaction has locked a record that this one writes.
    Locked,
    /// A record that the transaction writes is no longer where it was.
    Moved,
    /// A table that the transaction has written got a new index meanwhile.
    Indexed,
    /// A lease that the transaction has read under expired before it could commit.
    Expired,
    /// The transaction accessed a row that it had not fetched, or wrote one that it had fetched for
    /// reading.
    Unfetched,
    /// The cluster's view has changed, or a node that the transaction has met is another
    /// incarnation now.
    View,
}

impl Conflict {
    /// All causes.
    ///
    /// # Example
    ///
    /// See [`name`](Self::name).
    pub const ALL: [Self; 8] = [
        Self::Validation,
        Self::Phantom,
        Self::Locked,
        Self::Moved,
        Self::Indexed,
        Self::Expired,
        Self::Unfetched,
        Self::View,
    ];

    /// Returns the cause's name, as used in labels of metrics.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::Conflict;
    ///
    /// let names = Conflict::ALL.map(Conflict::name);
    /// assert_eq!(names[..4], ["validation", "phantom", "locked", "moved"]);
    /// assert_eq!(names[4..], ["indexed", "expired", "unfetched", "view"]);
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Validation => "validation",
            Self::Phantom => "phantom",
            Self::Locked => "locked",
            Self::Moved => "moved",
            Self::Indexed => "indexed",
            Self::Expired => "expired",
            Self::Unfetched => "unfetched",
            Self::View => "view",
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// An error of a database. The transaction's writes were not applied, unless the variant says
/// otherwise.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, Raw, TableDef};
///
/// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
/// let db = Db::new()?;
/// let notes = db.table(NOTES)?;
/// let insert = || db.transact(|tx| tx.insert(notes, &1, b"once"));
/// insert()?;
/// assert!(matches!(insert(), Err(Error::Exists { table: "notes" })));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The transaction conflicted with others: run it again. (The database retries closures
    /// itself.)
    Conflict(Conflict),
    /// A closure's transaction has failed as often as its [options](crate::Options) allow, or their
    /// deadline has passed. Its writes were not applied.
    Contended {
        /// The number of runs.
        attempts: u32,
        /// Why the last run failed.
        conflict: Conflict,
        /// The table of a row that was in conflict in the last run. `None` if no such row is known:
        /// if a key was inserted into a range, or if the row was only read and its key does not
        /// pack into eight bytes.
        table: Option<&'static str>,
        /// The row's key: its encoding, which [`Key::from_bytes`](crate::Key::from_bytes) decodes.
        /// Empty if it is not known.
        key: Vec<u8>,
    },
    /// The key to insert exists already.
    Exists {
        /// The table.
        table: &'static str,
    },
    /// A key that must exist does not.
    Missing {
        /// The table.
        table: &'static str,
    },
    /// Another row has this key in a unique index already.
    Duplicate {
        /// The index.
        index: &'static str,
    },
    /// An index and its table disagree: a row lacks an entry that the index's function gives, or an
    /// entry has no such row.
    Index {
        /// The index.
        index: &'static str,
        /// Its table.
        table: &'static str,
    },
    /// An index cannot be created, because two existing rows have the same key in it. The table is
    /// unchanged, and the index does not exist.
    NotUnique {
        /// The index.
        index: &'static str,
        /// Its table.
        table: &'static str,
        /// The key: its encoding, which [`Key::from_bytes`](crate::Key::from_bytes) decodes.
        key: Vec<u8>,
    },
    /// A snapshot is older than the complete index, and so cannot read it.
    IndexTooNew {
        /// The index.
        index: &'static str,
    },
    /// The application has aborted the transaction.
    Aborted {
        /// The application's reason.
        reason: String,
    },
    /// A value cannot be encoded or decoded by its table's codec.
    Codec {
        /// The table.
        table: &'static str,
        /// The codec's error.
        source: CodecError,
    },
    /// A key in memory is invalid for the table's key type.
    Key {
        /// The table.
        table: &'static str,
    },
    /// Memory has run out. The transaction's writes were not applied.
    ///
    /// The [report](Shortage) says what holds the memory: open snapshots, rows of other sizes,
    /// older versions. What fitted before the failed write still fits.
    Full(Box<Shortage>),
    /// A key or a value is longer than a row can hold.
    TooLong {
        /// Which: a key or a value.
        what: &'static str,
        /// Its length.
        length: usize,
        /// The longest that there can be.
        longest: usize,
        /// How to avoid it.
        remedy: &'static str,
    },
    /// The system cannot provide this much memory, or this many addresses.
    NoMemory {
        /// The requested bytes.
        bytes: u64,
        /// The system's error.
        source: std::io::Error,
    },
    /// The store is corrupt, or failed otherwise.
    Store(KvError),
    /// The table is open, or was written, with other types or another encoding of keys or values.
    OtherTypes {
        /// The table.
        name: &'static str,
        /// The types it has.
        is: String,
        /// The types it was opened with.
        asked: String,
    },
    /// There are as many tables and indexes as there can be, or the log has had as many. The number
    /// of a dropped table is used again by one of its kind, with keys like its own. Reopening the
    /// database makes room for tables of other kinds, too.
    TooManyTables {
        /// The most that there can be.
        most: usize,
    },
    /// A migration of this table was interrupted, so that it lacks rows.
    Unmigrated {
        /// The table.
        table: &'static str,
    },
    /// The table or index was dropped. All of its handles are invalid.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Raw, TableDef};
    ///
    /// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    /// let db = Db::new()?;
    /// let stale = db.table(NOTES)?;
    /// db.drop_table("notes")?;
    /// let notes = db.table(NOTES)?;
    /// assert!(matches!(db.read(|tx| tx.get(stale, &1)), Err(Error::Dropped { table: "notes" })));
    /// assert_eq!(db.read(|tx| tx.get(notes, &1))?, None);
    /// # Ok::<(), Error>(())
    /// ```
    Dropped {
        /// The table, or the index.
        table: &'static str,
    },
    /// No table has this name, so it cannot be dropped or renamed.
    NoSuchTable {
        /// The name.
        name: String,
    },
    /// No index has this name, so it cannot be dropped.
    NoSuchIndex {
        /// The name.
        name: String,
    },
    /// A table cannot be renamed, because a table or an index has the new name.
    NameTaken {
        /// The name.
        name: String,
    },
    /// The table belongs to another database.
    OtherDatabase,
    /// The savepoint belongs to another transaction, or to a part of this one that was undone.
    OtherSavepoint,
    /// `transact` or `read` was called within the closure of another transaction, with which it
    /// would conflict. Or an iterator over keys reads the transaction that it is given to, which
    /// has written: collect the keys first.
    Nested,
    /// The body of a transaction waits for something other than its transaction, where it must not:
    /// see [`ready`](crate::ready).
    NotReady,
    /// The database is closed.
    Closed,
    /// A thread closes the database while it has an open transaction or snapshot itself.
    InTransaction,
    /// Transactions did not end within the time that closing the database waits.
    StillRunning {
        /// The number of transactions that have not ended.
        transactions: usize,
    },
    /// The transaction has read and written more than its sets can hold.
    TooLarge {
        /// The bytes that it has written.
        bytes: usize,
        /// The most bytes that are possible.
        most: usize,
    },
    /// An older version that a snapshot needs was not kept.
    SnapshotTooOld {
        /// The table.
        table: &'static str,
    },
    /// The configuration is invalid.
    Config {
        /// The setting.
        what: &'static str,
        /// The allowed values.
        must_be: &'static str,
        /// The given value.
        is: String,
    },
    /// The database's [sink](crate::Sink) has refused the transaction. Its writes were not applied.
    Refused {
        /// The sink's reason.
        source: SinkError,
    },
    /// The log could not be written while this transaction waited for it. Its writes are applied in
    /// memory. Whether they survive is known only when the database is opened again.
    OutcomeUnknown {
        /// The log's error.
        reason: String,
    },
    /// A commit was not durable in time, or the disk became full meanwhile. Its writes are applied
    /// in memory, and become durable unless the log fails. A read-only transaction gets it for what
    /// it has read.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use drtm::{Db, Error, Raw, TableDef};
    ///
    /// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    /// let directory = std::env::temp_dir().join(format!("drtm-not-yet-{}", std::process::id()));
    /// let db = Db::create(&directory)?;
    /// let notes = db.table(NOTES)?;
    /// let ((), token) = db.submit(|tx| tx.put(notes, &1, b"one"))?;
    /// match token.wait_within(Duration::ZERO) {
    ///     Ok(()) => {}
    ///     Err(Error::NotYetDurable { .. }) => token.wait()?,
    ///     Err(error) => return Err(error),
    /// }
    /// # drop((token, db));
    /// # std::fs::remove_dir_all(&directory).expect("it is there");
    /// # Ok::<(), Error>(())
    /// ```
    NotYetDurable {
        /// How long the commit waited.
        waited: Duration,
        /// The thread whose commit has not ended, if that is the reason.
        thread: Option<String>,
        /// The log's error, if the disk is full: it becomes durable when there is room.
        full: Option<String>,
    },
    /// The log failed earlier, so nothing can be committed any more. Reads still work, except that
    /// a transaction gets this error when it has read what is not durable: [`Db::read`] says how to
    /// read that.
    ///
    /// [`Db::read`]: crate::Db::read
    Poisoned {
        /// The log's error.
        reason: String,
    },
    /// The disk, or a quota on it, has no room for the log. The transaction's writes were not
    /// applied. Commits succeed again when there is room.
    DiskFull {
        /// The log's error.
        reason: String,
    },
    /// The database was opened for reading only, and the transaction writes. Its writes were not
    /// applied.
    ReadOnly {
        /// Why it is: [`Builder::read_only`](crate::Builder::read_only), or the error that opening
        /// it for writing met.
        reason: String,
    },
    /// The table has an index that is recorded in the log, but was not opened since the database
    /// was opened.
    IndexNotOpened {
        /// The table.
        table: &'static str,
        /// The index.
        index: String,
    },
    /// The table is replicated to all nodes of a cluster, and read-only since its node was started.
    Replicated {
        /// The table.
        table: &'static str,
    },
    /// The table belongs to a cluster, and this operation is not allowed for a single database:
    /// writing rows whose index entries are on other nodes, or opening or dropping an index.
    OfCluster {
        /// The table.
        table: &'static str,
    },
    /// Another node of the cluster is unreachable, refuses, or fails.
    #[cfg(all(feature = "cluster", not(feature = "model")))]
    Cluster(crate::cluster::ClusterError),
    /// A chopped transaction, or the program that it belongs to, was refused.
    Chopped(Box<ChoppedError>),
    /// The log cannot be opened.
    Log(LogError),
    /// The requested engine is not available.
    Engine(drtm_htm::EngineError),
}

impl Error {
    /// Returns an error for a closure that aborts its transaction, with the application's reason.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error};
    ///
    /// let refused = Db::new()?.transact(|_| Err::<(), _>(Error::aborted("not enough money")));
    /// assert!(matches!(refused, Err(Error::Aborted { reason }) if reason == "not enough money"));
    /// # Ok::<(), Error>(())
    /// ```
    #[cold]
    pub fn aborted(reason: impl Into<String>) -> Self {
        Self::Aborted { reason: reason.into() }
    }

    /// Returns whether an explicit transaction should be retried. The database retries closures
    /// itself, until their options forbid it ([`Contended`](Self::Contended)).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef};
    ///
    /// const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
    /// let db = Db::new()?;
    /// let counters = db.table(COUNTERS)?;
    /// let increment = || {
    ///     let mut tx = db.begin()?;
    ///     let count = tx.get(counters, 1)?.unwrap_or(0);
    ///     tx.put(counters, 1, &(count + 1))?;
    ///     tx.commit()
    /// };
    /// while let Err(error) = increment() {
    ///     if !error.is_conflict() {
    ///         return Err(error);
    ///     }
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict(_))
    }
}

impl From<KvError> for Error {
    #[cold]
    fn from(error: KvError) -> Self {
        match error {
            KvError::Region(error) => error.into(),
            KvError::Full(shortage) => Self::Full(shortage),
            KvError::KeyTooLong { length, longest } => {
                Self::TooLong { what: "key", length, longest, remedy: "use a digest of it" }
            }
            KvError::ValueTooLong { length, longest } => {
                Self::TooLong { what: "value", length, longest, remedy: "split it over several rows" }
            }
            error => Self::Store(error),
        }
    }
}

impl From<RegionError> for Error {
    #[cold]
    fn from(error: RegionError) -> Self {
        match error {
            RegionError::Full { asked, left, capacity } => {
                let mut shortage = Box::<Shortage>::default();
                (shortage.asked, shortage.left, shortage.capacity) = (asked, left, capacity);
                Self::Full(shortage)
            }
            RegionError::Map { bytes, source } | RegionError::Populate { bytes, source } => {
                Self::NoMemory { bytes, source }
            }
            error => Self::Store(error.into()),
        }
    }
}
