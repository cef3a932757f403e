//! How much may be pending, that is, committed and not yet written.
//!
//! A frame has all that was committed before it. So a commit that waits for one also waits for the
//! bytes of all commits that do not. While any thread waits, these may have pending together about
//! what a disk writes in the time of a sync; a thread with more waits for the next flush before it
//! commits again. While none waits, large frames use the disk better.

use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// The most bytes that may be pending in one buffer while no thread waits for durability.
pub(crate) const MOST_PENDING: u64 = 4 << 20;

/// The most bytes that may be pending in all buffers together while a thread waits.
const HURRIED: u64 = 64 << 10;

/// The number of flushes without a waiting thread after which there is no hurry any more: about a
/// second of flushes at the default interval.
const CALM: u32 = 100;

#[derive(Debug)]
pub(super) struct Pace {
    /// The most bytes that one thread may have pending.
    allowance: AtomicU64,
    /// Whether a thread has waited since the last flush began.
    is_hurried: AtomicBool,
    /// The number of flushes since a thread waited.
    calm: AtomicU32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { allowance: AtomicU64::new(MOST_PENDING), is_hurried: AtomicBool::new(false), calm: AtomicU32::new(CALM) }
    }
}

impl Pace {
    /// Returns the most bytes that a thread may have pending when it begins to commit.
    #[inline(always)]
    pub(super) fn allowance(&self) -> u64 {
        self.allowance.load(Relaxed)
    }

    /// Notes that a thread waits for durability.
    pub(super) fn hurry(&self) {
        if !self.is_hurried.load(Relaxed) {
            self.is_hurried.store(true, SeqCst);
            self.allowance.fetch_min(HURRIED, Relaxed);
        }
    }

    /// Divides what may be pending among so many threads, those that had something pending in the
    /// flush that has just taken it.
    pub(super) fn divide(&self, threads: u64) {
        let calm = if self.is_hurried.swap(false, SeqCst) { 0 } else { self.calm.load(Relaxed).saturating_add(1) };
        self.calm.store(calm, Relaxed);
        self.allowance.store(if calm < CALM { HURRIED / threads.max(1) } else { MOST_PENDING }, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_little_while_any_waits_and_have_much_again_later() {
        let pace = Pace::default();
        assert_eq!(pace.allowance(), MOST_PENDING, "no thread has waited");
        pace.divide(3);
        assert_eq!(pace.allowance(), MOST_PENDING);
        pace.hurry();
        assert_eq!(pace.allowance(), HURRIED, "at once");
        for threads in 1..5 {
            pace.divide(threads);
            assert_eq!(pace.allowance(), HURRIED / threads);
            pace.hurry();
        }
        pace.divide(0);
        for _ in 1..CALM {
            assert_eq!(pace.allowance(), HURRIED);
            pace.divide(1);
        }
        pace.divide(1);
        assert_eq!(pace.allowance(), MOST_PENDING, "none waits any more");
    }
}
