//! An endpoint's port into the cluster: a connection to each node that it uses.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Relaxed},
    },
};

use drtm_htm::Engine;

use crate::{
    Buffers, Capabilities, FabricError, NodeEvent, NodeId, Port, Presence, Time, VerbError,
    endpoint::{
        backend::Backend,
        port::{Activity, Events, Frame, Received, Reply, ReplyTo, Work},
        queues::Queues,
    },
    fabric::{die, membership::Told},
    sync::{
        alarm::{Ring, Ringer},
        time,
    },
};

#[cfg(feature = "verbs")]
use {super::bell::Interest, rustix::io::Errno, std::os::fd::AsFd};

use super::{
    Member,
    bell::Ready,
    caller::Caller,
    inbox::Place,
    queue::{Heard, Line, Sending},
    service::Service,
    shared::{Peer, Shared},
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
    queues: Queues<Peer, Line>,
    /// For each node and each of its endpoints that was replied to, the connection; and behind
    /// those, for each visitor.
    callers: Vec<Vec<Option<Arc<Caller>>>>,
    /// Connections that have replies to be written.
    unwritten: Vec<Arc<Caller>>,
    spare: Vec<Frame>,
    ready: Vec<Ready>,
    /// The changes of nodes' presence that were reported.
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

impl<E: Engine> TcpPort<E> {
    pub(super) fn new(member: &Arc<Member<E>>) -> Result<Self, FabricError> {
        let shared = Arc::clone(&member.shared);
        let (endpoint, place) = shared.move_in()?;
        Ok(Self {
            member: Arc::clone(member),
            endpoint,
            life: place.tenancy.life.load(Acquire),
            place,
            queues: Queues::new(shared.nodes(), shared.config.queue_depth, shared.changes.load(Acquire), Line::default),
            callers: (0..=shared.nodes()).map(|_| Vec::new()).collect(),
            unwritten: Vec::new(),
            spare: Vec::new(),
            ready: Vec::new(),
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

    #[cold]
    fn report_changes(&mut self, events: &mut impl Events) {
        for queue in self.queues.take_news(&self.shared.changes) {
            queue.end(events);
        }
        // Their sockets are closed when none has them any more.
        for caller in self.callers.iter_mut().flatten() {
            caller.take_if(|caller| caller.is_closed());
        }
        events.changed();
    }

    /// Returns the connection of a caller.
    fn caller(&mut self, to: &ReplyTo) -> Option<&Arc<Caller>> {
        let callers = self.callers.get_mut(self.shared.callers_place(to.node))?;
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

    /// Puts a reply among what goes out to its caller, unless that is gone. Returns what it waits
    /// for otherwise.
    fn send_reply(&mut self, to: &ReplyTo, reply: &Reply) -> Result<(), Activity> {
        let most = self.shared.config.limits.held_bytes;
        let Some(caller) = self.caller(to) else { return Ok(()) };
        let caller = Arc::clone(caller);
        // The service has the connection at the moment.
        let Some(mut out) = caller.out.try_lock() else { return Err(Activity::Busy) };
        // The peer does not read what it is told.
        if out.pending() > most {
            return Err(Activity::Blocked);
        }
        let ticket = to.ticket;
        let response =
            if reply.refused { Response::Refusal { ticket } } else { Response::Reply { ticket, bytes: &reply.frame } };
        wire::response(&response, out.frames());
        drop(out);
        if self.unwritten.last().is_none_or(|last| !Arc::ptr_eq(last, &caller)) {
            self.unwritten.push(caller);
        }
        Ok(())
    }

    fn recycle(&self, frame: Frame) {
        self.shared.inbox.mail.recycle(frame);
        self.shared.made_room();
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

    /// Leaves the sockets, which the thread has.
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

    /// Handles the end of a sleep on the node's sockets.
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
        let mut all_up = true;
        self.queues.for_each_active(|queue| all_up = all_up && queue.send(&by));
        all_up
    }
}

impl<E: Engine> Port for TcpPort<E> {}

impl<E: Engine> Backend for TcpPort<E> {
    type Life = Peer;
    type Line = Line;

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
    fn queues(&mut self) -> &mut Queues<Peer, Line> {
        &mut self.queues
    }

    fn life(&self, node: NodeId) -> Result<Arc<Peer>, VerbError> {
        self.shared.life_in_directory(node)
    }

    #[inline(always)]
    fn post(&mut self, work: Work) {
        let (queue, active) = self.queues.reserved(work.verb.node());
        queue.line.push(work);
        queue.state.activate(active);
    }

    /// Does nothing: posted requests are sent at the next poll, all to one node by one system call.
    #[inline(always)]
    fn ring(&mut self) {}

    fn poll(&mut self, events: &mut impl Events) -> Activity {
        if self.queues.has_news(&self.shared.changes) {
            self.report_changes(events);
        }
        if self.leads && !std::mem::take(&mut self.attended) {
            self.attend(false);
        }
        let mut activity = Activity::Idle;
        if !self.unwritten.is_empty() && !self.write_replies() {
            activity = Activity::Busy;
        }
        if self.queues.is_idle() {
            return activity;
        }
        let by = Sending::of(&self.shared, &self.place, (self.endpoint, self.life));
        let mut heard = Heard { spare: &mut self.spare, events };
        let mut place = 0;
        while let Some((queue, active)) = self.queues.active(place) {
            activity = activity.max(queue.advance(&by, &mut heard));
            place = queue.next(active, place);
        }
        activity
    }

    #[inline(always)]
    fn has_served(&mut self) -> bool {
        std::mem::take(&mut self.served)
    }

    #[inline(always)]
    fn has_mail(&mut self) -> bool {
        if self.shared.inbox.mail.is_empty() {
            self.attended = true;
            self.attend(true);
        }
        !self.shared.inbox.mail.is_empty()
    }

    fn receive(&mut self) -> Option<Received> {
        self.shared.inbox.mail.receive_message()
    }

    fn reply(&mut self, to: &ReplyTo, reply: Reply) -> Result<(), (Reply, Activity)> {
        if let Err(waits) = self.send_reply(to, &reply) {
            return Err((reply, waits));
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
        time::of_this_machine()
    }

    fn ringer(&self) -> Ringer {
        Ringer::new(Arc::clone(&self.place.bell) as _)
    }

    fn wait(&mut self, until: Option<Time>, receiving: bool, quiet: impl FnOnce() -> bool) {
        // What was posted or answered since the last poll goes out before the sleep.
        let all_up = self.send_all();
        let written = self.write_replies();
        let mut until = until;
        self.queues.for_each_active(|queue| until = until.into_iter().chain(queue.line.gives_up_at()).min());
        if !self.rest() {
            return;
        }
        let (shared, place, queues, leads) = (&self.shared, &self.place, &self.queues, self.leads);
        if receiving {
            shared.inbox.places.lie_down(place);
        }
        let at_most = until.map(|until| until.since(time::of_this_machine()));
        place.bell.sleep(&mut self.ready, at_most, || {
            written
                && all_up
                && !queues.has_news(&shared.changes)
                && (!receiving || shared.inbox.mail.is_empty())
                && (!leads || shared.is_quiet())
                && quiet()
        });
        if receiving {
            shared.inbox.places.get_up(place);
        }
        self.rise();
        for ready in &self.ready {
            // The others are not of a queue.
            if let Some(node) = u16::try_from(ready.token).ok().filter(|node| usize::from(*node) < self.shared.nodes())
            {
                self.queues.activate(NodeId(node));
            }
        }
    }

    fn retire(&mut self) {
        if !self.shared.inbox.mail.is_empty() {
            self.shared.inbox.places.wake_for_mail();
        }
    }

    fn presence(&self, node: NodeId) -> Presence {
        self.shared.presence(usize::from(node.0))
    }

    fn is_refused_by(&self, node: NodeId) -> bool {
        self.shared.refusers.get(usize::from(node.0)).is_some_and(|refuser| refuser.load(Acquire))
    }

    fn next_event(&mut self) -> Option<NodeEvent> {
        self.told.next(self.shared.presences())
    }
}

impl<E: Engine> Drop for TcpPort<E> {
    fn drop(&mut self) {
        if self.leads {
            self.give_back();
        }
        for caller in std::mem::take(&mut self.unwritten) {
            // The service writes what the socket does not take.
            self.shared.blocked.lock().push(caller.token);
        }
        self.shared.wake_driver();
        self.retire();
        self.shared.inbox.places.move_out(self.endpoint);
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
