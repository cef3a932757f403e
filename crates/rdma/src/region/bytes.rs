//! Bytes in words: the first byte is a word's lowest, on every machine.
//!
//! Memory that others access concurrently is only accessed a word at a time. A copy that is made
//! here may be torn between words; a reader that needs a consistent copy checks a version before
//! and after.

use drtm_htm::{Engine, Word};

/// Returns the number of words that hold this many bytes.
///
/// # Example
///
/// ```
/// assert_eq!([0, 1, 8, 9].map(drtm_rdma::words_for), [0, 1, 1, 2]);
/// ```
#[must_use]
pub const fn words_for(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

/// Copies the first `into.len()` bytes of `words`.
///
/// # Panics
///
/// Panics if `words` has fewer bytes.
///
/// # Example
///
/// ```
/// use drtm_htm::{NoHtm, Word};
///
/// let words = [Word::new(0x0807_0605_0403_0201), Word::new(0x0A09)];
/// let mut bytes = [0; 10];
/// drtm_rdma::read_bytes(&NoHtm, &words, &mut bytes);
/// assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
/// ```
#[inline(always)]
pub fn read_bytes<E: Engine>(engine: &E, words: &[Word], into: &mut [u8]) {
    engine.load_bytes(words, into);
}

/// Copies `from` to the beginning of `words`. The rest of the last word written becomes zero.
///
/// # Panics
///
/// Panics if `from` does not fit.
///
/// # Example
///
/// ```
/// use drtm_htm::{Engine, NoHtm, Word};
///
/// let words = [Word::new(u64::MAX), Word::new(u64::MAX)];
/// drtm_rdma::write_bytes(&NoHtm, &words, &[1, 2, 3]);
/// assert_eq!(words.map(Word::into_inner), [0x03_0201, u64::MAX]);
/// ```
#[inline(always)]
pub fn write_bytes<E: Engine>(engine: &E, words: &[Word], from: &[u8]) {
    engine.store_bytes(words, from);
}
