//! A small world of nodes with memory, and what the tests of several files share.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Release},
    },
    task::{Context, Poll, Waker},
};

use drtm_htm::{Emulated, Engine, NoHtm};
use drtm_rdma::{
    Endpoint, Fabric, LocalConfig, LocalFabric, NodeId, Offset, Phase, Port, Region, RegionId, Remote, VerbError,
    Verbs, block_on,
};

pub(crate) use drtm_testing::rounds;

/// Runs the same checks over every backend that there is, in several moods. A check is given the backend as a type, and how
/// the fabric is to behave; what it needs beside that (small queues, say) it adds itself.
macro_rules! on_every_fabric {
    ($($check:ident),+ $(,)?) => {
        on_every_fabric! { @with perfect, Local<NoHtm>, [LocalConfig::perfect()], $($check),+ }
        on_every_fabric! { @with harsh, Local<NoHtm>, (0..4).map(LocalConfig::harsh), $($check),+ }
        on_every_fabric! { @with words, Local<NoHtm>, (0..2).map(|seed| {
            LocalConfig::harsh(seed).tearing(Tearing::Words).passing(false).atomicity(Atomicity::Global)
        }), $($check),+ }
        on_every_fabric! { @with latency, Local<NoHtm>,
            [LocalConfig::perfect().latency(Duration::from_micros(5))], $($check),+ }
        on_every_fabric! { @with emulated, Local<Emulated>, [LocalConfig::perfect(), LocalConfig::harsh(1)], $($check),+ }
    };
    (@with $name:ident, $rig:ty, $configs:expr, $($check:ident),+) => {
        mod $name {
            #[allow(unused_imports)]
            use {
                $crate::support::Local,
                drtm_htm::{Emulated, NoHtm},
                drtm_rdma::{Atomicity, LocalConfig, Tearing},
                std::time::Duration,
            };
            $(#[test] fn $check() {
                for config in $configs {
                    super::$check::<$rig>(config);
                }
            })+
        }
    };
}
pub(crate) use on_every_fabric;

/// Bytes of each node's region that are allocated, from [`BASE`] on.
pub(crate) const BYTES: u64 = 256 << 10;
pub(crate) const BASE: Offset = Offset::new(4096);

/// A backend, as the suite makes it.
pub(crate) trait Rig {
    type Fabric: Fabric;

    /// A fabric of so many nodes that behaves like `base`, and the engine for its memory.
    fn fabric(nodes: u16, base: LocalConfig) -> (Self::Fabric, <Self::Fabric as Fabric>::Engine);

    /// Makes a node leave.
    fn close(fabric: &Self::Fabric, node: NodeId);
}

/// The in-process fabric, over one engine.
pub(crate) struct Local<E>(std::marker::PhantomData<E>);

impl<E: Engine + Default> Rig for Local<E> {
    type Fabric = LocalFabric<E>;

    fn fabric(nodes: u16, base: LocalConfig) -> (LocalFabric<E>, E) {
        (LocalFabric::new(nodes, base), E::default())
    }

    fn close(fabric: &LocalFabric<E>, node: NodeId) {
        fabric.close(node).expect("a node");
    }
}

/// Nodes, each with one region of [`BYTES`].
pub(crate) struct World<R: Rig> {
    pub(crate) fabric: R::Fabric,
    memory: Vec<Arc<Region<<R::Fabric as Fabric>::Engine>>>,
}

pub(crate) type Plain = World<Local<NoHtm>>;
pub(crate) type Emulation = World<Local<Emulated>>;

impl<R: Rig> World<R> {
    pub(crate) fn new(nodes: u16, config: LocalConfig) -> Self {
        let (fabric, engine) = R::fabric(nodes, config);
        let memory = (0..nodes)
            .map(|node| {
                let region = Arc::new(Region::anonymous(engine.clone(), 1 << 20).expect("a region"));
                assert_eq!(region.extend(BYTES, 4096).expect("room"), BASE);
                let id = fabric.register(NodeId(node), Arc::clone(&region)).expect("a node");
                assert_eq!(id, RegionId(0));
                region
            })
            .collect();
        Self { fabric, memory }
    }

    pub(crate) fn endpoint(&self, node: u16) -> Endpoint<<R::Fabric as Fabric>::Port> {
        self.fabric.endpoint(NodeId(node)).expect("an endpoint")
    }

    pub(crate) fn region(&self, node: u16) -> &Region<<R::Fabric as Fabric>::Engine> {
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
