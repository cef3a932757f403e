//! Where coroutines are measured: nodes with memory and workers, on any fabric.

use std::{
    cell::RefCell,
    fs,
    path::PathBuf,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use drtm_drive::{FabricName, loopback, tcp_config};
use drtm_htm::NoHtm;
use drtm_rdma::{
    Buffers, Endpoint, Executor, Fabric, LocalConfig, LocalFabric, NodeId, Offset, Phase, Port, Region, RegionId,
    Remote, RunEnd, ShmConfig, ShmFabric, Sim, SimConfig, Spawner, TcpConfig, TcpFabric, Time, Transport, VerbError,
    Verbs, block_on,
};
use hdrhistogram::Histogram;
use parking_lot::Mutex;

use super::verb::VerbName;
use crate::Error;

/// Bytes of each node's memory on this machine: more than caches hold.
pub(super) const BYTES: u64 = 128 << 20;

/// Bytes of each simulated node's memory, where it does not matter.
const SIMULATED_BYTES: u64 = 1 << 20;

/// What a worker does.
pub(super) type Job<P> = Box<dyn for<'f> FnOnce(Spawner<'f, P>) + Send>;

/// What a worker has under way at the most, for which its endpoint needs room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) operations: usize,
    pub(super) buffers: Buffers,
}

impl Room {
    /// Returns the room for so many operations of so many bytes, 4096 at the most.
    pub(super) fn of(bytes: usize, operations: usize) -> Self {
        // Messages that are not answered yet have buffers of their own.
        let count = 256 + 2 * operations;
        let none = Buffers { small: 64, medium: 0, large: 0 };
        let is_small = bytes <= Buffers::SMALL;
        let buffers = if is_small { Buffers { small: count, ..none } } else { Buffers { medium: count, ..none } };
        Self { operations, buffers }
    }

    /// Entries of a queue. Messages that want no reply are behind one that does, some transactions
    /// later.
    fn depth(self) -> usize {
        (64 * self.operations).clamp(1 << 12, 1 << 16)
    }

    /// Calls that are unanswered at a time, with some room.
    #[cfg(feature = "verbs")]
    fn calls(self) -> usize {
        2 * self.operations + 64
    }
}

/// Entries of a NIC's queue, at the most: some devices have no more.
#[cfg(feature = "verbs")]
const NIC_QUEUE: usize = 4 << 10;

/// Nodes, each with a region: two of one worker each, unless they are simulated.
pub(super) trait Testbed {
    type Port: Port;

    fn nodes(&self) -> u16 {
        2
    }

    /// Workers of each node.
    fn workers(&self) -> usize {
        1
    }

    /// Returns how many bytes of a node can be accessed, from offset [`START`] on.
    fn bytes(&self) -> u64 {
        BYTES
    }

    /// Runs a job on each worker of these nodes, all at once, to their end.
    fn run(&self, jobs: Vec<(NodeId, Job<Self::Port>)>) -> Result<(), Error>;
}

pub(super) const START: Offset = Offset::new(4096);

/// Returns a place of a node's memory.
pub(super) fn place(node: NodeId, at: u64) -> Remote {
    Remote { node, region: RegionId(0), offset: START + at }
}

fn threads<P: Port>(
    endpoint: impl Fn(NodeId) -> Result<Endpoint<P>, Error> + Sync,
    jobs: Vec<(NodeId, Job<P>)>,
) -> Result<(), Error> {
    let endpoints = jobs.iter().map(|(node, _)| endpoint(*node)).collect::<Result<Vec<_>, _>>()?;
    thread::scope(|scope| {
        for ((_, start), endpoint) in jobs.into_iter().zip(endpoints) {
            scope.spawn(move || {
                let executor = Executor::new(&endpoint);
                start(executor.spawner());
                executor.run();
            });
        }
    });
    Ok(())
}

