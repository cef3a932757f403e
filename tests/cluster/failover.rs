//! Nodes die under load: those that are left change the view by themselves, and agree on it by a
//! simulated register that is late, loses messages, and changes its leader. Transactions of all
//! others go on, and what all of them saw is strictly serializable.

use std::{
    ops::Range,
    panic::catch_unwind,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use drtm_history::{History, Log, Order, Recorder, check};
use drtm_htm::NoHtm;
use drtm_membership::{Membership, Register, RegisterOptions};
use drtm_rdma::{
    Atomicity, Fabric as _, Fault, Incarnation, NicProfile, NodeId, Presence, RunEnd, Sim, SimConfig, SimFabric, Trace,
};
use drtm_testing::rounds;
use drtm_txn::{
    Error, Mutation, Options, Transaction as _,
    cluster::{ClusterError, Node, Protocol, Worker},
};
use fastrand::Rng;

use crate::{
    bed::{Rings, Setup, Tables, Tested, kept},
    drops::polled,
    history::{Logs, at, name, value, version},
    indexes,
    program::{MARKS, Program},
};

type Simulated = SimFabric<NoHtm>;

/// Coroutines of each node.
const COROUTINES: u64 = 2;

/// How long a node may be silent.
const LEASE: Duration = Duration::from_millis(1);

/// How long a node is away that comes back: all others have changed the view by then.
const AWAY: Duration = Duration::from_millis(20);

/// What befalls a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Dies,
    /// It stops, and wakes up when the view is without it.
    Stops,
    /// It is cut off from all others, and finds itself out when it reaches them again.
    IsCutOff,
    /// The leader takes it for dead, though it is here, and has a lease.
    IsTakenForDead,
}

/// A cluster, and which of its nodes end when.
#[derive(Clone, Debug)]
struct Case {
    protocol: Protocol,
    seed: u64,
    owners: u16,
    clients: u16,
    backups: usize,
    deaths: Vec<(NodeId, Duration, End)>,
    is_rough: bool,
}

impl Case {
    /// One node dies: an owner or a client.
    fn of_one_death(protocol: Protocol, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let (owners, clients) = (random.u16(3..6), random.u16(1..3));
        let node = NodeId(random.u16(0..owners + clients));
        let at = Duration::from_nanos(random.u64(20_000..1_500_000));
        let (backups, is_rough) = (1 + usize::from(random.bool()), random.bool());
        Self { protocol, seed, owners, clients, backups, deaths: vec![(node, at, End::Dies)], is_rough }
    }

    /// Two nodes die, one after the other: perhaps while the view changes.
    fn of_two_deaths(protocol: Protocol, seed: u64) -> Self {
        let mut random = Rng::with_seed(!seed);
        let mut case = Self { backups: 2, ..Self::of_one_death(protocol, seed) };
        let (first, at, _) = case.deaths[0];
        // A majority of the members is left.
        case.owners = case.owners.max(4);
        let nodes = case.owners + case.clients;
        let second = NodeId((first.0 + random.u16(1..nodes)) % nodes);
        let later = if random.u8(0..4) > 0 { random.u64(0..4_000_000) } else { random.u64(0..40_000) };
        case.deaths.push((second, at + Duration::from_nanos(later), End::Dies));
        case
    }

    /// One node stops, or is cut off, for longer than its lease.
    fn of_one_silence(protocol: Protocol, seed: u64) -> Self {
        let mut case = Self::of_one_death(protocol, seed);
        case.deaths[0].2 = if seed.is_multiple_of(2) { End::Stops } else { End::IsCutOff };
        case
    }

    /// An owner stops, or is cut off.
    fn of_an_owners_silence(protocol: Protocol, seed: u64) -> Self {
        let mut case = Self::of_one_silence(protocol, seed);
        case.deaths[0].0.0 %= case.owners;
        case
    }

    /// A member that is here is taken for dead.
    fn of_a_mistake(protocol: Protocol, seed: u64) -> Self {
        let mut case = Self::of_one_death(protocol, seed);
        let (node, at, end) = &mut case.deaths[0];
        (node.0, *end) = (1 + node.0 % (case.owners - 1), End::IsTakenForDead);
        *at += 2 * LEASE;
        case
    }

    /// Of two nodes, one is silent for a while.
    fn of_a_silence_and_a_death(protocol: Protocol, seed: u64) -> Self {
        let mut case = Self::of_two_deaths(protocol, seed);
        case.deaths[seed as usize / 2 % 2].2 = if seed.is_multiple_of(2) { End::Stops } else { End::IsCutOff };
        case
    }

