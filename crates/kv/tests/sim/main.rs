//! Access to another node's records on a simulated cluster: runs the tests of the in-process fabric
//! in virtual time.
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
mod runs;
#[allow(dead_code)]
#[path = "../suite/support.rs"]
mod support;
#[path = "../transacted/mod.rs"]
mod transacted;
