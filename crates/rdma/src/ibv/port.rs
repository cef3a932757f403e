//! An endpoint's port into the cluster: a queue pair to each node that it uses, and one completion
//! queue for all of them.

use std::{collections::VecDeque, fmt, sync::Arc};

use drtm_htm::Engine;

use crate::{
    Buffers, Capabilities, FabricError, Incarnation, NodeEvent, NodeId, Port, Presence, Time, VerbError,
    alarm::Ringer,
    datagrams::WINDOW,
    port::{Activity, Backend, Events, Frame, Received, Reply, ReplyTo, Ticket, Work},
    tcp::{Shared, TcpPort},
};

use super::{
    Member, Posted, VerbsError,
    context::{Number, QueueContext, Room},
    control::{Control, Heard},
    lane::Sent,
    letters::{HEAD, Head},
    mouth::{DATAGRAMS, Mouth},
    queue::Queue,
    slots::Slots,
    station::{Station, Tallies, Way},
    sys::{Completion, CompletionQueue, Device, Requests, Slab},
};

/// Frames for replies that a port keeps.
const SPARE: usize = 256;

/// Queue pairs for which a completion queue has room at first.
const PAIRS: usize = 2;

/// Values of atomics for which there is memory.
const CELLS: usize = 1024;

/// What carries the operations of a [`VerbsFabric`](super::VerbsFabric)'s endpoints.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Endpoint, VerbsPort};
///
/// /// A worker of a program that runs on machines with RDMA NICs.
/// struct Worker {
///     endpoint: Endpoint<VerbsPort<NoHtm>>,
/// }
/// # let _ = |worker: Worker| worker.endpoint;
/// ```
pub struct VerbsPort<E: Engine> {
    /// For each node. First, so that queue pairs go before what they use.
    queues: Vec<Queue>,
    /// For messages to all nodes, if they go by datagrams.
    mouth: Option<Mouth>,
    /// A datagram's parcel, and the replies that are complete by it.
    parcel: Vec<u8>,
    replied: Vec<(Ticket, Option<Frame>)>,
    /// Queues of which something waits, or that have something to report.
    active: Vec<u32>,
    tcp: TcpPort<E>,
    control: Control,
    station: Arc<Station<E>>,
    device: Arc<Device>,
    shared: Arc<Shared<E>>,
    depth: usize,
    slab: Slab,
    slots: Slots,
    replies: Slab,
    free_replies: Vec<u32>,
    requests: Requests,
    completions: Vec<Completion>,
    completed: Arc<CompletionQueue>,
    room: Room,
    /// For each node and each of its endpoints that was replied to, by what.
    ways: Vec<Vec<Option<Way>>>,
    /// Replies that wait for room.
    waiting: VecDeque<(ReplyTo, Reply)>,
    spare: Vec<Frame>,
    posted: Posted,
    tallies: Arc<Tallies>,
    /// The node stays while it has endpoints.
    _member: Arc<Member<E>>,
}

/// What queues share, of the port's parts beside them.
macro_rules! context {
    ($port:ident) => {
        QueueContext {
            station: &$port.station,
            device: &$port.device,
            control: &mut $port.control,
            tcp: &mut $port.tcp,
            queue: &$port.completed,
            slab: &mut $port.slab,
            slots: &mut $port.slots,
            requests: &mut $port.requests,
            posted: &mut $port.posted,
            mouth: &mut $port.mouth,
            replies: &$port.replies,
            free_replies: &mut $port.free_replies,
            room: &mut $port.room,
        }
    };
}

impl<E: Engine> VerbsPort<E> {
    pub(super) fn new(member: &Arc<Member<E>>) -> Result<Self, FabricError> {
        let tcp = member.tcp.port()?;
        let station = Arc::clone(&member.station);
        let node = tcp.node();
        match Self::make(member, tcp, station) {
            Ok(port) => Ok(port),
            Err(VerbsError::LockedMemory { bytes, limit }) => Err(FabricError::LockedMemory { node, bytes, limit }),
            Err(error) => {
                member.station.fail(error);
                Err(FabricError::Device { node })
            }
        }
    }

