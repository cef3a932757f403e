//! A cluster of three nodes over TCP. One node owns a store that the others access. It has one
//! mood: nothing of this fabric is simulated.

use std::{
    net::SocketAddr,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering::Relaxed},
    },
};

use drtm_htm::NoHtm;
use drtm_kv::Store;
use drtm_rdma::{Endpoint, Fabric, LocalConfig, NodeId, Offset, Region, RegionId, Remote, TcpConfig};

use crate::{
    fabric::{FabricOf, join},
    peers::{Job, OWNER, PATIENCE, on_threads, swap_by_nic},
    support::MIB,
};

pub(crate) type PortOf = <FabricOf as Fabric>::Port;

/// Whether the fabric tears READs on purpose. On this one, torn READs happen only by chance.
pub(crate) const TEARS: bool = false;

/// The only mood: the machine as it is.
pub(crate) fn moods() -> Vec<LocalConfig> {
    vec![LocalConfig::perfect()]
}

/// The owner's store, in memory of its own.
pub(crate) fn store(engine: NoHtm, capacity: u64) -> Store<NoHtm> {
    let memory = Arc::new(Region::anonymous(engine, capacity).expect("a region"));
    Store::in_region_of(OWNER, 0, memory).expect("a store").hinting_at_once()
}

/// Moves the calling thread to the network namespace of a node, where `scripts/netns/test` has made
/// some. What it connects from then on, it connects from there.
fn enter(node: NodeId) {
    let Ok(processes) = std::env::var("DRTM_NAMESPACES") else { return };
    let process = processes.split(',').nth(node.0.into()).expect("a namespace for each node");
    let namespace = std::fs::File::open(format!("/proc/{process}/ns/net")).expect("a process");
    let kind = Some(rustix::thread::LinkNameSpaceType::Network);
    rustix::thread::move_into_link_name_space(namespace.as_fd(), kind).expect("it may be entered");
}

/// Returns the addresses of a cluster's nodes: ports of a loopback address that only this process
/// uses, or of the address of each node's namespace.
fn addresses() -> [SocketAddr; 3] {
    static NUMBER: AtomicU16 = AtomicU16::new(0);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let first = 10_000 + 3 * NUMBER.fetch_add(1, Relaxed);
    let apart = std::env::var_os("DRTM_NAMESPACES").is_some();
    [0, 1, 2].map(|node| {
        let address = if apart { [10, 77, 0, 2 + node as u8] } else { [127, 64 | high & 63, middle, low] };
        (address, first + node).into()
    })
}

#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) store: Store<NoHtm>,
    /// The fabric of each node, as its process would have it.
    nodes: [FabricOf; 3],
    region: RegionId,
}

impl Cluster {
    pub(crate) fn new(config: LocalConfig) -> Self {
        Self::with_capacity(config, 256 * MIB)
    }

    pub(crate) fn with_capacity(config: LocalConfig, capacity: u64) -> Self {
        Self::of(store(NoHtm, capacity), config)
    }

    /// Ignores the moods, which are those of the in-process fabric.
    pub(crate) fn of(store: Store<NoHtm>, _config: LocalConfig) -> Self {
        let addresses = addresses();
        let nodes = [0, 1, 2].map(|node: u16| {
            let config = TcpConfig::new(NodeId(node), addresses[usize::from(node)], [7; 32]).patience(PATIENCE);
            let peers = (0..3).map(|peer| (NodeId(peer), addresses[usize::from(peer)]));
            let config = peers.fold(config, |config, (peer, address)| config.peer(peer, address));
            enter(NodeId(node));
            join(config)
        });
        let owner = &nodes[usize::from(OWNER.0)];
        swap_by_nic(owner, &store);
        let region = owner.register(OWNER, Arc::clone(store.region())).expect("room for a region");
        Self { store, nodes, region }
    }

    pub(crate) fn at(&self, offset: Offset) -> Remote {
        Remote { node: OWNER, region: self.region, offset }
    }

    /// Creates an endpoint for the calling thread.
    pub(crate) fn endpoint(&self, node: NodeId) -> Endpoint<PortOf> {
        enter(node);
        self.nodes[usize::from(node.0)].endpoint(node).expect("room for an endpoint")
    }

    /// Runs jobs concurrently.
    pub(crate) fn together(&self, jobs: Vec<(NodeId, Job)>) {
        on_threads(&|node| self.endpoint(node), jobs);
    }
}
