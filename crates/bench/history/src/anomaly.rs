//! Anomalies of a history, named after Adya and formatted for people.

use std::fmt::{self, Debug, Display, Formatter};

use super::record::{Row, Seen};

/// An observation that no serial execution can produce.
///
/// # Example
///
/// ```
/// use drtm_history::{Anomaly, History, Order, Transaction, check};
///
/// let history = History::from_iter([
///     Transaction::aborted(0, 1).writes(0, "x", 1),
///     Transaction::committed(2, 3).reads(0, "x", 1),
/// ]);
/// let anomalies = check(&history, Order::Any)?;
/// assert!(matches!(anomalies[..], [Anomaly::AbortedRead { writer: 0, reader: 1, .. }]));
/// assert_eq!(anomalies[0].to_string(), r#"G1a: T1 read version 1 of 0/"x", of T0, which aborted"#);
/// # Ok::<(), drtm_history::MalformedHistory>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Anomaly<K> {
    /// G1a: a read of a version that an aborted transaction wrote.
    AbortedRead {
        /// The row that was read.
        row: Row<K>,
        /// The result of the read.
        seen: Seen,
        /// The aborted transaction.
        writer: usize,
        /// The committed transaction that read it.
        reader: usize,
    },
    /// G1b: a read of a version that its own writer overwrote.
    IntermediateRead {
        /// The row that was read.
        row: Row<K>,
        /// The result of the read.
        seen: Seen,
        /// The version that the writer left.
        last: u64,
        /// The writer of both versions.
        writer: usize,
        /// The reader of the intermediate version.
        reader: usize,
    },
    /// A read of a version that no transaction wrote, or that the reader wrote only later.
    UnwrittenRead {
        /// The row that was read.
        row: Row<K>,
        /// The result of the read.
        seen: Seen,
        /// The reader.
        reader: usize,
    },
    /// A read that contradicts an earlier write or read of the row in the same transaction.
    Contradiction {
        /// The row that was read.
        row: Row<K>,
        /// The result of the read.
        seen: Seen,
        /// The version that the transaction wrote or read before.
        known: Seen,
        /// The reader.
        reader: usize,
    },
    /// A scan that returned a row more than once.
    ShownTwice {
        /// The row.
        row: Row<K>,
        /// The scanning transaction.
        reader: usize,
    },
    /// Two transactions committed the same version of a row.
    TwoWriters {
        /// The row.
        row: Row<K>,
        /// The version.
        version: u64,
        /// The writers. All other checks use the first as the version's writer.
        writers: [usize; 2],
    },
    /// Transactions each of which must come before the next, and the last before the first.
    Cycle(Cycle<K>),
}

/// Transactions that have no serial order. Each [`Step`] leads to the next one's start.
///
/// # Example
///
/// ```
/// use drtm_history::{Anomaly, CycleKind, History, Order, Transaction, check};
///
/// let history = History::from_iter([
///     Transaction::committed(0, 9).finds_nothing(0, 'x').writes(0, 'y', 1),
///     Transaction::committed(0, 9).finds_nothing(0, 'y').writes(0, 'x', 1),
/// ]);
/// let anomalies = check(&history, Order::Any)?;
/// let [Anomaly::Cycle(skew)] = &anomalies[..] else { panic!("{anomalies:?}") };
/// assert_eq!((skew.kind, skew.steps.len()), (CycleKind::G2Item, 2));
/// # Ok::<(), drtm_history::MalformedHistory>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle<K> {
    /// The name.
    pub kind: CycleKind,
    /// The steps of the cycle.
    pub steps: Vec<Step<K>>,
}

/// Why one transaction must come before another: a step of a [`Cycle`].
///
/// # Example
///
/// ```
/// use drtm_history::{Dependency, Row, Step};
///
/// let step = Step { from: 3, to: 4, why: Dependency::WriteRead { row: Row { table: 0, key: 'x' }, version: 1 } };
/// assert_eq!((step.from, step.why.to_string()), (3, "wr: wrote version 1 of 0/'x', which was read".into()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<K> {
    /// The transaction that comes first.
    pub from: usize,
    /// The transaction that comes later.
    pub to: usize,
    /// The dependency between them.
    pub why: Dependency<Row<K>>,
}

/// The kinds of cycles, the worst first.
///
/// # Example
///
/// ```
/// use drtm_history::CycleKind;
///
/// assert!(CycleKind::G0 < CycleKind::G2);
/// assert_eq!(CycleKind::GSingle.to_string(), "G-single");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CycleKind {
    /// G0: a cycle of writes.
    G0,
    /// G1c: a cycle of information flow.
    G1c,
    /// A write based on a read that missed another write of the row. A case of G-single.
    LostUpdate,
    /// G-single: exactly one read missed a write, such as read skew.
    GSingle,
    /// G2-item: reads of rows missed each other's writes, such as write skew.
    G2Item,
    /// G2: like G2-item, where a scan missed the insertion or removal of a row.
    G2,
    /// Serializable, but only in an order that contradicts the clock.
    RealTime,
}

