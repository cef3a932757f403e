//! Shared code of the cases.

use std::thread;

use drtm_kv::{Mutation, mutated};
use drtm_txn::{Db, Ordered, Pod, Table, TableDef};

/// The number of uses after which a name repeats.
pub(crate) const ROUND: u64 = 8;

pub(crate) type Rows = Table<u64, Pod<u64>>;
pub(crate) type Sorted = Table<u64, Pod<u64>, Ordered>;

pub(crate) const A: TableDef<u64, Pod<u64>> = TableDef::hash("a");
pub(crate) const B: TableDef<u64, Pod<u64>> = TableDef::hash("b");
pub(crate) const SORTED: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("sorted");
/// Nodes of ordered tables have no narrow counters, so that churn here affects records only.
pub(crate) const CHURN: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("churn");

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) db: Db,
    pub(crate) a: Rows,
    pub(crate) b: Rows,
    pub(crate) sorted: Sorted,
    pub(crate) churn: Sorted,
}

impl World {
    pub(crate) fn new() -> Self {
        let db = Db::new().expect("memory");
        let (a, b) = (db.table(A).expect("memory"), db.table(B).expect("memory"));
        let (sorted, churn) = (db.table(SORTED).expect("memory"), db.table(CHURN).expect("memory"));
        Self { db, a, b, sorted, churn }
    }

    pub(crate) fn insert(&self, table: Rows, key: u64, value: u64) {
        self.db.transact(|tx| tx.insert(table, key, &value)).expect("room");
    }

    pub(crate) fn remove(&self, table: Rows, key: u64) {
        assert!(self.db.transact(|tx| tx.remove(table, key)).expect("sound").is_some());
    }

    pub(crate) fn get(&self, table: Rows, key: u64) -> Option<u64> {
        self.db.read(|tx| tx.get(table, key)).expect("sound")
    }

    /// Reuses the memory that was freed last this many times.
    pub(crate) fn use_memory(&self, times: u64) {
        for _ in 0..times {
            self.db.transact(|tx| tx.insert(self.churn, 1, &0)).expect("room");
            self.db.transact(|tx| tx.remove(self.churn, 1)).expect("sound");
        }
    }

    /// Returns two keys in the same bucket of `a` as this one.
    pub(crate) fn alike(&self, key: u64) -> [u64; 2] {
        let mut alike = Vec::new();
        for other in key + 1.. {
            let mut tx = self.db.begin().expect("a transaction");
            assert_eq!(tx.get(self.a, key).expect("alone"), None);
            tx.put(self.sorted, 1, &1).expect("room");
            self.insert(self.a, other, 0);
            if tx.commit().is_err() {
                alike.push(other);
            }
            self.remove(self.a, other);
            if let [one, two] = alike[..] {
                return [one, two];
            }
        }
        unreachable!("there are as many keys as one likes")
    }
}

/// Runs a closure in another thread, with this thread's fault.
pub(crate) fn elsewhere(run: impl FnOnce() + Send) {
    let is_faulty = is_faulty();
    thread::scope(|scope| {
        scope.spawn(|| if is_faulty { faulty(run) } else { run() });
    });
}

std::thread_local!(static FAULTY: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });

fn is_faulty() -> bool {
    FAULTY.get()
}

/// Runs a case with turns disabled.
pub(crate) fn faulty(run: impl FnOnce()) {
    FAULTY.set(true);
    mutated(Mutation::TurnsNotCounted, run);
}

/// A case that holds, and fails if turns are not counted.
macro_rules! case {
    ($(#[$doc:meta])* $name:ident $body:block) => {
        $(#[$doc])*
        mod $name {
            use super::*;

            fn run() $body

            #[test]
            fn holds() {
                run();
            }

            #[test]
            #[should_panic(expected = "wrong")]
            fn fails_without_turns() {
                crate::world::faulty(run);
            }
        }
    };
}
pub(crate) use case;
