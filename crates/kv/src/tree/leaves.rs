//! Where a scan is among the leaves of a tree, or of one layer of it.
//!
//! It keeps no copies of rows: it knows its leaf, with the stamp that the leaf had, and which slots are still to come. An entry is read when it is come to, and is
//! believed if the leaf has the stamp still. If not, what is left of the range is looked for again, from behind the last key on.
//!
//! Records are all over memory, so some rows ahead are asked for before they are come to, and so is the next leaf: as far as the scan is expected to go.

use std::ops::{Bound, RangeBounds};

use drtm_htm::{Engine, LINE_WORDS};
use drtm_rdma::words_for;

use super::{
    NodeVersion, Table,
    node::{Known, Node, Seen},
    view::View,
};
use crate::{
    KvError,
    keys::Inline,
    layout::Place,
    record::{HEADER_WORDS, Look, Record},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Up,
    Down,
}

/// Whoever is told of the leaves that a scan passes.
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

/// Nobody is: what was there in the past stays as it was.
#[derive(Debug)]
pub(super) struct Untold;

impl Passed for Untold {
    #[inline(always)]
    fn add(&mut self, _leaf: NodeVersion) {}
}

/// How far a scan will probably go, and over how large rows.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    /// How many rows will probably be come to still.
    rest: usize,
    /// How many rows ahead a record is asked for.
    rows: usize,
    /// How many cache lines of it.
    lines: usize,
}

/// As many rows as the processor can wait for at once.
const MOST_ROWS: usize = if cfg!(drtm_loom) { 0 } else { 8 };

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
        let lines = (HEADER_WORDS + words_for(bytes)).div_ceil(LINE_WORDS);
        Self { rest: rows, rows: rows.saturating_sub(1).min(MOST_ROWS), lines }
    }
}

/// Where a scan is among leaves.
#[derive(Debug)]
pub struct Leaves {
    /// From a key or a slot to the next: one, or one less than zero.
    step: u64,
    /// The last key of the range.
    last: u64,
    /// The next key that there can be.
    next: u64,
    /// The leaf that rows are from.
    leaf: Known,
    /// The slot of its next row, and how many there are.
    slot: usize,
    left: usize,
    /// Where the range goes on behind these.
    beyond: Option<u64>,
    /// The place of the leaf that is probably next; zero if it is not known.
    hint: u64,
    pub(super) ahead: Ahead,
}

impl Leaves {
    pub(super) fn new(range: impl RangeBounds<u64>, direction: Direction) -> Self {
        let ends = ends(range).map(|(low, high)| match direction {
            Direction::Up => (low, high),
            Direction::Down => (high, low),
        });
        let (next, last) = ends.unwrap_or_default();
        let step = match direction {
            Direction::Up => 1,
            Direction::Down => u64::MAX,
        };
        let beyond = ends.map(|_| next);
        Self { step, last, next, leaf: Known::NOTHING, slot: 0, left: 0, beyond, hint: 0, ahead: Ahead::default() }
    }

    /// The next key behind the rows of the current leaf, if the range goes on.
    #[inline(always)]
    pub(super) fn beyond(&self) -> Option<u64> {
        self.beyond
    }

    /// The current leaf, as it was passed.
    pub(super) fn leaf(&self) -> Option<Known> {
        self.leaf.is_there().then_some(self.leaf)
    }

    /// The leaf that is probably next.
    pub(super) fn hint(&self) -> u64 {
        self.hint
    }

    #[inline(always)]
    pub(super) fn next<E: Engine, V: View>(
        &mut self,
        table: &Table<E>,
        passed: &mut impl Passed,
        view: &mut V,
    ) -> Result<Option<(u64, V::Found)>, KvError> {
        loop {
            while let Some((key, link)) = self.next_entry(table)? {
                let place = Place::from_link(link);
                if let Some(found) = view.glance(&Record::at(table.region(), place)?, key) {
                    return Ok(Some((key, found)));
                }
                if let Some(found) = table.look_at(place, key, view)? {
                    return Ok(Some((key, found)));
                }
            }
            let Some(next) = self.beyond else { return Ok(None) };
            self.go_on(table, next, passed)?;
        }
    }

    /// Goes on to the leaf of the next key.
    #[inline(never)]
    fn go_on<E: Engine>(&mut self, table: &Table<E>, next: u64, passed: &mut impl Passed) -> Result<(), KvError> {
        loop {
            let leaf = match table.leaf_at(self.hint, next)? {
                Some(leaf) => leaf,
                None => table.leaf(next)?,
            };
            if self.pass(table, leaf, passed) {
                return Ok(());
            }
        }
    }

    /// The next entry of the current leaf. If there is none, the range may go on [beyond](Self::beyond) it.
    #[inline(always)]
    pub(super) fn next_entry<E: Engine>(&mut self, table: &Table<E>) -> Result<Option<(u64, u64)>, KvError> {
        if self.left == 0 {
            return Ok(None);
        }
        let Seen { node, stamp } = self.leaf.seen(table)?;
        let entry = node.entry(self.slot);
        if !node.still(stamp) {
            self.lose();
            return Ok(None);
        }
        self.left -= 1;
        self.slot = self.slot.wrapping_add(self.step as usize);
        self.next = entry.0.wrapping_add(self.step);
        self.ahead.rest = self.ahead.rest.saturating_sub(1);
        self.look_ahead(table, node);
        Ok(Some(entry))
    }

    /// Forgets the current leaf, which has changed: what is left of it is beyond it then.
    #[cold]
    fn lose(&mut self) {
        (self.beyond, self.left, self.hint) = (Some(self.next), 0, 0);
    }

