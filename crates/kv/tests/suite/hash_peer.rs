//! The hash table from another node: READs per lookup, with a cache and without, and correct
//! lookups while the table changes.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use drtm_htm::{Engine, NoHtm};
use drtm_kv::{BucketCache, Bytes, HashConfig, HashPeer, HashTable, Inline, KvTable, PeerError, Store};
use drtm_rdma::{Endpoint, LocalConfig, NodeId, Phase, Port, Remote, VerbError, Verbs, block_on};
use proptest::prelude::*;

use crate::{
    cluster::{Cluster, PortOf, store},
    peers::{Job, Memory, OWNER, PEER, Seen, fabric, job, read, turn_of, value},
    support::{MIB, rounds},
};

fn place_of(base: Remote, table: &HashTable<NoHtm>) -> Remote {
    Remote { offset: table.location(), ..base }
}

/// Opens a peer with this cache, if any.
fn open<P: Port>(endpoint: &Endpoint<P>, at: Remote, cache: Option<Arc<BucketCache>>) -> HashPeer<Inline> {
    let verbs = endpoint.during(Phase::Lookup);
    let peer = block_on(endpoint, HashPeer::open(verbs, at)).expect("the table");
    match cache {
        Some(cache) => peer.with_cache(cache),
        None => peer,
    }
}

/// Returns a key's value, and the number of stale locations before the result.
async fn get<P: Port>(verbs: Verbs<'_, P>, peer: &HashPeer<Inline>, key: u64) -> (Option<Vec<u8>>, u64) {
    let mut found = peer.find(verbs, key).await.expect("sound");
    let mut stale = 0;
    while let Some(location) = found {
        match read(verbs, location, key).await {
            Seen::Value(value) => return (Some(value), stale),
            Seen::Stale => stale += 1,
        }
        found = peer.find_again(verbs, key).await.expect("sound");
    }
    (None, stale)
}

/// Returns keys in random order: multiplicative hashing spreads ordered keys better than chance.
fn random_keys(count: u64) -> Vec<u64> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut keys: Vec<u64> = (0..count).map(|_| random.u64(..)).collect();
    keys.sort_unstable();
    keys.dedup();
    random.shuffle(&mut keys);
    keys
}

/// Returns the mean READs of a lookup in a table of 2^15 buckets.
fn reads_per_lookup(occupancy: f64) -> f64 {
    let keys = random_keys((occupancy * 8.0 * f64::from(1 << 15)) as u64);
    let store = store(NoHtm, 256 * MIB);
    let config = HashConfig::for_keys(keys.len() as u64).with_occupancy(occupancy).fixed();
    let table = store.hash_table(config).expect("a table");
    assert_eq!(table.buckets().expect("sound"), 1 << 15);
    let mut worker = store.worker().expect("a worker");
    for key in &keys {
        assert!(table.insert(&mut worker, *key, b"").expect("room").is_some());
    }
    let (fabric, base) = fabric(&store, LocalConfig::perfect());
    let endpoint = fabric.endpoint(NodeId(0));
    let verbs = endpoint.during(Phase::Lookup);
    let peer = open(&endpoint, place_of(base, &table), None);
    let look_all_up = || {
        for key in &keys {
            assert!(block_on(&endpoint, peer.find(verbs, *key)).expect("sound").is_some());
        }
        endpoint.counters().total().reads
    };
    // The first pass learns where the segments are.
    let learned = look_all_up();
    (look_all_up() - learned) as f64 / keys.len() as f64
}

/// DrTM's Table VI, for uniform keys: 1.008, 1.052, 1.100.
#[test]
fn lookups_take_as_many_reads_as_published() {
    for (occupancy, published) in [(0.5, 1.008), (0.75, 1.052), (0.9, 1.100)] {
        let reads = reads_per_lookup(occupancy);
        assert!((reads / published - 1.0).abs() < 0.005, "{reads} READs at {occupancy}, published {published}");
    }
}

/// Returns a table with these keys, and a peer that caches everything.
fn remembered(keys: &[u64], config: HashConfig) -> (Cluster, HashTable<NoHtm>, Endpoint<PortOf>, HashPeer<Inline>) {
    let store = store(NoHtm, 64 * MIB);
    let table = store.hash_table(config).expect("a table");
    let mut worker = store.worker().expect("a worker");
    for key in keys {
        assert!(table.insert(&mut worker, *key, &value(*key, 0)).expect("room").is_some());
    }
    let (fabric, base) = fabric(&store, LocalConfig::perfect());
    let endpoint = fabric.endpoint(PEER);
    let peer = open(&endpoint, place_of(base, &table), Memory::Everything.cache());
    (fabric, table, endpoint, peer)
}