    fn make(member: &Arc<Member<E>>, tcp: TcpPort<E>, station: Arc<Station<E>>) -> Result<Self, VerbsError> {
        let Capabilities { queue_depth: depth, max_calls: calls, .. } = station.capabilities;
        let Buffers { small, medium, large } = tcp.buffers();
        // An operation holds a buffer of the endpoint's while it has a slot; words and bytes have
        // as many each.
        let slots = Slots::new(&[
            (8, CELLS),
            (Buffers::SMALL + HEAD, 2 * small),
            (Buffers::MEDIUM + HEAD, 2 * medium),
            (Buffers::LARGE + HEAD, 2 * large),
        ]);
        let device = &Arc::new(station.device.again()?);
        // Datagrams beyond these are sent again.
        let others = if station.by_datagram { calls + 2 * WINDOW } else { 0 };
        let entries = Room::entries(PAIRS, depth, calls) + others;
        let completed = Arc::new(CompletionQueue::new(device, entries, true)?);
        if let Some(channel) = completed.channel() {
            let failed =
                |errno: rustix::io::Errno| VerbsError::System { what: "watch a channel", source: errno.into() };
            tcp.watch_also(channel).map_err(failed)?;
        }
        let nodes = tcp.shared().nodes();
        let inline = station.capabilities.inline_bytes;
        let mouth = || Mouth::new(device, station.exit, &station.end, &completed, others, inline);
        Ok(Self {
            mouth: station.by_datagram.then(mouth).transpose()?,
            parcel: Vec::new(),
            replied: Vec::new(),
            queues: (0..nodes).map(|node| Queue::new(NodeId(node as u16))).collect(),
            active: Vec::new(),
            control: Control::new(),
            shared: Arc::clone(tcp.shared()),
            depth,
            slab: Slab::new(device, slots.bytes(), station.huge_pages)?,
            slots,
            replies: Slab::new(device, calls * (HEAD + station.message_bytes), station.huge_pages)?,
            free_replies: (0..calls as u32).rev().collect(),
            requests: Requests::default(),
            completions: Vec::new(),
            completed,
            room: Room { pairs: 0, most: PAIRS, others },
            ways: (0..nodes).map(|_| Vec::new()).collect(),
            waiting: VecDeque::new(),
            spare: Vec::new(),
            posted: Posted::default(),
            tallies: station.tallies(),
            tcp,
            device: Arc::clone(device),
            station,
            _member: Arc::clone(member),
        })
    }

    fn activate(&mut self, index: usize) {
        if let Some(queue) = self.queues.get_mut(index)
            && !std::mem::replace(&mut queue.active, true)
        {
            self.active.push(index as u32);
        }
    }

    /// The first time, the queue is connected. Otherwise there is no room.
    #[cold]
    fn reserve_or_refuse(&mut self, to: NodeId) -> Result<(), VerbError> {
        let unknown = VerbError::UnknownNode { node: to };
        let queue = self.queues.get_mut(usize::from(to.0)).ok_or(unknown)?;
        if queue.life().is_none() {
            queue.connect(self.shared.life_in_directory(to)?);
        }
        if queue.taken >= self.depth {
            return Err(VerbError::QueueFull { node: to, depth: self.depth });
        }
        queue.taken += 1;
        Ok(())
    }

    /// What TCP has told.
    fn hear(&mut self, events: &mut impl Events) {
        // What goes on there is shown by what waits for it here.
        let _ = self.tcp.poll(&mut self.control);
        if self.control.take_changed() {
            for index in 0..self.queues.len() {
                if self.queues[index].has_departed() {
                    self.activate(index);
                }
            }
            events.changed();
        }
        while let Some(heard) = self.control.next() {
            let node = match heard {
                Heard::Answer(node, ticket, frame) => {
                    if let Some(queue) = self.queues.get_mut(usize::from(node.0)) {
                        queue.hear(&self.station, ticket, frame.as_deref());
                    }
                    if let Some(frame) = frame {
                        self.tcp.recycle_reply(frame);
                    }
                    node
                }
                Heard::Departed(node) => {
                    if let Some(queue) = self.queues.get_mut(usize::from(node.0)) {
                        queue.cut();
                    }
                    node
                }
            };
            self.activate(usize::from(node.0));
        }
    }

    /// What the NIC has done.
    #[inline]
    fn take_completions(&mut self, events: &mut impl Events) {
        loop {
            let more = self.completed.take(&mut self.completions);
            for index in 0..self.completions.len() {
                let Completion { id, failure, received, .. } = self.completions[index];
                let number = Number::decode(id);
                if number.queue == DATAGRAMS {
                    match (failure, received) {
                        (None, Some(length)) => self.hear_datagram(number.request, length, events),
                        (failure, _) => {
                            failure.into_iter().for_each(|status| self.station.fail(VerbsError::Failed { status }))
                        }
                    }
                    continue;
                }
                let Some(queue) = self.queues.get_mut(usize::from(number.queue)) else { continue };
                match (failure, received) {
                    (Some(status), _) => queue.fail(&self.station, number, status),
                    (None, Some(length)) => {
                        queue.receive(&mut context!(self), number, length, &mut self.spare, events);
                    }
                    (None, None) => queue.complete(&mut context!(self), number, events),
                }
                if queue.severed {
                    self.activate(usize::from(number.queue));
                }
            }
            self.completions.clear();
            if !more {
                return;
            }
        }
    }

