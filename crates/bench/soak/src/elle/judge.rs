//! Checks a record with the history checker.
//!
//! The checker needs the order of each row's versions. For a list, its longest read gives the
//! order: the value at place `n` is version `n`, counted from one. Values that were appended and
//! never read come last. For a register, a version is a number that the clock gave after the
//! transaction had read the value it replaces.

use std::collections::{BTreeMap, HashMap, HashSet};

use drtm_history::{History, MalformedHistory, Order, Outcome, Transaction, check};

use super::record::{Observed, Operation};

/// Marks the version of a value that was read or written but has no place in its row's order.
const NO_PLACE: u64 = 1 << 62;

/// Returns the violations of strict serializability, in words. `T7` is the transaction invoked as
/// the eighth.
pub(super) fn anomalies(record: &[Observed]) -> Vec<String> {
    let lists = Lists::of(record);
    let registers = registers(record);
    let version = |key: u64, value: u64| registers.get(&(key, value)).copied().unwrap_or(NO_PLACE | value);
    let history: History<u64> = record
        .iter()
        .map(|observed| {
            let begin = Transaction {
                outcome: observed.outcome,
                ..Transaction::committed(observed.invoked, observed.completed)
            };
            observed.operations.iter().fold(begin, |transaction, operation| match operation {
                Operation::Append { key, value } => transaction.writes(LISTS, *key, lists.version(*key, *value)),
                Operation::List { key, seen } => match seen.last() {
                    Some(last) => transaction.reads(LISTS, *key, lists.version(*key, *last)),
                    None => transaction.finds_nothing(LISTS, *key),
                },
                Operation::Write { key, value, .. } => transaction.writes(REGISTERS, *key, version(*key, *value)),
                Operation::Read { key, seen: Some(value) } => transaction.reads(REGISTERS, *key, version(*key, *value)),
                Operation::Read { key, seen: None } => transaction.finds_nothing(REGISTERS, *key),
                Operation::Remove { version: 0, .. } => transaction,
                Operation::Remove { key, version } => transaction.removes(REGISTERS, *key, *version),
                Operation::Scan { keys, seen } => {
                    let seen: Vec<_> = seen.iter().map(|(key, value)| (*key, version(*key, *value))).collect();
                    transaction.scans(REGISTERS, keys.clone(), seen)
                }
            })
        })
        .collect();
    let mut found = lists.anomalies;
    for (reader, observed) in record.iter().enumerate() {
        for operation in &observed.operations {
            if let Operation::Scan { keys, seen } = operation
                && !seen.is_sorted_by_key(|(key, _)| key)
            {
                found.push(format!("T{reader} scanned {keys:?} and was shown rows out of order: {seen:?}"));
            }
        }
    }
    // Who writes has read before.
    match check(&history.with_insertions_in_order(), Order::RealTime) {
        Ok(anomalies) => found.extend(anomalies.iter().map(ToString::to_string)),
        Err(MalformedHistory::OutsideRange { transaction, .. }) => {
            found.push(format!("a scan of T{transaction} showed a row outside of its range"));
        }
        Err(MalformedHistory::VersionsReversed { transaction }) => {
            found.push(format!("T{transaction} appended two values to a list, which are there in the other order"));
        }
        Err(error) => found.push(error.to_string()),
    }
    found
}

const LISTS: u32 = 0;
const REGISTERS: u32 = 1;

/// Returns the versions of register values, by key and value.
fn registers(record: &[Observed]) -> HashMap<(u64, u64), u64> {
    let writes = record.iter().flat_map(|observed| &observed.operations).filter_map(|operation| match operation {
        Operation::Write { key, value, version } if *version != 0 => Some(((*key, *value), *version)),
        _ => None,
    });
    writes.collect()
}

/// The orders of lists.
struct Lists {
    /// Versions by key and value.
    versions: HashMap<(u64, u64), u64>,
    /// Anomalies that lists show by themselves.
    anomalies: Vec<String>,
}

impl Lists {
    fn of(record: &[Observed]) -> Self {
        let mut longest: BTreeMap<u64, &[u64]> = BTreeMap::new();
        for (_, key, seen) in reads(record) {
            let known = longest.entry(key).or_default();
            if seen.len() > known.len() {
                *known = seen;
            }
        }
        let mut versions = HashMap::new();
        let mut anomalies = Vec::new();
        for (key, list) in &longest {
            for (value, place) in list.iter().zip(1..) {
                versions.entry((*key, *value)).or_insert(place);
            }
        }
        for (reader, key, seen) in reads(record) {
            let mut values = HashSet::new();
            if let Some(twice) = seen.iter().find(|value| !values.insert(**value)) {
                anomalies.push(format!("T{reader} read {twice} twice in list {key}"));
            } else if !longest[&key].starts_with(seen) {
                anomalies.push(format!("T{reader} read list {key} as {seen:?}, where others read {:?}", longest[&key]));
            }
        }
        // Values that were never read come after all others, in the order of invocations.
        let mut next = NO_PLACE >> 1;
        for operation in record.iter().flat_map(|observed| &observed.operations) {
            if let Operation::Append { key, value } = operation {
                versions.entry((*key, *value)).or_insert_with(|| {
                    next += 1;
                    next
                });
            }
        }
        Self { versions, anomalies }
    }

    fn version(&self, key: u64, value: u64) -> u64 {
        self.versions.get(&(key, value)).copied().unwrap_or(NO_PLACE | value)
    }
}

/// Returns the list reads of committed transactions: transaction, key, and values read.
fn reads(record: &[Observed]) -> impl Iterator<Item = (usize, u64, &[u64])> {
    let committed = record.iter().enumerate().filter(|(_, observed)| observed.outcome == Outcome::Committed);
    committed.flat_map(|(reader, observed)| {
        observed.operations.iter().filter_map(move |operation| match operation {
            Operation::List { key, seen } => Some((reader, *key, seen.as_slice())),
            _ => None,
        })
    })
}
