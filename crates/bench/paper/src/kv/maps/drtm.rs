//! The store's own tables.

use std::ops::ControlFlow;

use drtm_htm::NoHtm;
use drtm_kv::{HashConfig, HashTable, Keys, KvTable, Store, Tree, TreeKeys, Worker};

use super::{Map, Session, VALUE, Value};
use crate::{Error, kv::Key};

/// Creates a store with address space for this many records. Memory is allocated on use.
fn store(records: u64) -> Result<Store<NoHtm>, Error> {
    Ok(Store::in_memory(NoHtm, (256 << 20) + 512 * records)?)
}

/// The hash table, at an occupancy of three quarters.
pub(in crate::kv) struct DrtmHash<K: Keys> {
    store: Store<NoHtm>,
    table: HashTable<NoHtm, K>,
}

pub(in crate::kv) struct HashSession<'m, K: Keys> {
    table: &'m HashTable<NoHtm, K>,
    worker: Worker<NoHtm>,
}

impl<K: Key> Map<K> for DrtmHash<K::Kind> {
    type Session<'m> = HashSession<'m, K::Kind>;

    fn new(records: u64) -> Result<Self, Error> {
        let store = store(records)?;
        let table = store.hash_table_of(HashConfig::for_keys(records))?;
        Ok(Self { store, table })
    }

    fn session(&self) -> Self::Session<'_> {
        HashSession { table: &self.table, worker: self.store.worker().expect("a worker") }
    }

    fn taken(&self) -> Option<u64> {
        Some(self.store.region().allocated())
    }
}

impl<K: Key> Session<K> for HashSession<'_, K::Kind> {
    #[inline]
    fn insert(&mut self, key: &K, value: &Value) -> Result<bool, Error> {
        Ok(self.table.insert(&mut self.worker, key.as_stored(), value)?.is_some())
    }

    #[inline]
    fn get(&mut self, key: &K, into: &mut Value) -> Result<bool, Error> {
        Ok(self.table.get(key.as_stored(), into)?.is_some())
    }

    #[inline]
    fn update(&mut self, key: &K, value: &Value) -> Result<Option<u8>, Error> {
        Ok(self.table.update(&mut self.worker, key.as_stored(), value)?.map(|version| version.number() as u8))
    }

    #[inline]
    fn remove(&mut self, key: &K) -> Result<bool, Error> {
        Ok(self.table.remove(&mut self.worker, key.as_stored())?.is_some())
    }
}

/// The B+ tree.
pub(in crate::kv) struct DrtmTree<K: TreeKeys> {
    store: Store<NoHtm>,
    tree: Tree<NoHtm, K>,
}

pub(in crate::kv) struct TreeSession<'m, K: TreeKeys> {
    tree: &'m Tree<NoHtm, K>,
    worker: Worker<NoHtm>,
}

impl<K: Key> Map<K> for DrtmTree<K::Kind> {
    type Session<'m> = TreeSession<'m, K::Kind>;

    fn new(records: u64) -> Result<Self, Error> {
        let store = store(records)?;
        let tree = store.tree_of()?;
        Ok(Self { store, tree })
    }

    fn session(&self) -> Self::Session<'_> {
        TreeSession { tree: &self.tree, worker: self.store.worker().expect("a worker") }
    }

    fn taken(&self) -> Option<u64> {
        Some(self.store.region().allocated())
    }
}

impl<K: Key> Session<K> for TreeSession<'_, K::Kind> {
    #[inline]
    fn insert(&mut self, key: &K, value: &Value) -> Result<bool, Error> {
        Ok(self.tree.insert(&mut self.worker, key.as_stored(), value)?.is_some())
    }

    #[inline]
    fn get(&mut self, key: &K, into: &mut Value) -> Result<bool, Error> {
        Ok(self.tree.get(key.as_stored(), into)?.is_some())
    }

    #[inline]
    fn update(&mut self, key: &K, value: &Value) -> Result<Option<u8>, Error> {
        Ok(self.tree.update(&mut self.worker, key.as_stored(), value)?.map(|version| version.number() as u8))
    }

    #[inline]
    fn remove(&mut self, key: &K) -> Result<bool, Error> {
        Ok(self.tree.remove(&mut self.worker, key.as_stored())?.is_some())
    }

    fn scan(&mut self, from: &K, rows: usize, into: &mut Value) -> Result<usize, Error> {
        let mut scanned = 0;
        if rows > 0 {
            self.tree.range(from.as_stored()..).expecting(rows, VALUE).each_into(into, |_, _, _| {
                scanned += 1;
                if scanned < rows { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
        }
        Ok(scanned)
    }
}
