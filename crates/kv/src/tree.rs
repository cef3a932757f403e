//! The B+ tree: an ordered table, with optimistic readers and locks on the nodes that change.
//!
//! # Finding a key
//!
//! From the root, which never moves, down to a leaf. Each node has a *stamp*, which changes
//! whenever the node does: a reader loads it before and after it reads the node, and takes no
//! locks. It looks at the stamp of a parent once more when it has the child's: a node that is
//! divided or leaves the tree changes its parent, so a reader that comes by a stale way learns of
//! it there, and begins again (see `search`). What was read from one leaf was there at one moment,
//! and that is all that a reader needs.
//!
//! Each node also says which keys belong in it, and where the next node on its level is. That is
//! for scans, which go on to the right without another way down.
//!
//! Of a key that was found before, a *hint* is kept, which leads to its leaf and its record at once
//! (see `hints`).
//!
//! Byte strings are sequences of words, and their tree has a layer for each word of a prefix that
//! several have in common: see `layers`.
//!
//! # Changing a leaf
//!
//! Under the leaf's lock, which is in its stamp and is taken by exchanging the stamp that was seen
//! for a locked one: it can only be had while the leaf is what it was. A value is updated in its
//! record without touching the leaf; one that needs another size of memory moves, and the leaf's
//! link with it, but the leaf keeps its stamp. So a stamp says which keys there are, and no more.
//!
//! # Changing the tree
//!
//! A node that is full is divided (see `split`), one that is empty leaves (see `reclaim`). All the
//! nodes that this concerns are locked as they were seen, or none: nobody waits for one node while
//! holding another, so there is no order of locks that matters, and none to get wrong. Under all
//! locks, links and fences fit each other; between two looks of a reader they need not.
//!
//! Nodes that leave are used again at once, as nodes of the same tree. Stamps go on over all uses
//! of a node's memory, so a reader that still has its place notices; nobody waits for readers to
//! leave.

/// Tries again, as often as it takes for something to come of it. A macro, since a closure would
/// not become one with a search.
macro_rules! until {
    ($attempt:expr) => {{
        let waiter = drtm_htm::Waiter::new();
        loop {
            if let Some(done) = $attempt {
                break done;
            }
            waiter.pause();
        }
    }};
}

mod change;
mod held;
mod hints;
mod insert_point;
mod keys;
mod kind;
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
pub use peer::TreePeer;
pub use rows::Passed;
pub use scan::{Row, Scan};

use std::{marker::PhantomData, sync::Arc};

use drtm_htm::{Access, Engine};
use drtm_rdma::{Offset, Region};
use smallvec::SmallVec;

use crate::{
    GuardChange, KvError, PhantomGuard, Store, Worker,
    base::Base,
    beside::Holds,
    keys::{Inline, Keys},
    layout::{NODE_WORDS, Stamp},
};
use hints::Hints;
use node::Seen;
use pool::Pool;

/// Words of a tree's header in its region, besides those of [every table](crate::base).
///
/// ```text
/// word 8   a line for each shard of the number of keys
/// then, from a line's boundary, the root
/// ```
mod header {
    use drtm_htm::LINE_WORDS;

    use crate::{
        base::{COUNTER_WORDS, Header},
        layout::NODE_WORDS,
    };

    pub(super) const ROOT: usize = LINE_WORDS + COUNTER_WORDS;
    pub(super) const HEADER: Header = Header { words: ROOT + NODE_WORDS, align: 64, counter: LINE_WORDS };

    /// The first word, with the size of nodes, but for the code of the keys in its last byte.
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
    /// The guard of a leaf at a place, as its fields are sent in a message. One that was made up
    /// holds for no leaf, or for one that has that version.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_kv::NodeVersion;
    ///
    /// let guard = NodeVersion::from_words(4096, 7);
    /// assert_eq!((guard.at.bytes(), guard.version), (4096, 7));
    /// ```
    #[must_use]
    pub const fn from_words(at: u64, version: u64) -> Self {
        Self { at: Offset::new(at), version }
    }

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
        // A place outside the region is no leaf of it. And what is being changed, nobody can have
        // seen yet.
        let Ok(words) = region.array::<NODE_WORDS>(self.at) else { return Ok(false) };
        Ok(Stamp(tx.load(&words[0])?).unlocked().0 == self.version)
    }
}

