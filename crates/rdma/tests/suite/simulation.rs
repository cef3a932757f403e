//! A simulated cluster under every fault: what is promised holds, every operation ends, and a run
//! is a function of its configuration.

use std::{
    cell::{Cell, RefCell},
    fmt::Write,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use drtm_htm::{Engine, NoHtm};
use drtm_rdma::{
    Chances, Fabric, Fault, NicProfile, NodeId, Phase, Port, Presence, Region, RegionId, Remains, Remote, RunEnd, Sim,
    SimConfig, Spawner, Trace, Transport, VerbError, Verbs, block_on,
    rpc::{Procedure, Refused, Rpc, RpcError, serve},
};
use drtm_testing::rounds;

use crate::support::{BASE, LOSSY, fresh, word};

const NODES: u16 = 4;
const WORKERS: u64 = 2;
const COROUTINES: u64 = 3;
const TURNS: u64 = 12;

/// Adds to a node's counter, and gives what it was.
enum Add {}

impl Procedure for Add {
    const NUMBER: u16 = 1;
    type Request<'a> = (u64, &'a [u8]);
    type Reply<'a> = u64;
}

/// What coroutines know of what they have done to one counter.
#[derive(Default)]
struct Books {
    /// Additions that were carried out, and that may have been.
    certain: Cell<u64>,
    possible: Cell<u64>,
    errors: Cell<u64>,
}

impl Books {
    /// Something begins, of which a crash may keep the end from being noted.
    fn begin(&self) {
        self.possible.set(self.possible.get() + 1);
    }

    fn end(&self, done: bool, may_be: bool) {
        self.certain.set(self.certain.get() + u64::from(done));
        self.possible.set(self.possible.get() - u64::from(!done && !may_be));
        self.errors.set(self.errors.get() + u64::from(!done));
    }

    fn check(&self, found: u64, what: &str) {
        let (certain, possible) = (self.certain.get(), self.possible.get());
        assert!((certain..=possible).contains(&found), "{what}: {found} is not within {certain} and {possible}");
    }
}

/// A cluster whose nodes count: by verbs in word 0, and by calls in word 8.
struct Counting {
    sim: Sim<NoHtm>,
    memory: Vec<Arc<Region<NoHtm>>>,
    /// For each node.
    verbs: Rc<Vec<Books>>,
    calls: Rc<Vec<Books>>,
    done: Rc<Cell<u64>>,
}

impl Counting {
    fn new(config: SimConfig) -> Self {
        let sim = Sim::new(NODES, config);
        let memory = (0..NODES).map(|node| {
            let memory = fresh(Region::anonymous(NoHtm, 1 << 20).expect("a region"));
            assert_eq!(sim.fabric().register(NodeId(node), Arc::clone(&memory)), Ok(RegionId(0)));
            memory
        });
        let books = || Rc::new((0..NODES).map(|_| Books::default()).collect());
        Self { memory: memory.collect(), sim, verbs: books(), calls: books(), done: Rc::default() }
    }

    /// A worker of a node that answers calls, and takes part with its coroutines.
    fn start(&self, node: NodeId, seed: u64) {
        let memory = Arc::clone(&self.memory[usize::from(node.0)]);
        let (by_verbs, by_calls, done) = (Rc::clone(&self.verbs), Rc::clone(&self.calls), Rc::clone(&self.done));
        let started = self.sim.serve(node, move |worker| {
            answer(&worker, memory);
            let verbs = worker.endpoint().during(Phase::Execute);
            for coroutine in 0..COROUTINES {
                let (by_verbs, by_calls, done) = (Rc::clone(&by_verbs), Rc::clone(&by_calls), Rc::clone(&done));
                let random = fastrand::Rng::with_seed(seed * 100 + coroutine);
                let counts = async move {
                    take_part(verbs, &by_verbs, &by_calls, random).await;
                    done.set(done.get() + 1);
                };
                worker.spawn(counts).expect("it runs");
            }
        });
        started.expect("an endpoint");
    }

