//! What can be wrong with a history, by the names that Adya gave it, and told so that a person can
//! follow.

use std::fmt::{self, Debug, Display, Formatter};

use super::record::{Row, Seen};

/// Something that no serial execution could have shown.
///
/// # Example
///
/// ```
/// use drtm_bench::history::{Anomaly, History, Order, Transaction, check};
///
/// let history = History::from_iter([
///     Transaction::aborted(0, 1).writes(0, "x", 1),
///     Transaction::committed(2, 3).reads(0, "x", 1),
/// ]);
/// let anomalies = check(&history, Order::Any)?;
/// assert!(matches!(anomalies[..], [Anomaly::AbortedRead { writer: 0, reader: 1, .. }]));
/// assert_eq!(anomalies[0].to_string(), r#"G1a: T1 read version 1 of 0/"x", of T0, which aborted"#);
/// # Ok::<(), drtm_bench::history::MalformedHistory>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Anomaly<K> {
    /// G1a: a read of what an aborted transaction wrote.
    AbortedRead {
        /// What was read.
        row: Row<K>,
        /// What was seen of it.
        seen: Seen,
        /// Who aborted.
        writer: usize,
        /// Who read it and committed.
        reader: usize,
    },
    /// G1b: a read of what its writer itself overwrote.
    IntermediateRead {
        /// What was read.
        row: Row<K>,
        /// What was seen of it.
        seen: Seen,
        /// The version in which the writer left the row.
        last: u64,
        /// Who wrote both.
        writer: usize,
        /// Who read the first.
        reader: usize,
    },
    /// A read of what nobody wrote, or what the reader itself wrote only later.
    UnwrittenRead {
        /// What was read.
        row: Row<K>,
        /// What was seen of it.
        seen: Seen,
        /// Who read it.
        reader: usize,
    },
    /// A read that contradicts what the same transaction had written or seen of the row before.
    Contradiction {
        /// What was read.
        row: Row<K>,
        /// What was seen of it.
        seen: Seen,
        /// What the transaction had left or seen there.
        known: Seen,
        /// Who read it.
        reader: usize,
    },
    /// A scan that showed a row more than once.
    ShownTwice {
        /// Which row.
        row: Row<K>,
        /// Who scanned.
        reader: usize,
    },
    /// Two transactions committed the same version of a row.
    TwoWriters {
        /// Of which row.
        row: Row<K>,
        /// The version.
        version: u64,
        /// Who wrote it. The first is taken for its writer in all else.
        writers: [usize; 2],
    },
    /// Transactions each of which must come before the next, and the last before the first.
    Cycle(Cycle<K>),
}

/// Transactions that cannot be put in any order: each [`Step`] leads to where the next begins.
///
/// # Example
///
/// ```
/// use drtm_bench::history::{Anomaly, CycleKind, History, Order, Transaction, check};
///
/// let history = History::from_iter([
///     Transaction::committed(0, 9).finds_nothing(0, 'x').writes(0, 'y', 1),
///     Transaction::committed(0, 9).finds_nothing(0, 'y').writes(0, 'x', 1),
/// ]);
/// let anomalies = check(&history, Order::Any)?;
/// let [Anomaly::Cycle(skew)] = &anomalies[..] else { panic!("{anomalies:?}") };
/// assert_eq!((skew.kind, skew.steps.len()), (CycleKind::G2Item, 2));
/// # Ok::<(), drtm_bench::history::MalformedHistory>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle<K> {
    /// Its name.
    pub kind: CycleKind,
    /// The way round.
    pub steps: Vec<Step<K>>,
}

/// Why one transaction must come before another: a step of a [`Cycle`].
///
/// # Example
///
/// ```
/// use drtm_bench::history::{Dependency, Row, Step};
///
/// let step = Step { from: 3, to: 4, why: Dependency::WriteRead { row: Row { table: 0, key: 'x' }, version: 1 } };
/// assert_eq!((step.from, step.why.to_string()), (3, "wr: wrote version 1 of 0/'x', which was read".into()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<K> {
    /// Who comes first.
    pub from: usize,
    /// Who comes later.
    pub to: usize,
    /// Why.
    pub why: Dependency<Row<K>>,
}

/// The names of cycles, the worst first.
///
/// # Example
///
/// ```
/// use drtm_bench::history::CycleKind;
///
/// assert!(CycleKind::G0 < CycleKind::G2);
/// assert_eq!(CycleKind::GSingle.to_string(), "G-single");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CycleKind {
    /// G0: writes overtake each other.
    G0,
    /// G1c: information flows in a circle.
    G1c,
    /// A write made without knowledge of another that the writer's read had missed. A case of
    /// G-single.
    LostUpdate,
    /// G-single: exactly one read missed a write, such as read skew.
    GSingle,
    /// G2-item: reads of rows missed each other's writes, such as write skew.
    G2Item,
    /// G2: the same, where a scan missed that a row came or went.
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

/// Why a transaction must come before another, on account of row `R`.
///
/// # Example
///
/// ```
/// use drtm_bench::history::Dependency;
///
/// assert_eq!(Dependency::WriteRead { row: "x", version: 3 }.to_string(), "wr: wrote version 3 of x, which was read");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependency<R> {
    /// It wrote a version, the other a later one.
    WriteWrite {
        /// Of which row.
        row: R,
        /// What it wrote.
        version: u64,
        /// What the other wrote.
        next: u64,
    },
    /// It wrote a version, the other read it; or it removed a row, and the other saw nothing.
    WriteRead {
        /// Of which row.
        row: R,
        /// What it wrote.
        version: u64,
    },
    /// It read a row, the other wrote the version after what was seen.
    ReadWrite {
        /// Which row.
        row: R,
        /// What it saw.
        seen: Seen,
        /// What the other wrote.
        next: u64,
    },
    /// It scanned a range of keys, the other put a row there or took one away, unseen.
    Phantom {
        /// Which row.
        row: R,
        /// What it saw.
        seen: Seen,
        /// What the other wrote.
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
    /// The same with another name of the row.
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
                write!(f, "T{reader} read {seen} of {row}, which nobody wrote")
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
