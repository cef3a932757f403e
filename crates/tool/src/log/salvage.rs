//! `drtm log salvage`: writes the readable part of a damaged log.

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use clap::{ArgGroup, Args as ClapArgs, value_parser};
use drtm_report::{Report, prose, refuse_occupied};
use drtm_txn::durability::format::checkpoint_name;
use serde::Serialize;

use super::{
    fold::{Folded, Left, Row, fold},
    frames::Damage,
    rewrite,
    survey::Contents,
    trial,
};
use crate::Error;

/// Write the readable part of a log to a new directory, or as rows, and report what is missing
///
/// Continues behind damage: it uses every valid frame, and every valid record in damaged frames. So
/// the result need not be a state that the database ever had. A row whose last change is unreadable
/// has an older value, or reappears although it was removed. A transaction in a damaged frame is
/// complete or missing. An undamaged log gives the same rows as opening the database.
///
/// Starts from the newest valid checkpoint, and applies the log behind it. If no checkpoint is
/// valid, it uses the readable rows of damaged ones, and the whole remaining log: rows that were
/// only in the unreadable parts are lost.
///
/// Each line of the rows: {"table": name|null, "id": n, "key": hex, "value": hex, "version": n}.
/// Keys are encoded so that their order is that of the bytes: unsigned numbers are big-endian.
///
/// JSON: {directory, into, rows_file, checkpoint: null|file, tables, rows, left: {damages: [{file,
/// offset, why}], damaged_bytes, loose_records, void_records, unclosed_records, missing_rows,
/// patches, stale_rows, lost_rows, orphaned_rows, doubled_names}}
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_help = AFTER_HELP, group = ArgGroup::new("out").required(true).multiple(true))]
pub struct Args {
    /// The database's directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Write a log that can be opened to this directory, which is empty or not there yet
    #[arg(long, value_name = "NEW", group = "out")]
    into: Option<PathBuf>,

    /// Write the rows to this file, one line of JSON each
    #[arg(long, value_name = "FILE", group = "out")]
    rows: Option<PathBuf>,

    /// Include transactions whose epoch no readable frame closes. They may never have been
    /// acknowledged, and may depend on missing transactions
    #[arg(long)]
    unclosed: bool,

    /// Memory in GiB for opening the new log as a test
    #[arg(long, value_parser = value_parser!(u16).range(1..=4096), default_value_t = 64, value_name = "GIB")]
    memory: u16,
}

const AFTER_HELP: &str = "\
Left and doubtful:
  damaged_bytes     bytes that are in no frame
  loose_records     records out of damaged frames: they are taken
  void_records      records that a later opening of the database has declared not to have happened
  unclosed_records  records of epochs that no readable frame closes (see --unclosed)
  missing_rows      rows of a damaged checkpoint that cannot be read
  patches           changes of a part of a row whose version before is missing
  stale_rows        rows that lack such a change: they have the value before
  lost_rows         rows of which there are only such changes
  orphaned_rows     rows of tables whose creation cannot be read: they are in FILE, and not in NEW
  doubled_names     tables that have another's name, since a drop or a new name cannot be read: the older one's
                    has its number behind it

Exit status: 0 done, whatever was left, 1 the disk refuses, 2 wrong usage.";

/// The result as JSON.
#[derive(Debug, Serialize)]
struct Outcome {
    directory: String,
    into: Option<String>,
    rows_file: Option<String>,
    /// The valid checkpoint that it starts from.
    checkpoint: Option<String>,
    tables: usize,
    rows: usize,
    left: Left,
}

impl Args {
    pub(super) fn execute(&self, report: &Report) -> Result<(), Error> {
        self.into.as_deref().map_or(Ok(()), refuse_occupied)?;
        let contents = Contents::read(&self.directory)?;
        let survey = contents.survey();
        let folded = fold(&survey, self.unclosed);
        if let Some(path) = &self.rows {
            let written = File::create(path).and_then(|file| write_rows(&folded, BufWriter::new(file)));
            written.map_err(drtm_report::Error::file(path))?;
        }
        if let Some(path) = &self.into {
            rewrite::write(path, &folded).map_err(drtm_report::Error::file(path))?;
            self.check(path, &folded)?;
        }
        let shown = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let outcome = Outcome {
            directory: self.directory.display().to_string(),
            into: shown(&self.into),
            rows_file: shown(&self.rows),
            checkpoint: survey.base.map(|(header, _)| checkpoint_name(header.number)),
            tables: folded.tables.len(),
            rows: folded.rows.len(),
            left: folded.left,
        };
        report.text(&outcome.text())?;
        Ok(report.result(&outcome)?)
    }

    /// Opens the new log as a check.
    fn check(&self, path: &Path, folded: &Folded<'_>) -> Result<(), Error> {
        let db = trial::open(path, u64::from(self.memory) << 30)?;
        let found: u64 = db.tables()?.iter().map(|(_, rows)| rows).sum();
        let expected = folded.rows.len() as u64 - folded.left.orphaned_rows;
        if found != expected {
            return Err(Error::Miscounted { path: path.to_owned(), found, expected });
        }
        Ok(())
    }
}

/// A row as a line.
#[derive(Serialize)]
struct Line<'f> {
    table: Option<&'f str>,
    id: u16,
    key: String,
    value: String,
    version: u64,
}

fn write_rows(folded: &Folded<'_>, mut out: impl Write) -> io::Result<()> {
    for Row { table, key, value, version } in &folded.rows {
        let name = folded.tables.get(table).map(|(shape, _)| shape.name.as_str());
        let line = Line { table: name, id: *table, key: hex(key), value: hex(value), version: *version };
        serde_json::to_writer(&mut out, &line)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Outcome {
    fn text(&self) -> String {
        let Self { directory, tables, rows, left, .. } = self;
        let mut text = format!("{directory}: {rows} rows of {tables} tables could be read\n");
        if let Some(checkpoint) = &self.checkpoint {
            text += &format!("begun with {checkpoint}\n");
        }
        for (what, path) in [("log", &self.into), ("rows", &self.rows_file)] {
            if let Some(path) = path {
                text += &format!("{what} written: {path}\n");
            }
        }
        let counts = [
            (left.damaged_bytes as u64, "bytes are in no frame"),
            (left.loose_records, "records were read out of damaged frames"),
            (left.void_records, "records have been declared not to have happened"),
            (left.unclosed_records, "records are of epochs that no readable frame closes"),
            (left.missing_rows, "rows of a damaged checkpoint cannot be read"),
            (left.patches, "changes of parts of rows lack the version before"),
            (left.stale_rows, "rows have an older value"),
            (left.lost_rows, "rows are lost"),
            (left.orphaned_rows, "rows are of tables whose creation cannot be read"),
            (left.doubled_names, "tables have another's name, and get their number behind it"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let left: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
        let left = if left.is_empty() { "Nothing was left.".to_owned() } else { format!("Left: {}.", left.join("; ")) };
        text += &prose(&left);
        for Damage { file, offset, why } in self.left.damages.iter().take(20) {
            text += &format!("\ndamage in {file} at offset {offset}: {why}");
        }
        text + "\n"
    }
}
