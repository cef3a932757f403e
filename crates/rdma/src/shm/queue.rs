//! The pending operations of one endpoint to one node, in order. They are carried out at the next
//! poll, or wait until the peer takes messages.

use std::{collections::VecDeque, sync::Arc};

use drtm_htm::Engine;

use crate::{
    Incarnation, Tearing, VerbError, die, memory,
    port::{Activity, Events, Ticket, Verb, Work},
    ring::{FrameHead, FrameKind},
};

use super::{ENDPOINTS, Shared, control::Lane, node::Peer, outbox::OutRing};

/// The endpoint of a queue, as frames name it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    pub(super) endpoint: u16,
    pub(super) life: u32,
}

/// The progress of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Done(u64),
    /// There is no room for the message.
    Full,
    /// The region is registered, but not known here yet.
    Later,
}

#[derive(Debug)]
pub(super) struct Queue<E: Engine> {
    /// The incarnation that the queue belongs to, since its first use or the last reconnection.
    life: Option<Arc<Peer<E>>>,
    /// Whether the port has reported the end of this incarnation.
    departed: bool,
    pending: VecDeque<Work>,
    /// Whether it is on the port's list.
    pub(super) active: bool,
    /// The number of places taken.
    pub(super) taken: usize,
    /// The failure of an unsignaled operation, until it is reported.
    broken: Option<VerbError>,
    /// The endpoint of the node that messages go to.
    receiver: Option<u16>,
    /// For each endpoint of the node, the ring for requests and the one for replies.
    rings: Vec<[Option<OutRing>; 2]>,
    /// The incarnation that the rings lead to.
    rings_to: Incarnation,
}

impl<E: Engine> Default for Queue<E> {
    fn default() -> Self {
        Self {
            life: None,
            departed: false,
            pending: VecDeque::new(),
            active: false,
            taken: 0,
            broken: None,
            receiver: None,
            rings: Vec::new(),
            rings_to: Incarnation(0),
        }
    }
}

impl<E: Engine> Queue<E> {
    pub(super) fn life(&self) -> Option<&Arc<Peer<E>>> {
        self.life.as_ref()
    }

    /// Connects the queue to an incarnation. The queue is empty then: all operations for an
    /// incarnation that is over end at the next poll.
    #[cold]
    pub(super) fn connect(&mut self, life: Arc<Peer<E>>) {
        debug_assert!(self.pending.is_empty(), "what is for one incarnation is not carried out on another");
        (self.life, self.departed, self.broken, self.receiver) = (Some(life), false, None, None);
    }

    /// Returns whether all operations of the previous incarnation are reported.
    pub(super) fn may_connect(&self) -> bool {
        self.life.is_none() || (self.departed && self.pending.is_empty())
    }

