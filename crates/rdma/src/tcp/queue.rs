//! What one endpoint has under way to one node: what is not sent yet, and what is not answered yet.

use std::{collections::VecDeque, io, sync::Arc};

use drtm_htm::Engine;

use crate::{
    NodeId, Time, VerbError, die,
    port::{Activity, Events, Frame, Ticket, Verb, Work},
    time,
};

use super::{
    bell::{Bell, Interest},
    dial::{Dial, Wire},
    flow::Came,
    hello::{Purpose, Verdict},
    shared::{Peer, Place, Shared},
    wire::{self, Failure, Request, Response},
};

/// Bytes that wait for the socket, before operations wait instead.
const AHEAD: usize = 256 << 10;

/// Where a process can die that has sent an operation.
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

/// How a queue is connected.
enum Line {
    /// Not yet: the first operation connects it.
    Down,
    Dialing(Box<(Dial, Wire)>, Time),
    Up(Box<Wire>),
    /// Not any more, until it is reconnected.
    Over,
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
    /// As of now, of the endpoint that lives in this place.
    pub(super) fn of(shared: &'p Shared<E>, place: &'p Place, (endpoint, life): (u16, u32)) -> Self {
        Self { shared, bell: &place.bell, endpoint, life, now: time::of_this_machine() }
    }
}

/// Where a poll's results go.
pub(super) struct Heard<'p, V> {
    pub(super) spare: &'p mut Vec<Frame>,
    pub(super) events: &'p mut V,
}

pub(super) struct Queue {
    node: NodeId,
    life: Option<Arc<Peer>>,
    line: Line,
    watched: Interest,
    /// Not sent yet.
    waiting: VecDeque<Work>,
    /// Sent, and not answered.
    sent: VecDeque<Work>,
    /// Calls that the node has, or will have, and has not answered.
    calls: VecDeque<Ticket>,
    /// Whether it is on the port's list.
    pub(super) active: bool,
    /// Places taken.
    pub(super) taken: usize,
    /// The failure of an unsignaled operation that is still to be heard of.
    broken: Option<VerbError>,
    /// The node has said that the next message waits for room.
    stalled: bool,
}

impl Queue {
    pub(super) fn new(node: NodeId) -> Self {
        Self {
            node,
            life: None,
            line: Line::Down,
            watched: Interest::INPUT,
            waiting: VecDeque::new(),
            sent: VecDeque::new(),
            calls: VecDeque::new(),
            active: false,
            taken: 0,
            broken: None,
            stalled: false,
        }
    }

    pub(super) fn life(&self) -> Option<&Arc<Peer>> {
        self.life.as_ref()
    }

    /// Makes the queue belong to an incarnation.
    #[cold]
    pub(super) fn connect(&mut self, life: Arc<Peer>) {
        debug_assert!(self.is_empty(), "what is for one incarnation is not carried out on another");
        (self.life, self.line, self.broken, self.stalled) = (Some(life), Line::Down, None, false);
    }

    /// Whether the queue belongs to this, and can be used.
    pub(super) fn is_of(&self, life: &Arc<Peer>) -> bool {
        self.life.as_ref().is_some_and(|now| Arc::ptr_eq(now, life)) && !matches!(self.line, Line::Over)
    }

    /// Whether nothing that belongs to an incarnation before is still to be reported.
    pub(super) fn may_connect(&self) -> bool {
        self.life.is_none() || (matches!(self.line, Line::Over) && self.is_empty())
    }

