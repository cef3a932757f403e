//! Rows that are inserted again and again, by transactions that have drawn versions before others
//! committed.

use fastrand::Rng;

use super::{Txn, anomalies, assert_clean, txn};
use crate::{History, Seen};

/// Runs transactions on one row, each of which reads it, draws a version, and commits a while later
/// if what it has read is still so. Then what it found missing may have come and gone.
fn run(random: &mut Rng) -> History<u64> {
    struct Open {
        invoked: u64,
        seen: Option<u64>,
        version: Option<u64>,
    }
    let (mut now, mut row, mut open, mut history) = (1, None::<u64>, Vec::<Open>::new(), Vec::new());
    while history.len() < 30 {
        now += 1;
        if open.len() < 4 && random.bool() {
            open.push(Open { invoked: now, seen: row, version: None });
            continue;
        }
        if open.is_empty() {
            continue;
        }
        let at = random.usize(..open.len());
        match open[at].version {
            None => open[at].version = Some(now),
            Some(version) => {
                let Open { invoked, seen, .. } = open.swap_remove(at);
                if seen != row {
                    continue;
                }
                let base = Txn::committed(invoked, now);
                let read = match seen {
                    Some(seen) => base.reads(0, 7, seen),
                    None => base.finds_nothing(0, 7),
                };
                let removes = seen.is_some() && random.bool();
                row = (!removes).then_some(version);
                history.push(if removes { read.removes(0, 7, version) } else { read.writes(0, 7, version) });
            }
        }
    }
    history.into_iter().collect()
}

#[test]
fn insertions_are_put_in_order() {
    let mut were_wrong = 0;
    for seed in 0..300 {
        let history = run(&mut Rng::with_seed(seed));
        were_wrong += usize::from(!anomalies(&history).is_empty());
        let ordered = history.clone().with_insertions_in_order();
        assert_eq!(anomalies(&ordered), [], "seed {seed}: {history:?}");
    }
    assert!(were_wrong > 30, "only {were_wrong} had insertions out of order");
}

#[test]
fn one_insertion_over_another_is_an_anomaly_all_the_same() {
    // Both find nothing, and one inserts over the other; somebody has read either, or none.
    let both = [txn().finds_nothing(0, 7).writes(0, 7, 1), txn().finds_nothing(0, 7).writes(0, 7, 2)];
    for version in [None, Some(1), Some(2)] {
        let next = version.map(|version| txn().reads(0, 7, version).writes(0, 7, 3));
        let history: History<u64> = both.iter().cloned().chain(next).collect();
        assert!(!anomalies(&history.with_insertions_in_order()).is_empty(), "{version:?}");
    }
}

#[test]
fn a_transaction_may_write_a_row_twice() {
    let history = History::from_iter([
        Txn::committed(0, 9).finds_nothing(0, 7).writes(0, 7, 1).writes(0, 7, 2),
        Txn::committed(1, 2).finds_nothing(0, 7).writes(0, 7, 3).writes(0, 7, 4),
        Txn::committed(3, 4).reads(0, 7, 4).removes(0, 7, 5),
        Txn::committed(10, 11).reads(0, 7, 2),
    ]);
    assert_clean(&history.with_insertions_in_order());
}

#[test]
fn who_inserts_and_removes_a_row_has_found_nothing() {
    // It draws its versions last, and is between the first one and the removal.
    let history = History::from_iter([
        Txn::committed(0, 9).finds_nothing(0, 7).writes(0, 7, 1).writes(1, 1, 1),
        Txn::committed(0, 9).finds_nothing(0, 7).writes(0, 7, 8).removes(0, 7, 9).finds_nothing(1, 1),
        Txn::committed(10, 11).reads(0, 7, 1).removes(0, 7, 12),
        Txn::committed(13, 14).finds_nothing(0, 7).writes(0, 7, 15),
    ]);
    assert_clean(&history.with_insertions_in_order());
}

#[test]
fn rows_that_are_written_unread_stay_as_they_are() {
    let history = History::from_iter([
        txn().finds_nothing(0, 7).writes(0, 7, 1),
        txn().reads(0, 7, 1).removes(0, 7, 2),
        txn().writes(0, 7, 3),
    ]);
    assert_eq!(history.clone().with_insertions_in_order(), history);
    assert_clean(&history);
    let twice = History::from_iter([
        txn().finds_nothing(0, 7).writes(0, 7, 1),
        txn().reads(0, 7, 1).removes(0, 7, 2),
        Txn::committed(101, 102).finds_nothing(0, 7).writes(0, 7, 3),
        Txn::committed(103, 104).scans(0, 7..8, [(7, 3)]),
    ]);
    let ordered = twice.with_insertions_in_order();
    assert_clean(&ordered);
    let crate::Operation::Scan { matched, .. } = &ordered.transactions[3].operations[0] else { panic!("it scans") };
    let crate::Operation::Read { seen: Seen::Version(first), .. } = ordered.transactions[1].operations[0] else {
        panic!("it reads")
    };
    assert_eq!((first, &matched[..]), (1, &[(7, 3)][..]), "in the order of the insertions");
}
