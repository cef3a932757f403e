//! `drtm-bench history`: random transactions, recorded and judged.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use clap::{Args as ClapArgs, value_parser};
use serde::Serialize;

use super::{draw::Workload, edn, judge, record::Observed, run::Run};
use crate::{
    Error,
    drive::{EngineName, but_limit},
    history::Outcome,
    names::name_of,
    report::Report,
    units,
};

/// Record what random transactions saw, and check that it is strictly serializable
///
/// Clients run short transactions on a few keys: some by closures that are run again on conflict,
/// some by hand. Some only read, in snapshots too. One in twenty is given up. Each attempt is a
/// transaction of the history. In the end, another client reads what is left.
///
/// FILE gets the history as Jepsen writes it, which Elle and other checkers read: EDN, a map a
/// line, for each invocation and each completion.
///
///   list-append  `[:append k v]` and `[:r k [v ...]]`
///   register     `[:w k v]` and `[:r k v]`. Each write follows a read of its key in its
///                transaction; tell the checker (Elle: `:wfr-keys? true`), or it may miss write skew
///   predicate    as register, and `[:scan [from to] [[k v] ...]]`, which excludes `to`, and
///                `[:remove k true|false]`. Elle does not know these: the workload is for this
///                command's own check of phantoms and absent keys
///
/// The check finds what Adya's definitions forbid (G0, G1, G-single, G2 with phantoms) and orders
/// that contradict the clock. T7 is the transaction of the eighth `:invoke` in FILE. What aborted
/// transactions read is not judged.
///
/// JSON: {workload, threads, engine, simulated, txns, committed, aborted, last_reads,
/// anomalies: [text]}, where txns does not count the last_reads
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// What transactions do
    #[arg(long, value_enum, default_value_t)]
    workload: Workload,

    /// Threads that run transactions
    #[arg(long, value_parser = value_parser!(u16).range(1..=1024), default_value_t = 4, value_name = "N")]
    threads: u16,

    /// Transactions, of all threads together
    #[arg(long, value_parser = value_parser!(u64).range(1..=10_000_000), default_value_t = 20_000, value_name = "N")]
    txns: u64,

    /// What transactions run on
    #[arg(long, value_parser = but_limit::<EngineName>(), default_value = EngineName::Auto.name())]
    engine: EngineName,

    /// Write the history into this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Examples:
  drtm-bench history --out lists.edn                         appends to lists, for this check and others
  drtm-bench history --workload predicate --txns 100000      phantoms
  drtm-bench history --workload register --engine emulated --threads 8 --seed 7 --json

Exit status: 0 strictly serializable, 1 not (and says why), 2 wrong usage.";

/// What scripts read.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    workload: Workload,
    threads: usize,
    engine: &'static str,
    simulated: bool,
    txns: usize,
    committed: usize,
    aborted: usize,
    last_reads: usize,
    anomalies: Vec<String>,
}

impl Args {
    pub(crate) fn carry_out(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let threads = usize::from(self.threads);
        let run = Run { workload: self.workload, threads, transactions: self.txns, seed };
        let (engine, record) = self.engine.dispatch(run)?;
        if let Some(path) = &self.out {
            save(&record, path).map_err(|source| Error::File { path: path.clone(), source })?;
        }
        let simulated = self.engine == EngineName::Emulated;
        Verdict::of(self.workload, threads, (engine, simulated), &record).tell(report)
    }
}

fn save(record: &[Observed], path: &Path) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    edn::write(record, &mut file)?;
    file.flush()
}

impl Verdict {
    /// Anomalies that are shown.
    const SHOWN: usize = 10;

    pub(super) fn of(
        workload: Workload,
        threads: usize,
        (engine, simulated): (&'static str, bool),
        record: &[Observed],
    ) -> Self {
        let of_clients = || record.iter().filter(|observed| observed.process < threads);
        let ended = |outcome| of_clients().filter(|observed| observed.outcome == outcome).count();
        Self {
            workload,
            threads,
            engine,
            simulated,
            txns: of_clients().count(),
            committed: ended(Outcome::Committed),
            aborted: ended(Outcome::Aborted),
            last_reads: record.len() - of_clients().count(),
            anomalies: judge::anomalies(record),
        }
    }

    fn tell(&self, report: &Report) -> Result<(), Error> {
        report.text(&self.text())?;
        report.result(self)?;
        self.end()
    }

    /// Fails if there is an anomaly.
    pub(super) fn end(&self) -> Result<(), Error> {
        match self.anomalies.as_slice() {
            [] => Ok(()),
            [first, ..] => Err(Error::Anomalies { anomalies: self.anomalies.len(), first: first.clone() }),
        }
    }

    fn text(&self) -> String {
        let Self { engine, txns, committed, aborted, anomalies, .. } = self;
        let simulated = if self.simulated { " (SIMULATED)" } else { "" };
        let found = match anomalies.as_slice() {
            [] => "strictly serializable".to_owned(),
            all => {
                let shown: Vec<&str> = all.iter().take(Self::SHOWN).map(String::as_str).collect();
                format!("{} ANOMALIES, the first of them:\n{}", all.len(), shown.join("\n"))
            }
        };
        format!(
            "{}, {}, engine {engine}{simulated}\n{txns} transactions: {committed} committed, {aborted} aborted\n\
             checked: {found}\n",
            name_of(&self.workload),
            units::threads(self.threads),
        )
    }
}
