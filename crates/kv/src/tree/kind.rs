//! What differs between trees by their kind of keys, so that the code for each is its own.

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
    keys::{Bytes, Inline, Keys},
    record::FoundRow,
    value_sink::ValueSink,
};

/// A kind of keys that a [`Tree`](super::Tree) can have.
///
/// # Example
///
/// See [`Tree`](super::Tree), with either kind.
pub trait TreeKeys: Keys + Kind {}

impl TreeKeys for Inline {}
impl TreeKeys for Bytes {}

/// What a tree can be [loaded](super::Tree::load) with as keys: integers, or whatever can be seen
/// as bytes.
///
/// # Example
///
/// See [`Tree::load`](super::Tree::load).
pub trait AsKey<K: Keys> {
    /// The key.
    fn as_key(&self) -> K::Key<'_>;
}

impl AsKey<Inline> for u64 {
    fn as_key(&self) -> u64 {
        *self
    }
}

impl<B: AsRef<[u8]>> AsKey<Bytes> for B {
    fn as_key(&self) -> &[u8] {
        self.as_ref()
    }
}

/// What a tree asks of its kind of keys. Public only as far as [`TreeKeys`] has it: nobody else can
/// name it, nor what it speaks of.
pub trait Kind: Keys {
    /// A key that borrows nothing.
    type Owned: Clone + Debug + Default + Eq + Ord;

    /// The same keys, as the tree's records keep them.
    type Kept: for<'k> Keys<Key<'k> = Self::Key<'k>>;

    /// Where a scan is.
    type Way: Way<Self>;

    fn key(owned: &Self::Owned) -> Self::Key<'_>;

    fn keep(key: Self::Key<'_>, owned: &mut Self::Owned);

    /// The word of a key in the layer at this depth.
    fn slice(key: Self::Key<'_>, depth: usize) -> u64;

    /// How many words two different keys have in common.
    fn common(one: Self::Key<'_>, other: Self::Key<'_>) -> usize;

    /// Where a key is, or would be.
    fn insert_point<'t, E: Engine>(table: &'t Table<E>, key: Self::Key<'_>) -> Result<InsertPoint<'t, E>, KvError>;

    /// Puts a record, given by its link, where there is the record of another key, at which this
    /// one's way ended.
    fn part<E: Engine>(
        table: &Table<E>,
        point: &InsertPoint<'_, E>,
        key: Self::Key<'_>,
        link: u64,
        version: Version,
        note: &mut impl FnMut(LeafChange),
    ) -> Result<Put, KvError>;

    /// Takes out of the tree what has become empty on the way to a key.
    fn reclaim<E: Engine>(table: &Table<E>, key: Self::Key<'_>) -> Result<(), KvError>;
}

/// Where a scan is, for a kind of keys.
pub trait Way<K: Kind>: Debug {
    fn new<'k>(range: impl RangeBounds<K::Key<'k>>, direction: Direction) -> Self;

    /// Says what to ask for before the scan comes to it.
    fn expect(&mut self, ahead: Ahead);

    /// Continues from a key on: leaves out what lies before it.
    fn skip_to(&mut self, key: Bound<K::Key<'_>>);

    /// Continues from the other end of what is left.
    fn reverse(&mut self);

    /// Looks up the next row from the root, behind the last one.
    fn renew(&mut self);

    /// Moves to the next row. Reads its record, and tells of the leaves that are passed.
    fn next<'c, E: Engine, V: Visibility>(
        &'c mut self,
        table: &Table<E>,
        passed: &mut impl Passed,
        view: &mut V,
        value: &mut impl ValueSink,
    ) -> Result<Option<FoundRow<K::Key<'c>, V>>, KvError>;

    /// Shows the rows that follow, one after the other, until there are no more or `show` breaks
    /// off.
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
