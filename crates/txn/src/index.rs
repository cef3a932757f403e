//! A table's rows in the store, whichever of its four shapes the table has: what a transaction does with one, each once.

mod tour;

use drtm_htm::Engine;
use drtm_kv::{
    BucketChange, BucketVersion, Bytes, Fetched, Handle, HashConfig, HashTable, Holder, Inline, KvError, LeafChange,
    NodeVersion, Past, Placed, Reaped, Reserved, Room, Sighting, Store, Tree, Version, Worker,
};

use crate::table::{Any, Reach};

/// A key, as the store takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Encoded<'k> {
    Word(u64),
    Bytes(&'k [u8]),
}

/// Where a key was not found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Absence {
    Bucket(BucketVersion),
    Leaf(NodeVersion),
}

/// What a transaction's own insertion did to where keys are looked for.
#[derive(Debug)]
pub(crate) enum Shift {
    Bucket(BucketChange),
    Leaf(LeafChange),
}

/// A table in the store.
#[derive(Debug)]
pub(crate) enum Index<E: Engine> {
    HashOfWords(HashTable<E, Inline>),
    HashOfBytes(HashTable<E, Bytes>),
    TreeOfWords(Tree<E, Inline>),
    TreeOfBytes(Tree<E, Bytes>),
}

/// Runs an operation on whichever table it is, with the key that goes with it.
macro_rules! with_key {
    ($reach:ty, $index:expr, $key:expr, |$table:ident, $word:ident| $hash:expr, |$tree:ident, $name:ident| $ordered:expr) => {
        match ($index, $key) {
            (Index::HashOfWords($table), Encoded::Word($word)) if <$reach>::HASHED => $hash,
            (Index::HashOfBytes($table), Encoded::Bytes($word)) if <$reach>::HASHED => $hash,
            (Index::TreeOfWords($tree), Encoded::Word($name)) if <$reach>::SORTED => $ordered,
            (Index::TreeOfBytes($tree), Encoded::Bytes($name)) if <$reach>::SORTED => $ordered,
            // The type of keys decides about both, and is checked when the table is opened.
            _ => unreachable!("a key of another kind than its table's"),
        }
    };
}

/// Runs an operation that needs no key.
macro_rules! with_table {
    ($index:expr, |$table:ident| $body:expr) => {
        match $index {
            Index::HashOfWords($table) => $body,
            Index::HashOfBytes($table) => $body,
            Index::TreeOfWords($table) => $body,
            Index::TreeOfBytes($table) => $body,
        }
    };
}

impl<E: Engine> Index<E> {
    pub(crate) fn create(store: &Store<E>, is_ordered: bool, fits: bool, rows: u64) -> Result<Self, KvError> {
        let config = HashConfig::for_keys(rows);
        Ok(match (is_ordered, fits) {
            (false, true) => Self::HashOfWords(store.hash_table(config)?),
            (false, false) => Self::HashOfBytes(store.hash_table_of(config)?),
            (true, true) => Self::TreeOfWords(store.tree()?),
            (true, false) => Self::TreeOfBytes(store.tree_of()?),
        })
    }

    #[inline(always)]
    pub(crate) fn fetch<O: Reach>(
        &self,
        key: Encoded<'_>,
        holder: Holder,
        into: &mut impl Room,
    ) -> Result<Fetched<Absence>, KvError> {
        Ok(with_key!(
            O,
            self,
            key,
            |table, key| match table.fetch(key, holder, into)? {
                Fetched::Record(found) => Fetched::Record(found),
                Fetched::Nothing(bucket) => Fetched::Nothing(Absence::Bucket(bucket)),
            },
            |tree, key| match tree.fetch(key, holder, into)? {
                Fetched::Record(found) => Fetched::Record(found),
                Fetched::Nothing(leaf) => Fetched::Nothing(Absence::Leaf(leaf)),
            }
        ))
    }

    /// Copies a row's value from a record that was located before, if it is still the row's.
    #[inline(always)]
    pub(crate) fn fetch_at<O: Reach>(
        &self,
        at: Handle,
        word: u64,
        holder: Holder,
        into: &mut impl Room,
    ) -> Option<Sighting> {
        match self {
            Self::HashOfWords(table) if O::HASHED => table.fetch_at(at, word, holder, into),
            _ => None,
        }
    }

