//! What one endpoint has under way to one node: what is not sent yet, and what is not answered yet.

use std::{collections::VecDeque, io};

use drtm_htm::Engine;

use crate::{
    NodeId, Time, VerbError,
    endpoint::{
        port::{Activity, Events, Frame, Ticket, Verb, Work},
        queues::{self, Line as _},
    },
    fabric::{die, lifetime::Life as _},
    sync::time,
};

use super::{
    bell::{Bell, Interest},
    dial::{Dial, Wire},
    flow::Came,
    hello::{Purpose, Verdict},
    inbox::Place,
    shared::{Peer, Shared},
    wire::{self, Failure, Request, Response},
};

/// Bytes that wait for the socket, before operations wait instead.
const AHEAD: usize = 256 << 10;

/// Returns the kill point of an operation that was sent.
fn sent(verb: &Verb) -> &'static str {
    match verb {
        Verb::Read { .. } => "tcp.sent.read",
        Verb::Write { .. } => "tcp.sent.write",
        Verb::CompareSwap { .. } => "tcp.sent.swap",
        Verb::FetchAdd { .. } => "tcp.sent.add",
        Verb::Send { .. } => "tcp.sent.message",
        Verb::Call { .. } => "tcp.sent.call",
    }
}

/// The connection of a queue.
enum Socket {
    /// The first operation connects it.
    Down,
    Dialing(Box<(Dial, Wire)>, Time),
    Up(Box<Wire>),
}

/// What an endpoint's queues need to send.
pub(super) struct Sending<'p, E: Engine> {
    pub(super) shared: &'p Shared<E>,
    pub(super) bell: &'p Bell,
    pub(super) endpoint: u16,
    pub(super) life: u32,
    pub(super) now: Time,
}

impl<'p, E: Engine> Sending<'p, E> {
    /// Returns the context of an endpoint in this place, with the present time.
    pub(super) fn of(shared: &'p Shared<E>, place: &'p Place, (endpoint, life): (u16, u32)) -> Self {
        Self { shared, bell: &place.bell, endpoint, life, now: time::of_this_machine() }
    }
}

/// Where a poll's results go.
pub(super) struct Heard<'p, V> {
    pub(super) spare: &'p mut Vec<Frame>,
    pub(super) events: &'p mut V,
}

pub(super) type Queue = queues::Queue<Peer, Line>;

/// The operations of a queue, and the connection that carries them.
pub struct Line {
    socket: Socket,
    watched: Interest,
    /// Not sent yet.
    waiting: VecDeque<Work>,
    /// Sent, and not answered.
    sent: VecDeque<Work>,
    /// Calls that the node has, or will have, and has not answered.
    calls: VecDeque<Ticket>,
    /// Whether the node has said that the next message waits for room.
    stalled: bool,
}

impl Default for Line {
    fn default() -> Self {
        let (waiting, sent, calls) = Default::default();
        Self { socket: Socket::Down, watched: Interest::INPUT, waiting, sent, calls, stalled: false }
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("waiting", &self.waiting).field("sent", &self.sent).finish_non_exhaustive()
    }
}

impl queues::Line for Line {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty()
    }

    /// Returns whether no operation is pending, and no reply can arrive.
    fn is_quiet(&self) -> bool {
        self.is_empty() && self.calls.is_empty()
    }

    fn reset(&mut self) {
        self.stalled = false;
    }
}

impl Line {
    /// Returns when there is no more patience with the node's handshake.
    pub(super) fn gives_up_at(&self) -> Option<Time> {
        match self.socket {
            Socket::Dialing(_, until) => Some(until),
            Socket::Down | Socket::Up(_) => None,
        }
    }

    #[inline(always)]
    pub(super) fn push(&mut self, work: Work) {
        self.waiting.push_back(work);
    }

    /// Watches the socket for what it waits for.
    fn watch(&mut self, bell: &Bell, node: NodeId) {
        let (socket, output) = match &self.socket {
            Socket::Dialing(dialing, _) => (&dialing.1.socket, !dialing.0.connected),
            Socket::Up(wire) => (&wire.socket, wire.out.pending() > 0),
            Socket::Down => return,
        };
        let wanted = Interest { input: true, output };
        if wanted != self.watched {
            self.watched = wanted;
            // It fails only for a socket that is not watched, and this one is.
            let _ = bell.rewatch(socket, u64::from(node.0), wanted);
        }
    }

    #[cold]
    fn up(&mut self) {
        match std::mem::replace(&mut self.socket, Socket::Down) {
            Socket::Dialing(dialing, _) => self.socket = Socket::Up(Box::new(dialing.1)),
            other => self.socket = other,
        }
    }

    /// Takes the first operation that was sent, if it is such that the answer can be to it.
    fn next_if(&mut self, fits: impl FnOnce(&Work) -> bool) -> Result<Work, wire::Malformed> {
        let fits = self.sent.front().is_some_and(fits);
        self.sent.pop_front_if(|_| fits).ok_or(wire::Malformed)
    }

