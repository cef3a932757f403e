//! A node's host channel adapter, which its endpoints share: the device, the regions that it lets
//! peers access, and the connections that peers have made to it.

use std::{
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
            fence,
        },
    },
    time::Duration,
};

use drtm_htm::Engine;
use parking_lot::Mutex;

use crate::{
    Atomicity, Capabilities, Order, Time, Transport,
    endpoint::port::ReplyTo,
    fabric::tcp::{CallHandler, Caller, Inbox},
    sync::time,
};

use super::{
    Posted, VerbsConfig, VerbsError,
    datagram_pair::DatagramPair,
    exports::Exports,
    intake::{BURST, Intake},
    responder::{self, Outgoing, Responder},
    server_session::ServerSession,
    setup::{Answer, Contact, Request},
    sys::{Abilities, CompletionQueue, Device, End, Exit, PortState, QueuePair, Shape},
};

/// Bytes that are sent inline, if the device can: it is asked for less until it agrees.
const INLINE: [usize; 5] = [256, 192, 128, 64, 0];

/// What was posted by one thread at a time, and is read by others.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    doorbells: AtomicU64,
    requests: AtomicU64,
    signaled: AtomicU64,
    inlined: AtomicU64,
    receives: AtomicU64,
}

impl Tallies {
    /// Adds what the only thread that posts has posted: no other writes.
    #[inline]
    pub(super) fn add(&self, posted: Posted) {
        let add = |to: &AtomicU64, count: u64| to.store(to.load(Relaxed) + count, Relaxed);
        add(&self.doorbells, posted.doorbells);
        add(&self.requests, posted.requests);
        add(&self.signaled, posted.signaled);
        add(&self.inlined, posted.inlined);
        add(&self.receives, posted.receives);
    }

    fn read(&self) -> Posted {
        Posted {
            doorbells: self.doorbells.load(Relaxed),
            requests: self.requests.load(Relaxed),
            signaled: self.signaled.load(Relaxed),
            inlined: self.inlined.load(Relaxed),
            receives: self.receives.load(Relaxed),
        }
    }
}

/// The connections of a peer's endpoint: for one-sided operations, and for messages.
#[derive(Debug, Default)]
struct Ways {
    responder: Option<Arc<Responder>>,
    session: Option<Arc<ServerSession>>,
}

/// What carries replies back to a caller.
#[derive(Clone, Debug)]
pub(super) enum Way {
    Connection(Arc<Responder>),
    Session(Arc<ServerSession>),
}

impl Way {
    /// Returns whether it still leads to the caller.
    pub(super) fn is_for(&self, to: &ReplyTo) -> bool {
        match self {
            Way::Connection(responder) => responder.owner.is(to) && !responder.is_closed(),
            Way::Session(session) => session.owner.is(to) && !session.is_closed(),
        }
    }
}

/// After how long the node's thread looks again whether endpoints take what comes.
const ATTENTION: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct Adapter<E: Engine> {
    pub(super) device: Arc<Device>,
    pub(super) exit: Exit,
    /// This node's end of a connection, but for its numbers.
    pub(super) end: End,
    pub(super) capabilities: Capabilities,
    pub(super) message_bytes: usize,
    /// Whether slabs of endpoints are in huge pages.
    pub(super) huge_pages: bool,
    pub(super) exports: Exports<E>,
    intake: Mutex<Intake>,
    /// The intake's, to be armed and slept on.
    pub(super) arrivals: Arc<CompletionQueue>,
    /// Whether something waits for room in the mailbox.
    starved: AtomicBool,
    /// For each node and each of its endpoints.
    ways: Box<[Mutex<Vec<Ways>>]>,
    /// Whether messages are datagrams, which the node has to acknowledge.
    pub(super) by_datagram: bool,
    /// Whether an endpoint has looked at what comes since the node's thread has.
    attended: AtomicBool,
    /// When the node's thread looks again, in nanoseconds. Zero while the queue is armed.
    look_at: AtomicU64,
    /// After how long a silent peer is given up.
    pub(super) silence: Duration,
    /// Of endpoints, the ones that are gone included.
    tallies: Mutex<Vec<Arc<Tallies>>>,
    replied: Mutex<Posted>,
    failure: Mutex<Option<VerbsError>>,
}

