//! A checker of transaction histories: finds whether a run was serializable, and if not, which
//! anomaly occurred.
//!
//! A [`History`] records for each transaction its times, its outcome, and which *versions* of rows
//! it read and wrote. Version numbers order the versions of a row, so the order of writes is known
//! and needs no search. The history is serializable if and only if its dependency graph has no
//! cycle (Adya's direct serialization graph). An edge leads from one transaction to another that
//! must come later:
//!
//! - *ww*: one wrote a version of a row, the other the next;
//! - *wr*: one wrote a version, the other read it;
//! - *rw*: one read a version or an absent row, and the other wrote the next. If a scan missed the
//!   insertion or removal of the row, this is a phantom;
//! - *time*, with [`Order::RealTime`]: one had responded before the other was invoked.
//!
//! [`check`] returns every [`Anomaly`]. For each strongly connected group of transactions it
//! returns one short cycle of the worst kind.
//!
//! ```
//! use drtm_history::{Anomaly, CycleKind, History, Order, Transaction, check};
//!
//! let history = History::from_iter([
//!     Transaction::committed(0, 1).writes(0, "stock", 1),
//!     Transaction::committed(2, 5).reads(0, "stock", 1).writes(0, "stock", 2),
//!     Transaction::committed(3, 6).reads(0, "stock", 1).writes(0, "stock", 3),
//! ]);
//! let anomalies = check(&history, Order::RealTime)?;
//! let [Anomaly::Cycle(cycle)] = &anomalies[..] else { panic!("{anomalies:?}") };
//! assert_eq!(cycle.kind, CycleKind::LostUpdate);
//! assert_eq!(
//!     cycle.to_string(),
//!     r#"lost update (G-single):
//!   T2 before T1  rw: saw version 1 of 0/"stock", then came version 2
//!   T1 before T2  ww: wrote version 2 of 0/"stock", then came version 3"#,
//! );
//! # Ok::<(), drtm_history::MalformedHistory>(())
//! ```
//!
//! A transaction's own operations must agree too: it reads its own writes, and its reads are
//! repeatable.
//!
//! A [`Recorder`] records the transactions of several threads.
//!
//! # What it misses
//!
//! - Reads of aborted transactions are not checked.
//! - A read of an absent row may follow any removal of it. The reader then precedes the write after
//!   the latest removal. With [`Order::RealTime`], removals invoked too late do not count, and the
//!   reader follows the earliest removal that was not overwritten before it was invoked. This never
//!   reports a false anomaly, but can miss one. [`Seen::Removed`] names the removal, and is exact.
//!   The same holds for rows that a scan did not show.
//! - Where versions are drawn before the commit, insertions may be out of order:
//!   [`History::with_insertions_in_order`].
//! - A transaction of unknown outcome counts only if a committed transaction read a version that it
//!   alone can have written.
//! - In very large groups, the search for the worst and shortest cycle is cut short. Some cycle is
//!   still reported.

#![forbid(unsafe_code)]

mod anomaly;
mod components;
mod cycles;
mod graph;
mod lives;
mod reads;
mod record;
mod recorder;
#[cfg(test)]
mod tests;
mod versions;

pub use anomaly::{Anomaly, Cycle, CycleKind, Dependency, Step};
pub use record::{History, Operation, Outcome, Row, Seen, Transaction};
pub use recorder::{Clock, Epoch, Log, Recorder, Recording, TooManyLogs};

use graph::Graph;
use versions::{Rows, Versions};

/// The order that a history is checked for.
///
/// # Example
///
/// ```
/// use drtm_history::{History, Order, Transaction, check};
///
/// let stale = History::from_iter([
///     Transaction::committed(0, 1).writes(0, 'x', 1),
///     Transaction::committed(2, 3).finds_nothing(0, 'x'),
/// ]);
/// assert!(check(&stale, Order::Any)?.is_empty());
/// assert_eq!(check(&stale, Order::RealTime)?.len(), 1);
/// # Ok::<(), drtm_history::MalformedHistory>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Any order: serializability.
    Any,
    /// An order in which a transaction precedes those invoked after its response: strict
    /// serializability.
    RealTime,
}

