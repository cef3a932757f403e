//! A cluster of three nodes within the process, in every mood of the fabric. One node owns a store
//! that the others access.

use std::sync::Arc;

use drtm_htm::NoHtm;
use drtm_kv::Store;
use drtm_rdma::{
    Atomicity, Endpoint, Fabric, LocalConfig, LocalFabric, LocalPort, NodeId, Offset, Region, RegionId, Remote, Tearing,
};

use crate::{
    peers::{Job, OWNER, on_threads, swap_by_nic},
    support::MIB,
};

pub(crate) type PortOf = LocalPort<NoHtm>;

/// Whether the fabric tears READs on purpose.
pub(crate) const TEARS: bool = true;

/// Returns the moods: as kind as memory, and as harsh as verbs allow, with each kind of atomics and
/// of torn reads.
pub(crate) fn moods() -> Vec<LocalConfig> {
    let mut moods = vec![LocalConfig::perfect(), LocalConfig::perfect().atomicity(Atomicity::None)];
    moods.extend((0..3).map(LocalConfig::harsh));
    moods.extend((3..5).map(|seed| LocalConfig::harsh(seed).atomicity(Atomicity::Global)));
    moods.push(LocalConfig::harsh(5).tearing(Tearing::Words).atomicity(Atomicity::Global));
    moods
}

/// The owner's store.
pub(crate) fn store(engine: NoHtm, capacity: u64) -> Store<NoHtm> {
    let memory = Arc::new(Region::anonymous(engine, capacity).expect("a region"));
    Store::in_region_of(OWNER, 0, memory).expect("a store").hinting_at_once()
}

#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) store: Store<NoHtm>,
    pub(crate) fabric: LocalFabric<NoHtm>,
    region: RegionId,
}

impl Cluster {
    pub(crate) fn new(config: LocalConfig) -> Self {
        Self::with_capacity(config, 256 * MIB)
    }

    pub(crate) fn with_capacity(config: LocalConfig, capacity: u64) -> Self {
        Self::of(store(NoHtm, capacity), config)
    }

    pub(crate) fn of(store: Store<NoHtm>, config: LocalConfig) -> Self {
        let fabric = LocalFabric::new(3, config);
        swap_by_nic(&fabric, &store);
        let region = fabric.register(OWNER, Arc::clone(store.region())).expect("room for a region");
        Self { store, fabric, region }
    }

    pub(crate) fn at(&self, offset: Offset) -> Remote {
        Remote { node: OWNER, region: self.region, offset }
    }

    pub(crate) fn endpoint(&self, node: NodeId) -> Endpoint<PortOf> {
        self.fabric.endpoint(node).expect("room for an endpoint")
    }

    /// Runs jobs concurrently.
    pub(crate) fn together(&self, jobs: Vec<(NodeId, Job)>) {
        on_threads(&|node| self.endpoint(node), jobs);
    }
}
