//! `drtm log verify`: checks that a whole log can be read.

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, value_parser};
use drtm_report::{Report, prose};
use drtm_txn::{LogError, durability::format::INCOMPLETE};
use serde::Serialize;

use super::{frames::Damage, survey::Contents, trial};
use crate::Error;

/// Check that a database's whole directory can be read, and if not, show the first damage
///
/// Reads every frame, record and row of checkpoints and segments, and opens the database without
/// changing its directory. A write torn by a crash at the log's end is no damage: opening the
/// database ignores and voids it. It cannot be distinguished from damage of the last frame, so it
/// is reported as `torn`. Missing segments are no damage if a checkpoint replaces them. An
/// unfinished backup is reported as damage of the file `INCOMPLETE`.
///
/// JSON: {directory, readable, damage: null|{file, offset, why}, torn: null|{file, offset, bytes},
/// checkpoints, segments, frames, records, tables, rows}, where rows are those of the opened
/// database
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_help = "Exit status: 0 all can be read, 1 there is damage, 2 wrong usage.")]
pub struct Args {
    /// The database's directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Memory that the opened database may use, in GiB
    #[arg(long, value_parser = value_parser!(u16).range(1..=4096), default_value_t = 64, value_name = "GIB")]
    memory: u16,
}

/// The result as JSON.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    directory: String,
    readable: bool,
    pub(super) damage: Option<Damage>,
    torn: Option<Torn>,
    checkpoints: usize,
    segments: usize,
    frames: usize,
    records: usize,
    tables: usize,
    rows: u64,
}

/// A write that a crash may have torn.
#[derive(Debug, Serialize)]
struct Torn {
    file: String,
    offset: usize,
    bytes: usize,
}

/// Reads everything, and opens the database with this much memory.
///
/// # Errors
///
/// Returns an error if there is no log, or if it is unreadable for another reason than damage.
pub(super) fn examine(directory: &Path, memory: u64) -> Result<Verdict, Error> {
    let contents = Contents::read(directory)?;
    let survey = contents.survey();
    let (tables, refused) = match trial::open(directory, memory) {
        Ok(db) => (db.tables()?, None),
        Err(drtm_txn::Error::Log(LogError::Damaged { file, offset, why })) => {
            (Vec::new(), Some(Damage { file, offset, why: why.to_owned() }))
        }
        Err(drtm_txn::Error::Log(LogError::OtherFormat { file, found, .. })) => {
            let why = format!("it has format {found}, which this program does not read");
            (Vec::new(), Some(Damage { file, offset: 0, why }))
        }
        Err(drtm_txn::Error::Log(LogError::Incomplete { .. })) => {
            let why = "the backup was not finished".to_owned();
            (Vec::new(), Some(Damage { file: INCOMPLETE.to_owned(), offset: 0, why }))
        }
        Err(error) => return Err(error.into()),
    };
    let damage = refused.or_else(|| survey.damages.first().cloned());
    let torn = survey.torn().map(|(segment, hole)| Torn {
        file: segment.name(),
        offset: hole.offset,
        bytes: hole.end - hole.offset,
    });
    let (segments, checkpoints) = (survey.segments.iter(), survey.checkpoints.iter());
    let of_segments = segments.clone().map(|segment| segment.records().count());
    let records = of_segments.chain(checkpoints.clone().map(|checkpoint| checkpoint.file.records().count()));
    Ok(Verdict {
        directory: directory.display().to_string(),
        readable: damage.is_none(),
        damage,
        torn,
        segments: survey.segments.len(),
        checkpoints: survey.checkpoints.len(),
        frames: segments.map(|segment| segment.frames.len()).chain(checkpoints.map(|one| one.file.frames.len())).sum(),
        records: records.sum(),
        tables: tables.len(),
        rows: tables.iter().map(|(_, rows)| rows).sum(),
    })
}

impl Args {
    pub(super) fn execute(&self, report: &Report) -> Result<(), Error> {
        let verdict = examine(&self.directory, u64::from(self.memory) << 30)?;
        report.text(&verdict.text())?;
        report.result(&verdict)?;
        match verdict.damage {
            None => Ok(()),
            Some(Damage { file, offset, why }) => Err(Error::DamagedLog { file, offset, why }),
        }
    }
}

impl Verdict {
    fn text(&self) -> String {
        let Self { directory, checkpoints, segments, frames, records, tables, rows, .. } = self;
        let mut text = format!(
            "{directory}: {checkpoints} checkpoints, {segments} segments, {frames} frames, {records} records\n"
        );
        text += &match &self.damage {
            None => format!("all can be read: {tables} tables, {rows} rows\n"),
            Some(Damage { file, offset, why }) => format!("DAMAGE in {file} at offset {offset}: {why}\n"),
        };
        if let Some(Torn { file, offset, bytes }) = &self.torn {
            let note = format!(
                "At the end, {bytes} bytes of {file} at offset {offset} are no frame: a write that a crash has torn, \
                 which opening the database leaves out, or damage of the last frame."
            );
            text += &prose(&note);
            text.push('\n');
        }
        text
    }
}
