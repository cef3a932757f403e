//! Draws random transactions.

use clap::ValueEnum;
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::record::Operation;

/// The kind of transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// Append to lists, and read whole lists: each read shows the order of all appends before it
    #[default]
    ListAppend,
    /// Read registers, and write registers that the transaction has read
    Register,
    /// Put, remove and read rows, and scan ranges of keys: detects phantoms
    Predicate,
}

/// Keys in use at one time: few, so that transactions conflict.
const KEYS: u64 = 8;

/// The number of transactions after which lists and registers move to other keys: lists stay short.
const GENERATION: u64 = 200;

/// Keys of the predicate workload, which never change. One leaf of a tree cannot hold all of them.
const ROWS: u64 = 48;

/// Draws the transactions of one client.
#[derive(Debug)]
pub(super) struct Draw {
    workload: Workload,
    pub(super) random: Rng,
    /// The next value to write. No other client writes it.
    next: u64,
    step: u64,
}

impl Draw {
    /// Creates the draw of client `number` of `clients`.
    pub(super) fn new(workload: Workload, seed: u64, number: usize, clients: usize) -> Self {
        Self { workload, random: Rng::with_seed(seed), next: number as u64 + 1, step: clients as u64 }
    }

    fn value(&mut self) -> u64 {
        let value = self.next;
        self.next += self.step;
        value
    }

    /// Draws approximately the `number`th transaction of all clients.
    pub(super) fn transaction(&mut self, number: u64) -> Vec<Operation> {
        let only_reads = self.random.u8(0..5) == 0;
        let mut operations = Vec::new();
        for _ in 0..self.random.u8(1..6) {
            let writes = !only_reads && self.random.bool();
            let key = number / GENERATION * KEYS + self.random.u64(0..KEYS);
            match self.workload {
                Workload::ListAppend if writes => operations.push(Operation::Append { key, value: self.value() }),
                Workload::ListAppend => operations.push(Operation::List { key, seen: Vec::new() }),
                Workload::Register if writes => self.write(key, &mut operations),
                Workload::Register => operations.push(Operation::Read { key, seen: None }),
                Workload::Predicate => self.of_rows(writes, &mut operations),
            }
        }
        operations
    }

    /// Draws the transaction again with new values, because no value may be written twice.
    pub(super) fn again(&mut self, operations: &[Operation]) -> Vec<Operation> {
        let renew = |operation: &Operation| match operation {
            Operation::Append { key, .. } => Operation::Append { key: *key, value: self.value() },
            Operation::List { key, .. } => Operation::List { key: *key, seen: Vec::new() },
            Operation::Read { key, .. } => Operation::Read { key: *key, seen: None },
            Operation::Write { key, .. } => Operation::Write { key: *key, value: self.value(), version: 0 },
            Operation::Remove { key, .. } => Operation::Remove { key: *key, version: 0 },
            Operation::Scan { keys, .. } => Operation::Scan { keys: keys.clone(), seen: Vec::new() },
        };
        operations.iter().map(renew).collect()
    }

    fn write(&mut self, key: u64, operations: &mut Vec<Operation>) {
        operations.push(Operation::Read { key, seen: None });
        operations.push(Operation::Write { key, value: self.value(), version: 0 });
    }

    fn of_rows(&mut self, writes: bool, operations: &mut Vec<Operation>) {
        let key = self.random.u64(0..ROWS);
        match (writes, self.random.u8(0..4)) {
            (true, 0 | 1) => self.write(key, operations),
            (true, _) => {
                operations.push(Operation::Read { key, seen: None });
                operations.push(Operation::Remove { key, version: 0 });
            }
            (false, 0) => operations.push(Operation::Read { key, seen: None }),
            (false, _) => {
                let keys = key..(key + self.random.u64(1..=ROWS / 2)).min(ROWS);
                operations.push(Operation::Scan { keys, seen: Vec::new() });
            }
        }
    }
}

impl Workload {
    /// Returns reads of all keys that the operations may have used.
    pub(super) fn last_reads_of<'o>(self, operations: impl Iterator<Item = &'o Operation>) -> Vec<Vec<Operation>> {
        let last = operations.map(Operation::key).max().unwrap_or(0);
        self.last_reads(last / KEYS * GENERATION)
    }

    /// Returns reads of all keys that `transactions` may have written.
    pub(super) fn last_reads(self, transactions: u64) -> Vec<Vec<Operation>> {
        let keys = 0..(transactions / GENERATION + 1) * KEYS;
        let all: Vec<Operation> = match self {
            Self::ListAppend => keys.map(|key| Operation::List { key, seen: Vec::new() }).collect(),
            Self::Register => keys.map(|key| Operation::Read { key, seen: None }).collect(),
            Self::Predicate => vec![Operation::Scan { keys: 0..ROWS, seen: Vec::new() }],
        };
        all.chunks(KEYS as usize).map(<[Operation]>::to_vec).collect()
    }
}
