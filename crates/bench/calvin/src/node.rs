//! A node: what its sequencer, its scheduler, its workers and its receiver share.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
};

use drtm_rdma::{NodeId, Time};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::{
    error::Error,
    key::{Access, Key, Row, Sets},
    mutation::Mutation,
    order::Place,
    plan::Plan,
    program::Program,
    queue::Queue,
    store::Store,
    wire::Share,
};

/// The declared rows of a transaction, as its participants have read them.
pub(crate) type Declared = BTreeMap<Key, Option<Row>>;

/// A transaction at one of its participants.
#[derive(Debug)]
pub(crate) struct Job<T> {
    pub(crate) place: Place,
    pub(crate) txn: T,
    /// What it locks at this node.
    pub(crate) here: Vec<(Key, Access)>,
    /// The nodes that have declared keys, in order.
    pub(crate) participants: Vec<NodeId>,
    /// Those that execute it.
    pub(crate) active: Vec<NodeId>,
}

/// Something that the scheduler is told.
#[derive(Debug)]
pub(crate) enum Event {
    /// A part of a sequencer's batch has come.
    Share { from: NodeId, share: Share },
    /// This node has done its part of a transaction.
    Done(Place),
}

/// Something that a worker can do.
#[derive(Debug)]
pub(crate) enum Task<T> {
    /// A transaction has all of its locks.
    Start(Arc<Job<T>>),
    /// A transaction that was started has all rows of other participants.
    Resume(Arc<Job<T>>, Declared),
}

/// A transaction whose rows come from several participants.
#[derive(Debug)]
struct Gathering<T> {
    rows: Declared,
    /// How many other participants have sent theirs.
    came: usize,
    /// `None` until the transaction has its locks here.
    job: Option<Arc<Job<T>>>,
}

/// How many transactions ended in each epoch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) committed: BTreeMap<u64, u64>,
    pub(crate) aborted: BTreeMap<u64, u64>,
}

#[derive(Debug)]
pub(crate) struct Node<A: Program> {
    pub(crate) program: Arc<A>,
    pub(crate) id: NodeId,
    pub(crate) plan: Plan,
    pub(crate) store: Store,
    pub(crate) events: Queue<Event>,
    pub(crate) tasks: Queue<Task<A::Txn>>,
    /// Closed when the node has done everything.
    pub(crate) end: Queue<()>,
    gathering: Mutex<FxHashMap<Place, Gathering<A::Txn>>>,
    began: OnceLock<Time>,
    /// Transactions of this node's sequencer that it has not done yet.
    open: AtomicU64,
    tally: Mutex<Tally>,
    pub(crate) history: Mutex<Vec<(Place, Vec<u8>)>>,
    failure: Mutex<Option<Error>>,
}

impl<A: Program> Node<A> {
    pub(crate) fn new(program: Arc<A>, id: NodeId, plan: Plan, store: Store) -> Self {
        Self {
            program,
            id,
            plan,
            store,
            events: Queue::default(),
            tasks: Queue::default(),
            end: Queue::default(),
            gathering: Mutex::default(),
            began: OnceLock::new(),
            open: AtomicU64::new(0),
            tally: Mutex::default(),
            history: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    pub(crate) fn has(&self, fault: Mutation) -> bool {
        self.plan.fault.0 == Some(fault)
    }

    pub(crate) fn is_here(&self, key: Key) -> bool {
        self.program.owner(key) == self.id
    }

    /// Returns the participants of a transaction, and those of them that execute it: where it
    /// writes, or the first one if it writes nowhere.
    pub(crate) fn participants(&self, sets: &Sets) -> (Vec<NodeId>, Vec<NodeId>) {
        let nodes = |of: &mut dyn Iterator<Item = Key>| {
            let mut nodes: Vec<NodeId> = of.map(|key| self.program.owner(key)).collect();
            nodes.sort_unstable();
            nodes.dedup();
            nodes
        };
        let all = nodes(&mut sets.keys().map(|(key, _)| key));
        let mut active = nodes(&mut sets.keys().filter(|(_, writes)| *writes).map(|(key, _)| key));
        if active.is_empty() {
            active.extend(all.first());
        }
        (all, active)
    }

    /// Sets when the first epoch begins.
    pub(crate) fn begins(&self, now: Time) -> Time {
        *self.began.get_or_init(|| now)
    }

    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Release);
    }

    pub(crate) fn open(&self) -> u64 {
        self.open.load(Acquire)
    }

    /// Adds a transaction's own rows. Returns all declared ones if those of the other participants
    /// have come; otherwise [`receive`](Self::receive) returns the task.
    pub(crate) fn start(&self, job: &Arc<Job<A::Txn>>, rows: Declared) -> Option<Declared> {
        let others = job.participants.len() - 1;
        if others == 0 {
            return Some(rows);
        }
        let mut gathering = self.gathering.lock();
        let held = gathering.entry(job.place).or_insert_with(Gathering::empty);
        held.rows.extend(rows);
        held.job = Some(Arc::clone(job));
        if held.came < others && !self.has(Mutation::ReadsNotAwaited) {
            return None;
        }
        gathering.remove(&job.place).map(|held| held.rows)
    }

    /// Adds another participant's rows. Returns the transaction's task if it waited for them alone.
    pub(crate) fn receive(&self, of: Place, rows: Vec<(Key, Option<Row>)>) -> Option<Task<A::Txn>> {
        let mut gathering = self.gathering.lock();
        let held = gathering.entry(of).or_insert_with(Gathering::empty);
        held.rows.extend(rows);
        held.came += 1;
        let job = held.job.clone().filter(|job| held.came == job.participants.len() - 1)?;
        gathering.remove(&of).map(|held| Task::Resume(job, held.rows))
    }

    /// Ends this node's part of a transaction: with its outcome, if the node executed it.
    pub(crate) fn done(&self, job: &Job<A::Txn>, committed: Option<bool>, now: Time) {
        if job.place.node == self.id {
            self.open.fetch_sub(1, Release);
        }
        // All that execute it have the one outcome.
        if let Some(committed) = committed
            && job.active.first() == Some(&self.id)
            && let Some(began) = self.began.get()
        {
            let epoch = now.since(*began).as_nanos() / self.plan.epoch.as_nanos().max(1);
            let mut tally = self.tally.lock();
            let counts = if committed { &mut tally.committed } else { &mut tally.aborted };
            *counts.entry(epoch as u64).or_default() += 1;
        }
        self.events.push(Event::Done(job.place));
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally.lock().clone()
    }

    /// Ends all parts of the node.
    pub(crate) fn finish(&self) {
        self.events.close();
        self.tasks.close();
        self.end.close();
    }

    /// Ends the node with an error. The first one is kept.
    pub(crate) fn fail(&self, error: Error) {
        self.failure.lock().get_or_insert(error);
        self.finish();
    }

    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.lock().take()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.lock().is_some()
    }
}

impl<T> Gathering<T> {
    fn empty() -> Self {
        Self { rows: Declared::new(), came: 0, job: None }
    }
}
