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
//! place finds it busy, or of another incarnation, and goes back to the table.

use std::ops::Range;

use drtm_htm::{Engine, Word, fence_acquire, fence_release};
use drtm_rdma::{Offset, OutOfBounds, Region, read_bytes, words_for, write_bytes};

use crate::{
    KvError,
    checksum::checksum,
    heap::{Class, LARGEST},
    keys::{Keys, MAX_KEY},
    layout::{Head, Place, State, Version},
    mutation::{self, Mutation},
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

/// How a record of some lengths is laid out behind its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The key's length, if the record keeps it.
    key: Option<usize>,
    value: usize,
    /// Whether a checksum follows the value.
    checked: bool,
}

impl Shape {
    const EMPTY: Self = Self { key: None, value: 0, checked: false };

    #[inline]
    pub(crate) fn of<K: Keys>(key: K::Key<'_>, value: usize, checked: bool) -> Result<Self, KvError> {
        if value > MAX_VALUE {
            return Err(KvError::ValueTooLong { length: value, longest: MAX_VALUE });
        }
        Ok(Self { key: K::kept(key)?, value, checked })
    }

    /// What a head says, and the word of lengths where that has to be asked.
    #[inline(always)]
    pub(crate) fn told<K: Keys, Why>(head: Head, lengths: impl FnOnce() -> Result<u64, Why>) -> Result<Self, Why> {
        let checked = head.is_checked();
        match head.short_length() {
            Some(value) if K::FITS => Ok(Self { key: None, value: usize::from(value), checked }),
            _ => {
                let lengths = lengths()?;
                let key = (!K::FITS).then_some((lengths >> 32) as usize);
                Ok(Self { key, value: lengths as u32 as usize, checked })
            }
        }
    }

    /// Whether there can be such a record. Words that are nonsense may say anything.
    pub(crate) fn is_possible(self) -> bool {
        self.value <= MAX_VALUE && self.key.is_none_or(|key| key <= MAX_KEY)
    }

    pub(crate) fn key_length(self) -> Option<usize> {
        self.key
    }

    pub(crate) fn value_length(self) -> usize {
        self.value
    }

    /// Where the value's words are in the record.
    pub(crate) fn value_words(self) -> Range<usize> {
        let begin = HEADER_WORDS + self.before_value();
        begin..begin + words_for(self.value)
    }

    #[inline(always)]
    pub(crate) fn has_lengths(self) -> bool {
        self.key.is_some() || self.value > Head::MAX_SHORT
    }

    #[inline(always)]
    fn key_words(self) -> usize {
        words_for(self.key.unwrap_or(0))
    }

    /// Words between header and value.
    #[inline(always)]
    fn before_value(self) -> usize {
        if self.has_lengths() { 1 + self.key_words() } else { 0 }
    }

    fn body_words(self) -> usize {
        self.before_value() + self.sealed_words()
    }

    /// Words of the value, and its checksum.
    #[inline(always)]
    fn sealed_words(self) -> usize {
        words_for(self.value) + usize::from(self.checked)
    }

    /// The size class. There always is one: lengths have been checked.
    pub(crate) fn class(self) -> Class {
        Class::of(HEADER_WORDS + self.body_words()).unwrap_or_else(|| unreachable!("lengths are bounded"))
    }

    fn head(self, incarnation: u16) -> Head {
        let head = Head::new(incarnation, if self.has_lengths() { None } else { Some(self.value as u8) });
        if self.checked { head.checked() } else { head }
    }

    /// The word of lengths, or zero if the head has the value's length.
    pub(crate) fn lengths_if_any(self) -> u64 {
        if self.has_lengths() { self.lengths() } else { 0 }
    }

