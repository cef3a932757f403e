//! The fabric of machines, as the suite makes it: each other node is a process of its own, or a
//! member beside the test in its process.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::net::UnixStream,
    process::Command,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU16,
            Ordering::{Acquire, Relaxed},
        },
    },
    time::Duration,
};

use drtm_htm::{Emulated, Engine, NoHtm};
use drtm_rdma::{
    Buffers, Executor, Fabric, Incarnation, NodeId, Phase, Presence, Region, RegionId, TcpConfig, TcpError, TcpFabric,
    VerbError, block_on, run,
};

use crate::{
    agent::{Agent, Order, PATIENCE, Site},
    processes::{Directory, Process, obey},
    support::{Mood, Sets, Testbed, World, fresh, from_a_thread, rounds, word},
};

/// Nodes of a world, at the most.
const NODES: u16 = 8;

pub(crate) const KEY: [u8; 32] = [7; 32];

/// Where the nodes of one world listen: ports of an address of the loopback that only this process
/// has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    ip: Ipv4Addr,
    first: u16,
    /// Whether each node has an address of its own, which is that of its network namespace.
    apart: bool,
}

/// Processes in the network namespaces of nodes 1, 2 and so on, where `scripts/netns/test` has made
/// such. Node 0 is in this process's.
pub(crate) fn namespaces() -> Option<Vec<u32>> {
    let processes = std::env::var("DRTM_NAMESPACES").ok()?;
    Some(processes.split(',').map(|process| process.parse().expect("DRTM_NAMESPACES names processes")).collect())
}

impl Addresses {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU16 = AtomicU16::new(0);
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        let first = 10_000 + NODES * (NUMBER.fetch_add(1, Relaxed) % 6_000);
        Self { ip: Ipv4Addr::new(127, 64 | high & 63, middle, low), first, apart: false }
    }

    /// Where nodes listen that are processes: each in a namespace of its own, if there are such.
    pub(crate) fn of_processes() -> Self {
        let addresses = Self::new();
        match namespaces() {
            Some(_) => Self { ip: Ipv4Addr::new(10, 77, 0, 1), apart: true, ..addresses },
            None => addresses,
        }
    }

    pub(crate) fn of(self, node: NodeId) -> SocketAddr {
        let number = u32::from(self.ip) + if self.apart { u32::from(node.0) } else { 0 };
        (IpAddr::V4(number.into()), self.first + node.0).into()
    }

    /// This program, where it can listen at a node's address.
    pub(crate) fn program(self, node: u16) -> Command {
        let program = std::env::current_exe().expect("this program");
        match namespaces() {
            Some(namespaces) if self.apart && node > 0 => {
                let process = namespaces[usize::from(node) - 1].to_string();
                let mut command = Command::new("nsenter");
                command.args(["--net", "--target", &process, "--"]).arg(program);
                command
            }
            _ => Command::new(program),
        }
    }

    /// How a node joins that knows of all others.
    pub(crate) fn config(self, node: NodeId, incarnation: u32) -> TcpConfig {
        let config = TcpConfig::new(node, self.of(node), KEY).patience(PATIENCE).incarnation(Incarnation(incarnation));
        (0..NODES).map(NodeId).fold(config, |config, peer| config.peer(peer, self.of(peer)))
    }

    pub(crate) fn written(self) -> String {
        format!("{}-{}-{}", self.ip, self.first, u8::from(self.apart))
    }

    pub(crate) fn read(text: &str) -> Self {
        let [ip, first, apart] = text.split('-').collect::<Vec<_>>()[..] else {
            panic!("address-port-apart, not {text}")
        };
        let (ip, first) = (ip.parse().expect("an address"), first.parse().expect("a port"));
        Self { ip, first, apart: apart == "1" }
    }
}

#[derive(Clone, Copy, Default)]
pub(crate) struct TcpMood {
    queue_depth: Option<usize>,
    calls: Option<usize>,
    buffers: Option<Buffers>,
    clear: bool,
    /// In milliseconds.
    deadline: Option<usize>,
}

