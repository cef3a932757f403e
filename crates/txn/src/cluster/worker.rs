//! A worker: the transactions of one thread's coroutines, and what it does for other nodes.

use std::{
    cell::{Cell, RefCell, RefMut},
    collections::VecDeque,
    convert::Infallible,
    fmt,
    future::poll_fn,
    rc::Rc,
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};

use drtm_htm::fence_locked;
use drtm_kv::Holder;
use drtm_rdma::{
    Endpoint, Fabric, Incarnation, NodeId, Phase, Spawner,
    rpc::{self, Answered, Incoming, Procedure, Refused, Rpc},
};

use super::{
    ClusterError, ClusterTx, Protocol,
    node::{Shared, VERSION},
    participant::Participant,
    peers::Peer,
    round::{Ask, cost},
    state::State,
    wire::{Apply, Before, Check, Guard, Hello, Introduce, Line, Lock, Place, Read, Reap, Refusal, Unlock},
};
use crate::{Conflict, Embedded, Error, Setting, storage::KeyRef};

/// How many transactions of a worker locks can tell apart.
const SLOTS: u16 = 256;

/// After how many runs a closure's rows are locked before it is run again.
const CLAIM_AFTER: u32 = 4;

/// The longest pause between two runs of a closure, in microseconds.
const LONGEST_PAUSE: u64 = 1 << 10;

/// One thread's way to begin transactions, and to serve those of others: of a
/// [node](super::Node), for the coroutines of one endpoint. Clones are the same worker.
///
/// # Example
///
/// See [`Node`](super::Node).
pub struct Worker<'e, F: Fabric, S: Setting<Engine = F::Engine> = Embedded> {
    inner: Rc<Inner<'e, F, S>>,
}

struct Inner<'e, F: Fabric, S: Setting> {
    node: Arc<Shared<F, S>>,
    endpoint: &'e Endpoint<F::Port>,
    rpc: Rpc<'e, F::Port>,
    participant: RefCell<Participant<S>>,
    /// The name of the first slot.
    holder: Holder,
    /// States that no transaction uses, each of a slot of its own.
    #[expect(clippy::vec_box, reason = "they go in and out with each transaction, and are large")]
    idle: RefCell<Vec<Box<State<'e, F::Port>>>>,
    /// How many states there are.
    states: Cell<u16>,
    /// States of transactions that were dropped before their end.
    abandoned: RefCell<VecDeque<Box<State<'e, F::Port>>>>,
    /// How many of these are not finished.
    unfinished: Cell<usize>,
    janitor: Cell<Option<Waker>>,
    /// Nodes that this one has introduced itself to.
    greeted: RefCell<Vec<(NodeId, Incarnation)>>,
    /// Their memory, where the protocol reaches into it.
    peers: RefCell<Vec<Option<Rc<Peer>>>>,
    random: Cell<u64>,
    /// How often closures were run again, by cause.
    conflicts: Cell<[u64; Conflict::ALL.len()]>,
}

impl<'e, F: Fabric, S: Setting<Engine = F::Engine>> Worker<'e, F, S> {
    pub(super) fn new(node: Arc<Shared<F, S>>, endpoint: &'e Endpoint<F::Port>, participant: Participant<S>) -> Self {
        let holder = participant.holder();
        let inner = Inner {
            node,
            endpoint,
            rpc: Rpc::new(endpoint.during(Phase::Other)),
            participant: RefCell::new(participant),
            holder,
            idle: RefCell::default(),
            states: Cell::new(0),
            abandoned: RefCell::default(),
            unfinished: Cell::new(0),
            janitor: Cell::new(None),
            greeted: RefCell::default(),
            peers: RefCell::default(),
            random: Cell::new(holder.to_word()),
            conflicts: Cell::default(),
        };
        Self { inner: Rc::new(inner) }
    }

