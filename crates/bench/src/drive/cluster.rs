//! Workloads on several nodes: nodes are started on a fabric and loaded, their workers run
//! transactions, and what they did is added up and checked over the whole cluster.
//!
//! - [`workload`]: what a workload provides.
//! - [`plan`]: how large a run is.
//! - [`bed`]: a cluster on each fabric: [`threads`], processes, or a [`simulation`].
//! - [`workers`]: the coroutines of one worker, the same on every fabric.
//! - [`stand`]: the stages that all workers go through together, within a process and between them.
//! - [`process`]: the processes of a cluster on shared memory or TCP. [`link`]: what they say.
//! - [`read`]: what checks read.
//! - [`tally`], [`figures`]: what is counted, and how it is reported.

mod bed;
mod figures;
mod link;
mod plan;
mod process;
mod read;
mod simulation;
mod stand;
mod tally;
mod threads;
#[cfg(test)]
pub(crate) mod trial;
mod workers;
mod workload;

pub(crate) use bed::run;
pub(super) use figures::Figures;
pub(crate) use plan::{Length, Plan, ProtocolOf};
pub(crate) use process::{MEMBER, be_a_member};
pub(crate) use read::read;
pub(crate) use simulation::simulate;
pub(crate) use tally::Gathered;
pub(crate) use workload::{ClusterWorkload, Place, Sound};
