//! The presence of nodes: joining, leaving, dying, restarting and partitions.

use std::sync::Arc;

use drtm_htm::Engine;

use super::World;
use crate::{
    FabricError, Incarnation, NodeId, Presence,
    fabric::sim::{
        Fault, Remains,
        agenda::Event,
        clock::picos,
        endpoint::{Arrival, EndpointState},
        life::{Life, State},
    },
};

impl<E: Engine> World<E> {
    fn stations_of(&self, node: NodeId) -> Vec<u32> {
        self.nodes[usize::from(node.0)].life.endpoints.iter().copied().flatten().collect()
    }

    /// Adds an endpoint. Returns its number.
    pub(in crate::fabric::sim) fn move_in(&mut self, node: NodeId) -> Result<u32, FabricError> {
        let (most, nics, nodes) = (self.config.endpoints, self.config.nics, self.nodes.len());
        let it = self.nodes.get_mut(usize::from(node.0)).ok_or(FabricError::UnknownNode { node })?;
        if it.life.is_over() {
            return Err(FabricError::Closed { node });
        }
        let ordinal = it.life.vacancy(most).ok_or(FabricError::TooManyEndpoints { node, most })?;
        let number = self.endpoints.len() as u32;
        it.life.endpoints[ordinal] = Some(number);
        let endpoint = EndpointState::new(node, it.life.incarnation, ordinal, ordinal % nics, nodes);
        self.endpoints.push(Some(endpoint));
        Ok(number)
    }

    /// Drops an endpoint.
    pub(in crate::fabric::sim) fn move_out(&mut self, endpoint: u32) {
        let Some(it) = self.endpoints.get_mut(endpoint as usize).and_then(Option::take) else { return };
        for (queue, target) in it.queues.iter().zip(&mut self.nodes) {
            // The NIC ends what it has begun: it has read, and does not write.
            let between = |op: &crate::fabric::sim::queue::Op| {
                matches!(op.stage, crate::fabric::sim::queue::Stage::Between { .. })
            };
            if queue.ops.iter().any(between) {
                target.life.drop_atomic(|half| half.endpoint == endpoint);
            }
        }
        let life = &mut self.nodes[usize::from(it.node.0)].life;
        life.nic.take_if(|nic| *nic == endpoint);
        if life.incarnation == it.incarnation
            && let Some(place) = life.endpoints.get_mut(it.ordinal)
        {
            *place = None;
        }
    }

    /// Makes a node leave or die.
    pub(in crate::fabric::sim) fn end(&mut self, node: NodeId, state: State) -> Result<(), FabricError> {
        let it = self.nodes.get_mut(usize::from(node.0)).ok_or(FabricError::UnknownNode { node })?;
        if it.life.is_over() && (it.life.state == State::Dead || state == State::Left) {
            return Ok(());
        }
        it.life.state = state;
        let incarnation = it.life.incarnation;
        if state == State::Dead {
            it.life.mail.clear();
            for endpoint in self.stations_of(node) {
                for queue in 0..self.nodes.len() {
                    self.cut(endpoint, queue as u16);
                }
                if self.endpoint(endpoint).is_some_and(|it| it.crewed) {
                    self.doomed.push(endpoint);
                }
            }
        }
        let at = self.now + picos(self.config.detection);
        self.agenda.plan(at, Event::Announce { node, incarnation });
        Ok(())
    }

    /// Announces to the others that an incarnation is gone.
    pub(super) fn announce(&mut self, node: NodeId, incarnation: Incarnation) {
        let it = &mut self.nodes[usize::from(node.0)];
        if it.life.incarnation != incarnation || it.shown == it.life.presence() {
            return;
        }
        it.shown = it.life.presence();
        self.end_queues(node, incarnation);
        self.tell();
    }

    /// Ends the queues to an incarnation.
    fn end_queues(&mut self, node: NodeId, incarnation: Incarnation) {
        for endpoint in 0..self.endpoints.len() as u32 {
            let to_it =
                self.endpoint(endpoint).is_some_and(|it| it.queues[usize::from(node.0)].life == Some(incarnation));
            if to_it {
                self.cut(endpoint, node.0);
            }
        }
    }

    /// Ends an incarnation of a node for another one.
    pub(in crate::fabric::sim) fn revoke(
        &mut self,
        node: NodeId,
        other: NodeId,
        incarnation: Incarnation,
    ) -> Result<bool, FabricError> {
        let known = |node: NodeId| self.nodes.get(usize::from(node.0)).ok_or(FabricError::UnknownNode { node });
        if known(other)?.life.incarnation != incarnation || known(node)?.has_revoked(other, incarnation) {
            return Ok(true);
        }
        self.nodes[usize::from(node.0)].revoked.push((other, incarnation));
        for (from, to) in [(other, node), (node, other)] {
            for endpoint in self.stations_of(from) {
                self.cut(endpoint, to.0);
            }
        }
        self.tell();
        Ok(true)
    }