/// A history cannot be checked because it contradicts itself. Most likely its recorder is at fault.
///
/// # Example
///
/// ```
/// use drtm_history::{History, MalformedHistory, Order, Transaction, check};
///
/// let reversed = History::from_iter([Transaction::<u64>::committed(2, 1)]);
/// assert_eq!(check(&reversed, Order::Any), Err(MalformedHistory::TimesReversed { transaction: 0 }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MalformedHistory {
    /// A transaction responded before it was invoked.
    #[error("T{transaction} responded before it was invoked: record both times by one monotonic clock")]
    TimesReversed {
        /// The transaction.
        transaction: usize,
    },
    /// A scan matched a key outside of its range.
    #[error(
        "operation {operation} of T{transaction} matched a key outside of the range that it scanned: unless another range was asked for, the store shows too much"
    )]
    OutsideRange {
        /// The scanning transaction.
        transaction: usize,
        /// The index of its operation.
        operation: usize,
    },
    /// A transaction wrote a row twice, and the later version is the lower one.
    #[error(
        "T{transaction} wrote a row twice, the later version being the lower one: number a row's versions in their order"
    )]
    VersionsReversed {
        /// The transaction.
        transaction: usize,
    },
    /// There are more transactions or rows than the checker can number.
    #[error("the history has more than {} transactions or rows: check it in parts", MalformedHistory::LIMIT)]
    TooLong,
}

impl MalformedHistory {
    /// Each transaction may need two nodes.
    const LIMIT: usize = (u32::MAX / 2) as usize;
}

/// Finds the anomalies of a history.
///
/// Time and memory grow linearly with the operations and the rows in scanned ranges, and sorting
/// adds a logarithmic factor.
///
/// # Errors
///
/// Returns a [`MalformedHistory`] if the history contradicts itself.
///
/// # Example
///
/// ```
/// use drtm_history::{History, Order, Transaction, check};
///
/// let history = History::from_iter([
///     Transaction::committed(0, 1).writes(0, 10, 1).writes(0, 20, 1),
///     Transaction::committed(2, 5).scans(0, 0..100, [(10, 1), (20, 1)]).removes(0, 20, 2),
///     Transaction::committed(3, 6).scans(0, 0..100, [(10, 1)]).writes(0, 10, 2),
/// ]);
/// assert!(check(&history, Order::RealTime)?.is_empty());
/// # Ok::<(), drtm_history::MalformedHistory>(())
/// ```
pub fn check<K: Ord + Clone>(history: &History<K>, order: Order) -> Result<Vec<Anomaly<K>>, MalformedHistory> {
    validate(history)?;
    let rows = Rows::of(history);
    if history.transactions.len().max(rows.len()) > MalformedHistory::LIMIT {
        return Err(MalformedHistory::TooLong);
    }
    let versions = Versions::of(history, &rows)?;
    let (mut edges, mut anomalies) = (Vec::new(), Vec::new());
    reads::find(history, order, &rows, &versions, &mut edges, &mut anomalies);
    graph::order_writes(&rows, &versions, &mut edges, &mut anomalies);

    let data = Graph::new(history.transactions.len(), edges);
    let groups = components::cyclic(&data);
    let mut tied = vec![false; history.transactions.len()];
    groups.iter().flatten().for_each(|&transaction| tied[transaction as usize] = true);
    anomalies.extend(groups.iter().map(|group| Anomaly::Cycle(cycles::worst(history, &rows, &data, group))));

    if order == Order::RealTime {
        let timed = data.with_time(history, &versions);
        for group in components::cyclic(&timed) {
            // A group that has a cycle without the clock has been reported.
            if !group.iter().any(|&node| tied.get(node as usize).is_some_and(|tied| *tied)) {
                anomalies.push(Anomaly::Cycle(cycles::against_time(history, &rows, &timed, &group)));
            }
        }
    }
    Ok(anomalies)
}

fn validate<K: Ord>(history: &History<K>) -> Result<(), MalformedHistory> {
    for (transaction, recorded) in history.transactions.iter().enumerate() {
        if recorded.end() < recorded.invoked {
            return Err(MalformedHistory::TimesReversed { transaction });
        }
        for (operation, done) in recorded.operations.iter().enumerate() {
            if let Operation::Scan { start, end, matched, .. } = done {
                let range = (start.as_ref(), end.as_ref());
                if !matched.iter().all(|(key, _)| std::ops::RangeBounds::contains(&range, key)) {
                    return Err(MalformedHistory::OutsideRange { transaction, operation });
                }
            }
        }
    }
    Ok(())
}
