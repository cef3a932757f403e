//! Values that can be looked up as keys, and ranges of keys.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use super::Key;

/// A value that can be looked up as a key of type `K`.
///
/// Implemented for `&K`; for integers, `bool`, `char`, `String` and `Vec<u8>` by value; for `&str`
/// where keys are `String`, and `&[u8]` where they are `Vec<u8>`; and for arrays, options and
/// tuples of these. So a lookup by parts of a key allocates nothing.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, Pod, TableDef};
///
/// const STOCK: TableDef<(String, u32), Pod<u64>> = TableDef::hash("stock");
/// let db = Db::new()?;
/// let stock = db.table(STOCK)?;
/// let left = db.transact(|tx| {
///     tx.put(stock, ("eu", 7), &40)?;
///     tx.update(stock, ("eu", 7), |left| *left -= 1)?;
///     tx.get(stock, &("eu".to_owned(), 7))
/// })?;
/// assert_eq!(left, Some(39));
/// # Ok::<(), Error>(())
/// ```
///
/// It can be [derived](derive@crate::Key) together with a key. Other types implement it for values
/// that keys are made of. The encoding must be the key's.
///
/// ```
/// use drtm::{AsKey, Key, KeyReader};
///
/// #[derive(Clone)]
/// struct Name(String);
///
/// impl Key for Name {
///     const SIZE: Option<usize> = None;
///     fn shape() -> String {
///         String::shape()
///     }
///     fn pack(&self, word: u64) -> u64 {
///         word
///     }
///     fn write(&self, bytes: &mut Vec<u8>, last: bool) {
///         self.0.write(bytes, last);
///     }
///     fn read(reader: &mut KeyReader<'_>, last: bool) -> Option<Self> {
///         String::read(reader, last).map(Self)
///     }
/// }
///
/// impl AsKey<Name> for &str {
///     fn pack_key(&self, word: u64) -> u64 {
///         AsKey::<String>::pack_key(self, word)
///     }
///     fn write_key(&self, bytes: &mut Vec<u8>, last: bool) {
///         AsKey::<String>::write_key(self, bytes, last);
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be looked up as a key of type `{K}`",
    note = "a reference to a key can, and so can integers, `&str`, `&[u8]` and tuples of these"
)]
pub trait AsKey<K: Key> {
    /// Like [`Key::pack`].
    fn pack_key(&self, word: u64) -> u64;

    /// Like [`Key::write`].
    fn write_key(&self, bytes: &mut Vec<u8>, last: bool);

    /// Returns the word that it packs into. Only called if keys fit.
    #[doc(hidden)]
    #[inline(always)]
    fn packed(&self) -> u64 {
        self.pack_key(0)
    }
}

impl<K: Key> AsKey<K> for &K {
    #[inline(always)]
    fn pack_key(&self, word: u64) -> u64 {
        Key::pack(*self, word)
    }
    #[inline(always)]
    fn write_key(&self, bytes: &mut Vec<u8>, last: bool) {
        Key::write(*self, bytes, last);
    }
}

/// A reference to a value that can be looked up as a key.
#[derive(Debug)]
pub(crate) struct ByRef<'a, A>(pub(crate) &'a A);

impl<K: Key, A: AsKey<K>> AsKey<K> for ByRef<'_, A> {
    #[inline(always)]
    fn pack_key(&self, word: u64) -> u64 {
        self.0.pack_key(word)
    }
    #[inline(always)]
    fn write_key(&self, bytes: &mut Vec<u8>, last: bool) {
        self.0.write_key(bytes, last);
    }
}

macro_rules! by_value {
    ($($type:ty),+) => {$(
        impl AsKey<Self> for $type {
            #[inline(always)]
            fn pack_key(&self, word: u64) -> u64 {
                Key::pack(self, word)
            }
            #[inline(always)]
            fn write_key(&self, bytes: &mut Vec<u8>, last: bool) {
                Key::write(self, bytes, last);
            }
        }
    )+};
}

by_value!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, bool, char, String, Vec<u8>);

impl<K: Key, A: AsKey<K>, const N: usize> AsKey<[K; N]> for [A; N] {
    #[inline(always)]
    fn pack_key(&self, word: u64) -> u64 {
        self.iter().fold(word, |word, part| part.pack_key(word))
    }
    #[inline]
    fn write_key(&self, bytes: &mut Vec<u8>, last: bool) {
        for (part, number) in self.iter().zip(1..) {
            part.write_key(bytes, last && number == N);
        }
    }
}

impl<K: Key, A: AsKey<K>> AsKey<Option<K>> for Option<A> {
    #[inline(always)]
    fn pack_key(&self, word: u64) -> u64 {
        pack_option(self.as_ref(), word)
    }
    #[inline]
    fn write_key(&self, bytes: &mut Vec<u8>, last: bool) {
        write_option(self.as_ref(), bytes, last);
    }
}

#[inline(always)]
pub(super) fn pack_option<K: Key>(key: Option<&impl AsKey<K>>, word: u64) -> u64 {
    let word = Key::pack(&key.is_some(), word);
    match key {
        Some(key) => key.pack_key(word),
        None => (0..K::SIZE.unwrap_or(0)).fold(word, |word, _| Key::pack(&0_u8, word)),
    }
}

