//! A store: a region, the memory in it for records, and the workers that use it.

pub(crate) mod beside;
pub(crate) mod bounds;
mod census;
mod compact;
pub(crate) mod heap;
pub(crate) mod lasts;
pub(crate) mod layout;
mod quarantine;
mod reuse;
pub(crate) mod shortage;
mod spans;
pub(crate) mod turns;
mod units;

pub use census::Emptied;
pub(crate) use census::{Census, Entry};
pub use compact::Compaction;
pub use reuse::{Visit, forget_lack, has_lacked_memory};

use std::{
    hint::cold_path,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use drtm_htm::{Engine, Htm, Line};
use drtm_rdma::{NodeId, Offset, Region};
use parking_lot::Mutex;

use crate::{
    Holder, KvError, Watch,
    store::{
        beside::Beside,
        bounds::MODEL,
        heap::{Arena, Class, Heap},
        lasts::Lasts,
        layout::{MAX_INCARNATION, Place},
        quarantine::Quarantine,
    },
};

/// The memory and the workers that tables share. Clones are handles of the same store.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{HashConfig, KvTable, Store};
///
/// let store = Store::in_memory(NoHtm, 64 << 20)?;
/// let accounts = store.hash_table(HashConfig::default())?;
/// let mut worker = store.worker()?;
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
    quarantine: Quarantine,
    numbers: Mutex<Numbers>,
    /// The holder that the store's first worker has in locks. Other workers differ in their
    /// numbers.
    first: Holder,
    hints_at_once: AtomicBool,
    beside: Arc<Beside>,
    watch: OnceLock<Weak<dyn Watch>>,
    /// Operations that no watch knows, and that look at records.
    visits: Line,
    /// Whether sparse spans are being emptied.
    is_compacting: AtomicBool,
}

/// The largest memory of a store, in bytes: as much as a link can address.
///
/// # Example
///
/// ```
/// assert_eq!(drtm_kv::MOST_MEMORY, 8 << 40);
/// ```
pub const MOST_MEMORY: u64 = 8 * (Place::MAX_WORD + 1);

/// The most workers of a store that live at the same time: as many as a lock can name.
///
/// # Example
///
/// ```
/// assert_eq!(drtm_kv::MOST_WORKERS, 65_536);
/// ```
pub const MOST_WORKERS: u32 = 1 << u16::BITS;

/// The numbers of workers. A number is reused once its worker has ended, so no two live workers
/// lock records as the same holder.
#[derive(Debug, Default)]
struct Numbers {
    /// The numbers of workers that have ended.
    free: Vec<u16>,
    /// How many numbers were ever handed out.
    used: u32,
}

impl Numbers {
    fn take(&mut self) -> Result<u16, KvError> {
        if let Some(number) = self.free.pop() {
            return Ok(number);
        }
        let number = u16::try_from(self.used).map_err(|_| KvError::TooManyWorkers { most: MOST_WORKERS })?;
        self.used += 1;
        Ok(number)
    }
}

impl<E: Engine> Store<E> {
    /// Creates a store in anonymous memory of this process, of at most `capacity` bytes.
    ///
    /// # Errors
    ///
    /// When the operating system does not provide the memory.
    ///
    /// # Example
    ///
    /// See [`Store`].
    pub fn in_memory(engine: E, capacity: u64) -> Result<Self, KvError> {
        Self::in_region(Arc::new(Region::anonymous(engine, capacity)?))
    }

    /// Creates a store in a region, which other handles may use concurrently.
    ///
    /// # Errors
    ///
    /// When the region is larger than a place in a table can address.
    pub fn in_region(region: Arc<Region<E>>) -> Result<Self, KvError> {
        Self::in_region_of(NodeId(0), 0, region)
    }

