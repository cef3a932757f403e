//! The simulated world: all nodes, NICs and endpoints, and its events.
//!
//! Everything here is a function of the configuration and of what workers do in their turns. The
//! only clock is `now`, the only randomness `rng`, and no unordered collection is iterated.

mod datagrams;
mod machine;
mod mail;
mod nodes;
mod verbs;

use drtm_htm::Engine;
use fastrand::Rng;

use super::{
    Chances, Fault, Overhead, SimConfig,
    agenda::{Agenda, Event, OpId, Trace},
    clock::{BEGINNING, Picos, picos},
    endpoint::{Arrival, EndpointState},
    life::Node,
    queue::{Op, Queue},
};
use crate::{NodeId, Time, endpoint::port::Frame, fabric::header::Header};
use mail::Parcel;

#[derive(Debug)]
pub(super) struct World<E: Engine> {
    pub(super) config: SimConfig,
    pub(super) now: Picos,
    pub(super) agenda: Agenda,
    pub(super) trace: Trace,
    rng: Rng,
    pub(super) nodes: Vec<Node<E>>,
    /// Every endpoint ever created; dropped ones are `None`.
    pub(super) endpoints: Vec<Option<EndpointState>>,
    parcels: Vec<Option<Parcel>>,
    free_parcels: Vec<u32>,
    /// The number of sessions so far.
    sessions: u32,
    /// What a datagram has delivered, while it is handled. Reused.
    taken: Vec<(Header, Frame)>,
    pub(super) chances: Chances,
    /// Whether nodes on different sides are partitioned.
    divided: bool,
    pub(super) plan: Vec<Fault>,
    /// Stations whose workers are to be dropped.
    pub(super) doomed: Vec<u32>,
    /// The endpoint of the current turn.
    pub(super) running: Option<u32>,
    /// The processor time that overheads of software have taken, by [`Overhead::ALL`].
    pub(super) overheads: [Picos; Overhead::ALL.len()],
}

/// The outcome of a packet.
enum PacketOutcome {
    /// It arrives, after this time.
    Arrives(Picos),
    Lost,
}

impl<E: Engine> World<E> {
    pub(super) fn new(nodes: u16, config: SimConfig) -> Self {
        let mut trace = Trace::default();
        trace.mix(u64::from(nodes));
        Self {
            now: BEGINNING,
            agenda: Agenda::default(),
            trace,
            rng: Rng::with_seed(config.seed),
            nodes: (0..nodes).map(|node| Node::new(NodeId(node), &config)).collect(),
            endpoints: Vec::new(),
            parcels: Vec::new(),
            free_parcels: Vec::new(),
            sessions: 0,
            taken: Vec::new(),
            chances: config.chances,
            divided: false,
            plan: Vec::new(),
            doomed: Vec::new(),
            running: None,
            overheads: Default::default(),
            config,
        }
    }

    pub(super) fn endpoint(&mut self, endpoint: u32) -> Option<&mut EndpointState> {
        self.endpoints.get_mut(endpoint as usize)?.as_mut()
    }

    pub(super) fn queue(&mut self, id: OpId) -> Option<&mut Queue> {
        self.endpoint(id.endpoint)?.queues.get_mut(usize::from(id.queue))
    }

    pub(super) fn op(&mut self, id: OpId) -> Option<&mut Op> {
        self.queue(id)?.op(id.number)
    }

    /// Returns the processor time of a endpoint.
    pub(super) fn local(&self, endpoint: u32) -> Picos {
        let endpoint = self.endpoints.get(endpoint as usize).and_then(Option::as_ref);
        endpoint.map_or(self.now, |endpoint| endpoint.local.max(self.now))
    }

    /// Returns what a endpoint's clock shows.
    pub(super) fn clock(&self, endpoint: u32, node: NodeId) -> Time {
        self.nodes[usize::from(node.0)].clock.at(self.local(endpoint))
    }

    /// Charges a endpoint's processor for this much time.
    pub(super) fn charge(&mut self, endpoint: u32, takes: Picos) {
        let now = self.now;
        if let Some(endpoint) = self.endpoint(endpoint) {
            endpoint.local = endpoint.local.max(now) + takes;
        }
    }

    /// Plans a turn of a endpoint, at that time or as soon as it can.
    pub(super) fn wake(&mut self, endpoint: u32, at: Picos) {
        let at = at.max(self.now);
        let Some(it) = self.endpoint(endpoint) else { return };
        it.rung = true;
        if it.crewed
            && let Some((at, generation)) = it.plan_turn(at)
        {
            self.agenda.plan(at, Event::Turn { endpoint, generation });
        }
    }

    /// Adds an arrival at a endpoint, and wakes it.
    pub(super) fn arrive(&mut self, endpoint: u32, visible: Picos, arrival: Arrival) {
        if let Some(it) = self.endpoint(endpoint) {
            let visible = it.arrive(visible, arrival);
            self.wake(endpoint, visible);
        }
    }

    /// Begins a endpoint's turn. Returns whether it is the one planned last and not stalled.
    pub(super) fn begin_turn(&mut self, endpoint: u32, generation: u32) -> bool {
        let now = self.now;
        let Some(it) = self.endpoint(endpoint) else { return false };
        if !it.begin_turn(generation) {
            return false;
        }
        if it.stalled > now {
            let at = it.stalled;
            self.wake(endpoint, at);
            return false;
        }
        it.receiving = false;
        it.local = it.local.max(now);
        true
    }

    /// Handles an event other than a turn.
    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::Issue(id) => self.issue(id),
            Event::Arrive(id) => self.arrive_there(id),
            Event::Step(id) => self.step(id),
            Event::Answer(id) => self.answer_again(id),
            Event::Complete(id) => self.complete(id),
            Event::ParcelOut(slot) => self.parcel_out(slot),
            Event::ParcelIn(slot) => self.parcel_in(slot),
            Event::Announce { node, incarnation } => self.announce(node, incarnation),
            Event::Keep { pair, session } => self.keep(pair, session),
            Event::Fault(index) => self.fault(index),
            Event::Turn { .. } => {}
        }
    }

    /// Returns whether two nodes are on different sides of a partition.
    fn are_divided(&self, one: NodeId, other: NodeId) -> bool {
        self.divided && self.nodes[usize::from(one.0)].side != self.nodes[usize::from(other.0)].side
    }

    /// Returns whether two nodes reach each other.
    fn reaches(&self, one: NodeId, other: NodeId) -> bool {
        !self.are_divided(one, other) && !self.are_parted(one, other)
    }

    /// Decides the outcome of a packet between two nodes.
    fn fate(&mut self, from: NodeId, to: NodeId) -> PacketOutcome {
        if !self.reaches(from, to) {
            return PacketOutcome::Lost;
        }
        let mut late = match picos(self.config.jitter) {
            0 => 0,
            jitter => self.rng.u64(..=jitter),
        };
        if from != to {
            if self.chances.loss > 0.0 && self.rng.f64() < self.chances.loss {
                return PacketOutcome::Lost;
            }
            if self.chances.delay > 0.0 && self.rng.f64() < self.chances.delay {
                late += self.rng.u64(..=picos(self.chances.at_most));
            }
        }
        PacketOutcome::Arrives(late)
    }

    /// Returns when a packet is sent again after this many losses. `None` if there were enough
    /// retries.
    fn retry(&self, losses: u32) -> Option<Picos> {
        let (timeout, times) = self.config.retry;
        (losses <= times).then(|| self.now + picos(timeout))
    }
}
