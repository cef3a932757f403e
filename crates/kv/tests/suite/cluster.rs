//! A cluster of three nodes, of which one owns a store that the others reach, in every mood of the fabric.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_kv::{HashPeer, HashTable, Holder, Keys, KvTable, Location, RecordPeer, Service, Store, TableId};
use drtm_rdma::{
    Atomicity, Endpoint, Executor, Fabric, LocalConfig, LocalFabric, LocalPort, NodeId, Offset, Phase, Region,
    RegionId, Remote, Tearing, Verbs,
};

use crate::support::MIB;

pub(crate) const OWNER: NodeId = NodeId(1);

/// The nodes that reach the owner's records.
pub(crate) const PEERS: [NodeId; 2] = [NodeId(0), NodeId(2)];

/// Long enough for anything but a deadlock.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) type PortOf = LocalPort<NoHtm>;

/// As kind as memory; and as harsh as verbs allow, with either kind of atomics and of torn reads.
pub(crate) fn moods() -> Vec<LocalConfig> {
    let mut moods = vec![LocalConfig::perfect(), LocalConfig::perfect().atomicity(Atomicity::None)];
    moods.extend((0..3).map(LocalConfig::harsh));
    moods.extend((3..5).map(|seed| LocalConfig::harsh(seed).atomicity(Atomicity::Global)));
    moods.push(LocalConfig::harsh(5).tearing(Tearing::Words).atomicity(Atomicity::Global));
    moods
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
        let memory = Arc::new(Region::anonymous(NoHtm, capacity).expect("a region"));
        let store = Store::in_region_of(OWNER, 0, Arc::clone(&memory)).expect("a store");
        let fabric = LocalFabric::new(3, config);
        let region = fabric.register(OWNER, memory).expect("room for a region");
        Self { store, fabric, region }
    }

    pub(crate) fn at(&self, offset: Offset) -> Remote {
        Remote { node: OWNER, region: self.region, offset }
    }

    pub(crate) fn endpoint(&self, node: NodeId) -> Endpoint<PortOf> {
        self.fabric.endpoint(node).expect("room for an endpoint")
    }

    /// Runs `peers` while the owner serves these tables on a thread of its own.
    pub(crate) fn serving<T>(&self, service: Service<NoHtm>, peers: impl FnOnce() -> T) -> T {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| self.serve_until(service, &done));
            let _stop = Stop(&done);
            peers()
        })
    }

    fn serve_until(&self, mut service: Service<NoHtm>, done: &AtomicBool) {
        let endpoint = self.endpoint(OWNER);
        let verbs = endpoint.during(Phase::Other);
        let mut executor = Executor::new(&endpoint);
        executor.serve(service.serve(verbs));
        executor.spawn(endpoint.until(|| {
            // There are more threads than processors.
            thread::yield_now();
            done.load(Relaxed)
        }));
        executor.run();
    }
}

/// Stops the owner however the peers end, so that a failed check is reported and does not hang.
struct Stop<'d>(&'d AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs one coroutine, which must not hang.
pub(crate) fn alone<T>(endpoint: &Endpoint<PortOf>, coroutine: impl Future<Output = T>) -> T {
    let output = std::cell::Cell::new(None);
    let mut executor = Executor::new(endpoint).patience(PATIENCE);
    executor.spawn(async { output.set(Some(coroutine.await)) });
    executor.run();
    output.into_inner().expect("it has come to its end")
}

/// Who a peer's coroutine is, as the holder of locks.
pub(crate) fn holder(node: NodeId, coroutine: usize) -> Holder {
    Holder::new(node.0 as u8, 0, 0, coroutine as u8)
}

/// A hash table as a peer has it: where keys are, and what is there.
pub(crate) struct Peer<K: Keys> {
    pub(crate) lookup: HashPeer<K>,
    pub(crate) records: RecordPeer<K>,
}

impl<K: Keys> Peer<K> {
    pub(crate) async fn open(cluster: &Cluster, verbs: Verbs<'_, PortOf>, table: &HashTable<NoHtm, K>) -> Self {
        let at = cluster.at(table.location());
        Self {
            lookup: HashPeer::open(verbs, at).await.expect("the table"),
            records: RecordPeer::open(verbs, at, TableId(0)).await.expect("a table for peers"),
        }
    }

    pub(crate) async fn find(&self, verbs: Verbs<'_, PortOf>, key: K::Key<'_>) -> Location {
        self.lookup.find(verbs, key).await.expect("sound").expect("it is there")
    }
}

/// A value all of whose words are the same stamp, so that any tear shows.
pub(crate) fn stamped(stamp: u64, words: usize) -> Vec<u8> {
    stamp.to_le_bytes().repeat(words)
}

/// The stamp of such a value, if it is whole.
pub(crate) fn stamp_of(value: &[u8]) -> Option<u64> {
    let mut words = value.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let first = words.next()?;
    words.all(|word| word == first).then_some(first)
}
