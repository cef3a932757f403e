//! What differs between trees by their kind of keys, so that the code for each is its own.

use std::{
    cmp::Ordering,
    fmt::Debug,
    ops::{Bound, ControlFlow, RangeBounds},
};

use drtm_htm::Engine;

use super::{
    LeafChange, Table,
    change::Put,
    leaves::{Direction, Leaves, Passed},
    node::Seen,
    rows::Ahead,
    search::Spot,
    slices,
    walk::Walk,
};
use crate::{
    KvError, Version, Visibility,
    keys::{Bytes, Inline, Keys, Sliced},
    record::FoundRow,
    room::Room,
};

/// A kind of keys that a [`Tree`](super::Tree) can have.
///
/// # Example
///
/// See [`Tree`](super::Tree), with either kind.
pub trait TreeKeys: Keys + Kind {}

impl TreeKeys for Inline {}
impl TreeKeys for Bytes {}

/// What a tree can be [loaded](super::Tree::load) with as keys: integers, or whatever can be seen as bytes.
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

/// What a tree asks of its kind of keys. Public only as far as [`TreeKeys`] has it: nobody else can name it, nor what it speaks of.
pub trait Kind: Keys {
    /// A key that borrows nothing.
    type Owned: Clone + Debug + Default + Eq + Ord;

    /// The same keys, as the tree's records keep them.
    type Kept: for<'k> Keys<Key<'k> = Self::Key<'k>>;

    /// Where a scan is.
    type Cursor: std::fmt::Debug;

    fn key(owned: &Self::Owned) -> Self::Key<'_>;

    fn keep(key: Self::Key<'_>, owned: &mut Self::Owned);

    fn order(one: Self::Key<'_>, other: Self::Key<'_>) -> Ordering;

    /// The word of a key in the layer at this depth.
    fn slice(key: Self::Key<'_>, depth: usize) -> u64;

    /// How many words two different keys have in common.
    fn common(one: Self::Key<'_>, other: Self::Key<'_>) -> usize;

    /// Where a key is, or would be.
    fn spot<'t, E: Engine>(table: &'t Table<E>, key: Self::Key<'_>) -> Result<Spot<'t, E>, KvError>;

    /// The slot in the leaf at this place where there is room for a key that is missing.
    fn gap_at<'t, E: Engine>(table: &'t Table<E>, place: u64, key: Self::Key<'_>) -> Option<(Seen<'t, E>, usize)>;

    /// Puts a record, given by its link, where there is the record of another key, at which this one's way ended.
    fn part<E: Engine>(
        table: &Table<E>,
        spot: &Spot<'_, E>,
        key: Self::Key<'_>,
        link: u64,
        version: Version,
        note: &mut impl FnMut(LeafChange),
    ) -> Result<Put, KvError>;

    /// Takes out of the tree what has become empty on the way to a key.
    fn reclaim<E: Engine>(table: &Table<E>, key: Self::Key<'_>) -> Result<(), KvError>;

    fn cursor<'k>(range: impl RangeBounds<Self::Key<'k>>, direction: Direction) -> Self::Cursor;

    /// Tells a scan how far it will probably go.
    fn expect(cursor: &mut Self::Cursor, ahead: Ahead);

    /// Makes a scan continue from a key on.
    fn skip_to(cursor: &mut Self::Cursor, key: Bound<Self::Key<'_>>);

    /// Moves to the next row. Reads its record, and tells of the leaves that are passed.
    fn next<'c, E: Engine, V: Visibility>(
        table: &Table<E>,
        cursor: &'c mut Self::Cursor,
        passed: &mut impl Passed,
        view: &mut V,
        value: &mut impl Room,
    ) -> Result<Option<FoundRow<Self::Key<'c>, V>>, KvError>;

    /// Shows the rows that follow, one after the other, until there are no more or `show` breaks off.
    #[inline(always)]
    fn each<E: Engine, V: Visibility, R: Room>(
        table: &Table<E>,
        cursor: &mut Self::Cursor,
        passed: &mut impl Passed,
        view: &mut V,
        value: &mut R,
        mut show: impl FnMut(Self::Key<'_>, V::Found, &mut R) -> ControlFlow<()>,
    ) -> Result<(), KvError> {
        while let Some((key, found)) = Self::next(table, cursor, passed, view, value)? {
            if show(key, found, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl Kind for Inline {
    type Owned = u64;
    type Kept = Self;
    type Cursor = Leaves;

    fn key(owned: &u64) -> u64 {
        *owned
    }

    fn keep(key: u64, owned: &mut u64) {
        *owned = key;
    }

    fn order(one: u64, other: u64) -> Ordering {
        one.cmp(&other)
    }

    fn slice(key: u64, _depth: usize) -> u64 {
        key
    }

    fn common(_one: u64, _other: u64) -> usize {
        0
    }

    #[inline(always)]
    fn spot<'t, E: Engine>(table: &'t Table<E>, key: u64) -> Result<Spot<'t, E>, KvError> {
        table.spot(key)
    }

    #[inline(always)]
    fn gap_at<'t, E: Engine>(table: &'t Table<E>, place: u64, key: u64) -> Option<(Seen<'t, E>, usize)> {
        table.gap_at(place, key)
    }

    /// No two keys have the same way, so the leaf is not what it was.
    fn part<E: Engine>(
        _table: &Table<E>,
        _spot: &Spot<'_, E>,
        _key: u64,
        _link: u64,
        _version: Version,
        _note: &mut impl FnMut(LeafChange),
    ) -> Result<Put, KvError> {
        Ok(Put::Retry)
    }

    fn reclaim<E: Engine>(table: &Table<E>, key: u64) -> Result<(), KvError> {
        table.reclaim(key)
    }

    fn cursor<'k>(range: impl RangeBounds<Self::Key<'k>>, direction: Direction) -> Leaves {
        Leaves::new(range, direction)
    }

    fn expect(cursor: &mut Leaves, ahead: Ahead) {
        cursor.expect(ahead);
    }

    fn skip_to(cursor: &mut Leaves, key: Bound<u64>) {
        cursor.skip_to(key);
    }

    #[inline(always)]
    fn next<'c, E: Engine, V: Visibility>(
        table: &Table<E>,
        cursor: &'c mut Leaves,
        passed: &mut impl Passed,
        view: &mut V,
        value: &mut impl Room,
    ) -> Result<Option<FoundRow<Self::Key<'c>, V>>, KvError> {
        cursor.next(table, passed, view, value)
    }