    fn start_all(&self, seed: u64) {
        for node in 0..NODES {
            for worker in 0..WORKERS {
                self.start(NodeId(node), seed * 1_000 + u64::from(node) * 10 + worker);
            }
        }
    }

    /// Until so many coroutines are done.
    fn until_done(&self, count: u64) {
        let start = self.sim.elapsed();
        while self.done.get() < count {
            assert!(self.sim.elapsed() - start < Duration::from_secs(30), "{} are done", self.done.get());
            self.sim.run_for(Duration::from_micros(100));
        }
    }

    fn found(&self, node: u16, index: u64) -> u64 {
        NoHtm.load(&self.memory[usize::from(node)].words(word(node, index).offset, 1).expect("a word")[0])
    }

    fn check(&self) {
        for node in 0..NODES {
            self.verbs[usize::from(node)].check(self.found(node, 0), "additions by verbs");
            self.calls[usize::from(node)].check(self.found(node, 8), "additions by calls");
        }
    }

    fn errors(&self) -> u64 {
        self.verbs.iter().chain(&*self.calls).map(|books| books.errors.get()).sum()
    }
}

fn answer<'f, P: Port>(worker: &Spawner<'f, P>, memory: Arc<Region<NoHtm>>) {
    let verbs = worker.endpoint().during(Phase::Other);
    let service = async move {
        let handle = |call: drtm_rdma::rpc::Incoming<'_>| match call.procedure() {
            Add::NUMBER => call.answer::<Add>(|(add, padding)| match padding.len() {
                0..=64 => Ok(NoHtm.fetch_add(&memory.words(BASE + 64, 1).expect("a word")[0], add)),
                _ => Err(Refused(413)),
            }),
            _ => call.unknown(),
        };
        serve(verbs, handle).await
    };
    worker.serve(service).expect("it runs");
}

/// Adds here and there, and goes on after whatever error.
async fn take_part<P: Port>(verbs: Verbs<'_, P>, by_verbs: &[Books], by_calls: &[Books], mut random: fastrand::Rng) {
    let endpoint = verbs.endpoint();
    let rpc = Rpc::new(verbs);
    let padding = [7; 64];
    for _ in 0..TURNS {
        let node = random.u16(0..NODES);
        let index = usize::from(node);
        let failed = if random.bool() {
            by_verbs[index].begin();
            let added = verbs.fetch_add(word(node, 0), 1).await;
            by_verbs[index].end(added.is_ok(), added.err().is_some_and(|error| error.may_have_taken_effect()));
            added.is_err()
        } else {
            // Two calls in one message, with a deadline.
            let deadline = endpoint.now() + Duration::from_millis(2);
            let mut calls = rpc.to(NodeId(node));
            let padding = &padding[..random.usize(0..64)];
            let slots = [(); 2].map(|()| calls.add::<Add>(&(1, padding)).expect("room"));
            for _ in &slots {
                by_calls[index].begin();
            }
            match calls.send(Some(deadline)).await {
                Ok(results) => {
                    for slot in &slots {
                        let result = results.get(slot);
                        by_calls[index].end(result.is_ok(), result.is_err_and(|error| !error.is_certain()));
                    }
                    false
                }
                Err(error) => {
                    for _ in slots {
                        by_calls[index].end(false, !error.is_certain());
                    }
                    true
                }
            }
        };
        // Something larger, which may be torn, and whose value does not matter.
        let at = word(node, 64 + random.u64(0..64));
        let _ = verbs.write(at, &[random.u64(..); 20]).await;
        let _ = verbs.read(at, 20).await.map(|words| words.len());
        if failed {
            endpoint.sleep(Duration::from_micros(random.u64(50..300))).await;
            let _ = endpoint.reconnect(NodeId(node));
        }
    }
}

const ALL: u64 = NODES as u64 * WORKERS * COROUTINES;

