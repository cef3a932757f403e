//! `drtm cluster status`: shows what a node sees of its cluster.

use std::time::Duration;

use clap::{Args as ClapArgs, value_parser};
use drtm_report::Report;

use super::At;
use crate::Error;

/// Show the members of a cluster, and what each shard has, as one of its nodes sees them
///
/// A member is `here`; `suspected`, if it is silent; `died`, `left` or `absent`; or `out`, if the
/// view is without it. A shard is
///
///   ok                its primary serves it, and it has as many backups as it is to have
///   under-replicated  its primary serves it, with fewer backups; `learners` copy its rows
///   recovering        no node serves it at the moment, and one that has its rows may be left
///   lost              all nodes that had its rows are gone: see `drtm cluster give-up`
///
/// Rows are those of tables; bytes are those of keys and values, and of entries of indexes. Each
/// primary counts its own, while transactions run; what it has not counted in time is `-`, or null.
///
/// JSON: {view, members: [{node, address: null|"...", incarnation: null|n, state}],
/// shards: [{shard, state, primary, backups: [node], learners: [node], rows: null|n,
/// bytes: null|n}]}
#[derive(Debug, ClapArgs)]
#[command(
    verbatim_doc_comment,
    after_help = "Exit status: 0 the node has answered, 1 it could not be asked, 2 wrong usage."
)]
pub struct Args {
    #[command(flatten)]
    at: At,

    /// For how long rows are counted, in seconds
    #[arg(long, value_parser = value_parser!(u8).range(1..=60), default_value_t = 1, value_name = "SECONDS")]
    rows_within: u8,
}

impl Args {
    pub(super) fn execute(&self, report: &Report) -> Result<(), Error> {
        let status = self.at.operator()?.status(Duration::from_secs(self.rows_within.into()))?;
        report.text(&status.to_string())?;
        Ok(report.result(&status)?)
    }
}
