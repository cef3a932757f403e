//! The fabric of machines with RDMA NICs, as the suite makes it: each other node is a process of
//! its own, and all use the one device that there is. Software that is one will do.

use std::{os::unix::net::UnixStream, sync::Arc, thread};

use drtm_htm::{Emulated, Engine, NoHtm};
use drtm_rdma::{
    Atomicity, Buffers, Executor, Fabric, FabricError, Incarnation, NodeId, Offset, Phase, Presence, Region,
    RegionError, RegionId, Remote, Transport, VerbError, VerbsConfig, VerbsError, VerbsFabric, block_on, run,
};

use crate::{
    agent::{Agent, Order, PATIENCE, Service, Site},
    machines::{Addresses, TcpMood},
    processes::{Directory, Process, obey},
    support::{BASE, BYTES, Mood, Testbed, World, fresh, from_a_thread, with, word},
};

/// What the fabric over TCP is told, which sets the connections up.
#[derive(Clone, Copy, Default)]
pub(crate) struct NicMood {
    tcp: TcpMood,
    datagrams: bool,
}

impl Mood for NicMood {
    fn queue_depth(self, operations: usize) -> Self {
        Self { tcp: self.tcp.queue_depth(operations), ..self }
    }

    fn mailbox(self, messages: usize) -> Self {
        Self { tcp: self.tcp.mailbox(messages), ..self }
    }

    fn buffers(self, buffers: Buffers) -> Self {
        Self { tcp: self.tcp.buffers(buffers), ..self }
    }
}

impl NicMood {
    /// Messages go by datagrams.
    pub(crate) fn datagrams() -> Self {
        Self { datagrams: true, ..Self::default() }
    }

    pub(crate) fn config(self, addresses: Addresses, node: NodeId, incarnation: u32) -> VerbsConfig {
        let by = if self.datagrams { Transport::Datagrams } else { Transport::Connection };
        let config = VerbsConfig::new(self.tcp.config(addresses, node, incarnation)).messages(by).software_swaps(true);
        // By turns the devices that are named, which a network joins; or else the first.
        let Ok(devices) = std::env::var("DRTM_NICS") else { return config };
        let devices: Vec<_> = devices.split(',').collect();
        config.device(devices[usize::from(node.0) % devices.len()])
    }
}

struct Rest {
    directory: Directory,
    addresses: Addresses,
    mood: NicMood,
    incarnations: Vec<u32>,
}

impl Rest {
    fn start_agent(&self, node: u16) -> Process {
        start_agent(&self.directory, self.addresses, self.mood, node, self.incarnations[usize::from(node)])
    }
}

/// Starts an agent, which has joined when this returns.
pub(crate) fn start_agent(
    directory: &Directory,
    addresses: Addresses,
    mood: NicMood,
    node: u16,
    incarnation: u32,
) -> Process {
    let by = if mood.datagrams { "datagrams" } else { "connections" };
    let what = format!("{node}:{incarnation}:{}:{by}:{}", addresses.written(), mood.tcp.to_arguments());
    Process::launch(addresses.program(node), "nics::be_an_agent", &what, &directory.0, &[])
}

/// Each other node is a process.
pub(crate) struct Nics;

struct Own(Site<VerbsFabric<NoHtm>>);

impl Agent for Own {
    fn ask(&self, order: Order) -> u64 {
        self.0.obey(order)
    }
}

impl Testbed for Nics {
    type Mood = NicMood;
    type Fabric = VerbsFabric<NoHtm>;
    type Agent = Process;

    fn start(nodes: u16, mood: NicMood) -> World<Self> {
        let rest = Rest {
            directory: Directory::new(),
            addresses: Addresses::new(),
            mood,
            incarnations: vec![1; usize::from(nodes)],
        };
        let fabric = VerbsFabric::join(NoHtm, mood.config(rest.addresses, NodeId(0), 1)).expect("a cluster");
        let memory = fresh(Region::anonymous(NoHtm, 1 << 20).expect("a region"));
        assert_eq!(fabric.register(NodeId(0), Arc::clone(&memory)).expect("room"), RegionId(0));
        let agents = (1..nodes).map(|node| rest.start_agent(node)).collect();
        World { fabric, memory, agents, _rest: Box::new(rest) }
    }

