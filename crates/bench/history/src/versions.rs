//! Writers of versions: the rows of a history in order, and each row's versions in order.
//!
//! Rows are numbered in the order of their keys, so that a range of keys is a range of numbers. All
//! later code compares only numbers.

use std::ops::{Bound, Range};

use super::{
    MalformedHistory,
    record::{History, Operation, Outcome, Row, Seen},
};

/// A row's place among all rows of the history.
pub(super) type RowId = u32;

/// A transaction's place in the history.
pub(super) type TxnId = u32;

/// One version of one row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    pub(super) row: RowId,
    pub(super) number: u64,
    pub(super) removal: bool,
    pub(super) writer: TxnId,
    /// The version that `writer` left.
    pub(super) last: u64,
    /// The earliest invocation of a removal among this and all later versions of the row. Removals
    /// known to have aborted do not count.
    earliest_removal: u64,
    /// The earliest response of a committed writer among this and all later versions of the row.
    earliest_response: u64,
}

/// All rows that a history names, in order.
#[derive(Debug)]
pub(super) struct Rows<'h, K>(Vec<(u32, &'h K)>);

impl<'h, K: Ord + Clone> Rows<'h, K> {
    pub(super) fn of(history: &'h History<K>) -> Self {
        let mut rows = Vec::new();
        for operation in history.transactions.iter().flat_map(|transaction| &transaction.operations) {
            match operation {
                Operation::Read { row, .. } | Operation::Write { row, .. } => rows.push((row.table, &row.key)),
                Operation::Scan { table, matched, .. } => rows.extend(matched.iter().map(|(key, _)| (*table, key))),
            }
        }
        rows.sort_unstable();
        rows.dedup();
        Self(rows)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of a row of this history.
    pub(super) fn id(&self, table: u32, key: &K) -> RowId {
        self.0.partition_point(|row| *row < (table, key)) as RowId
    }

    /// Returns the numbers of all rows in a range of keys.
    pub(super) fn range(&self, table: u32, start: &Bound<K>, end: &Bound<K>) -> Range<RowId> {
        let before = |key: &K| self.0.partition_point(|row| *row < (table, key));
        let through = |key: &K| self.0.partition_point(|row| *row <= (table, key));
        let start = match start {
            Bound::Included(key) => before(key),
            Bound::Excluded(key) => through(key),
            Bound::Unbounded => self.0.partition_point(|row| row.0 < table),
        };
        let end = match end {
            Bound::Included(key) => through(key),
            Bound::Excluded(key) => before(key),
            Bound::Unbounded => self.0.partition_point(|row| row.0 <= table),
        };
        start as RowId..end as RowId
    }

    pub(super) fn name(&self, row: RowId) -> Row<K> {
        let (table, key) = self.0[row as usize];
        Row { table, key: key.clone() }
    }
}

/// The origin of a version that was read.
#[derive(Debug)]
pub(super) enum Origin<'v> {
    /// Written by a committed transaction.
    Written(&'v Version),
    /// Written by one of several transactions of unknown outcome.
    Unclear,
    /// Written by a transaction that aborted.
    Aborted(TxnId),
    /// Written by no transaction.
    Unwritten,
}

/// All versions of all rows, and the outcomes of transactions.
#[derive(Debug)]
pub(super) struct Versions {
    /// Sorted by row, then number, then writer.
    all: Vec<Version>,
    /// The index in `all` of each row's first version, and the end behind the last row.
    begins: Vec<usize>,
    outcomes: Vec<Outcome>,
}

impl Versions {
    /// # Errors
    ///
    /// Returns an error if a transaction's own versions of a row are not in the order of its
    /// writes.
    pub(super) fn of<K: Ord + Clone>(history: &History<K>, rows: &Rows<'_, K>) -> Result<Self, MalformedHistory> {
        let mut all = Vec::new();
        for (writer, transaction) in history.transactions.iter().enumerate() {
            let begin = all.len();
            let may_remove = transaction.outcome != Outcome::Aborted;
            for operation in &transaction.operations {
                if let &Operation::Write { ref row, version, removal } = operation {
                    all.push(Version {
                        row: rows.id(row.table, &row.key),
                        number: version,
                        removal,
                        writer: writer as TxnId,
                        last: version,
                        earliest_removal: if removal && may_remove { transaction.invoked } else { u64::MAX },
                        earliest_response: transaction.committed_by().unwrap_or(u64::MAX),
                    });
                }
            }
            all[begin..].sort_by_key(|version| version.row);
            if !all[begin..].is_sorted_by_key(|version| (version.row, version.number)) {
                return Err(MalformedHistory::VersionsReversed { transaction: writer });
            }
            // Among writes of the same version, the last one counts.
            let kept = begin + keep_last(&mut all[begin..]);
            all.truncate(kept);
            for at in (begin + 1..kept).rev() {
                if all[at - 1].row == all[at].row {
                    all[at - 1].last = all[at].last;
                }
            }
        }
        all.sort_unstable_by_key(|version| (version.row, version.number, version.writer));

        let mut begins = vec![0; rows.len() + 1];
        all.iter().for_each(|version| begins[version.row as usize + 1] += 1);
        (1..begins.len()).for_each(|row| begins[row] += begins[row - 1]);

        let outcomes: Vec<Outcome> = history.transactions.iter().map(|transaction| transaction.outcome).collect();
        for at in (1..all.len()).rev() {
            if all[at - 1].row == all[at].row {
                all[at - 1].earliest_removal = all[at - 1].earliest_removal.min(all[at].earliest_removal);
                all[at - 1].earliest_response = all[at - 1].earliest_response.min(all[at].earliest_response);
            }
        }

        let mut versions = Self { all, begins, outcomes };
        versions.settle(history, rows);
        Ok(versions)
    }

