//! The behaviour of verbs, fabrics and the executor, seen from outside.
//!
//! That nothing is allocated is checked in `tests/allocations.rs`.
#![cfg(not(feature = "model"))]

mod conformance;
mod errors;
mod executor;
mod imperfections;
mod messages;
mod region;
mod regions;
mod stress;
mod support;