/// Makes the memory of a node of this machine. It is touched, since memory that never was has no
/// place in caches to compete for.
fn real_memory(region: Region<NoHtm>) -> Result<Arc<Region<NoHtm>>, Error> {
    let memory = memory(region, BYTES)?;
    memory.populate(START.bytes() + BYTES)?;
    Ok(memory)
}

/// Touches each page of a node's memory, as a peer does by its own mapping.
fn touch<P: Port>(endpoint: &Endpoint<P>, node: NodeId) -> Result<(), VerbError> {
    const PAGE: u64 = 4096;
    block_on(endpoint, async {
        let verbs = endpoint.during(Phase::Other);
        for page in 0..BYTES / PAGE {
            verbs.read(place(node, PAGE * page), 1).await?;
        }
        Ok(())
    })
}

fn memory(region: Region<NoHtm>, bytes: u64) -> Result<Arc<Region<NoHtm>>, Error> {
    let at = region.extend(bytes, START.bytes())?;
    debug_assert_eq!(at, START, "the superblock is all that is before it");
    Ok(Arc::new(region))
}

pub(super) struct Local(LocalFabric<NoHtm>);

impl Local {
    pub(super) fn new(room: Room) -> Result<Self, Error> {
        let config = LocalConfig::perfect().buffers(room.buffers).queue_depth(room.depth()).mailbox(room.depth());
        let fabric = LocalFabric::new(2, config);
        for node in fabric.nodes() {
            fabric.register(node, real_memory(Region::anonymous(NoHtm, BYTES + (1 << 20))?)?)?;
        }
        Ok(Self(fabric))
    }
}

impl Testbed for Local {
    type Port = drtm_rdma::LocalPort<NoHtm>;

    fn run(&self, jobs: Vec<(NodeId, Job<Self::Port>)>) -> Result<(), Error> {
        threads(|node| Ok(self.0.endpoint(node)?), jobs)
    }
}

/// Two nodes on shared memory, each with its own mapping of the other's region, as two processes
/// would have it.
pub(super) struct Shm {
    nodes: [ShmFabric<NoHtm>; 2],
    _directory: Directory,
}

struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        // What is left there harms nothing.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Shm {
    pub(super) fn new(room: Room) -> Result<Self, Error> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("drtm-bench-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let directory = Directory(std::env::temp_dir().join(name));
        let join = |node: u16| -> Result<_, Error> {
            let config = ShmConfig::new("bench", NodeId(node)).directory(&directory.0).buffers(room.buffers);
            let config = config.queue_depth(room.depth()).calls(room.depth());
            let fabric = ShmFabric::join(NoHtm, config)?;
            fabric.register(NodeId(node), real_memory(Region::shared(NoHtm, BYTES + (1 << 20))?)?)?;
            Ok(fabric)
        };
        let nodes = [join(0)?, join(1)?];
        for (node, other) in [(0, 1), (1, 0)] {
            touch(&nodes[node].endpoint(NodeId(node as u16))?, NodeId(other))?;
        }
        Ok(Self { nodes, _directory: directory })
    }
}

impl Testbed for Shm {
    type Port = drtm_rdma::ShmPort<NoHtm>;

    fn run(&self, jobs: Vec<(NodeId, Job<Self::Port>)>) -> Result<(), Error> {
        threads(|node| Ok(self.nodes[usize::from(node.0)].endpoint(node)?), jobs)
    }
}

/// Two nodes that are connected by TCP or by a NIC, each with a thread of its own that serves, as
/// on two machines of one processor each.
pub(super) struct Machines<F>([F; 2]);

