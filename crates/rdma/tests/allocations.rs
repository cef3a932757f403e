//! No allocation per operation, once lists and frames have their sizes: counted by the allocator.
//!
//! Alone in its binary, since an allocator is a binary's.
#![cfg(not(feature = "model"))]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    fmt::Debug,
    sync::Arc,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::{
    Executor, Fabric, LocalConfig, LocalFabric, NodeId, Phase, Port, Region, Remote, ShmConfig, ShmFabric, TcpConfig,
    TcpFabric, VerbError, Verbs,
    rpc::{Incoming, Procedure, Refused, Rpc, RpcError, serve},
};

/// How often it is counted at most, until nothing was allocated: a list that has to be longer than
/// ever before grows once, which depends on how late other threads are. What is allocated for each
/// operation is so each time.
const WINDOWS: usize = 10;

struct Counting;

thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });

/// Of this thread.
fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

// SAFETY: everything is passed on to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract, which is the same; the memory came from `alloc`
        // above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

async fn everything<P: Port>(verbs: Verbs<'_, P>, at: Remote, rounds: usize) -> Result<(), VerbError> {
    for _ in 0..rounds {
        let words = verbs.read(at, 40).await?;
        verbs.write(at, &words).await?;
        verbs.fetch_add(at, 1).await?;
        verbs.compare_swap(at, 1, 1).await?;
        let mut batch = verbs.batch();
        let first = batch.read(at, 8)?;
        batch.write(at + 64, &[1; 8])?.unsignaled();
        let last = batch.fetch_add(at, 1)?;
        batch.ring();
        first.await?;
        last.await?;
        verbs.call(NodeId(0), &[7; 100]).await?;
        verbs.endpoint().yield_now().await;
    }
    Ok(())
}

/// Runs 200 rounds at a time until nothing is allocated.
async fn settles<E: Debug>(what: &str, rounds: impl AsyncFn() -> Result<(), E>) {
    let mut allocated = 0;
    for _ in 0..WINDOWS {
        let before = allocations();
        rounds().await.expect("they are answered");
        allocated = allocations() - before;
        if allocated == 0 {
            return;
        }
    }
    panic!("{allocated} allocations by 200 rounds of {what}, and some in each of {WINDOWS} windows");
}

#[test]
fn operations_and_switches_allocate_nothing() {
    for config in [LocalConfig::perfect(), LocalConfig::harsh(1)] {
        let fabric = LocalFabric::new(2, config.mailbox(8));
        let memory = Arc::new(Region::anonymous(NoHtm, 1 << 20).expect("a region"));
        let offset = memory.extend(4096, 4096).expect("room");
        let region = fabric.register(NodeId(1), memory).expect("a node");
        let at = Remote { node: NodeId(1), region, offset };
        allocates_nothing(&fabric, at);
    }
}

#[test]
fn nor_do_they_on_shared_memory() {
    let directory = std::env::temp_dir().join(format!("drtm-allocations-{}", std::process::id()));
    {
        let join = |node| ShmFabric::join(NoHtm, ShmConfig::new("suite", NodeId(node)).directory(&directory));
        let [fabric, other] = [0, 1].map(|node| join(node).expect("a group"));
        let memory = Arc::new(Region::shared(NoHtm, 1 << 20).expect("a region"));
        let offset = memory.extend(4096, 4096).expect("room");
        let region = other.register(NodeId(1), memory).expect("a node");
        allocates_nothing(&fabric, Remote { node: NodeId(1), region, offset });
    }
    std::fs::remove_dir_all(&directory).expect("a directory");
}

/// Two nodes that have joined over TCP.
fn over_tcp(first: u16) -> [TcpFabric<NoHtm>; 2] {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let address = |node: u16| ([127, 64 | high & 63, middle, low], first + node).into();
    [0, 1].map(|node| {
        let config = TcpConfig::new(NodeId(node), address(node), [7; 32]);
        TcpFabric::join(NoHtm, config.peer(NodeId(1 - node), address(1 - node))).expect("a cluster")
    })
}

