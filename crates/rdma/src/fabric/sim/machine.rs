//! A simulated machine with the hardware of HADES: Bloom filters beside the last-level cache and in
//! NICs, tags of writing transactions in the directory, and a directory that commits lock in part.
//!
//! It is simulated, and so is everything that is computed with it: no such processor exists. The
//! design is that of "HADES: Hardware-Assisted Distributed Transactions in the Age of Fast Networks
//! and SmartNICs", ISCA 2024.
//! `docs/hades.md` says what is modelled, what the paper leaves open, and how it is closed here.
//!
//! # The parts
//!
//! - [`MachineProfile`]: every constant, with its source.
//! - [`Node`]: a node's caches, directory, filters and NIC. It decides what happens, and charges
//!   cycles for it. It has no clock and no network: the caller passes the time, and carries
//!   [`Message`]s.
//! - [`TxId`]: a transaction's attempt. Its filters belong to it from [`Node::begin`] until
//!   [`Progress::Committed`], or [`Node::abort`].
//! - [`Filter`]: a Bloom filter.
//!
//! Addresses are [`Line`]s of a node's memory. The machine holds no data: values are the caller's,
//! who keeps what a transaction wrote until it has committed. [`Node::moves`] says what moved
//! between caches and memory, for callers that follow values.
//!
//! # The caller's obligations
//!
//! - Fetches and messages of one transaction from its own node to another one arrive in the order
//!   of sending. All others may arrive in any order, and late.
//! - [`Node::record`] precedes the first fetch from a node, so that [`Node::abort`] reaches it.
//! - A transaction that is [`Stop::Squashed`] is aborted: [`Node::abort`]. If another node squashes
//!   it in answer to a fetch, its own node gets a [`Message::Squash`].
//! - A [`Stop::Denied`] operation has changed nothing, and is repeated later.
//! - From [`Node::hold`] to [`Node::release`], a transaction accesses only held lines.
//!
//! # Example
//!
//! A transaction that writes a line of its own node, and one of another node:
//!
//! ```
//! use drtm_rdma::{NodeId, machine::{Fetch, Kind, Line, MachineProfile, Message, Node, Progress}};
//!
//! let profile = &MachineProfile::HADES;
//! let [mut own, mut other] = [0, 1].map(|id| Node::new(NodeId(id), profile));
//! let tx = own.begin(0).expect("a pair of filters is free");
//! let wrote = own.access(0, tx, Line(7), Kind::Write);
//! assert_eq!((wrote.stop, wrote.cycles), (None, 40 + 200 + 2), "the directory, memory and the filter's hash");
//! assert_eq!(own.access(0, tx, Line(7), Kind::Write).cycles, 2, "in the first-level cache");
//!
//! // Half of line 9 is written, so it is fetched.
//! own.record(tx, NodeId(1), &[Line(9)]);
//! assert_eq!(other.fetch(0, tx, Fetch::Write, &[Line(9)]).stop, None);
//!
//! // Both lock what was accessed, and the other node acknowledges.
//! let sent = own.commit_step(tx);
//! let [(NodeId(1), intend)] = &sent.messages[..] else { panic!("{sent:?}") };
//! let answer = other.receive(0, intend);
//! let [(NodeId(0), ack @ Message::Ack { .. })] = &answer.messages[..] else { panic!("{answer:?}") };
//! own.receive(0, ack);
//! while own.commit_step(tx).progress != Progress::Committed {}
//! ```

mod buffers;
mod cache;
mod commit;
mod directory;
mod filter;
mod link;
mod memory;
mod message;
mod mutation;
mod network;
mod nic;
mod node;
mod overheads;
mod private;
mod profile;
mod software;
mod storage;
#[cfg(test)]
mod tests;

pub use filter::{Filter, Shape};
pub use memory::Move;
pub use message::{Message, Progress, Served, Step, Stop, Stopped, TxId};
#[cfg(any(test, feature = "faults"))]
pub use mutation::{Mutation, with_fault};
pub use nic::Fetch;
pub use node::{Counts, Node};
pub use overheads::Software;
pub use private::Kind;
pub use profile::{Level, Line, MachineProfile, Replacement};
pub use storage::Storage;