    fn restart(world: &mut World<Self>, node: NodeId) {
        let index = usize::from(node.0);
        world.agents[index - 1].kill();
        let Some(rest) = world._rest.downcast_mut::<Rest>() else { unreachable!("put there at the start") };
        rest.incarnations[index] += 1;
        world.agents[index - 1] = rest.start_agent(node.0);
    }

    fn own(world: &World<Self>) -> Box<dyn Agent> {
        Box::new(Own(Site::new(world.fabric.clone(), NodeId(0), Arc::clone(&world.memory))))
    }

    fn meanwhile(world: &World<Self>, node: u16, order: Order, body: impl FnOnce()) {
        from_a_thread(world.agent(node), order, body);
    }
}

/// No test, but what another process of this program is.
#[test]
fn be_an_agent() {
    let Some(what) = std::env::var_os("DRTM_AGENT") else { return };
    let what = what.into_string().expect("text");
    let [node, incarnation, addresses, by, mood, path] = what.splitn(6, ':').collect::<Vec<_>>()[..] else {
        panic!("node:incarnation:addresses:transport:mood:path, not {what}")
    };
    let node = NodeId(node.parse().expect("a number"));
    let orders = UnixStream::connect(path).expect("the one that gives orders");
    let incarnation = incarnation.parse().expect("a number");
    let mood = NicMood { tcp: TcpMood::from_arguments(mood), datagrams: by == "datagrams" };
    let fabric = VerbsFabric::join(NoHtm, mood.config(Addresses::read(addresses), node, incarnation));
    let fabric = fabric.expect("the cluster");
    let memory = fresh(Region::anonymous(NoHtm, 1 << 20).expect("a region"));
    obey(orders, &fabric, node, memory, || fabric.leave())
}

/// What the NIC is given for each operation and each batch: a list and a completion for each node.
#[test]
fn doorbells_requests_and_completions_are_as_few_as_designed() {
    let world = World::<Nics>::new(3, NicMood::default());
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    let inline = endpoint.capabilities().inline_bytes;
    assert!(inline >= 64, "this device can send a few words inline");
    // Connections and bounds are known.
    with(&endpoint, async |verbs| {
        for node in [0, 1, 2] {
            verbs.write(word(node, 0), &[1]).await?;
        }
        Ok(())
    });
    let spent = |body: &dyn Fn()| {
        let before = world.fabric.posted();
        body();
        let spent = world.fabric.posted() - before;
        (spent.doorbells, spent.requests, spent.signaled, spent.inlined, spent.receives)
    };
    let one = |result: Result<(), VerbError>| result.expect("the word is there");
    assert_eq!(spent(&|| one(block_on(&endpoint, verbs.read(word(1, 0), 60)).map(drop))), (1, 1, 1, 0, 0));
    assert_eq!(spent(&|| one(block_on(&endpoint, verbs.write(word(1, 0), &[2; 8])))), (1, 1, 1, 1, 0));
    assert_eq!(spent(&|| one(block_on(&endpoint, verbs.write(word(1, 0), &[2; 500])))), (1, 1, 1, 0, 0));
    assert_eq!(spent(&|| one(block_on(&endpoint, verbs.compare_swap(word(1, 0), 2, 3)).map(drop))), (1, 1, 1, 0, 0));
    assert_eq!(spent(&|| one(block_on(&endpoint, verbs.fetch_add(word(1, 0), 2)).map(drop))), (1, 1, 1, 0, 0));
    assert_eq!(spent(&|| one(block_on(&endpoint, verbs.send(NodeId(1), b"hello")))), (1, 1, 1, 1, 0));
    assert_eq!(spent(&|| one(block_on(&endpoint, verbs.send(NodeId(1), &[7; 500])))), (1, 1, 1, 0, 0));
    // Nothing is to be read, and what is out of bounds is not read.
    assert_eq!(spent(&|| one(block_on(&endpoint, verbs.read(word(1, 0), 0)).map(drop))), (0, 0, 0, 0, 0));
    let wild = || assert!(block_on(&endpoint, verbs.read(word(1, BYTES), 1)).is_err());
    assert_eq!(spent(&wild), (0, 0, 0, 0, 0));
    // What a transaction does to two nodes at a time: locks, reads and writes.
    let batch = || {
        let mut batch = verbs.batch();
        let mut ends = Vec::new();
        for node in [1, 2] {
            batch.compare_swap(word(node, 0), 0, 0).expect("room").unsignaled();
            batch.write(word(node, 8), &[1, 2, 3]).expect("room").unsignaled();
            batch.write(word(node, 16), &[1; 100]).expect("room").unsignaled();
            ends.push(batch.read(word(node, 8), 8).expect("room"));
        }
        batch.ring();
        block_on(&endpoint, async {
            for end in ends {
                end.await.expect("the words are there");
            }
        });
    };
    assert_eq!(spent(&batch), (2, 8, 2, 2, 0));
    // Coroutines that each wait for their own ring for themselves.
    let many = || drop(run(&endpoint, 20, |index| verbs.read(word(1, index as u64), 1)));
    let (doorbells, requests, signaled, ..) = spent(&many);
    assert_eq!((doorbells, requests, signaled), (20, 20, 20));
    world.agent(1).ask(Order::Serve(Service::Backwards));
    let call = || drop(block_on(&endpoint, verbs.call(NodeId(1), b"drtm")).expect("a reply"));
    assert_eq!(spent(&call), (1, 1, 1, 1, 1));
    world.agent(1).ask(Order::Halt);
}

