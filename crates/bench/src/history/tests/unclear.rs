//! Where a history does not tell everything: unknown outcomes, and reads that saw nothing.

use super::{super::*, Txn, anomalies, assert_clean, cycle, loaded, txn};

#[test]
fn an_unknown_outcome_that_nobody_saw_counts_for_nothing() {
    let lost = Txn::unknown(1).reads(0, 0, 77).writes(0, 0, 2).writes(0, 1, 2);
    assert_clean(&loaded([lost, Txn::committed(50, 60).reads(0, 0, 1).writes(0, 0, 3)]));
}

#[test]
fn an_unknown_outcome_that_was_seen_is_a_commit() {
    let unknown = Txn::unknown(1).writes(0, 0, 2).writes(0, 1, 2);
    let history = loaded([unknown, txn().reads(0, 0, 2).reads(0, 1, 1)]);
    assert_eq!(cycle(&history), (CycleKind::GSingle, vec![1, 2]));
}

#[test]
fn commits_are_inferred_from_inferred_commits() {
    let history = loaded([
        Txn::unknown(1).writes(0, 0, 2).writes(0, 1, 2),
        Txn::unknown(1).reads(0, 0, 2).writes(0, 2, 2),
        txn().reads(0, 2, 2).reads(0, 1, 1),
    ]);
    assert_eq!(cycle(&history), (CycleKind::GSingle, vec![1, 2, 3]));
}

#[test]
fn an_unknown_outcome_has_no_end() {
    let history =
        loaded([Txn::unknown(1).writes(0, 0, 2), Txn::committed(50, 60).reads(0, 0, 1), txn().reads(0, 0, 2)]);
    assert_clean(&history);
    // But it has a beginning.
    let history = loaded([Txn::committed(1, 2).reads(0, 0, 2), Txn::unknown(3).writes(0, 0, 2)]);
    assert_eq!(cycle(&history), (CycleKind::RealTime, vec![1, 2]));
}

#[test]
fn a_version_of_one_of_two_unknown_outcomes_accuses_neither() {
    let unknown = || Txn::unknown(1).writes(0, 0, 2).writes(0, 1, 2);
    assert_clean(&loaded([unknown(), unknown(), txn().reads(0, 0, 2).reads(0, 1, 1)]));
    // That the next version came later is known all the same.
    let history =
        loaded([unknown(), unknown(), Txn::committed(3, 4).writes(0, 0, 3), Txn::committed(5, 6).reads(0, 0, 2)]);
    assert_eq!(cycle(&history), (CycleKind::RealTime, vec![3, 4]));
}

#[test]
fn nothing_may_mean_any_removal_in_time() {
    let churn = |reader: Txn| {
        loaded([
            Txn::committed(1, 2).removes(0, 0, 2),
            Txn::committed(3, 4).writes(0, 0, 3),
            Txn::committed(5, 6).removes(0, 0, 4),
            Txn::committed(7, 8).writes(0, 0, 5),
            reader,
        ])
    };
    assert_clean(&churn(Txn::committed(1, 2).finds_nothing(0, 0)));
    assert_clean(&churn(Txn::committed(5, 8).finds_nothing(0, 0)));
    assert_clean(&churn(Txn::committed(5, 8).scans(0, 0..1, [])));
    // The last removal is overwritten, too.
    assert_eq!(cycle(&churn(Txn::committed(9, 10).finds_nothing(0, 0))), (CycleKind::RealTime, vec![4, 5]));
    // The second removal was yet to come.
    let late = Txn::committed(3, 4).finds_nothing(0, 0);
    assert_clean(&churn(late));
    let known = Txn::committed(5, 8).finds_removed(0, 0, 2);
    assert_eq!(cycle(&churn(known)), (CycleKind::RealTime, vec![2, 5]));
}

#[test]
fn a_removal_of_ones_own_was_not_yet_seen() {
    // It saw nothing of a row that was there, and only then put one there and removed it.
    let reader = Txn::committed(5, 6).finds_nothing(0, 0).writes(0, 0, 2).removes(0, 0, 3);
    assert_eq!(cycle(&loaded([reader])), (CycleKind::LostUpdate, vec![0, 1]));
}

#[test]
fn an_unknown_removal_may_be_why_there_was_nothing() {
    assert_clean(&loaded([Txn::unknown(1).removes(0, 0, 2), Txn::committed(5, 6).finds_nothing(0, 0)]));
    assert_eq!(
        anomalies(&loaded([Txn::aborted(1, 2).removes(0, 0, 2), Txn::committed(5, 6).finds_nothing(0, 0)])).len(),
        1
    );
}
