//! The leader of a view dies, and so does a client that the next leader has never met, or it is cut
//! off: what the client had locked becomes free.

use std::{
    panic::catch_unwind,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_membership::{Membership, Register, RegisterOptions};
use drtm_rdma::{Fault, NicProfile, NodeId, RunEnd, Sim, SimConfig, SimFabric, Spawner};
use drtm_testing::rounds;
use drtm_txn::{
    Mutation, Options, Transaction as _,
    cluster::{Node, Protocol},
};

use super::advances;
use crate::bed::{Rings, Setup, Tested, kept};

const LEASE: Duration = Duration::from_millis(1);
const OWNERS: u16 = 4;
const LEADER: NodeId = NodeId(0);
const CLIENT: NodeId = NodeId(OWNERS);

/// A row of the third owner, whose backups are the fourth and the first.
const ROW: u64 = 2;

/// The node that writes the row in the end.
const WRITER: NodeId = NodeId(3);

/// Lets both end so long after the client's transactions have begun. Fails if its locks stay.
fn after_both_ends(after: Duration, of_client: Fault) {
    let sim = Sim::<NoHtm>::new(OWNERS + 1, SimConfig::new(&NicProfile::CONNECTX_4));
    let register = Register::new(RegisterOptions::default());
    let (begun, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut opened: Option<Node<SimFabric<NoHtm>, Tested>> = None;
    for number in 0..=OWNERS {
        // A client that starts when the cluster is open meets only the nodes that it needs.
        while let Some(node) = opened.as_ref().filter(|node| number == CLIENT.0 && node.view().number() < 2) {
            assert_eq!(sim.run_for(Duration::from_micros(50)), RunEnd::TimeUp);
            assert!(sim.elapsed() < Duration::from_millis(200), "they do not meet: {:?}", node.view());
        }
        let membership: (Arc<dyn Membership>, _) = (Arc::new(register.client()), LEASE);
        let rings = Rings { backups: 2, ..Rings::default() };
        let (node, tables) = kept(sim.fabric(), number, OWNERS, Protocol::FASST, (rings, Some(membership)));
        opened.get_or_insert_with(|| node.clone());
        let born = sim.elapsed();
        let (register, begun, done) = (register.clone(), Arc::clone(&begun), Arc::clone(&done));
        let spawned = sim.spawn(NodeId(number), move |spawner: Spawner<'_, _>| {
            let worker = node.worker(spawner.endpoint()).expect("few workers");
            worker.serve(&spawner);
            let (endpoint, is_done) = (spawner.endpoint(), Arc::clone(&done));
            spawner.spawn(advances(register, born, endpoint, move || is_done.load(SeqCst))).expect("it runs");
            let works = async move {
                let put = async |options| {
                    worker.transact_with(options, async |tx| tx.put(tables.words, ROW, vec![7; 16]).await).await
                };
                match NodeId(number) {
                    CLIENT => {
                        // At first it finds no view that is open.
                        while put(Options::new()).await.is_err() {
                            endpoint.sleep(Duration::from_micros(50)).await;
                        }
                        begun.store(true, SeqCst);
                        // One that is cut off waits for no longer.
                        while put(Options::new().within(Duration::from_millis(50))).await.is_ok() {}
                    }
                    WRITER => {
                        endpoint.until(|| node.view().number() > 1 && !node.view().has(LEADER)).await;
                        let written = put(Options::new().within(Duration::from_millis(50))).await;
                        written.unwrap_or_else(|error| panic!("after {after:?}, the row stays locked: {error}"));
                        done.store(true, SeqCst);
                    }
                    _ => endpoint.until(|| done.load(SeqCst)).await,
                }
            };
            spawner.spawn(works).expect("it runs");
        });
        spawned.expect("room for an endpoint");
    }
    while !begun.load(SeqCst) {
        assert_eq!(sim.run_for(Duration::from_micros(50)), RunEnd::TimeUp);
        assert!(sim.elapsed() < Duration::from_millis(200), "they do not meet");
    }
    sim.plan(after, Fault::Crash { node: LEADER });
    sim.plan(after, of_client);
    assert_eq!(sim.run_for(Duration::from_millis(300)), RunEnd::Done, "after {after:?}, something hangs: {done:?}");
}

/// Moments of some transactions.
fn moments() -> impl Iterator<Item = Duration> {
    (0..rounds(24)).map(|round| Duration::from_nanos(2_000_000 + round * 7_919 % 30_000))
}

#[test]
fn locks_of_a_client_are_free_that_the_leader_has_not_met() {
    moments().for_each(|after| after_both_ends(after, Fault::Crash { node: CLIENT }));
}

#[test]
fn locks_of_a_client_are_free_that_is_cut_off_for_ever() {
    moments().for_each(|after| after_both_ends(after, Fault::Partition(vec![CLIENT])));
}

#[test]
fn ends_that_the_next_leader_overlooks_are_found() {
    let ends = |after| after_both_ends(after, Fault::Crash { node: CLIENT });
    let is_found = |after| catch_unwind(|| Setup::faulty(Mutation::EndsOverlooked).run(|| ends(after))).is_err();
    assert!(moments().any(is_found));
}