impl<F: Fabric<Engine = NoHtm>> Machines<F> {
    fn new(room: Room, sealed: bool, join: impl Fn(TcpConfig) -> Result<F, Error>) -> Result<Self, Error> {
        let addresses = loopback(2)?;
        let join = |node: u16| -> Result<_, Error> {
            let config = tcp_config(node, &addresses, [0x5A; 32]).sealed(sealed).buffers(room.buffers);
            let config = config.queue_depth(room.depth()).calls(room.depth()).mailbox(room.depth());
            let fabric = join(config)?;
            fabric.register(NodeId(node), real_memory(Region::anonymous(NoHtm, BYTES + (1 << 20))?)?)?;
            Ok(fabric)
        };
        Ok(Self([join(0)?, join(1)?]))
    }
}

impl Machines<TcpFabric<NoHtm>> {
    fn by_tcp(room: Room, sealed: bool) -> Result<Self, Error> {
        Self::new(room, sealed, |config| Ok(TcpFabric::join(NoHtm, config)?))
    }
}

/// Bytes of the longest message that is measured, and of what is around it.
#[cfg(feature = "verbs")]
const MESSAGE: usize = 5 << 10;

/// Returns how a node uses the first RDMA device that there is.
#[cfg(feature = "verbs")]
pub(super) fn nic_config(config: TcpConfig) -> drtm_rdma::VerbsConfig {
    drtm_rdma::VerbsConfig::new(config).message_bytes(MESSAGE)
}

#[cfg(feature = "verbs")]
impl Machines<drtm_rdma::VerbsFabric<NoHtm>> {
    fn by_nic(room: Room) -> Result<Self, Error> {
        Self::new(room, true, |config| {
            // A NIC has all of it locked, as many as there are.
            let config = config.queue_depth(room.depth().min(NIC_QUEUE)).calls(room.calls()).mailbox(room.calls());
            Ok(drtm_rdma::VerbsFabric::join(NoHtm, nic_config(config))?)
        })
    }
}

impl<F: Fabric<Engine = NoHtm>> Testbed for Machines<F> {
    type Port = F::Port;

    fn run(&self, jobs: Vec<(NodeId, Job<Self::Port>)>) -> Result<(), Error> {
        threads(|node| Ok(self.0[usize::from(node.0)].endpoint(node)?), jobs)
    }
}

/// A simulated cluster.
pub(super) struct Simulated {
    sim: Sim<NoHtm>,
    nodes: u16,
    workers: usize,
}

impl Simulated {
    pub(super) fn new(config: SimConfig, nodes: u16, workers: usize, room: Room) -> Result<Self, Error> {
        let sim = Sim::new(nodes, config.buffers(room.buffers).mailbox(1 << 16).queue_depth(room.depth()));
        for node in 0..nodes {
            let memory = memory(Region::anonymous(NoHtm, 2 * SIMULATED_BYTES)?, SIMULATED_BYTES)?;
            sim.fabric().register(NodeId(node), memory)?;
        }
        Ok(Self { sim, nodes, workers })
    }

    /// Events so far.
    pub(super) fn events(&self) -> u64 {
        self.sim.trace().events
    }
}

impl Testbed for Simulated {
    type Port = drtm_rdma::SimPort<NoHtm>;

    fn nodes(&self) -> u16 {
        self.nodes
    }

    fn workers(&self) -> usize {
        self.workers
    }

    fn bytes(&self) -> u64 {
        SIMULATED_BYTES
    }

    fn run(&self, jobs: Vec<(NodeId, Job<Self::Port>)>) -> Result<(), Error> {
        for (node, start) in jobs {
            self.sim.spawn(node, start)?;
        }
        match self.sim.run() {
            RunEnd::Done => Ok(()),
            end => Err(drtm_drive::Error::Simulation(end).into()),
        }
    }
}

/// How long is warmed up, and how long is counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) warm: Duration,
    pub(super) counted: Duration,
}

impl Window {
    /// Counts for so many milliseconds, after a tenth of them.
    pub(super) fn of_millis(millis: u64) -> Self {
        let counted = Duration::from_millis(millis);
        Self { warm: counted / 10, counted }
    }

