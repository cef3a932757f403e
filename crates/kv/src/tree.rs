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
mod walk;

pub use held::Cursor;
pub use kind::{AsKey, TreeKeys};
pub(crate) use lasts::Lasts;
pub use peer::TreePeer;
pub use scan::{Row, Scan};

use std::{marker::PhantomData, ops::RangeBounds, sync::Arc};

use drtm_htm::{Access, Engine, Word};
use drtm_rdma::{Offset, Region};
use smallvec::SmallVec;

use crate::{
    GuardChange, KvError, PhantomGuard, Read, Store, Worker, checksum, counter, floor,
    keys::{Inline, Keys},
    layout::{NODE_WORDS, Stamp},
    patience::Patience,
};
use hints::Hints;
use leaves::Direction;
pub use leaves::Passed;
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
/// See [`Scan`].
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

/// What a change has done to a leaf.
type LeafChange = GuardChange<NodeVersion>;

impl PhantomGuard for NodeVersion {
    #[inline(always)]
    fn place(&self) -> Offset {
        self.at
    }

    #[inline]
    fn holds_in<'m, E: Engine, A: Access<'m>>(&self, tx: &mut A, region: &'m Region<E>) -> Result<bool, A::Abort> {
        // A place outside the region is no leaf of it. And what is being changed, nobody can have seen yet.
        let Ok(words) = region.array::<NODE_WORDS>(self.at) else { return Ok(false) };
        Ok(Stamp(tx.load(&words[0])?).unlocked().0 == self.version)
    }
}

/// An ordered table over registered memory: a B+ tree. Clones are the same tree.
///
/// Its operations are those of every [table](crate::KvTable), and scans.
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
/// use drtm_kv::{KvTable, Store};
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
/// use drtm_kv::{Bytes, KvTable, Store};
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

    /// Spoils the tree's [hints](Store::hinting_at_once) at random: they must not matter.
    #[doc(hidden)]
    pub fn scribble_hints(&self, seed: u64) {
        self.table.hints.scribble(seed);
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
    /// use drtm_kv::{KvTable, Store};
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
    /// [`insert`](crate::KvTable::insert). The tree is as it was then.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{KvError, KvTable, Store};
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
