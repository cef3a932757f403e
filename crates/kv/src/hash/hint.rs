//! How many buckets there probably are: where operations begin to look.
//!
//! The number itself is in the table's header, which everybody who adds a bucket writes. A handle remembers it, in a form that gives a key's bucket
//! in few instructions; where that is out of date, the bucket that it leads to says so, or does not have the key.

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
        let hint = self.hint.load(Relaxed);
        self.numbering.guess(hash, hint >> ROUNDS, (hint % (1 << ROUNDS)) as u32)
    }
}
