//! How a program starts its node of a cluster, or all nodes in one process: where they are, and
//! their tables. It joins the fabric, opens the memory, and starts threads; a program that needs
//! to do that differently has [`Node`](super::Node).

use std::{fmt, sync::Arc, time::Duration};

use drtm_htm::Native;
use drtm_membership::Membership;
use drtm_rdma::{Fabric, Incarnation, LocalConfig, LocalFabric, NodeId, ShmConfig, ShmFabric};
use parking_lot::Mutex;

#[cfg(feature = "tcp")]
use super::address::{OnTcp, Secret};
use super::{
    Cluster, ClusterError, Detection, Node, NodeBuilder, Partition, Protocol,
    agreement::Agreement,
    lives::Recipe,
    place::{Here, Place, check_number, only, sealed::Sealed},
};
use crate::{
    Builder, Codec, Db, DefaultConfig, Error, Index, IndexDef, Key, Table, TableDef, Uniqueness,
    schema::{catalog::OF_CLUSTER, table::Kind},
};

/// All nodes in this process, for tests.
///
/// # Example
///
/// See [`ClusterBuilder`].
#[derive(Clone, Copy, Debug)]
pub struct InProcess {
    nodes: u16,
}

/// A process of one machine, in a group that shares memory: see [`ClusterBuilder::group`].
///
/// # Example
///
/// See [`ClusterBuilder::group`].
#[derive(Clone, Debug)]
pub struct InGroup {
    name: String,
    me: u16,
    nodes: u16,
}

/// A node of a fabric that the program joins: see [`ClusterBuilder::on`] and
/// [`ClusterBuilder::joining`].
///
/// # Example
///
/// See [`ClusterBuilder::on`].
pub struct On<F> {
    fabric: Way<F>,
    me: NodeId,
    nodes: u16,
}

/// How a program joins a fabric.
enum Way<F> {
    Joined(F),
    Joins(Box<dyn Fn(Option<Incarnation>) -> Result<F, Error> + Send>),
}

impl<F> fmt::Debug for On<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("On").field("me", &self.me).field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

impl Sealed for InProcess {}
impl Sealed for InGroup {}
impl<F> Sealed for On<F> {}

impl Place for InProcess {
    type Fabric = LocalFabric<Native>;
    type Started = Vec<Cluster<Self::Fabric>>;

    fn join(&self, _engine: Native, _later_than: Option<Incarnation>) -> Result<Here<Self::Fabric>, Error> {
        if self.nodes == 0 {
            return Err(ClusterError::NoOwners.into());
        }
        let fabric = LocalFabric::new(self.nodes, LocalConfig::perfect());
        Ok(Here { nodes: fabric.nodes().collect(), fabric, of: self.nodes })
    }

    fn started(nodes: Vec<Cluster<Self::Fabric>>) -> Self::Started {
        nodes
    }
}

impl Place for InGroup {
    type Fabric = ShmFabric<Native>;
    type Started = Cluster<Self::Fabric>;

    fn join(&self, engine: Native, _later_than: Option<Incarnation>) -> Result<Here<Self::Fabric>, Error> {
        check_number(self.me, self.nodes.into())?;
        let config = ShmConfig::new(&self.name, NodeId(self.me));
        let fabric = ShmFabric::join(engine, config).map_err(ClusterError::Group)?;
        Ok(Here { fabric, nodes: vec![NodeId(self.me)], of: self.nodes })
    }

    fn started(nodes: Vec<Cluster<Self::Fabric>>) -> Self::Started {
        only(nodes)
    }
}

impl<F: Fabric<Engine = Native>> Place for On<F> {
    type Fabric = F;
    type Started = Cluster<F>;

    fn takes_back(&self) -> bool {
        matches!(self.fabric, Way::Joins(_))
    }

    fn join(&self, _engine: Native, later_than: Option<Incarnation>) -> Result<Here<F>, Error> {
        let fabric = match &self.fabric {
            Way::Joined(fabric) => fabric.clone(),
            Way::Joins(join) => join(later_than)?,
        };
        Ok(Here { fabric, nodes: vec![self.me], of: self.nodes })
    }

    fn started(nodes: Vec<Cluster<F>>) -> Self::Started {
        only(nodes)
    }
}