/// Messages by datagrams to several nodes share a doorbell, and every sixteenth datagram is
/// signaled. There are no queue pairs for connections, so nothing else is counted.
#[test]
fn datagrams_to_several_nodes_share_a_doorbell() {
    let world = World::<Nics>::new(3, NicMood::datagrams());
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    with(&endpoint, async |verbs| {
        verbs.send(NodeId(1), b"hello").await?;
        verbs.send(NodeId(2), b"hello").await
    });
    for round in 0..20 {
        let before = world.fabric.posted();
        let mut batch = verbs.batch();
        let ends = [1, 2, 1, 2].map(|node| batch.send(NodeId(node), &[round; 40]).expect("room"));
        batch.ring();
        // What is lost or late is asked for by later doorbells only.
        let spent = world.fabric.posted() - before;
        assert_eq!((spent.doorbells, spent.requests, spent.inlined, spent.receives), (1, 4, 4, 0));
        let mut long = verbs.batch();
        let piecewise = long.send(NodeId(1), &[round; 5000]).expect("room");
        long.ring();
        let spent = world.fabric.posted() - before;
        assert_eq!(spent.doorbells, 2);
        // A datagram has at most 4 KiB, and at least 256 bytes.
        assert!((6..4 + 32).contains(&spent.requests), "{spent:?}");
        block_on(&endpoint, async {
            for end in ends {
                end.await.expect("they are there");
            }
            piecewise.await.expect("it is there");
        });
    }
    let all = world.fabric.posted();
    assert_eq!(all.signaled, all.requests / 16);
}

