//! A handle's copy of the number of buckets: the starting point of lookups.
//!
//! The number itself is in the table's header, to which every thread that adds a bucket writes. A
//! handle caches it in a form from which a key's bucket is computed in few instructions. Where the
//! copy is outdated, the bucket that it leads to says so, or does not have the key.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::numbering::Numbering;

/// The number of buckets, in the bits above the number of complete rounds of splits.
#[derive(Debug)]
pub(super) struct Hint {
    hint: AtomicU64,
    numbering: Numbering,
}

const ROUNDS: u32 = 6;

impl Hint {
    pub(super) fn new(numbering: Numbering) -> Self {
        Self { hint: AtomicU64::new(0), numbering }
    }

    pub(super) fn set(&self, buckets: u64) {
        let hint = buckets << ROUNDS | u64::from(self.numbering.rounds(buckets));
        // Stored only if it changes, since other threads are reading it.
        if self.hint.load(Relaxed) != hint {
            self.hint.store(hint, Relaxed);
        }
    }

    /// Returns the bucket of a hash.
    #[inline(always)]
    pub(super) fn guess(&self, hash: u64) -> u64 {
        self.now().bucket(hash)
    }

    /// Returns the current guess, for use with several keys.
    #[inline(always)]
    pub(super) fn now(&self) -> Guess {
        let hint = self.hint.load(Relaxed);
        Guess { numbering: self.numbering, buckets: hint >> ROUNDS, rounds: (hint % (1 << ROUNDS)) as u32 }
    }
}

/// The probable number of buckets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guess {
    numbering: Numbering,
    buckets: u64,
    rounds: u32,
}

impl Guess {
    /// Returns the bucket of a hash.
    #[inline(always)]
    pub(super) fn bucket(self, hash: u64) -> u64 {
        self.numbering.guess(hash, self.buckets, self.rounds)
    }

    /// Returns the line of a hash in its bucket.
    #[inline(always)]
    pub(super) fn line(self, hash: u64) -> usize {
        self.numbering.line(hash)
    }
}
