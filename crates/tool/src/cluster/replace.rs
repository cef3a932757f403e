//! `drtm cluster replace`: has a node at another address take the place of one that is gone.

use clap::Args as ClapArgs;
use drtm_report::Report;

use super::At;
use crate::Error;

/// Replace a node that is gone by one at another address
///
/// From then on all nodes reach the node there, and refuse whatever claims its number and is
/// somewhere else: also the machine that it was, should that come back. Start the new node after
/// this command, with the number of the old one, and its own address in its place. It joins with
/// nothing, and gets replicas of the shards. A node that runs is not replaced: stop it first.
///
/// It waits until all is agreed on. JSON: as `drtm cluster status`, without rows
#[derive(Debug, ClapArgs)]
#[command(
    verbatim_doc_comment,
    after_help = "Exit status: 0 the node is replaced, 1 it is here, or it could not be asked, 2 wrong usage."
)]
pub struct Args {
    #[command(flatten)]
    at: At,

    /// The number of the node that is gone
    #[arg(long, value_name = "NUMBER")]
    node: u16,

    /// Where the new node listens, such as 10.0.0.4:7000
    #[arg(long, value_name = "ADDRESS")]
    with: String,
}

impl Args {
    pub(super) fn execute(&self, report: &Report) -> Result<(), Error> {
        let status = self.at.operator()?.replace(self.node, &self.with)?;
        report.text(&status.to_string())?;
        Ok(report.result(&status)?)
    }
}
