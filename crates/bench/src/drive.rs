//! What all workloads share: threads that run transactions against a database, what is counted of them, and how it is told.

mod crew;
mod engine;
mod latency;
mod options;
mod outcome;
mod population;
mod progress;
mod workload;

pub(crate) use crew::{Client, Done, Tally, Until, run};
#[cfg(test)]
pub(crate) use engine::Limit;
pub(crate) use engine::{EngineName, Task};
pub(crate) use options::Options;
pub(crate) use outcome::ok_or_violations;
pub(crate) use population::{if_there, of_piece, pieces, spread};
pub(crate) use workload::{Workload, load_quietly, measure, miscounted};
