//! Processes that die in the middle of anything: at each named step (`--features kill-points`), and
//! at random.
//!
//! The victim is node 1, a process that uses verbs, calls, answers, sleeps and at last leaves. The
//! survivors are the test, node 0, and an agent, node 2. However the victim ends, everything that
//! the survivors have posted ends, once; they can work with each other as before; what is left of
//! the victim can be read; and it can come back.

use std::{
    cell::Cell,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use drtm_htm::{Engine, NoHtm};
use drtm_rdma::{Executor, Fabric, Incarnation, NodeId, Phase, Port, Presence, Region, ShmFabric, TcpFabric, Verbs};

#[cfg(feature = "verbs")]
use crate::nics::NicMood;
use crate::{
    agent::{Agent, Order, PATIENCE, Service},
    machines::{Addresses, TcpMood, join, start_agent},
    processes::{Directory, Process, ShmMood},
    support::{BASE, fresh, with, word},
};

const VICTIM: NodeId = NodeId(1);

/// Rounds of a victim that is left alone.
const ROUNDS: u64 = 40;

/// What the processes of a test stand on: a fabric between processes.
trait Ground: Sized {
    type Fabric: Fabric<Engine = NoHtm>;

    fn new() -> Self;

    /// The test's own node.
    fn join(&self) -> Self::Fabric;

    /// The other survivor.
    fn agent(&self, node: u16) -> Process;

    /// What the next victim is told, for its environment.
    fn victim(&self) -> String;

    /// This program, where a victim can be.
    fn program(&self) -> Command {
        Command::new(std::env::current_exe().expect("this program"))
    }
}

/// Shared memory.
struct Shm(Directory);

impl Ground for Shm {
    type Fabric = ShmFabric<NoHtm>;

    fn new() -> Self {
        Self(Directory::new())
    }

    fn join(&self) -> ShmFabric<NoHtm> {
        ShmFabric::join(NoHtm, ShmMood::default().config(&self.0.0, NodeId(0))).expect("a group")
    }

    fn agent(&self, node: u16) -> Process {
        Process::start(&self.0.0, NodeId(node), ShmMood::default(), &[])
    }

    fn victim(&self) -> String {
        format!("shm:{}", self.0.0.display())
    }
}

/// TCP.
struct Tcp {
    directory: Directory,
    addresses: Addresses,
    incarnations: Cell<u32>,
}

impl Ground for Tcp {
    type Fabric = TcpFabric<NoHtm>;

    fn new() -> Self {
        Self { directory: Directory::new(), addresses: Addresses::of_processes(), incarnations: Cell::new(0) }
    }

    fn join(&self) -> TcpFabric<NoHtm> {
        join(&NoHtm, &self.addresses.config(NodeId(0), 1))
    }

    fn agent(&self, node: u16) -> Process {
        start_agent(&self.directory, self.addresses, TcpMood::default(), node, 1)
    }

    fn victim(&self) -> String {
        self.incarnations.set(self.incarnations.get() + 1);
        format!("tcp:{}:{}", self.addresses.written(), self.incarnations.get())
    }

    fn program(&self) -> Command {
        self.addresses.program(VICTIM.0)
    }
}

/// RDMA NICs, that is, software.
#[cfg(feature = "verbs")]
struct Nics(Tcp);

#[cfg(feature = "verbs")]
impl Ground for Nics {
    type Fabric = drtm_rdma::VerbsFabric<NoHtm>;

    fn new() -> Self {
        Self(Tcp::new())
    }

    fn join(&self) -> Self::Fabric {
        let config = NicMood::default().config(self.0.addresses, NodeId(0), 1);
        Self::Fabric::join(NoHtm, config).expect("a cluster")
    }

    fn agent(&self, node: u16) -> Process {
        crate::nics::start_agent(&self.0.directory, self.0.addresses, NicMood::default(), node, 1)
    }

    fn victim(&self) -> String {
        self.0.victim().replace("tcp:", "nics:")
    }
}

/// No test, but what the victim does.
#[test]
fn be_a_victim() {
    let Ok(told) = std::env::var("DRTM_VICTIM") else { return };
    match told.splitn(3, ':').collect::<Vec<_>>()[..] {
        ["shm", directory] => {
            let config = ShmMood::default().config(Path::new(directory), VICTIM);
            let fabric = ShmFabric::join(NoHtm, config).expect("the group");
            live(&fabric);
            fabric.leave();
        }
        ["tcp", addresses, incarnation] => {
            let incarnation = incarnation.parse().expect("a number");
            let fabric = join(&NoHtm, &Addresses::read(addresses).config(VICTIM, incarnation));
            live(&fabric);
            fabric.leave();
        }
        #[cfg(feature = "verbs")]
        ["nics", addresses, incarnation] => {
            let incarnation = incarnation.parse().expect("a number");
            let config = NicMood::default().config(Addresses::read(addresses), VICTIM, incarnation);
            let fabric = drtm_rdma::VerbsFabric::join(NoHtm, config).expect("a cluster");
            live(&fabric);
            fabric.leave();
        }
        _ => panic!("a fabric and where it is, not {told}"),
    }
    std::process::exit(0);
}

fn live<F: Fabric<Engine = NoHtm>>(fabric: &F) {
    let memory = fresh(Region::shared(NoHtm, 1 << 20).expect("a region"));
    NoHtm.store(&memory.words(BASE, 1).expect("a word")[0], 4711);
    fabric.register(VICTIM, Arc::clone(&memory)).expect("room");
    let endpoint = fabric.endpoint(VICTIM).expect("room");
    let verbs = endpoint.during(Phase::Other);
    let mut executor = Executor::new(&endpoint);
    executor.serve(verbs.serve(|_, request, reply| reply.extend(request.iter().rev())));
    for node in [0, 2] {
        executor.spawn(async move { work(verbs, node).await });
    }
    // Until it has slept, too.
    executor.spawn(async {
        while endpoint.naps() < 4 {
            endpoint.sleep(Duration::from_millis(5)).await;
        }
        endpoint.sleep(Duration::from_millis(20)).await;
    });
    executor.run();
}

/// A bit of everything, with a node that is alive.
async fn work<P: Port>(verbs: Verbs<'_, P>, node: u16) {
    for round in 0..ROUNDS {
        verbs.write(word(node, 100), &[round; 16]).await.expect("it is alive");
        let words = verbs.read(word(node, 100), 16).await.expect("it is alive");
        assert!(words.iter().all(|word| *word == round));
        verbs.compare_swap(word(node, 120), round, round + 1).await.expect("it is alive");
        verbs.fetch_add(word(node, 121), 1).await.expect("it is alive");
        verbs.send(NodeId(node), b"drtm").await.expect("it is alive");
        if node == 2 || round % 2 == 0 {
            assert_eq!(verbs.call(NodeId(node), b"drtm").await.expect("it is alive")[..], *b"mtrd");
        }
        if round % 8 == 7 {
            verbs.endpoint().sleep(Duration::from_millis(1)).await;
        }
    }
}

/// The test's own node, and the other survivor.
struct Survivors<G: Ground> {
    fabric: G::Fabric,
    _memory: Arc<Region<NoHtm>>,
    other: Process,
    ground: G,
}

impl<G: Ground> Survivors<G> {
    fn new() -> Self {
        let ground = G::new();
        let fabric = ground.join();
        let memory = fresh(Region::shared(NoHtm, 1 << 20).expect("a region"));
        fabric.register(NodeId(0), Arc::clone(&memory)).expect("room");
        let other = ground.agent(2);
        other.ask(Order::Serve(Service::Backwards));
        Self { fabric, _memory: memory, other, ground }
    }

    fn victim(&self, die_at: Option<&str>) -> Child {
        let mut command = self.ground.program();
        let told = self.ground.victim();
        command.args(["kills::be_a_victim", "--exact", "--nocapture"]).env("DRTM_VICTIM", told);
        if let Some(site) = die_at {
            command.env("DRTM_DIE_AT", site);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("another process")
    }

    /// Works with a victim until it is gone, however that comes. Gives how it stands then.
    fn outlive(&self, mut victim: Child, kill_after: Option<Duration>) -> Presence {
        let endpoint = self.fabric.endpoint(NodeId(0)).expect("room");
        let rest = endpoint.at_rest();
        let verbs = endpoint.during(Phase::Other);
        let (begun, ended) = (Cell::new(0_u64), Cell::new(0_u64));
        let over = Cell::new(false);
        let start = endpoint.now();
        let mut executor = Executor::new(&endpoint).patience(PATIENCE);
        executor.serve(verbs.serve(|_, request, reply| reply.extend(request.iter().rev())));
        executor.spawn(async {
            loop {
                if kill_after.is_some_and(|after| endpoint.now().since(start) > after) {
                    let _ = victim.kill();
                }
                if victim.try_wait().expect("a child").is_some() {
                    break;
                }
                endpoint.sleep(Duration::from_micros(200)).await;
            }
            // The system has said so to us; the fabric finds out by itself.
            endpoint.until(|| endpoint.presence(VICTIM).here().is_none()).await;
            over.set(true);
        });
        for coroutine in 0..3_u64 {
            let (begun, ended, over, endpoint) = (&begun, &ended, &over, &endpoint);
            executor.spawn(async move {
                while !over.get() {
                    if endpoint.presence(VICTIM).here().is_some() && endpoint.reconnect(VICTIM).is_ok() {
                        begun.set(begun.get() + 6);
                        let at = word(VICTIM.0, 10 + coroutine);
                        let mut batch = verbs.batch();
                        let read = batch.read(at, 8).expect("room");
                        let added = batch.fetch_add(at, 1).expect("room");
                        let swapped = batch.compare_swap(at, 1, 2).expect("room");
                        let told = batch.send(VICTIM, &[coroutine as u8; 100]).expect("room");
                        let sent = batch.call(VICTIM, &[coroutine as u8; 100]).expect("room");
                        batch.write(at, &[1]).expect("room").unsignaled();
                        batch.ring();
                        let atomics = [added.await.err(), swapped.await.err()];
                        for departed in [read.await.err(), atomics[0], atomics[1], told.await.err(), sent.await.err()] {
                            ended.set(ended.get() + 1);
                            // A region that is not registered yet is no departure.
                            let known = |error: drtm_rdma::VerbError| {
                                error.is_departure() || matches!(error, drtm_rdma::VerbError::UnknownRegion { .. })
                            };
                            assert!(departed.is_none_or(known), "{departed:?}");
                        }
                        ended.set(ended.get() + 1);
                    }
                    endpoint.sleep(Duration::from_micros(50)).await;
                }
            });
        }
        executor.run();
        assert_eq!(begun.get(), ended.get(), "every operation ends, once");
        endpoint.drain();
        assert_eq!(endpoint.at_rest(), rest, "every buffer is back");
        self.go_on(&endpoint);
        endpoint.presence(VICTIM)
    }

    /// The survivors work with each other.
    fn go_on<P: Port>(&self, endpoint: &drtm_rdma::Endpoint<P>) {
        with(endpoint, async |verbs| {
            assert_eq!(verbs.call(NodeId(2), b"drtm").await?[..], *b"mtrd");
            verbs.write(word(2, 50), &[77]).await
        });
        assert_eq!(self.other.ask(Order::Load(word(2, 50).offset)), 77);
    }

    /// The victim comes once more, and may live.
    fn take_back(&self, before: Option<Incarnation>) {
        let presence = self.outlive(self.victim(None), None);
        let Presence::Left(incarnation) = presence else { panic!("it was to leave in good order: {presence:?}") };
        assert!(before.is_none_or(|before| incarnation > before));
    }
}

#[cfg(feature = "kill-points")]
#[test]
fn a_process_may_die_at_every_step() {
    dies_at_every_step::<Shm>(drtm_rdma::die::SITES, &[1, 2, 7]);
}

#[cfg(feature = "kill-points")]
#[test]
fn a_machine_may_die_at_every_step() {
    dies_at_every_step::<Tcp>(drtm_rdma::die::TCP_SITES, &[1, 2, 7]);
}

#[cfg(all(feature = "kill-points", feature = "verbs"))]
#[test]
fn a_machine_with_a_nic_may_die_at_every_step() {
    // Processes start slowly where NICs are software in an emulated machine.
    dies_at_every_step::<Nics>(drtm_rdma::die::VERBS_SITES, &[2]);
}

#[cfg(feature = "kill-points")]
fn dies_at_every_step<G: Ground>(sites: &[&str], times: &[u32]) {
    for site in sites {
        for (index, times) in times.iter().enumerate() {
            let survivors = Survivors::<G>::new();
            let victim = survivors.victim(Some(&format!("{site}:{times}")));
            let presence = survivors.outlive(victim, None);
            println!("{site}:{times} leaves it {presence:?}");
            match presence {
                // Or it died before it was known, or it does not reach this step so often.
                Presence::Died(_) | Presence::Never | Presence::Left(_) => {}
                other => panic!("{site}:{times} leaves it {other:?}"),
            }
            let reached = matches!(presence, Presence::Died(_) | Presence::Never);
            assert!(index > 0 || reached, "the victim never reaches {site}");
            survivors.take_back(presence.last());
        }
    }
}

/// `DRTM_KILLS` says how often; a few where it says nothing.
#[test]
fn a_process_may_be_killed_at_any_moment() {
    is_killed_at_any_moment::<Shm>();
}

/// As above.
#[test]
fn a_machine_may_be_killed_at_any_moment() {
    is_killed_at_any_moment::<Tcp>();
}

fn is_killed_at_any_moment<G: Ground>() {
    let kills = std::env::var("DRTM_KILLS").map_or(5, |kills| kills.parse().expect("DRTM_KILLS is a number"));
    let mut rng = fastrand::Rng::with_seed(5);
    let survivors = Survivors::<G>::new();
    let mut died = 0;
    for _ in 0..kills {
        let after = Duration::from_micros(rng.u64(0..80_000));
        let presence = survivors.outlive(survivors.victim(None), Some(after));
        died += u64::from(matches!(presence, Presence::Died(_)));
        assert_eq!(presence.here(), None);
    }
    println!("{died} of {kills} victims died in the group");
    survivors.take_back(None);
}
