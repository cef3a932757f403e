//! The scheduler of a node: it alone requests and releases locks, in the order of transactions.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use drtm_rdma::{Endpoint, NodeId, Port};
use rustc_hash::FxHashMap;

use crate::{
    costs::{locking, spend},
    error::Error,
    key::{Key, Sets},
    locks::Locks,
    mutation::Mutation,
    node::{Event, Job, Node, Task},
    order::Place,
    program::Program,
    wire::Share,
};

/// Schedules the transactions of all epochs. Returns when the node has done its part of all.
pub(crate) async fn schedule<P: Port, A: Program>(node: Arc<Node<A>>, endpoint: &Endpoint<P>) -> Result<(), Error> {
    let mut scheduler = Scheduler {
        batches: Batches {
            nodes: node.plan.nodes,
            next: 0,
            awaits_all: !node.has(Mutation::BatchesNotAwaited),
            epochs: BTreeMap::new(),
            pending: VecDeque::new(),
        },
        locks: Locks::new(node.plan.fault.0),
        jobs: FxHashMap::default(),
        node,
        endpoint,
    };
    let node = Arc::clone(&scheduler.node);
    loop {
        while let Some(event) = node.events.try_pop() {
            scheduler.handle(event).await;
        }
        if let Some((place, bytes)) = scheduler.batches.pending.pop_front() {
            scheduler.admit(place, bytes).await?;
        } else if scheduler.batches.next == node.plan.epochs && scheduler.locks.are_free() {
            node.finish();
            return Ok(());
        } else if let Some(event) = node.events.pop().await {
            scheduler.handle(event).await;
        } else {
            return Ok(());
        }
    }
}

struct Scheduler<'e, P: Port, A: Program> {
    node: Arc<Node<A>>,
    endpoint: &'e Endpoint<P>,
    batches: Batches,
    locks: Locks,
    /// The transactions that have requested their locks, and have not released them.
    jobs: FxHashMap<Place, Arc<Job<A::Txn>>>,
}

impl<P: Port, A: Program> Scheduler<'_, P, A> {
    async fn handle(&mut self, event: Event) {
        match event {
            Event::Share { from, share } => self.batches.add(from, share),
            Event::Done(place) => {
                let Some(job) = self.jobs.remove(&place) else { return };
                spend(self.endpoint, locking(job.here.len())).await;
                let mut ready = Vec::new();
                self.locks.release(place, &mut ready);
                for job in ready.iter().filter_map(|place| self.jobs.get(place)) {
                    self.node.tasks.push(Task::Start(Arc::clone(job)));
                }
            }
        }
    }

    /// Requests the locks of the next transaction.
    async fn admit(&mut self, place: Place, bytes: Vec<u8>) -> Result<(), Error> {
        let node = &self.node;
        let txn = node.program.decode(&bytes).ok_or(Error::Malformed { from: place.node })?;
        if node.plan.records {
            node.history.lock().push((place, bytes));
        }
        let mut sets = Sets::default();
        node.program.declare(&txn, &mut sets);
        let (participants, active) = node.participants(&sets);
        let is_here = |key: Key| node.is_here(key);
        let here: Vec<_> = sets.accesses().iter().copied().filter(|(key, _)| is_here(*key)).collect();
        spend(self.endpoint, locking(here.len())).await;
        let job = Arc::new(Job { place, txn, here, participants, active });
        if self.locks.request(place, &job.here) {
            self.node.tasks.push(Task::Start(Arc::clone(&job)));
        }
        self.jobs.insert(place, job);
        Ok(())
    }
}

/// The batches of all sequencers, until their epoch's turn comes.
struct Batches {
    nodes: u16,
    /// The next epoch.
    next: u64,
    awaits_all: bool,
    epochs: BTreeMap<u64, BTreeMap<NodeId, Batch>>,
    /// Transactions of epochs whose turn has come, in order.
    pending: VecDeque<(Place, Vec<u8>)>,
}

/// What has come of a batch.
#[derive(Default)]
struct Batch {
    parts: u32,
    transactions: Vec<(u32, Vec<u8>)>,
    is_whole: bool,
}

impl Batches {
    fn add(&mut self, from: NodeId, share: Share) {
        let Share { epoch, parts, transactions } = share;
        let batch = self.epochs.entry(epoch).or_default().entry(from).or_default();
        batch.parts += 1;
        batch.transactions.extend(transactions);
        batch.is_whole = batch.parts == parts;
        while self.epochs.get(&self.next).is_some_and(|batches| self.is_complete(batches)) {
            self.take(self.next);
            self.next += 1;
        }
        if epoch < self.next {
            // Only a faulty scheduler has not waited for it.
            self.take(epoch);
        }
    }

    fn is_complete(&self, batches: &BTreeMap<NodeId, Batch>) -> bool {
        let whole = batches.values().filter(|batch| batch.is_whole).count();
        whole == usize::from(self.nodes) || !self.awaits_all && whole > 0
    }

    fn take(&mut self, epoch: u64) {
        for (node, mut batch) in self.epochs.remove(&epoch).unwrap_or_default() {
            batch.transactions.sort_by_key(|(number, _)| *number);
            let place = |number| Place { epoch, node, number };
            self.pending.extend(batch.transactions.into_iter().map(|(number, bytes)| (place(number), bytes)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(epoch: u64, parts: u32, numbers: &[u32]) -> Share {
        Share { epoch, parts, transactions: numbers.iter().map(|number| (*number, Vec::new())).collect() }
    }

    #[test]
    fn transactions_are_ordered_by_epoch_node_and_number_whatever_comes_first() {
        let (epochs, pending) = (BTreeMap::new(), VecDeque::new());
        let mut batches = Batches { nodes: 2, next: 0, awaits_all: true, epochs, pending };
        batches.add(NodeId(1), share(1, 1, &[0]));
        batches.add(NodeId(1), share(0, 2, &[3]));
        batches.add(NodeId(0), share(1, 1, &[5]));
        batches.add(NodeId(0), share(0, 1, &[1, 2]));
        assert!(batches.pending.is_empty(), "a part of epoch 0 is missing");
        batches.add(NodeId(1), share(0, 2, &[0]));
        let places = batches.pending.iter().map(|(place, _)| (place.epoch, place.node.0, place.number));
        assert_eq!(places.collect::<Vec<_>>(), [(0, 0, 1), (0, 0, 2), (0, 1, 0), (0, 1, 3), (1, 0, 5), (1, 1, 0)]);
        assert_eq!(batches.next, 2);
    }
}
