//! Shared code of the peers' tests, on the fabric of the program's [`cluster`](crate::cluster).

use std::{sync::Arc, time::Duration};

use drtm_htm::NoHtm;
use drtm_kv::{
    Cache, HashPeer, HashTable, Holder, Keys, KvTable, Leases, Location, Look, RecordLock, RecordPeer, RemoteError,
    Store, Version,
};
use drtm_rdma::{
    Atomicity, Endpoint, Executor, Fabric, LocalConfig, NodeId, Offset, Port, Remote, Spawner, VerbError, Verbs,
};

use crate::cluster::{Cluster, PortOf, moods};

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

/// Has the owner's processors swap by its NIC, where a NIC's swaps are atomic with other NICs'
/// only.
pub(crate) fn swap_by_nic(fabric: &impl Fabric<Engine = NoHtm>, store: &Store<NoHtm>) {
    if fabric.capabilities().atomicity == Atomicity::Hca {
        store.region().swap_by(fabric.loopback(OWNER).expect("a NIC that swaps words of its own node"));
    }
}

/// Returns the moods in which peers can lock records.
pub(crate) fn atomic_moods() -> Vec<LocalConfig> {
    moods().into_iter().filter(|mood| mood.capabilities().atomicity != Atomicity::None).collect()
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
        let lookup = HashPeer::open(verbs, at).await.expect("the table");
        let is_looped = verbs.endpoint().capabilities().atomicity == Atomicity::Hca;
        let records = RecordPeer::open(verbs, at).await.expect("a table for peers").swapped_by_loopback(is_looped);
        Self { lookup, records }
    }

    pub(crate) async fn find(&self, verbs: Verbs<'_, PortOf>, key: K::Key<'_>) -> Location {
        self.lookup.find(verbs, key).await.expect("sound").expect("it is there")
    }
}

/// Locks a record for a holder, with what it knows of leases. Retries for a moment while others
/// have locked it.
pub(crate) async fn lock_record<K: Keys, P: Port>(
    records: &RecordPeer<K>,
    verbs: Verbs<'_, P>,
    location: Location,
    key: K::Key<'_>,
    name: (Holder, Leases),
    value: &mut Vec<u8>,
) -> Result<Look<RecordLock>, RemoteError> {
    for _ in 0..100 {
        match records.lock(verbs, location, key, name, value, (None, None)).await? {
            Look::Busy => verbs.endpoint().yield_now().await,
            looked => return Ok(looked),
        }
    }
    Ok(Look::Busy)
}

/// Writes the next version of a record that is locked, which unlocks it. Returns that version.
pub(crate) async fn write_record<K: Keys, P: Port>(
    _of: &RecordPeer<K>,
    verbs: Verbs<'_, P>,
    lock: &RecordLock,
    key: K::Key<'_>,
    value: &[u8],
) -> Result<Version, RemoteError> {
    let version = lock.version().next();
    let posted = loop {
        match lock.post_write::<K, _>(verbs, key, (version, value)) {
            Err(RemoteError::Verb(VerbError::QueueFull { .. } | VerbError::BuffersExhausted { .. })) => {
                verbs.endpoint().yield_now().await;
            }
            posted => break posted?,
        }
    };
    posted.await?;
    Ok(version)
}

/// Unlocks a record that a holder has locked, and leaves it unchanged.
pub(crate) async fn unlock_record<P: Port>(verbs: Verbs<'_, P>, location: Location, holder: Holder) {
    let found = verbs.compare_swap(location.record + 16, state_word(holder), 0).await.expect("in bounds");
    assert_eq!(found, state_word(holder), "it was its own");
}

/// DrTM's layout of the state word, computed independently.
pub(crate) fn state_word(holder: Holder) -> u64 {
    let (node, worker, slot) = (u64::from(holder.node()), u64::from(holder.worker()), u64::from(holder.slot()));
    1 | node << 1 | worker << 9 | slot << 25 | u64::from(holder.incarnation()) << 33
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
        let [found, head, _, version] = before;
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
    for word in [0, 1, 3] {
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
