//! Operations: out of one NIC, across the wire, into memory, and back.
//!
//! An operation begins at the responder after all before it have completed, except that a write or
//! a message may begin while earlier reads are pending, if [configured](crate::SimConfig::passing).
//! Completions are reported in the order of posting.

use drtm_htm::Engine;

use super::{PacketOutcome, World};
use crate::{
    Atomicity, NodeId, VerbError,
    endpoint::port::Verb,
    fabric::sim::{
        agenda::{Event, OpId},
        clock::{NANO, Picos, picos},
        config::STEP,
        endpoint::Arrival,
        life::State,
        queue::{Op, Outcome, Stage},
    },
    region::memory::{self, Units},
};

/// Returns what an atomic writes if it found `old`. `None` if it writes nothing.
fn change(verb: &Verb, old: u64) -> Option<u64> {
    match *verb {
        Verb::CompareSwap { expected, new, .. } => (old == expected).then_some(new),
        Verb::FetchAdd { add, .. } => Some(old.wrapping_add(add)),
        Verb::Read { .. } | Verb::Write { .. } | Verb::Send { .. } | Verb::Call { .. } => None,
    }
}

impl<E: Engine> World<E> {
    /// Returns the target of an operation.
    fn target(id: OpId) -> NodeId {
        // There is one queue for each node.
        NodeId(id.queue)
    }

    /// Returns the cost of a payload at a NIC, beside that of its operation.
    fn crossing(&self, bytes: u64) -> Picos {
        let profile = self.config.profile;
        bytes.saturating_sub(profile.free_bytes) * profile.byte
    }

    pub(super) fn on_link(&self, bytes: u64) -> Picos {
        (bytes + self.config.profile.header_bytes) * self.config.profile.link_byte
    }

    /// Loads the state of the queue pair between endpoint `ordinal` of a node and `peer` into a
    /// NIC. Returns when the NIC has it.
    fn hold(&mut self, node: NodeId, nic: usize, ordinal: usize, peer: NodeId, connection: u16) -> Picos {
        let (nodes, connections) = (self.nodes.len(), self.config.connections);
        let queue_pair =
            (ordinal / self.config.nics * nodes + usize::from(peer.0)) * connections + usize::from(connection);
        let profile = self.config.profile;
        let nic = &mut self.nodes[usize::from(node.0)].nics[nic];
        if nic.held.touch(queue_pair, &mut self.rng) {
            return self.now;
        }
        nic.fetch.serve(self.now, profile.miss) + profile.pcie_read
    }

    /// Lets the requesting NIC take an operation and send it.
    pub(super) fn issue(&mut self, id: OpId) {
        let Some(endpoint) = self.endpoint(id.endpoint) else { return };
        let (from, nic, ordinal) = (endpoint.node, endpoint.nic, endpoint.ordinal);
        let to = Self::target(id);
        let (profile, by_datagram) = (self.config.profile, self.config.by_datagrams());
        let Some(op) = self.op(id).filter(|op| matches!(op.stage, Stage::Staged)) else { return };
        if by_datagram && op.verb.is_message() {
            return self.cast(id);
        }
        let (connection, losses, service, (out, _)) = (op.connection, op.losses, op.service(profile), op.payload());
        let is_inline = op.is_inline(profile);
        op.stage = Stage::Flying;
        let held = self.hold(from, nic, ordinal, to, connection);
        let crossing = if is_inline { 0 } else { self.crossing(out) };
        let wire = self.on_link(out);
        let unit = &mut self.nodes[usize::from(from.0)].nics[nic];
        let taken = unit.engine.serve(held, service.request + crossing);
        let sent = unit.out.serve(taken, wire);
        match self.fate(from, to) {
            PacketOutcome::Arrives(late) => self.agenda.plan(sent + self.config.profile.wire + late, Event::Arrive(id)),
            PacketOutcome::Lost => {
                if let Some(op) = self.op(id) {
                    (op.stage, op.losses) = (Stage::Staged, losses + 1);
                }
                self.try_again(id, losses + 1, Event::Issue(id));
            }
        }
    }

