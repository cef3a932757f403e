//! The position of a scan among the leaves of a tree, or of one layer of it.
//!
//! It keeps no copies of rows. It has its leaf, with the stamp that the leaf had, and the slots
//! that are left. An entry is read when the scan reaches it, and is valid if the leaf's stamp is
//! unchanged. If not, the scan looks up the rest of the range again, from behind the last key.

use std::{
    hint::cold_path,
    ops::{Bound, ControlFlow, RangeBounds},
};

use drtm_htm::Engine;

use super::{
    NodeVersion, Table,
    kind::Way,
    node::{Known, Node, Seen},
    rows::{Ahead, Direction, Passed, Rows},
};
use crate::{
    KvError, Turn, Visibility,
    record::{
        FoundRow, KeyWord, Look, Record,
        keys::{Inline, Keys},
        value_sink::ValueSink,
    },
    store::layout::Place,
};

/// The position of a scan among leaves.
#[derive(Debug)]
pub struct Leaves {
    /// The last key of the range.
    last: u64,
    /// The leaf that the rows are from.
    leaf: Known,
    /// The leaf's rows.
    rows: Rows,
    /// The key at which the range continues behind these rows.
    beyond: Option<u64>,
    /// The place of the leaf that is probably next. Zero: it is not known.
    hint: u64,
}

impl Way<Inline> for Leaves {
    fn new<'k>(range: impl RangeBounds<<Inline as Keys>::Key<'k>>, direction: Direction) -> Self {
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
        Self { last, leaf: Known::NOTHING, rows: Rows::none(step, next), beyond, hint: 0 }
    }

    fn expect(&mut self, ahead: Ahead) {
        self.rows.ahead = ahead;
    }

    fn skip_to(&mut self, key: Bound<u64>) {
        let (is_up, last) = (self.rows.step == 1, self.last);
        let next = match key {
            Bound::Included(key) => Some(key),
            Bound::Excluded(key) if is_up => key.checked_add(1),
            Bound::Excluded(key) => key.checked_sub(1),
            Bound::Unbounded => return,
        };
        self.rows.end();
        (self.leaf, self.hint) = (Known::NOTHING, 0);
        self.beyond = next.filter(|next| if is_up { *next <= last } else { *next >= last });
    }

    fn reverse(&mut self) {
        // What is left begins behind the last row: there may be new ones before the next.
        if self.has_more() {
            self.renew();
        }
        let Rows { step, next, ahead, .. } = self.rows;
        let mut rows = Rows::none(step.wrapping_neg(), self.last);
        rows.ahead = ahead;
        let (last, beyond) = (self.beyond.unwrap_or(next), self.beyond.map(|_| self.last));
        *self = Self { last, leaf: Known::NOTHING, rows, beyond, hint: 0 };
    }

    fn renew(&mut self) {
        if !self.leaf.is_there() {
            return;
        }
        let (step, next) = (self.rows.step, self.rows.next);
        self.rows.end();
        (self.leaf, self.hint) = (Known::NOTHING, 0);
        self.beyond = (next.wrapping_sub(step) != self.last).then_some(next);
    }

    #[inline(always)]
    fn next<E: Engine, V: Visibility>(
        &mut self,
        table: &Table<E>,
        passed: &mut impl Passed,
        view: &mut V,
        value: &mut impl ValueSink,
    ) -> Result<Option<FoundRow<u64, V>>, KvError> {
        loop {
            let mut since = table.since::<V>();
            while let Some((key, link)) = self.next_entry(table)? {
                if let Some(found) = table.row_since((key, link), since, view, value)? {
                    return Ok(Some((key, found)));
                }
                since = table.since::<V>();
            }
            let Some(next) = self.beyond else { return Ok(None) };
            self.advance(table, next, passed)?;
        }
    }

    #[inline(always)]
    fn each<E: Engine, V: Visibility, R: ValueSink>(
        &mut self,
        table: &Table<E>,
        passed: &mut impl Passed,
        view: &mut V,
        value: &mut R,
        mut show: impl FnMut(u64, V::Found, &mut R) -> ControlFlow<()>,
    ) -> Result<(), KvError> {
        loop {
            if self.rows.are_there() {
                let mut rows = self.rows;
                let flow = self.each_of(&mut rows, table, view, value, &mut show);
                self.rows = rows;
                if flow?.is_break() {
                    return Ok(());
                }
            }
            let Some(next) = self.beyond else { return Ok(()) };
            self.advance(table, next, passed)?;
        }
    }
}