/// Faults of every kind, at times that depend on the seed, under which all coroutines of the nodes
/// that do not crash come to their end.
fn everything(seed: u64) -> Trace {
    let transport = if seed.is_multiple_of(2) { Transport::Connection } else { Transport::Datagrams };
    let config = SimConfig::harsh(seed).transport(transport).clock(NodeId(2), -3_000_000, 50_000);
    let counting = Counting::new(config);
    let sim = &counting.sim;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut at = |sim: &Sim<NoHtm>, fault| sim.plan(Duration::from_micros(random.u64(1..200)), fault);
    at(sim, Fault::Partition(vec![NodeId(0), NodeId(1)]));
    at(sim, Fault::Stall { node: NodeId(1), lasts: Duration::from_micros(70) });
    at(sim, Fault::Clock { node: NodeId(2), skew: 1_000_000, drift: -20_000 });
    at(sim, Fault::Chances(LOSSY));
    at(sim, Fault::Crash { node: NodeId(3) });
    let remains = if seed.is_multiple_of(3) { Remains::Nothing } else { Remains::Memory };
    sim.plan(Duration::from_micros(300), Fault::Heal);
    sim.plan(Duration::from_micros(400), Fault::Restart { node: NodeId(3), remains });
    sim.plan(Duration::from_micros(700), Fault::Chances(Chances::NONE));
    counting.start_all(seed);
    counting.until_done(ALL - WORKERS * COROUTINES);
    assert!(sim.presence(NodeId(3)).last().is_some());
    counting.check();
    sim.trace()
}

/// Traces of a hundred seeds, as they were when they were last looked at, whatever the build. When
/// the model changes, so do they: `DRTM_RECORD=1` writes them anew.
#[test]
fn traces_are_the_same_in_every_run_and_build() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/sim-traces.txt");
    let mut found = String::new();
    for seed in 0..100 {
        let trace = everything(seed);
        writeln!(found, "{seed} {:016x} {}", trace.hash, trace.events).expect("a string");
    }
    if std::env::var_os("DRTM_RECORD").is_some() {
        return std::fs::write(path, found).expect("the file");
    }
    let recorded = std::fs::read_to_string(path).expect("the recorded traces");
    for (found, recorded) in found.lines().zip(recorded.lines()) {
        assert_eq!(found, recorded, "seed, hash, events");
    }
    assert_eq!(found.lines().count(), recorded.lines().count());
    let mut hashes: Vec<_> = found.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 100, "another seed is another run");
}

#[test]
fn the_same_seed_twice_is_the_same_run() {
    for seed in 0..rounds(10) {
        assert_eq!(everything(1_000 + seed), everything(1_000 + seed));
    }
}

