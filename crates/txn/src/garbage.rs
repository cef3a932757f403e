//! What transactions leave behind, until nobody needs it any longer.
//!
//! A row that is removed leaves its record, which says that the key is not there; so does an
//! insertion that did not come about. Usually it is taken out at once by whoever left it. If
//! somebody has it locked just then, or may still ask what it was, it is kept in mind and tried
//! again later; if somebody has given the key a value meanwhile, it is garbage no more.
//!
//! The rows of a table that was dropped are taken out when transactions have ended that may use
//! them.
//!
//! Older versions are forgotten when the row is written next, or else here, when the snapshots that
//! needed them are closed.
//!
//! Handles of rows with older versions are used as they are. So memory in which their records were
//! is not cut anew as long as an entry is left that is older than its retirement: entries are
//! counted by their *age*, of which there are two at a time (see `quiescence`).
//!
//! What is left is in one queue for all threads, since the thread that left it may have ended.
//! There is little of it but while snapshots are open (see `reclaim`).

use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire},
};

use crossbeam_queue::SegQueue;
use drtm_kv::{Handle, ReadEntry, Version};
use smallvec::SmallVec;

use crate::storage::{OwnedKey, Tour};

/// Something that cannot be taken back yet.
#[derive(Debug)]
pub(crate) enum Garbage {
    /// The record of a row that is gone.
    Row { table: u16, key: OwnedKey, seen: ReadEntry },
    /// Older versions of rows, which may be needed as long as a snapshot is open that does not see
    /// this version.
    Past { rows: Rows, until: Version, age: u64 },
    /// The rows of a table that was dropped by this change of the terms, as far as a tour of them
    /// has not come to them.
    Table { table: u16, at: u64, tour: Option<Box<Tour>> },
}

/// A few rows that one commit has written: who looks at them again asks for the memory of all of
/// them first, as most probably it is in another processor's cache.
pub(crate) type Rows = SmallVec<[Handle; MOST_ROWS]>;

const MOST_ROWS: usize = 14;

/// What is left, whoever has left it.
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

    /// Whether no entry of this age is left.
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
    /// None yet. All are written in one epoch, so any of their versions tells of all until when
    /// they may be needed.
    pub(crate) fn new(left: &'q Queue) -> Self {
        Self { left, rows: Rows::new(), until: Version::default(), age: 0 }
    }

    /// This one, which has this version now.
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
