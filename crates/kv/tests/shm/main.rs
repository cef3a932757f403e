//! Access to another node's records over shared memory: runs the tests of the in-process fabric.
//! Each node maps the owner's region itself.
#![cfg(not(feature = "model"))]

mod cluster;
#[path = "../suite/hash_peer.rs"]
mod hash_peer;
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
