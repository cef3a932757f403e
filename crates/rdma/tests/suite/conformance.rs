//! What every fabric must do: one-sided verbs, batches, completions, counters.

use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use drtm_rdma::{Buffers, NodeId, Order, Pending, Phase, VerbError, block_on, run};

use crate::support::{Mood, Testbed, World, on_every_fabric, poll_and_drop, with, word};

on_every_fabric!(
    every_verb_does_what_it_says,
    operations_to_one_node_take_effect_in_order,
    a_read_awaited_first_is_never_passed,
    completions_come_in_the_order_of_posting,
    a_batch_reaches_several_nodes_by_a_doorbell_each,
    what_is_posted_together_shares_doorbells,
    what_is_posted_together_may_be_more_than_there_is_room_for,
    what_is_read_together_may_be_more_than_there_are_buffers,
    counters_are_exact,
    a_batch_that_is_not_rung_does_nothing,
    unsignaled_operations_take_effect_and_their_failures_are_heard,
    a_completion_can_be_polled_for,
    futures_may_be_dropped_at_any_step,
    values_outlive_what_comes_after,
    any_executor_will_do,
    coroutines_share_an_endpoint,
    all_sizes_and_alignments_travel_whole,
);

fn every_verb_does_what_it_says<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood);
    let endpoint = world.endpoint();
    // The own node is a target like others.
    for node in [0, 1] {
        with(&endpoint, async |verbs| {
            let at = word(node, 3);
            verbs.write(at, &[10, 20, 30]).await?;
            assert_eq!(verbs.read(at, 3).await?[..], [10, 20, 30]);
            assert_eq!(verbs.read_word(at + 8).await?, 20);
            assert_eq!(verbs.compare_swap(at, 10, 11).await?, 10);
            assert_eq!(verbs.compare_swap(at, 10, 12).await?, 11, "a swap that fails gives what it found");
            assert_eq!(verbs.fetch_add(at + 16, 5).await?, 30);
            assert_eq!(verbs.fetch_add(at + 16, u64::MAX).await?, 35, "wraps");
            assert!(verbs.read(at, 0).await?.is_empty());
            verbs.write(at, &[]).await
        });
        assert_eq!([0, 1, 2].map(|index| world.load(word(node, 3 + index))), [11, 20, 34]);
        assert_eq!([2, 6].map(|index| world.load(word(node, index))), [0, 0], "neighbours are untouched");
    }
}

fn operations_to_one_node_take_effect_in_order<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood);
    let endpoint = world.endpoint();
    let at = word(1, 7);
    with(&endpoint, async |verbs| {
        for round in 0..20 {
            let base = round * 100;
            let mut batch = verbs.batch();
            batch.write(at, &[base; 40])?.unsignaled();
            let added = batch.fetch_add(at, 1)?;
            let swapped = batch.compare_swap(at, base + 1, base + 2)?;
            batch.write(at + 8, &[base + 7; 20])?.unsignaled();
            let after = batch.read(at, 40)?;
            batch.ring();
            let after = after.await?;
            assert_eq!(added.await?, base);
            assert_eq!(swapped.await?, base + 1);
            assert_eq!(after[0], base + 2);
            assert!(after[1..21].iter().all(|word| *word == base + 7));
            assert!(after[21..].iter().all(|word| *word == base));
        }
        Ok(())
    });
}

fn a_read_awaited_first_is_never_passed<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood);
    let endpoint = world.endpoint();
    let at = word(1, 0);
    with(&endpoint, async |verbs| {
        for round in 1..50 {
            let before = verbs.read(at, 64).await?;
            verbs.write(at, &[round; 64]).await?;
            assert!(before.iter().all(|word| *word == round - 1));
        }
        Ok(())
    });
    if endpoint.capabilities().ordering == Order::Posted {
        // Then it need not even be awaited.
        with(&endpoint, async |verbs| {
            for round in 50..100 {
                let mut batch = verbs.batch();
                let before = batch.read(at, 64)?;
                batch.write(at, &[round; 64])?.unsignaled();
                batch.ring();
                assert!(before.await?.iter().all(|word| *word == round - 1));
            }
            Ok(())
        });
    }
}

