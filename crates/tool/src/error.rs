//! Errors of the tool, and their exit statuses.

use std::{io, path::PathBuf};

use drtm_report::Failure;
use drtm_txn::cluster::ClusterError::{Address, KeyFile, KeyLength};

/// A log could not be read, or is damaged; or a cluster could not be asked. Every message says what
/// to do instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A directory has no log.
    #[error("{} holds no log: name the directory of a database", path.display())]
    NoLog {
        /// The directory.
        path: PathBuf,
    },

    /// A file or a directory could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },

    /// A log cannot be read completely.
    #[error("the log is damaged: {why} in {file} at offset {offset}; `drtm log salvage` reads what can be read")]
    DamagedLog {
        /// The file.
        file: String,
        /// The byte offset in the file.
        offset: u64,
        /// The damage.
        why: String,
    },

    /// A log that was written does not have the rows that were read.
    #[error("{} has {found} rows where {expected} were written: keep the directory that they were read from", path.display())]
    Miscounted {
        /// The directory of the new log.
        path: PathBuf,
        /// The rows that the new log has.
        found: u64,
        /// The rows that were written.
        expected: u64,
    },

    /// The database, or the cluster, returned an error.
    #[error(transparent)]
    Database(#[from] drtm_txn::Error),

    /// The report, or a file, could not be written.
    #[error(transparent)]
    Output(#[from] drtm_report::Error),
}

impl Failure for Error {
    fn exit_status(&self) -> u8 {
        match self {
            Self::Database(drtm_txn::Error::Cluster(Address { .. } | KeyFile { .. } | KeyLength { .. })) => 2,
            Self::Database(_) | Self::DamagedLog { .. } | Self::Miscounted { .. } => 1,
            Self::Output(error) => error.exit_status(),
            Self::NoLog { .. } | Self::Unreadable { .. } => 2,
        }
    }

    fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.is_closed_pipe())
    }
}