impl<E: Engine> Adapter<E> {
    pub(super) fn new(config: &VerbsConfig) -> Result<Self, VerbsError> {
        let device = Arc::new(Device::open(config.device.as_deref())?);
        let Ends { exit, end, atomicity } = Ends::of(&device, config)?;
        let capabilities = config.tcp.capabilities();
        let inline_bytes = inline(&device, capabilities.queue_depth, capabilities.max_calls)?;
        let (messages, by_datagram) = (config.tcp.mailbox_size(), config.messages == Transport::Datagrams);
        let mut intake = Intake::new(&device, messages, config.message_bytes, config.huge_pages)?;
        let arrivals = Arc::clone(&intake.queue);
        if by_datagram {
            intake.datagrams = Some(DatagramPair::new(&device, exit, &end, &arrivals, messages + BURST, inline_bytes)?);
            arrivals.arm();
        }
        Ok(Self {
            exit,
            end,
            capabilities: Capabilities {
                atomicity,
                ordering: Order::ReadsMayBePassed,
                // A word is all that is promised of a NIC.
                atomic_read_bytes: 8,
                inline_bytes,
                max_message_bytes: config.message_bytes,
                ..capabilities
            },
            message_bytes: config.message_bytes,
            huge_pages: config.huge_pages,
            exports: Exports::new(),
            intake: Mutex::new(intake),
            arrivals,
            starved: AtomicBool::new(false),
            ways: (0..config.tcp.nodes()).map(|_| Mutex::default()).collect(),
            by_datagram,
            attended: AtomicBool::new(false),
            look_at: AtomicU64::new(0),
            silence: config.tcp.silence(),
            tallies: Mutex::default(),
            replied: Mutex::default(),
            failure: Mutex::default(),
            device,
        })
    }

    /// Returns the end of a connection with this queue pair.
    pub(super) fn end_of(&self, pair: &QueuePair) -> End {
        End { pair: pair.number(), first_packet: fastrand::u32(..1 << 24), ..self.end }
    }

    /// Creates the counters of an endpoint.
    pub(super) fn tallies(&self) -> Arc<Tallies> {
        let tallies = Arc::new(Tallies::default());
        self.tallies.lock().push(Arc::clone(&tallies));
        tallies
    }

    /// Adds the counters of an endpoint that is dropped to the sum.
    pub(super) fn forget(&self, tallies: &Arc<Tallies>) {
        *self.replied.lock() += tallies.read();
        self.tallies.lock().retain(|one| !Arc::ptr_eq(one, tallies));
    }

    pub(super) fn posted(&self) -> Posted {
        let mut sum = *self.replied.lock();
        sum += self.intake.lock().posted;
        self.tallies.lock().iter().for_each(|tallies| sum += tallies.read());
        sum
    }

    /// Remembers what went wrong last.
    #[cold]
    pub(super) fn fail(&self, error: VerbsError) {
        *self.failure.lock() = Some(error);
    }

    pub(super) fn take_failure(&self) -> Option<VerbsError> {
        self.failure.lock().take()
    }

    /// Moves messages that have come into the mailbox, as far as there is room, unless another
    /// thread is at it.
    #[inline]
    pub(super) fn collect(&self, inbox: &Inbox) {
        if self.by_datagram && !self.attended.load(Relaxed) {
            self.attended.store(true, Relaxed);
        }
        if let Some(mut intake) = self.intake.try_lock() {
            self.collect_by(&mut intake, inbox);
        }
    }

    /// Moves messages like [`collect`](Self::collect), but waits for a thread that does so: all
    /// that has arrived by now is found.
    pub(super) fn collect_all(&self, inbox: &Inbox) {
        self.collect_by(&mut self.intake.lock(), inbox);
    }

    fn collect_by(&self, intake: &mut Intake, inbox: &Inbox) {
        if let Err(error) = self.deliver(intake, inbox) {
            self.fail(error);
        }
    }

    fn deliver(&self, intake: &mut Intake, inbox: &Inbox) -> Result<(), VerbsError> {
        let taken = intake.take();
        self.starved.store(!intake.deliver(inbox)?, Relaxed);
        taken
    }

    /// Moves waiting messages into the mailbox, which has room again.
    #[inline]
    pub(super) fn made_room(&self, inbox: &Inbox) {
        fence(SeqCst);
        if self.starved.load(Relaxed) {
            self.collect_all(inbox);
            inbox.places.wake_for_mail();
        }
    }

    /// Returns what carries replies to a caller.
    pub(super) fn way(&self, to: &ReplyTo) -> Option<Way> {
        let ways = self.ways.get(usize::from(to.node.0))?.lock();
        let Ways { responder, session } = ways.get(usize::from(to.endpoint))?;
        // An endpoint that sends datagrams calls by nothing else.
        let session = session.clone().map(Way::Session).filter(|way| way.is_for(to));
        session.or_else(|| responder.clone().map(Way::Connection).filter(|way| way.is_for(to)))
    }

