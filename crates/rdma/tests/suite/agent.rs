//! What a node other than the test's own does, when it is told to: looks at its memory, answers
//! calls, collects messages, leaves.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use drtm_htm::Engine;
use drtm_rdma::{Executor, Fabric, NodeId, Offset, Phase, Port, Region, Spawner, Verbs};

/// Long enough for anything but a deadlock.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What an agent can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Gives a word of the node's memory.
    Load(Offset),
    /// Begins to answer calls, on a thread of its own.
    Serve(Service),
    /// Begins to receive so many messages, each with the next number, and checks that what was
    /// written before each is there.
    Collect(u64),
    /// Begins to answer calls, and to call the other nodes, of so many, by so many coroutines.
    CallAround(u16, u64),
    /// Begins to answer calls, and to call each other node, of so many, in turns, whatever becomes
    /// of the connections. Gives the turns so far, once there was one.
    KeepCalling(u16),
    /// Registers another region, and begins to enlarge it, so often. See [`grow`].
    Grow(u64),
    /// Waits until what was begun is done, as far as it ends by itself. Gives how much was done.
    Await,
    /// Ends what was begun.
    Halt,
    /// Leaves the fabric in good order.
    Leave,
    /// Ends at once, as if killed.
    Die,
}

/// How calls are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// By the request, backwards.
    Backwards,
    /// By the request's number times itself.
    Square,
}

/// Something that takes orders for a node.
pub(crate) trait Agent {
    fn ask(&self, order: Order) -> u64;
}

/// A node, where it is.
pub(crate) struct Site<F: Fabric> {
    pub(crate) fabric: F,
    pub(crate) node: NodeId,
    memory: Arc<Region<F::Engine>>,
    begun: std::sync::Mutex<Option<Begun>>,
}

/// Something that goes on, on another thread.
struct Begun {
    thread: JoinHandle<()>,
    progress: Arc<Progress>,
}

#[derive(Default)]
pub(crate) struct Progress {
    done: AtomicU64,
    finished: AtomicBool,
    halt: AtomicBool,
}

impl Progress {
    pub(crate) fn halt(&self) {
        self.halt.store(true, Release);
    }

    /// How much was done, when that is all.
    pub(crate) fn result(&self) -> Option<u64> {
        self.finished.load(Acquire).then(|| self.done.load(Acquire))
    }
}

/// Begins what an order says, on a worker of the node. It ends when it is halted.
pub(crate) fn begin<'f, P: Port, E: Engine>(
    order: Order,
    worker: &Spawner<'f, P>,
    memory: Arc<Region<E>>,
    progress: &Arc<Progress>,
) {
    let verbs = worker.endpoint().during(Phase::Other);
    let begun = match order {
        Order::Serve(service) => worker.serve(verbs.serve(move |_, request, reply| match service {
            Service::Backwards => reply.extend(request.iter().rev()),
            Service::Square => {
                let number = u64::from_le_bytes(request.try_into().expect("eight bytes"));
                reply.extend((number * number).to_le_bytes());
            }
        })),
        Order::Collect(count) => {
            let progress = Arc::clone(progress);
            worker.spawn(async move { collect(verbs, memory, count, &progress).await })
        }
        Order::CallAround(nodes, callers) => {
            for _ in 0..callers {
                let progress = Arc::clone(progress);
                let calls = async move {
                    call_around(verbs, nodes).await;
                    if progress.done.fetch_add(1, Release) + 1 == callers {
                        progress.finished.store(true, Release);
                    }
                };
                worker.spawn(calls).expect("it runs");
            }
            worker.serve(verbs.serve(|_, request, reply| reply.extend_from_slice(request)))
        }
        Order::KeepCalling(nodes) => {
            let progress = Arc::clone(progress);
            worker.serve(async move { keep_calling(verbs, nodes, &progress).await }).expect("it runs");
            worker.serve(verbs.serve(|_, request, reply| reply.extend_from_slice(request)))
        }
        Order::Grow(steps) => {
            let progress = Arc::clone(progress);
            worker.spawn(async move { grow(verbs, &memory, steps, &progress).await })
        }
        _ => Ok(()),
    };
    begun.expect("it runs");
    let (endpoint, progress) = (worker.endpoint(), Arc::clone(progress));
    worker.spawn(async move { endpoint.until(|| progress.halt.load(Acquire)).await }).expect("it runs");
}

impl<F: Fabric> Site<F> {
    pub(crate) fn new(fabric: F, node: NodeId, memory: Arc<Region<F::Engine>>) -> Self {
        Self { fabric, node, memory, begun: std::sync::Mutex::default() }
    }

    pub(crate) fn obey(&self, order: Order) -> u64 {
        let word = |at| &self.memory.words(at, 1).expect("a word")[0];
        match order {
            Order::Load(at) => return self.memory.engine().load(word(at)),
            Order::Serve(_) | Order::Collect(_) | Order::CallAround(..) | Order::KeepCalling(_) | Order::Grow(_) => {
                self.begin(order);
            }
            Order::Await => return self.wait(),
            Order::Halt => self.halt(),
            Order::Leave | Order::Die => unreachable!("for what holds the fabric"),
        }
        0
    }