impl Display for CycleKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CycleKind::G0 => "G0",
            CycleKind::G1c => "G1c",
            CycleKind::LostUpdate => "lost update (G-single)",
            CycleKind::GSingle => "G-single",
            CycleKind::G2Item => "G2-item",
            CycleKind::G2 => "G2",
            CycleKind::RealTime => "real-time violation",
        })
    }
}

/// Why a transaction must come before another, because of row `R`.
///
/// # Example
///
/// ```
/// use drtm_history::Dependency;
///
/// assert_eq!(Dependency::WriteRead { row: "x", version: 3 }.to_string(), "wr: wrote version 3 of x, which was read");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependency<R> {
    /// It wrote a version, the other a later one.
    WriteWrite {
        /// The row.
        row: R,
        /// The version that it wrote.
        version: u64,
        /// The version that the other wrote.
        next: u64,
    },
    /// It wrote a version, the other read it; or it removed a row, and the other found it absent.
    WriteRead {
        /// The row.
        row: R,
        /// The version that it wrote.
        version: u64,
    },
    /// It read a row, the other wrote the version after the one read.
    ReadWrite {
        /// The row.
        row: R,
        /// The result of its read.
        seen: Seen,
        /// The version that the other wrote.
        next: u64,
    },
    /// It scanned a range of keys, and missed the other's insertion or removal there.
    Phantom {
        /// The row.
        row: R,
        /// The result of its scan.
        seen: Seen,
        /// The version that the other wrote.
        next: u64,
    },
    /// It had responded before the other was invoked.
    RealTime {
        /// When it responded.
        responded: u64,
        /// When the other was invoked.
        invoked: u64,
    },
}

impl<R> Dependency<R> {
    /// Replaces the name of the row.
    pub(super) fn named<S>(self, name: impl FnOnce(R) -> S) -> Dependency<S> {
        match self {
            Self::WriteWrite { row, version, next } => Dependency::WriteWrite { row: name(row), version, next },
            Self::WriteRead { row, version } => Dependency::WriteRead { row: name(row), version },
            Self::ReadWrite { row, seen, next } => Dependency::ReadWrite { row: name(row), seen, next },
            Self::Phantom { row, seen, next } => Dependency::Phantom { row: name(row), seen, next },
            Self::RealTime { responded, invoked } => Dependency::RealTime { responded, invoked },
        }
    }
}

impl<R: Display> Display for Dependency<R> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::WriteWrite { row, version, next } => {
                write!(f, "ww: wrote version {version} of {row}, then came version {next}")
            }
            Self::WriteRead { row, version } => write!(f, "wr: wrote version {version} of {row}, which was read"),
            Self::ReadWrite { row, seen, next } => write!(f, "rw: saw {seen} of {row}, then came version {next}"),
            Self::Phantom { row, seen, next } => {
                write!(f, "rw, phantom: scanned and saw {seen} of {row}, then came version {next}")
            }
            Self::RealTime { responded, invoked } => {
                write!(f, "time: responded at {responded}, before the invocation at {invoked}")
            }
        }
    }
}

impl<K: Debug> Display for Cycle<K> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.kind)?;
        self.steps.iter().try_for_each(|Step { from, to, why }| write!(f, "\n  T{from} before T{to}  {why}"))
    }
}

impl<K: Debug> Display for Anomaly<K> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::AbortedRead { row, seen, writer, reader } => {
                write!(f, "G1a: T{reader} read {seen} of {row}, of T{writer}, which aborted")
            }
            Self::IntermediateRead { row, seen, last, writer, reader } => {
                write!(f, "G1b: T{reader} read {seen} of {row}, of T{writer}, which left it in version {last}")
            }
            Self::UnwrittenRead { row, seen, reader } => {
                write!(f, "T{reader} read {seen} of {row}, which no transaction wrote")
            }
            Self::Contradiction { row, seen, known, reader } => {
                write!(f, "T{reader} read {seen} of {row}, where it had itself left or seen {known}")
            }
            Self::ShownTwice { row, reader } => write!(f, "a scan showed {row} to T{reader} more than once"),
            Self::TwoWriters { row, version, writers: [first, second] } => {
                write!(f, "T{first} and T{second} both wrote version {version} of {row}")
            }
            Self::Cycle(cycle) => Display::fmt(cycle, f),
        }
    }
}
