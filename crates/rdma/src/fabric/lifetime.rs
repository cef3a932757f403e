//! Incarnations of nodes, from when they are known to be here until they end.

use std::{
    fmt,
    sync::atomic::{
        AtomicU8,
        Ordering::{Acquire, SeqCst},
    },
};

use crate::{Incarnation, NodeId, Presence, VerbError};

const HERE: u8 = 0;
const LEFT: u8 = 1;
const DEAD: u8 = 2;
const SUSPECTED: u8 = 3;

/// How an incarnation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(any(not(feature = "tcp"), feature = "model"), allow(dead_code, reason = "peers are suspected over TCP"))]
pub enum End {
    Left,
    Died,
    /// It may come back, as another lifetime of the same incarnation.
    Suspected,
}

/// The lifetime of one incarnation of a node.
#[derive(Debug)]
pub struct Lifetime {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    state: AtomicU8,
}

impl Lifetime {
    pub(crate) fn new(node: NodeId, incarnation: Incarnation) -> Self {
        Self { node, incarnation, state: AtomicU8::new(HERE) }
    }
}

/// An incarnation of a node, as a fabric knows it.
pub trait Life: fmt::Debug + Send + Sync {
    /// Returns its lifetime.
    fn lifetime(&self) -> &Lifetime;

    /// Returns the node.
    fn node(&self) -> NodeId {
        self.lifetime().node
    }

    /// Returns the number of the incarnation.
    #[inline(always)]
    fn incarnation(&self) -> Incarnation {
        self.lifetime().incarnation
    }

    /// Returns whether it has left, died or is suspected.
    #[inline(always)]
    fn is_over(&self) -> bool {
        self.lifetime().state.load(Acquire) != HERE
    }

    /// Returns whether it has died.
    #[inline(always)]
    fn has_died(&self) -> bool {
        self.lifetime().state.load(Acquire) == DEAD
    }

    /// Returns the presence of the node, if this is its last incarnation.
    fn presence(&self) -> Presence {
        let Lifetime { incarnation, state, .. } = self.lifetime();
        match state.load(Acquire) {
            HERE => Presence::Here(*incarnation),
            LEFT => Presence::Left(*incarnation),
            DEAD => Presence::Died(*incarnation),
            _ => Presence::Suspected(*incarnation),
        }
    }

    /// Returns the error of an operation that begins after its end.
    fn gone(&self) -> VerbError {
        let Lifetime { node, incarnation, .. } = *self.lifetime();
        VerbError::Gone { node, incarnation }
    }

    /// Returns the error of an operation that was under way at its end.
    fn cut_off(&self) -> VerbError {
        let Lifetime { node, incarnation, .. } = *self.lifetime();
        match self.presence() {
            Presence::Suspected(_) => VerbError::Suspected { node, incarnation },
            _ => VerbError::Disconnected { node, incarnation },
        }
    }

    /// Ends it. The first end counts, unless it was a suspicion.
    fn end(&self, end: End) {
        let (from, to) = match end {
            End::Left => ([HERE, SUSPECTED], LEFT),
            End::Died => ([HERE, SUSPECTED], DEAD),
            End::Suspected => ([HERE, HERE], SUSPECTED),
        };
        for from in from {
            let _ = self.lifetime().state.compare_exchange(from, to, SeqCst, SeqCst);
        }
    }

    /// Lets it die, even if it has left.
    fn kill(&self) {
        self.lifetime().state.store(DEAD, SeqCst);
    }
}

impl Life for Lifetime {
    fn lifetime(&self) -> &Self {
        self
    }
}
