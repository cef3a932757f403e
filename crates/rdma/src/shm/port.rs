//! An endpoint's port to the fabric of processes.

mod mail;

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
    alarm::Ringer,
    die,
    membership::Told,
    port::{Activity, Backend, Events, Frame, Received, Reply, ReplyTo, Work},
    ring::{FrameHead, FrameKind},
    time,
};

use super::{
    NODES, Shared,
    control::{Lane, OwnAlarm},
    inbox::Inbox,
    member::Member,
    node::Peer,
    queue::{Queue, Sender},
};

/// The most frames that a port keeps.
const SPARE: usize = 256;

/// The backend of a [`ShmFabric`](super::ShmFabric)'s endpoints.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Endpoint, ShmPort};
///
/// /// A worker of a program that runs in several processes.
/// struct Worker {
///     endpoint: Endpoint<ShmPort<NoHtm>>,
/// }
/// # let _ = |worker: Worker| worker.endpoint;
/// ```
pub struct ShmPort<E: Engine> {
    /// Keeps the node in the group while it has endpoints.
    member: Arc<Member<E>>,
    shared: Arc<Shared<E>>,
    sender: Sender,
    /// The queue for each node.
    queues: Vec<Queue<E>>,
    /// The queues that are not empty.
    active: Vec<u32>,
    depth: usize,
    /// Replies that wait for room. They do not wait for requests.
    replies_out: VecDeque<(ReplyTo, Reply)>,
    /// Replies to this endpoint.
    replies_in: Inbox,
    spare: Vec<Frame>,
    /// Whether this endpoint has announced that it receives.
    receives: bool,
    /// The number of polls until the mail of the node's other endpoints is checked, and taken if
    /// there is some. Zero after a sleep.
    until_look: u32,
    /// The changes that were seen, and the events that were reported.
    changes: u32,
    told: Told,
}

impl<E: Engine> ShmPort<E> {
    pub(super) fn new(member: &Arc<Member<E>>) -> Result<Self, FabricError> {
        let shared = Arc::clone(&member.shared);
        let endpoint = shared.move_in()?;
        let life = shared.places[usize::from(endpoint)].life.load(Acquire);
        Ok(Self {
            member: Arc::clone(member),
            sender: Sender { endpoint, life },
            queues: (0..NODES).map(|_| Queue::default()).collect(),
            active: Vec::new(),
            depth: shared.config.queue_depth,
            replies_out: VecDeque::new(),
            replies_in: Inbox::default(),
            spare: Vec::new(),
            receives: false,
            until_look: 0,
            changes: shared.changes.load(Acquire),
            told: Told::of(shared.presences()),
            shared,
        })
    }

    #[cold]
    fn report_changes(&mut self, events: &mut impl Events) {
        self.changes = self.shared.changes.load(Acquire);
        for (node, queue) in self.queues.iter_mut().enumerate() {
            if let Some(incarnation) = queue.departure() {
                let node = NodeId(node as u16);
                events.departed(node, VerbError::Disconnected { node, incarnation });
            }
        }
        events.changed();
    }

    #[inline]
    fn report_replies(&mut self, events: &mut impl Events) {
        let Sender { endpoint, life } = self.sender;
        let mut frame = self.spare.pop().unwrap_or_default();
        while let Some((from, _, head)) = self.replies_in.take(&self.shared, (endpoint, Lane::Replies), &mut frame) {
            // Otherwise the reply is for an earlier endpoint in this place.
            if head.life == life {
                match head.kind {
                    FrameKind::Reply => {
                        let next = self.spare.pop().unwrap_or_default();
                        events.replied(head.ticket, from, Some(std::mem::replace(&mut frame, next)));
                    }
                    FrameKind::Refusal => events.replied(head.ticket, from, None),
                    FrameKind::Message | FrameKind::Call => {}
                }
            }
        }
        self.keep(frame);
    }

    fn keep(&mut self, frame: Frame) {
        if self.spare.len() < SPARE {
            self.spare.push(frame);
        }
    }

    /// Sends a reply, unless its caller is gone. Returns false if there is no room.
    fn send_reply(&mut self, to: ReplyTo, reply: &Reply) -> bool {
        let Some(queue) = self.queues.get_mut(usize::from(to.node.0)) else { return true };
        let other;
        let (life, rings) = queue.life_and_rings();
        let life = match life {
            Some(life) if life.incarnation == to.incarnation => life,
            _ => match self.shared.life_of(to.node, to.incarnation) {
                Some(life) => {
                    other = life;
                    &other
                }
                None => return true,
            },
        };
        if life.is_over() || self.shared.home.is_over() {
            return true;
        }
        die::site("reply.begun");
        let kind = if reply.refused { FrameKind::Refusal } else { FrameKind::Reply };
        let head = FrameHead { kind, endpoint: to.endpoint, life: to.life, ticket: to.ticket };
        rings.push(&self.shared, self.sender.endpoint, life, (to.endpoint, Lane::Replies), head, &reply.frame)
    }

    #[cold]
    fn send_waiting_replies(&mut self) {
        for _ in 0..self.replies_out.len() {
            let Some((to, reply)) = self.replies_out.pop_front() else { return };
            if self.send_reply(to, &reply) {
                self.keep(reply.frame);
            } else {
                self.replies_out.push_back((to, reply));
            }
        }
    }

