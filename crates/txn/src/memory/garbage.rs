//! Garbage: what transactions leave behind, until it can be reclaimed.
//!
//! A removed row leaves its record, which marks the key as absent. So does an insertion that was
//! undone. The transaction that leaves the record usually removes it at once. While another
//! transaction has it locked, or its lines (see `docs/hades.md`), or a snapshot may need its older
//! versions, it is queued here and tried again later. A record whose key has been given a value
//! since is no garbage any more.
//!
//! The rows of a dropped table are removed when every transaction that may use them has ended.
//!
//! Older versions are freed when the row is written next, or else here, after the snapshots that
//! needed them are closed.
//!
//! Handles of rows with older versions are used without a lookup. So the memory of their records is
//! not divided anew while an entry exists that is older than its retirement. Entries are counted by
//! their *age*, of which there are two at a time (see `quiescence`).
//!
//! All threads share one queue, since a thread may end before its garbage is reclaimed. Little is
//! queued unless snapshots are open (see `reclaim`).

use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire},
};

use crossbeam_queue::SegQueue;
use drtm_kv::{Handle, ReadEntry, Version};
use smallvec::SmallVec;

use crate::memory::storage::OwnedKey;

/// Something that cannot be reclaimed yet.
#[derive(Debug)]
pub(crate) enum Garbage {
    /// The record of a row that is gone.
    Row { table: u16, key: OwnedKey, seen: ReadEntry },
    /// Older versions of rows, which may be needed as long as a snapshot is open that does not see
    /// this version.
    Past { rows: Rows, until: Version, age: u64 },
    /// The rows of a table that this change of the schema dropped.
    Table { table: u16, at: u64 },
}

/// A few rows that one commit has written. A retry prefetches all of them first, since they are
/// probably in another processor's cache.
pub(crate) type Rows = SmallVec<[Handle; MOST_ROWS]>;

const MOST_ROWS: usize = 14;

/// The garbage of all threads.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    left: SegQueue<Garbage>,
    age: AtomicU64,
    /// Entries with handles, by their age, which is even or odd.
    handles: [AtomicU64; 2],
}

impl Queue {
    pub(crate) fn push(&self, left: Garbage) {
        self.left.push(left);
    }

    pub(crate) fn pop(&self) -> Option<Garbage> {
        self.left.pop()
    }

    pub(crate) fn len(&self) -> usize {
        self.left.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    fn count(&self, age: u64) -> &AtomicU64 {
        &self.handles[(age % 2) as usize]
    }

    /// Begins an entry with handles. Returns its age.
    fn begin(&self) -> u64 {
        let age = self.age.load(Acquire);
        self.count(age).fetch_add(1, AcqRel);
        age
    }

    /// Ends an entry of this age, which is not in the queue any more.
    pub(crate) fn end(&self, age: u64) {
        self.count(age).fetch_sub(1, AcqRel);
    }

    /// Lets entries that begin from now on have another age. Returns the age before; `None` if
    /// there are entries that are older still.
    pub(crate) fn grow_older(&self) -> Option<u64> {
        let age = self.age.load(Acquire);
        let is_drained = self.is_drained_of(age + 1);
        // One thread at a time asks.
        is_drained.then(|| self.age.fetch_add(1, AcqRel))
    }

    /// Returns whether no entry of this age is left.
    pub(crate) fn is_drained_of(&self, age: u64) -> bool {
        self.count(age).load(Acquire) == 0
    }
}

/// Rows that a commit is writing, as they get older versions, on their way to what is left.
#[derive(Debug)]
pub(crate) struct NewPast<'q> {
    left: &'q Queue,
    rows: Rows,
    until: Version,
    age: u64,
}

impl<'q> NewPast<'q> {
    /// Creates an empty list. All rows are written in one epoch, so any of their versions says
    /// until when all of them may be needed.
    pub(crate) fn new(left: &'q Queue) -> Self {
        Self { left, rows: Rows::new(), until: Version::default(), age: 0 }
    }

    /// Adds a row, whose present version is `until`.
    pub(crate) fn add(&mut self, at: Handle, until: Version) {
        if self.rows.len() == MOST_ROWS {
            self.leave();
        }
        if self.rows.is_empty() {
            self.age = self.left.begin();
        }
        self.until = until;
        self.rows.push(at);
    }

    fn leave(&mut self) {
        let rows = std::mem::take(&mut self.rows);
        self.left.push(Garbage::Past { rows, until: self.until, age: self.age });
    }
}

/// Also when the commit has come upon a corrupt store in between.
impl Drop for NewPast<'_> {
    fn drop(&mut self) {
        if !self.rows.is_empty() {
            self.leave();
        }
    }
}
