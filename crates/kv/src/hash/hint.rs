//! How many buckets there probably are: where operations begin to look.
//!
//! The number itself is in the table's header, which everybody who adds a bucket writes. A handle remembers it, in a form that gives a key's bucket
//! in few instructions; where that is out of date, the bucket that it leads to says so, or does not have the key.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The number of buckets, above the number of bits that their numbers have.
#[derive(Debug, Default)]
pub(super) struct Hint(AtomicU64);

const BITS: u32 = 6;

impl Hint {
    pub(super) fn set(&self, buckets: u64) {
        let bits = u64::BITS - buckets.saturating_sub(1).leading_zeros();
        let hint = buckets << BITS | u64::from(bits);
        // Only if it is news: others are reading it.
        if self.0.load(Relaxed) != hint {
            self.0.store(hint, Relaxed);
        }
    }

    /// The bucket of a hash.
    #[inline(always)]
    pub(super) fn guess(&self, hash: u64) -> u64 {
        let hint = self.0.load(Relaxed);
        let mask = (1 << (hint % (1 << BITS))) - 1;
        let guess = hash & mask;
        if guess < hint >> BITS { guess } else { guess & mask >> 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_are_linear_hashing_s() {
        let hint = Hint::default();
        for buckets in 1..100_u64 {
            hint.set(buckets);
            for hash in 0..300_u64 {
                assert_eq!(hint.guess(hash), super::super::search::guess(hash, buckets), "{hash} of {buckets}");
            }
        }
    }
}
