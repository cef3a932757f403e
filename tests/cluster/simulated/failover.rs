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
    Atomicity, Fabric as _, Fault, Incarnation, NicProfile, NodeId, Presence, Remains, RunEnd, Sim, SimConfig,
    SimFabric, Trace,
};
use drtm_testing::rounds;
use drtm_txn::{
    Error, Mutation, Options, Transaction as _,
    cluster::{ClusterError, ClusterTx, Node, Placement, Protocol, View, Worker},
};
use fastrand::Rng;

use crate::{
    bed::{Rings, Setup, Tables, Tested, kept},
    drops::polled,
    history::{Kept, at, name, value, version},
    indexes,
    program::{MARKS, Program},
};

type Simulated = SimFabric<NoHtm>;

/// Coroutines of each node.
const COROUTINES: u64 = 2;

/// How long a node may be silent.
const LEASE: Duration = Duration::from_millis(1);

/// How long a node is away that wakes up: all others have changed the view by then.
const AWAY: Duration = Duration::from_millis(20);

/// How many transactions a coroutine runs at once.
const BUSY: u64 = 100;

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
    /// It dies, and comes back with nothing after this.
    ComesBack(Duration),
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
    /// Whether each one ends when those before it are back, and all shards have as many replicas as
    /// before: its time counts from then on.
    in_turn: bool,
    /// Whether all replicas of a shard end. The nodes that do run no transactions: what one had
    /// told its callers, more nodes have lost than there are backups.
    loses: bool,
    /// Whether an operator replaces those that come back, before they do.
    replaces: bool,
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
        let deaths = vec![(node, at, End::Dies)];
        Self {
            protocol,
            seed,
            owners,
            clients,
            backups,
            deaths,
            in_turn: false,
            loses: false,
            replaces: false,
            is_rough,
        }
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

    /// Owners die and come back: one, or another one when the first is back, or all in turn.
    fn of_returns(protocol: Protocol, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed ^ 0x5eed);
        let mut case = Self { in_turn: true, ..Self::of_one_death(protocol, seed) };
        let deaths = [1, 2, case.owners][seed as usize % 3];
        let (first, owners) = (random.u16(0..case.owners), case.owners);
        let death = |number: u16| {
            let at = Duration::from_nanos(random.u64(20_000..1_500_000));
            let away = Duration::from_nanos(random.u64(1_000..5_000_000));
            (NodeId((first + number) % owners), at, End::ComesBack(away))
        };
        case.deaths = (0..deaths).map(death).collect();
        case
    }

    /// Owners die, and others take their places.
    fn of_replacements(protocol: Protocol, seed: u64) -> Self {
        Self { replaces: true, ..Self::of_returns(protocol, seed) }
    }

    /// A client ends, where owners have no backups.
    fn of_a_client(protocol: Protocol, seed: u64) -> Self {
        let mut case = Self { backups: 0, ..Self::of_one_death(protocol, seed) };
        let (node, _, end) = &mut case.deaths[0];
        node.0 = case.owners + node.0 % case.clients;
        *end = [End::Dies, End::Dies, End::Stops, End::IsCutOff][seed as usize / 2 % 4];
        case
    }

    /// Several owners die and come back as they like, fewer at a time than there are replicas.
    fn of_returns_in_between(protocol: Protocol, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed ^ 0xfeed);
        let mut case = Self { backups: 2, ..Self::of_one_death(protocol, seed) };
        case.owners = case.owners.max(4);
        let first = NodeId(random.u16(0..case.owners));
        let second = NodeId((first.0 + random.u16(1..case.owners)) % case.owners);
        let (at, away) = (case.deaths[0].1, Duration::from_nanos(random.u64(1_000..5_000_000)));
        let later = at + Duration::from_nanos(random.u64(0..10_000_000));
        case.deaths = vec![(first, at, End::ComesBack(away)), (second, later, End::Dies)];
        case
    }

    /// All replicas of a shard die: an owner and its only backup, one soon after the other, or an
    /// owner without a backup.
    fn of_a_loss(protocol: Protocol, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed ^ 0x1055);
        let mut case = Self { backups: 1, loses: true, ..Self::of_one_death(protocol, seed) };
        case.owners = case.owners.max(4);
        // A view that has not opened has no rows: it waits until all have met.
        case.seed += u64::from(case.seed % 8 == 7);
        // Without backups, one is enough.
        case.backups = usize::from(!case.seed.is_multiple_of(3));
        let (first, at) = (random.u16(0..case.owners), case.deaths[0].1);
        let both = [first, (first + 1) % case.owners];
        let later = [0, random.u64(0..40_000), random.u64(0..1_500_000)][seed as usize % 3];
        let times = [at, at + Duration::from_nanos(later)];
        let order = if random.bool() { [0, 1] } else { [1, 0] };
        let ends = order.into_iter().zip(times).map(|(one, at)| (NodeId(both[one]), at, End::Dies));
        case.deaths = ends.take(case.backups + 1).collect();
        case
    }

    /// Whether a transaction may fail so, and has not happened then.
    fn may_be(&self, error: &Error) -> bool {
        self.loses && matches!(error, Error::Cluster(ClusterError::ShardLost { .. }))
    }

    fn nodes(&self) -> u16 {
        self.owners + self.clients
    }

    /// The nodes that come back, and when.
    fn returns(&self) -> impl Iterator<Item = (NodeId, Duration)> {
        self.deaths.iter().filter_map(|(node, at, end)| match end {
            End::ComesBack(away) => Some((*node, *at + *away)),
            _ => None,
        })
    }

    /// The lives of nodes that there are at the end: those of members, and others.
    fn is_at_the_end(&self, node: NodeId, life: Incarnation) -> bool {
        let has_returned = self.returns().any(|(other, _)| other == node);
        life == Incarnation(if has_returned { 2 } else { 1 }) && (has_returned || self.survives(node))
    }

    /// How many coroutines there are: those of nodes that come back, too.
    fn coroutines(&self) -> u64 {
        (u64::from(self.nodes()) + self.returns().count() as u64) * COROUTINES
    }

    /// Whether the node of a coroutine is there at the end.
    fn stays(&self, node: NodeId, number: u64) -> bool {
        number >= u64::from(self.nodes()) * COROUTINES || self.survives(node)
    }

    fn survives(&self, node: NodeId) -> bool {
        self.deaths.iter().all(|(dead, ..)| *dead != node)
    }

    /// The nodes that are away for a while.
    fn silent(&self) -> impl Iterator<Item = NodeId> {
        (0..self.nodes()).map(NodeId).filter(|node| self.is_silent(*node))
    }

    /// Returns whether a node is away for a while.
    fn is_silent(&self, node: NodeId) -> bool {
        let is_silence = |end: &End| !matches!(end, End::Dies | End::ComesBack(_));
        self.deaths.iter().any(|(one, _, end)| *one == node && is_silence(end))
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
    /// When the first view had opened that the nodes agree on, in nanoseconds.
    formed: AtomicU64,
    /// Whether the last view is there: without all that die, and with all that come back, where
    /// each shard has as many replicas as there can be.
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
    /// Of each node, whether one was acknowledged before it ended, or became silent.
    has_committed: Vec<AtomicBool>,
}

