//! A node with threads of its own: transactions of any thread, or of any async runtime.

use std::{
    any::Any,
    collections::VecDeque,
    fmt,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use drtm_rdma::{Executor, Fabric, NodeId, Spawner};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::{ClusterError, ClusterTx, Node, Worker};
use crate::{Config, DefaultConfig, Error, Options};

/// How often it is looked whether other nodes have started.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// How many transactions of a thread wait for their turn or run, at most.
const MOST_UNDER_WAY: usize = 1 << 12;

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
    /// Leaves the fabric when the threads have ended, if it was joined for this node.
    leave: fn(&F, NodeId),
}

/// What a thread is to run.
struct Queue<F: Fabric, S: Config<Engine = F::Engine>> {
    waiting: Mutex<Waiting<F, S>>,
    /// How many more it takes.
    room: Arc<Semaphore>,
}

struct Waiting<F: Fabric, S: Config<Engine = F::Engine>> {
    jobs: VecDeque<Box<dyn Job<F, S>>>,
    waker: Option<Waker>,
    is_closed: bool,
}

/// A transaction on its way to a worker, which makes its future.
trait Job<F: Fabric, S: Config<Engine = F::Engine>>: Send {
    fn start<'e>(self: Box<Self>, worker: Worker<'e, F, S>, spawner: &Spawner<'e, F::Port>);
}

/// What became of a transaction: its panic, too.
type Outcome<T> = Result<Result<T, Error>, Box<dyn Any + Send>>;

struct Submission<B, T> {
    options: Options,
    body: B,
    reply: oneshot::Sender<Outcome<T>>,
    /// Its room in the queue, until it has ended.
    room: OwnedSemaphorePermit,
}

impl<F, S, B, T> Job<F, S> for Submission<B, T>
where
    F: Fabric,
    S: Config<Engine = F::Engine>,
    B: for<'e> AsyncFnMut(&mut ClusterTx<'e, F, S>) -> Result<T, Error> + Send + 'static,
    T: Send + 'static,
{
    fn start<'e>(self: Box<Self>, worker: Worker<'e, F, S>, spawner: &Spawner<'e, F::Port>) {
        let Self { options, body, reply, room } = *self;
        if reply.is_closed() {
            // Its future was dropped while it was queued.
            return;
        }
        // If the executor has ended, the reply is dropped, and the caller told.
        let _ = spawner.spawn(async move {
            let outcome = caught(worker.transact_with(options, body)).await;
            drop(room);
            // A dropped future needs no outcome.
            let _ = reply.send(outcome);
        });
    }
}

/// Runs a future, whose panic is a value.
async fn caught<T>(future: impl Future<Output = T>) -> Result<T, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

/// A transaction that was given to a [`Cluster`]: a future of its outcome.
///
/// Dropped, it is cancelled if it has not begun, and goes on otherwise.
///
/// # Example
///
/// See [`Cluster`].
#[must_use = "whether it has committed is not known before it is waited for"]
pub struct Submitted<T> {
    reply: oneshot::Receiver<Outcome<T>>,
}

impl<T> Submitted<T> {
    /// Waits for the outcome, and blocks this thread.
    ///
    /// # Errors
    ///
    /// As for [`Worker::transact`]; [`Error::Closed`] when the node was closed.
    ///
    /// # Panics
    ///
    /// With the body's panic; within an async runtime, where it is to be awaited.
    pub fn wait(self) -> Result<T, Error> {
        unwrapped(self.reply.blocking_recv())
    }
}

fn unwrapped<T>(received: Result<Outcome<T>, oneshot::error::RecvError>) -> Result<T, Error> {
    match received {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => Err(Error::Closed),
    }
}

impl<T> Future for Submitted<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.reply).poll(context).map(unwrapped)
    }
}

