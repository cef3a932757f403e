//! Messages and replies: delivering them to a node's mail, and receiving them.

use drtm_htm::Engine;

use super::{PacketOutcome, World};
use crate::{
    NodeId, VerbError,
    endpoint::port::{Frame, Reply, ReplyTo, Verb},
    fabric::sim::{
        Transport,
        agenda::{Event, OpId},
        clock::{Picos, picos},
        endpoint::Arrival,
        life::Envelope,
        queue::Stage,
    },
};

/// A message or reply that is not in a queue.
#[derive(Debug)]
pub(super) struct Parcel {
    from: NodeId,
    /// The number of the sender's endpoint, for its NIC.
    nic: usize,
    content: Content,
    losses: u32,
}

#[derive(Debug)]
enum Content {
    Reply { to: ReplyTo, reply: Reply },
    Datagram { to: NodeId, reply_to: Option<ReplyTo>, bytes: Frame },
}

impl Parcel {
    fn to(&self) -> NodeId {
        match &self.content {
            Content::Reply { to, .. } => to.node,
            Content::Datagram { to, .. } => *to,
        }
    }

    fn bytes(&self) -> u64 {
        match &self.content {
            Content::Reply { reply, .. } => reply.frame.len() as u64,
            Content::Datagram { bytes, .. } => bytes.len() as u64,
        }
    }
}

impl<E: Engine> World<E> {
    /// Returns where replies to an endpoint go.
    pub(super) fn address(&self, endpoint: u32, ticket: crate::endpoint::port::Ticket) -> Option<ReplyTo> {
        let it = self.endpoints.get(endpoint as usize)?.as_ref()?;
        Some(ReplyTo {
            node: it.node,
            incarnation: it.incarnation,
            endpoint: endpoint as u16,
            life: endpoint >> 16,
            ticket,
        })
    }

    fn addressee(to: ReplyTo) -> u32 {
        to.life << 16 | u32::from(to.endpoint)
    }

    fn put_parcel(&mut self, parcel: Parcel) -> u32 {
        match self.free_parcels.pop() {
            Some(slot) => {
                self.parcels[slot as usize] = Some(parcel);
                slot
            }
            None => {
                self.parcels.push(Some(parcel));
                (self.parcels.len() - 1) as u32
            }
        }
    }

    fn take_parcel(&mut self, slot: u32) -> Option<Parcel> {
        let parcel = self.parcels.get_mut(slot as usize)?.take();
        if parcel.is_some() {
            self.free_parcels.push(slot);
        }
        parcel
    }

    /// Delivers a message of a connection. Returns false if there is no room.
    pub(super) fn deliver(&mut self, id: OpId) -> bool {
        let to = NodeId(id.queue);
        let Some(op) = self.op(id) else { return false };
        let (call, ready) = (op.ticket.filter(|_| matches!(op.verb, Verb::Call { .. })), op.ready);
        let reply_to = call.and_then(|ticket| self.address(id.endpoint, ticket));
        let mailbox = self.config.mailbox;
        let life = &mut self.nodes[usize::from(to.0)].life;
        if life.mail.len() + life.held >= mailbox {
            life.blocked.push_back((id.endpoint, id.queue));
            if let Some(queue) = self.queue(id) {
                queue.blocked = true;
            }
            return false;
        }
        let Some(endpoint) = self.endpoint(id.endpoint) else { return false };
        let from = endpoint.node;
        let Some(Verb::Send { bytes, .. } | Verb::Call { bytes, .. }) = self.op(id).map(|op| &op.verb) else {
            return false;
        };
        let frame = bytes.to_vec();
        self.deliver_envelope(to, Envelope { from, reply_to, frame, visible: ready }, id.endpoint);
        self.answer(id, Ok(0));
        true
    }

    /// Adds a envelope to a node's mail, and wakes an endpoint for it.
    fn deliver_envelope(&mut self, to: NodeId, envelope: Envelope, sender: u32) {
        let visible = envelope.visible + self.config.profile.pcie_write;
        self.trace.mix_bytes(&envelope.frame);
        let life = &mut self.nodes[usize::from(to.0)].life;
        let visible = life.mail.back().map_or(visible, |last| visible.max(last.visible));
        life.mail.push_back(Envelope { visible, ..envelope });
        let like = self.endpoints[sender as usize].as_ref().map_or(0, |sender| sender.ordinal);
        self.wake_for_mail(to, visible, like);
    }

