//! Databases with deliberate faults. The checker must find each; otherwise it might miss an unknown
//! fault.

use drtm_history::{Anomaly, CycleKind};
use drtm_htm::{Emulated, NoHtm};
use drtm_testing::rounds;
use drtm_txn::Mutation;

use crate::{
    random::{KEYS, Size, anomalies},
    settings::{Fault, Tested},
};

drtm_testing::faults!(CommitWithoutValidation, CommitDespitePhantoms, ValidateBeforeLocks, UnlockBeforeVersions);

/// The most runs until an anomaly is found.
const RUNS: u64 = 400;

/// Runs random transactions until an expected anomaly is found. Other anomalies may occur as well.
fn finds<E: Tested, F: Fault>(is_expected: impl Fn(&Anomaly<u64>) -> bool) {
    finds_in::<E, F>(true, is_expected);
}

/// Like [`finds`], with rows that come and go, or only get other values. Some faults corrupt a
/// table so much that only the latter can be checked.
fn finds_in<E: Tested, F: Fault>(is_wild: bool, is_expected: impl Fn(&Anomaly<u64>) -> bool) {
    for (name, engine) in E::all() {
        let mut others = 0;
        let found = (0..rounds(RUNS)).any(|seed| {
            let size = Size { is_wild, threads: 2 + seed % 3, transactions: 400, keys: KEYS[seed as usize % 3] };
            let all = anomalies::<E, F>(&engine, size, seed);
            others += all.len();
            all.iter().any(&is_expected)
        });
        assert!(found, "{name}: nothing that is expected of {:?}; {others} other anomalies", F::FAULT);
    }
}

fn cycle(anomaly: &Anomaly<u64>) -> Option<CycleKind> {
    if let Anomaly::Cycle(cycle) = anomaly { Some(cycle.kind) } else { None }
}

/// Matches a lost update, or rows read at different moments.
fn missed_a_write(anomaly: &Anomaly<u64>) -> bool {
    matches!(cycle(anomaly), Some(CycleKind::LostUpdate | CycleKind::GSingle))
}

#[test]
fn commits_without_validation() {
    finds::<NoHtm, CommitWithoutValidation>(missed_a_write);
}

#[test]
fn commits_without_validation_in_regions() {
    finds::<Emulated, CommitWithoutValidation>(missed_a_write);
}

#[test]
fn commits_despite_phantoms() {
    finds::<NoHtm, CommitDespitePhantoms>(|anomaly| cycle(anomaly) == Some(CycleKind::G2));
}

#[test]
fn commits_despite_phantoms_in_regions() {
    finds::<Emulated, CommitDespitePhantoms>(|anomaly| cycle(anomaly) == Some(CycleKind::G2));
}

#[test]
fn commits_that_look_before_they_lock() {
    finds::<NoHtm, ValidateBeforeLocks>(|anomaly| cycle(anomaly).is_some());
}

#[test]
fn commits_that_unlock_too_early() {
    finds_in::<NoHtm, UnlockBeforeVersions>(false, |anomaly| {
        matches!(anomaly, Anomaly::TwoWriters { .. }) || missed_a_write(anomaly)
    });
}
