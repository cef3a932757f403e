//! The caller's side.

use std::{cell::RefCell, fmt, marker::PhantomData, rc::Rc, time::Duration};

use super::{Decode, DecodeError, Procedure, Reader, RpcError, frame};
use crate::{NodeId, Pending, Phase, Port, Reply, Sender, Time, Verbs};

/// Buffers for messages, for reuse.
type Spare = Rc<RefCell<Vec<Vec<u8>>>>;

/// A caller: an endpoint's verbs, and buffers for its messages.
///
/// # Example
///
/// See the [module](super).
pub struct Rpc<'e, P: Port> {
    verbs: Verbs<'e, P>,
    spare: Spare,
    tag: u64,
}

impl<'e, P: Port> Rpc<'e, P> {
    /// Returns a caller with these verbs.
    #[must_use]
    pub fn new(verbs: Verbs<'e, P>) -> Self {
        Self { verbs, spare: Rc::default(), tag: 0 }
    }

    /// Returns the same caller, whose calls count in another phase.
    #[must_use]
    pub fn during(&self, phase: Phase) -> Self {
        Self { verbs: self.verbs.during(phase), spare: Rc::clone(&self.spare), tag: self.tag }
    }

    /// Tags the caller's messages with a number, which the handler gets [with each
    /// call](super::Incoming::tag): what all calls of a message have in common is sent once.
    ///
    /// # Example
    ///
    /// See [`serve_tagged`](super::serve_tagged).
    #[must_use]
    pub fn tagged(self, tag: u64) -> Self {
        Self { tag, ..self }
    }

    /// Says what sends the caller's messages. Only a simulated cluster makes a difference.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{Port, Sender, rpc::Rpc};
    ///
    /// /// Returns a caller whose messages cost no processor's time.
    /// fn by_nic<P: Port>(rpc: Rpc<'_, P>) -> Rpc<'_, P> {
    ///     rpc.sent_by(Sender::Nic)
    /// }
    /// ```
    #[must_use]
    pub fn sent_by(self, sender: Sender) -> Self {
        Self { verbs: self.verbs.sent_by(sender), ..self }
    }

    /// Begins a message of calls to a node.
    pub fn to(&self, node: NodeId) -> Calls<'e, P> {
        let mut message = self.spare.borrow_mut().pop().unwrap_or_default();
        frame::begin_requests(&mut message, self.tag);
        Calls { verbs: self.verbs, spare: Rc::clone(&self.spare), node, message }
    }

    /// Calls one procedure of a node, and waits for the reply, until a deadline if there is one.
    ///
    /// # Errors
    ///
    /// As [`Calls::send`]. [`One::get`] returns the handler's errors.
    pub async fn call<M: Procedure>(
        &self,
        node: NodeId,
        request: &M::Request<'_>,
        deadline: Option<Time>,
    ) -> Result<One<'e, P, M>, RpcError> {
        let mut calls = self.to(node);
        let slot = calls.add::<M>(request)?;
        Ok(One { results: calls.send(deadline).await?, slot })
    }
}

impl<P: Port> fmt::Debug for Rpc<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rpc").field("verbs", &self.verbs).finish_non_exhaustive()
    }
}

/// Calls to one node that are sent in one message.
///
/// # Example
///
/// See the [module](super).
#[must_use = "calls that are not sent do nothing"]
pub struct Calls<'e, P: Port> {
    verbs: Verbs<'e, P>,
    spare: Spare,
    node: NodeId,
    message: Vec<u8>,
}

/// Identifies the result of one of several calls.
///
/// # Example
///
/// See the [module](super).
pub struct Slot<M> {
    place: u8,
    of: PhantomData<fn() -> M>,
}

impl<M> fmt::Debug for Slot<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slot").field(&self.place).finish()
    }
}

