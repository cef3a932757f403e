//! What all endpoints of a node have in common: its NIC, what it lets peers access, and the
//! connections that peers have made to it.

use std::{
    collections::{HashMap, VecDeque},
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
            fence,
        },
    },
};

use drtm_htm::Engine;
use parking_lot::Mutex;

use crate::{
    Atomicity, Capabilities, Order, die,
    mailbox::Kind,
    port::{Frame, ReplyTo},
    tcp::{Attendant, Caller, Shared},
};

use super::{
    Posted, VerbsConfig, VerbsError,
    exports::Exports,
    lane::{self, Lane, Outgoing},
    letters::{HEAD, Head},
    setup::{Answer, Request},
    sys::{
        Abilities, Completion, CompletionQueue, Device, End, Exit, PortState, QueuePair, Shape, SharedReceives, Slab,
    },
};

/// Receives beyond those for what the mailbox has: a connection that breaks may take one along.
const SPARE: usize = 16;

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
    /// By the only thread that posts: no other writes.
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

/// Messages that have come, before they are in the mailbox.
#[derive(Debug)]
struct Intake {
    queue: Arc<CompletionQueue>,
    receives: Arc<SharedReceives>,
    slab: Slab,
    size: usize,
    /// Connections by the numbers of their queue pairs.
    lanes: HashMap<u32, Arc<Lane>>,
    completions: Vec<Completion>,
    /// What there is no room for in the mailbox: by which connection, where, and how long.
    waiting: VecDeque<(Arc<Lane>, u64, usize)>,
    frame: Frame,
}

impl Intake {
    fn new(device: &Arc<Device>, messages: usize, message_bytes: usize, huge: bool) -> Result<Self, VerbsError> {
        let (count, size) = (messages + SPARE, HEAD + message_bytes);
        // An error takes an entry, too.
        let queue = Arc::new(CompletionQueue::new(device, 2 * count, true)?);
        let receives = Arc::new(SharedReceives::new(device, count)?);
        let slab = Slab::new(device, count * size, huge)?;
        for index in 0..count {
            receives.post(index as u64, slab.span(index * size, size))?;
        }
        let (lanes, completions, waiting, frame) = Default::default();
        Ok(Self { queue, receives, slab, size, lanes, completions, waiting, frame })
    }

    /// Takes what has come, and says by which connections: those may be gone when there is room.
    fn take(&mut self) -> Result<(), VerbsError> {
        while self.queue.take(&mut self.completions) {}
        for Completion { id, received, pair, .. } in std::mem::take(&mut self.completions) {
            match (received, self.lanes.get(&pair)) {
                (Some(length), Some(lane)) => self.waiting.push_back((Arc::clone(lane), id, length)),
                // The connection is over.
                _ => self.repost(id)?,
            }
        }
        Ok(())
    }

    fn repost(&self, id: u64) -> Result<(), VerbsError> {
        self.receives.post(id, self.slab.span(id as usize * self.size, self.size))
    }
}

/// For each endpoint of a peer, its connection.
type Lanes = Vec<Option<Arc<Lane>>>;

#[derive(Debug)]
pub(super) struct Station<E: Engine> {
    pub(super) device: Arc<Device>,
    pub(super) exit: Exit,
    /// This node's end of a connection, but for its numbers.
    end: End,
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
    /// For each node.
    lanes: Box<[Mutex<Lanes>]>,
    /// Of endpoints, the ones that are gone included.
    tallies: Mutex<Vec<Arc<Tallies>>>,
    replied: Mutex<Posted>,
    failure: Mutex<Option<VerbsError>>,
}

