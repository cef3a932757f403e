//! Keys: eight bytes that are in the slot itself, or byte strings of which the slot has a
//! fingerprint.

use drtm_htm::{Engine, Word};
use drtm_rdma::{read_bytes, words_for, write_bytes};
use xxhash_rust::xxh3::xxh3_64;

use crate::KvError;

/// The length of the longest key, in bytes.
pub const MAX_KEY: usize = 4096;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Inline {}
    impl Sealed for super::Bytes {}
    impl Sealed for super::Sliced {}
}

/// A kind of keys, as a type, so that the code is specialised for each.
///
/// # Example
///
/// See [`Inline`] and [`Bytes`].
pub trait Keys: sealed::Sealed + Copy + std::fmt::Debug + Send + Sync + 'static {
    /// A key, as operations take it.
    type Key<'k>: Copy;

    /// The kind's code in a table's header.
    #[doc(hidden)]
    const CODE: u64;

    /// Whether the key word is the key itself, so that records need not store the key.
    #[doc(hidden)]
    const FITS: bool;

    /// Returns the key word: the word in the key's slot.
    #[doc(hidden)]
    fn word(key: Self::Key<'_>) -> u64;

    /// Returns the hash whose lowest bits are the bucket's number.
    #[doc(hidden)]
    fn hash(word: u64) -> u64;

    /// Returns the key's length if the record stores the key. `Err`: the key is too long.
    #[doc(hidden)]
    fn kept(key: Self::Key<'_>) -> Result<Option<usize>, KvError>;

    /// Calls `see` with the key's bytes, as messages have them.
    #[doc(hidden)]
    fn with_bytes<T>(key: Self::Key<'_>, see: impl FnOnce(&[u8]) -> T) -> T;

    /// Returns the key of these bytes. `None`: they are no key.
    #[doc(hidden)]
    fn from_bytes(bytes: &[u8]) -> Option<Self::Key<'_>>;

    /// Writes the key's bytes into the record.
    #[doc(hidden)]
    fn write<E: Engine>(engine: &E, words: &[Word], key: Self::Key<'_>);

    /// Returns whether the record's words have this key. They may be changing.
    #[doc(hidden)]
    fn matches<E: Engine>(engine: &E, words: &[Word], length: usize, key: Self::Key<'_>) -> bool;
}

/// Keys of eight bytes: integers, and tuples that fit.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{HashConfig, Inline, KvTable, Store};
///
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let table = store.hash_table_of::<Inline>(HashConfig::default())?;
/// table.insert(&mut store.worker()?, 42, b"answer")?;
/// # Ok::<(), drtm_kv::KvError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inline;

impl Keys for Inline {
    type Key<'k> = u64;
    const CODE: u64 = 1;
    const FITS: bool = true;

    #[inline(always)]
    fn word(key: u64) -> u64 {
        key
    }

    /// Spreads the key upward by a multiplication, and back down by a shift.
    #[inline(always)]
    fn hash(word: u64) -> u64 {
        let product = word.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        product ^ product >> 32
    }

    #[inline(always)]
    fn kept(_key: u64) -> Result<Option<usize>, KvError> {
        Ok(None)
    }

    fn with_bytes<T>(key: u64, see: impl FnOnce(&[u8]) -> T) -> T {
        see(&key.to_le_bytes())
    }

    fn from_bytes(bytes: &[u8]) -> Option<u64> {
        bytes.try_into().ok().map(u64::from_le_bytes)
    }

    #[inline(always)]
    fn write<E: Engine>(_engine: &E, _words: &[Word], _key: u64) {}

    #[inline(always)]
    fn matches<E: Engine>(_engine: &E, _words: &[Word], _length: usize, _key: u64) -> bool {
        true
    }
}

/// Keys of up to [`MAX_KEY`] bytes. The slot has a fingerprint of 64 bits, the record has the key.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{Bytes, HashConfig, KvError, KvTable, Store};
///
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let table = store.hash_table_of::<Bytes>(HashConfig::default())?;
/// let mut worker = store.worker()?;
/// table.insert(&mut worker, b"user:alice", b"1")?;
/// assert!(matches!(table.insert(&mut worker, &[0; 5000], b""), Err(KvError::KeyTooLong { length: 5000, .. })));
/// # Ok::<(), KvError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes;

impl ByteStrings for Bytes {
    fn word(key: &[u8]) -> u64 {
        xxh3_64(key)
    }
}

/// [`Bytes`] as a tree's records store them. The tree has compared the key's beginning, so the
/// record's key word is the key's end. It distinguishes most of the remaining keys, and nothing is
/// hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sliced;

impl ByteStrings for Sliced {
    /// Returns the last eight bytes, or all bytes of a shorter key.
    #[inline(always)]
    fn word(key: &[u8]) -> u64 {
        match key.last_chunk() {
            Some(last) => u64::from_le_bytes(*last),
            None => key.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        }
    }
}

/// Keys that are byte strings, by their key words.
trait ByteStrings: sealed::Sealed + Copy + std::fmt::Debug + Send + Sync + 'static {
    fn word(key: &[u8]) -> u64;
}

impl<B: ByteStrings> Keys for B {
    type Key<'k> = &'k [u8];
    const CODE: u64 = 2;
    const FITS: bool = false;

    #[inline(always)]
    fn word(key: &[u8]) -> u64 {
        <B as ByteStrings>::word(key)
    }

    #[inline(always)]
    fn hash(word: u64) -> u64 {
        word
    }

    fn kept(key: &[u8]) -> Result<Option<usize>, KvError> {
        match key.len() {
            length if length <= MAX_KEY => Ok(Some(length)),
            length => Err(KvError::KeyTooLong { length, longest: MAX_KEY }),
        }
    }

    fn with_bytes<T>(key: &[u8], see: impl FnOnce(&[u8]) -> T) -> T {
        see(key)
    }

    fn from_bytes(bytes: &[u8]) -> Option<&[u8]> {
        (bytes.len() <= MAX_KEY).then_some(bytes)
    }

    fn write<E: Engine>(engine: &E, words: &[Word], key: &[u8]) {
        write_bytes(engine, words, key);
    }

    fn matches<E: Engine>(engine: &E, words: &[Word], length: usize, key: &[u8]) -> bool {
        if length != key.len() || words.len() < words_for(length) {
            return false;
        }
        // Compares one piece at a time on the stack: different keys differ early, and nothing is
        // allocated.
        let mut piece = [0; 64];
        words.chunks(piece.len() / 8).zip(key.chunks(piece.len())).all(|(words, expected)| {
            let found = &mut piece[..expected.len()];
            read_bytes(engine, words, found);
            found == expected
        })
    }
}