fn completions_come_in_the_order_of_posting<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood);
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    for _ in 0..20 {
        let mut batch = verbs.batch();
        let read = batch.read(word(1, 0), 100).expect("room");
        let writes = [(); 3].map(|()| batch.write(word(1, 0), &[1]).expect("room"));
        batch.ring();
        loop {
            let mut complete = vec![read.is_complete()];
            complete.extend(writes.iter().map(Pending::is_complete));
            assert!(complete.windows(2).all(|pair| pair[0] >= pair[1]), "{complete:?}");
            if complete[3] {
                break;
            }
            endpoint.progress();
        }
    }
}

fn a_batch_reaches_several_nodes_by_a_doorbell_each<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(4, mood);
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Lock);
    block_on(&endpoint, async {
        let mut batch = verbs.batch();
        let mut olds = Vec::new();
        for node in [1, 2, 3, 1, 2] {
            olds.push(batch.fetch_add(word(node, 0), 1)?);
        }
        assert_eq!(batch.len(), 5);
        batch.ring();
        for (old, expected) in olds.into_iter().zip([0, 0, 0, 1, 1]) {
            assert_eq!(old.await?, expected);
        }
        Ok::<_, VerbError>(())
    })
    .expect("the words are there");
    let tally = endpoint.counters()[Phase::Lock];
    assert_eq!((tally.fetch_adds, tally.doorbells, tally.round_trips), (5, 3, 3));
}

