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
//! What is left is in one queue for all threads, since the thread that left it may have ended.
//! There is little of it but while snapshots are open (see `reclaim`).

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
    Past { rows: Rows, until: Version },
    /// The rows of a table that was dropped by this change of the terms, as far as a tour of them
    /// has not come to them.
    Table { table: u16, at: u64, tour: Option<Box<Tour>> },
}

/// A few rows that one commit has written: who looks at them again asks for the memory of all of
/// them first, as most probably it is in another processor's cache.
pub(crate) type Rows = SmallVec<[Handle; MOST_ROWS]>;

const MOST_ROWS: usize = 14;

/// What is left, whoever has left it.
pub(crate) type Queue = SegQueue<Garbage>;

/// Rows that a commit is writing, as they get older versions, on their way to what is left.
#[derive(Debug)]
pub(crate) struct NewPast<'q> {
    left: &'q Queue,
    rows: Rows,
    until: Version,
}

impl<'q> NewPast<'q> {
    /// None yet. All are written in one epoch, so any of their versions tells of all until when
    /// they may be needed.
    pub(crate) fn new(left: &'q Queue) -> Self {
        Self { left, rows: Rows::new(), until: Version::default() }
    }

    /// This one, which has this version now.
    pub(crate) fn add(&mut self, at: Handle, until: Version) {
        if self.rows.len() == MOST_ROWS {
            self.leave();
        }
        self.until = until;
        self.rows.push(at);
    }

    fn leave(&mut self) {
        let rows = std::mem::take(&mut self.rows);
        self.left.push(Garbage::Past { rows, until: self.until });
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
