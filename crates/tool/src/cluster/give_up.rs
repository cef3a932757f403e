//! `drtm cluster give-up`: has a lost shard served again, without rows.

use clap::Args as ClapArgs;
use drtm_report::Report;
use drtm_txn::cluster::ShardId;

use super::At;
use crate::Error;

/// Give the rows of a lost shard up: it is served again, without rows
///
/// A shard is lost when all nodes are gone that had its rows. Where the node that had them last has
/// a directory, start it again there, and the rows are back. Otherwise give the shard up. All
/// shards that were at the same nodes are given up with it. Entries of indexes that were in these
/// shards are lost, too; their rows in other shards stay.
///
/// It waits until the shard is served. JSON: as `drtm cluster status`, without rows
#[derive(Debug, ClapArgs)]
#[command(
    verbatim_doc_comment,
    after_help = "Exit status: 0 the shard is served, 1 it is not lost, or it could not be asked, 2 wrong usage."
)]
pub struct Args {
    #[command(flatten)]
    at: At,

    /// The number of the shard, as `drtm cluster status` shows it
    #[arg(long, value_name = "NUMBER")]
    shard: u16,
}

impl Args {
    pub(super) fn execute(&self, report: &Report) -> Result<(), Error> {
        let status = self.at.operator()?.give_up(ShardId(self.shard))?;
        report.text(&status.to_string())?;
        Ok(report.result(&status)?)
    }
}
