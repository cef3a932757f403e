//! Ranges of pairs with a common first part.

use std::ops::Bound::{self, Excluded, Included, Unbounded};

use super::{AsKey, ByRef, Key, KeyRange, bytes};

/// The range of the pairs with one first part, and a range of second parts: see [`within`].
///
/// # Example
///
/// See [`within`].
#[derive(Clone, Copy, Debug)]
pub struct Within<A, R> {
    first: A,
    rest: R,
}

/// Returns the range of the pairs that begin with `first`, and whose second part is in `rest`.
///
/// It serves tables whose keys are pairs, and the [pairs](crate::Index::pairs) of an index. Its end
/// needs no greatest second part, which a string has not.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, Ordered, Pod, TableDef, within};
///
/// const LINES: TableDef<(u32, String), Pod<u64>, Ordered> = TableDef::ordered("lines of orders");
/// let db = Db::new()?;
/// let lines = db.table(LINES)?;
/// db.transact(|tx| {
///     for (order, item) in [(7, "nails"), (7, "nuts"), (8, "bolts")] {
///         tx.put(lines, (order, item), &10)?;
///     }
///     assert_eq!(tx.range(lines, within(7, ..))?.count()?, 2);
///     let ((_, item), _) = tx.range(lines, within(7, "nb"..))?.first()?.expect("there are nuts");
///     assert_eq!(item, "nuts");
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
pub fn within<A, R>(first: A, rest: R) -> Within<A, R> {
    Within { first, rest }
}

/// The encoding of a pair, or one that comes between those of pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PairEnd {
    /// Of keys that pack into a word.
    Word(u64),
    /// Of other keys.
    Bytes(Vec<u8>),
}

impl PairEnd {
    /// Returns the word. Only called if keys fit.
    pub(crate) fn word(self) -> u64 {
        if let Self::Word(word) = self { word } else { 0 }
    }

    /// Returns the bytes. Only called if keys do not fit.
    pub(crate) fn bytes(self) -> Vec<u8> {
        if let Self::Bytes(bytes) = self { bytes } else { Vec::new() }
    }
}

impl<I: Key, K: Key> AsKey<(I, K)> for PairEnd {
    fn pack_key(&self, word: u64) -> u64 {
        // It is a whole key, so there is nothing in the word yet.
        debug_assert_eq!(word, 0, "an end of a range is no part of a key");
        match self {
            Self::Word(word) => *word,
            Self::Bytes(_) => word,
        }
    }

    fn write_key(&self, bytes: &mut Vec<u8>, _last: bool) {
        if let Self::Bytes(end) = self {
            bytes.extend_from_slice(end);
        }
    }
}

impl<I: Key, K: Key, A: AsKey<I>, R: KeyRange<K>> KeyRange<(I, K)> for Within<A, R> {
    type End = PairEnd;

    fn ends(self) -> (Bound<PairEnd>, Bound<PairEnd>) {
        let Self { first, rest } = self;
        let (start, end) = rest.ends();
        let pair = |second: &R::End| pair_end::<I, K>(&first, second);
        let start = match &start {
            Unbounded => Included(least_with::<I, K>(&first)),
            bound => bound.as_ref().map(pair),
        };
        let end = match &end {
            Unbounded => most_with::<I, K>(&first),
            bound => bound.as_ref().map(pair),
        };
        (start, end)
    }
}

fn pair_end<I: Key, K: Key>(first: &impl AsKey<I>, second: &impl AsKey<K>) -> PairEnd {
    if <(I, K)>::FITS {
        return PairEnd::Word(second.pack_key(first.packed()));
    }
    let mut pair = bytes::<I>(ByRef(first), false);
    second.write_key(&mut pair, true);
    PairEnd::Bytes(pair)
}

/// Returns where the pairs with this first part begin.
fn least_with<I: Key, K: Key>(first: &impl AsKey<I>) -> PairEnd {
    if <(I, K)>::FITS { PairEnd::Word(low::<I, K>(first)) } else { PairEnd::Bytes(bytes::<I>(ByRef(first), false)) }
}

/// Returns where the pairs with this first part end.
fn most_with<I: Key, K: Key>(first: &impl AsKey<I>) -> Bound<PairEnd> {
    if <(I, K)>::FITS {
        let second = !u64::MAX.checked_shl(bits::<K>()).unwrap_or(0);
        return Included(PairEnd::Word(low::<I, K>(first) | second));
    }
    beyond(bytes::<I>(ByRef(first), false)).map_or(Unbounded, |end| Excluded(PairEnd::Bytes(end)))
}

/// Returns the word of the least pair with this first part. (An empty part is shifted out.)
fn low<I: Key, K: Key>(first: &impl AsKey<I>) -> u64 {
    first.packed().checked_shl(bits::<K>()).unwrap_or(0)
}

fn bits<K: Key>() -> u32 {
    8 * K::SIZE.unwrap_or(0) as u32
}

/// Returns the range of the pairs whose first part is in a range.
#[inline]
pub(crate) fn pairs_of<I: Key, K: Key>(range: impl KeyRange<I>) -> (Bound<PairEnd>, Bound<PairEnd>) {
    let (start, end) = range.ends();
    let start = match &start {
        Unbounded => Unbounded,
        Included(first) => Included(least_with::<I, K>(first)),
        Excluded(first) => match most_with::<I, K>(first) {
            Included(last) => Excluded(last),
            Excluded(next) => Included(next),
            // No pair comes after those with this first part.
            Unbounded => return nothing(),
        },
    };
    let end = match &end {
        Unbounded => Unbounded,
        Included(first) => most_with::<I, K>(first),
        Excluded(first) => Excluded(least_with::<I, K>(first)),
    };
    (start, end)
}

/// Returns a range without a key.
fn nothing() -> (Bound<PairEnd>, Bound<PairEnd>) {
    (Included(PairEnd::Bytes(Vec::new())), Excluded(PairEnd::Bytes(Vec::new())))
}

/// Returns the least string after all that begin with this one. `None` if there is none.
fn beyond(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = bytes.pop() {
        if let Some(next) = last.checked_add(1) {
            bytes.push(next);
            return Some(bytes);
        }
    }
    None
}
