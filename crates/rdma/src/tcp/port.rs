//! An endpoint's port into the cluster: a connection to each node that it uses.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Relaxed},
    },
};

use drtm_htm::Engine;

use crate::{
    Buffers, Capabilities, FabricError, Incarnation, NodeEvent, NodeId, Port, Presence, Time, VerbError,
    alarm::{Ring, Ringer},
    die,
    membership::Told,
    port::{Activity, Backend, Events, Frame, Received, Reply, ReplyTo, Work},
    time,
};

#[cfg(feature = "verbs")]
use {super::bell::Interest, rustix::io::Errno, std::os::fd::AsFd};

use super::{
    Member,
    bell::Ready,
    queue::{Heard, Queue, Sending},
    service::Service,
    shared::{Caller, Place, Shared},
    wire::{self, Response},
};

/// The token of the node's sockets.
const NODE: u64 = u32::MAX as u64 - 1;

/// Turns without anything after which an endpoint that leads takes only some of the turns that it
/// could: its own operations may be awaited.
const EAGER: u32 = 64;
const SOME: u32 = 16;

/// Frames for replies that a port keeps.
const SPARE: usize = 256;

/// What carries the operations of a [`TcpFabric`](super::TcpFabric)'s endpoints.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Endpoint, TcpPort};
///
/// /// A worker of a program that runs on several machines.
/// struct Worker {
///     endpoint: Endpoint<TcpPort<NoHtm>>,
/// }
/// # let _ = |worker: Worker| worker.endpoint;
/// ```
pub struct TcpPort<E: Engine> {
    /// The node stays while it has endpoints.
    member: Arc<Member<E>>,
    shared: Arc<Shared<E>>,
    endpoint: u16,
    life: u32,
    place: Arc<Place>,
    /// For each node.
    queues: Vec<Queue>,
    /// Queues that have something under way, or of which something was heard.
    active: Vec<u32>,
    depth: usize,
    /// For each node and each of its endpoints that was replied to, the connection.
    callers: Vec<Vec<Option<Arc<Caller>>>>,
    /// Connections that have replies to be written.
    unwritten: Vec<Arc<Caller>>,
    /// Replies that wait for room.
    replies: VecDeque<(ReplyTo, Reply)>,
    spare: Vec<Frame>,
    ready: Vec<Ready>,
    /// Changes that were looked at, and what was told of them.
    changes: u32,
    told: Told,
    /// It has taken over the node's sockets, as far as it knows.
    leads: bool,
    /// It has attended to them since the last poll.
    attended: bool,
    /// Turns at them since there was something.
    vain: u32,
    /// There was something.
    served: bool,
}

/// What became of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// It is sent, or its caller is gone.
    Done,
    /// The service has the connection at the moment.
    Busy,
    /// The peer does not read what it is told.
    Full,
}

impl<E: Engine> TcpPort<E> {
    pub(super) fn new(member: &Arc<Member<E>>) -> Result<Self, FabricError> {
        let shared = Arc::clone(&member.shared);
        let (endpoint, place) = shared.move_in()?;
        Ok(Self {
            member: Arc::clone(member),
            endpoint,
            life: place.tenancy.life.load(Acquire),
            place,
            queues: (0..shared.nodes()).map(|node| Queue::new(NodeId(node as u16))).collect(),
            active: Vec::new(),
            depth: shared.config.queue_depth,
            callers: (0..shared.nodes()).map(|_| Vec::new()).collect(),
            unwritten: Vec::new(),
            replies: VecDeque::new(),
            spare: Vec::new(),
            ready: Vec::new(),
            changes: shared.changes.load(Acquire),
            told: Told::of(shared.presences()),
            leads: false,
            attended: false,
            vain: 0,
            served: false,
            shared,
        })
    }

    #[cfg(feature = "verbs")]
    pub(crate) fn shared(&self) -> &Arc<Shared<E>> {
        &self.shared
    }

    /// Lets something beside the sockets end a wait.
    #[cfg(feature = "verbs")]
    pub(crate) fn watch_also(&self, descriptor: impl AsFd) -> Result<(), Errno> {
        // The token of no node.
        self.place.bell.watch(descriptor, u64::from(u32::MAX), Interest::INPUT)
    }

    fn activate(&mut self, index: usize) {
        if let Some(queue) = self.queues.get_mut(index)
            && !std::mem::replace(&mut queue.active, true)
        {
            self.active.push(index as u32);
        }
    }

