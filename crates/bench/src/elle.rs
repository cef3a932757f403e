//! `drtm-bench history`: records histories of the database's clients in Elle's format, and checks
//! them.
//!
//! - [`record`]: what a client requested and read, transaction by transaction.
//! - [`draw`]: random transactions of the three workloads.
//! - [`client`]: a thread that runs them, and records them in its [`journal`]. [`store`]: the
//!   operations on the database.
//! - [`run`]: all clients, and the last reads. [`cluster`]: both on several nodes.
//! - [`edn`]: the file.
//! - [`judge`]: converts a record into a [`History`](crate::history::History), and checks it.

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
