//! Regions: memory that is reserved once, committed as needed, and addressed by offsets.

#[cfg(feature = "model")]
mod boxed;
pub(crate) mod bytes;
mod error;
mod limits;
pub(crate) mod loopback;
#[cfg(not(feature = "model"))]
mod mapping;
#[cfg(feature = "cluster")]
pub(crate) mod memory;
#[cfg(all(feature = "cluster", not(feature = "model")))]
mod network;
#[cfg(all(feature = "cluster", not(feature = "model")))]
pub(crate) mod nv;
#[cfg(feature = "cluster")]
pub(crate) mod registry;
#[cfg(not(feature = "model"))]
mod residence;
mod superblock;

pub use error::{OutOfBounds, RegionError};
pub use limits::capacity_within_limits;
pub use superblock::{ROOTS, TURNS_AT};

use std::{
    fs::File,
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use drtm_htm::{Engine, Sharing, Word, prefetch_at, prefetch_later};

use crate::{Loopback, Offset, system};
#[cfg(feature = "model")]
use boxed::Mapping;
#[cfg(not(feature = "model"))]
use mapping::Mapping;
use superblock::Superblock;
#[cfg(all(feature = "cluster", not(feature = "model")))]
pub(crate) use superblock::{kind_of, name_of};

const WORD: u64 = size_of::<u64>() as u64;

/// The unit of a capacity: a page, or a word under model checking, where each word takes time to
/// create.
const UNIT: u64 = if cfg!(feature = "model") { WORD } else { 4 << 10 };

/// The size by which shared files are allocated ahead, so that not every extension is a system
/// call.
const AHEAD: u64 = 2 << 20;

/// The largest capacity, which 48 bits of offset reach.
const MOST: u64 = 1 << 48;

/// One contiguous reservation of memory: words that are local here, and reachable from elsewhere by
/// their offset.
///
/// Address space for the whole capacity is reserved at once. Memory is used only as it is
/// [allocated](Self::extend), and nothing beyond that can be accessed. A full region is an error
/// and never a signal. Nothing in a region may depend on where it is mapped.
///
/// A region owns the [`Engine`] through which its words are accessed: one memory, one engine.
///
/// # Example
///
/// ```
/// use drtm_htm::{Engine, NoHtm};
/// use drtm_rdma::Region;
///
/// let region = Region::anonymous(NoHtm, 1 << 30)?; // a gigabyte of addresses, hardly any memory
/// let bucket = region.extend(128, 64)?;
/// let words = region.words(bucket, 16)?;
/// region.engine().store(&words[3], 7);
/// assert_eq!(region.engine().load(&region.words(bucket + 24, 1)?[0]), 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Region<E: Engine> {
    mapping: Mapping,
    /// The words that this handle knows to be allocated. The superblock may already have more.
    known: AtomicUsize,
    engine: E,
    capacity: u64,
    /// The bytes that were pre-faulted, allocated or not.
    populated: AtomicU64,
    /// The file of a shared region.
    file: Option<File>,
    /// What swaps words that peers swap, too, if it is not the processors.
    loopback: OnceLock<Arc<dyn Loopback<E>>>,
}

impl<E: Engine> Region<E> {
    /// Creates a region that is private to this process, with room for `capacity` bytes.
    ///
    /// # Errors
    ///
    /// When the capacity is invalid, or this much address space is not available.
    ///
    /// # Example
    ///
    /// See [`Region`].
    pub fn anonymous(engine: E, capacity: u64) -> Result<Self, RegionError> {
        let capacity = checked_capacity(capacity)?;
        let mapping = map(capacity, Mapping::anonymous)?;
        Ok(Self::new(mapping, engine, capacity, None).formatted())
    }

    /// Makes a region of this process alone, in huge pages of 2 MiB that the system's
    /// administrator has set aside: `sysctl vm.nr_hugepages=N`. All that the capacity says is taken
    /// from there. [`anonymous`](Self::anonymous) asks for huge pages, too, and does without.
    ///
    /// # Errors
    ///
    /// [`RegionError::HugePages`] where there are not so many, and otherwise as for `anonymous`.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Region, RegionError};
    ///
    /// let region = match Region::in_huge_pages(NoHtm, 1 << 30) {
    ///     Err(RegionError::HugePages { .. }) => Region::anonymous(NoHtm, 1 << 30)?,
    ///     region => region?,
    /// };
    /// # let _ = region;
    /// # Ok::<(), RegionError>(())
    /// ```
    pub fn in_huge_pages(engine: E, capacity: u64) -> Result<Self, RegionError> {
        let capacity = checked_capacity(capacity)?;
        let none = |source| RegionError::HugePages { bytes: capacity, pages: capacity.div_ceil(2 << 20), source };
        let mapping = Mapping::stocked(capacity as usize).map_err(none)?;
        Ok(Self::new(mapping, engine, capacity, None).formatted())
    }

