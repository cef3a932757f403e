//! Fabrics, measured: `drtm-bench fabric`.
//!
//! One set of coroutines runs on every fabric (`testbed`). On `local`, `shm` and `tcp` it is
//! measured by this machine's clock, with the raw floor beside it where that is wanted. On
//! `sim:PROFILE` nothing is measured: what is reported is simulated, and says so in every row.

#![forbid(unsafe_code)]

mod connections;
mod error;
mod latency;
mod multi;
mod plot;
mod rate;
mod raw;
mod testbed;
mod verb;

use clap::Subcommand;
use drtm_report::Report;

pub use error::Error;

/// Examples, for the help of what has these commands.
pub const AFTER_HELP: &str = "\
Examples:
  drtm-bench fabric latency --raw                        one operation at a time, beside raw memory
  drtm-bench fabric rate --fabric shm --verb read        many at a time, between two mappings
  drtm-bench fabric rate --fabric sim:cx4                simulated, beside what the model was calibrated from
  drtm-bench fabric multi --fabric tcp --raw             transactions over sockets, beside raw sockets
  drtm-bench fabric multi --fabric sim:cx4               simulated: DrTM+H's Fig. 6, predicted
  drtm-bench fabric connections --fabric sim:cx4         simulated: queue pairs of 80 nodes, Figs. 5(b) and 12";

/// The commands under `fabric`.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "the arguments of each have its help")]
pub enum Command {
    Latency(latency::Args),
    Rate(rate::Args),
    Multi(multi::Args),
    Connections(connections::Args),
}

impl Command {
    /// Makes the study, and reports it.
    ///
    /// # Errors
    ///
    /// Returns an error if the options do not fit, or the study fails.
    pub fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        match self {
            Self::Latency(args) => args.execute(seed, report),
            Self::Rate(args) => args.execute(seed, report),
            Self::Multi(args) => args.execute(seed, report),
            Self::Connections(args) => args.execute(seed, report),
        }
    }
}