    /// The endpoint whose coroutines it is for.
    #[must_use]
    pub fn endpoint(&self) -> &'e Endpoint<F::Port> {
        self.inner.endpoint
    }

    /// The worker's node.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.inner.node.node
    }

    /// The nodes that own rows.
    #[must_use]
    pub fn owners(&self) -> &[NodeId] {
        &self.inner.node.owners
    }

    /// Serves the transactions of other nodes, and ends those of its own that were dropped, beside
    /// the other coroutines of an executor.
    pub fn serve(&self, spawner: &Spawner<'e, F::Port>)
    where
        F: 'e,
        S: 'e,
    {
        let (server, janitor) = (self.clone(), self.clone());
        // An executor that has ended runs no transactions either.
        let _ = spawner.serve(async move { server.answer().await });
        let _ = spawner.serve(async move { janitor.finish_abandoned().await });
    }

    /// Waits until all transactions that were dropped have been ended: their locks are free then.
    pub async fn settle(&self) {
        self.endpoint().until(|| self.inner.unfinished.get() == 0).await;
    }

    /// Runs `body` in a serializable transaction, retrying on conflict. Its writes become visible
    /// atomically. Gives the body's result.
    ///
    /// A transaction that conflicts with others again and again locks the rows of its last run
    /// before it runs once more, in one order for all transactions, so that it succeeds.
    ///
    /// If the body fails, nothing has happened, and its error is given. What a body must not do is
    /// said at [`Db::transact`](crate::Db::transact).
    ///
    /// A future that is dropped gives the transaction up, unless it has been decided: then it is
    /// carried out. The worker sees to that, as long as it [serves](Self::serve).
    ///
    /// # Errors
    ///
    /// The body's; [`ClusterError`] where an owner cannot be asked, refuses, or fails.
    ///
    /// # Example
    ///
    /// See [`Node`](super::Node).
    pub async fn transact<T>(
        &self,
        mut body: impl AsyncFnMut(&mut ClusterTx<'e, F, S>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut runs = 0;
        let mut tx = self.begin().await;
        loop {
            let ended = match tx.claim().await {
                Ok(()) => body(&mut tx).await,
                Err(error) => Err(error),
            };
            let ended = match ended {
                Ok(value) => tx.try_commit().await.map(|()| value),
                Err(error @ Error::Conflict(_)) => {
                    tx.give_up().await;
                    Err(error)
                }
                // What it has seen may never have been there.
                Err(error) => Err(tx.validate().await.err().unwrap_or(error)),
            };
            match ended {
                Err(Error::Conflict(cause)) => {
                    runs += 1;
                    self.count(cause);
                    self.pause(runs).await;
                    tx.run_again(runs >= CLAIM_AFTER);
                }
                ended => return ended,
            }
        }
    }

    /// Begins a transaction.
    pub async fn begin(&self) -> ClusterTx<'e, F, S> {
        let state = self.state().await;
        ClusterTx::new(self.clone(), state)
    }

    /// A state, with a slot of its own.
    async fn state(&self) -> Box<State<'e, F::Port>> {
        let inner = &*self.inner;
        let is_there = || !inner.idle.borrow().is_empty() || inner.states.get() < SLOTS;
        if !is_there() {
            self.endpoint().until(is_there).await;
        }
        let idle = inner.idle.borrow_mut().pop();
        idle.unwrap_or_else(|| {
            let slot = inner.states.get();
            inner.states.set(slot + 1);
            Box::new(State::new(inner.holder.in_slot(slot as u8)))
        })
    }

    /// Takes back the state of a transaction that has ended: no request of it is under way, and it
    /// holds no lock.
    pub(super) fn recycle(&self, mut state: Box<State<'e, F::Port>>) {
        state.clear();
        self.inner.idle.borrow_mut().push(state);
    }

    /// Takes the state of a transaction that was dropped before its end.
    pub(super) fn abandon(&self, state: Box<State<'e, F::Port>>) {
        let inner = &*self.inner;
        inner.unfinished.set(inner.unfinished.get() + 1);
        inner.abandoned.borrow_mut().push_back(state);
        if let Some(waker) = inner.janitor.take() {
            waker.wake();
        }
    }

    /// Waits until no transaction of this worker is running.
    pub(super) async fn drained(&self) {
        let inner = &*self.inner;
        self.endpoint().until(|| inner.idle.borrow().len() == usize::from(inner.states.get())).await;
    }

    /// Ends abandoned transactions, for ever.
    async fn finish_abandoned(&self) -> Infallible {
        let inner = &*self.inner;
        loop {
            let next = poll_fn(|context| match inner.abandoned.borrow_mut().pop_front() {
                Some(state) => Poll::Ready(state),
                None => {
                    inner.janitor.set(Some(context.waker().clone()));
                    Poll::Pending
                }
            });
            let state = next.await;
            // A failure is told to nobody: the future that could tell it was dropped.
            let _ = ClusterTx::new(self.clone(), state).finish(true).await;
            inner.unfinished.set(inner.unfinished.get() - 1);
        }
    }

    /// How often [`transact`](Self::transact) has run a closure again for this cause.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{LocalConfig, LocalFabric, NodeId};
    /// use drtm_txn::{Builder, Conflict, Error, Setting, cluster::Node};
    ///
    /// #[derive(Debug)]
    /// struct Plain;
    ///
    /// impl Setting for Plain {
    ///     type Engine = NoHtm;
    /// }
    ///
    /// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
    /// let builder = Builder::new().memory(16 << 20);
    /// let node = Node::<_, Plain>::builder(NoHtm, &fabric, NodeId(0), builder)?.owners([NodeId(0)])?.start()?;
    /// let endpoint = node.endpoint()?;
    /// assert_eq!(node.worker(&endpoint)?.conflicts(Conflict::Locked), 0);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn conflicts(&self, cause: Conflict) -> u64 {
        self.inner.conflicts.get()[cause.index()]
    }

    fn count(&self, cause: Conflict) {
        let mut conflicts = self.inner.conflicts.get();
        conflicts[cause.index()] += 1;
        self.inner.conflicts.set(conflicts);
    }

    /// Waits before a closure is run again, the longer the more often it has failed.
    async fn pause(&self, runs: u32) {
        // Two of two coroutines that fail each other must not go on in step: xorshift, by Marsaglia.
        let mut random = self.inner.random.get();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.inner.random.set(random);
        let most = LONGEST_PAUSE.min(1 << runs.min(63));
        match random % most {
            0 => self.endpoint().yield_now().await,
            micros => self.endpoint().sleep(Duration::from_micros(micros)).await,
        }
    }

    pub(super) fn protocol(&self) -> &Protocol {
        &self.inner.node.protocol
    }

    /// The memory of a node that was greeted.
    pub(super) fn peer(&self, node: NodeId) -> Option<Rc<Peer>> {
        self.inner.peers.borrow().get(usize::from(node.0)).cloned().flatten()
    }

    pub(super) fn rpc(&self, phase: Phase) -> Rpc<'e, F::Port> {
        self.inner.rpc.during(phase)
    }

    pub(super) fn participant(&self) -> RefMut<'_, Participant<S>> {
        self.inner.participant.borrow_mut()
    }

    pub(super) fn table_name(&self, table: u16) -> &'static str {
        let home = &self.inner.node.home;
        let served = home.tables.get(usize::from(table));
        served.and_then(|served| home.db.catalog.get(served.number)).map_or("", |opened| opened.name.get())
    }

    /// Introduces this node to another one, unless it has done so.
    pub(super) async fn greet(&self, node: NodeId) -> Result<(), Error> {
        let here = self.endpoint().presence(node).here();
        let known = self.inner.greeted.borrow().iter().find(|(greeted, _)| *greeted == node).map(|(_, known)| *known);
        if known.is_some() && known == here {
            return Ok(());
        }
        let unreachable = |source: rpc::RpcError| Error::from(ClusterError::Unreachable { node, source });
        if known.is_some() && here.is_some() {
            // It has come back, with another memory.
            self.endpoint().reconnect(node).map_err(|error| unreachable(error.into()))?;
        }
        let Shared { described, protocol, home, cache, .. } = &*self.inner.node;
        let (engine, borrows) = (self.inner.node.engine_name(), std::marker::PhantomData);
        let hello = Hello { version: VERSION, engine, protocol: protocol.name, tables: described, borrows };
        let welcome = self.inner.rpc.call::<Introduce>(node, &hello, None).await.map_err(unreachable)?;
        let peer = match welcome.get() {
            Ok(welcome) => {
                let verbs = self.endpoint().during(Phase::Other);
                let are_words =
                    |table: usize| home.tables.get(table).is_some_and(|table| table.storage.takes(KeyRef::Word(0)));
                Peer::open(verbs, node, &welcome, are_words, cache.as_ref()).await?
            }
            Err(error) if error.refused() == Some(Refusal::Other as u32) => {
                return Err(ClusterError::Refused { node, reason: Refusal::Other }.into());
            }
            Err(error) => return Err(unreachable(error)),
        };
        let mut peers = self.inner.peers.borrow_mut();
        let length = peers.len().max(usize::from(node.0) + 1);
        peers.resize(length, None);
        peers[usize::from(node.0)] = Some(Rc::new(peer));
        drop(peers);
        if let Some(here) = here {
            let mut greeted = self.inner.greeted.borrow_mut();
            greeted.retain(|(known, _)| *known != node);
            greeted.push((node, here));
        }
        Ok(())
    }

    /// Answers other nodes, for ever.
    async fn answer(&self) -> Infallible {
        let verbs = self.endpoint().during(Phase::Other);
        rpc::serve(verbs, &self.inner.node.once, |call| self.dispatch(call)).await
    }

    /// Carries out one request of another node.
    fn dispatch(&self, call: Incoming<'_>) -> Answered {
        let mut participant = self.participant();
        let owner = &mut *participant;
        let charge = |ask| self.endpoint().charge(cost(ask));
        let refused = |refusal: Refusal| Refused(refusal as u32);
        match call.procedure() {
            Introduce::NUMBER => call.answer::<Introduce>(|hello| {
                let node = &self.inner.node;
                let is_alike = (hello.version, hello.engine, hello.protocol, hello.tables)
                    == (VERSION, node.engine_name(), node.protocol.name, &*node.described);
                if is_alike { Ok(node.welcome()) } else { Err(refused(Refusal::Other)) }
            }),
            Read::NUMBER => call.answer::<Read>(|row| {
                charge(Ask::Read(0));
                owner.read(row.table, row.key, row.holder).map_err(refused)
            }),
            Place::NUMBER => call.answer::<Place>(|row| {
                charge(Ask::Place(0));
                owner.place(row.table, row.key, row.value).map_err(refused)
            }),
            Lock::NUMBER => call.answer::<Lock>(|row| {
                charge(Ask::Lock(0));
                let locked = owner.lock(row.table, row.key, (row.at, row.seen), row.holder, row.length);
                locked.map(Before).map_err(refused)
            }),
            Line::NUMBER => call.answer::<Line>(|()| {
                charge(Ask::Line(0));
                owner.line().map_err(refused)
            }),
            Check::NUMBER => call.answer::<Check>(|row| {
                charge(Ask::Check(0));
                Ok(owner.check(row.at, row.seen, row.holder))
            }),
            Guard::NUMBER => call.answer::<Guard>(|guard| {
                charge(Ask::Guard(0));
                Ok(owner.guard(guard.0))
            }),
            Apply::NUMBER => call.answer::<Apply>(|row| {
                charge(Ask::Apply(0));
                owner.apply(row.table, row.key, row.at, row.holder, (row.epoch, row.change)).map_err(refused)
            }),
            Unlock::NUMBER => call.answer::<Unlock>(|row| {
                charge(Ask::Unlock(0));
                owner.unlock(row.at, row.holder);
                Ok(())
            }),
            Reap::NUMBER => call.answer::<Reap>(|row| {
                charge(Ask::Reap(0));
                owner.reap(row.table, row.key, row.at, row.seen).map_err(refused)
            }),
            _ => call.unknown(),
        }
    }

    /// After the locks of this node, and before it looks at what it has read.
    pub(super) fn fence(&self) {
        fence_locked();
    }
}

impl<F: Fabric, S: Setting<Engine = F::Engine>> Clone for Worker<'_, F, S> {
    fn clone(&self) -> Self {
        Self { inner: Rc::clone(&self.inner) }
    }
}

impl<F: Fabric, S: Setting<Engine = F::Engine>> fmt::Debug for Worker<'_, F, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (node, states) = (self.id(), self.inner.states.get());
        f.debug_struct("Worker").field("node", &node).field("states", &states).finish_non_exhaustive()
    }
}
