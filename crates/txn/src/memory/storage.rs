//! A table's rows in the store, in whichever of the four kinds of storage the table has.

mod tour;

pub(crate) use self::tour::Tour;

use std::ops::{Bound, ControlFlow};

use drtm_htm::Engine;
use drtm_kv::{
    AsOf, BucketVersion, Bytes, Current, Cursor, ForHolder, GuardChange, Handle, HashConfig, HashTable, Inline,
    KvError, KvTable, NoValue, NodeVersion, Past, Placed, ReadEntry, Reaped, Relocated, Reserved, Store, Tree, Turn,
    ValueSink, Version, Visibility, Worker,
};
use drtm_rdma::Offset;

use crate::{
    Key,
    schema::table::{Any, Reach},
    tx::way::Way,
};

/// A key, as the store takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KeyRef<'k> {
    Word(u64),
    Bytes(&'k [u8]),
}

impl From<u64> for KeyRef<'_> {
    #[inline(always)]
    fn from(word: u64) -> Self {
        Self::Word(word)
    }
}

impl<'k> From<&'k [u8]> for KeyRef<'k> {
    #[inline(always)]
    fn from(bytes: &'k [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'k> KeyRef<'k> {
    /// Decodes the key. Returns `None` if it is invalid for this type.
    #[inline]
    pub(crate) fn decode<K: Key>(self) -> Option<K> {
        match self {
            Self::Word(word) => K::from_word(word),
            Self::Bytes(bytes) => K::from_bytes(bytes),
        }
    }

    /// Returns the key with this encoding, in a table whose keys are byte strings, or words of this
    /// many bytes. `None` if it is no key of such a table.
    pub(crate) fn of_encoding(encoding: &'k [u8], word_size: Option<usize>) -> Option<Self> {
        let Some(size) = word_size else { return Some(Self::Bytes(encoding)) };
        let mut word = [0; 8];
        let unused = word.len().checked_sub(encoding.len()).filter(|_| encoding.len() == size)?;
        word[unused..].copy_from_slice(encoding);
        Some(Self::Word(u64::from_be_bytes(word)))
    }

    /// Returns the number of bytes of the key.
    pub(crate) fn length(self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Word(_) => size_of::<u64>(),
        }
    }

    /// Returns the key's encoding. A key that is a word has `size` bytes, which are written to
    /// `word`.
    pub(crate) fn encoded(self, size: usize, word: &'k mut [u8; 8]) -> &'k [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Word(key) => {
                *word = key.to_be_bytes();
                &word[word.len() - size.min(word.len())..]
            }
        }
    }

    /// Appends the key's encoding.
    #[inline]
    pub(crate) fn write(self, size: usize, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.encoded(size, &mut [0; 8]));
    }
}

/// An owned key.
#[derive(Debug)]
pub(crate) enum OwnedKey {
    Word(u64),
    Bytes(Box<[u8]>),
}

impl From<KeyRef<'_>> for OwnedKey {
    fn from(key: KeyRef<'_>) -> Self {
        match key {
            KeyRef::Word(word) => Self::Word(word),
            KeyRef::Bytes(bytes) => Self::Bytes(bytes.into()),
        }
    }
}

impl OwnedKey {
    pub(crate) fn as_ref(&self) -> KeyRef<'_> {
        match self {
            Self::Word(word) => KeyRef::Word(*word),
            Self::Bytes(bytes) => KeyRef::Bytes(bytes),
        }
    }
}

/// The guard of a place where a key was not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    Bucket(BucketVersion),
    Leaf(NodeVersion),
}

/// Returns the guard, if it is one of a hash table.
impl From<Absence> for Option<BucketVersion> {
    #[inline(always)]
    fn from(absence: Absence) -> Self {
        match absence {
            Absence::Bucket(bucket) => Some(bucket),
            Absence::Leaf(_) => None,
        }
    }
}

/// Returns the guard, if it is one of a tree.
impl From<Absence> for Option<NodeVersion> {
    #[inline(always)]
    fn from(absence: Absence) -> Self {
        match absence {
            Absence::Leaf(leaf) => Some(leaf),
            Absence::Bucket(_) => None,
        }
    }
}

impl From<BucketVersion> for Absence {
    #[inline(always)]
    fn from(bucket: BucketVersion) -> Self {
        Self::Bucket(bucket)
    }
}

