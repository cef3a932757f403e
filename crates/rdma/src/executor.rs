//! The executor: the coroutines of one worker thread, and the completions that wake them.
//!
//! A worker would be idle during every round trip, so it runs several transactions at a time, each
//! a coroutine: a plain Rust future. One [round](Executor::round) of the executor polls the
//! completion queue once, and then each ready coroutine once. A switch costs finding a bit in a
//! word, and a call; only spawning a coroutine allocates.
//!
//! Operations of the endpoint do not use wakers: the endpoint knows which coroutine runs, and
//! stores it with the operation. Other futures may be awaited too. Their waker sets a flag that
//! each round checks, so another thread may wake a coroutine.
//!
//! An idle executor spins for a while, and then sleeps (`idle`). Completions, messages, timers,
//! changes of nodes, wakers and [injected](Injector) coroutines end the sleep (`alarm`).

mod bell;
mod coroutines;
pub(crate) mod idle;
mod intake;
pub(crate) mod tasks;
pub(crate) mod timers;

pub use intake::{Ended, Injector, Spawner};

use std::{cell::Cell, fmt, future::Future, time::Duration};

use crate::{Endpoint, Port};
use coroutines::Coroutines;
use intake::{Boxed, Door, Kind, Shut};

/// Runs one future on this thread, with the endpoint's completions.
///
/// Returns when the future is done and all posted operations have completed, including unsignaled
/// ones.
///
/// # Panics
///
/// Panics if the future panics, and like [`Executor::run`] if it waits for nothing.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, block_on};
///
/// let endpoint = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect()).endpoint(NodeId(0))?;
/// assert_eq!(block_on(&endpoint, async { 6 * 7 }), 42);
/// # Ok::<(), drtm_rdma::FabricError>(())
/// ```
pub fn block_on<P: Port, T>(endpoint: &Endpoint<P>, future: impl Future<Output = T>) -> T {
    let output = Cell::new(None);
    let coroutine = async { output.set(Some(future.await)) };
    Coroutines::new(endpoint, [(Box::pin(coroutine), Kind::Main)], Shut).run();
    finished(output)
}

/// Runs `count` coroutines that `make` returns. Returns their values, in order.
///
/// # Panics
///
/// Panics like [`Executor::run`].
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, run};
///
/// let endpoint = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect()).endpoint(NodeId(0))?;
/// let squares = run(&endpoint, 4, |index| async move { index * index });
/// assert_eq!(squares, [0, 1, 4, 9]);
/// # Ok::<(), drtm_rdma::FabricError>(())
/// ```
pub fn run<P: Port, T, F: Future<Output = T>>(
    endpoint: &Endpoint<P>,
    count: usize,
    mut make: impl FnMut(usize) -> F,
) -> Vec<T> {
    let outputs: Vec<Cell<Option<T>>> = (0..count).map(|_| Cell::new(None)).collect();
    let coroutines = outputs.iter().enumerate().map(|(index, output)| {
        let future = make(index);
        (Box::pin(async move { output.set(Some(future.await)) }), Kind::Main)
    });
    Coroutines::new(endpoint, coroutines, Shut).run();
    outputs.into_iter().map(finished).collect()
}

/// Returns a coroutine's value. A run in which a coroutine did not finish has panicked.
fn finished<T>(output: Cell<Option<T>>) -> T {
    match output.into_inner() {
        Some(output) => output,
        None => unreachable!("a coroutine ended without its value"),
    }
}

/// The result of a round.
///
/// # Example
///
/// See [`Executor::round`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// A coroutine ran.
    Ran,
    /// No coroutine was ready.
    Idle,
    /// All spawned coroutines are done.
    Done,
}

/// Coroutines of several types, run together on this thread.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Executor, Fabric, LocalConfig, LocalFabric, NodeId, Phase};
///
/// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
/// let endpoint = fabric.endpoint(NodeId(0))?;
/// let verbs = endpoint.during(Phase::Other);
/// let mut executor = Executor::new(&endpoint);
/// executor.serve(async move {
///     verbs.serve(|_from, request, reply| reply.extend(request.iter().rev())).await;
/// });
/// executor.spawn(async move {
///     let reply = verbs.call(NodeId(0), b"drtm").await.expect("there is a server");
///     assert_eq!(&reply[..], b"mtrd");
/// });
/// executor.run();
/// # Ok::<(), drtm_rdma::FabricError>(())
/// ```
pub struct Executor<'f, P: Port> {
    coroutines: Coroutines<'f, P, Boxed<'f>, Door<'f, P>>,
}

impl<'f, P: Port> Executor<'f, P> {
    /// Returns an executor without coroutines.
    ///
    /// # Example
    ///
    /// See [`Executor`].
    #[must_use]
    pub fn new(endpoint: &'f Endpoint<P>) -> Self {
        Self { coroutines: Coroutines::new(endpoint, [], Door::new(endpoint)) }
    }

