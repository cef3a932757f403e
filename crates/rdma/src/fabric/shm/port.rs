//! An endpoint's port to the fabric of processes.

mod mail;

use std::{
    fmt,
    sync::{Arc, atomic::Ordering::Acquire},
};

use drtm_htm::Engine;

use crate::{
    Buffers, Capabilities, FabricError, NodeEvent, NodeId, Port, Presence, Time, VerbError,
    endpoint::{
        backend::Backend,
        port::{Activity, Events, Frame, Received, Reply, ReplyTo, Work},
        queues::Queues,
    },
    fabric::{die, lifetime::Life as _, membership::Told},
    sync::{
        alarm::Ringer,
        ring::{FrameHead, FrameKind},
        time,
    },
};

use super::{
    NODES, Shared,
    control::{OwnAlarm, Traffic},
    inbox::Inbox,
    member::Member,
    node::Peer,
    queue::{Line, Sender},
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
    queues: Queues<Peer<E>, Line>,
    /// Replies to this endpoint.
    replies_in: Inbox,
    spare: Vec<Frame>,
    /// Whether this endpoint has announced that it receives.
    receives: bool,
    /// The number of polls until the mail of the node's other endpoints is checked, and taken if
    /// there is some. Zero after a sleep.
    until_look: u32,
    /// The changes of nodes' presence that were reported.
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
            queues: Queues::new(NODES, shared.config.queue_depth, shared.changes.load(Acquire), Line::default),
            replies_in: Inbox::default(),
            spare: Vec::new(),
            receives: false,
            until_look: 0,
            told: Told::of(shared.presences()),
            shared,
        })
    }

    #[cold]
    fn report_changes(&mut self, events: &mut impl Events) {
        for queue in self.queues.take_news(&self.shared.changes) {
            queue.report_departure(events);
        }
        events.changed();
    }

    #[inline]
    fn report_replies(&mut self, events: &mut impl Events) {
        let Sender { endpoint, life } = self.sender;
        let mut frame = self.spare.pop().unwrap_or_default();
        while let Some((from, _, head)) = self.replies_in.take(&self.shared, (endpoint, Traffic::Replies), &mut frame) {
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
        let Some(queue) = self.queues.get(to.node) else { return true };
        let other;
        let life = match &queue.life {
            Some(life) if life.incarnation() == to.incarnation => life,
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
        queue.line.rings.push(
            &self.shared,
            self.sender.endpoint,
            life,
            (to.endpoint, Traffic::Replies),
            head,
            &reply.frame,
        )
    }
}

impl<E: Engine> Port for ShmPort<E> {}

impl<E: Engine> Backend for ShmPort<E> {
    type Life = Peer<E>;
    type Line = Line;

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
    fn queues(&mut self) -> &mut Queues<Peer<E>, Line> {
        &mut self.queues
    }

    fn life(&self, node: NodeId) -> Result<Arc<Peer<E>>, VerbError> {
        self.shared.last_life(node)
    }

    #[inline(always)]
    fn post(&mut self, work: Work) {
        let (queue, active) = self.queues.reserved(work.verb.node());
        queue.push(work);
        queue.state.activate(active);
    }

    /// Posted requests begin at the next poll.
    #[inline(always)]
    fn ring(&mut self) {}

    #[inline]
    fn poll(&mut self, events: &mut impl Events) -> Activity {
        if self.queues.has_news(&self.shared.changes) {
            self.report_changes(events);
        }
        if self.replies_in.may_have(&self.shared, self.sender.endpoint) {
            self.report_replies(events);
        }
        let (mut activity, mut place) = (Activity::Idle, 0);
        while let Some((queue, active)) = self.queues.active(place) {
            activity = activity.max(queue.finish(&self.shared, self.sender, events));
            place = queue.next(active, place);
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

    fn reply(&mut self, to: &ReplyTo, reply: Reply) -> Result<(), (Reply, Activity)> {
        if !self.send_reply(*to, &reply) {
            return Err((reply, Activity::Blocked));
        }
        self.keep(reply.frame);
        Ok(())
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
        let something = self.replies_in.may_have(&self.shared, self.sender.endpoint)
            || self.queues.has_news(&self.shared.changes)
            || (receiving && self.mail_is_there(true));
        if !something && quiet() {
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
}

impl<E: Engine> Drop for ShmPort<E> {
    fn drop(&mut self) {
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
