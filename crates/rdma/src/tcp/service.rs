//! A node's sockets: connections are accepted, what peers ask for is carried out, and peers are
//! seen to come and go.
//!
//! One thread at a time drives them (`driver`), so each accepted socket has one reader, operations
//! of a connection take effect in order without a lock of their own, and a peer's access does not
//! wait for a worker of the application. That thread spins for a while after something has come,
//! and then sleeps until a socket or an endpoint wakes it, or it is time to say that the node is
//! still there.
//!
//! Whatever comes in a round is bounded: so many connections are accepted, and of each connection
//! so many bytes are read. So a flood on one delays others by that much at most. Strangers get a
//! share of what is done for members (`shares`).

use std::{
    net::{Shutdown, TcpListener},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use drtm_htm::Engine;
use parking_lot::{Condvar, Mutex};

use crate::{Incarnation, NodeId, Time, time};

use super::{
    Refusal, TcpError,
    bell::{Interest, Ready},
    dial::{Dial, Wire},
    driver::{self, Work},
    flow::Outflow,
    hello::Hello,
    links::Links,
    responder::{Hand, Served},
    shared::{Caller, End, Peer, Shared},
    shares::{HEAR, Shares, UNIT},
};

/// The token of the listener.
pub(super) const LISTENER: u64 = u64::MAX - 1;

/// The token of what an attendant has watched.
const CHANNEL: u64 = u64::MAX - 2;

/// Connections that are read without a look whether they have something, in most rounds.
const HOT: usize = 4;

/// Rounds from one look at all connections to the next.
const LOOK: u32 = 8;

/// What a connection is to this node.
pub(super) enum Role {
    /// It has not introduced itself yet.
    Stranger,
    /// Its hello was answered, and is to be confirmed.
    Answered(Hello),
    /// A link that this side begins.
    Dialing(Box<Dial>, NodeId),
    /// A link that this side has confirmed.
    Confirmed(NodeId, Incarnation),
    Link(Link),
    /// The operations of a peer's endpoint.
    Caller(Arc<Caller>, Served),
}

/// Two nodes' knowing of each other.
pub(super) struct Link {
    pub(super) peer: Arc<Peer>,
    /// When something was heard of it last.
    pub(super) heard: Time,
}

pub(super) struct Connection {
    pub(super) token: u64,
    pub(super) wire: Wire,
    pub(super) since: Time,
    pub(super) role: Role,
    watched: Interest,
}

impl Connection {
    /// Whether it has not proved that it has the key.
    fn is_stranger(&self) -> bool {
        matches!(self.role, Role::Stranger | Role::Answered(_))
    }
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    /// It does; and whether something came.
    Stays(bool),
    /// It is closed, as what its role was then.
    Closed(Option<Refusal>),
}

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
    vacant: Vec<u32>,
    tokens: u32,
    /// Tokens of connections that have not proved that they have the key, oldest first.
    pub(super) strangers: Vec<u64>,
    /// Connections of callers.
    pub(super) callers: usize,
    pub(super) links: Links,
    /// Connections of callers that had something lately.
    pub(super) hot: Vec<u64>,
    rounds: u32,
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
    tick: Time,
    /// What the thread that drives has at hand.
    pub(super) hand: Hand,
    /// Whether that is an endpoint, which serves members only.
    pub(super) is_guest: bool,
    /// There is something that an endpoint leaves to the thread.
    pub(super) needs_thread: bool,
}

/// Starts the thread of a node, which begins to connect to its peers.
pub(super) fn start<E: Engine>(
    shared: Arc<Shared<E>>,
    listener: TcpListener,
    joining: Arc<Joining>,
) -> Result<(JoinHandle<()>, Work<E>), TcpError> {
    listener.set_nonblocking(true).map_err(TcpError::io("listen"))?;
    shared.service.watch(&listener, LISTENER, Interest::INPUT).map_err(TcpError::system("watch the listener"))?;
    if let Some(channel) = shared.attendant.as_ref().and_then(|attendant| attendant.channel()) {
        shared.service.watch(channel, CHANNEL, Interest::INPUT).map_err(TcpError::system("watch a channel"))?;
    }
    let name = format!("drtm-tcp-{}", shared.node.0);
    let now = time::of_this_machine();
    let service = Service {
        links: Links::new(shared.nodes()),
        allowance: (f64::from(shared.config.limits.handshakes_per_second), now),
        shared,
        joining,
        listener,
        connections: Vec::new(),
        vacant: Vec::new(),
        tokens: 0,
        strangers: Vec::new(),
        callers: 0,
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
    };
    let shared = Arc::clone(&service.shared);
    let work = Arc::new(Mutex::new(Some(service)));
    let driven = Arc::clone(&work);
    let thread = std::thread::Builder::new().name(name).spawn(move || driver::run(&driven, &shared));
    Ok((thread.map_err(TcpError::io("start the node's thread"))?, work))
}

