//! `drtm log inspect`: lists the contents of a log.

use std::{collections::BTreeMap, path::PathBuf};

use clap::Args as ClapArgs;
use drtm_report::{Report, prose, table};
use drtm_txn::durability::format::{CatalogChange, Change, Record, RecordKind, TableShape};
use serde::Serialize;

use super::{
    checkpoint::Checkpoint,
    frames::{Damage, FrameFile},
    survey::{Contents, Survey},
};
use crate::Error;

/// List the contents of a database's directory: checkpoints, segments, frames, tables, records
///
/// Reads everything valid, also behind damage, and lists the damage. Counts are physical: they
/// include transactions whose epoch no frame closes, or that a later segment's header voids.
/// Segments before `first` of the newest valid checkpoint are obsolete, and so are older
/// checkpoints: opening the database removes them.
///
/// JSON: {directory, closed, checkpoints: [{file, bytes, log, number, since, until, first, frames,
/// rows, whole, damaged}], segments: [{file, bytes, log, sequence, after, begins, frames,
/// first_closes, last_closes, records, rows, end, damaged}], tables: [{table, name, dropped,
/// ordered, key, codec, types, key_size, value_size, indexes, puts, checkpoint_rows, patches,
/// removals, bytes}], unfinished: [file], damages: [{file, offset, why}], frames (with --frames):
/// [{file, offset, bytes, closes, previous, records}], records (with --records): [{file, offset,
/// epoch, kind, rows, void}]}
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The database's directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// List each frame
    #[arg(long)]
    frames: bool,

    /// List each record: a transaction, or a change of the catalog
    #[arg(long)]
    records: bool,
}

/// The result as JSON.
#[derive(Debug, Serialize)]
struct Inspection {
    directory: String,
    /// The last closed epoch.
    closed: u64,
    checkpoints: Vec<CheckpointRow>,
    segments: Vec<SegmentRow>,
    tables: Vec<TableRow>,
    unfinished: Vec<String>,
    damages: Vec<Damage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frames: Option<Vec<FrameRow>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<Vec<RecordRow>>,
}

#[derive(Debug, Serialize)]
struct CheckpointRow {
    file: String,
    bytes: usize,
    /// Hexadecimal; this, `since` and `first` are null if the header is damaged.
    log: Option<String>,
    number: u64,
    since: Option<u64>,
    /// Null if the end is damaged.
    until: Option<u64>,
    first: Option<u64>,
    frames: usize,
    /// The number of readable rows.
    rows: u64,
    whole: bool,
    /// Bytes outside of frames.
    damaged: usize,
}

impl CheckpointRow {
    fn of(checkpoint: &Checkpoint<'_>) -> Self {
        let Checkpoint { file, end, rows, .. } = checkpoint;
        let header = file.header;
        Self {
            file: checkpoint.name(),
            bytes: file.bytes.len(),
            log: header.map(|header| format!("{:032x}", header.log)),
            number: file.number,
            since: header.map(|header| header.since),
            until: end.map(|end| end.until),
            first: header.map(|header| header.first),
            frames: file.frames.len(),
            rows: *rows,
            whole: checkpoint.whole().is_some(),
            damaged: file.damaged_bytes(),
        }
    }
}

#[derive(Debug, Serialize)]
struct SegmentRow {
    file: String,
    bytes: usize,
    /// Hexadecimal; this and the next are null if the header is damaged.
    log: Option<String>,
    sequence: u64,
    after: Option<u64>,
    begins: Option<u64>,
    frames: usize,
    first_closes: Option<u64>,
    last_closes: Option<u64>,
    records: u64,
    rows: u64,
    /// The end of the last frame.
    end: usize,
    /// Bytes that are neither frames nor reserved space.
    damaged: usize,
}

#[derive(Debug, Serialize)]
struct FrameRow {
    file: String,
    offset: usize,
    bytes: usize,
    closes: u64,
    previous: u64,
    records: usize,
}

impl FrameRow {
    fn of<'r, H>(name: &'r str, file: &'r FrameFile<'_, H>) -> impl Iterator<Item = Self> {
        file.frames.iter().map(|at| Self {
            file: name.to_owned(),
            offset: at.offset,
            bytes: at.frame.length(),
            closes: at.frame.closes,
            previous: at.frame.previous,
            records: at.records().filter(Result::is_ok).count(),
        })
    }
}

