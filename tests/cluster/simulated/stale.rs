//! An owner is cut off, and does not know it yet when its lease has ended. The others change the
//! view, and write a row of it. A transaction on fetched rows, which asks no other node, must not
//! tell what the owner has: neither by what it returns, nor by an abort of its own.

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
use drtm_txn::{Error, Mutation, Transaction as _, cluster::Protocol};

use super::advances;
use crate::bed::{Rings, Setup, kept};

const LEASE: Duration = Duration::from_millis(1);
const OWNERS: u16 = 3;
const CUT_OFF: NodeId = NodeId(2);

/// A row of that owner, and what it is before and after.
const ROW: u64 = CUT_OFF.0 as u64;
const BEFORE: u8 = 7;
const AFTER: u8 = 8;

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Meet,
    Filled,
    Written,
    Done,
}

fn is(step: &AtomicU64, what: Step) -> bool {
    step.load(SeqCst) >= what as u64
}

/// Fails if the owner tells the row as it was, after another node was told that it is written.
fn reads_while_cut_off(protocol: Protocol, is_given_up: bool) {
    let sim = Sim::<NoHtm>::new(OWNERS, SimConfig::new(&NicProfile::CONNECTX_4));
    let (register, step) = (Register::new(RegisterOptions::default()), Arc::new(AtomicU64::new(Step::Meet as u64)));
    for number in 0..OWNERS {
        let membership: (Arc<dyn Membership>, _) = (Arc::new(register.client()), LEASE);
        let rings = Rings { backups: 1, ..Rings::default() };
        let (node, tables) = kept(sim.fabric(), number, OWNERS, protocol, (rings, Some(membership)));
        let (register, step) = (register.clone(), Arc::clone(&step));
        let spawned = sim.spawn(NodeId(number), move |spawner: Spawner<'_, _>| {
            let worker = node.worker(spawner.endpoint()).expect("few workers");
            worker.serve(&spawner);
            let (endpoint, now) = (spawner.endpoint(), Arc::clone(&step));
            spawner.spawn(advances(register, Duration::ZERO, endpoint, move || is(&now, Step::Done))).expect("it runs");
            let works = async move {
                let put =
                    async |value: u8| worker.transact(async |tx| tx.put(tables.words, ROW, vec![value]).await).await;
                if number == 0 {
                    // At first it finds no view that is open.
                    while put(BEFORE).await.is_err() {
                        endpoint.sleep(Duration::from_micros(50)).await;
                    }
                    let view = node.view().number();
                    step.store(Step::Filled as u64, SeqCst);
                    endpoint.until(|| node.view().number() > view).await;
                    put(AFTER).await.expect("its backup serves the row");
                    step.store(Step::Written as u64, SeqCst);
                } else if NodeId(number) == CUT_OFF {
                    endpoint.until(|| is(&step, Step::Written)).await;
                    let seen = Cell::new(None);
                    let told = worker.transact_on(
                        |_| Ok(()),
                        async |rows| {
                            let row = rows.get(tables.words, ROW).await?;
                            seen.set(row.map(|row| row[0]));
                            if is_given_up { Err(Error::aborted("it has seen a row")) } else { Ok(()) }
                        },
                    );
                    let is_told = matches!(told.await, Ok(()) | Err(Error::Aborted { .. }));
                    assert!(!is_told || seen.get() != Some(BEFORE), "{}: it is not so any more", protocol.name);
                    step.store(Step::Done as u64, SeqCst);
                }
                endpoint.until(|| is(&step, Step::Done)).await;
            };
            spawner.spawn(works).expect("it runs");
        });
        spawned.expect("room for an endpoint");
    }
    let goes_until = |what: Step, within| {
        let until = sim.elapsed() + within;
        while !is(&step, what) {
            assert_eq!(sim.run_for(Duration::from_micros(5)), RunEnd::TimeUp);
            assert!(sim.elapsed() < until, "{what:?} does not come");
        }
    };
    goes_until(Step::Filled, Duration::from_millis(200));
    sim.plan(Duration::ZERO, Fault::Partition(vec![CUT_OFF]));
    goes_until(Step::Written, Duration::from_millis(100));
    sim.plan(LEASE, Fault::Heal);
    assert_eq!(sim.run_for(Duration::from_millis(600)), RunEnd::Done, "something hangs");
}

#[test]
fn what_a_node_has_without_a_lease_is_not_told() {
    for protocol in Protocol::with_names() {
        [false, true].into_iter().for_each(|is_given_up| reads_while_cut_off(protocol, is_given_up));
    }
}

/// A commit looks at the lease once more. An abort does not.
#[test]
fn what_is_told_without_a_lease_is_found() {
    let told = || Setup::faulty(Mutation::LeaseNotConfirmed).run(|| reads_while_cut_off(Protocol::DRTM, true));
    assert!(catch_unwind(told).is_err());
}
