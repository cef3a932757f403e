//! A small world of nodes with memory, and what the tests of several files share.
//!
//! The tests themselves are node 0. What they want of the other nodes they ask of those nodes'
//! agents, since another node's memory is its own: an agent is a thread of this process or a
//! process of its own (`agent`).

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Release},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use drtm_htm::{Emulated, Engine, NoHtm};
use drtm_rdma::{
    Buffers, Chances, Endpoint, Fabric, LocalConfig, LocalFabric, NodeId, Offset, Phase, Port, Region, RegionId,
    Remote, VerbError, Verbs, block_on,
};

pub(crate) use drtm_testing::rounds;

use crate::agent::{Agent, Order, Site};

/// Runs the same checks over every backend that there is, in several moods. A check is given the
/// backend as a type, and how the fabric is to behave; what it needs beside that (small queues,
/// say) it adds itself.
macro_rules! on_every_fabric {
    ($($check:ident),+ $(,)?) => {
        on_every_fabric! { @with perfect, Local<NoHtm>, [LocalConfig::perfect()], $($check),+ }
        on_every_fabric! { @with harsh, Local<NoHtm>, (0..4).map(LocalConfig::harsh), $($check),+ }
        on_every_fabric! { @with words, Local<NoHtm>, (0..2).map(|seed| {
            LocalConfig::harsh(seed).tearing(Tearing::Words).passing(false).atomicity(Atomicity::Global)
        }), $($check),+ }
        on_every_fabric! { @with latency, Local<NoHtm>,
            [LocalConfig::perfect().latency(Duration::from_micros(5))], $($check),+ }
        on_every_fabric! { @with shm, Processes, [ShmMood::default()], $($check),+ }
        on_every_fabric! { @with tcp, Machines, [TcpMood::default()], $($check),+ }
        on_every_fabric! { @with tcp_together, Together<NoHtm>, [TcpMood::default(), TcpMood::default().in_the_clear()], $($check),+ }
        on_every_fabric! { @with tcp_emulated, Together<Emulated>, [TcpMood::default()], $($check),+ }
        #[cfg(feature = "verbs")]
        on_every_fabric! { @with verbs, Nics, [NicMood::default()], $($check),+ }
        #[cfg(feature = "verbs")]
        on_every_fabric! { @with datagrams, Nics, [NicMood::datagrams()], $($check),+ }
        on_every_fabric! { @with sim, Simulated, [SimConfig::new(&NicProfile::CONNECTX_4), SimConfig::new(&NicProfile::CONNECTX_3).seed(1)], $($check),+ }
        on_every_fabric! { @with sim_harsh, Simulated, (0..4).map(SimConfig::harsh), $($check),+ }
        on_every_fabric! { @with sim_words, Simulated, (0..2).map(|seed| {
            SimConfig::harsh(seed).tearing(Tearing::Words).passing(false).atomicity(Atomicity::Global)
        }), $($check),+ }
        on_every_fabric! { @with sim_datagrams, Simulated, (0..4).map(|seed| {
            SimConfig::harsh(seed).transport(Transport::Datagrams).chances(LOSSY)
        }), $($check),+ }
        on_every_fabric! { @with emulated, Local<Emulated>, [LocalConfig::perfect(), LocalConfig::harsh(1)], $($check),+ }
    };
    (@with $name:ident, $testbed:ty, $moods:expr, $($check:ident),+) => {
        mod $name {
            #[allow(unused_imports)]
            use {
                $crate::{machines::{Machines, TcpMood, Together}, processes::{Processes, ShmMood}, simulated::Simulated, support::{LOSSY, Local}},
                drtm_htm::{Emulated, NoHtm},
                drtm_rdma::{Atomicity, LocalConfig, NicProfile, SimConfig, Tearing, Transport},
                std::time::Duration,
            };
            #[cfg(feature = "verbs")]
            #[allow(unused_imports)]
            use $crate::nics::{NicMood, Nics};
            $(#[test] fn $check() {
                for mood in $moods {
                    super::$check::<$testbed>(mood);
                }
            })+
        }
    };
}
pub(crate) use on_every_fabric;

/// One datagram in twenty is lost, one arrives twice, and one is late.
pub(crate) const LOSSY: Chances =
    Chances { loss: 0.05, duplicate: 0.05, delay: 0.05, at_most: Duration::from_micros(30) };

