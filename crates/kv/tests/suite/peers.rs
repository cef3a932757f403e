//! Shared code of the peers' tests, on the fabric of the program's [`cluster`](crate::cluster).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_kv::{Cache, HashPeer, HashTable, Holder, Keys, KvTable, Location, RecordPeer, Service, Store, TableId};
use drtm_rdma::{Endpoint, Executor, LocalConfig, NodeId, Offset, Phase, Port, Remote, Spawner, Verbs};

use crate::cluster::{Cluster, PortOf};

/// The node that owns the store, and the nodes that access it.
pub(crate) const OWNER: NodeId = NodeId(1);
pub(crate) const PEERS: [NodeId; 2] = [NodeId(0), NodeId(2)];
pub(crate) const PEER: NodeId = PEERS[0];

/// Long enough for anything but a deadlock.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Creates a cluster of which one node has this store. Returns it with the region's start.
pub(crate) fn fabric(store: &Store<NoHtm>, config: LocalConfig) -> (Cluster, Remote) {
    let cluster = Cluster::of(store.clone(), config);
    let base = cluster.at(Offset::new(0));
    (cluster, base)
}

/// The job of a node's worker, concurrent with others.
pub(crate) type Job = Box<dyn for<'f> FnOnce(Spawner<'f, PortOf>) + Send>;

pub(crate) fn job(start: impl for<'f> FnOnce(Spawner<'f, PortOf>) + Send + 'static) -> Job {
    Box::new(start)
}

/// Runs jobs concurrently, each on a thread with an endpoint of its own.
#[allow(dead_code, reason = "a simulated cluster has no threads")]
pub(crate) fn on_threads(cluster: &(impl Sync + Fn(NodeId) -> Endpoint<PortOf>), jobs: Vec<(NodeId, Job)>) {
    std::thread::scope(|scope| {
        for (node, start) in jobs {
            scope.spawn(move || {
                let endpoint = cluster(node);
                let executor = Executor::new(&endpoint).patience(PATIENCE);
                start(executor.spawner());
                executor.run();
            });
        }
    });
}

/// Runs `peers` while the owner serves these tables on a thread of its own, even if they panic.
#[allow(dead_code, reason = "a simulated cluster has no threads")]
pub(crate) fn served_on_a_thread<T>(
    cluster: &(impl Sync + Fn(NodeId) -> Endpoint<PortOf>),
    mut service: Service<NoHtm>,
    peers: impl FnOnce() -> T,
) -> T {
    /// Stops the owner, so that a failed check is reported and does not hang.
    struct Stop<'d>(&'d AtomicBool);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }

    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let endpoint = cluster(OWNER);
            let mut executor = Executor::new(&endpoint);
            executor.serve(service.serve(endpoint.during(Phase::Other)));
            executor.spawn(endpoint.until(|| {
                // There are more threads than processors.
                std::thread::yield_now();
                done.load(Relaxed)
            }));
            executor.run();
        });
        let _stop = Stop(&done);
        peers()
    })
}

/// Runs one coroutine, and fails if it hangs.
pub(crate) fn alone<T>(endpoint: &Endpoint<PortOf>, coroutine: impl Future<Output = T>) -> T {
    let output = std::cell::Cell::new(None);
    let mut executor = Executor::new(endpoint).patience(PATIENCE);
    executor.spawn(async { output.set(Some(coroutine.await)) });
    executor.run();
    output.into_inner().expect("it has come to its end")
}

/// Returns the lock holder of a peer's coroutine.
pub(crate) fn holder(node: NodeId, coroutine: usize) -> Holder {
    Holder::new(node.0 as u8, 0, 0, coroutine as u8)
}

/// A hash table as a peer accesses it: lookups and records.
pub(crate) struct Peer<K: Keys> {
    pub(crate) lookup: HashPeer<K>,
    pub(crate) records: RecordPeer<K>,
}

impl<K: Keys> Peer<K> {
    pub(crate) async fn open(cluster: &Cluster, verbs: Verbs<'_, PortOf>, table: &HashTable<NoHtm, K>) -> Self {
        Self::at(cluster.at(table.location()), verbs).await
    }

