//! Concurrent ordered maps, each used as its documentation says.

use concurrent_map::{ConcurrentMap, Minimum};
use congee::{U64Congee, epoch};
use crossbeam_skiplist::SkipMap;
use parking_lot::Mutex;

use super::{
    Map, Session, TELLING, Value,
    slab::{Slab, Slots},
};
use crate::{Error, kv::Key};

/// `crossbeam-skiplist`: replaces values whole.
pub(in crate::kv) struct Skiplist<K>(SkipMap<K, Value>);

impl<K: Key> Map<K> for Skiplist<K> {
    type Session<'m> = &'m SkipMap<K, Value>;

    fn new(_records: u64) -> Result<Self, Error> {
        Ok(Self(SkipMap::new()))
    }

    fn session(&self) -> Self::Session<'_> {
        &self.0
    }
}

impl<K: Key> Session<K> for &SkipMap<K, Value> {
    #[inline]
    fn insert(&mut self, key: &K, value: &Value) -> Result<bool, Error> {
        SkipMap::insert(self, *key, *value);
        // The map does not return whether the key was present.
        Ok(true)
    }

    #[inline]
    fn get(&mut self, key: &K, into: &mut Value) -> Result<bool, Error> {
        Ok(SkipMap::get(self, key).map(|entry| *into = *entry.value()).is_some())
    }

    #[inline]
    fn update(&mut self, key: &K, value: &Value) -> Result<Option<u8>, Error> {
        Ok(Some(SkipMap::insert(self, *key, *value).value()[TELLING]))
    }

    #[inline]
    fn remove(&mut self, key: &K) -> Result<bool, Error> {
        Ok(SkipMap::remove(self, key).is_some())
    }

    fn scan(&mut self, from: &K, rows: usize, into: &mut Value) -> Result<usize, Error> {
        Ok(self.range(from..).take(rows).map(|entry| *into = *entry.value()).count())
    }
}

/// `congee`, an adaptive radix tree of numbers to numbers, which index values in a slab.
pub(in crate::kv) struct ArtByCongee {
    tree: U64Congee<usize>,
    values: Slab,
}

pub(in crate::kv) struct ArtSession<'m> {
    tree: &'m U64Congee<usize>,
    values: Slots<'m>,
    /// The rows of a scan, allocated once.
    rows: Vec<([u8; 8], usize)>,
}

impl Map<u64> for ArtByCongee {
    type Session<'m> = ArtSession<'m>;

    fn new(_records: u64) -> Result<Self, Error> {
        Ok(Self { tree: U64Congee::new(), values: Slab::new() })
    }

    fn session(&self) -> Self::Session<'_> {
        ArtSession { tree: &self.tree, values: self.values.slots(), rows: Vec::new() }
    }
}

impl Session<u64> for ArtSession<'_> {
    #[inline]
    fn insert(&mut self, key: &u64, value: &Value) -> Result<bool, Error> {
        let number = self.values.add(value)?;
        let inserted = self.tree.insert(*key, number, &epoch::pin());
        Ok(inserted.is_ok_and(|before| before.is_none()))
    }

    #[inline]
    fn get(&mut self, key: &u64, into: &mut Value) -> Result<bool, Error> {
        Ok(self.tree.get(*key, &epoch::pin()).map(|number| self.values.read(number, into)).is_some())
    }

    #[inline]
    fn update(&mut self, key: &u64, value: &Value) -> Result<Option<u8>, Error> {
        let number = self.tree.get(*key, &epoch::pin());
        Ok(number.map(|number| {
            self.values.write(number, value);
            number as u8
        }))
    }

    #[inline]
    fn remove(&mut self, key: &u64) -> Result<bool, Error> {
        Ok(self.tree.remove(*key, &epoch::pin()).map(|number| self.values.free(number)).is_some())
    }

    fn scan(&mut self, from: &u64, rows: usize, into: &mut Value) -> Result<usize, Error> {
        self.rows.resize(rows, ([0; 8], 0));
        let found = self.tree.range(*from, u64::MAX, &mut self.rows, &epoch::pin());
        self.rows[..found].iter().for_each(|(_, number)| self.values.read(*number, into));
        Ok(found)
    }
}

/// `concurrent-map`, a B-link tree that shares nodes between versions. Each thread has its own
/// handle.
pub(in crate::kv) struct BTreeByConcurrentMap<K: Key + Minimum>(Mutex<ConcurrentMap<K, Value>>);

impl<K: Key + Minimum> Map<K> for BTreeByConcurrentMap<K> {
    type Session<'m> = ConcurrentMap<K, Value>;

    fn new(_records: u64) -> Result<Self, Error> {
        Ok(Self(Mutex::default()))
    }

    fn session(&self) -> Self::Session<'_> {
        self.0.lock().clone()
    }
}

impl<K: Key + Minimum> Session<K> for ConcurrentMap<K, Value> {
    #[inline]
    fn insert(&mut self, key: &K, value: &Value) -> Result<bool, Error> {
        Ok(ConcurrentMap::insert(self, *key, *value).is_none())
    }

    #[inline]
    fn get(&mut self, key: &K, into: &mut Value) -> Result<bool, Error> {
        Ok(ConcurrentMap::get(self, key).map(|value| *into = value).is_some())
    }

    #[inline]
    fn update(&mut self, key: &K, value: &Value) -> Result<Option<u8>, Error> {
        Ok(ConcurrentMap::insert(self, *key, *value).map(|old| old[TELLING]))
    }

    #[inline]
    fn remove(&mut self, key: &K) -> Result<bool, Error> {
        Ok(ConcurrentMap::remove(self, key).is_some())
    }

    fn scan(&mut self, from: &K, rows: usize, into: &mut Value) -> Result<usize, Error> {
        Ok(self.range(*from..).take(rows).map(|(_, value)| *into = value).count())
    }
}