/// Bytes of each node's region that are allocated, from [`BASE`] on.
pub(crate) const BYTES: u64 = 256 << 10;
pub(crate) const BASE: Offset = Offset::new(4096);

/// How a fabric is to behave, as far as checks of every fabric have a say in it.
pub(crate) trait Mood: Clone {
    fn queue_depth(self, operations: usize) -> Self;

    /// Calls that an endpoint may have unanswered, and hardly more room for messages.
    fn mailbox(self, messages: usize) -> Self;

    fn buffers(self, buffers: Buffers) -> Self;
}

impl Mood for LocalConfig {
    fn queue_depth(self, operations: usize) -> Self {
        LocalConfig::queue_depth(self, operations)
    }

    fn mailbox(self, messages: usize) -> Self {
        LocalConfig::mailbox(self, messages)
    }

    fn buffers(self, buffers: Buffers) -> Self {
        LocalConfig::buffers(self, buffers)
    }
}

/// A backend, as the suite makes it.
pub(crate) trait Testbed: Sized {
    type Mood: Mood;
    type Fabric: Fabric;
    type Agent: Agent;

    /// A fabric of so many nodes: node 0 with its memory, here, and the agents of the others.
    fn start(nodes: u16, mood: Self::Mood) -> World<Self>;

    /// Lets a node that is gone come back, with fresh memory.
    fn restart(world: &mut World<Self>, node: NodeId);

    /// An agent of node 0, beside the test.
    fn own(world: &World<Self>) -> Box<dyn Agent>;

    /// Gives an order to a node's agent a few milliseconds after `body` has begun.
    fn meanwhile(world: &World<Self>, node: u16, order: Order, body: impl FnOnce());
}

/// Nodes, each with one region of [`BYTES`].
pub(crate) struct World<R: Testbed> {
    pub(crate) fabric: R::Fabric,
    pub(crate) memory: Arc<Region<<R::Fabric as Fabric>::Engine>>,
    /// Of node 1, 2 and so on.
    pub(crate) agents: Vec<R::Agent>,
    /// What goes away with the world, after everything else.
    pub(crate) _rest: Box<dyn std::any::Any>,
}

impl<R: Testbed> World<R> {
    pub(crate) fn new(nodes: u16, mood: R::Mood) -> Self {
        R::start(nodes, mood)
    }

    pub(crate) fn endpoint(&self) -> Endpoint<<R::Fabric as Fabric>::Port> {
        self.fabric.endpoint(NodeId(0)).expect("an endpoint")
    }

    pub(crate) fn agent(&self, node: u16) -> &R::Agent {
        &self.agents[usize::from(node) - 1]
    }

    /// What the node's own processor finds in a word.
    pub(crate) fn load(&self, at: Remote) -> u64 {
        match at.node {
            NodeId(0) => self.memory.engine().load(&self.memory.words(at.offset, 1).expect("a word")[0]),
            NodeId(node) => self.agent(node).ask(Order::Load(at.offset)),
        }
    }

    pub(crate) fn restart(&mut self, node: u16) {
        R::restart(self, NodeId(node));
    }
}

/// Gives an order from another thread, while `body` runs on this one.
pub(crate) fn from_a_thread(agent: &(impl Agent + Sync), order: Order, body: impl FnOnce()) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            agent.ask(order);
        });
        body();
    });
}

/// A region as each node has one.
pub(crate) fn fresh<E: Engine>(region: Region<E>) -> Arc<Region<E>> {
    assert_eq!(region.extend(BYTES, 4096).expect("room"), BASE);
    Arc::new(region)
}

/// The in-process fabric, over one engine.
pub(crate) struct Local<E>(std::marker::PhantomData<E>);

/// An agent that is a part of this process.
pub(crate) struct Resident<E: Engine>(Site<LocalFabric<E>>);

impl<E: Engine> Agent for Resident<E> {
    fn ask(&self, order: Order) -> u64 {
        let node = self.0.node;
        match order {
            Order::Leave => self.0.fabric.close(node).expect("a node"),
            Order::Die => self.0.fabric.kill(node).expect("a node"),
            order => return self.0.obey(order),
        }
        0
    }
}

impl<E: Engine + Default> Testbed for Local<E> {
    type Mood = LocalConfig;
    type Fabric = LocalFabric<E>;
    type Agent = Resident<E>;