#[derive(Debug, Serialize)]
struct RecordRow {
    file: String,
    offset: usize,
    epoch: u64,
    kind: &'static str,
    rows: usize,
    void: bool,
}

#[derive(Debug, Default, Serialize)]
struct TableRow {
    table: u16,
    /// This and the next are null if the record of its creation is missing.
    name: Option<String>,
    /// Whether a record dropped it.
    dropped: bool,
    /// How often all of its rows were removed at once.
    cleared: u64,
    ordered: Option<bool>,
    key: Option<String>,
    codec: Option<String>,
    types: Option<String>,
    /// Null if keys vary in size.
    key_size: Option<u32>,
    value_size: Option<u32>,
    indexes: Vec<String>,
    /// Readable rows of the checkpoint that recovery starts from. The other counts are of the log.
    checkpoint_rows: u64,
    puts: u64,
    patches: u64,
    removals: u64,
    /// Bytes of values, or of patches.
    bytes: u64,
}

impl TableRow {
    fn is_created(&mut self, shape: TableShape) {
        let TableShape { name, is_ordered, key_size, value_size, key, codec, types } = shape;
        self.types = Some(types);
        (self.name, self.ordered, self.key, self.codec) = (Some(name), Some(is_ordered), Some(key), Some(codec));
        (self.key_size, self.value_size) = (key_size, value_size);
    }

    fn is_indexed(&mut self, name: String) {
        // A checkpoint and the log may both have it.
        if !self.indexes.contains(&name) {
            self.indexes.push(name);
        }
    }

    fn is_changed(&mut self, change: CatalogChange) {
        match change {
            CatalogChange::Table(_, shape) => self.is_created(shape),
            CatalogChange::Index(_, name) => self.is_indexed(name),
            CatalogChange::TableDropped(_) => self.dropped = true,
            CatalogChange::TableCleared(_) => self.cleared += 1,
            CatalogChange::TableRenamed(_, name) => self.name = Some(name),
            CatalogChange::IndexDropped(_, name) => self.indexes.retain(|index| *index != name),
            // It is of no table.
            CatalogChange::Noted(_) => {}
        }
    }

    fn count(&mut self, change: Change<'_>) {
        match change {
            Change::Put(value) => {
                self.puts += 1;
                self.bytes += value.len() as u64;
            }
            Change::Patch { bytes, .. } => {
                self.patches += 1;
                self.bytes += bytes.len() as u64;
            }
            Change::Remove => self.removals += 1,
        }
    }
}

fn name_of(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Rows => "rows",
        RecordKind::Table => "table",
        RecordKind::Index => "index",
        RecordKind::End => "end",
        RecordKind::TableDropped => "table dropped",
        RecordKind::TableRenamed => "table renamed",
        RecordKind::IndexDropped => "index dropped",
        RecordKind::TableCleared => "table cleared",
        RecordKind::Note => "note",
    }
}

/// Returns a record with its number of rows.
fn with_rows((offset, record): (usize, Record<'_>)) -> (usize, Record<'_>, usize) {
    let rows = if record.kind == RecordKind::Rows { record.entries().map_while(Result::ok).count() } else { 0 };
    (offset, record, rows)
}

/// Adds a record to the tables' counts.
fn take(record: &Record<'_>, tables: &mut BTreeMap<u16, TableRow>, mut count: impl FnMut(&mut TableRow, Change<'_>)) {
    match record.kind {
        RecordKind::Rows => {
            for entry in record.entries().map_while(Result::ok) {
                count(tables.entry(entry.table).or_default(), entry.change);
            }
        }
        RecordKind::End => {}
        _ => {
            // A damaged change is among the damages.
            if let Ok(change) = CatalogChange::decode(record)
                && let Some(table) = change.table()
            {
                tables.entry(table).or_default().is_changed(change);
            }
        }
    }
}

impl Args {
    pub(super) fn execute(&self, report: &Report) -> Result<(), Error> {
        let contents = Contents::read(&self.directory)?;
        let inspection = self.inspect(&contents.survey(), contents.unfinished.clone());
        report.text(&inspection.text())?;
        Ok(report.result(&inspection)?)
    }