/// A program whose debug output says nothing.
struct Program2(Program);

impl std::fmt::Debug for Program2 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a program")
    }
}

impl Run {
    /// Runs transactions, until all that are to die have.
    async fn writes(self: Arc<Self>, worker: Worker<'_, Simulated, Tested>, tables: Tables, number: u64) {
        let Program { transactions, seed, ref logs, .. } = self.program.0;
        let mut kept = Kept::take(logs, number as usize);
        let log = kept.log();
        let mut random = Rng::with_seed(seed << 16 | number);
        let mark = MARKS + number;
        let (mut id, began) = (0, worker.endpoint().now());
        // One that is away is done when all others are.
        let is_left_behind = || !self.case.stays(worker.id(), number) && self.is_checked.load(SeqCst);
        while (id < transactions || !self.is_changed.load(SeqCst)) && !is_left_behind() {
            id += 1;
            // Where only one owner is left, its transactions take no time. Later ones are fewer:
            // what is waited for takes long.
            let pause = if id < BUSY { 100 } else { random.u64(100..100_000) };
            worker.endpoint().sleep(Duration::from_nanos(pause)).await;
            if worker.id().0 < self.case.owners && random.u8(0..8) == 0 {
                // It begins an epoch of this node.
                drop(worker.local().snapshot().expect("no closure runs here"));
            }
            if random.u8(0..4) == 0 && !self.reads((&worker, number), tables, &mut random, log).await {
                return;
            }
            let mut recording = log.begin();
            let polls = if random.u8(0..6) == 0 { random.u32(1..40) } else { u32::MAX };
            let attempt = self.program.0.attempt(&worker, tables, &mut random, &mut recording, (mark, id));
            let has_committed = match polled(attempt, polls).await {
                Some(Ok(is_torn)) => {
                    assert!(!is_torn, "it has seen what never was, and committed");
                    self.acknowledged[number as usize].store(id, Relaxed);
                    self.note_committed(worker.id(), worker.endpoint().now().since(began));
                    true
                }
                Some(Err(Error::Aborted { .. } | Error::Contended { .. })) => false,
                Some(Err(error)) if self.case.may_be(&error) => false,
                Some(Err(error)) if !self.case.stays(worker.id(), number) => {
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
                        Err(_) if !self.case.stays(worker.id(), number) => return,
                        // It is not known whether it has happened.
                        Err(error) if self.case.may_be(&error) => continue,
                        Err(error) => panic!("{error:?}"),
                    }
                }
            };
            if has_committed { recording.commit() } else { recording.abort() }
        }
    }

    /// Reads single rows in a node that is away for a while, without patience: those that it has
    /// served, it has at hand. Or it has bodies that work on `fetched` rows, and fail with what
    /// they have seen: that was there, too.
    async fn looks(
        self: Arc<Self>,
        worker: Worker<'_, Simulated, Tested>,
        tables: Tables,
        (number, fetched): (u64, bool),
    ) {
        const SEEN: &str = "it has seen a row";
        let mut log = self.program.0.logs.lock().expect("no thread panics")[number as usize].take();
        let reader = log.as_mut().expect("one for each");
        let mut random = Rng::with_seed(!number);
        while self.left.load(SeqCst) > 0 {
            worker.endpoint().sleep(Duration::from_micros(5)).await;
            let mut recording = reader.begin();
            let (table, key) = (random.u32(0..4), random.u64(0..self.program.0.keys));
            let soon = Options::new().within(Duration::from_micros(50));
            let sees = async |tx: &mut ClusterTx<'_, Simulated, Tested>| {
                recording.retry();
                let row = at!(tables, table, key, |rows, key| tx.get(rows, key).await)?;
                recording.read(table, key, row.map(|bytes| version(&bytes)));
                if fetched { Err(Error::aborted(SEEN)) } else { Ok(()) }
            };
            let seen = match fetched {
                true => worker.transact_on(|_| Ok(()), sees).await,
                false => worker.transact_with(soon, sees).await,
            };
            match seen {
                Ok(()) | Err(Error::Aborted { .. }) => recording.commit(),
                Err(error) => {
                    recording.abort();
                    if let Error::Cluster(ClusterError::Evicted { .. }) = error {
                        break;
                    }
                }
            }
        }
        self.program.0.logs.lock().expect("no thread panics")[number as usize] = log;
    }

    /// Runs a transaction that only reads. Returns whether the node goes on.
    async fn reads(
        &self,
        (worker, number): (&Worker<'_, Simulated, Tested>, u64),
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
            Err(error) if self.case.may_be(&error) => recording.abort(),
            Err(_) if !self.case.stays(worker.id(), number) => return false,
            Err(error) => panic!("{:?}: {error:?}", worker.id()),
        }
        true
    }

    /// Returns whether the life of a node is in a view with which it comes back.
    fn has_returned(&self, view: &View, node: NodeId) -> bool {
        let mut members = view.members().iter();
        members.any(|member| member.node == node && member.incarnation == Some(Incarnation(2)))
    }

    /// Returns whether a node's view is without the first life of one that ends.
    fn is_without(&self, node: &Node<Simulated, Tested>, dead: NodeId) -> bool {
        let view = node.view();
        match dead.0 < self.case.owners {
            true => self.has_returned(&view, dead) || !view.has(dead),
            false => node.is_without(dead, Incarnation(1)),
        }
    }

    /// Returns whether all that come back are members, and each shard has as many replicas as there
    /// can be.
    fn is_repaired(&self, view: &View) -> bool {
        self.case.returns().all(|(node, _)| self.has_returned(view, node)) && self.is_whole(view)
    }

    /// Returns whether one that was back may be taken out all the same: it is replaced after the
    /// end.
    fn may_end_without_repair(&self) -> bool {
        self.case.is_rough && self.case.silent().next().is_some()
    }

    /// Returns whether each shard has as many replicas as there can be.
    fn is_whole(&self, view: &View) -> bool {
        let replicas = view.members().len().min(self.case.backups + 1);
        let is_lost = |at: &Placement| self.case.loses && at.lost.is_some();
        let mut shards = view.placements().iter().filter(|at| !is_lost(at));
        shards.all(|at| at.backups.len() + 1 == replicas && at.learners.is_empty())
    }

    /// Notes that a transaction of a node was acknowledged so long after its life began.
    fn note_committed(&self, node: NodeId, after: Duration) {
        let formed = Duration::from_nanos(self.formed.load(SeqCst));
        let mut ends = self.case.deaths.iter().filter(|(one, ..)| *one == node);
        let is_before = ends.all(|(_, at, _)| after < formed.saturating_add(*at));
        self.has_committed[usize::from(node.0)].fetch_or(is_before, SeqCst);
    }

    /// Returns whether transactions of a node were acknowledged before it ended.
    fn has_committed(&self, node: NodeId) -> bool {
        self.has_committed[usize::from(node.0)].load(SeqCst)
    }

    /// Lets the leader take nodes for dead whose time has come.
    fn makes_mistakes(&self, now: Duration) {
        for (node, at, end) in &self.case.deaths {
            let formed = Duration::from_nanos(self.formed.load(SeqCst));
            if *end == End::IsTakenForDead && now >= formed.saturating_add(*at) {
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
        let (began, mut deaths, mut before) = (endpoint.now(), 0, 0);
        // Where the register has not answered meanwhile, one goes on that was away.
        let is_back = |now: Duration, (node, at, end): &(NodeId, Duration, End)| {
            let back = Duration::from_nanos(self.formed.load(SeqCst)).saturating_add(*at + AWAY + 5 * LEASE);
            // A client that no leader has met yet has begun nothing, and is not missed.
            let may_stay = node.0 >= self.case.owners && !self.has_committed(*node)
                || self.case.is_rough && matches!(end, End::Stops | End::IsCutOff);
            may_stay && now > back
        };
        while self.quiet.load(SeqCst) > 0 || self.away.load(SeqCst) > 0 {
            register.advance(endpoint.now().since(began));
            // Others are taken for dead by a leader that all have met.
            if worker.id() == NodeId(0) && node.view().number() > 1 {
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
            let now = endpoint.now().since(began);
            let mut all = self.case.deaths.iter();
            if all.all(|dead| self.is_without(&node, dead.0) || is_back(now, dead)) && self.is_repaired(&view) {
                self.is_changed.store(true, SeqCst);
            }
            endpoint.sleep(Duration::from_micros(20)).await;
        }
    }

    /// Looks at all rows when all is quiet.
    async fn checks(&self, worker: &Worker<'_, Simulated, Tested>, tables: Tables) {
        let Program { keys, ref logs, .. } = self.program.0;
        if !self.case.loses {
            indexes::agree(worker, tables, keys).await;
        }
        let mut log = logs.lock().expect("no thread panics").pop().flatten().expect("one more than coroutines");
        // Rows of lost shards are read by themselves.
        let at_once = if self.case.loses { 1 } else { 4 * keys };
        let rows: Vec<(u32, u64)> = (0..keys).flat_map(|key| (0..4).map(move |table| (table, key))).collect();
        for rows in rows.chunks(at_once as usize) {
            let mut recording = log.begin();
            let seen = worker.transact(async |tx| {
                recording.retry();
                for (table, key) in rows {
                    let row = at!(tables, *table, *key, |rows, key| tx.get(rows, key).await)?;
                    recording.read(*table, *key, row.map(|bytes| version(&bytes)));
                }
                Ok(())
            });
            match seen.await {
                Err(error) if self.case.may_be(&error) => recording.abort(),
                seen => {
                    seen.expect("no row is locked");
                    recording.commit();
                }
            }
        }
        logs.lock().expect("no thread panics").push(Some(log));
        for (number, acknowledged) in (0..).zip(&self.acknowledged) {
            let marked = worker.transact(async |tx| tx.get(tables.words, MARKS + number).await).await;
            if marked.as_ref().is_err_and(|error| self.case.may_be(error)) {
                continue;
            }
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
                match put.await {
                    Err(error) if !self.case.may_be(&error) => panic!("row {key} of {table}: {error:?}"),
                    _ => {}
                }
            }
        }
    }

    /// Stays until all is done.
    async fn stays(
        self: Arc<Self>,
        (node, worker): (Node<Simulated, Tested>, Worker<'_, Simulated, Tested>),
        tables: Tables,
        done: Rc<std::cell::Cell<u64>>,
    ) {
        let endpoint = worker.endpoint();
        endpoint.until(|| done.get() == COROUTINES).await;
        worker.settle().await;
        self.left.fetch_sub(1, SeqCst);
        endpoint.until(|| self.left.load(SeqCst) == 0).await;
        // One that goes on, though it was silent, is waited for.
        let is_out = |silent: NodeId| self.is_without(&node, silent);
        endpoint.until(|| self.away.load(SeqCst) == 0 || self.case.silent().all(is_out)).await;
        if self.case.survivors().next() == Some(worker.id()) {
            self.checks(&worker, tables).await;
            self.is_checked.store(true, SeqCst);
        }
        endpoint.until(|| self.is_checked.load(SeqCst)).await;
        // A node that has come back may have had no shards yet when the view was whole.
        let is_repaired = || self.may_end_without_repair() || self.is_repaired(&node.view());
        endpoint.until(|| node.id().0 >= self.case.owners || is_repaired()).await;
        worker.catch_up().await.expect("backups apply");
        self.quiet.fetch_sub(1, SeqCst);
        endpoint.until(|| self.quiet.load(SeqCst) == 0).await;
    }
}

/// Starts a life of a node, whose coroutines are numbered as those of a node of this number.
fn starts(
    sim: &Sim<NoHtm>,
    run: &Arc<Run>,
    register: &Register,
    (node, number): (u16, u16),
) -> Node<Simulated, Tested> {
    let (id, case) = (NodeId(node), &run.case);
    let membership: (Arc<dyn Membership>, _) = (Arc::new(register.client()), LEASE);
    let (rings, is_silent) = (run.program.0.rings, case.is_silent(id));
    let (node, tables) = kept(sim.fabric(), node, case.owners, case.protocol, (rings, Some(membership)));
    let (started, run, register) = (node.clone(), Arc::clone(run), register.clone());
    let spawned = sim.spawn(id, move |spawner| {
        let worker = node.worker(spawner.endpoint()).expect("few workers");
        worker.serve(&spawner);
        let done = Rc::new(std::cell::Cell::new(0));
        let first = u64::from(number) * COROUTINES;
        let is_idle = run.case.loses && !run.case.survives(id);
        for coroutine in (0..COROUTINES).filter(|_| !is_idle) {
            let writes = Arc::clone(&run).writes(worker.clone(), tables, first + coroutine);
            let (done, run) = (Rc::clone(&done), Arc::clone(&run));
            let counted = async move {
                writes.await;
                done.set(done.get() + 1);
                if is_silent {
                    run.away.fetch_sub(1, SeqCst);
                }
            };
            spawner.spawn(counted).expect("it runs");
        }
        if let Some(place) = run.case.silent().position(|silent| silent == id && id.0 < run.case.owners) {
            for fetched in [false, true] {
                let number = run.case.coroutines() + 2 * place as u64 + u64::from(fetched);
                let looks = Arc::clone(&run).looks(worker.clone(), tables, (number, fetched));
                spawner.spawn(looks).expect("it runs");
            }
        }
        let watches = Arc::clone(&run).watches(node.clone(), worker.clone(), register);
        spawner.spawn(watches).expect("it runs");
        if run.case.stays(id, first) {
            spawner.spawn(Arc::clone(&run).stays((node, worker.clone()), tables, done)).expect("it runs");
        }
    });
    spawned.expect("room for an endpoint");
    started
}

/// Has an operator replace a node that has died, by what another one is told.
fn replaces(sim: &Sim<NoHtm>, nodes: &[Node<Simulated, Tested>], (dead, owners): (NodeId, u16)) {
    let (is_done, told) = (Arc::new(AtomicBool::new(false)), NodeId((dead.0 + 1) % owners));
    let node = nodes.iter().rfind(|node| node.id() == told).expect("it is there").clone();
    let done = Arc::clone(&is_done);
    let spawned = sim.spawn(told, move |spawner| {
        let worker = node.worker(spawner.endpoint()).expect("few workers");
        let orders = async move {
            let address = ([10, 0, 0, 9], 7000 + dead.0).into();
            while let Err(error) = worker.replace(dead, address).await {
                // Its death is not seen yet, or another one leads.
                let may_be =
                    matches!(error, Error::Cluster(ClusterError::StillHere { .. } | ClusterError::NotReady { .. }));
                assert!(may_be, "{error:?}");
                worker.endpoint().sleep(LEASE / 10).await;
            }
            done.store(true, SeqCst);
        };
        spawner.spawn(orders).expect("it runs");
    });
    spawned.expect("room for an endpoint");
    let until = sim.elapsed() + Duration::from_millis(200);
    while !is_done.load(SeqCst) {
        assert_eq!(sim.run_for(Duration::from_micros(100)), RunEnd::TimeUp);
        assert!(sim.elapsed() < until, "{dead} is not replaced");
    }
}

/// Runs a case. Fails with what is wrong. Returns how often one died before the view
/// had changed for the first, and what happened in all.
fn run(case: &Case) -> (usize, Trace) {
    let mut recorder = Recorder::counting();
    let coroutines = case.coroutines();
    let silent = case.silent().count();
    let logs: Vec<_> =
        (0..=coroutines + 2 * silent as u64).map(|_| Some(recorder.log().expect("a few logs"))).collect();
    let logs = Arc::new(Mutex::new(logs));
    let rings = Rings { backups: case.backups, bytes: 1 << 14, ..Rings::default() };
    let keys = [2, 5, 12][case.seed as usize % 3];
    let program = Program { keys, transactions: 20, seed: case.seed, rings, logs: Arc::clone(&logs), restarts: None };
    let survivors = case.survivors().count() + case.returns().count();
    let config = SimConfig::new(&NicProfile::CONNECTX_4).seed(case.seed);
    let atomicity = if case.seed.is_multiple_of(4) { Atomicity::Hca } else { Atomicity::Global };
    let config = config.atomicity(atomicity);
    let config = if case.is_rough { config.chances(ROUGH) } else { config };
    let sim = Sim::<NoHtm>::new(case.nodes(), config);
    let run = Arc::new(Run {
        case: case.clone(),
        fabric: sim.fabric().clone(),
        program: Program2(program),
        formed: AtomicU64::new(u64::MAX),
        is_changed: AtomicBool::new(false),
        in_change: AtomicUsize::new(0),
        left: AtomicUsize::new(survivors),
        is_checked: AtomicBool::new(false),
        quiet: AtomicUsize::new(survivors),
        away: AtomicUsize::new(silent * COROUTINES as usize),
        acknowledged: (0..coroutines).map(|_| AtomicU64::new(0)).collect(),
        has_committed: (0..case.nodes()).map(|_| AtomicBool::new(false)).collect(),
    });
    let mut options = RegisterOptions::default();
    options.seed = case.seed;
    if case.is_rough {
        (options.lost, options.repeated, options.reign) = (0.05, 0.05, Some(Duration::from_millis(20)));
    }
    let register = Register::new(options);
    let mut nodes = Vec::new();
    for number in 0..case.nodes() {
        nodes.push(starts(&sim, &run, &register, (number, number)));
    }
    // Some die before the nodes have met.
    while case.seed % 8 != 7 && !nodes.iter().all(|node| node.view().number() > 1) {
        assert_eq!(sim.run_for(Duration::from_micros(100)), RunEnd::TimeUp, "{case:?}");
        assert!(sim.elapsed() < Duration::from_millis(200), "{case:?}: they do not meet");
    }
    let formed = sim.elapsed();
    run.formed.store(formed.as_nanos() as u64, SeqCst);
    for (node, at, end) in case.deaths.iter().copied().filter(|_| !case.in_turn) {
        match end {
            End::Dies | End::ComesBack(_) => sim.plan(at, Fault::Crash { node }),
            End::Stops => sim.plan(at, Fault::Stall { node, lasts: AWAY }),
            End::IsCutOff => {
                sim.plan(at, Fault::Partition(vec![node]));
                sim.plan(at + AWAY, Fault::Heal);
            }
            End::IsTakenForDead => {}
        }
    }
    for ((node, at), number) in case.returns().zip(case.nodes()..) {
        let mut since = formed;
        if case.in_turn {
            since = sim.elapsed();
            let died = case.deaths[usize::from(number - case.nodes())].1;
            sim.plan(died, Fault::Crash { node });
        }
        let until = since + at;
        assert_eq!(sim.run_for(until.saturating_sub(sim.elapsed())), RunEnd::TimeUp, "{case:?}: it has ended before");
        if case.replaces {
            replaces(&sim, &nodes, (node, case.owners));
        }
        sim.restart(node, Remains::Nothing).expect("it has died");
        nodes.push(starts(&sim, &run, &register, (node.0, number)));
        let is_whole = |nodes: &[Node<Simulated, Tested>]| {
            let (again, view) = (&nodes[nodes.len() - 1], nodes[nodes.len() - 1].view());
            run.has_returned(&view, again.id())
                && run.is_whole(&view)
                && view.members().len() == usize::from(case.owners)
        };
        let more = usize::from(number - case.nodes()) + 1 < case.deaths.len();
        while case.in_turn && more && !is_whole(&nodes) {
            assert_eq!(sim.run_for(Duration::from_micros(100)), RunEnd::TimeUp, "{case:?}");
            assert!(sim.elapsed() < until + Duration::from_millis(200), "{case:?}: {node} does not come back");
        }
    }
    assert_eq!(sim.run_for(Duration::from_millis(500)), RunEnd::Done, "{case:?}: something hangs: {run:?}");
    let at_the_end = |node: &&Node<Simulated, Tested>| case.is_at_the_end(node.id(), node.incarnation());
    let views = nodes.iter().filter(at_the_end).filter(|node| node.id().0 < case.owners).map(|node| node.view());
    let is_ended = run.may_end_without_repair() || views.clone().all(|view| run.is_repaired(&view));
    assert!(is_ended, "{case:?}: {:?}", views.collect::<Vec<_>>());
    for owner in (0..case.owners).map(NodeId) {
        let left = nodes.iter().filter(at_the_end);
        let rows: Vec<_> = left.filter_map(|node| node.rows_of(owner).expect("a store")).collect();
        assert!(rows.windows(2).all(|pair| pair[0] == pair[1]), "{case:?}: of the group of {owner}: {rows:?}");
    }
    let logs = std::mem::take(&mut *logs.lock().expect("no thread panics"));
    let history = History::of(logs.into_iter().flatten()).with_insertions_in_order();
    let anomalies = check(&history, Order::RealTime).expect("a history");
    let told: Vec<String> = anomalies.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "{case:?}:\n{}", told.join("\n"));
    (run.in_change.load(SeqCst), sim.trace())
}

const ROUGH: drtm_rdma::Chances =
    drtm_rdma::Chances { loss: 0.02, delay: 0.1, at_most: Duration::from_micros(20), ..drtm_rdma::Chances::NONE };

/// The seeds of a test: the first ones, or one, and as many after it as `DRTM_STRESS` says, where
/// `DRTM_SEED` is set.
fn seeds(usual: u64) -> Range<u64> {
    match std::env::var("DRTM_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(first) => first..first + rounds(1),
        None => 0..rounds(usual),
    }
}

/// Makes the case of a seed.
type Make = fn(Protocol, u64) -> Case;

/// All ways in which nodes end.
const KINDS: [(&str, Make); 8] = [
    ("one death", Case::of_one_death),
    ("two deaths", Case::of_two_deaths),
    ("one silence", Case::of_one_silence),
    ("an owner's silence", Case::of_an_owners_silence),
    ("a mistake", Case::of_a_mistake),
    ("a silence and a death", Case::of_a_silence_and_a_death),
    ("returns", Case::of_returns),
    ("returns in between", Case::of_returns_in_between),
];

/// The way and the protocol of one of many runs, and the seed of its case.
fn one_of_many(number: u64) -> (usize, Protocol, u64) {
    let protocols: Vec<Protocol> = Protocol::with_names().collect();
    let kind = number as usize % KINDS.len();
    (kind, protocols[number as usize / KINDS.len() % protocols.len()], Rng::with_seed(number).u64(0..1 << 32))
}

/// Runs the cases of numbers. Returns those that fail, and how often a node died before the view
/// had changed for the first.
pub(crate) fn by_number(numbers: Range<u64>) -> (Vec<String>, usize) {
    let (mut told, mut in_change) = (Vec::new(), 0);
    for number in numbers {
        let (kind, protocol, seed) = one_of_many(number);
        let (name, case) = KINDS[kind];
        match catch_unwind(|| run(&case(protocol, seed))) {
            Ok((more, _)) => in_change += more,
            Err(_) => {
                let fails = format!("{number}: {name}, {}, {seed}", protocol.name);
                eprintln!("FAILS {fails}");
                told.push(fails);
            }
        }
    }
    (told, in_change)
}

#[test]
fn nodes_end_in_all_ways_in_all_protocols() {
    let (told, in_change) = by_number(seeds(48));
    assert!(told.is_empty(), "{} fail: {told:#?}", told.len());
    assert!(in_change > 0 || std::env::var_os("DRTM_SEED").is_some(), "none dies while the view changes");
}

/// Whether a fault is found by some of the cases. The seeds begin with one that finds it.
fn is_found(fault: Mutation, mut seeds: Range<u64>, cases: &[Make]) -> bool {
    let fails = |case: Case| catch_unwind(|| Setup::faulty(fault).run(|| run(&case))).is_err();
    seeds.any(|seed| {
        let protocol = Protocol::ALL[seed as usize % Protocol::ALL.len()];
        // Without the fault, the same case is right.
        cases.iter().any(|case| fails(case(protocol, seed)) && catch_unwind(|| run(&case(protocol, seed))).is_ok())
    })
}

#[test]
fn a_primary_that_has_not_applied_everything_is_found() {
    assert!(is_found(Mutation::SettledNotTold, 2..2 + rounds(60), &[Case::of_returns]));
}

#[test]
fn nodes_that_serve_without_a_lease_are_found() {
    assert!(is_found(Mutation::LeaseIgnored, 26..26 + rounds(20), &[Case::of_an_owners_silence]));
    assert!(is_found(Mutation::AccessLeft, 8..8 + rounds(20), &[Case::of_an_owners_silence]));
}

#[test]
fn a_node_that_has_not_learnt_all_rows_is_found() {
    assert!(is_found(Mutation::PartLearnt, 2..2 + rounds(20), &[Case::of_returns]));
}

/// A client dies while its last record is at all copies, and not at a node that learns.
#[test]
fn a_learner_that_has_not_got_a_record_is_asked() {
    let run = || run(&Case::of_two_deaths(Protocol::FASST, 3_607_656_337));
    assert!(catch_unwind(|| Setup::faulty(Mutation::LearnersNotAsked).run(run)).is_err());
    run();
}

/// Runs cases of one kind, in all protocols in turn.
fn check_all(make: Make, usual: u64) {
    let protocols: Vec<Protocol> = Protocol::with_names().collect();
    let mut told = Vec::new();
    for seed in seeds(usual) {
        let case = make(protocols[seed as usize % protocols.len()], seed);
        if catch_unwind(|| run(&case)).is_err() {
            eprintln!("FAILS {case:?}");
            told.push(case);
        }
    }
    assert!(told.is_empty(), "{} fail: {told:#?}", told.len());
}

#[test]
fn what_others_have_stays_when_a_shard_is_lost() {
    check_all(Case::of_a_loss, 18);
}

#[test]
fn clients_end_where_owners_have_no_backups() {
    check_all(Case::of_a_client, 6);
}

#[test]
fn others_take_the_places_of_nodes_that_are_gone() {
    check_all(Case::of_replacements, 6);
}

#[test]
fn a_lost_shard_that_is_served_empty_is_found() {
    assert!(is_found(Mutation::LostServedEmpty, 0..rounds(20), &[Case::of_a_loss]));
}

#[test]
fn a_seed_replays() {
    for (protocol, seed) in Protocol::with_names().step_by(3).zip(0..) {
        let case = Case::of_two_deaths(protocol, seed);
        assert_eq!(run(&case), run(&case), "{case:?}");
    }
}