/// What it is called, what happens after so many microseconds, and whether something breaks.
type Named = (&'static str, Vec<(u64, Fault)>, bool);

/// One kind of fault after the other.
#[test]
fn what_is_promised_holds_under_each_fault() {
    let chances = |chances| Fault::Chances(chances);
    let faults: Vec<Named> = vec![
        ("nothing", vec![], false),
        (
            "delay",
            vec![(0, chances(Chances { delay: 0.3, at_most: Duration::from_micros(100), ..Chances::NONE }))],
            false,
        ),
        ("loss", vec![(0, chances(Chances { loss: 0.1, ..Chances::NONE }))], false),
        ("partition", vec![(20, Fault::Partition(vec![NodeId(0), NodeId(3)])), (900, Fault::Heal)], true),
        ("crash", vec![(20, Fault::Crash { node: NodeId(3) })], true),
        (
            "crash and restart with memory",
            vec![
                (20, Fault::Crash { node: NodeId(3) }),
                (200, Fault::Restart { node: NodeId(3), remains: Remains::Memory }),
            ],
            true,
        ),
        (
            "crash and restart without memory",
            vec![
                (20, Fault::Crash { node: NodeId(3) }),
                (200, Fault::Restart { node: NodeId(3), remains: Remains::Nothing }),
            ],
            true,
        ),
        ("leave", vec![(20, Fault::Leave { node: NodeId(3) })], true),
        ("stall", vec![(10, Fault::Stall { node: NodeId(1), lasts: Duration::from_micros(500) })], false),
        ("skew", vec![(10, Fault::Clock { node: NodeId(1), skew: 10_000_000, drift: 0 })], false),
        ("drift", vec![(0, Fault::Clock { node: NodeId(1), skew: -10_000_000, drift: 1_000_000 })], false),
    ];
    for (name, faults, breaks) in faults {
        for (mood, config) in [("plain", SimConfig::new(&NicProfile::CONNECTX_4)), ("harsh", SimConfig::harsh(3))] {
            let counting = Counting::new(config.seed(5));
            for (micros, fault) in &faults {
                counting.sim.plan(Duration::from_micros(*micros), fault.clone());
            }
            counting.start_all(5);
            let crashes = faults.iter().any(|(_, fault)| matches!(fault, Fault::Crash { .. }));
            counting.until_done(if crashes { ALL - WORKERS * COROUTINES } else { ALL });
            counting.check();
            assert!(!breaks || counting.errors() > 0, "{name}, {mood}: nothing was noticed");
            let may_time_out = mood == "harsh" || matches!(name, "loss" | "delay" | "skew" | "drift" | "stall");
            assert!(breaks || may_time_out || counting.errors() == 0, "{name}, {mood}: {} errors", counting.errors());
        }
    }
}

/// A cluster whose messages go by datagrams.
fn by_datagrams() -> SimConfig {
    SimConfig::new(&NicProfile::CONNECTX_4).transport(Transport::Datagrams)
}

/// Two nodes, of which one answers calls by the request. Gives an endpoint of the other.
fn echoing(config: SimConfig) -> (Sim<NoHtm>, drtm_rdma::Endpoint<drtm_rdma::SimPort<NoHtm>>) {
    let sim = Sim::<NoHtm>::new(2, config);
    let serves = |worker: Spawner<'_, _>| {
        let verbs = worker.endpoint().during(Phase::Other);
        worker.serve(verbs.serve(|_, request, reply| reply.extend_from_slice(request))).expect("it runs");
    };
    sim.serve(NodeId(1), serves).expect("a node");
    let endpoint = sim.fabric().endpoint(NodeId(0)).expect("an endpoint");
    (sim, endpoint)
}

/// Where nothing is lost, a call is two datagrams: nothing else happens until the next look for
/// losses.
#[test]
fn a_call_by_datagrams_is_two_of_them() {
    let events = |calls: u64, bytes: usize| {
        let sim = Sim::<NoHtm>::new(2, by_datagrams());
        let serves = |worker: Spawner<'_, _>| {
            let verbs = worker.endpoint().during(Phase::Other);
            worker.serve(verbs.serve(|_, _, reply| reply.push(1))).expect("it runs");
        };
        sim.serve(NodeId(1), serves).expect("a node");
        let asks = move |worker: Spawner<'_, _>| {
            let verbs = worker.endpoint().during(Phase::Other);
            let ask = async move {
                for _ in 0..calls {
                    verbs.call(NodeId(1), &vec![7; bytes]).await.expect("a reply");
                }
            };
            worker.spawn(ask).expect("it runs");
        };
        sim.spawn(NodeId(0), asks).expect("a node");
        assert_eq!(sim.run(), RunEnd::Done);
        sim.trace().events
    };
    // At the NICs: the call is issued and arrives, the reply is sent and arrives. The rest are
    // turns of the two workers. Each look for losses would be one more.
    let one = events(101, 8) - events(1, 8);
    assert_eq!(one % 100, 0, "each call is like the others");
    assert_eq!(one / 100, EVENTS_OF_A_CALL);
    // A call of three datagrams has two more that arrive.
    assert_eq!(events(101, 10_000) - events(1, 10_000), one + 200);
}

const EVENTS_OF_A_CALL: u64 = 9;