    fn inspect(&self, survey: &Survey<'_>, unfinished: Vec<String>) -> Inspection {
        let (mut segments, mut tables, mut frames, mut records) =
            (Vec::new(), BTreeMap::<u16, TableRow>::new(), Vec::new(), Vec::new());
        for checkpoint in &survey.checkpoints {
            let (name, file) = (checkpoint.name(), &checkpoint.file);
            if self.frames {
                frames.extend(FrameRow::of(&name, file));
            }
            if self.records {
                for (offset, Record { epoch, kind, .. }, rows) in file.records().map(with_rows) {
                    let (file, kind) = (name.clone(), name_of(kind));
                    records.push(RecordRow { file, offset, epoch, kind, rows, void: false });
                }
            }
        }
        for checkpoint in survey.basis() {
            for (_, record) in checkpoint.file.records() {
                take(&record, &mut tables, |table, _| table.checkpoint_rows += 1);
            }
        }
        for (number, segment) in survey.segments.iter().enumerate() {
            let (mut count, mut all) = (0, 0);
            for (offset, record, rows) in segment.records().map(with_rows) {
                take(&record, &mut tables, TableRow::count);
                count += 1;
                all += rows as u64;
                if self.records {
                    let (epoch, kind, void) =
                        (record.epoch, name_of(record.kind), survey.is_void(number, record.epoch));
                    records.push(RecordRow { file: segment.name(), offset, epoch, kind, rows, void });
                }
            }
            if self.frames {
                frames.extend(FrameRow::of(&segment.name(), segment));
            }
            let header = segment.header;
            segments.push(SegmentRow {
                file: segment.name(),
                bytes: segment.bytes.len(),
                log: header.map(|header| format!("{:032x}", header.log)),
                sequence: segment.number,
                after: header.map(|header| header.after),
                begins: header.map(|header| header.begins),
                frames: segment.frames.len(),
                first_closes: segment.frames.first().map(|at| at.frame.closes),
                last_closes: segment.frames.last().map(|at| at.frame.closes),
                records: count,
                rows: all,
                end: segment.end,
                damaged: segment.damaged_bytes(),
            });
        }
        let tables = tables.into_iter().map(|(table, row)| TableRow { table, ..row }).collect();
        Inspection {
            directory: self.directory.display().to_string(),
            closed: survey.closed(),
            checkpoints: survey.checkpoints.iter().map(CheckpointRow::of).collect(),
            segments,
            tables,
            unfinished,
            damages: survey.damages.clone(),
            frames: self.frames.then_some(frames),
            records: self.records.then_some(records),
        }
    }
}