    /// Counts for so many microseconds of virtual time, after a third of them.
    pub(super) fn of_virtual_micros(micros: u64) -> Self {
        let counted = Duration::from_micros(micros);
        Self { warm: counted / 3, counted }
    }
}

/// What was done in a window: turns in a second, and what each took, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) per_s: f64,
    pub(super) median_ns: u64,
    pub(super) p99_ns: u64,
}

impl Pace {
    pub(super) fn new(per_s: f64, took: &Histogram<u64>) -> Self {
        Self { per_s, median_ns: took.value_at_quantile(0.5), p99_ns: took.value_at_quantile(0.99) }
    }

    /// Returns the pace of one of so many nodes.
    pub(super) fn of_one(self, all: u16) -> Self {
        Self { per_s: self.per_s / f64::from(all), ..self }
    }
}

/// What coroutines of all workers have counted.
#[derive(Debug)]
struct Count {
    done: Mutex<f64>,
    failed: Mutex<Option<VerbError>>,
    left: AtomicUsize,
    took: Mutex<Histogram<u64>>,
}

/// Something that is done over and over: gives how many of it were done at once.
pub(super) trait Turn<P: Port>: Clone + Send + 'static {
    #[allow(async_fn_in_trait, reason = "coroutines stay on their thread")]
    async fn take(&self, verbs: Verbs<'_, P>, random: &mut fastrand::Rng) -> Result<u64, VerbError>;
}

/// Lets so many coroutines of each worker of `clients` take turns for a window, while all workers
/// of all nodes answer messages. Gives what was done in a second, by all together. A window that is
/// short of some turns, because it is short or the machine busy, says nothing: it lasts twice as
/// long the next time.
pub(super) fn throughput<B: Testbed, T: Turn<B::Port>>(
    testbed: &B,
    clients: std::ops::Range<u16>,
    coroutines: usize,
    window: Window,
    seed: u64,
    turn: &T,
) -> Result<Pace, Error> {
    const ATTEMPTS: u32 = 8;
    const TURNS: u32 = 4;
    let mut window = window;
    for attempt in 1.. {
        let (done, took) = count(testbed, clients.clone(), coroutines, window, seed, turn)?;
        let has_turns = TURNS * Duration::from_nanos(took.value_at_quantile(0.5)) <= window.counted;
        if done > 0.0 && (has_turns || attempt == ATTEMPTS) {
            return Ok(Pace::new(done / window.counted.as_secs_f64(), &took));
        }
        if attempt == ATTEMPTS {
            break;
        }
        window = Window { warm: 2 * window.warm, counted: 2 * window.counted };
    }
    Err(Error::NothingDone { within: window.counted })
}

fn count<B: Testbed, T: Turn<B::Port>>(
    testbed: &B,
    clients: std::ops::Range<u16>,
    coroutines: usize,
    window: Window,
    seed: u64,
    turn: &T,
) -> Result<(f64, Histogram<u64>), Error> {
    let count = Arc::new(Count {
        done: Mutex::new(0.0),
        failed: Mutex::new(None),
        left: AtomicUsize::new(clients.len() * testbed.workers() * coroutines),
        took: Mutex::new(new_histogram()),
    });
    let mut jobs: Vec<(NodeId, Job<B::Port>)> = Vec::new();
    for node in 0..testbed.nodes() {
        let coroutines = if clients.contains(&node) { coroutines } else { 0 };
        for worker in 0..testbed.workers() {
            let (count, turn) = (Arc::clone(&count), turn.clone());
            let seed = seed << 32 | u64::from(node) << 16 | (worker as u64) << 8;
            let start: Job<B::Port> = Box::new(move |spawner: Spawner<'_, B::Port>| {
                begin(&spawner, coroutines, window, seed, &turn, &count);
            });
            jobs.push((NodeId(node), start));
        }
    }
    testbed.run(jobs)?;
    count.failed.lock().map_or(Ok(()), |error| Err(Error::Verb(error)))?;
    let took = count.took.lock().clone();
    let done = *count.done.lock();
    Ok((done, took))
}

