//! Scans: rows in the order of their keys, up or down, and the leaves that were passed.

use std::ops::{Bound, RangeBounds};

use drtm_htm::{Engine, LINE_WORDS, prefetch};
use drtm_rdma::Offset;

use super::{
    NodeVersion, Table, Tree,
    kind::TreeKeys,
    node::{Node, Seen},
    view::{Copied, View},
};
use crate::{
    KvError, Read, Version,
    keys::{Inline, Keys},
    layout::{FANOUT, Place},
    record::{Look, Record},
    room::Buffer,
};

/// A row that a [`Scan`] has come to.
///
/// # Example
///
/// See [`Scan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row<'s, K: Keys = Inline> {
    /// The key.
    pub key: K::Key<'s>,
    /// The whole value: a copy, which the next row takes the place of.
    pub value: &'s [u8],
    /// The version of the value.
    pub version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Up,
    Down,
}

/// A cursor over the rows of a range. It holds no locks: the tree can be changed meanwhile.
///
/// It goes from leaf to leaf. The keys of a leaf are those that were there at one moment; a row's value is read when the row is come to, and a row
/// whose key has been removed by then is left out. A key that is in the range all the while is come to once.
///
/// # What was passed
///
/// The leaves that a scan has passed are [told](Self::passed), each as it was: they cover the range from where it began to the row that was come
/// to last, or all of it when there are no more. As long as each is [unchanged](Tree::unchanged), no key has come into that part of the
/// range or gone from it. Values are another matter: they have versions of their own.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::Store;
///
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let tree = store.tree()?;
/// let mut worker = store.worker();
/// for key in [10, 20, 30] {
///     tree.insert(&mut worker, key, &key.to_le_bytes())?;
/// }
/// let mut keys = Vec::new();
/// let mut scan = tree.range(15..);
/// while let Some(row) = scan.next()? {
///     assert_eq!(row.value, row.key.to_le_bytes());
///     keys.push(row.key);
/// }
/// assert_eq!(keys, [20, 30]);
///
/// // Nothing has come between them, until something does.
/// assert!(scan.passed().iter().all(|leaf| tree.unchanged(leaf)));
/// tree.insert(&mut worker, 25, b"phantom")?;
/// assert!(!scan.passed().iter().all(|leaf| tree.unchanged(leaf)));
/// # Ok::<(), drtm_kv::KvError>(())
/// ```
#[derive(Debug)]
pub struct Scan<'t, E: Engine, K: TreeKeys = Inline> {
    tree: &'t Tree<E, K>,
    cursor: K::Cursor,
    passed: Vec<NodeVersion>,
    value: Vec<u8>,
}

impl<'t, E: Engine, K: TreeKeys> Scan<'t, E, K> {
    pub(super) fn new<'k>(tree: &'t Tree<E, K>, range: impl RangeBounds<K::Key<'k>>, direction: Direction) -> Self {
        Self { tree, cursor: K::cursor(range, direction), passed: Vec::new(), value: Vec::new() }
    }

    /// The next row, or `None` if there are no more.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    // Not `Iterator::next`: a row borrows the cursor's buffers.
    #[expect(clippy::should_implement_trait, reason = "a row borrows the cursor, which an iterator's item cannot")]
    pub fn next(&mut self) -> Result<Option<Row<'_, K>>, KvError> {
        let mut copied = Copied(&mut self.value);
        let row = K::next(&self.tree.table, &mut self.cursor, &mut self.passed, &mut copied)?;
        Ok(row.map(|(key, version)| Row { key, value: &self.value, version }))
    }

    /// The next row's key, and its value copied to `into`, as far as there is room: one copy instead of [two](Self::next).
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::Store;
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let tree = store.tree()?;
    /// tree.insert(&mut store.worker(), 7, b"seven")?;
    /// let (mut scan, mut value) = (tree.range(..), [0; 3]);
    /// let (key, read) = scan.next_into(&mut value)?.expect("just inserted");
    /// assert_eq!((key, read.length, &value), (7, 5, b"sev"));
    /// assert!(scan.next_into(&mut value)?.is_none());
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[inline]
    pub fn next_into(&mut self, into: &mut [u8]) -> Result<Option<(K::Key<'_>, Read)>, KvError> {
        let mut buffer = Buffer::new(into);
        let row = K::next(&self.tree.table, &mut self.cursor, &mut self.passed, &mut Copied(&mut buffer))?;
        Ok(row.map(|(key, version)| (key, Read { length: buffer.length(), version })))
    }

    /// The first row that is left, its value copied elsewhere.
    pub(super) fn only_into(mut self, into: &mut [u8]) -> Result<Option<(K::Owned, Read)>, KvError> {
        Ok(self.next_into(into)?.map(|(found, read)| {
            let mut key = K::Owned::default();
            K::keep(found, &mut key);
            (key, read)
        }))
    }

    /// The leaves passed so far, with the versions they had.
    #[must_use]
    pub fn passed(&self) -> &[NodeVersion] {
        &self.passed
    }
}

