//! Maps without synchronisation: the speed of a single thread, which is the limit for all others.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};

use super::{Map, Session, TELLING, Value};
use crate::{Error, kv::Key};

/// The standard library's B-tree. Locked once per session, which costs nothing.
pub(in crate::kv) struct Ordered<K>(Mutex<BTreeMap<K, Value>>);

impl<K: Key> Map<K> for Ordered<K> {
    type Session<'m> = MutexGuard<'m, BTreeMap<K, Value>>;

    fn new(_records: u64) -> Result<Self, Error> {
        Ok(Self(Mutex::default()))
    }

    fn session(&self) -> Self::Session<'_> {
        self.0.lock()
    }
}

impl<K: Key> Session<K> for MutexGuard<'_, BTreeMap<K, Value>> {
    #[inline]
    fn insert(&mut self, key: &K, value: &Value) -> Result<bool, Error> {
        Ok(BTreeMap::insert(self, *key, *value).is_none())
    }

    #[inline]
    fn get(&mut self, key: &K, into: &mut Value) -> Result<bool, Error> {
        Ok(BTreeMap::get(self, key).map(|value| *into = *value).is_some())
    }

    #[inline]
    fn update(&mut self, key: &K, value: &Value) -> Result<Option<u8>, Error> {
        Ok(self.get_mut(key).map(|old| std::mem::replace(old, *value)[TELLING]))
    }

    #[inline]
    fn remove(&mut self, key: &K) -> Result<bool, Error> {
        Ok(BTreeMap::remove(self, key).is_some())
    }

    fn scan(&mut self, from: &K, rows: usize, into: &mut Value) -> Result<usize, Error> {
        Ok(self.range(from..).take(rows).map(|(_, value)| *into = *value).count())
    }
}

/// `hashbrown`, the standard library's hash table.
#[cfg(feature = "peers")]
pub(in crate::kv) struct Hashed<K>(Mutex<hashbrown::HashMap<K, Value>>);

#[cfg(feature = "peers")]
impl<K: Key> Map<K> for Hashed<K> {
    type Session<'m> = MutexGuard<'m, hashbrown::HashMap<K, Value>>;

    fn new(records: u64) -> Result<Self, Error> {
        Ok(Self(Mutex::new(hashbrown::HashMap::with_capacity(records as usize))))
    }

    fn session(&self) -> Self::Session<'_> {
        self.0.lock()
    }
}

#[cfg(feature = "peers")]
impl<K: Key> Session<K> for MutexGuard<'_, hashbrown::HashMap<K, Value>> {
    #[inline]
    fn insert(&mut self, key: &K, value: &Value) -> Result<bool, Error> {
        Ok(hashbrown::HashMap::insert(self, *key, *value).is_none())
    }

    #[inline]
    fn get(&mut self, key: &K, into: &mut Value) -> Result<bool, Error> {
        Ok(hashbrown::HashMap::get(self, key).map(|value| *into = *value).is_some())
    }

    #[inline]
    fn update(&mut self, key: &K, value: &Value) -> Result<Option<u8>, Error> {
        Ok(self.get_mut(key).map(|old| std::mem::replace(old, *value)[TELLING]))
    }

    #[inline]
    fn remove(&mut self, key: &K) -> Result<bool, Error> {
        Ok(hashbrown::HashMap::remove(self, key).is_some())
    }
}
