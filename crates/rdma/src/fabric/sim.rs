//! The simulated fabric: a cluster in virtual time, in one process and on one thread.
//!
//! Nodes have workers, which run the same coroutines as on every other fabric. Time is virtual: it
//! advances by the costs of NICs, links and processors, which [profiles](NicProfile) give, and
//! waiting costs nothing. A run is a function of its configuration, which includes a seed: two runs
//! of one configuration do the same, in the same order, and have the same [`Trace`].
//!
//! Packets are delayed and lost, nodes are partitioned, crash and come back, workers stall and
//! clocks are wrong, by [chance](Chances) or [as planned](Sim::plan).
//!
//! All results are simulated, and say so. `docs/decisions/0034` says what the model leaves out, and
//! how the profiles were calibrated.

mod agenda;
mod clock;
mod config;
mod cost;
mod counts;
mod endpoint;
mod fault;
mod life;
#[cfg(feature = "studies")]
pub mod machine;
mod nic;
mod pool;
mod port;
mod profiles;
mod queue;
mod session;
mod world;

pub use agenda::Trace;
pub use config::{SimConfig, Transport};
pub use cost::{Cost, Overhead};
pub use fault::{Chances, Fault, Remains};
pub use port::SimPort;
pub use profiles::{NicProfile, Primitive, Published};

use std::{
    fmt,
    rc::Rc,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use drtm_htm::{Engine, Word};
use parking_lot::Mutex;

use crate::{
    Capabilities, Endpoint, Fabric, FabricError, Incarnation, Loopback, NodeId, Presence, Region, RegionId, Spawner,
};
use agenda::Event;
use clock::{BEGINNING, NANO, Picos, picos};
use life::{REGIONS, State};
use pool::WorkerPool;
use world::World;

/// The state that handles, ports and workers of a simulation share.
#[derive(Debug)]
struct Shared<E: Engine> {
    /// The number by which its thread finds the workers. No result depends on it.
    number: u64,
    world: Mutex<World<E>>,
}

/// A node's NIC, for its own processors.
#[derive(Debug)]
struct SimLoopback<E: Engine> {
    /// The node's regions have this.
    shared: Weak<Shared<E>>,
    node: NodeId,
}

impl<E: Engine> Loopback<E> for SimLoopback<E> {
    fn compare_swap(&self, engine: &E, word: &Word, expected: u64, new: u64) -> u64 {
        let shared = self.shared.upgrade();
        let mut world = shared.as_ref().map(|shared| shared.world.lock());
        if let Some(it) = world.as_mut().and_then(|world| world.nodes.get_mut(usize::from(self.node.0))) {
            it.life.end_atomic(|_| true);
        }
        // With the world locked, no other operation of a NIC is carried out.
        let found = engine.load(word);
        if found == expected {
            engine.store(word, new);
        }
        found
    }
}

/// Ends a worker's turn, also on a panic.
struct TurnEnds<'s, E: Engine>(&'s Shared<E>);

impl<E: Engine> Drop for TurnEnds<'_, E> {
    fn drop(&mut self) {
        self.0.world.lock().running = None;
    }
}

impl<E: Engine> Shared<E> {
    /// Runs all events up to a moment.
    fn advance_to(&self, limit: Picos) {
        while let Some(endpoint) = self.next_turn(limit) {
            let pool = WorkerPool::find(self.number);
            assert!(pool.is_some(), "a simulated cluster with workers is driven by the thread that made it");
            let ends = TurnEnds(self);
            if let Some(pool) = pool {
                pool.turn(endpoint);
            }
            drop(ends);
        }
    }

    /// Runs all events up to a moment, or to the next turn of a worker.
    fn next_turn(&self, limit: Picos) -> Option<u32> {
        loop {
            let mut world = self.world.lock();
            let doomed = loop {
                if !world.doomed.is_empty() {
                    break std::mem::take(&mut world.doomed);
                }
                let Some((at, event)) = world.agenda.take(limit) else {
                    world.now = world.now.max(limit);
                    return None;
                };
                world.now = world.now.max(at);
                let Event::Turn { endpoint, generation } = event else {
                    world.trace.event(at, event);
                    world.happen(event);
                    continue;
                };
                if world.begin_turn(endpoint, generation) {
                    world.trace.event(at, event);
                    world.running = Some(endpoint);
                    return Some(endpoint);
                }
            };
            drop(world);
            self.dismiss(doomed);
        }
    }

