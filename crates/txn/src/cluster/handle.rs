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

use drtm_rdma::{Executor, Fabric};
use parking_lot::Mutex;

use super::{ClusterError, ClusterStats, ClusterTx, Events, Node, Submitted, queue::Queue};
use crate::{Config, DefaultConfig, Error, Options};

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
    node: Node<F, S>,
    queues: Vec<Arc<Queue<F, S>>>,
    /// Which thread is to run the next transaction.
    next: AtomicUsize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Cluster<F, S> {
    /// Runs a node by so many threads.
    ///
    /// # Errors
    ///
    /// When there are no threads, or the fabric has no endpoint for one.
    pub fn start(node: Node<F, S>, threads: usize) -> Result<Self, Error> {
        if threads == 0 {
            let (must_be, is) = ("one or more", "none".to_owned());
            return Err(Error::Config { what: "the number of a node's threads", must_be, is });
        }
        let queues: Vec<_> = (0..threads).map(|_| Arc::new(Queue::new())).collect();
        let next = AtomicUsize::new(0);
        let shared = Shared { node, queues, next, threads: Mutex::default() };
        let cluster = Self { shared: Arc::new(shared) };
        for (queue, number) in cluster.shared.queues.iter().zip(0..) {
            cluster.add_thread(Arc::clone(queue), number == 0)?;
        }
        Ok(cluster)
    }

    /// Adds a thread. The first one `announces` what happens to other nodes.
    fn add_thread(&self, queue: Arc<Queue<F, S>>, announces: bool) -> Result<(), Error> {
        let node = self.shared.node.clone();
        let endpoint = node.endpoint()?;
        let name = format!("drtm-{}", node.id());
        let run = move || {
            let Ok(worker) = node.worker(&endpoint) else {
                // As many workers as there can be are alive. What is queued here is refused.
                queue.refuse();
                return;
            };
            let mut executor = Executor::new(&endpoint);
            let spawner = executor.spawner();
            worker.serve(&spawner);
            if announces {
                let announcer = worker.clone();
                // An executor that has ended announces nothing.
                let _ = spawner.serve(async move { announcer.announce_nodes().await });
            }
            executor.spawn(async move {
                while let Some(job) = queue.next().await {
                    job.start(worker.clone(), &spawner);
                }
                worker.drained().await;
                queue.note(worker.stats());
            });
            executor.run();
        };
        let thread = thread::Builder::new().name(name).spawn(run).map_err(ClusterError::Thread)?;
        self.shared.threads.lock().push(thread);
        Ok(())
    }

    /// Returns the node.
    #[must_use]
    pub fn node(&self) -> &Node<F, S> {
        &self.shared.node
    }

    /// Waits until all nodes answer, which may start later than this one, and blocks this thread.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Unreachable`] if one does not answer within this time;
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
            match self.transact(async |tx| tx.greet_owners().await).wait() {
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
        let turn = self.shared.next.fetch_add(1, Relaxed) % self.shared.queues.len();
        self.shared.queues[turn].submit(options, body)
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

    /// Returns the events of the other nodes from now on: who joins, leaves, dies, or is silent,
    /// and who refuses transactions again and again. With the feature `tracing`, they are events of
    /// the crate `tracing`, too.
    ///
    /// # Example
    ///
    /// See [`Events`].
    #[must_use]
    pub fn events(&self) -> Events {
        self.shared.node.events()
    }

    /// Ends the node's threads when all transactions that were begun here have ended, and leaves
    /// the other nodes. They are told: what they ask of this one fails at once from then on.
    /// Transactions that are given to this node get [`Error::Closed`].
    ///
    /// # Panics
    ///
    /// With the panic of a thread, which is a defect.
    pub fn close(&self) {
        self.shared.close();
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Shared<F, S> {
    fn close(&self) {
        self.queues.iter().for_each(|queue| queue.close());
        let threads = std::mem::take(&mut *self.threads.lock());
        if threads.is_empty() {
            return;
        }
        let panicked = threads.into_iter().filter_map(|thread| thread.join().err()).last();
        // What others have asked this node is answered no more. They would wait for ever.
        self.node.leave();
        if let Some(panic) = panicked
            && !thread::panicking()
        {
            resume_unwind(panic);
        }
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
        f.debug_struct("Cluster").field("node", &self.shared.node).finish_non_exhaustive()
    }
}