/// What is done with each node of this process before it starts.
type Step<F> = Box<dyn Fn(&mut NodeBuilder<F>) -> Result<(), Error> + Send>;

/// How a cluster is started: where its nodes are, and its tables.
///
/// All nodes run the same program: they add the same tables and indexes, in the same order, and
/// choose alike. All of them own rows.
///
/// # Example
///
/// Three nodes in one process, for a test:
///
/// ```
/// use drtm::{Pod, TableDef, Transaction, cluster::{Cluster, Partition}};
///
/// const ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("accounts");
///
/// let mut builder = Cluster::builder().nodes(3);
/// let accounts = builder.table(ACCOUNTS, Partition::hash());
/// let nodes = builder.start()?;
/// nodes[0].transact(async move |tx| tx.insert_many(accounts, [(1, &100), (2, &0)]).await).wait()?;
/// let paid = nodes[1].transact(async move |tx| {
///     tx.update(accounts, 1, |balance| *balance -= 30).await?;
///     tx.update(accounts, 2, |balance| *balance += 30).await
/// });
/// assert_eq!(paid.wait()?, Some(()));
/// assert_eq!(nodes[2].transact(async move |tx| tx.get(accounts, 2).await).wait()?, Some(30));
/// # Ok::<(), drtm::Error>(())
/// ```
#[must_use = "a cluster that is not started does nothing"]
pub struct ClusterBuilder<P: Place> {
    place: P,
    database: Builder,
    protocol: Protocol,
    backups: Option<usize>,
    copy_rate: Option<u64>,
    recoverable: Option<bool>,
    /// How many of the nodes have rows, where some do not.
    owners: Option<u16>,
    agreement: Agreement,
    #[cfg_attr(not(feature = "raft"), allow(dead_code, reason = "it is of Raft only"))]
    bootstraps: bool,
    lease: Option<Duration>,
    shards: Option<usize>,
    threads: usize,
    /// How many tables and indexes there are.
    tables: u16,
    steps: Vec<Step<P::Fabric>>,
    /// What was said wrongly. [`start`](Self::start) returns it.
    refused: Option<Error>,
}

impl Cluster<LocalFabric<Native>> {
    /// Begins to describe a cluster. Without more, it is one node in this process.
    ///
    /// # Example
    ///
    /// See [`ClusterBuilder`].
    pub fn builder() -> ClusterBuilder<InProcess> {
        ClusterBuilder {
            place: InProcess { nodes: 1 },
            database: Builder::new(),
            protocol: Protocol::default(),
            backups: None,
            copy_rate: None,
            recoverable: None,
            owners: None,
            agreement: Agreement::Usual,
            bootstraps: false,
            lease: None,
            shards: None,
            threads: 1,
            tables: 0,
            steps: Vec::new(),
            refused: None,
        }
    }
}

impl ClusterBuilder<InProcess> {
    /// Makes so many nodes in this process: for tests.
    ///
    /// # Example
    ///
    /// See [`ClusterBuilder`].
    pub fn nodes(self, nodes: u16) -> Self {
        Self { place: InProcess { nodes }, ..self }
    }

    /// Makes this process node `me`, from zero, of `nodes` processes of one machine, which share
    /// memory. The group's name tells clusters of one user apart.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Pod, TableDef, Transaction, cluster::{Cluster, Partition}};
    ///
    /// const HITS: TableDef<u64, Pod<u64>> = TableDef::hash("hits");
    ///
    /// // Another process would be node 1 of 2.
    /// let mut builder = Cluster::builder().group(&format!("docs-{}", std::process::id()), 0, 1);
    /// let hits = builder.table(HITS, Partition::hash());
    /// let node = builder.start()?;
    /// let hit = node.transact(async move |tx| tx.entry(hits, 7).await?.or_insert(1).await);
    /// assert_eq!(hit.wait()?, 1);
    /// # Ok::<(), drtm::Error>(())
    /// ```
    pub fn group(self, name: &str, me: u16, nodes: u16) -> ClusterBuilder<InGroup> {
        self.at(InGroup { name: name.to_owned(), me, nodes })
    }

