//! Messages by datagrams. An endpoint has a session with each node that it sends to, which makes
//! them reliable.
//!
//! The driver of the NIC keeps the sessions, as by interrupts: it handles a datagram when that
//! arrives, and delays the work of a processor by what it takes. At a node, it is the processor of
//! the endpoint with the caller's number.

use drtm_htm::Engine;

use super::{World, mail::Content};
use crate::{
    NodeId, Time,
    endpoint::port::{Frame, Reply, ReplyTo, Ticket},
    fabric::{
        datagrams::{Heard, Step},
        header::Header,
        sim::{
            agenda::{Event, OpId},
            clock::{NANO, Picos},
            endpoint::Arrival,
            life::Envelope,
            queue::Stage,
            session::{Datagram, Pair, Session, Side},
        },
    },
};

impl<E: Engine> World<E> {
    /// Returns a session with the incarnation that is here, or was last.
    fn session(&mut self, (endpoint, node): Pair) -> Option<&mut Session> {
        let incarnation = self.nodes[usize::from(node.0)].life.incarnation;
        let queue = &mut self.endpoint(endpoint)?.queues[usize::from(node.0)];
        queue.session.as_deref_mut().filter(|_| queue.life == Some(incarnation))
    }

    /// Sends a message, whose first datagram is at the NIC.
    pub(super) fn cast(&mut self, id: OpId) {
        let (pair, now) = ((id.endpoint, NodeId(id.queue)), self.now);
        let Self { endpoints, sessions, config, .. } = self;
        let Some(it) = endpoints[id.endpoint as usize].as_mut() else { return };
        let (nic, queue) = (it.nic, &mut it.queues[usize::from(id.queue)]);
        let mut session = queue.session.take().unwrap_or_else(|| {
            *sessions += 1;
            Box::new(Session::new(*sessions, config))
        });
        if let Some(op) = queue.op(id.number) {
            let waits = session.post(&op.verb, op.ticket, id.number);
            op.stage = if waits { Stage::Flying } else { Stage::Done { outcome: Ok(0), visible: now } };
        }
        queue.session = Some(session);
        self.send_posted(id.endpoint, pair, Side::Node, nic, now);
        self.keep_session(pair);
        self.report(id.endpoint, id.queue);
    }

    /// Sends a reply, which its NIC has at `at`.
    pub(super) fn cast_reply(&mut self, endpoint: u32, to: ReplyTo, reply: &Reply, at: Picos) {
        let Some(it) = self.endpoint(endpoint) else { return };
        let (pair, nic) = ((Self::addressee(to), it.node), it.nic);
        // A caller that is gone, or has disconnected, waits for nothing.
        let Some(session) = self.session(pair) else { return };
        match reply.refused {
            true => session.reply(Header::Refusal(to.ticket), &[]),
            false => session.reply(Header::Reply(to.ticket), &reply.frame),
        }
        self.send_posted(endpoint, pair, Side::Endpoint, nic, at);
    }

    /// Sends what an endpoint has posted. The first datagram is paid for.
    fn send_posted(&mut self, endpoint: u32, pair: Pair, to: Side, nic: usize, at: Picos) {
        let more = self.send_datagrams(pair, to, nic, at).saturating_sub(1);
        if more > 0 {
            self.charge(endpoint, more * self.config.profile.cpu.post);
        }
    }

    /// Sends what there is for a side, which the NIC has at `at`. Returns the number of datagrams.
    fn send_datagrams(&mut self, pair: Pair, to: Side, nic: usize, at: Picos) -> u64 {
        let Some(home) = self.endpoint(pair.0).map(|it| it.node) else { return 0 };
        let (sender, receiver) = if to == Side::Node { (home, pair.1) } else { (pair.1, home) };
        let mut sent = 0;
        while let Some(datagram) = self.session(pair).and_then(|session| session.next(pair, to)) {
            let slot = self.put_parcel(sender, receiver, nic, Content::Datagram(datagram));
            if at == self.now {
                self.parcel_out(slot)
            } else {
                self.agenda.plan(at, Event::ParcelOut(slot))
            }
            sent += 1;
        }
        sent
    }

    /// Lets the driver send to a side what nothing was posted for: acknowledgements, probes and
    /// their answers, and what is sent again.
    fn drive(&mut self, pair: Pair, to: Side) {
        let Some(nic) = self.endpoint(pair.0).map(|it| it.nic) else { return };
        let (cpu, pcie) = (self.config.profile.cpu, self.config.profile.pcie_write);
        let sent = self.send_datagrams(pair, to, nic, self.now + cpu.post + cpu.doorbell + pcie);
        if sent > 0 {
            self.charge_driver(pair, to, cpu.doorbell + sent * cpu.post);
        }
    }