    /// Drops workers of nodes that have died.
    fn dismiss(&self, doomed: Vec<u32>) {
        if let Some(pool) = WorkerPool::find(self.number) {
            for endpoint in doomed {
                pool.dismiss(endpoint);
            }
        }
    }

    /// Schedules a worker as soon as its processor is free.
    fn again(&self, endpoint: u32) {
        let mut world = self.world.lock();
        let at = world.local(endpoint);
        world.wake(endpoint, at);
    }

    /// Schedules a worker, unless it waits for something.
    fn settle(&self, endpoint: u32) {
        let mut world = self.world.lock();
        let waits = world.endpoint(endpoint).is_some_and(|it| std::mem::replace(&mut it.waits, false));
        if !waits {
            let at = world.local(endpoint);
            world.wake(endpoint, at);
        }
    }

    /// Schedules a worker when something has arrived for it. Returns false if nothing can arrive.
    fn until_news(&self, endpoint: u32) -> bool {
        let mut world = self.world.lock();
        let Some(it) = world.endpoint(endpoint) else { return false };
        let under_way = it.in_flight > it.blocked();
        if let Some(at) = it.news() {
            world.wake(endpoint, at);
        }
        under_way
    }
}

/// The result of a [run](Sim::run).
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{NicProfile, NodeId, RunEnd, Sim, SimConfig};
///
/// let sim = Sim::<NoHtm>::new(1, SimConfig::new(&NicProfile::CONNECTX_4));
/// assert_eq!(sim.run(), RunEnd::Done);
/// sim.spawn(NodeId(0), |worker| worker.spawn(std::future::pending()).expect("it runs"))?;
/// assert_eq!(sim.run(), RunEnd::Stuck { workers: 1 });
/// # Ok::<(), drtm_rdma::FabricError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// All workers are done, except those that serve.
    Done,
    /// No events are left, and this many workers still wait.
    Stuck {
        /// The number of waiting workers.
        workers: usize,
    },
    /// The time limit was reached.
    TimeUp,
}

/// A simulated cluster: its nodes, its workers, and its time.
///
/// It belongs to the thread that created it, on which everything in it runs. Handles of its fabric
/// are like those of any other. Endpoints that are used outside of the workers drive the simulation
/// when they poll and wait.
///
/// # Example
///
/// ```
/// use std::{cell::Cell, rc::Rc, sync::Arc};
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Fabric, NicProfile, NodeId, Phase, Region, Remote, RunEnd, Sim, SimConfig};
///
/// let sim = Sim::new(2, SimConfig::new(&NicProfile::CONNECTX_4).seed(1));
/// let memory = Arc::new(Region::anonymous(NoHtm, 1 << 20)?);
/// let offset = memory.extend(64, 64)?;
/// let counter = Remote { node: NodeId(1), region: sim.fabric().register(NodeId(1), memory)?, offset };
///
/// // A worker, whose ten coroutines count.
/// let last = Rc::new(Cell::new(0));
/// let seen = Rc::clone(&last);
/// sim.spawn(NodeId(0), move |worker| {
///     let verbs = worker.endpoint().during(Phase::Execute);
///     for _ in 0..10 {
///         let seen = Rc::clone(&seen);
///         let count = async move { seen.set(verbs.fetch_add(counter, 1).await.expect("it is there") + 1) };
///         worker.spawn(count).expect("it runs");
///     }
/// })?;
/// assert_eq!(sim.run(), RunEnd::Done);
/// assert_eq!(last.get(), 10);
/// println!("{:?} of simulated time", sim.elapsed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Sim<E: Engine> {
    fabric: SimFabric<E>,
    pool: Rc<WorkerPool>,
}

