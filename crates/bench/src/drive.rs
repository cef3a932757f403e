//! What all workloads share: threads that run transactions against a database, what is counted of them, and how it is told.

mod crew;
mod engine;
mod latency;
mod options;
mod outcome;
mod population;
mod progress;
mod workload;

pub(crate) use crew::{Client, Done, Until};
pub(crate) use engine::EngineName;
#[cfg(test)]
pub(crate) use engine::Limit;
pub(crate) use options::{Options, seconds};
pub(crate) use population::{if_there, of_piece, pieces, spread};
pub(crate) use workload::{Finished, Pace, Run, Workload, measure, miscounted};