    /// Handles the loss of a packet: the connection sends it again, or breaks.
    fn try_again(&mut self, id: OpId, losses: u32, event: Event) {
        match self.retry(losses) {
            Some(at) => self.agenda.plan(at, event),
            None => self.cut(id.endpoint, id.queue),
        }
    }

    /// Lets an operation arrive at the responder's NIC.
    pub(super) fn arrive_there(&mut self, id: OpId) {
        let to = Self::target(id);
        let Some(endpoint) = self.endpoint(id.endpoint) else { return };
        let (from, nic, ordinal) = (endpoint.node, endpoint.nic, endpoint.ordinal);
        let profile = self.config.profile;
        let Some(queue) = self.queue(id) else { return };
        let life = queue.life;
        let Some(op) = queue.op(id.number).filter(|op| matches!(op.stage, Stage::Flying)) else { return };
        let (connection, service, (out, back)) = (op.connection, op.service(profile), op.payload());
        let is_inline = op.is_inline(profile);
        let node = &self.nodes[usize::from(to.0)].life;
        // A dead node answers nothing; nor does another incarnation.
        if node.is_over() || Some(node.incarnation) != life {
            return;
        }
        let held = self.hold(to, nic, ordinal, from, connection);
        let crossing = if is_inline { 0 } else { self.crossing(out.max(back)) };
        let wire = self.on_link(out);
        let unit = &mut self.nodes[usize::from(to.0)].nics[nic];
        let received = unit.into.serve(held, wire);
        let ready = unit.engine.serve(received, service.respond + crossing);
        if let Some(op) = self.op(id) {
            (op.stage, op.ready) = (Stage::Waiting, ready);
        }
        self.pump(id.endpoint, id.queue);
    }

    /// Begins all operations of a queue that can begin.
    pub(super) fn pump(&mut self, endpoint: u32, queue: u16) {
        let mut behind_a_read = false;
        let mut place = 0;
        loop {
            let (passing, by_datagrams) = (self.config.passing, self.config.by_datagrams());
            let Some(it) = self.endpoint(endpoint).and_then(|it| it.queues.get_mut(usize::from(queue))) else { return };
            let id = OpId { endpoint, queue, number: it.number(place) };
            let Some(op) = it.ops.get(place) else { break };
            match &op.stage {
                Stage::Answered(_) | Stage::Done { .. } => {
                    place += 1;
                    continue;
                }
                // Datagrams are not ordered with the connection.
                Stage::Flying if by_datagrams && op.verb.is_message() => {
                    place += 1;
                    continue;
                }
                Stage::Staged | Stage::Flying => break,
                Stage::Waiting if behind_a_read && !op.may_pass_reads() => break,
                Stage::Waiting => {
                    if !self.begin(id) {
                        break;
                    }
                }
                Stage::Moving(_) | Stage::Between { .. } => {}
            }
            // Only a pending read lets later operations pass.
            let Some(op) = self.op(id) else { break };
            if !matches!(op.stage, Stage::Answered(_) | Stage::Done { .. }) {
                if !passing || !matches!(op.verb, Verb::Read { .. }) {
                    break;
                }
                behind_a_read = true;
            }
            place += 1;
        }
    }

    /// Begins an operation. Returns false if it cannot begin yet.
    fn begin(&mut self, id: OpId) -> bool {
        let to = Self::target(id);
        let Some(queue) = self.queue(id) else { return false };
        if let Some(error) = queue.broken {
            self.answer(id, Err(error));
            return true;
        }
        let Some(op) = queue.op(id.number) else { return false };
        if op.verb.is_message() {
            return self.deliver(id);
        }
        if self.config.steps.is_some() {
            return self.begin_steps(id, to);
        }
        let outcome = self.at_once(id, to);
        self.answer(id, outcome);
        true
    }

