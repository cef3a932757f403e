//! What a node knows of its sockets, and how connections begin and end.
//!
//! One thread at a time drives them (`driver`, by `rounds`), so each accepted socket has one
//! reader, operations of a connection take effect in order without a lock of their own, and a
//! peer's access does not wait for a worker of the application. That thread spins for a while after
//! something has come, and then sleeps until a socket or an endpoint wakes it, or it is time to say
//! that the node is still there.

use std::{
    net::{Shutdown, TcpListener},
    sync::Arc,
};

use drtm_htm::Engine;
use parking_lot::{Condvar, Mutex};

use crate::{
    Incarnation, NodeId, Time,
    fabric::lifetime::{End, Life as _},
    sync::time,
};

use super::{
    Refusal, TcpError,
    bell::{Interest, Ready},
    connection::{Connection, Links, Liveness, Role},
    dial::Wire,
    hello::LinkMessage,
    responder::Hand,
    shared::{Peer, Shared, is_over},
    shares::Shares,
};

/// The token of the listener.
pub(super) const LISTENER: u64 = u64::MAX - 1;

/// The token of what the call handler has watched.
pub(super) const CHANNEL: u64 = u64::MAX - 2;

/// What a join waits for.
#[derive(Default)]
pub(super) struct Joining {
    pub(super) outcome: Mutex<Outcome>,
    pub(super) changed: Condvar,
}

#[derive(Default)]
pub(super) struct Outcome {
    /// Nodes of which it is not known yet whether they are here.
    pub(super) open: Vec<NodeId>,
    pub(super) error: Option<TcpError>,
}

pub(super) struct Service<E: Engine> {
    pub(super) shared: Arc<Shared<E>>,
    pub(super) joining: Arc<Joining>,
    pub(super) listener: TcpListener,
    /// By the low half of their tokens.
    pub(super) connections: Vec<Option<Connection>>,
    pub(super) vacant: Vec<u32>,
    pub(super) tokens: u32,
    /// Tokens of connections that have not proved that they have the key, oldest first.
    pub(super) handshakes: Vec<u64>,
    /// Connections of callers.
    pub(super) callers: usize,
    /// How many visitors there have been, so that no reply to one goes to another.
    pub(super) visits: u32,
    pub(super) links: Links,
    /// Connections of callers that had something lately.
    pub(super) hot: Vec<u64>,
    pub(super) rounds: u32,
    pub(super) ready: Vec<Ready>,
    /// Connections whose next operation waits for room in the mailbox.
    pub(super) stalled: Vec<u64>,
    /// Connections of which more has come than their turns were long.
    pub(super) unfinished: Vec<u64>,
    /// No connections are accepted until the next look at what is late: the system has none to
    /// give.
    pub(super) deaf: bool,
    /// Handshakes that may still be answered, and when that was reckoned.
    pub(super) allowance: (f64, Time),
    /// How the work is divided.
    pub(super) shares: Shares,
    /// When something is next to be done without being asked.
    pub(super) tick: Time,
    /// What the thread that drives has at hand.
    pub(super) hand: Hand,
    /// Whether that is an endpoint, which serves members only.
    pub(super) is_guest: bool,
    /// There is something that an endpoint leaves to the thread.
    pub(super) needs_thread: bool,
}

impl<E: Engine> Service<E> {
    /// Returns a service without connections.
    pub(super) fn new(shared: Arc<Shared<E>>, listener: TcpListener, joining: Arc<Joining>) -> Self {
        let now = time::of_this_machine();
        Self {
            links: Links::new(shared.nodes()),
            allowance: (f64::from(shared.config.limits.handshakes_per_second), now),
            shared,
            joining,
            listener,
            connections: Vec::new(),
            vacant: Vec::new(),
            tokens: 0,
            handshakes: Vec::new(),
            callers: 0,
            visits: 0,
            hot: Vec::new(),
            rounds: 0,
            ready: Vec::new(),
            stalled: Vec::new(),
            unfinished: Vec::new(),
            deaf: false,
            shares: Shares::default(),
            tick: now,
            hand: Hand::default(),
            is_guest: false,
            needs_thread: false,
        }
    }

    /// Adds a connection, and watches it.
    pub(super) fn add(&mut self, wire: Wire, role: Role) -> Option<u64> {
        let index = self.vacant.pop().unwrap_or(self.connections.len() as u32);
        if index as usize == self.connections.len() {
            self.connections.push(None);
        }
        self.tokens = self.tokens.wrapping_add(1) & (u32::MAX >> 1);
        let token = u64::from(self.tokens) << 32 | u64::from(index);
        let watched = Interest { input: true, output: matches!(role, Role::Dialing(..)) };
        if self.shared.service.watch(&wire.socket, token, watched).is_err() {
            self.vacant.push(index);
            return None;
        }
        let since = time::of_this_machine();
        self.connections[index as usize] = Some(Connection { token, wire, since, role, watched });
        Some(token)
    }

