//! The differences between trees by their kind of keys, as types, so that the code is specialised
//! for each.

use std::{
    fmt::Debug,
    ops::{Bound, ControlFlow, RangeBounds},
};

use drtm_htm::Engine;

use super::{
    LeafChange, Table,
    insert_point::{InsertPoint, Put},
    rows::{Ahead, Direction, Passed},
};
use crate::{
    KvError, Version, Visibility,
    record::{
        FoundRow,
        keys::{Bytes, Inline, Keys},
        value_sink::ValueSink,
    },
};

/// A kind of keys that a [`Tree`](super::Tree) can have.
///
/// # Example
///
/// See [`Tree`](super::Tree), with either kind.
pub trait TreeKeys: Keys + Kind {}

impl TreeKeys for Inline {}
impl TreeKeys for Bytes {}

/// The operations of a tree that depend on its kind of keys. It is public only because [`TreeKeys`]
/// is: other crates can name neither it nor its types.
pub trait Kind: Keys {
    /// A key that borrows nothing.
    type Owned: Debug + Default;

    /// The key type as the tree's records store it.
    type InRecord: for<'k> Keys<Key<'k> = Self::Key<'k>>;

    /// The position of a scan.
    type Way: Way<Self>;

    fn key(owned: &Self::Owned) -> Self::Key<'_>;

    fn keep(key: Self::Key<'_>, owned: &mut Self::Owned);

    /// Returns the word of a key in the layer at this depth.
    fn slice(key: Self::Key<'_>, depth: usize) -> u64;

    /// Returns the insert point of a key.
    fn insert_point<'t, E: Engine>(table: &'t Table<E>, key: Self::Key<'_>) -> Result<InsertPoint<'t, E>, KvError>;

    /// Puts a record, given by its link, where the path of its key ends at another key's record.
    fn part<E: Engine>(
        table: &Table<E>,
        point: &InsertPoint<'_, E>,
        key: Self::Key<'_>,
        link: u64,
        version: Version,
        note: &mut impl FnMut(LeafChange),
    ) -> Result<Put, KvError>;

    /// Removes the empty nodes on the path of a key from the tree.
    fn reclaim<E: Engine>(table: &Table<E>, key: Self::Key<'_>) -> Result<(), KvError>;
}

/// The position of a scan, for a kind of keys.
pub trait Way<K: Kind>: Debug {
    fn new<'k>(range: impl RangeBounds<K::Key<'k>>, direction: Direction) -> Self;

    /// Sets how much to prefetch.
    fn expect(&mut self, ahead: Ahead);

    /// Skips what lies before a key, and continues there.
    fn skip_to(&mut self, key: Bound<K::Key<'_>>);

    /// Continues from the other end of the rest of the range.
    fn reverse(&mut self);

    /// Looks up the next row from the root, behind the last one.
    fn renew(&mut self);

    /// Moves to the next row, and reads its record. Adds the leaves that it passes.
    fn next<'c, E: Engine, V: Visibility>(
        &'c mut self,
        table: &Table<E>,
        passed: &mut impl Passed,
        view: &mut V,
        value: &mut impl ValueSink,
    ) -> Result<Option<FoundRow<K::Key<'c>, V>>, KvError>;

    /// Calls `show` with the following rows, one after the other, until there are no more or `show`
    /// breaks.
    #[inline(always)]
    fn each<E: Engine, V: Visibility, R: ValueSink>(
        &mut self,
        table: &Table<E>,
        passed: &mut impl Passed,
        view: &mut V,
        value: &mut R,
        mut show: impl FnMut(K::Key<'_>, V::Found, &mut R) -> ControlFlow<()>,
    ) -> Result<(), KvError> {
        while let Some((key, found)) = self.next(table, passed, view, value)? {
            if show(key, found, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}
