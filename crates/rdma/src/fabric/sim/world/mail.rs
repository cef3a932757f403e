//! Messages and replies: delivering them to a node's mail, and receiving them.

use drtm_htm::Engine;

use super::{PacketOutcome, World};
use crate::{
    NodeId, VerbError,
    endpoint::port::{Reply, ReplyTo, Verb},
    fabric::sim::{
        agenda::{Event, OpId},
        clock::{Picos, picos},
        endpoint::Arrival,
        life::{Envelope, State},
        queue::Stage,
        session::Datagram,
    },
};

/// A reply or a datagram, which is in no queue.
#[derive(Debug)]
pub(super) struct Parcel {
    from: NodeId,
    to: NodeId,
    /// The number of the NICs that it passes.
    nic: usize,
    content: Content,
    losses: u32,
}

#[derive(Debug)]
pub(super) enum Content {
    /// On a connection.
    Reply(ReplyTo, Reply),
    Datagram(Datagram),
}

impl Parcel {
    fn bytes(&self) -> u64 {
        match &self.content {
            Content::Reply(_, reply) => reply.frame.len() as u64,
            Content::Datagram(datagram) => datagram.bytes(),
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

    pub(super) fn addressee(to: ReplyTo) -> u32 {
        to.life << 16 | u32::from(to.endpoint)
    }

    pub(super) fn put_parcel(&mut self, from: NodeId, to: NodeId, nic: usize, content: Content) -> u32 {
        let parcel = Parcel { from, to, nic, content, losses: 0 };
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
    pub(super) fn deliver_envelope(&mut self, to: NodeId, envelope: Envelope, sender: u32) {
        self.trace.mix_bytes(&envelope.frame);
        let crossing = self.config.profile.pcie_write;
        let life = &mut self.nodes[usize::from(to.0)].life;
        let visible = envelope.visible + if life.nic.is_some() { 0 } else { crossing };
        let visible = life.mail.back().map_or(visible, |last| visible.max(last.visible));
        life.mail.push_back(Envelope { visible, ..envelope });
        let like = self.endpoints[sender as usize].as_ref().map_or(0, |sender| sender.ordinal);
        self.wake_for_mail(to, visible, like);
    }

    /// Wakes one endpoint that waits for mail, preferably the one with the sender's number.
    pub(in crate::fabric::sim) fn wake_for_mail(&mut self, node: NodeId, at: Picos, like: usize) {
        let life = &self.nodes[usize::from(node.0)].life;
        if let Some(nic) = life.nic {
            return self.wake(nic, at);
        }
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

    /// Sends a reply, at the time of the endpoint's processor.
    pub(in crate::fabric::sim) fn send_reply(&mut self, endpoint: u32, to: ReplyTo, reply: Reply) {
        let cpu = self.config.profile.cpu;
        if self.endpoint(endpoint).is_some_and(|it| it.is_nic) {
            let at = self.served_by_nic(endpoint, to);
            return self.put_reply(endpoint, to, reply, at);
        }
        // Datagrams between two polls share a doorbell: they are on one queue pair.
        let shares = self.config.by_datagrams();
        let rung = self.endpoint(endpoint).is_some_and(|it| std::mem::replace(&mut it.answered, true));
        self.charge(endpoint, if shares && rung { cpu.post } else { cpu.post + cpu.doorbell });
        let at = self.local(endpoint) + self.config.profile.pcie_write;
        self.put_reply(endpoint, to, reply, at);
    }

    /// Has a NIC take a reply at this time.
    fn put_reply(&mut self, endpoint: u32, to: ReplyTo, reply: Reply, at: Picos) {
        if self.config.by_datagrams() {
            self.cast_reply(endpoint, to, &reply, at);
        } else if let Some(it) = self.endpoint(endpoint) {
            let (from, nic) = (it.node, it.nic);
            let slot = self.put_parcel(from, to.node, nic, Content::Reply(to, reply));
            self.agenda.plan(at, Event::ParcelOut(slot));
        }
        self.make_room(endpoint);
    }

    pub(super) fn parcel_out(&mut self, slot: u32) {
        let Some(Some(parcel)) = self.parcels.get(slot as usize) else { return };
        let (from, to, nic, bytes) = (parcel.from, parcel.to, parcel.nic, parcel.bytes());
        let (by_datagram, profile) = (self.config.by_datagrams(), self.config.profile);
        let service = if by_datagram { profile.datagram } else { profile.message };
        let wire = self.on_link(bytes);
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
            PacketOutcome::Lost => self.lose(slot),
        }
    }

    /// Duplicates a datagram.
    fn double(&mut self, slot: u32, at: Picos) {
        let Some(Some(parcel)) = self.parcels.get(slot as usize) else { return };
        let Content::Datagram(datagram) = &parcel.content else { return };
        let (from, to, nic, again) = (parcel.from, parcel.to, parcel.nic, Content::Datagram(datagram.clone()));
        let late = self.rng.u64(1..=picos(self.config.jitter).max(1));
        let slot = self.put_parcel(from, to, nic, again);
        self.agenda.plan(at + late, Event::ParcelIn(slot));
    }

    /// Loses a parcel. A connection sends it again, or breaks, which ends the call.
    fn lose(&mut self, slot: u32) {
        let Some(Some(parcel)) = self.parcels.get_mut(slot as usize) else { return };
        parcel.losses += 1;
        let (from, losses) = (parcel.from, parcel.losses);
        let caller = match &parcel.content {
            Content::Reply(to, _) => Some(Self::addressee(*to)),
            Content::Datagram(_) => None,
        };
        match (caller, self.retry(losses)) {
            (Some(_), Some(at)) => self.agenda.plan(at, Event::ParcelOut(slot)),
            (caller, _) => {
                self.take_parcel(slot);
                if let Some(caller) = caller {
                    self.cut(caller, from.0);
                }
            }
        }
    }

    pub(super) fn parcel_in(&mut self, slot: u32) {
        let Some(parcel) = self.take_parcel(slot) else { return };
        let (to, from, bytes) = (parcel.to, parcel.from, parcel.bytes());
        let (by_datagram, profile) = (self.config.by_datagrams(), self.config.profile);
        let service = if by_datagram { profile.datagram } else { profile.message };
        let wire = self.on_link(bytes);
        let unit = &mut self.nodes[usize::from(to.0)].nics[parcel.nic];
        let received = unit.into.serve(self.now, wire);
        let ready = unit.engine.serve(received, service.respond);
        match parcel.content {
            Content::Reply(to, reply) => {
                let life = &self.nodes[usize::from(to.node.0)].life;
                if life.incarnation != to.incarnation || life.state == State::Dead {
                    return;
                }
                self.trace.mix_bytes(&reply.frame);
                let frame = (!reply.refused).then_some(reply.frame);
                let arrival = Arrival::Replied { ticket: to.ticket, from, frame };
                self.arrive(Self::addressee(to), ready + profile.pcie_write, arrival);
            }
            Content::Datagram(datagram) => self.datagram_in(&datagram, ready),
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
