//! `drtm-bench log`: what a database has left in its directory, read without opening it.
//!
//! - `survey`: the tolerant reader of a directory: every `checkpoint` and segment, with every frame
//!   and every record that is whole, and the holes between them (`frames`).
//! - `inspect`: lists segments, frames, epochs, tables and records.
//! - `verify`: whether everything can be read, by the survey and by opening the database on a
//!   `trial` storage, which changes nothing.
//! - `salvage`: what is readable, as another log or as rows; `fold` makes rows of records,
//!   `rewrite` a log of rows.

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

use crate::{Error, report::Report};

pub(crate) const AFTER_HELP: &str = "\
Examples:
  drtm-bench log inspect DIR                 checkpoints, segments, epochs and tables
  drtm-bench log verify DIR                  whether all of it can be read; if not, where the first damage is
  drtm-bench log salvage DIR --into NEW      what can be read, as a log that can be opened

The database must be closed. Nothing in DIR is changed.";

/// What to do with a log.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Inspect(inspect::Args),
    Salvage(salvage::Args),
    Verify(verify::Args),
}

impl Command {
    pub(crate) fn carry_out(&self, report: &Report) -> Result<(), Error> {
        match self {
            Self::Inspect(args) => args.carry_out(report),
            Self::Salvage(args) => args.carry_out(report),
            Self::Verify(args) => args.carry_out(report),
        }
    }
}
