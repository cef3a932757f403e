//! Runs workloads of drtm: threads or nodes, options, counters and reports.
//!
//! This is an interface for drtm's own packages. It follows their needs, and promises nothing to
//! others.
//!
//! - [`measure`] loads, runs and checks a [`Workload`] on one node, with [`Options`] of the command
//!   line. [`measure_cluster`] does it on several nodes, to a
//!   [`ClusterWorkload`](cluster::ClusterWorkload).
//! - [`Body`]: a transaction, written once for one node and for several.
//! - `workers`: threads of clients. `cluster`: nodes on a fabric, and their coroutines.
//! - [`EngineName`], [`FabricName`], [`DurabilityName`]: names on the command line.
//! - [`Random`], [`mix`], [`zipf`], [`scatter`], [`Text`]: inputs and populations, determined by a
//!   seed.
//! - [`rates`]: measures several subjects in turns.
//! - [`memory`]: memory use, as the system counts it.
//! - [`faulty`], [`cluster::trial`]: databases with deliberate faults, and small clusters, for
//!   tests of workloads.

#![forbid(unsafe_code)]
#![expect(async_fn_in_trait, reason = "coroutines stay on their thread, so that no future needs to be `Send`")]

mod body;
pub mod cluster;
mod engine;
mod error;
mod fabric;
pub mod faulty;
mod latency;
mod log;
#[cfg(feature = "cluster")]
mod loopback;
pub mod memory;
pub mod mix;
mod options;
mod outcome;
mod population;
mod progress;
mod random;
pub mod rates;
pub mod scatter;
mod text;
mod workers;
mod workload;
pub mod zipf;

pub use body::{Body, Reads, Runner, transact, transact_if};
pub use engine::{EngineName, Plain, Simulated, Task, Watched, reject_limit};
pub use error::Error;
pub use fabric::FabricName;
pub use latency::Latencies;
pub use log::{DurabilityName, LogPlace};
#[cfg(feature = "cluster")]
pub use loopback::{loopback, tcp_config};
pub use options::{Options, seconds};
pub use outcome::{Outcome, measure, measure_cluster, ok_or_violations};
pub use population::{expect_row, pieces, row_with_key, rows_of_piece, spread};
pub use progress::Progress;
pub use random::Random;
pub use text::Text;
pub use workers::{Client, Done, Tally, Until, run as run_clients};
pub use workload::{Finished, Pace, Run, Workload, load, load_quietly, miscounted, run_in};
