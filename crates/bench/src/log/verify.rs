//! `drtm-bench log verify`: whether all of a log can be read.

use std::path::PathBuf;

use clap::{Args as ClapArgs, value_parser};
use drtm_txn::LogError;
use serde::Serialize;

use super::{
    survey::{Contents, Damage},
    trial,
};
use crate::{
    Error,
    report::{Report, prose},
};

/// Say whether all of a log can be read, and if not, where the first damage is
///
/// Reads every frame, record and row, and opens the database without changing its directory. A write that a crash has
/// torn, at the log's end, is no damage: opening the database leaves it out, and voids it. It cannot be told from damage
/// of the last frame, so it is reported as `torn`.
///
/// JSON: {directory, readable, damage: null|{file, offset, why}, torn: null|{file, offset, bytes}, segments, frames,
/// records, tables, rows}, where rows are those of the opened database
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_help = "Exit status: 0 all can be read, 1 there is damage, 2 wrong usage.")]
pub(crate) struct Args {
    /// The database's directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Memory that the opened database may use, in GiB
    #[arg(long, value_parser = value_parser!(u16).range(1..=4096), default_value_t = 64, value_name = "GIB")]
    memory: u16,
}

/// What scripts read.
#[derive(Debug, Serialize)]
struct Verdict {
    directory: String,
    readable: bool,
    damage: Option<Damage>,
    torn: Option<Torn>,
    segments: usize,
    frames: usize,
    records: usize,
    tables: usize,
    rows: u64,
}

/// What a crash may have torn.
#[derive(Debug, Serialize)]
struct Torn {
    file: String,
    offset: usize,
    bytes: usize,
}

impl Args {
    pub(super) fn carry_out(&self, report: &Report) -> Result<(), Error> {
        let contents = Contents::read(&self.directory)?;
        let survey = contents.survey();
        let (tables, refused) = match trial::open(&self.directory, u64::from(self.memory) << 30) {
            Ok(db) => (db.tables()?, None),
            Err(drtm_txn::Error::Log(LogError::Damaged { file, offset, why })) => {
                (Vec::new(), Some(Damage { file, offset, why: why.to_owned() }))
            }
            Err(drtm_txn::Error::Log(error @ LogError::OtherFormat { .. })) => {
                let file = survey.segments.first().map(super::survey::Segment::name).unwrap_or_default();
                (Vec::new(), Some(Damage { file, offset: 0, why: error.to_string() }))
            }
            Err(error) => return Err(error.into()),
        };
        let damage = refused.or_else(|| survey.damages.first().cloned());
        let torn = survey.torn().map(|(segment, hole)| Torn {
            file: segment.name(),
            offset: hole.offset,
            bytes: hole.end - hole.offset,
        });
        let verdict = Verdict {
            directory: self.directory.display().to_string(),
            readable: damage.is_none(),
            damage,
            torn,
            segments: survey.segments.len(),
            frames: survey.segments.iter().map(|segment| segment.frames.len()).sum(),
            records: survey.segments.iter().map(|segment| segment.records().count()).sum(),
            tables: tables.len(),
            rows: tables.iter().map(|(_, rows)| rows).sum(),
        };
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
        let Self { directory, segments, frames, records, tables, rows, .. } = self;
        let mut text = format!("{directory}: {segments} segments, {frames} frames, {records} records\n");
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
