//! Records of other nodes, by one-sided verbs.
//!
//! Verbs act on a record's words without its owner doing anything. [`RecordPeer`] reads, locks and
//! writes a record whose place is known, such as from [`HashPeer::find`](crate::HashPeer::find).
//! What takes more than one record, such as an insertion, is for the owner to do.
//!
//! # One-sided reads
//!
//! A READ may fetch a record's lines at different moments. So tables for peers have a checksum
//! behind each value, and a fetched record is valid only if its checksum is right. Its version,
//! incarnation and key are then as valid as for a local reader.
//!
//! # One-sided writes
//!
//! A peer writes a record by two WRITEs of one batch: version, value and checksum, and then the
//! state word, which releases the lock. The words of one WRITE become visible in any order, while
//! WRITEs stay in order. So whatever part of the first is visible, the lock is held until all of it
//! is. A peer that reads meanwhile finds a wrong checksum, or all of one version. A reader of the
//! owner does not believe a value from under a peer's lock (see `docs/decisions/0099`).
//!
//! # Changing a state word
//!
//! Where a NIC's compare-and-swap is atomic with those of processors, peers lock by it. Elsewhere
//! only the owner's processors may swap a state word, and locking fails with
//! [`RemoteError::NotAtomic`]. A lock is released by a CAS that expects the holder's own state, so
//! no thread can release another's lock. Only the batch that ends a write stores the free state,
//! and it requires the lock.

pub(crate) mod cache;
mod error;
mod fetch;
mod image;
mod lease;
mod lock;
pub(crate) mod peer;
mod record;
mod write;

pub use error::RemoteError;
pub use lease::Leased;
pub use lock::RecordLock;
pub use record::{RecordPeer, Standing};
