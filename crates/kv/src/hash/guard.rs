//! Guards: what proves that a key is still missing.

use drtm_htm::{Access, Engine};
use drtm_rdma::{Offset, Region};

use super::bucket::version_meta;
use crate::{GuardChange, PhantomGuard, store::layout::Bits};

/// A bucket's version when a key was not found in it: a phantom guard.
///
/// # Example
///
/// See [`KvTable::read`](crate::KvTable::read).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketVersion {
    pub(super) at: Offset,
    pub(super) version: u32,
}

impl BucketVersion {
    /// Returns the bucket's place and version as words, for a message.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_kv::BucketVersion;
    ///
    /// assert_eq!(BucketVersion::from_words(4096, 7).to_words(), (4096, 7));
    /// ```
    #[must_use]
    pub const fn to_words(self) -> (u64, u64) {
        (self.at.bytes(), self.version as u64)
    }

    /// Makes the guard from its [words](Self::to_words). Arbitrary words make a guard that holds
    /// for no bucket, or for a bucket that has that version.
    ///
    /// # Example
    ///
    /// See [`to_words`](Self::to_words).
    #[must_use]
    pub const fn from_words(at: u64, version: u64) -> Self {
        Self { at: Offset::new(at), version: version as u32 }
    }
}

impl PhantomGuard for BucketVersion {
    #[inline(always)]
    fn place(&self) -> Offset {
        self.at
    }

    #[inline]
    fn holds_in<'m, E: Engine, A: Access<'m>>(&self, tx: &mut A, region: &'m Region<E>) -> Result<bool, A::Abort> {
        let Ok(bucket) = region.array(self.at) else { return Ok(false) };
        let now = tx.load(version_meta(bucket))?;
        // A locked bucket does not hold: a slot may be found before the change that fills it
        // completes.
        Ok(Bits::version(now) == self.version && !Bits::is_locked(now))
    }
}

impl BucketVersion {
    /// Returns the bucket's version after the next change.
    pub(super) fn next(self) -> Self {
        Self { version: Bits::next_version(self.version), ..self }
    }
}

/// The change of a bucket by an insertion or a split.
pub(super) type BucketChange = GuardChange<BucketVersion>;