impl From<NodeVersion> for Absence {
    #[inline(always)]
    fn from(leaf: NodeVersion) -> Self {
        Self::Leaf(leaf)
    }
}

/// What a placement expects to find.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected {
    /// Usually a row, which may be overwritten.
    Anything,
    /// No row. An existing row may not be overwritten.
    Nothing,
    /// No row: the transaction has missed it, and has this guard. Since this turn the guard's
    /// counter cannot have wrapped unnoticed.
    Missed(Absence, Turn),
}

/// How a transaction's own insertion changed the guards of absent keys.
#[derive(Debug)]
pub(crate) enum Shift {
    Bucket(GuardChange<BucketVersion>),
    Leaf(GuardChange<NodeVersion>),
}

impl From<GuardChange<BucketVersion>> for Shift {
    #[inline(always)]
    fn from(change: GuardChange<BucketVersion>) -> Self {
        Self::Bucket(change)
    }
}

impl From<GuardChange<NodeVersion>> for Shift {
    #[inline(always)]
    fn from(change: GuardChange<NodeVersion>) -> Self {
        Self::Leaf(change)
    }
}

/// The primary storage of a table. Clones are the same storage.
#[derive(Clone, Debug)]
pub(crate) enum Storage<E: Engine> {
    HashOfWords(HashTable<E, Inline>),
    HashOfBytes(HashTable<E, Bytes>),
    TreeOfWords(Tree<E, Inline>),
    TreeOfBytes(Tree<E, Bytes>),
}

/// Runs an operation on a table of any kind, with a key of the matching kind.
macro_rules! dispatch {
    ($reach:ty, $storage:expr, $key:expr, |$table:ident, $name:ident| $body:expr) => {
        match ($storage, $key) {
            (Storage::HashOfWords($table), KeyRef::Word($name)) if <$reach>::HASHED => $body,
            (Storage::HashOfBytes($table), KeyRef::Bytes($name)) if <$reach>::HASHED => $body,
            (Storage::TreeOfWords($table), KeyRef::Word($name)) if <$reach>::SORTED => $body,
            (Storage::TreeOfBytes($table), KeyRef::Bytes($name)) if <$reach>::SORTED => $body,
            // The type of keys determines both kinds, and is checked when the table is opened.
            _ => unreachable!("a key of another kind than its table's"),
        }
    };
}

impl<E: Engine> Storage<E> {
    pub(crate) fn create(
        store: &Store<E>,
        is_ordered: bool,
        fits: bool,
        rows: u64,
        for_peers: bool,
    ) -> Result<Self, KvError> {
        let config = HashConfig::for_keys(rows);
        let config = if for_peers { config.for_peers() } else { config };
        Ok(match (is_ordered, fits) {
            (false, true) => Self::HashOfWords(store.hash_table(config)?),
            (false, false) => Self::HashOfBytes(store.hash_table_of(config)?),
            (true, true) => Self::TreeOfWords(store.tree()?),
            (true, false) => Self::TreeOfBytes(store.tree_of()?),
        })
    }

    /// Returns the same storage, whose operations do not wait for locked records.
    pub(crate) fn impatient(&self) -> Self {
        match self {
            Self::HashOfWords(table) => Self::HashOfWords(table.impatient()),
            Self::HashOfBytes(table) => Self::HashOfBytes(table.impatient()),
            Self::TreeOfWords(table) => Self::TreeOfWords(table.impatient()),
            Self::TreeOfBytes(table) => Self::TreeOfBytes(table.impatient()),
        }
    }

    /// Returns where the table is, if peers can look up rows in it by verbs: a hash table.
    pub(crate) fn place_for_peers(&self) -> Option<Offset> {
        match self {
            Self::HashOfWords(table) => Some(table.location()),
            Self::HashOfBytes(table) => Some(table.location()),
            Self::TreeOfWords(_) | Self::TreeOfBytes(_) => None,
        }
    }

