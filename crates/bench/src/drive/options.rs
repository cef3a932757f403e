//! Options that all workloads have.

use std::{path::PathBuf, time::Duration};

use clap::{Args, value_parser};

use super::{
    cluster::{Length, Plan, ProtocolOf},
    engine::{EngineName, but_limit},
    log::{DurabilityName, LogPlace},
    workers::Until,
    workload::Pace,
};
use crate::{Error, fabric::FabricName};

/// How a workload is run.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Threads that run transactions [default: one for each processor; of several nodes, each has
    /// one]
    #[arg(long, value_parser = value_parser!(u16).range(1..=1024), value_name = "N")]
    threads: Option<u16>,

    /// Seconds to run
    #[arg(long, value_parser = seconds, default_value = "5", value_name = "S")]
    secs: Duration,

    /// Run so many transactions in each thread instead, so that every run does the same work
    #[arg(long, value_parser = value_parser!(u64).range(1..), conflicts_with = "secs", value_name = "N")]
    transactions: Option<u64>,

    /// What transactions run on
    #[arg(long, value_parser = but_limit::<EngineName>(), default_value = EngineName::Auto.name())]
    pub(crate) engine: EngineName,

    /// Memory that the database may use, in GiB. It is reserved, and taken as rows come
    #[arg(long, value_parser = value_parser!(u16).range(1..=4096), default_value_t = 64, value_name = "GIB")]
    memory: u16,

    /// Memory that the database has from the beginning, in GiB, so that the system's providing it
    /// is no part of what is measured
    #[arg(long, value_parser = value_parser!(u16).range(0..=4096), default_value_t = 0, value_name = "GIB")]
    prefault: u16,

    /// When a commit is safe from a crash. With a log, the conditions are checked again after the
    /// database was closed and opened again
    #[arg(long, value_enum, default_value_t)]
    pub(crate) durability: DurabilityName,

    /// Where the log is to be: a directory that is empty or not there yet, and is left as it is in
    /// the end
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,

    /// Nodes, each of which owns a part of the rows
    #[arg(long, value_parser = value_parser!(u16).range(1..=64), default_value_t = 1, value_name = "N")]
    pub(crate) nodes: u16,

    /// What joins nodes: local (threads of this process), shm or tcp (a process for each node;
    /// tcp-clear does not encrypt) or sim[:PROFILE] (simulated)
    #[arg(long, default_value = "local")]
    pub(crate) fabric: FabricName,

    /// Transactions that each thread of a node has under way at a time [default: 8 on several
    /// nodes]
    #[arg(long, value_parser = value_parser!(u16).range(1..=128), value_name = "N")]
    coroutines: Option<u16>,

    /// Microseconds of virtual time to count on sim
    #[arg(long, value_parser = value_parser!(u64).range(1..=10_000_000), default_value_t = 5_000, value_name = "US")]
    virtual_us: u64,

    /// Microseconds of virtual time to run on sim before counting
    #[arg(long, value_parser = value_parser!(u64).range(0..=10_000_000), default_value_t = 2_000, value_name = "US")]
    warm_us: u64,

    /// How several nodes run transactions; with `drtm`, those of smallbank and ycsb, NEW-ORDER, and
    /// most of history's fetch their rows first
    #[arg(long, value_parser = ProtocolOf::parser(), value_name = "NAME")]
    protocol: Option<ProtocolOf>,

    /// Nodes that have each row's changes in memory before a transaction is decided, beside the
    /// row's own
    #[arg(long, value_parser = value_parser!(u16).range(0..64), default_value_t = 0, value_name = "K")]
    backups: u16,
}

/// A run's length.
pub(crate) fn seconds(given: &str) -> Result<Duration, String> {
    let seconds = given.parse().ok().filter(|seconds| (0.01..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "a run lasts 0.01 to 86400 seconds".to_owned())
}

impl Options {
    /// The number of threads: as given, or one for each processor.
    pub(crate) fn threads(&self) -> usize {
        self.threads.map_or_else(|| std::thread::available_parallelism().map_or(1, Into::into), Into::into)
    }

    /// Where the log is to be; `None` if there is to be none.
    pub(super) fn log(&self) -> Result<Option<LogPlace<'_>>, Error> {
        let refused = |option, with, instead| Err(Error::Options { option, with, instead });
        match (self.durability.mode(), &self.path) {
            (None, None) => Ok(None),
            (Some(mode), Some(directory)) => Ok(Some(LogPlace { directory, mode })),
            (Some(_), None) => {
                refused("--durability", "a database in memory", "say --path DIR, where its log is to be")
            }
            (None, Some(_)) => {
                refused("--path", "--durability none", "say --durability async or sync, or leave it out")
            }
        }
    }

    pub(super) fn pace(&self) -> Pace {
        let (memory, prefault) = (u64::from(self.memory) << 30, u64::from(self.prefault) << 30);
        Pace { threads: self.threads(), until: self.until(), memory, prefault }
    }

    /// Whether nodes are to be started on a fabric.
    pub(crate) fn is_cluster(&self) -> bool {
        self.nodes > 1 || self.fabric != FabricName::Local || self.coroutines.is_some() || self.backups > 0
    }

    /// Refuses a cluster, for workloads of one node.
    pub(super) fn refuse_cluster(&self) -> Result<(), Error> {
        let refused = |option| {
            let instead = "it runs on one node yet, and not on several nodes: leave the option out";
            Err(Error::Options { option, with: "this workload", instead })
        };
        match self {
            Self { nodes: 2.., .. } => refused("--nodes"),
            Self { coroutines: Some(_), .. } => refused("--coroutines"),
            // As it is by default.
            Self { protocol: Some(protocol), .. } if *protocol != ProtocolOf::default() => refused("--protocol"),
            Self { backups: 1.., .. } => refused("--backups"),
            _ if self.fabric != FabricName::Local => refused("--fabric"),
            _ => Ok(()),
        }
    }

    /// How large a run on a cluster is.
    pub(crate) fn plan(&self, seed: u64) -> Result<Plan, Error> {
        let refused = |option, instead| Err(Error::Options { option, with: "several nodes", instead });
        if !matches!(self.engine, EngineName::Auto | EngineName::None) {
            return refused("--engine", "nodes have no hardware transactions yet, so leave it out");
        }
        if self.durability.mode().is_some() || self.path.is_some() {
            return refused("--durability", "nodes have no logs yet, so leave it and --path out");
        }
        let length = match (self.transactions, self.fabric) {
            (Some(count), _) => Length::Transactions(count),
            (None, FabricName::Sim(_)) => Length::Window {
                warm: Duration::from_micros(self.warm_us),
                counted: Duration::from_micros(self.virtual_us),
            },
            (None, _) => Length::Window { warm: self.secs / 10, counted: self.secs },
        };
        Ok(Plan {
            nodes: self.nodes,
            threads: self.threads.unwrap_or(1),
            coroutines: self.coroutines.unwrap_or(8),
            protocol: self.protocol.unwrap_or_default(),
            backups: self.backups,
            length,
            seed,
            memory: (u64::from(self.memory) << 30) / u64::from(self.nodes),
        })
    }

    pub(crate) fn until(&self) -> Until {
        self.transactions.map_or(Until::Time(self.secs), Until::Transactions)
    }
}
