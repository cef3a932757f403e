//! Records and tables of other nodes.
//!
//! Two ways lead there. *One-sided* verbs act on a record's words without its owner doing anything:
//! [`RecordPeer`] reads, locks and writes a record whose place is known, as from
//! [`HashPeer::find`](crate::HashPeer::find). *Messages* ask the owner to do what takes more than
//! one record: a [`Service`] on the owner carries out what a [`TablePeer`] asks for.
//!
//! # Reading one-sidedly
//!
//! A READ may bring a record's lines from different moments. So tables that peers read keep a
//! checksum behind each value, and what was fetched is believed if it fits. What the version, the
//! incarnation and the key say is then as true as for a local reader.
//!
//! # Writing one-sidedly
//!
//! As a local writer does it, step by step, each step a WRITE of its own, since the bytes of one
//! become visible in any order while WRITEs keep theirs: the version is marked, then value and
//! checksum are written, then the new version, then the lock is given up. All of that is one batch.
//! Readers, local or not, find the record marked, or torn, or whole; never wrong.
//!
//! # Who changes a state word
//!
//! Where a NIC's compare-and-swap is atomic with those of processors, peers lock by it. Elsewhere
//! only the owner's processors may swap a state word, and peers lock by message. That is decided in
//! one place (see `lock`), and users need not know. A lock is given up by a swap that expects the
//! holder's own state, so nobody can free what he has not locked; only the batch that ends a write
//! stores the free state, and it can only be had with the lock.

mod backoff;
mod client;
mod error;
mod execute;
mod fetch;
mod image;
mod lease;
mod lock;
mod record;
mod refusal;
mod service;
mod wire;
mod write;

pub use client::{Page, PeerRow, TablePeer};
pub use error::RemoteError;
pub use lease::Leased;
pub use lock::RecordLock;
pub use record::{RecordPeer, Standing};
pub use refusal::Refusal;
pub use service::Service;
pub use wire::TableId;
pub use write::Unwritten;
