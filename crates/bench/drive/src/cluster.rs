//! Workloads on several nodes: nodes are started on a fabric and loaded, their workers run
//! transactions, and what they did is added up and checked over the whole cluster.
//!
//! - `workload`: what a workload provides.
//! - `plan`: how large a run is.
//! - `testbed`: a cluster on each fabric: `threads`, processes, or a `simulation`.
//! - `workers`: the coroutines of one worker, the same on every fabric.
//! - `stages`: the stages of a run, within a process and between processes.
//! - `process`: the processes of a cluster on shared memory or TCP. `pipes`: their messages.
//! - `read`: rows that are read by checks, and before a run.
//! - `absent`: what refuses clusters in a program that is built without them.
//! - `tally`, `figures`: what is counted, and how it is reported.

#[cfg(not(feature = "cluster"))]
mod absent;
#[cfg(all(feature = "cluster", debug_assertions))]
#[doc(hidden)]
pub mod compiled;
mod figures;
mod nearby;
#[cfg(feature = "cluster")]
mod pipes;
#[cfg(feature = "cluster")]
mod places;
#[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "what fills it in is absent"))]
mod plan;
#[cfg(feature = "cluster")]
mod process;
mod read;
#[cfg(feature = "studies")]
mod simulation;
#[cfg(feature = "cluster")]
mod stages;
#[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "what fills it in is absent"))]
mod tally;
#[cfg(feature = "cluster")]
mod testbed;
#[cfg(feature = "cluster")]
mod threads;
pub mod trial;
#[cfg(feature = "cluster")]
mod workers;
mod workload;

#[cfg(not(feature = "cluster"))]
pub use absent::{run, run_as_member, run_member};
pub use figures::Figures;
pub use nearby::Nearby;
#[cfg(feature = "cluster")]
pub use places::Places;
pub use plan::{Length, Plan, ProtocolOf};
#[cfg(feature = "cluster")]
pub use process::{run_as_member, run_member};
pub use read::{look_up, read};
#[cfg(feature = "studies")]
pub use simulation::{OfMachines, Overheads, simulate, simulate_machines};
pub use tally::Gathered;
#[cfg(feature = "cluster")]
pub use testbed::run;
pub use workload::{ClusterWorkload, Place};
