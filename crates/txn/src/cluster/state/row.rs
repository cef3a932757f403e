//! A row, as a transaction knows it: where its record is, what was seen of it, and what the
//! transaction holds of it.
//!
//! ```text
//!   Sight    Unknown --> Missed ------------+        what verbs did not find, its owner looks up
//!               |                           v
//!               +----------------> Known / Read / Made
//!
//!   Hold     None --> Asked ------> Locked ---+      by a request: here, or by message
//!             |  ^      |                     +--> Sent
//!             +--|--> Swapping ---> Swapped --+      by verbs
//!                |      |
//!                +------+  refused, or given up
//! ```
//!
//! What a transaction must undo follows from `Hold` alone, whenever its future is dropped.

use drtm_kv::{Handle, Location, Version};

use crate::{
    cluster::shard::ShardId,
    memory::arena::{ArenaKey, ArenaRange},
};

/// What a transaction does to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cluster) enum Op {
    Nothing,
    /// Gives it this value.
    Put(ArenaRange),
    /// Makes a record visible that was made with this value.
    Publish(ArenaRange),
    Remove,
}

/// What a transaction that fetches its rows before it runs is going to do with one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::cluster) enum Intent {
    /// It is not known.
    #[default]
    Unknown,
    Read,
    Write,
}

/// Where a row's record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cluster) enum Place {
    /// It has none, as far as is known.
    Nowhere,
    /// As its owner knows it.
    At(Handle),
    /// As verbs have found it.
    Found(Location),
}

/// What was seen of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cluster) enum Sight {
    /// It was not looked up.
    Unknown,
    /// Verbs did not find it, so that its owner has to be asked.
    Missed,
    /// It was looked up, and the transaction does not rely on what it saw.
    Known,
    /// The transaction relies on what it saw: the version must not have changed.
    Read,
    /// The transaction has made the record, which is removed until the commit.
    Made,
}

/// What a transaction holds of a row at its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cluster) enum Hold {
    /// Nothing.
    None,
    /// Its lock, perhaps: its owner was asked.
    Asked,
    /// The lock of the record at this place, perhaps: a swap was posted. The record may be another
    /// row's by now.
    Swapping(Location),
    /// Its lock.
    Locked,
    /// Its lock, taken by verbs: the transaction's lock of this number.
    Swapped(u32),
    /// Nothing any more: its owner unlocks it with the change that was sent.
    Sent,
}

/// A row that a transaction has come to.
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) struct Row {
    pub(in crate::cluster) table: u16,
    /// The shard that it is in. A row that was only found in a range has the first shard of its
    /// node, until the transaction writes it.
    pub(in crate::cluster) shard: ShardId,
    pub(in crate::cluster) key: ArenaKey,
    pub(in crate::cluster) place: Place,
    /// The version that the record had.
    pub(in crate::cluster) seen: Version,
    /// The value that was read.
    pub(in crate::cluster) value: Option<ArenaRange>,
    pub(in crate::cluster) sight: Sight,
    pub(in crate::cluster) hold: Hold,
    pub(in crate::cluster) op: Op,
    pub(in crate::cluster) intent: Intent,
    /// Until when it is leased; zero if it is not.
    pub(in crate::cluster) lease: u64,
    /// Whether the transaction has conflicted with another about it.
    pub(in crate::cluster) is_contended: bool,
    /// Whether its table is replicated: what was read of it stays so.
    pub(in crate::cluster) is_final: bool,
}

impl Row {
    pub(super) fn new(table: u16, shard: ShardId, key: ArenaKey) -> Self {
        Self {
            table,
            shard,
            key,
            place: Place::Nowhere,
            seen: Version::default(),
            value: None,
            sight: Sight::Unknown,
            hold: Hold::None,
            op: Op::Nothing,
            intent: Intent::Unknown,
            lease: 0,
            is_contended: false,
            is_final: false,
        }
    }

    /// Returns the same row for the next run of its transaction, which has ended: with its place,
    /// unless the record was made for this run and has been taken out.
    pub(super) fn again(&self) -> Self {
        let place = match self.at() {
            Some(at) if self.sight != Sight::Made => Place::At(at),
            _ => Place::Nowhere,
        };
        let Self { seen, intent, is_contended, is_final, .. } = *self;
        Self { place, seen, intent, is_contended, is_final, ..Self::new(self.table, self.shard, self.key) }
    }

    /// Returns its record's handle, if it is known to have one.
    pub(in crate::cluster) fn at(&self) -> Option<Handle> {
        match self.place {
            Place::Nowhere => None,
            Place::At(at) => Some(at),
            Place::Found(location) => Some(location.handle()),
        }
    }

    /// Returns where verbs have found it.
    pub(in crate::cluster) fn location(&self) -> Option<Location> {
        if let Place::Found(location) = self.place { Some(location) } else { None }
    }

    /// Returns whether it was looked up.
    pub(in crate::cluster) fn is_known(&self) -> bool {
        matches!(self.sight, Sight::Known | Sight::Read | Sight::Made)
    }

    /// Returns whether the transaction relies on what it saw.
    pub(in crate::cluster) fn is_read(&self) -> bool {
        matches!(self.sight, Sight::Read | Sight::Made)
    }

    /// Returns whether the row was there when it was looked up.
    pub(in crate::cluster) fn was_there(&self) -> bool {
        self.place != Place::Nowhere && !self.seen.is_removed()
    }

    /// Returns whether the row is there for the transaction itself.
    pub(in crate::cluster) fn is_there(&self) -> bool {
        match self.op {
            Op::Nothing => self.was_there(),
            Op::Put(_) | Op::Publish(_) => true,
            Op::Remove => false,
        }
    }

    /// Returns whether the transaction writes it.
    pub(in crate::cluster) fn is_written(&self) -> bool {
        self.op != Op::Nothing
    }

    /// Returns whether the transaction holds a lock for it, or may.
    pub(in crate::cluster) fn may_be_locked(&self) -> bool {
        match self.hold {
            Hold::None | Hold::Sent => false,
            Hold::Asked | Hold::Swapping(_) | Hold::Locked | Hold::Swapped(_) => true,
        }
    }
}
