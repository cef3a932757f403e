//! Where coroutines are measured: nodes with memory and workers, on any fabric.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::{
    Buffers, Endpoint, Executor, Fabric, LocalConfig, LocalFabric, NodeId, Offset, Phase, Port, Region, RegionId,
    Remote, RunEnd, ShmConfig, ShmFabric, Sim, SimConfig, Spawner, Time, Transport, VerbError, Verbs,
};
use hdrhistogram::Histogram;
use parking_lot::Mutex;

use super::names::{FabricName, VerbName};
use crate::Error;

/// Bytes of each node's memory on this machine: more than caches hold.
pub(super) const BYTES: u64 = 128 << 20;

/// Bytes of each simulated node's memory, where it does not matter.
const SIMULATED_BYTES: u64 = 1 << 20;

/// What a worker does.
pub(super) type Job<P> = Box<dyn for<'f> FnOnce(Spawner<'f, P>) + Send>;

/// Nodes, each with a region.
pub(super) trait Bed {
    type Port: Port;

    fn nodes(&self) -> u16;

    /// Workers of each node.
    fn workers(&self) -> usize;

    /// Bytes that can be accessed of a node, from offset [`START`] on.
    fn bytes(&self) -> u64;

    /// Runs a job on each worker of these nodes, all at once, to their end.
    fn run(&self, jobs: Vec<(NodeId, Job<Self::Port>)>) -> Result<(), Error>;
}

pub(super) const START: Offset = Offset::new(4096);

/// A place of a node's memory.
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

fn memory(region: Region<NoHtm>, bytes: u64) -> Result<Arc<Region<NoHtm>>, Error> {
    let at = region.extend(bytes, START.bytes())?;
    debug_assert_eq!(at, START, "the superblock is all that is before it");
    Ok(Arc::new(region))
}

pub(super) struct Local(LocalFabric<NoHtm>);

impl Local {
    pub(super) fn new() -> Result<Self, Error> {
        let fabric = LocalFabric::new(2, LocalConfig::perfect());
        for node in fabric.nodes() {
            fabric.register(node, memory(Region::anonymous(NoHtm, BYTES + (1 << 20))?, BYTES)?)?;
        }
        Ok(Self(fabric))
    }
}

impl Bed for Local {
    type Port = drtm_rdma::LocalPort<NoHtm>;

    fn nodes(&self) -> u16 {
        2
    }

    fn workers(&self) -> usize {
        1
    }

    fn bytes(&self) -> u64 {
        BYTES
    }

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
    pub(super) fn new() -> Result<Self, Error> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("drtm-bench-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let directory = Directory(std::env::temp_dir().join(name));
        let join = |node: u16| -> Result<_, Error> {
            let config = ShmConfig::new("bench", NodeId(node)).directory(&directory.0);
            let fabric = ShmFabric::join(NoHtm, config)?;
            fabric.register(NodeId(node), memory(Region::shared(NoHtm, BYTES + (1 << 20))?, BYTES)?)?;
            Ok(fabric)
        };
        Ok(Self { nodes: [join(0)?, join(1)?], _directory: directory })
    }
}

impl Bed for Shm {
    type Port = drtm_rdma::ShmPort<NoHtm>;

    fn nodes(&self) -> u16 {
        2
    }

    fn workers(&self) -> usize {
        1
    }

    fn bytes(&self) -> u64 {
        BYTES
    }

    fn run(&self, jobs: Vec<(NodeId, Job<Self::Port>)>) -> Result<(), Error> {
        threads(|node| Ok(self.nodes[usize::from(node.0)].endpoint(node)?), jobs)
    }
}

/// A simulated cluster.
pub(super) struct Simulated {
    sim: Sim<NoHtm>,
    nodes: u16,
    workers: usize,
}

impl Simulated {
    pub(super) fn new(config: SimConfig, nodes: u16, workers: usize) -> Result<Self, Error> {
        let buffers = Buffers { small: 512, medium: 0, large: 0 };
        let sim = Sim::new(nodes, config.buffers(buffers).mailbox(1 << 16).queue_depth(1 << 12));
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

impl Bed for Simulated {
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
            end => Err(Error::Simulation(end)),
        }
    }
}

/// How long is warmed up, and how long is counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) warm: Duration,
    pub(super) counted: Duration,
}

/// What coroutines of all workers have counted.
#[derive(Debug, Default)]
pub(super) struct Count {
    pub(super) done: AtomicU64,
    failed: Mutex<Option<VerbError>>,
    left: AtomicUsize,
    pub(super) took: Mutex<Option<Histogram<u64>>>,
}

