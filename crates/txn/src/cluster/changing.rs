//! What a node knows of a change to the next view: which of its workers have transactions that
//! write records, and which incarnations of other nodes are dead.

use std::sync::{
    Arc,
    atomic::{
        AtomicU32,
        Ordering::{Relaxed, SeqCst},
    },
};

use drtm_kv::Holder;
use drtm_rdma::{Incarnation, NodeId};
use parking_lot::Mutex;

use super::View;

/// How many transactions of a worker have begun to write records, and are not settled. It is the
/// worker's to change.
#[derive(Clone, Debug, Default)]
pub(super) struct Unsettled(Arc<AtomicU32>);

impl Unsettled {
    /// Notes that a transaction begins to write records. Whoever closes the view later sees it, or
    /// this one sees that the view is closed.
    pub(super) fn begin(&self) {
        self.0.store(self.0.load(Relaxed) + 1, SeqCst);
    }

    /// Notes that a transaction is settled.
    pub(super) fn end(&self) {
        self.0.store(self.0.load(Relaxed).saturating_sub(1), SeqCst);
    }
}

/// An incarnation of a node that is dead.
pub(super) type Dead = (u16, u32);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Changing {
    /// Of the node's workers.
    unsettled: Mutex<Vec<Unsettled>>,
    /// Those whose records are not taken any more.
    closed: Mutex<Vec<Dead>>,
    /// Those of them that the view is without: what they have locked is free.
    dead: Mutex<Vec<Dead>>,
    /// Those whose locks are still to be looked for.
    to_sweep: Mutex<Vec<Dead>>,
    /// What is told of rings, and the transactions that are to be completed, as far as they were
    /// heard of.
    pub(super) report: Mutex<Vec<u8>>,
    pub(super) complete: Mutex<Vec<(Holder, u64)>>,
    /// The last view that all were told to be ready for.
    ready: Mutex<Option<View>>,
    /// The one that an earlier life of the node has noted in its directory.
    noted: Option<View>,
    /// The last view that was noted in the directory, and the epoch that its log is to have first:
    /// zero once it has.
    pub(super) noting: Mutex<(u32, u64)>,
    /// The view that is left, and the epoch that its log is to have first: zero once it has.
    pub(super) awaited: Mutex<(u32, u64)>,
}

/// Returns whether an incarnation is one of these, or one before it.
fn has(dead: &[Dead], (node, incarnation): Dead) -> bool {
    dead.iter().any(|(other, last)| *other == node && incarnation <= *last)
}

fn incarnation_of(holder: Holder) -> Dead {
    (holder.node().into(), holder.incarnation())
}

impl Changing {
    /// Notes that all members of a view have decided: its primaries have all rows, also in their
    /// logs where commits wait for these. It may begin any time.
    pub(super) fn note_ready(&self, next: View) {
        let mut ready = self.ready.lock();
        // A driver that was overtaken may still tell of an older one.
        if ready.as_ref().is_none_or(|ready| ready.number() <= next.number()) {
            *ready = Some(next);
        }
    }

    /// Begins with what an earlier life of the node has noted.
    pub(super) fn with_noted(noted: Option<View>) -> Self {
        Self { noted, ..Self::default() }
    }

    /// Returns the last view that all were ready for, as far as this node was told, in this life or
    /// in an earlier one. `None` if it never was, or its directory is lost.
    pub(super) fn told_ready(&self) -> Option<View> {
        self.ready.lock().clone().or_else(|| self.noted.clone())
    }

    /// Returns the last view of which this node knows that its primaries have all rows: that in
    /// which it is, or one that it was told to be ready for. No later one can have begun.
    pub(super) fn last_whole(&self, view: &View) -> View {
        let ready = self.ready.lock();
        ready.as_ref().filter(|ready| ready.number() > view.number()).unwrap_or(view).clone()
    }

    /// Adds a worker.
    pub(super) fn add_worker(&self) -> Unsettled {
        let worker = Unsettled::default();
        self.unsettled.lock().push(worker.clone());
        worker
    }

    /// Returns how many workers there were.
    pub(super) fn workers(&self) -> u64 {
        self.unsettled.lock().len() as u64
    }

    /// Returns whether all transactions of the node's workers are settled that have written
    /// records.
    pub(super) fn is_quiet(&self) -> bool {
        self.unsettled.lock().iter().all(|worker| worker.0.load(SeqCst) == 0)
    }

    /// Takes no records any more of incarnations that are dead.
    pub(super) fn close(&self, dead: impl Iterator<Item = Dead>) {
        let mut closed = self.closed.lock();
        for one in dead {
            if !closed.contains(&one) {
                closed.push(one);
            }
        }
    }

    /// Returns those whose records are not taken any more.
    pub(super) fn closing(&self) -> Vec<(NodeId, Incarnation)> {
        self.closed.lock().iter().map(|(node, incarnation)| (NodeId(*node), Incarnation(*incarnation))).collect()
    }

    /// Returns whether records of a producer are not taken any more.
    pub(super) fn is_closed(&self, producer: Holder) -> bool {
        has(&self.closed.lock(), incarnation_of(producer))
    }

    /// Returns whether an incarnation of a node is taken for dead: it has to come back as another
    /// one.
    pub(super) fn is_evicted(&self, node: NodeId, incarnation: Incarnation) -> bool {
        has(&self.closed.lock(), (node.0, incarnation.0))
    }

    /// Notes that the view is without those whose records are not taken: their transactions have
    /// been carried out or undone.
    pub(super) fn open(&self) {
        let mut dead = self.dead.lock();
        for one in self.closed.lock().iter().filter(|one| !dead.contains(one)).copied().collect::<Vec<_>>() {
            dead.push(one);
            self.to_sweep.lock().push(one);
        }
    }

    /// Returns whether a lock is free, since its holder is dead and the view is without it.
    pub(super) fn is_dead(&self, holder: Holder) -> bool {
        has(&self.dead.lock(), incarnation_of(holder))
    }

    /// Returns whether the view is without an incarnation of a node.
    pub(super) fn is_out(&self, node: NodeId, incarnation: Incarnation) -> bool {
        has(&self.dead.lock(), (node.0, incarnation.0))
    }

    /// Takes an incarnation whose locks are to be freed. Each is given to one caller.
    pub(super) fn next_to_sweep(&self) -> Option<Dead> {
        self.to_sweep.lock().pop()
    }
}
