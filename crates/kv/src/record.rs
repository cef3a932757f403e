//! Records: a header of four words, then, if need be, lengths and a long key, then the value.
//!
//! ```text
//! word 0   key: the key itself, or a long key's fingerprint
//!      1   state (see `State`)
//!      2   version (see `Version`)
//!      3   head: incarnation, length, older version (see `Head`)
//!      4.. value                                                 of up to 254 bytes, and a short key
//!
//!      4   lengths: value (32 bits), key (16 bits above)         otherwise
//!      5.. key, then value, each from a word's boundary
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
//! place finds it busy, or of another incarnation, and goes back to the table.

use drtm_htm::{Engine, Word, fence_acquire, fence_release};
use drtm_rdma::{Offset, Region, read_bytes, words_for, write_bytes};

use crate::{
    KvError,
    heap::{Class, LARGEST},
    keys::{Keys, MAX_KEY},
    layout::{Head, Place, State, Version},
    mutation::{self, Mutation},
};

const KEY: usize = 0;
const STATE: usize = 1;
const VERSION: usize = 2;
const HEAD: usize = 3;

/// Words before the value or the lengths.
pub(crate) const HEADER_WORDS: usize = 4;

const _: () = assert!(HEADER_WORDS * 8 <= 32);

/// The longest value in bytes.
pub const MAX_VALUE: usize = 64 << 10;

const _: () = assert!(HEADER_WORDS + 1 + MAX_KEY / 8 + MAX_VALUE / 8 <= LARGEST);

/// How a record of some lengths is laid out behind its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The key's length, if the record keeps it.
    key: Option<usize>,
    value: usize,
}

impl Shape {
    #[inline]
    pub(crate) fn of<K: Keys>(key: K::Key<'_>, value: usize) -> Result<Self, KvError> {
        if value > MAX_VALUE {
            return Err(KvError::ValueTooLong { length: value, longest: MAX_VALUE });
        }
        Ok(Self { key: K::kept(key)?, value })
    }

    fn has_lengths(self) -> bool {
        self.key.is_some() || self.value > Head::MAX_SHORT
    }

    fn key_words(self) -> usize {
        words_for(self.key.unwrap_or(0))
    }

    /// Words between header and value.
    fn before_value(self) -> usize {
        if self.has_lengths() { 1 + self.key_words() } else { 0 }
    }

    fn body_words(self) -> usize {
        self.before_value() + words_for(self.value)
    }

    /// The size class. There always is one: lengths have been checked.
    pub(crate) fn class(self) -> Class {
        Class::of(HEADER_WORDS + self.body_words()).unwrap_or_else(|| unreachable!("lengths are bounded"))
    }

    fn head(self, incarnation: u16) -> Head {
        Head::new(incarnation, if self.has_lengths() { None } else { Some(self.value as u8) })
    }

    fn lengths(self) -> u64 {
        (self.key.unwrap_or(0) as u64) << 32 | self.value as u64
    }
}

/// What an optimistic look at a record has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look<T> {
    /// The record, unchanged while it was looked at.
    Found(T),
    /// A record, unchanged, of another key: only the fingerprints are the same.
    Other,
    /// Not the record looked for any more: ask the table again.
    Stale,
    /// Being written, or changed meanwhile: look again.
    Busy,
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
/// table.insert(&mut store.worker(), 7, b"seven")?;
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
pub(crate) struct Record<'r, E: Engine> {
    region: &'r Region<E>,
    place: Place,
    header: &'r [Word; HEADER_WORDS],
}

impl<'r, E: Engine> Record<'r, E> {
    #[inline(always)]
    pub(crate) fn at(region: &'r Region<E>, place: Place) -> Result<Self, KvError> {
        Ok(Self { region, place, header: region.array(Offset::new(8 * place.word))? })
    }

