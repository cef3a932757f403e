//! An owner on a machine that stands still for longer than its lease finds itself out, and joins
//! again by itself, in its process: as another life, with nothing or its directory. No money is
//! lost meanwhile. A node that is closed while it does so ends, and one whose place was taken says
//! so. So it is with a node that joins a fabric itself, whose connections break.

use std::{
    fs, io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use drtm_htm::Native;
use drtm_membership::Directory;
use drtm_rdma::{Incarnation, NodeId, TcpConfig, TcpFabric};
use drtm_testing::ports::free_addresses;
use drtm_txn::{
    Builder, Durability, Error, Options, Transaction as _,
    cluster::{Cluster, ClusterError, ClusterEvent, Events, Partition},
};

use crate::{
    agreeing::{Bank, MONEY, Money, OWNERS, Place, fill, judge, run},
    process::Owner,
};

#[test]
fn owners_that_were_stopped_join_again_by_themselves() {
    let place = Place::new("returns", false);
    run(&place, |scene| {
        // The first owner leads the view and the voters. It is evicted in its next life, too.
        for node in [0, 1, 0] {
            scene.stop_until_it_returns(node);
        }
    });
}

#[test]
fn owners_with_directories_that_were_stopped_join_again_by_themselves() {
    let place = Place::new("returns-durable", true);
    run(&place, |scene| {
        scene.stop_until_it_returns(1);
        scene.stop_until_it_returns(0);
        // Its directory is worth something to its process, too.
        scene.kill(1);
        scene.start_again(1, false);
    });
}

#[test]
fn owners_with_a_register_that_were_stopped_join_again_by_themselves() {
    for are_durable in [false, true] {
        let place = Place::new(&format!("returns-register-{are_durable}"), are_durable).with_register();
        run(&place, |scene| {
            scene.stop_until_it_returns(0);
            scene.stop_until_it_returns(1);
        });
    }
}

/// It waits for the end of its life, or tries to join, or is about to be a member.
#[test]
fn an_owner_that_is_closed_while_it_joins_again_ends() {
    for after in [0, 30, 400, 1_500] {
        let place = Place::new(&format!("returns-closed-{after}"), after == 400);
        run(&place, |scene| {
            place.closes(1, after);
            // If it is a member by then, what needs it meanwhile is refused.
            scene.lose(true);
            scene.stop_for_a_while(1);
            assert!(scene.owners[1].says("closed"), "it has failed");
            assert!(scene.owners[1].process.wait().expect("it ends").success());
            scene.goes_on();
            scene.lose(false);
        });
    }
}

#[test]
fn an_owner_that_was_replaced_while_it_was_stopped_stays_out() {
    for has_register in [false, true] {
        let place = Place::new(&format!("returns-not-{has_register}"), false);
        let place = if has_register { place.with_register() } else { place };
        run(&place, |scene| {
            let life = scene.life_of(1);
            scene.owners[1].signal("STOP");
            scene.until_out(1, life);
            // Its connections stay open while it is stopped, but it is not here.
            let address = free_addresses(1)[0];
            while scene.bank.replace(NodeId(1), address).wait().is_err() {
                thread::sleep(Duration::from_millis(50));
            }
            let file = place.path.join("addresses");
            let addresses = fs::read_to_string(&file).expect("they are chosen");
            let lines = addresses.lines().enumerate();
            let lines = lines.map(|(node, line)| if node == 1 { format!("{address}\n") } else { format!("{line}\n") });
            fs::write(&file, lines.collect::<String>()).expect("a disk");
            let replacing = Owner::that_agrees(1, &place.path, false);
            let mut replaced = std::mem::replace(&mut scene.owners[1], replacing);
            scene.until_whole();
            replaced.signal("CONT");
            assert!(replaced.says_all(&["no return", "stays out"]), "it does not say so");
            assert!(replaced.says("closed") && replaced.process.wait().expect("it ends").success());
            scene.goes_on();
        });
    }
}

/// What a test does to a node in this process: its fabric can break, and be closed to it.
#[derive(Default)]
struct Gate {
    fabric: Mutex<Option<TcpFabric<Native>>>,
    is_shut: AtomicBool,
}

/// Starts three owners in this process, of which each joins its fabric itself.
fn three(place: &Place, are_durable: bool) -> (Vec<(Bank, Money)>, Vec<Arc<Gate>>) {
    let at: Arc<[SocketAddr]> = free_addresses(usize::from(OWNERS)).into();
    let register = Arc::new(Directory::open(&place.path.join("view")).expect("a directory"));
    let engine = Native::chosen().expect("an engine");
    let start = |node: u16| {
        let gate = Arc::new(Gate::default());
        let (at, its_gate) = (Arc::clone(&at), Arc::clone(&gate));
        let join = move |last: Option<Incarnation>| {
            if its_gate.is_shut.load(SeqCst) {
                return Err(io::Error::other("the gate is shut"));
            }
            let config = TcpConfig::new(NodeId(node), at[usize::from(node)], [7; 32]);
            let config = (0..).zip(&*at).fold(config, |config, (other, at)| config.peer(NodeId(other), *at));
            let config = last.into_iter().fold(config, TcpConfig::later_than);
            let fabric = TcpFabric::join(engine, config).map_err(io::Error::other)?;
            *its_gate.fabric.lock().expect("no panic") = Some(fabric.clone());
            Ok(fabric)
        };
        let mut database = Builder::new().memory(16 << 20);
        if are_durable {
            let path = place.path.join(node.to_string());
            database = database.path(path).create(true).durability(Durability::Sync);
        }
        let builder = Cluster::builder().joining(join, NodeId(node), OWNERS).database(database).threads(2);
        let mut builder = builder.membership(Arc::clone(&register) as Arc<_>).lease(Duration::from_secs(2));
        let money = builder.table(MONEY, Partition::by("number", |number| *number));
        ((builder.start().expect("a port"), money), gate)
    };
    (0..OWNERS).map(start).unzip()
}

impl Gate {
    /// Ends a node as others see it, and waits until it finds itself out.
    fn evict(&self, events: &mut Events) {
        self.fabric.lock().expect("no panic").take().expect("it has joined").break_off();
        until(events, |event| matches!(event, ClusterEvent::Evicted { .. }));
    }
}

fn until(events: &mut Events, is_it: impl Fn(&ClusterEvent) -> bool) {
    while !is_it(&events.wait().expect("the node is open")) {}
}

#[test]
fn what_is_given_to_a_node_between_two_lives_waits_until_its_deadline() {
    for are_durable in [false, true] {
        let place = Place::new(&format!("returns-between-{are_durable}"), are_durable);
        let (banks, gates) = three(&place, are_durable);
        let (bank, money) = (&banks[1].0, banks[1].1);
        fill(bank, money);
        let (before, commits) = (bank.node(), bank.stats().commits);
        let mut events = bank.events();
        // The life before ends when this has.
        let held = before.local().begin().expect("it is open");
        gates[1].evict(&mut events);
        let soon = Options::new().within(Duration::from_millis(200));
        let is_evicted = |ended: &Result<_, Error>| {
            matches!(ended, Err(Error::Cluster(ClusterError::Evicted { may_have_happened: false })))
        };
        // Until its threads rest, they find that it is out.
        let late = loop {
            let ended = bank.transact_with(soon, async move |tx| tx.get(money, 1).await).wait();
            if !is_evicted(&ended) {
                break ended;
            }
        };
        let is_late = matches!(late, Err(Error::Cluster(ClusterError::Interrupted { may_have_happened: false, .. })));
        assert!(is_late, "{late:?}");
        let patient = bank.transact(async move |tx| tx.update(money, 1, |balance| *balance += 0).await);
        assert!(bank.stats().commits >= commits && bank.stats().blocked_threads == 0);
        drop(held);
        assert_eq!(patient.wait().expect("it joins again"), Some(()));
        until(&mut events, |event| *event == ClusterEvent::Returned { incarnation: bank.node().incarnation() });
        assert!(bank.node().incarnation() > before.incarnation());
        assert!(bank.stats().commits > commits, "those of both lives count");
        assert!(before.local().is_closed() && !bank.node().local().is_closed());
        assert!(banks.iter().all(|(bank, money)| judge(bank, *money) == 0));
        // Others see it close in good order, as any node.
        let mut events = banks[0].0.events();
        bank.close();
        until(&mut events, |event| *event == ClusterEvent::Left { node: NodeId(1) });
    }
}

#[test]
fn a_node_that_cannot_join_again_is_closed_and_what_waits_is_told() {
    let place = Place::new("returns-shut", false);
    let (banks, gates) = three(&place, false);
    let (bank, money) = (&banks[1].0, banks[1].1);
    fill(bank, money);
    let mut events = bank.events();
    gates[1].is_shut.store(true, SeqCst);
    gates[1].evict(&mut events);
    // Each thread has one.
    let waiting = [(); 4].map(|()| bank.transact(async move |tx| tx.get(money, 1).await));
    bank.close_within(Duration::from_secs(60)).expect("nothing is left");
    for waiting in waiting {
        let ended = waiting.wait();
        // It may have begun before its thread rested.
        let is_told = matches!(ended, Err(Error::Closed | Error::Cluster(ClusterError::Evicted { .. })));
        assert!(is_told, "{ended:?}");
    }
    while events.wait().is_some() {}
    let late = bank.transact(async move |tx| tx.get(money, 1).await).wait();
    assert!(matches!(late, Err(Error::Closed)), "{late:?}");
    assert_eq!(judge(&banks[0].0, money), 0);
}