impl<E: Engine> Service<E> {
    /// Looks at what has come. Tells whether there was something.
    pub(super) fn round(&mut self) -> bool {
        self.rounds = self.rounds.wrapping_add(1);
        self.shares.begin_round(&self.shared.totals);
        let mut busy = false;
        for index in (0..self.hot.len()).rev() {
            busy |= self.drive(self.hot[index]);
        }
        // Busy ones never keep the others from their turns.
        if self.hot.is_empty() || self.rounds.is_multiple_of(LOOK) {
            let mut ready = std::mem::take(&mut self.ready);
            self.shared.service.look(&mut ready);
            busy |= self.handle(&ready);
            self.ready = ready;
        }
        for token in std::mem::take(&mut self.unfinished) {
            busy |= self.drive(token);
        }
        busy | self.look_after()
    }

    pub(super) fn handle(&mut self, ready: &[Ready]) -> bool {
        let mut accepts = false;
        let is_stranger = |service: &Self, token| service.get(token).is_some_and(Connection::is_stranger);
        for Ready { token, output, broken } in ready {
            if !matches!(*token, LISTENER | CHANNEL) && self.get(*token).is_none() {
                self.shares.stray();
                continue;
            }
            if self.is_guest && self.is_threads(*token) {
                self.needs_thread = true;
                continue;
            }
            if *token == LISTENER {
                accepts = true;
                continue;
            }
            if is_stranger(self, *token) {
                continue;
            }
            if *token == CHANNEL {
                if let Some(attendant) = &self.shared.attendant {
                    attendant.woken(&self.shared);
                }
                continue;
            }
            let waits = self.get(*token).is_some_and(
                |connection| matches!(&connection.role, Role::Caller(_, served) if served.stalled || served.paused),
            );
            if waits && *broken {
                // It is not read, so it would not be noticed otherwise.
                if let Some(connection) = self.take(*token) {
                    self.close(connection, None);
                }
                continue;
            }
            if *output {
                self.flush(*token);
            }
            self.drive(*token);
        }
        for Ready { token, .. } in ready {
            if !self.is_guest && is_stranger(self, *token) {
                self.flush(*token);
                self.drive(*token);
            }
        }
        // After those that are there, so that what a peer said first is heard first.
        if accepts {
            self.accept();
        }
        !ready.is_empty()
    }

    /// Whether an endpoint leaves a socket to the thread.
    fn is_threads(&self, token: u64) -> bool {
        let is_members = |connection: &Connection| matches!(connection.role, Role::Caller(..) | Role::Link(_));
        matches!(token, LISTENER | CHANNEL) || self.get(token).is_some_and(|connection| !is_members(connection))
    }

    /// What is not brought about by a socket. Tells whether there was something.
    pub(super) fn look_after(&mut self) -> bool {
        let mut busy = false;
        if !self.stalled.is_empty() && self.shared.mail.has_room() {
            for token in std::mem::take(&mut self.stalled) {
                busy |= self.drive(token);
            }
        }
        let blocked = std::mem::take(&mut *self.shared.blocked.lock());
        for token in blocked {
            self.flush(token);
            busy = true;
        }
        if self.is_guest {
            return busy;
        }
        let _ = self.tend();
        let now = time::of_this_machine();
        if now >= self.tick {
            self.end_what_is_late(now);
            if self.deaf {
                self.listen(true);
            }
            self.tend_links(now);
            self.tick = now + self.period();
        }
        busy
    }