/// However many are lost, doubled and late: all messages arrive once and in order, and calls have
/// their replies.
#[test]
fn datagrams_that_are_lost_are_mended() {
    const COUNT: u64 = 60;
    for seed in 0..rounds(20) {
        let chances = Chances { loss: 0.2, duplicate: 0.3, delay: 0.2, at_most: Duration::from_micros(200) };
        let sim = Sim::<NoHtm>::new(2, by_datagrams().seed(seed).chances(chances).mailbox(20));
        let heard = Rc::new(RefCell::new(Vec::new()));
        let hears = Rc::clone(&heard);
        let start = move |worker: Spawner<'_, drtm_rdma::SimPort<NoHtm>>| {
            let verbs = worker.endpoint().during(Phase::Other);
            let hear = async move {
                loop {
                    let message = verbs.recv().await;
                    let number = u64::from_le_bytes(*message.first_chunk().expect("a number"));
                    hears.borrow_mut().push(number);
                    if message.is_call() {
                        let reply = [&number.to_le_bytes()[..], &[3; 9_000]].concat();
                        message.reply(&reply).expect("it is short");
                    }
                }
            };
            worker.serve(hear).expect("it runs");
        };
        sim.serve(NodeId(1), start).expect("a node");
        let endpoint = sim.fabric().endpoint(NodeId(0)).expect("an endpoint");
        let verbs = endpoint.during(Phase::Other);
        for number in 0..COUNT {
            let mut bytes = number.to_le_bytes().to_vec();
            match number % 4 {
                0 => {
                    bytes.resize(10_000, 7);
                    let reply = block_on(&endpoint, verbs.call(NodeId(1), &bytes)).expect("a reply");
                    assert_eq!((reply.len(), &reply[..8]), (9_008, &bytes[..8]));
                }
                1 => block_on(&endpoint, verbs.send(NodeId(1), &bytes)).expect("it is delivered"),
                _ => {
                    let mut batch = verbs.batch();
                    batch.send(NodeId(1), &bytes).expect("room").unsignaled();
                    batch.ring();
                }
            }
            if number % 4 < 2 {
                assert_eq!(heard.borrow().last(), Some(&number), "it was delivered when it was complete");
            }
        }
        sim.run_for(Duration::from_secs(1));
        assert_eq!(*heard.borrow(), (0..COUNT).collect::<Vec<_>>(), "once, and in order");
    }
}

/// A node that is alive and does not receive takes no more than its mailbox and the window have
/// room for; what else is posted waits.
#[test]
fn messages_by_datagram_wait_for_room() {
    const COUNT: u64 = 200;
    let sim = Sim::<NoHtm>::new(2, by_datagrams().mailbox(4).queue_depth(300));
    let endpoint = sim.fabric().endpoint(NodeId(0)).expect("an endpoint");
    let verbs = endpoint.during(Phase::Other);
    let mut batch = verbs.batch();
    for number in 0..COUNT {
        batch.send(NodeId(1), &number.to_le_bytes()).expect("room").unsignaled();
    }
    batch.ring();
    let start = endpoint.now();
    while endpoint.now().since(start) < Duration::from_millis(300) {
        endpoint.progress();
    }
    assert!(!endpoint.needs_reconnect(NodeId(1)), "it answers probes");
    let there = sim.fabric().endpoint(NodeId(1)).expect("an endpoint");
    for number in 0..COUNT {
        let message = block_on(&there, async { Ok::<_, VerbError>(there.during(Phase::Other).recv().await) });
        assert_eq!(message.expect("one comes")[..], number.to_le_bytes());
    }
}

/// A silent node breaks a session, like a connection. Its calls may have taken effect, and those of
/// the next session do not meet the datagrams of this one.
#[test]
fn silence_ends_a_session_and_a_reconnection_begins_another() {
    let probes = (Duration::from_micros(50), Duration::from_millis(2));
    let (sim, endpoint) = echoing(by_datagrams().probes(probes.0, probes.1));
    let verbs = endpoint.during(Phase::Other);
    let call = |bytes: &[u8]| block_on(&endpoint, verbs.call(NodeId(1), bytes)).map(|reply| reply.to_vec());
    assert_eq!(call(b"before"), Ok(b"before".to_vec()));
    sim.befall(Fault::Partition(vec![NodeId(1)])).expect("a node");
    let before = endpoint.now();
    let lost = call(b"during");
    assert!(matches!(lost, Err(VerbError::Disconnected { node: NodeId(1), .. })), "{lost:?}");
    assert!(endpoint.now().since(before) >= probes.1, "it was probed");
    assert!(matches!(call(b"later"), Err(VerbError::Gone { .. })), "broken");
    sim.befall(Fault::Heal).expect("it is divided");
    endpoint.reconnect(NodeId(1)).expect("it is reached again");
    assert_eq!(call(b"after"), Ok(b"after".to_vec()));
    // So does another incarnation.
    sim.befall(Fault::Crash { node: NodeId(1) }).expect("a node");
    assert!(call(b"dead").is_err());
    sim.restart(NodeId(1), Remains::Nothing).expect("it is gone");
    endpoint.reconnect(NodeId(1)).expect("it is here");
    block_on(&endpoint, verbs.send(NodeId(1), b"again")).expect("it is delivered");
}

