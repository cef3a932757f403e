//! Options that all workloads share.

use std::{path::PathBuf, time::Duration};

use clap::{Args, value_parser};

use super::{
    cluster::{Length, Plan, ProtocolOf},
    engine::{EngineName, reject_limit},
    log::{DurabilityName, LogPlace},
    workers::Until,
    workload::Pace,
};
use crate::{Error, FabricName};

/// The options of a run.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Threads that run transactions [default: one per processor; one per node on several nodes]
    #[arg(long, value_parser = value_parser!(u16).range(1..=1024), value_name = "N")]
    threads: Option<u16>,

    /// Seconds to run
    #[arg(long, value_parser = seconds, default_value = "5", value_name = "S")]
    secs: Duration,

    /// Run this many transactions in each thread instead, so that every run does the same work
    #[arg(long, value_parser = value_parser!(u64).range(1..), conflicts_with = "secs", value_name = "N")]
    transactions: Option<u64>,

    /// The engine that runs transactions
    #[arg(long, value_parser = reject_limit::<EngineName>(), default_value = EngineName::Auto.name())]
    pub engine: EngineName,

    /// Memory that the database may use, in GiB. It is reserved, and allocated as rows are inserted
    #[arg(long, value_parser = value_parser!(u16).range(1..=4096), default_value_t = 64, value_name = "GIB")]
    memory: u16,

    /// Memory to pre-fault at open, in GiB, so that page faults are not measured
    #[arg(long, value_parser = value_parser!(u16).range(0..=4096), default_value_t = 0, value_name = "GIB")]
    prefault: u16,

    /// When a commit is durable. With a log, the conditions are checked again after the database
    /// was closed and reopened
    #[arg(long, value_enum, default_value_t)]
    pub durability: DurabilityName,

    /// Directory of the log: empty or not there yet; its files are kept at the end
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,

    /// Nodes, each of which owns a part of the rows
    #[arg(long, value_parser = value_parser!(u16).range(1..=64), default_value_t = 1, value_name = "N")]
    pub nodes: u16,

    /// The fabric: local (threads of this process), shm or tcp (a process for each node; tcp-clear
    /// does not encrypt) or sim, sim:PROFILE (simulated)
    #[arg(long, default_value = "local")]
    pub fabric: FabricName,

    /// Concurrent transactions of each of a node's threads [default: 8 on several nodes]
    #[arg(long, value_parser = value_parser!(u16).range(1..=128), value_name = "N")]
    coroutines: Option<u16>,

    /// Microseconds of virtual time to measure on sim
    #[arg(long, value_parser = value_parser!(u64).range(1..=10_000_000), default_value_t = 5_000, value_name = "US")]
    virtual_us: u64,

    /// Microseconds of virtual time to warm up on sim before measuring
    #[arg(long, value_parser = value_parser!(u64).range(0..=10_000_000), default_value_t = 2_000, value_name = "US")]
    warm_us: u64,

    /// Commit protocol on several nodes; `auto` is fasst for now
    #[arg(long, value_parser = ProtocolOf::parser(), value_name = "NAME")]
    protocol: Option<ProtocolOf>,

    /// Backup nodes that store each row's changes in memory before a transaction commits, beside
    /// the row's owner
    #[arg(long, value_parser = value_parser!(u16).range(0..64), default_value_t = 0, value_name = "K")]
    backups: u16,
}

/// Parses a run's duration.
pub fn seconds(given: &str) -> Result<Duration, String> {
    let seconds = given.parse().ok().filter(|seconds| (0.01..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "a run lasts 0.01 to 86400 seconds".to_owned())
}

impl Options {
    /// Returns the number of threads: as given, or one per processor.
    pub fn threads(&self) -> usize {
        self.threads.map_or_else(|| std::thread::available_parallelism().map_or(1, Into::into), Into::into)
    }

    /// Returns the place of the log; `None` if there is no log.
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

    /// Returns whether the run starts a cluster.
    pub fn is_cluster(&self) -> bool {
        self.nodes > 1 || self.fabric != FabricName::Local || self.coroutines.is_some() || self.backups > 0
    }

    /// Refuses cluster options, for workloads of one node.
    pub(super) fn refuse_cluster(&self) -> Result<(), Error> {
        let refused = |option| {
            let instead = "it runs on one node yet, and not on several nodes: leave the option out";
            Err(Error::Options { option, with: "this workload", instead })
        };
        match self {
            Self { nodes: 2.., .. } => refused("--nodes"),
            Self { coroutines: Some(_), .. } => refused("--coroutines"),
            // The default protocol is accepted.
            Self { protocol: Some(protocol), .. } if *protocol != ProtocolOf::default() => refused("--protocol"),
            Self { backups: 1.., .. } => refused("--backups"),
            _ if self.fabric != FabricName::Local => refused("--fabric"),
            _ => Ok(()),
        }
    }

    /// Returns the size of a run on a cluster.
    pub fn plan(&self, seed: u64) -> Result<Plan, Error> {
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
            warms: false,
        })
    }

    /// Returns when the run ends.
    pub fn until(&self) -> Until {
        self.transactions.map_or(Until::Time(self.secs), Until::Transactions)
    }
}
