//! Keys and rows: what the engine knows of data.

use std::sync::Arc;

/// The bytes of a row. Copies share them.
pub type Row = Arc<[u8]>;

/// A key: a table's number, and a word that is unique in the table.
///
/// # Example
///
/// ```
/// use drtm_calvin::Key;
///
/// assert!(Key { table: 1, word: 9 } < Key { table: 2, word: 0 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the type says it")]
pub struct Key {
    pub table: u8,
    pub word: u64,
}

/// How a transaction uses a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The read set and the write set of a transaction, which are known before it runs.
///
/// # Example
///
/// ```
/// use drtm_calvin::{Key, Sets};
///
/// let mut sets = Sets::default();
/// let key = Key { table: 0, word: 7 };
/// sets.read(key);
/// sets.write(key);
/// assert_eq!(sets.keys().collect::<Vec<_>>(), [(key, true)], "one lock, for writing");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sets {
    /// In the order of keys, each of them once.
    accesses: Vec<(Key, Access)>,
}

impl Sets {
    /// Adds a key that is only read.
    pub fn read(&mut self, key: Key) {
        self.add(key, Access::Read);
    }

    /// Adds a key that is written, and perhaps read.
    pub fn write(&mut self, key: Key) {
        self.add(key, Access::Write);
    }

    fn add(&mut self, key: Key, access: Access) {
        match self.accesses.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(place) => self.accesses[place].1 = self.accesses[place].1.max(access),
            Err(place) => self.accesses.insert(place, (key, access)),
        }
    }

    /// Returns the keys in order, and whether each is written.
    pub fn keys(&self) -> impl Iterator<Item = (Key, bool)> {
        self.accesses.iter().map(|(key, access)| (*key, *access == Access::Write))
    }

    pub(crate) fn accesses(&self) -> &[(Key, Access)] {
        &self.accesses
    }
}