    /// Removes a call that is answered.
    fn answered(&mut self, ticket: Ticket) -> Result<(), wire::Malformed> {
        let place = self.calls.iter().position(|call| *call == ticket).ok_or(wire::Malformed)?;
        self.calls.swap_remove_front(place);
        Ok(())
    }
}

impl Queue {
    /// Sends what waits. Returns false if that shows that the connection has ended, which the next
    /// poll reports.
    pub(super) fn send<E: Engine>(&mut self, by: &Sending<'_, E>) -> bool {
        if self.is_over() {
            return self.line.waiting.is_empty();
        }
        if matches!(self.line.socket, Socket::Down) && !self.line.waiting.is_empty() && self.dial(by).is_none() {
            return false;
        }
        let line = &mut self.line;
        if let Socket::Up(wire) = &mut line.socket {
            while wire.out.pending() < AHEAD
                && let Some(work) = line.waiting.pop_front()
            {
                encode(&work, wire.out.frames());
                if let (Verb::Call { .. }, Some(ticket)) = (&work.verb, work.ticket) {
                    line.calls.push_back(ticket);
                }
                line.sent.push_back(work);
            }
            if wire.out.pending() > 0 {
                if wire.flush().is_err() {
                    return false;
                }
                if let Some(work) = line.sent.back() {
                    die::site(sent(&work.verb));
                }
            }
        }
        line.watch(by.bell, self.state.node);
        true
    }

    /// Begins to connect. Returns `None` if that fails at once.
    #[cold]
    fn dial<E: Engine>(&mut self, by: &Sending<'_, E>) -> Option<()> {
        let (shared, life) = (by.shared, self.life.as_ref()?);
        let purpose = Purpose::Endpoint { endpoint: by.endpoint, life: by.life, expected: life.incarnation };
        let hello = shared.hello(self.state.node, purpose);
        let address = shared.directory.address(self.state.node)?;
        let dial = Dial::start(address, &shared.config.key, &hello, shared.config.deadline);
        let (dial, wire) = dial.ok()?;
        self.line.watched = Interest { input: true, output: true };
        by.bell.watch(&wire.socket, u64::from(self.state.node.0), self.line.watched).ok()?;
        self.line.socket = Socket::Dialing(Box::new((dial, wire)), by.now + shared.config.patience);
        die::site("tcp.dialed");
        Some(())
    }

    /// Moves everything along, and reports what is over.
    pub(super) fn advance<E: Engine, V: Events>(&mut self, by: &Sending<'_, E>, heard: &mut Heard<'_, V>) -> Activity {
        if self.is_over() || !self.send(by) {
            self.end(heard.events);
            return Activity::Idle;
        }
        match &mut self.line.socket {
            Socket::Dialing(dialing, until) => {
                let (dial, wire) = &mut **dialing;
                let expected = self.life.as_ref().map(|life| life.incarnation);
                let advanced = dial.advance(wire);
                if let Ok(Some(answer)) = &advanced {
                    by.shared.note_verdict(self.state.node, answer.verdict);
                }
                match advanced {
                    Ok(None) if by.now < *until => {}
                    Ok(Some(answer)) if answer.verdict == Verdict::Welcome && Some(answer.incarnation) == expected => {
                        self.line.up();
                        if !self.send(by) {
                            self.end(heard.events);
                        }
                    }
                    Ok(_) | Err(_) => self.end(heard.events),
                }
            }
            Socket::Up(_) => self.hear(heard),
            Socket::Down => {}
        }
        match (self.line.is_empty(), self.line.stalled) {
            (true, _) => Activity::Idle,
            (false, true) => Activity::Blocked,
            (false, false) => Activity::Remote,
        }
    }

    /// Takes what the node has said.
    fn hear<V: Events>(&mut self, by: &mut Heard<'_, V>) {
        let Socket::Up(mut wire) = std::mem::replace(&mut self.line.socket, Socket::Down) else { return };
        let came = match wire.fill() {
            Ok(came) => came,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Came::Nothing,
            Err(_) => Came::End,
        };
        if came == Came::Some {
            die::site("tcp.heard");
        }
        let sound = came == Came::Nothing || self.hear_all(&mut wire, by).is_ok();
        self.line.socket = Socket::Up(wire);
        if came == Came::End || !sound {
            self.end(by.events);
        }
    }

    fn hear_all<V: Events>(&mut self, wire: &mut Wire, by: &mut Heard<'_, V>) -> Result<(), wire::Malformed> {
        loop {
            match wire::decode_response(wire.input.frames())? {
                Some((response, length)) => {
                    self.take(response, by)?;
                    wire.input.consume(length);
                }
                None => match wire.input.open() {
                    Ok(true) => {}
                    Ok(false) => return Ok(()),
                    Err(super::noise::Forged) => return Err(wire::Malformed),
                },
            }
        }
    }

