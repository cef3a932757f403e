//! A worker's slots, as it knows them itself.

use std::cell::RefCell;

use drtm_htm::Engine;
use drtm_rdma::{NvWriter, Offset};
use rustc_hash::FxHashMap;

use super::{RECORDS_AT, SlotState};

/// A worker's slots.
#[derive(Debug)]
pub(in crate::cluster) struct Slots<E: Engine> {
    pub(super) writer: RefCell<Option<NvWriter<E>>>,
    /// By the names of their transactions.
    pub(super) slots: RefCell<FxHashMap<u64, Slot>>,
}

impl<E: Engine> Default for Slots<E> {
    fn default() -> Self {
        Self { writer: RefCell::default(), slots: RefCell::default() }
    }
}

/// A slot, as its coordinator knows it.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) at: Offset,
    pub(super) state: SlotState,
    /// The rows that the lock-ahead log names, by their numbers.
    pub(super) named: Vec<u32>,
    /// How long it is.
    pub(super) length: usize,
}

impl Slot {
    /// Returns where its records are that begin so many bytes behind the first.
    pub(super) fn records(&self, bytes: usize) -> Offset {
        self.at + RECORDS_AT + bytes as u64
    }
}
