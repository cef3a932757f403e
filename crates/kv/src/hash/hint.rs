//! How many buckets there probably are: where operations begin to look.
//!
//! The number itself is in the table's header, which everybody who adds a bucket writes. A handle
//! remembers it, in a form that gives a key's bucket in few instructions; where that is out of
//! date, the bucket that it leads to says so, or does not have the key.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::numbering::Numbering;

/// The number of buckets, above the number of rounds in which all have been split.
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
        // Only if it is news: others are reading it.
        if self.hint.load(Relaxed) != hint {
            self.hint.store(hint, Relaxed);
        }
    }

    /// The bucket of a hash.
    #[inline(always)]
    pub(super) fn guess(&self, hash: u64) -> u64 {
        self.now().bucket(hash)
    }

    /// How many buckets there probably are now: for several keys.
    #[inline(always)]
    pub(super) fn now(&self) -> Guess {
        let hint = self.hint.load(Relaxed);
        Guess { numbering: self.numbering, buckets: hint >> ROUNDS, rounds: (hint % (1 << ROUNDS)) as u32 }
    }
}

/// How many buckets there probably are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guess {
    numbering: Numbering,
    buckets: u64,
    rounds: u32,
}

impl Guess {
    /// The bucket of a hash.
    #[inline(always)]
    pub(super) fn bucket(self, hash: u64) -> u64 {
        self.numbering.guess(hash, self.buckets, self.rounds)
    }

    /// The line of a hash in its bucket.
    #[inline(always)]
    pub(super) fn line(self, hash: u64) -> usize {
        self.numbering.line(hash)
    }
}
