//! An endpoint's port into the cluster: a queue pair to each node that it uses, and one completion
//! queue for all of them.

use std::{fmt, sync::Arc};

use drtm_htm::Engine;

use crate::{
    Buffers, Capabilities, FabricError, Incarnation, NodeEvent, NodeId, Port, Presence, Time, VerbError,
    endpoint::{
        backend::Backend,
        port::{Activity, Events, Frame, Received, Reply, ReplyTo, Ticket, Work},
        queues::{Line as _, Queues},
    },
    fabric::{
        datagrams::WINDOW,
        header::{HEADER, Header},
        tcp::{Peer, Shared, TcpPort},
    },
    sync::alarm::Ringer,
};

use super::{
    Member, Posted, VerbsError,
    adapter::{Adapter, Tallies, Way},
    control::{Control, Heard},
    datagram_pair::{DATAGRAMS, DatagramPair},
    nic::{Nic, Room},
    number::Number,
    queue::Line,
    responder::Sent,
    slots::Slots,
    sys::{Completion, CompletionQueue, Requests, Slab},
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
    /// First, so that queue pairs go before what they use.
    queues: Queues<Peer, Line>,
    nic: Nic<E>,
    shared: Arc<Shared<E>>,
    /// A datagram's parcel, and the replies that are complete by it.
    parcel: Vec<u8>,
    replied: Vec<(Ticket, Option<Frame>)>,
    completions: Vec<Completion>,
    /// For each node and each of its endpoints that was replied to, by what.
    ways: Vec<Vec<Option<Way>>>,
    spare: Vec<Frame>,
    tallies: Arc<Tallies>,
    /// The node stays while it has endpoints.
    _member: Arc<Member<E>>,
}

impl<E: Engine> VerbsPort<E> {
    pub(super) fn new(member: &Arc<Member<E>>) -> Result<Self, FabricError> {
        let tcp = member.tcp.port()?;
        let adapter = Arc::clone(&member.adapter);
        let node = tcp.node();
        match Self::make(member, tcp, adapter) {
            Ok(port) => Ok(port),
            Err(VerbsError::LockedMemory { bytes, limit }) => Err(FabricError::LockedMemory { node, bytes, limit }),
            Err(error) => {
                member.adapter.fail(error);
                Err(FabricError::Device { node })
            }
        }
    }

    fn make(member: &Arc<Member<E>>, tcp: TcpPort<E>, adapter: Arc<Adapter<E>>) -> Result<Self, VerbsError> {
        let Capabilities { queue_depth: depth, max_calls: calls, .. } = adapter.capabilities;
        let Buffers { small, medium, large } = tcp.buffers();
        // An operation holds a buffer of the endpoint's while it has a slot; words and bytes have
        // as many each.
        let slots = Slots::new(&[
            (8, CELLS),
            (Buffers::SMALL + HEADER, 2 * small),
            (Buffers::MEDIUM + HEADER, 2 * medium),
            (Buffers::LARGE + HEADER, 2 * large),
        ]);
        let device = &Arc::new(adapter.device.again()?);
        // Datagrams beyond these are sent again.
        let others = if adapter.by_datagram { calls + 2 * WINDOW } else { 0 };
        let entries = Room::entries(PAIRS, depth, calls) + others;
        let completed = Arc::new(CompletionQueue::new(device, entries, true)?);
        if let Some(channel) = completed.channel() {
            let failed =
                |errno: rustix::io::Errno| VerbsError::System { what: "watch a channel", source: errno.into() };
            tcp.watch_also(channel).map_err(failed)?;
        }
        let nodes = tcp.shared().nodes();
        let inline = adapter.capabilities.inline_bytes;
        let datagrams = || DatagramPair::new(device, adapter.exit, &adapter.end, &completed, others, inline);
        let nic = Nic {
            datagrams: adapter.by_datagram.then(datagrams).transpose()?,
            control: Control::new(),
            device: Arc::clone(device),
            slab: Slab::new(device, slots.bytes(), adapter.huge_pages)?,
            slots,
            requests: Requests::default(),
            posted: Posted::default(),
            replies: Slab::new(device, calls * (HEADER + adapter.message_bytes), adapter.huge_pages)?,
            free_replies: (0..calls as u32).rev().collect(),
            completed,
            room: Room { pairs: 0, most: PAIRS, others },
            tcp,
            adapter,
        };
        Ok(Self {
            // Changes are told by TCP.
            queues: Queues::new(nodes, depth, 0, Line::default),
            shared: Arc::clone(nic.tcp.shared()),
            parcel: Vec::new(),
            replied: Vec::new(),
            completions: Vec::new(),
            ways: (0..nodes).map(|_| Vec::new()).collect(),
            spare: Vec::new(),
            tallies: nic.adapter.tallies(),
            nic,
            _member: Arc::clone(member),
        })
    }

