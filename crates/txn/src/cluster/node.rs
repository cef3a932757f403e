//! A node: its rows, and what it knows of the cluster.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering::Acquire},
    time::Duration,
};

use drtm_rdma::{Endpoint, Fabric, Incarnation, NodeId, RegionId};

use super::{
    ClusterError, OwnedRow, View, Worker,
    events::Announcer,
    log::{Backup, rows_of},
    participant::Participant,
    shared::Shared,
    view::{Placement, store_of},
};
use crate::{Config, Db, DefaultConfig, Error};

/// A node of a cluster. Clones are the same node, and any thread may have them.
///
/// Nodes are alike: each begins transactions, and those that
/// [own](crate::cluster::NodeBuilder::owners) rows serve the transactions of all. Threads of a node
/// have [workers](Self::worker).
///
/// # Example
///
/// ```
/// use drtm::{
///     Builder, Config, Error, Pod, TableDef, Transaction,
///     cluster::{Node, Partition},
///     htm::NoHtm,
///     rdma::{Executor, Fabric, LocalConfig, LocalFabric, NodeId},
/// };
///
/// #[derive(Debug)]
/// struct Plain;
///
/// impl Config for Plain {
///     type Engine = NoHtm;
/// }
///
/// const ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("accounts");
///
/// // Two nodes of one process. Each divides accounts by their number.
/// let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
/// let start = |node| {
///     let builder = Builder::new().memory(16 << 20);
///     let mut node = Node::<_, Plain>::builder(NoHtm, &fabric, node, builder)?.owners([NodeId(0), NodeId(1)])?;
///     let accounts = node.table(ACCOUNTS, Partition::by("number", |number| *number))?;
///     Ok::<_, Error>((node.start()?, accounts))
/// };
/// let (here, accounts) = start(NodeId(0))?;
/// let (there, _) = start(NodeId(1))?;
///
/// // One thread serves the second node.
/// let done = &std::sync::atomic::AtomicBool::new(false);
/// std::thread::scope(|scope| {
///     scope.spawn(move || {
///         let endpoint = there.endpoint()?;
///         let mut executor = Executor::new(&endpoint);
///         there.worker(&endpoint)?.serve(&executor.spawner());
///         executor.spawn(endpoint.until(|| done.load(std::sync::atomic::Ordering::Acquire)));
///         executor.run();
///         Ok::<_, Error>(())
///     });
///
///     // The other begins a transaction on rows of both.
///     let endpoint = here.endpoint()?;
///     let worker = here.worker(&endpoint)?;
///     let mut executor = Executor::new(&endpoint);
///     worker.serve(&executor.spawner());
///     executor.spawn(async move {
///         let paid = worker.transact(async |tx| {
///             tx.put(accounts, 1, &100).await?;
///             tx.put(accounts, 2, &0).await?;
///             tx.update(accounts, 1, |balance| *balance -= 30).await?;
///             tx.update(accounts, 2, |balance| *balance += 30).await
///         });
///         paid.await.expect("both are here");
///         let all = worker.transact(async |tx| tx.get_many(accounts, [1, 2, 3]).await).await.expect("both are here");
///         assert_eq!(all, [Some(70), Some(30), None]);
///     });
///     executor.run();
///     done.store(true, std::sync::atomic::Ordering::Release);
///     Ok::<_, Error>(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
pub struct Node<F: Fabric, S: Config<Engine = F::Engine> = DefaultConfig> {
    shared: Arc<Shared<F, S>>,
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Node<F, S> {
    pub(super) fn new(shared: Shared<F, S>) -> Self {
        Self { shared: Arc::new(shared) }
    }

    /// Returns what all handles of the node share.
    #[cfg(feature = "chopping")]
    pub(super) fn shared(&self) -> &Shared<F, S> {
        &self.shared
    }

    /// Returns whether a worker is one of this node's.
    #[cfg(feature = "chopping")]
    pub(super) fn is_of(&self, worker: &Worker<'_, F, S>) -> bool {
        Arc::ptr_eq(&self.shared, &worker.inner.node)
    }

    /// Returns which node this is.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.shared.node
    }

