//! Derives dependencies and anomalies from the reads of committed transactions.

use super::{
    Order,
    anomaly::{Anomaly, Dependency},
    graph::Edge,
    record::{History, Operation, Seen, Transaction},
    versions::{Origin, RowId, Rows, TxnId, Versions},
};

/// Adds the edges of all reads that count, and the anomalies of single reads.
pub(super) fn find<K: Ord + Clone>(
    history: &History<K>,
    order: Order,
    rows: &Rows<'_, K>,
    versions: &Versions,
    edges: &mut Vec<Edge>,
    anomalies: &mut Vec<Anomaly<K>>,
) {
    let mut known = vec![Known { by: NOBODY, seen: Seen::Nothing, is_own: false }; rows.len()];
    for (reader, transaction) in history.transactions.iter().enumerate() {
        if versions.took_effect(reader) {
            let reader = reader as TxnId;
            let known = &mut known;
            Reads { history, order, rows, versions, reader, transaction, known, edges, anomalies }.follow();
        }
    }
}

/// No transaction: the number of transactions is smaller.
const NOBODY: TxnId = TxnId::MAX;

/// A transaction's knowledge of a row by its own operations.
#[derive(Clone, Copy)]
struct Known {
    /// The transaction. Knowledge of another transaction is ignored.
    by: TxnId,
    seen: Seen,
    /// Whether the transaction wrote that version: then reading it adds no dependency.
    is_own: bool,
}

/// The reads of one transaction.
struct Reads<'a, 'h, K> {
    history: &'h History<K>,
    order: Order,
    rows: &'a Rows<'h, K>,
    versions: &'a Versions,
    reader: TxnId,
    transaction: &'h Transaction<K>,
    /// Indexed by row.
    known: &'a mut [Known],
    edges: &'a mut Vec<Edge>,
    anomalies: &'a mut Vec<Anomaly<K>>,
}

impl<K: Ord + Clone> Reads<'_, '_, K> {
    fn follow(&mut self) {
        for operation in &self.transaction.operations {
            match operation {
                Operation::Write { row, version, removal } => {
                    let seen = if *removal { Seen::Removed(*version) } else { Seen::Version(*version) };
                    let row = self.rows.id(row.table, &row.key);
                    self.known[row as usize] = Known { by: self.reader, seen, is_own: true };
                }
                Operation::Read { row, seen } => self.read(self.rows.id(row.table, &row.key), *seen, false),
                Operation::Scan { table, start, end, matched } => {
                    let mut shown = Vec::with_capacity(matched.len());
                    for (key, version) in matched {
                        let row = self.rows.id(*table, key);
                        shown.push(row);
                        self.read(row, Seen::Version(*version), true);
                    }
                    shown.sort_unstable();
                    self.shown_twice(&shown);
                    for row in self.rows.range(*table, start, end) {
                        if shown.binary_search(&row).is_err() {
                            self.read(row, Seen::Nothing, true);
                        }
                    }
                }
            }
        }
    }

    fn shown_twice(&mut self, shown: &[RowId]) {
        for group in shown.chunk_by(|one, other| one == other).filter(|group| group.len() > 1) {
            let row = self.rows.name(group[0]);
            self.anomalies.push(Anomaly::ShownTwice { row, reader: self.reader as usize });
        }
    }

    fn read(&mut self, row: RowId, seen: Seen, scanned: bool) {
        let known = &mut self.known[row as usize];
        if known.by == self.reader {
            if !known.seen.agrees_with(seen) {
                let (known, reader) = (known.seen, self.reader as usize);
                self.anomalies.push(Anomaly::Contradiction { row: self.rows.name(row), seen, known, reader });
            }
            if self.known[row as usize].is_own {
                return;
            }
        } else {
            *known = Known { by: self.reader, seen, is_own: false };
        }
        match seen {
            Seen::Nothing => self.nothing(row, scanned),
            Seen::Version(number) | Seen::Removed(number) => self.version(row, seen, number, scanned),
        }
    }

    /// Handles a read of a row, or of its removal.
    fn version(&mut self, row: RowId, seen: Seen, number: u64, scanned: bool) {
        let reader = self.reader as usize;
        match self.versions.origin(row, seen) {
            Origin::Written(version) if version.writer != self.reader => {
                if version.last != number {
                    self.anomalies.push(Anomaly::IntermediateRead {
                        row: self.rows.name(row),
                        seen,
                        last: version.last,
                        writer: version.writer as usize,
                        reader,
                    });
                }
                let why = Dependency::WriteRead { row, version: number };
                self.edges.push(Edge { from: version.writer, to: self.reader, why });
                // An intermediate version counts as the one that its writer left; the read is
                // reported as an anomaly.
                self.overwritten(row, seen, Some(version.last), scanned);
            }
            Origin::Unclear => self.overwritten(row, seen, Some(number), scanned),
            Origin::Aborted(writer) => self.anomalies.push(Anomaly::AbortedRead {
                row: self.rows.name(row),
                seen,
                writer: writer as usize,
                reader,
            }),
            // The reader's own earlier writes do not reach this point.
            Origin::Written(_) | Origin::Unwritten => {
                let row = self.rows.name(row);
                self.anomalies.push(Anomaly::UnwrittenRead { row, seen, reader });
            }
        }
    }

    /// Handles a read that found no row.
    fn nothing(&mut self, row: RowId, scanned: bool) {
        let reader = self.reader;
        // Without real-time order, a removal of any time may explain the read.
        let mut end = u64::MAX;
        if self.order == Order::RealTime {
            end = self.transaction.end();
            if let Some(removal) = self.versions.first_absence(row, reader, self.transaction.invoked, end) {
                let why = Dependency::WriteRead { row, version: removal.number };
                self.edges.push(Edge { from: removal.writer, to: reader, why });
            }
        }
        let invoked = |writer| self.history.transactions[writer as usize].invoked;
        let absence = self.versions.last_absence(row, reader, end, invoked);
        self.overwritten(row, absence.map_or(Seen::Nothing, Seen::Removed), absence, scanned);
    }

    /// Adds an edge from the reader to the writer of the version after `number`.
    fn overwritten(&mut self, row: RowId, seen: Seen, number: Option<u64>, scanned: bool) {
        let Some(next) = self.versions.next(row, number).filter(|next| next.writer != self.reader) else { return };
        let was_there = matches!(seen, Seen::Version(_));
        let why = if scanned && was_there == next.removal {
            Dependency::Phantom { row, seen, next: next.number }
        } else {
            Dependency::ReadWrite { row, seen, next: next.number }
        };
        self.edges.push(Edge { from: self.reader, to: next.writer, why });
    }
}
