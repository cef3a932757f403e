//! The pending operations of one endpoint to one node, in order. They are carried out at the next
//! poll, or wait until the peer takes messages.

use std::collections::VecDeque;

use drtm_htm::{Engine, Word};

use crate::{
    Remote, Tearing, VerbError,
    endpoint::{
        port::{Activity, Events, Ticket, Verb, Work},
        queues,
    },
    fabric::{die, lifetime::Life as _},
    region::memory,
    sync::ring::{FrameHead, FrameKind},
};

use super::{ENDPOINTS, Shared, control::Traffic, node::Peer, rings::Rings};

/// The endpoint of a queue, as frames name it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    pub(super) endpoint: u16,
    pub(super) life: u32,
}

pub(super) type Queue<E> = queues::Queue<Peer<E>, Line>;

/// The operations of a queue, and where messages go.
#[derive(Debug, Default)]
pub struct Line {
    pending: VecDeque<Work>,
    /// The endpoint of the node that messages go to.
    receiver: Option<u16>,
    pub(super) rings: Rings,
}

impl queues::Line for Line {
    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    fn reset(&mut self) {
        self.receiver = None;
    }
}

impl<E: Engine> Queue<E> {
    /// Adds an operation, and prefetches the memory that it will read.
    #[inline(always)]
    pub(super) fn push(&mut self, work: Work) {
        let Work { ticket, verb } = work;
        if let Verb::Read { from, into } = verb {
            if let Some(life) = &self.life {
                life.prefetch(from, into.len());
            }
            return self.line.pending.push_back(Work { ticket, verb: Verb::Read { from, into } });
        }
        self.line.pending.push_back(Work { ticket, verb });
    }

    /// Carries out all operations in order, as far as possible.
    #[inline]
    pub(super) fn finish(&mut self, shared: &Shared<E>, sender: Sender, events: &mut impl Events) -> Activity {
        while let Some(Work { ticket, verb }) = self.line.pending.pop_front() {
            if let Some(error) = self.state.broken() {
                self.end(ticket, verb, Err(error), events);
            } else if let Err((not_yet, verb)) = self.carry_out(ticket, verb, shared, sender, events) {
                self.line.pending.push_front(Work { ticket, verb });
                return not_yet;
            }
        }
        Activity::Idle
    }

    /// Reports an operation that is over.
    #[inline(always)]
    fn end(&mut self, ticket: Option<Ticket>, verb: Verb, outcome: Result<u64, VerbError>, events: &mut impl Events) {
        self.state.note(ticket.is_some(), &outcome);
        self.state.complete(ticket, verb, outcome, events);
    }

