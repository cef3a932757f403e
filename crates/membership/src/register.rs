//! A simulated engine of agreement: a register in virtual time, for simulated clusters and tests.
//!
//! It agrees on nothing. One [`Ledger`] in one process decides, and around it messages are late,
//! lost and repeated, and its leader changes. A run is a function of its seed and of the moments
//! at which requests are made. Time passes only in [`Register::advance`].

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    ops::RangeInclusive,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;

use crate::{
    Membership,
    answer::{Answer, Promise},
    configuration::Configuration,
    error::Error,
    latest::Latest,
    ledger::{self, Decision, Ledger, RequestName},
    mutation::Mutation,
};

/// What can go wrong with a [`Register`], and how long everything takes.
///
/// # Example
///
/// See [`Register`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RegisterOptions {
    /// Decides on all that is left to chance.
    pub seed: u64,
    /// How long a message is under way. A later one may overtake an earlier one.
    pub delay: RangeInclusive<Duration>,
    /// Which share of messages is lost: of requests, and of answers.
    pub lost: f64,
    /// Which share of requests arrives twice.
    pub repeated: f64,
    /// How long the register has a leader, on average. `None`: always.
    pub reign: Option<Duration>,
    /// How long it takes to elect another one. What arrives meanwhile is lost, or refused.
    pub election: Duration,
    /// When a client gives up waiting for an answer.
    pub patience: Duration,
    #[doc(hidden)]
    pub fault: Option<Mutation>,
}

impl Default for RegisterOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            delay: Duration::from_micros(100)..=Duration::from_micros(500),
            lost: 0.0,
            repeated: 0.0,
            reign: None,
            election: Duration::from_millis(2),
            patience: Duration::from_millis(10),
            fault: None,
        }
    }
}

/// A simulated register, and the time in which it answers.
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use drtm_membership::{Membership, Register, RegisterOptions};
///
/// let register = Register::new(RegisterOptions::default());
/// let node = register.client();
/// let mut answer = node.replace(0, b"three nodes");
/// assert!(answer.take().is_none(), "no time has passed");
///
/// // The caller's scheduler makes time pass.
/// while let Some(moment) = register.next_event() {
///     register.advance(moment);
/// }
/// assert_eq!(answer.take().expect("it is answered")?.number(), 1);
/// # Ok::<(), drtm_membership::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Register(Arc<Mutex<World>>);

/// A handle of a [`Register`], as a node has it.
///
/// # Example
///
/// See [`Register`].
#[derive(Debug)]
pub struct Client {
    world: Arc<Mutex<World>>,
    number: usize,
}

struct World {
    options: RegisterOptions,
    random: fastrand::Rng,
    now: Duration,
    /// What happens when, and in the order of its scheduling.
    agenda: BTreeMap<(Duration, u64), Event>,
    scheduled: u64,
    ledger: Ledger,
    leaderless_until: Duration,
    requests: u64,
    waiting: HashMap<u64, Waiting>,
    clients: Vec<Peer>,
}

struct Peer {
    latest: Arc<Latest>,
    is_reachable: bool,
}

/// A request that has no answer yet.
struct Waiting {
    client: usize,
    proposal: bool,
    promise: Promise<Configuration>,
}

#[derive(Clone)]
struct Request {
    client: usize,
    number: u64,
    /// What is expected and what is proposed. `None`: to read.
    proposal: Option<(u32, Vec<u8>)>,
}

enum Event {
    Arrives(Request),
    Answers { request: u64, outcome: Result<Configuration, Error> },
    GivesUp { request: u64 },
    Tells { client: usize, configuration: Configuration },
    LeaderFalls,
}

/// What an event does outside of the lock, since it wakes waiting tasks.
enum Effect {
    Keeps(Promise<Configuration>, Arc<Latest>, Result<Configuration, Error>),
    Tells(Arc<Latest>, Configuration),
}

impl Register {
    /// Makes a register without a configuration.
    #[must_use]
    pub fn new(options: RegisterOptions) -> Self {
        let mut world = World {
            random: fastrand::Rng::with_seed(options.seed),
            ledger: Ledger::new(options.fault),
            options,
            now: Duration::ZERO,
            agenda: BTreeMap::new(),
            scheduled: 0,
            leaderless_until: Duration::ZERO,
            requests: 0,
            waiting: HashMap::new(),
            clients: Vec::new(),
        };
        world.schedule_fall();
        Self(Arc::new(Mutex::new(world)))
    }

    /// Makes a handle.
    #[must_use]
    pub fn client(&self) -> Client {
        let mut world = self.0.lock();
        let latest = Arc::new(Latest::new(Configuration::none(), world.options.fault));
        world.clients.push(Peer { latest, is_reachable: true });
        let number = world.clients.len() - 1;
        world.tell(number);
        Client { world: Arc::clone(&self.0), number }
    }

    /// Returns the time of the next event. `None` if nothing will happen without a request.
    #[must_use]
    pub fn next_event(&self) -> Option<Duration> {
        self.0.lock().agenda.first_key_value().map(|((moment, _), _)| *moment)
    }

    /// Lets time pass until `moment`, and does what is due until then.
    pub fn advance(&self, moment: Duration) {
        loop {
            let mut world = self.0.lock();
            let due = world.agenda.first_entry().filter(|entry| entry.key().0 <= moment);
            let Some(entry) = due else {
                world.now = world.now.max(moment);
                return;
            };
            let ((now, _), event) = entry.remove_entry();
            world.now = now;
            let effect = world.happens(event);
            drop(world);
            match effect {
                Some(Effect::Keeps(promise, latest, outcome)) => {
                    if let Ok(seen) | Err(Error::Outdated { current: seen }) = &outcome {
                        latest.publish(seen);
                    }
                    promise.keep(outcome);
                }
                Some(Effect::Tells(latest, configuration)) => latest.publish(&configuration),
                None => {}
            }
        }
    }
}