/// Processors that swap a word by their own NIC, and a peer that changes it by its NIC, lose
/// nothing: in memory that is registered, and in memory that was allocated later.
#[test]
fn swaps_of_processors_by_their_nic_are_atomic_with_those_of_peers() {
    const EACH: u64 = 300;
    let addresses = Addresses::new();
    let join = |node| {
        let fabric = VerbsFabric::join(NoHtm, NicMood::default().config(addresses, NodeId(node), 1));
        fabric.expect("a device")
    };
    let (peer, own) = (join(1), join(0));
    assert_eq!(own.capabilities().atomicity, Atomicity::Hca, "what this is about");
    assert!(own.loopback(NodeId(1)).is_none(), "another node's NIC");
    let memory = Arc::new(Region::anonymous(NoHtm, 16 << 20).expect("a region"));
    memory.swap_by(own.loopback(NodeId(0)).expect("a NIC of its own"));
    let early = memory.extend(8, 8).expect("memory");
    let word_at = |offset| &memory.words(offset, 1).expect("it is there")[0];
    assert_eq!(memory.compare_swap(word_at(early), 0, 1), Ok(0), "no peer knows it yet");
    let region = own.register(NodeId(0), Arc::clone(&memory)).expect("room");
    let late = memory.extend(8 << 20, 8).expect("memory") + ((8 << 20) - 8);
    for offset in [early, late] {
        let at = Remote { node: NodeId(0), region, offset };
        let first = NoHtm.load(word_at(offset));
        assert_eq!(memory.compare_swap(word_at(offset), first + 7, 9), Err(first));
        let count = || {
            for _ in 0..EACH {
                let mut seen = NoHtm.load(word_at(offset));
                while let Err(found) = memory.compare_swap(word_at(offset), seen, seen + 1) {
                    seen = found;
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(count);
            scope.spawn(count);
            scope.spawn(|| {
                let endpoint = peer.endpoint(NodeId(1)).expect("room");
                for _ in 0..EACH {
                    block_on(&endpoint, endpoint.during(Phase::Other).fetch_add(at, 1)).expect("it is there");
                }
            });
        });
        assert_eq!(NoHtm.load(word_at(offset)), first + 3 * EACH);
    }
    assert_eq!(own.take_failure().map(|failure| failure.to_string()), None);
    // Without the fabric there is no NIC, and no peer.
    drop((peer, own));
    let last = NoHtm.load(word_at(early));
    assert_eq!(memory.compare_swap(word_at(early), last, 0), Ok(last));
}

/// A cluster whose nodes do not agree on what carries messages says so, and goes on one-sided.
#[test]
fn nodes_that_take_no_datagrams_say_so() {
    let addresses = Addresses::new();
    let join = |node, mood: NicMood| {
        let fabric = VerbsFabric::join(NoHtm, mood.config(addresses, NodeId(node), 1)).expect("a device");
        let memory = fresh(Region::anonymous(NoHtm, 1 << 20).expect("a region"));
        fabric.register(NodeId(node), memory).expect("room");
        fabric
    };
    let _other = join(1, NicMood::default());
    let fabric = join(0, NicMood::datagrams());
    let endpoint = fabric.endpoint(NodeId(0)).expect("room");
    let verbs = endpoint.during(Phase::Other);
    assert_eq!(block_on(&endpoint, verbs.fetch_add(word(1, 0), 1)), Ok(0));
    let (node, incarnation) = (NodeId(1), Incarnation(1));
    assert_eq!(block_on(&endpoint, verbs.send(node, b"hello")), Err(VerbError::Gone { node, incarnation }));
    let failure = fabric.take_failure();
    assert!(matches!(&failure, Some(VerbsError::Refused { why }) if why.contains("alike")), "{failure:?}");
    assert_eq!(endpoint.reconnect(node), Ok(incarnation));
    assert_eq!(block_on(&endpoint, verbs.fetch_add(word(1, 0), 1)), Ok(1));
}

/// Of replies to one caller, every eighth is signaled.
#[test]
fn replies_are_signaled_now_and_then() {
    let world = World::<Nics>::new(1, NicMood::default());
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    let before = world.fabric.posted();
    let mut executor = Executor::new(&endpoint).patience(PATIENCE);
    executor.serve(verbs.serve(|_, request, reply| reply.extend_from_slice(request)));
    executor.spawn(async {
        for number in 0..64_u64 {
            let reply = verbs.call(NodeId(0), &number.to_le_bytes()).await.expect("a reply");
            assert_eq!(reply[..], number.to_le_bytes());
        }
    });
    executor.run();
    let spent = world.fabric.posted() - before;
    assert_eq!((spent.doorbells, spent.requests, spent.receives), (128, 128, 64));
    assert_eq!(spent.signaled, 64 + 64 / 8, "all calls, and some of the replies");
}

/// Access out of bounds is an error of that access, and breaks nothing.
#[test]
fn what_is_out_of_bounds_never_reaches_the_nic() {
    let world = World::<Nics>::new(2, NicMood::default());
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    block_on(&endpoint, async {
        for round in 0..20_u64 {
            let beyond = Remote { offset: BASE + BYTES + round * 4096, ..word(1, 0) };
            assert_eq!(verbs.read(beyond, 1).await.err(), Some(VerbError::OutOfBounds { at: beyond, words: 1 }));
            assert_eq!(verbs.fetch_add(word(1, 0), 1).await, Ok(round));
        }
    });
    assert!(world.fabric.take_failure().is_none(), "no connection has failed");
}

/// A region grows while a peer uses it, far beyond what was registered at first.
#[test]
fn a_region_grows_under_a_peer() {
    let world = World::<Nics>::new(2, NicMood::default());
    let memory = Arc::new(Region::anonymous(NoHtm, 256 << 20).expect("a region"));
    let region = world.fabric.register(NodeId(0), Arc::clone(&memory)).expect("room");
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    block_on(&endpoint, async {
        let mut before = None;
        for step in 1..=24_u64 {
            let offset = memory.extend(step * 300_000, 8).expect("room");
            let at = |offset| Remote { node: NodeId(0), region, offset };
            let last = at(offset + (step * 300_000 - 8));
            assert_eq!(verbs.fetch_add(last, step).await, Ok(0));
            // Across where one registration ends and another begins.
            let words = 60 << 7;
            verbs.write(at(offset), &vec![step; words]).await.expect("it is there");
            let found = verbs.read(at(offset), words).await.expect("it is there");
            assert!(found.iter().all(|word| *word == step));
            if let Some((last, step)) = before.replace((last, step)) {
                assert_eq!(verbs.read_word(last).await, Ok(step), "what was there stays");
            }
            let beyond = at(last.offset + 8);
            assert_eq!(verbs.read_word(beyond).await, Err(VerbError::OutOfBounds { at: beyond, words: 1 }));
        }
    });
    assert!(world.fabric.take_failure().is_none(), "no connection has failed");
}

/// A connection that breaks is reported once, says what it can have done, and is made anew.
#[test]
fn a_broken_connection_is_reset_and_reported_once() {
    let world = World::<Nics>::new(1, NicMood::default());
    let endpoint = world.endpoint();
    let rest = endpoint.at_rest();
    let verbs = endpoint.during(Phase::Other);
    let at = word(0, 0);
    let (node, incarnation) = (NodeId(0), Incarnation(1));
    let cut_off = VerbError::Disconnected { node, incarnation };
    let gone = VerbError::Gone { node, incarnation };
    for round in 1..=3_u64 {
        assert_eq!(block_on(&endpoint, verbs.fetch_add(at, 1)), Ok(2 * round - 2));
        world.fabric.break_connections();
        let mut executor = Executor::new(&endpoint).patience(PATIENCE);
        executor.spawn(async {
            let mut batch = verbs.batch();
            let ends = [(); 3].map(|()| batch.fetch_add(at, 1).expect("room"));
            batch.ring();
            for end in ends {
                assert_eq!(end.await, Err(cut_off));
            }
            assert_eq!(verbs.fetch_add(at, 1).await, Err(gone));
        });
        executor.run();
        let failure = world.fabric.take_failure();
        assert!(matches!(failure, Some(VerbsError::Failed { .. })), "{failure:?}");
        assert!(world.fabric.take_failure().is_none(), "once");
        assert_eq!(endpoint.presence(node), Presence::Here(incarnation), "the node is well");
        assert_eq!(endpoint.reconnect(node), Ok(incarnation));
        assert_eq!(block_on(&endpoint, verbs.fetch_add(at, 1)), Ok(2 * round - 1), "none was done");
        assert_eq!(endpoint.at_rest(), rest, "every buffer is back");
    }
}

/// What cannot be used says why.
#[test]
fn devices_that_cannot_be_used_say_why() {
    let addresses = Addresses::new();
    let config = || NicMood::default().config(addresses, NodeId(0), 1);
    let fails = |config| VerbsFabric::join(NoHtm, config).expect_err("it cannot be used");
    let error = fails(config().device("no such device"));
    assert!(matches!(&error, VerbsError::NoDevice { named: Some(_), found } if !found.is_empty()), "{error}");
    let error = fails(config().port(9));
    assert!(matches!(error, VerbsError::System { .. } | VerbsError::Port { port: 9 }), "{error}");
    let error = fails(config().gid(200));
    assert!(matches!(error, VerbsError::Address { index: Some(200), .. }), "{error}");
    let error = VerbsFabric::join(Emulated::default(), config()).expect_err("it would miss the NIC's accesses");
    assert!(matches!(error, VerbsError::Engine(_)), "{error}");
    let fabric = VerbsFabric::join(NoHtm, config()).expect("a device");
    assert_ne!(fabric.capabilities().atomicity, Atomicity::None);
}

/// What a software NIC swaps is not used unless the configuration says so.
#[test]
fn swaps_of_software_nics_are_used_where_that_is_said() {
    let [used, unused] = [true, false].map(|are_used| {
        let config = NicMood::default().config(Addresses::new(), NodeId(0), 1).software_swaps(are_used);
        let fabric = VerbsFabric::join(NoHtm, config).expect("a device");
        (fabric.capabilities().atomicity, fabric.loopback(NodeId(0)).is_some())
    });
    assert_eq!(used, (Atomicity::Hca, true));
    assert_eq!(unused, (Atomicity::None, false));
}

/// Buffers and a region in huge pages, which this test sets aside where it may; and what is said
/// where there are none.
#[test]
fn huge_pages_are_used_or_said_to_be_missing() {
    const STOCK: &str = "/proc/sys/vm/nr_hugepages";
    let config = |node| NicMood::default().config(Addresses::new(), NodeId(node), 1).huge_pages(true);
    let before = std::fs::read_to_string(STOCK).expect("the system's stock");
    if before.trim() == "0" {
        let error = VerbsFabric::join(NoHtm, config(0)).expect_err("there are none");
        assert!(matches!(error, VerbsError::HugePages { pages: 1.., .. }), "{error}");
        let error = Region::in_huge_pages(NoHtm, 4 << 20).expect_err("there are none");
        assert!(matches!(error, RegionError::HugePages { pages: 2, .. }), "{error}");
    }
    // Of a machine that is not this test's own, nothing is taken.
    if std::fs::read_to_string("/etc/kernel").is_err() || std::fs::write(STOCK, "64").is_err() {
        return;
    }
    let fabric = VerbsFabric::join(NoHtm, config(0)).expect("a device, and pages");
    let memory = Arc::new(Region::in_huge_pages(NoHtm, 4 << 20).expect("pages"));
    memory.extend(3 << 20, 4096).expect("room");
    assert_eq!(memory.discard(Offset::new(4096), 2 << 20).expect("it is allocated"), 0);
    let region = fabric.register(NodeId(0), memory).expect("room");
    let endpoint = fabric.endpoint(NodeId(0)).expect("pages");
    let last = Remote { node: NodeId(0), region, offset: Offset::new(3 << 20) };
    let verbs = endpoint.during(Phase::Other);
    block_on(&endpoint, async {
        verbs.write(last, &[7; 64]).await?;
        assert_eq!(verbs.read(last, 64).await?[..], [7; 64]);
        assert_eq!(verbs.fetch_add(last, 1).await?, 7);
        Ok::<_, VerbError>(())
    })
    .expect("the words are there");
    let free = |stock: &str| {
        let found = std::fs::read_to_string("/proc/meminfo").expect("the system's memory");
        let line = found.lines().find_map(|line| line.strip_prefix(stock)).expect("a field");
        line.trim().parse::<u64>().expect("a number")
    };
    assert!(free("HugePages_Free:") < free("HugePages_Total:"), "they are in use");
    drop((endpoint, fabric));
    std::fs::write(STOCK, before).expect("as before");
}

/// Threads share no lock of the library's: each endpoint has opened the device for itself.
#[test]
fn each_endpoint_has_a_context_of_its_own() {
    let opened = || {
        let descriptors = std::fs::read_dir("/proc/self/fd").expect("descriptors");
        let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        targets.filter(|target| target.to_string_lossy().starts_with("/dev/infiniband/uverbs")).count()
    };
    let Some(count) = std::env::var_os("DRTM_ENDPOINTS") else {
        // In a process that has no other test's.
        let status = std::process::Command::new(std::env::current_exe().expect("this program"))
            .args(["nics::each_endpoint_has_a_context_of_its_own", "--exact", "--nocapture"])
            .env("DRTM_ENDPOINTS", "3")
            .stdout(std::process::Stdio::null())
            .status()
            .expect("another process");
        assert!(status.success());
        return;
    };
    let count: usize = count.into_string().expect("text").parse().expect("a number");
    let fabric = VerbsFabric::join(NoHtm, NicMood::default().config(Addresses::new(), NodeId(0), 1)).expect("a device");
    let before = opened();
    let endpoints: Vec<_> = (0..count).map(|_| fabric.endpoint(NodeId(0)).expect("room")).collect();
    assert_eq!(opened() - before, count);
    drop(endpoints);
    assert_eq!(opened(), before, "what is dropped is closed");
}

/// A user that may not open the device is told so.
#[test]
fn no_permission_for_the_device_says_so() {
    use std::os::unix::{fs::PermissionsExt, process::CommandExt};

    const DEVICE: &str = "/dev/infiniband/uverbs0";
    const NOBODY: u32 = 65_534;
    if std::env::var_os("DRTM_NOBODY").is_some() {
        let error = VerbsFabric::join(NoHtm, NicMood::default().config(Addresses::new(), NodeId(0), 1));
        let error = error.expect_err("it may not");
        assert!(matches!(error, VerbsError::Permission { .. }), "{error}");
        assert!(error.to_string().contains("/dev/infiniband"), "{error}");
        return;
    }
    // A machine that is this test's own: see `scripts/rxe/image`.
    if std::fs::read_to_string("/etc/kernel").is_err() {
        println!("skipped: it changes which users may open the device");
        return;
    }
    let allow = |mode| std::fs::set_permissions(DEVICE, std::fs::Permissions::from_mode(mode)).expect("it is root's");
    let before = std::fs::metadata(DEVICE).expect("a device").permissions().mode();
    allow(0o600);
    let status = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["nics::no_permission_for_the_device_says_so", "--exact", "--nocapture"])
        .env("DRTM_NOBODY", "1")
        .uid(NOBODY)
        .status();
    allow(before);
    assert!(status.expect("another process").success());
}

