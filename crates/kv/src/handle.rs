//! Records as transactions know them: by where they are, in which use of their memory, and in which
//! version they were seen.

use std::fmt::Debug;

use drtm_htm::{Access, Engine, Plain};
use drtm_rdma::{Offset, Region};

use crate::{
    Acquire, Version,
    layout::{Head, Place},
};

/// Where a record is in its region, and in which use of that memory: in one word. Handles are
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
        // The place above the incarnation, so that the order is that of memory.
        Self(place.word << 16 | u64::from(place.incarnation))
    }

    #[inline(always)]
    pub(crate) fn place(self) -> Place {
        Place { word: self.0 >> 16, incarnation: self.0 as u16 }
    }

    /// The handle as a word, for a message.
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

    /// The handle of a [word](Self::to_word). One that was made up leads to no memory, or to some
    /// that holds no such record.
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// A number in which handles of different records differ, mostly in the lowest bits.
    #[must_use]
    #[inline(always)]
    pub const fn mixed(self) -> u64 {
        self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
    }
}

/// An entry of a read set: a record as it was seen. If its version is a
/// [removed](Version::is_removed) one, it stands for a key that is not there.
///
/// # Example
///
/// See [`Records`](crate::Records).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadEntry {
    /// The record.
    pub at: Handle,
    /// The version it had.
    pub version: Version,
}

impl ReadEntry {
    /// Whether there was such a key.
    #[must_use]
    #[inline(always)]
    pub const fn is_present(&self) -> bool {
        !self.version.is_removed()
    }
}

/// Where a key was not found, or a range was passed: as long as it is unchanged, no key has come
/// there.
///
/// # Example
///
/// See [`KvTable::read`](crate::KvTable::read).
pub trait PhantomGuard: Copy + Eq + Debug + Send + Sync + 'static {
    /// Where it is in its region: guards of the same place differ in their versions.
    fn place(&self) -> Offset;

    /// Whether it is unchanged.
    #[doc(hidden)]
    #[inline(always)]
    fn holds<E: Engine>(&self, region: &Region<E>) -> bool {
        let Ok(holds) = self.holds_in(&mut Plain::new(region.engine()), region);
        holds
    }

    /// Whether it is unchanged, in an htm transaction.
    #[doc(hidden)]
    fn holds_in<'m, E: Engine, A: Access<'m>>(&self, tx: &mut A, region: &'m Region<E>) -> Result<bool, A::Abort>;
}

/// What an insertion has done to a guard. A transaction that has seen `before` replaces it, so that
/// its own insertions are not taken for others'.
///
/// # Example
///
/// See [`KvTable::place`](crate::KvTable::place).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardChange<G> {
    /// What it was: exactly so, up to the change.
    pub before: G,
    /// What the change has left.
    pub after: G,
    /// Where some of the keys belong now.
    pub split_off: Option<G>,
}

/// The record of a key that is to be inserted.
///
/// # Example
///
/// See [`Records`](crate::Records).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// There was one.
    Found(ReadEntry),
    /// There is one now. It says that the key is not there, until its transaction commits.
    Made(ReadEntry),
}

/// What came of an attempt to take the record of an absent key out of its table.
///
/// # Example
///
/// See [`KvTable::reap`](crate::KvTable::reap).
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
/// See [`KvTable::read`](crate::KvTable::read).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "memory for older versions is counted by who keeps them"]
pub enum RetainOutcome {
    /// There is a copy of it.
    Copied {
        /// The bytes that it takes.
        bytes: u64,
    },
    /// There was no memory for one, or it might not be taken. What the record is now and was before
    /// will be forgotten, and whoever asks is told so.
    Discarded {
        /// The bytes that what it was before took, and which are free again.
        freed: u64,
    },
}

/// What came of an attempt to lock a record.
///
/// # Example
///
/// See [`Records`](crate::Records).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// It is locked now.
    Taken {
        /// Its version.
        version: Version,
        /// Its head: whether it links to older versions, and how long its value is, or
        /// [where](crate::Records::length_in) that is to be found.
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
