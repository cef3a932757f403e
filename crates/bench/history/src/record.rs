//! The record of a run: transactions with their times, outcomes, and the versions that they read
//! and wrote.

use serde::{Deserialize, Serialize};

use std::{
    fmt::{self, Debug, Display, Formatter},
    ops::{Bound, RangeBounds},
};

/// All transactions of a run. A transaction is named by its index.
///
/// The initial contents of the tables belong to it as well: as writes of a transaction that
/// responded before any other was invoked.
///
/// # Example
///
/// ```
/// use drtm_history::{History, Transaction};
///
/// let history = History::from_iter([
///     Transaction::committed(0, 1).writes(0, "x", 1),
///     Transaction::committed(2, 3).reads(0, "x", 1),
/// ]);
/// assert_eq!(history.transactions.len(), 2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History<K> {
    /// The transactions, in any order.
    pub transactions: Vec<Transaction<K>>,
}

impl<K> FromIterator<Transaction<K>> for History<K> {
    fn from_iter<I: IntoIterator<Item = Transaction<K>>>(transactions: I) -> Self {
        Self { transactions: transactions.into_iter().collect() }
    }
}

/// One transaction of a [`History`], built operation by operation in the order of execution.
///
/// # Example
///
/// ```
/// use drtm_history::{Outcome, Transaction};
///
/// let transfer = Transaction::committed(10, 20).reads(0, 7, 1).writes(0, 7, 2).finds_nothing(0, 8).writes(0, 8, 1);
/// assert_eq!((transfer.outcome, transfer.operations.len()), (Outcome::Committed, 4));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction<K> {
    /// When it was invoked, in ticks of a clock that all transactions share.
    pub invoked: u64,
    /// When its caller learnt the outcome. Meaningless if the outcome is unknown.
    pub responded: u64,
    /// Its outcome.
    pub outcome: Outcome,
    /// Its operations, in order.
    pub operations: Vec<Operation<K>>,
}

/// The outcome of a [`Transaction`].
///
/// # Example
///
/// ```
/// use drtm_history::{Outcome, Transaction};
///
/// assert_eq!(Transaction::<u64>::unknown(5).outcome, Outcome::Unknown);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Its writes took effect.
    Committed,
    /// Its writes must not be visible. Its reads are not checked.
    Aborted,
    /// Its writes may have taken effect. They have if a committed transaction read one of them.
    Unknown,
}

/// An operation of a [`Transaction`].
///
/// # Example
///
/// ```
/// use drtm_history::{Operation, Row, Seen, Transaction};
///
/// let read = Operation::Read { row: Row { table: 0, key: "x" }, seen: Seen::Version(3) };
/// assert_eq!(Transaction::committed(0, 1).reads(0, "x", 3).operations, [read]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation<K> {
    /// Read one row.
    Read {
        /// The row.
        row: Row<K>,
        /// The result.
        seen: Seen,
    },
    /// Wrote or removed one row.
    Write {
        /// The row.
        row: Row<K>,
        /// The version that the row has afterwards.
        version: u64,
        /// Whether that version is a removal.
        removal: bool,
    },
    /// Read all rows in a range of keys.
    Scan {
        /// The table.
        table: u32,
        /// The start of the range.
        start: Bound<K>,
        /// The end of the range.
        end: Bound<K>,
        /// The keys returned, with their versions.
        matched: Vec<(K, u64)>,
    },
}

impl<K: Clone> Operation<K> {
    /// Creates a scan of all rows in a range.
    pub(super) fn scan(table: u32, range: impl RangeBounds<K>, matched: impl IntoIterator<Item = (K, u64)>) -> Self {
        let (start, end) = (range.start_bound().cloned(), range.end_bound().cloned());
        Self::Scan { table, start, end, matched: matched.into_iter().collect() }
    }
}

/// A key of a table.
///
/// # Example
///
/// ```
/// assert_eq!(drtm_history::Row { table: 2, key: 17 }.to_string(), "2/17");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row<K> {
    /// The table.
    pub table: u32,
    /// The key.
    pub key: K,
}