    fn nodes(&self) -> u16 {
        self.owners + self.clients
    }

    fn survives(&self, node: NodeId) -> bool {
        self.deaths.iter().all(|(dead, ..)| *dead != node)
    }

    /// Returns whether a node is away for a while.
    fn is_silent(&self, node: NodeId) -> bool {
        self.deaths.iter().any(|(one, _, end)| *one == node && *end != End::Dies)
    }

    fn survivors(&self) -> impl Iterator<Item = NodeId> {
        (0..self.nodes()).map(NodeId).filter(|node| self.survives(*node))
    }
}

/// What the nodes of a run share.
#[derive(Debug)]
struct Run {
    case: Case,
    fabric: Simulated,
    program: Program2,
    /// Whether the last view without all that die is there.
    is_changed: AtomicBool,
    /// How often a node saw another one die before the view had changed for the first.
    in_change: AtomicUsize,
    left: AtomicUsize,
    is_checked: AtomicBool,
    quiet: AtomicUsize,
    /// Coroutines of nodes that come back which have not found themselves out.
    away: AtomicUsize,
    /// Of each coroutine, the last transaction that was acknowledged.
    acknowledged: Vec<AtomicU64>,
}

/// A program whose debug output says nothing.
struct Program2(Program);

impl std::fmt::Debug for Program2 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a program")
    }
}

/// A log that is given back, also when its coroutine dies.
struct Kept {
    logs: Logs,
    number: usize,
    log: Option<Log<u64>>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.logs.lock().expect("no thread panics")[self.number] = self.log.take();
    }
}

impl Run {
    /// Runs transactions, until all that are to die have.
    async fn writes(self: Arc<Self>, worker: Worker<'_, Simulated, Tested>, tables: Tables, number: u64) {
        let Program { transactions, seed, ref logs, .. } = self.program.0;
        let log = logs.lock().expect("no thread panics")[number as usize].take();
        let mut kept = Kept { logs: logs.clone(), number: number as usize, log };
        let log = kept.log.as_mut().expect("one for each");
        let mut random = Rng::with_seed(seed << 16 | number);
        let mark = MARKS + number;
        let mut id = 0;
        // One that is away is done when all others are.
        let is_left_behind = || !self.case.survives(worker.id()) && self.is_checked.load(SeqCst);
        while (id < transactions || !self.is_changed.load(SeqCst)) && !is_left_behind() {
            id += 1;
            // Where only one owner is left, its transactions take no time.
            worker.endpoint().sleep(Duration::from_nanos(100)).await;
            if worker.id().0 < self.case.owners && random.u8(0..8) == 0 {
                // It begins an epoch of this node.
                drop(worker.local().snapshot().expect("no closure runs here"));
            }
            if random.u8(0..4) == 0 && !self.reads(&worker, tables, &mut random, log).await {
                return;
            }
            let mut recording = log.begin();
            let polls = if random.u8(0..6) == 0 { random.u32(1..40) } else { u32::MAX };
            let attempt = self.program.0.attempt(&worker, tables, &mut random, &mut recording, (mark, id));
            let has_committed = match polled(attempt, polls).await {
                Some(Ok(is_torn)) => {
                    assert!(!is_torn, "it has seen what never was, and committed");
                    self.acknowledged[number as usize].store(id, Relaxed);
                    true
                }
                Some(Err(Error::Aborted { .. } | Error::Contended { .. })) => false,
                Some(Err(error)) if !self.case.survives(worker.id()) => {
                    // Others decide what has become of it.
                    if let Error::Cluster(ClusterError::Evicted { may_have_happened: false }) = error {
                        recording.abort();
                    }
                    return;
                }
                Some(Err(error)) => panic!("{:?}, {number}: {error:?}", worker.id()),
                None => {
                    worker.settle().await;
                    let marked = worker.transact(async |tx| tx.get(tables.words, mark).await).await;
                    match marked {
                        Ok(marked) => marked.is_some_and(|marked| marked == id.to_le_bytes()),
                        Err(_) if !self.case.survives(worker.id()) => return,
                        Err(error) => panic!("{error:?}"),
                    }
                }
            };
            if has_committed { recording.commit() } else { recording.abort() }
        }
    }

