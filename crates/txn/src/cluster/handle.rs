//! A node with threads of its own: transactions of any thread, or of any async runtime.

use std::{
    fmt,
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use drtm_rdma::Fabric;
use parking_lot::Mutex;

#[cfg(feature = "chopping")]
use super::queue::Job;
use super::{
    ClusterError, ClusterStats, ClusterStatus, ClusterTx, Events, Node, Submitted, Worker,
    lives::{Lives, Recipe},
    queue::{Queue, Transact, Work},
    thread::{CLOSED_WITHIN, Closing, Seat},
};
use crate::{Config, DefaultConfig, Error, Options, trace::event};

/// For how long a thread is waited for that is asked what its transactions did.
const ASKED_FOR: Duration = Duration::from_millis(100);

/// How often it is looked whether other nodes have started.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// A node that runs: its threads begin transactions for any other thread, and serve those of other
/// nodes. Clones are the same.
///
/// A transaction's closure is sent to one of the threads, and runs there beside others: while it
/// waits for other nodes, the thread does something else. So closures must not block.
///
/// A node that is [evicted](super::ClusterEvent::Evicted) ends its transactions, with
/// [`ClusterError::Evicted`]. If it was started by the builder's `addresses` or
/// [`joining`](super::ClusterBuilder::joining), it then joins again by itself, as a process does
/// that is started again: with nothing, or its directory. What is given to it meanwhile waits,
/// until its deadline if it has one. Tables and other handles of the cluster stay what they are,
/// and events and statistics go on; [`node`](Self::node) returns another node, at which procedures
/// of chopped transactions are to be registered again.
///
/// # Example
///
/// ```
/// use drtm::{Pod, TableDef, Transaction, cluster::{Cluster, Partition}};
///
/// const ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("accounts");
///
/// // Two nodes, which would be processes or machines; here they are in one process.
/// let mut builder = Cluster::builder().nodes(2);
/// let accounts = builder.table(ACCOUNTS, Partition::by("number", |number| *number));
/// let nodes = builder.start()?;
///
/// // Account 1 is on the second node, account 2 on the first.
/// nodes[0]
///     .transact(async move |tx| {
///         tx.insert(accounts, 1, &100).await?;
///         tx.insert(accounts, 2, &0).await
///     })
///     .wait()?;
/// let paid = nodes[1].transact(async move |tx| {
///     tx.update(accounts, 1, |balance| *balance -= 30).await?;
///     tx.update(accounts, 2, |balance| *balance += 30).await
/// });
/// // It is a future, too: `paid.await`.
/// assert_eq!(paid.wait()?, Some(()));
/// let all = nodes[0].transact(async move |tx| tx.get_many(accounts, [1, 2]).await).wait()?;
/// assert_eq!(all, [Some(70), Some(30)]);
/// nodes.iter().for_each(Cluster::close);
/// # Ok::<(), drtm::Error>(())
/// ```
pub struct Cluster<F: Fabric, S: Config<Engine = F::Engine> = DefaultConfig> {
    shared: Arc<Shared<F, S>>,
}

struct Shared<F: Fabric, S: Config<Engine = F::Engine>> {
    lives: Arc<Lives<F, S>>,
    queues: Vec<Arc<Queue<F, S>>>,
    /// Which thread is to run the next transaction.
    next: AtomicUsize,
    threads: Mutex<Vec<JoinHandle<()>>>,
    closing: Arc<Closing>,
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Cluster<F, S> {
    /// Runs a node by so many threads. If it is evicted, it stays out: only a
    /// [builder](super::ClusterBuilder::start) knows how a next life begins.
    ///
    /// # Errors
    ///
    /// When there are no threads, or the fabric has no endpoint for one.
    pub fn start(node: Node<F, S>, threads: usize) -> Result<Self, Error> {
        Self::start_with(node, threads, None)
    }

    /// Runs a node by so many threads, and its next lives, if there is a recipe for them.
    pub(super) fn start_with(node: Node<F, S>, threads: usize, recipe: Option<Recipe<F, S>>) -> Result<Self, Error> {
        if threads == 0 {
            let (must_be, is) = ("one or more", "none".to_owned());
            return Err(Error::Config { what: "the number of a node's threads", must_be, is });
        }
        let queues: Vec<_> = (0..threads).map(|_| Arc::new(Queue::new())).collect();
        let lives = Arc::new(Lives::new(node, threads, recipe));
        let next = AtomicUsize::new(0);
        let shared = Shared { lives, queues, next, threads: Mutex::default(), closing: Arc::default() };
        let cluster = Self { shared: Arc::new(shared) };
        for (queue, number) in cluster.shared.queues.iter().zip(0..) {
            cluster.add_thread(Arc::clone(queue), number)?;
        }
        Ok(cluster)
    }

    /// Adds a thread, which runs the node's lives.
    fn add_thread(&self, queue: Arc<Queue<F, S>>, number: usize) -> Result<(), Error> {
        let lives = Arc::clone(&self.shared.lives);
        let node = lives.node();
        let endpoint = node.endpoint()?;
        let closing = Arc::clone(&self.shared.closing);
        let name = format!("drtm-{}", node.id());
        let run = move || Seat { lives, number }.run(node, endpoint, &queue, &closing);
        let thread = thread::Builder::new().name(name).spawn(run).map_err(ClusterError::Thread)?;
        self.shared.threads.lock().push(thread);
        Ok(())
    }

    /// Returns the node: the life of it that runs, or ran last. One that was evicted is closed for
    /// all its handles when it joins again, and this returns another. A program that has workers of
    /// its own ends them then.
    #[must_use]
    pub fn node(&self) -> Node<F, S> {
        self.shared.lives.node()
    }

    /// Waits until all nodes answer, which may start later than this one, and blocks this thread.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Unreachable`] if one does not answer within this time;
    /// [`ClusterError::Interrupted`] if no view has begun by then, where nodes agree on it;
    /// [`ClusterError::Refused`] if one is of another cluster, or has other tables.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use drtm::cluster::Cluster;
    ///
    /// let nodes = Cluster::builder().nodes(3).start()?;
    /// for node in &nodes {
    ///     node.wait_for_nodes(Duration::from_secs(10))?;
    /// }
    /// # Ok::<(), drtm::Error>(())
    /// ```
    pub fn wait_for_nodes(&self, within: Duration) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            // No view may have begun, where nodes agree on it: that is waited for, too.
            let left = Options::new().within(within.saturating_sub(begun.elapsed()));
            match self.transact_with(left, async |tx| tx.greet_owners().await).wait() {
                Err(Error::Cluster(ClusterError::Unreachable { .. })) if begun.elapsed() < within => {
                    thread::sleep(BETWEEN_LOOKS);
                }
                met => return met,
            }
        }
    }

    /// Runs `body` in a serializable transaction on one of the node's threads, as
    /// [`Worker::transact`](super::Worker::transact) does. It begins at once, whether or not the
    /// future is polled.
    ///
    /// Only the closure is sent to the thread; its future, and what that holds, is made there. Each
    /// thread takes 4,096 at a time, and refuses more: then some are to be awaited first.
    ///
    /// # Example
    ///
    /// See [`Cluster`].
    pub fn transact<T, B>(&self, body: B) -> Submitted<T>
    where
        B: for<'e> AsyncFnMut(&mut ClusterTx<'e, F, S>) -> Result<T, Error> + Send + 'static,
        T: Send + 'static,
    {
        self.transact_with(Options::new(), body)
    }

    /// Like [`transact`](Self::transact), as these options say: see
    /// [`Worker::transact_with`](super::Worker::transact_with).
    ///
    /// A transaction whose deadline passes while it waits for its turn is run once all the same.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{
    ///     Builder, Config, Error, Options, Pod, TableDef, Transaction,
    ///     cluster::{Cluster, Node, Partition},
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
    /// const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
    ///
    /// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
    /// let builder = Builder::new().memory(16 << 20);
    /// let mut node = Node::<_, Plain>::builder(NoHtm, &fabric, NodeId(0), builder)?.owners([NodeId(0)])?;
    /// let counters = node.table(COUNTERS, Partition::hash())?;
    /// let node = node.start()?;
    /// let (db, local) = (node.local().clone(), node.local().table(COUNTERS)?);
    /// db.transact(|tx| tx.put(local, &1, &0))?;
    ///
    /// let cluster = Cluster::start(node, 1)?;
    /// let mut other = 0;
    /// let failed = cluster.transact_with(Options::new().attempts(3), async move |tx| {
    ///     let count = tx.get(counters, 1).await?.unwrap_or(0);
    ///     // Something else is always faster. (Nothing is locked here, for which it would wait.)
    ///     other += 1;
    ///     db.transact(|tx| tx.put(local, &1, &other))?;
    ///     tx.put(counters, 1, &(count + 1)).await
    /// });
    /// match failed.wait() {
    ///     Err(Error::Contended { attempts: 3, table: Some("counters"), key, .. }) => {
    ///         assert_eq!(key, 1_u64.to_be_bytes());
    ///     }
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn transact_with<T, B>(&self, options: Options, body: B) -> Submitted<T>
    where
        B: for<'e> AsyncFnMut(&mut ClusterTx<'e, F, S>) -> Result<T, Error> + Send + 'static,
        T: Send + 'static,
    {
        self.submit(Transact { options, body })
    }

    /// Gives work to the thread whose turn it is.
    pub(super) fn submit<T: Send + 'static>(&self, work: impl Work<F, S, T>) -> Submitted<T> {
        self.next_queue().submit(work)
    }

    /// Gives a job to the thread whose turn it is.
    #[cfg(feature = "chopping")]
    pub(super) fn push(&self, job: Box<dyn Job<F, S>>) {
        self.next_queue().push(job);
    }

    fn next_queue(&self) -> &Queue<F, S> {
        let turn = self.shared.next.fetch_add(1, Relaxed) % self.shared.queues.len();
        &self.shared.queues[turn]
    }

    /// Returns what the transactions of this node's threads did since it started.
    ///
    /// It asks the threads, and waits for 100 ms at most for those that a body blocks.
    ///
    /// # Example
    ///
    /// See [`ClusterStats`].
    #[must_use]
    pub fn stats(&self) -> ClusterStats {
        let (reply, replies) = mpsc::channel();
        self.shared.queues.iter().for_each(|queue| queue.ask(reply.clone()));
        drop(reply);
        let (end, mut answered) = (Instant::now() + ASKED_FOR, 0);
        // When all have answered, or have ended, nobody can reply any more.
        let has_ended = loop {
            match replies.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(()) => answered += 1,
                Err(error) => break error == RecvTimeoutError::Disconnected,
            }
        };
        let all = self.shared.queues.iter().fold(ClusterStats::default(), |all, queue| all + queue.noted());
        let blocked_threads = if has_ended { 0 } else { self.shared.queues.len() as u64 - answered };
        ClusterStats { blocked_threads, ..all }
    }

    /// Returns what this node sees of the cluster: its members, and what each shard has. Primaries
    /// count their rows for so long at the most: see [`Worker::status`](super::Worker::status).
    ///
    /// # Example
    ///
    /// See [`ClusterStatus`].
    pub fn status(&self, counted_within: Duration) -> Submitted<ClusterStatus> {
        self.submit(Look { counted_within })
    }

    /// Returns the events of the other nodes from now on: who joins, leaves, dies, or is silent,
    /// and who refuses transactions again and again. With the feature `tracing`, they are events of
    /// the crate `tracing`, too.
    ///
    /// # Example
    ///
    /// See [`Events`].
    #[must_use]
    pub fn events(&self) -> Events {
        self.shared.lives.announcer().events()
    }

    /// Like [`close_within`](Self::close_within) 10 seconds. What is left then is told by the crate
    /// `tracing` (feature `tracing`) only.
    ///
    /// # Panics
    ///
    /// With the panic of a thread, which is a defect.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Closes the node: waits until all that was begun here has ended, by this node and by others,
    /// and leaves the other nodes.
    ///
    /// Transactions that are given to this node get [`Error::Closed`] from now on. Those of other
    /// nodes that have not come to this one yet are refused with
    /// [`Refusal::Closed`](super::Refusal::Closed); those that have are carried out or given up.
    /// The others see [`ClusterEvent::Closing`](super::ClusterEvent::Closing), and
    /// [`ClusterEvent::Left`](super::ClusterEvent::Left) at the end. To find rows that are locked,
    /// it goes through all of the node's.
    ///
    /// # Errors
    ///
    /// When something is left after this time: [`ClusterError::Unfinished`] says what other nodes
    /// have begun, and [`ClusterError::CutOff`] that a transaction of this one had not ended. When
    /// the node's log fails. The node has left all the same.
    ///
    /// # Panics
    ///
    /// With the panic of a thread, which is a defect.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use drtm::cluster::{Cluster, ClusterEvent};
    ///
    /// let nodes = Cluster::builder().nodes(2).start()?;
    /// nodes[0].wait_for_nodes(Duration::from_secs(10))?;
    /// let mut events = nodes[0].events();
    /// nodes[1].close_within(Duration::from_secs(10))?;
    /// assert_eq!(events.wait(), Some(ClusterEvent::Closing { node: nodes[1].node().id() }));
    /// assert_eq!(events.wait(), Some(ClusterEvent::Left { node: nodes[1].node().id() }));
    /// # Ok::<(), drtm::Error>(())
    /// ```
    pub fn close_within(&self, within: Duration) -> Result<(), Error> {
        self.shared.close_within(within)
    }
}

