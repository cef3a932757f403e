//! `drtm-bench history`: records histories of the database's clients in Elle's format, and checks
//! them.
//!
//! - `record`: what a client requested and read, transaction by transaction.
//! - `draw`: random transactions of the three workloads.
//! - `client`: a thread that runs them, and records them in its `journal`. `store`: the
//!   operations on the database.
//! - `run`: all clients, and the last reads. `cluster`: both on several nodes.
//! - `edn`: the file.
//! - `judge`: converts a record into a [`History`](drtm_history::History), and checks it.

mod client;
mod cluster;
mod command;
mod draw;
mod edn;
mod journal;
mod judge;
mod record;
mod run;
mod store;
#[cfg(test)]
mod tests;

pub use command::Args;

use std::process::ExitCode;

use drtm_drive::cluster::ClusterWorkload;

use cluster::Histories;

/// Runs a node of a cluster in this process, and returns the process's exit status; `None` if the
/// workload of this name is another one.
pub fn run_member(workload: &str) -> Option<ExitCode> {
    (workload == Histories::MEMBER).then(drtm_drive::cluster::run_member::<Histories>)
}
