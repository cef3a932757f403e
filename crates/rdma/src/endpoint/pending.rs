//! Completions: futures of operations, and their values.

use std::{
    fmt,
    future::Future,
    marker::PhantomData,
    mem,
    ops::Deref,
    pin::Pin,
    task::{Context, Poll},
};

use crate::{
    Endpoint, NodeId, Port, VerbError,
    endpoint::{
        buffers::Buffer,
        port::{Frame, Ticket},
        tickets::{NOBODY, Value},
    },
};

/// The completion of a [`Batch`](crate::Batch)'s operation, to be awaited or
/// [polled](Self::try_take) after the batch is rung.
///
/// Dropping it discards the completion, not the operation. Awaiting it before the batch is rung
/// returns [`VerbError::NotRung`].
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Phase};
///
/// let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
/// let endpoint = fabric.endpoint(NodeId(0))?;
/// let mut batch = endpoint.during(Phase::Other).batch();
/// let mut sent = batch.send(NodeId(1), b"hello")?;
/// batch.ring();
/// let outcome = loop {
///     match sent.try_take() {
///         Ok(outcome) => break outcome,
///         Err(not_yet) => sent = not_yet,
///     }
///     endpoint.progress();
/// };
/// assert_eq!(outcome, Ok(()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "await the completion, or give it up with `unsignaled`"]
pub struct Pending<'e, P: Port, T> {
    endpoint: &'e Endpoint<P>,
    /// [`Ticket::NONE`] once the value was taken.
    ticket: Ticket,
    gives: PhantomData<fn() -> T>,
}

impl<'e, P: Port, T> Pending<'e, P, T> {
    #[inline(always)]
    pub(crate) fn new(endpoint: &'e Endpoint<P>, ticket: Ticket) -> Self {
        Self { endpoint, ticket, gives: PhantomData }
    }

    /// Makes the operation unsignaled: it is carried out without a completion.
    ///
    /// If it fails, the next signaled operation to the same node reports that. (After the batch was
    /// rung this only discards the completion.)
    pub fn unsignaled(self) {
        drop(self);
    }

    /// Returns whether the value can be taken, as of the last poll for completions.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.endpoint.inner().is_complete(self.ticket)
    }

    /// Returns the value if the operation has completed.
    ///
    /// # Errors
    ///
    /// The completion itself, while the operation is pending.
    ///
    /// # Example
    ///
    /// See [`Pending`].
    pub fn try_take(mut self) -> Result<Result<T, VerbError>, Self>
    where
        T: Given<'e, P>,
    {
        let endpoint = self.endpoint;
        let taken = endpoint.inner().take(self.ticket, NOBODY, |value| T::given(endpoint, value));
        match taken {
            Some(outcome) => {
                self.ticket = Ticket::NONE;
                Ok(outcome)
            }
            None => Err(self),
        }
    }
}

impl<'e, P: Port, T: Given<'e, P>> Future for Pending<'e, P, T> {
    type Output = Result<T, VerbError>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Self { endpoint, ticket, .. } = *this;
        let polled =
            endpoint.poll_with(context, |inner, task| inner.take(ticket, task, |value| T::given(endpoint, value)));
        if polled.is_ready() {
            this.ticket = Ticket::NONE;
        }
        polled
    }
}

impl<P: Port, T> Drop for Pending<'_, P, T> {
    #[inline]
    fn drop(&mut self) {
        if self.ticket != Ticket::NONE {
            self.endpoint.inner().abandon(self.ticket);
        }
    }
}

impl<P: Port, T> fmt::Debug for Pending<'_, P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

/// The result type of an operation.
pub trait Given<'e, P: Port>: Sized {
    /// Takes it from the value of a completed operation.
    fn given(endpoint: &'e Endpoint<P>, value: &mut Value) -> Self;
}

impl<P: Port> Given<'_, P> for () {
    #[inline(always)]
    fn given(_endpoint: &Endpoint<P>, _value: &mut Value) {}
}

impl<P: Port> Given<'_, P> for u64 {
    #[inline(always)]
    fn given(_endpoint: &Endpoint<P>, value: &mut Value) -> Self {
        value.number
    }
}

impl<'e, P: Port> Given<'e, P> for Words<'e, P> {
    #[inline(always)]
    fn given(endpoint: &'e Endpoint<P>, value: &mut Value) -> Self {
        Self { endpoint, buffer: mem::take(&mut value.words) }
    }
}

impl<'e, P: Port> Given<'e, P> for Reply<'e, P> {
    #[inline(always)]
    fn given(endpoint: &'e Endpoint<P>, value: &mut Value) -> Self {
        match value.reply.take() {
            Some((from, frame)) => Self { endpoint, from, frame },
            None => unreachable!("a call that has not failed has a reply"),
        }
    }
}

/// The words that a READ fetched, in a buffer of the endpoint. Dropping it frees the buffer.
///
/// # Example
///
/// ```
/// use drtm_rdma::{Port, Words};
///
/// fn sum<P: Port>(words: &Words<'_, P>) -> u64 {
///     words.iter().sum()
/// }
/// ```
pub struct Words<'e, P: Port> {
    endpoint: &'e Endpoint<P>,
    buffer: Buffer<u64>,
}

impl<P: Port> Deref for Words<'_, P> {
    type Target = [u64];

    #[inline(always)]
    fn deref(&self) -> &[u64] {
        &self.buffer
    }
}

impl<P: Port> Drop for Words<'_, P> {
    #[inline]
    fn drop(&mut self) {
        self.endpoint.inner().put_words(mem::take(&mut self.buffer));
    }
}

impl<P: Port> fmt::Debug for Words<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The reply to a call.
///
/// # Example
///
/// ```
/// use drtm_rdma::{NodeId, Phase, Port, VerbError, Verbs};
///
/// async fn greet<P: Port>(verbs: Verbs<'_, P>, peer: NodeId) -> Result<String, VerbError> {
///     let reply = verbs.call(peer, b"who are you?").await?;
///     Ok(String::from_utf8_lossy(&reply).into_owned())
/// }
/// ```
pub struct Reply<'e, P: Port> {
    endpoint: &'e Endpoint<P>,
    from: NodeId,
    frame: Frame,
}

impl<P: Port> Reply<'_, P> {
    /// Returns the node that replied.
    #[must_use]
    pub fn from(&self) -> NodeId {
        self.from
    }
}

impl<P: Port> Deref for Reply<'_, P> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.frame
    }
}

impl<P: Port> Drop for Reply<'_, P> {
    fn drop(&mut self) {
        self.endpoint.inner().recycle_reply(mem::take(&mut self.frame));
    }
}

impl<P: Port> fmt::Debug for Reply<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("from", &self.from).field("bytes", &self.frame.len()).finish_non_exhaustive()
    }
}
