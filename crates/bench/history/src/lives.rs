//! The order in which a row was inserted again and again.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{History, Operation, Outcome, Row, Seen, Transaction};

/// A write of a row, and what its transaction had seen of the row before.
struct Write {
    /// The number of its transaction.
    by: usize,
    version: u64,
    before: Seen,
}

impl<K: Ord + Clone> History<K> {
    /// Puts the insertions of each row in order, by the reads of those that have written the row
    /// next. It changes version numbers.
    ///
    /// A [`Recorder`](crate::Recorder)'s version is drawn before the commit. That is in order where
    /// a transaction reads the version before its own, which is not overwritten until the commit.
    /// But a transaction that has found no row may insert it after others have inserted and removed
    /// it: nothing was there at its commit, either. Its version is too small then.
    ///
    /// The next write of the row is by a transaction that has read this insertion. Its version was
    /// drawn after the insertion's commit, and before that of the next insertion. So insertions are
    /// in the order of the smallest versions that others have made from them. One from which none
    /// was made is the last.
    ///
    /// Rows that a transaction has written unread stay as they are. An insertion that its own
    /// transaction has removed again counts as a row that was not found.
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
        self.transactions.iter_mut().for_each(drop_what_came_to_nothing);
        let firsts: BTreeMap<Row<K>, BTreeMap<u64, u64>> =
            writes(&self).into_iter().filter_map(|(row, writes)| Some((row, firsts(&writes?)?))).collect();
        let mut versions: BTreeMap<Row<K>, BTreeMap<u64, u64>> = BTreeMap::new();
        self.each_version(|row, version| {
            if firsts.contains_key(row) {
                versions.entry(row.clone()).or_default().insert(*version, 0);
            }
        });
        for (row, numbers) in &mut versions {
            // Before the first that others have made from it, with all of its transaction.
            let place = |version: &u64| match firsts[row].get(version) {
                Some(next) => (*next, false, *version),
                None => (*version, true, *version),
            };
            let mut order: Vec<u64> = numbers.keys().copied().collect();
            order.sort_unstable_by_key(place);
            numbers.extend(order.into_iter().zip(1..));
        }
        self.each_version(|row, version| {
            if let Some(number) = versions.get(row).and_then(|numbers| numbers.get(version)) {
                *version = *number;
            }
        });
        self
    }

    /// Shows all versions of rows.
    fn each_version(&mut self, mut show: impl FnMut(&Row<K>, &mut u64)) {
        for operation in self.transactions.iter_mut().flat_map(|one| &mut one.operations) {
            match operation {
                Operation::Read { row, seen: Seen::Version(version) | Seen::Removed(version) }
                | Operation::Write { row, version, .. } => show(row, version),
                Operation::Read { seen: Seen::Nothing, .. } => {}
                Operation::Scan { table, matched, .. } => {
                    for (key, version) in matched {
                        show(&Row { table: *table, key: key.clone() }, version);
                    }
                }
            }
        }
    }
}

/// Drops what a transaction has done to rows that were not there before, and are not afterwards.
fn drop_what_came_to_nothing<K: Ord + Clone>(transaction: &mut Transaction<K>) {
    let mut rows: BTreeMap<Row<K>, (bool, bool)> = BTreeMap::new();
    for operation in &transaction.operations {
        match operation {
            Operation::Read { row, seen } => {
                rows.entry(row.clone()).or_insert((*seen == Seen::Nothing, false));
            }
            Operation::Write { row, removal, .. } => {
                rows.entry(row.clone()).or_insert((false, false)).1 = *removal;
            }
            Operation::Scan { .. } => {}
        }
    }
    rows.retain(|_, (was_missing, is_removed)| *was_missing && *is_removed);
    if rows.is_empty() {
        return;
    }
    transaction.operations.retain(|operation| match operation {
        Operation::Read { row, seen } => *seen == Seen::Nothing || !rows.contains_key(row),
        Operation::Write { row, .. } => !rows.contains_key(row),
        Operation::Scan { .. } => true,
    });
    for operation in &mut transaction.operations {
        if let Operation::Scan { table, matched, .. } = operation {
            matched.retain(|(key, _)| !rows.contains_key(&Row { table: *table, key: key.clone() }));
        }
    }
}

/// Returns the writes of each row. `None` if one of them is by somebody who had not read the row.
fn writes<K: Ord + Clone>(history: &History<K>) -> BTreeMap<Row<K>, Option<Vec<Write>>> {
    let mut all = BTreeMap::new();
    let transactions = history.transactions.iter().enumerate();
    for (by, transaction) in transactions.filter(|(_, one)| one.outcome != Outcome::Aborted) {
        let mut seen = BTreeMap::new();
        for operation in &transaction.operations {
            match operation {
                Operation::Read { row, seen: now } => {
                    seen.entry(row).or_insert(*now);
                }
                Operation::Write { row, version, .. } => {
                    let writes = all.entry(row.clone()).or_insert_with(|| Some(Vec::new()));
                    match (seen.get(row), writes) {
                        (Some(before), Some(writes)) => writes.push(Write { by, version: *version, before: *before }),
                        (_, writes) => *writes = None,
                    }
                    // It is what a second write of the transaction is made from.
                    seen.insert(row, Seen::Version(*version));
                }
                Operation::Scan { .. } => {}
            }
        }
    }
    all
}

/// Returns the versions with which transactions have inserted a row, and all others that these have
/// given it: each with the smallest one that others have made from it. `None` if one has, or none.
fn firsts(writes: &[Write]) -> Option<BTreeMap<u64, u64>> {
    let insertions: Vec<&Write> = writes.iter().filter(|write| write.before == Seen::Nothing).collect();
    if insertions.len() < 2 {
        return None;
    }
    let mut next: BTreeMap<u64, Vec<&Write>> = BTreeMap::new();
    for write in writes {
        if let Seen::Version(before) | Seen::Removed(before) = write.before {
            next.entry(before).or_default().push(write);
        }
    }
    let mut firsts = BTreeMap::new();
    for insertion in insertions {
        let (mut own, mut others) = (vec![insertion.version], BTreeSet::new());
        let mut open = own.clone();
        while let Some(version) = open.pop() {
            for write in next.get(&version).into_iter().flatten() {
                let is_new = match write.by == insertion.by {
                    true if own.contains(&write.version) => false,
                    true => {
                        own.push(write.version);
                        true
                    }
                    false => others.insert(write.version),
                };
                open.extend(is_new.then_some(write.version));
            }
        }
        let after = others.first().copied().unwrap_or(u64::MAX);
        firsts.extend(own.into_iter().map(|version| (version, after)));
    }
    Some(firsts)
}
