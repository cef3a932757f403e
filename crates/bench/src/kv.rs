//! The memory store, measured: `drtm-bench kv`.

mod cached;
mod cluster;
mod counting;
mod cuckoo;
mod hopscotch;
mod lookups;
mod scheme;

use clap::Subcommand;

use crate::{Error, report::Report};

pub(crate) const AFTER_HELP: &str = "\
Examples:
  drtm-bench kv lookups                                      READs per lookup, beside DrTM's Table VI
  drtm-bench kv lookups --scheme cluster --records 1000000
  drtm-bench kv lookups --scheme cluster+cache               the same, remembering buckets in caches of three sizes";

/// The commands under `kv`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Lookups(lookups::Args),
}

impl Command {
    pub(crate) fn carry_out(&self, seed: u64, report: &Report) -> Result<(), Error> {
        match self {
            Self::Lookups(args) => args.carry_out(seed, report),
        }
    }
}
