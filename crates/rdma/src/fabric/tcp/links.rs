//! Links, and what follows for the peers: which are here, and which are not.
//!
//! Each pair of nodes has one link, on which each says every so often that it is still there. A
//! node that joins dials all others. Afterwards the one with the lower number dials, whenever it
//! has no link to a node of its directory. Where both dial at once, the lower one's stays.

use std::{
    net::Shutdown,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use drtm_htm::Engine;

use crate::{
    Incarnation, NodeId, Time,
    fabric::{
        die,
        lifetime::{End, Life as _},
    },
    sync::time,
};

use super::{
    Refusal, TcpError,
    connection::{Connection, Link, Liveness, Role},
    dial::{Dial, Failed},
    flow::{Came, Inflow},
    hello::{LinkMessage, Purpose, VERSION, Verdict},
    service::Service,
    shared::{Peer, is_over},
};

impl<E: Engine> Service<E> {
    /// Makes a connection the link to a node.
    pub(super) fn link(&mut self, connection: &mut Connection, node: NodeId, incarnation: Incarnation) {
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

    /// Ends a link that takes no more bytes, having heard what the peer had said on it: a peer that
    /// suspects this node says so, and closes the link. It has not died.
    pub(super) fn end_link(&mut self, mut connection: Connection) {
        loop {
            match self.hear_link(&mut connection) {
                Liveness::Stays(true) => {}
                Liveness::Stays(false) => return self.close(connection, None),
                Liveness::Closed(refusal) => return self.close(connection, refusal),
                Liveness::GivenAway => return self.give_away(connection),
            }
        }
    }

    /// Reads the messages of a link.
    pub(super) fn hear_link(&mut self, connection: &mut Connection) -> Liveness {
        let came = match (connection.wire.fill(), &connection.role) {
            (Ok(came), _) => came,
            (Err(error), Role::Link(link)) if is_silence(&error) => {
                let peer = Arc::clone(&link.peer);
                return self.lose(&peer, connection.token, End::Suspected);
            }
            (Err(_), _) => return Liveness::Closed(None),
        };
        if connection.wire.input.open_all().is_err() {
            return Liveness::Closed(Some(Refusal::Forged));
        }
        while let Some(byte) = connection.wire.input.frames().first().copied() {
            connection.wire.input.consume(1);
            match (LinkMessage::decode(byte), &mut connection.role) {
                (Some(LinkMessage::Welcome), Role::Confirmed(node, incarnation)) => {
                    let (node, incarnation) = (*node, *incarnation);
                    // Another may have come meanwhile.
                    if is_over(self.shared.presence(usize::from(node.0)), incarnation) {
                        // It may not know that. If it does not hear it now, it does so later.
                        connection.wire.out.frames().push(LinkMessage::Refusal as u8);
                        let _ = connection.wire.flush();
                        return Liveness::Closed(Some(Refusal::Stale));
                    }
                    self.link(connection, node, incarnation);
                }
                (Some(LinkMessage::Ping), Role::Link(link)) => link.heard = time::of_this_machine(),
                (Some(LinkMessage::Goodbye), Role::Link(link)) => {
                    let peer = Arc::clone(&link.peer);
                    return self.lose(&peer, connection.token, End::Left);
                }
                (Some(LinkMessage::Refusal), Role::Link(link)) => {
                    let peer = Arc::clone(&link.peer);
                    self.shared.note_verdict(peer.node, Verdict::Stale);
                    return self.lose(&peer, connection.token, End::Suspected);
                }
                (Some(LinkMessage::Suspicion), Role::Link(link)) => {
                    let peer = Arc::clone(&link.peer);
                    return self.lose(&peer, connection.token, End::Suspected);
                }
                _ => return Liveness::Closed(Some(Refusal::Malformed)),
            }
        }
        match came {
            Came::End => Liveness::Closed(None),
            came => Liveness::Stays(came == Came::Some),
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
        let Some(address) = self.shared.directory.address(node).filter(|_| node != self.shared.node) else { return };
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

    /// Continues a dial, and handles its answer.
    pub(super) fn go_on_dialing(&mut self, connection: &mut Connection) -> Liveness {
        let Role::Dialing(dial, node) = &mut connection.role else { return Liveness::Closed(None) };
        let node = *node;
        let answer = match dial.advance(&mut connection.wire) {
            Ok(None) => return Liveness::Stays(false),
            Ok(Some(answer)) => answer,
            Err(failed) => {
                self.links.dialed(node, connection.token);
                self.fail(node, failed);
                // The other side was told that this one dials it; it was not there yet.
                if std::mem::take(&mut self.links.promised[usize::from(node.0)]) {
                    self.dial(node);
                }
                return Liveness::Closed(None);
            }
        };
        let incarnation = self.shared.home.incarnation;
        self.shared.note_verdict(node, answer.verdict);
        let error = match answer.verdict {
            Verdict::Welcome => {
                connection.role = Role::Confirmed(node, answer.incarnation);
                return match connection.wire.flush() {
                    Ok(_) => self.hear_link(connection),
                    Err(_) => Liveness::Closed(None),
                };
            }
            // The other side dials: the link comes from there.
            Verdict::Duplicate => return Liveness::Closed(None),
            Verdict::Addressee => TcpError::Addressee { node },
            Verdict::Unknown => TcpError::Unknown { node },
            Verdict::Stale | Verdict::Incarnation => TcpError::Stale { node, incarnation },
            Verdict::Engine => TcpError::Engine { node },
            Verdict::Sealing => TcpError::Sealing { node },
            Verdict::Full => TcpError::Full { node },
            Verdict::Elsewhere => TcpError::Elsewhere { node, address: self.shared.at },
        };
        self.resolve(node, Some(error));
        Liveness::Closed(None)
    }

    /// Handles a dial that has failed.
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

    /// Notes that a join need not wait for a node any more.
    fn resolve(&mut self, node: NodeId, error: Option<TcpError>) {
        let mut outcome = self.joining.outcome.lock();
        if outcome.open.contains(&node) {
            outcome.open.retain(|open| *open != node);
            outcome.error = outcome.error.take().or(error);
            self.joining.changed.notify_all();
        }
    }

    /// Sends heartbeats, suspects silent peers, and dials nodes without a link.
    pub(super) fn tend_links(&mut self, now: Time) {
        let config = &self.shared.config;
        let (deadline, patience) = (config.deadline, config.patience);
        let says = now.since(self.links.said) >= deadline / 4;
        for token in self.tokens() {
            let Some(mut connection) = self.take(token) else { continue };
            // What it has said may not have been heard yet, where this process was stopped.
            if matches!(&connection.role, Role::Link(link) if now.since(link.heard) > deadline)
                && let Liveness::Closed(refusal) = self.hear_link(&mut connection)
            {
                self.close(connection, refusal);
                continue;
            }
            let late = match &mut connection.role {
                Role::Link(link) if now.since(link.heard) > deadline => {
                    let peer = Arc::clone(&link.peer);
                    // If it hears this, it knows that it was not its end.
                    connection.wire.out.frames().push(LinkMessage::Suspicion as u8);
                    let _ = connection.wire.flush();
                    self.lose(&peer, token, End::Suspected);
                    true
                }
                Role::Link(_) => {
                    if says && connection.wire.out.pending() == 0 {
                        connection.wire.out.frames().push(LinkMessage::Ping as u8);
                    }
                    if connection.wire.flush().is_err() {
                        self.end_link(connection);
                        continue;
                    }
                    false
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

    /// Tells the peers that this node leaves, and waits a little for them to have heard it.
    pub(super) fn say_goodbye(&mut self) {
        /// A peer that is stopped does not hear it.
        const PATIENCE: Duration = Duration::from_millis(200);
        die::site("tcp.goodbye");
        let mut links: Vec<Connection> = Vec::new();
        for token in self.tokens() {
            let Some(mut connection) = self.take(token) else { continue };
            if matches!(connection.role, Role::Link(_)) && !self.shared.silent.load(SeqCst) {
                connection.wire.out.frames().push(LinkMessage::Goodbye as u8);
                let _ = connection.wire.flush();
                let _ = connection.wire.socket.shutdown(Shutdown::Write);
                links.push(connection);
            } else {
                self.close(connection, None);
            }
        }
        let until = time::of_this_machine() + PATIENCE;
        while !links.is_empty() && time::of_this_machine() < until {
            links.retain_mut(|link| {
                link.wire.input = Inflow::new();
                matches!(link.wire.fill(), Ok(Came::Some | Came::Nothing))
            });
            if !links.is_empty() {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }
}

/// Returns whether a connection has ended since nothing was acknowledged.
fn is_silence(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable, TimedOut};

    matches!(error.kind(), HostUnreachable | NetworkDown | NetworkUnreachable | TimedOut)
}
