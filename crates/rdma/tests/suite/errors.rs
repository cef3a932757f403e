//! Refusals and failures, each a value that names its cause, after which everything goes on.

use drtm_htm::NoHtm;
use drtm_rdma::{
    Atomicity, Buffers, Fabric, FabricError, Incarnation, LocalConfig, LocalFabric, NodeId, Phase, RegionId, Remote,
    VerbError, block_on, run,
};

use crate::{
    agent::{Agent, Order},
    support::{Mood, Plain, Testbed, World, on_every_fabric, with, word},
};

on_every_fabric!(
    a_late_failure_is_not_taken_for_anothers,
    bad_addresses_are_refused_by_name,
    a_full_queue_refuses_a_batch_and_makes_a_coroutine_wait,
    short_buffers_make_wait_and_are_an_error_when_waiting_is_vain,
    a_node_that_left_is_disconnected,
);

fn bad_addresses_are_refused_by_name<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood);
    let endpoint = world.endpoint();
    let good = word(1, 0);
    let end = word(1, crate::support::BYTES / 8);
    let nowhere = Remote { node: NodeId(7), ..good };
    let no_region = Remote { region: RegionId(3), ..good };
    with(&endpoint, async |verbs| {
        let misaligned = Remote { offset: good.offset + 4, ..good };
        assert_eq!(verbs.read(misaligned, 1).await.err(), Some(VerbError::Misaligned { at: misaligned }));
        assert_eq!(verbs.write(misaligned, &[1]).await, Err(VerbError::Misaligned { at: misaligned }));
        assert_eq!(verbs.fetch_add(misaligned, 1).await, Err(VerbError::Misaligned { at: misaligned }));
        assert_eq!(verbs.compare_swap(misaligned, 1, 1).await, Err(VerbError::Misaligned { at: misaligned }));

        let beyond = VerbError::OutOfBounds { at: end, words: 1 };
        assert_eq!(verbs.read(end, 1).await.err(), Some(beyond));
        assert_eq!(verbs.write(end, &[1]).await, Err(beyond));
        assert_eq!(verbs.fetch_add(end, 1).await, Err(beyond));
        assert_eq!(verbs.compare_swap(end, 0, 1).await, Err(beyond));
        let last = word(1, crate::support::BYTES / 8 - 1);
        verbs.write(last, &[1]).await?;
        assert_eq!(verbs.write(last, &[2, 2]).await, Err(VerbError::OutOfBounds { at: last, words: 2 }));
        assert_eq!(verbs.read_word(last).await?, 1, "an operation that does not fit does nothing");
        let wild = Remote { offset: drtm_rdma::Offset::new(!7), ..good };
        assert_eq!(verbs.read(wild, 2).await.err(), Some(VerbError::OutOfBounds { at: wild, words: 2 }));

        let node = NodeId(7);
        // Fabrics that nodes join do not know whether it will.
        let absent = match endpoint.reconnect(node) {
            Err(error @ (VerbError::UnknownNode { .. } | VerbError::NotJoined { .. })) => error,
            other => panic!("{node} is not here: {other:?}"),
        };
        assert_eq!(verbs.read(nowhere, 1).await.err(), Some(absent));
        assert_eq!(verbs.send(node, b"").await, Err(absent));
        assert_eq!(verbs.call(node, b"").await.err(), Some(absent));
        let unknown = VerbError::UnknownRegion { node: NodeId(1), region: RegionId(3) };
        assert_eq!(verbs.read(no_region, 1).await.err(), Some(unknown));
        assert_eq!(verbs.fetch_add(no_region, 1).await, Err(unknown));

        let capabilities = endpoint.capabilities();
        let words = capabilities.max_read_bytes / 8 + 1;
        let large = VerbError::TooLarge { bytes: words * 8, most: capabilities.max_read_bytes };
        assert_eq!(verbs.read(good, words).await.err(), Some(large));
        assert_eq!(verbs.write(good, &vec![1; words]).await, Err(large));
        assert!(matches!(verbs.read(good, usize::MAX).await, Err(VerbError::TooLarge { .. })));
        let long = vec![0; capabilities.max_message_bytes + 1];
        assert!(matches!(verbs.send(NodeId(1), &long).await, Err(VerbError::TooLarge { .. })));

        verbs.write(good, &[1]).await
    });
    assert_eq!(endpoint.at_rest().2, 0);
}

#[test]
fn atomics_that_are_not_there_are_refused() {
    let world = Plain::new(2, LocalConfig::harsh(1).atomicity(Atomicity::None));
    let endpoint = world.endpoint(0);
    with(&endpoint, async |verbs| {
        assert_eq!(verbs.fetch_add(word(1, 0), 1).await, Err(VerbError::AtomicsUnsupported));
        assert_eq!(verbs.compare_swap(word(1, 0), 0, 1).await, Err(VerbError::AtomicsUnsupported));
        verbs.write(word(1, 0), &[1]).await
    });
}

fn a_full_queue_refuses_a_batch_and_makes_a_coroutine_wait<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(3, mood.queue_depth(4));
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    let full = VerbError::QueueFull { node: NodeId(1), depth: 4 };
    block_on(&endpoint, async {
        let mut batch = verbs.batch();
        for _ in 0..4 {
            batch.fetch_add(word(1, 0), 1)?.unsignaled();
        }
        assert_eq!(batch.fetch_add(word(1, 0), 1).err(), Some(full));
        batch.fetch_add(word(2, 0), 1)?.unsignaled();
        // Only this coroutine could make room, and it waits: an error, and not for ever.
        assert_eq!(verbs.read_word(word(1, 0)).await, Err(full));
        batch.ring();
        assert_eq!(verbs.read_word(word(1, 0)).await?, 4);
        Ok::<_, VerbError>(())
    })
    .expect("posted");
    let outcomes = run(&endpoint, 50, |_| verbs.fetch_add(word(1, 0), 1));
    let mut olds: Vec<u64> = outcomes.into_iter().map(|old| old.expect("room comes")).collect();
    olds.sort_unstable();
    assert_eq!(olds, (4..54).collect::<Vec<_>>());
}

