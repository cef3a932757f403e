//! Swaps of processors by their own NIC are atomic with those of peers.

use std::{sync::Arc, thread};

use drtm_htm::{Engine, NoHtm};
use drtm_rdma::{
    Atomicity, Fabric, LocalConfig, LocalFabric, NodeId, Phase, Region, Remote, RunEnd, Sim, SimConfig, block_on,
};

const EACH: u64 = 2_000;

/// A word of node 0, which its processors swap by its NIC.
fn word<F: Fabric<Engine = NoHtm>>(fabric: &F) -> (Arc<Region<NoHtm>>, Remote) {
    let region = Arc::new(Region::anonymous(NoHtm, 1 << 20).expect("memory"));
    let id = fabric.register(NodeId(0), Arc::clone(&region)).expect("the node is here");
    region.swap_by(fabric.loopback(NodeId(0)).expect("a NIC of its own"));
    let offset = region.extend(8, 8).expect("memory");
    (region, Remote { node: NodeId(0), region: id, offset })
}

/// Counts by swaps of the owner's own.
fn count(region: &Region<NoHtm>, at: Remote, times: u64) {
    let word = &region.words(at.offset, 1).expect("it is there")[0];
    for _ in 0..times {
        let mut seen = NoHtm.load(word);
        while let Err(found) = region.compare_swap(word, seen, seen + 1) {
            seen = found;
        }
    }
}

fn counted(config: LocalConfig) -> u64 {
    let fabric = LocalFabric::new(2, config);
    let (region, at) = word(&fabric);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| count(&region, at, EACH));
            scope.spawn(|| {
                let endpoint = fabric.endpoint(NodeId(1)).expect("room");
                for _ in 0..EACH {
                    block_on(&endpoint, endpoint.during(Phase::Execute).fetch_add(at, 1)).expect("it is there");
                }
            });
        }
    });
    NoHtm.load(&region.words(at.offset, 1).expect("it is there")[0])
}

#[test]
fn no_swap_of_a_process_is_lost() {
    for seed in 0..drtm_testing::rounds(3) {
        assert_eq!(counted(LocalConfig::harsh(seed)), 4 * EACH);
    }
    assert_eq!(counted(LocalConfig::perfect().atomicity(Atomicity::Hca)), 4 * EACH);
}

/// Swaps in between the halves of those of peers, which take several moments of the simulation.
#[test]
fn no_swap_of_a_simulation_is_lost() {
    for seed in 0..drtm_testing::rounds(5) {
        let config = SimConfig::harsh(seed).atomicity(Atomicity::Hca);
        assert_eq!(config.capabilities().atomicity, Atomicity::Hca);
        let sim = Sim::<NoHtm>::new(3, config);
        let (region, at) = word(sim.fabric());
        for node in 0..3 {
            let region = Arc::clone(&region);
            let spawned = sim.spawn(NodeId(node), move |spawner| {
                let endpoint = spawner.endpoint();
                let running = async move {
                    for _ in 0..200 {
                        match node {
                            0 => {
                                count(&region, at, 1);
                                endpoint.sleep(std::time::Duration::from_nanos(170)).await;
                            }
                            _ => drop(endpoint.during(Phase::Execute).fetch_add(at, 1).await.expect("it is there")),
                        }
                    }
                };
                spawner.spawn(running).expect("it runs");
            });
            spawned.expect("room for an endpoint");
        }
        assert_eq!(sim.run(), RunEnd::Done);
        assert_eq!(NoHtm.load(&region.words(at.offset, 1).expect("it is there")[0]), 600, "seed {seed}");
    }
}