    /// A datagram has come: from the node that its token names, or it is dropped.
    fn hear_datagram(&mut self, place: u32, length: usize, events: &mut impl Events) {
        let Some(mouth) = &mut self.mouth else { return };
        let prefix = mouth.read(place, length, &mut self.parcel);
        if let Err(error) = mouth.repost(place) {
            self.station.fail(error);
        }
        let Some(prefix) = prefix else { return };
        let index = (prefix.token >> 48) as usize;
        let Some(queue) = self.queues.get_mut(index) else { return };
        let (parcel, replied) = (std::mem::take(&mut self.parcel), &mut self.replied);
        queue.hear_datagram(&mut context!(self), &prefix, &parcel, &mut self.spare, replied, events);
        self.parcel = parcel;
        self.activate(index);
    }

    /// Sends the datagrams that are prepared.
    fn flush(&mut self) {
        if let Some(mouth) = &mut self.mouth
            && let Err(error) = mouth.flush(&mut self.posted)
        {
            // Nothing is answered, so the talks are given up.
            self.station.fail(error);
        }
    }

    /// By what a caller gets its reply.
    fn way(&mut self, to: &ReplyTo) -> Option<&Way> {
        let ways = self.ways.get_mut(usize::from(to.node.0))?;
        let index = usize::from(to.endpoint);
        if ways.len() <= index {
            ways.resize_with(index + 1, || None);
        }
        let place = &mut ways[index];
        if !place.as_ref().is_some_and(|way| way.is_for(to)) {
            *place = self.station.way(to);
        }
        place.as_ref()
    }

    fn send_reply(&mut self, to: &ReplyTo, reply: &Reply) -> Sent {
        let Some(way) = self.way(to).cloned() else { return Sent::Done };
        let head = if reply.refused { Head::Refusal(to.ticket) } else { Head::Reply(to.ticket) };
        let bytes = if reply.refused { &[] } else { &reply.frame[..] };
        let inline = self.station.capabilities.inline_bytes;
        let posted = &mut self.posted;
        let count = |signaled: bool| {
            posted.doorbells += 1;
            posted.requests += 1;
            posted.inlined += u64::from(HEAD + bytes.len() <= inline);
            posted.signaled += u64::from(signaled);
        };
        let sent = match (&way, &mut self.mouth) {
            (Way::Lane(lane), _) => lane.send(head, bytes, inline, count),
            (Way::Guest(guest), Some(mouth)) => guest.send(head, bytes, mouth, posted),
            // A node that has no mouth has no guests.
            (Way::Guest(_), None) => Ok(Sent::Done),
        };
        match sent {
            Ok(sent) => sent,
            Err(error) => {
                // Its caller sees that the connection is broken.
                self.station.fail(error);
                Sent::Done
            }
        }
    }

    fn recycle(&self, frame: Frame) {
        self.shared.mail.recycle(frame);
        self.station.made_room(&self.shared);
    }

    /// Sends replies that waited, as far as there is room.
    #[cold]
    fn send_waiting_replies(&mut self) {
        for _ in 0..self.waiting.len() {
            let Some((to, reply)) = self.waiting.pop_front() else { break };
            match self.send_reply(&to, &reply) {
                Sent::Done => self.recycle(reply.frame),
                Sent::Busy => self.waiting.push_back((to, reply)),
            }
        }
    }

    #[inline]
    fn count(&mut self) {
        if self.posted != Posted::default() {
            self.tallies.add(std::mem::take(&mut self.posted));
        }
    }
}

impl<E: Engine> Port for VerbsPort<E> {}

impl<E: Engine> Backend for VerbsPort<E> {
    const YIELDS: bool = false;

    fn node(&self) -> NodeId {
        self.shared.node
    }

    fn capabilities(&self) -> Capabilities {
        self.station.capabilities
    }

    fn buffers(&self) -> Buffers {
        self.tcp.buffers()
    }

    #[inline(always)]
    fn reserve(&mut self, to: NodeId) -> Result<(), VerbError> {
        if let Some(queue) = self.queues.get_mut(usize::from(to.0))
            && queue.life().is_some()
            && queue.taken < self.depth
        {
            queue.taken += 1;
            return Ok(());
        }
        self.reserve_or_refuse(to)
    }

