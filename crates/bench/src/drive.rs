//! The driver that all workloads share: runs transactions in threads, counts their results, and
//! reports them.

pub(crate) mod cluster;
mod engine;
#[cfg(test)]
pub(crate) mod faulty;
mod footprint;
mod latency;
mod log;
mod options;
mod outcome;
mod population;
mod progress;
mod whole;
mod workers;
mod workload;

#[cfg(test)]
pub(crate) use engine::Simulated;
pub(crate) use engine::{EngineName, Plain, Task, reject_limit};
pub(crate) use footprint::{Footprint, footprints};
pub(crate) use log::{DurabilityName, is_occupied};
pub(crate) use options::{Options, seconds};
pub(crate) use outcome::{Outcome, measure, measure_cluster, ok_or_violations};
pub(crate) use population::{expect_row, pieces, row_with_key, rows_of_piece, spread};
pub(crate) use progress::Progress;
pub(crate) use whole::{FALLBACKS, OVERFLOWS, Whole};
pub(crate) use workers::{Client, Done, Tally, Until, run as run_clients};
pub(crate) use workload::{Finished, Pace, Run, Workload, load_quietly, miscounted, run_in};