pub(super) fn write_option<K: Key>(key: Option<&impl AsKey<K>>, bytes: &mut Vec<u8>, last: bool) {
    Key::write(&key.is_some(), bytes, false);
    match key {
        Some(key) => key.write_key(bytes, last),
        None => bytes.resize(bytes.len() + K::SIZE.unwrap_or(0), 0),
    }
}

impl AsKey<String> for &str {
    #[inline(always)]
    fn pack_key(&self, word: u64) -> u64 {
        word
    }
    #[inline]
    fn write_key(&self, bytes: &mut Vec<u8>, last: bool) {
        super::write_string(self.as_bytes(), bytes, last);
    }
}

impl AsKey<Vec<u8>> for &[u8] {
    #[inline(always)]
    fn pack_key(&self, word: u64) -> u64 {
        word
    }
    #[inline]
    fn write_key(&self, bytes: &mut Vec<u8>, last: bool) {
        super::write_string(self, bytes, last);
    }
}

impl<const N: usize> AsKey<Vec<u8>> for &[u8; N] {
    #[inline(always)]
    fn pack_key(&self, word: u64) -> u64 {
        word
    }
    #[inline]
    fn write_key(&self, bytes: &mut Vec<u8>, last: bool) {
        super::write_string(*self, bytes, last);
    }
}

macro_rules! tuples {
    ($(($($part:ident as $key:ident)* ; $last:ident as $last_key:ident))+) => {$(
        #[allow(non_snake_case, reason = "the parts are named as their types")]
        impl<$($key: Key, $part: AsKey<$key>,)* $last_key: Key, $last: AsKey<$last_key>>
            AsKey<($($key,)* $last_key,)> for ($($part,)* $last,)
        {
            #[inline(always)]
            fn pack_key(&self, word: u64) -> u64 {
                let ($($part,)* $last,) = self;
                $(let word = $part.pack_key(word);)*
                $last.pack_key(word)
            }
            #[inline]
            fn write_key(&self, bytes: &mut Vec<u8>, last: bool) {
                let ($($part,)* $last,) = self;
                $($part.write_key(bytes, false);)*
                $last.write_key(bytes, last);
            }
        }
    )+};
}

tuples! {
    (; A as K)
    (A as K; B as L)
    (A as K B as L; C as M)
    (A as K B as L C as M; D as N)
    (A as K B as L C as M D as N; E as O)
    (A as K B as L C as M D as N E as O; F as P)
}

/// A range of keys of type `K`: `..`, or a range whose ends are [looked up as keys](AsKey).
///
/// A pair of [bounds](Bound) is one too. A range whose start is behind its end is empty.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, Ordered, Pod, TableDef};
///
/// const AGES: TableDef<String, Pod<u32>, Ordered> = TableDef::ordered("ages");
/// let db = Db::new()?;
/// let ages = db.table(AGES)?;
/// db.transact(|tx| {
///     ["Ada", "Bob", "Cleo"].iter().zip(&[36, 40, 25]).try_for_each(|(name, age)| tx.put(ages, *name, age))?;
///     assert_eq!(tx.range(ages, "Ada".."Bob")?.count()?, 1);
///     assert_eq!(tx.range(ages, "Bob"..)?.count()?, 2);
///     assert_eq!(tx.range(ages, "Cleo".."Ada")?.count()?, 0);
///     assert_eq!(tx.range(ages, ..)?.first()?, Some(("Ada".to_owned(), 36)));
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a range of keys of type `{K}`",
    note = "`..` is, and so are ranges of references to keys, of integers, `&str`, `&[u8]` and tuples of these"
)]
pub trait KeyRange<K: Key> {
    /// The type of the range's ends.
    type End: AsKey<K>;

    /// Returns the range's ends.
    fn ends(self) -> (Bound<Self::End>, Bound<Self::End>);
}

impl<K: Key> KeyRange<K> for RangeFull {
    type End = &'static K;

    #[inline(always)]
    fn ends(self) -> (Bound<Self::End>, Bound<Self::End>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

macro_rules! ranges {
    ($($range:ident |$it:ident| $ends:expr),+) => {$(
        impl<K: Key, A: AsKey<K>> KeyRange<K> for $range<A> {
            type End = A;

            #[inline(always)]
            fn ends(self) -> (Bound<A>, Bound<A>) {
                let $it = self;
                $ends
            }
        }
    )+};
}

ranges! {
    Range |it| (Bound::Included(it.start), Bound::Excluded(it.end)),
    RangeInclusive |it| {
        let (start, end) = it.into_inner();
        (Bound::Included(start), Bound::Included(end))
    },
    RangeFrom |it| (Bound::Included(it.start), Bound::Unbounded),
    RangeTo |it| (Bound::Unbounded, Bound::Excluded(it.end)),
    RangeToInclusive |it| (Bound::Unbounded, Bound::Included(it.end))
}

impl<K: Key, A: AsKey<K>> KeyRange<K> for (Bound<A>, Bound<A>) {
    type End = A;

    #[inline(always)]
    fn ends(self) -> Self {
        self
    }
}

/// Returns the encoding of a key, or of its first part.
pub(crate) fn bytes<K: Key>(key: impl AsKey<K>, last: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.write_key(&mut bytes, last);
    bytes
}
