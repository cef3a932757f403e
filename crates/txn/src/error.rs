//! What can go wrong in a database.

use std::time::Duration;

use drtm_kv::KvError;
use drtm_rdma::RegionError;

use crate::{CodecError, LogError};

/// Why a [sink](crate::Sink) refuses a transaction.
pub type SinkError = Box<dyn std::error::Error + Send + Sync>;

/// Why a transaction could not go on beside others. It has changed nothing, and may succeed when it
/// is run again.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Conflict {
    /// Something that it has read has been changed since; or so much else was changed that this
    /// cannot be ruled out; or a table was dropped, be it one that it has not read.
    #[error("what it has read was changed meanwhile")]
    Validation,
    /// A key has come into a range that it has read, or one that it had looked for in vain.
    #[error("a key came into what it has read")]
    Phantom,
    /// Somebody else has locked what it wants to write.
    #[error("what it wants to write was locked")]
    Locked,
    /// A record that it wants to write is not where it was.
    #[error("what it wants to write has moved")]
    Moved,
    /// A table that it has written has got another index meanwhile, which it did not know.
    #[error("a table that it has written has other indexes now")]
    Indexed,
    /// A lease under which it has read ended before it could commit.
    #[error("a lease under which it has read has ended")]
    Expired,
    /// It came to a row that it had not fetched, or wanted to write one that it had fetched for
    /// reading.
    #[error("it came to a row that it had not fetched")]
    Unfetched,
}

impl Conflict {
    /// Every cause.
    pub const ALL: [Self; 7] =
        [Self::Validation, Self::Phantom, Self::Locked, Self::Moved, Self::Indexed, Self::Expired, Self::Unfetched];

