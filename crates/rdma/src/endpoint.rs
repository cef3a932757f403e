//! Endpoints: one worker thread's access to the memory of other nodes.

pub(crate) mod backend;
pub(crate) mod batch;
pub(crate) mod buffers;
mod completions;
pub(crate) mod counters;
mod inner;
pub(crate) mod intent;
pub(crate) mod message;
mod nodes;
pub(crate) mod pending;
pub(crate) mod port;
pub(crate) mod queues;
mod sleep;
pub(crate) mod tickets;
pub(crate) mod verbs;

pub use sleep::Sleep;

use std::{
    cell::{Cell, RefCell},
    fmt,
    future::poll_fn,
    task::{Context, Poll},
    time::Duration,
};

use crate::{
    Capabilities, Cost, Counters, NodeId, Port, VerbError,
    endpoint::{
        port::Activity,
        tickets::{NOBODY, Task},
    },
};
use inner::Inner;

/// One worker thread's queue pairs, completion queue, buffers and counters.
///
/// An endpoint may be created on one thread and used on another, but only by one thread at a time,
/// which the compiler checks. All coroutines of that thread share it by reference. Verbs are posted
/// through [`during`](Self::during).
///
/// Operations that are pending when an endpoint is dropped may take effect, in part or not at all.
/// [`run`](crate::run) and its like return when none is pending; otherwise use
/// [`drain`](Self::drain).
///
/// ```compile_fail
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId};
///
/// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
/// let endpoint = fabric.endpoint(NodeId(0)).unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(|| endpoint.progress()); // shared with another thread: refused
/// });
/// ```
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Phase, Region, Remote, block_on};
///
/// let fabric = LocalFabric::new(2, LocalConfig::perfect());
/// let memory = Arc::new(Region::anonymous(NoHtm, 1 << 20)?);
/// let offset = memory.extend(64, 64)?;
/// let region = fabric.register(NodeId(1), Arc::clone(&memory))?;
/// let there = Remote { node: NodeId(1), region, offset };
///
/// let endpoint = fabric.endpoint(NodeId(0))?;
/// let verbs = endpoint.during(Phase::Execute);
/// block_on(&endpoint, async {
///     verbs.write(there, &[1, 2, 3]).await?;
///     assert_eq!(verbs.fetch_add(there, 10).await?, 1);
///     assert_eq!(verbs.read(there, 3).await?[..], [11, 2, 3]);
///     Ok::<(), drtm_rdma::VerbError>(())
/// })?;
/// assert_eq!(endpoint.counters()[Phase::Execute].round_trips, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Endpoint<P: Port> {
    inner: RefCell<Inner<P>>,
    /// The running coroutine.
    current: Cell<Task>,
    capabilities: Capabilities,
    node: NodeId,
}

impl<P: Port> Endpoint<P> {
    pub(crate) fn new(port: P) -> Self {
        Self {
            capabilities: port.capabilities(),
            node: port.node(),
            current: Cell::new(NOBODY),
            inner: RefCell::new(Inner::new(port)),
        }
    }

