//! A cluster of three nodes on shared memory. One node owns a store that the others access. It has
//! one mood: nothing of this fabric is simulated.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use drtm_htm::NoHtm;
use drtm_kv::Store;
use drtm_rdma::{
    Endpoint, Fabric, LocalConfig, NodeId, Offset, Region, RegionId, Remote, ShmConfig, ShmFabric, ShmPort,
};

use crate::{
    peers::{Job, OWNER, PATIENCE, on_threads, swap_by_nic},
    support::MIB,
};

pub(crate) type PortOf = ShmPort<NoHtm>;

/// Whether the fabric tears READs on purpose. On this one, torn READs happen only by chance.
pub(crate) const TEARS: bool = false;

/// The only mood: the machine as it is.
pub(crate) fn moods() -> Vec<LocalConfig> {
    vec![LocalConfig::perfect()]
}

/// The owner's store, in memory that other processes can map.
pub(crate) fn store(engine: NoHtm, capacity: u64) -> Store<NoHtm> {
    let memory = Arc::new(Region::shared(engine, capacity).expect("a region"));
    Store::in_region_of(OWNER, 0, memory).expect("a store").hinting_at_once()
}

/// A directory that is removed on drop.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        // Files that a failed test leaves behind are no second failure.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) store: Store<NoHtm>,
    /// The fabric of each node, as its process would have it.
    nodes: [ShmFabric<NoHtm>; 3],
    region: RegionId,
    _directory: Arc<Directory>,
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
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("drtm-kv-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let directory = Directory(std::env::temp_dir().join(name));
        let nodes = [0, 1, 2].map(|node| {
            let config = ShmConfig::new("kv", NodeId(node)).directory(&directory.0).patience(PATIENCE);
            ShmFabric::join(NoHtm, config).expect("a group")
        });
        let owner = &nodes[usize::from(OWNER.0)];
        swap_by_nic(owner, &store);
        let region = owner.register(OWNER, Arc::clone(store.region())).expect("room for a region");
        Self { store, nodes, region, _directory: Arc::new(directory) }
    }

    pub(crate) fn at(&self, offset: Offset) -> Remote {
        Remote { node: OWNER, region: self.region, offset }
    }

    pub(crate) fn endpoint(&self, node: NodeId) -> Endpoint<PortOf> {
        self.nodes[usize::from(node.0)].endpoint(node).expect("room for an endpoint")
    }

    /// Runs jobs concurrently.
    pub(crate) fn together(&self, jobs: Vec<(NodeId, Job)>) {
        on_threads(&|node| self.endpoint(node), jobs);
    }
}
