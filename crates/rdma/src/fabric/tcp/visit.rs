//! The calls of a visitor: a program that has the cluster's key and is no node, such as an
//! operator's.
//!
//! It has no number of the directory, no memory and no incarnation, so no node meets it, and
//! nothing waits for it when it ends. All that it may send is calls: see `docs/decisions/0117`.

use std::{
    fmt,
    net::{Ipv6Addr, SocketAddr},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    time::Timespec,
};

use crate::{
    Buffers, Incarnation, NodeId, Time,
    endpoint::port::Ticket,
    rpc::{InOrder, Procedure, RpcError, frame},
    sync::time,
};

use super::{
    dial::{Dial, Failed, Wire},
    flow::Came,
    hello::{Hello, Purpose, VERSION, Verdict},
    wire::{self, Request, Response},
};

/// Why a visitor is not answered.
///
/// # Example
///
/// See [`TcpVisitor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VisitError {
    /// Nothing listens at the address.
    #[error("nothing listens at {address}: start the node there, or name the address of one that runs")]
    Absent {
        /// The address.
        address: SocketAddr,
    },
    /// The address cannot be reached.
    #[error("{address} cannot be reached: see whether the network leads there, and the firewalls on the way")]
    Unreachable {
        /// The address.
        address: SocketAddr,
    },
    /// The other side ends the connection without a word.
    #[error("{address} broke the handshake off: its key is another one than this, or it is no node of drtm")]
    Refused {
        /// The address.
        address: SocketAddr,
    },
    /// The answer was not made with this key.
    #[error("what answers at {address} does not have this key: name the key of its cluster")]
    Key {
        /// The address.
        address: SocketAddr,
    },
    /// The other side speaks another version.
    #[error(
        "the node at {address} speaks version {theirs} of the protocol, and this program version {ours}: use the \
             program of the node's release"
    )]
    Version {
        /// The address.
        address: SocketAddr,
        /// Its version.
        theirs: u16,
        /// The version here.
        ours: u16,
    },
    /// The node has as many visitors, or connections, as it may have.
    #[error("the node at {address} has as many visitors as it may have: ask later, or another node")]
    Full {
        /// The address.
        address: SocketAddr,
    },
    /// The node is of a fabric that has no visitors, or does not encrypt.
    #[error("the node at {address} takes no visitors: only nodes whose messages go over TCP, encrypted, do")]
    NoVisitors {
        /// The address.
        address: SocketAddr,
    },
    /// Nothing was heard in time.
    #[error("{address} has not answered within {within:?}: it may be stopped, or busy; ask again, or another node")]
    Silent {
        /// The address.
        address: SocketAddr,
        /// How long it was waited for.
        within: Duration,
    },
    /// The connection has ended before the answer came.
    #[error("the connection to {address} has ended before the answer: see whether the node runs, or ask another one")]
    Ended {
        /// The address.
        address: SocketAddr,
    },
    /// The call was answered by an error.
    #[error("the node at {address} does not carry the call out: {source}")]
    Call {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: RpcError,
    },
}

/// A connection of a visitor to one node.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{
///     Executor, Fabric, NodeId, Phase, TcpConfig, TcpFabric, TcpVisitor, VisitError,
///     rpc::{Procedure, serve},
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
/// let key = [42; 32]; // of a random generator, in earnest
/// let node = TcpFabric::join(NoHtm, TcpConfig::new(NodeId(0), "127.0.0.1:0".parse()?, key))?;
/// let (address, soon) = (node.address(), Duration::from_secs(10));
/// let visit = std::thread::spawn(move || {
///     let mut visitor = TcpVisitor::connect(address, key, soon)?;
///     visitor.call::<Double, _>(&21, soon, |doubled| doubled)
/// });
/// let endpoint = node.endpoint(NodeId(0))?;
/// let mut executor = Executor::new(&endpoint);
/// executor.serve(serve(endpoint.during(Phase::Other), |call| {
///     assert_eq!(call.from(), NodeId::VISITOR);
///     call.answer::<Double>(|number| Ok(2 * number))
/// }));
/// executor.spawn(endpoint.until(|| visit.is_finished()));
/// executor.run();
/// assert_eq!(visit.join().expect("no panic"), Ok(42));
///
/// let stranger = TcpVisitor::connect(address, [43; 32], soon);
/// assert!(matches!(stranger, Err(VisitError::Refused { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TcpVisitor {
    wire: Wire,
    address: SocketAddr,
    calls: u32,
}

