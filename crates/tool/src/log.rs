//! `drtm log`: reads a database's log directory without opening the database.
//!
//! - `survey`: reads a directory and tolerates damage: every `checkpoint` and segment, with every
//!   valid frame and record, and the holes between them (`frames`).
//! - `inspect`: lists segments, frames, epochs, tables and records.
//! - `verify`: checks that everything can be read, by the survey and by opening the database on a
//!   `trial` storage, which changes nothing.
//! - `salvage`: writes the readable part as another log or as rows. `fold` turns records into rows,
//!   `rewrite` turns rows into a log.

mod checkpoint;
mod fold;
mod frames;
mod inspect;
mod rewrite;
mod salvage;
mod survey;
#[cfg(test)]
mod tests;
mod trial;
mod verify;

use clap::Subcommand;
use drtm_report::Report;

use crate::Error;

/// Examples, for the help of what has these commands.
pub const AFTER_HELP: &str = "\
Examples:
  drtm log inspect DIR                 checkpoints, segments, epochs and tables
  drtm log verify DIR                  whether all of it can be read; if not, where the first damage is
  drtm log salvage DIR --into NEW      what can be read, as a log that can be opened

The database must be closed. Nothing in DIR is changed.";

/// The commands under `log`.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "the arguments of each have its help")]
pub enum Command {
    Inspect(inspect::Args),
    Salvage(salvage::Args),
    Verify(verify::Args),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// Returns an error if the log is damaged, or cannot be read or written.
    pub fn execute(&self, report: &Report) -> Result<(), Error> {
        match self {
            Self::Inspect(args) => args.execute(report),
            Self::Salvage(args) => args.execute(report),
            Self::Verify(args) => args.execute(report),
        }
    }
}
