//! A coordinator dies: cases (a) and (b). It had locked rows of all owners and was not decided, or
//! it was, and had not written all of them.

use std::{
    panic::catch_unwind,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::{Atomicity, Chances, Fault, NicProfile, NodeId, Presence, RunEnd, Sim, SimConfig, SimFabric, Spawner};
use drtm_testing::rounds;
use drtm_txn::{
    Mutation, Options, Transaction as _,
    cluster::{ClusterTx, Protocol, Sets, Worker},
};

use super::Memory;
use crate::{
    bed::{Setup, Tables, Tested, backed_up},
    history::{value, version},
};

type Simulated = SimFabric<NoHtm>;

const OWNERS: u16 = 3;

/// The node that dies: a client.
const DYING: NodeId = NodeId(OWNERS);

/// Rows of all owners.
const ROWS: u64 = 6;

/// When the transaction begins. All rows are there by then.
const BEGINS: Duration = Duration::from_millis(8);

/// How soon the rows are free: before their owners go through all rows.
const SOON: Duration = Duration::from_millis(6);

const SLOW: Chances = Chances { loss: 0.02, delay: 0.3, at_most: Duration::from_micros(10), ..Chances::NONE };

/// How the transaction has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It has never happened: case (a), unless nothing was locked yet.
    Undone,
    /// It has, and nobody was told: case (b).
    Completed,
    Acknowledged,
}

/// What the transaction writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It declares rows that verbs lock and write.
    Declared,
    /// It finds them by reading, and a row of an ordered table besides.
    Found,
    /// It is optimistic.
    Optimistic,
}

#[derive(Debug, Default)]
struct Run {
    is_acknowledged: AtomicBool,
    has_happened: AtomicBool,
    is_over: AtomicBool,
}

impl Run {
    /// Writes all rows once, when it is time.
    async fn writes(self: Arc<Self>, worker: Worker<'_, Simulated, Tested>, tables: Tables, kind: Kind) {
        let begins = worker.endpoint().now() + BEGINS;
        let met = worker.transact(async |tx| {
            for row in ROWS..2 * ROWS {
                tx.put(tables.words, row, value(1)).await?;
            }
            Ok(())
        });
        met.await.expect("all owners are here");
        worker.endpoint().sleep_until(begins).await;
        let written = match kind {
            Kind::Declared => {
                let declare = |sets: &mut Sets<'_, '_, Simulated, Tested>| {
                    (0..ROWS).try_for_each(|row| sets.write(tables.words, row))
                };
                let body = async |rows: &mut ClusterTx<'_, Simulated, Tested>| {
                    for row in 0..ROWS {
                        let _ = rows.get(tables.words, row).await?;
                        rows.put(tables.words, row, value(2)).await?;
                    }
                    Ok(())
                };
                worker.transact_on(declare, body).await
            }
            Kind::Found => {
                let body = async |rows: &mut ClusterTx<'_, Simulated, Tested>| {
                    for row in 0..ROWS {
                        let _ = rows.get(tables.words, row).await?;
                        rows.put(tables.words, row, value(2)).await?;
                    }
                    rows.put(tables.sorted_words, 1, value(2)).await
                };
                worker.transact_on(|_| Ok(()), body).await
            }
            Kind::Optimistic => {
                let body = async |tx: &mut ClusterTx<'_, Simulated, Tested>| {
                    for row in 0..ROWS {
                        let _ = tx.get(tables.words, row).await?;
                        tx.put(tables.words, row, value(2)).await?;
                    }
                    tx.put(tables.sorted_words, 1, value(2)).await
                };
                worker.transact(body).await
            }
        };
        self.is_acknowledged.store(written.is_ok(), SeqCst);
        worker.endpoint().until(|| self.is_over.load(SeqCst)).await;
    }

    /// Fills the rows, and looks at what is left when the coordinator has died.
    async fn judges(self: Arc<Self>, worker: Worker<'_, Simulated, Tested>, tables: Tables, kind: Kind) {
        let endpoint = worker.endpoint();
        let filled = worker.transact(async |tx| {
            for row in 0..ROWS {
                tx.put(tables.words, row, value(1)).await?;
            }
            Ok(())
        });
        filled.await.expect("all owners are here");
        endpoint.until(|| matches!(endpoint.presence(DYING), Presence::Died(_))).await;
        let soon = Options::new().within(SOON);
        let seen = worker.transact_with(soon, async |tx| {
            let words = tx.get_many(tables.words, 0..ROWS).await?;
            Ok((words, tx.get(tables.sorted_words, 1).await?))
        });
        let (words, sorted) = seen.await.expect("all rows are free");
        let words: Vec<u64> = words.iter().map(|word| version(word.as_ref().expect("it is there"))).collect();
        let is_new = words[0] == 2;
        assert_eq!(words, vec![1 + u64::from(is_new); ROWS as usize], "it is whole");
        let is_there = is_new && kind != Kind::Declared;
        assert_eq!(sorted.map(|word| version(&word)), is_there.then_some(2), "it is whole");
        assert!(is_new || !self.is_acknowledged.load(SeqCst), "it was acknowledged");
        self.has_happened.store(is_new, SeqCst);
        for row in 0..=ROWS {
            let put = worker.transact_with(soon, async |tx| match row {
                ROWS => tx.put(tables.sorted_words, 1, value(3)).await,
                row => tx.put(tables.words, row, value(3)).await,
            });
            put.await.unwrap_or_else(|error| panic!("row {row}: {error:?}"));
        }
        // What it had posted takes no effect any more.
        endpoint.sleep(Duration::from_millis(1)).await;
        let last = worker.transact(async |tx| tx.get_many(tables.words, 0..ROWS).await).await;
        let last = last.expect("all owners are here");
        assert!(last.iter().all(|word| word.as_ref().map(|word| version(word)) == Some(3)), "{last:?}");
        self.is_over.store(true, SeqCst);
    }
}