    /// Whether its incarnation is over, and that was not reported.
    pub(super) fn has_departed(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.is_over()) && !matches!(self.line, Line::Over)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty()
    }

    /// When there is no more patience with the node's handshake.
    pub(super) fn gives_up_at(&self) -> Option<Time> {
        match self.line {
            Line::Dialing(_, until) => Some(until),
            _ => None,
        }
    }

    #[inline(always)]
    pub(super) fn push(&mut self, work: Work) {
        self.waiting.push_back(work);
    }

    /// Whether nothing can come but the end of the connection.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_empty() && self.calls.is_empty()
    }

    /// Sends what is to be sent. False where that shows that the connection has ended, which the
    /// next poll reports.
    pub(super) fn send<E: Engine>(&mut self, by: &Sending<'_, E>) -> bool {
        let Some(life) = &self.life else { return true };
        if matches!(self.line, Line::Down) && !self.waiting.is_empty() && (life.is_over() || self.dial(by).is_none()) {
            return false;
        }
        if let Line::Up(wire) = &mut self.line {
            while wire.out.pending() < AHEAD
                && let Some(work) = self.waiting.pop_front()
            {
                encode(&work, wire.out.frames());
                if let (Verb::Call { .. }, Some(ticket)) = (&work.verb, work.ticket) {
                    self.calls.push_back(ticket);
                }
                self.sent.push_back(work);
            }
            if wire.out.pending() > 0 {
                if wire.flush().is_err() {
                    return false;
                }
                if let Some(work) = self.sent.back() {
                    die::site(sent(&work.verb));
                }
            }
        }
        self.watch(by.bell);
        true
    }

    /// Begins to connect. Nothing where that fails at once.
    #[cold]
    fn dial<E: Engine>(&mut self, by: &Sending<'_, E>) -> Option<()> {
        let (shared, life) = (by.shared, self.life.as_ref()?);
        let purpose = Purpose::Endpoint { endpoint: by.endpoint, life: by.life, expected: life.incarnation };
        let hello = shared.hello(self.node, purpose);
        let address = shared.directory.get(usize::from(self.node.0)).copied().flatten()?;
        let dial = Dial::start(address, &shared.config.key, &hello, shared.config.deadline);
        let (dial, wire) = dial.ok()?;
        self.watched = Interest { input: true, output: true };
        by.bell.watch(&wire.socket, u64::from(self.node.0), self.watched).ok()?;
        self.line = Line::Dialing(Box::new((dial, wire)), by.now + shared.config.patience);
        die::site("tcp.dialed");
        Some(())
    }

    /// Watches the socket for what it waits for.
    fn watch(&mut self, bell: &Bell) {
        let (socket, output) = match &self.line {
            Line::Dialing(dialing, _) => (&dialing.1.socket, !dialing.0.connected),
            Line::Up(wire) => (&wire.socket, wire.out.pending() > 0),
            Line::Down | Line::Over => return,
        };
        let wanted = Interest { input: true, output };
        if wanted != self.watched {
            self.watched = wanted;
            // It fails only for a socket that is not watched, and this one is.
            let _ = bell.rewatch(socket, u64::from(self.node.0), wanted);
        }
    }

    /// Moves everything along, and reports what is over.
    pub(super) fn advance<E: Engine, V: Events>(&mut self, by: &Sending<'_, E>, heard: &mut Heard<'_, V>) -> Activity {
        let over = self.life.as_ref().is_none_or(|life| life.is_over()) || matches!(self.line, Line::Over);
        if over || !self.send(by) {
            self.end(heard.events);
            return Activity::Idle;
        }
        match &mut self.line {
            Line::Dialing(dialing, until) => {
                let (dial, wire) = &mut **dialing;
                let expected = self.life.as_ref().map(|life| life.incarnation);
                match dial.advance(wire) {
                    Ok(None) if by.now < *until => {}
                    Ok(Some(answer)) if answer.verdict == Verdict::Welcome && Some(answer.incarnation) == expected => {
                        self.up();
                        if !self.send(by) {
                            self.end(heard.events);
                        }
                    }
                    Ok(_) | Err(_) => self.end(heard.events),
                }
            }
            Line::Up(_) => self.hear(heard),
            Line::Down | Line::Over => {}
        }
        match (self.is_empty(), self.stalled) {
            (true, _) => Activity::Idle,
            (false, true) => Activity::Blocked,
            (false, false) => Activity::Remote,
        }
    }

    #[cold]
    fn up(&mut self) {
        match std::mem::replace(&mut self.line, Line::Over) {
            Line::Dialing(dialing, _) => self.line = Line::Up(Box::new(dialing.1)),
            other => self.line = other,
        }
    }

    /// Takes what the node has said.
    fn hear<V: Events>(&mut self, by: &mut Heard<'_, V>) {
        let Line::Up(mut wire) = std::mem::replace(&mut self.line, Line::Over) else { return };
        let came = match wire.fill() {
            Ok(came) => came,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Came::Nothing,
            Err(_) => Came::End,
        };
        if came == Came::Some {
            die::site("tcp.heard");
        }
        let sound = came == Came::Nothing || self.hear_all(&mut wire, by).is_ok();
        self.line = Line::Up(wire);
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

    /// One thing that the node has said. What does not fit the requests is malformed.
    #[inline]
    fn take<V: Events>(&mut self, response: Response<'_>, by: &mut Heard<'_, V>) -> Result<(), wire::Malformed> {
        match response {
            Response::Done(count) => {
                for _ in 0..count {
                    let work = self.sent.pop_front().ok_or(wire::Malformed)?;
                    let has_value =
                        matches!(work.verb, Verb::Read { .. } | Verb::CompareSwap { .. } | Verb::FetchAdd { .. });
                    if has_value && work.ticket.is_some() {
                        self.sent.push_front(work);
                        return Err(wire::Malformed);
                    }
                    self.complete(work, Ok(0), by.events);
                }
            }
            Response::Value(value) => {
                let atomic = |work: &Work| matches!(work.verb, Verb::CompareSwap { .. } | Verb::FetchAdd { .. });
                let work = self.next_if(atomic)?;
                self.complete(work, Ok(value), by.events);
            }
            Response::Words(words) => {
                let fits = |work: &Work| matches!(&work.verb, Verb::Read { into, .. } if 8 * into.len() == words.len());
                let mut work = self.next_if(fits)?;
                if let Verb::Read { into, .. } = &mut work.verb {
                    wire::get_words(words, into);
                }
                self.complete(work, Ok(0), by.events);
            }
            Response::Failed(failure) => {
                let work = self.sent.pop_front().ok_or(wire::Malformed)?;
                let error = self.broken.unwrap_or_else(|| error_of(failure, &work.verb));
                // Unheard of, it takes the place of the next.
                self.broken = work.ticket.is_none().then_some(error);
                if let (Verb::Call { .. }, Some(ticket)) = (&work.verb, work.ticket) {
                    self.answered(ticket)?;
                }
                self.complete(work, Err(error), by.events);
            }
            Response::Stalled => self.stalled = true,
            Response::Reply { ticket, bytes } => {
                self.answered(ticket)?;
                let mut frame = by.spare.pop().unwrap_or_default();
                frame.clear();
                frame.extend_from_slice(bytes);
                by.events.replied(ticket, self.node, Some(frame));
            }
            Response::Refusal { ticket } => {
                self.answered(ticket)?;
                by.events.replied(ticket, self.node, None);
            }
        }
        Ok(())
    }

    fn next_if(&mut self, fits: impl FnOnce(&Work) -> bool) -> Result<Work, wire::Malformed> {
        let fits = self.sent.front().is_some_and(fits);
        self.sent.pop_front_if(|_| fits).ok_or(wire::Malformed)
    }

    /// A call is answered, which must be one.
    fn answered(&mut self, ticket: Ticket) -> Result<(), wire::Malformed> {
        let place = self.calls.iter().position(|call| *call == ticket).ok_or(wire::Malformed)?;
        self.calls.swap_remove_front(place);
        Ok(())
    }

    #[inline]
    fn complete(&mut self, work: Work, outcome: Result<u64, VerbError>, events: &mut impl Events) {
        self.taken -= 1;
        self.stalled = false;
        events.completed(work.ticket, work.verb, outcome);
    }

    /// Ends everything: what was sent may have taken effect, and what was not has not.
    #[cold]
    pub(super) fn end(&mut self, events: &mut impl Events) {
        let Some(life) = self.life.clone() else { return };
        let cut_off = life.cut_off();
        if !matches!(std::mem::replace(&mut self.line, Line::Over), Line::Over) {
            self.calls.clear();
            events.departed(self.node, cut_off);
        }
        while let Some(work) = self.sent.pop_front() {
            self.complete(work, Err(cut_off), events);
        }
        while let Some(work) = self.waiting.pop_front() {
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
