//! How much memory older versions may take.

#[cfg(feature = "tracing")]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[cfg(feature = "tracing")]
use crate::trace::event;

/// Bytes that are used, of those that may be. Counted by whoever keeps or forgets an older version, which only open snapshots are cause for; what everybody
/// reads lies elsewhere.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Budget {
    used: AtomicU64,
    most: u64,
    /// Whether it has been told that nothing is left, and nothing has been given back since.
    #[cfg(feature = "tracing")]
    was_told: AtomicBool,
}

/// What a commit takes and gives back, or who tidies up, until it is [entered](Budget::enter): once, as all threads write the same word then.
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
            used: AtomicU64::new(0),
            most,
            #[cfg(feature = "tracing")]
            was_told: AtomicBool::new(false),
        }
    }

    /// Whether more may be used by a commit that has spent this. Several who ask at once may all be told so, and use a little more.
    pub(crate) fn allows_more(&self, spent: &Spent) -> bool {
        let used = self.used.load(Relaxed).saturating_add_signed(spent.0);
        #[cfg(feature = "tracing")]
        if used >= self.most && !self.was_told.load(Relaxed) && !self.was_told.swap(true, Relaxed) {
            event!(
                warn,
                used,
                most = self.most,
                "no memory is left for older versions, so that snapshots may miss some"
            );
        }
        used < self.most
    }

    fn take(&self, bytes: u64) {
        self.used.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
        #[cfg(feature = "tracing")]
        if bytes > 0 && self.was_told.load(Relaxed) {
            self.was_told.store(false, Relaxed);
        }
    }

    /// Enters what has been taken and given back.
    #[inline]
    pub(crate) fn enter(&self, spent: Spent) {
        match spent.0 {
            0 => {}
            taken @ 1.. => self.take(taken.unsigned_abs()),
            given => self.give_back(given.unsigned_abs()),
        }
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }
}