impl World {
    fn chance(&mut self, share: f64) -> bool {
        self.random.f64() < share
    }

    fn delay(&mut self) -> Duration {
        let (least, most) = (*self.options.delay.start(), *self.options.delay.end());
        least + most.saturating_sub(least).mul_f64(self.random.f64())
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.scheduled += 1;
        self.agenda.insert((self.now + after, self.scheduled), event);
    }

    fn schedule_fall(&mut self) {
        if let Some(reign) = self.options.reign {
            let after = reign.mul_f64(2.0 * self.random.f64());
            self.schedule(after, Event::LeaderFalls);
        }
    }

    fn request(&mut self, client: usize, proposal: Option<(u32, Vec<u8>)>) -> Answer<Configuration> {
        let dropped = match &proposal {
            Some(_) => Error::unknown("the simulation has ended"),
            None => Error::unavailable("the simulation has ended"),
        };
        let (answer, promise) = Answer::awaited(dropped);
        self.requests += 1;
        let number = self.requests;
        self.waiting.insert(number, Waiting { client, proposal: proposal.is_some(), promise });
        self.schedule(self.options.patience, Event::GivesUp { request: number });
        let request = Request { client, number, proposal };
        let times = 1 + usize::from(self.chance(self.options.repeated));
        for _ in 0..times {
            if self.clients[client].is_reachable && !self.chance(self.options.lost) {
                let after = self.delay();
                self.schedule(after, Event::Arrives(request.clone()));
            }
        }
        answer
    }

    fn happens(&mut self, event: Event) -> Option<Effect> {
        match event {
            Event::Arrives(request) => {
                self.arrives(request);
                None
            }
            Event::Answers { request, outcome } => {
                let client = self.waiting.get(&request)?.client;
                if !self.clients[client].is_reachable {
                    return None;
                }
                self.settles(request, outcome)
            }
            Event::GivesUp { request } => {
                let is_certain = self.options.fault == Some(Mutation::LostTakenForRefused);
                let outcome = match self.waiting.get(&request)?.proposal && !is_certain {
                    true => Error::unknown("the simulated register did not answer in time"),
                    false => Error::unavailable("the simulated register did not answer in time"),
                };
                self.settles(request, Err(outcome))
            }
            Event::Tells { client, configuration } => {
                let Peer { latest, is_reachable } = &self.clients[client];
                is_reachable.then(|| Effect::Tells(Arc::clone(latest), configuration))
            }
            Event::LeaderFalls => {
                self.leaderless_until = self.now + self.options.election;
                self.schedule_fall();
                None
            }
        }
    }

    fn settles(&mut self, request: u64, outcome: Result<Configuration, Error>) -> Option<Effect> {
        let Waiting { client, promise, .. } = self.waiting.remove(&request)?;
        Some(Effect::Keeps(promise, Arc::clone(&self.clients[client].latest), outcome))
    }

    /// Carries a request out, if there is a leader.
    fn arrives(&mut self, request: Request) {
        let Request { client, number, proposal } = request;
        let outcome = if self.now < self.leaderless_until {
            // A request that is refused here may have been carried out if it is a repeated one.
            if proposal.is_some() || self.chance(0.5) {
                return;
            }
            Err(Error::unavailable("the simulated register has no leader"))
        } else if let Some((expected, content)) = proposal {
            let before = self.ledger.current().number();
            let name = RequestName { author: client as u64, request: number };
            let decision = self.ledger.replace(name, expected, &content);
            if self.ledger.current().number() != before {
                (0..self.clients.len()).for_each(|client| self.tell(client));
            }
            match decision {
                Decision::Replaced(configuration) => Ok(configuration),
                Decision::Outdated(current) => Err(Error::Outdated { current }),
                Decision::Unclear => Err(Error::unknown("the number that is expected is too old, or not there yet")),
            }
        } else {
            Ok(self.ledger.current())
        };
        if !self.chance(self.options.lost) {
            let after = self.delay();
            self.schedule(after, Event::Answers { request: number, outcome });
        }
    }

    /// Tells a client of the configuration in force. What is lost is sent again, so it is late.
    fn tell(&mut self, client: usize) {
        let mut after = self.delay();
        while self.chance(self.options.lost) {
            after += self.delay();
        }
        let configuration = self.ledger.current();
        self.schedule(after, Event::Tells { client, configuration });
    }
}

impl Client {
    /// Cuts the node off from the register, or ends that. Messages under way to it are lost.
    pub fn set_reachable(&self, is_reachable: bool) {
        let mut world = self.world.lock();
        world.clients[self.number].is_reachable = is_reachable;
        if is_reachable {
            world.tell(self.number);
        }
    }

    fn latest(&self) -> Arc<Latest> {
        Arc::clone(&self.world.lock().clients[self.number].latest)
    }
}

impl Membership for Client {
    fn read(&self) -> Answer<Configuration> {
        self.world.lock().request(self.number, None)
    }

    fn replace(&self, expected: u32, content: &[u8]) -> Answer<Configuration> {
        match ledger::next_number(expected, content) {
            Ok(_) => self.world.lock().request(self.number, Some((expected, content.to_vec()))),
            Err(error) => Answer::ready(Err(error)),
        }
    }

    fn watch(&self, after: u32) -> Answer<Configuration> {
        self.latest().watch(after)
    }

    fn known(&self) -> Configuration {
        self.latest().known()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.latest().end(&Error::Closed);
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let World { now, ledger, clients, .. } = self;
        let clients = clients.len();
        f.debug_struct("World").field("now", now).field("ledger", ledger).field("clients", &clients).finish()
    }
}
