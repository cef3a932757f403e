//! Histories of 100,000 transactions on 1,000 rows, which must be checked within seconds.

use super::{super::*, Txn, anomalies};

const ROWS: u64 = 1_000;
const TRANSACTIONS: u64 = 100_000;

/// The rows, each in version 1.
fn load() -> Txn {
    (0..ROWS).fold(Txn::committed(0, 0), |load, key| load.writes(0, key, 1))
}

/// Returns a transaction that overlaps about sixteen others.
fn at(moment: u64) -> Txn {
    Txn::committed(moment.max(8) * 10 - 80, moment * 10 + 80)
}

#[test]
fn one_that_is_wrong_is_found() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut versions = vec![1; ROWS as usize];
    let mut history = History::from_iter([load()]);
    for moment in 1..TRANSACTIONS {
        let mut txn = at(moment);
        for _ in 0..4 {
            let key = random.u64(..ROWS);
            txn = txn.reads(0, key, versions[key as usize]);
            // A second write of the row would make an intermediate version, which no transaction
            // reads.
            if random.bool() {
                versions[key as usize] += 1;
                txn = txn.writes(0, key, versions[key as usize]);
            }
        }
        let start = random.u64(..ROWS - 10);
        txn = txn.scans(0, start..start + 10, (start..start + 10).map(|key| (key, versions[key as usize])));
        history.transactions.push(txn);
    }
    assert_eq!(anomalies(&history), []);

    // It was invoked after all others, but read the state before them.
    history.transactions.push(Txn::committed(2_000_000, 2_000_001).reads(0, 0, 1));
    let found = anomalies(&history);
    let [Anomaly::Cycle(cycle)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((cycle.kind, cycle.steps.len()), (CycleKind::RealTime, 2));
}

/// Snapshot isolation: each transaction reads the state of sixteen transactions ago, and writes a
/// row that no transaction has written since. Rows are few, so that all transactions form one
/// group, and the search for the worst kinds of cycles finds none.
#[test]
fn all_that_are_wrong_are_sought() {
    const HOT: u64 = 50;
    let mut random = fastrand::Rng::with_seed(8);
    // For each row, the moments of its versions after the first.
    let mut writes = vec![vec![]; HOT as usize];
    let mut history = History::from_iter([load()]);
    for moment in 1..TRANSACTIONS {
        let mut txn = at(moment);
        let snapshot = moment.saturating_sub(16);
        for _ in 0..12 {
            let key = random.u64(..HOT);
            let version = 1 + writes[key as usize].partition_point(|written| *written <= snapshot);
            txn = txn.reads(0, key, version as u64);
        }
        let key = random.u64(..HOT);
        let row: &mut Vec<u64> = &mut writes[key as usize];
        if row.last().is_none_or(|written| *written <= snapshot) {
            row.push(moment);
            txn = txn.writes(0, key, 1 + row.len() as u64);
        }
        history.transactions.push(txn);
    }
    let found = anomalies(&history);
    let [Anomaly::Cycle(cycle)] = &found[..] else { panic!("{} anomalies", found.len()) };
    assert_eq!((cycle.kind, cycle.steps.len()), (CycleKind::G2Item, 2));
}
