//! A node of the simulated world, and its incarnations.

use std::{collections::VecDeque, sync::Arc};

use drtm_htm::{Engine, Word};

use super::{
    SimConfig,
    agenda::OpId,
    clock::{NodeClock, Picos},
    nic::Nic,
};
use crate::{
    Incarnation, NodeId, Presence, Region, Remote, VerbError,
    endpoint::port::{Frame, ReplyTo},
};

/// The most regions that a node can register.
pub(super) const REGIONS: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Here,
    Left,
    Dead,
}

#[derive(Debug)]
pub(super) struct Envelope {
    pub(super) from: NodeId,
    pub(super) reply_to: Option<ReplyTo>,
    pub(super) frame: Frame,
    pub(super) visible: Picos,
}

/// One incarnation.
#[derive(Debug)]
pub(super) struct Life<E: Engine> {
    pub(super) incarnation: Incarnation,
    pub(super) state: State,
    pub(super) regions: Vec<Arc<Region<E>>>,
    pub(super) mail: VecDeque<Envelope>,
    /// The number of messages received, and neither answered nor dropped.
    pub(super) held: usize,
    /// The queues, by endpoint and number, whose next message waits for room.
    pub(super) blocked: VecDeque<(u32, u16)>,
    /// The endpoints, by their ordinals.
    pub(super) endpoints: Vec<Option<u32>>,
    /// The endpoint that is its NIC, and takes all messages, if one is.
    pub(super) nic: Option<u32>,
    /// The atomic that is between its halves.
    pub(super) half: Option<Half>,
}

/// An atomic that has read and not yet written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Half {
    pub(super) id: OpId,
    at: Remote,
    /// What it writes, if it writes.
    new: Option<u64>,
}

impl<E: Engine> Life<E> {
    pub(super) fn new(incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            state: State::Here,
            regions: Vec::new(),
            mail: VecDeque::new(),
            held: 0,
            blocked: VecDeque::new(),
            endpoints: Vec::new(),
            nic: None,
            half: None,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.state != State::Here
    }

    pub(super) fn presence(&self) -> Presence {
        match self.state {
            State::Here => Presence::Here(self.incarnation),
            State::Left => Presence::Left(self.incarnation),
            State::Dead => Presence::Died(self.incarnation),
        }
    }

    /// Returns words of this node, and the engine to access them with.
    pub(super) fn words(&self, at: Remote, count: usize) -> Result<(&E, &[Word]), VerbError> {
        let unknown = VerbError::UnknownRegion { node: at.node, region: at.region };
        let region = self.regions.get(usize::from(at.region.0)).ok_or(unknown)?;
        let words = region.words(at.offset, count).map_err(|_| VerbError::OutOfBounds { at, words: count })?;
        Ok((region.engine(), words))
    }

    /// Begins an atomic, which is going to write what `new` says.
    pub(super) fn begin_atomic(&mut self, id: OpId, at: Remote, new: Option<u64>) {
        self.half = Some(Half { id, at, new });
    }

    /// Completes the atomic that is between its halves, if it `is_it`. Otherwise it was completed
    /// before.
    pub(super) fn end_atomic(&mut self, is_it: impl FnOnce(OpId) -> bool) {
        if let Some(Half { at, new, .. }) = self.half.take_if(|half| is_it(half.id))
            && let (Some(new), Ok((engine, words))) = (new, self.words(at, 1))
        {
            engine.store(&words[0], new);
        }
    }

    /// Drops the atomic that is between its halves, if it `is_it`: it does not write.
    pub(super) fn drop_atomic(&mut self, is_it: impl FnOnce(OpId) -> bool) {
        self.half.take_if(|half| is_it(half.id));
    }

    /// Returns a free place for an endpoint, of this many. `None` if there is none.
    pub(super) fn vacancy(&mut self, most: usize) -> Option<usize> {
        if let Some(ordinal) = self.endpoints.iter().position(Option::is_none) {
            return Some(ordinal);
        }
        (self.endpoints.len() < most).then(|| {
            self.endpoints.push(None);
            self.endpoints.len() - 1
        })
    }
}

#[derive(Debug)]
pub(super) struct Node<E: Engine> {
    /// The incarnation that is here, or was last.
    pub(super) life: Life<E>,
    /// The presence that the other nodes see.
    pub(super) shown: Presence,
    pub(super) nics: Vec<Nic>,
    pub(super) clock: NodeClock,
    /// The side of a partition that it is on.
    pub(super) side: bool,
    /// The incarnations of others that it has ended for itself.
    pub(super) revoked: Vec<(NodeId, Incarnation)>,
    /// Its caches, if it is a simulated machine.
    #[cfg(feature = "studies")]
    pub(super) machine: Option<Box<super::machine::Node>>,
}

impl<E: Engine> Node<E> {
    pub(super) fn new(number: NodeId, config: &SimConfig) -> Self {
        let clock = config.clocks.iter().rev().find(|(node, _)| *node == number);
        Self {
            life: Life::new(Incarnation(1)),
            shown: Presence::Here(Incarnation(1)),
            nics: vec![Nic::new(config.profile.cached_queue_pairs); config.nics],
            clock: clock.map_or_else(NodeClock::default, |(_, clock)| *clock),
            side: false,
            revoked: Vec::new(),
            #[cfg(feature = "studies")]
            machine: config.machine.as_ref().map(|profile| Box::new(super::machine::Node::new(number, profile))),
        }
    }

    /// Returns whether it has ended an incarnation of another node for itself.
    pub(super) fn has_revoked(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.revoked.contains(&(node, incarnation))
    }
}
