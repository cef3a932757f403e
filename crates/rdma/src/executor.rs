//! The executor: the coroutines of one worker thread, and the completions that wake them.
//!
//! A worker would be idle for the whole of every round trip, so it runs several transactions at a time, each a coroutine: a plain Rust
//! future. One round of the executor polls the completion queue once, and then each coroutine that something has
//! completed for, once. A switch is a bit found in a word and a call; nothing is allocated but at the spawning of a coroutine.
//!
//! Operations of the endpoint do not go through wakers: the endpoint knows which coroutine runs and remembers it with the operation.
//! Other futures may be awaited as well. Their waker sets a flag that each round looks at, so another thread may wake a coroutine; but the
//! executor never sleeps, it spins and then yields the processor.

mod bell;

use std::{
    any::Any,
    cell::Cell,
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use crossbeam_utils::Backoff;

use crate::{
    Endpoint, Port,
    tickets::{NOBODY, Task},
};
use bell::Bells;

/// Rounds without any coroutine to run before it is asked whether there ever will be one.
const IDLE_ROUNDS: u32 = 1 << 12;

/// Runs one future on this thread, with the endpoint's completions.
///
/// Returns when the future is done and everything that was posted is over, unsignaled operations included.
///
/// # Panics
///
/// When the future panics; as [`Executor::run`] does when it waits for nothing.
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
    Coroutines::new(endpoint, [(Box::pin(coroutine), Kind::Main)], None).run();
    finished(output)
}

/// Runs `count` coroutines that `make` makes, and gives what they return, in order.
///
/// # Panics
///
/// As [`Executor::run`].
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
    Coroutines::new(endpoint, coroutines, None).run();
    outputs.into_iter().map(finished).collect()
}

/// What a coroutine left. A run in which not every coroutine came to its end has panicked.
fn finished<T>(output: Cell<Option<T>>) -> T {
    match output.into_inner() {
        Some(output) => output,
        None => unreachable!("a coroutine ended without its value"),
    }
}

type Boxed<'f> = Pin<Box<dyn Future<Output = ()> + 'f>>;

/// Coroutines of several kinds, to be run together on this thread.
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
    endpoint: &'f Endpoint<P>,
    coroutines: Vec<(Boxed<'f>, Kind)>,
    patience: Option<Duration>,
}

impl<'f, P: Port> Executor<'f, P> {
    /// One with nothing to run.
    #[must_use]
    pub fn new(endpoint: &'f Endpoint<P>) -> Self {
        Self { endpoint, coroutines: Vec::new(), patience: None }
    }

    /// Adds a coroutine.
    pub fn spawn(&mut self, coroutine: impl Future<Output = ()> + 'f) {
        self.coroutines.push((Box::pin(coroutine), Kind::Main));
    }

    /// Adds a coroutine that is there for others: the run does not wait for its end, and drops it.
    pub fn serve(&mut self, coroutine: impl Future + 'f) {
        self.coroutines.push((Box::pin(async { drop(coroutine.await) }), Kind::Service));
    }

    /// Makes a run panic when for so long no coroutine could go on. For tests, which had better fail than hang.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Runs until all spawned coroutines are done, and everything that was posted is over, unsignaled operations included. (What waits
    /// for a peer to take messages is left to later polls.)
    ///
    /// # Panics
    ///
    /// - With the panic of a coroutine. The other coroutines run to their end first, so that no transaction is cut off in its middle;
    ///   a panic of a service ends them, since they may wait for it.
    /// - When the coroutines that are left wait, and nothing is under way that could wake one: that would be for ever. (Calls count as
    ///   under way, and so do messages waited for.)
    /// - When called by a coroutine that runs on the same endpoint.
    pub fn run(self) {
        Coroutines::new(self.endpoint, self.coroutines, self.patience).run();
    }
}

impl<P: Port> fmt::Debug for Executor<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("coroutines", &self.coroutines.len()).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The run ends with these.
    Main,
    Service,
}

struct Coroutine<F: ?Sized> {
    /// Absent when it has come to its end.
    future: Option<Pin<Box<F>>>,
    kind: Kind,
    waker: Waker,
}

/// A run: coroutines of one type, which may be that of a boxed one of any type.
struct Coroutines<'e, P: Port, F: Future<Output = ()> + ?Sized> {
    endpoint: &'e Endpoint<P>,
    coroutines: Vec<Coroutine<F>>,
    bells: Bells,
    /// Main ones that are not done.
    left: usize,
    /// The first panic of a coroutine.
    panic: Option<Box<dyn Any + Send>>,
    patience: Option<Duration>,
}

