//! What a starved transaction has locked before its body runs is unlocked again while that waits
//! for something else.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::{Fabric, NicProfile, NodeId, Phase, Port, RunEnd, Sim, SimConfig, Spawner, Verbs};
use drtm_txn::{
    Conflict, Error, Mutation, Options, Transaction as _,
    cluster::{ClusterTx, Protocol, Sets, Worker},
};

use crate::{
    bed::{Bed, Script, Setup, Size, Tables, Tested, node},
    deadlines::clusters,
};

/// So many runs that one of them has claimed what those before were in conflict over.
const RUNS: u32 = 6;

#[test]
fn a_body_that_waits_for_a_writer_of_what_it_has_claimed_is_run_again() {
    for protocol in [Protocol::FASST, Protocol::DRTM_H, Protocol::DRTM, Protocol::HADES, Protocol::HADES_H] {
        let ([one, two], tables) = clusters(protocol);
        for row in [4, 5] {
            one.transact(async move |tx| tx.put(tables.words, row, vec![0; 8]).await).wait().expect("room");
            let (runs, other) = (Arc::new(AtomicU64::new(0)), two.clone());
            let counted = Arc::clone(&runs);
            let done = one.transact(async move |tx| {
                let run = counted.fetch_add(1, SeqCst);
                let seen = tx.get(tables.words, row).await?.expect("it was put")[0];
                if run < u64::from(RUNS) {
                    other.transact(async move |tx| tx.put(tables.words, row, vec![run as u8 + 1; 8]).await).await?;
                }
                tx.put(tables.words, row, vec![seen + 100; 8]).await
            });
            done.wait().expect("the other one has stopped");
            assert_eq!(runs.load(SeqCst), u64::from(RUNS) + 1, "{}", protocol.name);
            let left = two.transact(async move |tx| tx.get(tables.words, row).await).wait().expect("both are here");
            assert_eq!(left, Some(vec![RUNS as u8 + 100; 8]), "no update is lost");
        }
    }
}

#[test]
fn a_body_that_always_waits_for_such_a_writer_is_given_up() {
    let ([one, two], tables) = clusters(Protocol::DRTM_OCC);
    one.transact(async move |tx| tx.put(tables.words, 5, vec![0; 8]).await).wait().expect("room");
    let other = two.clone();
    let failed = one.transact_with(Options::new().attempts(RUNS), async move |tx| {
        tx.get(tables.words, 5).await?;
        other.transact(async move |tx| tx.put(tables.words, 5, vec![1; 8]).await).await?;
        tx.put(tables.words, 5, vec![9; 8]).await
    });
    let failed = failed.wait();
    assert!(matches!(failed, Err(Error::Contended { attempts: RUNS, table: Some("words"), .. })), "{failed:?}");
    let late = two.transact_with(Options::new().attempts(1), async move |tx| tx.put(tables.words, 5, vec![2]).await);
    late.wait().expect("nothing is locked");
}

/// Replaces a row by one whose key begins like its own, in a transaction that has claimed it.
#[derive(Clone)]
struct Renames {
    fetches: bool,
}

impl Script for Renames {
    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        // No other key begins like these two.
        let [from, to] = [0, 1].map(|last| [vec![number as u8; 8], vec![last]].concat());
        let put = worker.transact(async |tx| tx.put(tables.sorted_names, &from, vec![0; 8]).await);
        put.await.expect("room");
        let (mut runs, names) = (0, tables.sorted_names);
        let mut claims = || {
            runs += 1;
            if runs < RUNS { Err(Error::from(Conflict::Locked)) } else { Ok(()) }
        };
        if self.fetches {
            let declared = |sets: &mut Sets<'_, 'e, F, Tested>| {
                sets.write(names, &from)?;
                sets.write(names, &to)
            };
            let renamed = worker.transact_on(declared, async |rows| {
                assert!(rows.remove(names, &from).await?.is_some());
                rows.insert(names, &to, vec![1; 8]).await?;
                claims()
            });
            renamed.await.expect("no other is in its way");
        } else {
            let renamed = worker.transact_with(Options::new().attempts(2 * RUNS), async |tx| {
                assert!(tx.remove(names, &from).await?.is_some());
                tx.insert(names, &to, vec![1; 8]).await?;
                claims()
            });
            renamed.await.expect("no other is in its way");
        }
        assert_eq!(runs, RUNS);
        let left = worker.transact(async |tx| Ok((tx.get(names, &from).await?, tx.get(names, &to).await?)));
        assert_eq!(left.await.expect("all nodes are here"), (None, Some(vec![1; 8])));
    }
}

