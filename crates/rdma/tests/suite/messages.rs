//! Messages, calls and their replies.

use std::{thread, time::Duration};

use drtm_rdma::{Executor, Fabric, LocalConfig, NodeId, Phase, VerbError, Verbs, block_on};

use crate::{
    agent::{Agent, Order, Service},
    support::{Mood, Plain, Testbed, World, on_every_fabric, with, word},
};

on_every_fabric!(
    calls_of_every_length_are_echoed,
    many_calls_at_a_time_get_each_its_own_reply,
    a_call_that_is_not_answered_fails,
    a_caller_may_lose_interest_at_any_step,
    messages_arrive_once_and_in_order_and_after_what_was_written_before,
    full_mailboxes_all_around_are_no_deadlock,
    a_reply_to_an_endpoint_that_is_gone_reaches_no_other,
    endpoints_of_a_node_share_its_mail,
);

/// Runs a client on node 0 while node 1 answers.
fn client_and_server<R: Testbed, T>(
    world: &World<R>,
    service: Service,
    client: impl AsyncFnOnce(Verbs<'_, <R::Fabric as Fabric>::Port>) -> T,
) -> T {
    world.agent(1).ask(Order::Serve(service));
    let endpoint = world.endpoint();
    let value = block_on(&endpoint, client(endpoint.during(Phase::Other)));
    world.agent(1).ask(Order::Halt);
    value
}

fn calls_of_every_length_are_echoed<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood);
    client_and_server(&world, Service::Backwards, async |verbs| {
        let most = verbs.endpoint().capabilities().max_message_bytes;
        let mut bytes_out = 0;
        for length in [0, 1, 7, 8, 511, 512, 513, 4096, 4097, most] {
            let request: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let reply = verbs.call(NodeId(1), &request).await.expect("a reply");
            assert!(reply.iter().eq(request.iter().rev()), "{length}");
            assert_eq!(reply.from(), NodeId(1));
            bytes_out += length as u64;
        }
        let tally = verbs.endpoint().counters().total();
        assert_eq!((tally.calls, tally.messages(), tally.round_trips), (10, 10, 10));
        assert_eq!((tally.bytes_out, tally.bytes_in), (bytes_out, bytes_out));
    });
}

fn many_calls_at_a_time_get_each_its_own_reply<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood.mailbox(8));
    client_and_server(&world, Service::Square, async |verbs| {
        for round in 0..20_u64 {
            let mut batch = verbs.batch();
            let calls: Vec<_> = (0..8)
                .map(|call| batch.call(NodeId(1), &(round + call).to_le_bytes()).expect("as many as may be"))
                .collect();
            assert_eq!(batch.call(NodeId(1), b"").err(), Some(VerbError::TooManyCalls { most: 8 }));
            batch.ring();
            for (call, number) in calls.into_iter().zip(round..) {
                let reply = call.await.expect("a reply");
                assert_eq!(reply[..], (number * number).to_le_bytes());
            }
        }
    });
}

fn a_call_that_is_not_answered_fails<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood);
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    let mut executor = Executor::new(&endpoint).patience(Duration::from_secs(10));
    executor.serve(async {
        loop {
            let message = verbs.recv().await;
            assert!(message.is_call());
            match &message[..] {
                b"drop" => drop(message),
                b"long" => {
                    let long = vec![0; endpoint.capabilities().max_message_bytes + 1];
                    assert!(matches!(message.reply(&long), Err(VerbError::TooLarge { .. })));
                }
                _ => message.reply(b"").expect("short"),
            }
        }
    });
    executor.spawn(async {
        let unanswered = Some(VerbError::Unanswered { node: NodeId(0) });
        assert_eq!(verbs.call(NodeId(0), b"drop").await.err(), unanswered);
        assert_eq!(verbs.call(NodeId(0), b"long").await.err(), unanswered);
        assert!(verbs.call(NodeId(0), b"answer").await.expect("a reply").is_empty());
    });
    executor.run();
}

fn a_caller_may_lose_interest_at_any_step<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood.mailbox(4));
    let endpoint = world.endpoint();
    let rest = endpoint.at_rest();
    let verbs = endpoint.during(Phase::Other);
    for polls in 0..40 {
        let mut executor = Executor::new(&endpoint).patience(Duration::from_secs(10));
        executor.serve(verbs.serve(|_, request, reply| reply.extend_from_slice(request)));
        executor.spawn(async {
            {
                let mut call = std::pin::pin!(verbs.call(NodeId(0), b"never mind"));
                for _ in 0..polls {
                    let mut done = false;
                    std::future::poll_fn(|context| {
                        done = call.as_mut().poll(context).is_ready();
                        std::task::Poll::Ready(())
                    })
                    .await;
                    if done {
                        break;
                    }
                    endpoint.yield_now().await;
                }
            }
            let reply = verbs.call(NodeId(0), b"this one").await.expect("a reply");
            assert_eq!(&reply[..], b"this one");
        });
        executor.run();
    }
    // The last replies may be on their way to endpoints that are gone.
    let mut executor = Executor::new(&endpoint);
    executor.serve(verbs.serve(|_, _, _| {}));
    executor.spawn(endpoint.until(|| endpoint.at_rest() == rest));
    executor.run();
}

