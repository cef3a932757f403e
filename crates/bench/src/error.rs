//! Errors of commands, and their exit statuses.

use std::{io, path::PathBuf};

use drtm_htm::{EngineError, Probe};

/// A command failed. Every message says what to do instead.
///
/// # Example
///
/// ```
/// use drtm_bench::{Error, htm::{Load, Machine, Testbed, Setup}};
/// use drtm_htm::Profile;
///
/// let crowd = Setup { threads: 1 << 20, ..Setup::on(Machine::Emulated(Profile::L1_32K_8)) };
/// let error = Testbed::new(crowd, &[Load::read(8 << 20)]).unwrap_err();
/// assert!(matches!(error, Error::TooMuchMemory { .. }));
/// assert!(error.to_string().contains("fewer threads"));
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

    /// The fabric returned an error.
    #[error(transparent)]
    Fabric(#[from] drtm_rdma::FabricError),

    /// An operation on another node failed.
    #[error(transparent)]
    Verb(#[from] drtm_rdma::VerbError),

    /// A group of nodes on shared memory could not be joined.
    #[error(transparent)]
    Join(#[from] drtm_rdma::JoinError),

    /// A cluster over TCP could not be joined.
    #[error(transparent)]
    Tcp(#[from] drtm_rdma::TcpError),

    /// A NIC cannot be used, or its cluster cannot be joined.
    #[cfg(feature = "verbs")]
    #[error(transparent)]
    Verbs(#[from] drtm_rdma::VerbsError),

    /// This machine has no socket, or a connection of the raw baseline broke.
    #[error("a raw connection broke, or cannot be had: {0}")]
    RawSocket(std::io::Error),

    /// A simulated run ended early.
    #[error("the simulated run ended before its workers: {0:?}")]
    Simulation(drtm_rdma::RunEnd),

    /// No operation ended within the measured time.
    #[error("nothing was done within {within:?}: measure for longer, with --millis or --virtual-us")]
    NothingDone {
        /// How long was measured.
        within: std::time::Duration,
    },

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

    /// A store under comparison returned an error, or ran out of memory.
    #[error("{store}, under comparison, has failed: {source}")]
    Foreign {
        /// The store.
        store: &'static str,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// One of our parts that a compared map needs is full.
    #[error("there is no more room for {what}: use fewer records")]
    Full {
        /// What is full.
        what: &'static str,
    },

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

    /// An invalid population of TPC-C.
    #[error(transparent)]
    Scale(#[from] crate::tpcc::ScaleError),

    /// An invalid bank of SmallBank.
    #[error(transparent)]
    Bank(#[from] crate::smallbank::BankError),

    /// An invalid brokerage of TPC-E.
    #[error(transparent)]
    Brokerage(#[from] crate::tpce::BrokerageError),

    /// An invalid subscriber register of TATP.
    #[error(transparent)]
    Register(#[from] crate::tatp::RegisterError),

    /// An invalid plan of YCSB's core workloads.
    #[error(transparent)]
    Plan(#[from] crate::ycsb::PlanError),

    /// An invalid shape of YCSB's multi-operation transactions.
    #[error(transparent)]
    Shape(#[from] crate::ycsb::ShapeError),

    /// A number is too large for a key of TPC-C's indexes.
    #[error(transparent)]
    Key(#[from] crate::tpcc::KeyError),

    /// A figure does not show what it must.
    #[error("{figure}: {what}")]
    Figure {
        /// The figure.
        figure: &'static str,
        /// What the figure shows instead.
        what: String,
    },

    /// A consistency condition did not hold after the run.
    #[error("the database is not consistent: {violations} conditions do not hold, the first of them: {first}")]
    Inconsistent {
        /// The number of violations.
        violations: usize,
        /// The first violation, in words.
        first: String,
    },

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

    /// A history cannot be recorded for that many threads.
    #[error(transparent)]
    Logs(#[from] crate::history::TooManyLogs),

    /// The operating system refused a thread.
    #[error("no thread to be had ({0}): use fewer threads, or raise the limit on them")]
    Thread(#[source] io::Error),

    /// A chart could not be drawn.
    #[error("the chart cannot be drawn ({0}): leave out --svg")]
    Chart(String),

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
    #[error("the log is damaged: {why} in {file} at offset {offset}; `drtm-bench log salvage` reads what can be read")]
    DamagedLog {
        /// The file.
        file: String,
        /// The byte offset in the file.
        offset: u64,
        /// The damage.
        why: String,
    },

    /// A directory that must be empty has files.
    #[error("{} has files: name a directory that is empty or not there yet", path.display())]
    Occupied {
        /// The directory.
        path: PathBuf,
    },

    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },

    /// The report itself could not be written.
    #[error("cannot write the report: {0}")]
    Report(#[source] io::Error),
}

impl Error {
    /// Returns the error for RTM that was requested and is not available.
    pub(crate) fn no_rtm(error: EngineError) -> Self {
        match error {
            EngineError::RtmUnavailable { probe } => Self::NoRtm { probe },
            other => other.into(),
        }
    }

    /// Returns the exit status: wrong usage, unless the cause is not in how the command was called.
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::Thread(_)
            | Self::Chart(_)
            | Self::Report(_)
            | Self::WrongAnswer { .. }
            | Self::Misbehaved { .. }
            | Self::Foreign { .. }
            | Self::Database(_)
            | Self::DamagedLog { .. }
            | Self::Soaked { .. }
            | Self::Key(_)
            | Self::Figure { .. }
            | Self::Anomalies { .. }
            | Self::Inconsistent { .. } => 1,
            _ => 2,
        }
    }
}
