//! An endpoint's port to the in-process fabric: its queues, and its mail.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering::Acquire},
};

use drtm_htm::Engine;
use fastrand::Rng;

use crate::{
    Buffers, Capabilities, FabricError, NodeEvent, NodeId, Port, Presence, Time, VerbError,
    endpoint::{
        backend::Backend,
        port::{Activity, Events, Frame, Received, Reply, ReplyTo, Ticket, Work},
        queues::Queues,
    },
    fabric::{lifetime::Life as _, mailbox::Kind, membership::Told},
    sync::{alarm::Ringer, time},
};

use super::{
    LocalConfig, Shared,
    life::{Life, Place},
    nic::{Job, Nic},
    node::Node,
    queue::{Line, Polled, Queue},
};

/// The backend of a [`LocalFabric`](super::LocalFabric)'s endpoints.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Endpoint, FabricError, Fabric, LocalConfig, LocalFabric, LocalPort, NodeId};
///
/// /// A worker of a program that runs in one process only.
/// struct Worker {
///     endpoint: Endpoint<LocalPort<NoHtm>>,
/// }
///
/// let fabric = LocalFabric::new(1, LocalConfig::perfect());
/// let worker = Worker { endpoint: fabric.endpoint(NodeId(0))? };
/// # let _ = worker.endpoint;
/// # Ok::<(), FabricError>(())
/// ```
pub struct LocalPort<E: Engine> {
    shared: Arc<Shared<E>>,
    /// The incarnation of its node that it belongs to, and its place there.
    home: Arc<Life<E>>,
    place: Arc<Place>,
    nic: Nic,
    immediate: bool,
    queues: Queues<Life<E>, Line>,
    /// Replies to each node, which do not wait for requests.
    replies: Queues<Life<E>, Line>,
    /// The changes of nodes' presence that were reported.
    told: Told,
}

impl<E: Engine> LocalPort<E> {
    pub(super) fn new(shared: &Arc<Shared<E>>, node: NodeId) -> Result<Self, FabricError> {
        let home = shared.node(node).ok_or(FabricError::UnknownNode { node })?.life();
        let (endpoint, place) = home.move_in(node)?;
        let life = place.tenancy.life.load(Acquire);
        let chance =
            shared.config.seed ^ (u64::from(node.0) << 32 | u64::from(endpoint) << 8).wrapping_mul(0x9E37_79B9);
        let nothing = Ticket { index: 0, generation: 0 };
        let changes = shared.changes.load(Acquire);
        let queues = |depth| Queues::new(shared.nodes.len(), depth, changes, Line::default);
        Ok(Self {
            nic: Nic {
                address: ReplyTo { node, incarnation: home.incarnation(), endpoint, life, ticket: nothing },
                rng: Rng::with_seed(chance),
                spare: Vec::new(),
                now: None,
            },
            immediate: shared.config.is_immediate(),
            queues: queues(shared.config.queue_depth),
            replies: queues(usize::MAX),
            told: Told::of(shared.nodes.iter().map(Node::presence)),
            shared: Arc::clone(shared),
            home,
            place,
        })
    }

    #[cold]
    fn report_changes(&mut self, events: &mut impl Events) {
        for queue in self.queues.take_news(&self.shared.changes) {
            queue.report_departure(events);
        }
        events.changed();
    }

    fn report_replies(&self, events: &mut impl Events) {
        let replies = &self.place.replies;
        if replies.is_empty() {
            return;
        }
        while let Some(envelope) = replies.receive() {
            match envelope.kind {
                Kind::Reply { life, ticket, refused } if life == self.nic.address.life => {
                    let frame = if refused {
                        replies.recycle(envelope.frame);
                        None
                    } else {
                        Some(envelope.frame)
                    };
                    events.replied(ticket, envelope.from, frame);
                }
                // The reply is for an earlier endpoint in this place.
                _ => replies.recycle(envelope.frame),
            }
        }
    }
}

/// Adds an entry to a queue.
#[inline(always)]
fn push<E: Engine>(queue: &mut Queue<E>, job: Job, immediate: bool, nic: &mut Nic, config: &LocalConfig) {
    if immediate {
        queue.line.push(job);
    } else {
        queue.line.push_for_later(job, nic, config);
    }
}

/// Advances active queues.
#[inline(always)]
fn advance<E: Engine>(
    queues: &mut Queues<Life<E>, Line>,
    immediate: bool,
    by: &mut Polled<'_, E>,
    events: &mut impl Events,
) -> Activity {
    let (mut activity, mut place) = (Activity::Idle, 0);
    while let Some((queue, active)) = queues.active(place) {
        activity = activity.max(if immediate { queue.finish(by, events) } else { queue.advance(by, events) });
        place = queue.next(active, place);
    }
    activity
}

