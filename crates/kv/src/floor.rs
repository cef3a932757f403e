//! The floor: what keeps a key's versions growing over removal and insertion.
//!
//! When a key is removed, nothing is left of it, and yet its next version must be higher than its last. So a table has a *floor*, a number
//! that every removed version is below and every inserted record starts from. A removal raises it if it must, which is seldom:
//! raised once, it is above everything that was there before.
//!
//! Both happen under the lock of the key's bucket or leaf, so that an insertion sees what the removal before it did.

use drtm_htm::{Engine, Word};

use crate::Version;

/// Where every table's floor begins.
pub(crate) const LOWEST: u64 = 1;

/// A version number that no removed record has reached.
#[inline(always)]
pub(crate) fn floor<E: Engine>(engine: &E, floor: &Word) -> u64 {
    engine.load(floor)
}

/// The floor, if it is above this version.
#[inline(always)]
pub(crate) fn above<E: Engine>(engine: &E, floor: &Word, version: Version) -> Option<u64> {
    Some(engine.load(floor)).filter(|floor| *floor > version.number())
}

/// Lifts the floor above a version that is about to be removed.
pub(crate) fn raise<E: Engine>(engine: &E, floor: &Word, removed: Version) {
    let mut now = engine.load(floor);
    while now <= removed.number() {
        match engine.compare_exchange(floor, now, removed.number() + 1) {
            Ok(_) => break,
            Err(found) => now = found,
        }
    }
}
