//! `drtm-bench history`: random transactions, recorded and judged.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use clap::{Args as ClapArgs, value_parser};
use drtm_drive::{
    EngineName, FabricName, Plain,
    cluster::{self, Length, Plan, ProtocolOf},
    reject_limit,
};
use drtm_history::{Epoch, Outcome};
use drtm_report::{Report, name_of, units};
use serde::Serialize;

use super::{
    cluster::Histories,
    draw::Workload,
    edn, judge,
    record::Observed,
    run::{MEMORY, Run},
};
use crate::Error;

/// Record random transactions, and check that their history is strictly serializable
///
/// Clients run short transactions on a few keys: some as closures that are retried on conflict,
/// some by hand. Some are read-only, also in snapshots. One in twenty is aborted by its client.
/// Each attempt is a transaction of the history. At the end another client reads the final state.
///
/// FILE is written in Jepsen's format, which Elle and other checkers read: EDN, one map per line,
/// for each invocation and each completion.
///
///   list-append  `[:append k v]` and `[:r k [v ...]]`
///   register     `[:w k v]` and `[:r k v]`. Each write follows a read of its key in its
///                transaction; tell the checker (Elle: `:wfr-keys? true`), or it may miss write
///                skew
///   predicate    as register, and `[:scan [from to] [[k v] ...]]`, which excludes `to`, and
///                `[:remove k true|false]`. Elle does not know these: only this command checks
///                for phantoms and reads of absent keys
///
/// The check finds Adya's anomalies (G0, G1, G-single, G2 with phantoms) and orders that contradict
/// the clock. T7 is the transaction of the eighth `:invoke` in FILE. Reads of aborted transactions
/// are not checked.
///
/// On several nodes, clients are coroutines. There, a retry after a conflict adds a transaction to
/// the history beyond --txns, and after twelve runs a client gives its transaction up. All nodes
/// run on this machine, whose processes share one monotonic clock: their records are merged and
/// checked together.
///
/// JSON: {workload, threads, nodes, fabric, engine, simulated, txns, committed, aborted,
/// last_reads, anomalies: [TEXT, ...]}, where txns does not count the last_reads; on several nodes
/// also coroutines
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_help = AFTER_HELP)]
pub struct Args {
    /// The workload
    #[arg(long, value_enum, default_value_t)]
    workload: Workload,

    /// Threads that run transactions [default: 4; one per node on several nodes]
    #[arg(long, value_parser = value_parser!(u16).range(1..=1024), value_name = "N")]
    threads: Option<u16>,

    /// Nodes, each of which owns a part of the rows
    #[arg(long, value_parser = value_parser!(u16).range(1..=64), default_value_t = 1, value_name = "N")]
    nodes: u16,

    /// The fabric: local (threads of this process), shm or tcp (a process for each node) or
    /// sim[:PROFILE] (simulated)
    #[arg(long, default_value = "local")]
    fabric: FabricName,

    /// Commit protocol on several nodes; `auto` is fasst for now
    #[arg(long, value_parser = ProtocolOf::parser(), value_name = "NAME")]
    protocol: Option<ProtocolOf>,

    /// Backup nodes that store each row's changes in memory before a transaction commits, beside
    /// the row's owner
    #[arg(long, value_parser = value_parser!(u16).range(0..64), default_value_t = 0, value_name = "K")]
    backups: u16,

    /// Clients of each thread of a node [default: 4 on several nodes]
    #[arg(long, value_parser = value_parser!(u16).range(1..=64), value_name = "N")]
    coroutines: Option<u16>,

    /// Transactions, of all threads together [default: 20000; 1000 of `predicate` on several nodes,
    /// where scans and insertions make most runs fail]
    #[arg(long, value_parser = value_parser!(u64).range(1..=10_000_000), value_name = "N")]
    txns: Option<u64>,

    /// The engine that runs transactions
    #[arg(long, value_parser = reject_limit::<EngineName>(), default_value = EngineName::Auto.name())]
    engine: EngineName,

    /// Write the history into this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Examples:
  drtm-bench history --out lists.edn                         appends to lists, for this check and others
  drtm-bench history --workload predicate --txns 100000      phantoms
  drtm-bench history --nodes 3 --fabric shm                  clients on several nodes; sim for a simulated cluster
  drtm-bench history --workload register --engine emulated --threads 8 --seed 7 --json

Exit status: 0 strictly serializable, 1 not (and says why), 2 wrong usage.";

/// The result as JSON.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    workload: Workload,
    threads: usize,
    nodes: u16,
    fabric: FabricName,
    #[serde(skip_serializing_if = "Option::is_none")]
    coroutines: Option<u16>,
    protocol: &'static str,
    engine: &'static str,
    simulated: bool,
    txns: usize,
    committed: usize,
    aborted: usize,
    last_reads: usize,
    anomalies: Vec<String>,
}

impl Args {
    fn transactions(&self) -> u64 {
        let slow = self.nodes > 1 && self.workload == Workload::Predicate;
        self.txns.unwrap_or(if slow { 1_000 } else { 20_000 })
    }

