//! Transactions over counters of three bits: memory, and buckets, have the same names again after
//! eight uses. Nothing that is wrong commits, or is shown.
//!
//! ```text
//! cargo test --package drtm-txn --features narrow --test narrow
//! ```
//!
//! Each case is run once more with a deliberate fault: turns are not counted. Then it must fail, so
//! that it tests something.

mod buckets;
mod progress;
mod records;
mod spans;
mod world;
