//! Studies of transactional memory and of the memory store, and the figures of the papers beside
//! what was published.
//!
//! Each measurement can also be made from Rust. [`htm`] runs htm transactions of a chosen size and
//! shape and counts their commits and aborts:
//!
//! ```
//! use drtm_htm::Profile;
//! use drtm_paper::htm::{Load, Machine, Setup, Testbed, abort_rate};
//!
//! let fits = Load::write(32 << 10);
//! let overflows = Load::write((32 << 10) + 64);
//! let testbed = Testbed::new(Setup::on(Machine::Emulated(Profile::L1_32K_8)), &[fits, overflows])?;
//! assert!(abort_rate(&testbed.run(fits, 100)?) < 0.01);
//! assert_eq!(abort_rate(&testbed.run(overflows, 100)?), 1.0);
//! # Ok::<(), drtm_paper::Error>(())
//! ```
//!
//! - [`htm`]: studies of transactional memory. `whole` runs a whole transaction in one htm
//!   transaction or under one lock, `footprint` measures what it touches; `pieces` does both with
//!   the pieces of chopped transactions.
//! - [`kv`]: the memory store beside other maps.
//! - [`paper`]: the figures of the papers, regenerated beside the published values.

#![forbid(unsafe_code)]

mod error;
mod footprint;
pub mod htm;
pub mod kv;
pub mod paper;
mod pieces;
mod whole;

pub use error::Error;
