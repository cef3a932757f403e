//! Counters and findings of a soak of failovers.

use std::time::Duration;

use drtm_report::Report;
use serde::Serialize;

use super::Args;
use crate::{
    Error,
    lasting::{Wrong, percentiles},
};

/// The number of findings that are described in words.
const TOLD: usize = 20;

/// How long failovers took.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Failovers {
    p50: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
}

/// The result as JSON.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    simulated: bool,
    kills: u64,
    pauses: u64,
    partitions: u64,
    restarts: u64,
    failovers_ms: Failovers,
    acknowledged: u64,
    lost: u64,
    torn: u64,
    anomalies: u64,
    stuck: u64,
}

/// What a soak has counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) kills: u64,
    pub(super) pauses: u64,
    pub(super) partitions: u64,
    pub(super) restarts: u64,
    pub(super) failovers: Vec<Duration>,
    pub(super) acknowledged: u64,
    pub(super) wrong: Wrong,
    pub(super) findings: Vec<String>,
}

impl Tally {
    /// Adds what another soak has counted.
    pub(super) fn add(&mut self, other: Self) {
        let Self { kills, pauses, partitions, restarts, failovers, acknowledged, wrong, findings } = other;
        self.kills += kills;
        self.pauses += pauses;
        self.partitions += partitions;
        self.restarts += restarts;
        self.failovers.extend(failovers);
        self.acknowledged += acknowledged;
        self.wrong += wrong;
        self.findings.extend(findings);
    }

    /// Notes that a call, or a node's return, does not end.
    pub(super) fn is_stuck(&mut self, finding: String) {
        self.wrong.stuck += 1;
        // It says more than what follows from it.
        self.findings.insert(0, finding);
    }

    /// Notes what must not happen.
    pub(super) fn is_odd(&mut self, finding: String) {
        self.wrong.anomalies += 1;
        self.findings.push(finding);
    }

    /// Reports the tally, and returns an error if anything is wrong.
    pub(super) fn print(&self, args: &Args, report: &Report) -> Result<(), Error> {
        report.text(&self.text(args))?;
        report.result(&self.outcome(args.fabric.is_simulated()))?;
        let Wrong { lost, torn, anomalies, stuck } = self.wrong;
        match self.findings.first() {
            Some(first) if self.wrong.is_any() => {
                Err(Error::Soaked { findings: lost + torn + anomalies + stuck, first: first.clone() })
            }
            _ => Ok(()),
        }
    }

    fn outcome(&self, simulated: bool) -> Outcome {
        let Self { kills, pauses, partitions, restarts, acknowledged, .. } = *self;
        let Wrong { lost, torn, anomalies, stuck } = self.wrong;
        let [p50, p99, max] = percentiles(&self.failovers, [50.0, 99.0, 100.0])
            .map(|time| time.map(|time| (time.as_secs_f64() * 1e6).round() / 1e3));
        let failovers_ms = Failovers { p50, p99, max };
        Outcome {
            simulated,
            kills,
            pauses,
            partitions,
            restarts,
            failovers_ms,
            acknowledged,
            lost,
            torn,
            anomalies,
            stuck,
        }
    }

    fn text(&self, args: &Args) -> String {
        let shape = args.shape(0);
        let Outcome { kills, pauses, partitions, restarts, failovers_ms, .. } = self.outcome(false);
        let Wrong { lost, torn, anomalies, stuck } = self.wrong;
        let (where_, time) = match args.fabric.is_simulated() {
            true => ("SIMULATED clusters, each", "of virtual time "),
            false => ("a cluster", ""),
        };
        let mut text = format!(
            "failover on {}: {where_} of {} owners with {} backups and {} clients, by {}\n{kills} kills, {pauses} \
             pauses, {partitions} partitions, {restarts} restarts\n",
            args.fabric, shape.owners, shape.backups, shape.clients, shape.protocol.name
        );
        if let Failovers { p50: Some(p50), p99: Some(p99), max: Some(max) } = failovers_ms {
            text += &format!(
                "{} failovers of owners that were killed: {p50} ms {time}in the median, {p99} ms the 99th \
                 percentile, {max} ms at most\n",
                self.failovers.len()
            );
        }
        text += &format!(
            "{} transfers were acknowledged: {lost} lost, {torn} sums torn, {anomalies} anomalies, {stuck} stuck\n",
            self.acknowledged
        );
        self.findings.iter().take(TOLD).for_each(|finding| text += &format!("  {finding}\n"));
        text
    }
}
