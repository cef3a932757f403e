//! What can go wrong with a command, and the exit status that says so.

use std::{io, path::PathBuf};

use drtm_htm::{EngineError, Probe};

/// A command that could not be carried out. Every message says what to do instead.
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
    /// The engine asked for cannot be had.
    #[error(transparent)]
    Engine(#[from] EngineError),

    /// Real transactional memory was asked for, and this machine has none that commits.
    #[error("this machine has no usable RTM ({probe}): use --engine emulated, and know its results to be simulated")]
    NoRtm {
        /// What was found.
        probe: Probe,
    },

    /// Two options that exclude each other.
    #[error("{option} does not go with {with}: {instead}")]
    Options {
        /// The option that is out of place.
        option: &'static str,
        /// What makes it so.
        with: &'static str,
        /// What to do.
        instead: &'static str,
    },

    /// The study would touch more memory than it may have.
    #[error(
        "the study would need {needed_mib} MiB of memory, and may have {most_mib}: use fewer threads, maps or records, or smaller sizes"
    )]
    TooMuchMemory {
        /// What would be needed.
        needed_mib: usize,
        /// What there may be.
        most_mib: usize,
    },

    /// A load that is larger than those that the testbed was made for.
    #[error(
        "the load needs {needed} pages of memory, and the testbed was made with {made_with}: name the load to Testbed::new too"
    )]
    LargerThanRig {
        /// Pages that the load needs.
        needed: usize,
        /// Pages that each thread has.
        made_with: usize,
    },

    /// The store refused.
    #[error(transparent)]
    Store(#[from] drtm_kv::KvError),

    /// Memory could not be had.
    #[error(transparent)]
    Region(#[from] drtm_rdma::RegionError),

    /// A place is not in memory.
    #[error(transparent)]
    OutOfBounds(#[from] drtm_rdma::OutOfBounds),

    /// The fabric refused.
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

    /// A NIC cannot be used, or the cluster that it is for cannot be joined.
    #[cfg(feature = "verbs")]
    #[error(transparent)]
    Verbs(#[from] drtm_rdma::VerbsError),

    /// This machine has no socket, or a connection of the floor broke.
    #[error("a raw connection broke, or cannot be had: {0}")]
    RawSocket(std::io::Error),

    /// A simulated run did not come to its end.
    #[error("the simulated run ended before its workers: {0:?}")]
    Simulation(drtm_rdma::RunEnd),

    /// Nothing that was begun was done before the time was over.
    #[error("nothing was done within {within:?}: measure for longer, with --millis or --virtual-us")]
    NothingDone {
        /// How long it was measured in the end.
        within: std::time::Duration,
    },

    /// A table on another node could not be used.
    #[error(transparent)]
    Peer(#[from] drtm_kv::PeerError),

    /// A table of a comparison cannot take so many keys.
    #[error("the {scheme} table cannot take so many keys: use a lower occupancy")]
    DoesNotFit {
        /// Which kind of table.
        scheme: &'static str,
    },

    /// A lookup gave another answer than it must.
    #[error("key {key:#x} was looked up: expected {expected}, found {found:?}")]
    WrongAnswer {
        /// The key.
        key: u64,
        /// The number that goes with it.
        expected: u64,
        /// What was found.
        found: Option<u64>,
    },

    /// A map was asked for what it cannot do.
    #[error("{engine} {why}")]
    NotSupported {
        /// The map.
        engine: String,
        /// What it cannot do, and what to do instead if there is something.
        why: &'static str,
    },

    /// A map under comparison did what it must not.
    #[error("{engine} {did}: what was measured of it means nothing")]
    Misbehaved {
        /// The map.
        engine: String,
        /// What it did.
        did: &'static str,
    },

    /// A store under comparison refused, or has no more memory.
    #[error("{store}, under comparison, has failed: {source}")]
    Foreign {
        /// Which.
        store: &'static str,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// What a map under comparison needs of ours has no more room.
    #[error("there is no more room for {what}: use fewer records")]
    Full {
        /// What is full.
        what: &'static str,
    },

    /// The system does not tell how much memory there is or is used.
    #[error("{path} does not say how much memory is used: leave memory out with --no-memory")]
    Resident {
        /// Where it should say.
        path: &'static str,
        /// Why it cannot be read, if it cannot.
        source: Option<io::Error>,
    },

    /// A part of the work that has to be done by a process of its own has failed there.
    #[error("{command}, in a process of its own, has failed: {why}")]
    Child {
        /// The command.
        command: &'static str,
        /// What became of it.
        why: String,
    },

    /// The database refused, or has no more memory.
    #[error(transparent)]
    Database(#[from] drtm_txn::Error),

    /// A population of TPC-C that cannot be.
    #[error(transparent)]
    Scale(#[from] crate::tpcc::ScaleError),

    /// A bank of SmallBank that cannot be.
    #[error(transparent)]
    Bank(#[from] crate::smallbank::BankError),

    /// A brokerage of TPC-E that cannot be.
    #[error(transparent)]
    Brokerage(#[from] crate::tpce::BrokerageError),

    /// A register of TATP that cannot be.
    #[error(transparent)]
    Register(#[from] crate::tatp::RegisterError),

    /// A plan of YCSB's core workloads that cannot be.
    #[error(transparent)]
    Plan(#[from] crate::ycsb::PlanError),

    /// Transactions of YCSB's operations that cannot be.
    #[error(transparent)]
    Shape(#[from] crate::ycsb::ShapeError),

    /// A number that is too great for a key of TPC-C's indexes.
    #[error(transparent)]
    Key(#[from] crate::tpcc::KeyError),

    /// What a figure must show, it does not.
    #[error("{figure}: {what}")]
    Figure {
        /// Which one.
        figure: &'static str,
        /// What is there instead.
        what: String,
    },

    /// When all was over, something did not hold.
    #[error("the database is not consistent: {violations} conditions do not hold, the first of them: {first}")]
    Inconsistent {
        /// How many.
        violations: usize,
        /// In words.
        first: String,
    },

    /// A history shows what no serial execution could have shown.
    #[error("the history is not strictly serializable: {anomalies} anomalies, the first of them: {first}")]
    Anomalies {
        /// How many there are.
        anomalies: usize,
        /// The first, in words.
        first: String,
    },

    /// A database that crashed, was killed or whose disk failed has not kept what it must.
    #[error("{findings} findings, the first of them: {first}")]
    Soaked {
        /// How many there are.
        findings: u64,
        /// The first, in words.
        first: String,
    },

    /// A history cannot be recorded for so many threads.
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
        /// Which.
        path: PathBuf,
    },

    /// A file or a directory could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },

    /// A log cannot be read as a whole.
    #[error("the log is damaged: {why} in {file} at offset {offset}; `drtm-bench log salvage` reads what can be read")]
    DamagedLog {
        /// The file.
        file: String,
        /// Where in the file.
        offset: u64,
        /// What is wrong.
        why: String,
    },

    /// A directory that is to be new has files.
    #[error("{} has files: name a directory that is empty or not there yet", path.display())]
    Occupied {
        /// Which.
        path: PathBuf,
    },

    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// Where to.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },

    /// The report itself could not be written.
    #[error("cannot write the report: {0}")]
    Report(#[source] io::Error),
}

impl Error {
    /// What is said when RTM is asked for and cannot be had.
    pub(crate) fn no_rtm(error: EngineError) -> Self {
        match error {
            EngineError::RtmUnavailable { probe } => Self::NoRtm { probe },
            other => other.into(),
        }
    }

    /// Wrong usage, unless the fault is not in how the command was called.
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