    /// Carries out an operation and reports it. Returns it if it has to wait. Each verb has a path
    /// of its own to its report, without a branch on the verb.
    #[inline(always)]
    fn carry_out(
        &mut self,
        ticket: Option<Ticket>,
        verb: Verb,
        shared: &Shared<E>,
        sender: Sender,
        events: &mut impl Events,
    ) -> Result<(), (Activity, Verb)> {
        // This process's own watcher will soon learn of a region that is not known here yet.
        const LATER: Activity = Activity::Busy;
        match verb {
            Verb::Read { from, mut into } => {
                let outcome = match self.words(from, into.len()) {
                    Ok(Some((engine, words))) => {
                        die::site("verb.read");
                        memory::fetch_all(engine, words, &mut into, from, Tearing::Lines);
                        Ok(0)
                    }
                    Ok(None) => return Err((LATER, Verb::Read { from, into })),
                    Err(error) => Err(error),
                };
                self.end(ticket, Verb::Read { from, into }, outcome, events);
            }
            Verb::Write { to, from } => {
                let outcome = match self.words(to, from.len()) {
                    Ok(Some((engine, words))) => {
                        die::site("verb.write");
                        let half = from.len() / 2;
                        memory::store(engine, words, &from, 0..half);
                        die::site("verb.written.half");
                        memory::store(engine, words, &from, half..from.len());
                        die::site("verb.written");
                        Ok(0)
                    }
                    Ok(None) => return Err((LATER, Verb::Write { to, from })),
                    Err(error) => Err(error),
                };
                self.end(ticket, Verb::Write { to, from }, outcome, events);
            }
            Verb::CompareSwap { at, expected, new } => {
                let outcome = match self.words(at, 1) {
                    Ok(Some((engine, words))) => {
                        die::site("verb.swap");
                        let found = engine.compare_exchange(&words[0], expected, new).unwrap_or_else(|found| found);
                        die::site("verb.swapped");
                        Ok(found)
                    }
                    Ok(None) => return Err((LATER, Verb::CompareSwap { at, expected, new })),
                    Err(error) => Err(error),
                };
                self.end(ticket, Verb::CompareSwap { at, expected, new }, outcome, events);
            }
            Verb::FetchAdd { at, add } => {
                let outcome = match self.words(at, 1) {
                    Ok(Some((engine, words))) => Ok(engine.fetch_add(&words[0], add)),
                    Ok(None) => return Err((LATER, Verb::FetchAdd { at, add })),
                    Err(error) => Err(error),
                };
                self.end(ticket, Verb::FetchAdd { at, add }, outcome, events);
            }
            Verb::Send { to, bytes } => {
                let outcome = match self.deliver(shared, sender, FrameKind::Message, ticket, &bytes) {
                    Ok(true) => Ok(0),
                    Ok(false) => return Err((Activity::Blocked, Verb::Send { to, bytes })),
                    Err(error) => Err(error),
                };
                self.end(ticket, Verb::Send { to, bytes }, outcome, events);
            }
            Verb::Call { to, bytes } => {
                let outcome = match self.deliver(shared, sender, FrameKind::Call, ticket, &bytes) {
                    Ok(true) => Ok(0),
                    Ok(false) => return Err((Activity::Blocked, Verb::Call { to, bytes })),
                    Err(error) => Err(error),
                };
                self.end(ticket, Verb::Call { to, bytes }, outcome, events);
            }
        }
        Ok(())
    }

    /// Returns words of the node, and the engine to access them with. `None` if the region is not
    /// known here yet.
    #[inline(always)]
    fn words(&self, at: Remote, count: usize) -> Result<Option<(&E, &[Word])>, VerbError> {
        match &self.life {
            Some(life) => life.words(at, count),
            None => Err(VerbError::UnknownNode { node: at.node }),
        }
    }

    /// Sends a message. Returns false if there is no room.
    fn deliver(
        &mut self,
        shared: &Shared<E>,
        sender: Sender,
        kind: FrameKind,
        ticket: Option<Ticket>,
        bytes: &[u8],
    ) -> Result<bool, VerbError> {
        let Some(life) = &self.life else { return Ok(false) };
        if life.is_over() {
            return Err(life.gone());
        }
        let ticket = ticket.unwrap_or(Ticket { index: 0, generation: 0 });
        let head = FrameHead { kind, endpoint: sender.endpoint, life: sender.life, ticket };
        let receiver = match self.line.receiver {
            Some(receiver) if life.control.receives(receiver) => receiver,
            before => Self::choose(before, &self.line.rings, shared, sender.endpoint, life),
        };
        self.line.receiver = Some(receiver);
        if !self.line.rings.push(shared, sender.endpoint, life, (receiver, Traffic::Requests), head, bytes) {
            return Ok(false);
        }
        if !life.control.receives(receiver) {
            // Another endpoint of the node may be able to take it.
            for endpoint in (0..ENDPOINTS as u16).filter(|endpoint| life.control.receives(*endpoint)) {
                life.control.alarm(endpoint).ring();
            }
        }
        Ok(true)
    }

    /// Chooses an endpoint that receives. It stays with the previous one while that has messages of
    /// this queue, so that they stay in order.
    #[cold]
    fn choose(before: Option<u16>, rings: &Rings, shared: &Shared<E>, from: u16, life: &Peer<E>) -> u16 {
        if let Some(receiver) = before
            && rings.has_requests(receiver, shared.control())
        {
            return receiver;
        }
        // Each sender begins its search elsewhere, so that they spread.
        let first = (shared.node.0 as usize * 7 + usize::from(from)) % ENDPOINTS;
        let receivers = (0..ENDPOINTS).map(|turn| ((first + turn) % ENDPOINTS) as u16);
        receivers.into_iter().find(|endpoint| life.control.receives(*endpoint)).unwrap_or(0)
    }
}