impl Inspection {
    fn text(&self) -> String {
        let shown = |number: Option<u64>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
        let mut text = format!("{}: everything is there up to epoch {}\n\n", self.directory, self.closed);
        if !self.checkpoints.is_empty() {
            let headers = ["checkpoint", "bytes", "rows", "since", "until", "first segment", "frames", "damaged"];
            let rows = self.checkpoints.iter().map(|row| {
                let (bytes, frames, damaged) = (row.bytes as u64, row.frames as u64, row.damaged as u64);
                let numbers =
                    [Some(bytes), Some(row.rows), row.since, row.until, row.first, Some(frames), Some(damaged)];
                [row.file.clone()].into_iter().chain(numbers.map(shown)).collect()
            });
            text += &table(&headers, 1, rows);
            text += "\n\n";
        }
        let headers = ["segment", "bytes", "after", "begins", "frames", "closes", "records", "rows", "damaged"];
        let rows = self.segments.iter().map(|row| {
            let closes = match (row.first_closes, row.last_closes) {
                (Some(first), Some(last)) => format!("{first} to {last}"),
                _ => "none".to_owned(),
            };
            let numbers = [row.records, row.rows, row.damaged as u64].map(|number| number.to_string());
            [row.file.clone(), row.end.to_string(), shown(row.after), shown(row.begins), row.frames.to_string(), closes]
                .into_iter()
                .chain(numbers)
                .collect()
        });
        text += &table(&headers, 1, rows);
        text += "\n\n";
        let size = |size: Option<u32>| size.map_or_else(|| "any".to_owned(), |size| size.to_string());
        let rows = self.tables.iter().map(|row| {
            let kind = row.ordered.map_or("?", |ordered| if ordered { "ordered" } else { "hash" });
            let name = row.name.as_deref().unwrap_or("?");
            let name = if row.dropped { format!("{name} (dropped)") } else { name.to_owned() };
            let numbers =
                [row.checkpoint_rows, row.puts, row.patches, row.removals, row.bytes].map(|number| number.to_string());
            [name, row.table.to_string(), kind.to_owned(), size(row.key_size), size(row.value_size)]
                .into_iter()
                .chain([row.indexes.join(", ")])
                .chain(numbers)
                .collect()
        });
        let headers = [
            "table",
            "id",
            "kind",
            "key",
            "value",
            "indexes",
            "rows in checkpoint",
            "puts",
            "patches",
            "removals",
            "bytes",
        ];
        text += &table(&headers, 1, rows);
        text.push('\n');
        if let Some(frames) = &self.frames {
            let rows = frames.iter().map(|row| {
                let FrameRow { file, offset, bytes, closes, previous, records } = row;
                let numbers = [*offset as u64, *bytes as u64, *closes, *previous, *records as u64];
                [file.clone()].into_iter().chain(numbers.map(|number| number.to_string())).collect()
            });
            text +=
                &format!("\n{}\n", table(&["frame in", "offset", "bytes", "closes", "previous", "records"], 1, rows));
        }
        if let Some(records) = &self.records {
            let rows = records.iter().map(|row| {
                let RecordRow { file, offset, epoch, kind, rows, void } = row;
                let void = if *void { "void" } else { "" };
                [file.clone(), (*kind).to_owned(), void.to_owned()]
                    .into_iter()
                    .chain([*offset as u64, *epoch, *rows as u64].map(|number| number.to_string()))
                    .collect()
            });
            text += &format!("\n{}\n", table(&["record in", "of", "", "offset", "epoch", "rows"], 3, rows));
        }
        for file in &self.unfinished {
            text += &format!("\nunfinished: {file}, which opening the database removes");
        }
        for Damage { file, offset, why } in &self.damages {
            text += &format!("\nDAMAGE in {file} at offset {offset}: {why}");
        }
        let note = "Bytes of a segment are those of its header and frames: what is behind is reserved space.";
        text + "\n" + &prose(note) + "\n"
    }
}

#[cfg(test)]
mod tests {
    use drtm_txn::durability::format::records;

    use super::*;

    #[test]
    fn tables_are_shown_as_changes_leave_them() {
        let shape = |name: &str| {
            let (name, key, codec) = (name.to_owned(), "u64".to_owned(), "raw".to_owned());
            let types = "u64 to bytes".to_owned();
            TableShape { name, is_ordered: true, key_size: Some(8), value_size: None, key, codec, types }
        };
        let changes = [
            CatalogChange::Table(0, shape("one")),
            CatalogChange::Index(0, "by one".to_owned()),
            CatalogChange::Index(0, "by two".to_owned()),
            CatalogChange::Table(1, shape("two")),
            CatalogChange::TableDropped(1),
            CatalogChange::IndexDropped(0, "by one".to_owned()),
            CatalogChange::TableRenamed(0, "two".to_owned()),
        ];
        let (mut bytes, mut tables) = (Vec::new(), BTreeMap::new());
        for (change, epoch) in changes.into_iter().zip(1..) {
            change.encode(&mut bytes, epoch).expect("names are short");
        }
        let mut kinds = Vec::new();
        for (_, record) in records(&bytes).map(|record| record.expect("it was written")) {
            kinds.push(name_of(record.kind));
            take(&record, &mut tables, TableRow::count);
        }
        assert_eq!(kinds, ["table", "index", "index", "table", "table dropped", "index dropped", "table renamed"]);
        let shown: Vec<_> =
            tables.iter().map(|(id, row)| (*id, row.name.as_deref(), row.dropped, row.indexes.join(","))).collect();
        assert_eq!(shown, [(0, Some("two"), false, "by two".to_owned()), (1, Some("two"), true, String::new())]);
    }
}