/// A process that may lock little memory, and is not above such limits.
#[test]
fn too_little_locked_memory_names_the_limit() {
    let Some(limit) = std::env::var_os("DRTM_LITTLE_MEMORY") else {
        let status = std::process::Command::new(std::env::current_exe().expect("this program"))
            .args(["nics::too_little_locked_memory_names_the_limit", "--exact", "--nocapture"])
            .env("DRTM_LITTLE_MEMORY", (16 << 20).to_string())
            .stdout(std::process::Stdio::null())
            .status()
            .expect("another process");
        assert!(status.success());
        return;
    };
    let limit: u64 = limit.into_string().expect("text").parse().expect("a number");
    let resource = rustix::process::Resource::Memlock;
    let rlimit = rustix::process::Rlimit { current: Some(limit), maximum: Some(limit) };
    rustix::process::setrlimit(resource, rlimit).expect("less is always granted");
    let none = rustix::thread::CapabilitySets {
        effective: rustix::thread::CapabilitySet::empty(),
        permitted: rustix::thread::CapabilitySet::empty(),
        inheritable: rustix::thread::CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).expect("less is always granted");
    let fabric = VerbsFabric::join(NoHtm, NicMood::default().config(Addresses::new(), NodeId(0), 1));
    let fabric = fabric.expect("a node locks less than the limit");
    let memory = Arc::new(Region::anonymous(NoHtm, 64 << 20).expect("a region"));
    memory.extend(32 << 20, 8).expect("room");
    let node = NodeId(0);
    match fabric.register(node, memory).expect_err("it is more than the limit") {
        FabricError::LockedMemory { bytes, limit: found, .. } => {
            assert!(bytes >= 32 << 20);
            assert_eq!(found, limit);
        }
        error => panic!("{error}: {:?}", fabric.take_failure()),
    }
}
