//! The fabric of processes, as the suite makes it: the test is node 0, and each other node is a
//! process of its own, which is this very program, told to be an agent.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use drtm_htm::NoHtm;
use drtm_rdma::{Buffers, Fabric, NodeId, Offset, Region, RegionId, ShmConfig, ShmFabric};

use crate::{
    agent::{Agent, Order, PATIENCE, Service, Site},
    support::{Mood, Testbed, World, fresh, from_a_thread},
};

/// A directory that is there as long as this.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("drtm-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What a failed test leaves there is no second failure.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The fabric of processes.
pub(crate) struct Processes;

#[derive(Clone, Copy, Default)]
pub(crate) struct ShmMood {
    queue_depth: Option<usize>,
    calls: Option<usize>,
    buffers: Option<Buffers>,
}

impl Mood for ShmMood {
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

impl ShmMood {
    /// How a node of the suite's group joins.
    pub(crate) fn config(self, directory: &Path, node: NodeId) -> ShmConfig {
        let mut config = ShmConfig::new("suite", node).directory(directory).patience(PATIENCE);
        if let Some(depth) = self.queue_depth {
            config = config.queue_depth(depth);
        }
        if let Some(calls) = self.calls {
            config = config.calls(calls).ring_bytes(4 << 10);
        }
        if let Some(buffers) = self.buffers {
            config = config.buffers(buffers);
        }
        config
    }

    fn to_arguments(self) -> String {
        let number = |number: Option<usize>| number.map_or_else(String::new, |number| number.to_string());
        format!("{},{}", number(self.queue_depth), number(self.calls))
    }

    fn from_arguments(arguments: &str) -> Self {
        let mut numbers = arguments.split(',').map(|number| number.parse().ok());
        Self { queue_depth: numbers.next().flatten(), calls: numbers.next().flatten(), buffers: None }
    }
}

/// An agent in another process.
pub(crate) struct Process {
    child: Mutex<Child>,
    line: Mutex<BufReader<UnixStream>>,
}

impl Process {
    /// Starts one, which has joined when this returns. `more` is for its environment.
    pub(crate) fn start(directory: &Path, node: NodeId, mood: ShmMood, more: &[(&str, &str)]) -> Self {
        let what = format!("{}:{}", node.0, mood.to_arguments());
        let program = Command::new(std::env::current_exe().expect("this program"));
        Self::launch(program, "processes::be_an_agent", &what, directory, more)
    }

    /// Starts one that is to be `what`, of any fabric.
    pub(crate) fn launch(
        mut program: Command,
        test: &str,
        what: &str,
        directory: &Path,
        more: &[(&str, &str)],
    ) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let path = directory.join(format!("agent-{}", NUMBER.fetch_add(1, Relaxed)));
        let listener = UnixListener::bind(&path).expect("a socket");
        let child = program
            .args([test, "--exact", "--nocapture"])
            .env("DRTM_AGENT", format!("{what}:{}", path.display()))
            .env("DRTM_AGENT_DIRECTORY", directory)
            .envs(more.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("another process");
        let (stream, _) = listener.accept().expect("it calls back");
        let process = Self { child: Mutex::new(child), line: Mutex::new(BufReader::new(stream)) };
        assert_eq!(process.answer(), Some(0), "it has joined");
        process
    }

    /// The next answer; nothing from a process that has ended.
    fn answer(&self) -> Option<u64> {
        let mut answer = String::new();
        let read = self.line.lock().expect("no panic").read_line(&mut answer).ok()?;
        (read > 0).then(|| answer.trim().parse().expect("a number"))
    }

    /// Asks something of a process that may die of it.
    pub(crate) fn try_ask(&self, order: Order) -> Option<u64> {
        let sent = self.line.lock().expect("no panic").get_mut().write_all(written(order).as_bytes());
        sent.ok()?;
        self.answer()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let id = self.child.lock().expect("no panic").id();
        let id = rustix::process::Pid::from_raw(id as i32).expect("a process");
        rustix::process::kill_process(id, signal).expect("it is ours");
        if signal == rustix::process::Signal::STOP {
            // On another processor it may go on for a while.
            let stops = rustix::process::WaitOptions::UNTRACED;
            rustix::process::waitpid(Some(id), stops).expect("it is ours");
        }
    }

