//! The verbs: asynchronous operations, each to be awaited.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
};

use crate::{
    Endpoint, NodeId, Phase, Port, Remote, Reply, VerbError, Words,
    endpoint::{
        intent::{self, Intent},
        pending::{Given, Pending},
        port::Sender,
        tickets::NOBODY,
    },
};

/// An endpoint's verbs, counted as part of one phase. The handle is `Copy`.
///
/// Each method posts one operation, rings the doorbell and completes when the operation has: a
/// round trip. Use a [`Batch`](crate::Batch) for several operations in one round trip. Nothing is
/// posted before the future is first polled. After that, dropping the future does not stop the
/// operation.
///
/// If a queue is full or no buffer is free, the methods wait for pending operations to make room.
/// They fail only if none is pending, since they might wait for ever.
///
/// # Errors
///
/// All methods return what [`VerbError`] names. Alignment and size are checked when posted, bounds
/// at the target.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Phase, Port, Region, Remote, VerbError, Verbs, block_on};
///
/// /// Takes a lock that is a word: zero, or its owner.
/// async fn lock<P: Port>(verbs: Verbs<'_, P>, word: Remote, me: u64) -> Result<bool, VerbError> {
///     Ok(verbs.during(Phase::Lock).compare_swap(word, 0, me).await? == 0)
/// }
///
/// let fabric = LocalFabric::new(2, LocalConfig::perfect());
/// let memory = Arc::new(Region::anonymous(NoHtm, 1 << 20)?);
/// let offset = memory.extend(8, 8)?;
/// let word = Remote { node: NodeId(1), region: fabric.register(NodeId(1), memory)?, offset };
/// let endpoint = fabric.endpoint(NodeId(0))?;
/// let verbs = endpoint.during(Phase::Other);
/// assert!(block_on(&endpoint, lock(verbs, word, 7))?);
/// assert!(!block_on(&endpoint, lock(verbs, word, 8))?);
/// assert_eq!(endpoint.counters()[Phase::Lock].compare_swaps, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Verbs<'e, P: Port> {
    endpoint: &'e Endpoint<P>,
    phase: Phase,
    sender: Sender,
}

impl<P: Port> Endpoint<P> {
    /// Returns the verbs, counted as part of a phase.
    ///
    /// The phase is part of the handle, not of the endpoint, because coroutines in different phases
    /// share the endpoint.
    ///
    /// # Example
    ///
    /// See [`Endpoint`].
    #[inline(always)]
    pub fn during(&self, phase: Phase) -> Verbs<'_, P> {
        Verbs { endpoint: self, phase, sender: Sender::Message }
    }
}

impl<P: Port> Clone for Verbs<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Port> Copy for Verbs<'_, P> {}

impl<'e, P: Port> Verbs<'e, P> {
    /// Returns the endpoint of these verbs.
    ///
    /// # Example
    ///
    /// See [`Verbs`].
    #[must_use]
    pub fn endpoint(self) -> &'e Endpoint<P> {
        self.endpoint
    }

    /// Returns the phase that they are counted in.
    #[must_use]
    pub fn phase(self) -> Phase {
        self.phase
    }

    /// Returns the same verbs, counted in another phase.
    ///
    /// # Example
    ///
    /// See [`Verbs`].
    #[must_use]
    pub fn during(self, phase: Phase) -> Self {
        Self { phase, ..self }
    }

    /// Returns the same verbs, whose posted calls are sent by something else.
    pub(crate) fn sent_by(self, sender: Sender) -> Self {
        Self { sender, ..self }
    }

    /// READ: fetches `words` words, which may be torn.
    #[inline]
    pub fn read(self, from: Remote, words: usize) -> impl Future<Output = Result<Words<'e, P>, VerbError>> {
        self.perform(intent::Read { from, words })
    }

    /// READ of one word, which cannot be torn.
    pub async fn read_word(self, from: Remote) -> Result<u64, VerbError> {
        // A fabric returns as many words as requested.
        self.read(from, 1).await.map(|words| words.first().copied().unwrap_or_default())
    }

    /// WRITE: stores `words`, which become visible in any order.
    #[inline]
    pub fn write(self, to: Remote, words: &[u64]) -> impl Future<Output = Result<(), VerbError>> {
        self.perform(intent::Write { to, words })
    }

    /// COMPARE-AND-SWAP: stores `new` if the word is `expected`. Returns the old value; the swap
    /// was made if that is `expected`.
    ///
    /// # Example
    ///
    /// See [`Verbs`].
    #[inline]
    pub fn compare_swap(self, at: Remote, expected: u64, new: u64) -> impl Future<Output = Result<u64, VerbError>> {
        self.perform(intent::CompareSwap { at, expected, new })
    }

    /// FETCH-AND-ADD: adds, wrapping, and returns the old value.
    #[inline]
    pub fn fetch_add(self, at: Remote, add: u64) -> impl Future<Output = Result<u64, VerbError>> {
        self.perform(intent::FetchAdd { at, add })
    }

    /// SEND: completes when the message is delivered to the node, whether received already or not.
    #[inline]
    pub fn send(self, to: NodeId, bytes: &[u8]) -> impl Future<Output = Result<(), VerbError>> {
        self.perform(intent::Send { to, bytes })
    }

    /// Sends a message and waits for its reply: until a receiver at that node replies, or the node
    /// leaves.
    #[inline]
    pub fn call(self, to: NodeId, request: &[u8]) -> impl Future<Output = Result<Reply<'e, P>, VerbError>> {
        self.perform(intent::Call { to, bytes: request })
    }

    /// Posts a call as soon as there is room for it. Returns a future of its reply.
    pub(crate) async fn post_call(self, to: NodeId, bytes: &[u8]) -> Result<Pending<'e, P, Reply<'e, P>>, VerbError> {
        let Self { endpoint, phase, sender } = self;
        poll_fn(|context| {
            let post = || endpoint.inner().post(&intent::Call { to, bytes }, phase, NOBODY);
            let posted = match sender {
                Sender::Message => post(),
                _ => {
                    endpoint.inner().port.sends_as(sender);
                    let posted = post();
                    endpoint.inner().port.sends_as(Sender::Message);
                    posted
                }
            };
            match posted {
                Ok(ticket) => Poll::Ready(Ok(Pending::new(endpoint, ticket))),
                Err(error) => endpoint.wait_for_room(error, context).map(Err),
            }
        })
        .await
    }

    #[inline(always)]
    fn perform<I: Intent, T: Given<'e, P>>(self, intent: I) -> Operation<'e, P, I, T> {
        Operation { verbs: self, intent, pending: None }
    }
}

/// One operation, posted at the first poll that finds room.
#[must_use]
struct Operation<'e, P: Port, I, T> {
    verbs: Verbs<'e, P>,
    intent: I,
    pending: Option<Pending<'e, P, T>>,
}

impl<'e, P: Port, I: Intent + Unpin, T: Given<'e, P>> Future for Operation<'e, P, I, T> {
    type Output = Result<T, VerbError>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(pending) = &mut self.pending {
            return Pin::new(pending).poll(context);
        }
        let Verbs { endpoint, phase, .. } = self.verbs;
        let task = endpoint.current();
        let posted = endpoint.inner().post(&self.intent, phase, task);
        match posted {
            Ok(ticket) => {
                let pending = self.pending.insert(Pending::new(endpoint, ticket));
                // A coroutine is registered as the waiter. The operation completes at the next
                // poll of the port.
                if task == NOBODY { Pin::new(pending).poll(context) } else { Poll::Pending }
            }
            Err(error) => endpoint.wait_for_room(error, context).map(Err),
        }
    }
}
