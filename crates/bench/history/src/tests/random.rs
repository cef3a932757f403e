//! Serial executions of random programs have no anomaly, however their times overlap. One change
//! makes an anomaly.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{super::*, Txn, anomalies};

const KEYS: u64 = 6;

/// The next operation of a transaction.
#[derive(Clone, Copy, Debug)]
enum Act {
    Read(u64),
    Write(u64),
    Remove(u64),
    Scan(u64, u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..KEYS).prop_map(Act::Read),
        3 => (0..KEYS).prop_map(Act::Write),
        1 => (0..KEYS).prop_map(Act::Remove),
        2 => (0..KEYS, 0..=KEYS).prop_map(|(a, b)| Act::Scan(a.min(b), a.max(b))),
    ]
}

/// A transaction's operations, whether it commits, and by how much its times extend before and
/// after the moment of its effect.
type Program = (Vec<Act>, bool, u64, u64);

fn programs() -> impl Strategy<Value = Vec<Program>> {
    let program = (prop::collection::vec(act(), 1..6), prop::bool::weighted(0.85), 0..40u64, 0..40u64);
    prop::collection::vec(program, 1..40)
}

/// For each key, the version and whether the row is present.
type Table = BTreeMap<u64, (u64, bool)>;

/// Runs programs serially: the first at moment 100, the next ten later, and so on.
fn run(programs: &[Program]) -> History<u64> {
    let mut table = Table::new();
    let mut history = Vec::new();
    for (at, (acts, commits, before, after)) in programs.iter().enumerate() {
        let moment = 100 + 10 * at as u64;
        let mut trial = table.clone();
        let mut txn = if *commits {
            Txn::committed(moment - before, moment + after)
        } else {
            Txn::aborted(moment - before, moment + after)
        };
        for act in acts {
            txn = step(txn, *act, &mut trial);
        }
        if *commits {
            table = trial;
        }
        history.push(txn);
    }
    history.into_iter().collect()
}

fn step(txn: Txn, act: Act, table: &mut Table) -> Txn {
    match act {
        Act::Read(key) => match table.get(&key) {
            None => txn.finds_nothing(0, key),
            Some(&(version, true)) => txn.reads(0, key, version),
            Some(&(version, false)) => txn.finds_removed(0, key, version),
        },
        Act::Write(key) => {
            let version = table.get(&key).map_or(1, |(version, _)| version + 1);
            table.insert(key, (version, true));
            txn.writes(0, key, version)
        }
        Act::Remove(key) => match table.get_mut(&key) {
            Some((version, present @ true)) => {
                (*version, *present) = (*version + 1, false);
                txn.removes(0, key, *version)
            }
            _ => txn,
        },
        Act::Scan(start, end) => {
            let rows: Vec<_> =
                table.range(start..end).filter(|(_, row)| row.1).map(|(&key, row)| (key, row.0)).collect();
            txn.scans(0, start..end, rows)
        }
    }
}

/// Surrounds a serial run by a transaction that wrote all keys before, and one that writes them
/// again after. One more transaction in between read the first one's writes.
fn around(middle: &[Program], seen: impl FnOnce(Txn, &History<u64>) -> Txn) -> History<u64> {
    let all: Vec<Act> = (0..KEYS).map(Act::Write).collect();
    let exact = |program: &Program| (program.0.clone(), program.1, 0, 0);
    let programs: Vec<Program> =
        [(all.clone(), true, 0, 0)].into_iter().chain(middle.iter().map(exact)).chain([(all, true, 0, 0)]).collect();
    let mut history = run(&programs);
    let late = history.transactions.iter().map(|txn| txn.responded).max().unwrap_or(0) + 10;
    let reader = seen(Txn::committed(late, late), &history);
    history.transactions.push(reader);
    history
}

/// Returns the versions that the last writer left of all keys.
fn newest(history: &History<u64>) -> Vec<(u64, u64)> {
    let writer = history.transactions.iter().rfind(|txn| txn.outcome == Outcome::Committed);
    let writes = writer.into_iter().flat_map(|txn| &txn.operations);
    writes
        .filter_map(|operation| match operation {
            Operation::Write { row, version, .. } => Some((row.key, *version)),
            _ => None,
        })
        .collect()
}

proptest! {
    #[test]
    fn serial_runs_are_clean(programs in programs()) {
        prop_assert_eq!(anomalies(&run(&programs)), vec![]);
    }

    /// A transaction that committed with an unknown outcome may count as not committed.
    #[test]
    fn serial_runs_with_unknown_outcomes_are_clean(programs in programs(), forgotten in any::<u64>()) {
        let mut history = run(&programs);
        for (at, txn) in history.transactions.iter_mut().enumerate() {
            if txn.outcome == Outcome::Committed && forgotten >> (at % 64) & 1 == 1 {
                txn.outcome = Outcome::Unknown;
            }
        }
        prop_assert_eq!(anomalies(&history), vec![]);
    }

    /// Two keys were written by the last transaction; one is read in an older version.
    #[test]
    fn an_older_version_is_found(programs in programs(), stale in 0..KEYS) {
        let history = around(&programs, |reader, history| {
            newest(history).into_iter().fold(reader, |reader, (key, version)| {
                reader.reads(0, key, if key == stale { 1 } else { version })
            })
        });
        let found = anomalies(&history);
        prop_assert!(
            found.iter().any(|anomaly| matches!(
                anomaly,
                Anomaly::Cycle(Cycle { kind: CycleKind::GSingle, .. })
            )),
            "{:?}", found
        );
    }

    /// A scan misses one of the rows that the last transaction wrote.
    #[test]
    fn a_dropped_row_is_found(programs in programs(), dropped in 0..KEYS) {
        let full = around(&programs, |reader, history| reader.scans(0, .., newest(history)));
        prop_assert_eq!(anomalies(&full), vec![]);
        let history = around(&programs, |reader, history| {
            reader.scans(0, .., newest(history).into_iter().filter(|(key, _)| *key != dropped))
        });
        let found = anomalies(&history);
        let [Anomaly::Cycle(Cycle { kind: CycleKind::GSingle, steps })] = &found[..] else {
            return Err(TestCaseError::fail(format!("{found:?}")));
        };
        let is_phantom = |step: &Step<u64>| matches!(&step.why, Dependency::Phantom { row, .. } if row.key == dropped);
        prop_assert!(steps.iter().any(is_phantom), "{:?}", found);
    }

    /// The first transaction, on which a read depends, is moved behind all others.
    #[test]
    fn a_write_moved_behind_its_reader_is_found(programs in programs()) {
        let mut history = around(&programs, |reader, history| reader.scans(0, .., newest(history)));
        let late = history.transactions.iter().map(|txn| txn.responded).max().unwrap_or(0) + 10;
        (history.transactions[0].invoked, history.transactions[0].responded) = (late, late);
        let found = anomalies(&history);
        let [Anomaly::Cycle(cycle)] = &found[..] else {
            return Err(TestCaseError::fail(format!("{found:?}")));
        };
        prop_assert_eq!(cycle.kind, CycleKind::RealTime);
        prop_assert_eq!(cycle.steps.len(), 2);
        prop_assert_eq!(check(&history, Order::Any), Ok(vec![]));
    }
}
