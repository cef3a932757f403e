//! The smallest history with each anomaly, beside the nearest history without it.

use super::{super::*, Txn, anomalies, assert_clean, cycle, loaded, txn};

#[test]
fn nothing_is_clean() {
    assert_clean(&History::from_iter([]));
    assert_clean(&loaded([]));
}

#[test]
fn g0_when_writes_overtake_each_other() {
    let history = loaded([txn().writes(0, 0, 2).writes(0, 1, 3), txn().writes(0, 0, 3).writes(0, 1, 2)]);
    assert_eq!(cycle(&history), (CycleKind::G0, vec![1, 2]));
    assert_clean(&loaded([txn().writes(0, 0, 2).writes(0, 1, 2), txn().writes(0, 0, 3).writes(0, 1, 3)]));
}

#[test]
fn g0_when_a_write_comes_between_two_of_one_transaction() {
    let history = loaded([txn().writes(0, 0, 2).writes(0, 0, 4), txn().writes(0, 0, 3)]);
    assert_eq!(cycle(&history), (CycleKind::G0, vec![1, 2]));
}

#[test]
fn g1a_by_row_removal_and_scan() {
    let seen = |reader: Txn| anomalies(&loaded([Txn::aborted(1, 2).writes(0, 0, 2).removes(0, 1, 2), reader]));
    let by = |key, seen| vec![Anomaly::AbortedRead { row: Row { table: 0, key }, seen, writer: 1, reader: 2 }];
    assert_eq!(seen(txn().reads(0, 0, 2)), by(0, Seen::Version(2)));
    assert_eq!(seen(txn().finds_removed(0, 1, 2)), by(1, Seen::Removed(2)));
    assert_eq!(seen(txn().scans(0, 0..1, [(0, 2)])), by(0, Seen::Version(2)));
    assert_eq!(seen(txn().reads(0, 0, 1).reads(0, 1, 1)), []);
}

#[test]
fn an_aborted_version_can_be_given_again() {
    let history = loaded([Txn::aborted(1, 2).writes(0, 0, 2), txn().writes(0, 0, 2), txn().reads(0, 0, 2)]);
    assert_clean(&history);
}

#[test]
fn aborted_reads_are_not_judged() {
    assert_clean(&loaded([Txn::aborted(1, 2).reads(0, 0, 77)]));
}

#[test]
fn g1b_when_a_version_is_not_its_writers_last() {
    let history = loaded([txn().writes(0, 0, 2).writes(0, 0, 3), txn().reads(0, 0, 2)]);
    let row = Row { table: 0, key: 0 };
    let seen = Seen::Version(2);
    assert_eq!(anomalies(&history), [Anomaly::IntermediateRead { row, seen, last: 3, writer: 1, reader: 2 }]);
    assert_clean(&loaded([txn().writes(0, 0, 2).writes(0, 0, 3), txn().reads(0, 0, 3)]));
}

#[test]
fn writes_that_share_a_version_are_one_write() {
    assert_clean(&loaded([txn().removes(0, 0, 2).writes(0, 0, 2), txn().reads(0, 0, 2)]));
}

#[test]
fn g1c_when_two_read_each_others_writes() {
    let history = loaded([txn().writes(0, 0, 2).reads(0, 1, 2), txn().writes(0, 1, 2).reads(0, 0, 2)]);
    assert_eq!(cycle(&history), (CycleKind::G1c, vec![1, 2]));
}

#[test]
fn reads_of_what_nobody_wrote() {
    let row = Row { table: 0, key: 0 };
    for (reader, seen) in [
        (txn().reads(0, 0, 9), Seen::Version(9)),
        (txn().finds_removed(0, 0, 1), Seen::Removed(1)),
        (txn().scans(0, .., [(0, 9), (1, 1), (2, 1)]), Seen::Version(9)),
    ] {
        let expected = [Anomaly::UnwrittenRead { row: row.clone(), seen, reader: 1 }];
        assert_eq!(anomalies(&loaded([reader])), expected);
    }
}

#[test]
fn two_writers_of_one_version() {
    let history = loaded([txn().writes(0, 0, 2), txn().writes(0, 0, 2)]);
    let row = Row { table: 0, key: 0 };
    assert_eq!(anomalies(&history), [Anomaly::TwoWriters { row, version: 2, writers: [1, 2] }]);
}

#[test]
fn lost_update_of_two_and_of_three() {
    let history = loaded([txn().reads(0, 0, 1).writes(0, 0, 2), txn().reads(0, 0, 1).writes(0, 0, 3)]);
    assert_eq!(cycle(&history), (CycleKind::LostUpdate, vec![1, 2]));
    let history = loaded([txn().writes(0, 0, 2), txn().writes(0, 0, 3), txn().reads(0, 0, 1).writes(0, 0, 4)]);
    assert_eq!(cycle(&history), (CycleKind::LostUpdate, vec![1, 2, 3]));
    assert_clean(&loaded([txn().reads(0, 0, 1).writes(0, 0, 2), txn().reads(0, 0, 2).writes(0, 0, 3)]));
}

