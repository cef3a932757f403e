//! Errors of the commands of `drtm-bench`, and their exit statuses.

use drtm_report::Failure;

/// A command failed. Every message says what to do instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A workload's run failed.
    #[error(transparent)]
    Run(#[from] drtm_drive::Error),

    /// A soak or a history failed.
    #[error(transparent)]
    Soak(#[from] drtm_soak::Error),

    /// A study failed.
    #[error(transparent)]
    Study(#[from] drtm_paper::Error),

    /// A log is damaged, or could not be read.
    #[error(transparent)]
    Log(#[from] drtm_tool::Error),
}

/// A store under comparison failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It does not support the requested measurement.
    #[error("{engine} {why}")]
    NotSupported {
        /// The store.
        engine: String,
        /// What the store cannot do, and the alternative if there is one.
        why: &'static str,
    },

    /// It misbehaved.
    #[error("{engine} {did}: what was measured of it means nothing")]
    Misbehaved {
        /// The store.
        engine: String,
        /// What the store did.
        did: &'static str,
    },

    /// It returned an error, or ran out of memory.
    #[error("{store}, under comparison, has failed: {source}")]
    Foreign {
        /// The store.
        store: &'static str,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A client of another store runs in the driver of all workloads.
impl From<StoreError> for drtm_drive::Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotSupported { .. } => Self::size(error),
            other => Self::workload(other),
        }
    }
}

impl Failure for Error {
    fn exit_status(&self) -> u8 {
        match self {
            Self::Run(error) => error.exit_status(),
            Self::Soak(error) => error.exit_status(),
            Self::Study(error) => error.exit_status(),
            Self::Log(error) => error.exit_status(),
        }
    }

    fn is_closed_pipe(&self) -> bool {
        match self {
            Self::Run(error) => error.is_closed_pipe(),
            Self::Soak(error) => error.is_closed_pipe(),
            Self::Study(error) => error.is_closed_pipe(),
            Self::Log(error) => error.is_closed_pipe(),
        }
    }
}
