//! Connections of which nothing is known yet: accepting them, and the responder's half of the
//! handshake.
//!
//! An initiator that has shown the key is judged by what its hello says, and is acted on when it
//! has confirmed. What handshakes can take is bounded: their number, their time, and how many are
//! answered.

use std::{
    io,
    net::{IpAddr, TcpStream},
    sync::Arc,
};

use drtm_htm::Engine;

use crate::{NodeId, Presence, Time, sync::time};

use super::{
    Refusal,
    bell::Interest,
    caller::Caller,
    connection::{Connection, Liveness, Role, Served},
    dial::Wire,
    directory::Place,
    flow::{Came, Outflow, record_in},
    hello::{Answer, CONFIRM, Hello, LinkMessage, PREAMBLE, Purpose, VERSION, Verdict, preamble_of, version_of},
    noise::{self, HANDSHAKE, LENGTH},
    service::{LISTENER, Service},
    shared::{ENDPOINTS, is_over},
    shares::{ACCEPT, ANSWER},
};

/// Returns the refusal that a verdict counts as.
fn refusal_of(verdict: Verdict) -> Option<Refusal> {
    match verdict {
        Verdict::Welcome => None,
        Verdict::Addressee | Verdict::Unknown => Some(Refusal::Unknown),
        Verdict::Stale | Verdict::Incarnation => Some(Refusal::Stale),
        Verdict::Engine | Verdict::Sealing => Some(Refusal::Mismatch),
        Verdict::Duplicate => Some(Refusal::Duplicate),
        Verdict::Full => Some(Refusal::Full),
        Verdict::Elsewhere => Some(Refusal::Elsewhere),
    }
}