/// A fabric where the coordinator locks and writes by verbs, or one where it does not.
fn config(seed: u64) -> SimConfig {
    let config = SimConfig::new(&NicProfile::CONNECTX_4).seed(seed);
    let config = if seed % 2 == 1 { config.chances(SLOW) } else { config };
    match seed % 4 {
        3 => config,
        // It may have written a part of a row.
        _ => config.atomicity(Atomicity::Global).scattered(true).steps(Some(1)),
    }
}

/// Lets the coordinator die so long after the transaction's begin. Fails with what is wrong.
fn after_death(protocol: Protocol, kind: Kind, seed: u64, after: Duration) -> End {
    let memory = Memory::new();
    let sim = Sim::<NoHtm>::new(OWNERS + 1, config(seed));
    let run = Arc::new(Run::default());
    for number in 0..=OWNERS {
        let (node, tables) = backed_up(sim.fabric(), number, OWNERS, protocol, memory.rings());
        let run = Arc::clone(&run);
        let spawned = sim.spawn(NodeId(number), move |spawner: Spawner<'_, _>| {
            let worker = node.worker(spawner.endpoint()).expect("few workers");
            worker.serve(&spawner);
            let endpoint = spawner.endpoint();
            if number == DYING.0 {
                spawner.spawn(Arc::clone(&run).writes(worker, tables, kind)).expect("it runs");
            } else {
                if number == 0 {
                    spawner.spawn(Arc::clone(&run).judges(worker, tables, kind)).expect("it runs");
                }
                spawner.spawn(async move { endpoint.until(|| run.is_over.load(SeqCst)).await }).expect("it runs");
            }
        });
        spawned.expect("room for an endpoint");
    }
    sim.plan(BEGINS + after, Fault::Crash { node: DYING });
    let case = format!("{}, {kind:?}, seed {seed}, {after:?}", protocol.name);
    assert_eq!(sim.run_for(Duration::from_secs(1)), RunEnd::Done, "{case}: it hangs: {run:?}");
    match (run.has_happened.load(SeqCst), run.is_acknowledged.load(SeqCst)) {
        (false, _) => End::Undone,
        (true, false) => End::Completed,
        (true, true) => End::Acknowledged,
    }
}

/// Moments of a transaction, from its begin until after its end, in turns of seeds.
fn moments(usual: u64) -> impl Iterator<Item = (u64, Duration)> {
    (0..rounds(usual)).map(move |round| (round, Duration::from_nanos(round * 1_709 % 150_000)))
}

#[test]
fn a_transaction_is_whole_whenever_its_coordinator_dies() {
    for (protocol, kind) in [
        (Protocol::DRTM, Kind::Declared),
        (Protocol::DRTM, Kind::Found),
        (Protocol::DRTM, Kind::Optimistic),
        (Protocol::FASST, Kind::Found),
        (Protocol::DRTM_H, Kind::Optimistic),
    ] {
        let ends: Vec<End> = moments(90).map(|(seed, after)| after_death(protocol, kind, seed, after)).collect();
        for end in [End::Undone, End::Completed, End::Acknowledged] {
            // A passive one is told when it is decided.
            let is_told = protocol.is_passive && end == End::Completed;
            assert!(is_told || ends.contains(&end), "{}, {kind:?}: none is {end:?}: {ends:?}", protocol.name);
        }
    }
}

/// Whether a fault is found at some moment.
fn is_found(fault: Mutation) -> bool {
    moments(120).any(|(seed, after)| {
        let run = || after_death(Protocol::DRTM, Kind::Declared, seed, after);
        catch_unwind(|| Setup::faulty(fault).run(run)).is_err()
    })
}

#[test]
fn locks_that_no_log_names_are_found() {
    assert!(is_found(Mutation::LockAheadLeftOut));
}

#[test]
fn rows_that_are_written_without_a_log_are_found() {
    assert!(is_found(Mutation::WriteAheadLeftOut));
}

#[test]
fn decided_transactions_that_are_not_carried_out_are_found() {
    assert!(is_found(Mutation::DecidedNotCarried));
}
