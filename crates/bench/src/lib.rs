//! Benchmarks of drtm: workloads, studies and reports, behind one binary.
//!
//! `drtm-bench --help` lists the commands. They follow three rules:
//! - A run depends on `--seed` alone, except for measured speeds.
//! - `--json` puts exactly one JSON value on stdout.
//! - The exit status is 0 if every check held, 1 if a check failed, and 2 if the command was used
//!   wrongly.
//!
//! Each measurement can also be made from Rust. [`htm`] runs htm transactions of a chosen size and
//! shape and counts their commits and aborts:
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
//! - [`history`]: a checker of recorded transaction histories. `elle`: client histories in Elle's
//!   format, checked by `history`.
//! - `fabric`: verbs and messages on every fabric; simulated clusters beside published figures.
//! - [`htm`]: studies of transactional memory.
//! - [`kv`]: the memory store beside other maps.
//! - `log`: inspects, verifies and salvages a database's log directory.
//! - [`mix`], [`zipf`]: draw the next transaction's kind and the next record.
//! - `paper`: the figures of the papers, regenerated beside the published values.
//! - [`rates`]: measures several subjects in turns.
//! - `report`: tables, JSON and charts.
//! - [`smallbank`], [`tatp`], [`tpcc`], [`tpce`], [`ycsb`]: workloads: tables, initial population,
//!   inputs, transactions, and consistency checks.
//! - `soak`: crashes, kills and disk failures, and checks of what survives them.
//! - `drive`: runs workloads: threads, options, counters and reports.

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