    /// Carries out an operation at one moment.
    fn at_once(&mut self, id: OpId, to: NodeId) -> Outcome {
        let Self { nodes, endpoints, config, trace, .. } = self;
        let life = &nodes[usize::from(to.0)].life;
        let op = endpoints[id.endpoint as usize].as_mut().and_then(|it| it.queues[usize::from(id.queue)].op(id.number));
        let Some(op) = op else { return Ok(0) };
        match &mut op.verb {
            Verb::Read { from, into } => {
                let (engine, words) = life.words(*from, into.len())?;
                memory::fetch_all(engine, words, into, *from, config.tearing);
                trace.mix_words(into);
                Ok(0)
            }
            Verb::Write { to, from } => {
                let (engine, words) = life.words(*to, from.len())?;
                memory::store(engine, words, from, 0..from.len());
                trace.mix_words(from);
                Ok(0)
            }
            Verb::CompareSwap { at, expected, new } => {
                let (engine, words) = life.words(*at, 1)?;
                Ok(engine.compare_exchange(&words[0], *expected, *new).unwrap_or_else(|found| found))
            }
            Verb::FetchAdd { at, add } => {
                let (engine, words) = life.words(*at, 1)?;
                Ok(engine.fetch_add(&words[0], *add))
            }
            Verb::Send { .. } | Verb::Call { .. } => Ok(0),
        }
    }

    /// Begins an operation that takes several moments. Returns false if it cannot begin yet.
    fn begin_steps(&mut self, id: OpId, to: NodeId) -> bool {
        let config = &self.config;
        let (tearing, scattered, atomicity) = (config.tearing, config.scattered, config.atomicity);
        let Some(op) = self.op(id) else { return false };
        let units = match &op.verb {
            Verb::Read { from, into } => Units::of_read(*from, into.len(), tearing).count(),
            Verb::Write { from, .. } => Units::of_write(from.len()).count(),
            Verb::CompareSwap { at, .. } | Verb::FetchAdd { at, .. } => {
                let at = *at;
                if atomicity == Atomicity::Global {
                    let outcome = self.at_once(id, to);
                    self.answer(id, outcome);
                    return true;
                }
                return self.begin_atomic(id, at, to);
            }
            Verb::Send { .. } | Verb::Call { .. } => 0,
        };
        let mut order: Vec<u32> = (0..units as u32).rev().collect();
        if scattered {
            self.rng.shuffle(&mut order);
        }
        if let Some(op) = self.op(id) {
            op.stage = Stage::Moving(order);
        }
        self.later(id);
        true
    }

    fn begin_atomic(&mut self, id: OpId, at: crate::Remote, to: NodeId) -> bool {
        let Self { nodes, endpoints, .. } = self;
        let life = &mut nodes[usize::from(to.0)].life;
        let op = endpoints[id.endpoint as usize].as_mut().and_then(|it| it.queues[usize::from(id.queue)].op(id.number));
        let Some(op) = op else { return false };
        let found = life.words(at, 1).map(|(engine, words)| engine.load(&words[0]));
        match found {
            Ok(_) if life.half.is_some() => {
                // Another atomic is between its halves.
                self.later(id);
                return false;
            }
            Ok(old) => {
                life.begin_atomic(id, at, change(&op.verb, old));
                op.stage = Stage::Between { old };
                self.later(id);
            }
            Err(error) => self.answer(id, Err(error)),
        }
        true
    }

    /// Plans an operation's next step.
    fn later(&mut self, id: OpId) {
        let is_read = self.op(id).is_some_and(|op| matches!(op.verb, Verb::Read { .. }));
        let longest = if is_read { self.config.read_step } else { STEP };
        let wait = self.rng.u64(NANO..=picos(longest).max(NANO));
        self.agenda.plan(self.now + wait, Event::Step(id));
    }