impl<E: Engine> Sim<E> {
    /// Creates a cluster of this many nodes, numbered from zero.
    ///
    /// # Example
    ///
    /// See [`Sim`].
    #[must_use]
    pub fn new(nodes: u16, config: SimConfig) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Relaxed);
        let shared = Shared { number, world: Mutex::new(World::new(nodes, config)) };
        Self { fabric: SimFabric { shared: Arc::new(shared) }, pool: WorkerPool::of(number) }
    }

    /// Returns a handle of the fabric.
    ///
    /// # Example
    ///
    /// See [`Sim`].
    #[must_use]
    pub fn fabric(&self) -> &SimFabric<E> {
        &self.fabric
    }

    /// Adds a worker to a node: `start` spawns its coroutines, and it is done when they are.
    ///
    /// # Errors
    ///
    /// As for [`Fabric::endpoint`].
    ///
    /// # Example
    ///
    /// See [`Sim`].
    pub fn spawn<F>(&self, node: NodeId, start: F) -> Result<(), FabricError>
    where
        F: for<'f> FnOnce(Spawner<'f, SimPort<E>>) + 'static,
    {
        self.add(node, (false, false), start)
    }

    /// Adds a service worker to a node: a run does not wait for it.
    ///
    /// # Errors
    ///
    /// As for [`Fabric::endpoint`].
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Fabric, NicProfile, NodeId, Phase, Sim, SimConfig, block_on};
    ///
    /// let sim = Sim::<NoHtm>::new(2, SimConfig::new(&NicProfile::CONNECTX_4));
    /// sim.serve(NodeId(1), |worker| {
    ///     let verbs = worker.endpoint().during(Phase::Other);
    ///     worker.serve(verbs.serve(|_from, request, reply| reply.extend(request.iter().rev()))).expect("it runs");
    /// })?;
    /// let endpoint = sim.fabric().endpoint(NodeId(0))?;
    /// let reply = block_on(&endpoint, endpoint.during(Phase::Other).call(NodeId(1), b"drtm"))?;
    /// assert_eq!(&reply[..], b"mtrd");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn serve<F>(&self, node: NodeId, start: F) -> Result<(), FabricError>
    where
        F: for<'f> FnOnce(Spawner<'f, SimPort<E>>) + 'static,
    {
        self.add(node, (true, false), start)
    }

    /// Adds a service worker that is the node's NIC: it takes all messages for the node, and what
    /// it does costs no processor's time, but for what is [charged](crate::Endpoint::charge) while
    /// it serves a message. [`Cost::Nic`] delays the answer, and other costs are a processor's of
    /// the node, which serves the message then.
    ///
    /// # Errors
    ///
    /// As for [`Fabric::endpoint`].
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Cost, Fabric, NicProfile, NodeId, Phase, Sim, SimConfig, block_on};
    ///
    /// let sim = Sim::<NoHtm>::new(2, SimConfig::new(&NicProfile::CONNECTX_4));
    /// sim.serve_as_nic(NodeId(1), |worker| {
    ///     let (endpoint, verbs) = (worker.endpoint(), worker.endpoint().during(Phase::Other));
    ///     let serve = verbs.serve(|_from, request, reply| {
    ///         endpoint.charge(Cost::Nic(200));
    ///         reply.extend(request.iter().rev());
    ///     });
    ///     worker.serve(serve).expect("it runs");
    /// })?;
    /// let endpoint = sim.fabric().endpoint(NodeId(0))?;
    /// let reply = block_on(&endpoint, endpoint.during(Phase::Other).call(NodeId(1), b"drtm"))?;
    /// assert_eq!(&reply[..], b"mtrd");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn serve_as_nic<F>(&self, node: NodeId, start: F) -> Result<(), FabricError>
    where
        F: for<'f> FnOnce(Spawner<'f, SimPort<E>>) + 'static,
    {
        self.add(node, (true, true), start)
    }

    /// Returns the processor time of all nodes that overheads of software have taken so far, in the
    /// order of [`Overhead::ALL`].
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{NicProfile, Sim, SimConfig};
    ///
    /// let sim = Sim::<NoHtm>::new(1, SimConfig::new(&NicProfile::CONNECTX_4));
    /// assert!(sim.overheads().iter().all(|took| took.is_zero()));
    /// ```
    #[must_use]
    pub fn overheads(&self) -> [Duration; Overhead::ALL.len()] {
        self.fabric.shared.world.lock().overheads.map(|took| Duration::from_nanos(took / NANO))
    }

    fn add<F>(&self, node: NodeId, (serves, is_nic): (bool, bool), start: F) -> Result<(), FabricError>
    where
        F: for<'f> FnOnce(Spawner<'f, SimPort<E>>) + 'static,
    {
        let shared = &self.fabric.shared;
        let port = SimPort::new(shared, node, true, is_nic)?;
        let endpoint = port.endpoint;
        let work = pool::work(Arc::clone(shared), Endpoint::new(port), endpoint, serves, start);
        self.pool.add(endpoint, Box::pin(work), serves);
        shared.again(endpoint);
        Ok(())
    }

    /// Runs until all workers are done, except those that [serve](Self::serve).
    ///
    /// # Panics
    ///
    /// Panics with the panic of a coroutine, after the other coroutines of its worker have ended.
    pub fn run(&self) -> RunEnd {
        self.run_until(Picos::MAX)
    }

    /// Runs until all workers are done, or for this much virtual time. That time passes even if
    /// nothing happens.
    ///
    /// # Panics
    ///
    /// Panics like [`run`](Self::run).
    ///
    /// # Example
    ///
    /// See [`restart`](Self::restart).
    pub fn run_for(&self, duration: Duration) -> RunEnd {
        let until = self.fabric.shared.world.lock().now.saturating_add(picos(duration));
        let end = self.run_until(until);
        self.fabric.shared.advance_to(until);
        if end == RunEnd::Done { end } else { RunEnd::TimeUp }
    }

    fn run_until(&self, until: Picos) -> RunEnd {
        let shared = &self.fabric.shared;
        while self.pool.left() > 0 {
            let next = shared.world.lock().agenda.next();
            match next {
                None => return RunEnd::Stuck { workers: self.pool.left() },
                Some(next) if next > until => return RunEnd::TimeUp,
                Some(next) => shared.advance_to(next),
            }
        }
        RunEnd::Done
    }

    /// Returns how much virtual time has passed.
    ///
    /// # Example
    ///
    /// See [`Sim`].
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos((self.fabric.shared.world.lock().now - BEGINNING) / NANO)
    }

    /// Returns a summary of the events so far.
    #[must_use]
    pub fn trace(&self) -> Trace {
        self.fabric.shared.world.lock().trace
    }

    /// Returns the presence of a node, as the others have learnt.
    #[must_use]
    pub fn presence(&self, node: NodeId) -> Presence {
        self.fabric.shared.world.lock().nodes.get(usize::from(node.0)).map_or(Presence::Never, |node| node.shown)
    }

    /// Plans a fault after a delay. A fault that is impossible by then, such as the death of a dead
    /// node, has no effect.
    pub fn plan(&self, after: Duration, fault: Fault) {
        let mut world = self.fabric.shared.world.lock();
        let at = world.now.saturating_add(picos(after));
        world.plan.push(fault);
        let index = (world.plan.len() - 1) as u32;
        world.agenda.plan(at, Event::Fault(index));
    }

    /// Injects a fault now.
    ///
    /// # Errors
    ///
    /// When a node is unknown, or to be restarted although it is here.
    ///
    /// # Example
    ///
    /// See [`restart`](Self::restart).
    pub fn befall(&self, fault: Fault) -> Result<(), FabricError> {
        self.fabric.befall(fault)
    }

    /// Restarts a node that has left or died, without workers.
    ///
    /// # Errors
    ///
    /// When the node is unknown, or is here.
    ///
    /// # Example
    ///
    /// ```
    /// use std::{sync::Arc, time::Duration};
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Fabric, Fault, NicProfile, NodeId, Phase, Region, Remains, Remote, Sim, SimConfig, block_on};
    ///
    /// let sim = Sim::new(2, SimConfig::new(&NicProfile::CONNECTX_4));
    /// let memory = Arc::new(Region::anonymous(NoHtm, 1 << 20)?);
    /// let offset = memory.extend(8, 8)?;
    /// let word = Remote { node: NodeId(1), region: sim.fabric().register(NodeId(1), memory)?, offset };
    /// let endpoint = sim.fabric().endpoint(NodeId(0))?;
    /// let verbs = endpoint.during(Phase::Other);
    /// block_on(&endpoint, verbs.write(word, &[7]))?;
    ///
    /// sim.befall(Fault::Crash { node: NodeId(1) })?;
    /// sim.run_for(Duration::from_millis(1));
    /// assert!(block_on(&endpoint, verbs.read_word(word)).is_err());
    /// // Its memory does not forget.
    /// sim.restart(NodeId(1), Remains::Memory)?;
    /// endpoint.reconnect(NodeId(1))?;
    /// assert_eq!(block_on(&endpoint, verbs.read_word(word))?, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn restart(&self, node: NodeId, remains: Remains) -> Result<Incarnation, FabricError> {
        self.fabric.shared.world.lock().restart(node, remains)
    }
}

