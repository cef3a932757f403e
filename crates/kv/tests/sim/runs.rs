//! Whole runs of kv's remote code on a simulated cluster. They are determined by their seed, also
//! under faults, and no read is torn whatever happens.

use std::{cell::Cell, rc::Rc, time::Duration};

use drtm_kv::{HashConfig, Inline, KvTable, Leases, Look};
use drtm_rdma::{Chances, Fault, LocalConfig, NodeId, Phase, Remains, RunEnd, Spawner, Trace};
use drtm_testing::rounds;

use crate::{
    cluster::{Cluster, PortOf},
    peers::{OWNER, PEERS, Peer, holder, lock_record, stamp_of, stamped, write_record},
};

const KEYS: u64 = 20;
const WORDS: usize = 20;
const COROUTINES: usize = 3;

/// Peers look up, read, lock and write, with any error. Returns the trace, and
/// the numbers of successes and failures.
fn run(seed: u64, faults: &[(u64, Fault)]) -> (Trace, u64, u64) {
    let cluster = Cluster::new(LocalConfig::harsh(seed));
    let table = cluster.store.hash_table(HashConfig::default().for_peers()).expect("a table");
    let mut worker = cluster.store.worker().expect("a worker");
    for key in 0..KEYS {
        table.insert(&mut worker, key, &stamped(key, WORDS)).expect("room").expect("new");
    }
    for (micros, fault) in faults {
        cluster.sim.plan(Duration::from_micros(*micros), fault.clone());
    }
    let at = cluster.at(table.location());
    let (done, failed) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    for node in PEERS {
        let (done, failed) = (Rc::clone(&done), Rc::clone(&failed));
        let start = move |worker: Spawner<'_, PortOf>| {
            let verbs = worker.endpoint().during(Phase::Execute);
            let spawner = worker.clone();
            let opens = async move {
                let peer = Rc::new(Peer::<Inline>::at(at, verbs).await);
                for coroutine in 0..COROUTINES {
                    let (peer, done, failed) = (Rc::clone(&peer), Rc::clone(&done), Rc::clone(&failed));
                    let turns = async move {
                        let mut random = fastrand::Rng::with_seed(seed * 100 + coroutine as u64);
                        for turn in 0..20 {
                            let key = random.u64(0..KEYS);
                            let well = one_turn(verbs, &peer, node, coroutine, key, turn).await;
                            let tally = if well { &done } else { &failed };
                            tally.set(tally.get() + 1);
                            if !well {
                                verbs.endpoint().sleep(Duration::from_micros(200)).await;
                                let _ = verbs.endpoint().reconnect(OWNER);
                            }
                        }
                    };
                    spawner.spawn(turns).expect("it runs");
                }
            };
            worker.spawn(opens).expect("it runs");
        };
        cluster.sim.spawn(node, start).expect("a node");
    }
    assert_eq!(cluster.sim.run_for(Duration::from_secs(20)), RunEnd::Done, "an operation does not end");
    (cluster.sim.trace(), done.get(), failed.get())
}

/// Returns whether it succeeded. Asserts in any case that no value is torn.
async fn one_turn(
    verbs: drtm_rdma::Verbs<'_, PortOf>,
    peer: &Peer<Inline>,
    node: NodeId,
    coroutine: usize,
    key: u64,
    turn: u64,
) -> bool {
    let endpoint = verbs.endpoint();
    let deadline = endpoint.now() + Duration::from_millis(3);
    let turn = async {
        let Ok(Some(location)) = peer.lookup.find(verbs, key).await else { return false };
        let mut value = Vec::new();
        if turn.is_multiple_of(2) {
            match peer.records.read(verbs, location, key, &mut value).await {
                Ok(Look::Found(_)) => assert!(stamp_of(&value).is_some(), "a torn value of key {key}"),
                Ok(_) => {}
                Err(_) => return false,
            }
        } else {
            let me = (holder(node, coroutine), Leases::None);
            match lock_record(&peer.records, verbs, location, key, me, &mut value).await {
                Ok(Look::Found(lock)) => {
                    assert!(stamp_of(&value).is_some(), "a torn value of key {key}");
                    return write_record(&peer.records, verbs, &lock, key, &stamped(turn, WORDS)).await.is_ok();
                }
                Ok(_) => {}
                Err(_) => return false,
            }
        }
        true
    };
    endpoint.before(deadline, turn).await.unwrap_or(false)
}

#[test]
fn the_same_seed_twice_is_the_same_run() {
    let mut hashes = Vec::new();
    for seed in 0..rounds(100) {
        let traced = run(seed, &[]);
        assert_eq!(run(seed, &[]), traced, "seed {seed}");
        assert!(traced.1 > 0);
        hashes.push(traced.0.hash);
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len() as u64, rounds(100), "another seed is another run");
}

/// The name, the faults with their times in microseconds, and whether something breaks.
type Named = (&'static str, Vec<(u64, Fault)>, bool);

#[test]
fn every_operation_ends_under_each_fault() {
    let [one, other] = PEERS;
    let worse = Chances { delay: 0.3, at_most: Duration::from_micros(100), loss: 0.1, ..Chances::NONE };
    let lost = (200, Fault::Restart { node: OWNER, remains: Remains::Nothing });
    let kept = (200, Fault::Restart { node: OWNER, remains: Remains::Memory });
    let crash = (60, Fault::Crash { node: OWNER });
    let faults: [Named; 9] = [
        ("chances", vec![(0, Fault::Chances(worse))], false),
        ("a partition", vec![(60, Fault::Partition(vec![one])), (2_000, Fault::Heal)], true),
        ("a crash", vec![crash.clone()], true),
        ("a restart with memory", vec![crash.clone(), kept], true),
        ("a restart without", vec![crash, lost], true),
        ("leaving", vec![(60, Fault::Leave { node: OWNER })], true),
        ("a stalled owner", vec![(60, Fault::Stall { node: OWNER, lasts: Duration::from_millis(5) })], false),
        ("a stalled peer", vec![(60, Fault::Stall { node: other, lasts: Duration::from_millis(1) })], false),
        ("skew and drift", vec![(60, Fault::Clock { node: one, skew: 1_000_000, drift: 200_000_000 })], false),
    ];
    for seed in 0..rounds(5) {
        let mut total = 0;
        for (name, faults, breaks) in &faults {
            let traced = run(seed, faults);
            assert_eq!(run(seed, faults), traced, "{name}, seed {seed}");
            let (_, done, failed) = traced;
            assert!(!breaks || failed > 0, "{name}, seed {seed}: nothing was noticed");
            total += done;
        }
        assert!(total > 0);
    }
}
