//! What nodes that are simulated machines cost: NICs that serve messages, and caches.
//!
//! A NIC serves as many messages at a time as come: what it charges delays the answer of its
//! message, and of no other one.

use drtm_htm::Engine;

use super::World;
#[cfg(feature = "studies")]
use crate::fabric::sim::cost::CYCLE;
use crate::{
    NodeId,
    endpoint::port::ReplyTo,
    fabric::sim::{Cost, agenda::OpId, clock::Picos, endpoint::Serving},
};

impl<E: Engine> World<E> {
    /// Makes an endpoint its node's NIC.
    pub(in crate::fabric::sim) fn is_nic(&mut self, endpoint: u32, node: NodeId) {
        self.nodes[usize::from(node.0)].life.nic = Some(endpoint);
        if let Some(it) = self.endpoint(endpoint) {
            it.is_nic = true;
        }
    }

    /// Charges an endpoint's processor, if it has one.
    pub(in crate::fabric::sim) fn charge_processor(&mut self, endpoint: u32, takes: Picos) {
        if self.endpoint(endpoint).is_some_and(|it| !it.is_nic) {
            self.charge(endpoint, takes);
        }
    }

    /// Charges for taking a message, which is served from now on.
    pub(in crate::fabric::sim) fn begin_serving(&mut self, endpoint: u32, takes: Picos) {
        self.charge_processor(endpoint, takes);
        if let Some(it) = self.endpoint(endpoint) {
            it.serving = Serving::default();
        }
    }

    /// Charges for the work of protocol code.
    pub(in crate::fabric::sim) fn charge_cost(&mut self, endpoint: u32, cost: Cost) {
        let takes = match cost {
            Cost::Access { at, bytes, writes } => self.accessed(endpoint, (at, bytes), writes),
            Cost::Overhead(of, instructions) => {
                let takes = self.instructions(instructions);
                self.overheads[of as usize] += takes;
                takes
            }
            _ => self.config.profile.cpu.of(cost),
        };
        match self.endpoint(endpoint) {
            // Coroutines are none of a NIC's.
            Some(it) if it.is_nic && cost != Cost::Switch => match cost {
                Cost::Nic(_) => it.serving.nic += takes,
                _ => it.serving.processor += takes,
            },
            Some(it) if it.is_nic => {}
            _ => self.charge(endpoint, takes),
        }
    }

    /// Returns when the answer of the message that a NIC has served leaves it. What no NIC can do,
    /// a processor of the node has done, the one with the number of the asking one if it can be.
    pub(super) fn served_by_nic(&mut self, endpoint: u32, to: ReplyTo) -> Picos {
        let Some(it) = self.endpoint(endpoint) else { return self.now };
        let (serving, node) = (it.serving, it.node);
        let at = self.local(endpoint) + serving.nic;
        if serving.processor == 0 {
            return at;
        }
        let asking = self.endpoint(Self::addressee(to)).map_or(0, |it| it.ordinal);
        let endpoints = &self.nodes[usize::from(node.0)].life.endpoints;
        let all = (0..endpoints.len()).filter_map(|step| endpoints[(asking + step) % endpoints.len()]);
        let runs = |other: &u32| self.endpoints[*other as usize].as_ref().is_some_and(|it| it.crewed && !it.is_nic);
        let Some(processor) = all.into_iter().find(runs) else { return at + serving.processor };
        let (cpu, crossing) = (self.config.profile.cpu, self.config.profile.pcie_write);
        self.charge(processor, cpu.receive + serving.processor + cpu.post + cpu.doorbell);
        self.local(processor) + serving.nic + 2 * crossing
    }

    /// Returns what instructions of software take: nothing, unless nodes are machines.
    #[cfg(feature = "studies")]
    fn instructions(&self, count: u64) -> Picos {
        self.config.machine.as_ref().map_or(0, |machine| count * machine.instructions * CYCLE / 100)
    }

    #[cfg(not(feature = "studies"))]
    fn instructions(&self, _count: u64) -> Picos {
        0
    }

    /// Returns what an access of a node's own memory takes.
    #[cfg(feature = "studies")]
    fn accessed(&mut self, endpoint: u32, extent: (u64, u64), writes: bool) -> Picos {
        use crate::fabric::sim::machine::{Kind, Line};

        let now = self.local(endpoint) / CYCLE;
        let Some(it) = self.endpoint(endpoint) else { return 0 };
        let (node, core) = (it.node, it.ordinal);
        let Some(machine) = &mut self.nodes[usize::from(node.0)].machine else { return 0 };
        let kind = if writes { Kind::Write } else { Kind::Read };
        let cycles: u64 = Line::all(extent.0, extent.1).map(|line| machine.touch(now, core, line, kind)).sum();
        cycles * CYCLE
    }

    #[cfg(not(feature = "studies"))]
    fn accessed(&mut self, _endpoint: u32, _extent: (u64, u64), _writes: bool) -> Picos {
        0
    }

    /// Returns how long a verb takes at the memory that it reaches, beside its NICs, if it `waits`
    /// for it.
    #[cfg(feature = "studies")]
    pub(super) fn reached(&mut self, id: OpId, at: Picos, waits: bool) -> Picos {
        use crate::{
            endpoint::port::Verb,
            fabric::sim::machine::{Kind, Line},
        };

        let Some(op) = self.op(id) else { return 0 };
        let (remote, words, kind) = match &op.verb {
            Verb::Read { from, into } => (*from, into.len(), Kind::Read),
            Verb::Write { to, from } => (*to, from.len(), Kind::Write),
            Verb::CompareSwap { at, .. } | Verb::FetchAdd { at, .. } => (*at, 1, Kind::Write),
            Verb::Send { .. } | Verb::Call { .. } => return 0,
        };
        let Some(machine) = &mut self.nodes[usize::from(id.queue)].machine else { return 0 };
        // Rows and their indexes are in one region.
        let lines: Vec<Line> = Line::all(remote.offset.bytes(), 8 * words as u64).collect();
        let cycles = machine.transfer(at / CYCLE, &lines, kind);
        if waits { cycles * CYCLE } else { 0 }
    }

    #[cfg(not(feature = "studies"))]
    pub(super) fn reached(&mut self, _id: OpId, _at: Picos, _waits: bool) -> Picos {
        0
    }
}