#[test]
fn what_was_fetched_once_is_found_without_a_read() {
    // A power of two of buckets.
    let keys = random_keys(14_745);
    let config = HashConfig::for_keys(14_745).with_occupancy(0.9).fixed();
    let (_cluster, table, endpoint, peer) = remembered(&keys, config);
    let verbs = endpoint.during(Phase::Lookup);
    let reads = || endpoint.counters().total().reads;
    let mut fetched = [0; 2];
    for fetched in &mut fetched {
        let before = reads();
        for key in &keys {
            assert!(block_on(&endpoint, peer.find(verbs, *key)).expect("sound").is_some());
        }
        *fetched = reads() - before;
    }
    let [cold, warm] = fetched;
    // Each bucket once, including overflow buckets, which three buckets in ten have, and the
    // segments' locations; far fewer than keys.
    let buckets = table.buckets().expect("sound");
    assert!(cold < buckets * 4 / 3 && cold < keys.len() as u64 / 5, "{cold} READs of {buckets} buckets");
    assert!(warm < buckets / 50, "{warm} READs of what was fetched: nearly all of it fits");
}

#[test]
fn what_moved_went_or_came_is_noticed() {
    let (cluster, table, endpoint, peer) = remembered(&[1, 2, 3], HashConfig::default());
    let mut worker = cluster.store.worker().expect("a worker");
    let verbs = endpoint.during(Phase::Lookup);
    let find = |key| block_on(&endpoint, peer.find(verbs, key)).expect("sound");
    let again = |key| block_on(&endpoint, peer.find_again(verbs, key)).expect("sound");
    let look = |location, key| block_on(&endpoint, read(verbs, location, key));
    let reads = || endpoint.counters().total().reads;

    // Moves to memory of another size.
    let before = find(1).expect("there");
    table.update(&mut worker, 1, &[7; 40]).expect("room");
    assert_eq!(find(1), Some(before), "it is not fetched again");
    assert_eq!(look(before, 1), Seen::Stale);
    let after = again(1).expect("there");
    assert_eq!(look(after, 1), Seen::Value(vec![7; 40]));
    let spent = reads();
    assert_eq!((find(1), reads()), (Some(after), spent), "it is remembered anew");

    // Is removed.
    let before = find(2).expect("there");
    table.remove(&mut worker, 2).expect("sound");
    assert_eq!(look(before, 2), Seen::Stale);
    assert_eq!((again(2), find(2)), (None, None));

    // Is inserted, possibly into a bucket that is cached without it.
    for key in 4..20 {
        assert_eq!(find(key), None);
        table.insert(&mut worker, key, &value(key, 1)).expect("room");
        let found = find(key).expect("there: absence is never remembered");
        assert_eq!(look(found, key), Seen::Value(value(key, 1)));
    }
}

#[test]
fn a_table_that_has_grown_is_found_again_and_remembered() {
    let keys: Vec<u64> = (0..50).collect();
    let (cluster, table, endpoint, peer) = remembered(&keys, HashConfig::default());
    let verbs = endpoint.during(Phase::Lookup);
    let get = |key| block_on(&endpoint, get(verbs, &peer, key));
    assert!(keys.iter().all(|key| get(*key).0.is_some()));
    let mut worker = cluster.store.worker().expect("a worker");
    for key in 50..20_000 {
        table.insert(&mut worker, key, &value(key, 0)).expect("room");
    }
    for key in 0..20_000 {
        assert_eq!(get(key), (Some(value(key, 0)), 0), "records do not move when buckets are split");
    }
    assert_eq!(get(20_000), (None, 0));
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Insert(u64),
    Update(u64),
    Remove(u64),
    Get(u64),
    /// Insert this many keys, so that the table grows.
    Grow(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (0..60_u64).prop_map(Op::Insert),
        4 => (0..60_u64).prop_map(Op::Update),
        3 => (0..60_u64).prop_map(Op::Remove),
        10 => (0..60_u64).prop_map(Op::Get),
        1 => (1..100_u64).prop_map(Op::Grow),
    ];
    prop::collection::vec(op, 1..150)
}

