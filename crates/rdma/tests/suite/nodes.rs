//! Nodes leave, die and come back, and what is posted to them ends all the same: once, and with an
//! error that says what it can have done.

use std::time::Duration;

use drtm_rdma::{Executor, Incarnation, NodeId, Phase, Presence, Round, VerbError, block_on, run};

use crate::{
    agent::{Agent, Order, PATIENCE, Service},
    support::{Testbed, World, on_every_fabric, with, word},
};

on_every_fabric!(
    each_operation_to_a_node_that_died_ends_once,
    leaving_dying_and_coming_back_are_events,
    a_new_incarnation_must_be_accepted,
    a_node_that_is_first_met_dead_must_be_accepted,
    callers_of_a_node_that_dies_do_not_hang,
    an_endpoint_that_sleeps_is_told,
);

/// Waits until this endpoint knows that node 1 is gone.
fn until_gone<P: drtm_rdma::Port>(endpoint: &drtm_rdma::Endpoint<P>) {
    let mut executor = Executor::new(endpoint).patience(PATIENCE);
    executor.spawn(async { while endpoint.next_event().await.presence.here().is_some() {} });
    executor.run();
    assert_eq!(endpoint.presence(NodeId(1)).here(), None);
}

fn each_operation_to_a_node_that_died_ends_once<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(3, mood);
    let endpoint = world.endpoint();
    let rest = endpoint.at_rest();
    let verbs = endpoint.during(Phase::Other);
    with(&endpoint, async |verbs| verbs.write(word(1, 0), &[1]).await);
    world.agent(1).ask(Order::Die);
    until_gone(&endpoint);
    let gone = VerbError::Gone { node: NodeId(1), incarnation: Incarnation(1) };
    block_on(&endpoint, async {
        assert_eq!(verbs.read_word(word(1, 0)).await, Err(gone));
        assert_eq!(verbs.write(word(1, 0), &[2]).await, Err(gone));
        assert_eq!(verbs.compare_swap(word(1, 0), 1, 2).await, Err(gone));
        assert_eq!(verbs.fetch_add(word(1, 0), 1).await, Err(gone));
        assert_eq!(verbs.send(NodeId(1), b"hello").await, Err(gone));
        assert!(verbs.call(NodeId(1), b"hello").await.is_err_and(|error| error.is_departure()));
        assert!(!gone.may_have_taken_effect());
        // Many at a time, of which each ends, and a batch beside others to a node that is there.
        let mut batch = verbs.batch();
        let reads: Vec<_> = (0..20).map(|index| batch.read(word(1, index), 4).expect("room")).collect();
        let other = batch.fetch_add(word(2, 0), 1).expect("room");
        batch.write(word(1, 0), &[3]).expect("room").unsignaled();
        batch.ring();
        for read in reads {
            assert_eq!(read.await.err(), Some(gone));
        }
        assert_eq!(other.await, Ok(0));
    });
    // The failure of the unsignaled one is reported by the next.
    assert_eq!(block_on(&endpoint, verbs.read_word(word(1, 0))), Err(gone));
    assert_eq!(endpoint.at_rest(), rest, "every buffer is back");
}

fn leaving_dying_and_coming_back_are_events<R: Testbed>(mood: R::Mood) {
    let mut world = World::<R>::new(3, mood);
    let endpoint = world.endpoint();
    assert_eq!(endpoint.presence(NodeId(1)), Presence::Here(Incarnation(1)));
    let next = || {
        let event = std::cell::Cell::new(None);
        let mut executor = Executor::new(&endpoint).patience(PATIENCE);
        executor.spawn(async { event.set(Some(endpoint.next_event().await)) });
        executor.run();
        let event = event.into_inner().expect("an event");
        (event.node, event.presence)
    };
    world.agent(1).ask(Order::Die);
    assert_eq!(next(), (NodeId(1), Presence::Died(Incarnation(1))));
    world.restart(1);
    assert_eq!(next(), (NodeId(1), Presence::Here(Incarnation(2))));
    world.agent(2).ask(Order::Leave);
    assert_eq!(next(), (NodeId(2), Presence::Left(Incarnation(1))));
    world.restart(2);
    assert_eq!(next(), (NodeId(2), Presence::Here(Incarnation(2))));
    // And nothing else.
    let deadline = endpoint.now() + Duration::from_millis(5);
    assert!(block_on(&endpoint, endpoint.before(deadline, endpoint.next_event())).is_err());
}