/// All workers of a node stall, for longer than a silent node is waited for.
#[test]
fn a_stalled_node_is_not_silent() {
    let (sim, endpoint) = echoing(by_datagrams().probes(Duration::from_micros(50), Duration::from_millis(2)));
    let verbs = endpoint.during(Phase::Other);
    sim.befall(Fault::Stall { node: NodeId(1), lasts: Duration::from_millis(20) }).expect("a node");
    assert!(block_on(&endpoint, verbs.call(NodeId(1), b"in a while")).is_ok());
}

/// Datagrams are lost and doubled: calls are carried out once.
#[test]
fn calls_by_datagram_are_carried_out_at_most_once() {
    for seed in 0..rounds(20) {
        let chances = Chances { loss: 0.2, duplicate: 0.3, delay: 0.2, at_most: Duration::from_micros(200) };
        let config = by_datagrams().seed(seed).chances(chances);
        let counting = Counting::new(config);
        counting.start_all(seed);
        counting.until_done(ALL);
        counting.check();
        let certain: u64 = counting.calls.iter().map(|books| books.certain.get()).sum();
        assert!(certain > 0);
    }
}

#[test]
fn a_partition_breaks_connections_and_a_reconnection_mends_them() {
    let sim = Sim::new(2, SimConfig::new(&NicProfile::CONNECTX_4));
    let memory = fresh(Region::anonymous(NoHtm, 1 << 20).expect("a region"));
    sim.fabric().register(NodeId(1), memory).expect("a node");
    let endpoint = sim.fabric().endpoint(NodeId(0)).expect("an endpoint");
    let verbs = endpoint.during(Phase::Other);
    let add = || block_on(&endpoint, verbs.fetch_add(word(1, 0), 1));
    assert_eq!(add(), Ok(0));
    sim.befall(Fault::Partition(vec![NodeId(1)])).expect("a node");
    let before = endpoint.now();
    assert!(add().is_err_and(|error| error.may_have_taken_effect()), "it may have");
    assert!(endpoint.now().since(before) >= Duration::from_micros(7 * 16), "it was tried again");
    assert!(matches!(add(), Err(VerbError::Gone { .. })), "broken");
    assert!(matches!(endpoint.presence(NodeId(1)), Presence::Here(_)), "it is alive");
    assert!(endpoint.reconnect(NodeId(1)).is_err());
    sim.befall(Fault::Heal).expect("it is divided");
    assert!(matches!(add(), Err(VerbError::Gone { .. })), "still broken");
    endpoint.reconnect(NodeId(1)).expect("it is reached again");
    assert_eq!(add(), Ok(1));
}

/// The handler has run, and its reply is lost as often as a connection sends it.
#[test]
fn a_reply_that_is_lost_for_good_breaks_its_connection() {
    for transport in [Transport::Connection, Transport::Datagrams] {
        let config = SimConfig::new(&NicProfile::CONNECTX_4).transport(transport);
        let (sim, endpoint) = echoing(config.probes(Duration::from_micros(50), Duration::from_millis(2)));
        let verbs = endpoint.during(Phase::Other);
        let asking = std::pin::pin!(verbs.call(NodeId(1), b"there"));
        // It arrives while the workers of its node are stalled.
        sim.befall(Fault::Stall { node: NodeId(1), lasts: Duration::from_micros(50) }).expect("a node");
        sim.plan(Duration::from_micros(20), Fault::Partition(vec![NodeId(1)]));
        let asked = block_on(&endpoint, endpoint.before(endpoint.now() + Duration::from_millis(50), asking));
        assert!(matches!(asked, Ok(Err(VerbError::Disconnected { node: NodeId(1), .. }))), "{asked:?}");
    }
}