impl<T> fmt::Debug for Submitted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Submitted(..)")
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Queue<F, S> {
    fn new() -> Self {
        let waiting = Waiting { jobs: VecDeque::new(), waker: None, is_closed: false };
        Self { waiting: Mutex::new(waiting), room: Arc::new(Semaphore::new(MOST_UNDER_WAY)) }
    }

    /// Adds a job. Drops it if the thread takes none any more.
    fn push(&self, job: Box<dyn Job<F, S>>) {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return;
        }
        waiting.jobs.push_back(job);
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes no more jobs. Those that are there are run.
    fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.is_closed = true;
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The next job, or nothing when there will be none.
    async fn next(&self) -> Option<Box<dyn Job<F, S>>> {
        poll_fn(|context| {
            let mut waiting = self.waiting.lock();
            match waiting.jobs.pop_front() {
                Some(job) => Poll::Ready(Some(job)),
                None if waiting.is_closed => Poll::Ready(None),
                None => {
                    waiting.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Cluster<F, S> {
    /// Runs a node by so many threads.
    ///
    /// # Errors
    ///
    /// When there are no threads, or the fabric has no endpoint for one.
    pub fn start(node: Node<F, S>, threads: usize) -> Result<Self, Error> {
        Self::start_and_leave(node, threads, |_, _| {})
    }

    /// Like [`start`](Self::start), but calls `leave` when the threads have ended.
    pub(super) fn start_and_leave(node: Node<F, S>, threads: usize, leave: fn(&F, NodeId)) -> Result<Self, Error> {
        if threads == 0 {
            let (must_be, is) = ("one or more", "none".to_owned());
            return Err(Error::Config { what: "the number of a node's threads", must_be, is });
        }
        let queues: Vec<_> = (0..threads).map(|_| Arc::new(Queue::new())).collect();
        let next = AtomicUsize::new(0);
        let shared = Shared { node, queues, next, threads: Mutex::default(), leave };
        let cluster = Self { shared: Arc::new(shared) };
        for queue in &cluster.shared.queues {
            cluster.add_thread(Arc::clone(queue))?;
        }
        Ok(cluster)
    }

    fn add_thread(&self, queue: Arc<Queue<F, S>>) -> Result<(), Error> {
        let node = self.shared.node.clone();
        let endpoint = node.endpoint()?;
        let name = format!("drtm-{}", node.id());
        let run = move || {
            let Ok(worker) = node.worker(&endpoint) else {
                // As many workers as there can be are alive. What is queued here is refused.
                queue.close();
                let refused = std::mem::take(&mut queue.waiting.lock().jobs);
                drop(refused);
                return;
            };
            let mut executor = Executor::new(&endpoint);
            let spawner = executor.spawner();
            worker.serve(&spawner);
            executor.spawn(async move {
                while let Some(job) = queue.next().await {
                    job.start(worker.clone(), &spawner);
                }
                worker.drained().await;
            });
            executor.run();
        };
        let thread = thread::Builder::new().name(name).spawn(run).map_err(ClusterError::Thread)?;
        self.shared.threads.lock().push(thread);
        Ok(())
    }

    /// The node.
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
    /// for node in Cluster::builder().nodes(3).start()? {
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
    /// [`Worker::transact`] does. It begins at once, whether or not the future is polled.
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

    /// Like [`transact`](Self::transact), as these options say: see [`Worker::transact_with`].
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
        let (reply, receiver) = oneshot::channel();
        let turn = self.shared.next.fetch_add(1, Relaxed) % self.shared.queues.len();
        let queue = &self.shared.queues[turn];
        match Arc::clone(&queue.room).try_acquire_owned() {
            Ok(room) => queue.push(Box::new(Submission { options, body, reply, room })),
            Err(_) => {
                // The receiver is here.
                let _ = reply.send(Ok(Err(ClusterError::TooManySubmitted { most: MOST_UNDER_WAY }.into())));
            }
        }
        Submitted { reply: receiver }
    }

    /// Ends the node's threads when all transactions that were begun here have ended. The node
    /// serves no others then, and leaves the fabric, unless the program has joined it itself: other
    /// nodes' transactions that need it fail with [`ClusterError::Unreachable`]. Transactions that
    /// are given to it from now on get [`Error::Closed`].
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
        (self.leave)(self.node.fabric(), self.node.id());
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
