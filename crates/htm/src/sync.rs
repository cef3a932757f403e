//! The only module through which this crate uses atomics, so that model checkers can replace them.
//!
//! With the feature `loom`, every atomic, fence and thread-local that a *protocol* depends on is
//! loom's, and a spin is a yield to loom's scheduler. With `shuttle` they are shuttle's, which
//! tries some schedules of longer runs where loom tries all of short ones. Other differences under
//! model checking (small tables, memory in a box) depend on the feature `model`, which both imply.
//! Counters ([`crate::stats`]) are always the standard library's: no decision depends on them.

#[cfg(feature = "loom")]
use loom as model;
#[cfg(all(feature = "shuttle", not(feature = "loom")))]
use shuttle as model;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
use std as model;

pub(crate) use model::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(feature = "model")]
pub(crate) use model::thread_local;

/// Waiting for another thread: spins first, then yields the processor.
///
/// Must not be used inside an htm transaction: `PAUSE` aborts it.
///
/// # Example
///
/// ```
/// use drtm_htm::{Engine, NoHtm, Waiter, Word};
///
/// let (flag, waiter) = (Word::new(0), Waiter::new());
/// std::thread::scope(|scope| {
///     scope.spawn(|| NoHtm.store(&flag, 1));
///     while NoHtm.load(&flag) == 0 {
///         waiter.pause();
///     }
/// });
/// ```
#[derive(Debug)]
pub struct Waiter {
    #[cfg(not(feature = "model"))]
    backoff: crossbeam_utils::Backoff,
}

impl Default for Waiter {
    fn default() -> Self {
        Self::new()
    }
}

impl Waiter {
    /// Makes a waiter that has not waited yet.
    ///
    /// # Example
    ///
    /// See [`Waiter`].
    #[must_use]
    pub fn new() -> Self {
        Self {
            #[cfg(not(feature = "model"))]
            backoff: crossbeam_utils::Backoff::new(),
        }
    }

    /// Waits a little, for a thread that will soon be done.
    ///
    /// # Example
    ///
    /// See [`Waiter`].
    #[cold]
    pub fn pause(&self) {
        #[cfg(not(feature = "model"))]
        self.backoff.snooze();
        #[cfg(feature = "model")]
        model::thread::yield_now();
    }

    /// Spins a little longer than last time, as backoff from a conflicting thread. Never yields.
    pub(crate) fn step_aside(&self) {
        #[cfg(not(feature = "model"))]
        self.backoff.spin();
        #[cfg(feature = "model")]
        model::thread::yield_now();
    }
}
