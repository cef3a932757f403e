//! An endpoint's port to the simulated world.
//!
//! A port that a [worker](crate::Sim::spawn) uses acts in the worker's turn, and the world advances
//! between turns. A port that is used outside of any turn (by a test, say) drives the world itself.
//! An idle poll advances the world a little, and a wait advances it until something has arrived for
//! the port.

use std::{fmt, sync::Arc};

use drtm_htm::Engine;

use super::{
    Cost, Shared,
    agenda::Event,
    clock::{NANO, Picos},
    endpoint::Arrival,
    queue::{Op, Stage},
    world::World,
};
use crate::{
    Buffers, Capabilities, FabricError, Incarnation, NodeEvent, NodeId, Port, Presence, Time, VerbError,
    endpoint::{
        backend::Backend,
        port::{Activity, Events, Frame, Received, Reply, ReplyTo, Sender, Ticket, Work},
        queues::{Line, Queues},
    },
    fabric::{
        lifetime::{End, Life as _, Lifetime},
        membership::Told,
    },
    sync::alarm::{Ring, Ringer},
};

/// The most time that an idle poll advances the world.
const LITTLE: Picos = 1_000 * NANO;

/// The backend of a [`SimFabric`](crate::SimFabric)'s endpoints.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Port, SimPort, Verbs};
///
/// fn counted<P: Port>(verbs: Verbs<'_, P>) -> u64 {
///     verbs.endpoint().counters().total().operations()
/// }
/// let _: fn(Verbs<'_, SimPort<NoHtm>>) -> u64 = counted;
/// ```
pub struct SimPort<E: Engine> {
    shared: Arc<Shared<E>>,
    pub(super) endpoint: u32,
    node: NodeId,
    incarnation: Incarnation,
    queues: Queues<Lifetime, InWorld>,
    told: Told,
    /// What sends the calls that are posted now.
    sender: Sender,
    /// Calls that a processor did not send as messages, and whose replies have not come.
    sent: Vec<(Ticket, Sender)>,
}

/// The operations of a queue are in the world.
#[derive(Debug)]
pub struct InWorld;

impl Line for InWorld {
    fn is_empty(&self) -> bool {
        true
    }
}

impl<E: Engine> SimPort<E> {
    pub(super) fn new(shared: &Arc<Shared<E>>, node: NodeId, crewed: bool, is_nic: bool) -> Result<Self, FabricError> {
        let mut world = shared.world.lock();
        let endpoint = world.move_in(node)?;
        let incarnation = world.nodes[usize::from(node.0)].life.incarnation;
        if is_nic {
            world.is_nic(endpoint, node);
        }
        if let Some(it) = world.endpoint(endpoint) {
            it.crewed = crewed;
        }
        let told = Told::of(world.presences(node));
        let queues = Queues::new(world.nodes.len(), world.config.queue_depth, 0, || InWorld);
        let (sender, sent) = (Sender::Message, Vec::new());
        Ok(Self { shared: Arc::clone(shared), endpoint, node, incarnation, queues, told, sender, sent })
    }

    /// Returns whether the incarnation that the port belongs to has died.
    fn is_silenced(&self, world: &World<E>) -> bool {
        let life = &world.nodes[usize::from(self.node.0)].life;
        life.incarnation != self.incarnation || life.state == super::life::State::Dead
    }

    /// Returns when the next mail is visible, if there is any.
    fn mail_at(&self, world: &World<E>) -> Option<Picos> {
        let life = &world.nodes[usize::from(self.node.0)].life;
        let takes = life.incarnation == self.incarnation && life.nic.is_none_or(|nic| nic == self.endpoint);
        life.mail.front().filter(|_| takes).map(|envelope| envelope.visible)
    }

    /// Advances the world to this endpoint's processor time, if this is outside of a turn. If
    /// nothing has arrived for the endpoint, it advances a little further.
    fn follow(&self) {
        let (local, inside) = {
            let world = self.shared.world.lock();
            (world.local(self.endpoint), world.running.is_some())
        };
        if inside {
            return;
        }
        self.shared.advance_to(local);
        let target = {
            let mut world = self.shared.world.lock();
            let now = world.now;
            let mail = self.mail_at(&world);
            let next = world.agenda.next().map_or(now + LITTLE, |next| next.min(now + LITTLE));
            let news = world.endpoint(self.endpoint).and_then(|it| it.news());
            match [news, mail].into_iter().flatten().min() {
                Some(at) if at <= now => return,
                Some(at) => at.min(next),
                None => next,
            }
        };
        self.shared.advance_to(target);
    }

