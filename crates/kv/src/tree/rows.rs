//! The rows of one leaf that a scan has not reached yet, and the prefetching of their records.
//!
//! Records are scattered over memory, so the processor has to translate the address of each, from
//! page tables that are in memory themselves. It translates several at the same time if they are
//! accessed at the same time. So all records of a leaf are prefetched together, halfway through the
//! previous leaf. They are prefetched into the second-level cache, as the first cannot track so
//! many lines.

use drtm_htm::{Engine, LINE_WORDS};
use drtm_rdma::{Region, words_for};
use smallvec::SmallVec;

use super::{
    NodeVersion,
    node::{Node, Seen},
};
use crate::{
    record::HEADER_WORDS,
    store::{bounds::MODEL, layout::Place},
};

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Up,
    Down,
}

/// The destination of the leaves that a scan passes: a vector, or none.
pub trait Passed {
    /// Adds a leaf, with the version that it had.
    fn add(&mut self, leaf: NodeVersion);
}

impl Passed for Vec<NodeVersion> {
    #[inline(always)]
    fn add(&mut self, leaf: NodeVersion) {
        self.push(leaf);
    }
}

impl Passed for SmallVec<[NodeVersion; 4]> {
    #[inline(always)]
    fn add(&mut self, leaf: NodeVersion) {
        self.push(leaf);
    }
}

/// Drops the leaves, for scans of the past, which cannot change.
impl Passed for () {
    #[inline(always)]
    fn add(&mut self, _leaf: NodeVersion) {}
}

/// How much a scan prefetches.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    /// How many rows the scan will probably still read.
    rest: usize,
    /// How many cache lines of a record are prefetched.
    lines: usize,
}

/// The most lines of a record that are prefetched. The processor's own prefetcher fetches the rest.
const MOST_LINES: usize = 3;

impl Default for Ahead {
    /// Returns the setting for many rows with values of a hundred bytes.
    fn default() -> Self {
        Self::of(usize::MAX, 100)
    }
}

impl Ahead {
    /// Returns the setting for this many rows with values of this many bytes.
    pub(super) fn of(rows: usize, bytes: usize) -> Self {
        // The model checker has no caches, and would treat each prefetch as one more load to
        // interleave.
        let rest = if MODEL { 0 } else { rows };
        Self { rest, lines: (HEADER_WORDS + words_for(bytes)).div_ceil(LINE_WORDS).min(MOST_LINES) }
    }

    /// Returns whether the scan needs rows behind the next `left` ones.
    #[inline(always)]
    pub(super) fn goes_beyond(self, left: usize) -> bool {
        left < self.rest
    }

    /// Prefetches the records of the leaf that is probably next, up to the range's last key, as far
    /// as rows are needed behind `left` others.
    #[inline(never)]
    fn prefetch_leaf<E: Engine>(self, region: &Region<E>, leaf: Node<'_, E>, last: u64, left: usize) {
        let rows = leaf.up_to(leaf.stamp().count(), last).min(self.rest.saturating_sub(left));
        self.ask(region, leaf, (0, 1), rows);
    }

    /// Prefetches the records of `rows` entries of a leaf, from a slot on.
    #[inline(always)]
    fn ask<E: Engine>(self, region: &Region<E>, leaf: Node<'_, E>, (slot, step): (usize, u64), rows: usize) {
        for row in 0..rows {
            let slot = slot.wrapping_add(row.wrapping_mul(step as usize));
            let record = Place::from_link(leaf.link_or_nonsense(slot)).word;
            // A record's line may be out of bounds at the end of the region, and is not prefetched
            // then.
            for line in 0..MOST_LINES {
                if line < self.lines {
                    region.prefetch_later(record + (line * LINE_WORDS) as u64);
                }
            }
        }
    }
}

/// The rows that are left: few enough words that a loop can keep them in registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    /// The step from a key or a slot to the next: one, or minus one.
    pub(super) step: u64,
    /// The next key that there can be.
    pub(super) next: u64,
    /// The slot of the next row, and how many rows are left.
    slot: usize,
    left: usize,
    /// When this many rows are left, those of the next leaf are prefetched.
    halfway: usize,
    /// Whether that has been done.
    has_asked: bool,
    pub(super) ahead: Ahead,
}

impl Rows {
    /// Makes an empty set of rows, of a range that begins with this key.
    pub(super) fn none(step: u64, next: u64) -> Self {
        Self { step, next, slot: 0, left: 0, halfway: 0, has_asked: false, ahead: Ahead::default() }
    }

    #[inline(always)]
    pub(super) fn are_there(self) -> bool {
        self.left > 0
    }

    /// Drops the rows that are left.
    pub(super) fn end(&mut self) {
        self.left = 0;
    }

    /// Begins with the rows of another leaf, which may be the expected one. Prefetches their
    /// records unless that has been done.
    pub(super) fn begin<E: Engine>(
        &mut self,
        region: &Region<E>,
        leaf: Node<'_, E>,
        is_expected: bool,
        next: u64,
        (slot, left): (usize, usize),
    ) {
        (self.next, self.slot, self.left) = (next, slot, left);
        let rows = left.min(self.ahead.rest);
        // A single row is read at once anyway.
        if !(is_expected && self.has_asked) && rows > 1 {
            self.ahead.ask(region, leaf, (slot, self.step), rows);
        }
        (self.halfway, self.has_asked) = (left / 2, false);
    }

    /// Returns the next entry of the leaf. `None`: the leaf has changed. The leaf must have a next
    /// entry. Halfway, prefetches the records of the next leaf, up to the range's last key.
    #[inline(always)]
    pub(super) fn take<'t, E: Engine + 't>(
        &mut self,
        region: &Region<E>,
        leaf: Seen<'_, E>,
        next_leaf: impl FnOnce() -> Option<(Node<'t, E>, u64)>,
    ) -> Option<(u64, u64)> {
        let entry = leaf.node.entry(self.slot);
        if !leaf.node.still(leaf.stamp) {
            return None;
        }
        self.left -= 1;
        self.slot = self.slot.wrapping_add(self.step as usize);
        self.next = entry.0.wrapping_add(self.step);
        self.ahead.rest = self.ahead.rest.saturating_sub(1);
        if self.left == self.halfway
            && self.ahead.goes_beyond(self.left)
            && let Some((leaf, last)) = next_leaf()
        {
            self.has_asked = true;
            self.ahead.prefetch_leaf(region, leaf, last, self.left);
        }
        Some(entry)
    }
}
