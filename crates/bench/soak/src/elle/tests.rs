//! Records clients of correct and of broken databases, and checks them with two checkers: ours, and
//! `adya`, which reads the file.

use adya::{Opts, Valid, check};
use drtm_drive::{Simulated, Task};
use drtm_history::Outcome;
use drtm_htm::{Emulated, Engine, Native, NoHtm};
use drtm_txn::{Config, DefaultConfig, Mutation};

use super::{
    command::{Setup, Verdict},
    draw::Workload,
    edn, judge,
    record::{Observed, Operation},
    run::Run,
};

mod clusters;
mod known;
mod runs;

/// Returns the file of a record.
fn file(record: &[Observed]) -> String {
    let mut bytes = Vec::new();
    edn::write(record, &mut bytes).expect("memory");
    String::from_utf8(bytes).expect("text")
}

/// Returns the other checker's verdict and anomalies on a record's file. `knows_reads_first` tells
/// it that writes follow reads.
fn judged_by_adya(record: &[Observed], knows_reads_first: bool) -> (Valid, Vec<String>) {
    let history = adya::History::from_edn(&file(record)).expect("a history in Elle's form");
    assert_eq!(history.ops.len(), 2 * record.len(), "every invocation and every completion is read");
    let is_list = |operation: &Operation| matches!(operation, Operation::Append { .. } | Operation::List { .. });
    let has_lists = record.iter().flat_map(|observed| &observed.operations).any(is_list);
    let workload = if has_lists { adya::Workload::ListAppend } else { adya::Workload::RwRegister };
    let report = check(&history, workload, &Opts { wfr_keys: knows_reads_first, ..Opts::default() });
    (report.valid, report.anomaly_types)
}
