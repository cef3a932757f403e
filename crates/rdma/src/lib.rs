//! Registered memory and verbs: how words on one node are reached from another.
//!
//! - [`Region`]: memory that is reserved once, committed as needed, seen as words, and addressed by offsets that mean the
//!   same wherever it is mapped.
//! - [`Offset`], [`Remote`]: typed addresses.
//!
//! Verbs (reads, writes and atomics on another node's words, and messages) are not written yet.

mod address;
mod bytes;
mod region;

pub use address::{NodeId, Offset, RegionId, Remote};
pub use bytes::{read_bytes, words_for, write_bytes};
pub use region::{OutOfBounds, ROOTS, Region, RegionError};
