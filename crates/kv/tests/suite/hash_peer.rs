//! The hash table from another node: how many READs a lookup takes, and that lookups are right while the table changes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use drtm_htm::NoHtm;
use drtm_kv::{Bytes, HashConfig, HashPeer, HashTable, Inline, PeerError, Store};
use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Offset, Phase, Remote, VerbError, block_on, run};

use crate::support::{MIB, rounds, store};

const OWNER: NodeId = NodeId(1);

/// A fabric of two nodes, of which the second has this store.
fn fabric(store: &Store<NoHtm>, config: LocalConfig) -> (LocalFabric<NoHtm>, Remote) {
    let fabric = LocalFabric::new(2, config);
    let region = fabric.register(OWNER, Arc::clone(store.region())).expect("room for a region");
    (fabric, Remote { node: OWNER, region, offset: Offset::new(0) })
}

fn place_of(base: Remote, table: &HashTable<NoHtm>) -> Remote {
    Remote { offset: table.location(), ..base }
}

/// Keys without any order in them: hashing ordered keys by multiplication spreads them better than chance.
fn random_keys(count: u64) -> Vec<u64> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut keys: Vec<u64> = (0..count).map(|_| random.u64(..)).collect();
    keys.sort_unstable();
    keys.dedup();
    random.shuffle(&mut keys);
    keys
}

/// READs for a lookup of each key, on average, in a table of 2^15 buckets.
fn reads_per_lookup(occupancy: f64) -> f64 {
    let keys = random_keys((occupancy * 8.0 * f64::from(1 << 15)) as u64);
    let store = store(NoHtm, 256 * MIB);
    let config = HashConfig::for_keys(keys.len() as u64).with_occupancy(occupancy).fixed();
    let table = store.hash_table(config).expect("a table");
    assert_eq!(table.buckets().expect("sound"), 1 << 15);
    let mut worker = store.worker();
    for key in &keys {
        assert!(table.insert(&mut worker, *key, b"").expect("room").is_some());
    }
    let (fabric, base) = fabric(&store, LocalConfig::perfect());
    let endpoint = fabric.endpoint(NodeId(0)).expect("an endpoint");
    let verbs = endpoint.during(Phase::Lookup);
    let peer = block_on(&endpoint, HashPeer::<Inline>::open(verbs, place_of(base, &table))).expect("the table");
    let look_all_up = || {
        for key in &keys {
            assert!(block_on(&endpoint, peer.find(verbs, *key)).expect("sound").is_some());
        }
        endpoint.counters().total().reads
    };
    // The first time finds out where the segments are.
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

#[test]
fn what_is_there_is_found_and_nothing_else_while_the_table_grows_and_changes() {
    let store = store(NoHtm, 256 * MIB);
    let table = store.hash_table(HashConfig::default()).expect("a table");
    let mut worker = store.worker();
    // Every fourth key is there all the while; the next one never.
    for key in (0..2_000).step_by(4) {
        assert!(table.insert(&mut worker, key, b"stays").expect("room").is_some());
    }
    let (fabric, base) = fabric(&store, LocalConfig::harsh(3));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let endpoint = fabric.endpoint(NodeId(0)).expect("an endpoint");
            let verbs = endpoint.during(Phase::Lookup);
            let peer = block_on(&endpoint, HashPeer::<Inline>::open(verbs, place_of(base, &table))).expect("the table");
            let (peer, done) = (&peer, &done);
            run(&endpoint, 4, |coroutine| async move {
                let mut random = fastrand::Rng::with_seed(coroutine as u64);
                let mut looked = 0;
                while !done.load(Relaxed) || looked < 100 {
                    looked += 1;
                    let key = 4 * random.u64(0..500);
                    let found = peer.find(verbs, key).await.expect("sound").expect("it is there all the while");
                    assert_eq!(verbs.read_word(found.record).await.expect("in bounds"), key, "another key's record");
                    assert_eq!(peer.find(verbs, key + 1).await.expect("sound"), None, "a key that never was");
                }
            });
        });
        // Meanwhile others come and go, and the table grows from eighty buckets to thousands.
        let mut random = fastrand::Rng::with_seed(9);
        for turn in 0..rounds(60_000) {
            let key = 4 * random.u64(0..20_000) + 2 + random.u64(0..2);
            if turn % 3 == 0 {
                table.remove(&mut worker, key).expect("sound");
            } else {
                table.insert(&mut worker, key, b"goes").expect("room");
            }
        }
        done.store(true, Relaxed);
    });
}

#[test]
fn only_the_table_that_is_there_can_be_opened() {
    let store = store(NoHtm, 16 * MIB);
    let table = store.hash_table(HashConfig::default()).expect("a table");
    let (fabric, base) = fabric(&store, LocalConfig::harsh(1));
    let endpoint = fabric.endpoint(NodeId(0)).expect("an endpoint");
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
