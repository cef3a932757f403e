//! Bytes in words: the first byte is a word's lowest, whatever the machine.
//!
//! Memory that others access at the same time is only ever accessed a word at a time. A copy that is made here may be
//! torn between words; who needs better checks a version, before and after.

use drtm_htm::{Engine, Word};

/// Words that hold so many bytes.
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
/// When there are not as many.
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
    let (whole, rest) = into.as_chunks_mut::<8>();
    let (words, last) = words[..words_for(whole.len() * 8 + rest.len())].split_at(whole.len());
    for (word, bytes) in words.iter().zip(whole) {
        *bytes = engine.load_relaxed(word).to_le_bytes();
    }
    if let [last] = last {
        let mut value = engine.load_relaxed(last);
        // By hand: a call to copy a handful of bytes costs more than they do.
        for byte in rest {
            *byte = value as u8;
            value >>= 8;
        }
    }
}

/// Copies `from` to the beginning of `words`. The rest of the last word that it reaches becomes zero.
///
/// # Panics
///
/// When it does not fit.
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
    let (whole, rest) = from.as_chunks::<8>();
    let (words, last) = words[..words_for(from.len())].split_at(whole.len());
    for (word, bytes) in words.iter().zip(whole) {
        engine.store_relaxed(word, u64::from_le_bytes(*bytes));
    }
    if let [last] = last {
        let value = rest.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        engine.store_relaxed(last, value);
    }
}
