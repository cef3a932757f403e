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
    time::Instant,
};

use drtm_rdma::{Fabric, Spawner};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::{ClusterError, ClusterStats, ClusterTx, Worker};
use crate::{Config, Error, Options};

/// Why a node stays out.
pub(super) type Reason = dyn std::error::Error + Send + Sync;

/// How many transactions of a thread wait for their turn or run, at most.
const MOST_UNDER_WAY: usize = 1 << 12;

/// What a thread is to run.
pub(super) struct Queue<F: Fabric, S: Config<Engine = F::Engine>> {
    waiting: Mutex<Waiting<F, S>>,
    /// How many more it takes.
    room: Arc<Semaphore>,
    /// What the thread has answered last.
    done: Mutex<Done>,
}

/// What a thread's transactions did.
#[derive(Default)]
struct Done {
    /// In earlier lives of the node.
    before: ClusterStats,
    /// In this one, as far as the thread has answered.
    now: ClusterStats,
}

struct Waiting<F: Fabric, S: Config<Engine = F::Engine>> {
    jobs: VecDeque<Box<dyn Job<F, S>>>,
    waker: Option<Waker>,
    is_closed: bool,
    /// Why it takes none, if the node was not closed.
    why: Option<Arc<Reason>>,
    /// Whether the node is between two lives.
    is_between: bool,
}

/// What is on its way to a worker: a transaction, whose future is made there, for example.
pub(super) trait Job<F: Fabric, S: Config<Engine = F::Engine>>: Send {
    fn start<'e>(self: Box<Self>, worker: Worker<'e, F, S>, spawner: &Spawner<'e, F::Port>);

    /// Lets its time pass, though no thread runs it. Returns until when it can wait.
    fn wait(&mut self) -> Option<Instant> {
        None
    }

    /// Returns whether it takes room in the queue.
    fn takes_room(&self) -> bool {
        false
    }

    /// Ends it, since it is not run.
    fn refuse(self: Box<Self>, _why: Error) {}
}

/// What a thread is to do next.
pub(super) enum Next<F: Fabric, S: Config<Engine = F::Engine>> {
    Run(Box<dyn Job<F, S>>),
    /// The node's life has ended, and jobs wait for the next one.
    Rest,
    /// The queue is closed, and nothing is left.
    End,
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

    /// Lets its time pass, though it does not run. Returns until when it can wait.
    fn wait(&mut self) -> Option<Instant> {
        None
    }
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

    fn wait(&mut self) -> Option<Instant> {
        self.options = self.options.begun();
        self.options.until()
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

    fn wait(&mut self) -> Option<Instant> {
        self.work.wait()
    }

    fn takes_room(&self) -> bool {
        true
    }

    fn refuse(self: Box<Self>, why: Error) {
        let Self { reply, room, .. } = *self;
        drop(room);
        // A dropped future needs no outcome.
        let _ = reply.send(Ok(Err(why)));
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
        let waiting = Waiting { jobs: VecDeque::new(), waker: None, is_closed: false, why: None, is_between: false };
        Self { waiting: Mutex::new(waiting), room: Arc::new(Semaphore::new(MOST_UNDER_WAY)), done: Mutex::default() }
    }

    /// Adds a job. Drops it if the thread takes none any more.
    pub(super) fn push(&self, mut job: Box<dyn Job<F, S>>) {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            let why = waiting.why.clone();
            drop(waiting);
            return refuse(job, why);
        }
        if waiting.is_between {
            job.wait();
        }
        waiting.jobs.push_back(job);
        wake(waiting);
    }

    /// Takes no more jobs. Those that are there are run.
    pub(super) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.is_closed = true;
        wake(waiting);
    }

    /// Refuses all that is there, and whatever comes: since the node is closed, unless there is
    /// another reason.
    pub(super) fn refuse(&self, why: Option<Arc<Reason>>) {
        let refused = {
            let mut waiting = self.waiting.lock();
            waiting.is_closed = true;
            waiting.why.clone_from(&why);
            std::mem::take(&mut waiting.jobs)
        };
        refused.into_iter().for_each(|job| refuse(job, why.clone()));
    }

    /// Keeps jobs for the node's next life. Their time passes.
    pub(super) fn rest(&self) {
        let mut waiting = self.waiting.lock();
        waiting.is_between = true;
        for job in &mut waiting.jobs {
            job.wait();
        }
        wake(waiting);
    }

    /// Returns whether it takes no more jobs.
    pub(super) fn is_closed(&self) -> bool {
        self.waiting.lock().is_closed
    }

    /// Goes on in the node's next life.
    pub(super) fn go_on(&self) {
        self.waiting.lock().is_between = false;
    }

    /// Ends the jobs that cannot wait any longer.
    pub(super) fn expire(&self) {
        let (mut late, now) = (Vec::new(), Instant::now());
        {
            let mut waiting = self.waiting.lock();
            for mut job in std::mem::take(&mut waiting.jobs) {
                match job.wait() {
                    Some(until) if until <= now => late.push(job),
                    _ => waiting.jobs.push_back(job),
                }
            }
        }
        for job in late {
            job.refuse(ClusterError::Interrupted { waits_for: None, may_have_happened: false }.into());
        }
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
        if self.waiting.lock().is_between {
            // What there is to know is noted, or soon is.
            return;
        }
        self.push(Box::new(Report { queue: Arc::clone(self), reply }));
    }

    /// Notes what the thread's transactions did in this life of the node.
    pub(super) fn note(&self, stats: ClusterStats) {
        self.done.lock().now = stats;
    }

    /// Notes what they did in a life that has ended.
    pub(super) fn note_life(&self, stats: ClusterStats) {
        let mut done = self.done.lock();
        *done = Done { before: done.before + stats, now: ClusterStats::default() };
    }

    /// Returns whether no transaction waits for its turn or runs.
    pub(super) fn is_idle(&self) -> bool {
        self.room.available_permits() == MOST_UNDER_WAY
    }

    /// Returns whether no transaction runs: those that there are wait.
    pub(super) fn is_at_rest(&self) -> bool {
        let waiting = self.waiting.lock().jobs.iter().filter(|job| job.takes_room()).count();
        self.room.available_permits() + waiting >= MOST_UNDER_WAY
    }

    /// Returns what was noted last, and how many transactions are under way.
    pub(super) fn noted(&self) -> ClusterStats {
        let under_way = (MOST_UNDER_WAY - self.room.available_permits()) as u64;
        let done = self.done.lock();
        ClusterStats { under_way, ..done.before + done.now }
    }

    /// Waits for what is to be done next.
    pub(super) async fn next(&self) -> Next<F, S> {
        poll_fn(|context| {
            let mut waiting = self.waiting.lock();
            if waiting.is_between && !waiting.is_closed {
                return Poll::Ready(Next::Rest);
            }
            match waiting.jobs.pop_front() {
                Some(job) => Poll::Ready(Next::Run(job)),
                None if waiting.is_closed => Poll::Ready(Next::End),
                None => {
                    waiting.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// Wakes the thread of a queue.
fn wake<F: Fabric, S: Config<Engine = F::Engine>>(mut waiting: MutexGuard<'_, Waiting<F, S>>) {
    let waker = waiting.waker.take();
    drop(waiting);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Ends a job that a node does not run which is closed, or stays out.
fn refuse<F: Fabric, S: Config<Engine = F::Engine>>(job: Box<dyn Job<F, S>>, why: Option<Arc<Reason>>) {
    match why {
        Some(why) => job.refuse(ClusterError::StaysOut { why }.into()),
        None => drop(job),
    }
}
