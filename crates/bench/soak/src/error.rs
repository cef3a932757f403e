//! Errors of soaks and of histories, and their exit statuses.

use drtm_report::Failure;

/// A soak or a history found something, or could not run. Every message says what to do instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A run failed.
    #[error(transparent)]
    Run(#[from] drtm_drive::Error),

    /// A history is not strictly serializable.
    #[error("the history is not strictly serializable: {anomalies} anomalies, the first of them: {first}")]
    Anomalies {
        /// The number of anomalies.
        anomalies: usize,
        /// The first anomaly, in words.
        first: String,
    },

    /// A database lost or corrupted data after a crash, a kill or a disk failure.
    #[error("{findings} findings, the first of them: {first}")]
    Soaked {
        /// The number of findings.
        findings: u64,
        /// The first finding, in words.
        first: String,
    },
}

impl From<drtm_txn::Error> for Error {
    fn from(error: drtm_txn::Error) -> Self {
        Self::Run(error.into())
    }
}

impl From<drtm_report::Error> for Error {
    fn from(error: drtm_report::Error) -> Self {
        Self::Run(error.into())
    }
}

impl Failure for Error {
    fn exit_status(&self) -> u8 {
        match self {
            Self::Run(error) => error.exit_status(),
            Self::Anomalies { .. } | Self::Soaked { .. } => 1,
        }
    }

    fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Run(error) if error.is_closed_pipe())
    }
}
