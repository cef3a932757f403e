//! Byte strings as words, seven bytes in each.
//!
//! ```text
//!  63                                        8 7       0
//! +-------------------------------------------+---------+
//! | seven bytes, the first one highest        | mark    |
//! +-------------------------------------------+---------+
//! ```
//!
//! If the key ends in this slice, the mark is the number of the key's bytes, and the other bytes
//! are zero. If the key continues, the mark is [`GOES_ON`], which is above all of those. So words
//! are in the order of the byte strings that begin with them. Their bytes decide first. Where these
//! are equal, a key that ends is below one that continues, and of two that end the shorter is
//! below. Two keys are in the order of their first words that differ.

use std::cmp::Ordering;

use crate::record::keys::MAX_KEY;

/// The number of a key's bytes in one word.
pub(super) const SLICE: usize = 7;

/// The mark of a slice after which the key continues.
const GOES_ON: u64 = 8;

/// The most slices that a key has.
pub(super) const MOST: usize = MAX_KEY.div_ceil(SLICE);

/// Returns the slice behind the first `depth` ones. The key must not have ended before it.
#[inline(always)]
pub(super) fn slice(key: &[u8], depth: usize) -> u64 {
    let rest = &key[SLICE * depth..];
    match rest.first_chunk() {
        Some(chunk) => u64::from_be_bytes(*chunk) & !0xFF | GOES_ON,
        None => last_slice(key, rest.len()),
    }
}

/// Returns the slice of a key's last bytes, which are seven at most.
#[inline(always)]
fn last_slice(key: &[u8], length: usize) -> u64 {
    let bytes = match key.last_chunk() {
        // The bytes before them are shifted out. A longer key has at least one byte in its last
        // slice.
        Some(chunk) => u64::from_be_bytes(*chunk) << (8 * (8 - length)),
        None => {
            let key = key.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
            if length == 0 { 0 } else { key << (8 * (8 - length)) }
        }
    };
    bytes | length as u64
}

/// Returns whether the key continues after this slice.
#[inline(always)]
pub(super) fn goes_on(slice: u64) -> bool {
    slice & 0xFF == GOES_ON
}

/// Returns the bytes of a slice after which the key continues.
pub(super) fn bytes(slice: u64) -> [u8; SLICE] {
    let [bytes @ .., _mark] = slice.to_be_bytes();
    bytes
}

/// Returns the slices of a prefix after which the key continues.
pub(super) fn going_on(prefix: &[u8]) -> impl Iterator<Item = u64> {
    prefix
        .chunks_exact(SLICE)
        .map(|bytes| bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)) << 8 | GOES_ON)
}

/// Returns whether a key begins with this prefix of whole slices, followed by this slice.
#[inline(always)]
pub(super) fn leads(key: &[u8], prefix: &[u8], next: u64) -> bool {
    let goes_on = key.len() > prefix.len() || prefix.is_empty();
    goes_on && key.starts_with(prefix) && slice(key, prefix.len() / SLICE) == next
}

/// Returns all slices of a key.
pub(super) fn slices(key: &[u8]) -> impl Iterator<Item = u64> {
    (0..key.len().div_ceil(SLICE).max(1)).map(|depth| slice(key, depth))
}

/// Returns how many slices two keys share, from `depth` on.
pub(super) fn common(one: &[u8], other: &[u8], depth: usize) -> usize {
    let same = slices(one).zip(slices(other)).skip(depth);
    same.take_while(|(one, other)| one == other).count()
}

/// Compares a key with all keys that begin with the slices of `edge`. The first `depth` slices of
/// both are equal.
pub(super) fn compare(key: &[u8], edge: &[u64], depth: usize) -> Ordering {
    let pairs = slices(key).zip(edge).skip(depth);
    pairs.map(|(slice, edge)| slice.cmp(edge)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Generates keys of few different bytes, the lowest and the highest among them, with lengths
    /// around those of slices.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0, 1, 255]), 0..24)
    }

    proptest! {
        #[test]
        fn slices_are_in_the_order_of_keys(one in key(), other in key()) {
            prop_assert_eq!(slices(&one).cmp(slices(&other)), one.cmp(&other));
        }

        #[test]
        fn with_a_long_common_prefix_too(prefix in key(), one in key(), other in key()) {
            let (one, other) = ([&prefix[..], &one].concat(), [&prefix[..], &other].concat());
            prop_assert_eq!(slices(&one).cmp(slices(&other)), one.cmp(&other));
            let same = common(&one, &other, 0);
            prop_assert!(SLICE * same >= (prefix.len() / SLICE).saturating_sub(1) * SLICE);
            let whole: Vec<_> = slices(&other).collect();
            prop_assert_eq!(compare(&one, &whole, same), one.cmp(&other));
            prop_assert_eq!(compare(&one, &whole[..same], 0), Ordering::Equal);
        }

        #[test]
        fn only_the_last_slice_says_that_the_key_ends(key in key()) {
            let all: Vec<_> = slices(&key).collect();
            let (last, before) = all.split_last().expect("even the empty key has one");
            prop_assert!(!goes_on(*last) && before.iter().all(|slice| goes_on(*slice)));
            let mut spelled: Vec<u8> = before.iter().flat_map(|slice| bytes(*slice)).collect();
            spelled.extend(&bytes(*last)[..(*last & 0xFF) as usize]);
            prop_assert_eq!(&spelled, &key);
            let prefix = &key[..SLICE * before.len()];
            prop_assert_eq!(going_on(prefix).collect::<Vec<_>>(), before);
            prop_assert!(leads(&key, prefix, *last) && !leads(&key, prefix, *last + 1));
            prop_assert!(prefix.is_empty() || !leads(prefix, prefix, *last));
        }
    }

    #[test]
    fn prefixes_come_first() {
        let keys: [&[u8]; 9] = [b"", b"\0", b"a", b"ab", b"ab\0", b"abc", b"abcdefg", b"abcdefg\0", b"abcdefgh"];
        for keys in keys.windows(2) {
            assert!(slices(keys[0]).lt(slices(keys[1])), "{keys:?}");
        }
        assert_eq!(slice(b"", 0), 0);
        assert_eq!(slice(b"ab", 0), u64::from_be_bytes(*b"ab\0\0\0\0\0\x02"));
        assert_eq!(slice(b"abcdefg", 0), u64::from_be_bytes(*b"abcdefg\x07"));
        assert_eq!(
            slices(b"abcdefgh").collect::<Vec<_>>(),
            [b"abcdefg\x08", b"h\0\0\0\0\0\0\x01"].map(|word| u64::from_be_bytes(*word))
        );
    }
}