    /// Advances an operation by a step.
    pub(super) fn step(&mut self, id: OpId) {
        let to = Self::target(id);
        let budget = self.config.steps.map_or(u32::MAX, |steps| self.rng.u32(1..=steps));
        let Some(queue) = self.queue(id) else { return };
        let life = queue.life;
        let Some(op) = queue.op(id.number) else { return };
        let is_atomic = matches!(op.stage, Stage::Between { .. });
        let is_waiting = matches!(op.stage, Stage::Waiting);
        let node = &self.nodes[usize::from(to.0)].life;
        if node.is_over() || Some(node.incarnation) != life {
            return;
        }
        if is_waiting {
            return self.pump(id.endpoint, id.queue);
        }
        if is_atomic {
            let outcome = self.end_atomic(id, to);
            self.answer(id, outcome);
        } else {
            match self.transfer(id, to, budget) {
                None => return,
                Some(Ok(false)) => return self.later(id),
                Some(Ok(true)) => self.answer(id, Ok(0)),
                Some(Err(error)) => self.answer(id, Err(error)),
            }
        }
        self.pump(id.endpoint, id.queue);
    }

    fn end_atomic(&mut self, id: OpId, to: NodeId) -> Outcome {
        let Self { nodes, endpoints, .. } = self;
        let life = &mut nodes[usize::from(to.0)].life;
        life.end_atomic(|half| half == id);
        let op = endpoints[id.endpoint as usize].as_mut().and_then(|it| it.queues[usize::from(id.queue)].op(id.number));
        let Some(Op { stage: Stage::Between { old }, .. }) = op else { return Ok(0) };
        Ok(*old)
    }