    /// Wakes one endpoint that waits for mail, preferably the one with the sender's number.
    pub(in crate::fabric::sim) fn wake_for_mail(&mut self, node: NodeId, at: Picos, like: usize) {
        let life = &self.nodes[usize::from(node.0)].life;
        let count = life.endpoints.len().max(1);
        let mut candidates = (0..count).filter_map(|step| *life.endpoints.get((like + step) % count)?);
        let waits = |endpoint: &u32| self.endpoints[*endpoint as usize].as_ref().is_some_and(|it| it.receiving);
        if let Some(endpoint) = candidates.find(waits) {
            if let Some(it) = self.endpoint(endpoint) {
                it.receiving = false;
            }
            self.wake(endpoint, at);
        }
    }

    /// Frees the place of a message that its receiver has answered or dropped.
    pub(in crate::fabric::sim) fn make_room(&mut self, endpoint: u32) {
        let Some(it) = self.endpoint(endpoint) else { return };
        let (node, incarnation) = (it.node, it.incarnation);
        let life = &mut self.nodes[usize::from(node.0)].life;
        if life.incarnation != incarnation {
            return;
        }
        life.held = life.held.saturating_sub(1);
        if let Some((endpoint, queue)) = life.blocked.pop_front() {
            if let Some(it) = self.endpoint(endpoint) {
                it.queues[usize::from(queue)].blocked = false;
            }
            self.pump(endpoint, queue);
        }
    }

    /// Sends a datagram, which then leaves its queue.
    pub(super) fn cast(&mut self, id: OpId) {
        let Some(endpoint) = self.endpoint(id.endpoint) else { return };
        let (from, nic) = (endpoint.node, endpoint.nic);
        let Some(op) = self.op(id) else { return };
        let ticket = op.ticket;
        let (to, is_call, bytes) = match &op.verb {
            Verb::Send { to, bytes } => (*to, false, bytes.to_vec()),
            Verb::Call { to, bytes } => (*to, true, bytes.to_vec()),
            _ => return,
        };
        let reply_to = ticket.filter(|_| is_call).and_then(|ticket| self.address(id.endpoint, ticket));
        let parcel = Parcel { from, nic, content: Content::Datagram { to, reply_to, bytes }, losses: 0 };
        let slot = self.put_parcel(parcel);
        let now = self.now;
        if let Some(op) = self.op(id) {
            op.stage = Stage::Done { outcome: Ok(0), visible: now };
        }
        self.parcel_out(slot);
        self.report(id.endpoint, id.queue);
    }

    /// Sends a reply, at the time of the endpoint's processor.
    pub(in crate::fabric::sim) fn send_reply(&mut self, endpoint: u32, to: ReplyTo, reply: Reply) {
        let cpu = self.config.profile.cpu;
        // Datagrams between two polls share a doorbell: they are on one queue pair.
        let shares = self.config.transport == Transport::Datagrams;
        let rung = self.endpoint(endpoint).is_some_and(|it| std::mem::replace(&mut it.answered, true));
        self.charge(endpoint, if shares && rung { cpu.post } else { cpu.post + cpu.doorbell });
        let at = self.local(endpoint) + self.config.profile.pcie_write;
        let Some(it) = self.endpoint(endpoint) else { return };
        let (from, nic) = (it.node, it.nic);
        let slot = self.put_parcel(Parcel { from, nic, content: Content::Reply { to, reply }, losses: 0 });
        self.agenda.plan(at, Event::ParcelOut(slot));
        self.make_room(endpoint);
    }

    pub(super) fn parcel_out(&mut self, slot: u32) {
        let Some(Some(parcel)) = self.parcels.get(slot as usize) else { return };
        let (from, to, nic, bytes) = (parcel.from, parcel.to(), parcel.nic, parcel.bytes());
        let (by_datagram, profile) = (self.config.transport == Transport::Datagrams, self.config.profile);
        let service = if by_datagram { profile.datagram } else { profile.message };
        let wire = (bytes + profile.header_bytes) * profile.link_byte;
        let unit = &mut self.nodes[usize::from(from.0)].nics[nic];
        let taken = unit.engine.serve(self.now, service.request);
        let sent = unit.out.serve(taken, wire);
        match self.fate(from, to) {
            PacketOutcome::Arrives(late) => {
                let at = sent + profile.wire + late;
                if by_datagram && self.chances.duplicate > 0.0 && self.rng.f64() < self.chances.duplicate {
                    self.double(slot, at);
                }
                self.agenda.plan(at, Event::ParcelIn(slot));
            }
            PacketOutcome::Lost => self.lose(slot, by_datagram),
        }
    }