    /// Ends all connections of peers to this node, which their NICs find out.
    pub(super) fn break_connections(&self) {
        for ways in &self.ways {
            for Ways { responder, session } in ways.lock().iter() {
                responder.iter().for_each(|responder| responder.close());
                session.iter().for_each(|session| session.close());
            }
        }
    }

    /// Returns how queue pairs of this node are made.
    pub(super) fn shape<'a>(
        &self,
        sends: &'a Arc<CompletionQueue>,
        receives: &'a Arc<CompletionQueue>,
        most: (usize, usize),
    ) -> Shape<'a> {
        let inline = self.capabilities.inline_bytes;
        Shape { sends, receives, shared: None, most_sends: most.0, most_receives: most.1, inline, datagrams: false }
    }

    /// Makes this node's end of a connection.
    fn connect(&self, caller: &Caller, theirs: &End) -> Result<End, VerbsError> {
        let queue = Arc::new(CompletionQueue::new(&self.device, 2 * responder::DEPTH, false)?);
        let receives = Arc::clone(&self.intake.lock().receives);
        let shape = Shape { shared: Some(&receives), ..self.shape(&queue, &self.arrivals, (responder::DEPTH, 0)) };
        let pair = QueuePair::new(&self.device, &shape)?;
        let mine = self.end_of(&pair);
        let out = Outgoing::new(&self.device, pair, queue, self.message_bytes)?;
        let responder = Arc::new(Responder::new(caller, mine.pair, out));
        // Before anything can come by it, and after all that came by a pair of the same number.
        self.close(caller, |_| true, |session| session.owner.token != caller.token);
        {
            let mut intake = self.intake.lock();
            intake.take()?;
            intake.responders.insert(responder.pair, Arc::clone(&responder));
        }
        self.change(caller, |ways| ways.responder = Some(Arc::clone(&responder)));
        responder.connect(self.exit, &mine, theirs)?;
        Ok(mine)
    }

    /// Opens a session by datagrams.
    fn open_session(&self, caller: &Caller, theirs: &Contact) -> Result<Answer, VerbsError> {
        self.close(caller, |responder| responder.owner.token != caller.token, |_| true);
        let mut intake = self.intake.lock();
        let Some(datagrams) = &intake.datagrams else {
            return Ok(Answer::Refused("its messages do not go by datagrams; configure all nodes alike".into()));
        };
        let mine = datagrams.contact(super::random());
        let session = Arc::new(ServerSession::new(caller, *theirs, &mine, self.message_bytes));
        intake.sessions.insert(mine.token, Arc::clone(&session));
        drop(intake);
        self.change(caller, |ways| ways.session = Some(session));
        Ok(Answer::SessionOpened(mine))
    }

    /// Changes what a caller's endpoint is connected by.
    fn change(&self, caller: &Caller, change: impl FnOnce(&mut Ways)) {
        let mut ways = self.ways[usize::from(caller.node.0)].lock();
        let index = usize::from(caller.endpoint);
        if ways.len() <= index {
            ways.resize_with(index + 1, Ways::default);
        }
        change(&mut ways[index]);
    }

    /// Ends what a caller's endpoint is connected by, if it is such.
    fn close(
        &self,
        caller: &Caller,
        which_responder: impl FnOnce(&Responder) -> bool,
        which_session: impl FnOnce(&ServerSession) -> bool,
    ) {
        let Some(ways) = self.ways.get(usize::from(caller.node.0)) else { return };
        let (responder, session) = {
            let mut ways = ways.lock();
            let Some(Ways { responder, session }) = ways.get_mut(usize::from(caller.endpoint)) else { return };
            (
                responder.take_if(|responder| which_responder(responder)),
                session.take_if(|session| which_session(session)),
            )
        };
        if let Some(responder) = responder {
            responder.close();
            self.intake.lock().responders.remove(&responder.pair);
        }
        if let Some(session) = session {
            session.close();
            self.intake.lock().sessions.retain(|_, other| !Arc::ptr_eq(other, &session));
        }
    }

    /// Takes what has arrived, by the node's thread, and arms the completion queue. While endpoints
    /// look, too, it is not armed for each datagram, but the thread looks again after a while.
    fn attend(&self, inbox: &Inbox) {
        self.arrivals.take_events();
        let now = time::of_this_machine();
        let attended = self.attended.swap(false, Relaxed) && !inbox.places.anyone_sleeps();
        if self.by_datagram && attended {
            self.look_at.store((now + ATTENTION).nanos(), Relaxed);
        } else if self.by_datagram || inbox.places.anyone_sleeps() {
            // One of them is woken for what has come, and another may be for what comes next.
            self.look_at.store(0, Relaxed);
            self.arrivals.arm();
        }
        self.collect_all(inbox);
        if !inbox.mail.is_empty() {
            inbox.places.wake_for_mail();
        }
    }
}

