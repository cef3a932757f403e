//! How a node is started: its tables, indexes and backups, on which all nodes agree.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::Duration,
};

use drtm_htm::Engine;
use drtm_kv::Store;
#[cfg(feature = "raft")]
use drtm_membership::{Bystander, Raft};
use drtm_membership::{LeaseTerms, Membership};
use drtm_rdma::{Atomicity, Fabric, Incarnation, NodeId, Presence, RegionId};
use parking_lot::Mutex;

use super::{
    ClusterError, Detection, Node, Partition, Protocol, Timing,
    adapt::Board,
    changing::Changing,
    closings::Closings,
    events::Announcer,
    index_info::index_info,
    log::{Backup, Cooperative, LogConfig, OnlyLogged, Replica},
    orders::Orders,
    participant::{Home, Reservations, Served, Stored},
    partition::{Divide, digest, mix},
    remembered::Caches,
    replicas,
    shard::SHARDS_PER_OWNER,
    shared::Shared,
    tenure::Tenure,
    view::{BETWEEN, Current, View, store_of},
};
use crate::{
    Builder, Codec, Config, Db, DefaultConfig, Durability, Error, Index, IndexDef, Key, Table, TableDef, Uniqueness,
    db::lifecycle::Admission,
    durability::format::TableShape,
    index::Writers,
    memory::storage::KeyRef,
    mutation::Mutation,
    schema::{catalog::OF_CLUSTER, codec::describe::shortened, table::Kind},
};

/// Memory for where rows of other nodes were.
const CACHE_BYTES: u64 = 64 << 20;

/// How long leases last, where nothing else is said: among nodes whose deaths are certain, and
/// among others.
const LONG_LEASE: Duration = Duration::from_secs(10);
const SHORT_LEASE: Duration = Duration::from_secs(1);

/// Whether a node is a voter that agrees on the view by Raft, and where its log is.
#[cfg(feature = "raft")]
#[derive(Debug, Default)]
struct Voter {
    directory: Option<PathBuf>,
    /// Whether it makes a cluster if there is none. `None`: it is no voter.
    bootstraps: Option<bool>,
}

/// How a node of a cluster is to be started.
///
/// # Example
///
/// See [`Node`].
#[derive(Debug)]
#[must_use = "a node that is not started does nothing"]
pub struct NodeBuilder<F: Fabric, S: Config<Engine = F::Engine> = DefaultConfig> {
    fabric: F,
    node: NodeId,
    incarnation: Incarnation,
    owners: Vec<NodeId>,
    shards: Option<usize>,
    /// How its database is made, until it is.
    builder: Option<Builder>,
    store: Store<S::Engine>,
    db: Option<Db<S>>,
    region: RegionId,
    protocol: Protocol,
    timing: Timing,
    log: LogConfig,
    loads_alone: bool,
    /// Whether it was chosen that transactions of the dead are completed or undone.
    recoverable: Option<bool>,
    by_loopback: bool,
    cooperative: Option<PathBuf>,
    membership: Option<Arc<dyn Membership>>,
    #[cfg(feature = "raft")]
    voter: Voter,
    lease: Option<Duration>,
    only_logged: Arc<OnlyLogged>,
    /// The simulated machine of protocols that find conflicts by cache lines.
    #[cfg(feature = "hades")]
    machine: drtm_rdma::machine::MachineProfile,
    /// Where the events of its earlier lives went, if it was evicted.
    former: Option<Arc<Announcer>>,
    tables: Vec<Served<S::Engine>>,
    /// What nodes compare when they meet.
    described: String,
}

impl<F: Fabric, S: Config<Engine = F::Engine>> NodeBuilder<F, S> {
    /// Sets the nodes that own rows, in an order that all nodes give alike. A node that is none of
    /// them is a client.
    ///
    /// # Errors
    ///
    /// [`ClusterError::NoOwners`], [`ClusterError::OwnerTwice`].
    pub fn owners(mut self, owners: impl IntoIterator<Item = NodeId>) -> Result<Self, Error> {
        self.owners = owners.into_iter().collect();
        for (owner, number) in self.owners.iter().zip(0..) {
            if self.owners[..number].contains(owner) {
                return Err(ClusterError::OwnerTwice { node: *owner }.into());
            }
        }
        Ok(self)
    }

