//! What tests run on: nodes with the same tables, and coroutines of their workers.

use std::{
    cell::Cell,
    future::Future,
    net::TcpListener,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use drtm_history::Recorder;
use drtm_htm::NoHtm;
use drtm_membership::Membership;
use drtm_rdma::{
    Atomicity, Executor, Fabric, LocalConfig, LocalFabric, NicProfile, NodeId, RunEnd, ShmConfig, ShmFabric, Sim,
    SimConfig, TcpConfig, TcpFabric, Transport,
};
use drtm_testing::chosen;
use drtm_txn::{
    Builder, Config, Mutation, Ordered, Raw, Table, TableDef,
    cluster::{Detection, Node, OwnedRow, Partition, Protocol, Timing, Worker},
    durability::storage::Image,
};

use crate::{chopped::Chopped, directory::Directory};

/// What is wrong with the nodes of a cluster, how they lock, and how long their leases are. Not a
/// type: each would have all of a cluster compiled once more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    fault: Option<Mutation>,
    /// Whether processors lock by their NICs.
    by_loopback: bool,
    pub(crate) timing: Timing,
}

thread_local! {
    /// Of the nodes that this thread starts, and runs.
    static SETUP: Cell<Setup> = const { Cell::new(Setup::SOUND) };
}

impl Setup {
    /// Nothing is wrong. Threads of a busy machine answer late.
    pub(crate) const SOUND: Self = Self {
        fault: None,
        by_loopback: false,
        timing: Timing {
            measure: Duration::from_millis(10),
            publish: Duration::from_millis(1),
            drift: 1_000,
            most: Duration::from_secs(10),
            lease: Duration::from_micros(400),
            read_only_lease: Duration::from_millis(1),
        },
    };

    pub(crate) const fn faulty(fault: Mutation) -> Self {
        Self { fault: Some(fault), ..Self::SOUND }
    }

    pub(crate) const fn by_loopback(self) -> Self {
        Self { by_loopback: true, ..self }
    }

    pub(crate) const fn timed(self, timing: Timing) -> Self {
        Self { timing, ..self }
    }

    /// Runs it with nodes like this.
    pub(crate) fn run<R>(self, run: impl FnOnce() -> R) -> R {
        chosen::with(&SETUP, self, run)
    }

    /// What a thread is to run that this one starts.
    pub(crate) fn inherited<R>(run: impl FnOnce() -> R) -> impl FnOnce() -> R {
        chosen::inherited(&SETUP, run)
    }
}

/// A database without hardware transactions, and with the fault of the thread that uses it.
#[derive(Debug)]
pub(crate) struct Tested;

impl Config for Tested {
    type Engine = NoHtm;

    fn fault() -> Option<Mutation> {
        SETUP.get().fault
    }
}

pub(crate) const WORDS: TableDef<u64, Raw> = TableDef::hash("words");
const NAMES: TableDef<Vec<u8>, Raw> = TableDef::hash("names");
const SORTED_WORDS: TableDef<u64, Raw, Ordered> = TableDef::ordered("sorted words");
const SORTED_NAMES: TableDef<Vec<u8>, Raw, Ordered> = TableDef::ordered("sorted names");

/// A table of each shape.
#[derive(Clone, Copy)]
pub(crate) struct Tables {
    pub(crate) words: Table<u64, Raw>,
    pub(crate) names: Table<Vec<u8>, Raw>,
    pub(crate) sorted_words: Table<u64, Raw, Ordered>,
    pub(crate) sorted_names: Table<Vec<u8>, Raw, Ordered>,
    pub(crate) directory: Directory,
    /// Of chopped transactions, if there are any.
    pub(crate) chopped: Option<Chopped>,
}

/// A node of a cluster in which these nodes own rows.
pub(crate) fn node<F: Fabric<Engine = NoHtm>>(
    fabric: &F,
    node: u16,
    owners: u16,
    protocol: Protocol,
) -> (Node<F, Tested>, Tables) {
    backed_up(fabric, node, owners, protocol, Rings::default())
}

