//! `drtm-bench tpce-cp`: runs TPC-E's customer-position.

use std::time::Duration;

use clap::{Args as ClapArgs, value_parser};
use drtm_drive::{Error, Options, measure_cluster};
use drtm_report::Report;
use serde::{Deserialize, Serialize};

use super::Brokerage;

/// Run TPC-E's customer-position, and check that all rows are consistent
///
/// A customer's profile, accounts and holdings are on one node, where the transaction begins. The
/// last prices of its securities are on all nodes, as in DrTM+H (Fig. 11). The transaction is
/// read-only, so with --feeds other transactions change prices concurrently: each moves a part of
/// one security's price to another's. At the end, the sum of prices must be the initial one, and
/// the number of changes must be that of committed ones. This is no result of TPC-E, and may not be
/// called one.
///
/// It runs on a cluster of one or more nodes. On shm and tcp, each node is a process. On sim,
/// everything is simulated in virtual time, and nothing is measured.
///
/// JSON: {workload, threads, customers, securities, feeds, engine, simulated, nodes, fabric,
/// protocol, coroutines, cpu_us,
/// per_transaction: {round_trips, messages, one_sided, bytes, wait_us, round_us},
/// per_phase: {phase: the same}, durability, seconds, committed, throughput, aborts: {cause: n},
/// latency_us: {transaction: {p50, p90, p99, p999}}, consistency: "ok"|[TEXT, ...], max_rss_mib}
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_help = AFTER_HELP)]
pub struct Args {
    /// Customers; there are 685 securities per thousand customers
    #[arg(long, value_parser = value_parser!(u32).range(30..), default_value_t = 5_000, value_name = "N")]
    customers: u32,

    /// Percentage of transactions that change prices
    #[arg(long, value_parser = value_parser!(u8).range(..=100), default_value_t = 0, value_name = "PCT")]
    feeds: u8,

    #[command(flatten)]
    options: Options,
}

const AFTER_HELP: &str = "\
Examples:
  drtm-bench tpce-cp --nodes 4 --fabric sim:cx4 --protocol drtm-occ    simulated: reads by verbs
  drtm-bench tpce-cp --nodes 2 --fabric tcp --feeds 10                 prices change meanwhile";

impl Args {
    /// Loads, runs and checks it, and reports the outcome.
    ///
    /// # Errors
    ///
    /// Returns an error if the options do not fit, the run fails, or a condition does not hold.
    pub fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let position = CustomerPosition::new(self.customers, self.feeds, seed)?;
        measure_cluster(&position, &self.options, seed)?.print(report)
    }
}

/// The workload, with its size.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CustomerPosition {
    pub(super) brokerage: Brokerage,
    /// Percent.
    pub(super) feeds: u8,
    /// After this many nanoseconds, all are.
    pub(super) only_feeds_after: Option<u64>,
    pub(super) seed: u64,
}

impl CustomerPosition {
    /// Creates the workload, of which `feeds` percent of transactions change prices.
    ///
    /// # Errors
    ///
    /// Returns an error if a brokerage cannot have so many customers.
    pub fn new(customers: u32, feeds: u8, seed: u64) -> Result<Self, Error> {
        Ok(Self { brokerage: Brokerage::new(customers, seed)?, feeds, only_feeds_after: None, seed })
    }

    /// Changes to transactions that change prices, and no others, after this time.
    pub fn only_feeds_after(self, after: Duration) -> Self {
        Self { only_feeds_after: Some(after.as_nanos() as u64), ..self }
    }
}