    #[inline(always)]
    fn each<E: Engine, V: Visibility, R: Room>(
        table: &Table<E>,
        cursor: &mut Leaves,
        passed: &mut impl Passed,
        view: &mut V,
        value: &mut R,
        show: impl FnMut(u64, V::Found, &mut R) -> ControlFlow<()>,
    ) -> Result<(), KvError> {
        cursor.each(table, passed, view, value, show)
    }
}

impl Kind for Bytes {
    type Owned = Vec<u8>;
    type Kept = Sliced;
    type Cursor = Walk;

    fn key(owned: &Vec<u8>) -> &[u8] {
        owned
    }

    fn keep(key: &[u8], owned: &mut Vec<u8>) {
        owned.clear();
        owned.extend(key);
    }

    fn order(one: &[u8], other: &[u8]) -> Ordering {
        one.cmp(other)
    }

    fn slice(key: &[u8], depth: usize) -> u64 {
        slices::slice(key, depth)
    }

    fn common(one: &[u8], other: &[u8]) -> usize {
        slices::common(one, other, 0)
    }

    #[inline(always)]
    fn spot<'t, E: Engine>(table: &'t Table<E>, key: &[u8]) -> Result<Spot<'t, E>, KvError> {
        table.spot_of_bytes(key)
    }

    /// A leaf's range does not tell which layer it is in.
    #[inline(always)]
    fn gap_at<'t, E: Engine>(_table: &'t Table<E>, _place: u64, _key: &[u8]) -> Option<(Seen<'t, E>, usize)> {
        None
    }

    fn part<E: Engine>(
        table: &Table<E>,
        spot: &Spot<'_, E>,
        key: &[u8],
        link: u64,
        version: Version,
        note: &mut impl FnMut(LeafChange),
    ) -> Result<Put, KvError> {
        table.put_parting(spot, key, link, version, note)
    }

    fn reclaim<E: Engine>(table: &Table<E>, key: &[u8]) -> Result<(), KvError> {
        table.prune(key)
    }

    fn cursor<'k>(range: impl RangeBounds<Self::Key<'k>>, direction: Direction) -> Walk {
        Walk::new(range, direction)
    }

    fn expect(cursor: &mut Walk, ahead: Ahead) {
        cursor.ahead = ahead;
    }

    fn skip_to(cursor: &mut Walk, key: Bound<&[u8]>) {
        cursor.skip_to(key);
    }

    #[inline(always)]
    fn next<'c, E: Engine, V: Visibility>(
        table: &Table<E>,
        cursor: &'c mut Walk,
        passed: &mut impl Passed,
        view: &mut V,
        value: &mut impl Room,
    ) -> Result<Option<FoundRow<&'c [u8], V>>, KvError> {
        cursor.next(table, passed, view, value)
    }
}
