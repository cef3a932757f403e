//! `drtm-bench htm`: measures the limits of transactional memory.
//!
//! A [`Testbed`] runs htm transactions of one [`Load`] on one [`Machine`], each once and without a
//! retry, and counts their outcomes. Threads touch memory of their own, so that no two conflict.
//! What remains is what the studies measure: the working set that fits, and the time that it can
//! last.
//!
//! On the emulation a result is *simulated*. It follows from the machine's
//! [`Profile`](drtm_htm::Profile) (sets, ways, size of the read tracker), its timer, the addresses
//! touched, and the seed. On RTM it is measured.
//!
//! # Example
//!
//! ```
//! use drtm_paper::htm::{Load, Machine, Order, Testbed, Setup, abort_rate};
//! use drtm_htm::Profile;
//!
//! // Nine kilobytes fit when they are adjacent. At random, nine lines sometimes fall into one set of eight ways.
//! let load = Load::write(9 << 10);
//! let setup = Setup::on(Machine::Emulated(Profile::L1_32K_8));
//! let adjacent = Testbed::new(setup, &[load])?.run(load, 500)?;
//! let scattered = Testbed::new(Setup { order: Order::Random, ..setup }, &[load])?.run(load, 500)?;
//! assert_eq!(adjacent.capacity, 0);
//! assert!(scattered.capacity > 0 && abort_rate(&scattered) < 0.1);
//! # Ok::<(), drtm_paper::Error>(())
//! ```

mod limits;
mod load;
mod machine;
mod memory;
mod probe;
mod region;
mod sweep;
mod testbed;
pub(crate) mod working_set;

pub use load::Load;
pub use machine::Machine;
pub use region::Order;
pub use testbed::{Setup, Testbed, abort_rate};

pub(crate) use machine::{EngineName, MEASURED, describe};

use clap::Subcommand;
use drtm_report::Report;

use crate::Error;

/// Examples, for the help of what has these commands.
pub const AFTER_HELP: &str = "\
Examples:
  drtm-bench htm probe                                  is there any, and is it of use
  drtm-bench htm limits --kind write --order random     how much can be written
  drtm-bench htm limits --duration-us 1000,2000,4000    how long a region can last
  drtm-bench htm working-set --workload tpcc            whether whole transactions fit";

/// The commands under `htm`.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "the arguments of each have its help")]
pub enum Command {
    /// Show this machine's transactional memory, and the engine that a store would choose
    ///
    /// CPUID alone proves nothing: many processors list RTM and abort every transaction. So small
    /// transactions are tried. The environment variable DRTM_HTM overrides the choice, here as in a
    /// store.
    ///
    /// JSON: {engine, cpuid_rtm, always_abort, trial_commits, trials, reason}
    #[command(verbatim_doc_comment, after_help = probe::AFTER_HELP)]
    Probe,
    Limits(limits::Args),
    WorkingSet(working_set::Args),
}

impl Command {
    /// Makes the study, and reports it.
    ///
    /// # Errors
    ///
    /// Returns an error if the options do not fit, or the study fails.
    pub fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        match self {
            Self::Probe => probe::execute(report),
            Self::Limits(args) => args.execute(seed, report),
            Self::WorkingSet(args) => args.execute(seed, report),
        }
    }
}