fn what_is_posted_together_shares_doorbells<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(3, mood);
    let endpoint = world.endpoint();
    with(&endpoint, async |verbs| {
        let before = endpoint.counters()[Phase::Other];
        // Batches, of two nodes, and within them what is unsignaled.
        let added = endpoint.together(|| {
            [1, 2, 1, 2].map(|node| {
                let mut batch = verbs.batch();
                batch.write(word(node, 4), &[7])?.unsignaled();
                let added = batch.fetch_add(word(node, 0), 1)?;
                batch.ring();
                Ok(added)
            })
        });
        for (added, found) in added.into_iter().zip([0, 0, 1, 1]) {
            assert_eq!(added?.await?, found, "in the order of posting");
        }
        let batches = endpoint.counters()[Phase::Other] - before;
        assert_eq!((batches.operations(), batches.doorbells, batches.round_trips), (8, 2, 2));

        // Operations by themselves, and another phase: that one has a doorbell of its own.
        let mut reads = [pin!(verbs.read_word(word(1, 0))), pin!(verbs.read_word(word(1, 4)))];
        let mut other = pin!(verbs.during(Phase::Log).read_word(word(2, 0)));
        let (mut found, mut last) = ([None; 2], None);
        poll_fn(|context| {
            endpoint.together(|| {
                for (read, found) in reads.iter_mut().zip(&mut found).filter(|(_, found)| found.is_none()) {
                    *found = ready(read.as_mut().poll(context));
                }
                if last.is_none() {
                    last = ready(other.as_mut().poll(context));
                }
            });
            if found.iter().all(Option::is_some) && last.is_some() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        assert_eq!((found, last), ([Some(Ok(2)), Some(Ok(7))], Some(Ok(2))));
        let reads = endpoint.counters()[Phase::Other] - before;
        assert_eq!((reads.operations(), reads.round_trips), (10, 3));
        assert_eq!(endpoint.counters()[Phase::Log].round_trips, 1);
        Ok(())
    });
    // What was posted is on its way, however this ends.
    let posted = catch_unwind(AssertUnwindSafe(|| {
        endpoint.together(|| {
            let mut batch = endpoint.during(Phase::Other).batch();
            batch.write(word(1, 0), &[9]).expect("room").unsignaled();
            batch.ring();
            panic!("on purpose");
        });
    }));
    assert!(posted.is_err());
    endpoint.drain();
    assert_eq!(world.load(word(1, 0)), 9);
}

/// More than there is room for: some wait for those that are posted at the same time.
fn what_is_posted_together_may_be_more_than_there_is_room_for<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood.queue_depth(2));
    let endpoint = world.endpoint();
    with(&endpoint, async |verbs| {
        let mut adds: Vec<_> = (0..9).map(|_| (Box::pin(verbs.fetch_add(word(1, 0), 1)), None)).collect();
        poll_fn(|context| {
            endpoint.together(|| {
                for (add, found) in adds.iter_mut().filter(|(_, found)| found.is_none()) {
                    *found = ready(add.as_mut().poll(context));
                }
            });
            if adds.iter().all(|(_, found)| found.is_some()) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let mut found: Vec<_> = adds.into_iter().filter_map(|(_, found)| found).collect::<Result<_, _>>()?;
        found.sort_unstable();
        assert_eq!(found, (0..9).collect::<Vec<u64>>());
        Ok(())
    });
}

/// Those that wait for buffers are polled before those that have completed, and have not taken yet
/// what was read.
fn what_is_read_together_may_be_more_than_there_are_buffers<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood.buffers(Buffers { small: 3, medium: 0, large: 0 }));
    let endpoint = world.endpoint();
    let outcomes = run(&endpoint, 3, async |_| {
        let read = |number| Box::pin(endpoint.during(Phase::Other).read_word(word(1, number)));
        let mut reads: Vec<_> = (0..9).map(|number| (read(number), None)).collect();
        poll_fn(|context| {
            endpoint.together(|| {
                for (read, found) in reads.iter_mut().filter(|(_, found)| found.is_none()) {
                    *found = ready(read.as_mut().poll(context));
                }
            });
            reads.reverse();
            if reads.iter().all(|(_, found)| found.is_some()) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        reads.into_iter().filter_map(|(_, found)| found).collect::<Result<Vec<_>, _>>()
    });
    assert!(outcomes.into_iter().all(|outcome| outcome == Ok(vec![0; 9])), "there is nothing but zeros");
}

fn ready<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

fn counters_are_exact<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(3, mood);
    let endpoint = world.endpoint();
    let other = endpoint.during(Phase::Other);
    block_on(&endpoint, async {
        let lookup = other.during(Phase::Lookup);
        lookup.read(word(1, 0), 16).await?;
        lookup.read(word(2, 0), 1).await?;
        other.during(Phase::Lock).compare_swap(word(1, 0), 0, 1).await?;
        let commit = other.during(Phase::Commit);
        let mut batch = commit.batch();
        batch.write(word(1, 1), &[1, 2, 3])?.unsignaled();
        batch.write(word(1, 0), &[0])?.unsignaled();
        let awaited = batch.fetch_add(word(2, 0), 1)?;
        batch.ring();
        awaited.await?;
        // Cancelled before it is posted: nothing. Cancelled later: counted all the same.
        drop(other.during(Phase::Validate).read(word(1, 0), 4));
        poll_and_drop(other.during(Phase::ReadOnly).read(word(1, 0), 4), 1);
        Ok::<_, VerbError>(())
    })
    .expect("the words are there");
    endpoint.drain();
    let counters = endpoint.counters();
    let found = Phase::ALL.map(|phase| {
        let tally = counters[phase];
        (tally.operations(), tally.doorbells, tally.round_trips, tally.bytes_out, tally.bytes_in)
    });
    let none = (0, 0, 0, 0, 0);
    assert_eq!(
        found,
        [(2, 2, 2, 0, 17 * 8), none, (1, 1, 1, 16, 8), none, none, (3, 2, 1, 4 * 8 + 8, 8), (1, 1, 1, 0, 32), none],
        "lookup, execute, lock, validate, log, commit, read-only, other"
    );
    assert_eq!(counters.total().operations(), 7);
    assert_eq!((endpoint.counters() - counters).total(), Default::default());
    drop(endpoint);
    assert_eq!(world.endpoint().counters(), Default::default(), "they are the endpoint's, not the place's");
}

