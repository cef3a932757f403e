//! The behaviour of the crate, seen from outside.
//!
//! Model checking is in `tests/loom.rs`, the inspection of generated code in `tests/codegen.rs`.
#![cfg(not(feature = "model"))]

mod emulated;
mod engines;
mod model;
mod strong_atomicity;
mod support;
