//! The handler's side.

use std::{convert::Infallible, fmt, time::Duration};

use super::{
    Decode, Encode, Procedure, Reader,
    frame::{self, Status},
};
use crate::{NodeId, Port, Verbs};

/// A handler's refusal of a call, with a number of the application's.
///
/// # Example
///
/// See the [module](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub u32);

/// A call that a handler must answer.
///
/// # Example
///
/// See the [module](super).
#[must_use = "a call is to be answered"]
pub struct Incoming<'a> {
    from: NodeId,
    tag: u64,
    procedure: u16,
    request: &'a [u8],
    reply: &'a mut Vec<u8>,
}

/// Proves that a call was answered: only the methods of a call return it.
///
/// # Example
///
/// See the [module](super).
#[derive(Debug)]
pub struct Answered(Status);

impl<'a> Incoming<'a> {
    /// Returns the calling node.
    #[must_use]
    pub fn from(&self) -> NodeId {
        self.from
    }

    /// Returns the [tag](super::Rpc::tagged) of the call's message.
    ///
    /// # Example
    ///
    /// See [`serve_tagged`].
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Returns the number of the called procedure.
    #[must_use]
    pub fn procedure(&self) -> u16 {
        self.procedure
    }

    /// Answers with the reply that `handle` returns for the request. A request that cannot be
    /// decoded is refused, and `handle` is not called.
    pub fn answer<'r, M: Procedure>(
        self,
        handle: impl FnOnce(M::Request<'a>) -> Result<M::Reply<'r>, Refused>,
    ) -> Answered {
        let mut reader = Reader::new(self.request);
        let request = M::Request::decode(&mut reader).and_then(|request| reader.finish().map(|()| request));
        Answered(match request.map(handle) {
            Ok(Ok(reply)) => {
                reply.encode(self.reply);
                Status::Done
            }
            Ok(Err(Refused(reason))) => {
                reason.encode(self.reply);
                Status::Refused
            }
            Err(_) => Status::Malformed,
        })
    }

    /// Answers that there is no such procedure.
    pub fn unknown(self) -> Answered {
        Answered(Status::UnknownProcedure)
    }
}

impl fmt::Debug for Incoming<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").field("from", &self.from).field("procedure", &self.procedure).finish_non_exhaustive()
    }
}

/// Answers calls for ever, each by `handle`. Meant to be [served](crate::Executor::serve) beside
/// the coroutines of a worker.
///
/// A message that contains no calls is dropped, and its sender gets
/// [unanswered](crate::VerbError::Unanswered). A handler must not wait for a lock: the lock's
/// holder may be waiting for this handler.
pub async fn serve<P: Port>(verbs: Verbs<'_, P>, handle: impl FnMut(Incoming<'_>) -> Answered) -> Infallible {
    serve_tagged(verbs, handle, |_| 0).await
}

/// Answers calls like [`serve`], and tags each message of results with what `tag_for` makes of the
/// tag of the calls' message, when all of its calls were handled.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{
///     Executor, Fabric, LocalConfig, LocalFabric, NodeId, Phase,
///     rpc::{Procedure, Refused, Rpc, serve_tagged},
/// };
///
/// /// Doubles a number.
/// enum Double {}
///
/// impl Procedure for Double {
///     const NUMBER: u16 = 1;
///     type Request<'a> = u64;
///     type Reply<'a> = u64;
/// }
///
/// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
/// let endpoint = fabric.endpoint(NodeId(0))?;
/// let verbs = endpoint.during(Phase::Execute);
/// let mut executor = Executor::new(&endpoint);
/// // The handler serves callers of its term only, and tells its term.
/// const TERM: u64 = 3;
/// let double = |call: drtm_rdma::rpc::Incoming<'_>| {
///     let is_of_term = call.tag() == TERM;
///     call.answer::<Double>(|number| if is_of_term { Ok(2 * number) } else { Err(Refused(1)) })
/// };
/// executor.serve(serve_tagged(verbs, double, |_| TERM));
/// let caller = async |tag| {
///     let mut calls = Rpc::new(verbs).tagged(tag).to(NodeId(0));
///     calls.add::<Double>(&1)?;
///     calls.add::<Double>(&2)?;
///     let results = calls.send(None).await?;
///     let mut results = results.in_order();
///     assert_eq!(results.tag()?, TERM);
///     Ok::<_, drtm_rdma::rpc::RpcError>([results.take::<Double>()?, results.take::<Double>()?])
/// };
/// executor.spawn(async {
///     assert_eq!(caller(TERM).await.expect("it is served"), [2, 4]);
///     assert_eq!(caller(2).await.unwrap_err().refused(), Some(1));
/// });
/// executor.run();
/// # Ok::<(), drtm_rdma::FabricError>(())
/// ```
pub async fn serve_tagged<P: Port>(
    verbs: Verbs<'_, P>,
    mut handle: impl FnMut(Incoming<'_>) -> Answered,
    mut tag_for: impl FnMut(u64) -> u64,
) -> Infallible {
    let endpoint = verbs.endpoint();
    let most = endpoint.capabilities().max_message_bytes;
    let mut reply = Vec::new();
    loop {
        let message = verbs.recv().await;
        let Ok(requests) = frame::decode(&message) else { continue };
        frame::begin_replies(&mut reply);
        let (budget, tag) = (requests.budget, requests.tag);
        let until = (budget != u64::MAX).then(|| endpoint.now() + Duration::from_nanos(budget));
        for request in requests {
            let late = until.is_some_and(|until| endpoint.now() > until);
            frame::add_reply(&mut reply, most, |reply| {
                if late {
                    return Status::Expired;
                }
                let (procedure, bytes) = (request.procedure, request.bytes);
                handle(Incoming { from: message.from(), tag, procedure, request: bytes, reply }).0
            });
        }
        frame::seal_replies(&mut reply, tag_for(tag));
        // The caller gets the error.
        let _ = message.reply(&reply);
    }
}
