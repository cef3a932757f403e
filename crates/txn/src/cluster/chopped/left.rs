//! What a node's own chopped transactions have left: those whose futures were dropped, and those
//! that have failed.

use std::{
    cell::Cell,
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed},
};

use parking_lot::Mutex;

use super::id::Id;

/// What the workers of a node have left. Workers only meet here when something is left.
#[derive(Debug)]
pub(in crate::cluster) struct Left {
    life: u64,
    /// The next number of a worker.
    next_worker: AtomicU32,
    /// Transactions, with the number of their program's table.
    transactions: Mutex<Vec<(u16, Id)>>,
    count: AtomicUsize,
}

/// A worker's numbers for transactions.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Ids {
    next: Cell<u64>,
}

/// The bits of a number that count the transactions of its worker.
const COUNT_BITS: u32 = 32;

impl Left {
    pub(in crate::cluster) fn new() -> Self {
        Self {
            life: RandomState::new().hash_one(std::process::id()),
            // The first number of a worker is not zero, which stands for none.
            next_worker: AtomicU32::new(1),
            transactions: Mutex::default(),
            count: AtomicUsize::new(0),
        }
    }

    /// Returns a number of this life of the node.
    pub(super) fn life(&self) -> u64 {
        self.life
    }

    /// Notes a transaction that may have to be finished.
    #[cold]
    pub(super) fn note(&self, table: u16, id: Id) {
        self.transactions.lock().push((table, id));
        self.count.fetch_add(1, Relaxed);
    }

    /// Returns whether there may be something left.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// Takes a transaction of a program.
    pub(super) fn take(&self, table: u16) -> Option<Id> {
        let mut transactions = self.transactions.lock();
        let place = transactions.iter().position(|(of, _)| *of == table)?;
        self.count.fetch_sub(1, Relaxed);
        Some(transactions.swap_remove(place).1)
    }
}

impl Ids {
    /// Returns the life of the node, and a number that no other transaction of it has.
    pub(super) fn next(&self, left: &Left) -> (u64, u64) {
        let mut next = self.next.get();
        if next << COUNT_BITS == 0 {
            next = u64::from(left.next_worker.fetch_add(1, Relaxed)) << COUNT_BITS | 1;
        }
        self.next.set(next + 1);
        (left.life, next)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_transactions_of_a_node_have_one_number() {
        let left = Left::new();
        let workers = [Ids::default(), Ids::default()];
        // One that has used all of its numbers gets others.
        workers[1].next.set((1 << 60) | (u64::from(u32::MAX) - 1));
        let numbers = |_| workers.iter().map(|ids| ids.next(&left)).collect::<Vec<_>>();
        let all: BTreeSet<_> = (0..100).flat_map(numbers).collect();
        assert_eq!(all.len(), 200);
        assert!(all.iter().all(|(life, _)| *life == left.life()));
    }
}