fn a_batch_that_is_not_rung_does_nothing<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood);
    let endpoint = world.endpoint();
    let rest = endpoint.at_rest();
    with(&endpoint, async |verbs| {
        let mut batch = verbs.batch();
        let early = batch.write(word(1, 0), &[1])?;
        assert_eq!(early.await, Err(VerbError::NotRung));
        batch.write(word(1, 0), &[2])?.unsignaled();
        let kept = batch.read(word(1, 0), 64)?;
        let message = batch.send(NodeId(1), b"never")?;
        let call = batch.call(NodeId(1), b"never")?;
        drop(batch);
        assert_eq!(kept.await.err(), Some(VerbError::NotRung));
        assert_eq!(message.await, Err(VerbError::NotRung));
        assert_eq!(call.await.err(), Some(VerbError::NotRung));
        let _ = verbs.batch();
        // Places in queues come back too.
        for _ in 0..2 * endpoint.capabilities().queue_depth {
            verbs.batch().write(word(1, 0), &[3])?.unsignaled();
        }
        assert_eq!(verbs.read_word(word(1, 0)).await?, 0);
        Ok(())
    });
    assert_eq!(endpoint.counters().total().operations(), 1);
    assert_eq!(endpoint.at_rest(), rest);
}

fn unsignaled_operations_take_effect_and_their_failures_are_heard<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(3, mood);
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    block_on(&endpoint, async {
        let mut batch = verbs.batch();
        batch.write(word(1, 0), &[5])?.unsignaled();
        batch.fetch_add(word(1, 0), 1)?.unsignaled();
        batch.ring();
        Ok::<_, VerbError>(())
    })
    .expect("posted");
    // `block_on` returns when they are over.
    assert_eq!(world.load(word(1, 0)), 6);
    assert_eq!(endpoint.counters().total().round_trips, 0);

    let wild = word(1, 1 << 30);
    let bad = VerbError::OutOfBounds { at: wild, words: 1 };
    block_on(&endpoint, async {
        let mut batch = verbs.batch();
        batch.write(wild, &[1])?.unsignaled();
        batch.write(word(1, 0), &[7])?.unsignaled();
        batch.write(word(2, 0), &[7])?.unsignaled();
        batch.ring();
        assert_eq!(verbs.read_word(word(2, 0)).await?, 7, "other nodes are not concerned");
        assert_eq!(verbs.write(word(1, 0), &[8]).await, Err(bad), "in the place of the next");
        assert_eq!(verbs.read_word(word(1, 0)).await?, 6, "which was not carried out, nor what was between");
        verbs.write(word(1, 0), &[9]).await
    })
    .expect("heard once");
    assert_eq!(world.load(word(1, 0)), 9);
}

fn a_completion_can_be_polled_for<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood);
    let endpoint = world.endpoint();
    let mut batch = endpoint.during(Phase::Other).batch();
    let mut pending = batch.fetch_add(word(1, 0), 3).expect("room");
    batch.ring();
    let old = loop {
        match pending.try_take() {
            Ok(outcome) => break outcome,
            Err(not_yet) => pending = not_yet,
        }
        endpoint.progress();
    };
    assert_eq!((old, world.load(word(1, 0))), (Ok(0), 3));
}

