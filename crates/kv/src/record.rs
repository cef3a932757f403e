//! Records: a header of four words, then, if need be, lengths and a long key, then the value, then perhaps a checksum.
//!
//! ```text
//! word 0   key: the key itself, or a long key's fingerprint (in a tree, its last eight bytes)
//!      1   state (see `State`)
//!      2   version (see `Version`)
//!      3   head: incarnation, length, older version (see `Head`)
//!      4.. value                                                 of up to 254 bytes, and a short key
//!
//!      4   lengths: value (32 bits), key (16 bits above)         otherwise
//!      5.. key, then value, each from a word's boundary
//!
//!     ... checksum (see `checksum`)                             behind the value, in a table that is made for peers
//! ```
//!
//! # Reading
//!
//! Optimistic, by the version: not `writing` at first, and the same after everything has been copied. Then the incarnation and the key
//! tell whether it was the record looked for: its memory may have had another use since the reader learned of it.
//!
//! # Writing
//!
//! Under the lock in the state word. The version is marked `writing`, then the words are written, then the new version. Memory that is
//! free stays locked and marked `writing`, with its incarnation one on, until its next use is complete: whoever still has its
//! place finds it busy, or of another incarnation, and goes back to the table. Also memory of a record that no table leads to yet
//! is only used anew under its lock: whoever locks what it was before finds out under the lock.

mod hold;
mod lines;
mod observe;
mod past;
mod shape;
mod write;

pub use hold::Reserved;
pub use lines::Lines;
pub use past::Past;
pub(crate) use past::PastView;
pub(crate) use shape::Shape;

use std::hint::cold_path;

use drtm_htm::{Engine, Word, fence_acquire};
use drtm_rdma::{Offset, OutOfBounds, Region, read_bytes, words_for};

use crate::{
    heap::LARGEST,
    keys::{Keys, MAX_KEY},
    layout::{Head, Place, Version},
    mutation::{self, Mutation},
    room::{Buffer, Room},
};

pub(crate) const KEY: usize = 0;
pub(crate) const STATE: usize = 1;
pub(crate) const VERSION: usize = 2;
pub(crate) const HEAD: usize = 3;

/// Words before the value or the lengths.
pub(crate) const HEADER_WORDS: usize = 4;

const _: () = assert!(HEADER_WORDS * 8 <= 32);

/// The longest value in bytes.
pub const MAX_VALUE: usize = 64 << 10;

const _: () = assert!(HEADER_WORDS + 1 + MAX_KEY / 8 + MAX_VALUE / 8 < LARGEST, "with a checksum");

/// What an optimistic look at a record has found.
///
/// # Example
///
/// See [`RecordPeer`](crate::RecordPeer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look<T> {
    /// The record, unchanged while it was looked at.
    Found(T),
    /// A record, unchanged, of another key: only the fingerprints are the same.
    Other,
    /// The key's record, unchanged, which says that the key is not there.
    Absent,
    /// Not the record looked for any more: ask the table again.
    Stale,
    /// Being written, or changed meanwhile: look again.
    Busy,
}

impl<T> Look<T> {
    /// What was found, or else the same about anything.
    pub(crate) fn found<U>(self) -> Result<T, Look<U>> {
        match self {
            Self::Found(found) => Ok(found),
            Self::Other => Err(Look::Other),
            Self::Absent => Err(Look::Absent),
            Self::Stale => Err(Look::Stale),
            Self::Busy => Err(Look::Busy),
        }
    }

    /// The same about something that follows from what was found.
    pub fn map<U>(self, follow: impl FnOnce(T) -> U) -> Look<U> {
        self.found().map_or_else(|nothing| nothing, |found| Look::Found(follow(found)))
    }
}

/// A value that was read.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{HashConfig, Store};
///
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let table = store.hash_table(HashConfig::default())?;
/// table.insert(&mut store.worker()?, 7, b"seven")?;
/// let mut value = [0; 16];
/// let read = table.get(7, &mut value)?.expect("just inserted");
/// assert_eq!(&value[..read.length], b"seven");
/// # Ok::<(), drtm_kv::KvError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Read {
    /// The value's length. If the buffer was shorter, only its beginning was copied.
    pub length: usize,
    /// The version of the value.
    pub version: Version,
}