impl Mood for TcpMood {
    fn queue_depth(self, operations: usize) -> Self {
        Self { queue_depth: Some(operations), ..self }
    }

    fn mailbox(self, messages: usize) -> Self {
        Self { calls: Some(messages), ..self }
    }

    fn buffers(self, buffers: Buffers) -> Self {
        Self { buffers: Some(buffers), ..self }
    }
}

impl TcpMood {
    /// Without encryption.
    pub(crate) fn in_the_clear(self) -> Self {
        Self { clear: true, ..self }
    }

    /// With another deadline for silence.
    pub(crate) fn deadline(self, milliseconds: usize) -> Self {
        Self { deadline: Some(milliseconds), ..self }
    }

    pub(crate) fn config(self, addresses: Addresses, node: NodeId, incarnation: u32) -> TcpConfig {
        let mut config = addresses.config(node, incarnation).sealed(!self.clear);
        if let Some(milliseconds) = self.deadline {
            config = config.deadline(Duration::from_millis(milliseconds as u64));
        }
        if let Some(depth) = self.queue_depth {
            config = config.queue_depth(depth);
        }
        if let Some(calls) = self.calls {
            config = config.calls(calls).mailbox(calls);
        }
        if let Some(buffers) = self.buffers {
            config = config.buffers(buffers);
        }
        config
    }

    pub(crate) fn to_arguments(self) -> String {
        let number = |number: Option<usize>| number.map_or_else(String::new, |number| number.to_string());
        let (depth, calls, deadline) = (number(self.queue_depth), number(self.calls), number(self.deadline));
        format!("{depth},{calls},{},{deadline}", u8::from(self.clear))
    }

    pub(crate) fn from_arguments(arguments: &str) -> Self {
        let mut numbers = arguments.split(',').map(|number| number.parse().ok());
        let (queue_depth, calls) = (numbers.next().flatten(), numbers.next().flatten());
        let clear = numbers.next().flatten() == Some(1);
        Self { queue_depth, calls, buffers: None, clear, deadline: numbers.next().flatten() }
    }
}

/// What goes away with a world.
struct Rest {
    directory: Directory,
    addresses: Addresses,
    mood: TcpMood,
    incarnations: Vec<u32>,
}

impl Rest {
    fn of<R: Testbed>(world: &mut World<R>) -> &mut Self {
        match world._rest.downcast_mut() {
            Some(rest) => rest,
            None => unreachable!("put there at the start"),
        }
    }
}

fn begin<E: Engine + Default>(nodes: u16, addresses: Addresses, mood: TcpMood) -> (TcpFabric<E>, Arc<Region<E>>, Rest) {
    let rest = Rest { directory: Directory::new(), addresses, mood, incarnations: vec![1; usize::from(nodes)] };
    let engine = E::default();
    let fabric = join(&engine, &mood.config(rest.addresses, NodeId(0), 1));
    let memory = fresh(Region::anonymous(engine, 1 << 20).expect("a region"));
    assert_eq!(fabric.register(NodeId(0), Arc::clone(&memory)).expect("room"), RegionId(0));
    (fabric, memory, rest)
}

/// Joins, or says why not. A process that another test starts has this one's listeners from its
/// fork to its exec, so that an address may be in use for a moment.
fn try_join<E: Engine>(engine: &E, config: &TcpConfig) -> Result<TcpFabric<E>, TcpError> {
    let start = std::time::Instant::now();
    loop {
        match TcpFabric::join(engine.clone(), config.clone()) {
            Err(TcpError::System { source, .. })
                if source.kind() == std::io::ErrorKind::AddrInUse && start.elapsed() < PATIENCE =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            outcome => return outcome,
        }
    }
}

pub(crate) fn join<E: Engine>(engine: &E, config: &TcpConfig) -> TcpFabric<E> {
    try_join(engine, config).expect("the cluster")
}

/// Each other node is a process.
pub(crate) struct Machines;

/// Starts an agent, which has joined when this returns.
pub(crate) fn start_agent(
    directory: &Directory,
    addresses: Addresses,
    mood: TcpMood,
    node: u16,
    incarnation: u32,
) -> Process {
    let what = format!("{node}:{incarnation}:{}:{}", addresses.written(), mood.to_arguments());
    Process::launch(addresses.program(node), "machines::be_an_agent", &what, &directory.0, &[])
}

