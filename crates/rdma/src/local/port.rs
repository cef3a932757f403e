//! An endpoint's port into the in-process fabric: its queues, and its mail.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Relaxed},
    },
    time::Instant,
};

use drtm_htm::Engine;
use fastrand::Rng;

use crate::{
    Buffers, Capabilities, FabricError, NodeId, Port, VerbError,
    port::{Activity, Backend, Events, Frame, Received, Reply, ReplyTo, Ticket, Work},
};

use super::{
    Shared,
    mailbox::Kind,
    nic::{Job, Nic},
    node::{Node, Place},
    queue::Queue,
};

/// What carries the operations of a [`LocalFabric`](super::LocalFabric)'s endpoints.
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
    nic: Nic,
    immediate: bool,
    /// For each node one for requests, and after those one for replies, which wait for nothing that waits for requests.
    queues: Vec<Queue>,
    /// Queues that are not empty.
    active: Vec<u32>,
    /// Departures that were reported, and of whom.
    departures: u32,
    departed: Vec<bool>,
}

impl<E: Engine> LocalPort<E> {
    pub(super) fn new(shared: &Arc<Shared<E>>, node: NodeId) -> Result<Self, FabricError> {
        let home = shared.node(node).ok_or(FabricError::UnknownNode { node })?;
        let endpoint = home.move_in(node)?;
        let life = home.place(endpoint).map_or(0, |place| place.life.load(Acquire));
        let chance =
            shared.config.seed ^ (u64::from(node.0) << 32 | u64::from(endpoint) << 8).wrapping_mul(0x9E37_79B9);
        let nothing = Ticket { index: 0, generation: 0 };
        Ok(Self {
            nic: Nic {
                address: ReplyTo { node, endpoint, life, ticket: nothing },
                rng: Rng::with_seed(chance),
                spare: Vec::new(),
                now: None,
            },
            immediate: shared.config.is_immediate(),
            queues: (0..2 * shared.nodes.len()).map(|_| Queue::default()).collect(),
            active: Vec::new(),
            departures: 0,
            departed: vec![false; shared.nodes.len()],
            shared: Arc::clone(shared),
        })
    }

    fn home(&self) -> &Node<E> {
        // An endpoint is made for a node that there is.
        &self.shared.nodes[usize::from(self.nic.address.node.0)]
    }

    fn place(&self) -> Option<&Place> {
        self.home().place(self.nic.address.endpoint)
    }

    #[inline(always)]
    fn push(&mut self, index: usize, job: Job) {
        let queue = &mut self.queues[index];
        queue.push(job, &mut self.nic, &self.shared.config);
        if !std::mem::replace(&mut queue.active, true) {
            self.active.push(index as u32);
        }
    }

    #[cold]
    fn report_departures(&mut self, events: &mut impl Events) {
        self.departures = self.shared.departures.load(Acquire);
        for (index, node) in self.shared.nodes.iter().enumerate() {
            if node.is_closed() && !std::mem::replace(&mut self.departed[index], true) {
                events.departed(NodeId(index as u16));
            }
        }
    }

    fn report_replies(&self, events: &mut impl Events) {
        let Some(place) = self.place() else { return };
        if place.replies.is_empty() {
            return;
        }
        while let Some(letter) = place.replies.receive() {
            match letter.kind {
                Kind::Reply { life, ticket, refused } if life == self.nic.address.life => {
                    let frame = if refused {
                        place.replies.recycle(letter.frame);
                        None
                    } else {
                        Some(letter.frame)
                    };
                    events.replied(ticket, letter.from, frame);
                }
                // For an endpoint that was here before.
                _ => place.replies.recycle(letter.frame),
            }
        }
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
        let nodes = self.shared.nodes.len();
        let queue = self.queues[..nodes].get_mut(usize::from(to.0)).ok_or(VerbError::UnknownNode { node: to })?;
        let depth = self.shared.config.queue_depth;
        if queue.taken >= depth {
            return Err(VerbError::QueueFull { node: to, depth });
        }
        queue.taken += 1;
        Ok(())
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
        if self.shared.departures.load(Relaxed) != self.departures {
            self.report_departures(events);
        }
        self.report_replies(events);
        if !self.immediate && !self.shared.config.latency.is_zero() && !self.active.is_empty() {
            self.nic.now = Some(Instant::now());
        }
        let mut activity = Activity::Idle;
        let mut index = 0;
        while let Some(&active) = self.active.get(index) {
            let queue = &mut self.queues[active as usize];
            let found = if self.immediate {
                queue.finish(&mut self.nic, &self.shared, events)
            } else {
                queue.advance(&mut self.nic, &self.shared, events)
            };
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
    fn has_mail(&self) -> bool {
        !self.home().mail.is_empty()
    }

    fn receive(&mut self) -> Option<Received> {
        let home = self.home();
        if home.mail.is_empty() {
            return None;
        }
        let letter = home.mail.receive()?;
        let reply_to = match letter.kind {
            Kind::Call(reply_to) => Some(reply_to),
            Kind::Message | Kind::Reply { .. } => None,
        };
        Some(Received { from: letter.from, frame: letter.frame, reply_to })
    }

    fn reply(&mut self, to: ReplyTo, reply: Reply) {
        self.push(self.shared.nodes.len() + usize::from(to.node.0), Job::Reply(to, reply));
    }

    fn recycle_message(&mut self, frame: Frame) {
        self.home().mail.recycle(frame);
    }

    fn recycle_reply(&mut self, frame: Frame) {
        if let Some(place) = self.place() {
            place.replies.recycle(frame);
        }
    }
}

impl<E: Engine> Drop for LocalPort<E> {
    fn drop(&mut self) {
        let (home, me) = (self.home(), self.nic.address);
        home.move_out(me.endpoint);
        for queue in &mut self.queues {
            queue.abandon(&self.shared, me.node);
        }
    }
}

impl<E: Engine> fmt::Debug for LocalPort<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalPort").field("address", &self.nic.address).finish_non_exhaustive()
    }
}
