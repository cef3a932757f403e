//! Anomalies that the checker must find, and histories that it must accept.

mod closure;
mod lives;
mod long;
mod minimal;
mod permutations;
mod random;
mod recorded;
mod unclear;

use super::{Anomaly, CycleKind, History, Order, Transaction, check};

type Txn = Transaction<u64>;

/// Returns a history: rows 0 to 2 of table 0 in version 1, then `transactions`, numbered from 1.
fn loaded(transactions: impl IntoIterator<Item = Txn>) -> History<u64> {
    let load = Txn::committed(0, 0).writes(0, 0, 1).writes(0, 1, 1).writes(0, 2, 1);
    [load].into_iter().chain(transactions).collect()
}

/// Returns a transaction that is concurrent with all others.
fn txn() -> Txn {
    Txn::committed(1, 100)
}

fn anomalies(history: &History<u64>) -> Vec<Anomaly<u64>> {
    check(history, Order::RealTime).expect("the history is well formed")
}

/// Asserts that the history has exactly one anomaly, a cycle. Returns its kind and its
/// transactions.
#[track_caller]
fn cycle(history: &History<u64>) -> (CycleKind, Vec<usize>) {
    let found = anomalies(history);
    let [Anomaly::Cycle(cycle)] = &found[..] else { panic!("{found:?}") };
    for (step, next) in cycle.steps.iter().zip(cycle.steps.iter().cycle().skip(1)) {
        assert_eq!(step.to, next.from, "the steps of {cycle} do not follow each other");
    }
    let mut members: Vec<usize> = cycle.steps.iter().map(|step| step.from).collect();
    members.sort_unstable();
    (cycle.kind, members)
}

#[track_caller]
fn assert_clean(history: &History<u64>) {
    assert_eq!(anomalies(history), []);
}
