//! The compared maps, used by `drtm-bench kv speed` and by the criterion benches.
//!
//! Threads share a [`Map`], and a [`Session`] is one thread's handle to it. The operations are
//! those that a transactional store needs: values are copied out rather than lent, because a reader
//! must not block writers for longer. All hash maps have the same hash function, except the store's
//! own.

mod drtm;
#[cfg(feature = "peers")]
mod hash_peers;
mod limits;
#[cfg(feature = "peers")]
mod ordered_peers;
#[cfg(feature = "peers")]
mod slab;

pub(super) use drtm::{DrtmHash, DrtmTree};
pub(super) use limits::Ordered;
#[cfg(feature = "peers")]
pub(super) use {
    hash_peers::{Dashmap, Papaya, Scc},
    limits::Hashed,
    ordered_peers::{ArtByCongee, BTreeByConcurrentMap, Skiplist},
};

use super::Key;
use crate::Error;

/// Bytes of a value.
pub(super) const VALUE: usize = 100;

/// The value of every key: a hundred bytes, as in YCSB's small records.
pub(super) type Value = [u8; VALUE];

/// The byte of the old value that an update returns.
const TELLING: usize = 3;

/// A measured map.
pub(super) trait Map<K: Key>: Sync + Sized {
    /// One thread's handle.
    type Session<'m>: Session<K>
    where
        Self: 'm;

    /// Creates an empty map, with room for this many records if it takes the hint.
    fn new(records: u64) -> Result<Self, Error>;

    /// Returns a thread's handle.
    fn session(&self) -> Self::Session<'_>;

    /// Returns the bytes that it has allocated from memory of its own; `None` if it has none.
    fn taken(&self) -> Option<u64> {
        None
    }
}

/// The operations of one thread. Each returns whether it succeeded: whether the key was present, or
/// absent for an insert.
pub(super) trait Session<K: Key> {
    fn insert(&mut self, key: &K, value: &Value) -> Result<bool, Error>;
    fn get(&mut self, key: &K, into: &mut Value) -> Result<bool, Error>;
    /// Returns a byte of the old value, so that the next operation can depend on it. `None` if the
    /// key is absent.
    fn update(&mut self, key: &K, value: &Value) -> Result<Option<u8>, Error>;
    fn remove(&mut self, key: &K) -> Result<bool, Error>;

    /// Copies the values of `rows` keys in order, starting at `from`. Returns how many there were;
    /// zero if the map is unordered.
    fn scan(&mut self, _from: &K, _rows: usize, _into: &mut Value) -> Result<usize, Error> {
        Ok(0)
    }
}
