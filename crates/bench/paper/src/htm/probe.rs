//! `htm probe`: shows this machine's transactional memory, and the engine that a store would
//! choose.

use drtm_htm::{Probe, Request, select};
use drtm_report::{Report, table};
use serde::Serialize;

use crate::Error;

pub(super) const AFTER_HELP: &str = "\
Examples:
  drtm-bench htm probe
  DRTM_HTM=emulated drtm-bench htm probe --json";

#[derive(Debug, Serialize)]
struct Findings {
    engine: String,
    cpuid_rtm: bool,
    always_abort: bool,
    trial_commits: u32,
    trials: u32,
    reason: String,
}

pub(super) fn execute(report: &Report) -> Result<(), Error> {
    let chosen = select(Request::Auto)?;
    let probe = Probe::of_this_machine();
    let findings = Findings {
        engine: chosen.kind().to_string(),
        cpuid_rtm: probe.cpuid_rtm,
        always_abort: probe.always_abort,
        trial_commits: probe.trial_commits,
        trials: probe.trials,
        reason: chosen.reason().to_string(),
    };
    report.text(&findings.table())?;
    Ok(report.result(&findings)?)
}

impl Findings {
    fn table(&self) -> String {
        let yes_or_no = |is| if is { "yes" } else { "no" }.to_owned();
        let rows = [
            ("engine that a store chooses", self.engine.clone()),
            ("because", self.reason.clone()),
            ("CPUID lists RTM", yes_or_no(self.cpuid_rtm)),
            ("microcode aborts every region", yes_or_no(self.always_abort)),
            ("trial regions committed", format!("{} of {}", self.trial_commits, self.trials)),
        ];
        table(&["transactional memory", "on this machine"], 2, rows.map(|(what, is)| vec![what.to_owned(), is]))
    }
}
