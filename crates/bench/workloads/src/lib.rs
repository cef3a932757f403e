//! Workloads on drtm: tables, initial population, inputs, transactions, and consistency checks.
//! `drtm-bench` runs them.
//!
//! - [`smallbank`], [`tatp`] and [`ycsb`] are the workloads of these names.
//! - [`tpce`] is a part of TPC-E: customer-position.

#![forbid(unsafe_code)]

pub mod smallbank;
pub mod tatp;
pub mod tpce;
pub mod ycsb;

use std::process::ExitCode;

use drtm_drive::cluster::{self, ClusterWorkload};

/// Runs a node of a cluster in this process, and returns the process's exit status; `None` if no
/// workload here has this name.
pub fn run_member(workload: &str) -> Option<ExitCode> {
    Some(match workload {
        <smallbank::SmallBank as ClusterWorkload>::MEMBER => cluster::run_member::<smallbank::SmallBank>(),
        <tatp::Tatp as ClusterWorkload>::MEMBER => cluster::run_member::<tatp::Tatp>(),
        <tpce::CustomerPosition as ClusterWorkload>::MEMBER => cluster::run_member::<tpce::CustomerPosition>(),
        <ycsb::SmallRecords as ClusterWorkload>::MEMBER => cluster::run_member::<ycsb::SmallRecords>(),
        <ycsb::Records as ClusterWorkload>::MEMBER => cluster::run_member::<ycsb::Records>(),
        <ycsb::OrderedRecords as ClusterWorkload>::MEMBER => cluster::run_member::<ycsb::OrderedRecords>(),
        _ => return None,
    })
}