/// An agent of node 0 beside the test.
struct Own<E: Engine>(Site<TcpFabric<E>>);

impl<E: Engine> Agent for Own<E> {
    fn ask(&self, order: Order) -> u64 {
        self.0.obey(order)
    }
}

impl Testbed for Machines {
    type Mood = TcpMood;
    type Fabric = TcpFabric<NoHtm>;
    type Agent = Process;

    fn start(nodes: u16, mood: TcpMood) -> World<Self> {
        let (fabric, memory, rest) = begin(nodes, Addresses::of_processes(), mood);
        let agents = (1..nodes).map(|node| start_agent(&rest.directory, rest.addresses, mood, node, 1)).collect();
        World { fabric, memory, agents, _rest: Box::new(rest) }
    }

    fn restart(world: &mut World<Self>, node: NodeId) {
        let index = usize::from(node.0);
        world.agents[index - 1].kill();
        let rest = Rest::of(world);
        rest.incarnations[index] += 1;
        let agent = start_agent(&rest.directory, rest.addresses, rest.mood, node.0, rest.incarnations[index]);
        world.agents[index - 1] = agent;
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
    let [node, incarnation, addresses, mood, path] = what.splitn(5, ':').collect::<Vec<_>>()[..] else {
        panic!("node:incarnation:addresses:mood:path, not {what}")
    };
    let node = NodeId(node.parse().expect("a number"));
    let orders = UnixStream::connect(path).expect("the one that gives orders");
    let incarnation = incarnation.parse().expect("a number");
    let config = TcpMood::from_arguments(mood).config(Addresses::read(addresses), node, incarnation);
    let fabric = join(&NoHtm, &config);
    let memory = fresh(Region::anonymous(NoHtm, 1 << 20).expect("a region"));
    obey(orders, &fabric, node, memory, || fabric.leave())
}

/// All nodes are members in the test's process, each with its own thread and sockets. Over any
/// engine.
pub(crate) struct Together<E>(std::marker::PhantomData<E>);

/// A member beside the test. None when it has died.
pub(crate) struct Neighbour<E: Engine>(std::sync::Mutex<Option<Site<TcpFabric<E>>>>);

impl<E: Engine + Default> Neighbour<E> {
    fn join(rest: &Rest, engine: &E, node: NodeId) -> Self {
        let config = rest.mood.config(rest.addresses, node, rest.incarnations[usize::from(node.0)]);
        let fabric = join(engine, &config);
        let memory = fresh(Region::anonymous(engine.clone(), 1 << 20).expect("a region"));
        fabric.register(node, Arc::clone(&memory)).expect("room");
        Self(std::sync::Mutex::new(Some(Site::new(fabric, node, memory))))
    }
}

impl<E: Engine> Neighbour<E> {
    /// Breaks the connections to it, as a network might.
    fn break_connections(&self) {
        if let Some(site) = &*self.0.lock().expect("no panic") {
            site.fabric.break_connections();
        }
    }
}

impl<E: Engine> Agent for Neighbour<E> {
    fn ask(&self, order: Order) -> u64 {
        let mut place = self.0.lock().expect("no panic");
        let site = place.as_ref().expect("it lives");
        match order {
            Order::Leave => site.fabric.leave(),
            Order::Die => {
                site.fabric.break_off();
                *place = None;
            }
            order => return site.obey(order),
        }
        0
    }
}

impl<E: Engine + Default> Testbed for Together<E> {
    type Mood = TcpMood;
    type Fabric = TcpFabric<E>;
    type Agent = Neighbour<E>;

    fn start(nodes: u16, mood: TcpMood) -> World<Self> {
        let (fabric, memory, rest) = begin::<E>(nodes, Addresses::new(), mood);
        let join = |node| Neighbour::join(&rest, memory.engine(), NodeId(node));
        let agents = (1..nodes).map(join).collect();
        World { fabric, memory, agents, _rest: Box::new(rest) }
    }

