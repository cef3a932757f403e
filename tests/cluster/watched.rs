//! What can be seen of a cluster: figures, events, and the end of a node.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    task::Poll,
    time::{Duration, Instant},
};

use drtm_htm::NoHtm;
use drtm_rdma::{Incarnation, LocalConfig, LocalFabric, NodeId, Phase};
use drtm_txn::{
    Conflict, Error, Options, Transaction as _,
    cluster::{Cluster, ClusterError, ClusterEvent, Events, Protocol, Refusal},
};

use crate::{
    bed::{Tables, node},
    deadlines::{Local, clusters},
};

#[test]
fn figures_are_those_of_what_was_done() {
    let ([one, two], tables) = clusters(Protocol::FASST);
    for value in 0..10 {
        one.transact(async move |tx| tx.put(tables.words, 1, vec![value]).await).wait().expect("both are here");
    }
    let mut runs = 0;
    let failed = one.transact_with(Options::new().attempts(3), async move |tx| {
        runs += 1;
        tx.get(tables.words, 1).await?;
        Err::<(), _>(if runs < 3 { Conflict::Phantom } else { Conflict::Validation }.into())
    });
    assert!(failed.wait().is_err());
    let stats = one.stats();
    assert_eq!((stats.commits, stats.retries(), stats.under_way, stats.blocked_threads), (10, 3, 0, 0));
    assert_eq!((stats.conflicts(Conflict::Phantom), stats.conflicts(Conflict::Validation)), (2, 1));
    assert_eq!((stats.rounds(Phase::Commit).count, stats.counters[Phase::Commit].calls), (10, 10));
    assert!(stats.rounds(Phase::Lock).took > Duration::ZERO && stats.counters[Phase::Lock].bytes_out > 0);
    assert_eq!(two.stats().commits, 0);
    assert!(two.stats().counters.total().replies > 0, "it has served the other");

    // A thread that is blocked, which has one more in its queue.
    let (hold, held) = mpsc::channel::<()>();
    let (begun, has_begun) = mpsc::channel();
    let holding = one.transact(async move |_| {
        begun.send(()).expect("it is waited for");
        held.recv().expect("it is let go");
        Ok(())
    });
    has_begun.recv().expect("it begins");
    let queued = one.transact(async move |tx| tx.get(tables.words, 1).await);
    let mut expected = stats;
    (expected.blocked_threads, expected.under_way) = (1, 2);
    assert_eq!(one.stats(), expected);
    hold.send(()).expect("it is waited for");
    holding.wait().expect("nothing is in its way");
    queued.wait().expect("nothing is in its way");
    assert_eq!(one.stats().commits, 12);
    one.close();
    assert_eq!(one.stats().commits, 12, "they stay when the threads have ended");
}