    /// Creates a store in a region that belongs to a node. Its workers lock records in the name of
    /// that node and of its incarnation. A node that restarts gets a higher incarnation, so that
    /// the locks of its former life can be recognised.
    ///
    /// # Errors
    ///
    /// Like [`in_region`](Self::in_region), and when the node's number or incarnation does not fit
    /// into a lock.
    ///
    /// # Example
    ///
    /// ```
    /// use std::sync::Arc;
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{KvTable, Store};
    /// use drtm_rdma::{NodeId, Region};
    ///
    /// let region = Arc::new(Region::anonymous(NoHtm, 16 << 20)?);
    /// let store = Store::in_region_of(NodeId(3), 1, region)?;
    /// let holder = store.worker()?.holder();
    /// assert_eq!((holder.node(), holder.incarnation()), (3, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn in_region_of(node: NodeId, incarnation: u32, region: Arc<Region<E>>) -> Result<Self, KvError> {
        let no_node = |_| KvError::config("the number of a node that has a store", "from 0 to 255", node.0);
        let node = u8::try_from(node.0).map_err(no_node)?;
        if incarnation > MAX_INCARNATION {
            return Err(KvError::config("the incarnation of a node that has a store", "below 2^31", incarnation));
        }
        if region.capacity() > MOST_MEMORY {
            return Err(KvError::RegionTooLarge { capacity: region.capacity(), most: MOST_MEMORY });
        }
        let htm = Htm::new(region.engine().clone());
        let hints_at_once = AtomicBool::new(MODEL);
        let beside = Arc::new(Beside::new(region.capacity()));
        let (heap, numbers) = (Heap::new(Arc::clone(&beside), region.capacity()), Mutex::default());
        let first = Holder::new(node, incarnation, 0, 0);
        let (quarantine, watch, visits, is_compacting) = Default::default();
        let shared = Shared {
            region,
            htm,
            heap,
            quarantine,
            numbers,
            first,
            hints_at_once,
            beside,
            watch,
            visits,
            is_compacting,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the store's region.
    #[must_use]
    #[inline(always)]
    pub fn region(&self) -> &Arc<Region<E>> {
        &self.shared.region
    }

    /// Gives trees that are created or opened from now on hints for their first keys already, so
    /// that tests of small trees test hints too.
    #[doc(hidden)]
    #[must_use]
    pub fn hinting_at_once(self) -> Self {
        self.shared.hints_at_once.store(true, Relaxed);
        self
    }

    /// Disables hints for trees that are created or opened from now on. Each lookup descends from
    /// the root then, and trees use no memory beside the region.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?.without_hints();
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// (0..10_000).try_for_each(|key| tree.insert(&mut worker, key, b"value").map(drop))?;
    /// assert!((0..10_000).all(|key| tree.contains(key).unwrap_or(false)));
    /// assert_eq!(store.beside(), 0);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[must_use]
    pub fn without_hints(self) -> Self {
        self.shared.beside.turn_off();
        self
    }

    /// Returns how many bytes trees use beside the region, for hints: where keys were found before.
    /// They count against the region's capacity, and are freed when the region needs them.
    ///
    /// # Example
    ///
    /// See [`without_hints`](Self::without_hints).
    #[must_use]
    pub fn beside(&self) -> u64 {
        self.shared.beside.taken()
    }

    pub(crate) fn memory_beside(&self) -> &Arc<Beside> {
        &self.shared.beside
    }

    /// Allocates memory for something other than an object, which is never freed. Memory outside of
    /// the region, such as hints, is given back for it if necessary.
    #[inline(never)]
    pub(crate) fn extend(&self, bytes: u64, align: u64) -> Result<Offset, KvError> {
        let mut extended = self.shared.heap.extend(self.region(), bytes, align);
        if extended.is_err() {
            if self.find_memory() {
                extended = self.shared.heap.extend(self.region(), bytes, align);
            }
            if extended.is_err() {
                self.note_lack();
            }
        }
        extended.map_err(|error| self.explained(error.into(), None))
    }

    pub(crate) fn hints_at_once(&self) -> bool {
        self.shared.hints_at_once.load(Relaxed)
    }

    /// Returns the statistics of the htm transactions of this store's [workers](Worker::htm).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::{Access, Emulated, Policy, Word};
    /// use drtm_kv::Store;
    ///
    /// let store = Store::in_memory(Emulated::default(), 16 << 20)?;
    /// let word = Word::new(1);
    /// store.worker()?.htm().attempt(Policy::DBX, |tx| tx.store(&word, 2));
    /// assert_eq!(store.htm_stats().commits, 1);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[must_use]
    pub fn htm_stats(&self) -> drtm_htm::Stats {
        self.shared.htm.stats()
    }

    /// Creates a worker for one thread.
    ///
    /// # Errors
    ///
    /// [`KvError::TooManyWorkers`] when 65,536 workers are alive.
    ///
    /// # Example
    ///
    /// See [`Store`].
    #[inline(never)]
    pub fn worker(&self) -> Result<Worker<E>, KvError> {
        let (number, first) = (self.shared.numbers.lock().take()?, self.shared.first);
        Ok(Worker {
            htm: self.shared.htm.worker(),
            arena: Arena::new(),
            holder: Holder::new(first.node(), first.incarnation(), number, 0),
            lasts: Lasts::default(),
            discarded: Vec::new(),
            store: self.clone(),
        })
    }
}

/// One thread's handle for changing tables: its memory, and its htm transactions.
///
/// # Example
///
/// See [`Store`].
#[derive(Debug)]
pub struct Worker<E: Engine> {
    htm: drtm_htm::Worker<E>,
    arena: Arena,
    holder: Holder,
    /// The places of its last insertions into trees.
    pub(crate) lasts: Lasts,
    /// A list for memory that is about to be freed, kept so that freeing allocates nothing.
    discarded: Vec<(Class, u64)>,
    store: Store<E>,
}

impl<E: Engine> Worker<E> {
    /// Returns how many bytes of the process's heap the worker uses: its lists of free memory, and
    /// the places of its last insertions.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::Store;
    ///
    /// let worker = Store::in_memory(NoHtm, 1 << 20)?.worker()?;
    /// assert!(worker.bytes() < 16 << 10);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.arena.bytes() + Lasts::BYTES + self.discarded.capacity() * size_of::<(Class, u64)>()
    }

