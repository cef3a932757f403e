//! Concurrent hash maps, each used as its documentation says.

use hashbrown::DefaultHashBuilder;

use super::{Map, Session, TELLING, Value};
use crate::{Error, kv::Key};

/// `dashmap`: shards with a lock each.
pub(in crate::kv) struct Dashmap<K>(dashmap::DashMap<K, Value, DefaultHashBuilder>);

impl<K: Key> Map<K> for Dashmap<K> {
    type Session<'m> = &'m dashmap::DashMap<K, Value, DefaultHashBuilder>;

    fn new(records: u64) -> Result<Self, Error> {
        Ok(Self(dashmap::DashMap::with_capacity_and_hasher(records as usize, DefaultHashBuilder::default())))
    }

    fn session(&self) -> Self::Session<'_> {
        &self.0
    }
}

impl<K: Key> Session<K> for &dashmap::DashMap<K, Value, DefaultHashBuilder> {
    #[inline]
    fn insert(&mut self, key: &K, value: &Value) -> Result<bool, Error> {
        Ok(dashmap::DashMap::insert(self, *key, *value).is_none())
    }

    #[inline]
    fn get(&mut self, key: &K, into: &mut Value) -> Result<bool, Error> {
        Ok(dashmap::DashMap::get(self, key).map(|value| *into = *value).is_some())
    }

    #[inline]
    fn update(&mut self, key: &K, value: &Value) -> Result<Option<u8>, Error> {
        Ok(self.get_mut(key).map(|mut old| std::mem::replace(&mut *old, *value)[TELLING]))
    }

    #[inline]
    fn remove(&mut self, key: &K) -> Result<bool, Error> {
        Ok(dashmap::DashMap::remove(self, key).is_some())
    }
}

/// `papaya`: reads without locks, values that are replaced whole.
pub(in crate::kv) struct Papaya<K>(papaya::HashMap<K, Value, DefaultHashBuilder>);

impl<K: Key> Map<K> for Papaya<K> {
    type Session<'m> = &'m papaya::HashMap<K, Value, DefaultHashBuilder>;

    fn new(records: u64) -> Result<Self, Error> {
        Ok(Self(papaya::HashMap::with_capacity_and_hasher(records as usize, DefaultHashBuilder::default())))
    }

    fn session(&self) -> Self::Session<'_> {
        &self.0
    }
}

impl<K: Key> Session<K> for &papaya::HashMap<K, Value, DefaultHashBuilder> {
    #[inline]
    fn insert(&mut self, key: &K, value: &Value) -> Result<bool, Error> {
        Ok(self.pin().insert(*key, *value).is_none())
    }

    #[inline]
    fn get(&mut self, key: &K, into: &mut Value) -> Result<bool, Error> {
        Ok(self.pin().get(key).map(|value| *into = *value).is_some())
    }

    #[inline]
    fn update(&mut self, key: &K, value: &Value) -> Result<Option<u8>, Error> {
        Ok(self.pin().insert(*key, *value).map(|old| old[TELLING]))
    }

    #[inline]
    fn remove(&mut self, key: &K) -> Result<bool, Error> {
        Ok(self.pin().remove(key).is_some())
    }
}

/// `scc`: buckets with a lock each.
pub(in crate::kv) struct Scc<K: Key>(scc::HashMap<K, Value, DefaultHashBuilder>);

impl<K: Key> Map<K> for Scc<K> {
    type Session<'m> = &'m scc::HashMap<K, Value, DefaultHashBuilder>;

    fn new(records: u64) -> Result<Self, Error> {
        Ok(Self(scc::HashMap::with_capacity_and_hasher(records as usize, DefaultHashBuilder::default())))
    }

    fn session(&self) -> Self::Session<'_> {
        &self.0
    }
}

impl<K: Key> Session<K> for &scc::HashMap<K, Value, DefaultHashBuilder> {
    #[inline]
    fn insert(&mut self, key: &K, value: &Value) -> Result<bool, Error> {
        Ok(self.insert_sync(*key, *value).is_ok())
    }

    #[inline]
    fn get(&mut self, key: &K, into: &mut Value) -> Result<bool, Error> {
        Ok(self.read_sync(key, |_, value| *into = *value).is_some())
    }

    #[inline]
    fn update(&mut self, key: &K, value: &Value) -> Result<Option<u8>, Error> {
        Ok(self.update_sync(key, |_, old| std::mem::replace(old, *value)[TELLING]))
    }

    #[inline]
    fn remove(&mut self, key: &K) -> Result<bool, Error> {
        Ok(self.remove_sync(key).is_some())
    }
}