impl<E: Engine> Drop for Sim<E> {
    fn drop(&mut self) {
        self.pool.disband();
    }
}

impl<E: Engine> fmt::Debug for Sim<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").field("trace", &self.trace()).field("elapsed", &self.elapsed()).finish_non_exhaustive()
    }
}

/// The fabric of a [`Sim`]. Clones are the same fabric.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Fabric, NicProfile, NodeId, Sim, SimConfig, SimFabric};
///
/// let sim = Sim::<NoHtm>::new(2, SimConfig::new(&NicProfile::CONNECTX_3));
/// let fabric: SimFabric<NoHtm> = sim.fabric().clone();
/// assert_eq!(fabric.endpoint(NodeId(1))?.node(), NodeId(1));
/// # Ok::<(), drtm_rdma::FabricError>(())
/// ```
#[derive(Debug)]
pub struct SimFabric<E: Engine> {
    shared: Arc<Shared<E>>,
}

impl<E: Engine> Clone for SimFabric<E> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<E: Engine> SimFabric<E> {
    /// Injects a fault now. Like [`Sim::befall`], for code that has only the fabric.
    ///
    /// # Errors
    ///
    /// When a node is unknown, or to be restarted although it is here.
    pub fn befall(&self, fault: Fault) -> Result<(), FabricError> {
        self.shared.world.lock().befall(fault)
    }
}

