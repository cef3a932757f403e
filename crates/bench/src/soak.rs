//! `drtm-bench soak`: a database that crashes, is killed, or whose disk fails, again and again, and
//! what is left of it.
//!
//! - `ledger`: the tables, and transactions that write down in the database itself what they saw
//!   and did.
//! - `book`: what is known from outside, and the check of what was recovered against it.
//! - `life`: threads that run transactions until the disk stops them.
//! - `crash`, `faults`: on a simulated disk. `kill`: a child process on a real one; `child` is that
//!   process.
//! - `tally`: what is counted, and the report.

mod book;
mod child;
mod crash;
mod faults;
mod kill;
mod ledger;
mod life;
mod tally;
#[cfg(test)]
mod tests;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::{Args as ClapArgs, Subcommand, value_parser};
use drtm_htm::NoHtm;
use drtm_txn::Config;

use crate::{Error, drive::seconds, report::Report};

pub(crate) const AFTER_HELP: &str = "\
Examples:
  drtm-bench soak crash --secs 60            power cuts, on a simulated disk
  drtm-bench soak kill --secs 60             a child process that is killed under load
  drtm-bench soak io-faults --runs 500       calls to the disk that fail, one in each run

Checked each time: every transaction that was acknowledged is there, none is there in part, what survived is a
prefix of the serialization order, money is conserved, and indexes agree with their tables.

JSON: {command, disk, seed, runs, crash_points, kills, checkpoints, unfinished_checkpoints, faults: {kind: n},
acknowledged, lost, partial, anomalies, findings: [text]}, where disk is `simulated` or `files`

Exit status: 0 every check held, 1 one did not (and says which), 2 wrong usage.";

/// What happens to the database.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Crash the machine at random calls to a simulated disk, also during recovery, and check what
    /// is left
    ///
    /// Of what was not synced, each sector is there, missing, zero or torn, independently of
    /// others; each name that was not synced is the old one or the new one.
    ///
    /// Checkpoints are made meanwhile. `checkpoints` and `unfinished_checkpoints` count crashes
    /// that have left one.
    #[command(verbatim_doc_comment)]
    Crash(Length),
    /// Let each call to a simulated disk fail in turn, and check what is left
    ///
    /// Kinds: no-space, device (of a sync: what it was to make durable is lost), short (half of a
    /// write is written).
    #[command(verbatim_doc_comment)]
    IoFaults(Length),
    /// Kill a child process under load, and check what it has left in a directory
    ///
    /// This shows what a process's death does, and nothing about power cuts: the system keeps what
    /// was written.
    #[command(verbatim_doc_comment)]
    Kill {
        #[command(flatten)]
        length: Length,

        /// An empty directory for the databases [default: a new one among the system's temporary
        /// files]
        #[arg(long, value_name = "DIR")]
        path: Option<PathBuf>,
    },
    /// The process that is killed
    #[command(hide = true)]
    Child(child::Args),
}

/// How long a soak lasts.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub(crate) struct Length {
    /// Seconds to run
    #[arg(long, value_parser = seconds, default_value = "10", value_name = "S")]
    secs: Duration,

    /// Do so many runs instead, each on a new database
    #[arg(long, value_parser = value_parser!(u64).range(1..), conflicts_with = "secs", value_name = "N")]
    runs: Option<u64>,
}

/// When a soak ends.
#[derive(Clone, Copy, Debug)]
struct End {
    runs: Option<u64>,
    at: Instant,
}

impl Length {
    fn end(self) -> End {
        End { runs: self.runs, at: Instant::now() + self.secs }
    }
}

impl End {
    fn is_over(&self, runs: u64) -> bool {
        self.runs.map_or_else(|| Instant::now() >= self.at, |most| runs >= most)
    }
}

/// What databases are built on here.
#[derive(Debug)]
struct Sound;

impl Config for Sound {
    type Engine = NoHtm;
}

impl Command {
    pub(crate) fn carry_out(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let tally = match self {
            Self::Crash(length) => crash::soak::<Sound>(seed, length.end())?,
            Self::IoFaults(length) => faults::soak::<Sound>(seed, length.end())?,
            Self::Kill { length, path } => kill::soak(seed, length.end(), path.as_deref())?,
            Self::Child(args) => return args.carry_out(seed),
        };
        tally.tell(report)
    }
}