impl<E: Engine> Port for LocalPort<E> {}

impl<E: Engine> Backend for LocalPort<E> {
    type Life = Life<E>;
    type Line = Line;

    fn node(&self) -> NodeId {
        self.nic.address.node
    }

    fn capabilities(&self) -> Capabilities {
        self.shared.config.capabilities()
    }

    fn buffers(&self) -> Buffers {
        self.shared.config.buffers
    }

    #[inline(always)]
    fn queues(&mut self) -> &mut Queues<Life<E>, Line> {
        &mut self.queues
    }

    fn life(&self, node: NodeId) -> Result<Arc<Life<E>>, VerbError> {
        self.shared.node(node).map(Node::life).ok_or(VerbError::UnknownNode { node })
    }

    #[inline(always)]
    fn post(&mut self, work: Work) {
        let (queue, active) = self.queues.reserved(work.verb.node());
        push(queue, Job::Work(work), self.immediate, &mut self.nic, &self.shared.config);
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
        self.report_replies(events);
        if self.queues.is_idle() && self.replies.is_idle() {
            return Activity::Idle;
        }
        if !self.immediate && !self.shared.config.latency.is_zero() {
            self.nic.now = Some(time::of_this_machine());
        }
        let silenced = self.home.has_died();
        let mut by = Polled { nic: &mut self.nic, home: &self.home, config: &self.shared.config, silenced };
        let activity = advance(&mut self.queues, self.immediate, &mut by, events);
        if self.replies.is_idle() {
            return activity;
        }
        activity.max(advance(&mut self.replies, self.immediate, &mut by, events))
    }

    #[inline(always)]
    fn has_mail(&mut self) -> bool {
        !self.home.mail.is_empty()
    }

    fn receive(&mut self) -> Option<Received> {
        self.home.mail.receive_message()
    }

    fn reply(&mut self, to: &ReplyTo, reply: Reply) -> Result<(), (Reply, Activity)> {
        let (queue, active) = self.replies.reserved(to.node);
        if queue.life.as_ref().is_none_or(|life| life.incarnation() != to.incarnation) {
            // Replies to an earlier incarnation are dropped.
            queue.abandon(&self.home);
            queue.connect(self.shared.nodes[usize::from(to.node.0)].life());
        }
        push(queue, Job::Reply(*to, reply), self.immediate, &mut self.nic, &self.shared.config);
        queue.state.activate(active);
        Ok(())
    }

    fn recycle_message(&mut self, frame: Frame) {
        self.home.mail.recycle(frame);
    }

    fn recycle_reply(&mut self, frame: Frame) {
        self.place.replies.recycle(frame);
    }

    fn now(&self) -> Time {
        time::of_this_machine()
    }

    fn ringer(&self) -> Ringer {
        Ringer::new(Arc::clone(&self.place) as _)
    }

    fn wait(&mut self, until: Option<Time>, receiving: bool, quiet: impl FnOnce() -> bool) {
        let (home, place) = (&self.home, &self.place);
        if receiving {
            home.places.lie_down(place);
        }
        place.alarm.announce();
        let nothing = place.replies.is_empty()
            && !self.queues.has_news(&self.shared.changes)
            && (!receiving || home.mail.is_empty());
        if nothing && quiet() {
            place.alarm.sleep(until.map(|until| until.since(time::of_this_machine())));
        }
        place.alarm.retract();
        if receiving {
            home.places.get_up(place);
        }
    }

    fn retire(&mut self) {
        if !self.home.mail.is_empty() {
            self.home.places.wake_for_mail();
        }
    }

    fn presence(&self, node: NodeId) -> Presence {
        self.shared.node(node).map(Node::presence).unwrap_or_default()
    }

    fn next_event(&mut self) -> Option<NodeEvent> {
        self.told.next(self.shared.nodes.iter().map(Node::presence))
    }
}

impl<E: Engine> Drop for LocalPort<E> {
    fn drop(&mut self) {
        self.home.places.move_out(self.nic.address.endpoint);
        for queues in [&mut self.queues, &mut self.replies] {
            queues.for_each_active(|queue| queue.abandon(&self.home));
        }
    }
}

impl<E: Engine> fmt::Debug for LocalPort<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalPort").field("address", &self.nic.address).finish_non_exhaustive()
    }
}
