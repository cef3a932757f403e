//! Typed calls over messages: procedures with a request and a reply, several to a message, with
//! deadlines, each carried out at most once.
//!
//! - A [`Procedure`] is a number and two types. [`Encode`] and [`Decode`] are the codec: it borrows
//!   what it decodes, and its buffers are reused, so that a call allocates nothing.
//! - [`Rpc::to`] collects [`Calls`] to one node, which travel in one message and return in one: one
//!   round trip for all of them. [`Rpc::call`] makes a single call.
//! - [`serve`] answers calls, by a handler that gets one [`Incoming`] call after another.
//! - What all calls of a message have in common is its [tag](Rpc::tagged), a number.
//! - A deadline is the caller's. It is sent as the time that the caller still waits, since nodes
//!   have no common clock. A handler is not run for a call that has expired.
//! - A call is carried out *at most once*: every fabric delivers a message once, or the call fails.
//!
//! A call that fails may have been carried out, unless [`RpcError::is_certain`] says otherwise.
//!
//! # Example
//!
//! ```
//! use drtm_htm::NoHtm;
//! use drtm_rdma::{
//!     Executor, Fabric, LocalConfig, LocalFabric, NodeId, Phase,
//!     rpc::{Procedure, Refused, Rpc, serve},
//! };
//!
//! /// Adds to a counter, and gives what it was.
//! enum Add {}
//!
//! impl Procedure for Add {
//!     const NUMBER: u16 = 1;
//!     type Request<'a> = (&'a str, u64);
//!     type Reply<'a> = u64;
//! }
//!
//! let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
//! let endpoint = fabric.endpoint(NodeId(0))?;
//! let verbs = endpoint.during(Phase::Execute);
//! let mut apples = 0;
//! let mut executor = Executor::new(&endpoint);
//! executor.serve(serve(verbs, |call| match call.procedure() {
//!     Add::NUMBER => call.answer::<Add>(|(name, add)| match name {
//!         "apples" => {
//!             apples += add;
//!             Ok(apples - add)
//!         }
//!         _ => Err(Refused(404)),
//!     }),
//!     _ => call.unknown(),
//! }));
//! let caller = async || {
//!     let rpc = Rpc::new(verbs);
//!     assert_eq!(rpc.call::<Add>(NodeId(0), &("apples", 5), None).await?.get()?, 0);
//!     // Two in one message.
//!     let mut calls = rpc.to(NodeId(0));
//!     let first = calls.add::<Add>(&("apples", 1))?;
//!     let second = calls.add::<Add>(&("pears", 1))?;
//!     let results = calls.send(None).await?;
//!     assert_eq!(results.get(&first)?, 5);
//!     assert_eq!(results.get(&second).unwrap_err().refused(), Some(404));
//!     Ok::<_, drtm_rdma::rpc::RpcError>(())
//! };
//! executor.spawn(async { caller().await.expect("calls that succeed") });
//! executor.run();
//! # Ok::<(), drtm_rdma::FabricError>(())
//! ```

mod client;
mod codec;
pub(crate) mod frame;
mod server;

pub use client::{Calls, InOrder, One, Posted, Results, Rpc, Slot};
pub use codec::{Decode, DecodeError, Encode, Reader};
#[doc(hidden)]
pub use frame::{Request, Requests, decode};
pub use server::{Answered, Incoming, Refused, serve, serve_tagged};

use crate::{Time, VerbError};

/// A procedure that can be called: a number, a request type and a reply type.
///
/// # Example
///
/// See the [module](self).
pub trait Procedure {
    /// Its number, unique among those of one handler.
    const NUMBER: u16;

    /// The type of its request.
    type Request<'a>: Encode + Decode<'a>;

    /// The type of its reply.
    type Reply<'a>: Encode + Decode<'a>;
}

/// A call that has failed.
///
/// # Example
///
/// ```
/// use drtm_rdma::rpc::RpcError;
///
/// assert!(RpcError::UnknownProcedure { procedure: 3 }.is_certain());
/// assert_eq!(RpcError::Refused { reason: 7 }.refused(), Some(7));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// The message could not be sent, or its outcome is unknown.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// The deadline had passed before the message was sent.
    #[error("the deadline {deadline} had passed, and nothing was sent")]
    TooLate {
        /// The deadline.
        deadline: Time,
    },
    /// The deadline passed before the reply came.
    #[error("the deadline passed at {deadline}; whether the calls were carried out is not known")]
    Elapsed {
        /// The deadline.
        deadline: Time,
    },
    /// The call had expired when the handler received it, and was not carried out.
    #[error("the call was taken too late and not carried out")]
    Expired,
    /// The message has no room for another call.
    #[error("the message has no room for another call; send it, and begin another")]
    Full,
    /// The handler refused the call, with a number of its own.
    #[error("the call is refused, for reason {reason}")]
    Refused {
        /// The handler's number.
        reason: u32,
    },
    /// The handler knows no such procedure, and did nothing.
    #[error("procedure {procedure} is not known there")]
    UnknownProcedure {
        /// The called procedure.
        procedure: u16,
    },
    /// The handler could not decode the request, and did nothing.
    #[error("the request is none of this procedure's; both sides must have the same version")]
    Malformed,
    /// The call was carried out, but its reply is too long for a message.
    #[error("the call was carried out, and its reply is too long for a message")]
    TooLong,
    /// The reply could not be decoded.
    #[error("the reply is not understood: {0}")]
    Reply(DecodeError),
}

impl RpcError {
    /// Returns whether the call was certainly not carried out.
    ///
    /// # Example
    ///
    /// See [`RpcError`].
    #[must_use]
    pub fn is_certain(&self) -> bool {
        match self {
            Self::Verb(error) => !error.may_have_taken_effect(),
            Self::TooLate { .. } | Self::Expired | Self::Full | Self::UnknownProcedure { .. } | Self::Malformed => true,
            // A handler may have had effects before it refused.
            Self::Elapsed { .. } | Self::Refused { .. } | Self::TooLong | Self::Reply(_) => false,
        }
    }

    /// Returns the handler's number, if it refused the call.
    ///
    /// # Example
    ///
    /// See [`RpcError`].
    #[must_use]
    pub fn refused(&self) -> Option<u32> {
        match self {
            Self::Refused { reason } => Some(*reason),
            _ => None,
        }
    }
}