    fn lengths(self) -> u64 {
        (self.key.unwrap_or(0) as u64) << 32 | self.value as u64
    }
}

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
    fn shape<K: Keys>(&self, head: Head) -> Result<Shape, OutOfBounds> {
        Shape::told::<K, _>(head, || Ok(self.engine().load_relaxed(&self.body(0, 1)?[0])))
    }

    #[inline(always)]
    fn version(&self) -> Version {
        Version(self.engine().load(&self.header[VERSION]))
    }

    #[inline(always)]
    fn head(&self) -> Head {
        Head(self.engine().load_relaxed(&self.header[HEAD]))
    }

    /// Begins to look at the record. What is seen from here on may be nonsense, errors included, until [`end`](Self::end) has said
    /// that it is not.
    #[inline(always)]
    fn begin<T>(&self) -> Result<Version, Look<T>> {
        let version = self.version();
        if version.is_writing() {
            return Err(if self.head().incarnation() == self.place.incarnation { Look::Busy } else { Look::Stale });
        }
        Ok(version)
    }

    /// Says what to make of what was seen since the record [had](Self::begin) this version: of a key's record, or (`None`) another's.
    #[inline(always)]
    fn end<T>(&self, version: Version, seen: Result<Option<T>, OutOfBounds>) -> Result<Look<T>, OutOfBounds> {
        fence_acquire();
        if self.version() != version && !mutation::includes(Mutation::ReadWithoutVersion) {
            return Ok(Look::Busy);
        }
        if self.head().incarnation() != self.place.incarnation || version.is_removed() {
            return Ok(Look::Stale);
        }
        Ok(seen?.map_or(Look::Other, Look::Found))
    }

    /// What a key's record looks like behind its header; `None` if it is another key's.
    #[inline(always)]
    fn shape_for<K: Keys>(&self, key: K::Key<'_>) -> Result<Option<Shape>, OutOfBounds> {
        let shape = self.shape::<K>(self.head())?;
        Ok(self.has_key::<K>(shape, key)?.then_some(shape))
    }

    #[inline(always)]
    fn has_key<K: Keys>(&self, shape: Shape, key: K::Key<'_>) -> Result<bool, OutOfBounds> {
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
    pub(crate) fn read<K: Keys>(&self, key: K::Key<'_>, into: &mut [u8]) -> Result<Look<Read>, OutOfBounds> {
        match self.begin() {
            Ok(version) => self.end(version, self.read_value::<K>(key, into, version)),
            Err(look) => Ok(look),
        }
    }

    #[inline(always)]
    fn read_value<K: Keys>(
        &self,
        key: K::Key<'_>,
        into: &mut [u8],
        version: Version,
    ) -> Result<Option<Read>, OutOfBounds> {
        let Some(shape) = self.shape_for::<K>(key)? else { return Ok(None) };
        let copied = shape.value.min(into.len());
        let words = self.body(shape.before_value(), words_for(copied))?;
        read_bytes(self.engine(), words, &mut into[..copied]);
        Ok(Some(Read { length: shape.value, version }))
    }

    /// The same in the usual case, and without a look at the incarnation: the caller knows that it is the key's record.
    #[inline(always)]
    pub(crate) fn peek<K: Keys>(&self, key: K::Key<'_>, into: &mut [u8]) -> Option<Read> {
        let version = self.version();
        if version.is_writing() || version.is_removed() {
            return None;
        }
        let read = self.read_value::<K>(key, into, version).ok()??;
        fence_acquire();
        (self.version() == version || mutation::includes(Mutation::ReadWithoutVersion)).then_some(read)
    }

    /// Copies the whole value of a record of which only the key's word is known.
    #[inline]
    pub(crate) fn copy<K: Keys>(&self, word: u64, into: &mut Vec<u8>) -> Result<Look<Version>, OutOfBounds> {
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
        value: &mut Vec<u8>,
    ) -> Result<Look<Version>, OutOfBounds> {
        match self.begin() {
            Ok(version) => {
                let copied = self.copy_kept_key::<K>(key).and_then(|()| self.copy_value::<K>(value));
                self.end(version, copied.map(|()| Some(version)))
            }
            Err(look) => Ok(look),
        }
    }

    /// Copies the whole key of a record that keeps it.
    pub(crate) fn copy_key<K: Keys>(&self, key: &mut Vec<u8>) -> Result<Look<()>, OutOfBounds> {
        match self.begin() {
            Ok(version) => self.end(version, self.copy_kept_key::<K>(key).map(Some)),
            Err(look) => Ok(look),
        }
    }

    #[inline(always)]
    fn copy_value<K: Keys>(&self, into: &mut Vec<u8>) -> Result<(), OutOfBounds> {
        let shape = self.shape::<K>(self.head())?;
        // Before the buffer is made as long: a length that is nonsense leads out of memory, or is at most that of a page.
        let words = self.body(shape.before_value(), words_for(shape.value))?;
        into.resize(shape.value, 0);
        read_bytes(self.engine(), words, into);
        Ok(())
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
            Ok(version) => self.end(version, self.shape_for::<K>(key).map(|shape| shape.map(|_| version))),
            Err(look) => Ok(look),
        }
    }

    #[inline(always)]
    fn key_word(&self) -> u64 {
        self.engine().load_relaxed(&self.header[KEY])
    }

    /// Locks the record if it is free, whosever it is.
    #[inline(always)]
    pub(crate) fn try_lock<K: Keys>(&self, holder: State) -> Result<Option<Locked<'_, 'r, E>>, OutOfBounds> {
        if self.engine().compare_exchange(&self.header[STATE], State::FREE.0, holder.0).is_err() {
            return Ok(None);
        }
        let mut locked = Locked { record: self, version: self.version(), shape: Shape::EMPTY };
        locked.shape = self.shape::<K>(self.head())?;
        Ok(Some(locked))
    }

    /// Locks the record if it is free and still the one looked for.
    pub(crate) fn lock<K: Keys>(&self, key: K::Key<'_>, holder: State) -> Result<Look<Locked<'_, 'r, E>>, OutOfBounds> {
        let Some(locked) = self.try_lock::<K>(holder)? else {
            return Ok(if self.head().incarnation() == self.place.incarnation { Look::Busy } else { Look::Stale });
        };
        let (head, version) = (self.head(), locked.version);
        let is_it = head.incarnation() == self.place.incarnation && !version.is_writing() && !version.is_removed();
        // If not, dropped here, and so unlocked.
        if !is_it {
            return Ok(Look::Stale);
        }
        let is_key = self.has_key::<K>(locked.shape, key)?;
        Ok(if is_key { Look::Found(locked) } else { Look::Other })
    }

    /// Writes another value, if there is room for it where the record is: gives its version then.
    #[inline(always)]
    pub(crate) fn overwrite<K: Keys>(
        &self,
        key: K::Key<'_>,
        holder: State,
        shape: Shape,
        value: &[u8],
    ) -> Result<Look<Option<Version>>, OutOfBounds> {
        Ok(match self.lock::<K>(key, holder)? {
            Look::Found(locked) if locked.has_room_for(shape) => Look::Found(Some(locked.write(shape, value)?)),
            Look::Found(_) => Look::Found(None),
            Look::Other => Look::Other,
            Look::Stale => Look::Stale,
            Look::Busy => Look::Busy,
        })
    }

    /// Where the record is.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Gives up a lock that this holder has [kept](Locked::keep). Otherwise tells the record's state, which is as it was.
    pub(crate) fn release(&self, holder: State) -> Result<(), State> {
        if self.head().incarnation() != self.place.incarnation {
            return Err(State(self.engine().load(&self.header[STATE])));
        }
        // If it is the holder's, it stays so, and so does the incarnation.
        match self.engine().compare_exchange(&self.header[STATE], holder.0, State::FREE.0) {
            Ok(_) => Ok(()),
            Err(found) => Err(State(found)),
        }
    }

    /// Fills memory that nobody knows of yet, and makes a record of it.
    pub(crate) fn create<K: Keys>(
        region: &'r Region<E>,
        word: u64,
        shape: Shape,
        key: K::Key<'_>,
        value: &[u8],
        version: Version,
    ) -> Result<Place, OutOfBounds> {
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
        let body = record.body(shape.before_value(), shape.sealed_words())?;
        write_bytes(engine, body, value);
        if shape.checked {
            seal(engine, record.header, body, shape, version, value);
        }
        engine.store(&record.header[VERSION], version.0);
        engine.store(&record.header[STATE], State::FREE.0);
        Ok(record.place)
    }

    /// [Discards](Self::discard) a record of which only the place is known. Gives the class of its memory.
    pub(crate) fn discard_any<K: Keys>(&self, holder: State) -> Result<Class, OutOfBounds> {
        let shape = self.shape::<K>(self.head())?;
        self.discard(holder);
        Ok(shape.class())
    }

    /// Turns a record that nobody has learned of back into free memory.
    pub(crate) fn discard(&self, holder: State) {
        let engine = self.engine();
        engine.store(&self.header[STATE], holder.0);
        engine.store(&self.header[VERSION], self.version().removed().writing().0);
        engine.store(&self.header[HEAD], self.head().reborn().0);
    }
}