    fn activity(&self, world: &mut World<E>, inside: bool) -> Activity {
        let Some(it) = world.endpoint(self.endpoint) else { return Activity::Idle };
        if it.in_flight == 0 {
            return Activity::Idle;
        }
        let blocked = if it.queues.iter().any(|queue| queue.blocked) { it.blocked() } else { 0 };
        match blocked {
            blocked if !inside && it.in_flight > blocked => Activity::Busy,
            0 => Activity::Idle,
            _ => Activity::Blocked,
        }
    }
}

impl<E: Engine> Port for SimPort<E> {}

impl<E: Engine> Backend for SimPort<E> {
    type Life = Lifetime;
    type Line = InWorld;

    const VIRTUAL: bool = true;

    fn node(&self) -> NodeId {
        self.node
    }

    fn capabilities(&self) -> Capabilities {
        self.shared.world.lock().config.capabilities()
    }

    fn buffers(&self) -> Buffers {
        self.shared.world.lock().config.buffers
    }

    fn queues(&mut self) -> &mut Queues<Lifetime, InWorld> {
        &mut self.queues
    }

    fn life(&self, node: NodeId) -> Result<Arc<Lifetime>, VerbError> {
        let world = self.shared.world.lock();
        let target = world.nodes.get(usize::from(node.0)).ok_or(VerbError::UnknownNode { node })?;
        let found = Lifetime::new(node, target.life.incarnation);
        let is_over = target.life.is_over() && target.shown.here().is_none();
        if is_over || world.are_parted(self.node, node) {
            found.end(End::Left);
        }
        Ok(Arc::new(found))
    }

    fn connected(&mut self, node: NodeId) {
        let Some(found) = self.queues.get(node).and_then(|queue| queue.life.clone()) else { return };
        let mut world = self.shared.world.lock();
        let (incarnation, is_over) = (found.incarnation, found.is_over());
        if let Some(it) = world.endpoint(self.endpoint) {
            let queue = &mut it.queues[usize::from(node.0)];
            (queue.life, queue.cut, queue.broken) = (Some(incarnation), is_over, None);
        }
        if is_over {
            // It ended before it was connected to, which nothing else tells.
            let (now, error) = (world.now, VerbError::Gone { node, incarnation });
            world.arrive(self.endpoint, now, Arrival::Departed { node, error });
        }
    }

    fn post(&mut self, work: Work) {
        let mut world = self.shared.world.lock();
        let node = work.verb.node();
        let silenced = self.is_silenced(&world);
        let (post, connections) = (world.config.profile.cpu.post, world.config.connections as u16);
        if self.sender != Sender::Nic {
            world.charge_processor(self.endpoint, post);
        }
        if self.sender != Sender::Message {
            self.sent.extend(work.ticket.map(|ticket| (ticket, self.sender)));
        }
        let Some(it) = world.endpoint(self.endpoint) else { return };
        it.in_flight += 1;
        let queue = &mut it.queues[usize::from(node.0)];
        let connection = queue.next_connection;
        queue.next_connection = (connection + 1) % connections;
        let gone = match queue.life {
            Some(incarnation) if queue.cut => Some(VerbError::Gone { node, incarnation }),
            _ if silenced => Some(VerbError::Gone { node: self.node, incarnation: self.incarnation }),
            _ => None,
        };
        let op = Op { ticket: work.ticket, verb: work.verb, stage: Stage::Staged, ready: 0, losses: 0, connection };
        let id = queue.push(op, self.endpoint, node.0);
        match gone {
            Some(error) => world.refuse(id, error),
            None => it.staged.push(id),
        }
    }

