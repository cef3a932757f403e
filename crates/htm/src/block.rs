//! Copies of bytes in words, many at once: most of a get or an update is a copy of a value.
//!
//! The compiler never merges atomic accesses. On x86-64, several words are copied by one
//! instruction, for the engines whose plain accesses are the processor's. Elsewhere, and under
//! model checking, a block is copied word by word.

use crate::{Word, sync::Ordering::Relaxed};

#[cfg(all(target_arch = "x86_64", not(feature = "model")))]
use crate::arch;

const WORD: usize = size_of::<u64>();

/// Returns the words that hold this many bytes. Panics when there are fewer.
#[inline(always)]
fn first(words: &[Word], bytes: usize) -> &[Word] {
    &words[..bytes.div_ceil(WORD)]
}

/// Copies bytes of words, each of which is loaded by `load`.
#[inline(always)]
pub(crate) fn load_by_words(words: &[Word], into: &mut [u8], load: impl Fn(&Word) -> u64) {
    let words = first(words, into.len());
    let (whole, rest) = into.as_chunks_mut::<WORD>();
    for (word, bytes) in words.iter().zip(&mut *whole) {
        *bytes = load(word).to_le_bytes();
    }
    if let Some(last) = words.get(whole.len()) {
        // A loop, since a call to copy a few bytes costs more than they do.
        let mut value = load(last);
        for byte in rest {
            *byte = value as u8;
            value >>= 8;
        }
    }
}

/// Copies bytes to words, each of which is stored by `store`.
#[inline(always)]
pub(crate) fn store_by_words(words: &[Word], from: &[u8], store: impl Fn(&Word, u64)) {
    for (word, bytes) in first(words, from.len()).iter().zip(from.chunks(WORD)) {
        store(word, bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)));
    }
}

/// Copies bytes of words, in the way that is fastest on this processor.
#[inline(always)]
pub(crate) fn load(words: &[Word], into: &mut [u8]) {
    #[cfg(all(target_arch = "x86_64", not(feature = "model")))]
    if into.len() >= arch::PIECE {
        return arch::load_bytes(words, into);
    }
    match <&mut [u8; WORD]>::try_from(&mut *into) {
        Ok(word) => *word = words[0].get(Relaxed).to_le_bytes(),
        Err(_) => load_slow(words, into),
    }
}

/// Copies bytes to words, in the way that is fastest on this processor.
#[inline(always)]
pub(crate) fn store(words: &[Word], from: &[u8]) {
    #[cfg(all(target_arch = "x86_64", not(feature = "model")))]
    if from.len() >= arch::PIECE {
        return arch::store_bytes(words, from);
    }
    match <[u8; WORD]>::try_from(from) {
        Ok(word) => words[0].set(u64::from_le_bytes(word), Relaxed),
        Err(_) => store_slow(words, from),
    }
}

/// Copies bytes of words, word by word. Not inlined, so that it takes no registers from the usual
/// path.
#[inline(never)]
fn load_slow(words: &[Word], into: &mut [u8]) {
    load_by_words(words, into, |word| word.get(Relaxed));
}

/// Copies bytes to words, word by word. Not inlined, like [`load_slow`].
#[inline(never)]
fn store_slow(words: &[Word], from: &[u8]) {
    store_by_words(words, from, |word, value| word.set(value, Relaxed));
}