#[test]
fn a_deadline_passes_while_the_handler_is_stalled() {
    let sim = Sim::<NoHtm>::new(2, SimConfig::new(&NicProfile::CONNECTX_4));
    let memory = fresh(Region::anonymous(NoHtm, 1 << 20).expect("a region"));
    sim.serve(NodeId(1), move |worker| answer(&worker, memory)).expect("a node");
    let endpoint = sim.fabric().endpoint(NodeId(0)).expect("an endpoint");
    let rpc = Rpc::new(endpoint.during(Phase::Other));
    let add = |micros: u64| {
        let deadline = endpoint.now() + Duration::from_micros(micros);
        block_on(&endpoint, rpc.call::<Add>(NodeId(1), &(1, &[]), Some(deadline))).and_then(|one| one.get())
    };
    assert_eq!(add(100), Ok(0));
    assert!(matches!(add(0), Err(RpcError::TooLate { .. })));
    sim.befall(Fault::Stall { node: NodeId(1), lasts: Duration::from_millis(1) }).expect("a node");
    assert!(matches!(add(100), Err(RpcError::Elapsed { .. })));
    assert!(add(5_000).is_ok(), "it goes on");
    let refused = block_on(&endpoint, rpc.call::<Add>(NodeId(1), &(1, &[0; 65]), None)).expect("a reply");
    assert_eq!(refused.get().unwrap_err().refused(), Some(413));
}

#[test]
fn clocks_are_skewed_and_drift() {
    let config = SimConfig::new(&NicProfile::CONNECTX_4).clock(NodeId(1), 5_000_000, 100_000_000);
    let sim = Sim::<NoHtm>::new(2, config);
    let endpoints = [0, 1].map(|node| sim.fabric().endpoint(NodeId(node)).expect("an endpoint"));
    let ahead = || endpoints[1].now().since(endpoints[0].now());
    assert_eq!(ahead(), Duration::from_millis(5));
    sim.run_for(Duration::from_millis(10));
    assert_eq!(ahead(), Duration::from_millis(6), "a tenth of ten");
    // A sleep lasts as long as the sleeper's clock says.
    let start = sim.elapsed();
    block_on(&endpoints[1], endpoints[1].sleep(Duration::from_millis(11)));
    let slept = sim.elapsed() - start;
    assert!((9_999..10_010).contains(&slept.as_micros()), "{slept:?}");
}

/// Time goes on by what things cost, and a READ has the latency that its profile says.
#[test]
fn a_read_takes_what_its_profile_says() {
    for profile in NicProfile::ALL {
        let sim = Sim::new(2, SimConfig::new(profile).jitter(Duration::ZERO));
        let memory = fresh(Region::anonymous(NoHtm, 1 << 20).expect("a region"));
        sim.fabric().register(NodeId(1), memory).expect("a node");
        let took = Rc::new(Cell::new(Duration::ZERO));
        let told = Rc::clone(&took);
        let reads = move |worker: Spawner<'_, _>| {
            let endpoint = worker.endpoint();
            let verbs = endpoint.during(Phase::Other);
            let read = async move {
                // The first one finds no queue pair in the NIC.
                verbs.read_word(word(1, 0)).await.expect("it is there");
                let start = endpoint.now();
                verbs.read_word(word(1, 0)).await.expect("it is there");
                told.set(endpoint.now().since(start));
            };
            worker.spawn(read).expect("it runs");
        };
        sim.spawn(NodeId(0), reads).expect("a node");
        assert_eq!(sim.run(), RunEnd::Done);
        let (least, took) = (profile.round_trip(), took.get());
        assert!(took > least && took < least + Duration::from_micros(1), "{}: {took:?}", profile.name);
    }
}

