//! Rounds: a look at what has come on a node's sockets, which is carried out.
//!
//! Whatever comes in a round is bounded: so many connections are accepted, and of each connection
//! so many bytes are read. So a flood on one delays others by that much at most. Handshakes get a
//! share of what is done for members (`shares`).

use std::{sync::Arc, time::Duration};

use drtm_htm::Engine;

use crate::sync::time;

use super::{
    bell::Ready,
    connection::{Connection, Liveness, Role},
    service::{CHANNEL, LISTENER, Service},
    shares::{HEAR, UNIT},
};

/// Connections that are read without a look whether they have something, in most rounds.
const HOT: usize = 4;

/// Rounds from one look at all connections to the next.
const LOOK: u32 = 8;

/// Connections that are accepted in a round.
const ACCEPTED: usize = 16;

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
        let is_unauthenticated = |service: &Self, token| service.get(token).is_some_and(Connection::is_unauthenticated);
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
            if is_unauthenticated(self, *token) {
                continue;
            }
            if *token == CHANNEL {
                if let Some(handler) = &self.shared.handler {
                    handler.woken(&self.shared.inbox);
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
            if !self.is_guest && is_unauthenticated(self, *token) {
                self.flush(*token);
                self.drive(*token);
            }
        }
        // After those that are there, so that what a peer said first is heard first.
        if accepts {
            for _ in 0..ACCEPTED {
                let Some(token) = self.accept() else { break };
                // Most have said something already.
                self.drive(token);
            }
        }
        !ready.is_empty()
    }

    /// Returns whether an endpoint leaves a socket to the thread.
    fn is_threads(&self, token: u64) -> bool {
        let is_members = |connection: &Connection| matches!(connection.role, Role::Caller(..) | Role::Link(_));
        matches!(token, LISTENER | CHANNEL) || self.get(token).is_some_and(|connection| !is_members(connection))
    }

    /// Does what no socket reports: stalled messages, blocked replies, what is due. Returns whether
    /// there was something.
    pub(super) fn look_after(&mut self) -> bool {
        let mut busy = false;
        if !self.stalled.is_empty() && self.shared.inbox.mail.has_room() {
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

    /// Does what is due for the call handler. Returns after how long it has more.
    pub(super) fn tend(&self) -> Option<Duration> {
        self.shared.handler.as_ref().and_then(|handler| handler.tend(&self.shared.inbox))
    }

    /// Returns the time between two looks at what takes too long.
    fn period(&self) -> Duration {
        let config = &self.shared.config;
        config.deadline.min(config.limits.handshake_time).min(config.patience) / 4
    }

    /// Returns after how long such a look is due. `None` if nothing can be late.
    pub(super) fn next_tick(&self) -> Option<Duration> {
        let alone = self.handshakes.is_empty() && self.shared.nodes() == 1 && !self.deaf;
        (!alone).then(|| self.tick.since(time::of_this_machine()))
    }

    /// Does what a connection has brought. Tells whether that was something.
    pub(super) fn drive(&mut self, token: u64) -> bool {
        let Some(mut connection) = self.take(token) else {
            self.hot.retain(|hot| *hot != token);
            return false;
        };
        if connection.is_unauthenticated() {
            if !self.shares.admits() {
                // It is ready still when there is a look the next time.
                self.put_back(connection);
                return false;
            }
            self.shares.handshake(HEAR);
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
            Liveness::GivenAway => {
                self.give_away(connection);
                true
            }
        }
    }

    fn advance(&mut self, connection: &mut Connection) -> Liveness {
        match &mut connection.role {
            Role::Accepted => self.hear_hello(connection),
            Role::Answered(_) => self.hear_confirmation(connection),
            Role::Dialing(..) => self.go_on_dialing(connection),
            Role::Confirmed(..) | Role::Link(_) => self.hear_link(connection),
            Role::Caller(caller, served) => {
                let caller = Arc::clone(caller);
                self.shared.serve(&mut connection.wire, &caller, served, &mut self.hand)
            }
            Role::Letters(_) => Liveness::GivenAway,
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
}
