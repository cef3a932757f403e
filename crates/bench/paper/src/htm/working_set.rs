//! `htm working-set`: the footprints of whole transactions, and how often they fit into an htm
//! transaction.

use clap::{Args as ClapArgs, ValueEnum, value_parser};
use drtm_drive::{Client, Pace, Until, Workload, run_in};
use drtm_htm::{Native, Profile, Rtm};
use drtm_report::{Report, name_of, prose, table, units};
use drtm_tpcc::{Chances, MixName, Scale, Tpcc};
use drtm_txn::{DefaultConfig, Hash};
use drtm_workloads::smallbank::{Hot, SmallBank};
use serde::Serialize;

use super::{
    EngineName,
    machine::{MEASURED, NamedProfile, describe},
};
use crate::{
    Error,
    footprint::{Footprint, footprints},
    whole::{FALLBACKS, OVERFLOWS, Whole},
};

/// Show the footprints of whole transactions, and how often they do not fit into an htm transaction
///
/// Each transaction counts as if it were one htm transaction, with its commit: record locks,
/// versions, validation. The footprint counts cache lines of the store, but not private memory
/// (inputs, copies of rows). Bytes are counted by one thread.
///
/// With --engine emulated, the rate of fallbacks to the lock is simulated: a transaction falls back
/// only if it does not fit into the cache's sets and ways. With --engine rtm it is measured, with a
/// thread for each processor: whole transactions are htm transactions, and retried as often as the
/// database's commits are.
///
/// JSON: [{transaction, read_bytes, write_bytes, fallback_rate, capacity_share, count, engine,
/// simulated}] where capacity_share is the share of fallbacks by capacity, or null if there are no
/// fallbacks
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_help = AFTER_HELP)]
pub struct Args {
    /// The workload
    #[arg(long, value_enum, default_value_t, value_name = "WORKLOAD")]
    workload: Name,

    /// The engine that decides whether a transaction fits
    #[arg(long, value_enum, default_value_t, value_name = "ENGINE")]
    engine: EngineName,

    /// The processor to emulate: the size and the ways of its first-level cache [default: l1-32k-8]
    #[arg(long, value_parser = NamedProfile::parser(), value_name = "PROFILE")]
    profile: Option<NamedProfile>,

    /// Transactions to trace; with --engine rtm, transactions in each thread
    #[arg(long, value_parser = value_parser!(u64).range(1..), default_value_t = 20_000, value_name = "N")]
    transactions: u64,
}

const AFTER_HELP: &str = "\
Examples:
  drtm-bench htm working-set --workload tpcc                 in the standard mix, one warehouse for each thread
  drtm-bench htm working-set --workload smallbank --profile l1-48k-12
  drtm-bench htm working-set --workload tpcc --engine rtm    how many fit here";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// TPC-C's standard mix
    #[default]
    Tpcc,
    /// SmallBank's
    Smallbank,
}

/// The result for transactions of one kind. Scripts rely on the first five fields.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) transaction: &'static str,
    pub(crate) read_bytes: f64,
    pub(crate) write_bytes: f64,
    pub(crate) fallback_rate: f64,
    pub(crate) capacity_share: Option<f64>,
    pub(crate) count: u64,
    engine: &'static str,
    simulated: bool,
}

/// The parameters of a study.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) engine: EngineName,
    pub(crate) profile: Profile,
    pub(crate) transactions: u64,
    /// Whether to use the smallest databases.
    pub(crate) is_tiny: bool,
    pub(crate) seed: u64,
}

impl Name {
    /// Returns the footprints of its transactions, by kind.
    pub(crate) fn rows(self, scope: &Scope) -> Result<Vec<Row>, Error> {
        match self {
            Self::Tpcc => {
                let tpcc = |threads: usize| {
                    let scale = Scale::sized(threads, scope.is_tiny)?;
                    Ok(Tpcc::<Hash>::new(scale, MixName::Standard, Chances::STANDARD, scope.seed))
                };
                scope.rows(tpcc)
            }
            Self::Smallbank => {
                let customers = if scope.is_tiny { 2_000 } else { 100_000 };
                scope.rows(|_| Ok(SmallBank::new(customers, Hot::default(), scope.seed)?))
            }
        }
    }
}

