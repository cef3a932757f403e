//! Checks arbitrary histories, most of them wrong, a second time: by the transitive closure of all
//! dependencies, found by comparing every pair of transactions.

use proptest::prelude::*;

use super::{super::*, Txn, anomalies};

const KEYS: usize = 3;

/// Which transaction must precede which, by index.
#[derive(Clone, PartialEq, Eq)]
struct Relation(Vec<Vec<bool>>);

impl Relation {
    fn new(size: usize, holds: impl Fn(usize, usize) -> bool) -> Self {
        Self((0..size).map(|from| (0..size).map(|to| from != to && holds(from, to)).collect()).collect())
    }

    fn or(&self, other: &Self) -> Self {
        Self::new(self.0.len(), |from, to| self.0[from][to] || other.0[from][to])
    }

    fn closure(&self) -> Vec<Vec<bool>> {
        let mut reach = self.0.clone();
        for by in 0..reach.len() {
            for from in 0..reach.len() {
                for to in 0..reach.len() {
                    reach[from][to] |= reach[from][by] && reach[by][to];
                }
            }
        }
        reach
    }

    fn is_cyclic(&self) -> bool {
        self.closure().iter().enumerate().any(|(at, row)| row[at])
    }
}

/// A transaction's access to a key: whether it writes it, and which existing version it reads.
type Access = (bool, Option<prop::sample::Index>);

/// Transactions that took effect atomically, on each key in an order of its own. A write's version
/// is its place in that key's order.
fn history() -> impl Strategy<Value = History<u64>> {
    let txn = (prop::array::uniform3(any::<Access>()), prop::array::uniform3(any::<u8>()), 0..30u64, 0..30u64);
    prop::collection::vec(txn, 2..7).prop_map(|txns| {
        let mut history: Vec<Txn> =
            vec![(0..KEYS as u64).fold(Txn::committed(0, 0), |load, key| load.writes(0, key, 1))];
        history.extend(txns.iter().map(|(_, _, begin, length)| Txn::committed(1 + begin, 1 + begin + length)));
        for key in 0..KEYS {
            let mut writers: Vec<usize> = (0..txns.len()).filter(|&at| txns[at].0[key].0).collect();
            writers.sort_by_key(|&at| txns[at].1[key]);
            for (at, (accesses, ..)) in txns.iter().enumerate() {
                let mut txn = history[at + 1].clone();
                let own = writers.iter().position(|&writer| writer == at).map(|place| 2 + place as u64);
                if let Some(index) = &accesses[key].1 {
                    // It cannot read its own future write.
                    let others: Vec<u64> =
                        (1..2 + writers.len() as u64).filter(|version| Some(*version) != own).collect();
                    txn = txn.reads(0, key as u64, *index.get(&others));
                }
                if let Some(version) = own {
                    txn = txn.writes(0, key as u64, version);
                }
                history[at + 1] = txn;
            }
        }
        history.into_iter().collect()
    })
}

/// Returns a transaction's reads or its writes: keys with versions.
fn accesses(txn: &Txn, writes: bool) -> Vec<(u64, u64)> {
    let access = |operation: &Operation<u64>| match operation {
        Operation::Write { row, version, .. } if writes => Some((row.key, *version)),
        Operation::Read { row, seen: Seen::Version(version) } if !writes => Some((row.key, *version)),
        _ => None,
    };
    txn.operations.iter().filter_map(access).collect()
}

/// Returns the worst kind of cycle, by closures. Lost updates count as G-single.
fn judge(history: &History<u64>) -> Option<CycleKind> {
    let txns = &history.transactions;
    let (reads, writes): (Vec<_>, Vec<_>) = txns.iter().map(|txn| (accesses(txn, false), accesses(txn, true))).unzip();
    let any = |left: &[(u64, u64)], right: &[(u64, u64)], related: fn(u64, u64) -> bool| {
        left.iter().any(|a| right.iter().any(|b| a.0 == b.0 && related(a.1, b.1)))
    };
    let relation = |holds: &dyn Fn(usize, usize) -> bool| Relation::new(txns.len(), holds);
    let ww = relation(&|from, to| any(&writes[from], &writes[to], |earlier, later| earlier < later));
    let wr = relation(&|from, to| any(&writes[from], &reads[to], |wrote, read| wrote == read));
    let rw = relation(&|from, to| any(&reads[from], &writes[to], |read, next| read + 1 == next));
    let time = relation(&|from, to| txns[from].responded < txns[to].invoked);

    let information = ww.or(&wr);
    let flows = information.closure();
    let closes = |from: usize, to: usize| rw.0[from][to] && flows[to][from];
    let places = 0..txns.len();
    if ww.is_cyclic() {
        Some(CycleKind::G0)
    } else if information.is_cyclic() {
        Some(CycleKind::G1c)
    } else if places.clone().any(|from| places.clone().any(|to| closes(from, to))) {
        Some(CycleKind::GSingle)
    } else if information.or(&rw).is_cyclic() {
        Some(CycleKind::G2Item)
    } else if information.or(&rw).or(&time).is_cyclic() {
        Some(CycleKind::RealTime)
    } else {
        None
    }
}

proptest! {
    #[test]
    fn closures_judge_the_same(history in history()) {
        let kind = |anomaly: &Anomaly<u64>| match anomaly {
            Anomaly::Cycle(Cycle { kind: CycleKind::LostUpdate, .. }) => CycleKind::GSingle,
            Anomaly::Cycle(cycle) => cycle.kind,
            other => panic!("{other}"),
        };
        let found = anomalies(&history);
        prop_assert_eq!(found.iter().map(kind).min(), judge(&history), "{:?}", found);
    }
}