    pub(crate) async fn at(at: Remote, verbs: Verbs<'_, PortOf>) -> Self {
        Self {
            lookup: HashPeer::open(verbs, at).await.expect("the table"),
            records: RecordPeer::open(verbs, at, TableId(0)).await.expect("a table for peers"),
        }
    }

    pub(crate) async fn find(&self, verbs: Verbs<'_, PortOf>, key: K::Key<'_>) -> Location {
        self.lookup.find(verbs, key).await.expect("sound").expect("it is there")
    }
}

/// Returns a value whose words are all the same stamp, which shows any tear.
pub(crate) fn stamped(stamp: u64, words: usize) -> Vec<u8> {
    stamp.to_le_bytes().repeat(words)
}

/// Returns the stamp of such a value; `None` if it is torn.
pub(crate) fn stamp_of(value: &[u8]) -> Option<u64> {
    let mut words = value.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let first = words.next()?;
    words.all(|word| word == first).then_some(first)
}

/// The size of a peer's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Nothing,
    /// Three sets: entries are evicted all the time.
    Little,
    Everything,
}

impl Memory {
    pub(crate) const ALL: [Self; 3] = [Self::Nothing, Self::Little, Self::Everything];

    pub(crate) fn cache<const WORDS: usize>(self) -> Option<Arc<Cache<WORDS>>> {
        let set = 8 * (8 + 7 * WORDS as u64);
        let bytes = match self {
            Self::Nothing => return None,
            Self::Little => 3 * set,
            Self::Everything => 4000 * set,
        };
        Some(Arc::new(Cache::new(bytes).expect("memory")))
    }
}

/// Words of a record's header, as drawn in `docs/layout.md`.
const HEADER: usize = 4;

/// The result of following a location.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The key's value, of one moment.
    Value(Vec<u8>),
    /// Another record, or a later use of the memory.
    Stale,
}

/// Reads the record at a location, with an inline key and a value of at most 64 bytes, until it is
/// consistent or stale.
pub(crate) async fn read<P: Port>(verbs: Verbs<'_, P>, location: Location, key: u64) -> Seen {
    loop {
        let before = header(verbs, location).await;
        let [found, _, version, head] = before;
        // If stale, it may be another record's longer value.
        let length = (head >> 42 & 0xFF).min(64) as usize;
        let body = location.record + 8 * HEADER as u64;
        let mut bytes: Vec<u8> = match length.div_ceil(8) {
            0 => Vec::new(),
            words => {
                let words = verbs.read(body, words).await.expect("in bounds");
                words.iter().flat_map(|word| word.to_le_bytes()).collect()
            }
        };
        let after = header(verbs, location).await;
        if found != key || head >> 50 != u64::from(location.incarnation) {
            return Seen::Stale;
        }
        if before == after && version & 1 == 0 {
            bytes.truncate(length);
            return Seen::Value(bytes);
        }
    }
}

/// Reads a record's header without its state. It may span two lines, so it is read word by word.
async fn header<P: Port>(verbs: Verbs<'_, P>, location: Location) -> [u64; HEADER] {
    let mut words = [0; HEADER];
    for word in [0, 2, 3] {
        words[word] = verbs.read_word(location.record + 8 * word as u64).await.expect("in bounds");
    }
    words
}

/// Returns a value of 16 to 64 bytes that shows whether it is torn: each turn may move it.
pub(crate) fn value(key: u64, turn: u64) -> Vec<u8> {
    let words = [key, turn].into_iter().chain((0..(key ^ turn) % 7).map(|word| key + turn + word));
    words.flat_map(u64::to_le_bytes).collect()
}

/// Returns the turn of a value. Asserts that it is not torn, and is of this key.
pub(crate) fn turn_of(found: &[u8], key: u64) -> u64 {
    let turn = u64::from_le_bytes(found[8..16].try_into().expect("eight bytes"));
    assert!(found == value(key, turn), "a torn value of key {key}, or another's: {found:?}");
    turn
}
