//! The one door through which this crate's atomics come, so that model checking can replace them.
//!
//! Under `--cfg drtm_loom` every atomic, fence and thread-local that a *protocol* depends on is loom's,
//! and a spin is a yield to loom's scheduler. Counters ([`crate::stats`]) stay the standard library's in
//! all worlds: nothing is ever decided by them.
//!
//! Under `--cfg drtm_loom --cfg drtm_shuttle` they are shuttle's instead, which tries some schedules of longer runs where loom tries all
//! of short ones. Everything else that `drtm_loom` stands for (small tables, memory in a box) is the same.

#[cfg(not(drtm_loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(all(drtm_loom, not(drtm_shuttle)))]
use loom as model;
#[cfg(drtm_shuttle)]
use shuttle as model;

#[cfg(drtm_loom)]
pub(crate) use model::{
    sync::atomic::{AtomicU64, Ordering, fence},
    thread_local,
};

/// Waiting for another thread: spins first, then gives the processor away.
///
/// Not to be used inside a hardware region: `PAUSE` aborts it.
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
    #[cfg(not(drtm_loom))]
    backoff: crossbeam_utils::Backoff,
}

impl Default for Waiter {
    fn default() -> Self {
        Self::new()
    }
}

impl Waiter {
    /// One that has not waited yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            #[cfg(not(drtm_loom))]
            backoff: crossbeam_utils::Backoff::new(),
        }
    }

    /// Waits a little, for a thread that will soon be done.
    #[cold]
    pub fn pause(&self) {
        #[cfg(not(drtm_loom))]
        self.backoff.snooze();
        #[cfg(drtm_loom)]
        model::thread::yield_now();
    }

    /// Spins a little longer than last time, to move out of a rival's way. Never yields.
    pub(crate) fn step_aside(&self) {
        #[cfg(not(drtm_loom))]
        self.backoff.spin();
        #[cfg(drtm_loom)]
        model::thread::yield_now();
    }
}
