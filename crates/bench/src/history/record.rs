//! What is recorded of a run: transactions, when they ran, how they ended, and what versions they
//! saw and left.

use serde::{Deserialize, Serialize};

use std::{
    fmt::{self, Debug, Display, Formatter},
    ops::{Bound, RangeBounds},
};

/// All transactions of a run. A transaction's name is its place here.
///
/// What the tables held before the run belongs to it too, as the writes of a transaction that
/// responded before any other was invoked.
///
/// # Example
///
/// ```
/// use drtm_bench::history::{History, Transaction};
///
/// let history = History::from_iter([
///     Transaction::committed(0, 1).writes(0, "x", 1),
///     Transaction::committed(2, 3).reads(0, "x", 1),
/// ]);
/// assert_eq!(history.transactions.len(), 2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History<K> {
    /// In any order.
    pub transactions: Vec<Transaction<K>>,
}

impl<K> FromIterator<Transaction<K>> for History<K> {
    fn from_iter<I: IntoIterator<Item = Transaction<K>>>(transactions: I) -> Self {
        Self { transactions: transactions.into_iter().collect() }
    }
}

/// One transaction of a [`History`], built up operation by operation, in the order in which it did
/// them.
///
/// # Example
///
/// ```
/// use drtm_bench::history::{Outcome, Transaction};
///
/// let transfer = Transaction::committed(10, 20).reads(0, 7, 1).writes(0, 7, 2).finds_nothing(0, 8).writes(0, 8, 1);
/// assert_eq!((transfer.outcome, transfer.operations.len()), (Outcome::Committed, 4));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction<K> {
    /// When it was invoked, in ticks of a clock that all transactions share.
    pub invoked: u64,
    /// When its caller learnt the outcome. Means nothing where the outcome is unknown.
    pub responded: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// What it did, in order.
    pub operations: Vec<Operation<K>>,
}

/// How a [`Transaction`] ended.
///
/// # Example
///
/// ```
/// use drtm_bench::history::{Outcome, Transaction};
///
/// assert_eq!(Transaction::<u64>::unknown(5).outcome, Outcome::Unknown);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Its writes took effect.
    Committed,
    /// Its writes must not be seen. Its reads are not judged.
    Aborted,
    /// Its writes may have taken effect. They have if a committed transaction saw one of them.
    Unknown,
}

/// What a [`Transaction`] did.
///
/// # Example
///
/// ```
/// use drtm_bench::history::{Operation, Row, Seen, Transaction};
///
/// let read = Operation::Read { row: Row { table: 0, key: "x" }, seen: Seen::Version(3) };
/// assert_eq!(Transaction::committed(0, 1).reads(0, "x", 3).operations, [read]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation<K> {
    /// Read one row.
    Read {
        /// Which.
        row: Row<K>,
        /// What was there.
        seen: Seen,
    },
    /// Wrote or removed one row.
    Write {
        /// Which.
        row: Row<K>,
        /// The version that the row has from now on.
        version: u64,
        /// Whether that version is the row's absence.
        removal: bool,
    },
    /// Read all rows of a range of keys.
    Scan {
        /// Of which table.
        table: u32,
        /// From where.
        start: Bound<K>,
        /// To where.
        end: Bound<K>,
        /// The keys that were there, with their versions.
        matched: Vec<(K, u64)>,
    },
}

impl<K: Clone> Operation<K> {
    /// A read of all rows in a range.
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
/// assert_eq!(drtm_bench::history::Row { table: 2, key: 17 }.to_string(), "2/17");
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

/// What a read of one row saw.
///
/// # Example
///
/// ```
/// use drtm_bench::history::Seen;
///
/// assert_eq!(Seen::Version(4).to_string(), "version 4");
/// assert_eq!(Seen::Nothing.to_string(), "nothing");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The row, in this version.
    Version(u64),
    /// That the row was gone, by the removal that made this version.
    Removed(u64),
    /// No row, and not why: it was never there, or was removed, by whichever removal.
    Nothing,
}

impl Seen {
    /// Whether one read can have seen this, and another that, of a row that nobody changed in
    /// between.
    pub(super) fn agrees_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Nothing, other) | (other, Self::Nothing) => !matches!(other, Self::Version(_)),
            (one, other) => one == other,
        }
    }
}

impl From<Option<u64>> for Seen {
    /// What a look-up tells: a version, or that there is none.
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
    /// A transaction that committed, and has done nothing yet.
    pub fn committed(invoked: u64, responded: u64) -> Self {
        Self { invoked, responded, outcome: Outcome::Committed, operations: Vec::new() }
    }

    /// A transaction that aborted. What it would have written is recorded all the same.
    pub fn aborted(invoked: u64, responded: u64) -> Self {
        Self { outcome: Outcome::Aborted, ..Self::committed(invoked, responded) }
    }

    /// A transaction of which nobody learnt how it ended.
    pub fn unknown(invoked: u64) -> Self {
        Self { outcome: Outcome::Unknown, ..Self::committed(invoked, u64::MAX) }
    }

    /// Then it read a row, and saw `version`.
    #[must_use]
    pub fn reads(self, table: u32, key: K, version: u64) -> Self {
        self.and(Operation::Read { row: Row { table, key }, seen: Seen::Version(version) })
    }

    /// Then it read a row, and saw that the removal that made `version` had taken it away.
    #[must_use]
    pub fn finds_removed(self, table: u32, key: K, version: u64) -> Self {
        self.and(Operation::Read { row: Row { table, key }, seen: Seen::Removed(version) })
    }

    /// Then it looked for a row, and there was none.
    #[must_use]
    pub fn finds_nothing(self, table: u32, key: K) -> Self {
        self.and(Operation::Read { row: Row { table, key }, seen: Seen::Nothing })
    }

    /// Then it wrote `version` of a row.
    #[must_use]
    pub fn writes(self, table: u32, key: K, version: u64) -> Self {
        self.and(Operation::Write { row: Row { table, key }, version, removal: false })
    }

    /// Then it removed a row, which made `version` of it.
    #[must_use]
    pub fn removes(self, table: u32, key: K, version: u64) -> Self {
        self.and(Operation::Write { row: Row { table, key }, version, removal: true })
    }

    /// Then it read a range of keys, and saw `matched` and nothing else.
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

    /// When it responded, if anybody learnt that it committed.
    pub(super) fn committed_by(&self) -> Option<u64> {
        (self.outcome == Outcome::Committed).then_some(self.responded)
    }

    /// The end of the time in which it can have acted.
    pub(super) fn end(&self) -> u64 {
        match self.outcome {
            Outcome::Unknown => u64::MAX,
            Outcome::Committed | Outcome::Aborted => self.responded,
        }
    }
}