    fn restart(world: &mut World<Self>, node: NodeId) {
        let index = usize::from(node.0);
        *world.agents[index - 1].0.lock().expect("no panic") = None;
        let engine = world.memory.engine().clone();
        let rest = Rest::of(world);
        rest.incarnations[index] += 1;
        world.agents[index - 1] = Neighbour::join(rest, &engine, node);
    }

    fn own(world: &World<Self>) -> Box<dyn Agent> {
        Box::new(Own(Site::new(world.fabric.clone(), NodeId(0), Arc::clone(&world.memory))))
    }

    fn meanwhile(world: &World<Self>, node: u16, order: Order, body: impl FnOnce()) {
        from_a_thread(world.agent(node), order, body);
    }
}

/// Stopped as by a debugger, a peer is suspected, and its operations end with an error that says
/// so. It comes back as the same incarnation, and nothing was done twice.
#[test]
fn a_silent_node_is_suspected_and_may_come_back() {
    let world = World::<Machines>::new(2, TcpMood::default().deadline(500));
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    let at = word(1, 0);
    assert_eq!(block_on(&endpoint, verbs.fetch_add(at, 1)), Ok(0));
    let here = Presence::Here(Incarnation(1));
    for round in 1..=2 {
        world.agent(1).signal(rustix::process::Signal::STOP);
        let mut executor = Executor::new(&endpoint).patience(PATIENCE);
        executor.spawn(async {
            let suspected = VerbError::Suspected { node: NodeId(1), incarnation: Incarnation(1) };
            let (mut batch, mut ends) = (verbs.batch(), Vec::new());
            ends.push(batch.fetch_add(at, 1).expect("room"));
            ends.push(batch.fetch_add(at, 1).expect("room"));
            let call = batch.call(NodeId(1), b"are you there?").expect("room");
            batch.ring();
            for end in ends {
                assert_eq!(end.await, Err(suspected));
            }
            assert_eq!(call.await.err(), Some(suspected));
            assert!(suspected.may_have_taken_effect() && suspected.is_departure());
            let gone = VerbError::Gone { node: NodeId(1), incarnation: Incarnation(1) };
            assert_eq!(verbs.fetch_add(at, 1).await, Err(gone));
        });
        executor.run();
        assert_eq!(endpoint.presence(NodeId(1)), Presence::Suspected(Incarnation(1)));
        assert!(endpoint.reconnect(NodeId(1)).is_err());
        world.agent(1).signal(rustix::process::Signal::CONT);
        let mut executor = Executor::new(&endpoint).patience(PATIENCE);
        executor.spawn(endpoint.until(|| endpoint.presence(NodeId(1)) == here));
        executor.run();
        assert_eq!(endpoint.reconnect(NodeId(1)), Ok(Incarnation(1)));
        let found = block_on(&endpoint, verbs.fetch_add(at, 1)).expect("it is back");
        // What was under way has taken effect or not: each once at the most.
        assert!((round..=4 * round).contains(&found), "{found} in round {round}");
    }
}

/// A node between two others is stopped until they suspect it, and goes on: all three call each
/// other again, as the same incarnations, whichever of two dials.
#[test]
fn a_node_that_was_stopped_is_met_again_by_all() {
    const NODES: u16 = 3;
    let deadline = Duration::from_millis(500);
    let world = World::<Machines>::new(NODES, TcpMood::default().deadline(500));
    let mine = Machines::own(&world);
    let agents: [&dyn Agent; 3] = [&*mine, world.agent(1), world.agent(2)];
    for agent in agents {
        agent.ask(Order::KeepCalling(NODES));
    }
    let endpoint = world.endpoint();
    let until = |presence: Presence, round: u64| {
        let start = std::time::Instant::now();
        while endpoint.presence(NodeId(1)) != presence {
            let found = endpoint.presence(NodeId(1));
            assert!(start.elapsed() < PATIENCE, "{found:?} in round {round}, and not {presence:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    for round in 0..rounds(4) {
        let before = agents.map(|agent| agent.ask(Order::Await));
        world.agent(1).signal(rustix::process::Signal::STOP);
        until(Presence::Suspected(Incarnation(1)), round);
        if round % 2 == 1 {
            // Until those that dial it are silent, too.
            std::thread::sleep(3 * deadline);
        }
        world.agent(1).signal(rustix::process::Signal::CONT);
        until(Presence::Here(Incarnation(1)), round);
        let start = std::time::Instant::now();
        // More calls than can have been answered before it was stopped.
        let all_go_on = || agents.iter().zip(before).all(|(agent, before)| agent.ask(Order::Await) > before + 40);
        while !all_go_on() {
            assert!(start.elapsed() < PATIENCE, "calls are not answered any more in round {round}, after {before:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    for agent in agents {
        agent.ask(Order::Halt);
    }
}

/// A node that has not started is another case than one that the directory does not have.
#[test]
fn a_node_that_has_not_joined_yet_is_not_unknown() {
    let addresses = Addresses::new();
    let first = join(&NoHtm, &addresses.config(NodeId(0), 1));
    let endpoint = first.endpoint(NodeId(0)).expect("room");
    let call = |node| block_on(&endpoint, endpoint.during(Phase::Other).send(node, b""));
    let (late, unknown) = (NodeId(1), NodeId(NODES));
    assert_eq!(call(late), Err(VerbError::NotJoined { node: late }));
    assert_eq!(endpoint.reconnect(late), Err(VerbError::NotJoined { node: late }));
    assert_eq!(call(unknown), Err(VerbError::UnknownNode { node: unknown }));
    let second = join(&NoHtm, &addresses.config(late, 1));
    assert_eq!(call(late), Ok(()));
    drop(second);
}

/// A second process that was given a node's number is refused by all, wherever it listens, and the
/// node stays a member.
#[test]
fn a_second_process_with_a_nodes_number_is_refused_by_all() {
    let addresses = Addresses::new();
    let (holder, elsewhere) = (NodeId(1), addresses.of(NodeId(7)));
    let _third = join(&NoHtm, &addresses.config(NodeId(0), 1));
    let held = join(&NoHtm, &addresses.config(holder, 1));
    let other = join(&NoHtm, &addresses.config(NodeId(2), 1));
    let everywhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), elsewhere.port());
    // What is told the whole directory finds out by itself.
    for listens in [elsewhere, everywhere] {
        let config = TcpConfig::new(holder, listens, KEY).incarnation(Incarnation(2)).patience(PATIENCE);
        let config = (0..4).map(NodeId).fold(config, |config, peer| config.peer(peer, addresses.of(peer)));
        let error = try_join(&NoHtm, &config).expect_err("another has its number");
        assert!(matches!(error, TcpError::OwnAddress { node: NodeId(1), .. }), "{error}");
    }
    // What is not is told by each node that it meets, of which the holder of its number is none.
    for (listens, met) in [(elsewhere, 0), (elsewhere, 2), (everywhere, 0), (everywhere, 2)] {
        let config = TcpConfig::new(holder, listens, KEY).incarnation(Incarnation(2)).patience(PATIENCE);
        let config = config.peer(NodeId(met), addresses.of(NodeId(met)));
        let error = try_join(&NoHtm, &config).expect_err("another has its number");
        assert!(matches!(error, TcpError::Elsewhere { node, .. } if node == NodeId(met)), "{error}");
    }
    // The holder itself is another node to it, if it is one at all.
    let config = TcpConfig::new(holder, elsewhere, KEY).incarnation(Incarnation(2)).patience(PATIENCE);
    let config = config.peer(NodeId(5), addresses.of(holder));
    let error = try_join(&NoHtm, &config).expect_err("not node 5");
    assert!(matches!(error, TcpError::Addressee { node: NodeId(5) }), "{error}");
    let endpoint = other.endpoint(NodeId(2)).expect("room");
    for node in [NodeId(0), holder] {
        assert_eq!(endpoint.presence(node), Presence::Here(Incarnation(1)), "it stays");
        assert_eq!(block_on(&endpoint, endpoint.during(Phase::Other).send(node, b"")), Ok(()));
    }
    // Behind a mapped port, it says where peers reach it.
    drop(held);
    let config = TcpConfig::new(holder, elsewhere, KEY).incarnation(Incarnation(2)).advertise(addresses.of(holder));
    let mapped = join(&NoHtm, &config.peer(NodeId(2), addresses.of(NodeId(2))));
    assert_eq!(endpoint.presence(holder), Presence::Here(mapped.incarnation()));
}

/// A node that goes on though it was revoked knows that, and takes the other one for living.
#[test]
fn a_node_that_is_revoked_hears_of_it() {
    let addresses = Addresses::new();
    let [first, second] = [0, 1].map(|node| join(&NoHtm, &addresses.config(NodeId(node), 1)));
    let endpoint = second.endpoint(NodeId(1)).expect("room");
    assert!(!endpoint.is_refused_by(NodeId(0)));
    while !first.revoke(NodeId(0), NodeId(1), Incarnation(1)).expect("it is another node") {
        std::thread::yield_now();
    }
    let heard = endpoint.until(|| endpoint.is_refused_by(NodeId(0)));
    block_on(&endpoint, endpoint.before(endpoint.now() + PATIENCE, heard)).expect("it is told");
    assert!(!matches!(endpoint.presence(NodeId(0)), Presence::Died(_)));
}

/// Connections break at any moment. What was acknowledged has happened once; of the rest, each once
/// or not at all.
#[test]
fn atomics_happen_once_or_their_error_says_that_it_is_not_known() {
    let rest = TcpMood::default();
    let world = World::<Together<NoHtm>>::new(2, rest);
    let endpoint = world.endpoint();
    let verbs = endpoint.during(Phase::Other);
    let (at, swapped) = (word(1, 0), word(1, 64));
    let (mut done, mut unknown, mut without_effect) = (0_u64, 0_u64, 0_u64);
    let (agent, over) = (world.agent(1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Acquire) {
                std::thread::sleep(Duration::from_micros(700));
                agent.break_connections();
            }
        });
        let _over = Sets(&over);
        let mut last = 0;
        while unknown < rounds(40) {
            let outcomes = run(&endpoint, 8, |_| verbs.fetch_add(at, 1));
            for outcome in outcomes {
                match outcome {
                    Ok(_) => done += 1,
                    Err(error) if error.may_have_taken_effect() => unknown += 1,
                    Err(error) => {
                        assert!(error.is_departure(), "{error}");
                        without_effect += 1;
                    }
                }
            }
            // A swap that is not known is looked up: it has happened as a whole, or not at all.
            endpoint.reconnect(NodeId(1)).expect("it is here");
            match block_on(&endpoint, verbs.compare_swap(swapped, last, last + 1)) {
                Ok(found) => {
                    assert_eq!(found, last);
                    last += 1;
                }
                Err(error) => {
                    endpoint.reconnect(NodeId(1)).expect("it is here");
                    let found = loop {
                        match block_on(&endpoint, verbs.read_word(swapped)) {
                            Ok(found) => break found,
                            Err(_) => drop(endpoint.reconnect(NodeId(1)).expect("it is here")),
                        }
                    };
                    let may = error.may_have_taken_effect();
                    assert!(found == last || (may && found == last + 1), "{found} after {last}: {error}");
                    last = found;
                }
            }
            endpoint.reconnect(NodeId(1)).expect("it is here");
        }
    });
    let found = world.load(at);
    println!("{done} done, {unknown} unknown, {without_effect} without effect; {found} found");
    assert!((done..=done + unknown).contains(&found), "{found} of {done} and {unknown}");
}