    /// Charges for what the driver does at the other end of what is sent to a side.
    fn charge_driver(&mut self, (endpoint, node): Pair, to: Side, takes: Picos) {
        let Some(ordinal) = self.endpoint(endpoint).map(|it| it.ordinal) else { return };
        let others = &self.nodes[usize::from(node.0)].life.endpoints;
        let charged = match to {
            Side::Node => Some(endpoint),
            Side::Endpoint => others.get(ordinal % others.len().max(1)).copied().flatten(),
        };
        if let Some(charged) = charged {
            self.charge(charged, takes);
        }
    }

    /// Lets a datagram arrive, which the NIC has at `ready`.
    pub(super) fn datagram_in(&mut self, datagram: &Datagram, ready: Picos) {
        let (pair, to, back) = (datagram.pair, datagram.to, datagram.to.other());
        let (visible, life) = (ready + self.config.profile.pcie_write, &self.nodes[usize::from(pair.1.0)].life);
        if to == Side::Node && life.is_over() {
            return;
        }
        let room = to == Side::Endpoint || life.mail.len() + life.held < self.config.mailbox;
        let Some(from) = self.endpoint(pair.0).map(|it| it.node) else { return };
        let mut taken = std::mem::take(&mut self.taken);
        let Some(session) = self.session(pair) else { return };
        let heard = session.hear(datagram, room, &mut taken);
        if taken.is_empty() {
            self.charge_driver(pair, back, self.config.profile.cpu.receive);
        }
        // The reply to a call acknowledges it, also where the endpoint asks.
        let replies = !taken.is_empty() && taken.iter().all(|(head, _)| matches!(head, Header::Call(_)));
        for (head, frame) in taken.drain(..) {
            let reply_to = match head {
                Header::Reply(ticket) => {
                    self.replied(pair, visible, ticket, Some(frame));
                    continue;
                }
                Header::Refusal(ticket) => {
                    self.replied(pair, visible, ticket, None);
                    continue;
                }
                Header::Call(ticket) => self.address(pair.0, ticket),
                Header::Message => None,
            };
            self.deliver_envelope(pair.1, Envelope { from, reply_to, frame, visible: ready }, pair.0);
        }
        self.taken = taken;
        match heard {
            Err(_) => self.cut(pair.0, pair.1.0),
            Ok(Some(heard)) if to == Side::Endpoint => self.note_progress(pair, heard, visible),
            Ok(Some(_)) if !replies => self.drive(pair, back),
            Ok(_) => {}
        }
    }

    /// Passes a reply on. One to a call of an earlier session ends here.
    fn replied(&mut self, pair: Pair, visible: Picos, ticket: Ticket, frame: Option<Frame>) {
        let Some(session) = self.session(pair) else { return };
        let Some(place) = session.calls.iter().position(|call| *call == ticket) else { return };
        session.calls.swap_remove(place);
        self.trace.mix_bytes(frame.as_deref().unwrap_or_default());
        self.arrive(pair.0, visible, Arrival::Replied { ticket, from: pair.1, frame });
    }

    /// Completes what the node has acknowledged, and goes on.
    fn note_progress(&mut self, pair: Pair, heard: Heard, visible: Picos) {
        let now = Time::from_nanos(self.now / NANO);
        for _ in 0..heard.complete {
            let Some(Some(number)) = self.session(pair).and_then(|session| session.posted.pop_front()) else {
                continue;
            };
            if let Some(op) = self.op(OpId { endpoint: pair.0, queue: pair.1.0, number }) {
                op.stage = Stage::Done { outcome: Ok(0), visible };
            }
        }
        if let Some(session) = self.session(pair) {
            session.pace.heard(now, heard.progress);
        }
        self.keep_session(pair);
        self.report(pair.0, pair.1.0);
    }

    /// Sends what an endpoint's side has to send, and plans the next look for losses. A session
    /// whose node is silent breaks, like a connection.
    fn keep_session(&mut self, pair: Pair) {
        let now = Time::from_nanos(self.now / NANO);
        let Some(session) = self.session(pair) else { return };
        if session.step(now) == Step::GiveUp {
            return self.cut(pair.0, pair.1.0);
        }
        if let Some(due) = session.pace.due().filter(|_| !session.is_planned) {
            session.is_planned = true;
            let event = Event::Keep { pair, session: session.number };
            self.agenda.plan(due.nanos() * NANO, event);
        }
        self.drive(pair, Side::Node);
    }

    /// Looks for losses of a session, as planned.
    pub(super) fn keep(&mut self, pair: Pair, number: u32) {
        if let Some(session) = self.session(pair).filter(|session| session.number == number) {
            session.is_planned = false;
            self.keep_session(pair);
        }
    }
}
