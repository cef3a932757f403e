//! Records: a header of four words, optional lengths and a long key, the value, and an optional
//! checksum.
//!
//! ```text
//! word 0   key: the key itself, or a long key's fingerprint (in a tree, its last eight bytes)
//!      1   head: incarnation, length, older version (see `Head`)
//!      2   state (see `State`)
//!      3   version (see `Version`)
//!      4.. value                                                 of up to 254 bytes, and a short key
//!
//!      4   lengths: value (32 bits), key (16 bits above)         otherwise
//!      5.. key, then value, each from a word's boundary
//!
//!     ... checksum (see `checksum`)                             behind the value, in a table that is made for peers
//! ```
//!
//! A record with a checksum begins at a multiple of four words. So its header is within one cache
//! line, and one READ sees all of it at once. What a peer writes is contiguous: from the version to
//! the checksum.
//!
//! # Reading
//!
//! Readers are optimistic: they validate the version. See `read`.
//!
//! # Writing
//!
//! A record is written under the lock in its state word. A writer of the owner marks the version as
//! `writing`, writes the words, then stores the new version. A peer writes version and value at
//! once, without a mark: a reader of the owner believes no value from under a lock that a peer may
//! have (see `docs/decisions/0099`).
//!
//! Free memory stays locked and marked `writing`, with its incarnation incremented, until its next
//! use is complete. A thread that still has the old place finds the record busy, or with another
//! incarnation, and looks the key up again. The memory of a record that no table leads to yet is
//! also only reused under its lock. A thread that locks the record by its old place notices the
//! reuse under the lock.

pub(crate) mod acquire;
pub(crate) mod checksum;
pub(crate) mod handle;
mod hold;
pub(crate) mod keys;
mod lines;
mod past;
mod read;
pub(crate) mod records;
mod shape;
pub(crate) mod value_sink;
mod write;

pub use hold::Reserved;
pub use lines::PrefetchMask;
pub use read::{AsOf, Current, ForHolder, InAnyState, Past, Placing, Visibility};
pub(crate) use read::{FoundRow, KeyInto, KeyWord, Present, WholeKey};
pub(crate) use shape::Shape;
pub use shape::record_bytes;
pub(crate) use write::Locked;

use std::hint::cold_path;

use drtm_htm::{Engine, Word};
use drtm_rdma::{Offset, OutOfBounds, Region, read_bytes, words_for};

use crate::{
    record::{
        keys::{Keys, MAX_KEY},
        value_sink::ValueSink,
    },
    store::{
        heap::{ALIGNED, LARGEST},
        layout::{Head, Place, State, Version},
    },
};

pub(crate) const KEY: usize = 0;
pub(crate) const HEAD: usize = 1;
pub(crate) const STATE: usize = 2;
pub(crate) const VERSION: usize = 3;

/// The number of words before the value or the lengths.
pub(crate) const HEADER_WORDS: usize = 4;

const _: () = assert!(HEADER_WORDS * 8 <= 32);

const _: () = assert!(HEADER_WORDS == ALIGNED, "the header of a record with a checksum is within a line");

/// The length of the longest value, in bytes.
pub const MAX_VALUE: usize = 64 << 10;

const _: () = assert!(HEADER_WORDS + 1 + MAX_KEY / 8 + MAX_VALUE / 8 < LARGEST, "with a checksum");

/// The outcome of an optimistic read of a record.
///
/// # Example
///
/// See [`RecordPeer`](crate::RecordPeer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look<T> {
    /// The record, unchanged during the read.
    Found(T),
    /// An unchanged record of another key, which has the same fingerprint.
    Other,
    /// The key's record, unchanged, which says that the key is absent.
    Absent,
    /// Not the expected record any more: look the key up again.
    Stale,
    /// The record is being written, or changed during the read: read it again.
    Busy,
}

impl<T> Look<T> {
    /// Returns what was found, or otherwise the outcome as a `Look` of another type.
    pub(crate) fn found<U>(self) -> Result<T, Look<U>> {
        match self {
            Self::Found(found) => Ok(found),
            Self::Other => Err(Look::Other),
            Self::Absent => Err(Look::Absent),
            Self::Stale => Err(Look::Stale),
            Self::Busy => Err(Look::Busy),
        }
    }