/// A node that asks for what it may not join gets an error that says why.
#[test]
fn what_does_not_fit_cannot_join() {
    let addresses = Addresses::new();
    let config = |node, incarnation| addresses.config(NodeId(node), incarnation);
    let _first = join(&NoHtm, &config(0, 5));
    let fails = |config: TcpConfig| TcpFabric::join(NoHtm, config).expect_err("it does not fit");
    let other_key = TcpConfig::new(NodeId(1), addresses.of(NodeId(1)), [9; 32]);
    let error = fails(other_key.peer(NodeId(0), addresses.of(NodeId(0))));
    assert!(matches!(error, TcpError::Refused { node: NodeId(0) }), "{error}");
    let error = fails(config(1, 1).sealed(false));
    assert!(matches!(error, TcpError::Sealing { node: NodeId(0) }), "{error}");
    let wrong_place = TcpConfig::new(NodeId(1), addresses.of(NodeId(1)), KEY);
    let error = fails(wrong_place.peer(NodeId(2), addresses.of(NodeId(0))));
    assert!(matches!(error, TcpError::Addressee { node: NodeId(2) }), "{error}");
    let emulated = TcpFabric::join(Emulated::default(), config(1, 1)).expect_err("another engine");
    assert!(matches!(emulated, TcpError::Engine { node: NodeId(0) }), "{emulated}");
    let second = join(&NoHtm, &config(1, 7));
    drop(second);
    let error = fails(config(1, 7));
    assert!(matches!(error, TcpError::Stale { node: NodeId(0), incarnation: Incarnation(7) }), "{error}");
    assert_eq!(join(&NoHtm, &config(1, 8)).incarnation(), Incarnation(8));
}

