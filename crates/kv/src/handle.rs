//! Records as transactions know them: by where they are, in which use of their memory, and in which version they were seen.

use drtm_htm::{Access, Engine, Plain};
use drtm_rdma::Region;

use crate::{
    Acquire, Version,
    layout::{Head, Place},
};

/// Where a record is in its region, and in which use of that memory: in one word. Handles are ordered by place.
///
/// # Example
///
/// See [`Records`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Handle(u64);

impl Handle {
    #[inline(always)]
    pub(crate) fn of(place: Place) -> Self {
        // The place above the incarnation, so that the order is that of memory.
        Self(place.word << 16 | u64::from(place.incarnation))
    }

    #[inline(always)]
    pub(crate) fn place(self) -> Place {
        Place { word: self.0 >> 16, incarnation: self.0 as u16 }
    }

    /// A number in which handles of different records differ, mostly in the lowest bits.
    #[must_use]
    #[inline(always)]
    pub const fn mixed(self) -> u64 {
        self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
    }
}

/// A record as it was seen. If its version is a [removed](Version::is_removed) one, it stands for a key that is not there.
///
/// # Example
///
/// See [`Records`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The record.
    pub at: Handle,
    /// The version it had.
    pub version: Version,
}

impl Sighting {
    /// Whether there was such a key.
    #[must_use]
    #[inline(always)]
    pub const fn is_present(&self) -> bool {
        !self.version.is_removed()
    }
}

/// Where a key was not found: as long as it is unchanged, the key is not there.
///
/// # Example
///
/// See [`HashTable::fetch`](crate::HashTable::fetch), [`Tree::fetch`](crate::Tree::fetch).
pub trait Witness {
    /// Whether it is unchanged.
    #[doc(hidden)]
    #[inline(always)]
    fn holds<E: Engine>(&self, region: &Region<E>) -> bool {
        let Ok(holds) = self.holds_in(&mut Plain::new(region.engine()), region);
        holds
    }

    /// The same in a hardware region.
    #[doc(hidden)]
    fn holds_in<'m, E: Engine, A: Access<'m>>(&self, tx: &mut A, region: &'m Region<E>) -> Result<bool, A::Abort>;
}

/// What a transaction finds of a key: a record, or nothing in a place that is looked at again later.
///
/// # Example
///
/// See [`HashTable::fetch`](crate::HashTable::fetch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched<N> {
    /// The key's record. The key itself may be absent.
    Record(Sighting),
    /// There is none, as long as this is unchanged.
    Nothing(N),
}

/// The record of a key that is to be inserted.
///
/// # Example
///
/// See [`Records`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// There was one.
    Found(Sighting),
    /// There is one now. It says that the key is not there, until its transaction commits.
    Made(Sighting),
}

/// What came of an attempt to take the record of an absent key out of its table.
///
/// # Example
///
/// See [`HashTable::reap`](crate::HashTable::reap).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaped {
    /// It is out.
    Out,
    /// It is not as it was seen, or not there: somebody else has use for it, or has taken it out.
    Gone,
    /// Somebody has it locked: try again later.
    Busy,
}

/// What came of an attempt to keep what a record is, before it is written.
///
/// # Example
///
/// See [`HashTable::fetch_past`](crate::HashTable::fetch_past).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "memory for older versions is counted by who keeps them"]
pub enum Kept {
    /// There is a copy of it.
    Copy {
        /// The bytes that it takes.
        bytes: u64,
    },
    /// There was no memory for one, or it might not be taken. What the record is now and was before will be forgotten, and whoever asks is told so.
    Forgotten {
        /// The bytes that what it was before took, and which are free again.
        freed: u64,
    },
}

/// What came of an attempt to lock a record.
///
/// # Example
///
/// See [`Records`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// It is locked now.
    Taken {
        /// Its version.
        version: Version,
        /// Its head: whether it links to older versions, and how long its value is, or [where](Records::length) that is to be found.
        head: Head,
    },
    /// This holder has it locked already.
    Mine {
        /// Its version.
        version: Version,
        /// Its head.
        head: Head,
    },
    /// Another transaction has it locked, or it is leased.
    Held(Acquire),
    /// It is not the record of that handle any more.
    Gone,
}