    /// Runs a transaction that only reads. Returns whether the node goes on.
    async fn reads(
        &self,
        worker: &Worker<'_, Simulated, Tested>,
        tables: Tables,
        random: &mut Rng,
        log: &mut Log<u64>,
    ) -> bool {
        let mut recording = log.begin();
        let seen = worker.transact(async |tx| {
            recording.retry();
            for _ in 0..random.u8(1..4) {
                let (table, key) = (random.u32(0..4), random.u64(0..self.program.0.keys));
                let row = at!(tables, table, key, |rows, key| tx.get(rows, key).await)?;
                recording.read(table, key, row.map(|bytes| version(&bytes)));
            }
            Ok(())
        });
        match seen.await {
            Ok(()) => recording.commit(),
            Err(Error::Contended { .. }) => recording.abort(),
            Err(_) if !self.case.survives(worker.id()) => return false,
            Err(error) => panic!("{:?}: {error:?}", worker.id()),
        }
        true
    }

    /// Lets the leader take nodes for dead whose time has come.
    fn makes_mistakes(&self, now: Duration) {
        for (node, at, end) in &self.case.deaths {
            if *end == End::IsTakenForDead && now >= *at {
                assert_eq!(self.fabric.revoke(NodeId(0), *node, Incarnation(1)), Ok(true));
            }
        }
    }

    /// Lets the register's time pass, and looks at whether the view is without all that die.
    async fn watches(
        self: Arc<Self>,
        node: Node<Simulated, Tested>,
        worker: Worker<'_, Simulated, Tested>,
        register: Register,
    ) {
        let endpoint = worker.endpoint();
        let is_dead = |node: &NodeId| matches!(endpoint.presence(*node), Presence::Died(_));
        let is_owner = |node: &NodeId| node.0 < self.case.owners;
        let (began, mut deaths, mut before) = (endpoint.now(), 0, 0);
        while self.quiet.load(SeqCst) > 0 || self.away.load(SeqCst) > 0 {
            register.advance(endpoint.now().since(began));
            if worker.id() == NodeId(0) {
                self.makes_mistakes(endpoint.now().since(began));
            }
            let view = node.view();
            let dead = self.case.deaths.iter().filter(|(node, ..)| is_dead(node)).count();
            if dead > deaths {
                if deaths > 0 && view.number() == before {
                    self.in_change.fetch_add(1, SeqCst);
                }
                (deaths, before) = (dead, view.number());
            }
            let mut all = self.case.deaths.iter().map(|(node, ..)| node);
            let is_without = all.all(|node| match is_owner(node) {
                true => !view.has(*node),
                false => is_dead(node) && view.number() > before,
            });
            if is_without {
                self.is_changed.store(true, SeqCst);
            }
            endpoint.sleep(Duration::from_micros(20)).await;
        }
    }

    /// Looks at all rows when all is quiet.
    async fn checks(&self, worker: &Worker<'_, Simulated, Tested>, tables: Tables) {
        let Program { keys, ref logs, .. } = self.program.0;
        indexes::agree(worker, tables, keys).await;
        let mut log = logs.lock().expect("no thread panics").pop().flatten().expect("one more than coroutines");
        let mut recording = log.begin();
        let seen = worker.transact(async |tx| {
            recording.retry();
            for key in 0..keys {
                for table in 0..4 {
                    let row = at!(tables, table, key, |rows, key| tx.get(rows, key).await)?;
                    recording.read(table, key, row.map(|bytes| version(&bytes)));
                }
            }
            Ok(())
        });
        seen.await.expect("no row is locked");
        recording.commit();
        logs.lock().expect("no thread panics").push(Some(log));
        for (number, acknowledged) in (0..).zip(&self.acknowledged) {
            let marked = worker.transact(async |tx| tx.get(tables.words, MARKS + number).await).await;
            let marked = marked
                .expect("no row is locked")
                .map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
            assert!(marked >= acknowledged.load(Relaxed), "of {number}: {marked}, and {acknowledged:?}");
        }
        // No record is locked, not even of a row that is not there.
        let soon = || Options::new().within(Duration::from_millis(20));
        for key in 0..keys {
            for table in 0..4 {
                let put = worker.transact_with(soon(), async |tx| {
                    at!(tables, table, key, |rows, key| tx.put(rows, key, value(7)).await)
                });
                put.await.unwrap_or_else(|error| panic!("row {key} of {table}: {error:?}"));
            }
        }
    }