    pub(super) fn take(&mut self, token: u64) -> Option<Connection> {
        self.connections.get_mut(token as u32 as usize)?.take_if(|connection| connection.token == token)
    }

    pub(super) fn put_back(&mut self, connection: Connection) {
        let index = connection.token as u32 as usize;
        self.connections[index] = Some(connection);
    }

    pub(super) fn tokens(&self) -> Vec<u64> {
        self.connections.iter().flatten().map(|connection| connection.token).collect()
    }

    pub(super) fn get(&self, token: u64) -> Option<&Connection> {
        self.connections.get(token as u32 as usize)?.as_ref().filter(|connection| connection.token == token)
    }

    /// Watches a connection for what it waits for.
    pub(super) fn watch(&self, connection: &mut Connection) {
        let (input, pending) = match &connection.role {
            Role::Caller(caller, served) => {
                let pending = !served.deferred && caller.out.try_lock().is_none_or(|out| out.pending() > 0);
                (!served.stalled && !served.paused, pending)
            }
            Role::Dialing(dial, _) => (true, !dial.connected),
            _ => (true, connection.wire.out.pending() > 0),
        };
        let wanted = Interest { input, output: pending };
        if wanted != connection.watched {
            connection.watched = wanted;
            // It fails only for a socket that is not watched, and this one is.
            let _ = self.shared.service.rewatch(&connection.wire.socket, connection.token, wanted);
        }
    }

    /// Handles the loss of a link, and ends the peer unless there is another link.
    pub(super) fn lose(&mut self, peer: &Peer, token: u64, end: End) -> Liveness {
        let linked = &mut self.links.linked[usize::from(peer.node.0)];
        if linked.take_if(|linked| *linked == token).is_some() {
            self.shared.part(peer, end);
            self.cut_off(peer.node, peer.incarnation);
        }
        Liveness::Closed(None)
    }

    /// Closes a connection, and draws the consequences.
    pub(super) fn close(&mut self, connection: Connection, refusal: Option<Refusal>) {
        if let Some(refusal) = refusal {
            self.shared.refusals.count(refusal);
        }
        let token = connection.token;
        self.vacant.push(token as u32);
        self.known(token);
        // Endpoints remember the callers that they have replied to, and with each its socket. So
        // the descriptor may stay open, and epoll would report the dead peer's end for ever.
        self.shared.service.forget(&connection.wire.socket);
        // Where that fails, the connection has ended already.
        let _ = connection.wire.socket.shutdown(Shutdown::Both);
        match connection.role {
            Role::Caller(caller, _) => {
                self.callers -= 1;
                self.shared.disconnect_caller(&caller);
            }
            Role::Link(link) => {
                self.lose(&link.peer, token, End::Died);
            }
            Role::Dialing(_, node) | Role::Confirmed(node, _) => self.links.dialed(node, token),
            Role::Accepted | Role::Answered(_) | Role::Letters(_) => {}
        }
    }

    /// Removes a connection from the pending handshakes.
    pub(super) fn known(&mut self, token: u64) {
        self.handshakes.retain(|pending| *pending != token);
    }

    /// Ends an incarnation of a peer, whether or not it is here: it is not met any more.
    pub(super) fn revoke(&mut self, node: NodeId, incarnation: Incarnation) {
        let index = usize::from(node.0);
        if is_over(self.shared.presence(index), incarnation) {
            return;
        }
        match self.shared.life(node).filter(|life| life.incarnation == incarnation) {
            Some(life) => self.shared.part(&life, End::Died),
            None => {
                let unknown = Peer::new(node, incarnation);
                unknown.end(End::Died);
                self.shared.welcome(Arc::new(unknown));
            }
        }
        if let Some(linked) = self.links.linked[index].take()
            && let Some(mut link) = self.take(linked)
        {
            // If it goes on, it takes the end of its link for the other node's end, unless it hears
            // this.
            link.wire.out.frames().push(LinkMessage::Refusal as u8);
            let _ = link.wire.flush();
            self.close(link, None);
        }
        self.cut_off(node, incarnation);
    }

    /// Closes all connections of a peer's endpoints: nothing of what they still hold takes effect.
    pub(super) fn cut_off(&mut self, node: NodeId, incarnation: Incarnation) {
        for token in self.tokens() {
            let theirs = self.get(token).is_some_and(|connection| match &connection.role {
                Role::Caller(caller, _) => (caller.node, caller.incarnation) == (node, incarnation),
                _ => false,
            });
            if theirs && let Some(connection) = self.take(token) {
                self.close(connection, None);
            }
        }
    }
}
