//! The [table operations](KvTable) of a tree, and cursors over its records.

use std::{
    marker::PhantomData,
    ops::{Bound, ControlFlow, RangeBounds},
    sync::Arc,
};

use drtm_htm::Engine;

use super::{
    LeafChange, NodeVersion, Table, Tree,
    kind::{TreeKeys, Way},
    rows::{Ahead, Direction, Passed},
};
use crate::{
    Handle, KvError, Placed, Placing, Reaped, Turn, Version, Visibility, Worker,
    record::{FoundRow, Record, value_sink::ValueSink},
    store::heap::Class,
    table::{EntryChange, KvTable, base::Base, sealed::Sealed},
};

/// The position of a transaction's scan of a range. Unlike a [`Scan`](super::Scan) it borrows
/// nothing.
///
/// # Example
///
/// See [`Tree::advance`].
#[derive(Debug)]
pub struct Cursor<K: TreeKeys> {
    way: K::Way,
    is_upward: bool,
}

impl<K: TreeKeys> Cursor<K> {
    /// Makes a cursor at the beginning of a range, which goes upward.
    ///
    /// # Example
    ///
    /// See [`expecting`](Self::expecting).
    pub fn up<'k>(range: impl RangeBounds<K::Key<'k>>) -> Self {
        Self { way: K::Way::new(range, Direction::Up), is_upward: true }
    }

    /// Makes a cursor at the end of a range, which goes downward.
    pub fn down<'k>(range: impl RangeBounds<K::Key<'k>>) -> Self {
        Self { way: K::Way::new(range, Direction::Down), is_upward: false }
    }

    /// Sets how many rows the caller probably reads, and how many bytes a value has. So much is
    /// prefetched. The default is many rows of a hundred bytes.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Current, Cursor, KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// tree.insert(&mut worker, 7, b"seven")?;
    /// let mut first = Cursor::up(..).expecting(1, 5);
    /// assert!(tree.advance(&mut first, &mut Current, &mut (), &mut Vec::new())?.is_some());
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[must_use]
    pub fn expecting(mut self, rows: usize, bytes: usize) -> Self {
        self.way.expect(Ahead::of(rows, bytes));
        self
    }

    /// Returns whether the scan goes upward.
    #[must_use]
    pub fn is_upward(&self) -> bool {
        self.is_upward
    }

    /// Skips what lies before a key, in the direction of the scan. The scan continues at the key.
    /// The key must not lie behind rows that were returned.
    ///
    /// # Example
    ///
    /// ```
    /// use std::ops::Bound::{Excluded, Included};
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Current, Cursor, KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// (0..100).try_for_each(|key| tree.insert(&mut worker, key, b"").map(drop))?;
    /// let mut next = |cursor: &mut Cursor<_>| {
    ///     let row = tree.advance(cursor, &mut Current, &mut (), &mut Vec::new())?;
    ///     Ok::<_, drtm_kv::KvError>(row.map(|(key, _)| key))
    /// };
    /// let mut up = Cursor::up(..80);
    /// assert_eq!(next(&mut up)?, Some(0));
    /// up.skip_to(Excluded(50));
    /// assert_eq!(next(&mut up)?, Some(51));
    /// up.skip_to(Included(80));
    /// assert_eq!(next(&mut up)?, None);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    pub fn skip_to(&mut self, key: Bound<K::Key<'_>>) {
        self.way.skip_to(key);
    }

    /// Reverses the scan, which continues from the other end of the rest of its range.
    ///
    /// The next row is looked up from the root, at the cost of a lookup.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Current, Cursor, KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// (0..100).try_for_each(|key| tree.insert(&mut worker, key, b"").map(drop))?;
    /// let mut cursor = Cursor::up(10..20);
    /// let mut keys = Vec::new();
    /// while let Some((key, _)) = tree.advance(&mut cursor, &mut Current, &mut (), &mut Vec::new())? {
    ///     keys.push(key);
    ///     cursor.reverse();
    /// }
    /// assert_eq!(keys, [10, 19, 11, 18, 12, 17, 13, 16, 14, 15]);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    pub fn reverse(&mut self) {
        self.way.reverse();
        self.is_upward = !self.is_upward;
    }

    /// Looks up the next row from the root. A caller that has inserted rows behind the last one
    /// that was returned needs this to find them.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Current, Cursor, KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// tree.insert(&mut worker, 10, b"")?;
    /// let mut cursor = Cursor::up(..);
    /// let next = |cursor: &mut _| tree.advance(cursor, &mut Current, &mut (), &mut Vec::new());
    /// assert_eq!(next(&mut cursor)?.map(|(key, _)| key), Some(10));
    /// tree.insert(&mut worker, 11, b"")?;
    /// cursor.renew();
    /// assert_eq!(next(&mut cursor)?.map(|(key, _)| key), Some(11));
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    pub fn renew(&mut self) {
        self.way.renew();
    }
}

impl<E: Engine> Tree<E> {
    /// Prefetches the leaf of a key that will be inserted or looked up later. The worker remembers
    /// the leaf.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// tree.prefetch(&mut worker, 7);
    /// // What takes its time goes here.
    /// assert!(tree.insert(&mut worker, 7, b"seven")?.is_some());
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[inline]
    pub fn prefetch(&self, worker: &mut Worker<E>, key: u64) {
        // A concurrent change or a corrupt tree does not matter here: the later operation detects
        // it.
        let _ = self.table.prefetch_leaf(worker, key);
    }
}