    fn start(nodes: u16, mood: LocalConfig) -> World<Self> {
        let Nodes { fabric, memory } = Nodes::<E>::new(nodes, mood);
        let mut memory = memory.into_iter();
        let mine = memory.next().expect("node 0");
        let agents = memory.zip(1..).map(|(memory, node)| Resident(Site::new(fabric.clone(), NodeId(node), memory)));
        World { agents: agents.collect(), memory: mine, fabric, _rest: Box::new(()) }
    }

    fn restart(world: &mut World<Self>, node: NodeId) {
        world.fabric.revive(node).expect("it is gone");
        let memory = fresh(Region::anonymous(world.memory.engine().clone(), 1 << 20).expect("a region"));
        world.fabric.register(node, Arc::clone(&memory)).expect("a node");
        world.agents[usize::from(node.0) - 1] = Resident(Site::new(world.fabric.clone(), node, memory));
    }

    fn own(world: &World<Self>) -> Box<dyn Agent> {
        Box::new(Resident(Site::new(world.fabric.clone(), NodeId(0), Arc::clone(&world.memory))))
    }

    fn meanwhile(world: &World<Self>, node: u16, order: Order, body: impl FnOnce()) {
        from_a_thread(world.agent(node), order, body);
    }
}

/// Nodes of the in-process fabric, all of them in the hands of the test: for what only that fabric
/// does.
pub(crate) struct Nodes<E: Engine> {
    pub(crate) fabric: LocalFabric<E>,
    memory: Vec<Arc<Region<E>>>,
}

pub(crate) type Plain = Nodes<NoHtm>;
pub(crate) type Emulation = Nodes<Emulated>;

impl<E: Engine + Default> Nodes<E> {
    pub(crate) fn new(nodes: u16, config: LocalConfig) -> Self {
        let (fabric, engine) = (LocalFabric::new(nodes, config), E::default());
        let memory = (0..nodes)
            .map(|node| {
                let region = fresh(Region::anonymous(engine.clone(), 1 << 20).expect("a region"));
                let id = fabric.register(NodeId(node), Arc::clone(&region)).expect("a node");
                assert_eq!(id, RegionId(0));
                region
            })
            .collect();
        Self { fabric, memory }
    }

    pub(crate) fn endpoint(&self, node: u16) -> Endpoint<<LocalFabric<E> as Fabric>::Port> {
        self.fabric.endpoint(NodeId(node)).expect("an endpoint")
    }

    pub(crate) fn region(&self, node: u16) -> &Region<E> {
        &self.memory[usize::from(node)]
    }

    /// What the node's own processor finds in a word.
    pub(crate) fn load(&self, at: Remote) -> u64 {
        let region = self.region(at.node.0);
        region.engine().load(&region.words(at.offset, 1).expect("a word")[0])
    }

    /// What the node's own processor does to a word.
    pub(crate) fn store(&self, at: Remote, value: u64) {
        let region = self.region(at.node.0);
        region.engine().store(&region.words(at.offset, 1).expect("a word")[0], value);
    }

    pub(crate) fn cpu_add(&self, at: Remote, add: u64) {
        let region = self.region(at.node.0);
        region.engine().fetch_add(&region.words(at.offset, 1).expect("a word")[0], add);
    }
}

/// A word of a node's region.
pub(crate) fn word(node: u16, index: u64) -> Remote {
    Remote { node: NodeId(node), region: RegionId(0), offset: BASE + index * 8 }
}

/// Runs something with an endpoint's verbs.
pub(crate) fn with<'e, P: Port, T>(
    endpoint: &'e Endpoint<P>,
    body: impl AsyncFnOnce(Verbs<'e, P>) -> Result<T, VerbError>,
) -> T {
    block_on(endpoint, body(endpoint.during(Phase::Other))).expect("verbs that succeed")
}

/// Polls a future so often, outside of any executor, and then drops it. Tells whether it was done.
pub(crate) fn poll_and_drop<T>(future: impl Future<Output = T>, polls: usize) -> bool {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    (0..polls).any(|_| matches!(future.as_mut().poll(&mut context), Poll::Ready(_)))
}

/// Sets a flag when dropped: ends the threads that wait for it, even when a check has failed.
pub(crate) struct Sets<'a>(pub(crate) &'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Release);
    }
}