impl<'e, P: Port> Calls<'e, P> {
    /// Adds a call. The request is encoded now.
    ///
    /// # Errors
    ///
    /// [`RpcError::Full`]; the calls that were added before remain valid.
    pub fn add<M: Procedure>(&mut self, request: &M::Request<'_>) -> Result<Slot<M>, RpcError> {
        let most = self.verbs.endpoint().capabilities().max_message_bytes;
        let place = frame::add_request(&mut self.message, M::NUMBER, request, most).ok_or(RpcError::Full)?;
        Ok(Slot { place, of: PhantomData })
    }

    /// Sends the calls and waits for their results, until a deadline on the endpoint's clock if
    /// there is one.
    ///
    /// Dropping the future discards the results; the sent calls may be carried out.
    ///
    /// # Errors
    ///
    /// When the message is not sent or not answered, as [`RpcError`] says.
    pub async fn send(self, deadline: Option<Time>) -> Result<Results<'e, P>, RpcError> {
        self.post(deadline).await?.results().await
    }

    /// Sends the calls without waiting for their results, so that messages to several nodes are
    /// pending concurrently.
    ///
    /// # Errors
    ///
    /// When the message is not sent, as [`RpcError`] says: then nothing was carried out.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, Port, rpc::{Procedure, Rpc, RpcError}};
    ///
    /// /// How many rows a node has.
    /// enum Count {}
    ///
    /// impl Procedure for Count {
    ///     const NUMBER: u16 = 1;
    ///     type Request<'a> = ();
    ///     type Reply<'a> = u64;
    /// }
    ///
    /// /// How many two nodes have, in one round trip.
    /// async fn both<P: Port>(rpc: &Rpc<'_, P>, nodes: [NodeId; 2]) -> Result<u64, RpcError> {
    ///     let (mut posted, mut sum) = (Vec::new(), 0);
    ///     for node in nodes {
    ///         let mut calls = rpc.to(node);
    ///         let slot = calls.add::<Count>(&())?;
    ///         posted.push((calls.post(None).await?, slot));
    ///     }
    ///     for (posted, slot) in &mut posted {
    ///         sum += posted.results().await?.get(slot)?;
    ///     }
    ///     Ok(sum)
    /// }
    /// ```
    pub async fn post(mut self, deadline: Option<Time>) -> Result<Posted<'e, P>, RpcError> {
        let budget = match deadline.map(|deadline| (deadline, deadline.since(self.verbs.endpoint().now()))) {
            None => u64::MAX,
            Some((deadline, Duration::ZERO)) => return Err(RpcError::TooLate { deadline }),
            Some((_, budget)) => u64::try_from(budget.as_nanos()).unwrap_or(u64::MAX - 1),
        };
        frame::seal_requests(&mut self.message, budget);
        let call = self.verbs.post_call(self.node, &self.message).await?;
        Ok(Posted { verbs: self.verbs, node: self.node, call, deadline })
    }
}

impl<P: Port> Drop for Calls<'_, P> {
    fn drop(&mut self) {
        self.spare.borrow_mut().push(std::mem::take(&mut self.message));
    }
}

impl<P: Port> fmt::Debug for Calls<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("node", &self.node).field("bytes", &self.message.len()).finish_non_exhaustive()
    }
}

/// Calls that were sent in one message.
///
/// Dropping this discards the results; the sent calls may be carried out.
///
/// # Example
///
/// See [`Calls::post`].
#[must_use = "what the calls give is lost"]
pub struct Posted<'e, P: Port> {
    verbs: Verbs<'e, P>,
    node: NodeId,
    call: Pending<'e, P, Reply<'e, P>>,
    deadline: Option<Time>,
}

impl<'e, P: Port> Posted<'e, P> {
    /// Returns the called node.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Waits for the results, which are returned once. A future of this may be dropped, and another
    /// one awaited.
    ///
    /// # Errors
    ///
    /// When the message is not answered, as [`RpcError`] says.
    pub async fn results(&mut self) -> Result<Results<'e, P>, RpcError> {
        let call = &mut self.call;
        let reply = match self.deadline {
            None => call.await?,
            Some(deadline) => {
                let before = self.verbs.endpoint().before(deadline, call);
                before.await.map_err(|_| RpcError::Elapsed { deadline })??
            }
        };
        Ok(Results { reply })
    }
}