impl Scope {
    fn rows<W: Workload>(&self, workload: impl Fn(usize) -> Result<W, Error>) -> Result<Vec<Row>, Error> {
        let memory = if self.is_tiny { 1 << 30 } else { 64 << 30 };
        let footprints = footprints(&workload(1)?, self.transactions, memory, self.profile)?;
        let (engine, simulated) = (self.engine.name(), self.engine.simulates());
        let row = |footprint: &Footprint, count: u64, fallbacks: u64, too_large: u64| Row {
            transaction: footprint.transaction,
            read_bytes: footprint.read_bytes(),
            write_bytes: footprint.write_bytes(),
            fallback_rate: units::share(fallbacks, count),
            capacity_share: (fallbacks > 0).then(|| units::share(too_large, fallbacks)),
            count,
            engine,
            simulated,
        };
        if simulated {
            let row = |one: &Footprint| row(one, one.count, one.too_large, one.too_large);
            return Ok(footprints.iter().map(row).collect());
        }
        let rtm = Rtm::detect().map_err(drtm_drive::Error::no_rtm)?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let pace = Pace { threads, until: Until::Transactions(self.transactions), memory, prefault: 0 };
        let finished =
            run_in::<DefaultConfig, _>(&Whole::new(workload(threads)?, rtm.into()), Native::without_htm(), pace)?;
        if let [first, ..] = finished.violations.as_slice() {
            return Err(drtm_drive::Error::Inconsistent {
                violations: finished.violations.len(),
                first: first.clone(),
            }
            .into());
        }
        let counted = |transaction: &str, what: &str| {
            let mut counts = finished.counted.iter().filter(|(name, _)| *name == format!("{transaction}{what}"));
            counts.next().map_or(0, |(_, count)| *count)
        };
        let kinds = <W::Client<'_, DefaultConfig>>::kinds();
        let row = |one: &Footprint| {
            let place = kinds.iter().position(|kind| *kind == one.transaction);
            let count = place.map_or(0, |place| finished.tally.latencies[place].count());
            row(one, count, counted(one.transaction, FALLBACKS), counted(one.transaction, OVERFLOWS))
        };
        Ok(footprints.iter().map(row).collect())
    }
}

impl Args {
    pub(crate) fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        if !self.engine.simulates() && self.profile.is_some() {
            return Err(drtm_drive::Error::Options {
                option: "--profile",
                with: "--engine rtm",
                instead: "leave it out, or emulate the profile with --engine emulated",
            }
            .into());
        }
        let NamedProfile { name, profile } = self.profile.unwrap_or(NamedProfile::OF_THE_PAPERS);
        let scope = Scope { engine: self.engine, profile, transactions: self.transactions, is_tiny: false, seed };
        let rows = self.workload.rows(&scope)?;
        let source = if self.engine.simulates() {
            format!("SIMULATED: {name}, {}; undisturbed", describe(&profile))
        } else {
            format!("{MEASURED}; the bytes by one thread without it")
        };
        report.text(&format!("Working sets of {}\n{source}\n\n{}", name_of(&self.workload), text(&rows)))?;
        Ok(report.result(&rows)?)
    }
}

fn text(rows: &[Row]) -> String {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let cells = rows.iter().map(|row| {
        vec![
            row.transaction.to_owned(),
            format!("{:.0}", row.read_bytes),
            format!("{:.0}", row.write_bytes),
            percent(row.fallback_rate),
            row.capacity_share.map_or_else(String::new, percent),
            row.count.to_string(),
        ]
    });
    let headers = ["transaction", "read, bytes", "written, bytes", "under the lock", "for capacity", "of"];
    let note =
        "Means, in whole cache lines. Only what is in the store: private memory takes a part of a real cache, too.";
    format!("{}\n\n{}\n", table(&headers, 1, cells), prose(note))
}