/// Writes the checksum behind the value, for the version that is about to be announced.
#[cold]
fn seal<E: Engine>(
    engine: &E,
    header: &[Word; HEADER_WORDS],
    body: &[Word],
    shape: Shape,
    version: Version,
    value: &[u8],
) {
    let head = shape.head(Head(engine.load_relaxed(&header[HEAD])).incarnation());
    let sum = checksum(engine.load_relaxed(&header[KEY]), version, head, shape.lengths_if_any(), value);
    engine.store_relaxed(&body[words_for(value.len())], sum);
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

    /// Whether it is this key's, and its value has this shape.
    #[inline(always)]
    pub(crate) fn is_like<K: Keys>(&self, shape: Shape, key: K::Key<'_>) -> bool {
        self.shape == shape && self.record.has_key::<K>(shape, key).unwrap_or(false)
    }

    pub(crate) fn class(&self) -> Class {
        self.shape.class()
    }

    /// Whether a value of this shape has room where the record is. Most have the shape of the one before.
    #[inline(always)]
    pub(crate) fn has_room_for(&self, shape: Shape) -> bool {
        shape == self.shape || shape.class() == self.shape.class()
    }

    /// Leaves the record locked: whoever is named by its state gives the lock up.
    pub(crate) fn keep(self) -> Version {
        let version = self.version;
        std::mem::forget(self);
        version
    }

    /// Writes a value for which the record has room.
    #[inline(always)]
    pub(crate) fn write(self, shape: Shape, value: &[u8]) -> Result<Version, OutOfBounds> {
        debug_assert!(self.has_room_for(shape));
        let (record, engine) = (self.record, self.record.engine());
        let body = record.body(shape.before_value(), shape.sealed_words())?;
        engine.store_relaxed(&record.header[VERSION], self.version.writing().0);
        if !mutation::includes(Mutation::WriteWithoutFence) {
            fence_release();
        }
        if shape != self.shape {
            self.reshape(shape)?;
        }
        write_bytes(engine, body, value);
        let version = self.version.next();
        if shape.checked {
            seal(engine, record.header, body, shape, version, value);
        }
        engine.store(&record.header[VERSION], version.0);
        Ok(version)
    }

    #[cold]
    fn reshape(&self, shape: Shape) -> Result<(), OutOfBounds> {
        let (record, engine) = (self.record, self.record.engine());
        engine.store_relaxed(&record.header[HEAD], shape.head(record.head().incarnation()).0);
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
