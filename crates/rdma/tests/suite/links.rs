//! A node whose network link goes down and comes back. Links are those of network namespaces, which
//! `scripts/netns/test` makes; elsewhere these tests say that they are skipped.

use std::{
    cell::{Cell, RefCell},
    process::Command,
    sync::Mutex,
    time::Duration,
};

use drtm_rdma::{Executor, Incarnation, NodeId, Phase, Port, Presence, VerbError, Verbs};

use crate::{
    agent::{Agent, Order, PATIENCE, Service},
    machines::{Machines, TcpMood, namespaces},
    support::{World, word},
};

/// How long a link is down.
const DOWN: Duration = Duration::from_secs(5);

/// The node whose link it is, and one whose link stays up.
const LOST: u16 = 1;
const STAYS: u16 = 2;

/// A node's link, on this side. It is up again when this is dropped.
struct Link(String);

impl Link {
    fn of(node: u16) -> Self {
        Self(format!("drtm{node}"))
    }

    fn set(&self, state: &str) {
        let status = Command::new("ip").args(["link", "set", "dev", &self.0, state]).status().expect("ip");
        assert!(status.success(), "the link {} is not {state}", self.0);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.set("up");
        }
    }
}

/// What has become of additions.
#[derive(Default)]
struct Tally {
    done: Cell<u64>,
    unknown: Cell<u64>,
    without_effect: Cell<u64>,
    /// Calls beside them that were not answered.
    calls: Cell<u64>,
    last: RefCell<Option<VerbError>>,
}

impl Tally {
    fn add(&self, outcome: Result<u64, VerbError>) {
        let count = match outcome {
            Ok(_) => &self.done,
            Err(error) => {
                assert!(error.is_departure(), "{error}");
                *self.last.borrow_mut() = Some(error);
                if error.may_have_taken_effect() { &self.unknown } else { &self.without_effect }
            }
        };
        count.set(count.get() + 1);
    }
}

/// Adds to a word of a node, and calls it, until `over`.
async fn work<P: Port>(verbs: Verbs<'_, P>, node: u16, over: &Cell<bool>, tally: &Tally) {
    let endpoint = verbs.endpoint();
    while !over.get() {
        if endpoint.presence(NodeId(node)).here().is_some() && endpoint.reconnect(NodeId(node)).is_ok() {
            tally.add(verbs.fetch_add(word(node, 0), 1).await);
            match verbs.call(NodeId(node), b"drtm").await {
                Ok(reply) => assert_eq!(reply[..], *b"mtrd"),
                Err(error) => {
                    assert!(error.is_departure(), "{error}");
                    *tally.last.borrow_mut() = Some(error);
                    tally.calls.set(tally.calls.get() + 1);
                }
            }
        }
        endpoint.sleep(Duration::from_millis(1)).await;
    }
}

/// Takes the link of a node down and up while others work. Gives what became of additions to it and
/// to the other, and what was heard of it in the meantime.
fn lose_the_link(deadline: usize) -> Option<(Tally, Tally, Vec<Presence>)> {
    if namespaces().is_none() {
        println!("skipped: there are no network namespaces; scripts/netns/test makes some");
        return None;
    }
    // What is down is down for all.
    static LINKS: Mutex<()> = Mutex::new(());
    let _alone = LINKS.lock();
    let world = World::<Machines>::new(3, TcpMood::default().deadline(deadline));
    for node in [LOST, STAYS] {
        world.agent(node).ask(Order::Serve(Service::Backwards));
    }
    let link = Link::of(LOST);
    let endpoint = world.endpoint();
    let rest = endpoint.at_rest();
    let verbs = endpoint.during(Phase::Other);
    let (over, lost, stays) = (Cell::new(false), Tally::default(), Tally::default());
    let seen = RefCell::new(vec![endpoint.presence(NodeId(LOST))]);
    let mut executor = Executor::new(&endpoint).patience(2 * PATIENCE);
    for _ in 0..4 {
        executor.spawn(work(verbs, LOST, &over, &lost));
        executor.spawn(work(verbs, STAYS, &over, &stays));
    }
    executor.spawn(async {
        while !over.get() {
            let now = endpoint.presence(NodeId(LOST));
            if seen.borrow().last() != Some(&now) {
                seen.borrow_mut().push(now);
            }
            endpoint.sleep(Duration::from_millis(1)).await;
        }
    });
    executor.spawn(async {
        let here = || endpoint.presence(NodeId(LOST)) == Presence::Here(Incarnation(1));
        endpoint.until(|| lost.done.get() > 100).await;
        link.set("down");
        let (before, since) = (stays.done.get(), endpoint.now());
        endpoint.sleep(DOWN).await;
        assert!(stays.done.get() > before, "the others go on");
        let without = lost.done.get();
        link.set("up");
        endpoint.until(|| here() && lost.done.get() > without + 100).await;
        println!("all as before {:?} after the link went down", endpoint.now().since(since));
        over.set(true);
    });
    executor.run();
    assert_eq!(endpoint.at_rest(), rest, "every buffer is back");
    let found = [LOST, STAYS].map(|node| world.load(word(node, 0)));
    for (tally, found) in [&lost, &stays].into_iter().zip(found) {
        let (done, unknown, none) = (tally.done.get(), tally.unknown.get(), tally.without_effect.get());
        println!("{done} additions done, {unknown} unknown, {none} without effect; {found} found");
        assert!((done..=done + unknown).contains(&found), "each happens once, or its error says that it may not have");
    }
    Some((lost, stays, seen.into_inner()))
}

/// Silence of more than the deadline: what is under way ends with a suspicion, and the node comes
/// back as the same incarnation.
#[test]
fn a_link_that_is_down_longer_than_the_deadline_makes_a_node_suspected_until_it_is_back() {
    let Some((lost, stays, seen)) = lose_the_link(3_000) else { return };
    let [here, suspected] = [Presence::Here, Presence::Suspected].map(|as_it_stands| as_it_stands(Incarnation(1)));
    assert_eq!(seen, [here, suspected, here]);
    assert!(lost.unknown.get() + lost.calls.get() > 0, "something was under way");
    let suspicion = VerbError::Suspected { node: NodeId(LOST), incarnation: Incarnation(1) };
    let gone = VerbError::Gone { node: NodeId(LOST), incarnation: Incarnation(1) };
    let last = lost.last.take();
    assert!(last == Some(suspicion) || last == Some(gone), "{last:?}");
    assert_eq!((stays.unknown.get(), stays.without_effect.get()), (0, 0));
}

/// Silence of less than the deadline is nothing but a delay.
#[test]
fn a_link_that_is_down_less_than_the_deadline_only_delays() {
    let Some((lost, stays, seen)) = lose_the_link(60_000) else { return };
    assert_eq!(seen, [Presence::Here(Incarnation(1))]);
    for tally in [lost, stays] {
        assert_eq!((tally.unknown.get(), tally.without_effect.get()), (0, 0));
    }
}
