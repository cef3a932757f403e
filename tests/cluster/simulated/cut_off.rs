//! An owner is cut off for less than its lease, and no view changes: what transactions had locked
//! there becomes free.

use std::{
    cell::Cell,
    panic::catch_unwind,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_membership::{Membership, Register, RegisterOptions};
use drtm_rdma::{Fault, NicProfile, NodeId, RunEnd, Sim, SimConfig, Spawner};
use drtm_testing::rounds;
use drtm_txn::{Mutation, Options, Transaction as _, cluster::Protocol};

use super::advances;
use crate::bed::{Rings, Setup, kept};

const LEASE: Duration = Duration::from_millis(1);
const AWAY: Duration = Duration::from_micros(400);
const OWNERS: u16 = 3;
const CLIENT: NodeId = NodeId(OWNERS);
const CUT_OFF: NodeId = NodeId(2);

/// Rows of that owner.
const ROWS: u64 = 8;

fn row(number: u64) -> u64 {
    u64::from(CUT_OFF.0) + u64::from(OWNERS) * (number % ROWS)
}

/// What the nodes have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Meet,
    Write,
    Look,
    Done,
}

/// Cuts the owner off so long after the client's transactions have begun. Each of their runs writes
/// another row. Fails if one stays locked.
fn after_a_while(protocol: Protocol, after: Duration) {
    let sim = Sim::<NoHtm>::new(OWNERS + 1, SimConfig::new(&NicProfile::CONNECTX_4));
    let (register, step) = (Register::new(RegisterOptions::default()), Arc::new(AtomicU64::new(Step::Meet as u64)));
    for number in 0..=OWNERS {
        let membership: (Arc<dyn Membership>, _) = (Arc::new(register.client()), LEASE);
        let rings = Rings { backups: 1, ..Rings::default() };
        let (node, tables) = kept(sim.fabric(), number, OWNERS, protocol, (rings, Some(membership)));
        let (register, step) = (register.clone(), Arc::clone(&step));
        let spawned = sim.spawn(NodeId(number), move |spawner: Spawner<'_, _>| {
            let worker = node.worker(spawner.endpoint()).expect("few workers");
            worker.serve(&spawner);
            let (endpoint, now) = (spawner.endpoint(), Arc::clone(&step));
            spawner
                .spawn(advances(register, Duration::ZERO, endpoint, move || now.load(SeqCst) == Step::Done as u64))
                .expect("it runs");
            let works = async move {
                let runs = Cell::new(0);
                let put = async |options, row_of: &dyn Fn() -> u64| {
                    let written = worker.transact_with(options, async |tx| {
                        tx.put(tables.words, 1, vec![7; 16]).await?;
                        tx.put(tables.words, row_of(), vec![7; 16]).await
                    });
                    written.await
                };
                let next = || {
                    runs.set(runs.get() + 1);
                    row(runs.get())
                };
                if NodeId(number) == CLIENT {
                    // At first it finds no view that is open.
                    while put(Options::new(), &next).await.is_err() {
                        endpoint.sleep(Duration::from_micros(50)).await;
                    }
                    step.store(Step::Write as u64, SeqCst);
                    while step.load(SeqCst) < Step::Look as u64 {
                        put(Options::new(), &next).await.expect("the owner comes back");
                    }
                } else if number == 0 {
                    endpoint.until(|| step.load(SeqCst) == Step::Look as u64).await;
                    for number in 0..ROWS {
                        let written = put(Options::new().within(Duration::from_millis(50)), &|| row(number)).await;
                        written.unwrap_or_else(|error| panic!("after {after:?}, row {number} stays locked: {error}"));
                    }
                    step.store(Step::Done as u64, SeqCst);
                }
                endpoint.until(|| step.load(SeqCst) == Step::Done as u64).await;
                assert_eq!(node.view().number(), 2, "no node was away for longer than its lease");
            };
            spawner.spawn(works).expect("it runs");
        });
        spawned.expect("room for an endpoint");
    }
    while step.load(SeqCst) == Step::Meet as u64 {
        assert_eq!(sim.run_for(Duration::from_micros(50)), RunEnd::TimeUp);
        assert!(sim.elapsed() < Duration::from_millis(200), "they do not meet");
    }
    sim.plan(after, Fault::Partition(vec![CUT_OFF]));
    sim.plan(after + AWAY, Fault::Heal);
    assert_eq!(sim.run_for(after + AWAY + LEASE), RunEnd::TimeUp);
    step.store(Step::Look as u64, SeqCst);
    assert_eq!(sim.run_for(Duration::from_millis(600)), RunEnd::Done, "after {after:?}, something hangs");
}

/// Moments of some transactions, in all protocols in turn.
fn cases(usual: u64) -> impl Iterator<Item = (Protocol, Duration)> {
    let protocols: Vec<Protocol> = Protocol::with_names().collect();
    let at = |round| Duration::from_nanos(2_000_000 + round * 7_919 % 30_000);
    (0..rounds(usual)).map(move |round| (protocols[round as usize % protocols.len()], at(round)))
}

#[test]
fn locks_at_an_owner_that_is_met_again_are_free() {
    cases(14).for_each(|(protocol, after)| after_a_while(protocol, after));
}

#[test]
fn locks_that_the_next_run_forgets_are_found() {
    let is_found = |(protocol, after)| {
        catch_unwind(|| Setup::faulty(Mutation::OwedForgotten).run(|| after_a_while(protocol, after))).is_err()
    };
    assert!(cases(70).any(is_found));
}
