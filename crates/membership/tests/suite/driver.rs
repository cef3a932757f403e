//! Concurrent clients of an engine, and the history of what they do.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use drtm_membership::{Answer, Configuration, Membership};

use crate::history::{History, Operation, Proposal};

/// Where clients are: time passes there, and things happen.
pub(crate) trait Scene {
    fn now(&self) -> u64;
    /// Lets a little time pass.
    fn step(&mut self);
}

/// The machine's own time.
pub(crate) struct RealTime {
    start: Instant,
    pub(crate) pause: Duration,
}

impl RealTime {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), pause: Duration::from_micros(200) }
    }
}

impl Scene for RealTime {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn step(&mut self) {
        thread::sleep(self.pause);
    }
}

struct Client {
    membership: Arc<dyn Membership>,
    doing: Option<(u64, Proposal, Answer<Configuration>)>,
    left: usize,
    watch: Answer<Configuration>,
    told: Vec<(u64, Configuration)>,
}

/// Steps after which a watcher that was not told of the last configuration has missed it, and
/// which a request may take.
const PATIENCE: usize = 100_000;

/// Lets each of some clients make requests, and returns the history. After the last one, each must
/// be told of the configuration in force.
pub(crate) fn run(
    members: Vec<Arc<dyn Membership>>,
    scene: &mut dyn Scene,
    requests: usize,
    seed: u64,
) -> Result<History, String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let client = |membership: Arc<dyn Membership>| {
        let watch = membership.watch(0);
        Client { membership, doing: None, left: requests, watch, told: Vec::new() }
    };
    let mut clients: Vec<Client> = members.into_iter().map(client).collect();
    let (mut history, mut idle) = (History::default(), 0);
    while clients.iter().any(|client| client.left > 0 || client.doing.is_some()) {
        for (number, client) in clients.iter_mut().enumerate() {
            if client.ends(|| scene.now(), number, &mut history) {
                idle = 0;
            }
            client.is_told(|| scene.now())?;
            if client.doing.is_none() && client.left > 0 && random.u8(..) < 128 {
                client.begins(scene.now(), number, &mut random);
            }
        }
        scene.step();
        idle += 1;
        if idle > PATIENCE {
            return Err("a request does not end".into());
        }
    }
    settle(&mut clients, scene, &mut history)?;
    history.watched = clients.into_iter().map(|client| client.told).collect();
    Ok(history)
}

/// Waits until every watcher knows what is in force.
fn settle(clients: &mut [Client], scene: &mut dyn Scene, history: &mut History) -> Result<(), String> {
    let mut last = None;
    for _ in 0..PATIENCE {
        if clients[0].doing.is_none() && last.is_none() {
            let start = scene.now();
            clients[0].doing = Some((start, None, clients[0].membership.read()));
        }
        if clients[0].ends(|| scene.now(), 0, history) {
            let read = history.operations.last().and_then(|operation| operation.outcome.as_ref().ok());
            last = read.map(Configuration::number);
        }
        for client in clients.iter_mut() {
            client.is_told(|| scene.now())?;
        }
        // What was unknown may happen late.
        let knows = |client: &Client| Some(client.told.last().map_or(0, |(_, told)| told.number())) >= last;
        if last.is_some() && clients.iter().all(knows) {
            return Ok(());
        }
        scene.step();
    }
    let told = clients.iter().map(|client| client.told.last().map(|(_, told)| told.number())).collect::<Vec<_>>();
    Err(format!("number {last:?} is in force, and watchers know {told:?}"))
}

impl Client {
    fn begins(&mut self, now: u64, number: usize, random: &mut fastrand::Rng) {
        self.left -= 1;
        let membership = &self.membership;
        self.doing = Some(if random.u8(..) < 100 {
            (now, None, membership.read())
        } else {
            let known = membership.known().number();
            let expected = match random.u8(..) {
                0..16 => known.saturating_sub(1),
                16..24 => known + 1,
                _ => known,
            };
            let content = format!("client {number}, {} left", self.left).into_bytes();
            let answer = membership.replace(expected, &content);
            (now, Some((expected, content)), answer)
        });
    }

    /// Records the outcome of what the client does, if there is one. The time is taken when it is
    /// there.
    fn ends(&mut self, now: impl Fn() -> u64, number: usize, history: &mut History) -> bool {
        let Some(outcome) = self.doing.as_mut().and_then(|(_, _, answer)| answer.take()) else { return false };
        if let Some((start, proposal, _)) = self.doing.take() {
            history.operations.push(Operation { client: number, start, end: now(), proposal, outcome });
        }
        true
    }

    /// Records what the client is told. The time is taken when it knows.
    fn is_told(&mut self, now: impl Fn() -> u64) -> Result<(), String> {
        while let Some(told) = self.watch.take() {
            let configuration = told.map_err(|error| format!("a watch ends: {error}"))?;
            self.watch = self.membership.watch(configuration.number());
            self.told.push((now(), configuration));
        }
        Ok(())
    }
}

/// Lets each of some clients make requests from a thread of its own.
pub(crate) fn run_threads(members: Vec<Arc<dyn Membership>>, requests: usize, seed: u64) -> History {
    let start = Instant::now();
    let client = |(number, membership): (usize, Arc<dyn Membership>)| {
        thread::spawn(move || {
            let mut random = fastrand::Rng::with_seed(seed + number as u64);
            let watch = membership.watch(0);
            let mut client = Client { membership, doing: None, left: requests, watch, told: Vec::new() };
            let (mut history, now) = (History::default(), || start.elapsed().as_nanos() as u64);
            while client.left > 0 {
                client.begins(now(), number, &mut random);
                while !client.ends(now, number, &mut history) {
                    thread::yield_now();
                }
                client.is_told(now).expect("the engine is not closed, nor damaged");
            }
            history.watched.push(client.told);
            history
        })
    };
    let threads: Vec<_> = members.into_iter().enumerate().map(client).collect();
    let mut whole = History::default();
    for thread in threads {
        let History { operations, watched } = thread.join().expect("a client");
        whole.operations.extend(operations);
        whole.watched.extend(watched);
    }
    whole
}
