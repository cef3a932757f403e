//! The tree from another node: READs per lookup, and correct lookups while leaves split and are
//! removed.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use drtm_htm::{Engine, NoHtm};
use drtm_kv::{HashConfig, KvTable, NodeCache, PeerError, Tree, TreePeer};
use drtm_rdma::{Endpoint, LocalConfig, NodeId, Offset, Phase, Port, Remote, Tearing, VerbError, Verbs, block_on};
use proptest::prelude::*;

use crate::{
    cluster::{PortOf, store},
    peers::{Job, Memory, OWNER, PEER, Seen, fabric, job, read, turn_of, value},
    support::{MIB, rounds},
};

fn place_of(base: Remote, tree: &Tree<NoHtm>) -> Remote {
    Remote { offset: tree.location(), ..base }
}

/// Opens a peer with this cache, if any.
fn open<P: Port>(endpoint: &Endpoint<P>, at: Remote, cache: Option<Arc<NodeCache>>) -> TreePeer {
    let peer = block_on(endpoint, TreePeer::open(endpoint.during(Phase::Lookup), at)).expect("the tree");
    match cache {
        Some(cache) => peer.with_cache(cache),
        None => peer,
    }
}

/// Returns a key's value, and the number of stale locations before the result.
async fn get<P: Port>(verbs: Verbs<'_, P>, peer: &TreePeer, key: u64) -> (Option<Vec<u8>>, u64) {
    let mut stale = 0;
    let mut found = peer.find(verbs, key).await.expect("sound");
    while let Some(location) = found {
        match read(verbs, location, key).await {
            Seen::Value(value) => return (Some(value), stale),
            Seen::Stale => stale += 1,
        }
        found = peer.find_again(verbs, key).await.expect("sound");
    }
    (None, stale)
}

/// Returns the READs of lookups of keys, all of which must be present, or absent.
fn reads(endpoint: &Endpoint<PortOf>, peer: &TreePeer, keys: impl Iterator<Item = u64>, there: bool) -> u64 {
    let verbs = endpoint.during(Phase::Lookup);
    let before = endpoint.counters().total().reads;
    for key in keys {
        assert_eq!(block_on(endpoint, peer.find(verbs, key)).expect("sound").is_some(), there, "{key}");
    }
    endpoint.counters().total().reads - before
}

#[test]
fn a_lookup_is_one_read_where_inner_nodes_are_remembered() {
    let store = store(NoHtm, 64 * MIB);
    let tree = store.tree().expect("a tree");
    let even = || (0..100_000_u64).map(|key| 2 * key);
    tree.load(&mut store.worker().expect("a worker"), even().map(|key| (key, b"value"))).expect("room");
    let (fabric, base) = fabric(&store, LocalConfig::perfect());
    let endpoint = fabric.endpoint(PEER);
    // Twenty-seven entries to a node: 3704 leaves, 138 nodes above them, 6 above those, and the
    // root.
    let (leaf, inner) = (1, 3);
    let forgetful = open(&endpoint, place_of(base, &tree), None);
    assert_eq!(reads(&endpoint, &forgetful, even().step_by(1_000), true), 100 * (3 * inner + leaf));

    let peer = open(&endpoint, place_of(base, &tree), Memory::Everything.cache());
    let learned = reads(&endpoint, &peer, even(), true) - 100_000;
    assert_eq!(learned, inner * (1 + 6 + 138), "each inner node is read once, to be sure that it is whole");
    assert_eq!(reads(&endpoint, &peer, even(), true), 100_000);
    // For an absent key, the leaf is read twice, and its stamp.
    assert_eq!(reads(&endpoint, &peer, (0..100).map(|key| 2 * key + 1), false), 300);

    // Memory of twenty-one nodes for 145: the root and its children stay.
    let peer = open(&endpoint, place_of(base, &tree), Memory::Little.cache());
    let mut random = fastrand::Rng::with_seed(5);
    let spent = reads(&endpoint, &peer, (0..10_000).map(|_| 2 * random.u64(0..100_000)), true);
    assert!(spent < 10_000 * (leaf + inner) + 1_000, "{spent} READs");
}