    /// Maps what was found by `follow`.
    pub fn map<U>(self, follow: impl FnOnce(T) -> U) -> Look<U> {
        self.found().map_or_else(|nothing| nothing, |found| Look::Found(follow(found)))
    }
}

/// A record in memory, by the words of its header.
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

    /// Returns `count` words of the body, from word `skip` on.
    #[inline(always)]
    fn body(&self, skip: usize, count: usize) -> Result<&'r [Word], OutOfBounds> {
        let word = self.place.word + (HEADER_WORDS + skip) as u64;
        self.region.words(Offset::new(8 * word), count)
    }

    #[inline(always)]
    pub(crate) fn shape<K: Keys>(&self, head: Head) -> Result<Shape, OutOfBounds> {
        Shape::told::<K, _>(head, self.lengths())
    }

    /// Returns a function that loads the word of lengths.
    // It captures the region and the place, not the record, which would otherwise have to be in
    // memory.
    #[inline(always)]
    fn lengths(&self) -> impl FnOnce() -> Result<u64, OutOfBounds> + use<'r, E> {
        let (region, at) = (self.region, Offset::new(8 * (self.place.word + HEADER_WORDS as u64)));
        move || Ok(region.engine().load_relaxed(&region.array::<1>(at)?[0]))
    }

    /// Returns the number of words of the record. It is arbitrary while the record is being
    /// written.
    pub(crate) fn words<K: Keys>(&self) -> Result<usize, OutOfBounds> {
        Ok(self.shape::<K>(self.head())?.words())
    }

    #[inline(always)]
    fn state(&self) -> State {
        State(self.engine().load(&self.header[STATE]))
    }

    #[inline(always)]
    fn version(&self) -> Version {
        Version(self.engine().load(&self.header[VERSION]))
    }

    #[inline(always)]
    pub(crate) fn head(&self) -> Head {
        Head(self.engine().load_relaxed(&self.header[HEAD]))
    }

    /// Returns whether a record with this head has this key.
    #[inline(always)]
    fn has_key<K: Keys>(&self, head: Head, key: K::Key<'_>) -> Result<bool, OutOfBounds> {
        if self.key_word() != K::word(key) {
            cold_path();
            return Ok(false);
        }
        if K::FITS {
            return Ok(true);
        }
        let shape = self.shape::<K>(head)?;
        match shape.key {
            None => Ok(true),
            Some(length) => Ok(K::matches(self.engine(), self.body(1, shape.key_words())?, length, key)),
        }
    }

    /// Copies as much of the value as the sink takes.
    #[inline(always)]
    fn copy_wanted<R: ValueSink>(&self, shape: Shape, into: &mut R) -> Result<(), OutOfBounds> {
        if !R::IS_WANTED {
            return Ok(());
        }
        // Bounds are checked before the sink provides room: an arbitrary length leads out of
        // memory, or is at most that of a page.
        let value = self.body(shape.before_value(), words_for(shape.value))?;
        self.copy_parts(value, shape.value, into);
        Ok(())
    }

    #[inline(always)]
    fn copy_parts(&self, value: &[Word], length: usize, into: &mut impl ValueSink) {
        let skipped = into.skipped().min(value.len());
        read_bytes(self.engine(), &value[skipped..], into.of(length.saturating_sub(8 * skipped)));
    }

    #[inline(always)]
    fn copy_kept_key<K: Keys>(&self, head: Head, into: &mut Vec<u8>) -> Result<(), OutOfBounds> {
        let shape = self.shape::<K>(head)?;
        let words = self.body(1, shape.key_words())?;
        let length = shape.key.unwrap_or(0);
        if length > MAX_KEY {
            return Err(OutOfBounds { at: Offset::new(8 * self.place.word), words: words.len() });
        }
        into.resize(length, 0);
        read_bytes(self.engine(), words, into);
        Ok(())
    }

    #[inline(always)]
    fn key_word(&self) -> u64 {
        self.engine().load_relaxed(&self.header[KEY])
    }
}
