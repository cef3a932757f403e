//! Records as transactions refer to them: by their place, the incarnation of their memory, and the
//! version that was seen.

use std::fmt::Debug;

use drtm_htm::{Access, Engine, Plain};
use drtm_rdma::{Offset, Region};

use crate::{
    Acquire, Version,
    store::layout::{Head, Place},
};

/// A record's place in its region and the incarnation of its memory, in one word. Handles are
/// ordered by place.
///
/// # Example
///
/// See [`Records`](crate::Records).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Handle(u64);

impl Handle {
    #[inline(always)]
    pub(crate) fn of(place: Place) -> Self {
        // The place is above the incarnation, so that handles are in the order of memory.
        Self(place.word << 16 | u64::from(place.incarnation))
    }

    #[inline(always)]
    pub(crate) fn place(self) -> Place {
        Place { word: self.0 >> 16, incarnation: self.0 as u16 }
    }

    /// Returns the handle as a word, for a message.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_kv::Handle;
    ///
    /// assert_eq!(Handle::from_word(0x7_0001).to_word(), 0x7_0001);
    /// ```
    #[must_use]
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// Makes the handle from its [word](Self::to_word). An arbitrary word makes a handle that leads
    /// to no memory, or to memory that has no such record.
    ///
    /// # Example
    ///
    /// See [`to_word`](Self::to_word).
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Returns a number that differs between handles of different records, mostly in its lowest
    /// bits.
    #[must_use]
    #[inline(always)]
    pub const fn mixed(self) -> u64 {
        self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
    }
}

/// An entry of a read set: a record as it was seen. A [removed](Version::is_removed) version stands
/// for an absent key.
///
/// # Example
///
/// See [`Records`](crate::Records).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadEntry {
    /// The record.
    pub at: Handle,
    /// The version that it had.
    pub version: Version,
}

impl ReadEntry {
    /// Returns whether the key was present.
    #[must_use]
    #[inline(always)]
    pub const fn is_present(&self) -> bool {
        !self.version.is_removed()
    }
}

/// A guard against phantoms: an absent key's bucket or leaf, or a leaf of a scanned range. As long
/// as it is unchanged, no key was inserted there.
///
/// # Example
///
/// See [`KvTable::read`](crate::KvTable::read).
pub trait PhantomGuard: Copy + Eq + Debug + Send + Sync + 'static {
    /// Returns its place in its region. Guards of the same place differ in their versions.
    fn place(&self) -> Offset;

    /// Returns whether it is unchanged.
    #[doc(hidden)]
    #[inline(always)]
    fn holds<E: Engine>(&self, region: &Region<E>) -> bool {
        let Ok(holds) = self.holds_in(&mut Plain::new(region.engine()), region);
        holds
    }

    /// Returns whether it is unchanged, in an htm transaction.
    #[doc(hidden)]
    fn holds_in<'m, E: Engine, A: Access<'m>>(&self, tx: &mut A, region: &'m Region<E>) -> Result<bool, A::Abort>;
}

/// The change of a guard by an insertion. A transaction that has `before` in its read set replaces
/// it, so that its own insertions are not taken for phantoms.
///
/// # Example
///
/// See [`KvTable::place`](crate::KvTable::place).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardChange<G> {
    /// The guard, exactly as it was up to the change.
    pub before: G,
    /// The guard after the change.
    pub after: G,
    /// The guard of the bucket or leaf that a split moved some of the keys to.
    pub split_off: Option<G>,
}

/// The record of a key to insert.
///
/// # Example
///
/// See [`Records`](crate::Records).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// The key had a record already.
    Found(ReadEntry),
    /// A record was created. It says that the key is absent until its transaction commits.
    Made(ReadEntry),
}

/// The outcome of an attempt to remove the record of an absent key from its table.
///
/// # Example
///
/// See [`KvTable::reap`](crate::KvTable::reap).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaped {
    /// The record was removed.
    Out,
    /// The record has changed since it was seen, or is no longer there: another thread uses it, or
    /// has removed it.
    Gone,
    /// The record is locked: retry later.
    Busy,
}

/// What came of an attempt to move a record out of a span that is being emptied.
///
/// # Example
///
/// See [`Compaction`](crate::Compaction).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relocated {
    /// It is elsewhere now, as it was.
    Moved,
    /// There is nothing to move: the key has no record, or none in such a span.
    Nothing,
    /// A transaction has it locked, or snapshots need what it was: it stays where it is.
    Busy,
}

/// The outcome of an attempt to keep the old version of a record, before it is written.
///
/// # Example
///
/// See [`KvTable::read`](crate::KvTable::read).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the caller counts the memory of older versions"]
pub enum RetainOutcome {
    /// The old version was copied.
    Copied {
        /// The bytes that the copy takes.
        bytes: u64,
    },
    /// There was no memory for a copy, or it was not allowed. The current version and all older
    /// ones will be lost. A snapshot that needs them gets an error.
    Discarded {
        /// The bytes of older versions that have been freed.
        freed: u64,
    },
}

/// The outcome of an attempt to lock a record.
///
/// # Example
///
/// See [`Records`](crate::Records).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// The record is locked now.
    Taken {
        /// The record's version.
        version: Version,
        /// The record's head. It says whether there are older versions, and the value's length, or
        /// that the length is [elsewhere](crate::Records::length_in).
        head: Head,
    },
    /// This holder has locked it already.
    Mine {
        /// The record's version.
        version: Version,
        /// The record's head.
        head: Head,
    },
    /// Another transaction has locked it, or it is leased.
    Held(Acquire),
    /// The memory no longer has the record of that handle.
    Gone,
}