    /// Makes this process node `me`, from zero, of the nodes at these addresses, such as
    /// `10.0.0.1:7000`. It listens at its own address. All nodes are given the same list, and the
    /// same [key](ClusterBuilder::key_file).
    ///
    /// Three nodes or more agree on the view by Raft (feature `raft`), unless something else is
    /// chosen, and go on without those that die. One of them [makes](ClusterBuilder::bootstrap) the
    /// cluster; until then, none serves.
    ///
    /// # Example
    ///
    /// ```no_run
    /// use drtm::{Pod, TableDef, cluster::{Cluster, Partition}};
    ///
    /// const ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("accounts");
    ///
    /// let mut builder = Cluster::builder().addresses(0, ["10.0.0.1:7000", "10.0.0.2:7000"]).key_file("cluster.key");
    /// let accounts = builder.table(ACCOUNTS, Partition::hash());
    /// let node = builder.start()?;
    /// # Ok::<(), drtm::Error>(())
    /// ```
    #[cfg(feature = "tcp")]
    pub fn addresses(self, me: u16, addresses: impl IntoIterator<Item = impl ToString>) -> ClusterBuilder<OnTcp> {
        let addresses = addresses.into_iter().map(|address| address.to_string()).collect();
        self.at(OnTcp { me, addresses, key: Secret::Missing })
    }

    /// Makes this process node `me` of `nodes` nodes of a fabric that the program has joined: one
    /// with other options than this builder gives, or of RDMA NICs. If the node is
    /// [evicted](super::ClusterEvent::Evicted), it stays out: [`joining`](Self::joining) does not.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{
    ///     cluster::Cluster,
    ///     htm::Native,
    ///     rdma::{LocalConfig, LocalFabric, NodeId},
    /// };
    ///
    /// let fabric = LocalFabric::<Native>::new(1, LocalConfig::harsh(7));
    /// let node = Cluster::builder().on(fabric, NodeId(0), 1).start()?;
    /// assert!(node.node().view().has(NodeId(0)));
    /// # Ok::<(), drtm::Error>(())
    /// ```
    pub fn on<F: Fabric<Engine = Native>>(self, fabric: F, me: NodeId, nodes: u16) -> ClusterBuilder<On<F>> {
        self.at(On { fabric: Way::Joined(fabric), me, nodes })
    }

    /// Makes this process node `me` of `nodes` nodes of a fabric that `join` joins: now, and each
    /// time that the node was [evicted](super::ClusterEvent::Evicted), so that it comes back by
    /// itself. It is given the node's last incarnation then, and joins as a later one.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{
    ///     cluster::Cluster,
    ///     htm::Native,
    ///     rdma::{Incarnation, NodeId, TcpConfig, TcpFabric},
    /// };
    ///
    /// let (engine, at) = (Native::chosen()?, "127.0.0.1:0".parse()?);
    /// let join = move |last: Option<Incarnation>| {
    ///     let config = TcpConfig::new(NodeId(0), at, [7; 32]).deadline(std::time::Duration::from_secs(1));
    ///     TcpFabric::join(engine, last.into_iter().fold(config, TcpConfig::later_than))
    /// };
    /// let node = Cluster::builder().joining(join, NodeId(0), 1).start()?;
    /// assert!(node.node().view().has(NodeId(0)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn joining<F, E>(
        self,
        join: impl Fn(Option<Incarnation>) -> Result<F, E> + Send + 'static,
        me: NodeId,
        nodes: u16,
    ) -> ClusterBuilder<On<F>>
    where
        F: Fabric<Engine = Native>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let join = move |last| join(last).map_err(|error| ClusterError::Joining { source: Box::new(error) }.into());
        self.at(On { fabric: Way::Joins(Box::new(join)), me, nodes })
    }

    fn at<P: Place>(self, place: P) -> ClusterBuilder<P> {
        let Self {
            database,
            protocol,
            backups,
            copy_rate,
            recoverable,
            owners,
            agreement,
            bootstraps,
            lease,
            shards,
            threads,
            tables,
            steps,
            mut refused,
            ..
        } = self;
        if !steps.is_empty() {
            let (must_be, is) = ("said before tables are added", "said after one".to_owned());
            refused = Some(Error::Config { what: "where the nodes of a cluster are", must_be, is });
        }
        ClusterBuilder {
            place,
            database,
            protocol,
            backups,
            copy_rate,
            recoverable,
            owners,
            agreement,
            bootstraps,
            lease,
            shards,
            threads,
            tables,
            steps: Vec::new(),
            refused,
        }
    }
}

