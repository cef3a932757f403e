//! The maps under comparison, each written once: for `drtm-bench kv speed` and for the criterion
//! benches alike.
//!
//! A [`Map`] is shared by threads, and a [`Session`] is one thread's way to it. What they do is
//! what a transactional store needs: values are copied out, not lent, since nobody may keep others
//! from changing them for longer than that takes. All hash maps have the same hash function, but
//! for the store's own.

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

/// What every key has: a value of a hundred bytes, as in YCSB's small records.
pub(super) type Value = [u8; VALUE];

/// The byte of a value that an update gives.
const TELLING: usize = 3;

/// A map that is being measured.
pub(super) trait Map<K: Key>: Sync + Sized {
    /// One thread's way to it.
    type Session<'m>: Session<K>
    where
        Self: 'm;

    /// An empty one, with room for so many records where it takes the hint.
    fn new(records: u64) -> Result<Self, Error>;

    /// A thread's way to it.
    fn session(&self) -> Self::Session<'_>;

    /// The bytes that it has taken from memory of its own, if it has such.
    fn taken(&self) -> Option<u64> {
        None
    }
}

/// What one thread does with a map. Each operation says whether the key was there, or to insert it,
/// was not.
pub(super) trait Session<K: Key> {
    fn insert(&mut self, key: &K, value: &Value) -> Result<bool, Error>;
    fn get(&mut self, key: &K, into: &mut Value) -> Result<bool, Error>;
    /// Gives something of what there was, if the key is there, so that the next operation can
    /// depend on it.
    fn update(&mut self, key: &K, value: &Value) -> Result<Option<u8>, Error>;
    fn remove(&mut self, key: &K) -> Result<bool, Error>;

    /// Copies the values of so many keys, from this one on, one after the other. Gives how many
    /// there were: none, if the map has no order.
    fn scan(&mut self, _from: &K, _rows: usize, _into: &mut Value) -> Result<usize, Error> {
        Ok(0)
    }
}