fn short_buffers_make_wait_and_are_an_error_when_waiting_is_vain<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood.buffers(Buffers { small: 2, medium: 1, large: 0 }));
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    let outcomes = run(&endpoint, 20, |_| async move { verbs.read(word(1, 0), 8).await.map(|words| words[0]) });
    assert!(outcomes.iter().all(|outcome| *outcome == Ok(0)), "each waits for another's buffer");
    block_on(&endpoint, async {
        let held =
            [verbs.read(word(1, 0), 8).await?, verbs.read(word(1, 0), 8).await?, verbs.read(word(1, 0), 8).await?];
        let exhausted = VerbError::BuffersExhausted { bytes: 64 };
        assert_eq!(verbs.read(word(1, 0), 8).await.err(), Some(exhausted));
        assert_eq!(verbs.batch().read(word(1, 0), 8).err(), Some(exhausted));
        drop(held);
        verbs.read(word(1, 0), 8).await.map(drop)
    })
    .expect("they are back");
    let large = VerbError::BuffersExhausted { bytes: 1024 * 8 };
    assert_eq!(block_on(&endpoint, verbs.read(word(1, 0), 1024)).err(), Some(large));
}

fn a_node_that_left_is_disconnected<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(3, mood);
    let endpoint = world.endpoint();
    let (node, incarnation) = (NodeId(1), Incarnation(1));
    let gone = VerbError::Gone { node, incarnation };
    let cut_off = VerbError::Disconnected { node, incarnation };
    let verbs = endpoint.during(Phase::Other);
    let asked = block_on(&endpoint, async {
        let mut batch = verbs.batch();
        let asked = batch.call(NodeId(1), b"are you there?")?;
        let other = batch.call(NodeId(2), b"and you?")?;
        batch.ring();
        drop(other);
        Ok::<_, VerbError>(asked)
    })
    .expect("posted");
    world.agent(1).ask(Order::Leave);
    block_on(&endpoint, async {
        assert_eq!(asked.await.err(), Some(cut_off), "a call that it had taken");
        assert_eq!(verbs.read_word(word(1, 0)).await, Err(gone));
        assert_eq!(verbs.fetch_add(word(1, 0), 1).await, Err(gone));
        assert_eq!(verbs.send(NodeId(1), b"hello").await, Err(gone));
        assert!(verbs.call(NodeId(1), b"hello").await.is_err_and(|error| error.is_departure()));
        verbs.read_word(word(2, 0)).await
    })
    .expect("the others are there");
}

#[test]
fn endpoints_of_a_node_that_left_may_finish_and_there_are_no_more() {
    let world = Plain::new(2, LocalConfig::perfect());
    let leaving = world.endpoint(1);
    world.fabric.close(NodeId(1)).expect("a node");
    with(&leaving, async |verbs| verbs.write(word(0, 0), &[1]).await);
    assert_eq!(world.load(word(0, 0)), 1);
    assert_eq!(world.fabric.endpoint(NodeId(1)).err(), Some(FabricError::Closed { node: NodeId(1) }));
}

/// A call that fails early because the node leaves, while its request is still on the way: that it
/// fails too is reported to no caller.
fn a_late_failure_is_not_taken_for_anothers<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(3, mood);
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    let mut batch = verbs.batch();
    let call = batch.call(NodeId(1), b"too late").expect("room");
    batch.ring();
    world.agent(1).ask(Order::Leave);
    let mut failed = Err(call);
    while let Err(call) = failed {
        endpoint.progress();
        failed = call.try_take();
    }
    assert_eq!(
        failed.ok().and_then(Result::err),
        Some(VerbError::Disconnected { node: NodeId(1), incarnation: Incarnation(1) })
    );
    // Takes the place of the call in the endpoint's books, while the request may still be on its
    // way.
    assert_eq!(block_on(&endpoint, verbs.read_word(word(2, 0))), Ok(0));
}

#[test]
fn limits_of_a_fabric_are_errors() {
    let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect().endpoints(2));
    let node = NodeId(0);
    let first = fabric.endpoint(node).expect("room");
    let _second = fabric.endpoint(node).expect("room");
    assert_eq!(fabric.endpoint(node).err(), Some(FabricError::TooManyEndpoints { node, most: 2 }));
    drop(first);
    let _third = fabric.endpoint(node).expect("room again");

    let region = std::sync::Arc::new(drtm_rdma::Region::anonymous(NoHtm, 4096).expect("a region"));
    let mut registered = 0;
    let refused = loop {
        match fabric.register(node, region.clone()) {
            Ok(id) => assert_eq!(usize::from(id.0), registered),
            Err(error) => break error,
        }
        registered += 1;
    };
    assert_eq!(refused, FabricError::TooManyRegions { node, most: registered });
    let nobody = NodeId(1);
    assert_eq!(fabric.register(nobody, region), Err(FabricError::UnknownNode { node: nobody }));
    assert_eq!(fabric.close(nobody), Err(FabricError::UnknownNode { node: nobody }));
}
