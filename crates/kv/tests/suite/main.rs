//! The behaviour of the store, seen from outside. Model checking is in `tests/loom`.
#![cfg(not(feature = "model"))]

mod bytes_errors;
mod bytes_model;
mod bytes_noting;
mod bytes_phantoms;
mod cache;
mod cluster;
mod empty;
mod hash_errors;
mod hash_model;
mod hash_peer;
mod hash_stress;
mod held_model;
mod held_stress;
mod images;
mod leases;
mod peers;
mod remote_records;
mod remote_stress;
mod rooms;
mod support;
mod tree_errors;
mod tree_model;
mod tree_noting;
mod tree_phantoms;
mod tree_scan;
mod tree_skip;
mod tree_stress;
mod visit;

#[path = "../transacted/mod.rs"]
mod transacted;