    #[cold]
    fn report_changes(&mut self, events: &mut impl Events) {
        self.changes = self.shared.changes.load(Acquire);
        for index in 0..self.queues.len() {
            if self.queues[index].has_departed() {
                self.activate(index);
            }
        }
        // Their sockets are closed when none has them any more.
        for caller in self.callers.iter_mut().flatten() {
            caller.take_if(|caller| caller.is_closed());
        }
        events.changed();
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

    /// The connection of a caller.
    fn caller(&mut self, to: &ReplyTo) -> Option<&Arc<Caller>> {
        let callers = self.callers.get_mut(usize::from(to.node.0))?;
        let index = usize::from(to.endpoint);
        if callers.len() <= index {
            callers.resize_with(index + 1, || None);
        }
        let place = &mut callers[index];
        if !place.as_ref().is_some_and(|caller| caller.is_for(to)) {
            *place = self.shared.caller(to);
        }
        place.as_ref()
    }

    /// Puts a reply among what goes out to its caller.
    fn send_reply(&mut self, to: &ReplyTo, reply: &Reply) -> Sent {
        let most = self.shared.config.limits.held_bytes;
        let Some(caller) = self.caller(to) else { return Sent::Done };
        let caller = Arc::clone(caller);
        let Some(mut out) = caller.out.try_lock() else { return Sent::Busy };
        if out.pending() > most {
            return Sent::Full;
        }
        let ticket = to.ticket;
        let response =
            if reply.refused { Response::Refusal { ticket } } else { Response::Reply { ticket, bytes: &reply.frame } };
        wire::response(&response, out.frames());
        drop(out);
        if self.unwritten.last().is_none_or(|last| !Arc::ptr_eq(last, &caller)) {
            self.unwritten.push(caller);
        }
        Sent::Done
    }

    fn recycle(&self, frame: Frame) {
        self.shared.mail.recycle(frame);
        self.shared.made_room();
    }

    /// Sends replies that waited, as far as there is room.
    #[cold]
    fn send_waiting_replies(&mut self) -> Activity {
        let mut activity = Activity::Idle;
        for _ in 0..self.replies.len() {
            let Some((to, reply)) = self.replies.pop_front() else { break };
            match self.send_reply(&to, &reply) {
                Sent::Done => self.recycle(reply.frame),
                sent => {
                    self.replies.push_back((to, reply));
                    activity = activity.max(if sent == Sent::Busy { Activity::Busy } else { Activity::Blocked });
                }
            }
        }
        activity
    }

    /// Writes replies to their sockets, all to one by one system call. False where the service has
    /// one of the connections.
    fn write_replies(&mut self) -> bool {
        let shared = &self.shared;
        die::site("tcp.replied");
        self.unwritten.retain(|caller| {
            let Some(mut out) = caller.out.try_lock() else { return true };
            // An error is the service's to see.
            if let Ok(false) = out.flush(&caller.socket) {
                drop(out);
                shared.blocked.lock().push(caller.token);
                shared.wake_driver();
            }
            false
        });
        self.unwritten.is_empty()
    }

    /// Takes over the node's sockets where that is offered, and takes a turn at them.
    #[inline]
    fn attend(&mut self, receiving: bool) {
        if self.leads || (receiving && self.shared.lead.adopt(self.endpoint)) {
            self.take_turn(receiving);
        }
    }

    fn take_turn(&mut self, receiving: bool) {
        if !self.leads {
            (self.leads, self.vain) = (true, 0);
            // The thread may sleep on them.
            self.shared.service.ring();
            if self.place.bell.watch_bell(&self.shared.service, NODE).is_err() {
                return self.give_back();
            }
        }
        if !self.shared.lead.turn(self.endpoint) {
            return self.follow();
        }
        self.vain = self.vain.saturating_add(1);
        if self.vain > EAGER && !self.vain.is_multiple_of(SOME) {
            return;
        }
        let Some(mut work) = self.member.work.try_lock() else {
            // The thread lets go of it soon, unless it was interrupted by this one.
            return std::thread::yield_now();
        };
        let Some(service) = work.as_mut() else { return };
        let busy = service.attend(receiving);
        let needs_thread = service.needs_thread;
        self.unwritten.append(&mut service.hand.unwritten);
        drop(work);
        if busy {
            (self.vain, self.served) = (0, true);
        }
        if needs_thread {
            self.give_back();
        }
    }

    /// Leaves the node's sockets to its thread.
    #[cold]
    fn give_back(&mut self) {
        self.shared.lead.give_back(self.endpoint);
        self.follow();
    }

    /// The thread has them.
    #[cold]
    fn follow(&mut self) {
        self.place.bell.unwatch_bell(&self.shared.service);
        self.leads = false;
    }

    /// Prepares for a sleep on the node's sockets too, where it leads. False where there is still
    /// something to do.
    fn rest(&mut self) -> bool {
        if !self.leads {
            return true;
        }
        // The thread has it for a moment at most.
        let Some(quiet) = self.member.work.lock().as_mut().map(Service::lie_down) else {
            // The node has left.
            self.give_back();
            return true;
        };
        if quiet && !self.shared.lead.rest(self.endpoint) {
            self.follow();
        }
        quiet
    }

    /// That sleep is over.
    fn rise(&mut self) {
        if self.leads {
            self.shared.starved.store(false, Relaxed);
            self.shared.lead.rise(self.endpoint);
            self.vain = 0;
        }
    }

    /// Sends what was posted since the last poll. False where a connection has ended, which the
    /// next poll reports.
    fn send_all(&mut self) -> bool {
        let by = Sending::of(&self.shared, &self.place, (self.endpoint, self.life));
        self.active.iter().all(|active| self.queues[*active as usize].send(&by))
    }
}

impl<E: Engine> Port for TcpPort<E> {}

impl<E: Engine> Backend for TcpPort<E> {
    const YIELDS: bool = false;