impl<E: Engine> Station<E> {
    pub(super) fn new(config: &VerbsConfig) -> Result<Self, VerbsError> {
        let device = Arc::new(Device::open(config.device.as_deref())?);
        let Ends { exit, end, atomicity } = Ends::of(&device, config)?;
        let intake = Intake::new(&device, config.tcp.mailbox_size(), config.message_bytes, config.huge_pages)?;
        let arrivals = Arc::clone(&intake.queue);
        let capabilities = config.tcp.capabilities();
        let inline_bytes = inline(&device, capabilities.queue_depth, capabilities.max_calls)?;
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
            lanes: (0..config.tcp.nodes()).map(|_| Mutex::default()).collect(),
            tallies: Mutex::default(),
            replied: Mutex::default(),
            failure: Mutex::default(),
            device,
        })
    }

    /// An end of a connection, by this queue pair.
    pub(super) fn end_of(&self, pair: &QueuePair) -> End {
        End { pair: pair.number(), first_packet: fastrand::u32(..1 << 24), ..self.end }
    }

    /// What an endpoint counts by.
    pub(super) fn tallies(&self) -> Arc<Tallies> {
        let tallies = Arc::new(Tallies::default());
        self.tallies.lock().push(Arc::clone(&tallies));
        tallies
    }

    /// An endpoint is gone.
    pub(super) fn forget(&self, tallies: &Arc<Tallies>) {
        *self.replied.lock() += tallies.read();
        self.tallies.lock().retain(|one| !Arc::ptr_eq(one, tallies));
    }

    pub(super) fn posted(&self) -> Posted {
        let mut sum = *self.replied.lock();
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
    pub(super) fn collect(&self, shared: &Shared<E>) {
        if let Some(mut intake) = self.intake.try_lock() {
            self.collect_by(&mut intake, shared);
        }
    }

    /// The same, when all that has come by now must be found.
    pub(super) fn collect_all(&self, shared: &Shared<E>) {
        self.collect_by(&mut self.intake.lock(), shared);
    }

    fn collect_by(&self, intake: &mut Intake, shared: &Shared<E>) {
        if let Err(error) = self.deliver(intake, shared) {
            self.fail(error);
        }
    }

    fn deliver(&self, intake: &mut Intake, shared: &Shared<E>) -> Result<(), VerbsError> {
        intake.take()?;
        while let Some((lane, id, length)) = intake.waiting.front() {
            let at = *id as usize * intake.size;
            let mut head = [0; HEAD];
            intake.slab.read(at, &mut head);
            let kind = match Head::decode(&head) {
                Some(Head::Message) => Some(Kind::Message),
                Some(Head::Call(ticket)) => Some(Kind::Call(lane.reply_to(ticket))),
                // A peer that has the key, and says what makes no sense.
                Some(Head::Reply(_) | Head::Refusal(_)) | None => None,
            };
            if let (Some(kind), Some(bytes)) = (kind, length.checked_sub(HEAD)) {
                intake.frame.resize(bytes, 0);
                intake.slab.read(at + HEAD, &mut intake.frame);
                if !shared.mail.deliver(lane.node, kind, &intake.frame) {
                    self.starved.store(true, Relaxed);
                    return Ok(());
                }
            }
            die::site("nic.collected");
            let id = *id;
            intake.waiting.pop_front();
            intake.repost(id)?;
        }
        self.starved.store(false, Relaxed);
        Ok(())
    }

    /// There is room in the mailbox again.
    #[inline]
    pub(super) fn made_room(&self, shared: &Shared<E>) {
        fence(SeqCst);
        if self.starved.load(Relaxed) {
            self.collect_all(shared);
            shared.places.wake_for_mail();
        }
    }

    /// The connection of a caller.
    pub(super) fn lane(&self, to: &ReplyTo) -> Option<Arc<Lane>> {
        let lanes = self.lanes.get(usize::from(to.node.0))?.lock();
        lanes.get(usize::from(to.endpoint))?.as_ref().filter(|lane| lane.is_for(to)).cloned()
    }

    /// Ends all connections of peers to this node, which their NICs find out.
    pub(super) fn break_connections(&self) {
        for lanes in &self.lanes {
            lanes.lock().iter().flatten().for_each(|lane| lane.close());
        }
    }

    /// How queue pairs of this node are made.
    pub(super) fn shape<'a>(
        &self,
        sends: &'a Arc<CompletionQueue>,
        receives: &'a Arc<CompletionQueue>,
        most: (usize, usize),
    ) -> Shape<'a> {
        let inline = self.capabilities.inline_bytes;
        Shape { sends, receives, shared: None, most_sends: most.0, most_receives: most.1, inline }
    }

    /// Makes this node's end of a connection.
    fn connect(&self, caller: &Caller, theirs: &End) -> Result<End, VerbsError> {
        let queue = Arc::new(CompletionQueue::new(&self.device, 2 * lane::DEPTH, false)?);
        let receives = Arc::clone(&self.intake.lock().receives);
        let shape = Shape { shared: Some(&receives), ..self.shape(&queue, &self.arrivals, (lane::DEPTH, 0)) };
        let pair = QueuePair::new(&self.device, &shape)?;
        let mine = self.end_of(&pair);
        let out = Outgoing::new(&self.device, pair, queue, self.message_bytes)?;
        let lane = Arc::new(Lane::new(caller, mine.pair, out));
        // Before anything can come by it, and after all that came by a pair of the same number.
        self.close(caller, |_| true);
        {
            let mut intake = self.intake.lock();
            intake.take()?;
            intake.lanes.insert(lane.pair, Arc::clone(&lane));
        }
        {
            let mut lanes = self.lanes[usize::from(lane.node.0)].lock();
            let index = usize::from(lane.endpoint);
            if lanes.len() <= index {
                lanes.resize_with(index + 1, || None);
            }
            lanes[index] = Some(Arc::clone(&lane));
        }
        lane.connect(self.exit, &mine, theirs)?;
        Ok(mine)
    }

    /// Ends the connection of a caller's endpoint, if it is such a one.
    fn close(&self, caller: &Caller, which: impl FnOnce(&Lane) -> bool) {
        let Some(lanes) = self.lanes.get(usize::from(caller.node.0)) else { return };
        let lane = {
            let mut lanes = lanes.lock();
            let place = lanes.get_mut(usize::from(caller.endpoint));
            place.and_then(|place| place.take_if(|lane| which(lane)))
        };
        if let Some(lane) = lane {
            lane.close();
            self.intake.lock().lanes.remove(&lane.pair);
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
        let Abilities { atomicity, reads_in, reads_out } = device.abilities()?;
        let port = device.port(config.port)?;
        if !port.active {
            return Err(VerbsError::Port { port: config.port });
        }
        let (gid_index, gid) = address(device, &port, config)?;
        let end = End { pair: 0, first_packet: 0, gid, lid: port.lid, mtu: port.mtu, reads_in, reads_out };
        Ok(Self { exit: Exit { port: config.port, gid_index, global: port.ethernet }, end, atomicity })
    }
}