/// Where a scan is among the leaves of a tree, or of a layer of one.
#[derive(Debug)]
pub struct Leaves {
    direction: Direction,
    /// What is left of the range: its next key, and its last.
    pub(super) rest: Option<(u64, u64)>,
    /// The place of the leaf that is probably next; zero if it is not known.
    pub(super) hint: u64,
    rows: Rows,
}

impl Leaves {
    pub(super) fn new(range: impl RangeBounds<u64>, direction: Direction) -> Self {
        let rest = ends(range).map(|(low, high)| match direction {
            Direction::Up => (low, high),
            Direction::Down => (high, low),
        });
        Self { direction, rest, hint: 0, rows: Rows::default() }
    }

    #[inline(always)]
    pub(super) fn next<E: Engine, V: View>(
        &mut self,
        table: &Table<E>,
        passed: &mut Vec<NodeVersion>,
        view: &mut V,
    ) -> Result<Option<(u64, V::Found)>, KvError> {
        loop {
            while let Some((key, link)) = self.next_entry(table) {
                if let Some(found) = table.look_at(key, Place::from_link(link), view)? {
                    return Ok(Some((key, found)));
                }
            }
            let Some((next, _)) = self.rest else { return Ok(None) };
            loop {
                let leaf = match table.leaf_at(self.hint, next)? {
                    Some(leaf) => leaf,
                    None => table.leaf(next)?,
                };
                if self.pass(table, leaf, passed) {
                    break;
                }
            }
        }
    }

    /// The next entry of the current leaf.
    #[inline(always)]
    pub(super) fn next_entry<E: Engine>(&mut self, table: &Table<E>) -> Option<(u64, u64)> {
        let entry = self.rows.next()?;
        self.look_ahead(table);
        Some(entry)
    }

    /// Takes the rows of a leaf, to which the next key belongs, as far as the range goes. Not if the leaf has changed meanwhile.
    pub(super) fn pass<E: Engine>(
        &mut self,
        table: &Table<E>,
        leaf: Seen<'_, E>,
        passed: &mut Vec<NodeVersion>,
    ) -> bool {
        let Some((next, last)) = self.rest else { return true };
        self.hint = 0;
        let Seen { node, stamp } = leaf;
        let count = stamp.count();
        self.rows.clear();
        let row = |slot| (node.key(slot), node.link(slot));
        let (low, high, right) = (node.low(), node.high(), node.right());
        match self.direction {
            Direction::Up => {
                let rows = (node.below(count, next)..count).map(row);
                self.rows.extend(rows.take_while(|(key, _)| *key <= last));
            }
            Direction::Down => {
                let rows = (node.below(count, last)..count).rev().map(row);
                self.rows.extend(rows.skip_while(|(key, _)| *key > next));
            }
        }
        if !node.still(stamp) {
            return false;
        }
        passed.push(NodeVersion::of(&leaf));
        (self.rest, self.hint) = match self.direction {
            Direction::Up if high < last => (Some((high + 1, last)), right),
            Direction::Down if low > last => (Some((low - 1, last)), 0),
            _ => (None, 0),
        };
        if self.hint != 0 {
            // Only a hint, so an error is not one yet.
            let _ = table.node(self.hint).map(Node::prefetch);
        }
        (0..AHEAD).for_each(|ahead| table.prefetch(self.rows.ahead(ahead)));
        true
    }