impl<E: Engine, K: TreeKeys> Tree<E, K> {
    /// Moves a cursor to the next record, and reads it under this visibility. `None`: the range has
    /// no more records. Adds the leaves that it passes to `passed`: a vector, or `()` for none.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{AsOf, Cursor, ForHolder, KvTable, Past, Store, Version};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// let first = tree.insert(&mut worker, 7, b"seven")?.expect("it is new");
    /// let (mut cursor, mut passed, mut value) = (Cursor::up(5..), Vec::new(), Vec::new());
    /// let mut view = ForHolder(worker.holder());
    /// let (key, seen) = tree.advance(&mut cursor, &mut view, &mut passed, &mut value)?.expect("inserted above");
    /// assert!(key == 7 && seen.is_present() && value == b"seven");
    /// assert!(tree.advance(&mut cursor, &mut view, &mut passed, &mut value)?.is_none());
    /// assert!(passed.iter().all(|leaf| store.records().is_unchanged(leaf)));
    ///
    /// let mut past = AsOf::new(Version::new(1_000));
    /// let row = tree.advance(&mut Cursor::up(..), &mut past, &mut (), &mut value)?.map(|(key, past)| (key, past));
    /// assert_eq!(row, Some((7, Past::Present(first))));
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[inline]
    pub fn advance<'c, V: Visibility>(
        &self,
        cursor: &'c mut Cursor<K>,
        view: &mut V,
        passed: &mut impl Passed,
        value: &mut impl ValueSink,
    ) -> Result<Option<FoundRow<K::Key<'c>, V>>, KvError> {
        cursor.way.next(&self.table, passed, view, value)
    }

    /// Moves a cursor from record to record, like [`advance`](Self::advance). Calls `show` with
    /// each record and its copied value, until there are no more or `show` breaks.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Cursor, ForHolder, KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// (0..100).try_for_each(|key| tree.insert(&mut worker, key, b"value").map(drop))?;
    /// let (mut cursor, mut passed, mut keys) = (Cursor::up(5..), Vec::new(), Vec::new());
    /// let mut view = ForHolder(worker.holder());
    /// tree.advance_each(&mut cursor, &mut view, &mut passed, &mut Vec::new(), |key, seen, value| {
    ///     assert!(seen.is_present() && *value == b"value");
    ///     keys.push(key);
    ///     if keys.len() < 7 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    /// })?;
    /// assert!(keys.into_iter().eq(5..12) && passed.iter().all(|leaf| store.records().is_unchanged(leaf)));
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[inline]
    pub fn advance_each<V: Visibility, R: ValueSink>(
        &self,
        cursor: &mut Cursor<K>,
        view: &mut V,
        passed: &mut impl Passed,
        value: &mut R,
        show: impl FnMut(K::Key<'_>, V::Found, &mut R) -> ControlFlow<()>,
    ) -> Result<(), KvError> {
        cursor.way.each(&self.table, passed, view, value, show)
    }
}

impl<E: Engine, K: TreeKeys> Sealed for Tree<E, K> {}

impl<E: Engine, K: TreeKeys> KvTable<E, K> for Tree<E, K> {
    type Guard = NodeVersion;
    type InRecord = K::InRecord;

    #[inline(always)]
    fn base(&self) -> &Base<E> {
        &self.table.base
    }

    fn impatient(&self) -> Self {
        let table = Table::new(self.table.base.impatient(), Arc::clone(&self.table.hints));
        Self { table: Arc::new(table), keys: PhantomData }
    }

    #[inline]
    fn read<V: Visibility>(
        &self,
        key: K::Key<'_>,
        view: V,
        into: &mut impl ValueSink,
    ) -> Result<Result<V::Found, NodeVersion>, KvError> {
        Ok(self.table.read::<K, V>(key, view, into)?.map_err(|point| NodeVersion::of(&point.leaf)))
    }

    #[inline(never)]
    fn place<P: Placing>(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        value: &[u8],
        missed: Option<(NodeVersion, Turn)>,
        mut note: impl FnMut(LeafChange),
    ) -> Result<Placed, KvError> {
        let table = &*self.table;
        // The stamps of leaves do not wrap around, so the turn is not needed.
        let missed = missed.map(|(leaf, _)| leaf);
        let mut tried = table.put_near::<K, P>(worker, missed, key, value, &mut note)?;
        let made = loop {
            if let Some(made) = tried {
                break made;
            }
            match table.read_to_put::<K, P>(key, P::of(worker.holder()))? {
                Ok(found) => return Ok(Placed::Found(found)),
                Err(point) => tried = table.put_new::<K, P>(worker, point, key, value, &mut note)?,
            }
        };
        table.base.count(worker, 1)?;
        Ok(Placed::Made(made))
    }

    fn change_entry(
        &self,
        key: K::Key<'_>,
        at: Handle,
        change: impl for<'l, 'r> FnOnce(&'l Record<'r, E>) -> EntryChange<'l, 'r, E>,
    ) -> Result<Result<Class, Reaped>, KvError> {
        self.table.change_entry::<K>(key, at, change)
    }

    fn visit<'k>(
        &self,
        range: (Bound<K::Key<'k>>, Bound<K::Key<'k>>),
        mut visit: impl FnMut(&[u8], &[u8], Version) -> bool,
    ) -> Result<Option<bool>, KvError> {
        let mut scan = self.range(range);
        while let Some(row) = scan.next()? {
            if !K::with_bytes(row.key, |key| visit(key, row.value, row.version)) {
                return Ok(Some(true));
            }
        }
        Ok(Some(false))
    }
}
