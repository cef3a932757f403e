//! Model checking of the store: every interleaving, and every value that weak memory lets a load
//! return, of small cases.
//!
//! ```text
//! cargo test --package drtm-kv --features loom --test loom
//! ```

mod bytes;
mod cache;
mod explore;
mod hash;
mod held;
mod remote;
mod spans;
mod tree;
#[cfg(feature = "narrow")]
mod turns;

#[path = "../transacted/mod.rs"]
mod transacted;