    /// Connects the queue at its first use. Otherwise there is no room.
    #[cold]
    fn reserve_or_refuse(&mut self, to: NodeId) -> Result<(), VerbError> {
        let unknown = VerbError::UnknownNode { node: to };
        let queue = self.queues.get_mut(usize::from(to.0)).ok_or(unknown)?;
        if queue.life().is_none() {
            let life = self.shared.last_life(to)?;
            if life.is_over() {
                // The port has seen the change before, but this queue has not.
                self.changes = self.changes.wrapping_sub(1);
            }
            queue.connect(life);
        }
        if queue.taken >= self.depth {
            return Err(VerbError::QueueFull { node: to, depth: self.depth });
        }
        queue.taken += 1;
        Ok(())
    }
}

impl<E: Engine> Port for ShmPort<E> {}

impl<E: Engine> Backend for ShmPort<E> {
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
        let Some(queue) = self.queues.get_mut(index) else { unreachable!("a place is reserved there") };
        queue.push(work);
        if !std::mem::replace(&mut queue.active, true) {
            self.active.push(index as u32);
        }
    }

    /// Posted requests begin at the next poll.
    #[inline(always)]
    fn ring(&mut self) {}

    #[inline]
    fn poll(&mut self, events: &mut impl Events) -> Activity {
        if self.shared.changes.load(Relaxed) != self.changes {
            self.report_changes(events);
        }
        if self.replies_in.may_have(&self.shared, self.sender.endpoint) {
            self.report_replies(events);
        }
        let mut activity = Activity::Idle;
        if !self.replies_out.is_empty() {
            self.send_waiting_replies();
            if !self.replies_out.is_empty() {
                activity = Activity::Blocked;
            }
        }
        let mut index = 0;
        while let Some(&active) = self.active.get(index) {
            let queue = &mut self.queues[active as usize];
            activity = activity.max(queue.finish(&self.shared, self.sender, events));
            if queue.is_empty() {
                queue.active = false;
                self.active.swap_remove(index);
            } else {
                index += 1;
            }
        }
        activity
    }

    #[inline]
    fn has_mail(&mut self) -> bool {
        self.looks_for_mail()
    }

    fn receive(&mut self) -> Option<Received> {
        self.take_mail()
    }

    fn reply(&mut self, to: ReplyTo, reply: Reply) {
        if self.replies_out.is_empty() && self.send_reply(to, &reply) {
            self.keep(reply.frame);
        } else {
            self.replies_out.push_back((to, reply));
        }
    }

    fn recycle_message(&mut self, frame: Frame) {
        self.keep(frame);
    }

    fn recycle_reply(&mut self, frame: Frame) {
        self.keep(frame);
    }

    fn now(&self) -> Time {
        time::of_this_machine()
    }

    fn ringer(&self) -> Ringer {
        let (control, endpoint) = (self.shared.control().clone(), self.sender.endpoint);
        Ringer::new(Arc::new(OwnAlarm { control, endpoint }))
    }

    fn wait(&mut self, until: Option<Time>, receiving: bool, quiet: impl FnOnce() -> bool) {
        if receiving {
            self.set_receives(true);
        }
        let alarm = self.shared.control().alarm(self.sender.endpoint);
        alarm.announce();
        die::site("nap.announced");
        let nothing = !self.replies_in.may_have(&self.shared, self.sender.endpoint)
            && self.shared.changes.load(Relaxed) == self.changes
            && !(receiving && self.mail_is_there(true));
        if nothing && quiet() {
            alarm.sleep(until.map(|until| until.since(time::of_this_machine())));
        }
        alarm.retract();
        die::site("nap.over");
        self.until_look = 0;
    }

    fn retire(&mut self) {
        self.set_receives(false);
        self.pass_on();
    }

    fn presence(&self, node: NodeId) -> Presence {
        self.shared.presence(usize::from(node.0))
    }

    fn next_event(&mut self) -> Option<NodeEvent> {
        self.told.next(self.shared.presences())
    }

    fn reconnect(&mut self, node: NodeId) -> Result<Option<Incarnation>, VerbError> {
        let life: Arc<Peer<E>> = self.shared.last_life(node)?;
        if life.is_over() {
            return Err(life.gone());
        }
        let queue = &mut self.queues[usize::from(node.0)];
        let incarnation = life.incarnation;
        if queue.life().is_none_or(|now| now.incarnation != incarnation) {
            if !queue.may_connect() {
                return Ok(None);
            }
            queue.connect(life);
        }
        Ok(Some(incarnation))
    }
}

impl<E: Engine> Drop for ShmPort<E> {
    fn drop(&mut self) {
        // Replies are sent as far as there is room.
        self.send_waiting_replies();
        self.set_receives(false);
        self.pass_on();
        self.shared.move_out(self.sender.endpoint);
    }
}

impl<E: Engine> fmt::Debug for ShmPort<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShmPort")
            .field("node", &self.member.shared.node)
            .field("endpoint", &self.sender.endpoint)
            .finish_non_exhaustive()
    }
}
