//! The caller's side.

use std::{cell::RefCell, fmt, marker::PhantomData, time::Duration};

use super::{Decode, Procedure, Reader, RpcError, frame};
use crate::{Delivery, NodeId, Port, Reply, Time, VerbError, Verbs};

/// How often a message is sent where nothing says when to stop.
const ATTEMPTS: u32 = 8;

/// The messages of an endpoint that are not answered, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    next: u64,
    open: Vec<u64>,
}

impl Outstanding {
    fn open(&mut self) -> u64 {
        self.next += 1;
        self.open.push(self.next);
        self.next
    }

    fn close(&mut self, number: u64) {
        if let Some(place) = self.open.iter().position(|open| *open == number) {
            self.open.swap_remove(place);
        }
    }

    /// The least that is open.
    fn floor(&self) -> u64 {
        self.open.iter().copied().min().unwrap_or(self.next + 1)
    }
}

/// A caller: an endpoint's verbs, and buffers for its messages.
///
/// # Example
///
/// See the [module](super).
pub struct Rpc<'e, P: Port> {
    verbs: Verbs<'e, P>,
    spare: RefCell<Vec<Vec<u8>>>,
}

impl<'e, P: Port> Rpc<'e, P> {
    /// A caller with these verbs.
    #[must_use]
    pub fn new(verbs: Verbs<'e, P>) -> Self {
        Self { verbs, spare: RefCell::default() }
    }

    /// Begins a message of calls to a node.
    pub fn to(&self, node: NodeId) -> Calls<'_, 'e, P> {
        let mut message = self.spare.borrow_mut().pop().unwrap_or_default();
        frame::begin_requests(&mut message);
        Calls { rpc: self, node, message }
    }

    /// Calls one procedure of a node, and waits for the reply until a deadline, if there is one.
    ///
    /// # Errors
    ///
    /// As [`Calls::send`]; what the handler says of the call is found in [`One::get`].
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

/// Calls to one node that travel together.
///
/// # Example
///
/// See the [module](super).
#[must_use = "calls that are not sent do nothing"]
pub struct Calls<'r, 'e, P: Port> {
    rpc: &'r Rpc<'e, P>,
    node: NodeId,
    message: Vec<u8>,
}

/// One of several calls, by which its result is found.
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

impl<'e, P: Port> Calls<'_, 'e, P> {
    /// Adds a call. The request is encoded now.
    ///
    /// # Errors
    ///
    /// [`RpcError::Full`]; what was added before is still good.
    pub fn add<M: Procedure>(&mut self, request: &M::Request<'_>) -> Result<Slot<M>, RpcError> {
        let most = self.rpc.verbs.endpoint().capabilities().max_message_bytes;
        let place = frame::add_request(&mut self.message, M::NUMBER, request, most).ok_or(RpcError::Full)?;
        Ok(Slot { place, of: PhantomData })
    }

    /// Sends the calls and waits for their results, until a deadline on the endpoint's clock if
    /// there is one.
    ///
    /// Dropping the future loses interest in the results; what was sent may be carried out.
    ///
    /// # Errors
    ///
    /// When the message is not sent or not answered, as [`RpcError`] says.
    pub async fn send(mut self, deadline: Option<Time>) -> Result<Results<'e, P>, RpcError> {
        let endpoint = self.rpc.verbs.endpoint();
        let open = Open::new(self.rpc.verbs);
        let mut attempts = 0;
        loop {
            attempts += 1;
            let budget = match deadline.map(|deadline| (deadline, deadline.since(endpoint.now()))) {
                None => u64::MAX,
                Some((deadline, Duration::ZERO)) if attempts == 1 => return Err(RpcError::TooLate { deadline }),
                Some((deadline, Duration::ZERO)) => return Err(RpcError::Elapsed { deadline }),
                Some((_, budget)) => u64::try_from(budget.as_nanos()).unwrap_or(u64::MAX - 1),
            };
            let floor = endpoint.inner().outstanding.floor();
            frame::seal_requests(&mut self.message, open.number, floor, budget);
            let call = self.rpc.verbs.call(self.node, &self.message);
            let replied = match deadline {
                None => call.await,
                Some(deadline) => endpoint.before(deadline, call).await.map_err(|_| RpcError::Elapsed { deadline })?,
            };
            match replied {
                Ok(reply) => return Ok(Results { reply }),
                // Without an answer, on a fabric that loses messages: once more.
                Err(VerbError::Unanswered { .. })
                    if endpoint.capabilities().messages == Delivery::BestEffort
                        && (deadline.is_some() || attempts < ATTEMPTS) => {}
                // Earlier attempts may have been carried out.
                Err(error) if attempts > 1 && !error.may_have_taken_effect() => {
                    return Err(VerbError::Unanswered { node: self.node }.into());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl<P: Port> Drop for Calls<'_, '_, P> {
    fn drop(&mut self) {
        self.rpc.spare.borrow_mut().push(std::mem::take(&mut self.message));
    }
}

impl<P: Port> fmt::Debug for Calls<'_, '_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("node", &self.node).field("bytes", &self.message.len()).finish_non_exhaustive()
    }
}

/// A message's number, which is waited for as long as this is there.
struct Open<'e, P: Port> {
    verbs: Verbs<'e, P>,
    number: u64,
}

impl<'e, P: Port> Open<'e, P> {
    fn new(verbs: Verbs<'e, P>) -> Self {
        let number = verbs.endpoint().inner().outstanding.open();
        Self { verbs, number }
    }
}

impl<P: Port> Drop for Open<'_, P> {
    fn drop(&mut self) {
        self.verbs.endpoint().inner().outstanding.close(self.number);
    }
}

/// What became of calls that travelled together.
///
/// # Example
///
/// See the [module](super).
#[derive(Debug)]
pub struct Results<'e, P: Port> {
    reply: Reply<'e, P>,
}

impl<P: Port> Results<'_, P> {
    /// What one of the calls gives.
    ///
    /// # Errors
    ///
    /// What the handler says of it, as [`RpcError`] names it; [`RpcError::Reply`] for another
    /// message's slot, perhaps.
    pub fn get<M: Procedure>(&self, slot: &Slot<M>) -> Result<M::Reply<'_>, RpcError> {
        let (status, bytes) = frame::result(&self.reply, slot.place).map_err(RpcError::Reply)?;
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

/// What became of one call that travelled alone.
///
/// # Example
///
/// See the [module](super).
pub struct One<'e, P: Port, M> {
    results: Results<'e, P>,
    slot: Slot<M>,
}

impl<P: Port, M: Procedure> One<'_, P, M> {
    /// What the call gives, which may borrow from the message.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_the_least_number_that_is_waited_for() {
        let mut outstanding = Outstanding::default();
        assert_eq!(outstanding.floor(), 1);
        let [one, two, three] = [(); 3].map(|()| outstanding.open());
        assert_eq!([one, two, three, outstanding.floor()], [1, 2, 3, 1]);
        outstanding.close(two);
        assert_eq!(outstanding.floor(), 1);
        outstanding.close(one);
        assert_eq!(outstanding.floor(), 3);
        outstanding.close(three);
        assert_eq!(outstanding.floor(), 4);
    }
}
