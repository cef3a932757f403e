//! Errors of studies, and their exit statuses.

use std::path::PathBuf;

use drtm_report::Failure;

/// A study failed. Every message says what to do instead.
///
/// # Example
///
/// ```
/// use drtm_htm::Profile;
/// use drtm_paper::{Error, htm::{Load, Machine, Setup, Testbed}};
///
/// let crowd = Setup { threads: 1 << 20, ..Setup::on(Machine::Emulated(Profile::L1_32K_8)) };
/// let error = Testbed::new(crowd, &[Load::read(8 << 20)]).unwrap_err();
/// assert!(matches!(error, Error::TooMuchMemory { .. }));
/// assert!(error.to_string().contains("fewer threads"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A run failed.
    #[error(transparent)]
    Run(#[from] drtm_drive::Error),

    /// The study would touch more memory than its limit.
    #[error(
        "the study would need {needed_mib} MiB of memory, and may have {most_mib}: use fewer threads, maps or records, or smaller sizes"
    )]
    TooMuchMemory {
        /// The memory needed.
        needed_mib: usize,
        /// The limit.
        most_mib: usize,
    },

    /// A load is larger than any that the testbed was made for.
    #[error(
        "the load needs {needed} pages of memory, and the testbed was made with {made_with}: name the load to Testbed::new too"
    )]
    LargerThanRig {
        /// Pages that the load needs.
        needed: usize,
        /// Pages that each thread has.
        made_with: usize,
    },

    /// The store returned an error.
    #[error(transparent)]
    Store(#[from] drtm_kv::KvError),

    /// Memory could not be allocated.
    #[error(transparent)]
    Region(#[from] drtm_rdma::RegionError),

    /// An address is out of bounds.
    #[error(transparent)]
    OutOfBounds(#[from] drtm_rdma::OutOfBounds),

    /// An operation on another node failed.
    #[error(transparent)]
    Verb(#[from] drtm_rdma::VerbError),

    /// A table on another node could not be used.
    #[error(transparent)]
    Peer(#[from] drtm_kv::PeerError),

    /// A compared table cannot hold that many keys.
    #[error("the {scheme} table cannot take so many keys: use a lower occupancy")]
    DoesNotFit {
        /// The kind of table.
        scheme: &'static str,
    },

    /// A lookup returned a wrong answer.
    #[error("key {key:#x} was looked up: expected {expected}, found {found:?}")]
    WrongAnswer {
        /// The key.
        key: u64,
        /// The value expected.
        expected: u64,
        /// The value found.
        found: Option<u64>,
    },

    /// A map does not support the requested measurement.
    #[error("{engine} {why}")]
    NotSupported {
        /// The map.
        engine: String,
        /// What the map cannot do, and the alternative if there is one.
        why: &'static str,
    },

    /// A map under comparison misbehaved.
    #[error("{engine} {did}: what was measured of it means nothing")]
    Misbehaved {
        /// The map.
        engine: String,
        /// What the map did.
        did: &'static str,
    },

    /// One of our parts that a compared map needs is full.
    #[error("there is no more room for {what}: use fewer records")]
    Full {
        /// What is full.
        what: &'static str,
    },

    /// A file of results could not be used.
    #[error("{} cannot be used: {why}", path.display())]
    Results {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },

    /// Results have a figure that this version does not make.
    #[error("there is no figure {figure} in this version: use the version that made the results, or make them again")]
    Strange {
        /// The figure.
        figure: String,
    },

    /// A figure does not show what it must.
    #[error("{figure}: {what}")]
    Figure {
        /// The figure.
        figure: &'static str,
        /// What the figure shows instead.
        what: String,
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
    drtm_report::Error,
    drtm_tpcc::ScaleError,
    drtm_txn::Error,
    drtm_workloads::smallbank::BankError,
    drtm_workloads::tpce::BrokerageError,
);

/// A run of Calvin is one of a workload.
impl From<drtm_calvin::Error> for Error {
    fn from(error: drtm_calvin::Error) -> Self {
        Self::Run(drtm_drive::Error::workload(error))
    }
}

/// A study's own client runs in the driver of all workloads.
impl From<Error> for drtm_drive::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Run(error) => error,
            other => Self::workload(other),
        }
    }
}

impl Failure for Error {
    /// Reports wrong usage, unless the cause is not in how the command was called.
    fn exit_status(&self) -> u8 {
        match self {
            Self::Run(error) => error.exit_status(),
            Self::WrongAnswer { .. } | Self::Misbehaved { .. } | Self::Figure { .. } => 1,
            _ => 2,
        }
    }

    fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Run(error) if error.is_closed_pipe())
    }
}
