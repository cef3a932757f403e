//! Rows of one leaf that a scan is still to come to, and how their records are asked for before it
//! does.
//!
//! Records are all over memory, and where each is the processor has to look up first, in tables
//! that are in memory themselves. It looks up several at once if it comes to them at once. So all
//! records of a leaf are asked for together, halfway through the leaf before: into the second
//! cache, as the first cannot wait for so many lines.

use drtm_htm::{Engine, LINE_WORDS};
use drtm_rdma::{Region, words_for};
use smallvec::SmallVec;

use super::{
    NodeVersion,
    node::{Node, Seen},
};
use crate::{bounds::MODEL, layout::Place, record::HEADER_WORDS};

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Up,
    Down,
}

/// Where the leaves go that a scan passes: to a vector, or nowhere.
pub trait Passed {
    /// This one, as it was.
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

/// None is told: what was there in the past stays as it was.
impl Passed for () {
    #[inline(always)]
    fn add(&mut self, _leaf: NodeVersion) {}
}

/// What a scan asks for before it comes to it.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    /// How many rows the scan will probably still come to.
    rest: usize,
    /// How many cache lines of a record are asked for.
    lines: usize,
}

/// Of a greater record the processor will ask for the rest itself.
const MOST_LINES: usize = 3;

impl Default for Ahead {
    /// Many rows with values of a hundred bytes.
    fn default() -> Self {
        Self::of(usize::MAX, 100)
    }
}

impl Ahead {
    /// So many rows with values of so many bytes.
    pub(super) fn of(rows: usize, bytes: usize) -> Self {
        // The model checker has no caches, and would only take each load for one more that others
        // can come before or after.
        let rest = if MODEL { 0 } else { rows };
        Self { rest, lines: (HEADER_WORDS + words_for(bytes)).div_ceil(LINE_WORDS).min(MOST_LINES) }
    }

    /// Whether rows behind the next ones are wanted, of which there are so many.
    #[inline(always)]
    pub(super) fn goes_beyond(self, left: usize) -> bool {
        left < self.rest
    }

    /// Asks for the records of what is probably the next leaf, up to a range's last key, and as far
    /// as rows are wanted behind so many others.
    #[inline(never)]
    fn ask_for_leaf<E: Engine>(self, region: &Region<E>, leaf: Node<'_, E>, last: u64, left: usize) {
        let rows = leaf.up_to(leaf.stamp().count(), last).min(self.rest.saturating_sub(left));
        self.ask(region, leaf, (0, 1), rows);
    }

    /// Asks for the records that a leaf's entries lead to: of those from a slot on, so many.
    #[inline(always)]
    fn ask<E: Engine>(self, region: &Region<E>, leaf: Node<'_, E>, (slot, step): (usize, u64), rows: usize) {
        for row in 0..rows {
            let slot = slot.wrapping_add(row.wrapping_mul(step as usize));
            let record = Place::from_link(leaf.link_or_nonsense(slot)).word;
            // Behind the last record there may be less memory. Then there is no hint.
            for line in 0..MOST_LINES {
                if line < self.lines {
                    region.prefetch_later(record + (line * LINE_WORDS) as u64);
                }
            }
        }
    }
}

/// Rows that are still to come: so few words that a loop can keep them in registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    /// From a key or a slot to the next: one, or one less than zero.
    pub(super) step: u64,
    /// The next key that there can be.
    pub(super) next: u64,
    /// The slot of the next row, and how many there are.
    slot: usize,
    left: usize,
    /// When so many are left, those of the next leaf are asked for.
    halfway: usize,
    /// Whether that has been done.
    has_asked: bool,
    pub(super) ahead: Ahead,
}

impl Rows {
    /// None yet, of a range that begins with this key.
    pub(super) fn none(step: u64, next: u64) -> Self {
        Self { step, next, slot: 0, left: 0, halfway: 0, has_asked: false, ahead: Ahead::default() }
    }

    #[inline(always)]
    pub(super) fn are_there(self) -> bool {
        self.left > 0
    }

    /// There are none any more.
    pub(super) fn end(&mut self) {
        self.left = 0;
    }

    /// Begins with the rows of another leaf, which is the one that was expected or not, and asks
    /// for those that have not been asked for yet.
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
        // A single one is come to at once.
        if !(is_expected && self.has_asked) && rows > 1 {
            self.ahead.ask(region, leaf, (slot, self.step), rows);
        }
        (self.halfway, self.has_asked) = (left / 2, false);
    }

    /// The next entry of the leaf, of which there is one, if the leaf is as it was. Halfway, asks
    /// for the records of the next leaf, which is guessed, with the range's last key.
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
            self.ahead.ask_for_leaf(region, leaf, last, self.left);
        }
        Some(entry)
    }
}
