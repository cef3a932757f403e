//! The behaviour of verbs, fabrics and the executor, seen from outside.
//!
//! That nothing is allocated is checked in `tests/allocations.rs`.
#![cfg(not(feature = "model"))]

mod agent;
mod conformance;
mod errors;
mod executor;
mod group;
mod growth;
mod hostile;
mod imperfections;
mod kills;
mod letters;
mod links;
mod loopback;
mod machines;
mod messages;
#[cfg(feature = "verbs")]
mod nics;
mod nodes;
mod processes;
mod region;
mod regions;
mod simulated;
mod simulation;
mod stress;
mod support;
mod untrusted;
mod virtual_time;
mod visits;
mod waiting;