    /// Pre-faults the first `bytes` of memory. Otherwise the system provides each page at its first
    /// access, which takes as long, at a less convenient time.
    ///
    /// # Errors
    ///
    /// [`RegionError::Populate`] if there is not this much memory, or the system cannot pre-fault.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::Region;
    ///
    /// let region = Region::anonymous(NoHtm, 64 << 20)?;
    /// region.populate(16 << 20)?;
    /// # Ok::<(), drtm_rdma::RegionError>(())
    /// ```
    pub fn populate(&self, bytes: u64) -> Result<(), RegionError> {
        // There is no memory behind a file's end.
        let most = match &self.file {
            Some(file) => size(file)?,
            None => self.capacity,
        };
        let bytes = bytes.min(most);
        self.populated.fetch_max(bytes, Relaxed);
        self.mapping.populate(bytes as usize).map_err(|source| RegionError::Populate { bytes, source })
    }

    /// Returns how many bytes of the region are in memory, pages beyond what is allocated included:
    /// the system provides pages whole, and huge ones of 2 MiB. It reads one entry for each page of
    /// 4 KiB, which takes about two milliseconds for each GiB.
    ///
    /// # Errors
    ///
    /// [`RegionError::Inspect`] where the system does not tell, such as without `/proc`.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::Region;
    ///
    /// let region = Region::anonymous(NoHtm, 64 << 20)?;
    /// let before = region.resident()?;
    /// region.populate(16 << 20)?;
    /// assert!(before < 4 << 20 && region.resident()? >= 16 << 20);
    /// # Ok::<(), drtm_rdma::RegionError>(())
    /// ```
    #[cfg(not(feature = "model"))]
    pub fn resident(&self) -> Result<u64, RegionError> {
        let touched = self.allocated().max(self.populated.load(Relaxed));
        // A page that begins before the end may be huge.
        let bytes = touched.next_multiple_of(AHEAD).min(self.capacity);
        let first = self.mapping.address(0).addr();
        residence::resident(first, bytes as usize).map_err(|source| RegionError::Inspect { source })
    }

