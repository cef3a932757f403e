//! The order in which a row was inserted again and again.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{History, Operation, Outcome, Row, Seen};

/// A write of a row, and what its transaction had seen of the row before.
struct Write {
    version: u64,
    before: Seen,
}

impl<K: Ord + Clone> History<K> {
    /// Puts the insertions of each row in order, by the reads of those that have written the row
    /// next. It changes version numbers.
    ///
    /// A [`Recorder`](crate::Recorder)'s version is drawn before the commit. That is in order if
    /// whoever writes has read the version before his own, which is not overwritten until he
    /// commits. But he who has read that there is no row may insert it after others have inserted
    /// and removed it: nothing was there at his commit, either. His version is too small then.
    ///
    /// Who writes the row next has read that insertion, so that his version was drawn after its
    /// commit, and before that of the next insertion. So insertions are in the order of the
    /// smallest versions that others have made from them. One from which nobody has made another is
    /// the last.
    ///
    /// Rows that somebody has written without having read them stay as they are.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_history::{History, Order, Transaction, check};
    ///
    /// let history = History::from_iter([
    ///     // The first one draws version 1, and commits last.
    ///     Transaction::committed(0, 9).finds_nothing(0, 7).writes(0, 7, 1),
    ///     Transaction::committed(1, 2).finds_nothing(0, 7).writes(0, 7, 2),
    ///     Transaction::committed(3, 4).reads(0, 7, 2).removes(0, 7, 3),
    ///     Transaction::committed(10, 11).reads(0, 7, 1),
    /// ]);
    /// assert_eq!(check(&history, Order::RealTime)?.len(), 1);
    /// assert_eq!(check(&history.with_insertions_in_order(), Order::RealTime)?, []);
    /// # Ok::<(), drtm_history::MalformedHistory>(())
    /// ```
    #[must_use]
    pub fn with_insertions_in_order(mut self) -> Self {
        let mut numbers: BTreeMap<Row<K>, BTreeMap<u64, u64>> = BTreeMap::new();
        for (row, writes) in writes(&self) {
            // Rows that are never inserted twice need nothing.
            if let Some(insertions) = writes.and_then(|writes| in_order(&writes)) {
                numbers.insert(row, insertions);
            }
        }
        for operation in self.transactions.iter_mut().flat_map(|one| &mut one.operations) {
            match operation {
                Operation::Read { row, seen: Seen::Version(version) | Seen::Removed(version) }
                | Operation::Write { row, version, .. } => renumber(version, numbers.get(row)),
                Operation::Read { seen: Seen::Nothing, .. } => {}
                Operation::Scan { table, matched, .. } => {
                    for (key, version) in matched {
                        renumber(version, numbers.get(&Row { table: *table, key: key.clone() }));
                    }
                }
            }
        }
        self
    }
}

/// Returns the writes of each row. `None` if one of them is by somebody who had not read the row.
fn writes<K: Ord + Clone>(history: &History<K>) -> BTreeMap<Row<K>, Option<Vec<Write>>> {
    let mut all = BTreeMap::new();
    for transaction in history.transactions.iter().filter(|one| one.outcome != Outcome::Aborted) {
        let mut seen = BTreeMap::new();
        for operation in &transaction.operations {
            match operation {
                Operation::Read { row, seen: now } => {
                    seen.entry(row).or_insert(*now);
                }
                Operation::Write { row, version, .. } => {
                    let writes = all.entry(row.clone()).or_insert_with(|| Some(Vec::new()));
                    match (seen.get(row), writes) {
                        (Some(before), Some(writes)) => writes.push(Write { version: *version, before: *before }),
                        (_, writes) => *writes = None,
                    }
                }
                Operation::Scan { .. } => {}
            }
        }
    }
    all
}

/// Returns new numbers of insertions. `None` if there are fewer than two.
fn in_order(writes: &[Write]) -> Option<BTreeMap<u64, u64>> {
    let mut insertions: Vec<u64> =
        writes.iter().filter(|write| write.before == Seen::Nothing).map(|write| write.version).collect();
    if insertions.len() < 2 {
        return None;
    }
    insertions.sort_unstable();
    let mut next: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for write in writes {
        if let Seen::Version(before) | Seen::Removed(before) = write.before {
            next.entry(before).or_default().push(write.version);
        }
    }
    let last = writes.iter().map(|write| write.version).max()?;
    let numbers = insertions.into_iter().zip(1..).map(|(insertion, nth)| {
        let number = first_after(insertion, &next).map_or(2 * last + nth, |next| 2 * next - 1);
        (insertion, number)
    });
    Some(numbers.collect())
}

/// Returns the smallest version that others have made from this one.
fn first_after(version: u64, next: &BTreeMap<u64, Vec<u64>>) -> Option<u64> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![version]);
    while let Some(version) = open.pop() {
        open.extend(next.get(&version).into_iter().flatten().copied().filter(|next| reached.insert(*next)));
    }
    reached.first().copied()
}

/// Gives a version its new number, of which there is room between any two others.
fn renumber(version: &mut u64, insertions: Option<&BTreeMap<u64, u64>>) {
    if let Some(insertions) = insertions {
        *version = insertions.get(version).copied().unwrap_or(2 * *version);
    }
}
