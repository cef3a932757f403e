//! A store: a region, the memory in it for records, and the workers that use it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use drtm_htm::{Engine, Htm};
use drtm_rdma::{NodeId, Offset, Region};

use crate::{
    HashConfig, HashTable, Inline, KvError, Records, Reserved, Tree, TreeKeys,
    bounds::MODEL,
    heap::{Arena, Class, Heap},
    keys::Keys,
    layout::{Place, State},
    tree::Lasts,
};

/// What tables have in common: their memory and their workers. Clones are the same store.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{HashConfig, Store};
///
/// let store = Store::in_memory(NoHtm, 64 << 20)?;
/// let accounts = store.hash_table(HashConfig::default())?;
/// let mut worker = store.worker();
/// accounts.insert(&mut worker, 1, b"hundred")?;
/// let mut balance = [0; 7];
/// assert!(accounts.get(1, &mut balance)?.is_some());
/// assert_eq!(&balance, b"hundred");
/// # Ok::<(), drtm_kv::KvError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Store<E: Engine> {
    shared: Arc<Shared<E>>,
}

#[derive(Debug)]
struct Shared<E: Engine> {
    region: Arc<Region<E>>,
    htm: Htm<E>,
    heap: Heap,
    workers: AtomicU64,
    node: u8,
    hints_at_once: AtomicBool,
}

impl<E: Engine> Store<E> {
    /// A store in memory of this process, of at most `capacity` bytes.
    ///
    /// # Errors
    ///
    /// When the memory cannot be had.
    pub fn in_memory(engine: E, capacity: u64) -> Result<Self, KvError> {
        Self::in_region(Arc::new(Region::anonymous(engine, capacity)?))
    }

    /// A store in a region, which other handles may use at the same time.
    ///
    /// # Errors
    ///
    /// When the region is larger than places in a table can tell apart.
    pub fn in_region(region: Arc<Region<E>>) -> Result<Self, KvError> {
        Self::in_region_of(NodeId(0), region)
    }

    /// A store in a region that belongs to a node: its workers lock records in that node's name.
    ///
    /// # Errors
    ///
    /// As for [`in_region`](Self::in_region), and when the node's number is more than a lock has room for.
    ///
    /// # Example
    ///
    /// ```
    /// use std::sync::Arc;
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::Store;
    /// use drtm_rdma::{NodeId, Region};
    ///
    /// let region = Arc::new(Region::anonymous(NoHtm, 16 << 20)?);
    /// let store = Store::in_region_of(NodeId(3), region)?;
    /// assert_eq!(store.worker().lock_state().owner(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn in_region_of(node: NodeId, region: Arc<Region<E>>) -> Result<Self, KvError> {
        let node = u8::try_from(node.0).map_err(|_| KvError::Config {
            what: "the number of a node that has a store",
            must_be: "from 0 to 255",
            is: node.0.to_string(),
        })?;
        let most = 8 * (Place::MAX_WORD + 1);
        if region.capacity() > most {
            return Err(KvError::RegionTooLarge { capacity: region.capacity(), most });
        }
        let htm = Htm::new(region.engine().clone());
        let hints_at_once = AtomicBool::new(MODEL);
        let shared = Shared { region, htm, heap: Heap::new(), workers: AtomicU64::new(0), node, hints_at_once };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Whether this is a handle of the same store.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The memory.
    #[must_use]
    pub fn region(&self) -> &Arc<Region<E>> {
        &self.shared.region
    }

    /// Lets trees that are made or opened from now on have hints for their first keys already, so that tests of small trees are tests of hints too.
    #[doc(hidden)]
    #[must_use]
    pub fn hinting_at_once(self) -> Self {
        self.shared.hints_at_once.store(true, Relaxed);
        self
    }

    pub(crate) fn hints_at_once(&self) -> bool {
        self.shared.hints_at_once.load(Relaxed)
    }

    /// What became of the regions that changes were made in, where the engine has such.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::{Emulated, NoHtm};
    /// use drtm_kv::{HashConfig, KvError, Store};
    ///
    /// let store = Store::in_memory(Emulated::default(), 16 << 20)?;
    /// let table = store.hash_table(HashConfig::default())?;
    /// table.insert(&mut store.worker(), 1, b"one")?;
    /// assert_eq!(store.regions().commits, 1);
    ///
    /// let without = Store::in_memory(NoHtm, 16 << 20)?;
    /// without.hash_table(HashConfig::default())?.insert(&mut without.worker(), 1, b"one")?;
    /// assert_eq!(without.regions().attempts(), 0);
    /// # Ok::<(), KvError>(())
    /// ```
    #[must_use]
    pub fn regions(&self) -> drtm_htm::Stats {
        self.shared.htm.stats()
    }