#[test]
fn nor_do_they_over_tcp() {
    let [fabric, other] = over_tcp(5000);
    let memory = Arc::new(Region::anonymous(NoHtm, 1 << 20).expect("a region"));
    let offset = memory.extend(4096, 4096).expect("room");
    let region = other.register(NodeId(1), memory).expect("a node");
    allocates_nothing(&fabric, Remote { node: NodeId(1), region, offset });
}

#[test]
fn nor_do_calls_over_tcp() {
    calls_allocate_nothing(&over_tcp(5010)[0]);
}

fn allocates_nothing<F: Fabric>(fabric: &F, at: Remote) {
    let endpoint = fabric.endpoint(NodeId(0)).expect("an endpoint");
    let verbs = endpoint.during(Phase::Other);
    let mut executor = Executor::new(&endpoint);
    executor.serve(verbs.serve(|_, request, reply| reply.extend_from_slice(request)));
    for _ in 0..4 {
        executor.spawn(async move {
            // Lists grow to their sizes, and every frame is used once.
            everything(verbs, at, 2000).await.expect("the words are there");
            settles("everything", async || everything(verbs, at, 200).await).await;
        });
    }
    executor.run();
}

/// Puts bytes under a name, and gives how many there were; refuses names that it does not know.
enum Put {}

impl Procedure for Put {
    const NUMBER: u16 = 1;
    type Request<'a> = (&'a str, &'a [u8]);
    type Reply<'a> = (u64, Option<&'a str>);
}

/// One call, one with a deadline, one that is refused, and several in a message.
async fn calls<P: Port>(rpc: &Rpc<'_, P>, verbs: Verbs<'_, P>, rounds: usize) -> Result<(), RpcError> {
    let node = NodeId(0);
    for _ in 0..rounds {
        let one = rpc.call::<Put>(node, &("name", &[7; 100]), None).await?;
        assert_eq!(one.get()?, (100, Some("kept")));
        let deadline = verbs.endpoint().now() + Duration::from_secs(1000);
        let refused = rpc.call::<Put>(node, &("other", &[]), Some(deadline)).await?;
        assert_eq!(refused.get().map_err(|error| error.refused()), Err(Some(404)));
        let mut several = rpc.to(node);
        let first = several.add::<Put>(&("name", &[1; 10]))?;
        let second = several.add::<Put>(&("name", &[2; 20]))?;
        let results = several.send(Some(deadline)).await?;
        assert_eq!((results.get(&first)?.0, results.get(&second)?.0), (10, 20));
    }
    Ok(())
}

fn handle(call: Incoming<'_>) -> drtm_rdma::rpc::Answered {
    match call.procedure() {
        Put::NUMBER => call.answer::<Put>(|(name, bytes)| match name {
            "name" => Ok((bytes.len() as u64, Some("kept"))),
            _ => Err(Refused(404)),
        }),
        _ => call.unknown(),
    }
}

/// Callers and the handler, on one thread: neither allocates.
fn calls_allocate_nothing<F: Fabric>(fabric: &F) {
    let endpoint = fabric.endpoint(NodeId(0)).expect("an endpoint");
    let verbs = endpoint.during(Phase::Other);
    let rpc = Rpc::new(verbs);
    let mut executor = Executor::new(&endpoint);
    executor.serve(serve(verbs, handle));
    for _ in 0..4 {
        let rpc = &rpc;
        executor.spawn(async move {
            // Buffers grow to their sizes, and every frame is used once.
            calls(rpc, verbs, 500).await.expect("they are answered");
            settles("calls", async || calls(rpc, verbs, 200).await).await;
        });
    }
    executor.run();
}

#[test]
fn calls_and_their_handler_allocate_nothing() {
    for config in [LocalConfig::perfect(), LocalConfig::harsh(1)] {
        calls_allocate_nothing(&LocalFabric::<NoHtm>::new(1, config));
    }
}

#[test]
fn nor_do_calls_on_shared_memory() {
    let directory = std::env::temp_dir().join(format!("drtm-call-allocations-{}", std::process::id()));
    {
        let config = ShmConfig::new("suite", NodeId(0)).directory(&directory);
        calls_allocate_nothing(&ShmFabric::join(NoHtm, config).expect("a group"));
    }
    std::fs::remove_dir_all(&directory).expect("a directory");
}