impl<E: Engine> Service<E> {
    /// Accepts a connection. Returns its token. `None` if there is none, or if it is members' turn.
    pub(super) fn accept(&mut self) -> Option<u64> {
        while self.shares.admits() {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                // One that has gone already is one less.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                // No descriptors, or no memory.
                Err(_) => {
                    self.listen(false);
                    return None;
                }
            };
            self.shares.handshake(ACCEPT);
            if self.handshakes.len() >= self.shared.config.limits.pending_handshakes.max(1) {
                self.crowd_out();
            }
            if let Some(token) = self.begin_handshake(socket) {
                return Some(token);
            }
        }
        None
    }

    /// Begins to accept connections, or stops.
    pub(super) fn listen(&mut self, listen: bool) {
        self.deaf = !listen;
        let interest = Interest { input: listen, output: false };
        // It fails only for a socket that is not watched, and this one is.
        let _ = self.shared.service.rewatch(&self.listener, LISTENER, interest);
    }

    /// Makes room for a handshake: the oldest goes, of those that have not shown the key if there
    /// are such.
    fn crowd_out(&mut self) {
        let unknown =
            |token: &u64| self.get(*token).is_some_and(|connection| matches!(connection.role, Role::Accepted));
        let oldest = self.handshakes.iter().copied().find(unknown).or(self.handshakes.first().copied());
        if let Some(connection) = oldest.and_then(|oldest| self.take(oldest)) {
            self.close(connection, Some(Refusal::Crowded));
        }
    }

    /// Adds an accepted connection. `None` on a failure of the system, which has closed the socket.
    fn begin_handshake(&mut self, socket: TcpStream) -> Option<u64> {
        socket.set_nonblocking(true).ok()?;
        let wire = Wire::new(socket, self.shared.config.deadline).ok()?;
        let token = self.add(wire, Role::Accepted)?;
        self.handshakes.push(token);
        Some(token)
    }

    /// Reads a hello, and answers it.
    pub(super) fn hear_hello(&mut self, connection: &mut Connection) -> Liveness {
        let came = match connection.wire.fill() {
            Ok(came) => came,
            Err(_) => return Liveness::Closed(Some(Refusal::Truncated)),
        };
        let raw = connection.wire.input.raw();
        let expected = preamble_of(VERSION);
        let known = raw.len().min(PREAMBLE);
        if raw[..known.min(4)] != expected[..known.min(4)] {
            return Liveness::Closed(Some(Refusal::Format));
        }
        let Some((preamble, rest)) = raw.split_first_chunk::<PREAMBLE>() else { return unfinished(came) };
        match version_of(preamble) {
            Some(VERSION) => {}
            Some(_) => {
                // Its version is this one's to say, so that the other can tell.
                connection.wire.out.wire().extend_from_slice(&expected);
                let _ = connection.wire.flush();
                return Liveness::Closed(Some(Refusal::Version));
            }
            None => return Liveness::Closed(Some(Refusal::Format)),
        }
        if let Some(length) = rest.first_chunk::<LENGTH>()
            && usize::from(u16::from_le_bytes(*length)) > HANDSHAKE
        {
            return Liveness::Closed(Some(Refusal::Malformed));
        }
        let Some(record) = record_in(rest) else { return unfinished(came) };
        let length = PREAMBLE + LENGTH + record.len();
        // By the key alone, without a multiplication on the curve.
        let Ok((state, hello)) = noise::respond(&self.shared.config.key, record) else {
            return Liveness::Closed(Some(Refusal::Key));
        };
        let Some(hello) = Hello::decode(&hello) else { return Liveness::Closed(Some(Refusal::Malformed)) };
        if !self.may_answer() {
            return Liveness::Closed(Some(Refusal::Rate));
        }
        self.shares.handshake(ANSWER);
        let verdict = self.judge(&hello, source_of(&connection.wire));
        if verdict == Verdict::Duplicate {
            self.links.promised[usize::from(hello.from.0)] = true;
        }
        let answer = Answer { verdict, incarnation: self.shared.home.incarnation };
        let wire = &mut connection.wire;
        wire.input.consume_raw(length);
        let Ok(session) = noise::answer(state, &answer.encode(), wire.out.wire()) else {
            return Liveness::Closed(Some(Refusal::Key));
        };
        // An empty socket takes so few bytes at once.
        if !matches!(wire.flush(), Ok(true)) || verdict != Verdict::Welcome {
            return Liveness::Closed(refusal_of(verdict));
        }
        let (sealer, opener) = session.split();
        // The confirmation is sealed in any case.
        wire.input.seal(opener);
        if hello.sealed {
            wire.out = Outflow::new(Some(sealer));
        }
        connection.role = Role::Answered(hello);
        self.hear_confirmation(connection)
    }

    /// Returns whether another handshake may be answered, and counts it.
    fn may_answer(&mut self) -> bool {
        let most = f64::from(self.shared.config.limits.handshakes_per_second);
        let now = time::of_this_machine();
        let (left, before) = self.allowance;
        let left = (left + most * now.since(before).as_secs_f64()).min(most.max(1.0));
        let may = left >= 1.0;
        self.allowance = (if may { left - 1.0 } else { left }, now);
        may
    }

    /// Reads the confirmation, which proves that the hello was not a copy.
    pub(super) fn hear_confirmation(&mut self, connection: &mut Connection) -> Liveness {
        let Role::Answered(hello) = connection.role else { return Liveness::Closed(None) };
        let wire = &mut connection.wire;
        if wire.input.raw().is_empty() || record_in(wire.input.raw()).is_none() {
            match wire.fill() {
                Ok(Came::End) | Err(_) => return Liveness::Closed(Some(Refusal::Truncated)),
                Ok(_) => {}
            }
        }
        match wire.input.open() {
            Ok(true) => {}
            Ok(false) => return Liveness::Stays(false),
            Err(noise::Forged) => return Liveness::Closed(Some(Refusal::Forged)),
        }
        if wire.input.frames().first() != Some(&CONFIRM) {
            return Liveness::Closed(Some(Refusal::Malformed));
        }
        wire.input.consume(1);
        if !hello.sealed {
            wire.input.open_up();
        }
        // Much may have happened meanwhile.
        match self.judge(&hello, source_of(&connection.wire)) {
            Verdict::Welcome => {}
            verdict => return Liveness::Closed(refusal_of(verdict)),
        }
        self.known(connection.token);
        match hello.purpose {
            Purpose::Link => {
                // First it is known here: the other side tells its application when it is welcome.
                self.link(connection, hello.from, hello.incarnation);
                connection.wire.out.frames().push(LinkMessage::Welcome as u8);
                if connection.wire.flush().is_err() {
                    return Liveness::Closed(None);
                }
                self.hear_link(connection)
            }
            Purpose::Endpoint { endpoint, life, .. } => self.serve_caller(connection, &hello, (endpoint, life)),
            Purpose::Visit => match self.shared.place_for_visitor() {
                Some(place) => {
                    self.visits = self.visits.wrapping_add(1);
                    self.serve_caller(connection, &hello, (place, self.visits))
                }
                None => Liveness::Closed(Some(Refusal::Full)),
            },
            Purpose::Letters => {
                connection.role = Role::Letters(hello);
                Liveness::GivenAway
            }
        }
    }

    /// Gives a connection to the thread that carries letters, unless that has ended.
    pub(super) fn give_away(&mut self, connection: Connection) {
        let post = self.shared.post.lock().clone();
        let Role::Letters(hello) = connection.role else { return self.close(connection, None) };
        let (Some(post), Some(at)) = (post, self.shared.directory.address(hello.from)) else {
            return self.close(connection, None);
        };
        self.vacant.push(connection.token as u32);
        self.shared.service.forget(&connection.wire.socket);
        post.accept(&hello, at, connection.wire);
    }

    /// Makes a connection a caller's, by the number of its endpoint and the endpoint's life, and
    /// carries out what has come.
    fn serve_caller(&mut self, connection: &mut Connection, hello: &Hello, (endpoint, life): (u16, u32)) -> Liveness {
        let caller = Arc::new(Caller {
            node: hello.from,
            incarnation: hello.incarnation,
            endpoint,
            life,
            token: connection.token,
            socket: Arc::clone(&connection.wire.socket),
            out: parking_lot::Mutex::new(take_out(&mut connection.wire)),
            closed: false.into(),
        });
        self.callers += 1;
        // What an earlier connection of the endpoint still holds does not take effect.
        if let Some(before) = self.shared.connect_caller(&caller)
            && let Some(before) = self.take(before.token)
        {
            self.close(before, None);
        }
        let mut served = Served::default();
        let fate = self.shared.serve(&mut connection.wire, &caller, &mut served, &mut self.hand);
        connection.role = Role::Caller(caller, served);
        fate
    }

    /// Returns the verdict on a hello whose sender has the key.
    fn judge(&self, hello: &Hello, source: Option<IpAddr>) -> Verdict {
        let shared = &self.shared;
        let node = usize::from(hello.from.0);
        if hello.purpose == Purpose::Visit {
            return self.judge_visit(hello);
        }
        if hello.to != shared.node {
            return Verdict::Addressee;
        }
        if hello.engine != shared.engine {
            return Verdict::Engine;
        }
        if hello.sealed != shared.config.sealed {
            return Verdict::Sealing;
        }
        let Some(Place { address: known, was_elsewhere }) = shared.directory.place(hello.from) else {
            return Verdict::Unknown;
        };
        let presence = shared.presence(node);
        let has_its_number = presence.here().is_some_and(|here| here != hello.incarnation);
        match hello.purpose {
            Purpose::Link if hello.from == shared.node => Verdict::Unknown,
            Purpose::Link if hello.is_elsewhere(known, source, has_its_number || was_elsewhere) => Verdict::Elsewhere,
            Purpose::Link => self.judge_link(hello, presence),
            Purpose::Letters if hello.from == shared.node || shared.post.lock().is_none() => Verdict::Unknown,
            Purpose::Letters if hello.is_elsewhere(known, source, was_elsewhere) => Verdict::Elsewhere,
            Purpose::Letters => Verdict::Welcome,
            Purpose::Visit => Verdict::Unknown,
            Purpose::Endpoint { expected, .. } if expected != shared.home.incarnation => Verdict::Incarnation,
            Purpose::Endpoint { endpoint, .. } => {
                let answered = self.links.dialing[node].and_then(|token| self.get(token)).is_some_and(|connection| {
                    matches!(connection.role, Role::Confirmed(_, incarnation) if incarnation == hello.incarnation)
                });
                match presence.here() {
                    _ if usize::from(endpoint) >= ENDPOINTS => Verdict::Unknown,
                    _ if self.callers >= shared.config.limits.connections => Verdict::Full,
                    Some(here) if here == hello.incarnation => Verdict::Welcome,
                    // The other side knows of the link already.
                    _ if answered => Verdict::Welcome,
                    _ if presence.last().is_some_and(|last| last >= hello.incarnation) => Verdict::Stale,
                    _ => Verdict::Unknown,
                }
            }
        }
    }

    /// Returns the verdict on a visitor, which has the key and is no node. Where calls go to a
    /// handler, which sets queue pairs up, it has nothing to ask.
    fn judge_visit(&self, hello: &Hello) -> Verdict {
        let shared = &self.shared;
        let is_full = self.callers >= shared.config.limits.connections || shared.place_for_visitor().is_none();
        match () {
            () if (hello.from, hello.to) != (NodeId::VISITOR, NodeId::VISITOR) => Verdict::Unknown,
            () if hello.sealed != shared.config.sealed => Verdict::Sealing,
            () if shared.handler.is_some() => Verdict::Unknown,
            () if is_full => Verdict::Full,
            () => Verdict::Welcome,
        }
    }

    fn judge_link(&self, hello: &Hello, presence: Presence) -> Verdict {
        let node = usize::from(hello.from.0);
        let lower = self.shared.node < hello.from;
        match presence {
            stands if is_over(stands, hello.incarnation) => Verdict::Stale,
            // The link that this side has made stays.
            Presence::Here(last) if last == hello.incarnation && lower => Verdict::Duplicate,
            _ if lower && self.links.dialing[node].is_some() => Verdict::Duplicate,
            _ => Verdict::Welcome,
        }
    }

    /// Ends handshakes that take too long.
    pub(super) fn end_what_is_late(&mut self, now: Time) {
        let limits = self.shared.config.limits;
        for token in self.handshakes.clone() {
            if self.get(token).is_none_or(|pending| now.since(pending.since) > limits.handshake_time)
                && let Some(connection) = self.take(token)
            {
                self.close(connection, Some(Refusal::Slow));
            }
        }
    }
}

/// Returns the address that a connection comes from. `None` if it has ended.
fn source_of(wire: &Wire) -> Option<IpAddr> {
    Some(wire.socket.peer_addr().ok()?.ip())
}

/// Keeps a connection whose hello is incomplete, unless it has ended.
fn unfinished(came: Came) -> Liveness {
    match came {
        Came::End => Liveness::Closed(Some(Refusal::Truncated)),
        came => Liveness::Stays(came == Came::Some),
    }
}

/// Takes the outflow of a connection, to be shared by threads.
pub(super) fn take_out(wire: &mut Wire) -> Outflow {
    std::mem::replace(&mut wire.out, Outflow::new(None))
}
