//! The memory budget for older versions.

#[cfg(feature = "tracing")]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

#[cfg(feature = "tracing")]
use crate::trace::event;

/// The bytes of older versions, of those that they may use. A thread that keeps or drops an older
/// version updates it, which only open snapshots cause. Data that all threads read is elsewhere.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Budget {
    /// Negative for a moment, when a thread frees memory that another thread has taken, and not
    /// entered yet.
    used: AtomicI64,
    most: u64,
    /// Whether an event has reported that nothing is left, and nothing has been freed since.
    #[cfg(feature = "tracing")]
    was_told: AtomicBool,
}

/// The bytes that a commit or a clean-up takes and frees, until they are [entered](Budget::enter).
/// They are entered once, because all threads write the same word then.
#[derive(Debug, Default)]
pub(crate) struct Spent(i64);

impl Spent {
    pub(crate) fn take(&mut self, bytes: u64) {
        self.0 += bytes as i64;
    }

    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.0 -= bytes as i64;
    }
}

impl Budget {
    pub(crate) const fn new(most: u64) -> Self {
        Self {
            used: AtomicI64::new(0),
            most,
            #[cfg(feature = "tracing")]
            was_told: AtomicBool::new(false),
        }
    }

    /// Returns whether a commit that has spent this much may use more. Concurrent callers may all
    /// get true, and exceed the budget a little.
    pub(crate) fn allows_more(&self, spent: &Spent) -> bool {
        let used = self.used.load(Relaxed).saturating_add(spent.0);
        let most = i64::try_from(self.most).unwrap_or(i64::MAX);
        #[cfg(feature = "tracing")]
        if used >= most && !self.was_told.load(Relaxed) && !self.was_told.swap(true, Relaxed) {
            event!(
                warn,
                used,
                most = self.most,
                "no memory is left for older versions, so that snapshots may miss some"
            );
        }
        used < most
    }

    fn take(&self, bytes: u64) {
        self.used.fetch_add(bytes as i64, Relaxed);
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes as i64, Relaxed);
        #[cfg(feature = "tracing")]
        if bytes > 0 && self.was_told.load(Relaxed) {
            self.was_told.store(false, Relaxed);
        }
    }

    /// Enters the bytes that were taken and freed.
    #[inline]
    pub(crate) fn enter(&self, spent: Spent) {
        match spent.0 {
            0 => {}
            taken @ 1.. => self.take(taken.unsigned_abs()),
            given => self.give_back(given.unsigned_abs()),
        }
    }

    /// Returns the bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed).max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_before_it_is_entered_leaves_room() {
        let budget = Budget::new(100);
        let (mut taken, mut given) = (Spent::default(), Spent::default());
        taken.take(60);
        given.give_back(60);
        budget.enter(given);
        assert!(budget.allows_more(&Spent::default()) && budget.used() == 0);
        budget.enter(taken);
        assert!(budget.allows_more(&Spent::default()) && budget.used() == 0);
        let mut all = Spent::default();
        all.take(100);
        assert!(!budget.allows_more(&all));
        budget.enter(all);
        assert!(!budget.allows_more(&Spent::default()) && budget.used() == 100);
    }
}