    /// Stays until all is done.
    async fn stays(
        self: Arc<Self>,
        worker: Worker<'_, Simulated, Tested>,
        tables: Tables,
        done: Rc<std::cell::Cell<u64>>,
    ) {
        let endpoint = worker.endpoint();
        endpoint.until(|| done.get() == COROUTINES).await;
        worker.settle().await;
        self.left.fetch_sub(1, SeqCst);
        endpoint.until(|| self.left.load(SeqCst) == 0).await;
        if self.case.survivors().next() == Some(worker.id()) {
            self.checks(&worker, tables).await;
            self.is_checked.store(true, SeqCst);
        }
        endpoint.until(|| self.is_checked.load(SeqCst)).await;
        worker.catch_up().await.expect("backups apply");
        self.quiet.fetch_sub(1, SeqCst);
        endpoint.until(|| self.quiet.load(SeqCst) == 0).await;
    }
}

/// Runs a case. Fails with what is wrong. Returns how often one died before the view
/// had changed for the first, and what happened in all.
fn run(case: &Case) -> (usize, Trace) {
    let mut recorder = Recorder::counting();
    let coroutines = u64::from(case.nodes()) * COROUTINES;
    let logs: Vec<_> = (0..=coroutines).map(|_| Some(recorder.log().expect("a few logs"))).collect();
    let logs = Arc::new(Mutex::new(logs));
    let rings = Rings { backups: case.backups, bytes: 1 << 14, ..Rings::default() };
    let keys = [2, 5, 12][case.seed as usize % 3];
    let program = Program { keys, transactions: 20, seed: case.seed, rings, logs: Arc::clone(&logs), restarts: None };
    let survivors = case.survivors().count();
    let silent = (0..case.nodes()).filter(|node| case.is_silent(NodeId(*node)));
    let config = SimConfig::new(&NicProfile::CONNECTX_4).seed(case.seed);
    let atomicity = if case.seed.is_multiple_of(4) { Atomicity::Hca } else { Atomicity::Global };
    let config = config.atomicity(atomicity);
    let config = if case.is_rough { config.chances(ROUGH) } else { config };
    let sim = Sim::<NoHtm>::new(case.nodes(), config);
    let run = Arc::new(Run {
        case: case.clone(),
        fabric: sim.fabric().clone(),
        program: Program2(program),
        is_changed: AtomicBool::new(false),
        in_change: AtomicUsize::new(0),
        left: AtomicUsize::new(survivors),
        is_checked: AtomicBool::new(false),
        quiet: AtomicUsize::new(survivors),
        away: AtomicUsize::new(silent.count() * COROUTINES as usize),
        acknowledged: (0..coroutines).map(|_| AtomicU64::new(0)).collect(),
    });
    let mut options = RegisterOptions::default();
    options.seed = case.seed;
    if case.is_rough {
        (options.lost, options.repeated, options.reign) = (0.05, 0.05, Some(Duration::from_millis(20)));
    }
    let register = Register::new(options);
    let mut nodes = Vec::new();
    for number in 0..case.nodes() {
        let membership: (Arc<dyn Membership>, _) = (Arc::new(register.client()), LEASE);
        let (node, tables) = kept(sim.fabric(), number, case.owners, case.protocol, (rings, Some(membership)));
        nodes.push(node.clone());
        let (run, register) = (Arc::clone(&run), register.clone());
        let spawned = sim.spawn(NodeId(number), move |spawner| {
            let worker = node.worker(spawner.endpoint()).expect("few workers");
            worker.serve(&spawner);
            let done = Rc::new(std::cell::Cell::new(0));
            for coroutine in 0..COROUTINES {
                let writes =
                    Arc::clone(&run).writes(worker.clone(), tables, u64::from(number) * COROUTINES + coroutine);
                let (done, run) = (Rc::clone(&done), Arc::clone(&run));
                let counted = async move {
                    writes.await;
                    done.set(done.get() + 1);
                    if run.case.is_silent(NodeId(number)) {
                        run.away.fetch_sub(1, SeqCst);
                    }
                };
                spawner.spawn(counted).expect("it runs");
            }
            let watches = Arc::clone(&run).watches(node.clone(), worker.clone(), register);
            spawner.spawn(watches).expect("it runs");
            if run.case.survives(NodeId(number)) {
                spawner.spawn(Arc::clone(&run).stays(worker.clone(), tables, done)).expect("it runs");
            }
        });
        spawned.expect("room for an endpoint");
    }
    for (node, at, end) in case.deaths.iter().copied() {
        match end {
            End::Dies => sim.plan(at, Fault::Crash { node }),
            End::Stops => sim.plan(at, Fault::Stall { node, lasts: AWAY }),
            End::IsCutOff => {
                sim.plan(at, Fault::Partition(vec![node]));
                sim.plan(at + AWAY, Fault::Heal);
            }
            End::IsTakenForDead => {}
        }
    }
    assert_eq!(sim.run_for(Duration::from_millis(500)), RunEnd::Done, "{case:?}: something hangs: {run:?}");
    for owner in (0..case.owners).map(NodeId) {
        let left = nodes.iter().filter(|node| case.survives(node.id()));
        let rows: Vec<_> = left.filter_map(|node| node.rows_of(owner).expect("a store")).collect();
        assert!(rows.windows(2).all(|pair| pair[0] == pair[1]), "{case:?}: of the group of {owner}: {rows:?}");
    }
    let logs = std::mem::take(&mut *logs.lock().expect("no thread panics"));
    let anomalies = check(&History::of(logs.into_iter().flatten()), Order::RealTime).expect("a history");
    let told: Vec<String> = anomalies.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "{case:?}:\n{}", told.join("\n"));
    (run.in_change.load(SeqCst), sim.trace())
}