#[test]
fn g_single_when_half_of_a_transaction_is_seen() {
    let writer = txn().writes(0, 0, 2).writes(0, 1, 2);
    let history = loaded([writer.clone(), txn().reads(0, 0, 2).reads(0, 1, 1)]);
    assert_eq!(cycle(&history), (CycleKind::GSingle, vec![1, 2]));
    assert_clean(&loaded([writer, txn().reads(0, 0, 2).reads(0, 1, 2)]));
}

#[test]
fn g2_item_by_write_skew() {
    let history = loaded([txn().reads(0, 0, 1).writes(0, 1, 2), txn().reads(0, 1, 1).writes(0, 0, 2)]);
    assert_eq!(cycle(&history), (CycleKind::G2Item, vec![1, 2]));
}

#[test]
fn g2_by_two_scans_that_miss_each_others_inserts() {
    let rows = [(0, 1), (1, 1), (2, 1)];
    let history = loaded([txn().scans(0, .., rows).writes(0, 10, 1), txn().scans(0, .., rows).writes(0, 11, 1)]);
    assert_eq!(cycle(&history), (CycleKind::G2, vec![1, 2]));
}

#[test]
fn g2_by_two_scans_that_miss_each_others_removals() {
    let history = loaded([
        txn().scans(0, 0..2, [(0, 1), (1, 1)]).removes(0, 0, 2),
        txn().scans(0, 0..2, [(0, 1), (1, 1)]).removes(0, 1, 2),
    ]);
    assert_eq!(cycle(&history), (CycleKind::G2, vec![1, 2]));
}

#[test]
fn an_update_that_a_scan_missed_is_no_phantom() {
    let history = loaded([
        txn().scans(0, 0..2, [(0, 1), (1, 1)]).writes(0, 0, 2),
        txn().scans(0, 0..2, [(0, 1), (1, 1)]).writes(0, 1, 2),
    ]);
    assert_eq!(cycle(&history), (CycleKind::G2Item, vec![1, 2]));
}

#[test]
fn scans_see_their_range_and_table_only() {
    let scan = || txn().scans(0, 0..3, [(0, 1), (1, 1), (2, 1)]);
    assert_clean(&loaded([scan().writes(0, 10, 1), scan().writes(1, 1, 1)]));
}

#[test]
fn a_phantom_in_a_read_of_half() {
    let history = loaded([txn().writes(0, 9, 1).writes(0, 0, 2), txn().reads(0, 0, 2).scans(0, 3.., [])]);
    let found = anomalies(&history);
    let [Anomaly::Cycle(Cycle { kind: CycleKind::GSingle, steps })] = &found[..] else { panic!("{found:?}") };
    let phantom = Dependency::Phantom { row: Row { table: 0, key: 9 }, seen: Seen::Nothing, next: 1 };
    assert!(steps.contains(&Step { from: 2, to: 1, why: phantom }), "{found:?}");
}

#[test]
fn what_a_transaction_wrote_itself_tells_nothing() {
    let history = loaded([
        txn().writes(0, 5, 1).reads(0, 5, 1).scans(0, 5.., [(5, 1)]).removes(0, 5, 2).finds_nothing(0, 5).scans(
            0,
            5..,
            [],
        ),
        txn().writes(0, 5, 3),
    ]);
    assert_clean(&history);
}

#[test]
fn what_a_transaction_wrote_itself_must_be_seen() {
    let row = Row { table: 0, key: 0 };
    let contradiction = |seen, known| [Anomaly::Contradiction { row: row.clone(), seen, known, reader: 1 }];
    for (reader, seen) in [
        (txn().writes(0, 0, 2).reads(0, 0, 1), Seen::Version(1)),
        (txn().writes(0, 0, 2).finds_nothing(0, 0), Seen::Nothing),
        (txn().writes(0, 0, 2).scans(0, 0..1, []), Seen::Nothing),
        (txn().writes(0, 0, 2).scans(0, 0..1, [(0, 1)]), Seen::Version(1)),
    ] {
        assert_eq!(anomalies(&loaded([reader])), contradiction(seen, Seen::Version(2)));
    }
    let reader = txn().removes(0, 0, 2).scans(0, 0..1, [(0, 1)]);
    assert_eq!(anomalies(&loaded([reader])), contradiction(Seen::Version(1), Seen::Removed(2)));
    // It cannot read its own write before making it.
    let reader = txn().reads(0, 0, 2).writes(0, 0, 2);
    assert_eq!(anomalies(&loaded([reader])), [Anomaly::UnwrittenRead { row, seen: Seen::Version(2), reader: 1 }]);
}