/// A look at the cluster.
struct Look {
    counted_within: Duration,
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Work<F, S, ClusterStatus> for Look {
    async fn run(self, worker: Worker<'_, F, S>) -> Result<ClusterStatus, Error> {
        worker.status(self.counted_within).await
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Shared<F, S> {
    fn close(&self) {
        if let Err(_error) = self.close_within(CLOSED_WITHIN) {
            event!(warn, node = self.lives.node().id().0, error = %_error, "a node has left before all was done");
        }
    }

    fn close_within(&self, within: Duration) -> Result<(), Error> {
        // The first call counts.
        let mut threads = self.threads.lock();
        if !threads.is_empty() {
            *self.closing.within.lock() = within;
        }
        self.queues.iter().for_each(|queue| queue.close());
        let joining = self.lives.close();
        let threads = std::mem::take(&mut *threads);
        if threads.is_empty() {
            return Ok(());
        }
        // What joins at this moment leaves at once.
        let threads = threads.into_iter().chain(joining);
        let panicked = threads.filter_map(|thread| thread.join().err()).last();
        self.lives.node().leave();
        if let Some(panic) = panicked
            && !thread::panicking()
        {
            resume_unwind(panic);
        }
        self.closing.left.lock().take().map_or(Ok(()), Err)
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Drop for Shared<F, S> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Clone for Cluster<F, S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> fmt::Debug for Cluster<F, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("node", &self.node()).finish_non_exhaustive()
    }
}