fn a_node_that_is_first_met_dead_must_be_accepted<R: Testbed>(mood: R::Mood) {
    let mut world = World::<R>::new(2, mood);
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    world.agent(1).ask(Order::Die);
    until_gone(&endpoint);
    assert!(!endpoint.needs_reconnect(NodeId(1)), "nothing was asked of it");
    assert!(block_on(&endpoint, verbs.call(NodeId(1), b"hello")).is_err_and(|error| error.is_departure()));
    world.restart(1);
    let mut executor = Executor::new(&endpoint).patience(PATIENCE);
    executor.spawn(endpoint.until(|| endpoint.presence(NodeId(1)).here().is_some()));
    executor.run();
    let gone = VerbError::Gone { node: NodeId(1), incarnation: Incarnation(1) };
    assert_eq!(block_on(&endpoint, verbs.write(word(1, 0), &[7])), Err(gone));
    assert!(endpoint.needs_reconnect(NodeId(1)));
    assert_eq!(endpoint.reconnect(NodeId(1)), Ok(Incarnation(2)));
    assert!(!endpoint.needs_reconnect(NodeId(1)));
    with(&endpoint, async |verbs| verbs.write(word(1, 0), &[7]).await);
    assert_eq!(world.load(word(1, 0)), 7);
}

fn a_new_incarnation_must_be_accepted<R: Testbed>(mood: R::Mood) {
    let mut world = World::<R>::new(2, mood);
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    with(&endpoint, async |verbs| verbs.write(word(1, 0), &[1]).await);
    assert_eq!(endpoint.reconnect(NodeId(1)), Ok(Incarnation(1)), "nothing to do");
    world.agent(1).ask(Order::Die);
    until_gone(&endpoint);
    let gone = VerbError::Gone { node: NodeId(1), incarnation: Incarnation(1) };
    assert_eq!(endpoint.reconnect(NodeId(1)), Err(gone));
    let unknown = NodeId(1000);
    assert_eq!(endpoint.reconnect(unknown), Err(VerbError::UnknownNode { node: unknown }));
    world.restart(1);
    let mut executor = Executor::new(&endpoint).patience(PATIENCE);
    executor.spawn(endpoint.until(|| endpoint.presence(NodeId(1)).here().is_some()));
    executor.run();
    let wild = block_on(&endpoint, verbs.write(word(1, 0), &[7]));
    assert_eq!(wild, Err(gone), "the address means nothing in the new memory");
    assert_eq!(world.load(word(1, 0)), 0);
    assert_eq!(endpoint.reconnect(NodeId(1)), Ok(Incarnation(2)));
    with(&endpoint, async |verbs| verbs.write(word(1, 0), &[7]).await);
    assert_eq!(world.load(word(1, 0)), 7);
    world.agent(1).ask(Order::Serve(Service::Backwards));
    with(&endpoint, async |verbs| {
        assert_eq!(verbs.call(NodeId(1), b"drtm").await?[..], *b"mtrd");
        Ok(())
    });
    world.agent(1).ask(Order::Halt);
}

fn callers_of_a_node_that_dies_do_not_hang<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood);
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    // No endpoint serves there: the calls are taken, and not answered.
    let ends = std::cell::Cell::new(0);
    let mut executor = Executor::new(&endpoint).patience(PATIENCE);
    for _ in 0..20 {
        executor.spawn(async {
            let error = verbs.call(NodeId(1), b"hello").await.expect_err("it dies");
            assert!(error.is_departure(), "{error}");
            ends.set(ends.get() + 1);
        });
    }
    executor.spawn(async {
        endpoint.sleep(Duration::from_millis(2)).await;
        assert_eq!(ends.get(), 0);
        world.agent(1).ask(Order::Die);
    });
    executor.run();
    assert_eq!(ends.get(), 20);
    let late = run(&endpoint, 4, |_| async { verbs.call(NodeId(1), b"hello").await.err() });
    assert!(late.into_iter().all(|error| error.is_some_and(|error| error.is_departure())));
}

fn an_endpoint_that_sleeps_is_told<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood);
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    let mut executor = Executor::new(&endpoint).patience(PATIENCE);
    executor.spawn(async {
        let error = verbs.call(NodeId(1), b"hello").await.expect_err("it dies");
        assert!(error.may_have_taken_effect());
    });
    while endpoint.naps() == 0 {
        assert_ne!(executor.round(), Round::Done);
        executor.park(Some(Duration::from_micros(100)));
    }
    R::meanwhile(&world, 1, Order::Die, || executor.run());
}