impl Count {
    /// The first failure, if there was one.
    pub(super) fn failure(&self) -> Result<(), Error> {
        self.failed.lock().map_or(Ok(()), |error| Err(Error::Verb(error)))
    }
}

/// Something that is done over and over: gives how many of it were done at once.
pub(super) trait Turn<P: Port>: Clone + Send + 'static {
    #[allow(async_fn_in_trait, reason = "coroutines stay on their thread")]
    async fn take(&self, verbs: Verbs<'_, P>, random: &mut fastrand::Rng) -> Result<u64, VerbError>;
}

/// Lets so many coroutines of each worker of `clients` take turns for a window, while all workers of
/// all nodes answer messages. Gives what was done in a second, by all together.
pub(super) fn throughput<B: Bed, T: Turn<B::Port>>(
    bed: &B,
    clients: std::ops::Range<u16>,
    coroutines: usize,
    window: Window,
    seed: u64,
    (turn, timed): (&T, bool),
) -> Result<(f64, Arc<Count>), Error> {
    let count = Arc::new(Count::default());
    if timed {
        *count.took.lock() = Some(new_histogram());
    }
    count.left.store(clients.len() * bed.workers() * coroutines, Relaxed);
    let mut jobs: Vec<(NodeId, Job<B::Port>)> = Vec::new();
    for node in 0..bed.nodes() {
        let coroutines = if clients.contains(&node) { coroutines } else { 0 };
        for worker in 0..bed.workers() {
            let (count, turn) = (Arc::clone(&count), turn.clone());
            let seed = seed << 32 | u64::from(node) << 16 | (worker as u64) << 8;
            let start: Job<B::Port> = Box::new(move |spawner: Spawner<'_, B::Port>| {
                begin(&spawner, coroutines, window, seed, &turn, &count, timed);
            });
            jobs.push((NodeId(node), start));
        }
    }
    bed.run(jobs)?;
    count.failure()?;
    Ok((count.done.load(Relaxed) as f64 / window.counted.as_secs_f64(), count))
}

pub(super) fn new_histogram() -> Histogram<u64> {
    match Histogram::new(3) {
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
    timed: bool,
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
    for coroutine in 0..coroutines as u64 {
        let (count, turn) = (Arc::clone(count), turn.clone());
        let random = fastrand::Rng::with_seed(seed | coroutine);
        let turns = async move {
            if let Err(error) = take_turns(verbs, (from, to), &turn, &count, random, timed).await {
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
    let spawned = worker.spawn(async move { endpoint.until(|| count.left.load(Relaxed) == 0).await });
    debug_assert!(spawned.is_ok(), "it begins");
}

async fn take_turns<P: Port, T: Turn<P>>(
    verbs: Verbs<'_, P>,
    (from, to): (Time, Time),
    turn: &T,
    count: &Count,
    mut random: fastrand::Rng,
    timed: bool,
) -> Result<(), VerbError> {
    let endpoint = verbs.endpoint();
    let mut took = timed.then(new_histogram);
    let mut done = 0;
    let mut before = endpoint.now();
    while before < to {
        let some = turn.take(verbs, &mut random).await?;
        let now = endpoint.now();
        if now >= from && now < to {
            done += some;
            if let Some(took) = &mut took {
                took.saturating_record(now.since(before).as_nanos() as u64);
            }
        }
        before = now;
    }
    count.done.fetch_add(done, Relaxed);
    if let (Some(took), Some(all)) = (took, &mut *count.took.lock()) {
        // Both have the same digits, and saturate alike.
        let _ = all.add(took);
    }
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
pub(super) trait OnBed {
    type Output;

    fn on<B: Bed>(self, bed: &B) -> Result<Self::Output, Error>;
}

/// Runs something on the bed of a fabric. A simulated one is the cluster of its profile.
pub(super) fn on<O: OnBed>(fabric: FabricName, transport: Transport, seed: u64, what: O) -> Result<O::Output, Error> {
    match fabric {
        FabricName::Local => what.on(&Local::new()?),
        FabricName::Shm => what.on(&Shm::new()?),
        FabricName::Sim(profile) => {
            let (nodes, workers, _) = profile.cluster;
            let config = SimConfig::new(profile).seed(seed).transport(transport);
            what.on(&Simulated::new(config, nodes, workers)?)
        }
    }
}
