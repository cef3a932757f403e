//! Snapshot numbers and versions.
//!
//! A database has one *snapshot number*. Only readers that need a consistent state of one moment
//! advance it. A transaction that commits reads it once, after it has locked its write set: that is
//! its *epoch*. A row's version consists of the epoch in which it was written and a count within
//! that epoch, so that versions are ordered by epoch first:
//!
//! ```text
//!  61                                  16 15                 0
//! +--------------------------------------+--------------------+
//! | epoch (46)                           | count (16)         |
//! +--------------------------------------+--------------------+
//! ```

use drtm_htm::{Engine, Word};
use drtm_kv::Version;

/// The bits of the count. The log has versions relative to epochs, so it is part of its format.
pub(crate) const COUNT_BITS: u32 = 16;

/// Returns the version of a row that is written in an epoch, after the version `before`. It is of a
/// later epoch if [there is no further one](has_version_in) in this one.
#[inline(always)]
pub(crate) fn version_in(epoch: u64, before: Version) -> Version {
    Version::new((before.number() + 1).max(epoch << COUNT_BITS))
}

/// Returns whether a row with this version has a further version in an epoch. It has none after it
/// was written tens of thousands of times in the epoch.
#[inline(always)]
pub(crate) fn has_version_in(epoch: u64, before: Version) -> bool {
    epoch_of(version_in(epoch, before)) <= epoch
}

/// Returns the epoch in which a version was written.
#[inline(always)]
pub(crate) const fn epoch_of(version: Version) -> u64 {
    version.number() >> COUNT_BITS
}

/// Returns the last epoch that has no version after this one.
pub(crate) const fn last_of(version: Version) -> u64 {
    epoch_of(version.next()) - 1
}

/// Returns the last version that there can be in an epoch.
pub(crate) const fn last_version_of(epoch: u64) -> Version {
    Version::new(first_after(epoch).number() - 1)
}

/// Returns the first version of the epoch after this one.
pub(crate) const fn first_after(epoch: u64) -> Version {
    Version::new((epoch + 1) << COUNT_BITS)
}

/// Advances the snapshot number beyond an epoch.
#[cold]
pub(crate) fn advance_beyond<E: Engine>(engine: &E, number: &Word, epoch: u64) {
    let mut now = engine.load(number);
    while now <= epoch {
        match engine.compare_exchange(number, now, epoch + 1) {
            Ok(_) => break,
            Err(found) => now = found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_grow_within_an_epoch_and_from_one_to_the_next() {
        let first = version_in(3, Version::default());
        assert_eq!((epoch_of(first), first.number()), (3, 3 << 16));
        let second = version_in(3, first);
        assert!(second > first && epoch_of(second) == 3);
        assert_eq!(epoch_of(version_in(7, second)), 7);
    }

    #[test]
    fn an_epoch_has_an_end() {
        let last = Version::new((4 << 16) - 1);
        assert!(!has_version_in(3, last));
        assert!(has_version_in(4, last) && version_in(4, last) == Version::new(4 << 16));
        assert!(!has_version_in(2, last), "a row is never older than it was");
        assert_eq!(last_of(last), 3);
        assert_eq!(last_of(Version::new(5 << 16)), 4);
    }
}
