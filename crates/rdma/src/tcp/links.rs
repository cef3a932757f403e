//! Handshakes, links, and what follows for the peers: who is here, and who is not.
//!
//! Each pair of nodes has one link, on which each says every so often that it is still there. A node
//! that joins dials all others. Afterwards the one with the lower number dials, whenever it has no
//! link to a node of its directory. Where both dial at once, the lower one's stays.

use std::sync::Arc;

use drtm_htm::Engine;

use crate::{Incarnation, NodeId, Presence, Time, die, time};

use super::{
    Refusal, TcpError,
    dial::{Dial, Failed},
    flow::{Came, record_in},
    hello::{Answer, CONFIRM, Hello, Letter, PREAMBLE, Purpose, VERSION, Verdict, preamble_of, version_of},
    noise::{self, HANDSHAKE, LENGTH},
    responder::Served,
    service::{Connection, Fate, Link, Role, Service, take_out},
    shared::{Caller, ENDPOINTS, End, Peer},
};

/// The links of a node.
pub(super) struct Links {
    /// For each node, the connection by which this one dials it.
    dialing: Vec<Option<u64>>,
    /// For each node, the connection that is the link.
    linked: Vec<Option<u64>>,
    /// Nodes that were told that this one dials them.
    promised: Vec<bool>,
    said: Time,
}

impl Links {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            dialing: vec![None; nodes],
            linked: vec![None; nodes],
            promised: vec![false; nodes],
            said: time::of_this_machine(),
        }
    }

    /// A dial has ended.
    pub(super) fn dialed(&mut self, node: NodeId, token: u64) {
        if let Some(dialing) = self.dialing.get_mut(usize::from(node.0)) {
            dialing.take_if(|dialing| *dialing == token);
        }
    }
}

/// What a verdict counts as.
fn refusal_of(verdict: Verdict) -> Option<Refusal> {
    match verdict {
        Verdict::Welcome => None,
        Verdict::Addressee | Verdict::Unknown => Some(Refusal::Unknown),
        Verdict::Stale | Verdict::Incarnation => Some(Refusal::Stale),
        Verdict::Engine | Verdict::Sealing => Some(Refusal::Mismatch),
        Verdict::Duplicate => Some(Refusal::Duplicate),
        Verdict::Full => Some(Refusal::Full),
    }
}