    fn release(&mut self, to: NodeId) {
        self.queues[usize::from(to.0)].taken -= 1;
    }

    #[inline(always)]
    fn post(&mut self, work: Work) {
        let index = usize::from(work.verb.node().0);
        self.queues[index].push(work);
        self.activate(index);
    }

    #[inline]
    fn ring(&mut self) {
        for active in &self.active {
            self.queues[*active as usize].post(&mut context!(self));
        }
        self.flush();
        self.count();
    }

    fn poll(&mut self, events: &mut impl Events) -> Activity {
        self.hear(events);
        self.take_completions(events);
        let mut activity = Activity::Idle;
        if !self.waiting.is_empty() {
            self.send_waiting_replies();
            if !self.waiting.is_empty() {
                activity = Activity::Busy;
            }
        }
        let mut index = 0;
        while let Some(&active) = self.active.get(index) {
            let queue = &mut self.queues[active as usize];
            activity = activity.max(queue.advance(&mut context!(self), events));
            if queue.is_quiet() {
                queue.active = false;
                self.active.swap_remove(index);
            } else {
                index += 1;
            }
        }
        self.flush();
        self.count();
        activity
    }

    #[inline]
    fn has_mail(&mut self) -> bool {
        if self.shared.mail.is_empty() {
            self.station.collect(&self.shared);
        }
        !self.shared.mail.is_empty()
    }

    fn receive(&mut self) -> Option<Received> {
        if self.shared.mail.is_empty() {
            self.station.collect(&self.shared);
        }
        self.shared.mail.receive_message()
    }

    fn reply(&mut self, to: ReplyTo, reply: Reply) {
        if self.waiting.is_empty() && self.send_reply(&to, &reply) == Sent::Done {
            self.recycle(reply.frame);
        } else {
            self.waiting.push_back((to, reply));
        }
        self.count();
    }

    fn recycle_message(&mut self, frame: Frame) {
        self.recycle(frame);
    }

    fn recycle_reply(&mut self, frame: Frame) {
        if self.spare.len() < SPARE {
            self.spare.push(frame);
        }
    }

    fn now(&self) -> Time {
        self.tcp.now()
    }

    fn ringer(&self) -> Ringer {
        self.tcp.ringer()
    }

    /// Sleeps on what TCP sleeps on, which has the completion channel, too.
    fn wait(&mut self, until: Option<Time>, receiving: bool, quiet: impl FnOnce() -> bool) {
        let probes = self.active.iter().filter_map(|active| self.queues[*active as usize].next_probe());
        let until = probes.chain(until).min();
        let (station, shared) = (&self.station, &self.shared);
        let (completed, completions) = (&self.completed, &mut self.completions);
        self.tcp.wait(until, receiving, || {
            // What comes after this is an event.
            completed.arm();
            while completed.take(completions) {}
            if receiving {
                station.arrivals.arm();
                station.collect_all(shared);
            }
            completions.is_empty() && (!receiving || shared.mail.is_empty()) && quiet()
        });
        self.completed.take_events();
    }

    fn retire(&mut self) {
        self.station.collect_all(&self.shared);
        self.tcp.retire();
    }

    fn presence(&self, node: NodeId) -> Presence {
        self.tcp.presence(node)
    }

    fn next_event(&mut self) -> Option<NodeEvent> {
        self.tcp.next_event()
    }

    fn reconnect(&mut self, node: NodeId) -> Result<Option<Incarnation>, VerbError> {
        let life = self.shared.life_in_directory(node)?;
        if life.is_over() {
            return Err(life.gone());
        }
        let index = usize::from(node.0);
        let incarnation = life.incarnation;
        if !self.queues[index].is_of(&life) {
            // What is left ends at the next poll.
            if !self.queues[index].may_connect() {
                self.activate(index);
                return Ok(None);
            }
            if self.tcp.reconnect(node)? != Some(incarnation) {
                return Ok(None);
            }
            self.queues[index].connect(life);
        }
        Ok(Some(incarnation))
    }
}

impl<E: Engine> Drop for VerbsPort<E> {
    fn drop(&mut self) {
        // Replies that were given are sent, as far as there is room.
        self.send_waiting_replies();
        for (_, reply) in std::mem::take(&mut self.waiting) {
            self.recycle(reply.frame);
        }
        self.count();
        self.station.forget(&self.tallies);
        self.retire();
    }
}

impl<E: Engine> fmt::Debug for VerbsPort<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsPort").field("node", &self.shared.node).finish_non_exhaustive()
    }
}