    /// Handles one response of the node. One that does not fit the requests is malformed.
    #[inline]
    fn take<V: Events>(&mut self, response: Response<'_>, by: &mut Heard<'_, V>) -> Result<(), wire::Malformed> {
        match response {
            Response::Done(count) => {
                for _ in 0..count {
                    let work = self.line.sent.pop_front().ok_or(wire::Malformed)?;
                    let has_value =
                        matches!(work.verb, Verb::Read { .. } | Verb::CompareSwap { .. } | Verb::FetchAdd { .. });
                    if has_value && work.ticket.is_some() {
                        self.line.sent.push_front(work);
                        return Err(wire::Malformed);
                    }
                    self.complete(work, Ok(0), by.events);
                }
            }
            Response::Value(value) => {
                let atomic = |work: &Work| matches!(work.verb, Verb::CompareSwap { .. } | Verb::FetchAdd { .. });
                let work = self.line.next_if(atomic)?;
                self.complete(work, Ok(value), by.events);
            }
            Response::Words(words) => {
                let fits = |work: &Work| matches!(&work.verb, Verb::Read { into, .. } if 8 * into.len() == words.len());
                let mut work = self.line.next_if(fits)?;
                if let Verb::Read { into, .. } = &mut work.verb {
                    wire::get_words(words, into);
                }
                self.complete(work, Ok(0), by.events);
            }
            Response::Failed(failure) => {
                let work = self.line.sent.pop_front().ok_or(wire::Malformed)?;
                let error = self.state.broken().unwrap_or_else(|| error_of(failure, &work.verb));
                self.state.note(work.ticket.is_some(), &Err(error));
                if let (Verb::Call { .. }, Some(ticket)) = (&work.verb, work.ticket) {
                    self.line.answered(ticket)?;
                }
                self.complete(work, Err(error), by.events);
            }
            Response::Stalled => self.line.stalled = true,
            Response::Reply { ticket, bytes } => {
                self.line.answered(ticket)?;
                let mut frame = by.spare.pop().unwrap_or_default();
                frame.clear();
                frame.extend_from_slice(bytes);
                by.events.replied(ticket, self.state.node, Some(frame));
            }
            Response::Refusal { ticket } => {
                self.line.answered(ticket)?;
                by.events.replied(ticket, self.state.node, None);
            }
        }
        Ok(())
    }

    #[inline]
    fn complete(&mut self, work: Work, outcome: Result<u64, VerbError>, events: &mut impl Events) {
        self.line.stalled = false;
        self.state.complete(work.ticket, work.verb, outcome, events);
    }

    /// Ends everything: what was sent may have taken effect, and what was not has not.
    #[cold]
    pub(super) fn end(&mut self, events: &mut impl Events) {
        let Some(life) = self.life.clone() else { return };
        let cut_off = life.cut_off();
        (self.line.socket, self.line.stalled) = (Socket::Down, false);
        self.line.calls.clear();
        self.state.end(cut_off, events);
        while let Some(work) = self.line.sent.pop_front() {
            self.complete(work, Err(cut_off), events);
        }
        while let Some(work) = self.line.waiting.pop_front() {
            self.complete(work, Err(life.gone()), events);
        }
    }
}

fn encode(work: &Work, into: &mut Vec<u8>) {
    let signaled = work.ticket.is_some();
    let request = match &work.verb {
        Verb::Read { from, into: words } => return wire::read(signaled, from.region, from.offset, words.len(), into),
        Verb::Write { to, from } => return wire::write(signaled, to.region, to.offset, from, into),
        Verb::CompareSwap { at, expected, new } => {
            Request::CompareSwap { region: at.region, offset: at.offset, expected: *expected, new: *new }
        }
        Verb::FetchAdd { at, add } => Request::FetchAdd { region: at.region, offset: at.offset, add: *add },
        Verb::Send { bytes, .. } => Request::Send { bytes },
        // Calls always have a ticket.
        Verb::Call { bytes, .. } => {
            let ticket = work.ticket.unwrap_or(Ticket { index: u32::MAX, generation: u32::MAX });
            Request::Call { ticket, bytes }
        }
    };
    wire::request(signaled, &request, into);
}

fn error_of(failure: Failure, verb: &Verb) -> VerbError {
    let (at, words) = match verb {
        Verb::Read { from, into } => (*from, into.len()),
        Verb::Write { to, from } => (*to, from.len()),
        Verb::CompareSwap { at, .. } | Verb::FetchAdd { at, .. } => (*at, 1),
        Verb::Send { to, .. } | Verb::Call { to, .. } => return VerbError::Unanswered { node: *to },
    };
    match failure {
        Failure::UnknownRegion => VerbError::UnknownRegion { node: at.node, region: at.region },
        Failure::OutOfBounds => VerbError::OutOfBounds { at, words },
    }
}