const ROUGH: drtm_rdma::Chances =
    drtm_rdma::Chances { loss: 0.02, delay: 0.1, at_most: Duration::from_micros(20), ..drtm_rdma::Chances::NONE };

fn seeds(usual: u64) -> Range<u64> {
    let first = std::env::var("DRTM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    first..first + rounds(usual)
}

/// Runs cases of these seeds in some protocols, and says which fail. Returns how often a node died
/// before the view had changed for the first.
fn check_all(protocols: &[Protocol], seeds: Range<u64>, case: fn(Protocol, u64) -> Case) -> usize {
    let (mut told, mut in_change) = (Vec::new(), 0);
    for seed in seeds {
        for protocol in protocols.iter().copied() {
            let case = case(protocol, seed);
            match catch_unwind(|| run(&case)) {
                Ok((more, _)) => in_change += more,
                Err(_) => told.push((protocol.name, seed)),
            }
        }
    }
    assert!(told.is_empty(), "{} fail: {told:?}", told.len());
    in_change
}

#[test]
fn one_node_dies_under_load() {
    check_all(&[Protocol::FASST], seeds(6), Case::of_one_death);
}

#[test]
fn two_nodes_die_under_load() {
    check_all(&[Protocol::FASST], seeds(6), Case::of_two_deaths);
}

#[test]
fn nodes_die_under_load_in_all_protocols() {
    let all: Vec<Protocol> = Protocol::with_names().collect();
    check_all(&all, seeds(6), Case::of_one_death);
    assert!(check_all(&all, seeds(6), Case::of_two_deaths) > 0, "none dies while the view changes");
}

#[test]
fn nodes_that_are_silent_are_out() {
    let all: Vec<Protocol> = Protocol::with_names().collect();
    check_all(&all, seeds(6), Case::of_one_silence);
    check_all(&all, seeds(6), Case::of_a_silence_and_a_death);
    check_all(&all, seeds(6), Case::of_a_mistake);
}

/// Whether a fault is found by some of the cases.
fn is_found(fault: Mutation, mut seeds: Range<u64>, cases: &[fn(Protocol, u64) -> Case]) -> bool {
    let fails = |case: Case| catch_unwind(|| Setup::faulty(fault).run(|| run(&case))).is_err();
    seeds.any(|seed| {
        let protocol = Protocol::ALL[seed as usize % Protocol::ALL.len()];
        cases.iter().any(|case| fails(case(protocol, seed)))
    })
}

#[test]
fn a_primary_that_has_not_applied_everything_is_found() {
    assert!(is_found(Mutation::SettledNotTold, 0..rounds(40), &[Case::of_one_death, Case::of_two_deaths]));
}

#[test]
fn nodes_that_serve_without_a_lease_are_found() {
    assert!(is_found(Mutation::LeaseIgnored, 0..rounds(20), &[Case::of_an_owners_silence]));
    assert!(is_found(Mutation::AccessLeft, 8..8 + rounds(20), &[Case::of_an_owners_silence]));
}

#[test]
fn a_seed_replays() {
    for (protocol, seed) in Protocol::with_names().zip(0..) {
        let case = Case::of_two_deaths(protocol, seed);
        assert_eq!(run(&case), run(&case), "{case:?}");
    }
}
