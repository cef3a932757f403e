//! Rows, made of whatever records could be read.
//!
//! As in recovery, a put wins by its version and a patch applies to exactly its previous version.
//! Unlike there, a version that is missing is no error: the row keeps the last value that is whole,
//! and is counted as stale. A checkpoint's rows are puts among others. If one is whole, the log
//! counts only behind it; if not, all that can be read does. Changes of the catalog are applied in
//! the order of their epochs, as far as they fit.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use drtm_txn::durability::format::{CatalogChange, Change, Entry, Record, RecordKind, TableShape};
use serde::Serialize;

use super::{frames::Damage, survey::Survey};

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
    /// Rows of a damaged checkpoint that cannot be read, where its end tells how many there were.
    pub(super) missing_rows: u64,
    /// Patches whose previous version is missing, and that no later value makes up for.
    pub(super) patches: u64,
    /// Rows that lack a patch: they have their last whole value.
    pub(super) stale_rows: u64,
    /// Rows of which there are only patches.
    pub(super) lost_rows: u64,
    /// Rows of a table whose creation could not be read. They are no rows of a new log.
    pub(super) orphaned_rows: u64,
    /// Tables that have another's name, since one of both was dropped or renamed by a record that
    /// could not be read. The older one has its identity behind its name.
    pub(super) doubled_names: u64,
}

/// What records say, before it is made rows and tables.
#[derive(Debug, Default)]
struct Told<'c> {
    entries: Vec<Entry<'c>>,
    /// Changes of the catalog, and their epochs.
    changes: Vec<(u64, CatalogChange)>,
}

/// Makes rows of all records that have happened. With `unclosed`, also of those that no readable
/// frame closes.
pub(super) fn fold<'c>(survey: &Survey<'c>, unclosed: bool) -> Folded<'c> {
    let (mut folded, mut told) = (Folded { next_epoch: 1, ..Folded::default() }, Told::default());
    folded.left.damages.clone_from(&survey.damages);
    let closed = survey.closed();
    for checkpoint in survey.basis() {
        let file = &checkpoint.file;
        folded.left.damaged_bytes += file.damaged_bytes();
        let loose: Vec<_> = file.loose_records().into_iter().map(|(_, record)| record).collect();
        folded.left.loose_records += loose.len() as u64;
        let before = told.entries.len();
        file.records().map(|(_, record)| record).chain(loose).for_each(|record| told.take(&record));
        let (found, until) = ((told.entries.len() - before) as u64, checkpoint.end.map_or(0, |end| end.until));
        let since = file.header.map_or(0, |header| header.since);
        folded.next_epoch = folded.next_epoch.max(until.max(since).saturating_add(1));
        // Where another is whole, it has them, or the log does.
        if survey.base.is_none() {
            folded.left.missing_rows += checkpoint.end.map_or(0, |end| end.rows.saturating_sub(found));
        }
    }
    let since = survey.base.map_or(0, |(header, _)| header.since);
    for (number, segment) in survey.needed() {
        folded.left.damaged_bytes += segment.damaged_bytes();
        let loose = segment.loose_records().into_iter().map(|(_, record)| (record, true));
        for (record, is_loose) in segment.records().map(|(_, record)| (record, false)).chain(loose) {
            folded.next_epoch = folded.next_epoch.max(record.epoch.saturating_add(1));
            if record.epoch <= since {
                // The checkpoint has it.
            } else if survey.is_void(number, record.epoch) {
                folded.left.void_records += 1;
            } else if record.epoch > closed && !unclosed {
                folded.left.unclosed_records += 1;
            } else {
                folded.left.loose_records += u64::from(is_loose);
                told.take(&record);
            }
        }
    }
    let Told { mut entries, mut changes } = told;
    // A checkpoint's come first.
    changes.sort_by_key(|(epoch, _)| *epoch);
    let dropped = folded.change_tables(changes);
    entries.retain(|entry| !dropped.contains(&entry.table));
    // Changes of one row together, in the order of their versions. A checkpoint's put has the
    // version of the change that led to it, and comes behind it.
    entries.sort_by_key(|entry| (entry.table, entry.key, entry.version, matches!(entry.change, Change::Put(_))));
    for row in entries.chunk_by(|one, other| (one.table, one.key) == (other.table, other.key)) {
        folded.row(row);
    }
    let Folded { tables, rows, left, .. } = &mut folded;
    left.orphaned_rows = rows.iter().filter(|row| !tables.contains_key(&row.table)).count() as u64;
    folded
}

impl<'c> Told<'c> {
    fn take(&mut self, record: &Record<'c>) {
        match record.kind {
            RecordKind::Rows => self.entries.extend(record.entries().map_while(Result::ok)),
            RecordKind::End => {}
            // One that is damaged is among the damages.
            _ => self.changes.extend(CatalogChange::decode(record).map(|change| (record.epoch, change))),
        }
    }
}

impl<'c> Folded<'c> {
    /// Applies changes to the tables, in their order. Returns the tables that were dropped.
    fn change_tables(&mut self, changes: Vec<(u64, CatalogChange)>) -> BTreeSet<u16> {
        let (tables, mut dropped) = (&mut self.tables, BTreeSet::new());
        for (_, change) in changes {
            let id = change.table();
            match (change, tables.get_mut(&id)) {
                (CatalogChange::TableDropped(_), _) => {
                    tables.remove(&id);
                    dropped.insert(id);
                }
                (CatalogChange::Table(_, shape), None) if !dropped.contains(&id) => {
                    tables.insert(id, (shape, Vec::new()));
                }
                (CatalogChange::TableRenamed(_, name), Some((shape, _))) => shape.name = name,
                (CatalogChange::Index(_, name), Some((_, indexes))) if !indexes.contains(&name) => indexes.push(name),
                (CatalogChange::IndexDropped(_, name), Some((_, indexes))) => indexes.retain(|one| *one != name),
                // A checkpoint has it, or the creation could not be read.
                _ => {}
            }
        }
        let mut names = BTreeSet::new();
        for (id, (shape, _)) in tables.iter_mut().rev() {
            if !names.insert(shape.name.clone()) {
                shape.name = format!("{} {id}", shape.name);
                self.left.doubled_names += 1;
            }
        }
        dropped
    }

    fn row(&mut self, changes: &[Entry<'c>]) {
        let Some(Entry { table, key, .. }) = changes.first() else { return };
        let mut now: Option<(Cow<'c, [u8]>, u64)> = None;
        // Patches that are of no use since the last whole value, or removal.
        let mut lost = 0;
        for Entry { version, previous, change, .. } in changes {
            match change {
                Change::Put(value) => (now, lost) = (Some((Cow::Borrowed(*value), *version)), 0),
                Change::Remove => (now, lost) = (None, 0),
                Change::Patch { offset, bytes } => {
                    if !now.as_mut().is_some_and(|row| patch(row, (*previous, *version), (*offset, bytes))) {
                        lost += 1;
                    }
                }
            }
        }
        self.left.patches += lost;
        match now {
            Some((value, version)) => {
                self.left.stale_rows += u64::from(lost > 0);
                self.rows.push(Row { table: *table, key, value, version });
            }
            None => self.left.lost_rows += u64::from(lost > 0),
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
