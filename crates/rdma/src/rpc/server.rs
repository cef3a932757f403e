//! The handler's side.

use std::{convert::Infallible, fmt};

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
pub async fn serve<P: Port>(verbs: Verbs<'_, P>, mut handle: impl FnMut(Incoming<'_>) -> Answered) -> Infallible {
    let endpoint = verbs.endpoint();
    let most = endpoint.capabilities().max_message_bytes;
    let mut reply = Vec::new();
    loop {
        let message = verbs.recv().await;
        let taken = endpoint.now();
        let Ok(requests) = frame::decode(&message) else { continue };
        frame::begin_replies(&mut reply);
        let budget = requests.budget;
        for request in requests {
            let late = budget != u64::MAX && endpoint.now().since(taken).as_nanos() > u128::from(budget);
            frame::add_reply(&mut reply, most, |reply| {
                if late {
                    return Status::Expired;
                }
                let (procedure, bytes) = (request.procedure, request.bytes);
                handle(Incoming { from: message.from(), procedure, request: bytes, reply }).0
            });
        }
        // The caller gets the error.
        let _ = message.reply(&reply);
    }
}
