//! An endpoint's port to the in-process fabric: its queues, and its mail.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Relaxed},
    },
};

use drtm_htm::Engine;
use fastrand::Rng;

use crate::{
    Buffers, Capabilities, FabricError, Incarnation, NodeEvent, NodeId, Port, Presence, Time, VerbError,
    alarm::Ringer,
    mailbox::Kind,
    membership::Told,
    port::{Activity, Backend, Events, Frame, Received, Reply, ReplyTo, Ticket, Work},
    time,
};

use super::{
    Shared,
    life::{Life, Place},
    nic::{Job, Nic},
    node::Node,
    queue::{Polled, Queue},
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
    nodes: usize,
    depth: usize,
    /// For each node one queue for requests. After those, one for replies for each node, which do
    /// not wait for requests.
    queues: Vec<Queue<E>>,
    /// The queues that are not empty.
    active: Vec<u32>,
    /// The changes of nodes' presence that were seen, and the events that were reported.
    changes: u32,
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
        Ok(Self {
            nic: Nic {
                address: ReplyTo { node, incarnation: home.incarnation, endpoint, life, ticket: nothing },
                rng: Rng::with_seed(chance),
                spare: Vec::new(),
                now: None,
            },
            immediate: shared.config.is_immediate(),
            nodes: shared.nodes.len(),
            depth: shared.config.queue_depth,
            queues: (0..2 * shared.nodes.len()).map(|_| Queue::default()).collect(),
            active: Vec::new(),
            changes: shared.changes.load(Acquire),
            told: Told::of(shared.nodes.iter().map(Node::presence)),
            shared: Arc::clone(shared),
            home,
            place,
        })
    }

    #[inline(always)]
    fn push(&mut self, index: usize, job: Job) {
        let queue = &mut self.queues[index];
        if self.immediate {
            queue.push(job);
        } else {
            queue.push_for_later(job, &mut self.nic, &self.shared.config);
        }
        if !std::mem::replace(&mut queue.active, true) {
            self.active.push(index as u32);
        }
    }

    #[cold]
    fn report_changes(&mut self, events: &mut impl Events) {
        self.changes = self.shared.changes.load(Acquire);
        for (node, queue) in self.queues[..self.nodes].iter_mut().enumerate() {
            if let Some(incarnation) = queue.departure() {
                let node = NodeId(node as u16);
                events.departed(node, VerbError::Disconnected { node, incarnation });
            }
        }
        events.changed();
    }

    fn report_replies(&self, events: &mut impl Events) {
        let replies = &self.place.replies;
        if replies.is_empty() {
            return;
        }
        while let Some(letter) = replies.receive() {
            match letter.kind {
                Kind::Reply { life, ticket, refused } if life == self.nic.address.life => {
                    let frame = if refused {
                        replies.recycle(letter.frame);
                        None
                    } else {
                        Some(letter.frame)
                    };
                    events.replied(ticket, letter.from, frame);
                }
                // The reply is for an earlier endpoint in this place.
                _ => replies.recycle(letter.frame),
            }
        }
    }

    /// Connects the queue at its first use. Otherwise there is no room.
    #[cold]
    fn reserve_or_refuse(&mut self, to: NodeId) -> Result<(), VerbError> {
        let index = usize::from(to.0);
        if index >= self.nodes {
            return Err(VerbError::UnknownNode { node: to });
        }
        if self.queues[index].life().is_none() {
            self.connect(to)?;
        }
        let queue = &mut self.queues[index];
        if queue.taken >= self.depth {
            return Err(VerbError::QueueFull { node: to, depth: self.depth });
        }
        queue.taken += 1;
        Ok(())
    }

    /// Connects the queue of a node to the incarnation that is here, or was last.
    #[cold]
    fn connect(&mut self, to: NodeId) -> Result<(), VerbError> {
        let node = self.shared.node(to).ok_or(VerbError::UnknownNode { node: to })?;
        let life = node.life();
        if life.is_over() {
            // The port has seen the change before, but this queue has not.
            self.changes = self.changes.wrapping_sub(1);
        }
        self.queues[usize::from(to.0)].connect(life);
        Ok(())
    }
}

impl<E: Engine> Port for LocalPort<E> {}

impl<E: Engine> Backend for LocalPort<E> {
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
    fn reserve(&mut self, to: NodeId) -> Result<(), VerbError> {
        let index = usize::from(to.0);
        if index < self.nodes
            && let Some(queue) = self.queues.get_mut(index)
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
        self.push(usize::from(work.verb.node().0), Job::Work(work));
    }

    /// Posted requests begin at the next poll.
    #[inline(always)]
    fn ring(&mut self) {}

    #[inline]
    fn poll(&mut self, events: &mut impl Events) -> Activity {
        if self.shared.changes.load(Relaxed) != self.changes {
            self.report_changes(events);
        }
        self.report_replies(events);
        if self.active.is_empty() {
            return Activity::Idle;
        }
        if !self.immediate && !self.shared.config.latency.is_zero() {
            self.nic.now = Some(time::of_this_machine());
        }
        let silenced = self.home.is_dead();
        let mut by = Polled { nic: &mut self.nic, home: &self.home, config: &self.shared.config, silenced };
        let mut activity = Activity::Idle;
        let mut index = 0;
        while let Some(&active) = self.active.get(index) {
            let queue = &mut self.queues[active as usize];
            let found = if self.immediate { queue.finish(&mut by, events) } else { queue.advance(&mut by, events) };
            activity = activity.max(found);
            if queue.is_empty() {
                queue.active = false;
                self.active.swap_remove(index);
            } else {
                index += 1;
            }
        }
        activity
    }

    #[inline(always)]
    fn has_mail(&mut self) -> bool {
        !self.home.mail.is_empty()
    }

    fn receive(&mut self) -> Option<Received> {
        self.home.mail.receive_message()
    }

    fn reply(&mut self, to: ReplyTo, reply: Reply) {
        let index = self.nodes + usize::from(to.node.0);
        let queue = &mut self.queues[index];
        // Replies that it still holds for an earlier incarnation are dropped.
        if queue.life().is_none_or(|life| life.incarnation != to.incarnation) {
            queue.connect(self.shared.nodes[usize::from(to.node.0)].life());
        }
        self.push(index, Job::Reply(to, reply));
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
            && self.shared.changes.load(Relaxed) == self.changes
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

    fn reconnect(&mut self, node: NodeId) -> Result<Option<Incarnation>, VerbError> {
        let life = self.shared.node(node).ok_or(VerbError::UnknownNode { node })?.life();
        let incarnation = life.incarnation;
        if life.is_over() {
            return Err(VerbError::Gone { node, incarnation });
        }
        let queue = &self.queues[usize::from(node.0)];
        if queue.life().is_none_or(|now| now.incarnation != incarnation) {
            if !queue.may_connect() {
                return Ok(None);
            }
            self.connect(node)?;
        }
        Ok(Some(incarnation))
    }
}

impl<E: Engine> Drop for LocalPort<E> {
    fn drop(&mut self) {
        self.home.places.move_out(self.nic.address.endpoint);
        for queue in &mut self.queues {
            queue.abandon(&self.home);
        }
    }
}

impl<E: Engine> fmt::Debug for LocalPort<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalPort").field("address", &self.nic.address).finish_non_exhaustive()
    }
}
