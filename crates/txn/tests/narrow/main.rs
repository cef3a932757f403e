//! Transactions with counters of three bits: the names of memory and of buckets repeat after eight
//! uses. Nothing inconsistent commits or is visible.
//!
//! ```text
//! cargo test --package drtm-txn --features narrow --test narrow
//! ```
//!
//! Each case runs once more with a deliberate fault: turns are not counted. Then it must fail,
//! which shows that it tests something.

mod buckets;
mod cluster;
mod progress;
mod records;
mod spans;
mod world;