    /// Its name, as figures are labelled with.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::Conflict;
    ///
    /// let names = Conflict::ALL.map(Conflict::name);
    /// assert_eq!(names, ["validation", "phantom", "locked", "moved", "indexed", "expired", "unfetched"]);
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
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// What a database refuses, or cannot carry out. Nothing of the transaction has happened then.
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
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It got in the way of others: run it again. (Closures are run again by the database.)
    #[error("the transaction conflicts with others: {0}; run it again")]
    Conflict(#[from] Conflict),
    /// The closure of a transaction has failed as often as its [options](crate::Options) allow, or
    /// their deadline has passed. Nothing of it has happened.
    #[error(
        "the transaction was given up after {attempts} runs: {conflict}{}; allow more runs or time, or change that row less often",
        of_row(*.table, .key)
    )]
    Contended {
        /// How often it was run.
        attempts: u32,
        /// Why the last run failed.
        conflict: Conflict,
        /// The table of a row that was in conflict in the last run, if such a row is known. None is
        /// if a key came into a range, or if the row was only read and its key does not pack into
        /// eight bytes.
        table: Option<&'static str>,
        /// The row's key: its encoding, which [`Key::from_bytes`](crate::Key::from_bytes) decodes.
        /// Empty if it is not known.
        key: Vec<u8>,
    },
    /// A key that is to be inserted is there.
    #[error("there is a row with this key in `{table}`: update it, or put it")]
    Exists {
        /// The table.
        table: &'static str,
    },
    /// A key that must be there is not.
    #[error("there is no row with this key in `{table}`: insert it, or put it")]
    Missing {
        /// The table.
        table: &'static str,
    },
    /// What a row is to be found by in a unique index, another is found by already.
    #[error("another row has this key in the unique index `{index}`: change that one first, or choose another key")]
    Duplicate {
        /// The index.
        index: &'static str,
    },
    /// A row is not in an index as the index's function says, or the other way round.
    #[error(
        "index `{index}` does not agree with table `{table}`: its function must give the same for the same row, always; if it does, memory is corrupt"
    )]
    Index {
        /// The index.
        index: &'static str,
        /// Its table.
        table: &'static str,
    },
    /// An index cannot be made, as two of the rows that there are have the same key in it. The
    /// table is as it was, and there is no such index.
    #[error(
        "the unique index `{index}` cannot be made: two rows of `{table}` have the key \"{}\"; change one of them, or make an index that is not unique",
        key.escape_ascii()
    )]
    NotUnique {
        /// The index.
        index: &'static str,
        /// Its table.
        table: &'static str,
        /// The key: its encoding, which [`Key::from_bytes`](crate::Key::from_bytes) decodes.
        key: Vec<u8>,
    },
    /// A snapshot does not see all of an index, which was made later.
    #[error(
        "index `{index}` was made after the snapshot was opened, which does not see all of it: open another snapshot"
    )]
    IndexTooNew {
        /// The index.
        index: &'static str,
    },
    /// The application has given the transaction up.
    #[error("the transaction was given up: {reason}")]
    Aborted {
        /// What it says.
        reason: String,
    },
    /// A value cannot be written or read in its table's codec.
    #[error("in `{table}`: {source}")]
    Codec {
        /// The table.
        table: &'static str,
        /// What the codec says.
        source: CodecError,
    },
    /// A key in memory is none of the table's type.
    #[error("a key in `{table}` is none of its type: was the table written with another?")]
    Key {
        /// The table.
        table: &'static str,
    },
    /// Memory has run out. Nothing of the transaction has happened.
    #[error(
        "memory is full: {asked} bytes were to be had, and {left} are left of {capacity}; remove rows, or give the \
         database more with `Builder::memory`"
    )]
    Full {
        /// How many bytes were to be had.
        asked: u64,
        /// How many are left, that were never used.
        left: u64,
        /// How many there are.
        capacity: u64,
    },
    /// A key or a value is longer than those of any row.
    #[error("a {what} of {length} bytes is too long: the longest has {longest}; {remedy}")]
    TooLong {
        /// A key, or a value.
        what: &'static str,
        /// Its length.
        length: usize,
        /// The longest that there can be.
        longest: usize,
        /// What to do.
        remedy: &'static str,
    },
    /// The system has not so much memory, or so many addresses.
    #[error("cannot have {bytes} bytes for the database: {source}; ask for less with `Builder::memory`")]
    NoMemory {
        /// How many were to be had.
        bytes: u64,
        /// Why there are not.
        source: std::io::Error,
    },
    /// The store is corrupt, or refuses.
    #[error(transparent)]
    Store(KvError),
    /// The table is open, or was written, with another shape of keys, codec, or version.
    #[error(
        "table `{name}` is {is}, and was opened as {asked}: use the same definition everywhere, or convert its rows as \
         `TableDef::version` says"
    )]
    OtherTypes {
        /// The table.
        name: &'static str,
        /// What it is.
        is: String,
        /// What was asked for.
        asked: String,
    },
    /// There are as many tables as there can be, indexes and dropped tables included. Opening the
    /// database again makes room for as many as were dropped.
    #[error(
        "there have been {most} tables and indexes, which is all there can be: put several kinds of rows into one, under keys with a prefix"
    )]
    TooManyTables {
        /// The most that there can be.
        most: usize,
    },
    /// The table, or the index, was dropped. All handles of it are of no use any more.
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
    #[error(
        "`{table}` was dropped: open it again (`Db::table`, `Db::index`), which makes it anew, and use that handle"
    )]
    Dropped {
        /// The table, or the index.
        table: &'static str,
    },
    /// There is no table of this name to be dropped or renamed.
    #[error("there is no table `{name}`: open one to make it (`Db::table`); an index is dropped by `Db::drop_index`")]
    NoSuchTable {
        /// The name.
        name: String,
    },
    /// There is no index of this name to be dropped.
    #[error("there is no index `{name}`: open one to make it (`Db::index`)")]
    NoSuchIndex {
        /// The name.
        name: String,
    },
    /// A table cannot be renamed, since there is a table or an index of the new name.
    #[error("there is a table or an index `{name}`: choose another name, or drop that one first")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// A table of another database.
    #[error("the table was opened in another database: open it in this one")]
    OtherDatabase,
    /// A savepoint of another transaction, or of a part of this one that was undone.
    #[error("the savepoint is none of this transaction's, or of a part that was undone")]
    OtherSavepoint,
    /// A transaction was begun by `transact` or `read` within the closure of another, with which it
    /// would get in its own way.
    #[error("a transaction within a transaction: use the one that the closure is given, or a savepoint")]
    Nested,
    /// Somebody has closed the database.
    #[error("the database is closed, for all its clones: make another")]
    Closed,
    /// A thread closes the database while it has a transaction or a snapshot itself.
    #[error(
        "this thread has a transaction or a snapshot open, for which closing the database would wait: end it first, or close from another thread"
    )]
    InTransaction,
    /// Transactions did not end in the time that they were given when the database was closed.
    #[error(
        "{transactions} transactions or snapshots have not ended yet: wait longer, or find out who holds them; nobody else comes in"
    )]
    StillRunning {
        /// How many.
        transactions: usize,
    },
    /// The transaction has read and written more than it can remember.
    #[error("the transaction has written {bytes} bytes, more than the {most} that there can be: divide it")]
    TooLarge {
        /// Bytes that it has written.
        bytes: usize,
        /// The most that there can be.
        most: usize,
    },
    /// What a snapshot asks for could not be kept.
    #[error(
        "the snapshot is too old: what a row in `{table}` was has been forgotten, as there was no memory left for older versions; \
         allow more (`Builder::older_versions`), or keep snapshots open for less long"
    )]
    SnapshotTooOld {
        /// The table.
        table: &'static str,
    },
    /// A configuration that describes no database.
    #[error("{what} must be {must_be}, and is {is}")]
    Config {
        /// Which setting.
        what: &'static str,
        /// What is allowed.
        must_be: &'static str,
        /// What was given.
        is: String,
    },
    /// The database's [sink](crate::Sink) has refused the transaction, which has not happened.
    #[error("the sink has refused the transaction, which has not happened: {source}")]
    Refused {
        /// The sink's reason.
        source: SinkError,
    },
    /// The log could not be written while this transaction waited for it. Whether it is there when
    /// the database is opened again is not known; until then it has happened in memory.
    #[error(
        "whether the transaction has become durable is not known, since the log failed: {reason}; open the database again"
    )]
    OutcomeUnknown {
        /// What has failed.
        reason: String,
    },
    /// A commit was not durable in the time that it had. It has happened in memory, and becomes
    /// durable unless the log fails.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use drtm::{Db, Error, Raw, TableDef};
    ///
    /// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    /// let directory = std::env::temp_dir().join(format!("drtm-not-yet-{}", std::process::id()));
    /// let db = Db::open(&directory)?;
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
    #[error(
        "the transaction has committed, and is not durable after {waited:?}{}; it becomes durable unless the log fails",
        thread.as_ref().map_or_else(String::new, |thread| format!(", since thread `{thread}` is committing another all the while"))
    )]
    NotYetDurable {
        /// How long it was waited for.
        waited: Duration,
        /// The thread whose commit has not ended, if that is the reason.
        thread: Option<String>,
    },
    /// The log could not be written earlier, so nothing is committed any more. Reads go on.
    #[error("the log failed, and nothing is committed any more: {reason}; open the database again")]
    Poisoned {
        /// What has failed.
        reason: String,
    },
    /// The table has an index that is recorded in the log, and was not opened since the database
    /// was.
    #[error("index `{index}` of `{table}` is not open: open it (`Db::index`) before the table is written")]
    IndexNotOpened {
        /// The table.
        table: &'static str,
        /// The index.
        index: String,
    },
    /// The table is replicated to all nodes of a cluster, and is only read since its node was
    /// started.
    #[error("`{table}` is replicated, and is only read: fill it at every node before that is started")]
    Replicated {
        /// The table.
        table: &'static str,
    },
    /// The table is one of a cluster, of which a database alone must not do this: write rows whose
    /// entries in indexes are on other nodes, open an index, or drop it.
    #[error(
        "`{table}` is a table of a cluster: write rows that have indexes by a transaction of the cluster (`ClusterTx`), \
         define indexes with `NodeBuilder::index`, and do not drop it"
    )]
    OfCluster {
        /// The table.
        table: &'static str,
    },
    /// Another node of the cluster cannot be asked, refuses, or fails.
    #[cfg(not(feature = "model"))]
    #[error(transparent)]
    Cluster(#[from] crate::cluster::ClusterError),
    /// The log cannot be opened.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The engine asked for cannot be had.
    #[error(transparent)]
    Engine(#[from] drtm_htm::EngineError),
}

/// Names a row, in words that follow a conflict.
fn of_row(table: Option<&'static str>, key: &[u8]) -> String {
    table.map_or_else(String::new, |table| format!(" (the row of `{table}` with the key \"{}\")", key.escape_ascii()))
}

impl Error {
    /// The application's own reason to give a transaction up, for a closure to return.
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

    /// Returns whether an explicit transaction should be run again. Closures are run again by the
    /// database, until that is no use, or their options forbid it ([`Contended`](Self::Contended)).
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
            RegionError::Full { asked, left, capacity } => Self::Full { asked, left, capacity },
            RegionError::Map { bytes, source } | RegionError::Populate { bytes, source } => {
                Self::NoMemory { bytes, source }
            }
            error => Self::Store(error.into()),
        }
    }
}
