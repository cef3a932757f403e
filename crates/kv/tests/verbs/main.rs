//! What one node does to another's records and tables, by RDMA: the very tests that the
//! in-process fabric passes, over nodes each of which has queue pairs of the device that there is.
//!
//! Without those of `hash_peer` and `tree_peer`: hundreds of thousands of lookups one after the
//! other, each a round trip here, whose answers do not depend on the fabric.
#![cfg(not(feature = "model"))]

#[path = "../tcp/cluster.rs"]
mod cluster;
mod fabric;
#[allow(dead_code)]
#[path = "../suite/peers.rs"]
mod peers;
#[path = "../suite/remote_records.rs"]
mod remote_records;
#[path = "../suite/remote_service.rs"]
mod remote_service;
#[path = "../suite/remote_stress.rs"]
mod remote_stress;
#[allow(dead_code)]
#[path = "../suite/support.rs"]
mod support;
#[path = "../transacted/mod.rs"]
mod transacted;
