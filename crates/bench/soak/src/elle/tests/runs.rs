//! Random transactions.

use drtm_drive::faulty::{Faulty, with_fault};
use drtm_report::Failure;

use super::*;

fn run(workload: Workload, threads: usize, transactions: u64, seed: u64) -> Run {
    Run { workload, threads, transactions, seed }
}

/// Asserts that neither checker finds an anomaly in runs of any workload.
fn is_sound<S: Config>(engine: &S::Engine)
where
    S::Engine: Engine,
{
    for workload in [Workload::ListAppend, Workload::Register, Workload::Predicate] {
        for (seed, threads) in [(1, 1), (2, 2), (3, 4)] {
            let record = run(workload, threads, 2_000, seed).execute::<S>(engine.clone()).expect("memory");
            let told = judge::anomalies(&record);
            assert!(told.is_empty(), "{workload:?}, {threads} threads:\n{}", told.join("\n"));
            let by_clients = record.iter().filter(|observed| observed.process < threads);
            assert_eq!(by_clients.count(), 2_000);
            assert!(record.iter().filter(|observed| observed.process == threads).count() > 0, "the last reads");
            if workload != Workload::Predicate {
                assert_eq!(judged_by_adya(&record, true), (Valid::True, vec![]), "{workload:?}, {threads} threads");
            }
        }
    }
}

#[test]
fn transactions_under_record_locks_are_strictly_serializable() {
    is_sound::<DefaultConfig>(&Native::without_htm());
}

#[test]
fn transactions_that_commit_in_regions_are_strictly_serializable() {
    is_sound::<Simulated>(&Emulated::default());
}

/// Runs transactions on a broken database until both checkers, or ours alone, find the expected
/// anomalies.
fn is_found(fault: Mutation, workload: Workload, expected: &[&str], by_adya: bool) {
    let mut others = Vec::new();
    for seed in 0..100 {
        let record = with_fault(fault, || run(workload, 4, 2_000, seed).execute::<Faulty>(NoHtm)).expect("memory");
        let told = judge::anomalies(&record);
        let is_expected = |anomaly: &String| expected.iter().any(|name| anomaly.starts_with(name));
        let found = told.iter().any(is_expected);
        if found && (!by_adya || judged_by_adya(&record, true).0 == Valid::False) {
            let verdict = Verdict::of(workload, Setup::local(4), &record);
            let error = verdict.end().expect_err("an anomaly");
            assert_eq!(error.exit_status(), 1, "{error}");
            return;
        }
        others.extend(told);
    }
    panic!("{workload:?}: none of {expected:?}, but {others:?}");
}

#[test]
fn lists_show_commits_without_validation() {
    is_found(Mutation::CommitWithoutValidation, Workload::ListAppend, &["lost update", "G-single"], true);
}

#[test]
fn registers_show_commits_without_validation() {
    is_found(Mutation::CommitWithoutValidation, Workload::Register, &["lost update", "G-single"], true);
}

#[test]
fn scans_show_commits_despite_phantoms() {
    is_found(Mutation::CommitDespitePhantoms, Workload::Predicate, &["G2:"], false);
}

#[test]
fn one_client_s_history_is_a_function_of_the_seed() {
    let operations = |seed| -> Vec<(Outcome, Vec<Operation>)> {
        let run = run(Workload::ListAppend, 1, 500, seed);
        let record = run.execute::<DefaultConfig>(Native::without_htm()).expect("memory");
        record.into_iter().map(|observed| (observed.outcome, observed.operations)).collect()
    };
    assert_eq!(operations(1), operations(1));
    assert_ne!(operations(1), operations(2));
}
