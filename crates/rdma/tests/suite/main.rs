//! The behaviour of verbs, fabrics and the executor, seen from outside.
//!
//! Regions have their own tests in `tests/region.rs`; that nothing is allocated is checked in
//! `tests/allocations.rs`.
#![cfg(not(drtm_loom))]

mod agent;
mod conformance;
mod errors;
mod executor;
mod group;
mod imperfections;
mod kills;
mod messages;
mod nodes;
mod processes;
mod regions;
mod stress;
mod support;
mod waiting;