fn answers_are_the_models(ops: &[Op], memory: Memory, config: LocalConfig) -> Result<(), TestCaseError> {
    let store = store(NoHtm, 16 * MIB);
    let table = store.hash_table(HashConfig::default()).expect("a table");
    let mut worker = store.worker().expect("a worker");
    let (fabric, base) = fabric(&store, config);
    let endpoint = fabric.endpoint(PEER);
    let verbs = endpoint.during(Phase::Lookup);
    let peer = open(&endpoint, place_of(base, &table), memory.cache());
    let mut model = HashMap::new();
    let mut grown = 1_000;
    for (turn, op) in (0_u64..).zip(ops) {
        match *op {
            Op::Insert(key) => {
                let inserted = table.insert(&mut worker, key, &value(key, turn)).expect("room").is_some();
                prop_assert_eq!(inserted, !model.contains_key(&key));
                model.entry(key).or_insert_with(|| value(key, turn));
            }
            Op::Update(key) => {
                if table.update(&mut worker, key, &value(key, turn)).expect("room").is_some() {
                    model.insert(key, value(key, turn));
                }
            }
            Op::Remove(key) => {
                let removed = table.remove(&mut worker, key).expect("sound").is_some();
                prop_assert_eq!(removed, model.remove(&key).is_some());
            }
            Op::Get(key) => {
                let (found, stale) = block_on(&endpoint, get(verbs, &peer, key));
                prop_assert_eq!(found.as_ref(), model.get(&key));
                prop_assert!(stale <= u64::from(memory != Memory::Nothing), "nothing changes meanwhile");
            }
            Op::Grow(keys) => {
                for key in grown..grown + keys {
                    table.insert(&mut worker, key, &value(key, turn)).expect("room");
                    model.insert(key, value(key, turn));
                }
                grown += keys;
            }
        }
    }
    for key in (0..60).chain(1_000..grown) {
        let (found, _) = block_on(&endpoint, get(verbs, &peer, key));
        prop_assert_eq!(found.as_ref(), model.get(&key));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_changes_are_seen_as_a_model_sees_them(ops in ops(), seed in any::<u64>()) {
        for memory in Memory::ALL {
            answers_are_the_models(&ops, memory, LocalConfig::perfect())?;
            answers_are_the_models(&ops, memory, LocalConfig::harsh(seed))?;
        }
    }
}

/// The keys that readers look up while the table changes.
const KEYS: u64 = 500;

/// Looks up keys: every fourth is always present, and the next one never. The other keys come, go
/// and move. Returns the number of stale locations.
async fn look_up(verbs: Verbs<'_, PortOf>, peer: &HashPeer<Inline>, seed: u64, done: &AtomicBool) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut looked, mut staleness) = (0, 0);
    while !done.load(Relaxed) || looked < 100 {
        looked += 1;
        let key = 4 * random.u64(0..KEYS);
        let found = peer.find(verbs, key).await.expect("sound").expect("it is there all the while");
        assert_eq!(verbs.read_word(found.record).await.expect("in bounds"), key, "another key's record");
        assert_eq!(peer.find(verbs, key + 1).await.expect("sound"), None, "a key that never was");
        let (moving, stale) = get(verbs, peer, key + 2).await;
        staleness += stale;
        if let Some(moving) = moving {
            turn_of(&moving, key + 2);
        }
    }
    staleness
}

fn stress(memory: Memory, config: LocalConfig) {
    let store = store(NoHtm, 256 * MIB);
    let table = store.hash_table(HashConfig::default()).expect("a table");
    let mut worker = store.worker().expect("a worker");
    for key in (0..4 * KEYS).step_by(4) {
        assert!(table.insert(&mut worker, key, b"stays").expect("room").is_some());
    }
    let (fabric, base) = fabric(&store, config);
    let endpoint = fabric.endpoint(PEER);
    let peer = Arc::new(open(&endpoint, place_of(base, &table), memory.cache()));
    let done = Arc::new(AtomicBool::new(false));
    let staleness = Arc::new(AtomicU64::new(0));
    let reader = |reader: u64| -> (NodeId, Job) {
        let (peer, done, staleness) = (Arc::clone(&peer), Arc::clone(&done), Arc::clone(&staleness));
        let start = job(move |worker| {
            for coroutine in 0..4 {
                let verbs = worker.endpoint().during(Phase::Lookup);
                let (peer, done, staleness) = (Arc::clone(&peer), Arc::clone(&done), Arc::clone(&staleness));
                let looks = async move {
                    let stale = look_up(verbs, &peer, reader << 8 | coroutine, &done).await;
                    staleness.fetch_add(stale, Relaxed);
                };
                worker.spawn(looks).expect("it runs");
            }
        });
        (PEER, start)
    };
    let ended = Arc::clone(&done);
    // Meanwhile other keys come, go and move, and the table grows from eighty buckets to thousands.
    let writer = job(move |node| {
        let endpoint = node.endpoint();
        let writes = async move {
            let mut random = fastrand::Rng::with_seed(9);
            for turn in 0..rounds(30_000) {
                let key = 4 * random.u64(0..20 * KEYS) + 2 + random.u64(0..2);
                let near = 4 * random.u64(0..KEYS) + 2;
                if turn % 3 == 0 {
                    table.remove(&mut worker, near).expect("sound");
                } else {
                    table.insert(&mut worker, key, &value(key, turn)).expect("room");
                    table.put(&mut worker, near, &value(near, turn)).expect("room");
                }
                endpoint.yield_now().await;
            }
            ended.store(true, Relaxed);
        };
        node.spawn(writes).expect("it runs");
    });
    fabric.together(vec![reader(0), reader(1), (OWNER, writer)]);
    assert!(staleness.load(Relaxed) > 0 || memory == Memory::Nothing, "nothing stale was ever met");
}

#[test]
fn what_is_there_is_found_and_nothing_else_while_the_table_grows_and_changes() {
    stress(Memory::Nothing, LocalConfig::harsh(3));
    stress(Memory::Nothing, LocalConfig::perfect());
}

#[test]
fn two_threads_that_share_a_cache_find_what_is_there_and_nothing_else() {
    for memory in [Memory::Little, Memory::Everything] {
        stress(memory, LocalConfig::harsh(4));
        stress(memory, LocalConfig::perfect());
    }
}

/// Overwrites a word of the table's header in the owner's memory.
fn damage(store: &Store<NoHtm>, table: &HashTable<NoHtm>, word: u64, value: u64) {
    NoHtm.store(&store.region().words(table.location() + 8 * word, 1).expect("the header")[0], value);
}

#[test]
fn a_corrupt_table_is_an_error() {
    let store = store(NoHtm, 16 * MIB);
    let table = store.hash_table(HashConfig::default()).expect("a table");
    let (fabric, base) = fabric(&store, LocalConfig::perfect());
    let endpoint = fabric.endpoint(PEER);
    let verbs = endpoint.during(Phase::Lookup);
    let at = place_of(base, &table);
    // The number of buckets.
    for buckets in [0, 1, u64::MAX] {
        damage(&store, &table, 2, buckets);
        let opened = block_on(&endpoint, HashPeer::<Inline>::open(verbs, at));
        assert!(matches!(opened, Err(PeerError::Corrupt { found, .. }) if found == buckets), "{opened:?}");
    }
    // More buckets than exist: their segments are missing, and lookups use those they split from.
    damage(&store, &table, 2, 1 << 32);
    let peer = open(&endpoint, at, None);
    assert_eq!(block_on(&endpoint, peer.find(verbs, 1)), Ok(None));
    // The initial number of buckets.
    for base in [0, u64::MAX] {
        damage(&store, &table, 6, base);
        let opened = block_on(&endpoint, HashPeer::<Inline>::open(verbs, at));
        assert!(matches!(opened, Err(PeerError::Corrupt { found, .. }) if found == base), "{opened:?}");
    }
    damage(&store, &table, 6, 16);
    // The location of the first segment.
    for (place, expected) in
        [(u64::MAX - 7, "corrupt"), (1 << 40, "not in the region"), (12, "not a multiple"), (0, "not there")]
    {
        damage(&store, &table, 2, 16);
        damage(&store, &table, 7, place);
        let peer = open(&endpoint, at, None);
        // Not all keys are in the first bucket, whose location would be the segment's.
        let errors: Vec<_> = (0..40).filter_map(|key| block_on(&endpoint, peer.find(verbs, key)).err()).collect();
        assert!(errors.iter().any(|error| error.to_string().contains(expected)), "{place:#x}: {errors:?}");
    }
}

#[test]
fn only_the_table_that_is_there_can_be_opened() {
    let store = store(NoHtm, 16 * MIB);
    let table = store.hash_table(HashConfig::default()).expect("a table");
    let (fabric, base) = fabric(&store, LocalConfig::harsh(1));
    let endpoint = fabric.endpoint(NodeId(0));
    let verbs = endpoint.during(Phase::Lookup);
    let at = place_of(base, &table);
    let open_as_bytes = block_on(&endpoint, HashPeer::<Bytes>::open(verbs, at));
    assert!(matches!(open_as_bytes, Err(PeerError::NotThisTable { .. })));
    let open = |at| block_on(&endpoint, HashPeer::<Inline>::open(verbs, at));
    assert!(matches!(open(at + 8), Err(PeerError::NotThisTable { .. })));
    assert!(matches!(open(at + (1 << 40)), Err(PeerError::Verb(VerbError::OutOfBounds { .. }))));
    let nobody = Remote { node: NodeId(9), ..at };
    assert!(matches!(open(nobody), Err(PeerError::Verb(_))));
    assert!(open(at).is_ok());
}