    fn begin(&self, order: Order) {
        self.halt();
        let progress = Arc::new(Progress::default());
        let memory = match order {
            Order::Grow(_) => growing(&self.fabric, self.node, &self.memory),
            _ => Arc::clone(&self.memory),
        };
        // An agent is ready when it says so.
        let endpoint = self.fabric.endpoint(self.node).expect("an endpoint");
        let thread = {
            let progress = Arc::clone(&progress);
            thread::spawn(move || {
                let executor = Executor::new(&endpoint);
                begin(order, &executor.spawner(), memory, &progress);
                executor.run();
            })
        };
        *self.begun.lock().expect("no panic") = Some(Begun { thread, progress });
    }

    fn wait(&self) -> u64 {
        let begun = self.begun.lock().expect("no panic");
        let Begun { progress, thread } = begun.as_ref().expect("something was begun");
        let start = std::time::Instant::now();
        loop {
            if let Some(result) = progress.result() {
                return result;
            }
            assert!(start.elapsed() < PATIENCE && !thread.is_finished(), "what was begun does not end");
            thread::sleep(Duration::from_micros(200));
        }
    }

    fn halt(&self) {
        if let Some(Begun { thread, progress }) = self.begun.lock().expect("no panic").take() {
            progress.halt();
            thread.join().expect("no panic");
        }
    }
}

impl<F: Fabric> Drop for Site<F> {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.halt();
        }
    }
}

async fn collect<P: Port, E: Engine>(verbs: Verbs<'_, P>, memory: Arc<Region<E>>, count: u64, progress: &Progress) {
    for number in 0..count {
        let message = verbs.recv().await;
        assert!(!message.is_call());
        assert_eq!(message[..], number.to_le_bytes(), "once, and in order");
        let words = memory.words(crate::support::word(0, number * 16).offset, 16).expect("words");
        for word in words {
            assert_eq!(memory.engine().load(word), number + 1, "written before it was sent");
        }
        progress.done.store(number + 1, Release);
    }
    let tally = verbs.endpoint().counters().total();
    assert_eq!((tally.received, tally.bytes_in), (count, 8 * count));
    progress.finished.store(true, Release);
}

/// Bytes that a growing region has room for, and has in the beginning.
pub(crate) const ROOM: u64 = 64 << 20;
const FIRST: u64 = 64 << 10;

/// By how much a growing region grows in a step: less than a page, and more than a NIC registers
/// ahead.
pub(crate) fn growth(step: u64) -> u64 {
    [8, 4096, 300_000, 3 << 20][step as usize % 4]
}

/// Registers a region that has much room, and little allocated.
pub(crate) fn growing<F: Fabric>(fabric: &F, node: NodeId, like: &Region<F::Engine>) -> Arc<Region<F::Engine>> {
    let engine = || like.engine().clone();
    let fresh = |region: Result<Region<F::Engine>, _>| {
        let region = region.expect("a region");
        assert_eq!(region.extend(FIRST, 4096).expect("room"), crate::support::BASE);
        Arc::new(region)
    };
    let region = fresh(Region::anonymous(engine(), ROOM));
    if fabric.register(node, Arc::clone(&region)).is_ok() {
        return region;
    }
    // Other processes are handed memory as a file.
    let region = fresh(Region::shared(engine(), ROOM));
    fabric.register(node, Arc::clone(&region)).expect("room");
    region
}

/// Enlarges a region step by step. The first word says where it ends. Every other step waits until
/// a peer has left something in the last word, so that peers see at least half of them.
async fn grow<P: Port, E: Engine>(verbs: Verbs<'_, P>, memory: &Region<E>, steps: u64, progress: &Progress) {
    let end = &memory.words(crate::support::BASE, 1).expect("a word")[0];
    for step in 0..steps {
        let offset = memory.extend(growth(step), 8).expect("room");
        memory.engine().store(end, offset.bytes() + growth(step));
        progress.done.store(step + 1, Release);
        let last = &memory.words(offset + (growth(step) - 8), 1).expect("it was allocated")[0];
        loop {
            verbs.endpoint().sleep(Duration::from_micros(300)).await;
            if step % 2 == 1 || memory.engine().load(last) != 0 {
                break;
            }
        }
    }
    progress.finished.store(true, Release);
}

/// Calls the other nodes in turns.
pub(crate) async fn call_around<P: Port>(verbs: Verbs<'_, P>, nodes: u16) {
    for number in 0..20_u64 {
        let to = (verbs.endpoint().node().0 + 1 + (number % u64::from(nodes - 1)) as u16) % nodes;
        let reply = verbs.call(NodeId(to), &number.to_le_bytes()).await.expect("a reply");
        assert_eq!(reply[..], number.to_le_bytes());
    }
}

/// Calls the other nodes in turns, for ever. One that is gone is awaited.
async fn keep_calling<P: Port>(verbs: Verbs<'_, P>, nodes: u16, progress: &Progress) -> Infallible {
    let endpoint = verbs.endpoint();
    loop {
        for node in (0..nodes).map(NodeId).filter(|node| *node != endpoint.node()) {
            endpoint.until(|| endpoint.presence(node).here().is_some()).await;
            match verbs.call(node, b"drtm").await {
                Ok(_) => drop(progress.done.fetch_add(1, Release)),
                // It may have gone meanwhile: the next turn awaits it.
                Err(error) if error.is_departure() => drop(endpoint.reconnect(node)),
                Err(error) => panic!("{error}"),
            }
        }
        if progress.done.load(Acquire) > 0 {
            progress.finished.store(true, Release);
        }
        endpoint.sleep(Duration::from_millis(1)).await;
    }
}
