//! The B+ tree: an ordered table, with optimistic readers and locks on the nodes that change.
//!
//! # Finding a key
//!
//! From the root, which never moves, down to a leaf. Each node has a *stamp*, which changes whenever the node does: a reader loads it before and after
//! it reads the node, and takes no locks. It looks at the stamp of a parent once more when it has the child's: a node that is divided or leaves the tree
//! changes its parent, so a reader that comes by a stale way learns of it there, and begins again (see `search`). What was read from one
//! leaf was there at one moment, and that is all that a reader needs.
//!
//! Each node also says which keys belong in it, and where the next node on its level is. That is for scans, which go on to the right without another way
//! down.
//!
//! Of a key that was found before, a *hint* is kept, which leads to its leaf and its record at once (see `hints`).
//!
//! Byte strings are sequences of words, and their tree has a layer for each word of a prefix that several have in common: see `layers`.
//!
//! # Changing a leaf
//!
//! Under the leaf's lock, which is in its stamp and is taken by exchanging the stamp that was seen for a locked one: it can only be had while the leaf is
//! what it was. A value is updated in its record without touching the leaf; one that needs another size of memory moves, and the leaf's
//! link with it, but the leaf keeps its stamp. So a stamp says which keys there are, and no more.
//!
//! # Changing the tree
//!
//! A node that is full is divided (see `split`), one that is empty leaves (see `reclaim`). All the nodes that this concerns are locked as they
//! were seen, or none: nobody waits for one node while holding another, so there is no order of locks that matters, and none to
//! get wrong. Under all locks, links and fences fit each other; between two looks of a reader they need not.
//!
//! Nodes that leave are used again at once, as nodes of the same tree. Stamps go on over all uses of a node's memory, so a reader that
//! still has its place notices; nobody waits for readers to leave.

mod change;
mod held;
mod hints;
mod kind;
mod lasts;
mod layers;
mod leaves;
mod load;
mod node;
mod noting;
mod peer;
mod pool;
mod prune;
mod reclaim;
mod rows;
mod run;
mod scan;
mod search;
mod slices;
mod split;
mod view;
mod walk;

pub use held::Cursor;
pub use kind::{AsKey, TreeKeys};
pub(crate) use lasts::Lasts;
pub use noting::LeafChange;
pub use peer::TreePeer;
pub use scan::{Row, Scan};

use std::{marker::PhantomData, ops::RangeBounds, sync::Arc};

use drtm_htm::{Access, Engine, Word};
use drtm_rdma::{Offset, OutOfBounds, Region};
use smallvec::SmallVec;

use crate::{
    KvError, Read, Store, Version, Witness, Worker, checksum, counter, floor,
    keys::{Inline, Keys},
    layout::{NODE_WORDS, Stamp},
    patience::Patience,
    put::update_or_insert,
    record::{Look, Record, Shape},
    room::{Buffer, Memory},
};
use hints::Hints;
use leaves::Direction;
use node::Seen;
use pool::Pool;

/// Words of a tree's header in its region.
///
/// ```text
/// word 0   kind of table, size of its nodes, and kind of keys
///      1   floor of versions
///      2.. zero, but for the word 5: 1 where records have checksums
/// then, from a line's boundary, a line for each shard of the number of keys
/// then, from a line's boundary, the root
/// ```
mod header {
    use drtm_htm::LINE_WORDS;

    use crate::{checksum, counter, layout::NODE_WORDS};

    pub(super) const KIND: usize = 0;
    pub(super) const FLOOR: usize = 1;
    pub(super) const FLAGS: usize = checksum::FLAGS;
    pub(super) const KEYS: usize = LINE_WORDS;
    pub(super) const ROOT: usize = KEYS + counter::WORDS;
    pub(super) const WORDS: usize = ROOT + NODE_WORDS;

    /// The first word, but for the code of the keys in its last byte.
    pub(super) const TREE: u64 = u64::from_be_bytes(*b"drtmt1\0\0") | (NODE_WORDS as u64) << 8;

    const _: () = assert!(NODE_WORDS < 256);
}

/// The first word of the header of a tree with these keys.
pub(crate) const fn kind<K: Keys>() -> u64 {
    header::TREE | K::CODE
}