/// How many backups each owner has, and how large their rings are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rings {
    pub(crate) backups: usize,
    pub(crate) bytes: u64,
    /// Whether transactions of nodes that die are completed or undone, if that is chosen.
    pub(crate) recoverable: Option<bool>,
    /// Where the first nodes keep their rows. Those that have no disk keep them in memory only.
    pub(crate) disks: &'static [Image],
    /// Whether there are tables of chopped transactions.
    pub(crate) chops: bool,
    /// How many bytes a new backup copies in a second, if that is bounded.
    pub(crate) copy_rate: Option<u64>,
    /// The directory of logs in memory that outlives the process, if there are any.
    pub(crate) memory: Option<&'static str>,
}

impl Rings {
    /// No backups, and nothing else.
    pub(crate) const NONE: Self =
        Self { backups: 0, bytes: 1 << 18, recoverable: None, disks: &[], chops: false, copy_rate: None, memory: None };
}

impl Default for Rings {
    fn default() -> Self {
        Self::NONE
    }
}

/// Empty disks.
pub(crate) fn disks(count: u16) -> &'static [Image] {
    Vec::leak((0..count).map(|_| Image::recycling()).collect())
}

/// The same where owners have backups, or disks.
pub(crate) fn backed_up<F: Fabric<Engine = NoHtm>>(
    fabric: &F,
    node: u16,
    owners: u16,
    protocol: Protocol,
    rings: Rings,
) -> (Node<F, Tested>, Tables) {
    kept(fabric, node, owners, protocol, (rings, None))
}

/// By what nodes agree on the view, and how long a lease on it lasts.
pub(crate) type Lasting = (Arc<dyn Membership>, Duration);

/// The same where the view changes by itself when nodes die or are silent for longer than a lease,
/// if there is a membership.
pub(crate) fn kept<F: Fabric<Engine = NoHtm>>(
    fabric: &F,
    node: u16,
    owners: u16,
    protocol: Protocol,
    (rings, membership): (Rings, Option<Lasting>),
) -> (Node<F, Tested>, Tables) {
    let builder = Builder::new().memory(32 << 20);
    let builder = match rings.disks.get(usize::from(node)) {
        Some(disk) => builder.storage(Arc::new(disk.clone()), 1 << 16),
        None => builder,
    };
    let mut builder = Node::<F, Tested>::builder_for(NoHtm, fabric, NodeId(node), builder, protocol)
        .and_then(|builder| builder.timing(SETUP.get().timing).owners((0..owners).map(NodeId)))
        .and_then(|builder| builder.backups(rings.backups)?.ring_bytes(rings.bytes))
        .expect("the node is here");
    if let Some((membership, lease)) = membership {
        builder = builder.membership(membership).lease(lease);
    }
    if let Some(rate) = rings.copy_rate {
        builder = builder.copies_at(rate).expect("more than nothing");
    }
    if let Some(recoverable) = rings.recoverable {
        builder = builder.recoverable(recoverable);
    }
    if let Some(directory) = rings.memory {
        builder = builder.logs_in_memory(directory).expect("there are no tables yet");
    }
    if SETUP.get().by_loopback {
        builder = builder.locks_by_loopback().expect("the NICs have loopback");
    }
    let tables = Tables {
        words: builder.table(WORDS, Partition::by("itself", |key| *key)).expect("memory"),
        names: builder.table(NAMES, Partition::hash()).expect("memory"),
        sorted_words: builder.table(SORTED_WORDS, Partition::hash()).expect("memory"),
        sorted_names: builder.table(SORTED_NAMES, Partition::hash()).expect("memory"),
        directory: Directory::define(&mut builder).expect("memory"),
        chopped: rings.chops.then(|| Chopped::define(&mut builder).expect("memory")),
    };
    (builder.start().expect("owners"), tables)
}

/// What each coroutine does.
pub(crate) trait Script: Clone + Send + Sync + 'static {
    /// What backups owners have.
    fn rings(&self) -> Rings {
        Rings::default()
    }

    /// Returns how many workers of each simulated node share its coroutines.
    fn workers(&self) -> u64 {
        1
    }

    /// Returns whether no transaction has anything left at any node in the end.
    fn leaves_nothing(&self) -> bool {
        true
    }

    /// Looks at all nodes when all coroutines have ended.
    fn look<F: Fabric<Engine = NoHtm>>(&self, _nodes: &[Node<F, Tested>]) {}

    /// Runs as one of all coroutines, which are numbered.
    fn run<'e, F: Fabric<Engine = NoHtm>>(
        self,
        worker: Worker<'e, F, Tested>,
        tables: Tables,
        number: u64,
    ) -> impl Future<Output = ()> + 'e;
}

