//! `drtm-bench log inspect`: what is in a log.

use std::{collections::BTreeMap, path::PathBuf};

use clap::Args as ClapArgs;
use drtm_txn::durability::format::{Change, Created, RecordKind, TableShape};
use serde::Serialize;

use super::survey::{Contents, Damage, Survey};
use crate::{
    Error,
    report::{Report, prose, table},
};

/// List what a log holds: segments, frames, epochs, tables, records
///
/// Reads everything that is whole, also behind damage, which it lists. Counts are of what is there physically: also of
/// transactions whose epoch no frame closes, or that a later segment's header voids.
///
/// JSON: {directory, closed, segments: [{file, bytes, log, sequence, after, begins, frames, first_closes, last_closes,
/// records, rows, end, damaged}], tables: [{table, name, ordered, key, codec, key_size, value_size, indexes, puts,
/// patches, removals, bytes}], unfinished: [file], damages: [{file, offset, why}],
/// frames (with --frames): [{file, offset, bytes, closes, previous, records}],
/// records (with --records): [{file, offset, epoch, kind, rows, void}]}
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
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

/// What scripts read.
#[derive(Debug, Serialize)]
struct Inspection {
    directory: String,
    /// The last epoch that is closed.
    closed: u64,
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
struct SegmentRow {
    file: String,
    bytes: usize,
    /// In hexadecimal digits; this and the next are null if the header is damaged.
    log: Option<String>,
    sequence: u64,
    after: Option<u64>,
    begins: Option<u64>,
    frames: usize,
    first_closes: Option<u64>,
    last_closes: Option<u64>,
    records: u64,
    rows: u64,
    /// Where the last frame ends.
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
    /// This and the next are null if the record of its creation is not there.
    name: Option<String>,
    ordered: Option<bool>,
    key: Option<String>,
    codec: Option<String>,
    /// Null if keys vary in size.
    key_size: Option<u32>,
    value_size: Option<u32>,
    indexes: Vec<String>,
    puts: u64,
    patches: u64,
    removals: u64,
    /// Bytes of values, or of patches.
    bytes: u64,
}

impl TableRow {
    fn is_created(&mut self, shape: TableShape) {
        let TableShape { name, is_ordered, key_size, value_size, key, codec } = shape;
        let (name, ordered, key, codec) = (Some(name), Some(is_ordered), Some(key), Some(codec));
        let Self { table, puts, patches, removals, bytes, .. } = *self;
        let indexes = std::mem::take(&mut self.indexes);
        *self =
            Self { table, name, ordered, key, codec, key_size, value_size, indexes, puts, patches, removals, bytes };
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
    }
}

impl Args {
    pub(super) fn carry_out(&self, report: &Report) -> Result<(), Error> {
        let contents = Contents::read(&self.directory)?;
        let inspection = self.inspect(&contents.survey(), contents.unfinished.clone());
        report.text(&inspection.text())?;
        report.result(&inspection)
    }

    fn inspect(&self, survey: &Survey<'_>, unfinished: Vec<String>) -> Inspection {
        let (mut segments, mut tables, mut frames, mut records) =
            (Vec::new(), BTreeMap::<u16, TableRow>::new(), Vec::new(), Vec::new());
        for (number, segment) in survey.segments.iter().enumerate() {
            let (mut count, mut rows) = (0, 0);
            for (offset, record) in segment.records() {
                let mut of_record = 0;
                if record.kind == RecordKind::Rows {
                    for entry in record.entries().map_while(Result::ok) {
                        of_record += 1;
                        tables.entry(entry.table).or_default().count(entry.change);
                    }
                } else if let Ok(created) = Created::decode(&record) {
                    match created {
                        Created::Table(table, shape) => tables.entry(table).or_default().is_created(shape),
                        Created::Index(table, name) => tables.entry(table).or_default().indexes.push(name),
                    }
                }
                count += 1;
                rows += of_record as u64;
                if self.records {
                    let (epoch, kind, void) =
                        (record.epoch, name_of(record.kind), survey.is_void(number, record.epoch));
                    records.push(RecordRow { file: segment.name(), offset, epoch, kind, rows: of_record, void });
                }
            }
            if self.frames {
                frames.extend(segment.frames.iter().map(|at| FrameRow {
                    file: segment.name(),
                    offset: at.offset,
                    bytes: at.frame.length(),
                    closes: at.frame.closes,
                    previous: at.frame.previous,
                    records: drtm_txn::durability::format::records(at.frame.records).filter(Result::is_ok).count(),
                }));
            }
            let header = segment.header;
            segments.push(SegmentRow {
                file: segment.name(),
                bytes: segment.bytes.len(),
                log: header.map(|header| format!("{:032x}", header.log)),
                sequence: segment.sequence,
                after: header.map(|header| header.after),
                begins: header.map(|header| header.begins),
                frames: segment.frames.len(),
                first_closes: segment.frames.first().map(|at| at.frame.closes),
                last_closes: segment.frames.last().map(|at| at.frame.closes),
                records: count,
                rows,
                end: segment.end,
                damaged: segment.holes.iter().map(|hole| hole.end - hole.offset).sum(),
            });
        }
        let tables = tables.into_iter().map(|(table, row)| TableRow { table, ..row }).collect();
        Inspection {
            directory: self.directory.display().to_string(),
            closed: survey.closed(),
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
            let name = row.name.clone().unwrap_or_else(|| "?".to_owned());
            let numbers = [row.puts, row.patches, row.removals, row.bytes].map(|number| number.to_string());
            [name, row.table.to_string(), kind.to_owned(), size(row.key_size), size(row.value_size)]
                .into_iter()
                .chain([row.indexes.join(", ")])
                .chain(numbers)
                .collect()
        });
        let headers = ["table", "id", "kind", "key", "value", "indexes", "puts", "patches", "removals", "bytes"];
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