/// Sixteen nodes of twenty-four workers of ten coroutines.
#[test]
fn a_large_cluster_runs() {
    let config = SimConfig::new(&NicProfile::CONNECTX_4).buffers(drtm_rdma::Buffers { small: 32, medium: 0, large: 0 });
    let sim = Sim::new(16, config);
    for node in 0..16 {
        let memory = fresh(Region::anonymous(NoHtm, 1 << 20).expect("a region"));
        sim.fabric().register(NodeId(node), memory).expect("a node");
    }
    let reads = Rc::new(Cell::new(0_u64));
    let turns = rounds(3);
    for node in 0..16_u16 {
        for seed in 0..24 {
            let reads = Rc::clone(&reads);
            let start = move |worker: Spawner<'_, _>| {
                for coroutine in 0..10 {
                    let (verbs, reads) = (worker.endpoint().during(Phase::Other), Rc::clone(&reads));
                    let mut random = fastrand::Rng::with_seed(u64::from(node) << 32 | seed << 8 | coroutine);
                    let read = async move {
                        for _ in 0..turns {
                            let to = (node + random.u16(1..16)) % 16;
                            verbs.read(word(to, random.u64(0..1_000)), 8).await.expect("it is there");
                            reads.set(reads.get() + 1);
                        }
                    };
                    worker.spawn(read).expect("it runs");
                }
            };
            sim.spawn(NodeId(node), start).expect("a node");
        }
    }
    assert_eq!(sim.run(), RunEnd::Done);
    assert_eq!(reads.get(), 16 * 24 * 10 * turns);
}

/// A worker that panics does so in the run, when its other coroutines have ended.
#[test]
fn a_panic_of_a_coroutine_surfaces() {
    let sim = Sim::<NoHtm>::new(1, SimConfig::new(&NicProfile::CONNECTX_4));
    let log = Rc::new(RefCell::new(Vec::new()));
    let theirs = Rc::clone(&log);
    let start = move |worker: Spawner<'_, drtm_rdma::SimPort<NoHtm>>| {
        let endpoint = worker.endpoint();
        worker.spawn(async { panic!("it breaks") }).expect("it runs");
        let later = async move {
            endpoint.sleep(Duration::from_millis(1)).await;
            theirs.borrow_mut().push("done");
        };
        worker.spawn(later).expect("it runs");
    };
    sim.spawn(NodeId(0), start).expect("a node");
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sim.run())).is_err());
    assert_eq!(*log.borrow(), ["done"]);
    assert_eq!(sim.run(), RunEnd::Done, "it is no more");
}

/// What a simulated NIC misses costs time: five queue pairs to each node are more than it holds.
#[test]
fn more_queue_pairs_than_the_nic_holds_are_slower() {
    let per_read = |connections| {
        let config = SimConfig::new(&NicProfile::CONNECTX_3).connections(connections);
        let sim = Sim::new(6, config);
        for node in 0..6 {
            let memory = fresh(Region::anonymous(NoHtm, 1 << 20).expect("a region"));
            sim.fabric().register(NodeId(node), memory).expect("a node");
        }
        for node in 0..6_u16 {
            for _ in 0..8 {
                let start = move |worker: Spawner<'_, _>| {
                    for _ in 0..4 {
                        let verbs = worker.endpoint().during(Phase::Other);
                        let read = async move {
                            for turn in 0..40 {
                                let to = Remote { node: NodeId((node + 1 + turn % 5) % 6), ..word(0, 0) };
                                verbs.read_word(to).await.expect("it is there");
                            }
                        };
                        worker.spawn(read).expect("it runs");
                    }
                };
                sim.spawn(NodeId(node), start).expect("a node");
            }
        }
        assert_eq!(sim.run(), RunEnd::Done);
        sim.elapsed()
    };
    let (few, many) = (per_read(1), per_read(50));
    assert!(many > few.mul_f64(1.2), "{few:?} with few, {many:?} with many");
}
