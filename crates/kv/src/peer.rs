//! What peers of hash tables and of trees have in common: what they find, and what can go wrong.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use drtm_rdma::{Offset, Port, Remote, TURNS_AT, VerbError, Verbs};

use crate::{Handle, Turn, layout::Place};

/// A table on another node that cannot be reached, or is none.
///
/// # Example
///
/// See [`HashPeer`](crate::HashPeer).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// An operation failed.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// There is no table at that place, or one of another kind.
    #[error("no such table at {at}: expected {expected:#018x}, found {found:#018x}; was it made with these keys?")]
    NotThisTable {
        /// Where it was looked for.
        at: Remote,
        /// The word that describes the table asked for.
        expected: u64,
        /// The word found.
        found: u64,
    },
    /// A link leads to a bucket that is not there.
    #[error("the hash table at {at} is corrupt: bucket {bucket} is not there; restore it on its node")]
    NoBucket {
        /// The table.
        at: Remote,
        /// The bucket.
        bucket: u64,
    },
    /// A word of the table is one that no table has.
    #[error("the table at {at} is corrupt: {what} cannot be {found:#x}; restore it on its node")]
    Corrupt {
        /// The table.
        at: Remote,
        /// What the word says.
        what: &'static str,
        /// The word.
        found: u64,
    },
    /// A lookup has not come to rest within any number of READs that concurrent changes explain.
    #[error(
        "a lookup in the table at {at} has not come to rest after {attempts} attempts: the table is corrupt, or its node has stopped while \
         changing it; ask its node"
    )]
    Restless {
        /// The table.
        at: Remote,
        /// How often it was tried.
        attempts: u32,
    },
}

/// Where a record is on its node, and in which use of that memory: to be checked against what is
/// found there.
///
/// # Example
///
/// See [`HashPeer`](crate::HashPeer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Location {
    /// The record.
    pub record: Remote,
    /// The incarnation that its head must have.
    pub incarnation: u16,
    /// A turn of the node from before the record was there. Some turns later it may have come
    /// round.
    pub(crate) since: Turn,
}

impl Location {
    /// Where a slot of the table at `table` has led since a turn.
    pub(crate) fn of(place: Place, table: Remote, since: Turn) -> Self {
        let record = Remote { offset: Offset::new(8 * place.word), ..table };
        Self { record, incarnation: place.incarnation, since }
    }

    /// The record's handle on its node.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle::of(Place { word: self.record.offset.word(), incarnation: self.incarnation })
    }

    /// Whether a record that was found at the location before this turn is the one that was there.
    pub(crate) fn is_within(&self, now: Turn) -> bool {
        self.since.is_within(now)
    }
}

/// The word that counts the turns of the region in which something is.
pub(crate) fn turns_of(at: Remote) -> Remote {
    Remote { offset: TURNS_AT, ..at }
}

/// A turn of another node's region that is not later than any READ that follows.
#[derive(Debug)]
pub(crate) struct KnownTurn {
    word: Remote,
    turn: AtomicU64,
}

impl KnownTurn {
    /// The turn that it is now in the region of a table.
    pub(crate) async fn of<P: Port>(verbs: Verbs<'_, P>, table: Remote) -> Result<Self, VerbError> {
        let word = turns_of(table);
        Ok(Self { word, turn: AtomicU64::new(verbs.read_word(word).await?) })
    }

    pub(crate) fn get(&self) -> Turn {
        Turn(self.turn.load(Relaxed))
    }

    /// Asks for the turn that it is now. Whether nothing can have come round since the one that was
    /// known.
    pub(crate) async fn refresh<P: Port>(&self, verbs: Verbs<'_, P>) -> Result<bool, VerbError> {
        let (before, now) = (self.get(), Turn(verbs.read_word(self.word).await?));
        self.turn.fetch_max(now.0, Relaxed);
        Ok(before.is_within(now))
    }
}

/// How long a lookup goes on that meets change after change. Seconds, on any fabric: whoever
/// changes a table is done in less, even if he is interrupted, unless he will never be.
#[derive(Debug)]
pub(crate) struct Patience {
    table: Remote,
    attempts: u32,
}

const ATTEMPTS: u32 = 1 << 22;

impl Patience {
    pub(crate) fn with(table: Remote) -> Self {
        Self { table, attempts: 0 }
    }

    /// Counts an attempt.
    #[inline]
    pub(crate) fn try_again(&mut self) -> Result<(), PeerError> {
        self.attempts += 1;
        if self.attempts > ATTEMPTS {
            return Err(PeerError::Restless { at: self.table, attempts: ATTEMPTS });
        }
        Ok(())
    }
}

/// The table's place moved by so many bytes, of which another node's word says how many.
pub(crate) fn within(table: Remote, what: &'static str, offset: u64, more: u64) -> Result<Remote, PeerError> {
    match offset.checked_add(more) {
        Some(offset) => Ok(Remote { offset: Offset::new(offset), ..table }),
        None => Err(PeerError::Corrupt { at: table, what, found: offset }),
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use drtm_rdma::{NodeId, RegionId};

    use super::*;

    #[test]
    fn patience_has_an_end_and_offsets_do_not_wrap() {
        let table = Remote { node: NodeId(1), region: RegionId(0), offset: Offset::new(64) };
        let mut patience = Patience::with(table);
        assert!((0..ATTEMPTS).all(|_| patience.try_again().is_ok()));
        assert_eq!(patience.try_again(), Err(PeerError::Restless { at: table, attempts: ATTEMPTS }));
        assert_eq!(within(table, "a place", 8, 16).map(|at| at.offset), Ok(Offset::new(24)));
        let wrapped = within(table, "a place", u64::MAX, 1);
        assert_eq!(wrapped, Err(PeerError::Corrupt { at: table, what: "a place", found: u64::MAX }));
    }
}
