//! What a worker's transactions have in common: the states of those that run, the nodes that are
//! known, and this node's own participant.

use std::{
    cell::{Cell, RefCell, RefMut},
    collections::VecDeque,
    convert::Infallible,
    rc::Rc,
    sync::Arc,
    task::Waker,
    time::Duration,
};

use drtm_htm::fence_locked;
use drtm_kv::Holder;
use drtm_rdma::{Endpoint, Fabric, Incarnation, NodeId, Phase, Presence, Time, rpc::Rpc};

use super::{
    ClusterEvent, ClusterStats, Protocol, Refusal, Rounds,
    adapt::{Choice, Chooser},
    changing::Unsettled,
    clock::WorkerClock,
    events::Refusals,
    gathered::ToGather,
    index_info::IndexInfo,
    log::{Rings, Slots},
    participant::Participant,
    peers::Peer,
    remembered::Met,
    shared::Shared,
    state::State,
    view::View,
};
use crate::{Config, Conflict, mutation::Mutation};

/// How many transactions of a worker locks can tell apart.
const SLOTS: u16 = 256;

/// How many transactions a worker runs before it gives way to its other coroutines.
const TURN: u32 = 64;

/// The longest pause between two runs of a closure, in microseconds. Transactions that put new keys
/// into a range which others scan make each other fail, even if they fail themselves: pauses must
/// become longer than all of them take together, on a busy machine, too.
const LONGEST_PAUSE: u64 = 1 << 17;

/// What was chosen for a transaction, and when.
#[derive(Clone, Copy)]
pub(super) struct Chosen {
    choice: Choice,
    began: Time,
}