    /// Takes the rows of a leaf, to which the next key belongs, as far as the range goes. Not if the leaf has changed meanwhile.
    pub(super) fn pass<E: Engine>(&mut self, table: &Table<E>, leaf: Seen<'_, E>, passed: &mut impl Passed) -> bool {
        let Some(next) = self.beyond else { return true };
        let Seen { node, stamp } = leaf;
        let (count, last) = (stamp.count(), self.last);
        let (slot, left, beyond, hint);
        if self.step == 1 {
            let (high, from) = (node.high(), node.below(count, next));
            let goes_on = high < last;
            let end = if goes_on { count } else { node.up_to(count, last) };
            (slot, left) = (from, end.saturating_sub(from));
            (beyond, hint) = if goes_on { (Some(high + 1), node.right()) } else { (None, 0) };
        } else {
            let (low, end) = (node.low(), node.up_to(count, next));
            let goes_on = low > last;
            let from = if goes_on { 0 } else { node.below(count, last) };
            (slot, left) = (end.wrapping_sub(1), end.saturating_sub(from));
            (beyond, hint) = (goes_on.then(|| low - 1), 0);
        }
        if !node.still(stamp) {
            // It may be another layer's by now, and so may its neighbour.
            self.hint = 0;
            return false;
        }
        passed.add(NodeVersion::of(&leaf));
        (self.leaf, self.slot, self.left, self.next) = (Known::of(leaf), slot, left, next);
        (self.beyond, self.hint) = (beyond, hint);
        self.look_around(table, node);
        true
    }

    /// Asks for the first rows of a leaf, and for the next leaf.
    fn look_around<E: Engine>(&self, table: &Table<E>, node: Node<'_, E>) {
        let mut slot = self.slot;
        for _ in 0..self.left.min(self.ahead.rows).min(self.ahead.rest) {
            self.ask(table, node.link(slot));
            slot = slot.wrapping_add(self.step as usize);
        }
        if self.hint != 0 && self.ahead.rows > 0 && self.left < self.ahead.rest {
            // Only a hint, so an error is not one yet.
            let _ = table.node_at(self.hint).map(Node::prefetch);
        }
    }

    /// Asks for the record of a row that will be come to a little later, in this leaf or, as far as can be guessed, in the next.
    #[inline(always)]
    fn look_ahead<E: Engine>(&self, table: &Table<E>, node: Node<'_, E>) {
        let Some(behind) = self.ahead.rows.checked_sub(1) else { return };
        if behind >= self.ahead.rest {
            return;
        }
        if behind < self.left {
            self.ask(table, node.link(self.slot.wrapping_add(behind.wrapping_mul(self.step as usize))));
        } else if self.hint != 0
            && let Ok(leaf) = table.node_at(self.hint)
        {
            self.ask(table, leaf.link(behind - self.left));
        }
    }

    /// Asks for the memory of the record, or the layer's root, that an entry leads to.
    #[inline(always)]
    fn ask<E: Engine>(&self, table: &Table<E>, link: u64) {
        let record = Place::from_link(link).word;
        // Behind the last record there may be less memory. Then there is no hint.
        for line in 0..MOST_LINES {
            if line < self.ahead.lines {
                table.region().prefetch(record + (line * LINE_WORDS) as u64);
            }
        }
    }
}

/// The lowest and the highest key of a range; `None` if there is no key in it.
fn ends(range: impl RangeBounds<u64>) -> Option<(u64, u64)> {
    let low = match range.start_bound() {
        Bound::Included(key) => *key,
        Bound::Excluded(key) => key.checked_add(1)?,
        Bound::Unbounded => 0,
    };
    let high = match range.end_bound() {
        Bound::Included(key) => *key,
        Bound::Excluded(key) => key.checked_sub(1)?,
        Bound::Unbounded => u64::MAX,
    };
    (low <= high).then_some((low, high))
}

impl<E: Engine> Table<E> {
    /// The leaf at this place, if it is one, and the key belongs there: if it [still](Node::still) is what it was when that was asked.
    #[inline(always)]
    pub(super) fn leaf_at(&self, place: u64, key: u64) -> Result<Option<Seen<'_, E>>, KvError> {
        if place == 0 {
            return Ok(None);
        }
        let node = self.node(place)?;
        let stamp = node.stamp();
        let is_it = stamp.is_readable() && stamp.level() == 0 && (node.low()..=node.high()).contains(&key);
        Ok(is_it.then_some(Seen { node, stamp }))
    }

    /// Shows the record that was the key's, or the one that is now. `None`: there is none any more.
    #[cold]
    #[inline(never)]
    fn look_at<V: View>(&self, place: Place, key: u64, view: &mut V) -> Result<Option<V::Found>, KvError> {
        let record = Record::at(self.region(), place)?;
        let waiting = self.patience.begin();
        loop {
            match view.row(&record, key)? {
                Look::Found(found) => return Ok(Some(found)),
                Look::Absent => return Ok(None),
                Look::Stale | Look::Other => break,
                Look::Busy => waiting.pause()?,
            }
        }
        Ok(self.search::<Inline, _>(key, |record| view.row(record, key))?.ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_without_keys_have_no_ends() {
        assert_eq!(ends(..), Some((0, u64::MAX)));
        assert_eq!(ends(3..7), Some((3, 6)));
        assert_eq!(ends((Bound::Excluded(3), Bound::Included(7))), Some((4, 7)));
        assert_eq!(ends(..0), None);
        assert_eq!(ends((Bound::Excluded(u64::MAX), Bound::Unbounded)), None);
        assert_eq!(ends((Bound::Excluded(3), Bound::Excluded(4))), None);
    }
}