#[test]
fn what_a_transaction_saw_must_not_change() {
    let row = Row { table: 0, key: 0 };
    let reader = txn().reads(0, 0, 1).scans(0, 0..1, []);
    let history = loaded([txn().removes(0, 0, 2), reader.clone()]);
    let (seen, known) = (Seen::Nothing, Seen::Version(1));
    let contradiction = Anomaly::Contradiction { row: row.clone(), seen, known, reader: 2 };
    let found = anomalies(&history);
    assert_eq!(found[0], contradiction);
    // Two reads of the row contradict as well, and also make a cycle.
    let history = loaded([txn().writes(0, 0, 2), txn().reads(0, 0, 1).reads(0, 0, 2)]);
    let [Anomaly::Contradiction { .. }, Anomaly::Cycle(Cycle { kind: CycleKind::GSingle, .. })] =
        &anomalies(&history)[..]
    else {
        panic!("{:?}", anomalies(&history))
    };
    assert_clean(&loaded([
        txn().removes(0, 0, 2),
        txn().finds_nothing(0, 0).finds_removed(0, 0, 2).scans(0, 0..1, []),
    ]));
    // Another transaction's knowledge does not count.
    assert_clean(&loaded([txn().writes(0, 0, 2), Txn::committed(200, 201).reads(0, 0, 2)]));
}

#[test]
fn a_scan_shows_a_row_once() {
    let rows = [(0, 1), (1, 1), (0, 1), (0, 1)];
    let expected = [Anomaly::ShownTwice { row: Row { table: 0, key: 0 }, reader: 1 }];
    assert_eq!(anomalies(&loaded([txn().scans(0, 0..2, rows)])), expected);
    // The order of rows does not matter.
    assert_clean(&loaded([txn().scans(0, 0..3, [(2, 1), (1, 1), (0, 1)])]));
}

#[test]
fn real_time_when_the_past_is_read() {
    let read_at = |begin, end| {
        let reader = Txn::committed(begin, end).reads(0, 0, 1);
        loaded([Txn::committed(10, 20).writes(0, 0, 2), reader])
    };
    assert_eq!(cycle(&read_at(21, 30)), (CycleKind::RealTime, vec![1, 2]));
    assert_clean(&read_at(20, 30));
    assert_eq!(check(&read_at(21, 30), Order::Any), Ok(vec![]));
}

#[test]
fn real_time_when_the_future_is_read() {
    let history = loaded([Txn::committed(1, 2).reads(0, 0, 2), Txn::committed(3, 4).writes(0, 0, 2)]);
    assert_eq!(cycle(&history), (CycleKind::RealTime, vec![1, 2]));
}

#[test]
fn every_group_is_reported() {
    let history = loaded([
        Txn::committed(1, 2).reads(0, 0, 1).writes(0, 0, 2),
        Txn::committed(1, 2).reads(0, 0, 1).writes(0, 0, 3),
        Txn::committed(3, 4).reads(0, 1, 1).writes(0, 2, 2),
        Txn::committed(3, 4).reads(0, 2, 1).writes(0, 1, 2),
        Txn::committed(5, 6).writes(0, 7, 1),
        Txn::committed(7, 8).finds_nothing(0, 7),
    ]);
    let mut kinds: Vec<_> = anomalies(&history)
        .into_iter()
        .map(|anomaly| match anomaly {
            Anomaly::Cycle(cycle) => cycle.kind,
            other => panic!("{other}"),
        })
        .collect();
    kinds.sort_unstable();
    assert_eq!(kinds, [CycleKind::LostUpdate, CycleKind::G2Item, CycleKind::RealTime]);
}

#[test]
fn malformed_histories_are_refused() {
    let check = |transaction: Txn| check(&History::from_iter([transaction]), Order::Any);
    assert_eq!(check(Txn::committed(2, 1)), Err(MalformedHistory::TimesReversed { transaction: 0 }));
    let reversed = txn().writes(0, 0, 3).writes(0, 1, 9).writes(0, 0, 2);
    assert_eq!(check(reversed), Err(MalformedHistory::VersionsReversed { transaction: 0 }));
    let outside = txn().reads(0, 0, 1).scans(0, 3..5, [(5, 1)]);
    assert_eq!(check(outside), Err(MalformedHistory::OutsideRange { transaction: 0, operation: 1 }));
    #[expect(clippy::reversed_empty_ranges, reason = "a scan of nothing is nothing wrong")]
    let backwards = txn().scans(0, 5..3, []);
    assert_eq!(check(backwards), Ok(vec![]));
}