    /// Its records by their handles, for transactions.
    #[must_use]
    #[inline(always)]
    pub fn records(&self) -> Records<'_, E> {
        Records::new(&self.shared.region)
    }

    /// A worker for one thread.
    #[must_use]
    pub fn worker(&self) -> Worker<E> {
        let number = self.shared.workers.fetch_add(1, Relaxed);
        Worker {
            htm: self.shared.htm.worker(),
            arena: Arena::new(),
            number,
            state: State::locked_by(self.shared.node, number as u16, 0),
            lasts: Lasts::default(),
            discarded: Vec::new(),
            store: self.clone(),
        }
    }

    /// A new hash table with keys of eight bytes.
    ///
    /// # Errors
    ///
    /// When the configuration is no table's, or memory cannot be had.
    pub fn hash_table(&self, config: HashConfig) -> Result<HashTable<E, Inline>, KvError> {
        self.hash_table_of(config)
    }

    /// A new hash table with keys of this kind.
    ///
    /// # Errors
    ///
    /// When the configuration is no table's, or memory cannot be had.
    pub fn hash_table_of<K: Keys>(&self, config: HashConfig) -> Result<HashTable<E, K>, KvError> {
        HashTable::create(self, config)
    }

    /// A hash table that was [made](Self::hash_table_of) in this memory, by this handle or another.
    ///
    /// # Errors
    ///
    /// When there is none at that place, or one of another kind.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Bytes, HashConfig, Inline, KvError, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let made = store.hash_table(HashConfig::default())?;
    /// made.insert(&mut store.worker(), 1, b"one")?;
    /// let opened = store.open_hash_table::<Inline>(made.location())?;
    /// assert!(opened.contains(1)?);
    /// assert!(matches!(store.open_hash_table::<Bytes>(made.location()), Err(KvError::NotThisTable { .. })));
    /// # Ok::<(), KvError>(())
    /// ```
    pub fn open_hash_table<K: Keys>(&self, at: Offset) -> Result<HashTable<E, K>, KvError> {
        HashTable::open(self, at)
    }

    /// A new ordered table with keys of eight bytes.
    ///
    /// # Errors
    ///
    /// When memory cannot be had.
    pub fn tree(&self) -> Result<Tree<E>, KvError> {
        self.tree_of()
    }

    /// A new ordered table whose records are [read by peers](crate::RecordPeer): each needs eight bytes more, and a checksum when it is
    /// written.
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
    /// use drtm_kv::{Bytes, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree_of::<Bytes>()?, store.worker());
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
    /// use drtm_kv::{Inline, KvError, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let made = store.tree()?;
    /// made.insert(&mut store.worker(), 1, b"one")?;
    /// let opened = store.open_tree::<Inline>(made.location())?;
    /// assert!(opened.contains(1)?);
    /// let refused = store.open_hash_table::<Inline>(made.location());
    /// assert!(matches!(refused, Err(KvError::NotThisTable { .. })));
    /// # Ok::<(), KvError>(())
    /// ```
    pub fn open_tree<K: TreeKeys>(&self, at: Offset) -> Result<Tree<E, K>, KvError> {
        Tree::open(self, at)
    }
}

/// One thread's way to change tables: its memory, and its way into hardware regions.
///
/// # Example
///
/// See [`Store`].
#[derive(Debug)]
pub struct Worker<E: Engine> {
    pub(crate) htm: drtm_htm::Worker<E>,
    arena: Arena,
    number: u64,
    state: State,
    /// Where it inserts into trees.
    pub(crate) lasts: Lasts,
    /// For memory that is about to be free, so that nothing is allocated for that.
    discarded: Vec<(Class, u64)>,
    store: Store<E>,
}

impl<E: Engine> Worker<E> {
    /// Which worker this is, for spreading what workers share.
    #[inline(always)]
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The state of a record that this worker has locked, here or on another node.
    #[must_use]
    #[inline(always)]
    pub fn lock_state(&self) -> State {
        self.state
    }

    /// Its way into hardware regions, for changes of several records at once.
    #[inline(always)]
    pub fn htm(&mut self) -> &mut drtm_htm::Worker<E> {
        &mut self.htm
    }

    #[inline(always)]
    pub(crate) fn allocate(&mut self, class: Class) -> Result<u64, KvError> {
        self.arena.allocate(&self.store.shared.heap, &self.store.shared.region, class)
    }

    /// Gives back memory that was not used.
    pub fn give_back(&mut self, unused: Reserved) {
        self.free(unused.class, unused.word);
    }

    /// An empty list for memory that is about to be free, which is to be [given back](Self::give_back_discarded).
    pub(crate) fn take_discarded(&mut self) -> Vec<(Class, u64)> {
        std::mem::take(&mut self.discarded)
    }

    pub(crate) fn give_back_discarded(&mut self, emptied: Vec<(Class, u64)>) {
        self.discarded = emptied;
    }

    pub(crate) fn free(&mut self, class: Class, word: u64) {
        self.arena.free(&self.store.shared.heap, class, word);
    }
}

impl<E: Engine> Drop for Worker<E> {
    /// Leaves its free memory to the others.
    fn drop(&mut self) {
        self.arena.leave(&self.store.shared.heap);
    }
}
