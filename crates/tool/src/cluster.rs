//! `drtm cluster`: looks at a cluster that runs, over TCP.
//!
//! - `status`: asks one node for the view, the members, and what each shard has.

mod status;

use clap::Subcommand;
use drtm_report::Report;

use crate::Error;

/// Examples, for the help of what has these commands.
pub const AFTER_HELP: &str = "\
Examples:
  drtm cluster status --key cluster.key --at 10.0.0.1:7000         the members, and what each shard has
  drtm cluster status --key cluster.key --at 10.0.0.1:7000 --json  the same for programs

Any node that runs can be asked. It is asked by a visitor, which joins nothing.";

/// The commands under `cluster`.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "the arguments of each have its help")]
pub enum Command {
    Status(status::Args),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// Returns an error if the cluster cannot be asked.
    pub fn execute(&self, report: &Report) -> Result<(), Error> {
        match self {
            Self::Status(args) => args.execute(report),
        }
    }
}
