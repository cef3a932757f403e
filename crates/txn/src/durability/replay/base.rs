//! The contents of a checkpoint: tables and rows.

use rustc_hash::FxHashSet;

use crate::{
    Error,
    durability::{
        LogError,
        checkpoint::CheckpointImage,
        format::{CatalogChange, Change, Entry, Frame, Record, RecordKind, records},
        tables::Tables,
    },
};

/// Rows that the log has entries for: the table, and the key's encoding.
pub(super) type Changed<'i> = FxHashSet<(u16, &'i [u8])>;

/// A row of a checkpoint, kept until the log's entries are replayed.
pub(super) struct BaseRow {
    table: u16,
    version: u64,
    key: Box<[u8]>,
    value: Box<[u8]>,
}

impl BaseRow {
    pub(super) fn new(entry: &Entry<'_>, value: &[u8]) -> Self {
        Self { table: entry.table, version: entry.version, key: entry.key.into(), value: value.into() }
    }

    pub(super) fn entry(&self) -> Entry<'_> {
        let Self { table, version, key, value } = self;
        Entry { table: *table, key, version: *version, previous: 0, change: Change::Put(value) }
    }
}

fn records_of<'f>(
    checkpoint: &CheckpointImage,
    (offset, frame): (u64, Frame<'f>),
) -> impl Iterator<Item = Result<Record<'f>, LogError>> {
    records(frame.records).map(move |record| match record {
        Ok((_, record)) => Ok(record),
        Err(damage) => Err(checkpoint.damaged(offset, damage.why)),
    })
}

/// Reads the tables of a checkpoint from its first frame.
pub(super) fn tables_of(checkpoint: &CheckpointImage, tables: &mut Tables) -> Result<(), LogError> {
    let mut bytes = Vec::new();
    let Some((offset, frame)) = checkpoint.next(&mut bytes)? else {
        return Err(checkpoint.damaged(0, "the catalog is missing"));
    };
    for record in records_of(checkpoint, (offset, frame)) {
        let change = CatalogChange::decode(&record?).map_err(|damage| checkpoint.damaged(offset, damage.why))?;
        if !matches!(change, CatalogChange::Table(..) | CatalogChange::Index(..)) || !tables.apply(change, 0, false) {
            return Err(checkpoint.damaged(offset, "the catalog contradicts itself"));
        }
    }
    Ok(())
}

/// Shows the rows of a frame.
pub(super) fn rows_of(
    checkpoint: &CheckpointImage,
    (offset, frame): (u64, Frame<'_>),
    mut show: impl FnMut(&Entry<'_>, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    for record in records_of(checkpoint, (offset, frame)) {
        let record = record?;
        if record.kind != RecordKind::Rows {
            return Err(checkpoint.damaged(offset, "there is a record of another kind among rows").into());
        }
        for entry in record.entries() {
            let entry = entry.map_err(|damage| checkpoint.damaged(offset, damage.why))?;
            let Change::Put(value) = entry.change else {
                return Err(checkpoint.damaged(offset, "there is a change among rows").into());
            };
            show(&entry, value)?;
        }
    }
    Ok(())
}