fn messages_arrive_once_and_in_order_and_after_what_was_written_before<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood.mailbox(3));
    let count = 150_u64;
    world.agent(1).ask(Order::Collect(count));
    let endpoint = world.endpoint();
    let apart = endpoint.capabilities().ordering == drtm_rdma::Order::MessagesApart;
    with(&endpoint, async |verbs| {
        for number in 0..count {
            let mut batch = verbs.batch();
            let written = batch.write(word(1, number * 16), &[number + 1; 16])?;
            if apart {
                std::mem::replace(&mut batch, verbs.batch()).ring();
                written.await?;
            } else {
                written.unsignaled();
            }
            let sent = batch.send(NodeId(1), &number.to_le_bytes())?;
            batch.ring();
            if number % 3 == 0 {
                sent.await?;
            } else {
                sent.unsignaled();
                // Room for the next batch.
                endpoint.yield_now().await;
            }
        }
        Ok(())
    });
    assert_eq!(endpoint.counters().total().sends, count);
    // Messages may still wait for room there.
    while endpoint.at_rest() != world.endpoint().at_rest() {
        endpoint.progress();
        thread::yield_now();
    }
    assert_eq!(world.agent(1).ask(Order::Await), count);
    world.agent(1).ask(Order::Halt);
}

fn full_mailboxes_all_around_are_no_deadlock<R: Testbed>(mood: R::Mood) {
    const NODES: u16 = 3;
    // Two nodes may have two calls each to the third, which has room for two messages.
    let world = World::<R>::new(NODES, mood.mailbox(2).queue_depth(2));
    let mine = R::own(&world);
    for node in 1..NODES {
        world.agent(node).ask(Order::CallAround(NODES, 4));
    }
    mine.ask(Order::CallAround(NODES, 4));
    for node in 1..NODES {
        assert_eq!(world.agent(node).ask(Order::Await), 4);
    }
    assert_eq!(mine.ask(Order::Await), 4);
    for node in 1..NODES {
        world.agent(node).ask(Order::Halt);
    }
}

/// Both nodes' mailboxes are full, and calls to both wait for room: replies pass them, and so make
/// room.
#[test]
fn a_call_that_waits_for_room_holds_no_reply_up() {
    for config in [LocalConfig::perfect(), LocalConfig::harsh(1), LocalConfig::harsh(2)] {
        a_waiting_call_holds_no_reply_up(config);
    }
}

fn a_waiting_call_holds_no_reply_up(config: LocalConfig) {
    let world = Plain::new(2, config.mailbox(1));
    let first = [world.endpoint(0), world.endpoint(1)];
    let second = [world.endpoint(0), world.endpoint(1)];
    let poll_all = || {
        for _ in 0..100 {
            for endpoint in first.iter().chain(&second) {
                endpoint.progress();
            }
            thread::sleep(Duration::from_micros(1));
        }
    };
    let mut calls = Vec::new();
    for endpoints in [&second, &first] {
        for (endpoint, to) in endpoints.iter().zip([1, 0]) {
            let mut batch = endpoint.during(Phase::Other).batch();
            calls.push(batch.call(NodeId(to), b"hello").expect("room"));
            batch.ring();
        }
        poll_all();
    }
    for round in 0..2 {
        for endpoint in &first {
            with(endpoint, async |verbs| verbs.recv().await.reply(b"and hello"));
        }
        poll_all();
        let complete: Vec<bool> = calls.iter().map(drtm_rdma::Pending::is_complete).collect();
        assert_eq!(complete, [true, true, round == 1, round == 1]);
    }
}

fn a_reply_to_an_endpoint_that_is_gone_reaches_no_other<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood);
    for round in 0..20_u64 {
        {
            let leaving = world.endpoint();
            let mut batch = leaving.during(Phase::Other).batch();
            batch.call(NodeId(1), b"stale").expect("room").unsignaled();
            batch.ring();
            leaving.drain();
        }
        // Takes the same place.
        let endpoint = world.endpoint();
        let mut batch = endpoint.during(Phase::Other).batch();
        let call = batch.call(NodeId(1), &round.to_le_bytes()).expect("room");
        batch.ring();
        endpoint.drain();
        world.agent(1).ask(Order::Serve(Service::Backwards));
        let reply = block_on(&endpoint, call).expect("a reply");
        assert_eq!(reply[..], round.to_be_bytes());
        drop(reply);
        world.agent(1).ask(Order::Halt);
    }
}

fn endpoints_of_a_node_share_its_mail<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood);
    let [one, other] = [world.endpoint(), world.endpoint()];
    let sender = world.endpoint();
    for number in 0..10_u8 {
        with(&sender, async |verbs| verbs.send(NodeId(0), &[number]).await);
    }
    for number in 0..10_u8 {
        let endpoint = if number % 3 == 0 { &one } else { &other };
        with(endpoint, async |verbs| {
            assert_eq!(verbs.recv().await[..], [number]);
            Ok(())
        });
    }
}
