//! The outcome of a run, for scripts and for people.

use std::{collections::BTreeMap, time::Duration};

use drtm_txn::Conflict;

use drtm_report::{Report, name_of, prose, table, units};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::{
    DurabilityName, EngineName, Options,
    cluster::{self, ClusterWorkload, Figures, Gathered, Plan, ProtocolOf},
    latency::Percentiles,
    log::Logged,
    workers::Client,
    workload::{Finished, Run, Workload},
};
use crate::{Error, FabricName, Plain};

/// Loads, runs and checks a workload as the options say.
pub fn measure<W: Workload>(workload: &W, options: &Options) -> Result<Outcome, Error> {
    options.refuse_cluster()?;
    let run = Run { workload, pace: options.pace(), log: options.log()? };
    let (engine, result) = options.engine.dispatch(run)?;
    Ok(Outcome::new(workload, options, engine, run.pace.threads, result))
}

/// Loads, runs and checks a workload on a cluster as the options say.
pub fn measure_cluster<W: ClusterWorkload>(workload: &W, options: &Options, seed: u64) -> Result<Outcome, Error> {
    let plan = options.plan(seed)?;
    let gathered = cluster::run::<Plain, W>(workload, options.fabric, &plan)?;
    Ok(Outcome::of_cluster::<W>(workload, options, &plan, gathered))
}

/// The outcome as JSON.
#[derive(Debug, Serialize)]
pub struct Outcome {
    workload: &'static str,
    threads: usize,
    #[serde(flatten)]
    size: BTreeMap<&'static str, Value>,
    #[serde(flatten)]
    counted: BTreeMap<String, u64>,
    engine: &'static str,
    /// Whether speeds are simulated.
    simulated: bool,
    nodes: u16,
    fabric: FabricName,
    protocol: &'static str,
    #[serde(flatten)]
    cluster: Option<Figures>,
    durability: DurabilityName,
    #[serde(flatten)]
    log: Option<Logged>,
    seconds: f64,
    committed: u64,
    throughput: f64,
    aborts: BTreeMap<String, u64>,
    latency_us: BTreeMap<&'static str, Percentiles>,
    consistency: Consistency,
    max_rss_mib: Option<u64>,
}

/// The violations that the check found, in words.
#[derive(Debug)]
struct Consistency(Vec<String>);

impl Serialize for Consistency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ok_or_violations(&self.0, serializer)
    }
}

/// Serializes the violations, or `"ok"` if there are none.
pub fn ok_or_violations<S: Serializer>(violations: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    if violations.is_empty() { serializer.serialize_str("ok") } else { violations.serialize(serializer) }
}

/// The abort cause of transactions that the workload itself aborts.
const USER: &str = "user";

impl Outcome {
    pub(super) fn new<W: Workload>(
        workload: &W,
        options: &Options,
        engine: &'static str,
        threads: usize,
        finished: Finished,
    ) -> Self {
        let Finished { tally, conflicts, counted, log, violations, most_memory, .. } = finished;
        let seconds = tally.time.as_secs_f64();
        let causes = conflicts.into_iter().map(|(cause, count)| (format!("{cause:?}").to_lowercase(), count));
        // The kinds are the same for every configuration.
        let kinds = <W::Client<'_, drtm_txn::DefaultConfig>>::kinds();
        let latencies = kinds.iter().zip(&tally.latencies);
        Self {
            workload: W::NAME,
            threads,
            size: workload.size().into_iter().collect(),
            counted: counted.into_iter().collect(),
            engine,
            simulated: options.engine == EngineName::Emulated,
            nodes: 1,
            fabric: options.fabric,
            protocol: ProtocolOf::AUTO,
            cluster: None,
            durability: options.durability,
            log,
            seconds,
            committed: tally.committed,
            throughput: if seconds > 0.0 { tally.committed as f64 / seconds } else { 0.0 },
            aborts: causes.chain([(USER.to_owned(), tally.given_up)]).collect(),
            latency_us: latencies.filter_map(|(kind, latencies)| Some((*kind, latencies.percentiles()?))).collect(),
            consistency: Consistency(violations),
            max_rss_mib: most_memory.map(|bytes| bytes >> 20),
        }
    }