    /// Divides rows into so many shards: eight for each owner by default. All nodes choose alike,
    /// and a cluster never changes it. A number that is no multiple of the owners' gives some of
    /// them more shards than others.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{LocalConfig, LocalFabric, NodeId};
    /// use drtm_txn::{Builder, Config, Error, cluster::{Node, ShardId}};
    ///
    /// #[derive(Debug)]
    /// struct Plain;
    ///
    /// impl Config for Plain {
    ///     type Engine = NoHtm;
    /// }
    ///
    /// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
    /// let memory = Builder::new().memory(16 << 20);
    /// let builder = Node::<_, Plain>::builder(NoHtm, &fabric, NodeId(0), memory)?;
    /// let node = builder.owners([NodeId(0)])?.shards(100).start()?;
    /// assert_eq!(node.view().primary(ShardId(99)), Some(NodeId(0)));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn shards(self, shards: usize) -> Self {
        Self { shards: Some(shards), ..self }
    }

    /// Sets what this node assumes about clocks, and how long its leases are.
    pub fn timing(self, timing: Timing) -> Self {
        Self { timing, ..self }
    }

    /// Gives each owner so many backups: the owners that come next, all around. None by default. To
    /// be chosen before tables are added; all nodes choose alike.
    ///
    /// What a transaction writes is in the memory of all backups of its owners before it is
    /// decided. Backups apply it to replicas. Owners are then written by transactions of the
    /// cluster only: [`Node::local`] refuses, with [`ClusterError::NotLogged`] as the reason.
    /// What writes to owners of a backup that is gone waits until the view
    /// [changes](super::Worker::change_view).
    ///
    /// # Errors
    ///
    /// When there are tables already. That there are enough owners is checked when the node
    /// [starts](Self::start).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{
    ///     Builder, Config, Error, Pod, TableDef, Transaction,
    ///     cluster::{Node, Partition},
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
    /// const ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("accounts");
    ///
    /// // Two owners, each of which is the other's backup.
    /// let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
    /// let start = |node| {
    ///     let builder = Node::<_, Plain>::builder(NoHtm, &fabric, node, Builder::new().memory(16 << 20))?;
    ///     let mut node = builder.owners([NodeId(0), NodeId(1)])?.backups(1)?;
    ///     let accounts = node.table(ACCOUNTS, Partition::by("number", |number| *number))?;
    ///     Ok::<_, Error>((node.start()?, accounts))
    /// };
    /// let ((here, accounts), (there, _)) = (start(NodeId(0))?, start(NodeId(1))?);
    /// let done = &std::sync::atomic::AtomicBool::new(false);
    /// std::thread::scope(|scope| {
    ///     let backup = there.clone();
    ///     scope.spawn(move || {
    ///         let endpoint = backup.endpoint()?;
    ///         let mut executor = Executor::new(&endpoint);
    ///         backup.worker(&endpoint)?.serve(&executor.spawner());
    ///         executor.spawn(endpoint.until(|| done.load(std::sync::atomic::Ordering::Acquire)));
    ///         executor.run();
    ///         Ok::<_, Error>(())
    ///     });
    ///     let endpoint = here.endpoint()?;
    ///     let worker = here.worker(&endpoint)?;
    ///     let mut executor = Executor::new(&endpoint);
    ///     worker.serve(&executor.spawner());
    ///     executor.spawn(async move {
    ///         let paid = worker.transact(async |tx| tx.put(accounts, 2, &100).await);
    ///         paid.await.expect("both are here");
    ///         worker.catch_up().await.expect("both are here");
    ///     });
    ///     executor.run();
    ///     done.store(true, std::sync::atomic::Ordering::Release);
    ///     Ok::<_, Error>(())
    /// })?;
    /// let (row, replica) = (here.rows_of(NodeId(0))?, there.rows_of(NodeId(0))?);
    /// assert_eq!(row.as_ref().map(Vec::len), Some(1));
    /// assert_eq!(row, replica);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn backups(mut self, backups: usize) -> Result<Self, Error> {
        if self.db.is_some() {
            let (must_be, is) = ("chosen before tables are added", "chosen after one".to_owned());
            return Err(Error::Config { what: "the number of backups", must_be, is });
        }
        self.log.backups = backups;
        Ok(self)
    }

    /// Makes rings of so many bytes, rounded up to a power of two: 256 KiB by default. Each worker
    /// has one at each backup that it writes to. A transaction must fit. All nodes choose alike.
    ///
    /// # Errors
    ///
    /// Below 1 KiB, or above 1 GiB.
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
    /// let memory = Builder::new().memory(16 << 20);
    /// let builder = Node::<_, Plain>::builder(NoHtm, &fabric, NodeId(0), memory)?;
    /// assert!(builder.ring_bytes(1 << 20)?.ring_bytes(12).is_err());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn ring_bytes(mut self, bytes: u64) -> Result<Self, Error> {
        self.log = self.log.with_rings_of(bytes)?;
        Ok(self)
    }

    /// Bounds how many bytes of rows this node copies in a second when it becomes a backup of a
    /// shard, which takes from what transactions have. Not bounded by default.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if it is zero.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{
    ///     Builder, Config, Error,
    ///     cluster::Node,
    ///     htm::NoHtm,
    ///     rdma::{Fabric, LocalConfig, LocalFabric, NodeId},
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
    /// let memory = Builder::new().memory(16 << 20);
    /// let builder = Node::<_, Plain>::builder(NoHtm, &fabric, NodeId(0), memory)?;
    /// let node = builder.owners(fabric.nodes())?.backups(1)?.copies_at(64 << 20)?.start()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn copies_at(mut self, bytes_per_second: u64) -> Result<Self, Error> {
        if bytes_per_second == 0 {
            let (must_be, is) = ("at least a byte a second", "0".to_owned());
            return Err(Error::Config { what: "the rate at which rows are copied", must_be, is });
        }
        self.log.copy_rate = Some(bytes_per_second);
        Ok(self)
    }

    /// Lets [`Node::local`] write rows that have backups until the node has its first
    /// [worker](Node::worker): to load many rows at once. Backups do not hear of these rows, and
    /// have them only when a transaction has written them.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{
    ///     Builder, Config, Error, Pod, TableDef,
    ///     cluster::{Node, Partition},
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
    /// const ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("accounts");
    ///
    /// let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
    /// let memory = Builder::new().memory(16 << 20);
    /// let builder = Node::<_, Plain>::builder(NoHtm, &fabric, NodeId(0), memory)?;
    /// let mut builder = builder.owners([NodeId(0), NodeId(1)])?.backups(1)?.loads_alone();
    /// builder.table(ACCOUNTS, Partition::by("number", |number| *number))?;
    /// let node = builder.start()?;
    /// let accounts = node.local().table(ACCOUNTS)?;
    /// node.local().transact(|tx| tx.put(accounts, &2, &100))?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn loads_alone(self) -> Self {
        Self { loads_alone: true, ..self }
    }

    /// Sets the machine that finds conflicts by cache lines, for protocols that do so: 16 nodes of
    /// 5 cores if it is not set. A worker runs on the core with its number, counted round.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{LocalConfig, LocalFabric, NodeId, machine::{Counts, MachineProfile}};
    /// use drtm_txn::{Builder, Config, Error, cluster::{Node, Protocol}};
    ///
    /// #[derive(Debug)]
    /// struct Plain;
    ///
    /// impl Config for Plain {
    ///     type Engine = NoHtm;
    /// }
    ///
    /// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
    /// let memory = Builder::new().memory(16 << 20);
    /// let builder = Node::<_, Plain>::builder_for(NoHtm, &fabric, NodeId(0), memory, Protocol::HADES)?;
    /// let node = builder.owners([NodeId(0)])?.machine(MachineProfile::cluster(1, 10, 0)).start()?;
    /// assert_eq!(node.machine_counts(), Some(Counts::default()));
    /// # Ok::<(), Error>(())
    /// ```
    #[cfg(feature = "hades")]
    pub fn machine(self, profile: drtm_rdma::machine::MachineProfile) -> Self {
        Self { machine: profile, ..self }
    }

    /// Chooses whether transactions of a node that dies are completed or undone, and their locks
    /// freed.
    ///
    /// That is so where nodes agree on the view ([`membership`](Self::membership)), and where there
    /// are [backups](Self::backups). Without backups, rows are recorded at the node that serves
    /// them, before a transaction of another node writes them. All nodes choose alike.
    ///
    /// If it is `false`, that record is not made. What a node had locked when it died stays locked,
    /// and transactions that meet it are [told](super::Refusal::HolderDead). With backups, it is
    /// refused when the node [starts](Self::start). If it is `true` without a membership, that is
    /// what a view does which is [changed](super::Worker::change_view) by hand.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{
    ///     Builder, Config, Error,
    ///     cluster::{ClusterError, Node},
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
    /// let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
    /// let start = |backups| {
    ///     let builder = Builder::new().memory(16 << 20);
    ///     let builder = Node::<_, Plain>::builder(NoHtm, &fabric, NodeId(0), builder)?;
    ///     builder.owners([NodeId(0), NodeId(1)])?.backups(backups)?.recoverable(false).start()
    /// };
    /// start(0)?;
    /// assert!(matches!(start(1), Err(Error::Config { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn recoverable(self, recoverable: bool) -> Self {
        Self { recoverable: Some(recoverable), ..self }
    }

    /// Logs transactions in memory that outlives the process, as DrTM does: in files of this
    /// directory, which all nodes map. It is on a memory file system, such as `/dev/shm`, or a DAX
    /// mapping of persistent memory. When a node has died, each owner finishes what the node had
    /// decided, and frees what it had locked otherwise. All nodes choose alike.
    ///
    /// Rows are where they are without this: see
    /// [a cluster's guide](https://docs.rs/drtm/latest/drtm/guide/cluster).
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if it has tables already. [`start`](Self::start) returns
    /// [`ClusterError::NotWithLogs`] with what decides otherwise,
    /// such as backups; and [`ClusterError::Logs`] if the file cannot be made.
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
    /// let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
    /// let directory = std::env::temp_dir().join(format!("drtm-logs-{}", std::process::id()));
    /// for node in fabric.nodes() {
    ///     let builder = Builder::new().memory(16 << 20);
    ///     let builder = Node::<_, Plain>::builder_for(NoHtm, &fabric, node, builder, Protocol::DRTM)?;
    ///     builder.owners(fabric.nodes())?.logs_in_memory(&directory)?.start()?;
    /// }
    /// # std::fs::remove_dir_all(&directory).expect("it is here");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn logs_in_memory(self, directory: impl Into<PathBuf>) -> Result<Self, Error> {
        if self.db.is_some() {
            let (must_be, is) = ("chosen before tables are added", "chosen after one".to_owned());
            return Err(Error::Config { what: "logging in memory that outlives the process", must_be, is });
        }
        Ok(Self { cooperative: Some(directory.into()), ..self })
    }

    /// Lets nodes that are left go on without those that die: their backups serve what they have
    /// served. The first member that is left agrees with the others on that by this register, which
    /// all nodes have a handle of.
    ///
    /// A worker has to [serve](super::Worker::serve) for that. Where a node dies and its rows have
    /// no backup, the cluster stays as it is.
    ///
    /// # Example
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use drtm::{
    ///     Builder, Config, Error,
    ///     cluster::Node,
    ///     htm::NoHtm,
    ///     membership::Directory,
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
    /// let fabric = LocalFabric::<NoHtm>::new(3, LocalConfig::perfect());
    /// let path = std::env::temp_dir().join(format!("drtm-view-{}", std::process::id()));
    /// for node in fabric.nodes() {
    ///     let builder = Builder::new().memory(16 << 20);
    ///     let builder = Node::<_, Plain>::builder(NoHtm, &fabric, node, builder)?;
    ///     let membership = Arc::new(Directory::open(&path).expect("a directory"));
    ///     builder.owners(fabric.nodes())?.backups(1)?.membership(membership).start()?;
    /// }
    /// # std::fs::remove_dir_all(&path).expect("it is here");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn membership(self, membership: Arc<dyn Membership>) -> Self {
        Self { membership: Some(membership), ..self }
    }

    /// Lets the owners agree on the view among themselves, by Raft, over the fabric's
    /// [letters](drtm_rdma::Letters): no service runs beside them. It takes the place of a
    /// [membership](Self::membership), and all owners choose it. A majority of them must be left
    /// for the view to change.
    ///
    /// A cluster is made once: by the first owner in number that `bootstraps`, when all owners have
    /// started and none of them belongs to a cluster. All others join it. What an owner must not
    /// forget is in its [directory](Builder::path); without one, it comes back as another voter.
    ///
    /// [`start`](Self::start) does not wait until it is in. A node that is no owner has no vote,
    /// and learns the view from owners.
    ///
    /// # Errors
    ///
    /// [`start`](Self::start) returns [`ClusterError::NoVoter`] for a node that `bootstraps` and is
    /// no owner, and [`ClusterError::Fabric`] where the fabric carries no letters.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{
    ///     Builder, Error,
    ///     cluster::Node,
    ///     htm::Native,
    ///     rdma::{NodeId, TcpConfig, TcpFabric},
    /// };
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let engine = Native::chosen()?;
    /// let at = ["127.0.0.1:27330".parse()?, "127.0.0.1:27331".parse()?, "127.0.0.1:27332".parse()?];
    /// let start = |me: u16| {
    ///     let config = TcpConfig::new(NodeId(me), at[usize::from(me)], [42; 32]);
    ///     let config = (0..3).fold(config, |config, node| config.peer(NodeId(node), at[usize::from(node)]));
    ///     let fabric = TcpFabric::join(engine, config)?;
    ///     let builder = Node::builder(engine, &fabric, NodeId(me), Builder::new().memory(16 << 20))?;
    ///     let builder = builder.owners((0..3).map(NodeId))?.backups(1)?.raft(me == 0);
    ///     Ok::<Node<_>, Box<dyn std::error::Error>>(builder.start()?)
    /// };
    /// let nodes = [start(0)?, start(1)?, start(2)?];
    /// # drop(nodes);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "raft")]
    pub fn raft(mut self, bootstraps: bool) -> Self {
        self.voter.bootstraps = Some(bootstraps);
        self
    }

    /// Sets how long a node may serve without a word of the view's leader: its lease. A node that
    /// is silent for longer is taken for dead, and the view changes to one without it. It returns
    /// nothing meanwhile that it has read, and where it wakes up it finds itself
    /// [out](super::ClusterEvent::Evicted). All nodes choose alike, clients included.
    ///
    /// Where there is a [membership](Self::membership), it is one second by default, and ten
    /// seconds among nodes whose deaths are [certain](drtm_rdma::Capabilities::certain_deaths).
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
    /// let fabric = LocalFabric::<NoHtm>::new(3, LocalConfig::perfect());
    /// let memory = Builder::new().memory(16 << 20);
    /// let builder = Node::<_, Plain>::builder(NoHtm, &fabric, NodeId(0), memory)?;
    /// builder.owners(fabric.nodes())?.lease(Duration::from_millis(100)).start()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease: Some(lease), ..self }
    }

    /// Makes it the next life of a node that was evicted: its events go on.
    pub(super) fn follows(self, former: &Node<F, S>) -> Self {
        Self { former: Some(former.announcer()), ..self }
    }

    /// Makes this node's processors lock rows by its NIC, where a NIC's compare-and-swap is
    /// [atomic](drtm_rdma::Atomicity::Hca) with those of other NICs only. Peers may lock rows by
    /// verbs then; otherwise they lock by message there. Each lock of a processor takes as long as
    /// a verb does. All nodes choose alike.
    ///
    /// # Errors
    ///
    /// [`ClusterError::NoLoopback`].
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
    /// // Swaps of this fabric are those of most NICs.
    /// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::harsh(7));
    /// let builder = Builder::new().memory(16 << 20);
    /// let builder = Node::<_, Plain>::builder_for(NoHtm, &fabric, NodeId(0), builder, Protocol::DRTM_H)?;
    /// builder.owners([NodeId(0)])?.locks_by_loopback()?.start()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn locks_by_loopback(self) -> Result<Self, Error> {
        let is_needed = self.fabric.capabilities().atomicity != Atomicity::Global;
        if is_needed && !S::has(Mutation::LoopbackLeftOut) {
            let nic = self.fabric.loopback(self.node).ok_or(ClusterError::NoLoopback)?;
            self.store.region().swap_by(nic);
        }
        Ok(Self { by_loopback: true, ..self })
    }

    /// Returns the node's database, which is created by the first call.
    fn db(&mut self) -> Result<Db<S>, Error> {
        if let Some(builder) = self.builder.take() {
            let is_logged = self.log.backups > 0 || self.cooperative.is_some();
            let builder = match is_logged {
                false => builder,
                true => {
                    self.only_logged.begin(self.loads_alone);
                    let only_logged = Arc::clone(&self.only_logged);
                    builder.sink(only_logged)
                }
            };
            self.db = Some(builder.build_in(self.store.clone())?);
        }
        // It could not be made before.
        self.db.clone().ok_or(Error::Closed)
    }

    /// Returns the rows of this node alone, to be read and written before it is started. This is
    /// how [replicated](Partition::replicated) tables are filled. A table without indexes can be
    /// filled so, too, with the rows that this node owns: where owners have backups, only if rows
    /// are [loaded alone](Self::loads_alone).
    ///
    /// # Errors
    ///
    /// When memory cannot be had.
    pub fn local(&mut self) -> Result<Db<S>, Error> {
        self.db()
    }

    /// Adds a table. All nodes add the same tables, in the same order.
    ///
    /// # Errors
    ///
    /// [`Error::OfCluster`] if the node's database has opened indexes of it; otherwise as for
    /// [`Db::table`].
    pub fn table<K: Key, C: Codec, O: Kind>(
        &mut self,
        def: TableDef<K, C, O>,
        partition: Partition<K>,
    ) -> Result<Table<K, C, O>, Error> {
        let db = self.db()?;
        let table = db.table(def)?;
        let opened = db.inner.catalog.opened(table.database, table.number, || Admission::LATEST)?;
        if !opened.indexes.are_none() {
            return Err(Error::OfCluster { table: def.name() });
        }
        let writers = if partition.is_replicated() { Writers::Own } else { Writers::Shared };
        let number = self.serve(table.number, writers, partition, None)?;
        let shape = brief(def.shape());
        self.described.push_str(&format!("{shape}, named {}, by {}; ", shape.name, partition.name()));
        Ok(Table::new(OF_CLUSTER, number))
    }

    /// Adds an index of a table, whose entries are divided by what rows are found by: an entry is
    /// mostly at another node than its row. All nodes add the same indexes, in the same order among
    /// tables and indexes.
    ///
    /// The table's rows are written by transactions of the cluster only, from now on: those of
    /// the node's [own database](Self::local) are refused with [`Error::OfCluster`].
    ///
    /// An index of a [replicated](Partition::replicated) table is replicated as well, and kept by
    /// the node's own database until the node is started.
    ///
    /// # Errors
    ///
    /// [`ClusterError::NotEmpty`] if the table has rows, and is not replicated; [`Error::Config`]
    /// if one of table and index is replicated, and the other not; otherwise as for [`Db::index`].
    ///
    /// # Example
    ///
    /// See [`Transaction`](crate::Transaction).
    pub fn index<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        def: IndexDef<K, C, I, U>,
        partition: Partition<I>,
    ) -> Result<Index<K, C, I, U, O>, Error> {
        let served = self.tables.get(usize::from(table.number)).filter(|_| table.database == OF_CLUSTER);
        let (indexed, of_replicated) =
            served.map(|served| (served.number, served.is_replicated)).ok_or(Error::OtherDatabase)?;
        let db = self.db()?;
        let (database, is_replicated) = (db.inner.number, partition.is_replicated());
        let name = db.inner.catalog.get(indexed).map_or("", |opened| opened.name.get());
        if is_replicated != of_replicated {
            let (what, must_be) = ("an index of a table", "replicated if the table is, and divided if it is divided");
            return Err(Error::Config { what, must_be, is: partition.name().to_owned() });
        }
        let number = if is_replicated {
            db.index(Table::<K, C, O>::new(database, indexed), def)?.entries().number
        } else {
            let opened = db.inner.catalog.opened(database, indexed, || Admission::LATEST)?;
            // A table that was recovered with its entries has them all.
            let is_recovered = db.inner.catalog.named(def.entries().name()).is_some();
            if !is_recovered && opened.storage.records()? > 0 {
                return Err(ClusterError::NotEmpty { table: name }.into());
            }
            let entries = db.table(def.entries())?.number;
            self.set_writers(indexed, Writers::Cluster)?;
            entries
        };
        let writers = if is_replicated { Writers::Own } else { Writers::Cluster };
        let place = self.tables.get(usize::from(table.number)).map_or(0, |served| served.indexes.len());
        let entries = self.serve(number, writers, partition, Some((table.number, place)))?;
        if !is_replicated && let Some(served) = self.tables.get_mut(usize::from(table.number)) {
            served.indexes.push(index_info(def, entries, name));
        }
        let shape = brief(def.entries().shape());
        self.described.push_str(&format!("{shape}, an index of {name}, by {}; ", partition.name()));
        Ok(Index::new(table, Table::new(OF_CLUSTER, entries)))
    }

    /// Serves a table of the node's database, and says under which number.
    fn serve<K: Key>(
        &mut self,
        number: u16,
        writers: Writers,
        partition: Partition<K>,
        is_index_of: Option<(u16, usize)>,
    ) -> Result<u16, Error> {
        self.set_writers(number, writers)?;
        let (is_replicated, partition): (_, Box<dyn Divide>) = (partition.is_replicated(), Box::new(partition));
        if is_replicated {
            self.only_logged.allow(number);
        }
        let db = self.db()?;
        let opened = db.inner.catalog.opened(db.inner.number, number, || Admission::LATEST)?;
        let (storage, key_size) = (opened.storage.impatient(), opened.key_size());
        let served = Served { number, storage, key_size, is_replicated, partition, indexes: Vec::new(), is_index_of };
        let number = u16::try_from(self.tables.len()).map_err(|_| Error::TooManyTables { most: u16::MAX.into() })?;
        self.tables.push(served);
        Ok(number)
    }

    /// Sets what may write a table of the node's database.
    fn set_writers(&mut self, number: u16, writers: Writers) -> Result<(), Error> {
        let db = self.db()?.inner;
        let opened = db.catalog.opened(db.number, number, || Admission::LATEST)?;
        opened.indexes.set_writers(writers, || db.lifecycle.advance_count(db.engine()));
        Ok(())
    }

    /// Lets no transaction write replicated tables any more, and describes what they have.
    fn describe_replicas(&mut self) -> Result<(), Error> {
        for table in 0..self.tables.len() {
            let Served { number, is_replicated: true, .. } = self.tables[table] else { continue };
            self.set_writers(number, Writers::Nothing)?;
            let served = &self.tables[table];
            let (mut rows, mut sum) = (0_u64, 0_u64);
            let mut tour = served.storage.tour()?;
            let mut count = |key: KeyRef<'_>, value: &[u8], _| {
                // In any order, since nodes may have them in different ones.
                let row = mix(digest(key.encoded(served.key_size, &mut [0; 8])) ^ mix(digest(value)));
                (rows, sum) = (rows + 1, sum.wrapping_add(row));
            };
            while served.storage.rows(&mut tour, &mut count)? {}
            self.described.push_str(&format!("{rows} rows, which are {sum:016x}; "));
        }
        Ok(())
    }

    /// Starts the node. It serves others as soon as one of its [workers](Node::worker) does.
    ///
    /// # Errors
    ///
    /// [`ClusterError::NoOwners`], [`ClusterError::TooManyBackups`]. [`ClusterError::BadView`] if
    /// the node's directory is of a cluster with other shards or owners, where there is a
    /// [membership](Self::membership). Or when memory cannot be had.
    pub fn start(mut self) -> Result<Node<F, S>, Error> {
        let db = self.db()?;
        self.describe_replicas()?;
        #[cfg(feature = "raft")]
        let voter = match (self.voter.bootstraps, &self.membership) {
            (Some(bootstraps), None) => {
                let directory = self.voter.directory.as_deref();
                let voter = super::voters::start(&self.fabric, self.node, &self.owners, directory, bootstraps)?;
                self.membership = Some(match &voter {
                    Some(voter) => Arc::<Raft>::clone(voter),
                    None => Arc::new(Bystander::default()),
                });
                voter
            }
            _ => None,
        };
        let Self {
            fabric,
            node,
            incarnation,
            owners,
            shards,
            region,
            protocol,
            timing,
            log,
            only_logged,
            #[cfg(feature = "hades")]
            machine,
            tables,
            mut described,
            cooperative,
            membership,
            lease,
            recoverable,
            former,
            ..
        } = self;
        let by_loopback = self.by_loopback;
        if owners.is_empty() {
            return Err(ClusterError::NoOwners.into());
        }
        log.check(owners.len())?;
        if protocol.detection != Detection::Versions {
            let options = [
                (log.backups > 0, "backups"),
                (recoverable == Some(true), "recovery of what dead nodes have begun"),
                (membership.is_some(), "membership"),
            ];
            if let Some((_, what)) = options.into_iter().find(|(is_chosen, _)| *is_chosen) {
                return Err(ClusterError::NotWithProtocol { protocol: protocol.name, what }.into());
            }
        }
        if cooperative.is_some() {
            let options = [
                (log.backups > 0, "backups"),
                (recoverable == Some(true), "recovery of what dead nodes have begun"),
                (membership.is_some(), "membership"),
                (protocol.detection != Detection::Versions, "conflicts by cache lines"),
                (
                    db.inner.log.as_ref().is_some_and(|log| log.mode() != Durability::Sync),
                    "a log that is flushed after the commit",
                ),
            ];
            if let Some((_, what)) = options.into_iter().find(|(is_chosen, _)| *is_chosen) {
                return Err(ClusterError::NotWithLogs { what }.into());
            }
            described.push_str("logs in memory, ");
        }
        if log.backups > 0 && recoverable == Some(false) {
            let (must_be, is) = ("chosen where there are no backups", "chosen beside backups".to_owned());
            return Err(Error::Config { what: "that nothing of dead nodes is recovered", must_be, is });
        }
        let log = log.recorded(recoverable.unwrap_or(membership.is_some()));
        if by_loopback {
            described.push_str("locks by loopback, ");
        }
        let shards = shards.unwrap_or(owners.len() * SHARDS_PER_OWNER);
        let first_view = View::fixed(&owners, shards, log.backups)?;
        described.push_str(&format!("{shards} shards, owned by {owners:?}"));
        if log.copies > 0 {
            let LogConfig { backups, copies, ring_bytes, .. } = log;
            described.push_str(&format!(", {backups} backups, {copies} records, rings of {ring_bytes} bytes"));
        }
        let groups = first_view.groups();
        let own = (0..).zip(&owners).find(|(_, owner)| **owner == node).map(|(group, _): (u16, _)| group);
        let places = tables.len() * (usize::from(groups) + 1);
        let stores: Box<[OnceLock<Stored<S::Engine>>]> = (0..places).map(|_| OnceLock::new()).collect();
        if stores.len() > usize::from(u16::MAX) {
            return Err(Error::TooManyTables { most: usize::from(u16::MAX / (groups + 1)) });
        }
        for (served, table) in tables.iter().zip(0..) {
            let Served { number, is_replicated, .. } = *served;
            if let (true, _) | (false, Some(_)) = (is_replicated, own) {
                let store = store_of(table, own.filter(|_| !is_replicated), groups);
                let storage = served.storage.clone();
                // Each place is one table's.
                let _ = stores[usize::from(store)].set(Stored { number, storage, is_replicated });
            }
        }
        let is_backup = |group: &u16| first_view.placement(*group).is_some_and(|at| at.backups.contains(&node));
        let replicas = match log.copies {
            0 => Vec::new(),
            _ => replicas::first(&db.inner, &tables, &stores, &first_view, (own, (0..groups).filter(is_backup)))?,
        };
        let backup = match replicas.is_empty() {
            true => None,
            false => {
                let (ring, log_of_node) = ((log.ring_bytes, first_view.clone()), db.inner.log.as_ref());
                Some(Backup::new(&db.inner.store, ring, (node, replicas), log_of_node)?)
            }
        };
        let reservations = Reservations::default();
        // Without a membership, none asks for it.
        let note = db.inner.log.as_ref().filter(|_| membership.is_some()).and_then(|log| log.noted());
        let changing = Changing::with_noted(note.map(|note| first_view.of_note(&note)).transpose()?);
        let recovers = cooperative.is_some();
        let home = Home { db: Arc::clone(&db.inner), tables, stores, reservations, recovers, changing, backup };
        let caches = protocol.caches.then(|| Caches::new(CACHE_BYTES, owners.len()));
        let home = Arc::new(home);
        let engine = db.inner.engine();
        // Where nodes agree on the view, none serves before they have met.
        let open = if membership.is_some() { BETWEEN } else { first_view.number() };
        engine.store(db.inner.snapshots.view(&db.inner.store)?, open.into());
        let board = protocol.adapts.then(|| Board::new(protocol.forms()));
        let default = || if fabric.capabilities().certain_deaths { LONG_LEASE } else { SHORT_LEASE };
        let lease = lease.or_else(|| membership.is_some().then(default));
        let tenure = lease.map(|lease| Tenure::new(node, LeaseTerms::new(lease), &first_view));
        let cooperative = cooperative
            .map(|directory| Cooperative::create(engine.clone(), &directory, (node, incarnation)))
            .transpose()
            .map_err(ClusterError::Logs)?;
        if let (Some(logs), Some(group)) = (&cooperative, own) {
            let endpoint = fabric.endpoint(node).map_err(ClusterError::Fabric)?;
            let is_over = |(other, life): (NodeId, Incarnation)| match endpoint.presence(other) {
                _ if other == node => life < incarnation,
                Presence::Here(now) => now > life,
                Presence::Left(last) | Presence::Died(last) => last >= life,
                _ => false,
            };
            let rows = Replica::new(group, replicas::own_tables(&db.inner, &home.tables)?);
            logs.restore(&home, (&first_view, &rows), is_over)?;
        }
        #[cfg(feature = "hades")]
        let nic = super::smart_nic::SmartNic::new(node, incarnation, protocol.detection, &machine).map(Arc::new);
        #[cfg(feature = "hades")]
        if let Some(nic) = &nic {
            // The database is this node's, and new.
            let _ = db.inner.keeper.set(Arc::clone(nic) as _);
        }
        let shared = Shared {
            fabric,
            node,
            incarnation,
            shards,
            view: Current::new(first_view.clone(), membership.is_some()),
            first_view,
            region,
            protocol,
            board,
            timing,
            log,
            cooperative,
            only_logged,
            by_loopback,
            caches,
            described,
            home,
            returns: AtomicBool::new(former.is_some()),
            announcer: former.unwrap_or_default(),
            membership,
            #[cfg(feature = "raft")]
            voter,
            is_kept: AtomicBool::new(false),
            learns: AtomicBool::new(false),
            unanswered: Mutex::default(),
            tenure,
            closings: Closings::default(),
            orders: Orders::default(),
            gathered: Mutex::default(),
            #[cfg(feature = "chopping")]
            left: super::chopped::Left::new(),
            #[cfg(feature = "hades")]
            nic,
            db,
        };
        Ok(Node::new(shared))
    }
}

