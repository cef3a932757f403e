//! Errors of studies of fabrics, and their exit statuses.

use std::time::Duration;

use drtm_report::Failure;

/// A study failed. Every message says what to do instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A run failed.
    #[error(transparent)]
    Run(#[from] drtm_drive::Error),

    /// Memory could not be allocated.
    #[error(transparent)]
    Region(#[from] drtm_rdma::RegionError),

    /// An address is out of bounds.
    #[error(transparent)]
    OutOfBounds(#[from] drtm_rdma::OutOfBounds),

    /// An operation on another node failed.
    #[error(transparent)]
    Verb(#[from] drtm_rdma::VerbError),

    /// A NIC cannot be used, or its cluster cannot be joined.
    #[cfg(feature = "verbs")]
    #[error(transparent)]
    Verbs(#[from] drtm_rdma::VerbsError),

    /// No operation ended within the measured time.
    #[error("nothing was done within {within:?}: measure for longer, with --millis or --virtual-us")]
    NothingDone {
        /// How long was measured.
        within: Duration,
    },
}

/// Wraps errors that a run has, too.
macro_rules! from_runs {
    ($($error:ty),+ $(,)?) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::Run(error.into())
            }
        }
    )+};
}

from_runs!(
    drtm_htm::EngineError,
    drtm_rdma::FabricError,
    drtm_rdma::JoinError,
    drtm_rdma::TcpError,
    drtm_report::Error,
);

impl Failure for Error {
    /// Reports wrong usage, unless the cause is not in how the command was called.
    fn exit_status(&self) -> u8 {
        match self {
            Self::Run(error) => error.exit_status(),
            _ => 2,
        }
    }

    fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Run(error) if error.is_closed_pipe())
    }
}
