//! What one node does to another's records and tables, on shared memory: the very tests that the
//! in-process fabric passes, over nodes each of which has mapped the owner's region for itself.
#![cfg(not(feature = "model"))]

mod cluster;
/// The in-process cluster, for what does not depend on the fabric.
#[allow(dead_code)]
#[path = "../suite/cluster.rs"]
mod local;
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
