//! Access to another node's records over TCP: runs the tests of the in-process fabric. Each node
//! has sockets and a thread of its own.
//!
//! The tests `hash_peer` are left out: their hundreds of thousands of lookups are a round trip each
//! here, and their results do not depend on the fabric.
#![cfg(not(feature = "model"))]

mod cluster;
mod fabric;
#[allow(dead_code)]
#[path = "../suite/peers.rs"]
mod peers;
#[path = "../suite/remote_records.rs"]
mod remote_records;
#[path = "../suite/remote_stress.rs"]
mod remote_stress;
#[allow(dead_code)]
#[path = "../suite/support.rs"]
mod support;
#[path = "../transacted/mod.rs"]
mod transacted;