    /// Adds a coroutine.
    ///
    /// # Example
    ///
    /// See [`Executor`].
    pub fn spawn(&mut self, coroutine: impl Future<Output = ()> + 'f) {
        self.coroutines.add(Box::pin(coroutine), Kind::Main);
    }

    /// Adds a service coroutine: the run does not wait for its end, and drops it.
    ///
    /// # Example
    ///
    /// See [`Executor`].
    pub fn serve(&mut self, coroutine: impl Future + 'f) {
        self.coroutines.add(Box::pin(async { drop(coroutine.await) }), Kind::Service);
    }

    /// Returns a handle with which coroutines spawn others while the executor runs.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Executor, Fabric, LocalConfig, LocalFabric, NodeId};
    ///
    /// let endpoint = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect()).endpoint(NodeId(0))?;
    /// let count = std::cell::Cell::new(0);
    /// let counted = &count;
    /// let mut executor = Executor::new(&endpoint);
    /// let spawner = executor.spawner();
    /// executor.spawn(async move {
    ///     for _ in 0..3 {
    ///         spawner.spawn(async { counted.set(counted.get() + 1) }).expect("the executor runs");
    ///     }
    /// });
    /// executor.run();
    /// assert_eq!(count.get(), 3);
    /// # Ok::<(), drtm_rdma::FabricError>(())
    /// ```
    #[must_use]
    pub fn spawner(&self) -> Spawner<'f, P> {
        self.coroutines.intake().spawner()
    }

    /// Returns a handle with which other threads inject coroutines. While one exists, an executor
    /// whose coroutines are all blocked sleeps, and does not panic.
    ///
    /// # Example
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Executor, Fabric, LocalConfig, LocalFabric, NodeId};
    ///
    /// let endpoint = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect()).endpoint(NodeId(0))?;
    /// let (answers, answer) = mpsc::channel();
    /// let mut executor = Executor::new(&endpoint);
    /// let injector = executor.injector();
    /// injector.inject(move |worker| async move {
    ///     // Made on the worker, and so it may use the worker's endpoint.
    ///     answers.send(worker.endpoint().node()).expect("the receiver is there");
    /// })?;
    /// executor.run();
    /// assert_eq!(answer.recv()?, NodeId(0));
    /// assert!(injector.inject(|_| async {}).is_err(), "it has ended");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn injector(&self) -> Injector<'f, P> {
        self.coroutines.intake().injector()
    }

    /// Makes a run panic if no coroutine was ready for this long. For tests, which should fail
    /// rather than hang.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.coroutines.patience = Some(patience);
        self
    }

    /// Runs one round: polls for completions, and then each ready coroutine once.
    ///
    /// It is for programs with a loop of their own. [`run`](Self::run) is rounds with waiting in
    /// between.
    ///
    /// # Panics
    ///
    /// Panics if a coroutine on the same endpoint calls it, or if another executor has begun and
    /// not ended there. A panic of a coroutine is kept for [`run`](Self::run).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Executor, Fabric, LocalConfig, LocalFabric, NodeId, Round};
    ///
    /// let endpoint = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect()).endpoint(NodeId(0))?;
    /// let mut executor = Executor::new(&endpoint);
    /// executor.spawn(async { endpoint.yield_now().await });
    /// assert_eq!([executor.round(), executor.round()], [Round::Ran, Round::Done]);
    /// # Ok::<(), drtm_rdma::FabricError>(())
    /// ```
    pub fn round(&mut self) -> Round {
        self.coroutines.one_round()
    }

    /// Sleeps until there may be work for a round, or until `at_most` has passed. Returns at once
    /// if there is work.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Executor, Fabric, LocalConfig, LocalFabric, NodeId, Round};
    ///
    /// let endpoint = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect()).endpoint(NodeId(0))?;
    /// let mut executor = Executor::new(&endpoint);
    /// executor.spawn(endpoint.sleep(Duration::from_millis(5)));
    /// while executor.round() != Round::Done {
    ///     executor.park(None);
    /// }
    /// # Ok::<(), drtm_rdma::FabricError>(())
    /// ```
    pub fn park(&mut self, at_most: Option<Duration>) {
        self.coroutines.park(at_most);
    }

    /// Runs until all spawned or injected coroutines are done, and all posted operations have
    /// completed, including unsignaled ones. (Operations that wait for a peer to take messages are
    /// left to later polls.)
    ///
    /// # Panics
    ///
    /// - Panics with the panic of a coroutine. The other coroutines finish first, so that no
    ///   transaction is interrupted. A panic of a service ends them, since they may wait for it.
    /// - Panics if the remaining coroutines wait and no pending operation could wake one: they
    ///   would wait for ever. (Calls, messages that are waited for, timers and injectors count as
    ///   pending.)
    /// - Panics like [`round`](Self::round).
    pub fn run(self) {
        self.coroutines.run();
    }
}

impl<P: Port> fmt::Debug for Executor<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("coroutines", &self.coroutines.count()).finish_non_exhaustive()
    }
}