/// The longest that is told from longer ones.
const LONGEST: Duration = Duration::from_secs(60);

pub(super) fn new_histogram() -> Histogram<u64> {
    match Histogram::new_with_max(LONGEST.as_nanos() as u64, 3) {
        Ok(histogram) => histogram,
        Err(error) => unreachable!("three digits are allowed: {error}"),
    }
}

fn begin<P: Port, T: Turn<P>>(
    worker: &Spawner<'_, P>,
    coroutines: usize,
    window: Window,
    seed: u64,
    turn: &T,
    count: &Arc<Count>,
) {
    let endpoint = worker.endpoint();
    let verbs = endpoint.during(Phase::Execute);
    let from = endpoint.now() + window.warm;
    let to = from + window.counted;
    let serves = verbs.serve(|_, request, reply| {
        // The first byte says how long the reply is to be, in words.
        let words = request.first().copied().unwrap_or_default();
        reply.resize(8 * usize::from(words), 0);
    });
    let served = worker.serve(serves);
    debug_assert!(served.is_ok(), "it begins");
    // All coroutines of a worker have one between them: there are many, and histograms are large.
    let took = Rc::new(RefCell::new(new_histogram()));
    for coroutine in 0..coroutines as u64 {
        let (count, turn, took) = (Arc::clone(count), turn.clone(), Rc::clone(&took));
        let random = fastrand::Rng::with_seed(seed | coroutine);
        let turns = async move {
            if let Err(error) = take_turns(verbs, (from, to), &turn, (&count, &took), random).await {
                *count.failed.lock() = Some(error);
            }
            count.left.fetch_sub(1, Relaxed);
            // Others may still call this worker.
            endpoint.until(|| count.left.load(Relaxed) == 0).await;
        };
        let spawned = worker.spawn(turns);
        debug_assert!(spawned.is_ok(), "it begins");
    }
    let count = Arc::clone(count);
    let spawned = worker.spawn(async move {
        endpoint.until(|| count.left.load(Relaxed) == 0).await;
        let added = count.took.lock().add(&*took.borrow());
        debug_assert!(added.is_ok(), "they are of one size");
    });
    debug_assert!(spawned.is_ok(), "it begins");
}

async fn take_turns<P: Port, T: Turn<P>>(
    verbs: Verbs<'_, P>,
    (from, to): (Time, Time),
    turn: &T,
    (count, took): (&Count, &RefCell<Histogram<u64>>),
    mut random: fastrand::Rng,
) -> Result<(), VerbError> {
    let endpoint = verbs.endpoint();
    let mut done = 0.0;
    let mut before = endpoint.now();
    while before < to {
        let some = turn.take(verbs, &mut random).await?;
        let now = endpoint.now();
        // What began before the window or ends after it counts by the part within: turns of many
        // operations are few, and often end all at once.
        let lasted = now.since(before);
        let within = now.min(to).since(before.max(from));
        if !within.is_zero() {
            done += some as f64 * within.as_secs_f64() / lasted.as_secs_f64();
            took.borrow_mut().saturating_record(lasted.as_nanos() as u64);
        }
        before = now;
    }
    *count.done.lock() += done;
    Ok(())
}

/// One verb, so many at a time: each with its own doorbell, but for messages by datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verb {
    pub(super) verb: VerbName,
    pub(super) bytes: usize,
    pub(super) at_a_time: usize,
    pub(super) nodes: u16,
    /// The one node that is accessed, or all but the own.
    pub(super) server: Option<NodeId>,
    pub(super) memory: u64,
}

impl Verb {
    fn target<P: Port>(&self, verbs: Verbs<'_, P>, random: &mut fastrand::Rng) -> Remote {
        let own = verbs.endpoint().node().0;
        let node = self.server.unwrap_or_else(|| NodeId((own + random.u16(1..self.nodes)) % self.nodes));
        let slots = (self.memory - self.bytes as u64) / 64;
        place(node, 64 * random.u64(0..slots.max(1)))
    }
}

