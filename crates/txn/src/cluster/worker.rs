//! A worker: the transactions of one thread's coroutines, and what it does for other nodes.

use std::{convert::Infallible, fmt, future::poll_fn, pin::pin, rc::Rc, sync::Arc, task::Poll, time::Duration};

use drtm_rdma::{Cost, Endpoint, Fabric, NodeId, Phase, Spawner, Time, rpc};

use super::{
    ClusterError, ClusterStats, ClusterStatus, ClusterTime, ClusterTx, Protocol, coordinator::Coordinator,
    participant::Participant, shared::Shared,
};
use crate::{Config, Conflict, Db, DefaultConfig, Error, Options, mutation::Mutation};

/// After how many runs a closure's rows are locked before it is run again.
pub(super) const CLAIM_AFTER: u32 = 4;

/// How soon an owner is asked again to free locks, where it could not be.
pub(super) const FREED_AFTER: Duration = Duration::from_millis(1);

/// How soon a backup looks for records again that has found none, in microseconds, and how often
/// that doubles.
const APPLY_AFTER: u64 = 8;
const MOST_IDLE: u32 = 7;

/// One thread's way to begin transactions, and to serve those of others: of a
/// [node](super::Node), for the coroutines of one endpoint. Clones are the same worker.
///
/// # Example
///
/// See [`Node`](super::Node).
pub struct Worker<'e, F: Fabric, S: Config<Engine = F::Engine> = DefaultConfig> {
    pub(super) inner: Rc<Coordinator<'e, F, S>>,
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Worker<'e, F, S> {
    pub(super) fn new(node: Arc<Shared<F, S>>, endpoint: &'e Endpoint<F::Port>, participant: Participant<S>) -> Self {
        let inner = Coordinator::new(node, endpoint, participant);
        Self { inner: Rc::new(inner) }
    }

    /// Returns the endpoint whose coroutines it is for.
    #[must_use]
    pub fn endpoint(&self) -> &'e Endpoint<F::Port> {
        self.inner.endpoint()
    }

    /// Returns the worker's node.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.inner.id()
    }

    /// Returns the protocol of the cluster.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{
    ///     Builder, Config, Error,
    ///     cluster::{Node, Protocol},
    ///     htm::NoHtm,
    ///     rdma::{LocalConfig, LocalFabric, NodeId},
    /// };
    ///
    /// #[derive(Debug)]
    /// struct Plain;
    ///
    /// impl Config for Plain {
    ///     type Engine = NoHtm;
    /// }
    ///
    /// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
    /// let builder = Builder::new().memory(16 << 20);
    /// let node = Node::<_, Plain>::builder(NoHtm, &fabric, NodeId(0), builder)?.owners([NodeId(0)])?.start()?;
    /// let endpoint = node.endpoint()?;
    /// assert_eq!(node.worker(&endpoint)?.protocol(), Protocol::default());
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.inner.node.protocol
    }

    /// Returns the rows of this node alone, like [`Node::local`](super::Node::local).
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
        self.inner.serves.set(true);
        if self.inner.node.fabric.address_of(self.id()).is_some() {
            // Visitors reach it.
            let gatherer = self.clone();
            let _ = spawner.serve(async move { gatherer.inner.keep_gathering().await });
        }
        #[cfg(feature = "hades")]
        if self.inner.node.nic.is_some() {
            let sender = self.clone();
            let _ = spawner.serve(async move { sender.inner.send_squashes().await });
        }
        if self.inner.protocol().leases {
            let clock = self.clone();
            let _ = spawner.serve(async move { clock.inner.keep_time().await });
        }
        if self.inner.node.home.backup.is_some() {
            let freer = self.clone();
            let _ = spawner.serve(async move { freer.inner.free_the_dead().await });
        }
        if self.inner.node.cooperative.is_some() {
            let keeper = self.clone();
            let _ = spawner.serve(async move { keeper.inner.keep_recovering().await });
        }
        if self.inner.node.tenure.is_some() {
            let tenant = self.clone();
            let _ = spawner.serve(async move { tenant.inner.keep_lease().await });
        }
        if self.inner.node.membership.is_some() {
            let keeper = self.clone();
            let _ = spawner.serve(async move { keeper.inner.keep_view().await });
        }
        if self.inner.is_recorded() {
            let (sender, applier, learner) = (self.clone(), self.clone(), self.clone());
            let _ = spawner.serve(async move { sender.inner.tell_backups().await });
            let _ = spawner.serve(async move { applier.apply_logs().await });
            if self.inner.node.membership.is_some() {
                let _ = spawner.serve(async move { learner.inner.keep_learning().await });
            }
        }
    }

    /// Returns what this node sees of the cluster: its members, and what each shard has. Primaries
    /// count their rows for so long at the most; what they have not counted by then is `None`. Rows
    /// that are written meanwhile may be counted or not.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Evicted`](super::ClusterError::Evicted): another node knows.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use drtm::{
    ///     Builder, Config, Error,
    ///     cluster::{Node, ShardState},
    ///     htm::NoHtm,
    ///     rdma::{Executor, LocalConfig, LocalFabric, NodeId},
    /// };
    ///
    /// #[derive(Debug)]
    /// struct Plain;
    ///
    /// impl Config for Plain {
    ///     type Engine = NoHtm;
    /// }
    ///
    /// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
    /// let builder = Builder::new().memory(16 << 20);
    /// let node = Node::<_, Plain>::builder(NoHtm, &fabric, NodeId(0), builder)?.owners([NodeId(0)])?.start()?;
    /// let endpoint = node.endpoint()?;
    /// let worker = node.worker(&endpoint)?;
    /// let mut executor = Executor::new(&endpoint);
    /// executor.spawn(async move {
    ///     let status = worker.status(Duration::from_secs(1)).await.expect("it is a member");
    ///     assert!(status.shards.iter().all(|shard| shard.state == ShardState::Ok));
    /// });
    /// executor.run();
    /// # Ok::<(), Error>(())
    /// ```
    pub async fn status(&self, counted_within: Duration) -> Result<ClusterStatus, Error> {
        self.inner.status(counted_within).await
    }

    /// Waits until all transactions that were dropped, or could not free all they had locked, have
    /// been ended: their locks are free then. An owner that is suspected is waited for until it is
    /// met again or is gone.
    pub async fn settle(&self) {
        self.endpoint().until(|| self.inner.unfinished.get() == 0).await;
    }

    /// Waits until all backups have applied what transactions of this worker have written. They
    /// apply it anyway; after this, their replicas have it.
    ///
    /// # Errors
    ///
    /// [`ClusterError::LogFull`](super::ClusterError::LogFull) of a backup that makes no progress;
    /// or when one cannot be asked.
    ///
    /// # Example
    ///
    /// See [`NodeBuilder::backups`](super::NodeBuilder::backups).
    pub async fn catch_up(&self) -> Result<(), Error> {
        self.inner.catch_up().await
    }

    /// Applies what others have logged here, for ever.
    async fn apply_logs(&self) -> Infallible {
        let Some(backup) = &self.inner.node.home.backup else { return std::future::pending().await };
        let mut idle = 0;
        loop {
            let applied = match S::has(Mutation::LogsNotApplied) {
                true => 0,
                false => backup.apply_some(S::has(Mutation::UndecidedApplied), !S::has(Mutation::ReplicasNotLogged)),
            };
            for _ in 0..applied {
                self.endpoint().charge(Cost::Insert);
            }
            if applied > 0 {
                idle = 0;
                self.endpoint().yield_now().await;
            } else {
                // WRITEs wake no processor.
                self.endpoint().sleep(Duration::from_micros(APPLY_AFTER << idle)).await;
                idle = MOST_IDLE.min(idle + 1);
            }
        }
    }

    /// Runs `body` in a serializable transaction, retrying on conflict. Its writes become visible
    /// atomically. Gives the body's result.
    ///
    /// A transaction that conflicts with others again and again locks the rows of its last run
    /// before it runs once more, in one order for all transactions, so that it succeeds. It holds
    /// them for 100 ms at most. A body that is not done by then runs on without, and is validated
    /// like any other.
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
    pub fn transact<T>(
        &self,
        body: impl AsyncFnMut(&mut ClusterTx<'e, F, S>) -> Result<T, Error>,
    ) -> impl Future<Output = Result<T, Error>> {
        self.transact_with(Options::new(), body)
    }

    /// Like [`transact`](Self::transact), as these options say: how often `body` is run at most,
    /// and until when. A run that is under way 20 ms after the deadline is interrupted, whatever it
    /// waits for.
    ///
    /// Time is the fabric's: a [deadline](Options::deadline) is as far from now on its clock as it
    /// is on the machine's, and [`Options::within`] is time on its clock.
    ///
    /// # Errors
    ///
    /// [`Error::Contended`] when the options do not allow another run, which says what was in the
    /// way; [`ClusterError::Interrupted`](super::ClusterError::Interrupted), which says whether it
    /// can have happened; otherwise as for [`transact`](Self::transact).
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
        let Some(mut state) = self.inner.by(until, pin!(self.inner.state())).await else {
            return Err(ClusterError::Interrupted { waits_for: None, may_have_happened: false }.into());
        };
        let chosen = self.inner.choose(&mut state);
        let mut tx = ClusterTx::new(Rc::clone(&self.inner), state);
        tx.be_opaque(options.is_opaque);
        let ended = {
            let running = pin!(self.run_often(&mut tx, &mut body, (options, until)));
            self.inner.by(until, running).await
        };
        let Some(ended) = ended else { return Err(tx.state().interrupted().into()) };
        match &ended {
            Ok(_) => self.inner.learn(chosen),
            Err(Error::Cluster(ClusterError::Refused { node, reason })) => self.inner.note_refusal(*node, *reason),
            Err(_) => {}
        }
        ended
    }

    /// Runs a transaction, as often as the options allow.
    async fn run_often<T>(
        &self,
        tx: &mut ClusterTx<'e, F, S>,
        body: &mut impl AsyncFnMut(&mut ClusterTx<'e, F, S>) -> Result<T, Error>,
        (options, until): (Options, Option<Time>),
    ) -> Result<T, Error> {
        // In vain: altogether, and since claims were last of no use.
        let (mut runs, mut in_vain) = (0, 0);
        loop {
            let ended = match tx.claim(false, until).await {
                Ok(()) => tx.run(body, until).await,
                Err(error) => Err(error),
            };
            if tx.has_claimed_in_vain() {
                in_vain = 0;
            }
            let ended = match ended {
                Ok(value) => tx.try_commit().await.map(|()| value),
                Err(error @ Error::Conflict(_)) => Err(tx.give_up(error).await),
                // What it has seen may never have been there.
                Err(error) => Err(tx.validate().await.err().unwrap_or(error)),
            };
            let view = tx.state().view.number();
            match tx.until_next_view(view, ended, until).await {
                Err(Error::Conflict(conflict)) => {
                    (runs, in_vain) = (runs + 1, in_vain + 1);
                    self.inner.count(conflict);
                    if options.allows_no_more_than(runs) || !self.inner.pause(runs, until).await {
                        let (table, key) = tx.culprit();
                        return Err(Error::Contended { attempts: runs, conflict, table, key });
                    }
                    tx.run_again(in_vain >= CLAIM_AFTER && conflict != Conflict::View).await;
                }
                ended => return ended,
            }
        }
    }

    /// Returns what this worker's transactions did.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{
    ///     Builder, Config, Error,
    ///     cluster::{ClusterStats, Node},
    ///     htm::NoHtm,
    ///     rdma::{LocalConfig, LocalFabric, NodeId},
    /// };
    ///
    /// #[derive(Debug)]
    /// struct Plain;
    ///
    /// impl Config for Plain {
    ///     type Engine = NoHtm;
    /// }
    ///
    /// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
    /// let builder = Builder::new().memory(16 << 20);
    /// let node = Node::<_, Plain>::builder(NoHtm, &fabric, NodeId(0), builder)?.owners([NodeId(0)])?.start()?;
    /// let endpoint = node.endpoint()?;
    /// assert_eq!(node.worker(&endpoint)?.stats(), ClusterStats::default());
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> ClusterStats {
        self.inner.stats()
    }

    /// Returns the cluster's time, as exact as this node has measured it.
    ///
    /// # Errors
    ///
    /// [`ClusterError::ClockUncertain`](super::ClusterError::ClockUncertain),
    /// [`ClusterError::ClockWrong`](super::ClusterError::ClockWrong); or when the node cannot be
    /// asked whose clock is the cluster's.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{
    ///     Builder, Config, Error,
    ///     cluster::Node,
    ///     htm::NoHtm,
    ///     rdma::{LocalConfig, LocalFabric, NodeId, block_on},
    /// };
    ///
    /// #[derive(Debug)]
    /// struct Plain;
    ///
    /// impl Config for Plain {
    ///     type Engine = NoHtm;
    /// }
    ///
    /// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
    /// let builder = Builder::new().memory(16 << 20);
    /// let node = Node::<_, Plain>::builder(NoHtm, &fabric, NodeId(0), builder)?.owners([NodeId(0)])?.start()?;
    /// let endpoint = node.endpoint()?;
    /// let worker = node.worker(&endpoint)?;
    /// // The first owner's clock is the cluster's.
    /// let time = block_on(&endpoint, worker.time())?;
    /// assert!(time.uncertainty().is_zero());
    /// # Ok::<(), Error>(())
    /// ```
    pub async fn time(&self) -> Result<ClusterTime, Error> {
        self.inner.time().await
    }

    /// Counts that a closure is run again.
    pub(super) fn count(&self, cause: Conflict) {
        self.inner.count(cause);
    }

    /// Waits before a closure is run again.
    pub(super) async fn pause(&self, runs: u32) {
        self.inner.pause(runs, None).await;
    }

    /// Announces what happens to other nodes, for ever.
    pub(super) async fn announce_nodes(&self) -> Infallible {
        self.inner.announce_nodes().await
    }

    /// Begins a transaction.
    pub async fn begin(&self) -> ClusterTx<'e, F, S> {
        let mut state = self.inner.state().await;
        // Its end is not seen here.
        let _ = self.inner.choose(&mut state);
        ClusterTx::new(Rc::clone(&self.inner), state)
    }

    /// Closes the node, and leaves its fabric: waits until what other nodes have begun here, and
    /// this worker, is carried out or given up. New transactions of others are refused meanwhile
    /// with [`Refusal::Closed`](super::Refusal::Closed).
    ///
    /// It serves others until then, so the worker must [serve](Self::serve). The program begins no
    /// other transactions. Other workers of the node are to have ended theirs. A
    /// [`Cluster`](super::Cluster) does all this when it is closed.
    ///
    /// It goes through all rows of the node, to find those that are locked.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Unfinished`](super::ClusterError::Unfinished) if something is left after
    /// this time, and [`ClusterError::CutOff`](super::ClusterError::CutOff) if that is a
    /// transaction of this worker; or when the node's log fails. It has left all the same.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use drtm::{
    ///     Builder, Config, Error,
    ///     cluster::Node,
    ///     htm::NoHtm,
    ///     rdma::{Fabric, Incarnation, LocalConfig, LocalFabric, NodeId, Presence, block_on},
    /// };
    ///
    /// #[derive(Debug)]
    /// struct Plain;
    ///
    /// impl Config for Plain {
    ///     type Engine = NoHtm;
    /// }
    ///
    /// let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
    /// let builder = Builder::new().memory(16 << 20);
    /// let node = Node::<_, Plain>::builder(NoHtm, &fabric, NodeId(0), builder)?.owners([NodeId(0)])?.start()?;
    /// let endpoint = node.endpoint()?;
    /// let worker = node.worker(&endpoint)?;
    /// block_on(&endpoint, worker.close(Duration::from_secs(10)))?;
    /// let other = fabric.endpoint(NodeId(1)).expect("room");
    /// assert_eq!(other.presence(NodeId(0)), Presence::Left(Incarnation(1)));
    /// # Ok::<(), Error>(())
    /// ```
    pub async fn close(&self, within: Duration) -> Result<(), Error> {
        let until = self.endpoint().now() + within;
        let drained = self.endpoint().before(until, self.drained()).await.map_err(|_| ClusterError::CutOff.into());
        let closed = self.close_for_others(until).await;
        self.inner.node.leave();
        drained.and(closed)
    }

    /// Waits until what others have begun at this node is carried out or given up. The node is
    /// still here then.
    pub(super) async fn close_for_others(&self, until: Time) -> Result<(), Error> {
        self.inner.close(until).await
    }

    /// Waits until no transaction of this worker is running, and has told backups of the last ones.
    /// Does not wait for owners to be met again. Their locks are those of a node that has left.
    pub(super) async fn drained(&self) {
        self.ended().await;
        self.inner.tell_last().await;
    }

    /// Waits until no transaction of this worker is running.
    pub(super) async fn ended(&self) {
        let inner = &*self.inner;
        let owing = || inner.abandoned.borrow().iter().filter(|state| state.owes).count();
        self.endpoint().until(|| inner.idle.borrow().len() + owing() == usize::from(inner.states.get())).await;
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
            let mut tx = ClusterTx::new(Rc::clone(&self.inner), next.await);
            // The future that could report a failure was dropped.
            let _ = tx.finish(true).await;
            let owes = tx.state().owes;
            // Where it still holds locks, it comes back as one that was dropped.
            drop(tx);
            inner.unfinished.set(inner.unfinished.get() - 1);
            if owes {
                self.endpoint().sleep(FREED_AFTER).await;
            }
        }
    }

    /// Answers other nodes, for ever.
    async fn answer(&self) -> Infallible {
        let verbs = self.endpoint().during(Phase::Other);
        rpc::serve_tagged(verbs, |call| self.inner.serve(call), |tag| self.inner.tag_for(tag)).await
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Clone for Worker<'_, F, S> {
    fn clone(&self) -> Self {
        Self { inner: Rc::clone(&self.inner) }
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> fmt::Debug for Worker<'_, F, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (node, states) = (self.id(), self.inner.states.get());
        f.debug_struct("Worker").field("node", &node).field("states", &states).finish_non_exhaustive()
    }
}