#[test]
fn a_leaf_that_is_the_root_is_one_read_too() {
    let store = store(NoHtm, 16 * MIB);
    let tree = store.tree().expect("a tree");
    let (fabric, base) = fabric(&store, LocalConfig::perfect());
    let endpoint = fabric.endpoint(PEER);
    let peer = open(&endpoint, place_of(base, &tree), Memory::Everything.cache());
    assert_eq!(reads(&endpoint, &peer, [0, 7, u64::MAX].into_iter(), false), 9);
    for key in [0, 7, u64::MAX] {
        tree.insert(&mut store.worker().expect("a worker"), key, b"value").expect("room");
    }
    assert_eq!(reads(&endpoint, &peer, [0, 7, u64::MAX].into_iter(), true), 3);
}

#[test]
fn what_is_out_of_date_is_fetched_again_and_no_more() {
    let store = store(NoHtm, 64 * MIB);
    let tree = store.tree().expect("a tree");
    let mut worker = store.worker().expect("a worker");
    let spread = |key: u64| 1_000 * key;
    tree.load(&mut worker, (0..100_000).map(|key| (spread(key), b"value"))).expect("room");
    let (fabric, base) = fabric(&store, LocalConfig::perfect());
    let endpoint = fabric.endpoint(PEER);
    let peer = open(&endpoint, place_of(base, &tree), Memory::Everything.cache());
    let all = || (0..100_000).map(spread);
    reads(&endpoint, &peer, all(), true);
    // One leaf splits. The node above is read again after the leaf shows that the key is to its
    // right.
    for key in 1..10 {
        tree.insert(&mut worker, spread(50_000) + key, b"value").expect("room");
    }
    let more = reads(&endpoint, &peer, all(), true) - 100_000;
    assert!((1..=4).contains(&more), "{more} READs more");
    assert_eq!(reads(&endpoint, &peer, all(), true), 100_000);
    // All but a few keys are removed, and the tree becomes lower.
    for key in (0..100_000).filter(|key| key % 25_000 != 0) {
        assert!(tree.remove(&mut worker, spread(key)).expect("sound").is_some());
    }
    for key in 1..10 {
        assert!(tree.remove(&mut worker, spread(50_000) + key).expect("sound").is_some());
    }
    reads(&endpoint, &peer, all().filter(|key| key % spread(25_000) != 0), false);
    assert_eq!(reads(&endpoint, &peer, (0..4).map(|key| spread(25_000 * key)), true), 4);
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Insert(u64),
    Update(u64),
    Remove(u64),
    Get(u64),
    /// Inserts a range, so that leaves split, or removes it, so that leaves are removed.
    Fill(u64),
    Clear(u64),
}

/// Keys in a range.
const RANGE: u64 = 200;

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (0..1_000_u64).prop_map(Op::Insert),
        4 => (0..1_000_u64).prop_map(Op::Update),
        3 => (0..1_000_u64).prop_map(Op::Remove),
        10 => (0..1_000_u64).prop_map(Op::Get),
        2 => (0..1_000_u64).prop_map(Op::Fill),
        2 => (0..1_000_u64).prop_map(Op::Clear),
    ];
    prop::collection::vec(op, 1..60)
}

