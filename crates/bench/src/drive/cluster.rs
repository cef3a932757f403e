//! Workloads on several nodes: nodes are started on a fabric and loaded, their workers run
//! transactions, and what they did is added up and checked over the whole cluster.
//!
//! - [`workload`]: what a workload provides.
//! - [`access`]: bodies of transactions.
//! - [`plan`]: how large a run is.
//! - [`testbed`]: a cluster on each fabric: [`threads`], processes, or a [`simulation`].
//! - [`workers`]: the coroutines of one worker, the same on every fabric.
//! - [`stages`]: the stages of a run, within a process and between processes.
//! - [`process`]: the processes of a cluster on shared memory or TCP. [`pipes`]: their messages.
//! - [`read`]: rows that are read by checks, and before a run.
//! - [`tally`], [`figures`]: what is counted, and how it is reported.

mod access;
mod figures;
mod pipes;
mod places;
mod plan;
mod process;
mod read;
mod simulation;
mod stages;
mod tally;
mod testbed;
mod threads;
#[cfg(test)]
pub(crate) mod trial;
mod workers;
mod workload;

pub(crate) use access::{Access, Body, at_once, transact, transact_if};
pub(crate) use figures::Figures;
pub(crate) use plan::{Length, Plan, ProtocolOf};
pub(crate) use process::{MEMBER, run_member};
pub(crate) use read::{look_up, read};
pub(crate) use simulation::simulate;
pub(crate) use tally::Gathered;
pub(crate) use testbed::run;
pub(crate) use workload::{ClusterWorkload, Place};
