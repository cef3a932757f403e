//! A node that is gone is replaced by one at another address, under load: it gets what the other
//! had, and whatever claims the number and is somewhere else is refused by all.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::{NodeId, TcpFabric, block_on};
use drtm_testing::{ports::free_addresses, rounds};
use drtm_txn::{
    Error,
    cluster::{ClusterError, Node, Protocol},
};

use crate::{
    bed::Tested,
    killed::{End, Joined, OWNERS, end_one},
    process::Owner,
};

/// What a machine knows of the others that has not heard of replacements: a directory with the
/// first addresses.
pub(crate) struct Stale(pub(crate) PathBuf);

impl Stale {
    pub(crate) fn new(directory: &Path) -> Self {
        let stale = directory.join("stale");
        fs::create_dir(&stale).expect("a disk");
        fs::copy(directory.join("addresses"), stale.join("addresses")).expect("a disk");
        // All agree by one register.
        std::os::unix::fs::symlink(directory.join("view"), stale.join("view")).expect("a disk");
        Self(stale)
    }
}

/// Replaces an owner that is out: those that are started from now on are told where it is.
pub(crate) fn replace<F: Joined>(
    client: &Node<F, Tested>,
    protocol: Protocol,
    node: u16,
    (directory, stale): (&Path, &Stale),
) {
    let file = directory.join("addresses");
    let mut addresses: Vec<_> = {
        let lines = fs::read_to_string(&file).expect("they are chosen");
        lines.lines().map(|line| line.parse().expect("an address")).collect()
    };
    let (address, next) = (free_addresses(1)[0], (node + 1) % OWNERS);
    let endpoint = client.endpoint().expect("room");
    let worker = client.worker(&endpoint).expect("few");
    let refused = |node: u16, address| match block_on(&endpoint, worker.replace(NodeId(node), address)) {
        Err(Error::Cluster(error)) => error,
        other => panic!("{other:?}"),
    };
    let taken = refused(node, addresses[usize::from(next)]);
    assert!(matches!(taken, ClusterError::AddressTaken { .. }), "{taken}");
    let here = refused(next, address);
    assert!(matches!(here, ClusterError::StillHere { node: NodeId(other) } if other == next), "{here}");
    let unknown = refused(77, address);
    assert!(matches!(unknown, ClusterError::NoSuchNode { node: NodeId(77) }), "{unknown}");
    block_on(&endpoint, worker.replace(NodeId(node), address)).expect("it is gone");
    addresses[usize::from(node)] = address;
    let lines = addresses.iter().map(|address| format!("{address}\n"));
    fs::write(&file, lines.collect::<String>()).expect("it is there");
    // The machine that it was comes back.
    let mut before = Owner::spawn::<F>(protocol, node, &stale.0);
    assert!(!before.says("begun"), "it joins");
}

#[test]
fn a_machine_takes_the_place_of_a_dead_one() {
    for round in 0..rounds(1) {
        let after = Duration::from_micros(2_300 * round + 20_000);
        for (protocol, first) in [(Protocol::FASST, 1), (Protocol::DRTM_H, 0)] {
            end_one::<TcpFabric<NoHtm>>(protocol, first, End::Replaced, after);
        }
    }
}