/// A leaf of a tree as a reader has seen it.
///
/// # Example
///
/// See [`Scan`] and [`Tree::lookup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct NodeVersion {
    /// Where the leaf is in its region.
    pub at: Offset,
    /// Its version. No two contents of the leaf's memory have the same.
    pub version: u64,
}

impl NodeVersion {
    fn new(place: u64, stamp: Stamp) -> Self {
        Self { at: Offset::new(8 * place), version: stamp.0 }
    }

    fn of<E: Engine>(leaf: &Seen<'_, E>) -> Self {
        Self::new(leaf.node.place, leaf.stamp)
    }
}

impl Witness for NodeVersion {
    #[inline]
    fn holds_in<'m, E: Engine, A: Access<'m>>(&self, tx: &mut A, region: &'m Region<E>) -> Result<bool, A::Abort> {
        // A place outside the region is no leaf of it. And what is being changed, nobody can have seen yet.
        let Ok(words) = region.array::<NODE_WORDS>(self.at) else { return Ok(false) };
        Ok(Stamp(tx.load(&words[0])?).unlocked().0 == self.version)
    }
}

/// What [`Tree::lookup`] has found.
///
/// # Example
///
/// See [`Tree::lookup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The key's value.
    Found(Read),
    /// No such key, as long as this leaf is [unchanged](Tree::unchanged).
    Absent(NodeVersion),
}

/// What [`Tree::get_or_insert`] has found, or done.
///
/// # Example
///
/// See [`Tree::get_or_insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// The key was there: this is its value.
    Found(Read),
    /// It was not, and was inserted with this version.
    Inserted(Version),
}

/// An ordered table over registered memory: a B+ tree. Clones are the same tree.
///
/// Keys are integers, or with [`Bytes`](crate::Bytes) byte strings of up to [`MAX_KEY`](crate::MAX_KEY) bytes. Values are byte strings of up to [`MAX_VALUE`](crate::MAX_VALUE) bytes. Operations on a key are linearizable;
/// what a [`Scan`] sees is said there.
///
/// Of a tree with more than a thousand keys, each process that uses it keeps in memory of its own where keys were found: 17 to 34 bytes for each key that there is, or was when there were most. Handles
/// that were [opened](Store::open_tree) each have their own; clones of one share it.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::Store;
///
/// let store = Store::in_memory(NoHtm, 64 << 20)?;
/// let tree = store.tree()?;
/// let mut worker = store.worker()?;
/// for key in (0..1_000).rev() {
///     assert!(tree.insert(&mut worker, key, &key.to_le_bytes())?.is_some());
/// }
/// assert!(tree.insert(&mut worker, 3, b"again")?.is_none(), "it is there");
/// assert!(tree.update(&mut worker, 3, b"changed")?.is_some());
/// assert!(tree.remove(&mut worker, 4)?.is_some());
/// assert_eq!((tree.contains(3)?, tree.contains(4)?, tree.count()?), (true, false, 999));
///
/// let mut scan = tree.range_back(..=5);
/// assert_eq!(scan.next()?.map(|row| row.key), Some(5));
/// assert_eq!(scan.next()?.map(|row| row.key), Some(3));
/// # Ok::<(), drtm_kv::KvError>(())
/// ```
///
/// With byte strings:
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{Bytes, Store};
///
/// let store = Store::in_memory(NoHtm, 64 << 20)?;
/// let tree = store.tree_of::<Bytes>()?;
/// let mut worker = store.worker()?;
/// for key in ["user:bob", "user:alice", "group:staff", "user:"] {
///     tree.insert(&mut worker, key.as_bytes(), b"")?;
/// }
/// let mut users = Vec::new();
/// let mut scan = tree.range(&b"user:"[..]..&b"user;"[..]);
/// while let Some(row) = scan.next()? {
///     users.push(row.key.to_vec());
/// }
/// assert_eq!(users, [&b"user:"[..], b"user:alice", b"user:bob"]);
/// # Ok::<(), drtm_kv::KvError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tree<E: Engine, K: Keys = Inline> {
    table: Arc<Table<E>>,
    keys: PhantomData<K>,
}