    /// What an attendant has to do, and after how long it has more.
    pub(super) fn tend(&self) -> Option<Duration> {
        self.shared.attendant.as_ref().and_then(|attendant| attendant.tend(&self.shared))
    }

    /// How often there is a look at what takes too long.
    fn period(&self) -> Duration {
        let config = &self.shared.config;
        config.deadline.min(config.limits.handshake_time).min(config.patience) / 4
    }

    /// After how long there is such a look.
    pub(super) fn next_tick(&self) -> Option<Duration> {
        let alone = self.strangers.is_empty() && self.shared.nodes() == 1 && !self.deaf;
        (!alone).then(|| self.tick.since(time::of_this_machine()))
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

    /// Does what a connection has brought. Tells whether that was something.
    pub(super) fn drive(&mut self, token: u64) -> bool {
        let Some(mut connection) = self.take(token) else {
            self.hot.retain(|hot| *hot != token);
            return false;
        };
        if connection.is_stranger() {
            if !self.shares.admits() {
                // It is ready still when there is a look the next time.
                self.put_back(connection);
                return false;
            }
            self.shares.stranger(HEAR);
        }
        let fate = self.advance(&mut connection);
        if let Role::Caller(_, served) = &connection.role {
            self.shares.member(served.turn.div_ceil(UNIT) as u64);
        }
        match fate {
            Liveness::Stays(busy) => {
                if let Role::Caller(_, served) = &connection.role {
                    if served.stalled && !self.stalled.contains(&token) {
                        self.stalled.push(token);
                    }
                    if served.unfinished && !self.unfinished.contains(&token) {
                        self.unfinished.push(token);
                    }
                    if busy && !self.hot.contains(&token) {
                        self.hot.truncate(HOT - 1);
                        self.hot.insert(0, token);
                    }
                }
                self.watch(&mut connection);
                self.put_back(connection);
                busy
            }
            Liveness::Closed(refusal) => {
                self.close(connection, refusal);
                true
            }
        }
    }

    fn advance(&mut self, connection: &mut Connection) -> Liveness {
        match &mut connection.role {
            Role::Stranger => self.hear_stranger(connection),
            Role::Answered(_) => self.hear_confirmation(connection),
            Role::Dialing(..) => self.go_on_dialing(connection),
            Role::Confirmed(..) | Role::Link(_) => self.hear_letters(connection),
            Role::Caller(caller, served) => {
                let caller = Arc::clone(caller);
                self.shared.serve(&mut connection.wire, &caller, served, &mut self.hand)
            }
        }
    }

    /// Writes what a socket has not taken before.
    fn flush(&mut self, token: u64) {
        let Some(mut connection) = self.take(token) else { return };
        let flushed = match &mut connection.role {
            Role::Caller(caller, served) => {
                let flushed = caller.out.lock().flush(&caller.socket);
                served.paused &= !matches!(flushed, Ok(true));
                served.deferred = false;
                flushed
            }
            Role::Dialing(..) => Ok(false),
            _ => connection.wire.flush(),
        };
        if flushed.is_ok() {
            self.watch(&mut connection);
            self.put_back(connection);
        } else if matches!(connection.role, Role::Link(_)) {
            self.end_link(connection);
        } else {
            self.close(connection, None);
        }
    }

    /// Tells of deliveries that an endpoint has put off until it replies: it leads no more, and may
    /// be busy for long.
    pub(super) fn tell_deliveries(&mut self) {
        let is_deferred =
            |connection: &&Connection| matches!(&connection.role, Role::Caller(_, served) if served.deferred);
        let deferred: Vec<u64> =
            self.connections.iter().flatten().filter(is_deferred).map(|connection| connection.token).collect();
        for token in deferred {
            self.flush(token);
        }
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
            Role::Stranger | Role::Answered(_) => {}
        }
    }

    /// A connection is no stranger any more.
    pub(super) fn known(&mut self, token: u64) {
        self.strangers.retain(|stranger| *stranger != token);
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

/// A connection whose frames go by another's lock from now on.
pub(super) fn take_out(wire: &mut Wire) -> Outflow {
    std::mem::replace(&mut wire.out, Outflow::new(None))
}