    /// Returns the node that this endpoint belongs to.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Returns what the fabric can do.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Returns the counts of operations so far.
    ///
    /// # Example
    ///
    /// See [`Endpoint`].
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.inner.borrow().counters()
    }

    /// Polls the completion queue once. Returns whether a pending operation only needs more polls.
    ///
    /// The executor does this between coroutines. It is for code without an executor, and for tests
    /// that proceed in steps.
    ///
    /// # Example
    ///
    /// See [`Endpoint`].
    pub fn progress(&self) -> bool {
        self.inner.borrow_mut().poll() >= Activity::Remote
    }

    /// Polls until all posted operations have completed, except those that wait for a peer to take
    /// messages. Does not wait for replies.
    pub fn drain(&self) {
        let backoff = crossbeam_utils::Backoff::new();
        while self.progress() {
            if !P::YIELDS && backoff.is_completed() {
                // Completions end the sleep too.
                self.inner().nap(Some(Duration::from_millis(1)), || true);
            } else if !P::VIRTUAL {
                backoff.snooze();
            }
        }
    }

    /// Lets the other coroutines run first.
    pub async fn yield_now(&self) {
        let mut yielded = false;
        poll_fn(|context| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            self.again(context);
            Poll::Pending
        })
        .await;
    }

    /// Runs code that posts operations, even several batches or coroutines, and then rings one
    /// doorbell for each target node. They share round trips like those of one
    /// [`Batch`](crate::Batch). Nothing is sent before that.
    ///
    /// # Example
    ///
    /// ```
    /// use std::sync::Arc;
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Phase, Region, Remote, block_on};
    ///
    /// let fabric = LocalFabric::new(2, LocalConfig::perfect());
    /// let memory = Arc::new(Region::anonymous(NoHtm, 1 << 20)?);
    /// let offset = memory.extend(8, 8)?;
    /// let word = Remote { node: NodeId(1), region: fabric.register(NodeId(1), memory)?, offset };
    /// let endpoint = fabric.endpoint(NodeId(0))?;
    /// let verbs = endpoint.during(Phase::Execute);
    /// let added = endpoint.together(|| {
    ///     [1, 2].map(|add| {
    ///         let mut batch = verbs.batch();
    ///         let added = batch.fetch_add(word, add);
    ///         batch.ring();
    ///         added
    ///     })
    /// });
    /// for (added, before) in added.into_iter().zip([0, 1]) {
    ///     assert_eq!(block_on(&endpoint, added?)?, before);
    /// }
    /// assert_eq!(endpoint.counters()[Phase::Execute].round_trips, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn together<T>(&self, post: impl FnOnce() -> T) -> T {
        /// Rings the doorbells, even on a panic.
        struct Gathering<'e, P: Port>(&'e Endpoint<P>);
        impl<P: Port> Drop for Gathering<'_, P> {
            fn drop(&mut self) {
                self.0.inner().end_gathering();
            }
        }
        let gathering = self.inner().begin_gathering().then(|| Gathering(self));
        let posted = post();
        drop(gathering);
        posted
    }

    /// Charges protocol code's use of the processor. It costs nothing except in a simulated
    /// cluster, where it advances the worker's time.
    #[inline(always)]
    pub fn charge(&self, cost: Cost) {
        if P::VIRTUAL {
            self.inner().port.charge(cost);
        }
    }

    /// Returns whether the endpoint is of a simulated cluster, where work takes the time that is
    /// [charged](Self::charge) for it.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId};
    ///
    /// let endpoint = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect()).endpoint(NodeId(0))?;
    /// assert!(!endpoint.is_simulated());
    /// # Ok::<(), drtm_rdma::FabricError>(())
    /// ```
    #[inline(always)]
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        P::VIRTUAL
    }

    /// Returns how often this endpoint's thread has slept because nothing was ready.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, block_on};
    ///
    /// let endpoint = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect()).endpoint(NodeId(0))?;
    /// block_on(&endpoint, endpoint.sleep(Duration::from_millis(20)));
    /// assert!(endpoint.naps() > 0);
    /// # Ok::<(), drtm_rdma::FabricError>(())
    /// ```
    #[must_use]
    pub fn naps(&self) -> u64 {
        self.inner.borrow().naps
    }

    /// Returns the free buffers of words, those of bytes, and the operations that are still held.
    #[doc(hidden)]
    pub fn at_rest(&self) -> (usize, usize, usize) {
        self.inner.borrow().at_rest()
    }

    #[inline(always)]
    pub(crate) fn inner(&self) -> std::cell::RefMut<'_, Inner<P>> {
        self.inner.borrow_mut()
    }

    /// Makes the polling executor poll again soon.
    pub(crate) fn again(&self, context: &Context<'_>) {
        match self.current.get() {
            NOBODY => {
                self.progress();
                context.waker().wake_by_ref();
            }
            task => self.inner().completions.ready.insert(task),
        }
    }

    /// Calls `take` for a result that completions bring. Under this crate's executor `take`
    /// registers the coroutine, which is woken later. Under any other, this poll drives the
    /// endpoint and asks to be polled again.
    #[inline(always)]
    pub(crate) fn poll_with<T>(
        &self,
        context: &Context<'_>,
        mut take: impl FnMut(&mut Inner<P>, Task) -> Option<T>,
    ) -> Poll<T> {
        let task = self.current.get();
        if let Some(value) = take(&mut self.inner(), task) {
            return Poll::Ready(value);
        }
        if task == NOBODY { self.poll_alone(context, take) } else { Poll::Pending }
    }

    /// Drives the endpoint, for a future that another executor polls.
    #[cold]
    fn poll_alone<T>(&self, context: &Context<'_>, mut take: impl FnMut(&mut Inner<P>, Task) -> Option<T>) -> Poll<T> {
        let mut inner = self.inner();
        inner.poll();
        if let Some(value) = take(&mut inner, NOBODY) {
            return Poll::Ready(value);
        }
        drop(inner);
        std::thread::yield_now();
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Waits for the resource that `error` names, if a pending operation will free it. Otherwise
    /// returns the error.
    #[cold]
    pub(crate) fn wait_for_room(&self, error: VerbError, context: &Context<'_>) -> Poll<VerbError> {
        let mut inner = self.inner();
        inner.post_gathered();
        match error {
            VerbError::QueueFull { .. } | VerbError::BuffersExhausted { .. } if inner.completions.under_way > 0 => {}
            VerbError::TooManyCalls { .. } if inner.completions.calls > 0 => {}
            // The coroutines that own them will take them soon, and return the buffers.
            VerbError::BuffersExhausted { .. } if inner.completions.tickets.has_untaken_words() => {
                drop(inner);
                self.again(context);
                return Poll::Pending;
            }
            _ => return Poll::Ready(error),
        }
        match self.current.get() {
            NOBODY => {
                inner.poll();
                context.waker().wake_by_ref();
            }
            task => inner.crowd(task),
        }
        Poll::Pending
    }

    pub(crate) fn enter(&self, task: Task) {
        self.current.set(task);
    }

    pub(crate) fn current(&self) -> Task {
        self.current.get()
    }
}

impl<P: Port> fmt::Debug for Endpoint<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("node", &self.node).finish_non_exhaustive()
    }
}