fn answers_are_the_models(ops: &[Op], memory: Memory, config: LocalConfig) -> Result<(), TestCaseError> {
    let store = store(NoHtm, 16 * MIB);
    let tree = store.tree().expect("a tree");
    let mut worker = store.worker().expect("a worker");
    let (fabric, base) = fabric(&store, config);
    let endpoint = fabric.endpoint(PEER);
    let verbs = endpoint.during(Phase::Lookup);
    let peer = open(&endpoint, place_of(base, &tree), memory.cache());
    let mut model = HashMap::new();
    for (turn, op) in (0_u64..).zip(ops) {
        match *op {
            Op::Insert(key) => {
                let inserted = tree.insert(&mut worker, key, &value(key, turn)).expect("room").is_some();
                prop_assert_eq!(inserted, !model.contains_key(&key));
                model.entry(key).or_insert_with(|| value(key, turn));
            }
            Op::Update(key) => {
                if tree.update(&mut worker, key, &value(key, turn)).expect("room").is_some() {
                    model.insert(key, value(key, turn));
                }
            }
            Op::Remove(key) => {
                let removed = tree.remove(&mut worker, key).expect("sound").is_some();
                prop_assert_eq!(removed, model.remove(&key).is_some());
            }
            Op::Get(key) => {
                let (found, stale) = block_on(&endpoint, get(verbs, &peer, key));
                prop_assert_eq!(found.as_ref(), model.get(&key));
                prop_assert_eq!(stale, 0, "leaves are not remembered, and nothing changes meanwhile");
            }
            Op::Fill(first) => {
                for key in first..first + RANGE {
                    tree.put(&mut worker, key, &value(key, turn)).expect("room");
                    model.insert(key, value(key, turn));
                }
            }
            Op::Clear(first) => {
                for key in first..first + RANGE {
                    let removed = tree.remove(&mut worker, key).expect("sound").is_some();
                    prop_assert_eq!(removed, model.remove(&key).is_some());
                }
            }
        }
    }
    for key in (0..1_000 + RANGE).step_by(7) {
        let (found, _) = block_on(&endpoint, get(verbs, &peer, key));
        prop_assert_eq!(found.as_ref(), model.get(&key));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn random_changes_are_seen_as_a_model_sees_them(ops in ops(), seed in any::<u64>()) {
        for memory in Memory::ALL {
            answers_are_the_models(&ops, memory, LocalConfig::perfect())?;
            answers_are_the_models(&ops, memory, LocalConfig::harsh(seed))?;
        }
    }
}

/// Every tenth key is always present, the next one never is, and the others come, move and go in
/// crowds.
async fn look_up(verbs: Verbs<'_, PortOf>, peer: &TreePeer, seed: u64, done: &AtomicBool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut looked = 0;
    while !done.load(Relaxed) || looked < 100 {
        looked += 1;
        let key = 10 * random.u64(0..100);
        let (found, _) = get(verbs, peer, key).await;
        turn_of(&found.expect("it is there all the while"), key);
        assert_eq!(peer.find(verbs, key + 1).await.expect("sound"), None, "a key that never was");
        let moving = key + random.u64(2..10);
        if let (Some(found), _) = get(verbs, peer, moving).await {
            turn_of(&found, moving);
        }
    }
}

fn stress(memory: Memory, config: LocalConfig) {
    let store = store(NoHtm, 256 * MIB);
    let tree = store.tree().expect("a tree");
    let mut worker = store.worker().expect("a worker");
    for key in (0..1_000).step_by(10) {
        assert!(tree.insert(&mut worker, key, &value(key, 0)).expect("room").is_some());
    }
    let (fabric, base) = fabric(&store, config);
    let endpoint = fabric.endpoint(PEER);
    let peer = Arc::new(open(&endpoint, place_of(base, &tree), memory.cache()));
    let done = Arc::new(AtomicBool::new(false));
    let reader = |reader: u64| -> (NodeId, Job) {
        let (peer, done) = (Arc::clone(&peer), Arc::clone(&done));
        let start = job(move |worker| {
            for coroutine in 0..4 {
                let verbs = worker.endpoint().during(Phase::Lookup);
                let (peer, done) = (Arc::clone(&peer), Arc::clone(&done));
                let looks = async move { look_up(verbs, &peer, reader << 8 | coroutine, &done).await };
                worker.spawn(looks).expect("it runs");
            }
        });
        (PEER, start)
    };
    let ended = Arc::clone(&done);
    // Leaves split and are removed, and their memory is reused as other leaves and inner nodes; the
    // tree becomes higher and lower.
    let writer = job(move |node| {
        let endpoint = node.endpoint();
        let comes_and_goes = |key: &u64| key % 10 > 1;
        let writes = async move {
            for turn in 0..rounds(60) {
                for key in (0..1_000).filter(comes_and_goes) {
                    tree.put(&mut worker, key, &value(key, turn)).expect("room");
                    endpoint.yield_now().await;
                }
                for key in (0..1_000).step_by(10) {
                    assert!(tree.update(&mut worker, key, &value(key, turn)).expect("room").is_some());
                    endpoint.yield_now().await;
                }
                // Above the permanent keys, leaves become empty, too.
                for key in 1_000..2_000 {
                    tree.insert(&mut worker, key, &value(key, turn)).expect("room");
                    endpoint.yield_now().await;
                }
                for key in (0..2_000).filter(|key| comes_and_goes(key) || *key >= 1_000) {
                    assert!(tree.remove(&mut worker, key).expect("sound").is_some());
                    endpoint.yield_now().await;
                }
            }
            ended.store(true, Relaxed);
        };
        node.spawn(writes).expect("it runs");
    });
    fabric.together(vec![reader(0), reader(1), (OWNER, writer)]);
}

#[test]
fn what_is_there_is_found_and_nothing_else_while_leaves_are_divided_and_leave() {
    for memory in Memory::ALL {
        stress(memory, LocalConfig::harsh(11));
        stress(memory, LocalConfig::harsh(12).tearing(Tearing::Words));
        stress(memory, LocalConfig::perfect());
    }
}

/// Permanent keys are shifted within their leaf, from line to line.
#[test]
fn a_key_that_is_shifted_while_its_leaf_is_fetched_is_not_absent() {
    let store = store(NoHtm, 16 * MIB);
    let tree = store.tree().expect("a tree");
    let mut worker = store.worker().expect("a worker");
    let stays = || (100..120_u64).map(|key| 10 * key);
    for key in stays() {
        tree.insert(&mut worker, key, b"stays").expect("room");
    }
    let (fabric, base) = fabric(&store, LocalConfig::harsh(21));
    let (done, at) = (Arc::new(AtomicBool::new(false)), place_of(base, &tree));
    let reader = |reader: u64| -> (NodeId, Job) {
        let done = Arc::clone(&done);
        let start = job(move |worker| {
            let verbs = worker.endpoint().during(Phase::Lookup);
            let looks = async move {
                let peer = TreePeer::open(verbs, at).await.expect("the tree");
                let mut random = fastrand::Rng::with_seed(reader);
                while !done.load(Relaxed) {
                    let key = 10 * random.u64(100..120);
                    assert!(peer.find(verbs, key).await.expect("sound").is_some(), "{key} is there all the while");
                }
            };
            worker.spawn(looks).expect("it runs");
        });
        (PEER, start)
    };
    let ended = Arc::clone(&done);
    let writer = job(move |node| {
        let endpoint = node.endpoint();
        let writes = async move {
            // Below all others; and never more than fit into the leaf.
            for turn in 0..rounds(20_000) {
                for key in 0..10 {
                    tree.insert(&mut worker, turn % 7 + 10 * key, b"goes").expect("room");
                    endpoint.yield_now().await;
                }
                for key in 0..10 {
                    assert!(tree.remove(&mut worker, turn % 7 + 10 * key).expect("sound").is_some());
                    endpoint.yield_now().await;
                }
            }
            ended.store(true, Relaxed);
        };
        node.spawn(writes).expect("it runs");
    });
    fabric.together(vec![reader(0), reader(1), (OWNER, writer)]);
}

#[test]
fn absence_waits_for_whoever_is_changing_the_leaf() {
    let store = store(NoHtm, 16 * MIB);
    let tree = store.tree().expect("a tree");
    tree.insert(&mut store.worker().expect("a worker"), 7, b"seven").expect("room");
    let (fabric, base) = fabric(&store, LocalConfig::harsh(1));
    // The root, still a leaf, is behind the header's words. The lowest bit of its stamp is the
    // lock.
    let root = Offset::new(tree.location().bytes() + 8 * 136);
    let done = Arc::new(AtomicBool::new(false));
    NoHtm.fetch_or(&store.region().words(root, 1).expect("the root")[0], 1);
    let (found_out, at) = (Arc::clone(&done), place_of(base, &tree));
    let reader = job(move |worker| {
        let verbs = worker.endpoint().during(Phase::Lookup);
        let looks = async move {
            let peer = TreePeer::open(verbs, at).await.expect("the tree");
            assert!(peer.find(verbs, 7).await.expect("sound").is_some(), "found, for all that");
            assert_eq!(peer.find(verbs, 8).await.expect("sound"), None);
            found_out.store(true, Relaxed);
        };
        worker.spawn(looks).expect("it runs");
    });
    let (waits, region) = (Arc::clone(&done), Arc::clone(store.region()));
    let owner = job(move |worker| {
        let endpoint = worker.endpoint();
        let unlocks = async move {
            endpoint.sleep(Duration::from_millis(50)).await;
            assert!(!waits.load(Relaxed), "8 might be about to be inserted");
            NoHtm.fetch_and(&region.words(root, 1).expect("the root")[0], !1);
        };
        worker.spawn(unlocks).expect("it runs");
    });
    fabric.together(vec![(PEER, reader), (OWNER, owner)]);
    assert!(done.load(Relaxed));
}

#[test]
fn only_the_tree_that_is_there_can_be_opened_and_a_corrupt_one_is_an_error() {
    let store = store(NoHtm, 16 * MIB);
    let tree = store.tree().expect("a tree");
    let table = store.hash_table(HashConfig::default()).expect("a table");
    let (fabric, base) = fabric(&store, LocalConfig::harsh(1));
    let endpoint = fabric.endpoint(PEER);
    let verbs = endpoint.during(Phase::Lookup);
    let opened = |at| block_on(&endpoint, TreePeer::open(verbs, at)).map(|_| ());
    let at = place_of(base, &tree);
    assert_eq!(opened(at), Ok(()));
    assert!(matches!(opened(at + 8), Err(PeerError::NotThisTable { .. })));
    let of_a_table = Remote { offset: table.location(), ..at };
    assert!(matches!(opened(of_a_table), Err(PeerError::NotThisTable { .. })));
    assert!(matches!(opened(at + (1 << 40)), Err(PeerError::Verb(VerbError::OutOfBounds { .. }))));
    assert!(matches!(opened(Remote { node: NodeId(9), ..at }), Err(PeerError::Verb(_))));

    for key in 0..100 {
        tree.insert(&mut store.worker().expect("a worker"), key, b"value").expect("room");
    }
    // The root is behind the header's words; its links are behind four words and thirty keys.
    let root = Offset::new(tree.location().bytes() + 8 * 136);
    let link = &store.region().words(root, 64).expect("the root")[34];
    let peer = open(&endpoint, at, Memory::Everything.cache());
    for (place, expected) in [(1_u64 << 40) - 1, 1 << 30].map(|place| (place, "not in the region")) {
        NoHtm.store(link, place);
        let found = block_on(&endpoint, open(&endpoint, at, None).find(verbs, 0));
        assert!(found.as_ref().is_err_and(|error| error.to_string().contains(expected)), "{place:#x}: {found:?}");
    }
    // A cached root is not believed forever, and is read again.
    assert!(block_on(&endpoint, peer.find(verbs, 99)).expect("that part is sound").is_some());
}