    /// Asks for the record of a row that will be come to a little later, in this leaf or, as far as can be guessed, in the next.
    #[inline(always)]
    fn look_ahead<E: Engine>(&self, table: &Table<E>) {
        if AHEAD == 0 {
            return;
        }
        let link = self.rows.ahead(AHEAD - 1);
        if link.is_some() {
            table.prefetch(link);
        } else if self.hint != 0
            && let Ok(leaf) = table.node(self.hint)
        {
            table.prefetch(Some(leaf.link(AHEAD - 1 - self.rows.left().min(AHEAD - 1))));
        }
    }
}

/// The keys and links of a leaf's rows that a scan has not come to yet.
#[derive(Debug)]
struct Rows {
    rows: [(u64, u64); FANOUT],
    next: usize,
    end: usize,
}

impl Default for Rows {
    fn default() -> Self {
        Self { rows: [(0, 0); FANOUT], next: 0, end: 0 }
    }
}

impl Rows {
    fn clear(&mut self) {
        (self.next, self.end) = (0, 0);
    }

    /// Adds rows, as far as there is room: for all of a leaf.
    #[inline(always)]
    fn extend(&mut self, rows: impl Iterator<Item = (u64, u64)>) {
        for (to, row) in self.rows[self.end..].iter_mut().zip(rows) {
            *to = row;
            self.end += 1;
        }
    }

    #[inline(always)]
    fn next(&mut self) -> Option<(u64, u64)> {
        let row = *self.rows[..self.end].get(self.next)?;
        self.next += 1;
        Some(row)
    }

    fn left(&self) -> usize {
        self.end - self.next
    }

    /// The link of a row that is so many behind the next.
    #[inline(always)]
    fn ahead(&self, rows: usize) -> Option<u64> {
        self.rows[..self.end].get(self.next + rows).map(|(_, link)| *link)
    }
}

/// Words of a record that are asked for ahead: those of a value of a hundred bytes and more. How long it is, is not known yet.
const PREFETCHED_WORDS: usize = 3 * LINE_WORDS;

/// How many rows ahead a record is asked for: as many as the processor can wait for at once.
const AHEAD: usize = if cfg!(drtm_loom) { 0 } else { 8 };

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
    /// The leaf at this place, if it is one, and the key belongs there.
    #[inline(always)]
    pub(super) fn leaf_at(&self, place: u64, key: u64) -> Result<Option<Seen<'_, E>>, KvError> {
        if place == 0 {
            return Ok(None);
        }
        let node = self.node(place)?;
        let stamp = node.stamp();
        let is_it = stamp.is_readable() && stamp.level() == 0 && (node.low()..=node.high()).contains(&key);
        Ok((is_it && node.still(stamp)).then_some(Seen { node, stamp }))
    }

    /// Asks for the memory of the record, or the layer's root, that an entry leads to.
    #[inline(always)]
    fn prefetch(&self, link: Option<u64>) {
        let Some(link) = link else { return };
        let at = Offset::new(8 * Place::from_link(link).word);
        // Behind the last record there may be less memory. Then there is no hint.
        if let Ok(words) = self.region().array::<PREFETCHED_WORDS>(at) {
            words.as_chunks::<LINE_WORDS>().0.iter().for_each(|line| prefetch(&line[0]));
        }
    }

    /// Shows the record that was the key's, or the one that is now. `None`: there is none any more.
    #[inline]
    fn look_at<V: View>(&self, key: u64, place: Place, view: &mut V) -> Result<Option<V::Found>, KvError> {
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
