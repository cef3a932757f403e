//! The geometry of the emulated cache.

use crate::word::LINE_BYTES;

/// The part of a processor that limits an htm transaction: its first-level data cache and its
/// tracker of further reads.
///
/// Nothing here is fitted to a curve. A transaction overflows when a *written* line is evicted from
/// the emulated cache, or when it has read more lines than the tracker holds. Everything else
/// follows from addresses.
///
/// # Example
///
/// ```
/// use drtm_htm::Profile;
///
/// let profile = Profile::L1_32K_8.hyperthreaded();
/// assert_eq!(profile.write_bytes(), 16 << 10);
/// assert_eq!(Profile::named("l1-48k-12"), Some(Profile::L1_48K_12));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Profile {
    /// The number of the cache's sets. A line is in the set of its number modulo this.
    pub sets: usize,
    /// The number of lines in a set. The least recently used one is evicted.
    pub ways: usize,
    /// The number of lines that the read tracker holds.
    pub read_lines: usize,
}

impl Profile {
    /// 32 KB in 64 sets of 8 ways, as in the processors that DBX and DrTM were measured on. DBX
    /// read at most 4 MB in a transaction there, and the tracker has that many lines.
    pub const L1_32K_8: Self = Self { sets: 64, ways: 8, read_lines: (4 << 20) / 64 };

    /// 48 KB in 64 sets of 12 ways, as in Intel's server processors since Ice Lake. How much a
    /// transaction may read there is not published. The tracker is as large as the other profile's.
    pub const L1_48K_12: Self = Self { ways: 12, ..Self::L1_32K_8 };

    /// The profiles that have names.
    pub const NAMED: [(&'static str, Self); 2] = [("l1-32k-8", Self::L1_32K_8), ("l1-48k-12", Self::L1_48K_12)];

    /// Makes a profile of a cache of `sets` by `ways` lines, with a tracker for `read_lines`.
    #[must_use]
    pub const fn new(sets: usize, ways: usize, read_lines: usize) -> Self {
        Self { sets, ways, read_lines }
    }

    /// Returns the profile with this name. `None`: there is none.
    ///
    /// # Example
    ///
    /// See [`Profile`].
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMED.iter().find(|(known, _)| *known == name).map(|(_, profile)| *profile)
    }

    /// Halves the profile: a hardware thread has this much when its sibling uses the other half.
    ///
    /// # Example
    ///
    /// See [`Profile`].
    #[must_use]
    pub const fn hyperthreaded(self) -> Self {
        Self { ways: self.ways.div_ceil(2), read_lines: self.read_lines.div_ceil(2), ..self }
    }

    /// Returns the most bytes that a transaction can write, if they are spread evenly over the
    /// sets.
    ///
    /// # Example
    ///
    /// See [`Profile`].
    #[must_use]
    pub const fn write_bytes(&self) -> usize {
        self.sets * self.ways * LINE_BYTES
    }
}