/// What all connections of a device's port have in common.
pub(super) struct Ends {
    pub(super) exit: Exit,
    /// An end, but for its numbers.
    pub(super) end: End,
    pub(super) atomicity: Atomicity,
}

impl Ends {
    pub(super) fn of(device: &Device, config: &VerbsConfig) -> Result<Self, VerbsError> {
        let Abilities { atomicity, is_software, reads_in, reads_out } = device.abilities()?;
        let is_trusted = !is_software || config.software_swaps;
        let atomicity = if is_trusted { atomicity } else { Atomicity::None };
        let port = device.port(config.port)?;
        if !port.active {
            return Err(VerbsError::Port { port: config.port });
        }
        let (gid_index, gid) = address(device, &port, config)?;
        let end = End { pair: 0, first_packet: 0, gid, lid: port.lid, mtu: port.mtu, reads_in, reads_out };
        Ok(Self { exit: Exit { port: config.port, gid_index, global: port.ethernet }, end, atomicity })
    }
}

/// Returns the address of a port that packets carry.
fn address(device: &Device, port: &PortState, config: &VerbsConfig) -> Result<(u8, [u8; 16]), VerbsError> {
    /// What an address that is made of an IPv4 one begins with.
    const FROM_IPV4: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255];
    let none = VerbsError::Address { port: config.port, index: config.gid };
    if let Some(index) = config.gid {
        return device.gid(config.port, index).map(|gid| (index, gid)).ok_or(none);
    }
    let all: Vec<_> = device.gids(config.port, port).collect();
    let routed = all.iter().rfind(|(_, gid)| gid.starts_with(&FROM_IPV4));
    match routed.or(all.first()) {
        Some(found) => Ok(*found),
        // On InfiniBand there are other addresses.
        None if !port.ethernet => Ok((0, [0; 16])),
        None => Err(none),
    }
}

/// Returns how many bytes the device can send inline, as far as they are of use.
pub(super) fn inline(device: &Arc<Device>, sends: usize, receives: usize) -> Result<usize, VerbsError> {
    let queue = Arc::new(CompletionQueue::new(device, 1, false)?);
    let mut outcome = Ok(0);
    for inline in INLINE {
        let (most_sends, most_receives) = (sends, receives);
        let shape = Shape {
            sends: &queue,
            receives: &queue,
            shared: None,
            most_sends,
            most_receives,
            inline,
            datagrams: false,
        };
        outcome = QueuePair::new(device, &shape).map(|_| inline);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

impl<E: Engine> CallHandler for Adapter<E> {
    fn answer(&self, caller: &Caller, request: &[u8], reply: &mut Vec<u8>) {
        let answer = match Request::decode(request) {
            Some(Request::Connect(theirs)) => self.connect(caller, &theirs).map(Answer::Connected),
            Some(Request::OpenSession(theirs)) => self.open_session(caller, &theirs),
            Some(Request::Ask(region)) => self.exports.tell(&self.device, region),
            None => Ok(Answer::Refused("it makes no sense".into())),
        };
        answer.unwrap_or_else(|error| Answer::Refused(error.to_string())).encode(reply);
    }

    fn closed(&self, caller: &Caller) {
        self.close(
            caller,
            |responder| responder.owner.token == caller.token,
            |session| session.owner.token == caller.token,
        );
    }

    fn channel(&self) -> Option<BorrowedFd<'_>> {
        self.arrivals.channel()
    }

    fn woken(&self, inbox: &Inbox) {
        self.attend(inbox);
    }

    fn tend(&self, inbox: &Inbox) -> Option<Duration> {
        let look_at = Some(Time::from_nanos(self.look_at.load(Relaxed))).filter(|at| at.nanos() > 0)?;
        let left = look_at.since(time::of_this_machine());
        if left.is_zero() {
            self.attend(inbox);
            return Some(ATTENTION).filter(|_| self.look_at.load(Relaxed) > 0);
        }
        Some(left)
    }
}
