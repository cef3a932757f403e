//! Tests that simulated clusters end and come back, and that the soak's checks find those with
//! deliberate faults.

use std::time::{Duration, Instant};

use drtm_drive::{
    Plain,
    faulty::{Faulty, with_fault},
};
use drtm_rdma::NicProfile;
use drtm_txn::{Config, Mutation, cluster::Protocol};

use super::{rounds, tally::Tally};
use crate::lasting::bank::Shape;

fn shape(protocol: Protocol, owners: u16, backups: u16) -> Shape {
    let lease = Duration::from_millis(1);
    Shape { owners, clients: 2, backups, protocol, lease, accounts: u64::from(owners) * super::ACCOUNTS }
}

/// Simulates one cluster.
fn simulated<S: Config<Engine = drtm_htm::NoHtm>>(shape: Shape, is_lossy: bool, seed: u64) -> Tally {
    rounds::soak::<S>(shape, (&NicProfile::CONNECTX_4, is_lossy), seed, Instant::now()).expect("it runs")
}

#[test]
fn sound_clusters_pass_in_all_protocols() {
    let mut all = Tally::default();
    for (protocol, seed) in Protocol::with_names().zip(0..) {
        let (owners, backups) = [(3, 1), (4, 2)][seed as usize % 2];
        let tally = simulated::<Plain>(shape(protocol, owners, backups), protocol == Protocol::FASST, seed);
        assert!(!tally.wrong.is_any(), "{}, {seed}: {:#?}", protocol.name, tally.findings);
        assert!(tally.acknowledged > 100, "{tally:?}");
        eprintln!("{}, {seed}: {} transfers", protocol.name, tally.acknowledged);
        all.add(tally);
    }
    assert!(all.kills > 5 && all.restarts > 5 && all.pauses > 0 && all.partitions > 0, "{all:?}");
    assert!(!all.failovers.is_empty() && all.failovers.iter().all(|time| !time.is_zero()), "{all:?}");
}

/// Returns whether a soak finds a fault.
fn is_found(fault: Mutation) -> bool {
    let soak = |seed| {
        let protocol = Protocol::ALL[seed as usize % Protocol::ALL.len()];
        // Without the fault, the same clusters pass.
        let shape = shape(protocol, 3, 1);
        simulated::<Faulty>(shape, false, seed).wrong.is_any() && !simulated::<Plain>(shape, false, seed).wrong.is_any()
    };
    with_fault(fault, || (0..30).any(soak))
}

#[test]
fn clusters_with_deliberate_faults_are_found_out() {
    assert!(is_found(Mutation::PartLearnt), "a node serves that has not learnt all rows");
    assert!(is_found(Mutation::LeaseIgnored), "a node serves without a lease");
}
