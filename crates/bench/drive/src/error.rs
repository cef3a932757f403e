//! Errors of runs, and their exit statuses.

use std::io;

use drtm_htm::{EngineError, Probe};
use drtm_report::Failure;

/// A run of a workload failed. Every message says what to do instead.
///
/// # Example
///
/// ```
/// use drtm_drive::Error;
///
/// let error = Error::Options { option: "--prefetch", with: "several nodes", instead: "leave it out" };
/// assert_eq!(error.to_string(), "--prefetch does not go with several nodes: leave it out");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The requested engine is not available.
    #[error(transparent)]
    Engine(#[from] EngineError),

    /// Real transactional memory was requested, and no transaction commits on this machine.
    #[error("this machine has no usable RTM ({probe}): use --engine emulated, and know its results to be simulated")]
    NoRtm {
        /// The result of the probe.
        probe: Probe,
    },

    /// Two options that exclude each other.
    #[error("{option} does not go with {with}: {instead}")]
    Options {
        /// The refused option.
        option: &'static str,
        /// The option that it conflicts with.
        with: &'static str,
        /// What to do instead.
        instead: &'static str,
    },

    /// The program is built without what the option needs.
    #[error(
        "{option} is for studies, and this program is built without them: {instead}`drtm-bench` has it (cargo run --release -p drtm-bench -- --help)"
    )]
    Study {
        /// The refused option.
        option: &'static str,
        /// What else to do: empty, or with a semicolon at its end.
        instead: &'static str,
    },

    /// The program is built without clusters.
    #[error(
        "--nodes {nodes} needs clusters, and this program is built without them; this one has them: cargo run --release --features cluster --example tpcc -- --nodes {nodes} --fabric {fabric}"
    )]
    NoClusters {
        /// The nodes that were asked for.
        nodes: u16,
        /// A fabric that they can have.
        fabric: crate::FabricName,
    },

    /// A workload cannot have that size or shape.
    #[error(transparent)]
    Size(Box<dyn std::error::Error + Send + Sync>),

    /// A workload's transactions failed, for a reason of its own.
    #[error(transparent)]
    Workload(Box<dyn std::error::Error + Send + Sync>),

    /// The fabric returned an error.
    #[error(transparent)]
    Fabric(#[from] drtm_rdma::FabricError),

    /// A group of nodes on shared memory could not be joined.
    #[error(transparent)]
    Join(#[from] drtm_rdma::JoinError),

    /// A cluster over TCP could not be joined.
    #[cfg(feature = "cluster")]
    #[error(transparent)]
    Tcp(#[from] drtm_rdma::TcpError),

    /// This machine has no socket, or a connection of the raw baseline broke.
    #[error("a raw connection broke, or cannot be had: {0}")]
    RawSocket(io::Error),

    /// A simulated run ended early.
    #[error("the simulated run ended before its workers: {0:?}")]
    Simulation(drtm_rdma::RunEnd),

    /// The system does not report memory use.
    #[error("{path} does not say how much memory is used: leave memory out with --no-memory")]
    Resident {
        /// The file that should report it.
        path: &'static str,
        /// Why the file cannot be read; `None` if it lacks the number.
        source: Option<io::Error>,
    },

    /// A part of the work that runs in a process of its own failed.
    #[error("{command}, in a process of its own, has failed: {why}")]
    Child {
        /// The command.
        command: &'static str,
        /// How the process ended.
        why: String,
    },

    /// The database returned an error, or ran out of memory.
    #[error(transparent)]
    Database(#[from] drtm_txn::Error),

    /// A consistency condition did not hold after the run.
    #[error("the database is not consistent: {violations} conditions do not hold, the first of them: {first}")]
    Inconsistent {
        /// The number of violations.
        violations: usize,
        /// The first violation, in words.
        first: String,
    },

    /// The operating system refused a thread.
    #[error("no thread to be had ({0}): use fewer threads, or raise the limit on them")]
    Thread(#[source] io::Error),

    /// The report, or a file, could not be written.
    #[error(transparent)]
    Output(#[from] drtm_report::Error),
}

impl Error {
    /// Returns the error of a workload that cannot have that size or shape.
    pub fn size(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Size(Box::new(error))
    }

    /// Returns the error of transactions that failed for a workload's own reason.
    pub fn workload(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Workload(Box::new(error))
    }

    /// Returns the error for RTM that was requested and is not available.
    pub fn no_rtm(error: EngineError) -> Self {
        match error {
            EngineError::RtmUnavailable { probe } => Self::NoRtm { probe },
            other => other.into(),
        }
    }
}

impl Failure for Error {
    /// Reports wrong usage, unless the cause is not in how the command was called.
    fn exit_status(&self) -> u8 {
        match self {
            Self::Output(error) => error.exit_status(),
            Self::Thread(_) | Self::Database(_) | Self::Workload(_) | Self::Inconsistent { .. } => 1,
            _ => 2,
        }
    }

    fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.is_closed_pipe())
    }
}