    /// Returns the incarnation once, when it is over. `None` otherwise.
    pub(super) fn departure(&mut self) -> Option<Incarnation> {
        let life = self.life.as_ref().filter(|life| life.is_over())?;
        (!std::mem::replace(&mut self.departed, true)).then_some(life.incarnation)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Adds an operation, and prefetches the memory that it will read.
    #[inline(always)]
    pub(super) fn push(&mut self, work: Work) {
        if let (Verb::Read { from, into }, Some(life)) = (&work.verb, &self.life) {
            life.prefetch(*from, into.len());
        }
        self.pending.push_back(work);
    }

    /// Carries out all operations in order, as far as possible.
    #[inline]
    pub(super) fn finish(&mut self, shared: &Shared<E>, sender: Sender, events: &mut impl Events) -> Activity {
        while let Some(mut work) = self.pending.pop_front() {
            let step = match self.broken {
                Some(error) => Err(error),
                None => self.carry_out(&mut work, shared, sender),
            };
            let outcome = match step {
                Ok(Step::Done(value)) => Ok(value),
                Err(error) => Err(error),
                Ok(not_yet) => {
                    self.pending.push_front(work);
                    // This process's own watcher will soon learn of the region.
                    return if not_yet == Step::Later { Activity::Busy } else { Activity::Blocked };
                }
            };
            if let Err(error) = outcome {
                // A failure that is not reported replaces the next operation.
                self.broken = work.ticket.is_none().then_some(error);
            }
            self.taken -= 1;
            events.completed(work.ticket, work.verb, outcome);
        }
        Activity::Idle
    }

    #[inline]
    fn carry_out(&mut self, work: &mut Work, shared: &Shared<E>, sender: Sender) -> Result<Step, VerbError> {
        let Some(life) = &self.life else { return Err(VerbError::UnknownNode { node: work.verb.node() }) };
        match &mut work.verb {
            Verb::Read { from, into } => {
                let Some((engine, words)) = life.words(*from, into.len())? else { return Ok(Step::Later) };
                die::site("verb.read");
                memory::fetch_all(engine, words, into, *from, Tearing::Lines);
                Ok(Step::Done(0))
            }
            Verb::Write { to, from } => {
                let Some((engine, words)) = life.words(*to, from.len())? else { return Ok(Step::Later) };
                die::site("verb.write");
                let half = from.len() / 2;
                memory::store(engine, words, from, 0..half);
                die::site("verb.written.half");
                memory::store(engine, words, from, half..from.len());
                die::site("verb.written");
                Ok(Step::Done(0))
            }
            Verb::CompareSwap { at, expected, new } => {
                let Some((engine, words)) = life.words(*at, 1)? else { return Ok(Step::Later) };
                die::site("verb.swap");
                let found = engine.compare_exchange(&words[0], *expected, *new).unwrap_or_else(|found| found);
                die::site("verb.swapped");
                Ok(Step::Done(found))
            }
            Verb::FetchAdd { at, add } => {
                let Some((engine, words)) = life.words(*at, 1)? else { return Ok(Step::Later) };
                Ok(Step::Done(engine.fetch_add(&words[0], *add)))
            }
            Verb::Send { bytes, .. } => self.deliver(shared, sender, FrameKind::Message, work.ticket, bytes),
            Verb::Call { bytes, .. } => self.deliver(shared, sender, FrameKind::Call, work.ticket, bytes),
        }
    }

    fn deliver(
        &mut self,
        shared: &Shared<E>,
        sender: Sender,
        kind: FrameKind,
        ticket: Option<Ticket>,
        bytes: &[u8],
    ) -> Result<Step, VerbError> {
        let Some(life) = self.life.clone() else { return Ok(Step::Full) };
        if life.is_over() {
            return Err(life.gone());
        }
        let ticket = ticket.unwrap_or(Ticket { index: 0, generation: 0 });
        let head = FrameHead { kind, endpoint: sender.endpoint, life: sender.life, ticket };
        let receiver = match self.receiver {
            Some(receiver) if life.control.receives(receiver) => receiver,
            _ => self.choose(shared, sender.endpoint, &life),
        };
        if !self.push_frame(shared, sender.endpoint, &life, (receiver, Lane::Requests), head, bytes) {
            return Ok(Step::Full);
        }
        if !life.control.receives(receiver) {
            // Another endpoint of the node may be able to take it.
            for endpoint in (0..ENDPOINTS as u16).filter(|endpoint| life.control.receives(*endpoint)) {
                life.control.alarm(endpoint).ring();
            }
        }
        Ok(Step::Done(0))
    }

    /// Chooses an endpoint that receives. It stays with the previous one while that has messages of
    /// this queue, so that they stay in order.
    #[cold]
    fn choose(&mut self, shared: &Shared<E>, from: u16, life: &Peer<E>) -> u16 {
        if let Some(receiver) = self.receiver
            && let Some([Some(ring), _]) = self.rings.get_mut(usize::from(receiver))
            && !ring.is_drained(shared.control())
        {
            return receiver;
        }
        // Each sender begins its search elsewhere, so that they spread.
        let first = (shared.node.0 as usize * 7 + usize::from(from)) % ENDPOINTS;
        let receivers = (0..ENDPOINTS).map(|turn| ((first + turn) % ENDPOINTS) as u16);
        let receiver = receivers.into_iter().find(|endpoint| life.control.receives(*endpoint)).unwrap_or(0);
        self.receiver = Some(receiver);
        receiver
    }

    /// Pushes a frame into the ring to an endpoint, and wakes it. Returns false if there is no
    /// room.
    pub(super) fn push_frame(
        &mut self,
        shared: &Shared<E>,
        from: u16,
        life: &Peer<E>,
        (endpoint, lane): (u16, Lane),
        head: FrameHead,
        bytes: &[u8],
    ) -> bool {
        if self.rings_to != life.incarnation {
            self.rings.clear();
            self.rings.resize_with(ENDPOINTS, Default::default);
            self.rings_to = life.incarnation;
        }
        let lanes = &mut self.rings[usize::from(endpoint) % ENDPOINTS];
        let ring = &mut lanes[usize::from(lane == Lane::Replies)];
        if ring.is_none() {
            *ring = OutRing::open(shared, from, life, endpoint, lane);
        }
        let pushed = ring.as_mut().is_some_and(|ring| ring.push(shared.control(), head, bytes));
        if pushed {
            die::site("wake.looked");
            life.control.alarm(endpoint).ring();
            die::site("wake.rung");
        }
        pushed
    }
}