#[test]
fn a_claimed_row_is_not_in_the_way_of_a_key_that_begins_like_its_own() {
    for (protocol, fetches) in
        [(Protocol::FASST, false), (Protocol::DRTM_H, false), (Protocol::DRTM, true), (Protocol::HADES, false)]
    {
        // One of them is the owner. Then both at the same time.
        for (nodes, coroutines) in [(1, 1), (2, 1), (2, 2)] {
            let size = Size { nodes, owners: 1, coroutines, protocol };
            Bed::atomic(u64::from(nodes)).run(size, &Renames { fetches });
        }
    }
}

/// One coroutine claims rows and never ends. The others wait for it.
#[derive(Clone)]
struct Claimers {
    /// After how long its transaction is dropped.
    dropped: Duration,
    step: Arc<AtomicU64>,
}

impl Claimers {
    /// Claims a row of each node, and waits for ever.
    async fn claim<F: Fabric<Engine = NoHtm>>(&self, worker: &Worker<'_, F, Tested>, tables: Tables) {
        let mut runs = 0;
        let waiting = worker.transact(async |tx| {
            tx.prefetch(tables.words, 0..4).await?;
            runs += 1;
            if runs <= 4 {
                return Err::<(), _>(Conflict::Locked.into());
            }
            self.step.fetch_max(2, SeqCst);
            std::future::pending().await
        });
        let end = worker.endpoint().now() + self.dropped;
        let dropped = worker.endpoint().before(end, waiting).await;
        assert!(dropped.is_err(), "it waits for ever");
    }
}

impl Script for Claimers {
    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        let endpoint = worker.endpoint();
        if number > 0 {
            endpoint.until(|| self.step.load(SeqCst) >= 2).await;
            let began = endpoint.now();
            let given_up = worker.transact_with(Options::new().within(Duration::from_millis(20)), async |tx| {
                tx.put(tables.words, number % 4, vec![2; 8]).await
            });
            let given_up = given_up.await;
            let waited = endpoint.now().since(began);
            assert!(matches!(given_up, Err(Error::Contended { .. })), "{given_up:?} after {waited:?}");
            // Of virtual time.
            assert!(waited < Duration::from_millis(60), "{waited:?}");
            let put = worker.transact(async |tx| tx.put(tables.words, number % 4, vec![1; 8]).await);
            put.await.expect("all nodes are here");
            let waited = endpoint.now().since(began);
            assert!(waited < Duration::from_millis(400), "{waited:?}");
            self.step.fetch_add(1, SeqCst);
            return;
        }
        let filled = worker.transact(async |tx| {
            for row in 0..4 {
                tx.put(tables.words, row, vec![0; 8]).await?;
            }
            Ok(())
        });
        filled.await.expect("room");
        self.claim(&worker, tables).await;
        worker.settle().await;
        // In the same name, on the same rows: what was sent for the dropped one does nothing to it.
        for _ in 0..20 {
            let added = worker.transact(async |tx| {
                for row in 0..4 {
                    tx.update(tables.words, row, |value| value[1] += 1).await?;
                }
                Ok(())
            });
            added.await.expect("all nodes are here");
        }
    }
}

#[test]
fn claims_end_though_their_transaction_does_not_and_whenever_it_is_dropped() {
    for protocol in [Protocol::FASST, Protocol::DRTM_H, Protocol::HADES, Protocol::HADES_H] {
        let size = Size { nodes: 2, owners: 2, coroutines: 3, protocol };
        for (bed, seed) in [Bed::simulated(1), Bed::atomic(2), Bed::rough(3), Bed::rough(4)].iter().zip(0..) {
            // While it waits, while its claims are given up, and after that.
            for micros in [50_000, 100_000, 100_020, 100_050, 100_100, 100_300, 150_000] {
                let dropped = Duration::from_micros(micros + seed);
                bed.run(size, &Claimers { dropped, step: Arc::default() });
            }
        }
    }
}

/// For how long a transaction holds claims at most.
const HOLDING: Duration = Duration::from_millis(100);

/// A transaction adds to a row that it has claimed, and its body ends when its claims have been
/// given up. The row's owner adds to it as soon as it is not locked, over and over.
#[derive(Clone, Default)]
struct Adders {
    /// The turn whose row is claimed, and the one that is over.
    turn: Arc<AtomicU64>,
    over: Arc<AtomicU64>,
    /// Additions that have been lost.
    lost: Arc<AtomicU64>,
}

impl Adders {
    const TURNS: u64 = 20;

