//! Connections that break while both nodes go on, which meet again as the same incarnations. A row
//! whose lock was under way does not stay locked.

use std::{
    net::TcpListener,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use drtm_htm::NoHtm;
use drtm_rdma::{Endpoint, Executor, NodeId, Port, TcpConfig, TcpFabric};
use drtm_testing::rounds;
use drtm_txn::{
    Error, Mutation, Transaction as _,
    cluster::{Node, Protocol},
};

use crate::bed::{SetAtEnd, Setup, Tables, Tested, node};

/// Long enough for anything but a deadlock.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a frame may take to arrive that is under way.
const ARRIVAL: Duration = Duration::from_millis(20);

const ROW: u64 = 7;
const NO_ROW: u64 = 8;

type Tcp = TcpFabric<NoHtm>;

/// Two nodes, the first of which owns all rows.
fn nodes(protocol: Protocol) -> [(Tcp, Node<Tcp, Tested>, Tables); 2] {
    // Ports that are free, or were a moment ago.
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let at = listeners.each_ref().map(|listener| listener.local_addr().expect("an address"));
    drop(listeners);
    let fabrics = [0, 1].map(|number: u16| {
        let config = TcpConfig::new(NodeId(number), at[usize::from(number)], [7; 32]);
        TcpFabric::join(NoHtm, config.peer(NodeId(1 - number), at[usize::from(1 - number)])).expect("a cluster")
    });
    let mut number = 0;
    fabrics.map(|fabric| {
        let (node, tables) = node(&fabric, number, 1, protocol);
        number += 1;
        (fabric, node, tables)
    })
}

/// State that the threads of a run share.
#[derive(Default)]
struct Shared {
    /// The owner's worker is to stop serving until this is cleared.
    hold: AtomicBool,
    is_held: AtomicBool,
    /// The client is about to send a lock.
    locks: AtomicBool,
    is_over: AtomicBool,
}

/// Serves as the owner, except while it is held.
fn serve(owner: &Node<Tcp, Tested>, shared: &Shared) {
    let endpoint = owner.endpoint().expect("room");
    let mut executor = Executor::new(&endpoint);
    owner.worker(&endpoint).expect("few").serve(&executor.spawner());
    executor.spawn(endpoint.until(|| {
        while shared.hold.load(SeqCst) && !shared.is_over.load(SeqCst) {
            shared.is_held.store(true, SeqCst);
            thread::sleep(Duration::from_micros(50));
        }
        shared.is_held.store(false, SeqCst);
        shared.is_over.load(SeqCst)
    }));
    executor.run();
}

/// Breaks the client's connections while the owner is held: first when the lock has arrived, and
/// then when the client tries to meet the owner again, so that its unlock fails.
fn break_connections(owner: &Tcp, shared: &Shared) {
    while !shared.is_over.load(SeqCst) {
        if shared.locks.load(SeqCst) {
            for _ in 0..4 {
                let (before, start) = (owner.work().members, Instant::now());
                while owner.work().members == before && start.elapsed() < ARRIVAL {
                    thread::sleep(Duration::from_micros(50));
                }
                owner.break_connections();
            }
            shared.locks.store(false, SeqCst);
            shared.hold.store(false, SeqCst);
        }
        thread::sleep(Duration::from_micros(50));
    }
}

/// Waits for another thread, beside the other coroutines.
async fn until<P: Port>(endpoint: &Endpoint<P>, is_so: impl Fn() -> bool) {
    let patience = endpoint.before(endpoint.now() + PATIENCE, endpoint.until(is_so)).await;
    patience.expect("it comes to that");
}

/// Writes a row several times, while the connection breaks each time. Returns how often a lock's
/// outcome was unknown, and whether the row was free each time when the owner was met again.
fn locks_while_it_breaks(protocol: Protocol, turns: u64) -> (u64, bool) {
    let [(fabric, owner, tables), (_client, client, _)] = nodes(protocol);
    let (shared, mut unknown, mut is_free) = (&Shared::default(), 0, true);
    thread::scope(|scope| {
        scope.spawn(Setup::inherited(move || serve(&owner, shared)));
        scope.spawn(move || break_connections(&fabric, shared));
        let _ends = SetAtEnd(&shared.is_over);
        let endpoint = client.endpoint().expect("room");
        let worker = client.worker(&endpoint).expect("few");
        let mut executor = Executor::new(&endpoint);
        worker.serve(&executor.spawner());
        let (unknown, is_free) = (&mut unknown, &mut is_free);
        executor.spawn(async move {
            let _ends = SetAtEnd(&shared.is_over);
            let endpoint = worker.endpoint();
            let put = worker.transact(async |tx| tx.put(tables.words, ROW, vec![0; 8]).await);
            put.await.expect("room");
            for _ in 0..turns {
                // It locks with another name than the next one.
                let mut other = worker.begin().await;
                let mut tx = worker.begin().await;
                tx.get(tables.words, ROW).await.expect("they have met").expect("it was put");
                tx.put(tables.words, ROW, vec![1; 8]).await.expect("room");
                shared.hold.store(true, SeqCst);
                until(endpoint, || shared.is_held.load(SeqCst)).await;
                shared.locks.store(true, SeqCst);
                match tx.commit().await {
                    Ok(()) => {}
                    Err(Error::Cluster(_)) => *unknown += 1,
                    Err(error) => panic!("{error}"),
                }
                until(endpoint, || !shared.hold.load(SeqCst)).await;
                let settled = endpoint.before(endpoint.now() + PATIENCE, worker.settle()).await;
                settled.expect("the owner frees what was locked");
                // The first one may find the connection broken.
                let meet = async || worker.transact(async |tx| tx.get(tables.words, NO_ROW).await).await;
                assert!(meet().await.is_ok() || meet().await.is_ok(), "the owner is not met again");
                other.put(tables.words, ROW, vec![2; 8]).await.expect("room");
                match other.commit().await {
                    Ok(()) => {}
                    Err(Error::Conflict(_)) => {
                        *is_free = false;
                        break;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        });
        executor.run();
    });
    (unknown, is_free)
}

#[test]
fn a_lock_whose_outcome_is_unknown_is_freed_when_the_owner_is_met_again() {
    for protocol in [Protocol::FASST, Protocol::FARM] {
        let (unknown, is_free) = locks_while_it_breaks(protocol, rounds(5));
        assert!(unknown > 0 && is_free, "{}: {unknown} are unknown", protocol.name);
    }
}

#[test]
fn a_lock_whose_outcome_is_unknown_and_which_is_forgotten_is_found() {
    let run = || locks_while_it_breaks(Protocol::FASST, rounds(40));
    let (_, is_free) = Setup::faulty(Mutation::UnknownLocksForgotten).run(run);
    assert!(!is_free, "nothing stays locked");
}

#[test]
fn an_unlock_that_fails_and_is_not_repeated_is_found() {
    let run = || locks_while_it_breaks(Protocol::FASST, rounds(40));
    let (_, is_free) = Setup::faulty(Mutation::UnlocksNotRepeated).run(run);
    assert!(!is_free, "nothing stays locked");
}

/// Reads a row of a node, to which the connection breaks each time.
fn meet(protocol: Protocol) {
    let [(fabric, owner, tables), (_client, client, _)] = nodes(protocol);
    let shared = &Shared::default();
    thread::scope(|scope| {
        scope.spawn(Setup::inherited(move || serve(&owner, shared)));
        let _ends = SetAtEnd(&shared.is_over);
        let endpoint = client.endpoint().expect("room");
        let worker = client.worker(&endpoint).expect("few");
        let mut executor = Executor::new(&endpoint);
        worker.serve(&executor.spawner());
        executor.spawn(async move {
            let _ends = SetAtEnd(&shared.is_over);
            let put = worker.transact(async |tx| tx.put(tables.words, ROW, vec![1; 8]).await);
            put.await.expect("room");
            // Some protocols do not wait for the last phase, which must not break.
            worker.settle().await;
            let read = async || worker.transact(async |tx| tx.get(tables.words, ROW).await).await;
            for _ in 0..rounds(5) {
                fabric.break_connections();
                // The first one may have found the connection broken.
                let read = match read().await {
                    Ok(read) => read,
                    Err(_) => read().await.expect("the owner is met again"),
                };
                assert_eq!(read, Some(vec![1; 8]));
            }
        });
        executor.run();
    });
}

#[test]
fn an_owner_to_which_the_connection_broke_is_met_again() {
    Protocol::with_names().for_each(meet);
}