/// How large a cluster is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) nodes: u16,
    /// The first of them, which own rows.
    pub(crate) owners: u16,
    /// Of each node.
    pub(crate) coroutines: u64,
    pub(crate) protocol: Protocol,
}

/// Where a script runs.
#[derive(Clone, Debug)]
pub(crate) enum Bed {
    Local(LocalConfig),
    Shm,
    Tcp,
    /// By the first RDMA device that there is, and what carries messages.
    #[cfg(feature = "verbs")]
    Verbs(drtm_rdma::Transport),
    Sim(Box<SimConfig>),
}

impl Bed {
    pub(crate) fn perfect() -> Self {
        Self::Local(LocalConfig::perfect())
    }

    pub(crate) fn harsh(seed: u64) -> Self {
        Self::Local(LocalConfig::harsh(seed))
    }

    /// As kind as a NIC is.
    pub(crate) fn simulated(seed: u64) -> Self {
        Self::Sim(Box::new(SimConfig::new(&NicProfile::CONNECTX_4).seed(seed)))
    }

    /// The same, where a NIC's swaps are atomic with the processors'.
    pub(crate) fn atomic(seed: u64) -> Self {
        let config = SimConfig::new(&NicProfile::CONNECTX_4).seed(seed).atomicity(Atomicity::Global);
        Self::Sim(Box::new(config))
    }

    /// Returns whether a protocol runs there: some need a smart NIC.
    pub(crate) fn has(&self, protocol: Protocol) -> bool {
        protocol.detection == Detection::Versions || matches!(self, Self::Local(_) | Self::Sim(_))
    }

    /// Returns a recorder for histories of such runs.
    pub(crate) fn recorder(&self) -> Recorder {
        if matches!(self, Self::Sim(_)) { Recorder::counting() } else { Recorder::start() }
    }

    /// As harsh, where a NIC's swaps are atomic with the processors'.
    pub(crate) fn harsh_and_atomic(seed: u64) -> Self {
        Self::Local(LocalConfig::harsh(seed).atomicity(Atomicity::Global))
    }

    /// A cluster that delays, reorders and loses.
    pub(crate) fn rough(seed: u64) -> Self {
        let atomicity = if seed.is_multiple_of(2) { Atomicity::Global } else { Atomicity::Hca };
        Self::Sim(Box::new(SimConfig::harsh(seed).atomicity(atomicity)))
    }

    /// As rough, where swaps are atomic with those of the same NIC only.
    pub(crate) fn swapped_by_nics(seed: u64) -> Self {
        Self::Sim(Box::new(SimConfig::harsh(seed).atomicity(Atomicity::Hca)))
    }

    /// As rough, where messages go by datagrams.
    pub(crate) fn of_datagrams(seed: u64) -> Self {
        let config = SimConfig::harsh(seed).transport(Transport::Datagrams).atomicity(Atomicity::Global);
        Self::Sim(Box::new(config))
    }

    /// Runs a script to its end.
    pub(crate) fn run(&self, size: Size, script: &impl Script) {
        match self {
            Self::Local(config) => {
                let fabric = LocalFabric::<NoHtm>::new(size.nodes, config.clone());
                threads((0..size.nodes).map(|_| fabric.clone()), size, script);
            }
            Self::Shm => shm(size, script),
            Self::Tcp => joined(size, script, |config| TcpFabric::join(NoHtm, config).expect("a cluster")),
            #[cfg(feature = "verbs")]
            Self::Verbs(messages) => joined(size, script, |config| {
                let config = drtm_rdma::VerbsConfig::new(config).messages(*messages).software_swaps(true);
                drtm_rdma::VerbsFabric::join(NoHtm, config).expect("a cluster, and an RDMA device")
            }),
            Self::Sim(config) => simulated(config, size, script),
        }
    }
}

