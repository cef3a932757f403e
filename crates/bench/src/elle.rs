//! Histories of clients of the database, written in the form that Elle reads, and judged here:
//! `drtm-bench history`.
//!
//! - [`record`]: what a client requested and saw, transaction by transaction.
//! - [`draw`]: random transactions of the three workloads.
//! - [`client`]: a thread that runs them, and records them in its [`journal`]. [`store`]: what each
//!   operation does.
//! - [`run`]: all clients, and the last reads. [`cluster`]: both on several nodes.
//! - [`edn`]: the file.
//! - [`judge`]: a record as a [`History`](crate::history::History), which is checked.

mod client;
mod cluster;
mod command;
mod draw;
mod edn;
mod journal;
mod judge;
mod record;
mod run;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use cluster::Histories;
pub(crate) use command::Args;