    /// Returns the worker's number, by which shared data is sharded.
    #[inline(always)]
    pub(crate) fn number(&self) -> u64 {
        self.holder.worker().into()
    }

    /// Returns the holder as which this worker locks records, here or on another node, while it
    /// runs one transaction at a time. Transactions that it interleaves each have a
    /// [slot](Holder::in_slot) of their own.
    #[must_use]
    #[inline(always)]
    pub fn holder(&self) -> Holder {
        self.holder
    }

    /// Returns the worker's htm handle, for changing several records atomically.
    #[inline(always)]
    pub fn htm(&mut self) -> &mut drtm_htm::Worker<E> {
        &mut self.htm
    }

    #[inline(always)]
    pub(crate) fn allocate(&mut self, class: Class) -> Result<u64, KvError> {
        match self.arena.allocate(&self.store.shared.heap, &self.store.shared.region, class) {
            Err(error) => self.allocate_late(class, error),
            allocated => allocated,
        }
    }

    /// Gives back memory that was not used: its incarnation has not changed.
    pub(crate) fn give_back_object(&mut self, class: Class, word: u64) {
        self.arena.free(&self.store.shared.heap, self.store.region().engine(), class, word);
    }

    /// Takes the empty list for memory that is about to be freed. The caller [gives it
    /// back](Self::give_back_discarded).
    pub(crate) fn take_discarded(&mut self) -> Vec<(Class, u64)> {
        std::mem::take(&mut self.discarded)
    }

    pub(crate) fn give_back_discarded(&mut self, emptied: Vec<(Class, u64)>) {
        self.discarded = emptied;
    }

    /// Frees the memory of a record that was retired: its incarnation has been incremented.
    pub(crate) fn free(&mut self, class: Class, word: u64) {
        if self.store.begins_quarter(word) {
            cold_path();
            self.detain(class, word);
        } else {
            self.arena.free(&self.store.shared.heap, self.store.region().engine(), class, word);
        }
    }
}

impl<E: Engine> Drop for Worker<E> {
    /// Returns its free memory and its number to the store.
    fn drop(&mut self) {
        self.arena.leave(&self.store.shared.heap, self.store.region().engine());
        self.store.shared.numbers.lock().free.push(self.holder.worker());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_again_only_when_its_worker_has_ended() {
        let mut numbers = Numbers::default();
        let taken: Vec<_> = (0..=u16::MAX).map(|_| numbers.take().expect("a number")).collect();
        assert!(taken.iter().copied().eq(0..=u16::MAX));
        assert!(matches!(numbers.take(), Err(KvError::TooManyWorkers { most: 65_536 })));
        numbers.free.extend([7, 9]);
        let mut again = [(); 2].map(|()| numbers.take().expect("a worker has ended"));
        again.sort_unstable();
        assert_eq!(again, [7, 9]);
        assert!(numbers.take().is_err());
    }
}