impl TcpVisitor {
    /// Connects to the node that listens at an address, with its cluster's key.
    ///
    /// # Errors
    ///
    /// When no node of this version is there that has the key, or it takes no more visitors, as
    /// [`VisitError`] says.
    pub fn connect(address: SocketAddr, key: [u8; 32], within: Duration) -> Result<Self, VisitError> {
        let until = time::of_this_machine() + within;
        let hello = Hello {
            purpose: Purpose::Visit,
            sealed: true,
            engine: 0,
            from: NodeId::VISITOR,
            to: NodeId::VISITOR,
            incarnation: Incarnation(0),
            at: (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let failed = |failed| match failed {
            Failed::Absent => VisitError::Absent { address },
            Failed::Unreachable => VisitError::Unreachable { address },
            Failed::Broken => VisitError::Refused { address },
            Failed::Version(theirs) => VisitError::Version { address, theirs, ours: VERSION },
            Failed::Key => VisitError::Key { address },
        };
        let (mut dial, wire) = Dial::start(address, &key, &hello, within).map_err(failed)?;
        let mut visitor = Self { wire, address, calls: 0 };
        let answer = loop {
            match dial.advance(&mut visitor.wire).map_err(failed)? {
                Some(answer) => break answer,
                None => visitor.wait((until, within), !dial.connected)?,
            }
        };
        match answer.verdict {
            Verdict::Welcome => Ok(visitor),
            Verdict::Full => Err(VisitError::Full { address }),
            _ => Err(VisitError::NoVisitors { address }),
        }
    }

    /// Calls a procedure of the node, and returns what `take` makes of its reply. Blocks this
    /// thread.
    ///
    /// # Errors
    ///
    /// [`VisitError::Call`] with the handler's error; or when the call is not answered in time.
    pub fn call<M: Procedure, T>(
        &mut self,
        request: &M::Request<'_>,
        within: Duration,
        take: impl FnOnce(M::Reply<'_>) -> T,
    ) -> Result<T, VisitError> {
        let address = self.address;
        let failed = |source| VisitError::Call { address, source };
        let until = time::of_this_machine() + within;
        let mut message = Vec::new();
        frame::begin_requests(&mut message, 0);
        frame::add_request(&mut message, M::NUMBER, request, Buffers::LARGE).ok_or(failed(RpcError::Full))?;
        frame::seal_requests(&mut message, u64::try_from(within.as_nanos()).unwrap_or(u64::MAX - 1));
        self.calls = self.calls.wrapping_add(1);
        let ticket = Ticket { index: 0, generation: self.calls };
        wire::request(true, &Request::Call { ticket, bytes: &message }, self.wire.out.frames());
        let ended = |_| VisitError::Ended { address };
        loop {
            let is_sent = self.wire.flush().map_err(ended)?;
            let came = self.wire.fill().map_err(ended)?;
            if let Some(reply) = self.reply_to(ticket)? {
                let mut results = InOrder::of(&reply);
                return results.take::<M>().map(take).map_err(failed);
            }
            match came {
                Came::End => return Err(VisitError::Ended { address }),
                Came::Some => {}
                Came::Nothing => self.wait((until, within), !is_sent)?,
            }
        }
    }

    /// Returns the reply to a call, if it is here. What an earlier call was answered by is dropped.
    fn reply_to(&mut self, ticket: Ticket) -> Result<Option<Vec<u8>>, VisitError> {
        let ended = VisitError::Ended { address: self.address };
        self.wire.input.open_all().map_err(|_| ended)?;
        loop {
            let Some((response, length)) = wire::decode_response(self.wire.input.frames()).map_err(|_| ended)? else {
                return Ok(None);
            };
            let reply = match response {
                Response::Reply { ticket: of, bytes } if of == ticket => Some(bytes.to_vec()),
                // A worker of the node has ended that was to answer, or the node has.
                Response::Refusal { ticket: of } if of == ticket => return Err(ended),
                Response::Failed(_) => return Err(ended),
                _ => None,
            };
            self.wire.input.consume(length);
            if reply.is_some() {
                return Ok(reply);
            }
        }
    }

    /// Waits until the socket has something, or takes something if there is more to be sent.
    fn wait(&self, (until, within): (Time, Duration), sends: bool) -> Result<(), VisitError> {
        let left = until.since(time::of_this_machine());
        if left.is_zero() {
            return Err(VisitError::Silent { address: self.address, within });
        }
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, sends);
        let tv_sec = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
        let timeout = Timespec { tv_sec, tv_nsec: left.subsec_nanos().into() };
        // What it is woken by is seen when the socket is looked at.
        let _ = poll(&mut [PollFd::new(&*self.wire.socket, flags)], Some(&timeout));
        Ok(())
    }
}

/// Without the keys.
impl fmt::Debug for TcpVisitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpVisitor").field("address", &self.address).finish_non_exhaustive()
    }
}
