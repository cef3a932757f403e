//! `drtm-bench soak`: crashes a database, kills it, or fails its disk, repeatedly, and checks what
//! survives. [`failover`] does so to clusters.
//!
//! - `ledger`: the tables, and transactions that record in the database what they read and wrote.
//! - `book`: knowledge kept outside of the database, and the check of recovered data against it.
//! - `life`: threads that run transactions until the disk stops them.
//! - `crash`, `faults`: on a simulated disk. `kill`: a child process on a real one; `child` is that
//!   process.
//! - `tally`: counters, and the report.

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
use drtm_drive::{Plain, seconds};
use drtm_report::Report;

use crate::{Error, failover};

/// Examples, for the help of what has these commands.
pub const AFTER_HELP: &str = "\
Examples:
  drtm-bench soak crash --secs 60            power cuts, on a simulated disk
  drtm-bench soak kill --secs 60             a child process that is killed under load
  drtm-bench soak io-faults --runs 500       calls to the disk that fail, one in each run
  drtm-bench soak failover --fabric tcp      processes of a cluster that are killed and stopped; shm, sim likewise

Checked of a database each time: every transaction that was acknowledged is there, none is there in part, what
survived is a prefix of the serialization order, money is conserved, and indexes agree with their tables. `soak
failover --help` says what is checked of clusters.

JSON of crash, kill and io-faults: {command, disk, seed, runs, crash_points, kills, checkpoints,
unfinished_checkpoints, faults: {kind: n}, acknowledged, lost, partial, anomalies, findings: [text]}, where disk is
`simulated` or `files`. That of failover is in its help.

Exit status: 0 every check held, 1 one did not (and says which), 2 wrong usage.";

/// The commands under `soak`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Crash the machine at random calls to a simulated disk, also during recovery, and check what
    /// is left
    ///
    /// Each sector that was not synced is independently present, missing, zero or torn. Each name
    /// that was not synced is the old one or the new one.
    ///
    /// Checkpoints are made meanwhile. `checkpoints` and `unfinished_checkpoints` count the crashes
    /// that left one.
    #[command(verbatim_doc_comment)]
    Crash(Length),
    /// Fail each call to a simulated disk in turn, and check what is left
    ///
    /// Kinds: no-space, device (a failed sync loses the data that it should make durable), short
    /// (half of a write is written).
    #[command(verbatim_doc_comment)]
    IoFaults(Length),
    /// Kill a child process under load, and check what it left in its directory
    ///
    /// This tests the death of a process, not power cuts: the system keeps what was written.
    #[command(verbatim_doc_comment)]
    Kill {
        #[command(flatten)]
        #[expect(missing_docs, reason = "a comment would be its help")]
        length: Length,

        /// An empty directory for the databases [default: a new one among the system's temporary
        /// files]
        #[arg(long, value_name = "DIR")]
        path: Option<PathBuf>,
    },
    #[expect(missing_docs, reason = "a comment would be its help")]
    Failover(failover::Args),
    /// Run a node of a cluster that is killed
    #[command(hide = true)]
    Member,
    /// Run the process that is killed
    #[command(hide = true)]
    Child(child::Args),
}

/// The duration of a soak.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub struct Length {
    /// Seconds to run
    #[arg(long, value_parser = seconds, default_value = "10", value_name = "S")]
    secs: Duration,

    /// Do this many runs instead, each on a new database
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

impl Command {
    /// Runs it, and reports what was found.
    ///
    /// # Errors
    ///
    /// Returns an error if the options do not fit, the run fails, or a check does not hold.
    pub fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let tally = match self {
            Self::Crash(length) => crash::soak::<Plain>(seed, length.end())?,
            Self::IoFaults(length) => faults::soak::<Plain>(seed, length.end())?,
            Self::Kill { length, path } => kill::soak(seed, length.end(), path.as_deref())?,
            Self::Failover(args) => return args.execute(seed, report),
            Self::Member => return failover::run_member(),
            Self::Child(args) => return args.execute(seed),
        };
        tally.print(report)
    }
}