    /// Returns the presence of a node as another one sees it.
    pub(in crate::fabric::sim) fn presence(&self, from: NodeId, node: NodeId) -> Presence {
        let Some(it) = self.nodes.get(usize::from(node.0)) else { return Presence::Never };
        match it.shown.last() {
            Some(last) if self.nodes[usize::from(from.0)].has_revoked(node, last) => Presence::Died(last),
            _ => it.shown,
        }
    }

    /// Returns whether a node that another one reaches has ended an incarnation of it for itself.
    pub(in crate::fabric::sim) fn refuses(&self, node: NodeId, other: NodeId, incarnation: Incarnation) -> bool {
        let Some(it) = self.nodes.get(usize::from(node.0)) else { return false };
        it.has_revoked(other, incarnation) && !self.are_divided(node, other)
    }

    /// Returns the presence of all nodes as one sees them.
    pub(in crate::fabric::sim) fn presences(&self, from: NodeId) -> impl Iterator<Item = Presence> {
        (0..self.nodes.len() as u16).map(move |node| self.presence(from, NodeId(node)))
    }

    /// Returns whether one of two nodes has ended the other for itself.
    pub(in crate::fabric::sim) fn are_parted(&self, one: NodeId, other: NodeId) -> bool {
        let has_revoked = |one: NodeId, other: NodeId| {
            let incarnation = self.nodes[usize::from(other.0)].life.incarnation;
            self.nodes[usize::from(one.0)].has_revoked(other, incarnation)
        };
        has_revoked(one, other) || has_revoked(other, one)
    }

    /// Notifies all endpoints that a node's presence has changed.
    fn tell(&mut self) {
        for endpoint in 0..self.endpoints.len() as u32 {
            self.arrive(endpoint, self.now, Arrival::Changed);
        }
    }

    /// Restarts a node.
    pub(in crate::fabric::sim) fn restart(
        &mut self,
        node: NodeId,
        remains: Remains,
    ) -> Result<Incarnation, FabricError> {
        let it = self.nodes.get_mut(usize::from(node.0)).ok_or(FabricError::UnknownNode { node })?;
        if !it.life.is_over() {
            return Err(FabricError::Present { node });
        }
        let before = it.life.incarnation;
        let incarnation = Incarnation(before.0 + 1);
        let regions: Vec<_> = it.life.regions.iter().map(Arc::clone).collect();
        it.life = Life::new(incarnation);
        if remains == Remains::Memory {
            it.life.regions = regions;
        }
        it.shown = Presence::Here(incarnation);
        it.revoked.clear();
        // This holds whether or not they knew already.
        self.end_queues(node, before);
        self.tell();
        Ok(incarnation)
    }

    /// Runs a planned fault. An impossible one (the death of a dead node) has no effect.
    pub(super) fn fault(&mut self, index: u32) {
        if let Some(fault) = self.plan.get(index as usize).cloned() {
            let _ = self.befall(fault);
        }
    }

    pub(in crate::fabric::sim) fn befall(&mut self, fault: Fault) -> Result<(), FabricError> {
        let known = |node: NodeId| match self.nodes.get(usize::from(node.0)) {
            Some(_) => Ok(()),
            None => Err(FabricError::UnknownNode { node }),
        };
        match fault {
            Fault::Chances(chances) => self.chances = chances,
            Fault::Partition(nodes) => {
                for node in &nodes {
                    known(*node)?;
                }
                self.divided = true;
                for (number, node) in self.nodes.iter_mut().enumerate() {
                    node.side = nodes.contains(&NodeId(number as u16));
                }
            }
            Fault::Heal => self.divided = false,
            Fault::Crash { node } => self.end(node, State::Dead)?,
            Fault::Leave { node } => self.end(node, State::Left)?,
            Fault::Restart { node, remains } => drop(self.restart(node, remains)?),
            Fault::Stall { node, lasts } => {
                known(node)?;
                let until = self.now + picos(lasts);
                for endpoint in self.stations_of(node) {
                    if let Some(it) = self.endpoint(endpoint) {
                        it.stalled = it.stalled.max(until);
                        it.local = it.local.max(until);
                    }
                }
            }
            Fault::Clock { node, skew, drift } => {
                known(node)?;
                let now = self.now;
                self.nodes[usize::from(node.0)].clock.adjust(skew, drift, now);
            }
        }
        Ok(())
    }

    /// Returns whether a node can be connected to from another.
    pub(in crate::fabric::sim) fn is_reachable(&self, from: NodeId, to: NodeId) -> bool {
        self.reaches(from, to)
    }
}
