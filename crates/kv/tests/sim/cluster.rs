//! A simulated cluster of three nodes. One node owns a store that the others access. Its moods are
//! those of the in-process fabric in virtual time; the harsh ones also lose and delay packets.

use std::{rc::Rc, sync::Arc};

use drtm_htm::NoHtm;
use drtm_kv::Store;
use drtm_rdma::{
    Atomicity, Endpoint, Fabric, LocalConfig, NicProfile, NodeId, Offset, Order, Region, RegionId, Remote, RunEnd, Sim,
    SimConfig, SimPort, Tearing,
};

use crate::{
    peers::{Job, OWNER, swap_by_nic},
    support::MIB,
};

pub(crate) type PortOf = SimPort<NoHtm>;

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

/// Returns the simulated cluster of a mood.
fn simulated(mood: &LocalConfig) -> SimConfig {
    // The debug format shows the seed; there is no accessor.
    let seed = format!("{mood:?}").bytes().fold(0_u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    let can = mood.capabilities();
    let config = match can.ordering {
        Order::Posted => SimConfig::new(&NicProfile::CONNECTX_4).seed(seed),
        Order::ReadsMayBePassed | Order::MessagesApart => SimConfig::harsh(seed),
    };
    let tearing = if can.atomic_read_bytes == 8 { Tearing::Words } else { Tearing::Lines };
    config.atomicity(can.atomicity).tearing(tearing)
}

/// The owner's store.
pub(crate) fn store(engine: NoHtm, capacity: u64) -> Store<NoHtm> {
    let memory = Arc::new(Region::anonymous(engine, capacity).expect("a region"));
    Store::in_region_of(OWNER, 0, memory).expect("a store").hinting_at_once()
}

#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) store: Store<NoHtm>,
    pub(crate) sim: Rc<Sim<NoHtm>>,
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
        let sim = Rc::new(Sim::new(3, simulated(&config)));
        swap_by_nic(sim.fabric(), &store);
        let region = sim.fabric().register(OWNER, Arc::clone(store.region())).expect("room for a region");
        Self { store, sim, region }
    }

    pub(crate) fn at(&self, offset: Offset) -> Remote {
        Remote { node: OWNER, region: self.region, offset }
    }

    pub(crate) fn endpoint(&self, node: NodeId) -> Endpoint<PortOf> {
        self.sim.fabric().endpoint(node).expect("room for an endpoint")
    }

    /// Runs jobs concurrently.
    pub(crate) fn together(&self, jobs: Vec<(NodeId, Job)>) {
        for (node, start) in jobs {
            self.sim.spawn(node, start).expect("room for an endpoint");
        }
        assert_eq!(self.sim.run(), RunEnd::Done);
    }
}