/// Nodes that all start at once find each other.
#[test]
fn nodes_may_start_in_any_order() {
    for _ in 0..rounds(5) {
        let addresses = Addresses::new();
        let fabrics: Vec<_> = std::thread::scope(|scope| {
            let start = |node| scope.spawn(move || join(&NoHtm, &addresses.config(NodeId(node), 1)));
            let threads: Vec<_> = (0..4).map(start).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        for fabric in &fabrics {
            let endpoint = fabric.endpoint(fabric.node()).expect("room");
            let mut executor = Executor::new(&endpoint).patience(PATIENCE);
            executor.spawn(
                endpoint.until(|| (0..4).all(|node| endpoint.presence(NodeId(node)) == Presence::Here(Incarnation(1)))),
            );
            executor.run();
        }
    }
}

/// What has a node's number and the key, and is where the node was before it was replaced, is not
/// the node.
#[test]
fn a_node_that_was_replaced_is_refused_where_it_was() {
    let addresses = Addresses::new();
    let (replaced, elsewhere) = (NodeId(1), addresses.of(NodeId(7)));
    let first = join(&NoHtm, &addresses.config(NodeId(0), 1));
    let before = join(&NoHtm, &addresses.config(replaced, 1));
    let endpoint = first.endpoint(NodeId(0)).expect("room");
    assert_eq!(endpoint.presence(replaced), Presence::Here(Incarnation(1)));
    first.relocate(NodeId(0), replaced, elsewhere).expect("it is in the directory");
    assert_eq!(first.address_of(replaced), Some(elsewhere));
    let ends = endpoint.until(|| matches!(endpoint.presence(replaced), Presence::Died(Incarnation(1))));
    block_on(&endpoint, endpoint.before(endpoint.now() + PATIENCE, ends)).expect("it runs, and is not the node");
    drop(before);
    // It is started again, and is later than what replaces it.
    let config = |listens, life| {
        let config = TcpConfig::new(replaced, listens, KEY).incarnation(Incarnation(life)).patience(PATIENCE);
        config.peer(NodeId(0), addresses.of(NodeId(0)))
    };
    let error = try_join(&NoHtm, &config(addresses.of(replaced), 9)).expect_err("it was replaced");
    assert!(matches!(error, TcpError::Elsewhere { node: NodeId(0), .. }), "{error}");
    let after = join(&NoHtm, &config(elsewhere, 2));
    assert_eq!(endpoint.presence(replaced), Presence::Here(Incarnation(2)));
    assert_eq!(block_on(&endpoint, endpoint.during(Phase::Other).send(replaced, b"")), Ok(()));
    // Once more is as once.
    first.relocate(NodeId(0), replaced, elsewhere).expect("it is in the directory");
    assert_eq!(endpoint.presence(replaced), Presence::Here(Incarnation(2)));
    drop(after);
}