    fn ring(&mut self) {
        let mut world = self.shared.world.lock();
        let (cpu, pcie) = (world.config.profile.cpu, world.config.profile.pcie_write);
        let by_datagram = world.config.by_datagrams();
        let Some(it) = world.endpoint(self.endpoint) else { return };
        let mut staged = std::mem::take(&mut it.staged);
        let mut doorbells = 0;
        let mut casts = false;
        for (place, id) in staged.iter().enumerate() {
            let is_cast =
                by_datagram && it.queues[usize::from(id.queue)].op(id.number).is_some_and(|op| op.verb.is_message());
            if is_cast {
                // One queue pair serves all nodes.
                doorbells += u64::from(!std::mem::replace(&mut casts, true));
            } else {
                doorbells += u64::from(!staged[..place].iter().any(|other| other.queue == id.queue));
            }
        }
        let is_nic = self.sender == Sender::Nic || world.endpoint(self.endpoint).is_some_and(|it| it.is_nic);
        if !is_nic {
            world.charge(self.endpoint, doorbells * cpu.doorbell);
        }
        let at = world.local(self.endpoint) + if is_nic { 0 } else { pcie };
        for id in staged.drain(..) {
            world.agenda.plan(at, Event::Issue(id));
        }
        if let Some(it) = world.endpoint(self.endpoint) {
            it.staged = staged;
        }
    }

    fn poll(&mut self, events: &mut impl Events) -> Activity {
        self.follow();
        let mut world = self.shared.world.lock();
        let inside = world.running.is_some();
        let cpu = world.config.profile.cpu;
        let mut found = false;
        if let Some(it) = world.endpoint(self.endpoint) {
            it.rung = false;
            it.answered = false;
        }
        loop {
            let local = world.local(self.endpoint);
            let Some(it) = world.endpoint(self.endpoint) else { break };
            if it.news().is_none_or(|visible| visible > local) {
                break;
            }
            let Some((_, arrival)) = it.arrivals.pop_front() else { break };
            found = true;
            let mut takes = 0;
            match arrival {
                Arrival::Completed { queue, ticket, verb, outcome } => {
                    it.in_flight -= 1;
                    if ticket.is_some() {
                        takes = cpu.completion;
                    }
                    if let Some(queue) = self.queues.get(NodeId(queue)) {
                        queue.state.complete(ticket, verb, outcome, events);
                    }
                }
                Arrival::Replied { ticket, from, frame } => {
                    let sent = self.sent.iter().position(|(sent, _)| *sent == ticket);
                    takes = match sent.map(|place| self.sent.swap_remove(place).1) {
                        None | Some(Sender::Message) => cpu.receive,
                        Some(Sender::Verb) => cpu.completion,
                        Some(Sender::Nic) => 0,
                    };
                    events.replied(ticket, from, frame);
                }
                Arrival::Departed { node, error } => events.departed(node, error),
                Arrival::Changed => events.changed(),
            }
            world.charge_processor(self.endpoint, takes);
        }
        if !found {
            world.charge(self.endpoint, cpu.poll);
        }
        self.activity(&mut world, inside)
    }

    fn has_mail(&mut self) -> bool {
        let world = self.shared.world.lock();
        let local = world.local(self.endpoint);
        self.mail_at(&world).is_some_and(|visible| visible <= local)
    }

    fn receive(&mut self) -> Option<Received> {
        let mut world = self.shared.world.lock();
        let local = world.local(self.endpoint);
        if self.mail_at(&world)? > local || self.is_silenced(&world) {
            return None;
        }
        let takes = world.config.profile.cpu.receive;
        world.begin_serving(self.endpoint, takes);
        let life = &mut world.nodes[usize::from(self.node.0)].life;
        let envelope = life.mail.pop_front()?;
        life.held += 1;
        Some(Received { from: envelope.from, frame: envelope.frame, reply_to: envelope.reply_to })
    }

    fn reply(&mut self, to: &ReplyTo, reply: Reply) -> Result<(), (Reply, Activity)> {
        let mut world = self.shared.world.lock();
        if self.is_silenced(&world) {
            world.make_room(self.endpoint);
        } else {
            world.send_reply(self.endpoint, *to, reply);
        }
        Ok(())
    }

    fn recycle_message(&mut self, frame: Frame) {
        drop(frame);
        self.shared.world.lock().make_room(self.endpoint);
    }

    fn recycle_reply(&mut self, frame: Frame) {
        drop(frame);
    }

    fn now(&self) -> Time {
        self.shared.world.lock().clock(self.endpoint, self.node)
    }

    fn ringer(&self) -> Ringer {
        Ringer::new(Arc::new(Bell { shared: Arc::clone(&self.shared), endpoint: self.endpoint }))
    }