    /// Moves some lines or words. Returns whether all are moved.
    fn transfer(&mut self, id: OpId, to: NodeId, budget: u32) -> Option<Result<bool, VerbError>> {
        let Self { nodes, endpoints, config, trace, .. } = self;
        let life = &nodes[usize::from(to.0)].life;
        let op = endpoints[id.endpoint as usize].as_mut()?.queues[usize::from(id.queue)].op(id.number)?;
        let Op { verb, stage: Stage::Moving(order), .. } = op else { return None };
        let (at, count) = match verb {
            Verb::Read { from, into } => (*from, into.len()),
            Verb::Write { to, from } => (*to, from.len()),
            _ => return Some(Ok(true)),
        };
        let (engine, words) = match life.words(at, count) {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        for _ in 0..budget {
            let Some(unit) = order.pop() else { break };
            match verb {
                Verb::Read { from, into } => {
                    let range = Units::of_read(*from, count, config.tearing).range(unit as usize);
                    memory::fetch(engine, words, into, range.clone());
                    trace.mix_words(&into[range]);
                }
                Verb::Write { from, .. } => {
                    memory::store(engine, words, from, Units::of_write(count).range(unit as usize));
                }
                _ => {}
            }
        }
        Some(Ok(order.is_empty()))
    }

    /// Completes an operation at the responder, which sends its answer.
    pub(super) fn answer(&mut self, id: OpId, outcome: Outcome) {
        let now = self.now;
        let Some(queue) = self.queue(id) else { return };
        let Some(op) = queue.op(id.number) else { return };
        let signaled = op.ticket.is_some();
        let waits = matches!(op.verb, Verb::Read { .. } | Verb::CompareSwap { .. } | Verb::FetchAdd { .. });
        let atomic = waits && !matches!(op.verb, Verb::Read { .. });
        op.stage = Stage::Answered(outcome);
        op.losses = 0;
        op.ready = op.ready.max(now);
        let mut ready = op.ready;
        queue.note(signaled, &outcome);
        let to = Self::target(id);
        let profile = self.config.profile;
        if let Some(endpoint) = self.endpoint(id.endpoint) {
            let nic = endpoint.nic;
            let unit = &mut self.nodes[usize::from(to.0)].nics[nic];
            if atomic {
                ready = unit.atomics.serve(ready, profile.atomic_unit);
            }
            if waits {
                ready += profile.pcie_read;
            }
        }
        ready += self.reached(id, ready, waits);
        if let Some(op) = self.op(id) {
            op.ready = ready;
        }
        self.answer_again(id);
    }

    /// Sends the response.
    pub(super) fn answer_again(&mut self, id: OpId) {
        let to = Self::target(id);
        let now = self.now;
        let Some(endpoint) = self.endpoint(id.endpoint) else { return };
        let (from, nic) = (endpoint.node, endpoint.nic);
        let Some(op) = self.op(id).filter(|op| matches!(op.stage, Stage::Answered(_))) else { return };
        let ((_, back), losses, ready) = (op.payload(), op.losses, op.ready.max(now));
        let wire = self.on_link(back);
        let sent = self.nodes[usize::from(to.0)].nics[nic].out.serve(ready, wire);
        match self.fate(to, from) {
            PacketOutcome::Arrives(late) => {
                self.agenda.plan(sent + self.config.profile.wire + late, Event::Complete(id))
            }
            PacketOutcome::Lost => {
                if let Some(op) = self.op(id) {
                    op.losses += 1;
                }
                self.try_again(id, losses + 1, Event::Answer(id));
            }
        }
    }

    /// Lets the response arrive.
    pub(super) fn complete(&mut self, id: OpId) {
        let Some(endpoint) = self.endpoint(id.endpoint) else { return };
        let (node, nic) = (endpoint.node, endpoint.nic);
        let Some(op) = self.op(id) else { return };
        let Stage::Answered(outcome) = op.stage else { return };
        let (_, back) = op.payload();
        let (wire, crossing) = (self.on_link(back), self.crossing(back));
        let profile = self.config.profile;
        let unit = &mut self.nodes[usize::from(node.0)].nics[nic];
        let received = unit.into.serve(self.now, wire);
        let taken = if crossing > 0 { unit.engine.serve(received, crossing) } else { received };
        let visible = taken + profile.pcie_write;
        if let Some(op) = self.op(id) {
            op.stage = Stage::Done { outcome, visible };
        }
        self.report(id.endpoint, id.queue);
    }

    /// Reports the completed operations of a queue, in order.
    pub(super) fn report(&mut self, endpoint: u32, queue: u16) {
        loop {
            let Some(it) = self.endpoint(endpoint) else { return };
            let done = it.queues[usize::from(queue)].pop_done();
            let Some((op, outcome, visible)) = done else { return };
            self.trace.mix(outcome.map_or(u64::MAX, |value| value));
            let arrival = Arrival::Completed { queue, ticket: op.ticket, verb: op.verb, outcome };
            self.arrive(endpoint, visible, arrival);
        }
    }

    /// Breaks a queue: its pending operations fail, and so do later ones.
    pub(super) fn cut(&mut self, endpoint: u32, queue: u16) {
        let node = NodeId(queue);
        let now = self.now;
        let Some(it) = self.endpoint(endpoint) else { return };
        let home = (it.node, it.incarnation);
        let Some(incarnation) = it.queues[usize::from(queue)].life else { return };
        let home_life = &self.nodes[usize::from(home.0.0)].life;
        let silenced = home_life.incarnation != home.1 || home_life.state == State::Dead;
        let mut atomic = false;
        let Some(it) = self.endpoint(endpoint) else { return };
        let it = &mut it.queues[usize::from(queue)];
        if std::mem::replace(&mut it.cut, true) {
            return;
        }
        it.blocked = false;
        it.broken = None;
        it.session = None;
        for op in &mut it.ops {
            let outcome = match &op.stage {
                Stage::Done { .. } => continue,
                Stage::Staged if op.losses == 0 && silenced => {
                    Err(VerbError::Gone { node: home.0, incarnation: home.1 })
                }
                Stage::Staged if op.losses == 0 => Err(VerbError::Gone { node, incarnation }),
                stage => {
                    atomic |= matches!(stage, Stage::Between { .. });
                    Err(VerbError::Disconnected { node, incarnation })
                }
            };
            op.stage = Stage::Done { outcome, visible: now };
        }
        if atomic {
            // The NIC ends what it has begun: it has read, and does not write.
            let is_its = |half: OpId| (half.endpoint, half.queue) == (endpoint, queue);
            self.nodes[usize::from(node.0)].life.drop_atomic(is_its);
        }
        self.report(endpoint, queue);
        self.arrive(endpoint, now, Arrival::Departed { node, error: VerbError::Disconnected { node, incarnation } });
    }
}