#[cfg(feature = "tcp")]
impl ClusterBuilder<OnTcp> {
    /// Reads the cluster's key from a file of 32 bytes, which all nodes have and no other program
    /// can read: `head -c 32 /dev/urandom > cluster.key` makes one.
    ///
    /// # Example
    ///
    /// See [`addresses`](ClusterBuilder::addresses).
    pub fn key_file(mut self, path: impl AsRef<std::path::Path>) -> Self {
        self.place.key = Secret::File(path.as_ref().to_owned());
        self
    }

    /// Gives the cluster's key: 32 bytes of a random generator, the same on all nodes.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::cluster::Cluster;
    ///
    /// let node = Cluster::builder().addresses(0, ["127.0.0.1:0"]).key([7; 32]).start()?;
    /// assert_eq!(node.node().view().members().len(), 1);
    /// # Ok::<(), drtm::Error>(())
    /// ```
    pub fn key(mut self, key: [u8; 32]) -> Self {
        self.place.key = Secret::Bytes(key);
        self
    }
}

impl<P: Place> ClusterBuilder<P> {
    /// Sets how each node's rows are kept: how much memory they have, and whether they are durable.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, cluster::Cluster};
    ///
    /// let nodes = Cluster::builder().nodes(2).database(Db::builder().memory(16 << 20)).start()?;
    /// assert_eq!(nodes.len(), 2);
    /// # Ok::<(), drtm::Error>(())
    /// ```
    pub fn database(self, database: Builder) -> Self {
        Self { database, ..self }
    }

    /// Chooses the protocol of transactions.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::cluster::{Cluster, Protocol};
    ///
    /// let nodes = Cluster::builder().protocol(Protocol::DRTM_H).backups(1).threads(2).nodes(2).start()?;
    /// assert_eq!(nodes.len(), 2);
    /// # Ok::<(), drtm::Error>(())
    /// ```
    pub fn protocol(self, protocol: Protocol) -> Self {
        Self { protocol, ..self }
    }

    /// Gives each node so many [backups](super::NodeBuilder::backups) among the others. By default
    /// one, where three nodes or more agree on the view, by Raft or by a
    /// [membership](Self::membership), and the protocol finds conflicts by versions; otherwise
    /// none.
    ///
    /// # Example
    ///
    /// See [`protocol`](Self::protocol) and [`membership`](Self::membership).
    pub fn backups(self, backups: usize) -> Self {
        Self { backups: Some(backups), ..self }
    }

    /// Bounds how many bytes of rows each node copies in a second when it becomes a backup of a
    /// shard: see [`NodeBuilder::copies_at`](super::NodeBuilder::copies_at). Not bounded by
    /// default. [`start`](Self::start) refuses zero.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Error, cluster::Cluster};
    ///
    /// let nodes = Cluster::builder().nodes(2).backups(1).copies_at(64 << 20).start()?;
    /// assert_eq!(nodes.len(), 2);
    /// let refused = Cluster::builder().nodes(2).backups(1).copies_at(0).start();
    /// assert!(matches!(refused, Err(Error::Config { .. })));
    /// # Ok::<(), drtm::Error>(())
    /// ```
    pub fn copies_at(self, bytes_per_second: u64) -> Self {
        Self { copy_rate: Some(bytes_per_second), ..self }
    }

    /// Chooses whether transactions of a node that dies are completed or undone: see
    /// [`NodeBuilder::recoverable`](super::NodeBuilder::recoverable).
    ///
    /// # Example
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use drtm::{cluster::Cluster, membership::Directory};
    ///
    /// let path = std::env::temp_dir().join(format!("drtm-recoverable-{}", std::process::id()));
    /// let membership = Arc::new(Directory::open(&path).expect("a directory"));
    /// // Without backups and records: the fastest, and what a dead node has locked stays so.
    /// let builder = Cluster::builder().nodes(2).membership(membership);
    /// let nodes = builder.backups(0).recoverable(false).start()?;
    /// assert_eq!(nodes.len(), 2);
    /// # std::fs::remove_dir_all(&path).expect("it is here");
    /// # Ok::<(), drtm::Error>(())
    /// ```
    pub fn recoverable(self, recoverable: bool) -> Self {
        Self { recoverable: Some(recoverable), ..self }
    }

