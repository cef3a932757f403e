//! Errors of the commands of `drtm-bench`, and their exit statuses.

use std::{io, path::PathBuf};

use drtm_report::Failure;

/// A command failed. Every message says what to do instead.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A workload's run failed.
    #[error(transparent)]
    Run(#[from] drtm_drive::Error),

    /// A soak or a history failed.
    #[error(transparent)]
    Soak(#[from] drtm_soak::Error),

    /// A study failed.
    #[error(transparent)]
    Study(#[from] drtm_paper::Error),

    /// A study of fabrics failed.
    #[error(transparent)]
    Fabric(#[from] drtm_fabrics::Error),

    /// A log is damaged, or could not be read.
    #[error(transparent)]
    Log(#[from] drtm_tool::Error),

    /// A text is not a program of transactions.
    #[error(transparent)]
    Program(#[from] drtm_chopping::TextError),

    /// Pieces that were insisted on are refused.
    #[error(transparent)]
    Chopping(#[from] drtm_chopping::Refusal),

    /// A program could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },

    /// A report or a picture could not be written.
    #[error(transparent)]
    Report(#[from] drtm_report::Error),
}

/// A store under comparison failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
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
            Self::Fabric(error) => error.exit_status(),
            Self::Log(error) => error.exit_status(),
            Self::Report(error) => error.exit_status(),
            Self::Chopping(_) => 1,
            Self::Program(_) | Self::Unreadable { .. } => 2,
        }
    }

    fn is_closed_pipe(&self) -> bool {
        match self {
            Self::Run(error) => error.is_closed_pipe(),
            Self::Soak(error) => error.is_closed_pipe(),
            Self::Study(error) => error.is_closed_pipe(),
            Self::Fabric(error) => error.is_closed_pipe(),
            Self::Log(error) => error.is_closed_pipe(),
            Self::Report(error) => error.is_closed_pipe(),
            Self::Chopping(_) | Self::Program(_) | Self::Unreadable { .. } => false,
        }
    }
}