impl<E: Engine> Service<E> {
    /// What becomes of a connection whose sender has the key.
    fn judge(&self, hello: &Hello) -> Verdict {
        let shared = &self.shared;
        let node = usize::from(hello.from.0);
        if hello.to != shared.node {
            return Verdict::Addressee;
        }
        if hello.engine != shared.engine {
            return Verdict::Engine;
        }
        if hello.sealed != shared.config.sealed {
            return Verdict::Sealing;
        }
        if shared.directory.get(node).is_none_or(Option::is_none) {
            return Verdict::Unknown;
        }
        let presence = shared.presence(node);
        match hello.purpose {
            Purpose::Link if hello.from == shared.node => Verdict::Unknown,
            Purpose::Link => self.judge_link(hello, presence),
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

    fn judge_link(&self, hello: &Hello, presence: Presence) -> Verdict {
        let node = usize::from(hello.from.0);
        let lower = self.shared.node < hello.from;
        match presence {
            Presence::Here(last) | Presence::Left(last) | Presence::Died(last) | Presence::Suspected(last)
                if last > hello.incarnation =>
            {
                Verdict::Stale
            }
            Presence::Left(last) | Presence::Died(last) if last == hello.incarnation => Verdict::Stale,
            // The link that this side has made stays.
            Presence::Here(last) if last == hello.incarnation && lower => Verdict::Duplicate,
            _ if lower && self.links.dialing[node].is_some() => Verdict::Duplicate,
            _ => Verdict::Welcome,
        }
    }

    /// A stranger introduces itself.
    pub(super) fn hear_stranger(&mut self, connection: &mut Connection) -> Fate {
        let came = match connection.wire.fill() {
            Ok(came) => came,
            Err(_) => return Fate::Closed(Some(Refusal::Truncated)),
        };
        let raw = connection.wire.input.raw();
        let expected = preamble_of(VERSION);
        let known = raw.len().min(PREAMBLE);
        if raw[..known.min(4)] != expected[..known.min(4)] {
            return Fate::Closed(Some(Refusal::Format));
        }
        let Some((preamble, rest)) = raw.split_first_chunk::<PREAMBLE>() else { return unfinished(came) };
        match version_of(preamble) {
            Some(VERSION) => {}
            Some(_) => {
                // Its version is this one's to say, so that the other can tell.
                connection.wire.out.wire().extend_from_slice(&expected);
                let _ = connection.wire.flush();
                return Fate::Closed(Some(Refusal::Version));
            }
            None => return Fate::Closed(Some(Refusal::Format)),
        }
        if let Some(length) = rest.first_chunk::<LENGTH>()
            && usize::from(u16::from_le_bytes(*length)) > HANDSHAKE
        {
            return Fate::Closed(Some(Refusal::Malformed));
        }
        let Some(record) = record_in(rest) else { return unfinished(came) };
        let length = PREAMBLE + LENGTH + record.len();
        // By the key alone, without a multiplication on the curve.
        let Ok((state, hello)) = noise::respond(&self.shared.config.key, record) else {
            return Fate::Closed(Some(Refusal::Key));
        };
        let Some(hello) = Hello::decode(&hello) else { return Fate::Closed(Some(Refusal::Malformed)) };
        if !self.may_answer() {
            return Fate::Closed(Some(Refusal::Rate));
        }
        let verdict = self.judge(&hello);
        if verdict == Verdict::Duplicate {
            self.links.promised[usize::from(hello.from.0)] = true;
        }
        let answer = Answer { verdict, incarnation: self.shared.home.incarnation };
        let wire = &mut connection.wire;
        wire.input.consume_raw(length);
        let Ok(session) = noise::answer(state, &answer.encode(), wire.out.wire()) else {
            return Fate::Closed(Some(Refusal::Key));
        };
        if wire.flush().is_err() || verdict != Verdict::Welcome {
            return Fate::Closed(refusal_of(verdict));
        }
        let (sealer, opener) = session.split();
        // The confirmation is sealed in any case.
        wire.input.seal(opener);
        if hello.sealed {
            wire.out = super::flow::Outflow::new(Some(sealer));
        }
        connection.role = Role::Answered(hello);
        self.hear_confirmation(connection)
    }

    /// Whether another handshake may be answered.
    fn may_answer(&mut self) -> bool {
        let most = f64::from(self.shared.config.limits.handshakes_per_second);
        let now = time::of_this_machine();
        let (left, before) = self.allowance;
        let left = (left + most * now.since(before).as_secs_f64()).min(most.max(1.0));
        let may = left >= 1.0;
        self.allowance = (if may { left - 1.0 } else { left }, now);
        may
    }

    /// What was answered proves that it was not a copy.
    pub(super) fn hear_confirmation(&mut self, connection: &mut Connection) -> Fate {
        let Role::Answered(hello) = connection.role else { return Fate::Closed(None) };
        let wire = &mut connection.wire;
        if wire.input.raw().is_empty() || record_in(wire.input.raw()).is_none() {
            match wire.fill() {
                Ok(Came::End) | Err(_) => return Fate::Closed(Some(Refusal::Truncated)),
                Ok(_) => {}
            }
        }
        match wire.input.open() {
            Ok(true) => {}
            Ok(false) => return Fate::Stays(false),
            Err(noise::Forged) => return Fate::Closed(Some(Refusal::Forged)),
        }
        if wire.input.frames().first() != Some(&CONFIRM) {
            return Fate::Closed(Some(Refusal::Malformed));
        }
        wire.input.consume(1);
        if !hello.sealed {
            wire.input.open_up();
        }
        // Much may have happened meanwhile.
        match self.judge(&hello) {
            Verdict::Welcome => {}
            verdict => return Fate::Closed(refusal_of(verdict)),
        }
        self.known(connection.token);
        match hello.purpose {
            Purpose::Link => {
                // First it is known here: the other side tells its application when it is welcome.
                self.link(connection, hello.from, hello.incarnation);
                connection.wire.out.frames().push(Letter::Welcome as u8);
                if connection.wire.flush().is_err() {
                    return Fate::Closed(None);
                }
                self.hear_letters(connection)
            }
            Purpose::Endpoint { endpoint, life, .. } => {
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
                let fate = self.shared.serve(&mut connection.wire, &caller, &mut served, &mut self.scratch);
                connection.role = Role::Caller(caller, served);
                fate
            }
        }
    }

    /// Makes a connection the link to a node.
    fn link(&mut self, connection: &mut Connection, node: NodeId, incarnation: Incarnation) {
        let index = usize::from(node.0);
        let now = time::of_this_machine();
        let life = self.shared.life(node);
        let peer = match life {
            // A link in place of one whose end was not seen yet.
            Some(life) if life.incarnation == incarnation && !life.is_over() => life,
            life => {
                if let Some(before) = life {
                    self.cut_off(before.node, before.incarnation);
                }
                let peer = Arc::new(Peer::new(node, incarnation));
                self.shared.welcome(Arc::clone(&peer));
                peer
            }
        };
        connection.role = Role::Link(Link { peer, heard: now });
        let before = self.links.linked[index].replace(connection.token);
        self.links.dialed(node, connection.token);
        if let Some(before) = before
            && let Some(before) = self.take(before)
        {
            // It is the link no more, so its end means nothing.
            self.close(before, None);
        }
        self.resolve(node, None);
        die::site("tcp.linked");
    }

    /// A link is lost, and with it the peer, unless there is another link.
    pub(super) fn lose(&mut self, peer: &Peer, token: u64, end: End) -> Fate {
        let linked = &mut self.links.linked[usize::from(peer.node.0)];
        if linked.take_if(|linked| *linked == token).is_some() {
            self.shared.part(peer, end);
            self.cut_off(peer.node, peer.incarnation);
        }
        Fate::Closed(None)
    }

    /// What a peer says on a link.
    pub(super) fn hear_letters(&mut self, connection: &mut Connection) -> Fate {
        let came = match (connection.wire.fill(), &connection.role) {
            (Ok(came), _) => came,
            (Err(error), Role::Link(link)) if is_silence(&error) => {
                let peer = Arc::clone(&link.peer);
                return self.lose(&peer, connection.token, End::Suspected);
            }
            (Err(_), _) => return Fate::Closed(None),
        };
        if connection.wire.input.open_all().is_err() {
            return Fate::Closed(Some(Refusal::Forged));
        }
        while let Some(byte) = connection.wire.input.frames().first().copied() {
            connection.wire.input.consume(1);
            match (Letter::decode(byte), &mut connection.role) {
                (Some(Letter::Welcome), Role::Confirmed(node, incarnation)) => {
                    let (node, incarnation) = (*node, *incarnation);
                    self.link(connection, node, incarnation);
                }
                (Some(Letter::Ping), Role::Link(link)) => link.heard = time::of_this_machine(),
                (Some(Letter::Goodbye), Role::Link(link)) => {
                    let peer = Arc::clone(&link.peer);
                    return self.lose(&peer, connection.token, End::Left);
                }
                (Some(Letter::Suspicion), Role::Link(link)) => {
                    let peer = Arc::clone(&link.peer);
                    return self.lose(&peer, connection.token, End::Suspected);
                }
                _ => return Fate::Closed(Some(Refusal::Malformed)),
            }
        }
        match came {
            Came::End => Fate::Closed(None),
            came => Fate::Stays(came == Came::Some),
        }
    }

    /// Begins to connect to every other node.
    pub(super) fn dial_all(&mut self) {
        for node in 0..self.shared.nodes() as u16 {
            self.dial(NodeId(node));
        }
    }

    fn dial(&mut self, node: NodeId) {
        let index = usize::from(node.0);
        let Some(address) = self.shared.directory[index].filter(|_| node != self.shared.node) else { return };
        if self.links.dialing[index].is_some() {
            return;
        }
        let hello = self.shared.hello(node, Purpose::Link);
        match Dial::start(address, &self.shared.config.key, &hello, self.shared.config.deadline) {
            Ok((dial, wire)) => match self.add(wire, Role::Dialing(Box::new(dial), node)) {
                Some(token) => self.links.dialing[index] = Some(token),
                None => self.resolve(node, None),
            },
            Err(failed) => self.fail(node, failed),
        }
    }

    /// The answer to a dial.
    pub(super) fn go_on_dialing(&mut self, connection: &mut Connection) -> Fate {
        let Role::Dialing(dial, node) = &mut connection.role else { return Fate::Closed(None) };
        let node = *node;
        let answer = match dial.advance(&mut connection.wire) {
            Ok(None) => return Fate::Stays(false),
            Ok(Some(answer)) => answer,
            Err(failed) => {
                self.links.dialed(node, connection.token);
                self.fail(node, failed);
                // The other side was told that this one dials it; it was not there yet.
                if std::mem::take(&mut self.links.promised[usize::from(node.0)]) {
                    self.dial(node);
                }
                return Fate::Closed(None);
            }
        };
        let incarnation = self.shared.home.incarnation;
        let error = match answer.verdict {
            Verdict::Welcome => {
                connection.role = Role::Confirmed(node, answer.incarnation);
                return match connection.wire.flush() {
                    Ok(_) => self.hear_letters(connection),
                    Err(_) => Fate::Closed(None),
                };
            }
            // The other side dials: the link comes from there.
            Verdict::Duplicate => return Fate::Closed(None),
            Verdict::Addressee => TcpError::Addressee { node },
            Verdict::Unknown => TcpError::Unknown { node },
            Verdict::Stale | Verdict::Incarnation => TcpError::Stale { node, incarnation },
            Verdict::Engine => TcpError::Engine { node },
            Verdict::Sealing => TcpError::Sealing { node },
            Verdict::Full => TcpError::Full { node },
        };
        self.resolve(node, Some(error));
        Fate::Closed(None)
    }

    /// A dial has failed.
    fn fail(&mut self, node: NodeId, failed: Failed) {
        let error = match failed {
            // It is not here.
            Failed::Absent | Failed::Unreachable => None,
            Failed::Broken => Some(TcpError::Refused { node }),
            Failed::Version(theirs) => Some(TcpError::Version { node, theirs, ours: VERSION }),
            Failed::Key => Some(TcpError::Key { node }),
        };
        self.resolve(node, error);
    }

    /// A join need not wait for a node any more.
    fn resolve(&mut self, node: NodeId, error: Option<TcpError>) {
        let mut outcome = self.joining.outcome.lock();
        if outcome.open.contains(&node) {
            outcome.open.retain(|open| *open != node);
            outcome.error = outcome.error.take().or(error);
            self.joining.changed.notify_all();
        }
    }

    /// Says that this node is there, sees that peers are not, and dials those that could be.
    pub(super) fn tend_links(&mut self, now: Time) {
        let config = &self.shared.config;
        let (deadline, patience) = (config.deadline, config.patience);
        let says = now.since(self.links.said) >= deadline / 4;
        for token in self.tokens() {
            let Some(mut connection) = self.take(token) else { continue };
            let late = match &mut connection.role {
                Role::Link(link) if now.since(link.heard) > deadline => {
                    let peer = Arc::clone(&link.peer);
                    // If it hears this, it knows that it was not its end.
                    connection.wire.out.frames().push(Letter::Suspicion as u8);
                    let _ = connection.wire.flush();
                    self.lose(&peer, token, End::Suspected);
                    true
                }
                Role::Link(_) => {
                    if says && connection.wire.out.pending() == 0 {
                        connection.wire.out.frames().push(Letter::Ping as u8);
                    }
                    connection.wire.flush().is_err()
                }
                Role::Dialing(dial, node) if now.since(connection.since) > patience => {
                    let node = *node;
                    let error = dial.connected.then_some(TcpError::NoAnswer { node });
                    self.resolve(node, error);
                    true
                }
                Role::Confirmed(node, _) if now.since(connection.since) > patience => {
                    let node = *node;
                    self.resolve(node, Some(TcpError::NoAnswer { node }));
                    true
                }
                _ => false,
            };
            if late {
                self.close(connection, None);
            } else {
                self.watch(&mut connection);
                self.put_back(connection);
            }
        }
        if says {
            self.links.said = now;
            for node in (self.shared.node.0 + 1)..self.shared.nodes() as u16 {
                if self.links.linked[usize::from(node)].is_none() {
                    self.dial(NodeId(node));
                }
            }
        }
    }
}

/// Whether a connection has ended for want of answers.
fn is_silence(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable, TimedOut};

    matches!(error.kind(), HostUnreachable | NetworkDown | NetworkUnreachable | TimedOut)
}

/// Some of the introduction is still to come.
fn unfinished(came: Came) -> Fate {
    match came {
        Came::End => Fate::Closed(Some(Refusal::Truncated)),
        came => Fate::Stays(came == Came::Some),
    }
}
