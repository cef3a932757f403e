//! The behaviour of the store, seen from outside. Model checking is in `tests/loom.rs`.
#![cfg(not(drtm_loom))]

mod hash_errors;
mod hash_model;
mod hash_peer;
mod hash_stress;
mod support;
mod tree_errors;
mod tree_model;
mod tree_noting;
mod tree_phantoms;
mod tree_stress;