    /// The same as it was before a version.
    #[inline(always)]
    pub(crate) fn fetch_past_at<O: Reach>(
        &self,
        at: Handle,
        key: Encoded<'_>,
        before: Version,
        into: &mut impl Room,
    ) -> Option<Past> {
        match (self, key) {
            (Self::HashOfWords(table), Encoded::Word(word)) if O::HASHED => table.fetch_past_at(at, word, before, into),
            _ => None,
        }
    }

    /// Copies the value that a key had before a version.
    #[inline]
    pub(crate) fn fetch_past<O: Reach>(
        &self,
        key: Encoded<'_>,
        before: Version,
        into: &mut impl Room,
    ) -> Result<Past, KvError> {
        with_key!(O, self, key, |table, key| table.fetch_past(key, before, into), |tree, key| tree
            .fetch_past(key, before, into))
    }

    /// The record of a key that is there, where that is found quickly. `None` tells nothing.
    #[inline(always)]
    pub(crate) fn find<O: Reach>(&self, key: Encoded<'_>, holder: Holder) -> Option<Sighting> {
        match (self, key) {
            (Self::HashOfWords(table), Encoded::Word(word)) if O::HASHED => table.find(word, holder),
            (Self::HashOfBytes(table), Encoded::Bytes(bytes)) if O::HASHED => table.find(bytes, holder),
            _ => None,
        }
    }

    #[inline(always)]
    pub(crate) fn place<O: Reach>(
        &self,
        worker: &mut Worker<E>,
        key: Encoded<'_>,
        value: &[u8],
        mut note: impl FnMut(Shift),
    ) -> Result<Placed, KvError> {
        with_key!(
            O,
            self,
            key,
            |table, key| table.place(worker, key, value, |change| note(Shift::Bucket(change))),
            |tree, key| tree.place(worker, key, value, |change| note(Shift::Leaf(change)))
        )
    }

    /// Makes records for the first of some keys that ascend, as far as that can be done at once. Gives how many.
    #[inline(always)]
    pub(crate) fn place_run<'v>(
        &self,
        worker: &mut Worker<E>,
        rows: impl Iterator<Item = (u64, &'v [u8])>,
        made: impl FnMut(Sighting),
        note: impl FnOnce(Shift),
    ) -> Result<usize, KvError> {
        match self {
            Self::TreeOfWords(tree) => tree.place_run(worker, rows, made, |change| note(Shift::Leaf(change))),
            _ => Ok(0),
        }
    }

    /// Whether a key's record is this one, which is locked.
    #[cold]
    pub(crate) fn leads_to(&self, key: Encoded<'_>, at: Handle) -> Result<bool, KvError> {
        with_key!(Any, self, key, |table, key| table.leads_to(key, at), |tree, key| tree.leads_to(key, at))
    }

    pub(crate) fn reserve(
        &self,
        worker: &mut Worker<E>,
        at: Handle,
        length: usize,
    ) -> Result<Option<Reserved>, KvError> {
        with_table!(self, |table| table.reserve(worker, at, length))
    }

    /// Writes a record that is locked with a value of another length, where it is or in this memory. Gives where it is then.
    #[inline(never)]
    pub(crate) fn write(
        &self,
        worker: &mut Worker<E>,
        key: Encoded<'_>,
        at: Handle,
        to: Option<Reserved>,
        version: Version,
        value: &[u8],
    ) -> Result<Handle, KvError> {
        match to {
            None => with_table!(self, |table| table.write_held(at, version, value)).map(|()| at),
            Some(to) => self.move_held(worker, key, at, to, version, value),
        }
    }

    fn move_held(
        &self,
        worker: &mut Worker<E>,
        key: Encoded<'_>,
        at: Handle,
        to: Reserved,
        version: Version,
        value: &[u8],
    ) -> Result<Handle, KvError> {
        with_key!(Any, self, key, |table, key| table.move_held(worker, key, at, to, version, value), |tree, key| tree
            .move_held(worker, key, at, to, version, value))
    }

    pub(crate) fn reap(&self, worker: &mut Worker<E>, key: Encoded<'_>, seen: Sighting) -> Result<Reaped, KvError> {
        with_key!(Any, self, key, |table, key| table.reap(worker, key, seen), |tree, key| tree.reap(worker, key, seen))
    }

    /// Rows, and records that stand for rows that are not there.
    pub(crate) fn records(&self) -> Result<u64, KvError> {
        with_table!(self, |table| table.count())
    }
}
