//! Errors of a run.

use drtm_rdma::{Ended, FabricError, NodeId, RunEnd, VerbError};

/// Why a run failed.
///
/// # Example
///
/// ```
/// use drtm_calvin::{Error, tpcc::Tpcc};
/// use drtm_tpcc::Scale;
///
/// let refused = Tpcc::load(Scale::new(1)?, 0, 2).expect_err("two nodes share no warehouse");
/// assert!(matches!(refused, Error::Scale(_)));
/// # Ok::<(), drtm_tpcc::ScaleError>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The fabric refused an endpoint.
    #[error("a node could not use its fabric")]
    Fabric(#[from] FabricError),
    /// A message could not be sent.
    #[error("a message was not delivered")]
    Verb(#[from] VerbError),
    /// A part of a node could not begin.
    #[error("a part of a node could not begin")]
    Ended(#[from] Ended),
    /// A simulation came to no end.
    #[error("the simulated cluster did not finish: {0:?}")]
    Simulation(RunEnd),
    /// A message that no node sends.
    #[error("node {from:?} sent bytes that are no message")]
    Malformed {
        /// The sender.
        from: NodeId,
    },
    /// A thread could not be started.
    #[error("a thread could not be started")]
    Thread(#[source] std::io::Error),
    /// A part of a node panicked.
    #[error("a part of a node panicked")]
    Panicked,
    /// A size that TPC-C cannot have.
    #[error("no such population")]
    Scale(#[from] drtm_tpcc::ScaleError),
}