    /// Runs it, and reports what was found.
    ///
    /// # Errors
    ///
    /// Returns an error if the options do not fit, the run fails, or a check does not hold.
    pub fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let is_alone = self.nodes == 1 && self.fabric == FabricName::Local;
        let is_cluster = !is_alone || self.coroutines.is_some() || self.backups > 0;
        let (setup, record) = if is_cluster { self.on_a_cluster(seed)? } else { self.on_one_node(seed)? };
        if let Some(path) = &self.out {
            save(&record, path).map_err(drtm_report::Error::file(path))?;
        }
        Verdict::of(self.workload, setup, &record).print(report)
    }

    fn on_one_node(&self, seed: u64) -> Result<(Setup, Vec<Observed>), Error> {
        let threads = usize::from(self.threads.unwrap_or(4));
        let run = Run { workload: self.workload, threads, transactions: self.transactions(), seed };
        let (engine, record) = self.engine.dispatch(run)?;
        let simulated = self.engine == EngineName::Emulated;
        Ok((Setup { engine, simulated, ..Setup::local(threads) }, record))
    }

    fn on_a_cluster(&self, seed: u64) -> Result<(Setup, Vec<Observed>), Error> {
        let refused =
            |option, instead| Err(drtm_drive::Error::Options { option, with: "several nodes", instead }.into());
        if !matches!(self.engine, EngineName::Auto | EngineName::None) {
            return refused("--engine", "nodes have no hardware transactions yet, so leave it out");
        }
        let (threads, coroutines) = (self.threads.unwrap_or(1), self.coroutines.unwrap_or(4));
        let workers = u64::from(self.nodes) * u64::from(threads);
        let plan = Plan {
            nodes: self.nodes,
            threads,
            coroutines,
            protocol: self.protocol.unwrap_or_default(),
            backups: self.backups,
            length: Length::Transactions(self.transactions().div_ceil(workers)),
            seed,
            memory: MEMORY / u64::from(self.nodes),
            warms: false,
        };
        let clients = workers as usize * usize::from(coroutines);
        let histories = Histories { workload: self.workload, seed, clients, epoch: Epoch::now() };
        let gathered = cluster::run::<Plain, _>(&histories, self.fabric, &plan)?;
        let setup = Setup {
            threads: threads.into(),
            clients,
            nodes: self.nodes,
            fabric: self.fabric,
            coroutines: Some(coroutines),
            protocol: plan.protocol.protocol.name,
            engine: EngineName::None.name(),
            simulated: self.fabric.is_simulated(),
        };
        Ok((setup, gathered.count.0))
    }
}

/// What runs the transactions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    /// Threads of each node.
    threads: usize,
    /// Clients of all nodes.
    clients: usize,
    nodes: u16,
    fabric: FabricName,
    coroutines: Option<u16>,
    protocol: &'static str,
    engine: &'static str,
    simulated: bool,
}

impl Setup {
    /// Creates the setup of threads on one node, without hardware transactions.
    pub(super) fn local(threads: usize) -> Self {
        Self {
            threads,
            clients: threads,
            nodes: 1,
            fabric: FabricName::Local,
            coroutines: None,
            protocol: ProtocolOf::AUTO,
            engine: EngineName::None.name(),
            simulated: false,
        }
    }
}

fn save(record: &[Observed], path: &Path) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    edn::write(record, &mut file)?;
    file.flush()
}

impl Verdict {
    /// The number of anomalies that are shown.
    const SHOWN: usize = 10;

    pub(super) fn of(workload: Workload, setup: Setup, record: &[Observed]) -> Self {
        let Setup { threads, clients, nodes, fabric, coroutines, protocol, engine, simulated } = setup;
        let of_clients = || record.iter().filter(|observed| observed.process < clients);
        let ended = |outcome| of_clients().filter(|observed| observed.outcome == outcome).count();
        Self {
            workload,
            threads,
            nodes,
            fabric,
            coroutines,
            protocol,
            engine,
            simulated,
            txns: of_clients().count(),
            committed: ended(Outcome::Committed),
            aborted: ended(Outcome::Aborted),
            last_reads: record.len() - of_clients().count(),
            anomalies: judge::anomalies(record),
        }
    }

    fn print(&self, report: &Report) -> Result<(), Error> {
        report.text(&self.text())?;
        report.result(self)?;
        self.end()
    }

    /// Returns an error if there is an anomaly.
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
        let nodes = match self.coroutines {
            None => String::new(),
            Some(coroutines) => format!(
                "{} nodes on {} by {}, {coroutines} coroutines to a thread, each with ",
                self.nodes, self.fabric, self.protocol
            ),
        };
        format!(
            "{}, {nodes}{}, engine {engine}{simulated}\n{txns} transactions: {committed} committed, {aborted} aborted\n\
             checked: {found}\n",
            name_of(&self.workload),
            units::threads(self.threads),
        )
    }
}
