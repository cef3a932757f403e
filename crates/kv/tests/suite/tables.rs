//! What both kinds of tables can do, for tests that are written once.

use drtm_htm::NoHtm;
use drtm_kv::{HashTable, KvError, Read, Tree, Version, Worker};

pub(crate) trait Table: Clone + Send + Sync + 'static {
    fn get(&self, key: u64, into: &mut [u8]) -> Result<Option<Read>, KvError>;
    fn insert(&self, worker: &mut Worker<NoHtm>, key: u64, value: &[u8]) -> Result<Option<Version>, KvError>;
    fn update(&self, worker: &mut Worker<NoHtm>, key: u64, value: &[u8]) -> Result<Option<Version>, KvError>;
    fn remove(&self, worker: &mut Worker<NoHtm>, key: u64) -> Result<Option<Version>, KvError>;
    fn count(&self) -> Result<u64, KvError>;

    /// All keys with their values: in order, if the table has one, and downward if that is asked for.
    fn all(&self, down: bool) -> Result<Vec<(u64, Vec<u8>)>, KvError>;

    /// Whether keys can come like this.
    fn is_right_order(keys: &[u64], down: bool) -> bool;
}

macro_rules! as_the_table_does {
    () => {
        fn get(&self, key: u64, into: &mut [u8]) -> Result<Option<Read>, KvError> {
            self.get(key, into)
        }
        fn insert(&self, worker: &mut Worker<NoHtm>, key: u64, value: &[u8]) -> Result<Option<Version>, KvError> {
            self.insert(worker, key, value)
        }
        fn update(&self, worker: &mut Worker<NoHtm>, key: u64, value: &[u8]) -> Result<Option<Version>, KvError> {
            self.update(worker, key, value)
        }
        fn remove(&self, worker: &mut Worker<NoHtm>, key: u64) -> Result<Option<Version>, KvError> {
            self.remove(worker, key)
        }
        fn count(&self) -> Result<u64, KvError> {
            self.count()
        }
    };
}

impl Table for HashTable<NoHtm> {
    as_the_table_does!();

    fn all(&self, _down: bool) -> Result<Vec<(u64, Vec<u8>)>, KvError> {
        let mut all = Vec::new();
        self.for_each(|key, value, _| all.push((key, value.to_vec())))?;
        Ok(all)
    }

    fn is_right_order(_keys: &[u64], _down: bool) -> bool {
        true
    }
}

impl Table for Tree<NoHtm> {
    as_the_table_does!();

    fn all(&self, down: bool) -> Result<Vec<(u64, Vec<u8>)>, KvError> {
        let mut scan = if down { self.range_back(..) } else { self.range(..) };
        let mut all = Vec::new();
        while let Some(row) = scan.next()? {
            all.push((row.key, row.value.to_vec()));
        }
        Ok(all)
    }

    fn is_right_order(keys: &[u64], down: bool) -> bool {
        keys.is_sorted_by(|a, b| if down { a > b } else { a < b })
    }
}