    /// Marks a transaction of unknown outcome as committed if a committed one read its writes.
    fn settle<K: Ord + Clone>(&mut self, history: &History<K>, rows: &Rows<'_, K>) {
        let mut committed: Vec<usize> =
            (0..self.outcomes.len()).filter(|&id| self.outcomes[id] == Outcome::Committed).collect();
        if committed.len() == self.outcomes.len() {
            return;
        }
        while let Some(reader) = committed.pop() {
            for operation in &history.transactions[reader].operations {
                match operation {
                    Operation::Read { row, seen } => {
                        committed.extend(self.settle_writer(rows.id(row.table, &row.key), *seen));
                    }
                    Operation::Scan { table, matched, .. } => committed.extend(
                        matched
                            .iter()
                            .filter_map(|(key, seen)| self.settle_writer(rows.id(*table, key), Seen::Version(*seen))),
                    ),
                    Operation::Write { .. } => {}
                }
            }
        }
    }

    /// Returns the writer of the version read, if that read proves for the first time that it
    /// committed.
    fn settle_writer(&mut self, row: RowId, seen: Seen) -> Option<usize> {
        let writer = self.only_writer(row, seen)?;
        (self.outcomes[writer] != Outcome::Committed).then(|| {
            self.outcomes[writer] = Outcome::Committed;
            writer
        })
    }

    /// Returns the only transaction that can have written the version read; `None` if there are
    /// several or none.
    fn only_writer(&self, row: RowId, seen: Seen) -> Option<usize> {
        let mut writers = self.candidates(row, seen).filter(|version| self.outcome(version) != Outcome::Aborted);
        let only = writers.next()?;
        writers.next().is_none().then_some(only.writer as usize)
    }

    /// Returns whether a transaction took effect, as far as the history shows.
    pub(super) fn took_effect(&self, transaction: usize) -> bool {
        self.outcomes[transaction] == Outcome::Committed
    }

    pub(super) fn origin(&self, row: RowId, seen: Seen) -> Origin<'_> {
        let by = |outcome| self.candidates(row, seen).find(|version| self.outcome(version) == outcome);
        if let Some(version) = by(Outcome::Committed) {
            Origin::Written(version)
        } else if by(Outcome::Unknown).is_some() {
            Origin::Unclear
        } else if let Some(version) = by(Outcome::Aborted) {
            Origin::Aborted(version.writer)
        } else {
            Origin::Unwritten
        }
    }

    /// Returns the first committed version of a row after `number`, or the first of all for `None`.
    pub(super) fn next(&self, row: RowId, number: Option<u64>) -> Option<&Version> {
        let versions = self.row(row);
        let behind = versions.partition_point(|version| Some(version.number) <= number);
        versions[behind..].iter().find(|version| self.outcome(version) == Outcome::Committed)
    }

    /// Returns the last removal that can explain why `reader` found no row, `None` if there is
    /// none. It is not the reader's own, and was not invoked after `end`, the reader's response.
    pub(super) fn last_absence(
        &self,
        row: RowId,
        reader: TxnId,
        end: u64,
        invoked: impl Fn(TxnId) -> u64,
    ) -> Option<u64> {
        let versions = self.row(row);
        let behind = versions.partition_point(|version| version.earliest_removal <= end);
        let possible = |version: &&Version| {
            version.removal
                && version.writer != reader
                && self.outcome(version) != Outcome::Aborted
                && invoked(version.writer) <= end
        };
        versions[..behind].iter().rev().find(possible).map(|version| version.number)
    }

    /// Returns the first removal that can explain why `reader`, invoked at `begin`, found no row.
    /// The removal must be committed. A removal does not count if its overwriter responded before
    /// `begin`.
    ///
    /// Returns `None` also if, by the clock, the row may not have been inserted yet.
    pub(super) fn first_absence(&self, row: RowId, reader: TxnId, begin: u64, end: u64) -> Option<&Version> {
        let versions = self.row(row);
        let overwritten = versions.partition_point(|version| version.earliest_response < begin).checked_sub(1)?;
        versions[overwritten..]
            .iter()
            .take_while(|version| version.earliest_removal <= end)
            .find(|version| version.removal && version.writer != reader && self.outcome(version) != Outcome::Aborted)
            .filter(|version| self.outcome(version) == Outcome::Committed)
    }

    /// Returns all committed versions, by row and number.
    pub(super) fn committed(&self) -> impl Iterator<Item = &Version> {
        self.all.iter().filter(|version| self.outcome(version) == Outcome::Committed)
    }

    fn row(&self, row: RowId) -> &[Version] {
        &self.all[self.begins[row as usize]..self.begins[row as usize + 1]]
    }

    fn candidates(&self, row: RowId, seen: Seen) -> impl Iterator<Item = &Version> {
        let (number, removal) = match seen {
            Seen::Version(number) => (Some(number), false),
            Seen::Removed(number) => (Some(number), true),
            Seen::Nothing => (None, true),
        };
        let versions = self.row(row);
        let begin = versions.partition_point(|version| Some(version.number) < number);
        versions[begin..]
            .iter()
            .take_while(move |version| Some(version.number) == number)
            .filter(move |version| version.removal == removal)
    }

    fn outcome(&self, version: &Version) -> Outcome {
        self.outcomes[version.writer as usize]
    }
}

/// Moves the last write of each run of equal versions to the front. Returns their number.
fn keep_last(versions: &mut [Version]) -> usize {
    let mut kept = 0;
    for at in 0..versions.len() {
        let next = versions.get(at + 1);
        if next.is_none_or(|next| (next.row, next.number) != (versions[at].row, versions[at].number)) {
            versions[kept] = versions[at];
            kept += 1;
        }
    }
    kept
}
