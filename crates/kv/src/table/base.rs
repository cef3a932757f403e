//! The common part of both kinds of tables: a header in the region, the floor of their versions,
//! and the number of their keys.
//!
//! ```text
//! word 0   kind of table and of keys, and the format of both
//!      3   floor of versions
//!      5   flags: 1 where records have checksums
//! ```
//!
//! Other words of the header are the table's own. Some of them count the keys: several words, a
//! line each, so that workers seldom contend.
//!
//! # The floor
//!
//! Removing a key leaves nothing of it, and yet its next version must be higher than its last. So a
//! table has a *floor*: a number that every removed version is below, and that every inserted
//! record starts from. A removal raises it if necessary, which is seldom: once raised, it is above
//! all earlier versions. Both happen under the lock of the key's bucket or leaf, so an insertion
//! sees the floor of the preceding removal.

use std::sync::Arc;

use drtm_htm::{Engine, LINE_WORDS, Word};
use drtm_rdma::{Offset, Region};

use crate::{KvError, Store, Version, Worker, store::bounds::SHARDS, table::patience::Patience};

pub(crate) const KIND: usize = 0;
const FLOOR: usize = 3;
pub(crate) const FLAGS: usize = 5;

/// The initial floor of every table.
const LOWEST: u64 = 1;

const CHECKED: u64 = 1;

/// The number of words that count keys, from a line's boundary.
pub(crate) const COUNTER_WORDS: usize = SHARDS * LINE_WORDS;

/// Returns whether the records of a table with these flags have checksums.
pub(crate) const fn are_checked(flags: u64) -> bool {
    flags & CHECKED != 0
}

/// The layout of a header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    /// The number of its words, and their alignment in bytes.
    pub(crate) words: usize,
    pub(crate) align: u64,
    /// The first of the words that count keys.
    pub(crate) counter: usize,
}

/// The common part of the handles of both kinds of tables.
#[derive(Clone, Debug)]
pub struct Base<E: Engine> {
    pub(crate) store: Store<E>,
    /// The store's region, with one indirection less.
    pub(crate) region: Arc<Region<E>>,
    pub(crate) at: Offset,
    counter: usize,
    /// Whether records have checksums.
    pub(crate) checked: bool,
    pub(crate) patience: Patience,
}

impl<E: Engine> Base<E> {
    fn new(store: &Store<E>, at: Offset, header: Header, checked: bool) -> Self {
        let (store, region) = (store.clone(), Arc::clone(store.region()));
        Self { store, region, at, counter: header.counter, checked, patience: Patience::Endless }
    }

    /// Makes the base of a handle that waits for records only for a moment.
    pub(crate) fn impatient(&self) -> Self {
        Self { patience: Patience::Short, ..self.clone() }
    }

    /// Creates a header, which becomes a table's when its [kind](Self::publish) is stored.
    #[inline(never)]
    pub(crate) fn create(store: &Store<E>, header: Header, checked: bool) -> Result<Self, KvError> {
        let at = store.extend(8 * header.words as u64, header.align)?;
        let base = Self::new(store, at, header, checked);
        base.set(FLOOR, LOWEST)?;
        base.set(FLAGS, if checked { CHECKED } else { 0 })?;
        Ok(base)
    }

    /// Opens the header of a table of this kind.
    pub(crate) fn open(store: &Store<E>, at: Offset, header: Header, expected: u64) -> Result<Self, KvError> {
        let words = store.region().words(at, header.words)?;
        let [found, flags] = [KIND, FLAGS].map(|word| store.region().engine().load(&words[word]));
        if found != expected {
            return Err(KvError::NotThisTable { at, expected, found });
        }
        Ok(Self::new(store, at, header, are_checked(flags)))
    }

    /// Stores the table's kind: the last step of creating it.
    pub(crate) fn publish(&self, kind: u64) -> Result<(), KvError> {
        self.set(KIND, kind)
    }

    #[inline(always)]
    pub(crate) fn engine(&self) -> &E {
        self.region.engine()
    }

    #[inline(always)]
    pub(crate) fn word(&self, word: usize) -> Result<&Word, KvError> {
        // By a word's number, so that the offset's alignment need not be checked.
        let [word] = self.region.array(Offset::new(8 * (self.at.word() + word as u64)))?;
        Ok(word)
    }

    #[inline(always)]
    pub(crate) fn get(&self, word: usize) -> Result<u64, KvError> {
        Ok(self.engine().load(self.word(word)?))
    }

    pub(crate) fn set(&self, word: usize, value: u64) -> Result<(), KvError> {
        self.engine().store(self.word(word)?, value);
        Ok(())
    }

    /// Returns a version number that no removed record has reached.
    #[inline(always)]
    pub(crate) fn floor(&self) -> Result<u64, KvError> {
        self.get(FLOOR)
    }

    /// Returns the floor, if it is above this version.
    #[inline(always)]
    pub(crate) fn floor_above(&self, version: Version) -> Result<Option<u64>, KvError> {
        Ok(Some(self.floor()?).filter(|floor| *floor > version.number()))
    }

    /// Raises the floor above a version that is about to be removed.
    pub(crate) fn raise_floor(&self, removed: Version) -> Result<(), KvError> {
        let floor = self.word(FLOOR)?;
        let mut now = self.engine().load(floor);
        while now <= removed.number() {
            match self.engine().compare_exchange(floor, now, removed.number() + 1) {
                Ok(_) => break,
                Err(found) => now = found,
            }
        }
        Ok(())
    }

    /// Adds `change` to the number of keys. Returns the new count of this worker's shard.
    #[inline(always)]
    pub(crate) fn count(&self, worker: &Worker<E>, change: i64) -> Result<i64, KvError> {
        let shard = self.word(self.counter + worker.number() as usize % SHARDS * LINE_WORDS)?;
        Ok((self.engine().fetch_add(shard, change as u64) as i64).wrapping_add(change))
    }

    /// Returns the number of keys: the sum of all shards, each of which alone may be negative.
    pub(crate) fn keys(&self) -> Result<u64, KvError> {
        let sum = (0..SHARDS).try_fold(0_i64, |sum, shard| {
            let shard = self.word(self.counter + shard * LINE_WORDS)?;
            Ok::<_, KvError>(sum.wrapping_add(self.engine().load_relaxed(shard) as i64))
        })?;
        Ok(sum.max(0) as u64)
    }
}
