//! Incomplete histories: unknown outcomes, and reads of absent rows.

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
    // A transaction of unknown outcome still has an invocation time.
    let history = loaded([Txn::committed(1, 2).reads(0, 0, 2), Txn::unknown(3).writes(0, 0, 2)]);
    assert_eq!(cycle(&history), (CycleKind::RealTime, vec![1, 2]));
}

#[test]
fn a_version_of_one_of_two_unknown_outcomes_accuses_neither() {
    let unknown = || Txn::unknown(1).writes(0, 0, 2).writes(0, 1, 2);
    assert_clean(&loaded([unknown(), unknown(), txn().reads(0, 0, 2).reads(0, 1, 1)]));
    // The next version is still known to come later.
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
    // The second removal was invoked later.
    let late = Txn::committed(3, 4).finds_nothing(0, 0);
    assert_clean(&churn(late));
    let known = Txn::committed(5, 8).finds_removed(0, 0, 2);
    assert_eq!(cycle(&churn(known)), (CycleKind::RealTime, vec![2, 5]));
}

#[test]
fn the_clock_tells_which_removal_was_meant() {
    let half = |insertion: Txn, reader: Txn| {
        loaded([insertion, Txn::committed(5, 20).removes(0, 5, 2).writes(0, 0, 2), reader.reads(0, 0, 1)])
    };
    let insertion = || Txn::committed(1, 2).writes(0, 5, 1);
    // The row existed before the reader was invoked, so the reader saw the removal, but not the
    // write beside it.
    for reader in [Txn::committed(10, 20).finds_nothing(0, 5), Txn::committed(10, 20).scans(0, 3..8, [])] {
        let history = half(insertion(), reader);
        assert_eq!(cycle(&history), (CycleKind::GSingle, vec![2, 3]));
        // Without the clock, it may have read before the row was inserted.
        assert_eq!(check(&history, Order::Any), Ok(vec![]));
    }
    // It may also have done so if it was invoked in time, or if the insertion's time is unknown.
    assert_clean(&half(insertion(), Txn::committed(2, 20).finds_nothing(0, 5)));
    assert_clean(&half(Txn::committed(1, 15).writes(0, 5, 1), Txn::committed(10, 20).finds_nothing(0, 5)));
    let seen_later = Txn::committed(10, 20).finds_nothing(0, 5).reads(0, 0, 1);
    assert_clean(&loaded([insertion(), Txn::unknown(5).removes(0, 5, 2).writes(0, 0, 2), seen_later]));
}

#[test]
fn in_any_order_a_removal_may_come_from_the_future() {
    let history = loaded([
        Txn::committed(1, 2).finds_nothing(0, 5).writes(0, 6, 1),
        Txn::committed(3, 4).finds_nothing(0, 6).writes(0, 5, 1),
        Txn::committed(5, 6).removes(0, 5, 2),
    ]);
    // The second, the third, the first.
    assert_eq!(check(&history, Order::Any), Ok(vec![]));
    assert_eq!(anomalies(&history).len(), 1);
}

#[test]
fn the_clock_tells_the_earliest_removal_that_can_be_meant() {
    let history = |begin| {
        loaded([
            Txn::committed(1, 2).removes(0, 0, 2).writes(0, 1, 2),
            Txn::committed(3, 4).writes(0, 0, 3),
            Txn::committed(5, 50).removes(0, 0, 4).writes(0, 2, 2),
            Txn::committed(6, 50).writes(0, 0, 5),
            Txn::committed(7, 50).removes(0, 0, 6),
            Txn::committed(begin, 50).finds_nothing(0, 0).reads(0, 2, 1),
        ])
    };
    assert_eq!(cycle(&history(5)), (CycleKind::GSingle, vec![3, 6]));
    assert_clean(&history(4));
}

#[test]
fn a_removal_of_ones_own_was_not_yet_seen() {
    // It found an existing row absent, and only then inserted and removed it.
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