    /// Duplicates a datagram.
    fn double(&mut self, slot: u32, at: Picos) {
        let Some(Some(parcel)) = self.parcels.get(slot as usize) else { return };
        let Content::Datagram { to, reply_to, bytes } = &parcel.content else { return };
        let content = Content::Datagram { to: *to, reply_to: *reply_to, bytes: bytes.clone() };
        let again = Parcel { from: parcel.from, nic: parcel.nic, content, losses: 0 };
        let late = self.rng.u64(1..=picos(self.config.jitter).max(1));
        let slot = self.put_parcel(again);
        self.agenda.plan(at + late, Event::ParcelIn(slot));
    }

    /// Loses a parcel. A connection retries; a datagram's caller gets no answer.
    fn lose(&mut self, slot: u32, by_datagram: bool) {
        let Some(Some(parcel)) = self.parcels.get_mut(slot as usize) else { return };
        parcel.losses += 1;
        let losses = parcel.losses;
        if !by_datagram && let Some(at) = self.retry(losses) {
            return self.agenda.plan(at, Event::ParcelOut(slot));
        }
        let Some(parcel) = self.take_parcel(slot) else { return };
        let (caller, from) = match parcel.content {
            Content::Reply { to, .. } => (Some(to), parcel.from),
            Content::Datagram { to, reply_to, .. } => (reply_to, to),
        };
        self.leave_unanswered(caller, from);
    }

    /// Plans that a caller learns, after a while, that there is no answer.
    fn leave_unanswered(&mut self, caller: Option<ReplyTo>, from: NodeId) {
        if let Some(to) = caller {
            let at = self.now + picos(self.config.unanswered);
            self.agenda.plan(at, Event::Unanswered { endpoint: Self::addressee(to), ticket: to.ticket, from });
        }
    }

    pub(super) fn parcel_in(&mut self, slot: u32) {
        let Some(parcel) = self.take_parcel(slot) else { return };
        let (to, from, bytes) = (parcel.to(), parcel.from, parcel.bytes());
        let (by_datagram, profile) = (self.config.transport == Transport::Datagrams, self.config.profile);
        let service = if by_datagram { profile.datagram } else { profile.message };
        let wire = (bytes + profile.header_bytes) * profile.link_byte;
        let unit = &mut self.nodes[usize::from(to.0)].nics[parcel.nic];
        let received = unit.into.serve(self.now, wire);
        let ready = unit.engine.serve(received, service.respond);
        match parcel.content {
            Content::Reply { to, reply } => {
                let life = &self.nodes[usize::from(to.node.0)].life;
                if life.incarnation != to.incarnation || life.state == crate::fabric::sim::life::State::Dead {
                    return;
                }
                self.trace.mix_bytes(&reply.frame);
                let frame = (!reply.refused).then_some(reply.frame);
                let arrival = Arrival::Replied { ticket: to.ticket, from, frame };
                self.arrive(Self::addressee(to), ready + profile.pcie_write, arrival);
            }
            Content::Datagram { to, reply_to, bytes } => {
                let life = &self.nodes[usize::from(to.0)].life;
                if life.is_over() || life.mail.len() + life.held >= self.config.mailbox {
                    return self.leave_unanswered(reply_to, to);
                }
                let sender = reply_to.map_or(0, Self::addressee);
                self.deliver_envelope(to, Envelope { from, reply_to, frame: bytes, visible: ready }, sender);
            }
        }
    }

    /// Fails an operation of an endpoint whose node has died, or one to a broken queue.
    pub(in crate::fabric::sim) fn refuse(&mut self, id: OpId, error: VerbError) {
        let visible = self.local(id.endpoint);
        if let Some(op) = self.op(id) {
            op.stage = Stage::Done { outcome: Err(error), visible };
        }
        self.report(id.endpoint, id.queue);
    }
}
