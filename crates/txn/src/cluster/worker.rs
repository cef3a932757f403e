//! A worker: the transactions of one thread's coroutines, and what it does for other nodes.

use std::{convert::Infallible, fmt, future::poll_fn, rc::Rc, sync::Arc, task::Poll};

use drtm_rdma::{
    Endpoint, Fabric, NodeId, Phase, Spawner,
    rpc::{self, Answered, Incoming, Procedure, Refused},
};

use super::{
    ClusterTx,
    ask::{Ask, cost},
    coordinator::Coordinator,
    participant::Participant,
    shared::{Shared, VERSION},
    wire::{Apply, Before, Check, Guard, Introduce, Line, Lock, Place, Read, Reap, Refusal, Scan, Unlock},
};
use crate::{Conflict, Db, Embedded, Error, Options, Setting, position::Way};

/// After how many runs a closure's rows are locked before it is run again.
const CLAIM_AFTER: u32 = 4;

/// One thread's way to begin transactions, and to serve those of others: of a
/// [node](super::Node), for the coroutines of one endpoint. Clones are the same worker.
///
/// # Example
///
/// See [`Node`](super::Node).
pub struct Worker<'e, F: Fabric, S: Setting<Engine = F::Engine> = Embedded> {
    inner: Rc<Coordinator<'e, F, S>>,
}

impl<'e, F: Fabric, S: Setting<Engine = F::Engine>> Worker<'e, F, S> {
    pub(super) fn new(node: Arc<Shared<F, S>>, endpoint: &'e Endpoint<F::Port>, participant: Participant<S>) -> Self {
        let inner = Coordinator::new(node, endpoint, participant);
        Self { inner: Rc::new(inner) }
    }

    /// The endpoint whose coroutines it is for.
    #[must_use]
    pub fn endpoint(&self) -> &'e Endpoint<F::Port> {
        self.inner.endpoint()
    }

    /// The worker's node.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.inner.id()
    }

    /// The nodes that own rows.
    #[must_use]
    pub fn owners(&self) -> &[NodeId] {
        self.inner.owners()
    }

    /// The rows of this node alone, as [`Node::local`](super::Node::local) gives them.
    #[must_use]
    pub fn local(&self) -> &Db<S> {
        &self.inner.node.db
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
    /// The body's; [`ClusterError`](super::ClusterError) where an owner cannot be asked, refuses,
    /// or fails.
    ///
    /// # Example
    ///
    /// See [`Node`](super::Node).
    pub async fn transact<T>(
        &self,
        body: impl AsyncFnMut(&mut ClusterTx<'e, F, S>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.transact_with(Options::new(), body).await
    }

    /// Like [`transact`](Self::transact), as these options say: how often `body` is run at most,
    /// and until when. A run is not interrupted, and waits in it are bounded by themselves.
    ///
    /// Time is the fabric's: a [deadline](Options::deadline) is as far from now on its clock as it
    /// is on the machine's, and [`Options::within`] is time on its clock.
    ///
    /// # Errors
    ///
    /// [`Error::Contended`] when the options do not allow another run, which says what was in the
    /// way; otherwise as for [`transact`](Self::transact).
    ///
    /// # Example
    ///
    /// See [`Cluster::transact_with`](super::Cluster::transact_with).
    pub async fn transact_with<T>(
        &self,
        options: Options,
        mut body: impl AsyncFnMut(&mut ClusterTx<'e, F, S>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let until = options.time_left().map(|left| self.endpoint().now() + left);
        let mut runs = 0;
        let mut tx = self.begin().await;
        tx.be_opaque(options.is_opaque);
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
                Err(Error::Conflict(conflict)) => {
                    runs += 1;
                    self.inner.count(conflict);
                    if options.allows_no_more_than(runs) || until.is_some_and(|until| self.endpoint().now() >= until) {
                        let (table, key) = tx.culprit();
                        return Err(Error::Contended { attempts: runs, conflict, table, key });
                    }
                    self.inner.pause(runs).await;
                    tx.run_again(runs >= CLAIM_AFTER);
                }
                ended => return ended,
            }
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

    /// Begins a transaction.
    pub async fn begin(&self) -> ClusterTx<'e, F, S> {
        let state = self.inner.state().await;
        ClusterTx::new(Rc::clone(&self.inner), state)
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
            // The future that could report a failure was dropped.
            let _ = ClusterTx::new(Rc::clone(&self.inner), state).finish(true).await;
            inner.unfinished.set(inner.unfinished.get() - 1);
        }
    }

    /// Answers other nodes, for ever.
    async fn answer(&self) -> Infallible {
        let verbs = self.endpoint().during(Phase::Other);
        rpc::serve(verbs, &self.inner.node.once, |call| self.dispatch(call)).await
    }

    /// Carries out one request of another node.
    fn dispatch(&self, call: Incoming<'_>) -> Answered {
        let mut participant = self.inner.participant();
        let owner = &mut *participant;
        let charge = |ask| self.endpoint().charge(cost(ask));
        let refused = |refusal: Refusal| Refused(refusal as u32);
        let is_dead = |holder| self.inner.is_dead(holder);
        match call.procedure() {
            Introduce::NUMBER => call.answer::<Introduce>(|hello| {
                let node = &self.inner.node;
                let is_alike = (hello.version, hello.engine, hello.protocol, hello.tables)
                    == (VERSION, node.engine_name(), node.protocol.name, &*node.described);
                if is_alike { Ok(node.welcome()) } else { Err(refused(Refusal::Other)) }
            }),
            Read::NUMBER => call.answer::<Read>(|row| {
                charge(Ask::Read(0));
                owner.read(row.table, row.key, row.holder, is_dead).map_err(refused)
            }),
            Scan::NUMBER => call.answer::<Scan>(|rows| {
                charge(Ask::Scan(0));
                // What a message has beside rows: leaves, most of all.
                let most = self.endpoint().capabilities().max_message_bytes / 2;
                let way = if rows.is_back { Way::Down } else { Way::Up };
                let range = (rows.low, rows.high, way);
                owner.scan(rows.table, range, rows.holder, (rows.most, most), is_dead).map_err(refused)
            }),
            Place::NUMBER => call.answer::<Place>(|row| {
                charge(Ask::Place(0));
                owner.place(row.table, row.key, row.value, is_dead).map_err(refused)
            }),
            Lock::NUMBER => call.answer::<Lock>(|row| {
                charge(Ask::Lock(0));
                let locked = owner.lock(row.table, row.key, (row.at, row.seen), row.holder, row.length, is_dead);
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