    /// Lets the nodes that are left go on without those that die: see
    /// [`NodeBuilder::membership`](super::NodeBuilder::membership). A cluster that is started anew
    /// needs a register that has no configuration yet.
    ///
    /// # Example
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use drtm::{cluster::Cluster, membership::Directory};
    ///
    /// let path = std::env::temp_dir().join(format!("drtm-members-{}", std::process::id()));
    /// let membership = Arc::new(Directory::open(&path).expect("a directory"));
    /// let nodes = Cluster::builder().nodes(3).membership(membership).start()?;
    /// // Each shard has a backup.
    /// assert!(nodes[0].node().view().placements().iter().all(|at| at.backups.len() == 1));
    /// # std::fs::remove_dir_all(&path).expect("it is here");
    /// # Ok::<(), drtm::Error>(())
    /// ```
    pub fn membership(self, membership: Arc<dyn Membership>) -> Self {
        Self { agreement: Agreement::Given(membership), ..self }
    }

    /// Makes the cluster, if there is none yet, where nodes agree on the view by Raft: three or
    /// more on a fabric over TCP, unless another [membership](Self::membership) is chosen (feature
    /// `raft`). Otherwise it says nothing.
    ///
    /// One node is told so, in the cluster's life once. It makes the cluster when all nodes have
    /// started and none of them belongs to one; all others join it, and start again, without being
    /// told. It does no harm where a node is told so each time that it starts, nor where several
    /// are: the first of them in number does it, and not if any node belongs to a cluster. But
    /// where all nodes have lost their directories, or never had any, it is for you to say that a
    /// new and empty cluster is what is to follow.
    ///
    /// # Example
    ///
    /// ```no_run
    /// use drtm::{Pod, TableDef, cluster::{Cluster, Partition}};
    ///
    /// const ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("accounts");
    ///
    /// let addresses = ["10.0.0.1:7000", "10.0.0.2:7000", "10.0.0.3:7000"];
    /// let is_new = std::env::args().any(|argument| argument == "--new");
    /// let mut builder = Cluster::builder().addresses(0, addresses).key_file("cluster.key");
    /// if is_new {
    ///     builder = builder.bootstrap();
    /// }
    /// let accounts = builder.table(ACCOUNTS, Partition::hash());
    /// let node = builder.start()?;
    /// # Ok::<(), drtm::Error>(())
    /// ```
    pub fn bootstrap(self) -> Self {
        Self { bootstraps: true, ..self }
    }

    /// Keeps the view as it is, whatever befalls its nodes: none takes the place of another. So it
    /// is where this is the default: in one process, in a group, and with fewer than three nodes.
    ///
    /// # Example
    ///
    /// ```no_run
    /// use drtm::cluster::Cluster;
    ///
    /// let addresses = ["10.0.0.1:7000", "10.0.0.2:7000", "10.0.0.3:7000"];
    /// let node = Cluster::builder().addresses(0, addresses).key_file("cluster.key").fixed().start()?;
    /// assert_eq!(node.node().view().number(), 1);
    /// # Ok::<(), drtm::Error>(())
    /// ```
    pub fn fixed(self) -> Self {
        Self { agreement: Agreement::Fixed, ..self }
    }