/// A record in memory: its header's words.
#[derive(Debug)]
pub struct Record<'r, E: Engine> {
    region: &'r Region<E>,
    place: Place,
    header: &'r [Word; HEADER_WORDS],
}

impl<'r, E: Engine> Record<'r, E> {
    #[inline(always)]
    pub(crate) fn at(region: &'r Region<E>, place: Place) -> Result<Self, OutOfBounds> {
        Ok(Self { region, place, header: region.array(Offset::new(8 * place.word))? })
    }

    #[inline(always)]
    fn engine(&self) -> &'r E {
        self.region.engine()
    }

    /// The `count` words behind the first `skip` ones behind the header.
    #[inline(always)]
    fn body(&self, skip: usize, count: usize) -> Result<&'r [Word], OutOfBounds> {
        let word = self.place.word + (HEADER_WORDS + skip) as u64;
        self.region.words(Offset::new(8 * word), count)
    }

    #[inline(always)]
    pub(crate) fn shape<K: Keys>(&self, head: Head) -> Result<Shape, OutOfBounds> {
        Shape::told::<K, _>(head, self.lengths())
    }

    /// The word of lengths, for who asks.
    // Of the region and the place, not of the record: that would have to be in memory for whoever does not ask, too.
    #[inline(always)]
    fn lengths(&self) -> impl FnOnce() -> Result<u64, OutOfBounds> + use<'r, E> {
        let (region, at) = (self.region, Offset::new(8 * (self.place.word + HEADER_WORDS as u64)));
        move || Ok(region.engine().load_relaxed(&region.array::<1>(at)?[0]))
    }

    /// How many words it has. Nonsense, while it is being written.
    pub(crate) fn words<K: Keys>(&self) -> Result<usize, OutOfBounds> {
        Ok(self.shape::<K>(self.head())?.words())
    }

    #[inline(always)]
    fn version(&self) -> Version {
        Version(self.engine().load(&self.header[VERSION]))
    }

    #[inline(always)]
    pub(crate) fn head(&self) -> Head {
        Head(self.engine().load_relaxed(&self.header[HEAD]))
    }

    /// Begins to look at the record. What is seen from here on may be nonsense, errors included, until [`end`](Self::end) has said
    /// that it is not.
    #[inline(always)]
    fn begin<T>(&self) -> Result<Version, Look<T>> {
        let version = self.version();
        if version.is_writing() {
            cold_path();
            return Err(if self.head().incarnation() == self.place.incarnation { Look::Busy } else { Look::Stale });
        }
        Ok(version)
    }

    /// Says what to make of what was seen since the record [had](Self::begin) this version: of a key's record, or (`None`) another's.
    #[inline(always)]
    fn end<T>(&self, version: Version, seen: Result<Option<T>, OutOfBounds>) -> Result<Look<T>, OutOfBounds> {
        match self.end_either(version, seen)? {
            Look::Found(_) if version.is_removed() => Ok(Look::Absent),
            look => Ok(look),
        }
    }

    /// The same, of a record that may stand for a key that is not there.
    #[inline(always)]
    fn end_either<T>(&self, version: Version, seen: Result<Option<T>, OutOfBounds>) -> Result<Look<T>, OutOfBounds> {
        fence_acquire();
        if self.version() != version && !mutation::includes(Mutation::ReadWithoutVersion) {
            cold_path();
            return Ok(Look::Busy);
        }
        if self.head().incarnation() != self.place.incarnation {
            cold_path();
            return Ok(Look::Stale);
        }
        Ok(seen?.map_or(Look::Other, Look::Found))
    }

    /// What a key's record, with this head, looks like behind its header; `None` if it is another key's.
    #[inline(always)]
    fn shape_for<K: Keys>(&self, head: Head, key: K::Key<'_>) -> Result<Option<Shape>, OutOfBounds> {
        let shape = self.shape::<K>(head)?;
        Ok(self.has_key::<K>(shape, key)?.then_some(shape))
    }

    #[inline(always)]
    fn has_key<K: Keys>(&self, shape: Shape, key: K::Key<'_>) -> Result<bool, OutOfBounds> {
        if self.key_word() != K::word(key) {
            cold_path();
            return Ok(false);
        }
        match shape.key {
            None => Ok(true),
            Some(length) => Ok(K::matches(self.engine(), self.body(1, shape.key_words())?, length, key)),
        }
    }

    /// Copies a key's value, if it is the key's record.
    #[inline(always)]
    pub(crate) fn read<K: Keys>(&self, key: K::Key<'_>, into: &mut impl Room) -> Result<Look<Version>, OutOfBounds> {
        match self.begin() {
            Ok(version) => self.end(version, self.read_value::<K>(key, into).map(|read| read.map(|()| version))),
            Err(look) => Ok(look),
        }
    }

    #[inline(always)]
    fn read_value<K: Keys>(&self, key: K::Key<'_>, into: &mut impl Room) -> Result<Option<()>, OutOfBounds> {
        let head = self.head();
        if !K::FITS {
            let Some(shape) = self.shape_for::<K>(head, key)? else { return Ok(None) };
            return self.copy_wanted(shape, into).map(Some);
        }
        if self.key_word() != K::word(key) {
            cold_path();
            return Ok(None);
        }
        match self.copy_expected::<K, _>(head, into) {
            Some(()) => Ok(Some(())),
            None => self.copy_wanted(self.shape::<K>(head)?, into).map(Some),
        }
    }

    /// Copies the whole value of a record of which only the key's word is known, in the usual case: it is whole, the key is there, and the record is one that
    /// `is_fit` from what its version is. `None`: look at it with more care.
    #[inline(always)]
    pub(crate) fn glance<K: Keys>(
        &self,
        word: u64,
        is_fit: impl FnOnce(Version) -> bool,
        into: &mut impl Room,
    ) -> Option<Version> {
        let version = self.version();
        if version.is_writing() || version.is_removed() || self.key_word() != word || !is_fit(version) {
            return None;
        }
        self.copy_expected::<K, _>(self.head(), into)?;
        fence_acquire();
        let is_same = self.version() == version && self.head().incarnation() == self.place.incarnation;
        (is_same || mutation::includes(Mutation::ReadWithoutVersion)).then_some(version)
    }

    /// Copies the whole value of a record of which only the key's word is known.
    #[inline(always)]
    pub(crate) fn copy<K: Keys>(&self, word: u64, into: &mut impl Room) -> Result<Look<Version>, OutOfBounds> {
        match self.begin() {
            Ok(version) if self.key_word() == word => {
                self.end(version, self.copy_value::<K>(into).map(|()| Some(version)))
            }
            Ok(version) => self.end(version, Ok(None)),
            Err(look) => Ok(look),
        }
    }

    /// Copies the whole key and the whole value of a record that keeps its key, whichever key it is.
    #[inline]
    pub(crate) fn copy_row<K: Keys>(
        &self,
        key: &mut Vec<u8>,
        value: &mut impl Room,
    ) -> Result<Look<Version>, OutOfBounds> {
        match self.begin() {
            Ok(version) => {
                let copied = self.copy_kept_key::<K>(key).and_then(|()| self.copy_value::<K>(value));
                self.end(version, copied.map(|()| Some(version)))
            }
            Err(look) => Ok(look),
        }
    }

    /// Copies the whole key of a record that keeps it, be the key there or not.
    pub(crate) fn copy_key<K: Keys>(&self, key: &mut Vec<u8>) -> Result<Look<()>, OutOfBounds> {
        match self.begin() {
            Ok(version) => self.end_either(version, self.copy_kept_key::<K>(key).map(Some)),
            Err(look) => Ok(look),
        }
    }

    /// Copies as much of the value as is wanted, if it is as long as is expected: without waiting for the head, on which does not depend then where it is, and how much.
    /// `None` if it is not; look at it with more care.
    #[inline(always)]
    fn copy_expected<K: Keys, R: Room>(&self, head: Head, into: &mut R) -> Option<()> {
        if !R::IS_WANTED {
            return Some(());
        }
        let (true, Some(whole)) = (K::FITS, into.whole()) else {
            return self.copy_wanted(self.shape::<K>(head).ok()?, into).ok();
        };
        let is_short = whole <= Head::MAX_SHORT;
        let before = usize::from(!is_short);
        let body = self.body(0, before + words_for(whole)).ok()?;
        let is_as_long = match head.short_length() {
            Some(length) => is_short && usize::from(length) == whole,
            None => !is_short && self.engine().load_relaxed(&body[0]) == whole as u64,
        };
        if is_as_long {
            self.copy_parts(&body[before..], whole, into);
        }
        is_as_long.then_some(())
    }

    /// Copies what there is room for of the value of the record at this word, which has this head. Gives how long it is.
    // It looks for the record once more: one that it was given would have to be in memory, for all others, too.
    #[inline(never)]
    pub(crate) fn copy_any<K: Keys>(region: &Region<E>, word: u64, head: Head, into: &mut [u8]) -> Option<usize> {
        let record = Record::at(region, Place { word, incarnation: 0 }).ok()?;
        let shape = record.shape::<K>(head).ok()?;
        record.copy_wanted(shape, &mut Buffer::new(into)).ok()?;
        Some(shape.value)
    }

    #[inline(always)]
    fn copy_value<K: Keys>(&self, into: &mut impl Room) -> Result<(), OutOfBounds> {
        self.copy_wanted(self.shape::<K>(self.head())?, into)
    }

    /// Copies as much of the value as is wanted.
    #[inline(always)]
    fn copy_wanted<R: Room>(&self, shape: Shape, into: &mut R) -> Result<(), OutOfBounds> {
        if !R::IS_WANTED {
            return Ok(());
        }
        // Before there is room for so much: a length that is nonsense leads out of memory, or is at most that of a page.
        let value = self.body(shape.before_value(), words_for(shape.value))?;
        self.copy_parts(value, shape.value, into);
        Ok(())
    }

    #[inline(always)]
    fn copy_parts(&self, value: &[Word], length: usize, into: &mut impl Room) {
        let skipped = into.skipped().min(value.len());
        read_bytes(self.engine(), &value[skipped..], into.of(length.saturating_sub(8 * skipped)));
        if let Some((skipped, into)) = into.besides(length) {
            read_bytes(self.engine(), value.get(skipped..).unwrap_or(&[]), into);
        }
    }

    #[inline(always)]
    fn copy_kept_key<K: Keys>(&self, into: &mut Vec<u8>) -> Result<(), OutOfBounds> {
        let shape = self.shape::<K>(self.head())?;
        let words = self.body(1, shape.key_words())?;
        let length = shape.key.unwrap_or(0);
        if length > MAX_KEY {
            return Err(OutOfBounds { at: Offset::new(8 * self.place.word), words: words.len() });
        }
        into.resize(length, 0);
        read_bytes(self.engine(), words, into);
        Ok(())
    }

    /// Whether the record is there, and in which version.
    #[inline]
    pub(crate) fn check<K: Keys>(&self, key: K::Key<'_>) -> Result<Look<Version>, OutOfBounds> {
        match self.begin() {
            Ok(version) => self.end(version, self.shape_for::<K>(self.head(), key).map(|shape| shape.map(|_| version))),
            Err(look) => Ok(look),
        }
    }

    /// Whether it is the key's, be the key there or not.
    pub(crate) fn identify<K: Keys>(&self, key: K::Key<'_>) -> Result<Look<()>, OutOfBounds> {
        match self.begin() {
            Ok(version) => {
                self.end_either(version, self.shape_for::<K>(self.head(), key).map(|shape| shape.map(|_| ())))
            }
            Err(look) => Ok(look),
        }
    }

    #[inline(always)]
    fn key_word(&self) -> u64 {
        self.engine().load_relaxed(&self.header[KEY])
    }
}