/// Shortens the description of a table's types, so that those of many tables fit a message.
fn brief(shape: TableShape) -> TableShape {
    const MOST: usize = 60;
    TableShape { types: shortened(shape.types, MOST), ..shape }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Node<F, S> {
    /// Returns a builder of a node that is present on a fabric. Its rows are kept as the builder of
    /// a database says, which may have no sink. With a [path](Builder::path), they are recovered
    /// from there.
    ///
    /// # Errors
    ///
    /// [`ClusterError::NotHere`]; or when memory cannot be had.
    pub fn builder(engine: S::Engine, fabric: &F, node: NodeId, builder: Builder) -> Result<NodeBuilder<F, S>, Error> {
        Self::builder_for(engine, fabric, node, builder, Protocol::default())
    }

    /// Like [`builder`](Self::builder), but for a protocol, which all nodes must have.
    ///
    /// # Errors
    ///
    /// As for [`builder`](Self::builder).
    pub fn builder_for(
        engine: S::Engine,
        fabric: &F,
        node: NodeId,
        builder: Builder,
        protocol: Protocol,
    ) -> Result<NodeBuilder<F, S>, Error> {
        let builder = builder.of_cluster()?;
        let is_tracked = cfg!(feature = "hades") && fabric.capabilities().smart_nic;
        if protocol.detection != Detection::Versions && !is_tracked {
            return Err(ClusterError::NoSmartNic { protocol: protocol.name }.into());
        }
        let builder = if protocol.is_one_sided() { builder.for_peers() } else { builder };
        let region = Arc::new(fabric.region(engine, builder.capacity()?).map_err(ClusterError::Region)?);
        let here = fabric.endpoint(node).map_err(ClusterError::Fabric)?.presence(node).here();
        let incarnation = here.ok_or(ClusterError::NotHere { node })?;
        let store = Store::in_region_of(node, incarnation.0, Arc::clone(&region)).map_err(ClusterError::Store)?;
        let region = fabric.register(node, region).map_err(ClusterError::Fabric)?;
        let (owners, tables, described) = (Vec::new(), Vec::new(), String::new());
        #[cfg(feature = "raft")]
        let voter = Voter { directory: builder.directory().map(ToOwned::to_owned), bootstraps: None };
        let (builder, db, log, only_logged) = (Some(builder), None, LogConfig::default(), Arc::default());
        let (fabric, loads_alone, by_loopback) = (fabric.clone(), false, false);
        Ok(NodeBuilder {
            fabric,
            node,
            incarnation,
            owners,
            shards: None,
            builder,
            store,
            db,
            region,
            protocol,
            timing: Timing::default(),
            log,
            loads_alone,
            recoverable: None,
            by_loopback,
            cooperative: None,
            membership: None,
            #[cfg(feature = "raft")]
            voter,
            lease: None,
            only_logged,
            #[cfg(feature = "hades")]
            machine: super::smart_nic::SmartNic::USUAL,
            former: None,
            tables,
            described,
        })
    }
}