    /// The owner's additions to the row of a turn.
    async fn add<F: Fabric<Engine = NoHtm>>(&self, worker: &Worker<'_, F, Tested>, tables: Tables, turn: u64) {
        let filled = worker.transact(async |tx| tx.put(tables.words, turn, vec![0; 8]).await);
        filled.await.expect("room");
        let (endpoint, mut added) = (worker.endpoint(), 1);
        self.turn.store(turn, SeqCst);
        while self.over.load(SeqCst) < turn {
            let add =
                async |tx: &mut ClusterTx<'_, F, Tested>| tx.update(tables.words, turn, |value| value[0] += 1).await;
            added += u8::from(worker.transact_with(Options::new().attempts(1), add).await.is_ok());
            endpoint.sleep(Duration::from_micros(20)).await;
        }
        let read = worker.transact(async |tx| tx.get(tables.words, turn).await).await;
        let lost = read.expect("it is here").expect("it was filled")[0] != added;
        self.lost.fetch_add(u64::from(lost), SeqCst);
    }

    /// The addition of another node, which claims the row when it has failed four times.
    async fn add_claimed<F: Fabric<Engine = NoHtm>>(&self, worker: &Worker<'_, F, Tested>, tables: Tables, turn: u64) {
        let (endpoint, mut runs) = (worker.endpoint(), 0);
        endpoint.until(|| self.turn.load(SeqCst) == turn).await;
        let added = worker.transact(async |tx| {
            let ends = endpoint.now() + HOLDING;
            tx.update(tables.words, turn, |value| value[0] += 1).await?;
            runs += 1;
            match runs {
                1..5 => return Err(Conflict::Locked.into()),
                5 => endpoint.sleep((ends + Duration::from_micros(1)).since(endpoint.now())).await,
                _ => {}
            }
            Ok(())
        });
        added.await.expect("all nodes are here");
        self.over.store(turn, SeqCst);
    }

    async fn run<F: Fabric<Engine = NoHtm>>(&self, worker: Worker<'_, F, Tested>, tables: Tables, number: NodeId) {
        for turn in 1..=Self::TURNS {
            match number {
                OWNER => self.add(&worker, tables, turn).await,
                _ => self.add_claimed(&worker, tables, turn).await,
            }
        }
        match number {
            OWNER => self.turn.store(Self::TURNS + 1, SeqCst),
            _ => worker.endpoint().until(|| self.turn.load(SeqCst) > Self::TURNS).await,
        }
    }

    /// A thread of the owner that is kept from its processor, in each turn for longer: what it has
    /// taken, another one carries out after it.
    async fn take_and_wait<P: Port>(&self, verbs: Verbs<'_, P>) -> Infallible {
        loop {
            let message = verbs.recv().await;
            verbs.endpoint().sleep(Duration::from_nanos(500) * self.turn.load(SeqCst) as u32).await;
            let reply = verbs.call(OWNER, &message).await.expect("another thread serves");
            message.reply(&reply).expect("it was as long before");
        }
    }
}

const OWNER: NodeId = NodeId(0);

/// Additions that are lost where one of the owner's two threads is late.
fn lost(seed: u64) -> u64 {
    let sim = Sim::<NoHtm>::new(2, SimConfig::new(&NicProfile::CONNECTX_4).seed(seed));
    let adders = Adders::default();
    // The first is the one that messages are for, if it is not busy.
    let late = adders.clone();
    let waits = move |spawner: Spawner<'_, _>| {
        let verbs = spawner.endpoint().during(Phase::Other);
        spawner.serve(async move { late.take_and_wait(verbs).await }).expect("it runs");
    };
    sim.serve(OWNER, waits).expect("room for an endpoint");
    for number in [OWNER, NodeId(1)] {
        let (node, tables) = node(sim.fabric(), number.0, 1, Protocol::FASST);
        let adders = adders.clone();
        let adds = move |spawner: Spawner<'_, _>| {
            let worker = node.worker(spawner.endpoint()).expect("few workers");
            worker.serve(&spawner);
            spawner.spawn(async move { adders.run(worker, tables, number).await }).expect("it runs");
        };
        // The other node is the last to end.
        if number == OWNER { sim.serve(number, adds) } else { sim.spawn(number, adds) }.expect("room for an endpoint");
    }
    assert_eq!(sim.run_for(Duration::from_secs(10)), RunEnd::Done);
    adders.lost.load(SeqCst)
}

#[test]
fn rows_are_locked_again_when_their_claims_have_ended() {
    assert!((0..4).all(|seed| lost(seed) == 0));
}

#[test]
fn claims_whose_end_is_not_awaited_are_found() {
    // The write of a row that is not locked any more may also be refused.
    let loses = |seed| std::panic::catch_unwind(|| lost(seed)).map_or(true, |lost| lost > 0);
    assert!(Setup::faulty(Mutation::ClaimsNotAwaited).run(|| (0..20).any(loses)));
}
