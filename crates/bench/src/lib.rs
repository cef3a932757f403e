//! The yardstick of drtm: workloads, studies and reports, behind one binary.
//!
//! `drtm-bench --help` lists the commands. They share three habits: a run is a function of its
//! `--seed` wherever nothing but the machine's speed is measured, `--json` puts exactly one JSON
//! value on stdout, and the exit status is 0 when done and every check held, 1 when a check failed,
//! 2 when the command was used wrongly.
//!
//! What a command measures can be measured from Rust as well. [`htm`] runs regions of a chosen size
//! and shape and counts what becomes of them:
//!
//! ```
//! use drtm_bench::htm::{Load, Machine, Testbed, Setup, abort_rate};
//! use drtm_htm::Profile;
//!
//! let fits = Load::write(32 << 10);
//! let overflows = Load::write((32 << 10) + 64);
//! let testbed = Testbed::new(Setup::on(Machine::Emulated(Profile::L1_32K_8)), &[fits, overflows])?;
//! assert!(abort_rate(&testbed.run(fits, 100)?) < 0.01);
//! assert_eq!(abort_rate(&testbed.run(overflows, 100)?), 1.0);
//! # Ok::<(), drtm_bench::Error>(())
//! ```
//!
//! # The parts
//!
//! - `cli`: the top of the command line. A new family of commands is a variant there and a module
//!   here.
//! - `compare`: workloads on this database beside other stores.
//! - [`history`]: a checker of what transactions saw and left. `elle`: histories of clients,
//!   written in Elle's form and judged by it.
//! - `fabric`: verbs and messages on every fabric; simulated clusters beside what was published of
//!   them.
//! - [`htm`]: studies of transactional memory.
//! - [`kv`]: the memory store beside other maps.
//! - `log`: what a database has left in its directory: inspected, verified, salvaged.
//! - [`mix`], [`zipf`]: which transaction comes next, and which record.
//! - `paper`: the figures of the papers, regenerated beside the published values.
//! - [`rates`]: several subjects, measured in turns.
//! - `report`: tables, JSON and charts.
//! - [`smallbank`], [`tatp`], [`tpcc`], [`tpce`], [`ycsb`]: workloads: tables, initial population,
//!   inputs, transactions, and the checks of their consistency.
//! - `soak`: databases that crash, are killed or whose disk fails, and what is left of them.
//! - `drive`: what runs them: threads, options, what is counted, how it is told.

#![forbid(unsafe_code)]

#[cfg(test)]
mod chance;
mod cli;
mod compare;
mod drive;
mod elle;
mod error;
mod fabric;
pub mod history;
pub mod htm;
pub mod kv;
mod log;
mod memory;
pub mod mix;
mod names;
mod paper;
pub mod rates;
mod report;
mod scatter;
pub mod smallbank;
mod soak;
pub mod tatp;
pub mod tpcc;
pub mod tpce;
mod units;
pub mod ycsb;
pub mod zipf;

// Its first program needs redb.
#[cfg(all(doctest, feature = "stores"))]
#[doc = include_str!("../../../docs/from-redb.md")]
mod from_redb {}

pub use cli::run;
pub use error::Error;
