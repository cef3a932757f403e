//! The rows of a node: hash maps, each with a mutex.
//!
//! Locks of keys isolate transactions. The mutexes only keep the maps whole, and each is held for
//! one access.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, BuildHasherDefault},
};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};

use crate::key::{Key, Row};

const SHARDS: usize = 64;

/// The rows of one node.
///
/// # Example
///
/// ```
/// use drtm_calvin::{Key, Store};
///
/// let store = Store::default();
/// let key = Key { table: 0, word: 1 };
/// store.put(key, [1, 2].into());
/// assert_eq!(store.get(key).as_deref(), Some(&[1, 2][..]));
/// store.remove(key);
/// assert!(store.get(key).is_none());
/// ```
#[derive(Debug)]
pub struct Store {
    shards: [Mutex<FxHashMap<Key, Row>>; SHARDS],
}

impl Default for Store {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

/// Another store with these rows, as they are now in each of the maps.
impl Clone for Store {
    fn clone(&self) -> Self {
        Self { shards: std::array::from_fn(|shard| Mutex::new(self.shards[shard].lock().clone())) }
    }
}

impl Store {
    /// Returns the row of a key, if there is one.
    pub fn get(&self, key: Key) -> Option<Row> {
        self.shard(key).lock().get(&key).cloned()
    }

    /// Inserts or replaces a row.
    pub fn put(&self, key: Key, row: Row) {
        self.shard(key).lock().insert(key, row);
    }

    /// Removes a row, if there is one.
    pub fn remove(&self, key: Key) {
        self.shard(key).lock().remove(&key);
    }

    /// Returns all rows in the order of their keys.
    ///
    /// # Example
    ///
    /// ```
    /// assert!(drtm_calvin::Store::default().rows().is_empty());
    /// ```
    pub fn rows(&self) -> BTreeMap<Key, Row> {
        let mut rows = BTreeMap::new();
        for shard in &self.shards {
            rows.extend(shard.lock().iter().map(|(key, row)| (*key, row.clone())));
        }
        rows
    }

    fn shard(&self, key: Key) -> &Mutex<FxHashMap<Key, Row>> {
        // The upper bits are the good ones of this hash.
        let hash = BuildHasherDefault::<FxHasher>::default().hash_one(key);
        &self.shards[(hash >> 32) as usize % SHARDS]
    }
}
