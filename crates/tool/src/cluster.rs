//! `drtm cluster`: looks after a cluster that runs, over TCP.
//!
//! - `status`: asks one node for the view, the members, and what each shard has.
//! - `give-up`: has a lost shard served again, without rows.
//! - `replace`: has a node at another address take the place of one that is gone.

mod give_up;
mod replace;
mod status;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use drtm_report::Report;
use drtm_txn::cluster::Operator;

use crate::Error;

/// Examples, for the help of what has these commands.
pub const AFTER_HELP: &str = "\
Examples:
  drtm cluster status --key cluster.key --at 10.0.0.1:7000         the members, and what each shard has
  drtm cluster status --key cluster.key --at 10.0.0.1:7000 --json  the same for programs
  drtm cluster give-up --key cluster.key --at 10.0.0.1:7000 --shard 3
                                                                   serve a lost shard again, empty
  drtm cluster replace --key cluster.key --at 10.0.0.1:7000 --node 2 --with 10.0.0.4:7000
                                                                   another machine in place of a dead one

Any node that runs can be asked. It is asked by a visitor, which joins nothing.";

/// The node that is asked, and the key.
#[derive(Debug, Args)]
struct At {
    /// The file of the cluster's key, of 32 bytes
    #[arg(long, value_name = "FILE")]
    key: PathBuf,

    /// Where a node of the cluster listens, such as 10.0.0.1:7000
    #[arg(long, value_name = "ADDRESS")]
    at: String,
}

impl At {
    fn operator(&self) -> Result<Operator, Error> {
        Ok(Operator::new(&self.at, &self.key)?)
    }
}

/// The commands under `cluster`.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "the arguments of each have its help")]
pub enum Command {
    Status(status::Args),
    GiveUp(give_up::Args),
    Replace(replace::Args),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// Returns an error if the cluster cannot be asked, or refuses.
    pub fn execute(&self, report: &Report) -> Result<(), Error> {
        match self {
            Self::Status(args) => args.execute(report),
            Self::GiveUp(args) => args.execute(report),
            Self::Replace(args) => args.execute(report),
        }
    }
}