    /// Returns the whole pages among these bytes to the system, and returns their number of bytes.
    /// Their words are then zeros, and take memory again when they are written. They stay
    /// allocated.
    ///
    /// A region in a file keeps its memory: other processes may use it. So does one in huge pages
    /// that were set aside.
    ///
    /// # Errors
    ///
    /// [`RegionError::Discard`] if the bytes are not all allocated, or the system fails.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::{Engine, NoHtm};
    /// use drtm_rdma::Region;
    ///
    /// let region = Region::anonymous(NoHtm, 4 << 20)?;
    /// let at = region.extend(1 << 20, 64)?;
    /// let first = &region.words(at + (1 << 19), 1)?[0];
    /// region.engine().store(first, 7);
    /// assert!(region.discard(at, 1 << 20)? > 1 << 19);
    /// assert_eq!(region.engine().load(first), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn discard(&self, at: Offset, bytes: u64) -> Result<u64, RegionError> {
        let failed = |source| RegionError::Discard { bytes, source };
        let end = at.bytes().checked_add(bytes).filter(|end| *end <= self.allocated());
        let Some(end) = end.filter(|_| at.bytes() >= superblock::BYTES) else {
            return Err(failed(std::io::ErrorKind::InvalidInput.into()));
        };
        if self.file.is_some() || self.mapping.is_stocked() {
            return Ok(0);
        }
        let page = system::page_size() as u64;
        let (first, last) = (at.bytes().next_multiple_of(page), end - end % page);
        if first >= last {
            return Ok(0);
        }
        // SAFETY: these bytes are allocated, so they are in the mapping, which has no file.
        unsafe { self.mapping.discard(first as usize, (last - first) as usize) }.map_err(failed)?;
        Ok(last - first)
    }

    /// [Discards](Self::discard) all that is allocated: for memory whose contents are not needed
    /// any more, and which others have handles of.
    ///
    /// # Errors
    ///
    /// [`RegionError::Discard`] if the system fails.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::Region;
    ///
    /// let region = Region::anonymous(NoHtm, 4 << 20)?;
    /// region.extend(1 << 20, 64)?;
    /// assert!(region.discard_all()? > 1 << 19);
    /// assert!(region.allocated() > 1 << 20);
    /// # Ok::<(), drtm_rdma::RegionError>(())
    /// ```
    pub fn discard_all(&self) -> Result<u64, RegionError> {
        let first = Offset::new(superblock::BYTES);
        self.discard(first, self.allocated() - first.bytes())
    }

    /// Creates a region that other processes can [open](Self::open), in an empty file: on a memory
    /// file system, or made by `memfd_create`.
    ///
    /// Processes that share a region trust each other with its contents, and not to truncate the
    /// file.
    ///
    /// # Errors
    ///
    /// When the engine cannot protect shared memory, the capacity is invalid, or the system fails.
    pub fn create(engine: E, file: File, capacity: u64) -> Result<Self, RegionError> {
        engine.admits(Sharing::Processes)?;
        let capacity = checked_capacity(capacity)?;
        let found = size(&file)?;
        if found != 0 {
            return Err(RegionError::Size { found, promised: 0 });
        }
        allocate(&file, superblock::BYTES, capacity)?;
        let mapping = map(capacity, |bytes| Mapping::of_file(&file, bytes))?;
        Ok(Self::new(mapping, engine, capacity, Some(file)).formatted())
    }

    /// Opens a region that another process has [created](Self::create), or this one, elsewhere in
    /// its address space.
    ///
    /// # Errors
    ///
    /// When the file is not a region, has another format, is damaged, or shorter than it says; or
    /// as for `create`.
    pub fn open(engine: E, file: File) -> Result<Self, RegionError> {
        engine.admits(Sharing::Processes)?;
        let found = size(&file)?;
        if found < superblock::BYTES {
            return Err(RegionError::Size { found, promised: superblock::BYTES });
        }
        // The superblock says how much to map, so it is first mapped alone.
        let capacity = {
            let mapping = map(superblock::BYTES, |bytes| Mapping::of_file(&file, bytes))?;
            // SAFETY: the file has at least the superblock's size, and the mapping too.
            let words = unsafe { mapping.words(0, superblock::WORDS) };
            checked_capacity(Superblock(words).read(&engine)?)?
        };
        let mapping = map(capacity, |bytes| Mapping::of_file(&file, bytes))?;
        let region = Self::new(mapping, engine, capacity, Some(file));
        region.refresh()?;
        Ok(region)
    }

    fn new(mapping: Mapping, engine: E, capacity: u64, file: Option<File>) -> Self {
        let known = AtomicUsize::new(superblock::WORDS);
        let populated = AtomicU64::new(0);
        Self { mapping, known, engine, capacity, populated, file, loopback: OnceLock::new() }
    }

    /// Lets a NIC carry out each [swap](Self::compare_swap) from now on. To be called before the
    /// region is shared; the first call counts.
    ///
    /// # Example
    ///
    /// ```
    /// use std::sync::Arc;
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Atomicity, Fabric, LocalConfig, LocalFabric, NodeId, Region};
    ///
    /// let fabric = LocalFabric::new(1, LocalConfig::perfect().atomicity(Atomicity::Hca));
    /// let region = Arc::new(Region::anonymous(NoHtm, 1 << 20)?);
    /// fabric.register(NodeId(0), Arc::clone(&region))?;
    /// region.swap_by(fabric.loopback(NodeId(0)).expect("a NIC of its own"));
    /// assert!(region.is_swapped_by_nic());
    /// let offset = region.extend(8, 8)?;
    /// let word = &region.words(offset, 1)?[0];
    /// assert_eq!(region.compare_swap(word, 0, 7), Ok(0));
    /// assert_eq!(region.compare_swap(word, 0, 8), Err(7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn swap_by(&self, nic: Arc<dyn Loopback<E>>) {
        self.loopback.get_or_init(|| nic);
    }

    /// Returns whether a NIC carries out swaps.
    #[must_use]
    #[inline(always)]
    pub fn is_swapped_by_nic(&self) -> bool {
        self.loopback.get().is_some()
    }

    /// Swaps a word that peers swap, too: by a processor, unless a NIC [does](Self::swap_by).
    /// `Err` has what the word is instead.
    ///
    /// # Errors
    ///
    /// See above.
    #[inline(always)]
    pub fn compare_swap(&self, word: &Word, expected: u64, new: u64) -> Result<u64, u64> {
        match self.loopback.get() {
            None => self.engine.compare_exchange(word, expected, new),
            Some(nic) => Self::swap_by_nic(&**nic, &self.engine, word, (expected, new)),
        }
    }

    #[cold]
    #[inline(never)]
    fn swap_by_nic(nic: &dyn Loopback<E>, engine: &E, word: &Word, (expected, new): (u64, u64)) -> Result<u64, u64> {
        let found = nic.compare_swap(engine, word, expected, new);
        if found == expected { Ok(found) } else { Err(found) }
    }

    fn formatted(self) -> Self {
        self.superblock().write(&self.engine, self.capacity);
        self
    }

    /// Returns the engine through which this memory is accessed.
    ///
    /// # Example
    ///
    /// See [`Region`].
    #[inline(always)]
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// Returns the most bytes that can be allocated, including the region's own superblock.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the bytes allocated so far, by any process.
    #[must_use]
    pub fn allocated(&self) -> u64 {
        self.engine.load(self.superblock().allocated())
    }

    /// Returns whether the system accepted the advice to use huge pages.
    #[must_use]
    pub fn huge_pages(&self) -> bool {
        self.mapping.huge_pages()
    }

    /// Returns the root with this index, below [`ROOTS`]: the words from which the contents of the
    /// region are found.
    #[must_use]
    pub fn root(&self, index: usize) -> Option<&Word> {
        self.superblock().root(index)
    }

    /// Returns the word in which users of the region count its turns. It changes before a limited
    /// name can be reused for something else. It has a cache line of its own, and peers find it at
    /// [`TURNS_AT`].
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::{Engine, NoHtm};
    /// use drtm_rdma::{Region, TURNS_AT};
    ///
    /// let region = Region::anonymous(NoHtm, 1 << 20)?;
    /// assert_eq!(region.engine().fetch_add(region.turns(), 1), 0);
    /// assert_eq!(region.engine().load(&region.words(TURNS_AT, 1)?[0]), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    #[inline(always)]
    pub fn turns(&self) -> &Word {
        self.superblock().turns()
    }

    /// Returns the word in which a lower bound of the time is published, in the unit of lease ends.
    /// It is zero if there is no clock. It has a cache line of its own.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::{Engine, NoHtm};
    /// use drtm_rdma::Region;
    ///
    /// let region = Region::anonymous(NoHtm, 1 << 20)?;
    /// region.engine().store(region.time(), 1_000);
    /// assert_eq!(region.engine().load(region.time()), 1_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn time(&self) -> &Word {
        self.superblock().time()
    }

    /// Allocates `bytes` of zeros, aligned to `align`, permanently.
    ///
    /// # Errors
    ///
    /// [`RegionError::Full`] if the capacity does not suffice. [`RegionError::Allocate`] if the
    /// system does not provide the memory. [`RegionError::Allocated`] if another process has
    /// damaged the superblock. The region is then unchanged.
    ///
    /// # Panics
    ///
    /// Panics if `align` is not a power of two of at least a word.
    #[inline(never)]
    pub fn extend(&self, bytes: u64, align: u64) -> Result<Offset, RegionError> {
        assert!(align.is_power_of_two() && align >= WORD, "an alignment is a power of two of at least {WORD}");
        let allocated = self.superblock().allocated();
        let mut end = self.engine.load(allocated);
        loop {
            // Another process may have damaged it.
            if !(superblock::BYTES..=self.capacity).contains(&end) {
                return Err(RegionError::Allocated { found: end, capacity: self.capacity });
            }
            let start = end.next_multiple_of(align);
            let new_end = start
                .checked_add(bytes)
                .and_then(|new_end| new_end.checked_next_multiple_of(WORD))
                .filter(|new_end| *new_end <= self.capacity)
                .ok_or(RegionError::Full { asked: bytes, left: self.capacity - end, capacity: self.capacity })?;
            if let Some(file) = &self.file {
                // The memory must exist before any reader learns of the words. Allocating twice is
                // harmless.
                allocate(file, new_end, self.capacity)?;
            }
            match self.engine.compare_exchange(allocated, end, new_end) {
                Ok(_) => {
                    self.learn(new_end);
                    return Ok(Offset::new(start));
                }
                Err(found) => end = found,
            }
        }
    }

    /// Returns the `count` words at `at`: checked here once, then indexed without checks.
    ///
    /// # Errors
    ///
    /// When they are not all allocated, or `at` is not aligned to a word.
    #[inline(always)]
    pub fn words(&self, at: Offset, count: usize) -> Result<&[Word], OutOfBounds> {
        // Rotating turns an offset that is no multiple of eight into a huge index, so that one
        // comparison checks both.
        let first = at.bytes().rotate_right(WORD.trailing_zeros()) as usize;
        let within = |known: usize| first.saturating_add(count) <= known;
        if !within(self.known.load(Relaxed)) && !within(self.catch_up()) {
            return Err(OutOfBounds { at, words: count });
        }
        // SAFETY: what `known` counts is allocated: within the mapping, and within the file where
        // there is one, whose users do not cut it short.
        Ok(unsafe { self.mapping.words(first, count) })
    }

    /// Returns the `N` words at `at`, as an array: indexing it by constants needs no further
    /// checks.
    ///
    /// # Errors
    ///
    /// As for [`words`](Self::words).
    #[inline(always)]
    pub fn array<const N: usize>(&self, at: Offset) -> Result<&[Word; N], OutOfBounds> {
        self.words(at, N)?.try_into().map_err(|_| OutOfBounds { at, words: N })
    }

    /// Prefetches the cache line of a word, by its number. It is a hint: the word need not exist.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::Region;
    ///
    /// let region = Region::anonymous(NoHtm, 1 << 20)?;
    /// let at = region.extend(64, 64)?;
    /// region.prefetch(at.word());
    /// region.prefetch(u64::MAX);
    /// region.prefetch_later(at.word());
    /// # Ok::<(), drtm_rdma::RegionError>(())
    /// ```
    #[inline(always)]
    pub fn prefetch(&self, word: u64) {
        prefetch_at(self.mapping.address(word));
    }

    /// Like [`prefetch`](Self::prefetch), for a word that is used a little later, with many others,
    /// as [`drtm_htm::prefetch_later`].
    ///
    /// # Example
    ///
    /// See [`prefetch`](Self::prefetch).
    #[inline(always)]
    pub fn prefetch_later(&self, word: u64) {
        prefetch_later(self.mapping.address(word));
    }

    #[inline(always)]
    fn superblock(&self) -> Superblock<'_> {
        // SAFETY: a region has at least its superblock, in the file too: `create` allocates it and
        // `open` checks.
        Superblock(unsafe { self.mapping.words(0, superblock::WORDS) })
    }

    /// Records that this many bytes are allocated.
    fn learn(&self, bytes: u64) -> usize {
        let words = (bytes / WORD) as usize;
        self.known.fetch_max(words, Relaxed).max(words)
    }

    /// Returns what is allocated by now. If that cannot be true, it returns what was known.
    #[cold]
    fn catch_up(&self) -> usize {
        self.refresh().unwrap_or_else(|_| self.known.load(Relaxed))
    }

    /// Reads the superblock, which another process may have damaged, and the size of the file,
    /// which is authoritative.
    fn refresh(&self) -> Result<usize, RegionError> {
        let promised = self.allocated();
        let found = match &self.file {
            Some(file) => size(file)?.min(self.capacity),
            None => self.capacity,
        };
        if promised > found {
            return Err(RegionError::Size { found, promised });
        }
        Ok(self.learn(promised))
    }
}

fn checked_capacity(asked: u64) -> Result<u64, RegionError> {
    let least = superblock::BYTES;
    if (least..=MOST).contains(&asked) {
        Ok(asked.next_multiple_of(UNIT))
    } else {
        Err(RegionError::Capacity { asked, least, most: MOST })
    }
}

fn map(bytes: u64, make: impl FnOnce(usize) -> io::Result<Mapping>) -> Result<Mapping, RegionError> {
    usize::try_from(bytes)
        .map_err(|_| io::ErrorKind::OutOfMemory.into())
        .and_then(make)
        .map_err(|source| RegionError::Map { bytes, source })
}

fn size(file: &File) -> Result<u64, RegionError> {
    file.metadata().map(|metadata| metadata.len()).map_err(|source| RegionError::Inspect { source })
}

/// Makes the file at least `bytes` long, backed by memory. Never makes it shorter.
fn allocate(file: &File, bytes: u64, capacity: u64) -> Result<(), RegionError> {
    if size(file)? >= bytes {
        return Ok(());
    }
    let bytes = bytes.next_multiple_of(AHEAD).min(capacity);
    system::allocate(file, bytes).map_err(|source| RegionError::Allocate { bytes, source })
}