    /// Scans the records of a range in one direction, locked or not, until `visit` breaks off. It
    /// adds the leaves that it has passed to `passed`. A hash table has no ranges.
    pub(crate) fn scan(
        &self,
        (low, high, way): (Bound<KeyRef<'_>>, Bound<KeyRef<'_>>, Way),
        passed: &mut Vec<NodeVersion>,
        mut visit: impl FnMut(KeyRef<'_>, ReadEntry, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), KvError> {
        let (mut view, mut value) = (Current, Vec::new());
        match self {
            Self::TreeOfWords(tree) => {
                let word = |key| if let KeyRef::Word(word) = key { word } else { 0 };
                let range = (low.map(word), high.map(word));
                let mut cursor = if way == Way::Up { Cursor::up(range) } else { Cursor::down(range) };
                let each = |word, seen, value: &mut Vec<u8>| visit(KeyRef::Word(word), seen, value);
                tree.advance_each(&mut cursor, &mut view, passed, &mut value, each)
            }
            Self::TreeOfBytes(tree) => {
                fn bytes(key: KeyRef<'_>) -> &[u8] {
                    if let KeyRef::Bytes(bytes) = key { bytes } else { &[] }
                }
                let range = (low.map(bytes), high.map(bytes));
                let mut cursor = if way == Way::Up { Cursor::up(range) } else { Cursor::down(range) };
                let each = |bytes: &[u8], seen, value: &mut Vec<u8>| visit(KeyRef::Bytes(bytes), seen, value);
                tree.advance_each(&mut cursor, &mut view, passed, &mut value, each)
            }
            Self::HashOfWords(_) | Self::HashOfBytes(_) => Ok(()),
        }
    }

    /// Returns whether the table is ordered.
    pub(crate) fn is_ordered(&self) -> bool {
        matches!(self, Self::TreeOfWords(_) | Self::TreeOfBytes(_))
    }

    /// Returns whether a key is of the table's kind.
    pub(crate) fn takes(&self, key: KeyRef<'_>) -> bool {
        match self {
            Self::HashOfWords(_) | Self::TreeOfWords(_) => matches!(key, KeyRef::Word(_)),
            Self::HashOfBytes(_) | Self::TreeOfBytes(_) => matches!(key, KeyRef::Bytes(_)),
        }
    }

    /// Returns whether [`create`](Self::create) makes such a table.
    pub(crate) fn is_as(&self, is_ordered: bool, fits: bool) -> bool {
        matches!(
            (self, is_ordered, fits),
            (Self::HashOfWords(_), false, true)
                | (Self::HashOfBytes(_), false, false)
                | (Self::TreeOfWords(_), true, true)
                | (Self::TreeOfBytes(_), true, false)
        )
    }

    /// Reads the row of a key with this visibility.
    #[inline(always)]
    pub(crate) fn read<O: Reach, V: Visibility>(
        &self,
        key: KeyRef<'_>,
        view: V,
        into: &mut impl ValueSink,
    ) -> Result<Result<V::Found, Absence>, KvError> {
        dispatch!(O, self, key, |table, key| Ok(table.read(key, view, into)?.map_err(Absence::from)))
    }

    /// Reads the row of a key in a snapshot. While one is open no memory is reused so often that
    /// its name repeats, but a bucket's version may wrap within one lookup.
    #[inline(always)]
    pub(crate) fn read_past<O: Reach>(
        &self,
        key: KeyRef<'_>,
        view: AsOf,
        into: &mut impl ValueSink,
    ) -> Result<Past, KvError> {
        dispatch!(O, self, key, |table, key| loop {
            let turn = table.turn();
            let past = table.read(key, view, into)?.unwrap_or(Past::Absent);
            if table.is_within(turn) {
                return Ok(past);
            }
        })
    }

    /// Reads a row from a record that was located before, if the record still belongs to the row.
    #[inline(always)]
    pub(crate) fn read_at<O: Reach, V: Visibility>(
        &self,
        at: Handle,
        word: u64,
        view: V,
        into: &mut impl ValueSink,
    ) -> Option<V::Found> {
        match self {
            Self::HashOfWords(table) if O::HASHED => table.read_at(at, word, view, into),
            _ => None,
        }
    }

    /// Finds a key's record, or creates one.
    #[inline(always)]
    pub(crate) fn place<O: Reach>(
        &self,
        worker: &mut Worker<E>,
        key: KeyRef<'_>,
        value: &[u8],
        expected: &Expected,
        mut note: impl FnMut(Shift),
    ) -> Result<Placed, KvError> {
        dispatch!(O, self, key, |table, key| {
            let view = ForHolder(worker.holder());
            let missed = match *expected {
                Expected::Anything => {
                    let since = table.turn();
                    match table.try_read(key, &view, &mut NoValue) {
                        Some(Ok(found)) => return Ok(Placed::Found(found)),
                        missed => missed.and_then(Result::err).map(|missed| (missed, since)),
                    }
                }
                Expected::Missed(absence, since) => Option::from(absence).map(|missed| (missed, since)),
                Expected::Nothing => None,
            };
            table.place::<ForHolder>(worker, key, value, missed, |change| note(change.into()))
        })
    }

    /// Creates records for the first of several ascending keys, as many as can be inserted
    /// together. Returns how many.
    #[inline(always)]
    pub(crate) fn place_run<'v>(
        &self,
        worker: &mut Worker<E>,
        rows: impl Iterator<Item = (u64, &'v [u8])>,
        made: impl FnMut(ReadEntry),
        note: impl FnOnce(Shift),
    ) -> Result<usize, KvError> {
        match self {
            Self::TreeOfWords(tree) => tree.place_run(worker, rows, made, |change| note(change.into())),
            _ => Ok(0),
        }
    }

    /// Returns whether this record, which is locked, is the key's.
    #[cold]
    pub(crate) fn leads_to(&self, key: KeyRef<'_>, at: Handle) -> Result<bool, KvError> {
        dispatch!(Any, self, key, |table, key| table.leads_to(key, at))
    }

    pub(crate) fn reserve(
        &self,
        worker: &mut Worker<E>,
        key: KeyRef<'_>,
        at: Handle,
        length: usize,
    ) -> Result<Option<Reserved>, KvError> {
        dispatch!(Any, self, key, |table, _key| table.reserve(worker, at, length))
    }

    /// Writes a value of another length to a locked record, in place or in the reserved memory.
    /// Returns where the record then is.
    #[inline(never)]
    pub(crate) fn write(
        &self,
        worker: &mut Worker<E>,
        key: KeyRef<'_>,
        at: Handle,
        to: Option<Reserved>,
        version: Version,
        value: &[u8],
    ) -> Result<Handle, KvError> {
        dispatch!(Any, self, key, |table, key| match to {
            None => table.write_held(at, version, value).map(|()| at),
            Some(to) => table.move_held(worker, key, at, to, version, value),
        })
    }

    pub(crate) fn reap(
        &self,
        worker: &mut Worker<E>,
        key: KeyRef<'_>,
        seen: ReadEntry,
        going: impl FnOnce(),
    ) -> Result<Reaped, KvError> {
        dispatch!(Any, self, key, |table, key| table.reap(worker, key, seen, going))
    }

    /// Moves a row's record out of a span that is being emptied.
    pub(crate) fn relocate(&self, worker: &mut Worker<E>, key: KeyRef<'_>) -> Result<Relocated, KvError> {
        dispatch!(Any, self, key, |table, key| table.relocate(worker, key))
    }

    /// Removes all rows, whose versions are up to `last`. Nothing else uses the table, no row has
    /// older versions.
    pub(crate) fn empty(&self, worker: &mut Worker<E>, last: Version) -> Result<(), KvError> {
        let emptied = match self {
            Self::HashOfWords(table) => table.empty(worker, last),
            Self::HashOfBytes(table) => table.empty(worker, last),
            Self::TreeOfWords(tree) => tree.empty(worker, last),
            Self::TreeOfBytes(tree) => tree.empty(worker, last),
        };
        emptied.map(drop)
    }

    /// Frees the memory of the hints of an unused table.
    pub(crate) fn forget_hints(&self) {
        match self {
            Self::HashOfWords(_) | Self::HashOfBytes(_) => {}
            Self::TreeOfWords(table) => table.forget_hints(),
            Self::TreeOfBytes(table) => table.forget_hints(),
        }
    }

    /// Returns the number of records, including those of absent rows.
    pub(crate) fn records(&self) -> Result<u64, KvError> {
        match self {
            Self::HashOfWords(table) => table.count(),
            Self::HashOfBytes(table) => table.count(),
            Self::TreeOfWords(table) => table.count(),
            Self::TreeOfBytes(table) => table.count(),
        }
    }
}