    /// Returns which of the node's lives this is.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{cluster::Cluster, rdma::Incarnation};
    ///
    /// let nodes = Cluster::builder().start()?;
    /// assert_eq!(nodes[0].node().incarnation(), Incarnation(1));
    /// # Ok::<(), drtm::Error>(())
    /// ```
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.shared.incarnation
    }

    /// Returns the view that the node is in.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        self.shared.view.view()
    }

    /// Installs a view if it is newer than the node's, and returns whether it is. Nodes that
    /// meet this one get it from there. For tests: no rows are moved, and no node is told.
    ///
    /// # Errors
    ///
    /// [`ClusterError::BadView`] if it has another number of shards.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{LocalConfig, LocalFabric, NodeId};
    /// use drtm_txn::{Builder, Config, Error, cluster::Node};
    ///
    /// #[derive(Debug)]
    /// struct Plain;
    ///
    /// impl Config for Plain {
    ///     type Engine = NoHtm;
    /// }
    ///
    /// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
    /// let builder = Node::<_, Plain>::builder(NoHtm, &fabric, NodeId(0), Builder::new().memory(16 << 20))?;
    /// let node = builder.owners([NodeId(0)])?.start()?;
    /// let view = node.view();
    /// let next = view.next(view.members().to_vec(), view.placements().to_vec())?;
    /// assert!(node.install(next)?);
    /// assert!(!node.install((*view).clone())?);
    /// assert_eq!(node.view().number(), view.number() + 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn install(&self, next: View) -> Result<bool, ClusterError> {
        self.shared.install(next)
    }

    /// Returns the number under which the node's memory is registered.
    #[must_use]
    pub fn region(&self) -> RegionId {
        self.shared.region
    }

    /// Returns the rows of this node alone. What it commits is serializable with the transactions
    /// of the cluster.
    ///
    /// Rows of tables with indexes, and of replicated ones, are only read here: writing them is
    /// refused with [`Error::OfCluster`] and [`Error::Replicated`]. A
    /// [snapshot](Db::read) sees all of this node's rows at one moment, and cluster transactions
    /// whole, as far as their rows are here. Local transactions wait for rows that a transaction of
    /// the cluster has locked, so a thread that runs a [worker](Self::worker) must not begin any:
    /// it may wait for itself.
    #[must_use]
    pub fn local(&self) -> &Db<S> {
        &self.shared.db
    }

    /// Returns all rows that an owner had in the first view, if this node has them: as their
    /// primary, or as a backup, as far as it was applied. `None` if it is neither. They are read
    /// one by one, in no transaction: for comparing an owner with its backups where no transaction
    /// runs.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// See [`NodeBuilder::backups`](crate::cluster::NodeBuilder::backups).
    pub fn rows_of(&self, owner: NodeId) -> Result<Option<Vec<OwnedRow>>, Error> {
        let Shared { home, first_view, .. } = &*self.shared;
        let view = self.view();
        let mut groups = (0..first_view.groups()).filter_map(|group| Some((group, first_view.placement(group)?)));
        let group = groups.find(|(_, placed)| placed.primary == owner).map(|(group, _)| group);
        // One that is only given the rows does not have all of them.
        let is_replica = |at: &Placement| at.replicas().any(|node| node == self.id());
        let group = group.filter(|group| view.placement(*group).is_some_and(is_replica));
        let of_table = |table| home.store(store_of(table, group, first_view.groups())).ok();
        let stored = (0..home.tables.len() as u16).filter_map(|table| Some((table, &of_table(table)?.storage)));
        let stored: Vec<_> = stored.collect();
        if group.is_none() || stored.is_empty() || home.db.lifecycle.is_closed(home.db.engine()) {
            return Ok(None);
        }
        // What a backup applies must not change it meanwhile.
        let _applier = home.backup.as_ref().map(Backup::pause);
        Ok(Some(rows_of(stored.into_iter())?))
    }

    /// Returns whether the view is without a life of a node, whose transactions have been carried
    /// out or undone: for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn is_without(&self, node: NodeId, life: Incarnation) -> bool {
        self.shared.home.changing.is_out(node, life)
    }

    /// Returns the last view that all were ready for, as far as this node was told, or has noted in
    /// its directory in an earlier life: for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn told_ready(&self) -> Option<View> {
        self.shared.home.changing.told_ready()
    }

    /// Returns what the node's simulated machine has counted. `None` if its protocol finds no
    /// conflicts by cache lines.
    ///
    /// # Example
    ///
    /// See [`NodeBuilder::machine`](super::NodeBuilder::machine).
    #[cfg(feature = "hades")]
    #[must_use]
    pub fn machine_counts(&self) -> Option<drtm_rdma::machine::Counts> {
        self.shared.nic.as_ref().map(|nic| nic.counts())
    }

    /// Returns whether no transaction has anything in the node's NIC, where conflicts are found by
    /// cache lines: for tests.
    #[cfg(feature = "hades")]
    #[doc(hidden)]
    #[must_use]
    pub fn is_idle_nic(&self) -> bool {
        self.shared.nic.as_ref().is_none_or(|nic| nic.is_idle())
    }

    /// Returns where the events of this node's lives go.
    pub(super) fn announcer(&self) -> Arc<Announcer> {
        Arc::clone(&self.shared.announcer)
    }

    /// Returns whether it was evicted in an earlier life, and has not been a member since.
    pub(super) fn returns(&self) -> bool {
        self.shared.returns.load(Acquire)
    }

    /// Returns whether the view is without this node, which was a member.
    pub(super) fn is_out(&self) -> bool {
        self.shared.is_out()
    }

    /// Waits until the view is without this node.
    pub(super) async fn until_out(&self) {
        // It is out before that is announced.
        let mut events = self.shared.announcer.events();
        while !self.is_out() {
            if events.next().await.is_none() {
                return std::future::pending().await;
            }
        }
    }

    /// Ends this life: see [`Shared::end_life`].
    pub(super) fn end_life(&self, patience: Duration) -> Result<(), Error> {
        self.shared.end_life(patience)
    }

    /// Leaves the other nodes.
    pub(super) fn leave(&self) {
        self.shared.leave();
    }

    /// Opens an endpoint of the fabric for one more worker.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Fabric`].
    pub fn endpoint(&self) -> Result<Endpoint<F::Port>, Error> {
        Ok(self.shared.fabric.endpoint(self.shared.node).map_err(ClusterError::Fabric)?)
    }

    /// Creates a worker for the coroutines of an endpoint's thread.
    ///
    /// # Errors
    ///
    /// When there are too many workers.
    pub fn worker<'e>(&self, endpoint: &'e Endpoint<F::Port>) -> Result<Worker<'e, F, S>, Error> {
        self.shared.only_logged.end_loading();
        Ok(Worker::new(Arc::clone(&self.shared), endpoint, Participant::new(Arc::clone(&self.shared.home))?))
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Worker<'_, F, S> {
    /// Returns a handle of the worker's node.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{
    ///     Builder, Config, Error,
    ///     cluster::Node,
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
    /// assert_eq!(node.worker(&endpoint)?.node().view(), node.view());
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn node(&self) -> Node<F, S> {
        Node { shared: Arc::clone(&self.inner.node) }
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Clone for Node<F, S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> fmt::Debug for Node<F, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("node", &self.shared.node).finish_non_exhaustive()
    }
}
