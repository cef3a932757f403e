//! Rows of one leaf that a scan is still to come to, and how their records are asked for before it does.
//!
//! Records are all over memory, so each row's is asked for some rows ahead of it, into the second cache: the first cannot wait for so many lines, and a
//! scan would.

use drtm_htm::{Engine, LINE_WORDS};
use drtm_rdma::{Region, words_for};

use super::node::{Node, Seen};
use crate::{layout::Place, record::HEADER_WORDS};

/// What a scan asks for before it comes to it.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    /// How many rows the scan will probably still come to.
    rest: usize,
    /// The record of the row that is so many rows further on is asked for; of none if zero.
    rows: usize,
    /// How many cache lines of it.
    lines: usize,
}

/// How long memory takes, in rows.
const MOST_ROWS: usize = if cfg!(drtm_loom) { 0 } else { 12 };

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
        let lines = (HEADER_WORDS + words_for(bytes)).div_ceil(LINE_WORDS).min(MOST_LINES);
        Self { rest: rows, rows: rows.saturating_sub(1).min(MOST_ROWS), lines }
    }

    /// Whether rows behind the next ones are wanted, of which there are so many.
    pub(super) fn goes_beyond(self, left: usize) -> bool {
        self.rows > 0 && left < self.rest
    }

    /// Asks for the memory of the record, or the layer's root, that an entry leads to.
    #[inline(always)]
    fn ask<E: Engine>(self, region: &Region<E>, link: u64) {
        let record = Place::from_link(link).word;
        // Behind the last record there may be less memory. Then there is no hint.
        for line in 0..MOST_LINES {
            if line < self.lines {
                region.prefetch_later(record + (line * LINE_WORDS) as u64);
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
    /// How many of the next leaf's first rows are too near to be asked for from here.
    unasked: usize,
    pub(super) ahead: Ahead,
}

impl Rows {
    /// None yet, of a range that begins with this key.
    pub(super) fn none(step: u64, next: u64) -> Self {
        Self { step, next, slot: 0, left: 0, unasked: usize::MAX, ahead: Ahead::default() }
    }

    #[inline(always)]
    pub(super) fn are_there(self) -> bool {
        self.left > 0
    }

    /// There are none any more.
    pub(super) fn end(&mut self) {
        self.left = 0;
    }

    /// Begins with the rows of another leaf, which is the one that was expected or not, and asks for those that have not been asked for yet.
    pub(super) fn begin<E: Engine>(
        &mut self,
        region: &Region<E>,
        leaf: Node<'_, E>,
        is_expected: bool,
        next: u64,
        (slot, left): (usize, usize),
    ) {
        (self.next, self.slot, self.left) = (next, slot, left);
        let Ahead { rest, rows, .. } = self.ahead;
        let unasked = if is_expected { self.unasked } else { usize::MAX };
        self.unasked = rows.saturating_sub(left);
        for row in 0..left.min(rows).min(rest).min(unasked) {
            self.ahead.ask(region, leaf.link_or_nonsense(self.further(row)));
        }
    }

    /// The next entry of the leaf, of which there is one, if the leaf is as it was. Asks for a record in this leaf or, as far as can be guessed, in the next.
    #[inline(always)]
    pub(super) fn take<'t, E: Engine + 't>(
        &mut self,
        region: &Region<E>,
        leaf: Seen<'_, E>,
        next_leaf: impl FnOnce() -> Option<Node<'t, E>>,
    ) -> Option<(u64, u64)> {
        let entry = leaf.node.entry(self.slot);
        if !leaf.node.still(leaf.stamp) {
            return None;
        }
        self.left -= 1;
        self.slot = self.further(1);
        self.next = entry.0.wrapping_add(self.step);
        self.ahead.rest = self.ahead.rest.saturating_sub(1);
        // Where there is none to be asked for, it is very far away.
        let row = self.ahead.rows.wrapping_sub(1);
        if row < self.ahead.rest {
            if row < self.left {
                self.ahead.ask(region, leaf.node.link_or_nonsense(self.further(row)));
            } else if let Some(leaf) = next_leaf() {
                self.ahead.ask(region, leaf.link_or_nonsense(row - self.left));
            }
        }
        Some(entry)
    }

    /// The slot that is so many rows further on.
    #[inline(always)]
    fn further(self, rows: usize) -> usize {
        self.slot.wrapping_add(rows.wrapping_mul(self.step as usize))
    }
}