/// One worker's way to other nodes, and the states of its transactions.
pub(super) struct Coordinator<'e, F: Fabric, S: Config> {
    pub(super) node: Arc<Shared<F, S>>,
    endpoint: &'e Endpoint<F::Port>,
    rpc: Rpc<'e, F::Port>,
    pub(super) participant: RefCell<Participant<S>>,
    /// The name of the first slot.
    holder: Holder,
    /// States that no transaction uses, each of a slot of its own.
    #[expect(clippy::vec_box, reason = "they go in and out with each transaction, and are large")]
    pub(super) idle: RefCell<Vec<Box<State<'e, F::Port>>>>,
    /// How many states there are.
    pub(super) states: Cell<u16>,
    /// States of transactions that were dropped before their end.
    pub(super) abandoned: RefCell<VecDeque<Box<State<'e, F::Port>>>>,
    /// How many of these are not finished.
    pub(super) unfinished: Cell<usize>,
    pub(super) janitor: Cell<Option<Waker>>,
    /// Whether an executor ends what transactions leave to the worker.
    pub(super) serves: Cell<bool>,
    pub(super) clock: WorkerClock,
    /// This worker's copy of the node's view.
    view: RefCell<Rc<View>>,
    /// Whether a node that was met is in another view than this one.
    pub(super) is_behind: Cell<bool>,
    /// How many bytes of rows were copied here.
    pub(super) bytes_learnt: Cell<u64>,
    /// What visitors have asked this worker to gather.
    pub(super) to_gather: RefCell<ToGather>,
    /// For each node.
    pub(super) met: RefCell<Vec<Option<Met>>>,
    random: Cell<u64>,
    /// What it finds of the forms of phases, if the protocol lets them be chosen.
    chooser: RefCell<Chooser>,
    /// Its rings at backups.
    pub(super) rings: Rings,
    /// Its slots in memory that outlives the process.
    pub(super) slots: Slots<S::Engine>,
    /// Its transactions that have records in them.
    pub(super) unsettled: Unsettled,
    /// Transactions since the worker last gave way to its other coroutines.
    since_yield: Cell<u32>,
    /// Transactions that committed.
    commits: Cell<u64>,
    /// How often closures were run again, by cause.
    conflicts: Cell<[u64; Conflict::ALL.len()]>,
    /// Rounds to other nodes, by phase.
    rounds: [Cell<Rounds>; Phase::ALL.len()],
    pub(super) refusals: Cell<Refusals>,
    /// The numbers of its chopped transactions.
    #[cfg(feature = "chopping")]
    pub(super) ids: super::chopped::Ids,
    /// Squashes that transactions of other nodes are to be told of.
    #[cfg(feature = "hades")]
    pub(super) squashes: super::squashes::Squashes,
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    pub(super) fn new(node: Arc<Shared<F, S>>, endpoint: &'e Endpoint<F::Port>, participant: Participant<S>) -> Self {
        let holder = participant.holder();
        let view = RefCell::new(node.view.copy());
        let rings = Rings::of_worker(node.home.changing.workers());
        Self {
            unsettled: node.home.changing.add_worker(),
            node,
            chooser: RefCell::default(),
            endpoint,
            rpc: Rpc::new(endpoint.during(Phase::Other)),
            participant: RefCell::new(participant),
            holder,
            idle: RefCell::default(),
            states: Cell::new(0),
            abandoned: RefCell::default(),
            unfinished: Cell::new(0),
            janitor: Cell::new(None),
            serves: Cell::new(false),
            clock: WorkerClock::default(),
            view,
            is_behind: Cell::new(false),
            bytes_learnt: Cell::new(0),
            to_gather: RefCell::default(),
            met: RefCell::default(),
            random: Cell::new(holder.to_word()),
            rings,
            slots: Slots::default(),
            since_yield: Cell::new(0),
            commits: Cell::new(0),
            conflicts: Cell::default(),
            rounds: Default::default(),
            refusals: Cell::default(),
            #[cfg(feature = "chopping")]
            ids: super::chopped::Ids::default(),
            #[cfg(feature = "hades")]
            squashes: super::squashes::Squashes::default(),
        }
    }

    pub(super) fn endpoint(&self) -> &'e Endpoint<F::Port> {
        self.endpoint
    }

    pub(super) fn id(&self) -> NodeId {
        self.node.node
    }

    /// Returns the first name of this worker's transactions.
    pub(super) fn holder(&self) -> Holder {
        self.holder
    }

    /// Returns the view that the node is in. What was remembered in another one is not used in it.
    pub(super) fn view(&self) -> Rc<View> {
        let mut view = self.view.borrow_mut();
        if view.number() != self.node.view.number() {
            *view = self.node.view.copy();
        }
        Rc::clone(&view)
    }

    /// Returns a state that has a slot of its own. Waits for one if all slots are used.
    pub(super) async fn state(&self) -> Box<State<'e, F::Port>> {
        self.give_way().await;
        let view = self.latest_view().await;
        let is_there = || !self.idle.borrow().is_empty() || self.states.get() < SLOTS;
        if !is_there() {
            self.endpoint().until(is_there).await;
        }
        if let Some(mut idle) = self.idle.borrow_mut().pop() {
            idle.view = view;
            return idle;
        }
        let slot = self.states.get();
        self.states.set(slot + 1);
        let slot = if S::has(Mutation::SlotsNotNamed) { 0 } else { slot };
        Box::new(State::new(self.holder.in_slot(slot as u8), self.protocol().forms(), view))
    }

    /// Chooses the forms of a transaction that begins, where the protocol lets it choose.
    pub(super) fn choose(&self, state: &mut State<'e, F::Port>) -> Option<Chosen> {
        let (board, began) = (self.node.board.as_ref()?, self.endpoint.now());
        let choice = self.chooser.borrow_mut().choose(board, began);
        state.forms = choice.forms();
        Some(Chosen { choice, began })
    }

    /// Notes that a transaction has committed whose forms were chosen.
    pub(super) fn learn(&self, chosen: Option<Chosen>) {
        if let Some(Chosen { choice, began }) = chosen {
            self.chooser.borrow_mut().ended(choice, self.endpoint.now().since(began));
        }
    }

    /// Takes back the state of a transaction that has ended: no request of it is under way, and it
    /// holds no lock.
    pub(super) fn recycle(&self, mut state: Box<State<'e, F::Port>>) {
        state.clear();
        self.idle.borrow_mut().push(state);
    }

    /// Takes the state of a transaction that was dropped before its end.
    pub(super) fn abandon(&self, state: Box<State<'e, F::Port>>) {
        self.unfinished.set(self.unfinished.get() + 1);
        self.abandoned.borrow_mut().push_back(state);
        if let Some(waker) = self.janitor.take() {
            waker.wake();
        }
    }

    /// Returns whether the node of a lock's holder is gone, so that the lock is never released.
    pub(super) fn is_dead(&self, holder: Holder) -> bool {
        self.has_gone(NodeId(holder.node().into()), holder.incarnation())
    }

    /// Returns whether a transaction that meets a row which this holder has locked is told that
    /// the holder's node is gone. Its owner frees it otherwise, at once or in the next view.
    pub(super) fn is_told_of(&self, holder: Holder) -> bool {
        let is_freed = self.is_recorded() || self.node.cooperative.is_some();
        !is_freed && self.is_dead(holder)
    }

    /// Returns whether an incarnation of a node is gone.
    pub(super) fn has_gone(&self, node: NodeId, incarnation: u32) -> bool {
        match self.endpoint.presence(node) {
            // One that is not known yet to have come back is not dead.
            Presence::Here(now) => now.0 > incarnation,
            Presence::Left(last) | Presence::Died(last) => last.0 >= incarnation,
            _ => false,
        }
    }

    /// Returns whether a node that had locked something for a transaction may have it locked still:
    /// it can be met again as the incarnation that the transaction has met.
    pub(super) fn may_be_met_again(&self, node: NodeId, met: Option<Incarnation>) -> bool {
        match self.endpoint.presence(node) {
            // What a node has locked that is out is freed without it.
            _ if self.is_out() => false,
            Presence::Here(now) | Presence::Suspected(now) => {
                met.is_none_or(|met| met == now) && !self.node.home.changing.is_evicted(node, now)
            }
            _ => false,
        }
    }

    /// Gives way to the worker's other coroutines now and then: transactions on rows of this node
    /// alone wait for nothing, and others wait to be served meanwhile.
    async fn give_way(&self) {
        let count = self.since_yield.get() + 1;
        self.since_yield.set(count % TURN);
        if count == TURN {
            self.endpoint().yield_now().await;
        }
    }

    /// Counts a transaction that has committed.
    pub(super) fn count_commit(&self) {
        self.commits.set(self.commits.get() + 1);
    }

    /// Counts a round that has ended.
    pub(super) fn count_round(&self, phase: Phase, took: Duration) {
        let rounds = &self.rounds[phase as usize];
        rounds.set(rounds.get() + Rounds { count: 1, took });
    }

    /// Returns what this worker has counted.
    pub(super) fn stats(&self) -> ClusterStats {
        ClusterStats {
            commits: self.commits.get(),
            counters: self.endpoint.counters(),
            conflicts: self.conflicts.get(),
            rounds: std::array::from_fn(|phase| self.rounds[phase].get()),
            ..ClusterStats::default()
        }
    }

    /// Counts that a closure is run again.
    pub(super) fn count(&self, cause: Conflict) {
        let mut conflicts = self.conflicts.get();
        conflicts[cause.index()] += 1;
        self.conflicts.set(conflicts);
    }

    /// Announces what happens to other nodes, for ever.
    pub(super) async fn announce_nodes(&self) -> Infallible {
        loop {
            if let Some(event) = ClusterEvent::of(self.endpoint.next_event().await) {
                self.node.announcer.announce(event);
            }
        }
    }

    /// Notes that a node has refused a transaction.
    pub(super) fn note_refusal(&self, node: NodeId, reason: Refusal) {
        let mut refusals = self.refusals.get();
        let often = refusals.note(node, reason);
        self.refusals.set(refusals);
        if let Some(times) = often {
            self.node.announcer.announce(ClusterEvent::Refused { node, reason, times });
        }
    }

    /// Waits before a closure is run again, the longer the more often it has failed. Returns
    /// whether it may be, before the deadline.
    pub(super) async fn pause(&self, runs: u32, deadline: Option<Time>) -> bool {
        let is_late = |now| deadline.is_some_and(|deadline| now >= deadline);
        if is_late(self.endpoint.now()) {
            return false;
        }
        // Two of two coroutines that fail each other must not go on in step: xorshift, by
        // Marsaglia.
        let mut random = self.random.get();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.set(random);
        let most = LONGEST_PAUSE.min(1 << runs.min(63));
        match random % most {
            0 => self.endpoint().yield_now().await,
            micros => {
                let until = self.endpoint.now() + Duration::from_micros(micros);
                self.endpoint.sleep_until(deadline.map_or(until, |deadline| deadline.min(until))).await;
            }
        }
        !is_late(self.endpoint.now())
    }

    pub(super) fn protocol(&self) -> &Protocol {
        &self.node.protocol
    }

    /// Returns what is remembered of a node that was met.
    pub(super) fn met(&self, node: NodeId) -> Option<Met> {
        self.met.borrow().get(usize::from(node.0))?.clone()
    }

    /// Returns the memory of a node that was met.
    pub(super) fn peer(&self, node: NodeId) -> Option<Rc<Peer>> {
        self.met.borrow().get(usize::from(node.0))?.as_ref().map(|met| Rc::clone(&met.peer))
    }

    pub(super) fn rpc(&self, phase: Phase) -> Rpc<'e, F::Port> {
        self.rpc.during(phase)
    }

    pub(super) fn participant(&self) -> RefMut<'_, Participant<S>> {
        // What it is asked to lock may be leased.
        self.publish_time();
        self.participant.borrow_mut()
    }

    pub(super) fn table_name(&self, table: u16) -> &'static str {
        let home = &self.node.home;
        let served = home.tables.get(usize::from(table));
        served.and_then(|served| home.db.catalog.get(served.number)).map_or("", |opened| opened.name.get())
    }

    /// Returns the indexes of a table.
    pub(super) fn indexes_of(&self, table: u16) -> &[Box<dyn IndexInfo>] {
        self.node.home.tables.get(usize::from(table)).map_or(&[], |served| &served.indexes)
    }

    /// Returns the index whose entries are in a table. `None` if it has none.
    pub(super) fn index(&self, entries: u16) -> Option<&dyn IndexInfo> {
        let (table, place) = self.node.home.tables.get(usize::from(entries))?.is_index_of?;
        Some(&**self.indexes_of(table).get(place)?)
    }

    /// Returns the bytes of a table's key that packs into a word.
    pub(super) fn key_size(&self, table: u16) -> usize {
        self.node.home.tables.get(usize::from(table)).map_or(0, |served| served.key_size)
    }

    /// Orders a transaction's locks on this node before the validation of what it has read.
    pub(super) fn fence(&self) {
        fence_locked();
    }
}