    /// Sets how long a node may serve without a word of the view's leader: see
    /// [`NodeBuilder::lease`](super::NodeBuilder::lease).
    ///
    /// # Example
    ///
    /// ```
    /// use std::{sync::Arc, time::Duration};
    ///
    /// use drtm::{cluster::Cluster, membership::Directory};
    ///
    /// let path = std::env::temp_dir().join(format!("drtm-leases-{}", std::process::id()));
    /// let membership = Arc::new(Directory::open(&path).expect("a directory"));
    /// let builder = Cluster::builder().nodes(3).membership(membership);
    /// let nodes = builder.lease(Duration::from_secs(5)).start()?;
    /// assert_eq!(nodes[0].node().view().number(), 1);
    /// # std::fs::remove_dir_all(&path).expect("it is here");
    /// # Ok::<(), drtm::Error>(())
    /// ```
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease: Some(lease), ..self }
    }

    /// Divides rows into so many [shards](super::NodeBuilder::shards), which a cluster never
    /// changes. Eight for each node by default.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::cluster::Cluster;
    ///
    /// let nodes = Cluster::builder().nodes(2).shards(100).start()?;
    /// assert_eq!(nodes[1].node().view().placements().len(), 100);
    /// # Ok::<(), drtm::Error>(())
    /// ```
    pub fn shards(self, shards: usize) -> Self {
        Self { shards: Some(shards), ..self }
    }

    /// Lets the first so many nodes have the rows, and all others none: these are *clients*, which
    /// only run transactions. All nodes are told alike. Without this, all have rows.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Pod, TableDef, Transaction, cluster::{Cluster, Partition}};
    ///
    /// const HITS: TableDef<u64, Pod<u64>> = TableDef::hash("hits");
    ///
    /// let mut builder = Cluster::builder().nodes(4).owners(3);
    /// let hits = builder.table(HITS, Partition::hash());
    /// let nodes = builder.start()?;
    /// nodes[3].transact(async move |tx| tx.put(hits, 7, &1).await).wait()?;
    /// assert_eq!(nodes[3].node().view().members().len(), 3);
    /// # Ok::<(), drtm::Error>(())
    /// ```
    pub fn owners(self, owners: u16) -> Self {
        Self { owners: Some(owners), ..self }
    }

    /// Runs each node's transactions on so many threads. One by default.
    ///
    /// # Example
    ///
    /// See [`protocol`](Self::protocol).
    pub fn threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// Adds a table. The handle is good at all nodes.
    ///
    /// # Example
    ///
    /// See [`ClusterBuilder`].
    pub fn table<K: Key, C: Codec, O: Kind>(
        &mut self,
        def: TableDef<K, C, O>,
        partition: Partition<K>,
    ) -> Table<K, C, O> {
        self.steps.push(Box::new(move |node| node.table(def, partition).map(drop)));
        Table::new(OF_CLUSTER, self.next_table())
    }

    /// Adds an index of a table, whose entries are divided by the index's keys.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{IndexDef, Multi, Pod, TableDef, Transaction, cluster::{Cluster, Partition}};
    ///
    /// const SCORES: TableDef<u64, Pod<u32>> = TableDef::hash("scores");
    /// const BY_SCORE: IndexDef<u64, Pod<u32>, u32, Multi> = IndexDef::multi("by score", |_, score| Some(score));
    ///
    /// let mut builder = Cluster::builder().nodes(2);
    /// let scores = builder.table(SCORES, Partition::hash());
    /// let by_score = builder.index(scores, BY_SCORE, Partition::hash());
    /// let nodes = builder.start()?;
    /// let best = nodes[0].transact(async move |tx| {
    ///     tx.insert_many(scores, [(1, &500), (2, &900)]).await?;
    ///     tx.last(by_score, ..).await
    /// });
    /// assert_eq!(best.wait()?, Some((900, (2, 900))));
    /// # Ok::<(), drtm::Error>(())
    /// ```
    pub fn index<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        def: IndexDef<K, C, I, U>,
        partition: Partition<I>,
    ) -> Index<K, C, I, U, O> {
        self.steps.push(Box::new(move |node| node.index(table, def, partition).map(drop)));
        Index::new(table, Table::new(OF_CLUSTER, self.next_table()))
    }

    fn next_table(&mut self) -> u16 {
        let number = self.tables;
        // More than there can be are refused when they are added at a node.
        self.tables = number.saturating_add(1);
        number
    }

    /// Fills tables of each node's own database before it starts: those that are
    /// [replicated](Partition::replicated).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Pod, TableDef, Transaction, cluster::{Cluster, Partition}};
    ///
    /// const PRICES: TableDef<u64, Pod<u64>> = TableDef::hash("prices");
    ///
    /// let mut builder = Cluster::builder().nodes(2);
    /// let prices = builder.table(PRICES, Partition::replicated());
    /// builder.load(|db| {
    ///     let prices = db.table(PRICES)?;
    ///     db.transact(|tx| tx.insert(prices, 7, &100))
    /// });
    /// let nodes = builder.start()?;
    /// assert_eq!(nodes[1].transact(async move |tx| tx.get(prices, 7).await).wait()?, Some(100));
    /// # Ok::<(), drtm::Error>(())
    /// ```
    pub fn load(&mut self, load: impl Fn(&Db) -> Result<(), Error> + Send + 'static) {
        self.steps.push(Box::new(move |node| load(&node.local()?)));
    }

    /// Starts the cluster's node of this process, or all nodes of a test. It serves others at once.
    /// Others may start later: [`Cluster::wait_for_nodes`] waits for them.
    ///
    /// A node at one of several addresses, or that [joins](ClusterBuilder::joining) a fabric
    /// itself, comes back by itself when it was [evicted](super::ClusterEvent::Evicted): see
    /// [`Cluster`]. Its tables
    /// are added and [filled](Self::load) once more then.
    ///
    /// # Errors
    ///
    /// [`Error::Config`], or [`Error::Cluster`] for what was said wrongly, or cannot be had.
    ///
    /// # Example
    ///
    /// See [`ClusterBuilder`].
    pub fn start(mut self) -> Result<P::Started, Error> {
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        let engine = Native::chosen().map_err(ClusterError::Engine)?;
        let here = self.place.join(engine, None)?;
        let started = here.nodes.iter().map(|node| self.node(engine, &here, *node, None));
        let nodes = started.collect::<Result<Vec<_>, Error>>()?;
        let (threads, takes_back) = (self.threads, self.place.takes_back());
        let builder = Arc::new(Mutex::new(self));
        let start = |node: Node<P::Fabric>| {
            let (id, builder) = (node.id(), Arc::clone(&builder));
            let again: Recipe<P::Fabric, DefaultConfig> = Box::new(move |former| {
                let builder = builder.lock();
                let here = builder.place.join(engine, Some(former.incarnation()))?;
                builder.node(engine, &here, id, Some(former))
            });
            Cluster::start_with(node, threads, takes_back.then_some(again))
        };
        Ok(P::started(nodes.into_iter().map(start).collect::<Result<_, Error>>()?))
    }

    /// Starts a node that is here, or the next life of one that was evicted.
    fn node(
        &self,
        engine: Native,
        here: &Here<P::Fabric>,
        node: NodeId,
        former: Option<&Node<P::Fabric>>,
    ) -> Result<Node<P::Fabric>, Error> {
        let Here { fabric, of, .. } = here;
        let owners = self.owners.unwrap_or(*of);
        if owners > *of {
            let (must_be, is) = ("at most as many as there are nodes", format!("{owners} of {of}"));
            return Err(Error::Config { what: "owners", must_be, is });
        }
        let is_raft = self.agreement.is_raft(fabric, owners);
        let membership = self.agreement.given();
        let has_membership = membership.is_some() || is_raft;
        let backups = self.backups.unwrap_or_else(|| backups_of(owners, self.protocol, has_membership));
        let builder = Node::builder_for(engine, fabric, node, self.database.clone(), self.protocol)?;
        let mut builder = builder.owners((0..owners).map(NodeId))?.backups(backups)?;
        if let Some(former) = former {
            builder = builder.follows(former);
        }
        if let Some(membership) = membership {
            builder = builder.membership(membership);
        }
        #[cfg(feature = "raft")]
        if is_raft {
            // One that was evicted belongs to a cluster.
            builder = builder.raft(self.bootstraps && former.is_none());
        }
        if let Some(lease) = self.lease {
            builder = builder.lease(lease);
        }
        if let Some(shards) = self.shards {
            builder = builder.shards(shards);
        }
        if let Some(rate) = self.copy_rate {
            builder = builder.copies_at(rate)?;
        }
        if let Some(recoverable) = self.recoverable {
            builder = builder.recoverable(recoverable);
        }
        self.steps.iter().try_for_each(|step| step(&mut builder))?;
        builder.start()
    }
}

/// Returns how many backups each of so many owners has where none are chosen. With fewer than
/// three, no majority is left of those that have lost one; and without a membership, none takes
/// over by itself.
fn backups_of(owners: u16, protocol: Protocol, has_membership: bool) -> usize {
    usize::from(owners >= 3 && has_membership && protocol.detection == Detection::Versions)
}

impl<P: Place + fmt::Debug> fmt::Debug for ClusterBuilder<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterBuilder").field("place", &self.place).finish_non_exhaustive()
    }
}
