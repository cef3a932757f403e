//! What each committed transaction's reads tell: whom it came after, whom it came before, and what it must not have
//! seen.

use std::collections::HashSet;

use super::{
    anomaly::{Anomaly, Dependency},
    graph::Edge,
    record::{History, Operation, Seen},
    versions::{Origin, RowId, Rows, TxnId, Versions},
};

/// Adds the edges of all reads that count, and the anomalies that show in a single read.
pub(super) fn find<K: Ord + Clone>(
    history: &History<K>,
    rows: &Rows<'_, K>,
    versions: &Versions,
    edges: &mut Vec<Edge>,
    anomalies: &mut Vec<Anomaly<K>>,
) {
    let mut reads = Reads { history, rows, versions, edges, anomalies };
    // What the transaction at hand has written so far: it sees that, and nothing can be learnt from it.
    let mut own = HashSet::new();
    let mut matched_rows = Vec::new();
    for (reader, transaction) in history.transactions.iter().enumerate() {
        if !versions.took_effect(reader) {
            continue;
        }
        own.clear();
        let (reader, end) = (reader as TxnId, transaction.end());
        for operation in &transaction.operations {
            match operation {
                Operation::Write { row, .. } => {
                    own.insert(rows.id(row.table, &row.key));
                }
                Operation::Read { row, seen } => {
                    let row = rows.id(row.table, &row.key);
                    match seen {
                        Seen::Nothing if own.contains(&row) => {}
                        Seen::Nothing => reads.nothing(reader, end, row, false),
                        Seen::Version(_) | Seen::Removed(_) => reads.version(reader, row, *seen, false),
                    }
                }
                Operation::Scan { table, start, end: stop, matched } => {
                    matched_rows.clear();
                    for (key, number) in matched {
                        let row = rows.id(*table, key);
                        matched_rows.push(row);
                        reads.version(reader, row, Seen::Version(*number), true);
                    }
                    matched_rows.sort_unstable();
                    for row in rows.range(*table, start, stop) {
                        if matched_rows.binary_search(&row).is_err() && !own.contains(&row) {
                            reads.nothing(reader, end, row, true);
                        }
                    }
                }
            }
        }
    }
}

struct Reads<'a, 'h, K> {
    history: &'a History<K>,
    rows: &'a Rows<'h, K>,
    versions: &'a Versions,
    edges: &'a mut Vec<Edge>,
    anomalies: &'a mut Vec<Anomaly<K>>,
}

impl<K: Ord + Clone> Reads<'_, '_, K> {
    /// A row, or its removal, was seen.
    fn version(&mut self, reader: TxnId, row: RowId, seen: Seen, scanned: bool) {
        let (Seen::Version(number) | Seen::Removed(number)) = seen else { return };
        match self.versions.origin(row, seen) {
            Origin::Written(version) if version.writer == reader => {}
            Origin::Written(version) => {
                if version.last != number {
                    self.anomalies.push(Anomaly::IntermediateRead {
                        row: self.rows.name(row),
                        seen,
                        last: version.last,
                        writer: version.writer as usize,
                        reader: reader as usize,
                    });
                }
                let why = Dependency::WriteRead { row, version: number };
                self.edges.push(Edge { from: version.writer, to: reader, why });
                // An intermediate version counts as the one that its writer left: it is reported as what it is.
                self.overwritten(reader, row, seen, Some(version.last), scanned);
            }
            Origin::Unclear => self.overwritten(reader, row, seen, Some(number), scanned),
            Origin::Aborted(writer) => self.anomalies.push(Anomaly::AbortedRead {
                row: self.rows.name(row),
                seen,
                writer: writer as usize,
                reader: reader as usize,
            }),
            Origin::Nobody => {
                let row = self.rows.name(row);
                self.anomalies.push(Anomaly::UnwrittenRead { row, seen, reader: reader as usize });
            }
        }
    }

    /// No row was seen, until `end` at the latest.
    fn nothing(&mut self, reader: TxnId, end: u64, row: RowId, scanned: bool) {
        let invoked = |writer| self.history.transactions[writer as usize].invoked;
        let absence = self.versions.last_absence(row, reader, end, invoked);
        self.overwritten(reader, row, absence.map_or(Seen::Nothing, Seen::Removed), absence, scanned);
    }

    /// The reader came before who wrote the version after `number`.
    fn overwritten(&mut self, reader: TxnId, row: RowId, seen: Seen, number: Option<u64>, scanned: bool) {
        let Some(next) = self.versions.next(row, number).filter(|next| next.writer != reader) else { return };
        let was_there = matches!(seen, Seen::Version(_));
        let why = if scanned && was_there == next.removal {
            Dependency::Phantom { row, seen, next: next.number }
        } else {
            Dependency::ReadWrite { row, seen, next: next.number }
        };
        self.edges.push(Edge { from: reader, to: next.writer, why });
    }
}
