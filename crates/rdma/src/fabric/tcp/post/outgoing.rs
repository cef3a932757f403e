//! The letters for one node, and the connection that carries them.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use drtm_htm::Engine;

use crate::{Buffers, NodeId, Time};

use super::super::{
    bell::{Bell, Interest},
    dial::{Dial, Wire},
    flow::Came,
    hello::{Purpose, Verdict},
    shared::Shared,
    wire::{self, Request},
};

/// How long the node is not dialled after a failure: at first, and at the most.
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// Bytes that wait for the socket, before letters wait instead.
const AHEAD: usize = 256 << 10;

enum Socket {
    /// The next letter dials, from this time on.
    Down(Time),
    Dialing(Box<(Dial, Wire)>, Time),
    Up(Box<Wire>),
}

pub(super) struct Outgoing {
    node: NodeId,
    socket: Socket,
    /// Where it was dialled.
    at: Option<SocketAddr>,
    waiting: VecDeque<Vec<u8>>,
    /// Letters that were sent or dropped, and bytes of them.
    gone: (usize, usize),
    backoff: Duration,
    watched: Interest,
    /// When the socket took something last, or had nothing to take.
    moved: Time,
}

/// That a connection has ended.
struct Ended;

impl Outgoing {
    pub(super) fn new(node: NodeId) -> Self {
        let (socket, moved) = (Socket::Down(Time::default()), Time::default());
        let (waiting, gone, watched) = (VecDeque::new(), (0, 0), Interest::INPUT);
        Self { node, socket, at: None, waiting, gone, backoff: FIRST, watched, moved }
    }

    pub(super) fn push(&mut self, letters: Vec<Vec<u8>>) {
        self.waiting.extend(letters);
    }

    /// Lets the next letter dial, whatever has failed before.
    pub(super) fn dial_at_once(&mut self) {
        self.backoff = FIRST;
        if let Socket::Down(from) = &mut self.socket {
            *from = Time::default();
        }
    }

    /// Takes how many letters and bytes were sent or dropped.
    pub(super) fn take_gone(&mut self) -> (usize, usize) {
        std::mem::take(&mut self.gone)
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let letter = self.waiting.pop_front()?;
        self.gone = (self.gone.0 + 1, self.gone.1 + letter.len());
        Some(letter)
    }

    /// Moves everything along. Returns when there is more to do without the socket's saying so.
    pub(super) fn advance<E: Engine>(&mut self, shared: &Shared<E>, bell: &Bell, now: Time) -> Option<Time> {
        let address = shared.directory.address(self.node);
        if !matches!(self.socket, Socket::Down(_)) && address != self.at {
            // It was replaced by one at another address.
            self.down(now, bell);
        }
        if let Socket::Down(from) = self.socket
            && !self.waiting.is_empty()
            && now >= from
            && self.dial(shared, bell, address, now).is_none()
        {
            self.fail(now, bell);
        }
        if let Socket::Dialing(dialing, until) = &mut self.socket {
            let (dial, wire) = &mut **dialing;
            match dial.advance(wire) {
                Ok(None) if now < *until => {}
                Ok(Some(answer)) if answer.verdict == Verdict::Welcome => self.up(now),
                Ok(_) | Err(_) => self.fail(now, bell),
            }
        }
        if matches!(self.socket, Socket::Up(_)) && self.carry(now, shared.config.deadline).is_err() {
            self.backoff = FIRST;
            self.down(now + FIRST, bell);
        }
        self.watch(bell);
        match &self.socket {
            Socket::Down(from) => (!self.waiting.is_empty()).then_some(*from),
            Socket::Dialing(_, until) => Some(*until),
            Socket::Up(wire) => (wire.out.pending() > 0).then(|| self.moved + shared.config.deadline),
        }
    }

    fn dial<E: Engine>(
        &mut self,
        shared: &Shared<E>,
        bell: &Bell,
        address: Option<SocketAddr>,
        now: Time,
    ) -> Option<()> {
        let hello = shared.hello(self.node, Purpose::Letters);
        let dial = Dial::start(address?, &shared.config.key, &hello, shared.config.deadline);
        let (dial, wire) = dial.ok()?;
        self.watched = Interest { input: true, output: true };
        bell.watch(&wire.socket, u64::from(self.node.0), self.watched).ok()?;
        self.at = address;
        self.socket = Socket::Dialing(Box::new((dial, wire)), now + shared.config.deadline);
        Some(())
    }

    fn up(&mut self, now: Time) {
        (self.backoff, self.moved) = (FIRST, now);
        match std::mem::replace(&mut self.socket, Socket::Down(now)) {
            Socket::Dialing(dialing, _) => self.socket = Socket::Up(Box::new(dialing.1)),
            other => self.socket = other,
        }
    }

    /// Sends what the socket takes.
    fn carry(&mut self, now: Time, patience: Duration) -> Result<(), Ended> {
        let Socket::Up(mut wire) = std::mem::replace(&mut self.socket, Socket::Down(now)) else { return Ok(()) };
        // Nothing is said on it: what comes is its end.
        if !matches!(wire.fill(), Ok(Came::Nothing)) {
            self.socket = Socket::Up(wire);
            return Err(Ended);
        }
        let mut is_sound = true;
        loop {
            while wire.out.pending() < AHEAD
                && let Some(letter) = self.take()
            {
                put(&letter, wire.out.frames());
            }
            let before = wire.out.pending();
            let flushed = wire.flush();
            if wire.out.pending() < before || before == 0 {
                self.moved = now;
            }
            match flushed {
                Ok(true) if !self.waiting.is_empty() => {}
                Ok(_) => break,
                Err(_) => {
                    is_sound = false;
                    break;
                }
            }
        }
        is_sound &= now.since(self.moved) < patience;
        self.socket = Socket::Up(wire);
        if is_sound { Ok(()) } else { Err(Ended) }
    }

    /// Gives up to connect for a while, and drops what waits.
    fn fail(&mut self, now: Time, bell: &Bell) {
        while self.take().is_some() {}
        self.down(now + self.backoff, bell);
        self.backoff = (2 * self.backoff).min(LONGEST);
    }

    fn down(&mut self, from: Time, bell: &Bell) {
        match std::mem::replace(&mut self.socket, Socket::Down(from)) {
            Socket::Dialing(dialing, _) => bell.forget(&dialing.1.socket),
            Socket::Up(wire) => bell.forget(&wire.socket),
            Socket::Down(_) => {}
        }
    }

    /// Watches the socket for what it waits for.
    fn watch(&mut self, bell: &Bell) {
        let (socket, output) = match &self.socket {
            Socket::Dialing(dialing, _) => (&dialing.1.socket, !dialing.0.connected),
            Socket::Up(wire) => (&wire.socket, wire.out.pending() > 0),
            Socket::Down(_) => return,
        };
        let wanted = Interest { input: true, output };
        if wanted != self.watched {
            self.watched = wanted;
            // It fails only for a socket that is not watched, and this one is.
            let _ = bell.rewatch(socket, u64::from(self.node.0), wanted);
        }
    }
}

/// Appends a letter, as frames of messages of which the last one is marked.
fn put(letter: &[u8], into: &mut Vec<u8>) {
    let mut rest = letter;
    loop {
        let (bytes, more) = rest.split_at(rest.len().min(Buffers::LARGE));
        wire::request(more.is_empty(), &Request::Send { bytes }, into);
        if more.is_empty() {
            return;
        }
        rest = more;
    }
}