    /// Handles what TCP reports: changes of presence, answers, departures.
    fn hear(&mut self, events: &mut impl Events) {
        // What goes on there is shown by what waits for it here.
        let _ = self.nic.tcp.poll(&mut self.nic.control);
        if self.nic.control.take_changed() {
            for queue in self.queues.departed() {
                queue.end(&mut self.nic, events);
            }
            events.changed();
        }
        while let Some(heard) = self.nic.control.next() {
            let node = match heard {
                Heard::Answer(node, ..) | Heard::Departed(node) => node,
            };
            self.queues.activate(node);
            let Some(queue) = self.queues.get(node) else { continue };
            match heard {
                Heard::Answer(_, ticket, frame) => {
                    queue.hear(&self.nic.adapter, ticket, frame.as_deref());
                    if let Some(frame) = frame {
                        self.nic.tcp.recycle_reply(frame);
                    }
                }
                Heard::Departed(_) => queue.cut(),
            }
        }
    }

    /// Handles the NIC's completions.
    #[inline]
    fn take_completions(&mut self, events: &mut impl Events) {
        loop {
            let more = self.nic.completed.take(&mut self.completions);
            for index in 0..self.completions.len() {
                let Completion { id, failure, received, .. } = self.completions[index];
                let number = Number::decode(id);
                if number.queue == DATAGRAMS {
                    match (failure, received) {
                        (None, Some(length)) => self.receive_datagram(number.request, length, events),
                        (failure, _) => {
                            failure.into_iter().for_each(|status| self.nic.adapter.fail(VerbsError::Failed { status }))
                        }
                    }
                    continue;
                }
                let Some(queue) = self.queues.get(NodeId(number.queue)) else { continue };
                match (failure, received) {
                    (Some(status), _) => queue.fail(&self.nic.adapter, number, status),
                    (None, Some(length)) => {
                        queue.receive(&mut self.nic, number, length, &mut self.spare, events);
                    }
                    (None, None) => queue.complete(&mut self.nic, number, events),
                }
                if queue.line.has_failed() {
                    self.queues.activate(NodeId(number.queue));
                }
            }
            self.completions.clear();
            if !more {
                return;
            }
        }
    }

    /// Handles a datagram of the node that its token names. Others are dropped.
    fn receive_datagram(&mut self, place: u32, length: usize, events: &mut impl Events) {
        let Some(datagrams) = &mut self.nic.datagrams else { return };
        let prefix = datagrams.read(place, length, &mut self.parcel);
        if let Err(error) = datagrams.repost(place) {
            self.nic.adapter.fail(error);
        }
        let Some(prefix) = prefix else { return };
        let node = NodeId((prefix.token >> 48) as u16);
        let Some(queue) = self.queues.get(node) else { return };
        let (parcel, replied) = (std::mem::take(&mut self.parcel), &mut self.replied);
        queue.receive_datagram(&mut self.nic, &prefix, &parcel, &mut self.spare, replied, events);
        self.parcel = parcel;
        self.queues.activate(node);
    }

    /// Sends the datagrams that are prepared.
    fn flush(&mut self) {
        if let Some(datagrams) = &mut self.nic.datagrams
            && let Err(error) = datagrams.flush(&mut self.nic.posted)
        {
            // Nothing is answered, so the talks are given up.
            self.nic.adapter.fail(error);
        }
    }

    /// Returns what carries replies to a caller.
    fn way(&mut self, to: &ReplyTo) -> Option<&Way> {
        let ways = self.ways.get_mut(usize::from(to.node.0))?;
        let index = usize::from(to.endpoint);
        if ways.len() <= index {
            ways.resize_with(index + 1, || None);
        }
        let place = &mut ways[index];
        if !place.as_ref().is_some_and(|way| way.is_for(to)) {
            *place = self.nic.adapter.way(to);
        }
        place.as_ref()
    }

    fn send_reply(&mut self, to: &ReplyTo, reply: &Reply) -> Sent {
        let Some(way) = self.way(to).cloned() else { return Sent::Done };
        let head = if reply.refused { Header::Refusal(to.ticket) } else { Header::Reply(to.ticket) };
        let bytes = if reply.refused { &[] } else { &reply.frame[..] };
        let inline = self.nic.adapter.capabilities.inline_bytes;
        let posted = &mut self.nic.posted;
        let count = |signaled: bool| {
            posted.doorbells += 1;
            posted.requests += 1;
            posted.inlined += u64::from(HEADER + bytes.len() <= inline);
            posted.signaled += u64::from(signaled);
        };
        let sent = match (&way, &mut self.nic.datagrams) {
            (Way::Connection(responder), _) => responder.send(head, bytes, inline, count),
            (Way::Session(session), Some(datagrams)) => session.send(head, bytes, datagrams, posted),
            // A node that has no datagrams has no sessions.
            (Way::Session(_), None) => Ok(Sent::Done),
        };
        match sent {
            Ok(sent) => sent,
            Err(error) => {
                // Its caller sees that the connection is broken.
                self.nic.adapter.fail(error);
                Sent::Done
            }
        }
    }

