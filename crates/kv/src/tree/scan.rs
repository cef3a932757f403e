//! Scans: rows in the order of their keys, up or down, and the leaves that were passed.

use std::ops::{ControlFlow, RangeBounds};

use drtm_htm::Engine;
use smallvec::SmallVec;

use super::{NodeVersion, Tree, held::Cursor, kind::TreeKeys};
use crate::{
    KvError, Read, Version,
    record::{
        Present,
        keys::{Inline, Keys},
        value_sink::{Buffer, Memory},
    },
};

/// A row that a [`Scan`] has reached.
///
/// # Example
///
/// See [`Scan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row<'s, K: Keys = Inline> {
    /// The key.
    pub key: K::Key<'s>,
    /// A copy of the whole value, which the next row overwrites.
    pub value: &'s [u8],
    /// The version of the value.
    pub version: Version,
}

/// A cursor over the rows of a range. It holds no locks: the tree can be changed meanwhile.
///
/// It goes from leaf to leaf. The keys of a leaf are consistent. If the leaf is changed, it is read
/// once more, from the last row on. A row's value is read when the scan reaches the row, and a row
/// whose key has been removed by then is skipped. A key that is in the range during the whole scan
/// is returned once.
///
/// # Phantoms
///
/// The leaves that a scan has [passed](Self::passed) are recorded, each with the version that it
/// had. They cover the range from its beginning to the last row, or all of it if there are no more
/// rows. As long as each is [unchanged](crate::Records::is_unchanged), no key was inserted into
/// that part of the range or removed from it. Values have versions of their own.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{KvTable, Store};
///
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let tree = store.tree()?;
/// let mut worker = store.worker()?;
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
/// // No key was inserted between them, until one is.
/// assert!(scan.passed().iter().all(|leaf| store.records().is_unchanged(leaf)));
/// tree.insert(&mut worker, 25, b"phantom")?;
/// assert!(!scan.passed().iter().all(|leaf| store.records().is_unchanged(leaf)));
/// # Ok::<(), drtm_kv::KvError>(())
/// ```
#[derive(Debug)]
pub struct Scan<'t, E: Engine, K: TreeKeys = Inline> {
    tree: &'t Tree<E, K>,
    cursor: Cursor<K>,
    /// Needs no allocation if there are few.
    passed: SmallVec<[NodeVersion; 4]>,
    value: Vec<u8>,
}

impl<E: Engine, K: TreeKeys> Tree<E, K> {
    /// Scans the rows of a range, upward. A range whose end is below its start is empty.
    #[must_use]
    pub fn range<'k>(&self, range: impl RangeBounds<K::Key<'k>>) -> Scan<'_, E, K> {
        Scan::of(self, Cursor::up(range))
    }

    /// Scans the rows of a range, downward.
    #[must_use]
    pub fn range_back<'k>(&self, range: impl RangeBounds<K::Key<'k>>) -> Scan<'_, E, K> {
        Scan::of(self, Cursor::down(range))
    }
}

impl<'t, E: Engine, K: TreeKeys> Scan<'t, E, K> {
    fn of(tree: &'t Tree<E, K>, cursor: Cursor<K>) -> Self {
        Self { tree, cursor, passed: SmallVec::new(), value: Vec::new() }
    }

    /// Sets how many rows the caller probably reads, and how many bytes a value has. So much is
    /// prefetched. The default is many rows of a hundred bytes.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// (0..1_000).try_for_each(|key| tree.insert(&mut worker, key, b"value").map(drop))?;
    /// let mut scan = tree.range(100..).expecting(3, 5);
    /// for key in 100..103 {
    ///     assert_eq!(scan.next()?.map(|row| row.key), Some(key));
    /// }
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[must_use]
    pub fn expecting(self, rows: usize, bytes: usize) -> Self {
        Self { cursor: self.cursor.expecting(rows, bytes), ..self }
    }

    /// Reverses the scan, which continues from the other end of the rest of its range.
    ///
    /// # Example
    ///
    /// See [`Cursor::reverse`].
    pub fn reverse(&mut self) {
        self.cursor.reverse();
    }

    /// Returns the next row. `None`: there are no more.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    // This is not `Iterator::next`: a row borrows the cursor's buffers.
    #[expect(clippy::should_implement_trait, reason = "a row borrows the cursor, which an iterator's item cannot")]
    pub fn next(&mut self) -> Result<Option<Row<'_, K>>, KvError> {
        let Self { tree, cursor, passed, value } = self;
        let row = tree.advance(cursor, &mut Present, passed, value)?;
        Ok(row.map(|(key, found)| Row { key, value, version: found.version }))
    }

    /// Calls `show` with the following rows, one after the other, until there are no more or `show`
    /// breaks. This is faster for many rows than calling [`next`](Self::next) for each. A value is
    /// copied to `into`, and truncated if it is longer. Values that exactly fill `into` are copied
    /// fastest.
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
    /// use drtm_kv::{KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// (0..1_000).try_for_each(|key| tree.insert(&mut worker, key, b"value").map(drop))?;
    /// let (mut scan, mut keys) = (tree.range(100..), Vec::new());
    /// scan.each_into(&mut [0; 8], |key, read, value| {
    ///     assert_eq!((read.length, value), (5, &b"value"[..]));
    ///     keys.push(key);
    ///     if keys.len() < 50 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    /// })?;
    /// assert!(keys.into_iter().eq(100..150));
    ///
    /// // The scan continues where it stopped.
    /// assert_eq!(scan.next()?.map(|row| row.key), Some(150));
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[inline]
    pub fn each_into<B: Memory + ?Sized>(
        &mut self,
        into: &mut B,
        mut show: impl FnMut(K::Key<'_>, Read, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), KvError> {
        let mut buffer = Buffer::new(into);
        let Self { tree, cursor, passed, .. } = self;
        tree.advance_each(cursor, &mut Present, passed, &mut buffer, |key, found, buffer| {
            show(key, buffer.read(found.version), buffer.bytes())
        })
    }

    /// Returns the leaves passed so far, with the versions that they had.
    ///
    /// # Example
    ///
    /// See [`Scan`].
    #[must_use]
    pub fn passed(&self) -> &[NodeVersion] {
        &self.passed
    }
}
