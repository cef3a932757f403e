//! Which nodes a node has met, and which of them close.

use drtm_rdma::{Incarnation, NodeId};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// Another node, as this one knows it.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The last of its lives that was met, and the one that was met before.
    met: Option<Incarnation>,
    met_before: Option<Incarnation>,
    /// Which of its lives closes, if one does.
    closes: Option<Incarnation>,
    /// Whether all is done that others had begun there.
    is_done: bool,
}

/// The nodes that a node has met, and which of them close.
#[derive(Debug, Default)]
pub(super) struct Closings(Mutex<FxHashMap<NodeId, Known>>);

impl Closings {
    /// Notes that a life of a node was met.
    pub(super) fn meet(&self, node: NodeId, incarnation: Incarnation) {
        let mut all = self.0.lock();
        let known = all.entry(node).or_default();
        if known.met < Some(incarnation) {
            known.met_before = known.met.replace(incarnation);
        }
    }

    /// Returns the last life of a node that was met and has ended, since a later one is here.
    pub(super) fn ended(&self, node: NodeId, here: Incarnation) -> Option<Incarnation> {
        let known = self.0.lock().get(&node).copied()?;
        [known.met, known.met_before].into_iter().flatten().find(|life| *life < here)
    }

    /// Returns whether a life of a node was met.
    pub(super) fn has_met(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.0.lock().get(&node).is_some_and(|known| known.met == Some(incarnation))
    }

    /// Notes that an incarnation of a node closes. Returns whether that is new.
    pub(super) fn note(&self, node: NodeId, incarnation: Incarnation, is_done: bool) -> bool {
        let mut all = self.0.lock();
        let known = all.entry(node).or_default();
        let is_new = known.closes != Some(incarnation);
        (known.closes, known.is_done) = (Some(incarnation), is_done);
        is_new
    }

    /// Returns whether an incarnation of a node closes.
    pub(super) fn closes(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.0.lock().get(&node).is_some_and(|known| known.closes == Some(incarnation))
    }

    /// Returns whether an incarnation of a node has done all that others had begun there.
    pub(super) fn is_done(&self, node: NodeId, incarnation: Incarnation) -> bool {
        let all = self.0.lock();
        all.get(&node).is_some_and(|known| known.closes == Some(incarnation) && known.is_done)
    }

    /// Returns the lives of nodes that were met, but for those that have closed in good order.
    pub(super) fn lives(&self) -> Vec<(NodeId, Incarnation)> {
        let all = self.0.lock();
        let lives = all.iter().flat_map(|(node, known)| {
            let has_closed = |life: &Incarnation| known.is_done && known.closes == Some(*life);
            let met = [known.met_before, known.met].into_iter().flatten();
            met.filter(move |life| !has_closed(life)).map(|life| (*node, life))
        });
        lives.collect()
    }

    /// Returns the nodes that were met.
    pub(super) fn nodes(&self) -> Vec<NodeId> {
        self.0.lock().keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_incarnation_closes_that_has_said_so() {
        let closings = Closings::default();
        let (node, [first, second]) = (NodeId(1), [1, 2].map(Incarnation));
        closings.meet(node, first);
        assert!(!closings.closes(node, first));
        assert!(closings.note(node, first, false));
        assert!(closings.closes(node, first) && !closings.closes(node, second));
        assert!(!closings.is_done(node, first));
        assert!(!closings.note(node, first, true), "it is known");
        closings.meet(node, second);
        assert!(closings.has_met(node, second) && !closings.has_met(node, first));
        assert!(closings.is_done(node, first) && !closings.is_done(node, second));
        assert_eq!(closings.nodes(), [node]);
        assert_eq!(closings.lives(), [(node, second)], "the first has closed");
        assert_eq!(closings.ended(node, first), None);
        assert_eq!(closings.ended(node, second), Some(first), "it has come back, and was met");
        assert_eq!(closings.ended(node, Incarnation(3)), Some(second), "it has come back");
        assert_eq!(closings.ended(NodeId(2), second), None);
    }
}
