//! How much memory older versions may take.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes that are used, of those that may be. Counted by whoever keeps or forgets an older version, which only open snapshots are cause for.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicU64,
    most: u64,
}

impl Budget {
    pub(crate) const fn new(most: u64) -> Self {
        Self { used: AtomicU64::new(0), most }
    }

    /// Whether more may be used. Several who ask at once may all be told so, and use a little more.
    pub(crate) fn allows_more(&self) -> bool {
        self.used.load(Relaxed) < self.most
    }

    pub(crate) fn take(&self, bytes: u64) {
        self.used.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }
}
