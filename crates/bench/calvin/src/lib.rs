//! Calvin's protocol on the fabrics of drtm: deterministic transactions, to compare with.
//!
//! - [`Source`]: a node's clients. Its *sequencer* collects their transactions for an epoch,
//!   numbers them, and sends each participant its share of the batch (`sequencer`). The order of
//!   all transactions is by epoch, node and number ([`Place`]).
//! - The *scheduler* of a node requests locks in that order (`scheduler`, `locks`).
//! - *Workers* execute (`worker`). Each participant of a transaction reads its rows, and sends them
//!   to those that write. These wait for all rows, execute the whole transaction, and keep what
//!   they own. There is no commit protocol, as all results are equal.
//! - The *receiver* takes a node's messages (`receiver`, `wire`).
//! - [`Program`]: what an application provides. [`tpcc`]: TPC-C.
//! - [`simulate`] runs a cluster in virtual time, [`run`] on threads and any fabric. [`replay`]
//!   runs its transactions again, one after the other.
//!
//! Rows are in hash maps of each node ([`Store`]), and not in drtm's own tables: locks isolate all
//! accesses, so that record locks and versions would be paid for and not used.
//!
//! Left out: replicas of sequencers and of nodes, checkpoints, and storage on disks (decision 121).

#![forbid(unsafe_code)]

mod cluster;
mod costs;
mod error;
mod key;
mod locks;
mod mutation;
mod node;
mod order;
mod plan;
mod program;
mod queue;
mod receiver;
mod scheduler;
mod sequencer;
mod store;
#[cfg(test)]
mod tests;
pub mod tpcc;
mod wire;
mod worker;

pub use cluster::{NodeRows, Outcome, replay, run, simulate};
pub use error::Error;
pub use key::{Key, Row, Sets};
pub use order::Place;
pub use plan::Plan;
pub use program::{Aborted, Program, Rows};
pub use sequencer::Source;
pub use store::Store;
