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
//! A peer writes a record in the same steps as a local writer, each as a WRITE of its own. The
//! bytes of one WRITE become visible in any order, while WRITEs stay in order. The version is
//! marked, value and checksum are written, the new version is written, and the lock is released.
//! All of that is one batch. A reader, local or not, finds the record marked, torn, or consistent;
//! never wrong.
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
