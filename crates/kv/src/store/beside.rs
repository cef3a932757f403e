//! Memory that a store's tables use beside its region, only for speed: hints.
//!
//! It counts against the region's capacity. It is taken as long as enough of the capacity is left.
//! It is given back when the region itself has to grow, since nothing depends on it.

use std::sync::{
    Weak,
    atomic::{
        AtomicBool, AtomicU64,
        Ordering::{AcqRel, Relaxed},
    },
};

use drtm_htm::Engine;
use drtm_rdma::{Offset, Region, RegionError};
use parking_lot::Mutex;

/// One in this many parts of the capacity is left to the region. So memory that was given back for
/// it is not taken again at once.
const LEFT: u64 = 16;

/// A holder of memory beside the region.
pub(crate) trait Holds: Send + Sync {
    /// Gives all of it back.
    fn give_all_back(&self);
}

#[derive(Debug)]
pub(crate) struct Beside {
    capacity: u64,
    taken: AtomicU64,
    /// Whether no memory may be taken.
    is_off: AtomicBool,
    holders: Mutex<Vec<Weak<dyn Holds>>>,
}

impl std::fmt::Debug for dyn Holds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Holds")
    }
}

impl Beside {
    pub(crate) fn new(capacity: u64) -> Self {
        Self { capacity, taken: AtomicU64::new(0), is_off: AtomicBool::new(false), holders: Mutex::default() }
    }

    pub(crate) fn turn_off(&self) {
        self.is_off.store(true, Relaxed);
    }

    pub(crate) fn is_off(&self) -> bool {
        self.is_off.load(Relaxed)
    }

    /// Registers a holder of memory.
    pub(crate) fn add(&self, holder: Weak<dyn Holds>) {
        let mut holders = self.holders.lock();
        holders.retain(|one| one.strong_count() > 0);
        holders.push(holder);
    }

    /// Returns how many bytes are taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// Takes this many more bytes, beside a region with this many allocated bytes. Returns whether
    /// they may be used.
    pub(crate) fn take(&self, bytes: u64, allocated: u64) -> bool {
        let most = (self.capacity - self.capacity / LEFT).saturating_sub(allocated);
        let more = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= most);
        self.taken.fetch_update(AcqRel, Relaxed, more).is_ok()
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Relaxed);
    }

    /// Lets all holders give their memory back, if the region would otherwise exceed its capacity
    /// when it grows.
    pub(crate) fn release_for(&self, bytes: u64, allocated: impl FnOnce() -> u64) {
        let taken = self.taken();
        if taken > 0 && allocated().saturating_add(bytes).saturating_add(taken) > self.capacity {
            self.give_all_back();
        }
    }

    /// Extends a region. Frees memory beside it where the capacity requires it.
    pub(crate) fn extend<E: Engine>(&self, region: &Region<E>, bytes: u64, align: u64) -> Result<Offset, RegionError> {
        self.release_for(bytes, || region.allocated());
        region.extend(bytes, align)
    }

    #[cold]
    fn give_all_back(&self) {
        let holders: Vec<_> = self.holders.lock().iter().filter_map(Weak::upgrade).collect();
        holders.iter().for_each(|holder| holder.give_all_back());
    }
}
