//! Received messages.

use std::{convert::Infallible, fmt, future::poll_fn, ops::Deref};

use crate::{
    NodeId, Port, VerbError, Verbs,
    endpoint::port::{Frame, Received, Reply, ReplyTo},
};

/// A received message, returned by [`Verbs::recv`]. It dereferences to its bytes.
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
/// executor.serve(async {
///     loop {
///         let question = verbs.recv().await;
///         let answer = question.to_ascii_uppercase();
///         question.reply(&answer).expect("it is short");
///     }
/// });
/// executor.spawn(async {
///     let answer = verbs.call(NodeId(0), b"hello").await.expect("there is a server");
///     assert_eq!(&answer[..], b"HELLO");
/// });
/// executor.run();
/// # Ok::<(), drtm_rdma::FabricError>(())
/// ```
pub struct Message<'e, P: Port> {
    verbs: Verbs<'e, P>,
    from: NodeId,
    /// `None` once it has been used for the reply.
    frame: Option<Frame>,
    reply_to: Option<ReplyTo>,
}

impl<'e, P: Port> Verbs<'e, P> {
    /// Waits for a message or a call to this node. All endpoints of a node receive from one queue.
    pub async fn recv(self) -> Message<'e, P> {
        let received = poll_fn(|context| {
            self.endpoint().poll_with(context, |inner, task| {
                let received = inner.receive(self.phase());
                if received.is_none() {
                    inner.receivers.insert(task);
                }
                received
            })
        })
        .await;
        let Received { from, frame, reply_to } = received;
        Message { verbs: self, from, frame: Some(frame), reply_to }
    }

    /// Answers calls for ever. `handler` gets the caller, the request, and a buffer for the reply.
    /// The reply to a message that is no call is discarded. Meant to be
    /// [served](crate::Executor::serve) beside the coroutines of a worker.
    ///
    /// The caller of a reply that is too long gets [`VerbError::Unanswered`].
    pub async fn serve(self, mut handler: impl FnMut(NodeId, &[u8], &mut Vec<u8>)) -> Infallible {
        let mut reply = Vec::new();
        loop {
            let message = self.recv().await;
            reply.clear();
            handler(message.from(), &message, &mut reply);
            // The caller gets the error, and it is the one that can react.
            let _ = message.reply(&reply);
        }
    }
}

impl<P: Port> Message<'_, P> {
    /// Returns the node that sent it.
    #[must_use]
    pub fn from(&self) -> NodeId {
        self.from
    }

    /// Returns whether the sender waits for a reply. A call that is dropped without one fails with
    /// [`VerbError::Unanswered`].
    #[must_use]
    pub fn is_call(&self) -> bool {
        self.reply_to.is_some()
    }

    /// Sends a reply, if the sender waits for one. It never waits, and does not check whether the
    /// caller still exists.
    ///
    /// # Errors
    ///
    /// [`VerbError::TooLarge`]; the caller then gets [`VerbError::Unanswered`].
    ///
    /// # Example
    ///
    /// See [`Message`].
    pub fn reply(mut self, bytes: &[u8]) -> Result<(), VerbError> {
        let most = self.verbs.endpoint().capabilities().max_message_bytes;
        if bytes.len() > most {
            return Err(VerbError::TooLarge { bytes: bytes.len(), most });
        }
        if let Some(to) = self.reply_to.take() {
            // The reply uses the call's own frame, so that one is always available.
            let mut frame = self.frame.take().unwrap_or_default();
            frame.clear();
            frame.extend_from_slice(bytes);
            self.answer(to, Reply { frame, refused: false });
        }
        Ok(())
    }

    fn answer(&self, to: ReplyTo, reply: Reply) {
        self.verbs.endpoint().inner().reply(to, reply, self.verbs.phase());
    }
}

impl<P: Port> Deref for Message<'_, P> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.frame.as_deref().unwrap_or_default()
    }
}

impl<P: Port> Drop for Message<'_, P> {
    fn drop(&mut self) {
        let Some(mut frame) = self.frame.take() else { return };
        match self.reply_to.take() {
            Some(to) => {
                frame.clear();
                self.answer(to, Reply { frame, refused: true });
            }
            None => self.verbs.endpoint().inner().recycle_message(frame),
        }
    }
}

impl<P: Port> fmt::Debug for Message<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("from", &self.from)
            .field("bytes", &self.len())
            .field("is_call", &self.is_call())
            .finish_non_exhaustive()
    }
}
