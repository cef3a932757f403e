//! The common part of the peers of hash tables and trees: locations and errors.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use drtm_rdma::{Offset, Port, Remote, TURNS_AT, VerbError, Verbs};

use crate::{Handle, Turn, store::layout::Place};

/// An error of a table on another node, which cannot be reached or is corrupt.
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
        /// The place.
        at: Remote,
        /// The word of the requested table.
        expected: u64,
        /// The word that was found.
        found: u64,
    },
    /// A link leads to a bucket that does not exist.
    #[error("the hash table at {at} is corrupt: bucket {bucket} is not there; restore it on its node")]
    NoBucket {
        /// The table.
        at: Remote,
        /// The bucket.
        bucket: u64,
    },
    /// A word of the table has a value that no table has.
    #[error("the table at {at} is corrupt: {what} cannot be {found:#x}; restore it on its node")]
    Corrupt {
        /// The table.
        at: Remote,
        /// What the word is.
        what: &'static str,
        /// The value.
        found: u64,
    },
    /// A lookup did not finish within any number of READs that concurrent changes explain.
    #[error(
        "a lookup in the table at {at} has not come to rest after {attempts} attempts: the table is corrupt, or its node has stopped while \
         changing it; ask its node"
    )]
    Restless {
        /// The table.
        at: Remote,
        /// The number of attempts.
        attempts: u32,
    },
}

/// A record's place on its node, and the incarnation of its memory, which a reader must check
/// there.
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
    /// A turn of the node from before the record was there. Some turns later the incarnation may
    /// have wrapped around.
    pub(crate) since: Turn,
}

impl Location {
    /// Makes the location that a slot of the table at `table` has had since a turn.
    pub(crate) fn of(place: Place, table: Remote, since: Turn) -> Self {
        let record = Remote { offset: Offset::new(8 * place.word), ..table };
        Self { record, incarnation: place.incarnation, since }
    }

    /// Returns the record's handle on its node.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle::of(Place { word: self.record.offset.word(), incarnation: self.incarnation })
    }

    /// Returns whether a record that was found at the location before this turn was read is the
    /// expected one. Otherwise its incarnation may have wrapped around, and the key must be
    /// [looked up again](crate::HashPeer::find_again).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_kv::{HashPeer, Inline, Location, Turn};
    ///
    /// /// Returns whether a record that was read is the key's, by the count of turns that was read
    /// /// after it.
    /// fn is_current(peer: &HashPeer<Inline>, location: Location, turns: u64) -> bool {
    ///     let turn = Turn::from_word(turns);
    ///     peer.note_turns(turn);
    ///     location.is_within(turn)
    /// }
    /// ```
    #[must_use]
    pub fn is_within(&self, now: Turn) -> bool {
        self.since.is_within(now)
    }
}

/// Returns the place of the word that counts the turns of a place's region.
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
    /// Fetches the current turn of the region of a table.
    pub(crate) async fn of<P: Port>(verbs: Verbs<'_, P>, table: Remote) -> Result<Self, VerbError> {
        let word = turns_of(table);
        Ok(Self { word, turn: AtomicU64::new(verbs.read_word(word).await?) })
    }

    pub(crate) fn get(&self) -> Turn {
        Turn(self.turn.load(Relaxed))
    }

    /// Notes that a turn was counted.
    pub(crate) fn raise(&self, turn: Turn) {
        self.turn.fetch_max(turn.0, Relaxed);
    }

    /// Fetches the current turn. Returns whether no counter can have wrapped around since the known
    /// one.
    pub(crate) async fn refresh<P: Port>(&self, verbs: Verbs<'_, P>) -> Result<bool, VerbError> {
        let (before, now) = (self.get(), Turn(verbs.read_word(self.word).await?));
        self.raise(now);
        Ok(before.is_within(now))
    }
}

/// The most attempts of a lookup that meets change after change. They take seconds on any fabric. A
/// thread that changes a table needs less, even if it is interrupted, unless it never continues.
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

    /// Counts an attempt. Fails if there were too many.
    #[inline]
    pub(crate) fn try_again(&mut self) -> Result<(), PeerError> {
        self.attempts += 1;
        if self.attempts > ATTEMPTS {
            return Err(PeerError::Restless { at: self.table, attempts: ATTEMPTS });
        }
        Ok(())
    }
}

/// Returns the place at an offset, which a word of another node has, plus `more` bytes.
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