/// An ordered table over registered memory: a B+ tree. Clones are the same tree.
///
/// Its operations are those of every [table](crate::KvTable), and scans.
///
/// Keys are integers, or with [`Bytes`](crate::Bytes) byte strings of up to
/// [`MAX_KEY`](crate::MAX_KEY) bytes. Values are byte strings of up to
/// [`MAX_VALUE`](crate::MAX_VALUE) bytes. Operations on a key are linearizable; what a [`Scan`]
/// sees is said there.
///
/// Of a tree with more than a thousand keys, each process that uses it keeps in memory of its own
/// where keys were found: 17 to 34 bytes for each key that there is, or was when there were most.
/// Handles that were [opened](Store::open_tree) each have their own; clones of one share it.
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

/// Something of a node on each level, or layer, of a way through the tree. Of trees of any usual
/// height, without an allocation.
type PerLevel<T> = SmallVec<[T; 8]>;

#[derive(Debug)]
pub struct Table<E: Engine> {
    base: Base<E>,
    /// The root's place, in words.
    root: u64,
    pool: Pool,
    hints: Arc<Hints>,
}

impl<E: Engine> Store<E> {
    /// A new ordered table with keys of eight bytes.
    ///
    /// # Errors
    ///
    /// When memory cannot be had.
    pub fn tree(&self) -> Result<Tree<E>, KvError> {
        self.tree_of()
    }

    /// A new ordered table whose records are [read by peers](crate::RecordPeer): each needs eight
    /// bytes more, and a checksum when it is written.
    ///
    /// # Errors
    ///
    /// When memory cannot be had.
    pub fn tree_for_peers(&self) -> Result<Tree<E>, KvError> {
        Tree::create(self, true)
    }

    /// A new ordered table with keys of this kind.
    ///
    /// # Errors
    ///
    /// When memory cannot be had.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Bytes, KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree_of::<Bytes>()?, store.worker()?);
    /// tree.insert(&mut worker, b"user:alice", b"1")?;
    /// assert!(tree.contains(b"user:alice")?);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    pub fn tree_of<K: TreeKeys>(&self) -> Result<Tree<E, K>, KvError> {
        Tree::create(self, false)
    }

    /// An ordered table that was [made](Self::tree_of) in this memory, by this handle or another.
    ///
    /// # Errors
    ///
    /// When there is none at that place, or one of another kind.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Inline, KvError, KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let made = store.tree()?;
    /// made.insert(&mut store.worker()?, 1, b"one")?;
    /// let opened = store.open_tree::<Inline>(made.location())?;
    /// assert!(opened.contains(1)?);
    /// let refused = store.open_hash_table::<Inline>(made.location());
    /// assert!(matches!(refused, Err(KvError::NotThisTable { .. })));
    /// # Ok::<(), KvError>(())
    /// ```
    pub fn open_tree<K: TreeKeys>(&self, at: Offset) -> Result<Tree<E, K>, KvError> {
        Base::open(self, at, header::HEADER, kind::<K>()).map(Tree::over)
    }
}

impl<E: Engine, K: TreeKeys> Tree<E, K> {
    fn create(store: &Store<E>, for_peers: bool) -> Result<Self, KvError> {
        let tree = Self::over(Base::create(store, header::HEADER, for_peers)?);
        let root = tree.table.root()?;
        root.set_end(u64::MAX, 0);
        root.publish(Stamp::new(0, 0));
        tree.table.base.publish(kind::<K>())?;
        Ok(tree)
    }

    fn over(base: Base<E>) -> Self {
        let hints = Hints::new(base.region.capacity(), base.store.memory_beside(), base.store.hints_at_once());
        Self { table: Arc::new(Table::new(base, hints)), keys: PhantomData }
    }

    /// Gives the memory of hints back: the tree is not going to be used for a while.
    pub fn forget_hints(&self) {
        self.table.hints.give_all_back();
    }

    /// Spoils the tree's [hints](Store::hinting_at_once) at random: they must not matter.
    #[doc(hidden)]
    pub fn scribble_hints(&self, seed: u64) {
        self.table.hints.scribble(seed);
    }

    /// Fills the tree, which must be empty, with rows in the ascending order of their keys. Gives
    /// how many there were.
    ///
    /// Much faster than inserting. Nodes are filled to nine tenths. The rows are seen by others all
    /// at once, in the end.
    ///
    /// # Errors
    ///
    /// [`KvError::NotAscending`]; [`KvError::NotEmpty`], also when others have used the tree
    /// meanwhile; or as for [`insert`](crate::KvTable::insert). The tree is as it was then.
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
    fn new(base: Base<E>, hints: Arc<Hints>) -> Self {
        let root = base.at.word() + header::ROOT as u64;
        Self { base, root, pool: Pool::default(), hints }
    }

    #[inline(always)]
    fn region(&self) -> &Region<E> {
        &self.base.region
    }

    #[inline(always)]
    fn engine(&self) -> &E {
        self.base.engine()
    }
}