impl Leaves {
    /// Returns the next key behind the rows of the current leaf. `None`: the range ends there.
    #[inline(always)]
    pub(super) fn beyond(&self) -> Option<u64> {
        self.beyond
    }

    /// Returns whether the scan is not complete.
    pub(super) fn has_more(&self) -> bool {
        self.rows.are_there() || self.beyond.is_some()
    }

    /// Returns the current leaf, as it was passed.
    pub(super) fn leaf(&self) -> Option<Known> {
        self.leaf.is_there().then_some(self.leaf)
    }

    /// Returns the place of the leaf that is probably next.
    pub(super) fn hint(&self) -> u64 {
        self.hint
    }

    /// Moves to the leaf of the next key.
    #[inline(never)]
    fn advance<E: Engine>(&mut self, table: &Table<E>, next: u64, passed: &mut impl Passed) -> Result<(), KvError> {
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

    /// Calls `show` with the rows of the current leaf, one after the other.
    #[inline(always)]
    fn each_of<E: Engine, V: Visibility, R: ValueSink>(
        &mut self,
        rows: &mut Rows,
        table: &Table<E>,
        view: &mut V,
        value: &mut R,
        mut show: impl FnMut(u64, V::Found, &mut R) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, KvError> {
        let (region, leaf, next_leaf) =
            (table.region(), self.leaf.seen(table)?, next_leaf(table, self.hint, self.last));
        while rows.are_there() {
            let since = table.since::<V>();
            let Some((key, link)) = rows.take(region, leaf, || next_leaf) else {
                self.lose(rows);
                break;
            };
            let Some(found) = table.row_since((key, link), since, view, value)? else { continue };
            if show(key, found, value).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the next entry of the current leaf. `None`: it has no more, and the range may
    /// continue [beyond](Self::beyond) it.
    #[inline(always)]
    pub(super) fn next_entry<E: Engine>(&mut self, table: &Table<E>) -> Result<Option<(u64, u64)>, KvError> {
        if !self.rows.are_there() {
            return Ok(None);
        }
        let Self { hint, last, .. } = *self;
        let entry = self.rows.take(table.region(), self.leaf.seen(table)?, || next_leaf(table, hint, last));
        if entry.is_none() {
            let mut rows = self.rows;
            self.lose(&mut rows);
            self.rows = rows;
        }
        Ok(entry)
    }

    /// Drops the current leaf, which has changed. The rest of its rows is beyond it then.
    #[cold]
    fn lose(&mut self, rows: &mut Rows) {
        (self.beyond, self.hint) = (Some(rows.next), 0);
        rows.end();
    }

    /// Takes the rows of a leaf, to which the next key belongs, as far as the range goes. Returns
    /// false if the leaf has changed meanwhile.
    pub(super) fn pass<E: Engine>(&mut self, table: &Table<E>, leaf: Seen<'_, E>, passed: &mut impl Passed) -> bool {
        let Some(next) = self.beyond else { return true };
        let Seen { node, stamp } = leaf;
        let (count, last) = (stamp.count(), self.last);
        let (slot, left, beyond, hint);
        if self.rows.step == 1 {
            // Most leaves are entered at their lowest key.
            let from = if next <= node.low() { 0 } else { node.below(count, next) };
            let high = node.high();
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
            // The leaf and its neighbour may belong to another layer by now.
            self.hint = 0;
            return false;
        }
        passed.add(NodeVersion::of(&leaf));
        let is_expected = node.place == self.hint;
        (self.leaf, self.beyond, self.hint) = (Known::of(leaf), beyond, hint);
        // Prefetched before this leaf's records, since it leads to more records.
        if self.rows.ahead.goes_beyond(left)
            && let Some((leaf, _)) = next_leaf(table, hint, last)
        {
            leaf.prefetch();
        }
        self.rows.begin(table.region(), node, is_expected, next, (slot, left));
        true
    }
}

/// Returns the leaf that is probably next, and the last key of the range.
#[inline(always)]
fn next_leaf<E: Engine>(table: &Table<E>, hint: u64, last: u64) -> Option<(Node<'_, E>, u64)> {
    // An error is ignored: this is only a hint.
    if hint == 0 { None } else { Some((table.node_at(hint).ok()?, last)) }
}

/// Returns the lowest and the highest key of a range. `None`: the range is empty.
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
    /// Returns the leaf at this place. `None`: the place has no leaf, or the key does not belong to
    /// it. The caller must [validate](Node::still) the leaf.
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

    /// Returns the current turn, for readers that validate each row by itself.
    #[inline(always)]
    pub(super) fn since<V: Visibility>(&self) -> Option<Turn> {
        V::IS_ALONE.then(|| Turn::of(self.region()))
    }

    /// Returns whether a reader that validates each row by itself has to read the row again.
    #[inline(always)]
    pub(super) fn may_have_come_round(&self, since: Option<Turn>) -> bool {
        since.is_some_and(|since| !since.holds_in(self.region()))
    }

    /// Reads a key's row, which the leaf has had since this turn. `None`: it has been removed.
    #[inline(always)]
    fn row_since<V: Visibility>(
        &self,
        (key, link): (u64, u64),
        since: Option<Turn>,
        view: &mut V,
        value: &mut impl ValueSink,
    ) -> Result<Option<V::Found>, KvError> {
        let row = self.row_at(key, link, view, value)?;
        if self.may_have_come_round(since) {
            cold_path();
            return self.row_again(key, view, value);
        }
        Ok(row)
    }

    /// Reads a key's row, wherever it is now. `None`: the key is absent.
    #[cold]
    #[inline(never)]
    fn row_again<V: Visibility>(
        &self,
        key: u64,
        view: &mut V,
        value: &mut impl ValueSink,
    ) -> Result<Option<V::Found>, KvError> {
        loop {
            let since = Turn::of(self.region());
            let row = self.search::<Inline, _>(key, |record| record.read::<Inline, V>(KeyWord(key), view, value))?.ok();
            if since.holds_in(self.region()) {
                return Ok(row);
            }
        }
    }

    /// Reads a key's row, which the leaf has. `None`: it has been removed.
    #[inline(always)]
    fn row_at<V: Visibility>(
        &self,
        key: u64,
        link: u64,
        view: &mut V,
        value: &mut impl ValueSink,
    ) -> Result<Option<V::Found>, KvError> {
        let place = Place::from_link(link);
        match Record::at(self.region(), place)?.try_read::<Inline, V>(KeyWord(key), view, value) {
            Some(found) => Ok(Some(found)),
            None => self.row_at_slow(place, key, view, value),
        }
    }

    /// Reads the record that was the key's, or the one that is now. `None`: the key is absent.
    #[cold]
    #[inline(never)]
    fn row_at_slow<V: Visibility>(
        &self,
        place: Place,
        key: u64,
        view: &mut V,
        value: &mut impl ValueSink,
    ) -> Result<Option<V::Found>, KvError> {
        let record = Record::at(self.region(), place)?;
        let waiting = self.base.patience.begin();
        loop {
            match record.read::<Inline, V>(KeyWord(key), view, value)? {
                Look::Found(found) => return Ok(Some(found)),
                Look::Absent => return Ok(None),
                Look::Stale | Look::Other => break,
                Look::Busy => waiting.pause()?,
            }
        }
        Ok(self.search::<Inline, _>(key, |record| record.read::<Inline, V>(KeyWord(key), view, value))?.ok())
    }
}