/// Drops the future of each verb after each number of polls. What was posted takes effect whole,
/// and all buffers come back.
fn futures_may_be_dropped_at_any_step<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood);
    let endpoint = world.endpoint();
    let rest = endpoint.at_rest();
    let verbs = endpoint.during(Phase::Other);
    let at = word(1, 5);
    let mut finished = [false; 5];
    for polls in 0..60 {
        let value = polls as u64 + 1;
        let before = world.load(at);
        finished[0] |= poll_and_drop(verbs.write(at, &[value; 30]), polls);
        // Buffers that are reused at once would be seen here.
        finished[1] |= poll_and_drop(verbs.read(at, 30), polls);
        endpoint.drain();
        let written = (0..30).all(|index| world.load(at + 8 * index) == value);
        assert!(written || (polls == 0 && world.load(at) == before), "posted and not carried out");
        finished[2] |= poll_and_drop(verbs.compare_swap(at, value, 0), polls);
        endpoint.drain();
        finished[3] |= poll_and_drop(verbs.fetch_add(at, 7), polls);
        endpoint.drain();
        assert_eq!(world.load(at), if polls == 0 { before } else { 7 });
        finished[4] |= poll_and_drop(verbs.send(NodeId(1), b"hello"), polls);
        endpoint.drain();
        // A message is held until its peer has taken it.
        let patience = Instant::now() + Duration::from_secs(20);
        while endpoint.at_rest() != rest && Instant::now() < patience {
            endpoint.progress();
            thread::yield_now();
        }
        assert_eq!(endpoint.at_rest(), rest, "after {polls} polls");
    }
    assert!(finished.iter().all(|finished| *finished), "more polls are needed to cover every step");
    // A batch, of which some is awaited and some is dropped at each step.
    for polls in 0..60 {
        let step = async {
            let mut batch = verbs.batch();
            let first = batch.read(at, 60)?;
            let dropped = batch.read(at, 60)?;
            batch.ring();
            drop(dropped);
            first.await.map(|words| words.len())
        };
        poll_and_drop(step, polls);
        endpoint.drain();
        assert_eq!(endpoint.at_rest(), rest);
    }
}

fn values_outlive_what_comes_after<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood);
    let endpoint = world.endpoint();
    with(&endpoint, async |verbs| {
        let mut kept = Vec::new();
        for value in 0..50 {
            verbs.write(word(1, 0), &[value; 16]).await?;
            kept.push(verbs.read(word(1, 0), 16).await?);
        }
        for (value, words) in kept.iter().enumerate() {
            assert_eq!(words[..], [value as u64; 16]);
        }
        Ok(())
    });
}

fn any_executor_will_do<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood);
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    let work = async {
        let mut batch = verbs.batch();
        let both = [batch.fetch_add(word(1, 0), 1)?, batch.fetch_add(word(1, 0), 1)?];
        batch.ring();
        for old in both {
            old.await?;
        }
        endpoint.yield_now().await;
        verbs.read_word(word(1, 0)).await
    };
    let mut work = std::pin::pin!(work);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let found = loop {
        if let std::task::Poll::Ready(found) = work.as_mut().poll(&mut context) {
            break found;
        }
    };
    assert_eq!(found, Ok(2));
}

fn coroutines_share_an_endpoint<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(3, mood);
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    let sums = run(&endpoint, 100, |index| async move {
        let mine = word(1 + (index % 2) as u16, 16 * index as u64);
        let mut sum = 0;
        for value in 0..10 {
            verbs.write(mine, &[value + index as u64; 12]).await?;
            let words = verbs.read(mine, 12).await?;
            assert!(words.iter().all(|word| *word == words[0]), "no other writes there");
            sum += words[0];
        }
        Ok::<_, VerbError>(sum)
    });
    for (index, sum) in sums.into_iter().enumerate() {
        assert_eq!(sum, Ok(45 + 10 * index as u64));
    }
}

fn all_sizes_and_alignments_travel_whole<R: Testbed>(mood: R::Mood) {
    let world = World::<R>::new(2, mood);
    let endpoint = world.endpoint();
    let most = endpoint.capabilities().max_read_bytes / 8;
    with(&endpoint, async |verbs| {
        for words in [1, 2, 7, 8, 9, 63, 64, 65, 512, 513, most] {
            for start in [0, 1, 7] {
                let value: Vec<u64> = (0..words as u64).map(|word| word * 31 + start).collect();
                verbs.write(word(1, start), &value).await?;
                assert_eq!(verbs.read(word(1, start), words).await?[..], value);
            }
        }
        Ok(())
    });
}
