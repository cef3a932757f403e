//! Requests of clients, and their results.

use std::ops::Range;

use drtm_history::Outcome;
use serde::{Deserialize, Serialize};

/// A transaction as its client observed it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Observed {
    /// The client, which runs one transaction at a time.
    pub(crate) process: usize,
    /// When it was invoked, in nanoseconds.
    pub(crate) invoked: u64,
    /// When its client learnt the outcome. Meaningless if the outcome is unknown.
    pub(crate) completed: u64,
    pub(crate) outcome: Outcome,
    /// Its operations, in order. Results of reads count only if the transaction committed.
    pub(crate) operations: Vec<Operation>,
}

/// One operation of a transaction. Its result is empty until it completes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Operation {
    /// Appends a value to a list.
    Append { key: u64, value: u64 },
    /// Reads a whole list.
    List { key: u64, seen: Vec<u64> },
    /// Reads a register.
    Read { key: u64, seen: Option<u64> },
    /// Writes a register that the transaction has read. `version` orders the writes of a register;
    /// it is 0 until the write.
    Write { key: u64, value: u64, version: u64 },
    /// Removes a register that the transaction has read. `version` is 0 if the register is absent.
    Remove { key: u64, version: u64 },
    /// Reads all registers in a range of keys.
    Scan { keys: Range<u64>, seen: Vec<(u64, u64)> },
}

impl Operation {
    /// Returns the key, or the first of a range.
    pub(crate) fn key(&self) -> u64 {
        match self {
            Self::Append { key, .. }
            | Self::List { key, .. }
            | Self::Read { key, .. }
            | Self::Write { key, .. }
            | Self::Remove { key, .. } => *key,
            Self::Scan { keys, .. } => keys.start,
        }
    }

    /// Returns whether it is a write.
    pub(crate) fn writes(&self) -> bool {
        matches!(self, Self::Append { .. } | Self::Write { .. } | Self::Remove { .. })
    }
}