    /// KiB of memory that it has.
    pub(crate) fn resident(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// KiB of memory that it had at the most, since that was forgotten last.
    pub(crate) fn peak(&self) -> u64 {
        self.status("VmHWM:")
    }

    pub(crate) fn forget_peak(&self) {
        std::fs::write(self.about("clear_refs"), "5").expect("a process of this user");
    }

    fn status(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(self.about("status")).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a field");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    fn about(&self, file: &str) -> PathBuf {
        format!("/proc/{}/{file}", self.child.lock().expect("no panic").id()).into()
    }

    /// Ends it, as `kill -9` does.
    pub(crate) fn kill(&self) {
        let mut child = self.child.lock().expect("no panic");
        let _ = child.kill();
        child.wait().expect("it ends");
    }
}

impl Agent for Process {
    fn ask(&self, order: Order) -> u64 {
        match (order, self.try_ask(order)) {
            (Order::Die, None) => {
                self.child.lock().expect("no panic").wait().expect("it ends");
                0
            }
            (_, Some(answer)) => answer,
            (_, None) => panic!("the agent has ended over {order:?}"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Testbed for Processes {
    type Mood = ShmMood;
    type Fabric = ShmFabric<NoHtm>;
    type Agent = Process;

    fn start(nodes: u16, mood: ShmMood) -> World<Self> {
        let directory = Directory::new();
        let fabric = ShmFabric::join(NoHtm, mood.config(&directory.0, NodeId(0))).expect("a group");
        let memory = fresh(Region::shared(NoHtm, 1 << 20).expect("a region"));
        assert_eq!(fabric.register(NodeId(0), Arc::clone(&memory)).expect("room"), RegionId(0));
        let agents = (1..nodes).map(|node| Process::start(&directory.0, NodeId(node), mood, &[])).collect();
        World { fabric, memory, agents, _rest: Box::new((directory, mood)) }
    }

    fn restart(world: &mut World<Self>, node: NodeId) {
        let Some((directory, mood)) = world._rest.downcast_ref::<(Directory, ShmMood)>() else {
            unreachable!("put there at the start")
        };
        let place = &mut world.agents[usize::from(node.0) - 1];
        place.kill();
        *place = Process::start(&directory.0, node, *mood, &[]);
    }

    fn own(world: &World<Self>) -> Box<dyn Agent> {
        struct Own(Site<ShmFabric<NoHtm>>);
        impl Agent for Own {
            fn ask(&self, order: Order) -> u64 {
                self.0.obey(order)
            }
        }
        Box::new(Own(Site::new(world.fabric.clone(), NodeId(0), Arc::clone(&world.memory))))
    }

    fn meanwhile(world: &World<Self>, node: u16, order: Order, body: impl FnOnce()) {
        from_a_thread(world.agent(node), order, body);
    }
}

fn written(order: Order) -> String {
    match order {
        Order::Load(at) => format!("load {}\n", at.bytes()),
        Order::Serve(Service::Backwards) => "backwards\n".to_owned(),
        Order::Serve(Service::Square) => "square\n".to_owned(),
        Order::Collect(count) => format!("collect {count}\n"),
        Order::CallAround(nodes, callers) => format!("around {nodes} {callers}\n"),
        Order::KeepCalling(nodes) => format!("keep {nodes}\n"),
        Order::Grow(steps) => format!("grow {steps}\n"),
        Order::Await => "await\n".to_owned(),
        Order::Halt => "halt\n".to_owned(),
        Order::Leave => "leave\n".to_owned(),
        Order::Die => "die\n".to_owned(),
    }
}

fn read(line: &str) -> Order {
    let mut words = line.split_whitespace();
    let verb = words.next().expect("an order");
    let mut number = || words.next().expect("a number").parse::<u64>().expect("a number");
    match verb {
        "load" => Order::Load(Offset::new(number())),
        "backwards" => Order::Serve(Service::Backwards),
        "square" => Order::Serve(Service::Square),
        "collect" => Order::Collect(number()),
        "around" => Order::CallAround(number() as u16, number()),
        "keep" => Order::KeepCalling(number() as u16),
        "grow" => Order::Grow(number()),
        "await" => Order::Await,
        "halt" => Order::Halt,
        "leave" => Order::Leave,
        "die" => Order::Die,
        other => panic!("no order: {other}"),
    }
}

/// No test, but what another process of this program is. Ends with the socket that its orders come
/// by.
#[test]
fn be_an_agent() {
    let (Some(what), Some(directory)) = (std::env::var_os("DRTM_AGENT"), std::env::var_os("DRTM_AGENT_DIRECTORY"))
    else {
        return;
    };
    let what = what.into_string().expect("text");
    let [node, mood, path] = what.splitn(3, ':').collect::<Vec<_>>()[..] else { panic!("node:mood:path, not {what}") };
    let node = NodeId(node.parse().expect("a number"));
    let orders = UnixStream::connect(path).expect("the one that gives orders");
    let config = ShmMood::from_arguments(mood).config(Path::new(&directory), node);
    let fabric = ShmFabric::join(NoHtm, config).expect("the group");
    let memory = fresh(Region::shared(NoHtm, 1 << 20).expect("a region"));
    obey(orders, &fabric, node, memory, || fabric.leave())
}

/// Does what an agent is told, as a node of a fabric, until the end of the orders.
pub(crate) fn obey<F: Fabric>(
    orders: UnixStream,
    fabric: &F,
    node: NodeId,
    memory: Arc<Region<F::Engine>>,
    leave: impl Fn(),
) -> ! {
    let mut answers = orders.try_clone().expect("another handle");
    fabric.register(node, Arc::clone(&memory)).expect("room");
    let site = Site::new(fabric.clone(), node, memory);
    answers.write_all(b"0\n").expect("it listens");
    for line in BufReader::new(orders).lines() {
        let answer = match read(&line.expect("text")) {
            Order::Leave => {
                leave();
                0
            }
            Order::Die => std::process::abort(),
            order => site.obey(order),
        };
        if answers.write_all(format!("{answer}\n").as_bytes()).is_err() {
            break;
        }
    }
    // Whatever goes on in other threads.
    std::process::exit(0);
}
