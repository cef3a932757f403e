//! Coordinators die between the pieces of their transactions, with owners that have backups: the
//! nodes that are left finish what was begun, each piece once, though all of them do so at once.

use std::{
    panic::catch_unwind,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_membership::{Membership, Register, RegisterOptions};
use drtm_rdma::{Atomicity, Fault, Incarnation, NicProfile, NodeId, Presence, RunEnd, Sim, SimConfig, SimFabric};
use drtm_testing::rounds;
use drtm_txn::{
    Error, Mutation, Transaction as _,
    cluster::{Node, Protocol, Worker},
};
use fastrand::Rng;

use super::drops::{counting, open, sums};
use crate::{
    bed::{Rings, Setup, Tables, Tested, kept},
    drops::polled,
};

type Simulated = SimFabric<NoHtm>;

const OWNERS: u16 = 3;
const NODES: u16 = OWNERS + 1;
/// Of each node.
const COROUTINES: u64 = 2;
/// Of each coroutine, at least.
const TRANSACTIONS: u64 = 6;

/// What the nodes of a run share.
struct Run {
    seed: u64,
    dies: NodeId,
    /// Whether transactions are dropped as well. Then nodes resume what is left while they run,
    /// what the dead one has left too.
    drops: bool,
    is_open: AtomicBool,
    /// Whether the view is there without the one that dies.
    is_changed: AtomicBool,
    begun: AtomicU64,
    acknowledged: AtomicU64,
    /// How many were left when all had come to their end. Without drops: by the dead one.
    resumed: AtomicUsize,
    /// Nodes that have not come to the end of each part.
    running: AtomicUsize,
    resuming: AtomicUsize,
    quiet: AtomicUsize,
}

impl Run {
    /// Runs transactions, until one node has died. Some are dropped, and resumed here.
    async fn counts(self: Arc<Self>, worker: Worker<'_, Simulated, Tested>, tables: Tables, number: u64) {
        let chopped = tables.chopped.expect("there are some");
        let (count, program) = counting(&worker, chopped).expect("it is sound");
        if number == 0 {
            open(&worker, chopped, 1).await.expect("room");
            self.is_open.store(true, SeqCst);
        }
        worker.endpoint().until(|| self.is_open.load(SeqCst)).await;
        let mut random = Rng::with_seed(self.seed << 16 | number);
        for nth in 0.. {
            if nth >= TRANSACTIONS && self.is_changed.load(SeqCst) {
                break;
            }
            worker.endpoint().sleep(Duration::from_nanos(100)).await;
            let polls = if self.drops && random.u8(..4) == 0 { random.u32(1..60) } else { u32::MAX };
            self.begun.fetch_add(1, SeqCst);
            match polled(count.run_on(&worker, (1, 10)), polls).await {
                Some(ended) => {
                    ended.unwrap_or_else(|error| panic!("at {:?}: {error:?}", worker.id()));
                    self.acknowledged.fetch_add(1, SeqCst);
                }
                None => {
                    program.resume_on(&worker).await.expect("it goes on");
                }
            }
        }
    }

    /// Lets the register's time pass, and looks at whether the view is without the one that dies.
    async fn watches(
        self: Arc<Self>,
        node: Node<Simulated, Tested>,
        worker: Worker<'_, Simulated, Tested>,
        register: Register,
    ) {
        let endpoint = worker.endpoint();
        let began = endpoint.now();
        while self.quiet.load(SeqCst) > 0 {
            register.advance(endpoint.now().since(began));
            let is_dead = matches!(endpoint.presence(self.dies), Presence::Died(_));
            let is_without = match self.dies.0 < OWNERS {
                true => !node.view().has(self.dies),
                false => node.is_without(self.dies, Incarnation(1)),
            };
            if is_dead && is_without {
                self.is_changed.store(true, SeqCst);
            }
            endpoint.sleep(Duration::from_micros(20)).await;
        }
    }

    /// Resumes what the dead node has left, and looks at the sums.
    async fn ends(
        self: Arc<Self>,
        worker: Worker<'_, Simulated, Tested>,
        tables: Tables,
        done: Rc<std::cell::Cell<u64>>,
    ) {
        let (endpoint, chopped) = (worker.endpoint(), tables.chopped.expect("there are some"));
        let (_, program) = counting(&worker, chopped).expect("it is sound");
        endpoint.until(|| done.get() == COROUTINES).await;
        self.running.fetch_sub(1, SeqCst);
        endpoint.until(|| self.running.load(SeqCst) == 0).await;
        // All at once.
        let resumed = program.resume_on(&worker).await.expect("all others are here");
        self.resumed.fetch_add(resumed, SeqCst);
        self.resuming.fetch_sub(1, SeqCst);
        endpoint.until(|| self.resuming.load(SeqCst) == 0).await;
        let seen = sums(&worker, chopped, 1).await.expect("all others are here");
        let all = seen[0] / 10;
        assert_eq!(seen, [10, 11, 12, 13].map(|by| by * all), "seed {}", self.seed);
        assert!((self.acknowledged.load(SeqCst)..=self.begun.load(SeqCst)).contains(&all), "seed {}", self.seed);
        let left = worker.transact(async |tx| tx.len(chopped.progress.rows()).await);
        assert_eq!(left.await.expect("all others are here"), 0, "nothing is left");
        worker.settle().await;
        worker.catch_up().await.expect("backups apply");
        self.quiet.fetch_sub(1, SeqCst);
        endpoint.until(|| self.quiet.load(SeqCst) == 0).await;
    }
}

/// Runs transactions while a node dies. Returns how many it had begun that others have finished,
/// where none are dropped.
fn run(protocol: Protocol, seed: u64) -> Result<usize, Error> {
    let mut random = Rng::with_seed(seed);
    let (dies, at) = (NodeId(random.u16(1..NODES)), Duration::from_nanos(random.u64(100_000..1_500_000)));
    let left = usize::from(NODES - 1);
    let run = Arc::new(Run {
        seed,
        dies,
        drops: seed % 2 == 1,
        is_open: AtomicBool::new(false),
        is_changed: AtomicBool::new(false),
        begun: AtomicU64::new(0),
        acknowledged: AtomicU64::new(0),
        resumed: AtomicUsize::new(0),
        running: AtomicUsize::new(left),
        resuming: AtomicUsize::new(left),
        quiet: AtomicUsize::new(left),
    });
    let config = SimConfig::new(&NicProfile::CONNECTX_4).seed(seed).atomicity(Atomicity::Global);
    let sim = Sim::<NoHtm>::new(NODES, config);
    let mut options = RegisterOptions::default();
    options.seed = seed;
    let register = Register::new(options);
    let rings = Rings { backups: 1, bytes: 1 << 14, chops: true, ..Rings::default() };
    let mut nodes = Vec::new();
    for number in 0..NODES {
        let membership: (Arc<dyn Membership>, _) = (Arc::new(register.client()), Duration::from_millis(1));
        let (node, tables) = kept(sim.fabric(), number, OWNERS, protocol, (rings, Some(membership)));
        let (run, register, started) = (Arc::clone(&run), register.clone(), node.clone());
        let spawned = sim.spawn(NodeId(number), move |spawner| {
            let worker = node.worker(spawner.endpoint()).expect("few workers");
            worker.serve(&spawner);
            let done = Rc::new(std::cell::Cell::new(0));
            for coroutine in 0..COROUTINES {
                let counts =
                    Arc::clone(&run).counts(worker.clone(), tables, u64::from(number) * COROUTINES + coroutine);
                let done = Rc::clone(&done);
                let counted = async move {
                    counts.await;
                    done.set(done.get() + 1);
                };
                spawner.spawn(counted).expect("it runs");
            }
            spawner.spawn(Arc::clone(&run).watches(node.clone(), worker.clone(), register)).expect("it runs");
            if NodeId(number) != run.dies {
                spawner.spawn(Arc::clone(&run).ends(worker, tables, done)).expect("it runs");
            }
        });
        spawned.expect("room for an endpoint");
        nodes.push(started);
    }
    while !nodes.iter().all(|node| node.view().number() > 1) {
        assert_eq!(sim.run_for(Duration::from_micros(100)), RunEnd::TimeUp, "seed {seed}: they do not meet");
        assert!(sim.elapsed() < Duration::from_millis(200), "seed {seed}: they do not meet");
    }
    sim.plan(at, Fault::Crash { node: dies });
    assert_eq!(sim.run_for(Duration::from_secs(2)), RunEnd::Done, "seed {seed}: something hangs");
    Ok(if run.drops { 0 } else { run.resumed.load(SeqCst) })
}

#[test]
fn what_a_dead_coordinator_has_begun_is_finished_once() {
    for protocol in [Protocol::FASST, Protocol::DRTM_H] {
        let resumed: usize = (0..rounds(12)).map(|seed| run(protocol, seed).expect("it is sound")).sum();
        assert!(resumed > 0, "none has died between two pieces");
    }
}

#[test]
fn pieces_that_do_not_compare_progress_are_found() {
    let is_wrong = |seed| {
        let run = || Setup::faulty(Mutation::ProgressNotCompared).run(|| run(Protocol::FASST, seed));
        catch_unwind(run).is_err()
    };
    assert!((0..rounds(40)).any(is_wrong), "a piece that two nodes run is done twice, and no test sees it");
}