impl<P: Port> fmt::Debug for Posted<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Posted").field("node", &self.node).finish_non_exhaustive()
    }
}

/// The results of calls that were sent in one message.
///
/// # Example
///
/// See the [module](super).
#[derive(Debug)]
pub struct Results<'e, P: Port> {
    reply: Reply<'e, P>,
}

impl<P: Port> Results<'_, P> {
    /// Returns the result of one of the calls.
    ///
    /// # Errors
    ///
    /// The handler's error, as [`RpcError`] names it. A slot of another message may give
    /// [`RpcError::Reply`].
    pub fn get<M: Procedure>(&self, slot: &Slot<M>) -> Result<M::Reply<'_>, RpcError> {
        let mut results = self.in_order();
        if let Ok(replies) = &mut results.replies {
            replies.skip(slot.place).map_err(RpcError::Reply)?;
        }
        results.take::<M>()
    }

    /// Returns the results in the order in which the calls were added.
    ///
    /// # Example
    ///
    /// See [`serve_tagged`](super::serve_tagged).
    #[must_use]
    pub fn in_order(&self) -> InOrder<'_> {
        InOrder::of(&self.reply)
    }
}

/// The results of the calls of a message, in the order in which these were added.
///
/// # Example
///
/// See [`serve_tagged`](super::serve_tagged).
#[derive(Debug)]
pub struct InOrder<'a> {
    replies: Result<frame::Replies<'a>, DecodeError>,
}

impl<'a> InOrder<'a> {
    /// Returns the results in a message.
    pub(crate) fn of(reply: &'a [u8]) -> Self {
        Self { replies: frame::Replies::of(reply) }
    }

    /// Returns the handler's tag.
    ///
    /// # Errors
    ///
    /// [`RpcError::Reply`]
    ///
    /// # Example
    ///
    /// See [`serve_tagged`](super::serve_tagged).
    pub fn tag(&self) -> Result<u64, RpcError> {
        self.replies.as_ref().map(|replies| replies.tag).map_err(|error| RpcError::Reply(*error))
    }

    /// Takes the result of the next call. The caller knows which procedure that was.
    ///
    /// # Errors
    ///
    /// As [`Results::get`].
    ///
    /// # Example
    ///
    /// See [`serve_tagged`](super::serve_tagged).
    pub fn take<M: Procedure>(&mut self) -> Result<M::Reply<'a>, RpcError> {
        let replies = self.replies.as_mut().map_err(|error| RpcError::Reply(*error))?;
        let (status, bytes) = replies.take().map_err(RpcError::Reply)?;
        let mut reader = Reader::new(bytes);
        match status {
            frame::Status::Done => {
                let reply = M::Reply::decode(&mut reader).map_err(RpcError::Reply)?;
                reader.finish().map_err(RpcError::Reply)?;
                Ok(reply)
            }
            frame::Status::Refused => {
                Err(RpcError::Refused { reason: u32::decode(&mut reader).map_err(RpcError::Reply)? })
            }
            frame::Status::UnknownProcedure => Err(RpcError::UnknownProcedure { procedure: M::NUMBER }),
            frame::Status::Malformed => Err(RpcError::Malformed),
            frame::Status::Expired => Err(RpcError::Expired),
            frame::Status::TooLong => Err(RpcError::TooLong),
        }
    }
}

/// The result of a single call.
///
/// # Example
///
/// See the [module](super).
pub struct One<'e, P: Port, M> {
    results: Results<'e, P>,
    slot: Slot<M>,
}

impl<P: Port, M: Procedure> One<'_, P, M> {
    /// Returns the result of the call, which may borrow from the message.
    ///
    /// # Errors
    ///
    /// As [`Results::get`].
    pub fn get(&self) -> Result<M::Reply<'_>, RpcError> {
        self.results.get(&self.slot)
    }
}

impl<P: Port, M> fmt::Debug for One<'_, P, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("One").field("results", &self.results).finish_non_exhaustive()
    }
}
