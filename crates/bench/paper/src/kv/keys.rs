//! Keys of a measurement, and how they are drawn.

use std::hash::Hash;

use clap::{
    ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};
#[cfg(feature = "peers")]
use concurrent_map::Minimum as Least;
use drtm_drive::{Random, zipf::Zipf};
use drtm_kv::{Bytes, Inline, Keys, TreeKeys};
use serde::Serialize;

/// The exponent of Zipf's distribution, as in YCSB.
const EXPONENT: f64 = 0.99;

/// The traits that the peers require of keys, if they are built.
#[cfg(not(feature = "peers"))]
#[doc(hidden)]
pub trait Least {}

#[cfg(not(feature = "peers"))]
impl<K> Least for K {}

/// A kind of keys: numbers spread over 64 bits, or byte strings.
///
/// # Example
///
/// ```
/// use drtm_paper::kv::Key;
///
/// assert_ne!(u64::numbered(1), u64::numbered(2));
/// assert!(<[u8; 32]>::numbered(1).starts_with(b"user:"));
/// ```
pub trait Key: Least + Copy + Ord + Hash + Send + Sync + 'static {
    /// The kind of keys in the store.
    #[doc(hidden)]
    type Kind: TreeKeys;

    /// The size of a key in bytes.
    const BYTES: u32;

    /// Returns the key with this number. Neighbouring numbers give distant keys.
    fn numbered(number: u64) -> Self;

    /// Returns the key as the store's operations take it.
    #[doc(hidden)]
    fn as_stored(&self) -> <Self::Kind as Keys>::Key<'_>;

    /// Returns the key with these bits flipped.
    #[doc(hidden)]
    fn flipped(self, bits: u8) -> Self;
}

/// Multiplies by an odd number: the result is unique for each number, and neighbours are far apart.
fn spread(number: u64) -> u64 {
    number.wrapping_mul(0xD134_2543_DE82_EF95)
}

impl Key for u64 {
    type Kind = Inline;
    const BYTES: u32 = 8;

    #[inline]
    fn numbered(number: u64) -> Self {
        spread(number)
    }

    #[inline]
    fn as_stored(&self) -> u64 {
        *self
    }

    #[inline]
    fn flipped(self, bits: u8) -> Self {
        self ^ Self::from(bits)
    }
}

/// `user:` and hexadecimal digits. All keys share some of the digits, as names do.
impl Key for [u8; 32] {
    type Kind = Bytes;
    const BYTES: u32 = 32;

    fn numbered(number: u64) -> Self {
        let mut key = *b"user:00000000000________________";
        for (digit, at) in key.iter_mut().rev().zip(0..16) {
            *digit = b"0123456789abcdef"[(spread(number) >> (4 * at) & 15) as usize];
        }
        key
    }

    #[inline]
    fn as_stored(&self) -> &[u8] {
        self
    }

    #[inline]
    fn flipped(mut self, bits: u8) -> Self {
        self[31] ^= bits;
        self
    }
}

/// Parses the size of a key, which must be that of an existing kind.
pub(super) fn key_bytes() -> impl TypedValueParser<Value = u32> {
    PossibleValuesParser::new(["8", "32"]).map(|bytes| if bytes == "8" { u64::BYTES } else { <[u8; 32]>::BYTES })
}

/// How keys are drawn.
///
/// # Example
///
/// ```
/// use drtm_paper::kv::Draw;
///
/// let keys: Vec<u64> = Draw::Zipf.keys(1_000, 100, 7);
/// assert_eq!(keys.len(), 100);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Draw {
    /// All keys equally often
    Uniform,
    /// By Zipf's distribution with an exponent of 0.99, exactly: the hottest of a million keys has
    /// 6 % of all draws
    Zipf,
}

impl Draw {
    /// Draws `count` of the keys numbered below `records`, which must not be zero.
    #[must_use]
    pub fn keys<K: Key>(self, records: u64, count: usize, seed: u64) -> Vec<K> {
        let random = &mut Random::seeded(seed);
        match (self, Zipf::new(records, EXPONENT)) {
            (Self::Zipf, Ok(numbers)) => (0..count).map(|_| K::numbered(numbers.draw(random))).collect(),
            _ => (0..count).map(|_| K::numbered(random.within(0, records.max(1) - 1))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    #[test]
    fn every_number_has_a_key_of_its_own() {
        let numbers: HashSet<u64> = (0..10_000).map(Key::numbered).collect();
        let strings: HashSet<[u8; 32]> = (0..10_000).map(Key::numbered).collect();
        assert_eq!((numbers.len(), strings.len()), (10_000, 10_000));
        assert!(strings.iter().all(|key| key.is_ascii() && key.starts_with(b"user:") && !key.contains(&b'_')));
    }

    #[test]
    fn zipf_keys_are_as_often_as_their_rank_says() {
        let (records, draws) = (1_000_u64, 400_000);
        let mut counts = HashMap::new();
        for key in Draw::Zipf.keys::<u64>(records, draws, 3) {
            *counts.entry(key).or_insert(0_u64) += 1;
        }
        let whole: f64 = (1..=records).map(|rank| (rank as f64).powf(-EXPONENT)).sum();
        for rank in [1_u64, 2, 10, 100] {
            let expected = (rank as f64).powf(-EXPONENT) / whole;
            let found = counts[&u64::numbered(rank - 1)] as f64 / draws as f64;
            assert!((found / expected - 1.0).abs() < 0.1, "rank {rank}: {found} instead of {expected}");
        }
    }

    #[test]
    fn draws_stay_below_the_number_of_records_and_follow_the_seed() {
        let all: HashSet<u64> = (0..50).map(u64::numbered).collect();
        for draw in [Draw::Uniform, Draw::Zipf] {
            let keys = draw.keys::<u64>(50, 2_000, 1);
            assert!(keys.iter().all(|key| all.contains(key)));
            assert_eq!(keys, draw.keys::<u64>(50, 2_000, 1));
            assert_ne!(keys, draw.keys::<u64>(50, 2_000, 2));
        }
    }
}