/// Something of a node on each level, or layer, of a way through the tree. Of trees of any usual height, without an allocation.
type PerLevel<T> = SmallVec<[T; 8]>;

#[derive(Debug)]
pub struct Table<E: Engine> {
    store: Store<E>,
    /// The store's, a step closer.
    region: Arc<Region<E>>,
    at: Offset,
    /// The root's place, in words.
    root: u64,
    pool: Pool,
    /// Whether records have checksums.
    checked: bool,
    patience: Patience,
    hints: Arc<Hints>,
}

impl<E: Engine, K: TreeKeys> Tree<E, K> {
    pub(crate) fn create(store: &Store<E>, for_peers: bool) -> Result<Self, KvError> {
        let region = store.region();
        let at = region.extend(8 * header::WORDS as u64, 64)?;
        let (words, engine) = (region.words(at, header::WORDS)?, region.engine());
        engine.store(&words[header::FLOOR], floor::LOWEST);
        engine.store(&words[header::FLAGS], checksum::to_flags(for_peers));
        let tree = Self::new(store, at, for_peers);
        let root = tree.table.root()?;
        root.set_high(u64::MAX);
        root.publish(Stamp::new(0, 0));
        // Last: with it, this is a tree.
        engine.store(&words[header::KIND], kind::<K>());
        Ok(tree)
    }

    pub(crate) fn open(store: &Store<E>, at: Offset) -> Result<Self, KvError> {
        let words = store.region().words(at, header::WORDS)?;
        let engine = store.region().engine();
        let (expected, found) = (kind::<K>(), engine.load(&words[header::KIND]));
        if found != expected {
            return Err(KvError::NotThisTable { at, expected, found });
        }
        Ok(Self::new(store, at, checksum::are_checked(engine.load(&words[header::FLAGS]))))
    }

    fn new(store: &Store<E>, at: Offset, checked: bool) -> Self {
        let hints = Hints::new(store.region().capacity(), store.hints_at_once());
        Self::waiting(store, at, checked, Patience::Endless, Arc::new(hints))
    }

    fn waiting(store: &Store<E>, at: Offset, checked: bool, patience: Patience, hints: Arc<Hints>) -> Self {
        let root = at.word() + header::ROOT as u64;
        let region = store.region().clone();
        let table = Table { store: store.clone(), region, at, root, pool: Pool::default(), checked, patience, hints };
        Self { table: Arc::new(table), keys: PhantomData }
    }

    /// A handle whose operations do not wait for a record that somebody else has locked or is writing, as
    /// [of a hash table](crate::HashTable::impatient).
    #[must_use]
    pub fn impatient(&self) -> Self {
        let Table { store, at, checked, hints, .. } = &*self.table;
        Self::waiting(store, *at, *checked, Patience::Short, Arc::clone(hints))
    }

    pub(crate) fn store(&self) -> &Store<E> {
        &self.table.store
    }