/// Members of one group, which would be processes.
fn shm(size: Size, script: &impl Script) {
    static GROUPS: AtomicUsize = AtomicUsize::new(0);
    let number = GROUPS.fetch_add(1, SeqCst);
    let directory = std::env::temp_dir().join(format!("drtm-cluster-{}-{number}", std::process::id()));
    let join = |node| {
        let config = ShmConfig::new("cluster", NodeId(node)).directory(&directory);
        ShmFabric::join(NoHtm, config).expect("a group")
    };
    let fabrics: Vec<_> = (0..size.nodes).map(join).collect();
    threads(fabrics.into_iter(), size, script);
    std::fs::remove_dir_all(&directory).expect("it is there");
}

/// Nodes that find each other by sockets of this machine.
fn joined<F: Fabric<Engine = NoHtm>>(size: Size, script: &impl Script, join: impl Fn(TcpConfig) -> F) {
    // Ports that are free, or were a moment ago.
    let listeners: Vec<_> = (0..size.nodes).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    let addresses: Vec<_> = listeners.iter().map(|at| at.local_addr().expect("an address")).collect();
    drop(listeners);
    let start = |node: u16| {
        let config = TcpConfig::new(NodeId(node), addresses[usize::from(node)], [7; 32]);
        let others = (0..).zip(&addresses).filter(|(other, _)| *other != node);
        join(others.fold(config, |config, (other, address)| config.peer(NodeId(other), *address)))
    };
    let fabrics: Vec<_> = (0..size.nodes).map(start).collect();
    threads(fabrics.into_iter(), size, script);
}

/// Ends the other threads of a test when it is dropped, by a panic too.
pub(crate) struct SetAtEnd<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Ends a run when a coroutine panics, or a thread.
struct Ends<L: Deref<Target = AtomicUsize>>(L);

impl<L: Deref<Target = AtomicUsize>> Drop for Ends<L> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(0, SeqCst);
        }
    }
}

/// Runs a script on a thread for each node, which has a handle of the fabric.
fn threads<F: Fabric<Engine = NoHtm>>(fabrics: impl Iterator<Item = F>, size: Size, script: &impl Script) {
    let left = AtomicUsize::new(usize::from(size.nodes));
    let nodes: Vec<_> = (0..)
        .zip(fabrics)
        .map(|(number, fabric)| backed_up(&fabric, number, size.owners, size.protocol, script.rings()))
        .collect();
    let (ends, quiet) =
        (nodes.iter().map(|(node, _)| node.clone()).collect::<Vec<_>>(), AtomicUsize::new(left.load(SeqCst)));
    thread::scope(|scope| {
        for ((node, tables), first) in nodes.into_iter().zip((0..).step_by(size.coroutines as usize)) {
            let (left, quiet, script) = (&left, &quiet, script.clone());
            scope.spawn(Setup::inherited(move || {
                // The others need not wait for one that has panicked.
                let (_ends, _quiet) = (Ends(left), Ends(quiet));
                let endpoint = node.endpoint().expect("room for an endpoint");
                let worker = node.worker(&endpoint).expect("few workers");
                let mut executor = Executor::new(&endpoint).patience(Duration::from_secs(20));
                worker.serve(&executor.spawner());
                let done = std::rc::Rc::new(std::cell::Cell::new(0));
                for number in first..first + size.coroutines {
                    let run = script.clone().run(worker.clone(), tables, number);
                    let done = std::rc::Rc::clone(&done);
                    executor.spawn(async move {
                        let (_ends, _quiet) = (Ends(left), Ends(quiet));
                        run.await;
                        done.set(done.get() + 1);
                    });
                }
                // It serves the others until all are done.
                executor.spawn(async move {
                    worker.endpoint().until(|| done.get() == size.coroutines).await;
                    worker.settle().await;
                    let _ = left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
                    worker.endpoint().until(|| left.load(SeqCst) == 0).await;
                    drained(&worker, quiet).await;
                });
                executor.run();
            }));
        }
    });
    script.look(&ends);
    assert!(!script.leaves_nothing() || ends.iter().all(Node::is_idle_nic), "a NIC has filters or locks");
    replicas_are_equal(&ends, script.rings());
    disks_are_equal(&ends, size, script.rings());
}

/// Waits until all backups have applied everything, when all coroutines of all nodes are done.
async fn drained<F: Fabric<Engine = NoHtm>>(worker: &Worker<'_, F, Tested>, left: &AtomicUsize) {
    let caught_up = worker.catch_up().await;
    let _ = left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
    caught_up.expect("backups are here, and apply");
    worker.endpoint().until(|| left.load(SeqCst) == 0).await;
}

