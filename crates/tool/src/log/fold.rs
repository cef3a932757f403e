//! Turns readable records into rows.
//!
//! As in recovery, the put with the newest version wins, and a patch applies to exactly its
//! previous version. Unlike in recovery, a missing version is no error: the row keeps its last
//! complete value, and counts as stale. Rows of a checkpoint count as puts. If a checkpoint is
//! valid, only the log behind it counts; otherwise everything readable does. Changes of the catalog
//! are applied in the order of their epochs, if they fit.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use drtm_txn::durability::format::{CatalogChange, Change, Entry, Record, RecordKind, TableShape};
use serde::Serialize;

use super::{frames::Damage, survey::Survey};

/// A readable row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row<'c> {
    pub(super) table: u16,
    pub(super) key: &'c [u8],
    pub(super) value: Cow<'c, [u8]>,
    pub(super) version: u64,
}

/// The tables of a log, and the names of their indexes.
pub(super) type Tables = BTreeMap<u16, (TableShape, Vec<String>)>;

/// The readable part of a log.
#[derive(Debug, Default)]
pub(super) struct Folded<'c> {
    pub(super) tables: Tables,
    pub(super) rows: Vec<Row<'c>>,
    /// The last readable note.
    pub(super) note: Option<Vec<u8>>,
    /// An epoch above those of all records.
    pub(super) next_epoch: u64,
    pub(super) left: Left,
}

/// What is unreadable or doubtful.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Left {
    pub(super) damages: Vec<Damage>,
    /// Bytes outside of valid frames.
    pub(super) damaged_bytes: usize,
    /// Records read from damaged frames. They are used.
    pub(super) loose_records: u64,
    /// Records of epochs that are void.
    pub(super) void_records: u64,
    /// Records of epochs that no readable frame closes.
    pub(super) unclosed_records: u64,
    /// Unreadable rows of a damaged checkpoint, if its end tells their number.
    pub(super) missing_rows: u64,
    /// Patches whose previous version is missing, and that no later value supersedes.
    pub(super) patches: u64,
    /// Rows that lack a patch: they have their last complete value.
    pub(super) stale_rows: u64,
    /// Rows with patches only.
    pub(super) lost_rows: u64,
    /// Rows of a table whose creation is unreadable. A new log does not include them.
    pub(super) orphaned_rows: u64,
    /// Tables with a duplicate name: the record that dropped or renamed one of both is unreadable.
    /// The older one gets its identity appended to its name.
    pub(super) doubled_names: u64,
}

/// The contents of records, before they become rows and tables.
#[derive(Debug, Default)]
struct Told<'c> {
    entries: Vec<Entry<'c>>,
    /// Changes of the catalog, with their epochs.
    changes: Vec<(u64, CatalogChange)>,
}

/// Turns the records of all closed epochs into rows. With `unclosed`, includes the records that no
/// readable frame closes.
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
        // If there is a valid checkpoint, it or the log has these rows.
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
                // The checkpoint includes it.
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
    // A checkpoint's changes come first.
    changes.sort_by_key(|(epoch, _)| *epoch);
    let gone = folded.change_tables(changes);
    entries.retain(|entry| gone.get(&entry.table).is_none_or(|before| entry.epoch() >= *before));
    // Groups the changes of a row in the order of their versions. A checkpoint's put has the
    // version of the last change before it, and comes after that change.
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
            // A damaged change is among the damages.
            _ => self.changes.extend(CatalogChange::decode(record).map(|change| (record.epoch, change))),
        }
    }
}

impl<'c> Folded<'c> {
    /// Applies changes to the tables in order. Returns the tables of which no rows of epochs before
    /// this one are left: of a dropped table, none at all.
    fn change_tables(&mut self, changes: Vec<(u64, CatalogChange)>) -> BTreeMap<u16, u64> {
        let (tables, mut gone) = (&mut self.tables, BTreeMap::new());
        for (epoch, change) in changes {
            let Some(id) = change.table() else {
                if let CatalogChange::Noted(note) = change {
                    self.note = Some(note);
                }
                continue;
            };
            match (change, tables.get_mut(&id)) {
                (CatalogChange::TableDropped(_), _) => {
                    tables.remove(&id);
                    gone.insert(id, u64::MAX);
                }
                (CatalogChange::TableCleared(_), _) => {
                    let before = gone.entry(id).or_insert(epoch);
                    *before = epoch.max(*before);
                }
                (CatalogChange::Table(_, shape), None) if gone.get(&id) != Some(&u64::MAX) => {
                    tables.insert(id, (shape, Vec::new()));
                }
                (CatalogChange::TableRenamed(_, name), Some((shape, _))) => shape.name = name,
                (CatalogChange::Index(_, name), Some((_, indexes))) if !indexes.contains(&name) => indexes.push(name),
                (CatalogChange::IndexDropped(_, name), Some((_, indexes))) => indexes.retain(|one| *one != name),
                // A checkpoint includes it, or the creation is unreadable.
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
        gone
    }

    fn row(&mut self, changes: &[Entry<'c>]) {
        let Some(Entry { table, key, .. }) = changes.first() else { return };
        let mut now: Option<(Cow<'c, [u8]>, u64)> = None;
        // Useless patches since the last complete value or removal.
        let mut lost = 0;
        for Entry { version, change, .. } in changes {
            match change {
                Change::Put(value) => (now, lost) = (Some((Cow::Borrowed(*value), *version)), 0),
                Change::Remove => (now, lost) = (None, 0),
                Change::Patch { previous, offset, bytes } => {
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

/// Applies a patch to a value and its version. Returns whether the patch belongs to that version.
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