impl<K: Debug> Display for Row<K> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:?}", self.table, self.key)
    }
}

/// The result of a read of one row.
///
/// # Example
///
/// ```
/// use drtm_history::Seen;
///
/// assert_eq!(Seen::Version(4).to_string(), "version 4");
/// assert_eq!(Seen::Nothing.to_string(), "nothing");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The row, in this version.
    Version(u64),
    /// The row's absence after the removal that made this version.
    Removed(u64),
    /// No row: it never existed, or an unknown removal deleted it.
    Nothing,
}

impl Seen {
    /// Returns whether two reads of an unchanged row can return these two results.
    pub(super) fn agrees_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Nothing, other) | (other, Self::Nothing) => !matches!(other, Self::Version(_)),
            (one, other) => one == other,
        }
    }
}

impl From<Option<u64>> for Seen {
    /// Converts the result of a lookup: a version, or `None` if the row is absent.
    fn from(version: Option<u64>) -> Self {
        version.map_or(Self::Nothing, Self::Version)
    }
}

impl Display for Seen {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Seen::Version(version) => write!(f, "version {version}"),
            Seen::Removed(version) => write!(f, "removal {version}"),
            Seen::Nothing => f.write_str("nothing"),
        }
    }
}

impl<K> Transaction<K> {
    /// Creates a committed transaction without operations.
    pub fn committed(invoked: u64, responded: u64) -> Self {
        Self { invoked, responded, outcome: Outcome::Committed, operations: Vec::new() }
    }

    /// Creates an aborted transaction. Its attempted writes are recorded all the same.
    pub fn aborted(invoked: u64, responded: u64) -> Self {
        Self { outcome: Outcome::Aborted, ..Self::committed(invoked, responded) }
    }

    /// Creates a transaction of unknown outcome.
    pub fn unknown(invoked: u64) -> Self {
        Self { outcome: Outcome::Unknown, ..Self::committed(invoked, u64::MAX) }
    }

    /// Appends a read of a row that returned `version`.
    #[must_use]
    pub fn reads(self, table: u32, key: K, version: u64) -> Self {
        self.and(Operation::Read { row: Row { table, key }, seen: Seen::Version(version) })
    }

    /// Appends a read that found the row removed by the removal that made `version`.
    #[must_use]
    pub fn finds_removed(self, table: u32, key: K, version: u64) -> Self {
        self.and(Operation::Read { row: Row { table, key }, seen: Seen::Removed(version) })
    }

    /// Appends a read that found no row.
    #[must_use]
    pub fn finds_nothing(self, table: u32, key: K) -> Self {
        self.and(Operation::Read { row: Row { table, key }, seen: Seen::Nothing })
    }

    /// Appends a write of a row's `version`.
    #[must_use]
    pub fn writes(self, table: u32, key: K, version: u64) -> Self {
        self.and(Operation::Write { row: Row { table, key }, version, removal: false })
    }

    /// Appends a removal of a row, which made `version` of it.
    #[must_use]
    pub fn removes(self, table: u32, key: K, version: u64) -> Self {
        self.and(Operation::Write { row: Row { table, key }, version, removal: true })
    }

    /// Appends a scan of a range of keys that returned exactly `matched`.
    #[must_use]
    pub fn scans(self, table: u32, range: impl RangeBounds<K>, matched: impl IntoIterator<Item = (K, u64)>) -> Self
    where
        K: Clone,
    {
        self.and(Operation::scan(table, range, matched))
    }

    fn and(mut self, operation: Operation<K>) -> Self {
        self.operations.push(operation);
        self
    }

    /// Returns when it responded, if it is known to have committed.
    pub(super) fn committed_by(&self) -> Option<u64> {
        (self.outcome == Outcome::Committed).then_some(self.responded)
    }

    /// Returns the end of the time in which it can have taken effect.
    pub(super) fn end(&self) -> u64 {
        match self.outcome {
            Outcome::Unknown => u64::MAX,
            Outcome::Committed | Outcome::Aborted => self.responded,
        }
    }
}