    #[inline(always)]
    fn engine(&self) -> &'r E {
        self.region.engine()
    }

    /// The `count` words behind the first `skip` ones behind the header.
    #[inline(always)]
    fn body(&self, skip: usize, count: usize) -> Result<&'r [Word], KvError> {
        let word = self.place.word + (HEADER_WORDS + skip) as u64;
        Ok(self.region.words(Offset::new(8 * word), count)?)
    }

    #[inline(always)]
    fn shape<K: Keys>(&self, head: Head) -> Result<Shape, KvError> {
        match head.short_length() {
            Some(value) if K::FITS => Ok(Shape { key: None, value: usize::from(value) }),
            _ => {
                let lengths = self.engine().load_relaxed(&self.body(0, 1)?[0]);
                Ok(Shape { key: (!K::FITS).then_some((lengths >> 32) as usize), value: lengths as u32 as usize })
            }
        }
    }

    #[inline(always)]
    fn version(&self) -> Version {
        Version(self.engine().load(&self.header[VERSION]))
    }

    #[inline(always)]
    fn head(&self) -> Head {
        Head(self.engine().load_relaxed(&self.header[HEAD]))
    }

    /// Looks at the record with `see`, and says whether what it saw was whole, and of the key that `is_key` asks for.
    #[inline(always)]
    fn look<K: Keys, T>(
        &self,
        is_key: impl FnOnce(Shape) -> Result<bool, KvError>,
        see: impl FnOnce(Version, Shape) -> Result<T, KvError>,
    ) -> Result<Look<T>, KvError> {
        let version = self.version();
        if version.is_writing() {
            return Ok(if self.head().incarnation() == self.place.incarnation { Look::Busy } else { Look::Stale });
        }
        // What is seen may be nonsense until the version has been looked at again, errors included.
        let seen = match self.shape::<K>(self.head()) {
            Ok(shape) => match is_key(shape) {
                Ok(true) => see(version, shape).map(Some),
                Ok(false) => Ok(None),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        fence_acquire();
        if self.version() != version && !mutation::includes(Mutation::ReadWithoutVersion) {
            return Ok(Look::Busy);
        }
        if self.head().incarnation() != self.place.incarnation || version.is_removed() {
            return Ok(Look::Stale);
        }
        Ok(seen?.map_or(Look::Other, Look::Found))
    }

    #[inline(always)]
    fn has_key<K: Keys>(&self, shape: Shape, key: K::Key<'_>) -> Result<bool, KvError> {
        if self.key_word() != K::word(key) {
            return Ok(false);
        }
        match shape.key {
            None => Ok(true),
            Some(length) => Ok(K::matches(self.engine(), self.body(1, shape.key_words())?, length, key)),
        }
    }

    /// Copies as much of the value as `into` has room for.
    #[inline(always)]
    pub(crate) fn read<K: Keys>(&self, key: K::Key<'_>, into: &mut [u8]) -> Result<Look<Read>, KvError> {
        self.look::<K, _>(
            |shape| self.has_key::<K>(shape, key),
            |version, shape| {
                let copied = shape.value.min(into.len());
                let words = self.body(shape.before_value(), words_for(copied))?;
                read_bytes(self.engine(), words, &mut into[..copied]);
                Ok(Read { length: shape.value, version })
            },
        )
    }

    /// Copies the whole value of a record of which only the key's word is known.
    pub(crate) fn copy<K: Keys>(&self, word: u64, into: &mut Vec<u8>) -> Result<Look<Version>, KvError> {
        self.look::<K, _>(
            |_| Ok(self.key_word() == word),
            |version, shape| {
                // Before the buffer is made as long: a length that is nonsense leads out of memory, or is at most that of a page.
                let words = self.body(shape.before_value(), words_for(shape.value))?;
                into.resize(shape.value, 0);
                read_bytes(self.engine(), words, into);
                Ok(version)
            },
        )
    }

    /// Whether the record is there, and in which version.
    pub(crate) fn check<K: Keys>(&self, key: K::Key<'_>) -> Result<Look<Version>, KvError> {
        self.look::<K, _>(|shape| self.has_key::<K>(shape, key), |version, _| Ok(version))
    }

    #[inline(always)]
    fn key_word(&self) -> u64 {
        self.engine().load_relaxed(&self.header[KEY])
    }

    /// Locks the record if it is free and still the one looked for.
    #[inline(always)]
    pub(crate) fn lock<K: Keys>(&self, key: K::Key<'_>, holder: State) -> Result<Look<Locked<'_, 'r, E>>, KvError> {
        let engine = self.engine();
        if engine.compare_exchange(&self.header[STATE], State::FREE.0, holder.0).is_err() {
            return Ok(if self.head().incarnation() == self.place.incarnation { Look::Busy } else { Look::Stale });
        }
        let version = self.version();
        let head = self.head();
        let locked = Locked { record: self, version, shape: self.shape::<K>(head)? };
        let is_it = head.incarnation() == self.place.incarnation && !version.is_writing() && !version.is_removed();
        // If not, dropped here, and so unlocked.
        if !is_it {
            return Ok(Look::Stale);
        }
        let is_key = self.has_key::<K>(locked.shape, key)?;
        Ok(if is_key { Look::Found(locked) } else { Look::Other })
    }

    /// Fills memory that nobody knows of yet, and makes a record of it.
    pub(crate) fn create<K: Keys>(
        region: &'r Region<E>,
        word: u64,
        shape: Shape,
        key: K::Key<'_>,
        value: &[u8],
        version: Version,
    ) -> Result<Place, KvError> {
        let mut record = Self::at(region, Place { word, incarnation: 0 })?;
        record.place.incarnation = record.head().incarnation();
        let engine = region.engine();
        // Memory that was used before is marked and locked already, fresh memory is not known to anyone.
        engine.store_relaxed(&record.header[VERSION], version.writing().0);
        fence_release();
        engine.store_relaxed(&record.header[KEY], K::word(key));
        engine.store_relaxed(&record.header[HEAD], shape.head(record.place.incarnation).0);
        if shape.has_lengths() {
            engine.store_relaxed(&record.body(0, 1)?[0], shape.lengths());
            K::write(engine, record.body(1, shape.key_words())?, key);
        }
        write_bytes(engine, record.body(shape.before_value(), words_for(value.len()))?, value);
        engine.store(&record.header[VERSION], version.0);
        engine.store(&record.header[STATE], State::FREE.0);
        Ok(record.place)
    }

    /// Turns a record that nobody has learned of back into free memory.
    pub(crate) fn discard(&self, holder: State) {
        let engine = self.engine();
        engine.store(&self.header[STATE], holder.0);
        engine.store(&self.header[VERSION], self.version().removed().writing().0);
        engine.store(&self.header[HEAD], self.head().reborn().0);
    }
}

/// A record whose lock is held. Dropped, it is unlocked as it was.
#[derive(Debug)]
pub(crate) struct Locked<'l, 'r, E: Engine> {
    record: &'l Record<'r, E>,
    version: Version,
    shape: Shape,
}

impl<E: Engine> Locked<'_, '_, E> {
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    pub(crate) fn class(&self) -> Class {
        self.shape.class()
    }

    /// Whether a value of this shape has room where the record is. Most have the shape of the one before.
    #[inline(always)]
    pub(crate) fn has_room_for(&self, shape: Shape) -> bool {
        shape == self.shape || shape.class() == self.shape.class()
    }

    /// Writes a value for which the record has room.
    #[inline(always)]
    pub(crate) fn write(self, shape: Shape, value: &[u8]) -> Result<Version, KvError> {
        debug_assert!(self.has_room_for(shape));
        let (record, engine) = (self.record, self.record.engine());
        let body = record.body(shape.before_value(), words_for(value.len()))?;
        engine.store_relaxed(&record.header[VERSION], self.version.writing().0);
        if !mutation::includes(Mutation::WriteWithoutFence) {
            fence_release();
        }
        if shape != self.shape {
            self.reshape(shape)?;
        }
        write_bytes(engine, body, value);
        let version = self.version.next();
        engine.store(&record.header[VERSION], version.0);
        Ok(version)
    }

    #[cold]
    fn reshape(&self, shape: Shape) -> Result<(), KvError> {
        let (record, engine) = (self.record, self.record.engine());
        engine.store_relaxed(&record.header[HEAD], shape.head(record.place.incarnation).0);
        if shape.has_lengths() {
            // The key stays where it is: its length has not changed, and it had a lengths word if it is kept.
            engine.store_relaxed(&record.body(0, 1)?[0], shape.lengths());
        }
        Ok(())
    }

    /// Makes the memory free. It stays locked, and marked as being written, until its next use.
    pub(crate) fn retire(self) {
        let (record, engine) = (self.record, self.record.engine());
        engine.store_relaxed(&record.header[VERSION], self.version.next().removed().writing().0);
        fence_release();
        if !mutation::includes(Mutation::RetireWithoutIncarnation) {
            engine.store(&record.header[HEAD], record.head().reborn().0);
        }
        std::mem::forget(self);
    }
}

impl<E: Engine> Drop for Locked<'_, '_, E> {
    #[inline(always)]
    fn drop(&mut self) {
        self.record.engine().store(&self.record.header[STATE], State::FREE.0);
    }
}
