//! Checks small histories with removals and scans a second time, by the definition: whether the
//! transactions, run serially in some order, return the recorded results.

use std::collections::BTreeMap;

use proptest::{prelude::*, sample::Index};

use super::{super::*, Txn};

const KEYS: u64 = 2;

/// For each key, the version and whether the row is present.
type Table = BTreeMap<u64, (u64, bool)>;

/// A transaction's operation on a key: 0 and 1 read it, 2 scans all, 3 and 4 write it, 5 removes
/// it.
type Act = (u8, u64);

/// A falsification of the history: the transaction, the operation, and the false result.
type Lie = (Index, Index, u64);

/// Runs random programs serially, with times around that order, and then falsifies some results.
fn histories() -> impl Strategy<Value = History<u64>> {
    let act = (0..6_u8, 0..KEYS);
    let program = (prop::collection::vec(act, 1..4), 0..25_u64, 0..25_u64);
    let lie = (any::<Index>(), any::<Index>(), 0..4_u64);
    (prop::collection::vec(program, 1..6), prop::collection::vec(lie, 0..3)).prop_map(|(programs, lies)| {
        let mut table = Table::new();
        let mut history: Vec<Txn> = Vec::new();
        for (at, (acts, before, after)) in programs.iter().enumerate() {
            let moment = 100 + 10 * at as u64;
            let txn = Txn::committed(moment - before, moment + after);
            history.push(acts.iter().fold(txn, |txn, act| step(txn, *act, &mut table)));
        }
        lies.into_iter().for_each(|lie| apply_lie(&mut history, &lie));
        history.into_iter().collect()
    })
}

fn step(txn: Txn, (act, key): Act, table: &mut Table) -> Txn {
    let row = table.get(&key).copied();
    let next = row.map_or(1, |(version, _)| version + 1);
    match (act, row) {
        (0 | 1, None) => txn.finds_nothing(0, key),
        (0 | 1, Some((version, true))) => txn.reads(0, key, version),
        (0, Some((version, false))) => txn.finds_removed(0, key, version),
        (1, Some((_, false))) => txn.finds_nothing(0, key),
        (2, _) => txn.scans(0, .., table.iter().filter(|(_, row)| row.1).map(|(key, row)| (*key, row.0))),
        (5, Some((_, true))) => {
            table.insert(key, (next, false));
            txn.removes(0, key, next)
        }
        _ => {
            table.insert(key, (next, true));
            txn.writes(0, key, next)
        }
    }
}

fn apply_lie(history: &mut [Txn], (txn, operation, version): &Lie) {
    let txn = &mut history[txn.index(history.len())];
    let place = operation.index(txn.operations.len());
    match &mut txn.operations[place] {
        Operation::Read { seen, .. } => *seen = Some(*version).filter(|version| *version > 0).into(),
        Operation::Scan { matched, .. } if *version == 0 => _ = matched.pop(),
        Operation::Scan { matched, .. } => matched.iter_mut().take(1).for_each(|(_, seen)| *seen = *version),
        Operation::Write { .. } => {}
    }
}

/// Returns whether these transactions can run next in this order, on this table.
fn can_follow(txn: &Txn, table: &mut Table) -> bool {
    txn.operations.iter().all(|operation| match operation {
        Operation::Read { row, seen } => {
            let there = table.get(&row.key).copied();
            match seen {
                Seen::Version(version) => there == Some((*version, true)),
                Seen::Removed(version) => there == Some((*version, false)),
                Seen::Nothing => there.is_none_or(|(_, present)| !present),
            }
        }
        Operation::Write { row, version, removal } => {
            let before = table.insert(row.key, (*version, !removal));
            before.is_none_or(|(earlier, _)| earlier < *version)
        }
        Operation::Scan { matched, .. } => {
            table.iter().filter(|(_, row)| row.1).map(|(key, row)| (*key, row.0)).eq(matched.iter().copied())
        }
    })
}

fn has_order(left: &[&Txn], table: &Table, order: Order) -> bool {
    left.is_empty()
        || (0..left.len()).any(|next| {
            let others: Vec<&Txn> =
                left.iter().enumerate().filter(|(at, _)| *at != next).map(|(_, txn)| *txn).collect();
            let is_late = order == Order::RealTime && others.iter().any(|other| other.responded < left[next].invoked);
            let mut table = table.clone();
            !is_late && can_follow(left[next], &mut table) && has_order(&others, &table, order)
        })
}

/// Returns whether the history is exact: no read of an absent row can mean one of several removals.
fn is_exact(history: &History<u64>) -> bool {
    let any = |is: fn(&Operation<u64>) -> bool| history.transactions.iter().flat_map(|txn| &txn.operations).any(is);
    let removes = any(|operation| matches!(operation, Operation::Write { removal: true, .. }));
    let is_vague =
        |operation: &_| matches!(operation, Operation::Scan { .. } | Operation::Read { seen: Seen::Nothing, .. });
    !removes || !any(is_vague)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn nothing_is_wrong_if_there_is_an_order(history in histories()) {
        for order in [Order::Any, Order::RealTime] {
            let found = check(&history, order);
            let all: Vec<&Txn> = history.transactions.iter().collect();
            let orderly = has_order(&all, &Table::new(), order);
            match &found {
                Ok(found) if orderly => prop_assert!(found.is_empty(), "{:?}", found),
                Ok(found) if is_exact(&history) => prop_assert!(!found.is_empty(), "{:?}: no order is right", order),
                Ok(_) => {}
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            }
        }
    }
}