    fn recycle(&self, frame: Frame) {
        self.shared.inbox.mail.recycle(frame);
        self.nic.adapter.made_room(&self.shared.inbox);
    }

    #[inline]
    fn count(&mut self) {
        if self.nic.posted != Posted::default() {
            self.tallies.add(std::mem::take(&mut self.nic.posted));
        }
    }
}

impl<E: Engine> Port for VerbsPort<E> {}

impl<E: Engine> Backend for VerbsPort<E> {
    type Life = Peer;
    type Line = Line;

    const YIELDS: bool = false;

    fn node(&self) -> NodeId {
        self.shared.node
    }

    fn capabilities(&self) -> Capabilities {
        self.nic.adapter.capabilities
    }

    fn buffers(&self) -> Buffers {
        self.nic.tcp.buffers()
    }

    #[inline(always)]
    fn queues(&mut self) -> &mut Queues<Peer, Line> {
        &mut self.queues
    }

    fn life(&self, node: NodeId) -> Result<Arc<Peer>, VerbError> {
        self.shared.life_in_directory(node)
    }

    /// Reconnects over TCP first, by which the connection is set up.
    fn may_reconnect(&mut self, node: NodeId, incarnation: Incarnation) -> Result<bool, VerbError> {
        Ok(self.nic.tcp.reconnect(node)? == Some(incarnation))
    }

    #[inline(always)]
    fn post(&mut self, work: Work) {
        let (queue, active) = self.queues.reserved(work.verb.node());
        queue.line.push(work);
        queue.state.activate(active);
    }

    #[inline]
    fn ring(&mut self) {
        self.queues.for_each_active(|queue| queue.post(&mut self.nic));
        self.flush();
        self.count();
    }

    fn poll(&mut self, events: &mut impl Events) -> Activity {
        self.hear(events);
        self.take_completions(events);
        let (mut activity, mut place) = (Activity::Idle, 0);
        while let Some((queue, active)) = self.queues.active(place) {
            activity = activity.max(queue.advance(&mut self.nic, events));
            place = queue.next(active, place);
        }
        self.flush();
        self.count();
        activity
    }

    #[inline]
    fn has_mail(&mut self) -> bool {
        if self.shared.inbox.mail.is_empty() {
            self.nic.adapter.collect(&self.shared.inbox);
        }
        !self.shared.inbox.mail.is_empty()
    }

    fn receive(&mut self) -> Option<Received> {
        if self.shared.inbox.mail.is_empty() {
            self.nic.adapter.collect(&self.shared.inbox);
        }
        self.shared.inbox.mail.receive_message()
    }

    fn reply(&mut self, to: &ReplyTo, reply: Reply) -> Result<(), (Reply, Activity)> {
        let sent = self.send_reply(to, &reply);
        self.count();
        if sent == Sent::Busy {
            return Err((reply, Activity::Busy));
        }
        self.recycle(reply.frame);
        Ok(())
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
        self.nic.tcp.now()
    }

    fn ringer(&self) -> Ringer {
        self.nic.tcp.ringer()
    }

    /// Sleeps on what TCP sleeps on, which has the completion channel, too.
    fn wait(&mut self, until: Option<Time>, receiving: bool, quiet: impl FnOnce() -> bool) {
        let mut until = until;
        self.queues.for_each_active(|queue| until = until.into_iter().chain(queue.line.next_probe()).min());
        let (adapter, shared) = (&self.nic.adapter, &self.shared);
        let (completed, completions) = (&self.nic.completed, &mut self.completions);
        self.nic.tcp.wait(until, receiving, || {
            // What comes after this is an event.
            completed.arm();
            while completed.take(completions) {}
            if receiving {
                adapter.arrivals.arm();
                adapter.collect_all(&shared.inbox);
            }
            completions.is_empty() && (!receiving || shared.inbox.mail.is_empty()) && quiet()
        });
        self.nic.completed.take_events();
    }

    fn retire(&mut self) {
        self.nic.adapter.collect_all(&self.shared.inbox);
        self.nic.tcp.retire();
    }

    fn presence(&self, node: NodeId) -> Presence {
        self.nic.tcp.presence(node)
    }

    fn is_refused_by(&self, node: NodeId) -> bool {
        self.nic.tcp.is_refused_by(node)
    }

    fn next_event(&mut self) -> Option<NodeEvent> {
        self.nic.tcp.next_event()
    }
}

impl<E: Engine> Drop for VerbsPort<E> {
    fn drop(&mut self) {
        self.count();
        self.nic.adapter.forget(&self.tallies);
        self.retire();
    }
}

impl<E: Engine> fmt::Debug for VerbsPort<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsPort").field("node", &self.shared.node).finish_non_exhaustive()
    }
}