    /// Looks at a key's record, if there is one, until `look` has found what it looks for. In another key's record it must find nothing.
    pub(crate) fn with_record<T>(
        &self,
        key: K::Key<'_>,
        look: impl FnMut(&Record<'_, E>) -> Result<Look<T>, OutOfBounds>,
    ) -> Result<Option<T>, KvError> {
        Ok(self.table.search::<K, _>(key, look)?.ok())
    }

    /// Spoils the tree's [hints](Store::hinting_at_once) at random: they must not matter.
    #[doc(hidden)]
    pub fn scribble_hints(&self, seed: u64) {
        self.table.hints.scribble(seed);
    }

    /// Where the tree is in its region, for [opening](Store::open_tree) it again.
    #[must_use]
    pub fn location(&self) -> Offset {
        self.table.at
    }

    /// Keys in the tree: exactly, if nobody is inserting or removing.
    ///
    /// # Errors
    ///
    /// [`KvError::Corrupt`] when the tree's header cannot be reached.
    pub fn count(&self) -> Result<u64, KvError> {
        Ok(counter::sum(self.table.engine(), self.table.counter()?))
    }

    /// Copies a key's value to `into`, as far as there is room. Quickest where it fills that.
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    #[inline]
    pub fn get<B: Memory + ?Sized>(&self, key: K::Key<'_>, into: &mut B) -> Result<Option<Read>, KvError> {
        Ok(match self.lookup(key, into)? {
            Lookup::Found(read) => Some(read),
            Lookup::Absent(_) => None,
        })
    }

    /// [Gets](Self::get) a key's value; if there is no such key, gives the leaf that would have it, as it was.
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Lookup, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let tree = store.tree()?;
    /// let Lookup::Absent(leaf) = tree.lookup(7, &mut [])? else { panic!("the tree is empty") };
    /// assert!(tree.unchanged(&leaf), "7 is still not there");
    /// tree.insert(&mut store.worker()?, 7, b"seven")?;
    /// assert!(!tree.unchanged(&leaf));
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[inline]
    pub fn lookup<B: Memory + ?Sized>(&self, key: K::Key<'_>, into: &mut B) -> Result<Lookup, KvError> {
        let mut buffer = Buffer::new(into);
        Ok(match self.table.search::<K, _>(key, |record| record.read::<K::Kept>(key, &mut buffer))? {
            Ok(version) => Lookup::Found(buffer.read(version)),
            Err(spot) => Lookup::Absent(NodeVersion::of(&spot.leaf)),
        })
    }

    /// Whether a leaf has the same keys as when it was seen, and the same keys belong to it. Updates of values do not change it.
    /// To tell one's own changes from those of others, see [`LeafChange`].
    ///
    /// A change that is being made, and that nobody can have seen yet, does not count.
    #[must_use]
    #[inline]
    pub fn unchanged(&self, leaf: &NodeVersion) -> bool {
        leaf.holds(self.table.region())
    }

    /// Whether there is such a key.
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    pub fn contains(&self, key: K::Key<'_>) -> Result<bool, KvError> {
        Ok(self.version(key)?.is_some())
    }

    /// The version of a key's value.
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    pub fn version(&self, key: K::Key<'_>) -> Result<Option<Version>, KvError> {
        Ok(self.table.search::<K, _>(key, |record| record.check::<K::Kept>(key))?.ok())
    }

    /// Inserts a key that is not there yet. Gives the version that its value has, or `None` if the key is there: then
    /// nothing has changed.
    ///
    /// # Errors
    ///
    /// When key or value are too long, or memory has run out. Nothing has changed then.
    pub fn insert(&self, worker: &mut Worker<E>, key: K::Key<'_>, value: &[u8]) -> Result<Option<Version>, KvError> {
        self.insert_noting(worker, key, value, |_| ())
    }

    /// Gives a key that is there another value. Gives the new version, or `None` if there is no such key.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    #[inline]
    pub fn update(&self, worker: &mut Worker<E>, key: K::Key<'_>, value: &[u8]) -> Result<Option<Version>, KvError> {
        let shape = Shape::of::<K::Kept>(key, value.len(), self.table.checked)?;
        let holder = worker.holder();
        match self.table.search::<K, _>(key, |record| record.overwrite::<K::Kept>(key, holder, shape, value))? {
            // There is no room for it where it is.
            Ok(None) => self.table.relocate::<K>(worker, key, shape, value),
            written => Ok(written.ok().flatten()),
        }
    }

    /// Gives a key a value, whether it is there or not. Gives the value's version.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    pub fn put(&self, worker: &mut Worker<E>, key: K::Key<'_>, value: &[u8]) -> Result<Version, KvError> {
        update_or_insert(worker, |worker| self.update(worker, key, value), |worker| self.insert(worker, key, value))
    }

    /// Copies a key's value to `into`, as far as there is room, or inserts the key with `value` if it is not there.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Existing, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// let mut found = [0; 8];
    /// assert!(matches!(tree.get_or_insert(&mut worker, 7, b"first", &mut found)?, Existing::Inserted(_)));
    /// let Existing::Found(read) = tree.get_or_insert(&mut worker, 7, b"second", &mut found)? else { panic!("it is there") };
    /// assert_eq!(&found[..read.length], b"first");
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    pub fn get_or_insert(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        value: &[u8],
        into: &mut [u8],
    ) -> Result<Existing, KvError> {
        self.get_or_insert_noting(worker, key, value, into, |_| ())
    }

