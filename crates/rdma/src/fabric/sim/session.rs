//! Messages by datagrams between an endpoint and a node: both sides of their stream.

use std::collections::VecDeque;

use super::SimConfig;
use crate::{
    Buffers, NodeId, Time,
    endpoint::port::{Frame, Ticket, Verb},
    fabric::{
        datagrams::{Heard, Nonsense, Pace, Prefix, Step, Stream},
        header::{HEADER, Header},
    },
};

/// The most bytes of a message in one datagram: the MTU of InfiniBand.
const MTU: usize = 4096;

/// An endpoint, and the node that it has a session with.
pub(super) type Pair = (u32, NodeId);

/// The sides of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Sends messages and calls, and looks for losses.
    Endpoint,
    /// Sends the replies.
    Node,
}

impl Side {
    pub(super) fn other(self) -> Self {
        if self == Self::Node { Self::Endpoint } else { Self::Node }
    }
}

/// A datagram of one side for the other: a prefix, and a parcel if there is one.
#[derive(Clone, Debug)]
pub(super) struct Datagram {
    pub(super) pair: Pair,
    pub(super) to: Side,
    prefix: Prefix,
    parcel: Frame,
}

impl Datagram {
    /// Returns the bytes that count on the wire: those of the message. What this fabric puts before
    /// them is left out, as it is on connections, since the published systems have nothing like it.
    pub(super) fn bytes(&self) -> u64 {
        self.parcel.len().saturating_sub(HEADER) as u64
    }
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) number: u32,
    /// By [`Side`].
    sides: [Stream; 2],
    pub(super) pace: Pace,
    /// Calls that the node has not answered.
    pub(super) calls: Vec<Ticket>,
    /// Messages that the node has not acknowledged: the operation, if it waits for that.
    pub(super) posted: VecDeque<Option<u32>>,
    /// Whether the time of the next probe is planned.
    pub(super) is_planned: bool,
}

impl Session {
    /// Creates a session, whose number no other one has.
    pub(super) fn new(number: u32, config: &SimConfig) -> Self {
        let tokens = (2 * u64::from(number), 2 * u64::from(number) + 1);
        let stream = |sends, takes| Stream::new(sends, takes, HEADER + MTU, HEADER + Buffers::LARGE);
        let (sides, pace) =
            ([stream(tokens.0, tokens.1), stream(tokens.1, tokens.0)], Pace::new(config.probes.0, config.probes.1));
        Self { number, sides, pace, calls: Vec::new(), posted: VecDeque::new(), is_planned: false }
    }

    /// Posts a message of the endpoint. Returns whether its operation waits until the node has
    /// taken it: if the caller does, or if the window is full.
    pub(super) fn post(&mut self, verb: &Verb, ticket: Option<Ticket>, number: u32) -> bool {
        let stream = &mut self.sides[Side::Endpoint as usize];
        let asks = match (verb, ticket) {
            (Verb::Call { bytes, .. }, Some(ticket)) => {
                self.calls.push(ticket);
                stream.post(&Header::Call(ticket).encode(), bytes, false);
                false
            }
            (Verb::Send { bytes, .. }, ticket) => {
                stream.post(&Header::Message.encode(), bytes, ticket.is_some());
                ticket.is_some()
            }
            // Calls always have a ticket.
            _ => return false,
        };
        let waits = asks || stream.is_full();
        self.posted.push_back(waits.then_some(number));
        waits
    }

    /// Posts a reply of the node.
    pub(super) fn reply(&mut self, head: Header, bytes: &[u8]) {
        self.sides[Side::Node as usize].post(&head.encode(), bytes, false);
    }

    /// Takes the next datagram that is for a side.
    pub(super) fn next(&mut self, pair: Pair, to: Side) -> Option<Datagram> {
        let stream = &mut self.sides[1 - to as usize];
        let (prefix, parcel) = stream.next()?;
        let datagram = Datagram { pair, to, prefix, parcel: parcel.to_vec() };
        stream.sent();
        Some(datagram)
    }

    /// Takes a datagram, and adds the messages that are complete by it to `taken`. Returns `None`
    /// if it is of an earlier session.
    pub(super) fn hear(
        &mut self,
        datagram: &Datagram,
        room: bool,
        taken: &mut Vec<(Header, Frame)>,
    ) -> Result<Option<Heard>, Nonsense> {
        let stream = &mut self.sides[datagram.to as usize];
        if !stream.is_of(&datagram.prefix) {
            return Ok(None);
        }
        let mut sound = true;
        let heard = stream.hear(&datagram.prefix, &datagram.parcel, room, |message| match Header::split(message) {
            Some((head, bytes)) => taken.push((head, bytes.to_vec())),
            None => sound = false,
        })?;
        if sound { Ok(Some(heard)) } else { Err(Nonsense("a message without a header")) }
    }

    /// Probes the node if it is time to.
    pub(super) fn step(&mut self, now: Time) -> Step {
        let stream = &mut self.sides[Side::Endpoint as usize];
        let step = self.pace.step(now, !self.calls.is_empty() || !stream.is_quiet());
        if step == Step::Probe {
            stream.probe();
        }
        step
    }
}
