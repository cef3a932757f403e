//! Counters and findings of a soak.

use std::collections::BTreeMap;

use drtm_report::Report;
use serde::Serialize;

use super::book::Finding;
use crate::Error;

/// The number of findings that are described in words.
const TOLD: usize = 20;

/// The result as JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Tally {
    command: &'static str,
    disk: &'static str,
    seed: u64,
    pub(super) runs: u64,
    pub(super) crash_points: u64,
    pub(super) kills: u64,
    /// Crashes that left a checkpoint, and crashes that left an unfinished one.
    pub(super) checkpoints: u64,
    pub(super) unfinished_checkpoints: u64,
    pub(super) faults: BTreeMap<&'static str, u64>,
    pub(super) acknowledged: u64,
    pub(super) lost: u64,
    pub(super) partial: u64,
    pub(super) anomalies: u64,
    findings: Vec<String>,
}

impl Tally {
    /// Creates an empty tally. `disk` says whether the disk is simulated.
    pub(super) fn new(command: &'static str, disk: &'static str, seed: u64) -> Self {
        Self { command, disk, seed, ..Self::default() }
    }

    pub(super) fn count(&mut self, findings: Vec<Finding>, place: &str) {
        for finding in findings {
            let (count, what) = match finding {
                Finding::Lost(what) => (&mut self.lost, what),
                Finding::Partial(what) => (&mut self.partial, what),
                Finding::Anomaly(what) => (&mut self.anomalies, what),
            };
            *count += 1;
            if self.findings.len() < TOLD {
                self.findings.push(format!("run {}, {place}: {what}", self.runs));
            }
        }
    }

    /// Returns the number of faults found.
    pub(super) fn wrong(&self) -> u64 {
        self.lost + self.partial + self.anomalies
    }

    /// Reports the tally, and returns an error if there is a finding.
    pub(super) fn print(&self, report: &Report) -> Result<(), Error> {
        report.text(&self.text())?;
        report.result(self)?;
        match self.findings.first() {
            None => Ok(()),
            Some(first) => Err(Error::Soaked { findings: self.wrong(), first: first.clone() }),
        }
    }

    fn text(&self) -> String {
        let Self {
            command,
            disk,
            seed,
            runs,
            crash_points,
            kills,
            checkpoints,
            acknowledged,
            lost,
            partial,
            anomalies,
            ..
        } = self;
        let disk = if *disk == "files" { "in a directory" } else { "on a SIMULATED disk" };
        let mut text = format!("{command} {disk}, seed {seed}: {runs} runs");
        let faults = self.faults.iter().map(|(kind, count)| (*kind, *count));
        for (what, count) in [("crashes", *crash_points), ("kills", *kills), ("with a checkpoint", *checkpoints)]
            .into_iter()
            .chain(faults)
        {
            if count > 0 {
                text += &format!(", {count} {what}");
            }
        }
        text += &format!(
            "\n{acknowledged} transactions were acknowledged or proved to be durable: \
             {lost} lost, {partial} there in part, {anomalies} other anomalies\n"
        );
        self.findings.iter().for_each(|finding| text += &format!("  {finding}\n"));
        text
    }
}
