//! `htm limits`: how often htm transactions abort, by working set and duration.

mod view;

use std::{path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, value_parser};
use drtm_htm::Stats;
use drtm_report::{Report, units::parse_bytes};
use serde::Serialize;

use super::{EngineName, Load, Order, Setup, Testbed, abort_rate, machine::NamedProfile, sweep::Kind};
use crate::Error;

/// Measure how often htm transactions abort, by size, order and duration
///
/// Every transaction is tried once, and the abort rate is aborted over begun transactions. Each
/// thread touches memory of its own, one word in each line, so transactions do not conflict. They
/// abort by capacity (they touch more than the hardware can track) and system events (the timer).
///
/// On the emulated engine results are simulated. They follow from the cache's sets and ways, the
/// read tracker's size, a timer in virtual time, and the addresses touched. The same seed gives the
/// same numbers.
///
/// JSON: [{bytes_read, bytes_written, attempts, aborts, capacity, conflict, system, engine,
/// profile, order, kind, threads, hyperthread, duration_us, simulated}]
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_help = AFTER_HELP)]
pub struct Args {
    /// The engine
    #[arg(long, value_enum, default_value_t, value_name = "ENGINE")]
    engine: EngineName,

    /// The processor to emulate: the size and the ways of its first-level cache [default: l1-32k-8]
    #[arg(long, value_parser = NamedProfile::parser(), value_name = "PROFILE")]
    profile: Option<NamedProfile>,

    /// Emulate a hardware thread whose sibling uses the other half of the cache and of the read
    /// tracker
    #[arg(long)]
    hyperthread: bool,

    /// The order in which transactions touch lines
    #[arg(long, value_enum, default_value_t, value_name = "ORDER")]
    order: Order,

    /// The memory accesses of a transaction
    #[arg(long, value_enum, default_value_t, value_name = "KIND")]
    kind: Kind,

    /// Threads that run transactions, each with its own memory
    #[arg(long, value_parser = value_parser!(u16).range(1..=256), default_value_t = 1, value_name = "N")]
    threads: u16,

    /// Sizes to read, in bytes or with K or M; rounded up to lines [default: a sweep]
    #[arg(long, value_parser = parse_bytes, value_delimiter = ',', value_name = "A,B,...")]
    bytes_read: Option<Vec<usize>>,

    /// Sizes to write, in bytes or with K or M; rounded up to lines [default: a sweep]
    #[arg(long, value_parser = parse_bytes, value_delimiter = ',', value_name = "A,B,...")]
    bytes_written: Option<Vec<usize>>,

    /// Spin for this many microseconds instead of touching memory; kind and order do not apply
    #[arg(
        long,
        value_parser = value_parser!(u64).range(1..=1_000_000),
        value_delimiter = ',',
        value_name = "N,...",
        conflicts_with_all = ["bytes_read", "bytes_written"],
    )]
    duration_us: Option<Vec<u64>>,

    /// Transactions that each thread begins at each point [default: 50 to 2000, fewer of the larger
    /// ones]
    #[arg(long, value_parser = value_parser!(u64).range(1..), value_name = "N")]
    attempts: Option<u64>,

    /// Draw the abort rates as a chart, too
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Examples:
  drtm-bench htm limits                                      how much can be written, in sequence
  drtm-bench htm limits --kind write --order random --bytes-written 768,9K,14592
  drtm-bench htm limits --kind read --threads 8 --hyperthread
  drtm-bench htm limits --kind read-write --bytes-read 3M --bytes-written 28K
  drtm-bench htm limits --duration-us 500,1000,2000,4000
  drtm-bench htm limits --profile l1-48k-12 --svg writes.svg --json";

/// A point of the sweep. Scripts rely on the first seven fields.
#[derive(Debug, Serialize)]
struct Row {
    bytes_read: usize,
    bytes_written: usize,
    attempts: u64,
    aborts: u64,
    capacity: u64,
    conflict: u64,
    system: u64,
    engine: &'static str,
    /// Null on real hardware.
    profile: Option<&'static str>,
    /// Null if no memory is touched.
    order: Option<Order>,
    kind: Option<Kind>,
    threads: u16,
    hyperthread: bool,
    /// Null if memory is touched.
    duration_us: Option<u64>,
    simulated: bool,
    #[serde(skip)]
    abort_rate: f64,
}

impl Args {
    pub(crate) fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        self.check()?;
        let loads = self.loads();
        let testbed = Testbed::new(self.setup(seed)?, &loads)?;
        let rows = loads
            .iter()
            .map(|&load| {
                let stats = testbed.run(load, self.attempts.unwrap_or_else(|| load.default_attempts()))?;
                Ok(self.row(load, &stats))
            })
            .collect::<Result<Vec<_>, Error>>()?;
        report.text(&self.text(&rows))?;
        if let Some(path) = &self.svg {
            self.chart(&rows).write(path)?;
        }
        Ok(report.result(&rows)?)
    }

    /// Refuses options that would be ignored.
    fn check(&self) -> Result<(), Error> {
        let refuse = |is, option, with, instead| {
            if is { Err(drtm_drive::Error::Options { option, with, instead }.into()) } else { Ok(()) }
        };
        let on_hardware = !self.engine.simulates();
        refuse(
            on_hardware && self.profile.is_some(),
            "--profile",
            "--engine rtm",
            "leave it out, or emulate the profile with --engine emulated",
        )?;
        refuse(
            on_hardware && self.hyperthread,
            "--hyperthread",
            "--engine rtm",
            "leave it out, and use as many --threads as the machine has hardware threads",
        )?;
        refuse(
            self.bytes_read.is_some() && !self.kind.reads(),
            "--bytes-read",
            "--kind write",
            "leave it out, or ask for --kind read, read-write or write-read",
        )?;
        refuse(
            self.bytes_written.is_some() && !self.kind.writes(),
            "--bytes-written",
            "--kind read",
            "leave it out, or ask for --kind write, read-write or write-read",
        )
    }

    fn loads(&self) -> Vec<Load> {
        match &self.duration_us {
            Some(durations) => durations.iter().map(|&us| Load::spin(Duration::from_micros(us))).collect(),
            None => self.kind.loads(self.bytes_read.as_deref(), self.bytes_written.as_deref()),
        }
    }

    fn profile(&self) -> NamedProfile {
        let named = self.profile.unwrap_or(NamedProfile::OF_THE_PAPERS);
        let profile = if self.hyperthread { named.profile.hyperthreaded() } else { named.profile };
        NamedProfile { profile, ..named }
    }

    fn setup(&self, seed: u64) -> Result<Setup, Error> {
        let machine = self.engine.machine(self.profile().profile)?;
        Ok(Setup { machine, threads: self.threads.into(), order: self.order, seed })
    }

    fn row(&self, load: Load, stats: &Stats) -> Row {
        let (duration_us, order, kind) = match load {
            Load::Spin(duration) => (u64::try_from(duration.as_micros()).ok(), None, None),
            Load::Touch { .. } => (None, Some(self.order), Some(self.kind)),
        };
        Row {
            bytes_read: load.bytes_read(),
            bytes_written: load.bytes_written(),
            attempts: stats.attempts(),
            aborts: stats.aborts(),
            capacity: stats.capacity,
            conflict: stats.conflict,
            system: stats.system,
            engine: self.engine.name(),
            profile: self.engine.simulates().then_some(self.profile().name),
            order,
            kind,
            threads: self.threads,
            hyperthread: self.hyperthread,
            duration_us,
            simulated: self.engine.simulates(),
            abort_rate: abort_rate(stats),
        }
    }
}