impl<'e, P: Port, F: Future<Output = ()> + ?Sized> Coroutines<'e, P, F> {
    fn new(
        endpoint: &'e Endpoint<P>,
        futures: impl IntoIterator<Item = (Pin<Box<F>>, Kind)>,
        patience: Option<Duration>,
    ) -> Self {
        let mut bells = Bells::default();
        let coroutines: Vec<_> = futures
            .into_iter()
            .map(|(future, kind)| Coroutine { future: Some(future), kind, waker: bells.add() })
            .collect();
        let left = coroutines.iter().filter(|coroutine| coroutine.kind == Kind::Main).count();
        Self { endpoint, coroutines, bells, left, panic: None, patience }
    }

    fn run(mut self) {
        assert!(
            self.endpoint.current() == NOBODY,
            "a coroutine cannot run others on its own endpoint: spawn them beside it, or await them"
        );
        self.endpoint.inner().begin_run(self.coroutines.len());
        let mut idle = Idle::default();
        while self.left > 0 {
            if self.round() {
                idle = Idle::default();
            } else if idle.too_long(self.patience) || (idle.rounds.is_multiple_of(IDLE_ROUNDS) && self.is_stuck()) {
                break;
            }
        }
        // What they waited for goes on without them, to its end.
        self.coroutines.clear();
        self.endpoint.drain();
        if let Some(panic) = self.panic {
            resume_unwind(panic);
        }
        assert!(self.left == 0, "{} coroutines wait, and nothing is under way that could wake one", self.left);
    }

    /// Polls for completions, and then each coroutine that can go on, once. Tells whether there was one.
    #[inline]
    fn round(&mut self) -> bool {
        {
            let mut inner = self.endpoint.inner();
            inner.poll();
            self.bells.collect(|task| inner.desk.ready.insert(task as Task));
        }
        let mut ran = false;
        for index in 0..self.coroutines.len().div_ceil(64) {
            // Those that become ready meanwhile are for the next round, so that nobody is passed over.
            let mut ready = self.endpoint.inner().desk.ready.take_word(index);
            while ready != 0 {
                let task = 64 * index + ready.trailing_zeros() as usize;
                ready &= ready - 1;
                ran |= self.resume(task);
            }
        }
        ran
    }

    #[inline]
    fn resume(&mut self, task: usize) -> bool {
        let Some(coroutine) = self.coroutines.get_mut(task) else { return false };
        let Some(future) = &mut coroutine.future else { return false };
        self.endpoint.enter(task as Task);
        let mut context = Context::from_waker(&coroutine.waker);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
        self.endpoint.enter(NOBODY);
        if !matches!(polled, Ok(Poll::Pending)) {
            self.end(task, polled.err());
        }
        true
    }

    #[cold]
    fn end(&mut self, task: usize, panic: Option<Box<dyn Any + Send>>) {
        let Coroutine { future, kind, .. } = &mut self.coroutines[task];
        *future = None;
        self.left = match kind {
            // A service that broke may have ended the run in this very round.
            Kind::Main => self.left.saturating_sub(1),
            Kind::Service if panic.is_some() => 0,
            Kind::Service => self.left,
        };
        self.panic = self.panic.take().or(panic);
    }

    /// Whether the coroutines that are left will never go on.
    #[cold]
    fn is_stuck(&self) -> bool {
        let inner = self.endpoint.inner();
        let left = self.coroutines.iter().enumerate().filter(|(_, it)| it.kind == Kind::Main && it.future.is_some());
        inner.desk.under_way == 0
            && inner.desk.calls == 0
            && left.into_iter().all(|(task, _)| !inner.receivers.contains(task as Task) && !self.bells.may_ring(task))
    }
}

/// How long there has been nothing to run.
#[derive(Default)]
struct Idle {
    rounds: u32,
    since: Option<Instant>,
    backoff: Backoff,
}

impl Idle {
    /// Waits a little; tells whether it has been longer than there is patience for.
    fn too_long(&mut self, patience: Option<Duration>) -> bool {
        self.rounds = self.rounds.wrapping_add(1);
        self.backoff.snooze();
        patience.is_some_and(|patience| self.since.get_or_insert_with(Instant::now).elapsed() > patience)
    }
}