impl<P: Port> Turn<P> for Verb {
    async fn take(&self, verbs: Verbs<'_, P>, random: &mut fastrand::Rng) -> Result<u64, VerbError> {
        let words = self.bytes / 8;
        if self.at_a_time == 1 {
            let at = self.target(verbs, random);
            match self.verb {
                VerbName::Read => drop(verbs.read(at, words).await?),
                VerbName::Write => verbs.write(at, &[7; 512][..words.min(512)]).await?,
                VerbName::Cas => drop(verbs.compare_swap(at, 0, 0).await?),
                VerbName::Faa => drop(verbs.fetch_add(at, 1).await?),
                VerbName::Message => drop(verbs.call(at.node, &[0; 4096][..self.bytes.min(4096)]).await?),
            }
            return Ok(1);
        }
        match self.verb {
            VerbName::Read => {
                let pending = (0..self.at_a_time).map(|_| {
                    let mut one = verbs.batch();
                    let read = one.read(self.target(verbs, random), words)?;
                    one.ring();
                    Ok(read)
                });
                for read in pending.collect::<Result<Vec<_>, VerbError>>()? {
                    read.await?;
                }
            }
            VerbName::Write => {
                let pending = (0..self.at_a_time).map(|_| {
                    let mut one = verbs.batch();
                    let write = one.write(self.target(verbs, random), &[7; 512][..words.min(512)])?;
                    one.ring();
                    Ok(write)
                });
                for write in pending.collect::<Result<Vec<_>, VerbError>>()? {
                    write.await?;
                }
            }
            VerbName::Cas | VerbName::Faa => {
                let pending = (0..self.at_a_time).map(|_| {
                    let mut one = verbs.batch();
                    let at = self.target(verbs, random);
                    let atomic = match self.verb {
                        VerbName::Cas => one.compare_swap(at, 0, 0)?,
                        _ => one.fetch_add(at, 1)?,
                    };
                    one.ring();
                    Ok(atomic)
                });
                for atomic in pending.collect::<Result<Vec<_>, VerbError>>()? {
                    atomic.await?;
                }
            }
            VerbName::Message => {
                let mut batch = verbs.batch();
                let bytes = &[0; 4096][..self.bytes.min(4096)];
                let calls = (0..self.at_a_time).map(|_| batch.call(self.target(verbs, random).node, bytes));
                let calls = calls.collect::<Result<Vec<_>, _>>()?;
                batch.ring();
                for call in calls {
                    call.await?;
                }
            }
        }
        Ok(self.at_a_time as u64)
    }
}

/// What is done with a fabric, whichever it is.
pub(super) trait OnTestbed {
    type Output;

    fn on<B: Testbed>(self, testbed: &B) -> Result<Self::Output, Error>;
}

/// Runs something on the testbed of a fabric. A simulated one is the cluster of its profile.
pub(super) fn on<O: OnTestbed>(
    fabric: FabricName,
    transport: Transport,
    seed: u64,
    room: Room,
    what: O,
) -> Result<O::Output, Error> {
    match fabric {
        FabricName::Local => what.on(&Local::new(room)?),
        FabricName::Shm => what.on(&Shm::new(room)?),
        FabricName::Tcp => what.on(&Machines::by_tcp(room, true)?),
        FabricName::TcpClear => what.on(&Machines::by_tcp(room, false)?),
        #[cfg(feature = "verbs")]
        FabricName::Verbs => what.on(&Machines::by_nic(room)?),
        FabricName::Sim(profile) => {
            let (nodes, workers, _) = profile.cluster;
            let config = SimConfig::new(profile).seed(seed).transport(transport);
            what.on(&Simulated::new(config, nodes, workers, room)?)
        }
    }
}