/// Compares every owner with its backups, row by row.
fn replicas_are_equal<F: Fabric<Engine = NoHtm>>(nodes: &[Node<F, Tested>], rings: Rings) {
    if rings.backups == 0 {
        return;
    }
    for owner in nodes.iter().filter(|node| node.view().has(node.id())) {
        let rows = owner.rows_of(owner.id()).expect("a store").expect("its own");
        let others = nodes.iter().filter(|node| node.id() != owner.id());
        let replicas: Vec<_> = others.filter_map(|node| node.rows_of(owner.id()).expect("a store")).collect();
        assert_eq!(replicas.len(), rings.backups);
        for replica in replicas {
            assert_eq!(replica, rows, "of {}", owner.id());
        }
    }
}

/// Ends nodes that have disks, and compares what is on these with their rows and replicas: what was
/// synced is enough.
fn disks_are_equal<F: Fabric<Engine = NoHtm>>(nodes: &[Node<F, Tested>], size: Size, rings: Rings) {
    fn rows_of<F: Fabric<Engine = NoHtm>>(node: &Node<F, Tested>, owners: u16) -> Vec<Option<Vec<OwnedRow>>> {
        (0..owners).map(|owner| node.rows_of(NodeId(owner)).expect("a store")).collect()
    }
    for (node, disk) in nodes.iter().zip(rings.disks) {
        let rows = rows_of(node, size.owners);
        node.local().close().expect("the disk has room");
        let disks = vec![disk.after_crash(&mut |choices| choices - 1); usize::from(size.owners)];
        let rings = Rings { disks: Vec::leak(disks), ..rings };
        let fabric = LocalFabric::<NoHtm>::new(size.nodes, LocalConfig::perfect());
        let (again, _) = backed_up(&fabric, node.id().0, size.owners, size.protocol, rings);
        assert_eq!(rows_of(&again, size.owners), rows, "of {}", node.id());
    }
}

fn simulated(config: &SimConfig, size: Size, script: &impl Script) {
    let sim = Sim::<NoHtm>::new(size.nodes, config.clone());
    let of_worker = size.coroutines / script.workers();
    let all = usize::from(size.nodes) * script.workers() as usize;
    let (left, quiet) = (Arc::new(AtomicUsize::new(all)), Arc::new(AtomicUsize::new(all)));
    let mut nodes = Vec::new();
    for number in 0..size.nodes {
        let (node, tables) = backed_up(sim.fabric(), number, size.owners, size.protocol, script.rings());
        nodes.push(node.clone());
        for worker in 0..script.workers() {
            let (node, script, left, quiet) = (node.clone(), script.clone(), Arc::clone(&left), Arc::clone(&quiet));
            let first = u64::from(number) * size.coroutines + worker * of_worker;
            let spawned = sim.spawn(NodeId(number), move |spawner| {
                let worker = node.worker(spawner.endpoint()).expect("few workers");
                worker.serve(&spawner);
                let done = std::rc::Rc::new(std::cell::Cell::new(0));
                for number in first..first + of_worker {
                    let run = script.clone().run(worker.clone(), tables, number);
                    let done = std::rc::Rc::clone(&done);
                    let ends = Ends(Arc::clone(&left));
                    let counted = async move {
                        let _ends = ends;
                        run.await;
                        done.set(done.get() + 1);
                    };
                    spawner.spawn(counted).expect("it runs");
                }
                let stay = async move {
                    worker.endpoint().until(|| done.get() == of_worker).await;
                    worker.settle().await;
                    let _ = left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
                    worker.endpoint().until(|| left.load(SeqCst) == 0).await;
                    drained(&worker, &quiet).await;
                };
                spawner.spawn(stay).expect("it runs");
            });
            spawned.expect("room for an endpoint");
        }
    }
    // Of virtual time, so that what goes on for ever does not.
    assert_eq!(sim.run_for(Duration::from_secs(10)), RunEnd::Done);
    script.look(&nodes);
    assert!(!script.leaves_nothing() || nodes.iter().all(Node::is_idle_nic), "a NIC has filters or locks");
    replicas_are_equal(&nodes, script.rings());
    disks_are_equal(&nodes, size, script.rings());
}
