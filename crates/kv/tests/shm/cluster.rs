//! A cluster of three nodes on shared memory, of which one owns a store that the others reach. Its
//! moods are one: nothing of this fabric is simulated.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_kv::{HashPeer, HashTable, Keys, KvTable, Location, RecordPeer, Service, Store, TableId};
use drtm_rdma::{
    Endpoint, Executor, Fabric, LocalConfig, NodeId, Offset, Phase, Region, RegionId, Remote, ShmConfig, ShmFabric,
    ShmPort, Verbs,
};

pub(crate) use crate::local::{OWNER, PEERS, holder, stamp_of, stamped};
use crate::support::MIB;

/// Long enough for anything but a deadlock.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) type PortOf = ShmPort<NoHtm>;

/// As the machine is.
pub(crate) fn moods() -> Vec<LocalConfig> {
    vec![LocalConfig::perfect()]
}

/// A directory that is there as long as this.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        // What a failed test leaves there is no second failure.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) store: Store<NoHtm>,
    /// One for each node, as its process would have it.
    nodes: [ShmFabric<NoHtm>; 3],
    region: RegionId,
    _directory: Arc<Directory>,
}

impl Cluster {
    pub(crate) fn new(config: LocalConfig) -> Self {
        Self::with_capacity(config, 256 * MIB)
    }

    /// The moods of the in-process fabric are nothing to this one.
    pub(crate) fn with_capacity(_config: LocalConfig, capacity: u64) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("drtm-kv-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let directory = Directory(std::env::temp_dir().join(name));
        let nodes = [0, 1, 2].map(|node| {
            let config = ShmConfig::new("kv", NodeId(node)).directory(&directory.0).patience(PATIENCE);
            ShmFabric::join(NoHtm, config).expect("a group")
        });
        let memory = Arc::new(Region::shared(NoHtm, capacity).expect("a region"));
        let store = Store::in_region_of(OWNER, 0, Arc::clone(&memory)).expect("a store");
        let region = nodes[usize::from(OWNER.0)].register(OWNER, memory).expect("room for a region");
        Self { store, nodes, region, _directory: Arc::new(directory) }
    }

    pub(crate) fn at(&self, offset: Offset) -> Remote {
        Remote { node: OWNER, region: self.region, offset }
    }

    pub(crate) fn endpoint(&self, node: NodeId) -> Endpoint<PortOf> {
        self.nodes[usize::from(node.0)].endpoint(node).expect("room for an endpoint")
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
        let mut executor = Executor::new(&endpoint);
        executor.serve(service.serve(endpoint.during(Phase::Other)));
        executor.spawn(endpoint.until(|| done.load(Acquire)));
        executor.run();
    }
}

/// Stops the owner however the peers end, so that a failed check is reported and does not hang.
struct Stop<'d>(&'d AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Release);
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
