//! Options that all workloads have.

use std::{path::PathBuf, time::Duration};

use clap::{Args, value_parser};

use super::{
    crew::Until,
    engine::{EngineName, but_limit},
    log::{DurabilityName, LogPlace},
    workload::Pace,
};
use crate::Error;

/// How a workload is run.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Threads that run transactions [default: one for each processor]
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

    /// Memory that the database has from the beginning, in GiB, so that the system's providing it is no part of what is measured
    #[arg(long, value_parser = value_parser!(u16).range(0..=4096), default_value_t = 0, value_name = "GIB")]
    at_once: u16,

    /// When a commit is safe from a crash. With a log, the conditions are checked again after the database was closed
    /// and opened again
    #[arg(long, value_enum, default_value_t)]
    pub(crate) durability: DurabilityName,

    /// Where the log is to be: a directory that is empty or not there yet, and is left as it is in the end
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,

    /// Nodes: one, as a database does not span several yet
    #[arg(long, value_parser = only("1", "a database does not span several nodes yet"), default_value = "1", value_name = "N")]
    nodes: String,

    /// What joins nodes: nothing leaves this process yet
    #[arg(long, value_parser = only("local", "a database does not span several nodes yet, so that there is nothing to join"), default_value = "local")]
    pub(crate) fabric: String,

    /// How transactions are kept apart: as the database does it within a node
    #[arg(long, value_parser = only("auto", "protocols differ between nodes, and a database does not span several yet"), default_value = "auto")]
    pub(crate) protocol: String,
}

/// The one value that an option has so far. Any other is refused, with the reason.
fn only(value: &'static str, reason: &'static str) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync {
    move |given| {
        if given == value { Ok(given.to_owned()) } else { Err(format!("{reason}: leave it out, or say `{value}`")) }
    }
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
        let (memory, at_once) = (u64::from(self.memory) << 30, u64::from(self.at_once) << 30);
        Pace { threads: self.threads(), until: self.until(), memory, at_once }
    }

    pub(crate) fn until(&self) -> Until {
        self.transactions.map_or(Until::Time(self.secs), Until::Transactions)
    }
}
