//! What is given to a node's threads: transactions of other threads, and questions.

use std::{
    any::Any,
    collections::VecDeque,
    fmt,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::{Pin, pin},
    sync::{Arc, mpsc},
    task::{Context, Poll, Waker},
};

use drtm_rdma::{Fabric, Spawner};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::{ClusterError, ClusterStats, ClusterTx, Worker};
use crate::{Config, Error, Options};

/// How many transactions of a thread wait for their turn or run, at most.
const MOST_UNDER_WAY: usize = 1 << 12;

/// What a thread is to run.
pub(super) struct Queue<F: Fabric, S: Config<Engine = F::Engine>> {
    waiting: Mutex<Waiting<F, S>>,
    /// How many more it takes.
    room: Arc<Semaphore>,
    /// What the thread has answered last.
    last: Mutex<ClusterStats>,
}

struct Waiting<F: Fabric, S: Config<Engine = F::Engine>> {
    jobs: VecDeque<Box<dyn Job<F, S>>>,
    waker: Option<Waker>,
    is_closed: bool,
}

/// What is on its way to a worker: a transaction, whose future is made there, for example.
pub(super) trait Job<F: Fabric, S: Config<Engine = F::Engine>>: Send {
    fn start<'e>(self: Box<Self>, worker: Worker<'e, F, S>, spawner: &Spawner<'e, F::Port>);
}

/// A question of what the thread's transactions did.
struct Report<F: Fabric, S: Config<Engine = F::Engine>> {
    queue: Arc<Queue<F, S>>,
    reply: mpsc::Sender<()>,
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Job<F, S> for Report<F, S> {
    fn start<'e>(self: Box<Self>, worker: Worker<'e, F, S>, _: &Spawner<'e, F::Port>) {
        self.queue.note(worker.stats());
        // Whoever asked may not wait any more.
        let _ = self.reply.send(());
    }
}

/// What became of a transaction: its panic, too.
type Outcome<T> = Result<Result<T, Error>, Box<dyn Any + Send>>;

/// What a worker is to do, and has an outcome.
pub(super) trait Work<F: Fabric, S: Config<Engine = F::Engine>, T>: Send + 'static {
    /// Does it.
    fn run(self, worker: Worker<'_, F, S>) -> impl Future<Output = Result<T, Error>>;
}

/// A transaction's closure.
pub(super) struct Transact<B> {
    pub(super) options: Options,
    pub(super) body: B,
}

impl<F, S, B, T> Work<F, S, T> for Transact<B>
where
    F: Fabric,
    S: Config<Engine = F::Engine>,
    B: for<'e> AsyncFnMut(&mut ClusterTx<'e, F, S>) -> Result<T, Error> + Send + 'static,
{
    async fn run(self, worker: Worker<'_, F, S>) -> Result<T, Error> {
        worker.transact_with(self.options, self.body).await
    }
}

struct Submission<W, T> {
    work: W,
    reply: oneshot::Sender<Outcome<T>>,
    /// Its room in the queue, until it has ended.
    room: OwnedSemaphorePermit,
}

impl<F, S, W, T> Job<F, S> for Submission<W, T>
where
    F: Fabric,
    S: Config<Engine = F::Engine>,
    W: Work<F, S, T>,
    T: Send + 'static,
{
    fn start<'e>(self: Box<Self>, worker: Worker<'e, F, S>, spawner: &Spawner<'e, F::Port>) {
        let Self { work, reply, room } = *self;
        if reply.is_closed() {
            // Its future was dropped while it was queued.
            return;
        }
        let reply = Reply(Some(reply));
        // If the executor has ended, the reply is dropped, and the caller told. The thread waits
        // for those that run, until it is closed.
        let _ = spawner.serve(async move {
            let outcome = caught(work.run(worker)).await;
            drop(room);
            reply.send(outcome);
        });
    }
}

/// Where the outcome of a transaction goes that has begun.
struct Reply<T>(Option<oneshot::Sender<Outcome<T>>>);

impl<T> Reply<T> {
    fn send(mut self, outcome: Outcome<T>) {
        if let Some(reply) = self.0.take() {
            // A dropped future needs no outcome.
            let _ = reply.send(outcome);
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(reply) = self.0.take() {
            // The thread has ended before it.
            let _ = reply.send(Ok(Err(ClusterError::CutOff.into())));
        }
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

/// A transaction that was given to a [`Cluster`](super::Cluster): a future of its outcome.
///
/// Dropped, it is cancelled if it has not begun, and goes on otherwise.
///
/// # Example
///
/// See [`Cluster`](super::Cluster).
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
    pub(super) fn new() -> Self {
        let waiting = Waiting { jobs: VecDeque::new(), waker: None, is_closed: false };
        Self { waiting: Mutex::new(waiting), room: Arc::new(Semaphore::new(MOST_UNDER_WAY)), last: Mutex::default() }
    }

    /// Adds a job. Drops it if the thread takes none any more.
    pub(super) fn push(&self, job: Box<dyn Job<F, S>>) {
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
    pub(super) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.is_closed = true;
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Refuses all that is there, and whatever comes.
    pub(super) fn refuse(&self) {
        self.close();
        let refused = std::mem::take(&mut self.waiting.lock().jobs);
        drop(refused);
    }

    /// Submits work, or refuses it.
    pub(super) fn submit<T: Send + 'static>(&self, work: impl Work<F, S, T>) -> Submitted<T> {
        let (reply, receiver) = oneshot::channel();
        match Arc::clone(&self.room).try_acquire_owned() {
            Ok(room) => self.push(Box::new(Submission { work, reply, room })),
            Err(_) => {
                // The receiver is here.
                let _ = reply.send(Ok(Err(ClusterError::TooManySubmitted { most: MOST_UNDER_WAY }.into())));
            }
        }
        Submitted { reply: receiver }
    }

    /// Asks what the thread's transactions did. The answer is [noted](Self::noted).
    pub(super) fn ask(self: &Arc<Self>, reply: mpsc::Sender<()>) {
        self.push(Box::new(Report { queue: Arc::clone(self), reply }));
    }

    /// Notes what the thread's transactions did.
    pub(super) fn note(&self, stats: ClusterStats) {
        *self.last.lock() = stats;
    }

    /// Returns whether no transaction waits for its turn or runs.
    pub(super) fn is_idle(&self) -> bool {
        self.room.available_permits() == MOST_UNDER_WAY
    }

    /// Returns what was noted last, and how many transactions are under way.
    pub(super) fn noted(&self) -> ClusterStats {
        let under_way = (MOST_UNDER_WAY - self.room.available_permits()) as u64;
        ClusterStats { under_way, ..*self.last.lock() }
    }

    /// Waits for the next job. Returns `None` if the queue is empty and closed.
    pub(super) async fn next(&self) -> Option<Box<dyn Job<F, S>>> {
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