/// The address of a port that packets carry.
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

/// How many bytes the device can send inline, as far as they are of use.
pub(super) fn inline(device: &Arc<Device>, sends: usize, receives: usize) -> Result<usize, VerbsError> {
    let queue = Arc::new(CompletionQueue::new(device, 1, false)?);
    let mut outcome = Ok(0);
    for inline in INLINE {
        let (most_sends, most_receives) = (sends, receives);
        let shape = Shape { sends: &queue, receives: &queue, shared: None, most_sends, most_receives, inline };
        outcome = QueuePair::new(device, &shape).map(|_| inline);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

impl<E: Engine> Attendant<E> for Station<E> {
    fn answer(&self, caller: &Caller, request: &[u8], reply: &mut Vec<u8>) {
        let answer = match Request::decode(request) {
            Some(Request::Connect(theirs)) => self.connect(caller, &theirs).map(Answer::Connected),
            Some(Request::Ask(region)) => self.exports.tell(&self.device, region),
            None => Ok(Answer::Refused("it makes no sense".into())),
        };
        answer.unwrap_or_else(|error| Answer::Refused(error.to_string())).encode(reply);
    }

    fn closed(&self, caller: &Caller) {
        self.close(caller, |lane| lane.token == caller.token);
    }

    fn channel(&self) -> Option<BorrowedFd<'_>> {
        self.arrivals.channel()
    }

    fn woken(&self, shared: &Shared<E>) {
        self.arrivals.take_events();
        if shared.places.anyone_sleeps() {
            // One of them is woken for what has come, and another may be for what comes next.
            self.arrivals.arm();
        }
        self.collect_all(shared);
        if !shared.mail.is_empty() {
            shared.places.wake_for_mail();
        }
    }
}