impl<E: Engine> Fabric for SimFabric<E> {
    type Engine = E;
    type Port = SimPort<E>;

    fn capabilities(&self) -> Capabilities {
        self.shared.world.lock().config.capabilities()
    }

    fn register(&self, node: NodeId, region: Arc<Region<E>>) -> Result<RegionId, FabricError> {
        let mut world = self.shared.world.lock();
        let it = world.nodes.get_mut(usize::from(node.0)).ok_or(FabricError::UnknownNode { node })?;
        if it.life.state != State::Here {
            return Err(FabricError::Closed { node });
        }
        if it.life.regions.len() >= REGIONS {
            return Err(FabricError::TooManyRegions { node, most: REGIONS });
        }
        it.life.regions.push(region);
        Ok(RegionId((it.life.regions.len() - 1) as u16))
    }

    fn endpoint(&self, node: NodeId) -> Result<Endpoint<SimPort<E>>, FabricError> {
        SimPort::new(&self.shared, node, false, false).map(Endpoint::new)
    }

    /// A swap takes no time of the simulation.
    fn loopback(&self, node: NodeId) -> Option<Arc<dyn Loopback<E>>> {
        Some(Arc::new(SimLoopback { shared: Arc::downgrade(&self.shared), node }))
    }

    fn leave(&self, node: NodeId) -> Result<(), FabricError> {
        self.befall(Fault::Leave { node })
    }

    fn revoke(&self, node: NodeId, other: NodeId, incarnation: Incarnation) -> Result<bool, FabricError> {
        self.shared.world.lock().revoke(node, other, incarnation)
    }
}
