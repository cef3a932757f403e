//! A coordinator dies under load, among random transactions of all kinds. What all of them saw and
//! left is strictly serializable, and free.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use drtm_history::{Anomaly, History, Log, Order, Recorder, check};
use drtm_htm::NoHtm;
use drtm_rdma::{Atomicity, Chances, Fault, NicProfile, NodeId, Presence, RunEnd, Sim, SimConfig, SimFabric, Spawner};
use drtm_testing::rounds;
use drtm_txn::{
    Error, Options, Transaction as _,
    cluster::{Protocol, Worker},
};
use fastrand::Rng;

use super::Memory;
use crate::{
    bed::{Tables, Tested, backed_up},
    drops::polled,
    history::{Kept, Logs, value, version},
    program::{MARKS, Program},
};

type Simulated = SimFabric<NoHtm>;

const OWNERS: u16 = 3;
const NODES: u16 = 5;
const COROUTINES: u64 = 2;

/// Transactions of each coroutine, at least.
const TRANSACTIONS: u64 = 10;

/// The client that dies.
const DYING: NodeId = NodeId(OWNERS);

/// Some operations take far longer than others, so that a transaction is seldom written at once.
const SLOW: Chances = Chances { delay: 0.3, at_most: Duration::from_micros(40), ..Chances::NONE };

struct Run {
    program: Program,
    left: AtomicUsize,
}

impl Run {
    async fn writes(self: Arc<Self>, worker: Worker<'_, Simulated, Tested>, tables: Tables, number: u64) {
        let endpoint = worker.endpoint();
        let mut kept = Kept::take(&self.program.logs, number as usize);
        let log = kept.log();
        if worker.id() == DYING {
            return self.overwrites(&worker, tables, log).await;
        }
        let mut random = Rng::with_seed(self.program.seed << 16 | number);
        let (mark, mut id) = (MARKS + number, 0);
        let has_died = || matches!(endpoint.presence(DYING), Presence::Died(_));
        while id < TRANSACTIONS || !has_died() {
            id += 1;
            let mut recording = log.begin();
            let polls = if random.u8(0..6) == 0 { random.u32(1..40) } else { u32::MAX };
            let attempt = self.program.attempt(&worker, tables, &mut random, &mut recording, (mark, id));
            let has_committed = match polled(attempt, polls).await {
                Some(Ok(is_torn)) => {
                    assert!(!is_torn, "it has seen what never was, and committed");
                    true
                }
                Some(Err(Error::Aborted { .. } | Error::Contended { .. })) => false,
                Some(Err(error)) => panic!("{:?}, {number}: {error:?}", worker.id()),
                None => {
                    worker.settle().await;
                    let marked = worker.transact(async |tx| tx.get(tables.words, mark).await).await;
                    marked.expect("all owners are here").is_some_and(|marked| marked == id.to_le_bytes())
                }
            };
            if has_committed { recording.commit() } else { recording.abort() }
        }
        // All that the dead had locked is free, or will be.
        let soon = Options::new().within(Duration::from_millis(100));
        for key in 0..self.program.keys {
            let put = worker.transact_with(soon, async |tx| {
                let seen = tx.get(tables.words, key).await?;
                match seen {
                    Some(seen) => tx.put(tables.words, key, seen).await,
                    None => Ok(()),
                }
            });
            match put.await {
                Ok(()) | Err(Error::Contended { attempts: 1..30, .. }) => {}
                Err(error) => panic!("row {key} is not free: {error:?}"),
            }
        }
        self.left.fetch_sub(1, SeqCst);
        endpoint.until(|| self.left.load(SeqCst) == 0).await;
    }
}

impl Run {
    /// Overwrites all rows of a table that are there, again and again, until the node dies.
    async fn overwrites(&self, worker: &Worker<'_, Simulated, Tested>, tables: Tables, log: &mut Log<u64>) {
        let (words, keys) = (tables.words, self.program.keys);
        loop {
            let mut recording = log.begin();
            let written = worker.transact_on(
                |sets| (0..keys).try_for_each(|key| sets.write(words, key)),
                async |rows| {
                    recording.retry();
                    for key in 0..keys {
                        let seen = rows.get(words, key).await?.map(|bytes| version(&bytes));
                        recording.read(WORDS, key, seen);
                        if seen.is_some() {
                            let next = recording.version();
                            rows.put(words, key, value(next)).await?;
                            recording.write(WORDS, key, next);
                        }
                    }
                    Ok(())
                },
            );
            written.await.expect("all owners are here");
            recording.commit();
        }
    }
}

/// The number of a table in a history.
const WORDS: u32 = 0;

/// Lets a client die at a random moment. Returns what is wrong.
fn anomalies(protocol: Protocol, seed: u64) -> Vec<Anomaly<u64>> {
    let (memory, mut random) = (Memory::new(), Rng::with_seed(!seed));
    let config = SimConfig::new(&NicProfile::CONNECTX_4).seed(seed).scattered(true).steps(Some(1)).chances(SLOW);
    let config = if seed % 4 == 3 { config } else { config.atomicity(Atomicity::Global) };
    let sim = Sim::<NoHtm>::new(NODES, config);
    let mut recorder = Recorder::counting();
    let all = u64::from(NODES) * COROUTINES;
    let logs: Vec<_> = (0..all).map(|_| Some(recorder.log().expect("a few logs"))).collect();
    let logs: Logs = Arc::new(Mutex::new(logs));
    let (keys, rings) = ([2, 5, 12][seed as usize % 3], memory.rings());
    let program = Program { keys, transactions: TRANSACTIONS, seed, rings, logs: Arc::clone(&logs), restarts: None };
    let left = AtomicUsize::new((all - COROUTINES) as usize);
    let run = Arc::new(Run { program, left });
    for number in 0..NODES {
        let (node, tables) = backed_up(sim.fabric(), number, OWNERS, protocol, rings);
        let run = Arc::clone(&run);
        let spawned = sim.spawn(NodeId(number), move |spawner: Spawner<'_, _>| {
            let worker = node.worker(spawner.endpoint()).expect("few workers");
            worker.serve(&spawner);
            for coroutine in 0..COROUTINES {
                let number = u64::from(number) * COROUTINES + coroutine;
                spawner.spawn(Arc::clone(&run).writes(worker.clone(), tables, number)).expect("it runs");
            }
        });
        spawned.expect("room for an endpoint");
    }
    sim.plan(Duration::from_nanos(random.u64(20_000..700_000)), Fault::Crash { node: DYING });
    assert_eq!(sim.run_for(Duration::from_secs(5)), RunEnd::Done, "{}, seed {seed}: it hangs", protocol.name);
    drop(sim);
    let logs = std::mem::take(&mut *logs.lock().expect("no thread panics"));
    let history = History::of(logs.into_iter().flatten()).with_insertions_in_order();
    check(&history, Order::RealTime).expect("a history")
}

#[test]
fn histories_in_which_a_coordinator_dies() {
    for (protocol, seeds) in [(Protocol::DRTM, 12), (Protocol::DRTM_H, 3), (Protocol::FASST, 3), (Protocol::FARM, 2)] {
        for seed in 0..rounds(seeds) {
            let told: Vec<String> = anomalies(protocol, seed).iter().map(ToString::to_string).collect();
            assert!(told.is_empty(), "{}, seed {seed}:\n{}", protocol.name, told.join("\n"));
        }
    }
}