/// The next event, which comes soon.
fn next(events: &mut Events) -> ClusterEvent {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match events.try_next() {
            Some(event) => return event,
            None => assert!(Instant::now() < end, "nothing has happened"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn nodes_that_come_and_go_are_events() {
    let fabric = LocalFabric::<NoHtm>::new(3, LocalConfig::perfect());
    let start = |number| Cluster::start(node(&fabric, number, 1, Protocol::FASST).0, 1).expect("threads");
    let [one, two, _three]: [Local; 3] = [0, 1, 2].map(start);
    // The watcher is a coroutine: it has begun when others have run.
    one.transact(async |_| Ok(())).wait().expect("it is here");
    let (mut early, other) = (one.events(), NodeId(1));
    two.close();
    assert_eq!(next(&mut early), ClusterEvent::Left { node: other });
    assert_eq!(fabric.revive(other).expect("it had left"), Incarnation(2));
    assert_eq!(next(&mut early), ClusterEvent::Joined { node: other, incarnation: Incarnation(2) });
    fabric.kill(NodeId(2)).expect("it is here");
    assert_eq!(next(&mut early), ClusterEvent::Died { node: NodeId(2) });
    let mut late = one.events();
    assert_eq!(late.try_next(), None);
    one.close();
    assert_eq!((late.wait(), early.wait(), one.events().wait()), (None, None, None));
}

#[test]
fn nodes_that_close_and_views_are_events() {
    let ([one, two], tables) = clusters(Protocol::FASST);
    one.transact(async move |tx| tx.put(tables.words, 1, vec![1; 8]).await).wait().expect("both are here");
    let (mut events, view) = (one.events(), one.node().view());
    let following = view.next(view.members().to_vec(), view.placements().to_vec()).expect("as many shards");
    assert!(two.node().install(following).expect("as many shards"));
    // It meets the other one again, which tells it.
    one.transact(async move |tx| tx.get(tables.words, 1).await).wait().expect("both are here");
    assert_eq!(next(&mut events), ClusterEvent::View { number: 2 });
    two.close_within(Duration::from_secs(10)).expect("nothing is left");
    assert_eq!(next(&mut events), ClusterEvent::Closing { node: NodeId(1) });
    assert_eq!(next(&mut events), ClusterEvent::Left { node: NodeId(1) });
    assert!(matches!(two.transact(async |_| Ok(())).wait(), Err(Error::Closed)));
}

/// Begins a transaction of `one` that has locked a row of the other node when this returns. It goes
/// on as `then` says.
fn claiming(
    one: &Local,
    tables: Tables,
    mut then: impl AsyncFnMut() + Send + 'static,
) -> drtm_txn::cluster::Submitted<()> {
    let setup = one.transact(async move |tx| {
        tx.put(tables.words, 1, vec![0; 8]).await?;
        tx.put(tables.words, 3, vec![0; 8]).await
    });
    setup.wait().expect("both are here");
    let (claims, has_claimed) = mpsc::channel();
    let mut runs = 0;
    let claiming = one.transact(async move |tx| {
        runs += 1;
        tx.get(tables.words, 1).await?;
        if runs <= 4 {
            return Err(Conflict::Validation.into());
        }
        claims.send(()).expect("it is waited for");
        then().await;
        tx.put(tables.words, 1, vec![1; 8]).await
    });
    has_claimed.recv().expect("it claims");
    claiming
}

/// A node that closes is not left while another one has locked a row of it; and nothing is begun
/// there meanwhile.
#[test]
fn a_node_that_closes_refuses_what_has_not_begun() {
    for protocol in Protocol::ALL {
        let ([one, two], tables) = clusters(protocol);
        let goes_on = Arc::new(AtomicBool::new(false));
        let go = Arc::clone(&goes_on);
        let claiming = claiming(&one, tables, async move || {
            let turn = |context: &mut std::task::Context<'_>| {
                context.waker().wake_by_ref();
                if go.load(SeqCst) { Poll::Ready(()) } else { Poll::Pending }
            };
            std::future::poll_fn(turn).await;
        });
        let mut events = one.events();
        let closing = std::thread::spawn(move || two.close_within(Duration::from_secs(20)).map(|()| two));
        assert_eq!(next(&mut events), ClusterEvent::Closing { node: NodeId(1) });
        let read = one.transact(async move |tx| tx.get(tables.words, 3).await).wait();
        goes_on.store(true, SeqCst);
        let ended = claiming.wait();
        closing.join().expect("no panic").expect("nothing is left");
        // It may have closed, if the thread of this test has slept meanwhile.
        for outcome in [read.map(drop), ended] {
            assert!(matches!(outcome, Err(Error::Cluster(_))), "{}: {outcome:?}", protocol.name);
        }
        let read = one.transact(async move |tx| tx.get(tables.words, 2).await).wait();
        read.expect("its own row");
    }
}

#[test]
fn a_node_that_closes_says_what_it_leaves() {
    for protocol in Protocol::ALL {
        let ([one, two], tables) = clusters(protocol);
        let (stop, stopped) = mpsc::channel::<()>();
        // Its thread is blocked, and so is all of its node.
        let claiming = claiming(&one, tables, async move || {
            stopped.recv().expect_err("the other end is dropped");
        });
        match two.close_within(Duration::from_millis(50)) {
            Err(Error::Cluster(ClusterError::Unfinished { rows: 1, rings: 0 })) => {}
            other => panic!("{}: {other:?}", protocol.name),
        }
        drop(stop);
        let ended = claiming.wait();
        assert!(matches!(ended, Err(Error::Cluster(_))), "{}: {ended:?}", protocol.name);
    }
}

/// Transactions of the node itself that do not end are cut off: one that waits for a node which
/// does not answer, and one that never ends.
#[test]
fn a_node_that_closes_cuts_its_own_transactions_off() {
    let ([one, two], tables) = clusters(Protocol::FASST);
    one.transact(async move |tx| tx.put(tables.words, 1, vec![0; 8]).await).wait().expect("both are here");
    let (stop, stopped) = mpsc::channel::<()>();
    let (blocks, is_blocked) = mpsc::channel();
    let blocked = two.transact(async move |_| {
        blocks.send(()).expect("it is waited for");
        stopped.recv().expect_err("the other end is dropped");
        Ok(())
    });
    is_blocked.recv().expect("it begins");
    let waiting = one.transact(async move |tx| tx.get(tables.words, 1).await);
    let endless = one.transact(async |_| std::future::pending::<Result<(), Error>>().await);
    let closed = one.close_within(Duration::from_millis(50));
    assert!(matches!(closed, Err(Error::Cluster(ClusterError::CutOff))), "{closed:?}");
    assert!(matches!(endless.wait(), Err(Error::Cluster(ClusterError::CutOff))));
    assert!(matches!(waiting.wait(), Err(Error::Cluster(ClusterError::CutOff))));
    drop(stop);
    blocked.wait().expect("it goes on");
}

#[test]
fn refusals_that_repeat_are_events() {
    let ([one, _two], tables) = clusters(Protocol::FASST);
    let mut events = one.events();
    let mut refused = 0;
    for number in 0.. {
        // Rows of the other node, until its memory is full.
        let put = one.transact(async move |tx| tx.put(tables.words, 2 * number + 1, vec![1; 50_000]).await);
        match put.wait() {
            Ok(()) => assert_eq!(refused, 0, "its memory is full"),
            Err(Error::Cluster(ClusterError::Refused { node: NodeId(1), reason: Refusal::Full })) => refused += 1,
            Err(other) => panic!("{other:?}"),
        }
        if refused == 16 {
            break;
        }
    }
    assert_eq!(next(&mut events), ClusterEvent::Refused { node: NodeId(1), reason: Refusal::Full, times: 16 });
}

/// What is asked of a node that has closed fails at once, though its handle is still there.
#[test]
fn a_node_that_is_closed_is_waited_for_by_none() {
    for protocol in Protocol::ALL {
        let ([one, two], tables) = clusters(protocol);
        one.transact(async move |tx| tx.put(tables.words, 1, vec![1; 8]).await).wait().expect("both are here");
        two.close();
        for _ in 0..2 {
            let read = one.transact(async move |tx| tx.get(tables.words, 1).await).wait();
            assert!(
                matches!(
                    read,
                    Err(Error::Cluster(
                        ClusterError::Unreachable { .. } | ClusterError::OneSided { .. } | ClusterError::Lookup { .. }
                    ))
                ),
                "{}: {read:?}",
                protocol.name
            );
            let put = one.transact(async move |tx| tx.put(tables.words, 1, vec![2; 8]).await).wait();
            assert!(matches!(put, Err(Error::Cluster(_))), "{}: {put:?}", protocol.name);
            one.transact(async move |tx| tx.put(tables.words, 2, vec![2; 8]).await).wait().expect("its own row");
        }
        drop(two);
    }
}
