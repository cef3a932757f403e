//! Transports of tests: between voters of one process, with faults, and by TCP.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, HashSet},
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, OnceLock, Weak,
        mpsc::{self, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use drtm_membership::{Raft, Transport, Voter};

/// Connects voters of one process, by their addresses.
#[derive(Default)]
pub(crate) struct Hub {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    nodes: HashMap<String, Weak<Raft>>,
    /// Addresses that do not hear each other.
    cut: HashSet<(String, String)>,
    faults: Faults,
    random: fastrand::Rng,
    /// When which message arrives where.
    late: BinaryHeap<Reverse<(Instant, u64)>>,
    messages: BTreeMap<u64, (String, Vec<u8>)>,
    sent: u64,
    /// Bytes of the longest message.
    longest: usize,
    is_closed: bool,
}

/// What happens to messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) lost: f64,
    pub(crate) repeated: f64,
    pub(crate) delay: Duration,
}

impl Hub {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        let hub = Arc::new(Self::default());
        hub.state.lock().expect("no panic").random = fastrand::Rng::with_seed(seed);
        let delivering = Arc::clone(&hub);
        thread::spawn(move || delivering.deliver());
        hub
    }

    pub(crate) fn close(&self) {
        self.state.lock().expect("no panic").is_closed = true;
        self.changed.notify_all();
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.state.lock().expect("no panic").faults = faults;
    }

    /// Divides the nodes: those of different parts do not hear each other.
    pub(crate) fn divide(&self, parts: &[&[&str]]) {
        let mut state = self.state.lock().expect("no panic");
        state.cut.clear();
        for (at, part) in parts.iter().enumerate() {
            for other in parts.iter().enumerate().filter(|(other, _)| *other != at).flat_map(|(_, part)| part.iter()) {
                state.cut.extend(part.iter().map(|one| (one.to_string(), other.to_string())));
            }
        }
    }

    /// Makes a node's end of the hub.
    pub(crate) fn end(self: &Arc<Self>, address: &str) -> Arc<dyn Transport> {
        Arc::new(End { hub: Arc::clone(self), address: address.to_owned() })
    }

    pub(crate) fn attach(&self, address: &str, node: &Arc<Raft>) {
        self.state.lock().expect("no panic").nodes.insert(address.to_owned(), Arc::downgrade(node));
    }

    pub(crate) fn longest(&self) -> usize {
        self.state.lock().expect("no panic").longest
    }

    fn send(&self, from: &str, to: &str, message: Vec<u8>) {
        let mut state = self.state.lock().expect("no panic");
        state.longest = state.longest.max(message.len());
        let Faults { lost, repeated, delay } = state.faults;
        let times = 1 + usize::from(state.random.f64() < repeated);
        for _ in 0..times {
            if state.random.f64() < lost || state.cut.contains(&(from.to_owned(), to.to_owned())) {
                continue;
            }
            let arrives = Instant::now() + delay.mul_f64(state.random.f64());
            state.sent += 1;
            let number = state.sent;
            state.late.push(Reverse((arrives, number)));
            state.messages.insert(number, (to.to_owned(), message.clone()));
        }
        self.changed.notify_all();
    }

    fn deliver(&self) {
        let mut state = self.state.lock().expect("no panic");
        while !state.is_closed {
            let now = Instant::now();
            let first = state.late.peek().map(|Reverse(first)| *first);
            state = match first {
                Some((arrives, number)) if arrives <= now => {
                    state.late.pop();
                    let (to, message) = state.messages.remove(&number).expect("it is under way");
                    let node = state.nodes.get(&to).and_then(Weak::upgrade);
                    drop(state);
                    if let Some(node) = node {
                        // Messages to a former voter of the node are refused.
                        let _ = node.receive(&message);
                        drop(node);
                    }
                    self.state.lock().expect("no panic")
                }
                Some((arrives, _)) => self.changed.wait_timeout(state, arrives - now).expect("no panic").0,
                None => self.changed.wait(state).expect("no panic"),
            };
        }
    }
}

struct End {
    hub: Arc<Hub>,
    address: String,
}

impl Transport for End {
    fn send(&self, to: &Voter, message: Vec<u8>) {
        self.hub.send(&self.address, &to.address, message);
    }
}

/// Connects processes by TCP on the loopback interface: a connection and a thread for each peer.
#[derive(Default)]
pub(crate) struct Tcp {
    peers: Mutex<HashMap<String, SyncSender<Vec<u8>>>>,
    node: OnceLock<Weak<Raft>>,
}

/// Messages to a peer that wait. More are dropped.
const WAITING: usize = 256;

impl Tcp {
    /// Listens at an address, and hands what arrives to the node.
    pub(crate) fn listen(address: &str) -> Arc<Self> {
        let listener = TcpListener::bind(address).expect("the port is this process's");
        let tcp = Arc::new(Self::default());
        let its = Arc::clone(&tcp);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, tcp) = (stream.expect("a connection"), Arc::clone(&its));
                thread::spawn(move || tcp.take(stream));
            }
        });
        tcp
    }

    pub(crate) fn attach(&self, node: &Arc<Raft>) {
        self.node.set(Arc::downgrade(node)).expect("once");
    }

    /// Takes messages until the connection ends.
    fn take(&self, mut stream: TcpStream) -> Option<()> {
        loop {
            let mut length = [0; 4];
            stream.read_exact(&mut length).ok()?;
            let mut message = vec![0; u32::from_le_bytes(length) as usize];
            stream.read_exact(&mut message).ok()?;
            let node = self.node.get().and_then(Weak::upgrade)?;
            // Messages to a former voter of the node are refused.
            let _ = node.receive(&message);
        }
    }
}

impl Transport for Tcp {
    fn send(&self, to: &Voter, message: Vec<u8>) {
        let mut peers = self.peers.lock().expect("no panic");
        let peer = peers.entry(to.address.clone()).or_insert_with(|| {
            let (sender, receiver) = mpsc::sync_channel::<Vec<u8>>(WAITING);
            let address = to.address.clone();
            thread::spawn(move || {
                let mut stream = None;
                for message in receiver {
                    if stream.is_none() {
                        stream = TcpStream::connect(&address).ok();
                    }
                    let frame = [&(message.len() as u32).to_le_bytes()[..], &message].concat();
                    if stream.as_mut().is_some_and(|stream| stream.write_all(&frame).is_err()) {
                        stream = None;
                    }
                }
            });
            sender
        });
        // A full queue drops the message, as a transport may.
        let _ = peer.try_send(message);
    }
}
