//! Tests of the crate's public behaviour.
//!
//! Model checking is in `tests/loom.rs`.
#![cfg(not(feature = "model"))]

#[cfg(target_arch = "x86_64")]
mod codegen;
mod emulated;
mod engines;
mod model;
mod strong_atomicity;
mod support;