    fn node(&self) -> NodeId {
        self.shared.node
    }

    fn capabilities(&self) -> Capabilities {
        self.shared.config.capabilities()
    }

    fn buffers(&self) -> Buffers {
        self.shared.config.buffers
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

    /// Posted requests are sent at the next poll, all to one node by one system call.
    #[inline(always)]
    fn ring(&mut self) {}

    fn poll(&mut self, events: &mut impl Events) -> Activity {
        if self.shared.changes.load(Relaxed) != self.changes {
            self.report_changes(events);
        }
        if self.leads && !std::mem::take(&mut self.attended) {
            self.attend(false);
        }
        let mut activity = Activity::Idle;
        if !self.replies.is_empty() {
            activity = self.send_waiting_replies();
        }
        if !self.unwritten.is_empty() && !self.write_replies() {
            activity = Activity::Busy;
        }
        if self.active.is_empty() {
            return activity;
        }
        let by = Sending::of(&self.shared, &self.place, (self.endpoint, self.life));
        let mut heard = Heard { spare: &mut self.spare, events };
        let mut index = 0;
        while let Some(&active) = self.active.get(index) {
            let queue = &mut self.queues[active as usize];
            activity = activity.max(queue.advance(&by, &mut heard));
            if queue.is_quiet() {
                queue.active = false;
                self.active.swap_remove(index);
            } else {
                index += 1;
            }
        }
        activity
    }

    #[inline(always)]
    fn has_served(&mut self) -> bool {
        std::mem::take(&mut self.served)
    }

    #[inline(always)]
    fn has_mail(&mut self) -> bool {
        if self.shared.mail.is_empty() {
            self.attended = true;
            self.attend(true);
        }
        !self.shared.mail.is_empty()
    }

    fn receive(&mut self) -> Option<Received> {
        self.shared.mail.receive_message()
    }

    fn reply(&mut self, to: ReplyTo, reply: Reply) {
        if self.replies.is_empty() && self.send_reply(&to, &reply) == Sent::Done {
            self.recycle(reply.frame);
        } else {
            self.replies.push_back((to, reply));
        }
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
        time::of_this_machine()
    }

    fn ringer(&self) -> Ringer {
        Ringer::new(Arc::clone(&self.place.bell) as _)
    }

    fn wait(&mut self, until: Option<Time>, receiving: bool, quiet: impl FnOnce() -> bool) {
        // What was posted or answered since the last poll goes out before the sleep.
        let all_up = self.send_all();
        let written = self.write_replies();
        let gives_up = self.active.iter().filter_map(|active| self.queues[*active as usize].gives_up_at()).min();
        let until = [until, gives_up].into_iter().flatten().min();
        if !self.rest() {
            return;
        }
        let (shared, place, leads) = (&self.shared, &self.place, self.leads);
        if receiving {
            shared.places.lie_down(place);
        }
        let at_most = until.map(|until| until.since(time::of_this_machine()));
        place.bell.sleep(&mut self.ready, at_most, || {
            written
                && all_up
                && shared.changes.load(Relaxed) == self.changes
                && (!receiving || shared.mail.is_empty())
                && (!leads || shared.is_quiet())
                && quiet()
        });
        if receiving {
            shared.places.get_up(place);
        }
        self.rise();
        for index in 0..self.ready.len() {
            self.activate(self.ready[index].token as usize);
        }
    }

    fn retire(&mut self) {
        if !self.shared.mail.is_empty() {
            self.shared.places.wake_for_mail();
        }
    }

    fn presence(&self, node: NodeId) -> Presence {
        self.shared.presence(usize::from(node.0))
    }

    fn next_event(&mut self) -> Option<NodeEvent> {
        self.told.next(self.shared.presences())
    }

    fn reconnect(&mut self, node: NodeId) -> Result<Option<Incarnation>, VerbError> {
        let life = self.shared.life_in_directory(node)?;
        if life.is_over() {
            return Err(life.gone());
        }
        let index = usize::from(node.0);
        let incarnation = life.incarnation;
        if !self.queues[index].is_of(&life) {
            if !self.queues[index].may_connect() {
                // What is left ends at the next poll.
                self.activate(index);
                return Ok(None);
            }
            self.queues[index].connect(life);
        }
        Ok(Some(incarnation))
    }
}

impl<E: Engine> Drop for TcpPort<E> {
    fn drop(&mut self) {
        if self.leads {
            self.give_back();
        }
        // Replies that were given are sent, as far as there is room.
        self.send_waiting_replies();
        for (_, reply) in std::mem::take(&mut self.replies) {
            self.recycle(reply.frame);
        }
        for caller in std::mem::take(&mut self.unwritten) {
            // The service writes what the socket does not take.
            self.shared.blocked.lock().push(caller.token);
        }
        self.shared.wake_driver();
        self.retire();
        self.shared.places.move_out(self.endpoint);
    }
}

impl<E: Engine> fmt::Debug for TcpPort<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpPort")
            .field("node", &self.shared.node)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}
