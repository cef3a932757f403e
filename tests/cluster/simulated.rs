//! Clusters that are simulated as a whole.
//!
//! They stand together so that libtest runs them one after the other: each takes a processor for
//! itself, and threads of other tests that pass messages would wait for a slice of it at each.

mod coordinators;
mod cut_off;
mod failover;
mod lost;
mod splits;
mod stale;
mod unmet;

use std::time::Duration;

use drtm_htm::NoHtm;
use drtm_membership::Register;
use drtm_rdma::{Endpoint, Fabric, SimFabric};

/// Has a register go on, whose time is the simulation's and was `born` when this began.
async fn advances(
    register: Register,
    born: Duration,
    endpoint: &Endpoint<<SimFabric<NoHtm> as Fabric>::Port>,
    is_over: impl Fn() -> bool,
) {
    let began = endpoint.now();
    while !is_over() {
        register.advance(born + endpoint.now().since(began));
        endpoint.sleep(Duration::from_micros(20)).await;
    }
}
