//! Rows, made of whatever records could be read.
//!
//! As in recovery, a put wins by its version and a patch applies to exactly its previous version. Unlike there, a version
//! that is missing is no error: the row keeps the last value that is whole, and is counted as stale.

use std::{borrow::Cow, collections::BTreeMap};

use drtm_txn::durability::format::{Change, Created, Entry, Record, RecordKind, TableShape};
use serde::Serialize;

use super::survey::{Damage, Survey};

/// A row that could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row<'c> {
    pub(super) table: u16,
    pub(super) key: &'c [u8],
    pub(super) value: Cow<'c, [u8]>,
    pub(super) version: u64,
}

/// The tables of a log, and the names of their indexes.
pub(super) type Tables = BTreeMap<u16, (TableShape, Vec<String>)>;

/// What could be read of a log.
#[derive(Debug, Default)]
pub(super) struct Folded<'c> {
    pub(super) tables: Tables,
    pub(super) rows: Vec<Row<'c>>,
    /// Above the epoch of every record.
    pub(super) next_epoch: u64,
    pub(super) left: Left,
}

/// What could not be read, and what is doubtful.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Left {
    pub(super) damages: Vec<Damage>,
    /// Bytes that are in no frame.
    pub(super) damaged_bytes: usize,
    /// Records that were read out of damaged frames: they are taken.
    pub(super) loose_records: u64,
    /// Records of epochs that have not happened.
    pub(super) void_records: u64,
    /// Records of epochs that no readable frame closes.
    pub(super) unclosed_records: u64,
    /// Patches whose previous version is missing.
    pub(super) patches: u64,
    /// Rows that lack a patch: they have their last whole value.
    pub(super) stale_rows: u64,
    /// Rows of which there are only patches.
    pub(super) lost_rows: u64,
    /// Rows of a table whose creation could not be read. They are no rows of a new log.
    pub(super) orphaned_rows: u64,
}

/// Makes rows of all records that have happened. With `unclosed`, also of those that no readable frame closes.
pub(super) fn fold<'c>(survey: &Survey<'c>, unclosed: bool) -> Folded<'c> {
    let (mut folded, mut entries) = (Folded { next_epoch: 1, ..Folded::default() }, Vec::new());
    folded.left.damages.clone_from(&survey.damages);
    let closed = survey.closed();
    for (number, segment) in survey.segments.iter().enumerate() {
        folded.left.damaged_bytes += segment.holes.iter().map(|hole| hole.end - hole.offset).sum::<usize>();
        let loose = segment.loose_records().into_iter().map(|(_, record)| (record, true));
        for (record, is_loose) in segment.records().map(|(_, record)| (record, false)).chain(loose) {
            folded.next_epoch = folded.next_epoch.max(record.epoch.saturating_add(1));
            if survey.is_void(number, record.epoch) {
                folded.left.void_records += 1;
            } else if record.epoch > closed && !unclosed {
                folded.left.unclosed_records += 1;
            } else {
                folded.left.loose_records += u64::from(is_loose);
                folded.take(&record, &mut entries);
            }
        }
    }
    // Changes of one row together, in the order of their versions.
    entries.sort_by_key(|entry| (entry.table, entry.key, entry.version));
    for row in entries.chunk_by(|one, other| (one.table, one.key) == (other.table, other.key)) {
        folded.row(row);
    }
    let Folded { tables, rows, left, .. } = &mut folded;
    left.orphaned_rows = rows.iter().filter(|row| !tables.contains_key(&row.table)).count() as u64;
    folded
}

impl<'c> Folded<'c> {
    fn take(&mut self, record: &Record<'c>, entries: &mut Vec<Entry<'c>>) {
        if record.kind == RecordKind::Rows {
            entries.extend(record.entries().map_while(Result::ok));
            return;
        }
        match Created::decode(record) {
            Ok(Created::Table(table, shape)) => {
                self.tables.entry(table).or_insert_with(|| (shape, Vec::new()));
            }
            Ok(Created::Index(table, name)) => {
                if let Some((_, indexes)) = self.tables.get_mut(&table)
                    && !indexes.contains(&name)
                {
                    indexes.push(name);
                }
            }
            // It is among the damages.
            Err(_) => {}
        }
    }

    fn row(&mut self, changes: &[Entry<'c>]) {
        let Some(Entry { table, key, .. }) = changes.first() else { return };
        let mut now: Option<(Cow<'c, [u8]>, u64)> = None;
        // Whether a patch is missing since the last whole value, or removal.
        let mut lacks_patches = false;
        for Entry { version, previous, change, .. } in changes {
            match change {
                Change::Put(value) => (now, lacks_patches) = (Some((Cow::Borrowed(*value), *version)), false),
                Change::Remove => (now, lacks_patches) = (None, false),
                Change::Patch { offset, bytes } => {
                    if !now.as_mut().is_some_and(|row| patch(row, (*previous, *version), (*offset, bytes))) {
                        self.left.patches += 1;
                        lacks_patches = true;
                    }
                }
            }
        }
        match now {
            Some((value, version)) => {
                self.left.stale_rows += u64::from(lacks_patches);
                self.rows.push(Row { table: *table, key, value, version });
            }
            None => self.left.lost_rows += u64::from(lacks_patches),
        }
    }
}

/// Applies a patch to a value and its version. Returns whether it is a patch of that version.
fn patch(
    (value, now): &mut (Cow<'_, [u8]>, u64),
    (previous, version): (u64, u64),
    (offset, bytes): (u32, &[u8]),
) -> bool {
    let from = offset as usize;
    let end = from.checked_add(bytes.len()).filter(|end| *now == previous && *end <= value.len());
    let Some(place) = end.and_then(|end| value.to_mut().get_mut(from..end)) else { return false };
    place.copy_from_slice(bytes);
    *now = version;
    true
}