    /// Removes a key. Gives the version that was removed, or `None` if there was no such key.
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    pub fn remove(&self, worker: &mut Worker<E>, key: K::Key<'_>) -> Result<Option<Version>, KvError> {
        self.remove_noting(worker, key, |_| ())
    }

    /// The lowest key: an integer, or a vector of bytes. Its value is copied to `into`, as far as there is room.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    pub fn first(&self, into: &mut [u8]) -> Result<Option<(K::Owned, Read)>, KvError> {
        self.range(..).only_into(into)
    }

    /// The highest key, as for [`first`](Self::first). Its value is copied to `into`, as far as there is room.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::Store;
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// assert_eq!(tree.last(&mut [])?, None);
    /// tree.insert(&mut worker, 1, b"a")?;
    /// tree.insert(&mut worker, u64::MAX, b"z")?;
    /// assert_eq!(tree.first(&mut [])?.map(|(key, _)| key), Some(1));
    /// assert_eq!(tree.last(&mut [])?.map(|(key, _)| key), Some(u64::MAX));
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    pub fn last(&self, into: &mut [u8]) -> Result<Option<(K::Owned, Read)>, KvError> {
        self.range_back(..).only_into(into)
    }

    /// The rows of a range, upward. A range whose end is below its start is empty.
    #[must_use]
    pub fn range<'k>(&self, range: impl RangeBounds<K::Key<'k>>) -> Scan<'_, E, K> {
        Scan::new(self, range, Direction::Up)
    }

    /// The rows of a range, downward.
    #[must_use]
    pub fn range_back<'k>(&self, range: impl RangeBounds<K::Key<'k>>) -> Scan<'_, E, K> {
        Scan::new(self, range, Direction::Down)
    }

    /// Fills the tree, which must be empty, with rows in the ascending order of their keys. Gives how many there were.
    ///
    /// Much faster than inserting. Nodes are filled to nine tenths. The rows are seen by others all at once, in the end.
    ///
    /// # Errors
    ///
    /// [`KvError::NotAscending`]; [`KvError::NotEmpty`], also when others have used the tree meanwhile; or as for
    /// [`insert`](Self::insert). The tree is as it was then.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{KvError, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// let refused = tree.load(&mut worker, [(2, "two"), (1, "one")]);
    /// assert!(matches!(refused, Err(KvError::NotAscending { row: 1 })));
    /// assert_eq!(tree.load(&mut worker, (0..1_000).map(|key| (key, "value")))?, 1_000);
    /// assert!(tree.contains(999)?);
    ///
    /// let names = store.tree_of::<drtm_kv::Bytes>()?;
    /// assert_eq!(names.load(&mut worker, [("alice", "1"), ("bob", "2")])?, 2);
    /// # Ok::<(), KvError>(())
    /// ```
    pub fn load<V: AsRef<[u8]>>(
        &self,
        worker: &mut Worker<E>,
        rows: impl IntoIterator<Item = (impl AsKey<K>, V)>,
    ) -> Result<u64, KvError> {
        self.table.load::<K, V>(worker, rows)
    }
}

impl<E: Engine> Table<E> {
    #[inline(always)]
    fn region(&self) -> &Region<E> {
        &self.region
    }

    #[inline(always)]
    fn engine(&self) -> &E {
        self.region().engine()
    }

    #[inline(always)]
    fn header_words(&self) -> Result<&[Word; header::WORDS], KvError> {
        // From a word's number, which needs no look at the offset's lowest bits.
        Ok(self.region().array(Offset::new(8 * self.at.word()))?)
    }

    #[inline(always)]
    fn header(&self, word: usize) -> Result<&Word, KvError> {
        Ok(&self.header_words()?[word])
    }

    #[inline(always)]
    fn counter(&self) -> Result<&[Word], KvError> {
        Ok(&self.header_words()?[header::KEYS..header::ROOT])
    }

    /// Counts a key more or less.
    #[inline(always)]
    fn add(&self, worker: &Worker<E>, change: i64) -> Result<(), KvError> {
        counter::add(self.engine(), self.counter()?, worker.number(), change);
        Ok(())
    }
}