    /// Builds the outcome of a cluster. The threads are those of each node.
    fn of_cluster<W: ClusterWorkload>(
        workload: &W,
        options: &Options,
        plan: &Plan,
        gathered: Gathered<W::Count>,
    ) -> Self {
        let Gathered { tally, violations, .. } = gathered;
        let seconds = Duration::from_nanos(tally.nanos).as_secs_f64();
        let causes = Conflict::ALL.iter().zip(tally.conflicts).map(|(cause, count)| (cause.name().to_owned(), count));
        Self {
            workload: W::NAME,
            threads: plan.threads.into(),
            size: workload.size().into_iter().collect(),
            counted: BTreeMap::new(),
            engine: EngineName::None.name(),
            simulated: options.fabric.is_simulated(),
            nodes: plan.nodes,
            fabric: options.fabric,
            protocol: plan.protocol.protocol.name,
            cluster: Some(Figures::new(plan, &tally)),
            durability: options.durability,
            log: None,
            seconds,
            committed: tally.committed,
            throughput: if seconds > 0.0 { tally.committed as f64 / seconds } else { 0.0 },
            aborts: causes.chain([(USER.to_owned(), tally.given_up)]).collect(),
            latency_us: tally.percentiles(W::KINDS),
            consistency: Consistency(violations),
            max_rss_mib: tally.most_memory_mib(),
        }
    }

    /// Returns the committed transactions per second.
    pub fn throughput(&self) -> f64 {
        self.throughput
    }

    /// Reports the outcome, and returns an error if there are violations.
    pub fn print(&self, report: &Report) -> Result<(), Error> {
        report.text(&self.text())?;
        report.result(self)?;
        match self.consistency.0.as_slice() {
            [] => Ok(()),
            [first, ..] => Err(Error::Inconsistent { violations: self.consistency.0.len(), first: first.clone() }),
        }
    }

    fn text(&self) -> String {
        let Self { workload, threads, engine, seconds, committed, throughput, .. } = self;
        let size: Vec<String> = self.size.iter().map(|(name, value)| format!("{name} {}", bare(value))).collect();
        let size = size.join(", ");
        let (simulated, virtually) = match (self.simulated, &self.cluster) {
            (false, _) => ("", ""),
            (true, None) => (" (SIMULATED: speeds mean nothing)", ""),
            (true, Some(_)) => (" (SIMULATED: nothing here was measured)", " of virtual time (simulated)"),
        };
        let threads = match &self.cluster {
            None => units::threads(*threads),
            Some(figures) => format!(
                "{} nodes on {} by {}, each with {}, {} coroutines to a thread",
                self.nodes,
                self.fabric,
                self.protocol,
                units::threads(*threads),
                figures.coroutines()
            ),
        };
        let sent = self.cluster.as_ref().map_or_else(String::new, |figures| format!("{}\n\n", figures.text()));
        let rows = self.latency_us.iter().map(|(kind, Percentiles { p50, p90, p99, p999 })| {
            let times = [p50, p90, p99, p999].map(|time| format!("{time:.1}"));
            [(*kind).to_owned()].into_iter().chain(times).collect()
        });
        let latencies = table(&["latency, us", "p50", "p90", "p99", "p99.9"], 1, rows);
        let aborts: Vec<String> = self.aborts.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
        let counted: String = self.counted.iter().map(|(name, count)| format!("; {name} {count}")).collect();
        let checked = match self.consistency.0.as_slice() {
            [] => "every condition holds".to_owned(),
            violations => {
                let shown: Vec<&str> = violations.iter().take(10).map(String::as_str).collect();
                format!("{} VIOLATIONS, the first of them:\n  {}", violations.len(), shown.join("\n  "))
            }
        };
        let log = self.log.map_or_else(String::new, |log| self.log_text(&log));
        let memory = self.max_rss_mib.map_or_else(String::new, |mib| format!("memory: {mib} MiB at most\n"));
        format!(
            "{workload}, {size}, {}, engine {engine}{simulated}\n\n\
             {throughput:.0} transactions/s: {committed} committed in {seconds:.4} s{virtually}\n\n{latencies}\n\n\
             {sent}{}\n{log}{memory}checked: {checked}\n",
            threads,
            prose(&format!("aborts: {}{counted}", aborts.join(", "))),
        )
    }

    fn log_text(&self, log: &Logged) -> String {
        let Logged { log_bytes_per_transaction, log_bytes_per_s, log_syncs_per_s, .. } = log;
        let Logged { recovery_s, recovery_rows, recovery_log_bytes, .. } = log;
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        format!(
            "log ({}): {log_bytes_per_transaction:.0} bytes/transaction, {:.1} MiB/s, {log_syncs_per_s:.0} syncs/s\n\
             opened again in {recovery_s:.2} s: {recovery_rows} rows, by a log of {:.0} MiB\n",
            name_of(&self.durability),
            mib(*log_bytes_per_s),
            mib(*recovery_log_bytes as f64),
        )
    }
}

/// Formats a value, a string without quotes.
fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
