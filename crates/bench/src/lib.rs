//! Benchmarks of drtm: workloads, studies and reports, behind one binary.
//!
//! `drtm-bench --help` lists the commands. They follow three rules:
//! - A run depends on `--seed` alone, except for measured speeds.
//! - `--json` puts exactly one JSON value on stdout.
//! - The exit status is 0 if every check held, 1 if a check failed, and 2 if the command was used
//!   wrongly.
//!
//! # The parts
//!
//! - `chop`: which transactions of a program can run in pieces.
//! - `cli`: the top of the command line. A new family of commands is a variant there, and a module
//!   of one of the packages.
//! - `compare`: workloads on this database beside other stores.
//! - [`drtm_tpcc`], [`drtm_workloads`]: workloads: tables, initial population, inputs,
//!   transactions, and consistency checks. [`drtm_drive`] runs them.
//! - [`drtm_soak`]: histories of clients, which `drtm-history` checks; crashes, kills and disk
//!   failures.
//! - [`drtm_fabrics`]: studies of fabrics.
//! - [`drtm_paper`]: studies of transactional memory and maps; the figures of the papers.
//! - [`drtm_tool`]: the commands of the program `drtm`, which `drtm-bench log` is another name for.
//! - [`drtm_report`]: tables, JSON and charts.

#![forbid(unsafe_code)]

mod chop;
mod cli;
mod compare;
mod error;

// Its first program needs redb.
#[cfg(all(doctest, feature = "stores"))]
#[doc = include_str!("../../../docs/from-redb.md")]
mod from_redb {}

pub use cli::run;
use error::{Error, StoreError};