    fn wait(&mut self, until: Option<Time>, receiving: bool, quiet: impl FnOnce() -> bool) {
        let quiet = quiet();
        let mut world = self.shared.world.lock();
        let until = until.map(|until| world.nodes[usize::from(self.node.0)].clock.when(until));
        let mail = self.mail_at(&world).filter(|_| receiving);
        if world.running.is_some() {
            let local = world.local(self.endpoint);
            let Some(it) = world.endpoint(self.endpoint) else { return };
            it.receiving = receiving;
            it.waits = true;
            let unquiet = (!quiet).then_some(local);
            let next = [it.news(), mail, until, unquiet].into_iter().flatten().min();
            if let Some(at) = next {
                world.wake(self.endpoint, at);
            }
            return;
        }
        if let Some(it) = world.endpoint(self.endpoint) {
            it.receiving = receiving;
        }
        drop(world);
        if quiet {
            self.drive(until, receiving);
        }
        if let Some(it) = self.shared.world.lock().endpoint(self.endpoint) {
            it.receiving = false;
        }
    }

    fn retire(&mut self) {
        let mut world = self.shared.world.lock();
        if self.mail_at(&world).is_some() {
            let at = world.now;
            world.wake_for_mail(self.node, at, 0);
        }
    }

    fn presence(&self, node: NodeId) -> Presence {
        self.shared.world.lock().presence(self.node, node)
    }

    fn is_refused_by(&self, node: NodeId) -> bool {
        self.shared.world.lock().refuses(node, self.node, self.incarnation)
    }

    fn next_event(&mut self) -> Option<NodeEvent> {
        let world = self.shared.world.lock();
        self.told.next(world.presences(self.node))
    }

    fn reconnect(&mut self, node: NodeId) -> Result<Option<Incarnation>, VerbError> {
        let mut world = self.shared.world.lock();
        let target = world.nodes.get(usize::from(node.0)).ok_or(VerbError::UnknownNode { node })?;
        let incarnation = target.life.incarnation;
        if target.life.is_over() || !world.is_reachable(self.node, node) {
            return Err(VerbError::Gone { node, incarnation });
        }
        let Some(it) = world.endpoint(self.endpoint) else { return Ok(None) };
        let queue = &it.queues[usize::from(node.0)];
        if queue.life == Some(incarnation) && !queue.cut {
            return Ok(Some(incarnation));
        }
        let reported = it.arrivals.iter().all(|(_, arrival)| match arrival {
            Arrival::Completed { queue, .. } => *queue != node.0,
            Arrival::Departed { node: departed, .. } => *departed != node,
            Arrival::Replied { .. } | Arrival::Changed => true,
        });
        if !queue.ops.is_empty() || !reported {
            return Ok(None);
        }
        drop(world);
        self.queues.connect(node, Arc::new(Lifetime::new(node, incarnation)));
        self.connected(node);
        Ok(Some(incarnation))
    }

    fn charge(&mut self, cost: Cost) {
        self.shared.world.lock().charge_cost(self.endpoint, cost);
    }

    fn sends_as(&mut self, sender: Sender) {
        self.sender = sender;
    }
}

impl<E: Engine> SimPort<E> {
    /// Advances the world until something has arrived for this endpoint, or until a moment.
    fn drive(&self, until: Option<Picos>, receiving: bool) {
        loop {
            let target = {
                let mut world = self.shared.world.lock();
                let now = world.now;
                let mail = self.mail_at(&world).filter(|_| receiving);
                let next = world.agenda.next();
                let Some(it) = world.endpoint(self.endpoint) else { return };
                let news = [it.news(), mail].into_iter().flatten().min();
                if it.rung || news.is_some_and(|at| at <= now) || until.is_some_and(|until| until <= now) {
                    return;
                }
                [news, until, next].into_iter().flatten().min()
            };
            match target {
                Some(target) => self.shared.advance_to(target),
                // No event will ever happen here, unless another thread causes it.
                None => return std::thread::yield_now(),
            }
        }
    }
}

impl<E: Engine> Drop for SimPort<E> {
    fn drop(&mut self) {
        self.shared.world.lock().move_out(self.endpoint);
    }
}

impl<E: Engine> fmt::Debug for SimPort<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimPort").field("node", &self.node).field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// Wakes an endpoint.
struct Bell<E: Engine> {
    shared: Arc<Shared<E>>,
    endpoint: u32,
}

impl<E: Engine> Ring for Bell<E> {
    fn ring(&self) {
        let mut world = self.shared.world.lock();
        let at = world.now;
        world.wake(self.endpoint, at);
    }
}
