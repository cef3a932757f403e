//! The errors of regions.

use std::io;

use drtm_htm::EngineError;

use crate::Offset;

/// A region that cannot be created, opened or extended.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Region, RegionError};
///
/// let region = Region::anonymous(NoHtm, 64 << 10)?;
/// let full = region.extend(1 << 20, 8).unwrap_err();
/// assert!(matches!(full, RegionError::Full { asked: 1048576, .. }));
/// # Ok::<(), RegionError>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The region's capacity is used up.
    #[error("region full: {asked} bytes asked for, {left} left of {capacity}; create it with a larger capacity")]
    Full {
        /// The requested bytes.
        asked: u64,
        /// Bytes that were left.
        left: u64,
        /// The region's capacity.
        capacity: u64,
    },
    /// The capacity is out of range.
    #[error("a region's capacity must be from {least} to {most} bytes, and {asked} was asked for")]
    Capacity {
        /// The requested capacity.
        asked: u64,
        /// The least capacity.
        least: u64,
        /// The largest capacity.
        most: u64,
    },
    /// Address space could not be reserved, or a file could not be mapped.
    #[error("cannot map {bytes} bytes: {source}")]
    Map {
        /// The bytes to map.
        bytes: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The system has not set so many huge pages aside.
    #[error(
        "no {pages} huge pages of 2 MiB for {bytes} bytes: {source}; set more aside with `sysctl vm.nr_hugepages`, or \
         do without"
    )]
    HugePages {
        /// How much.
        bytes: u64,
        /// How many pages that takes.
        pages: u64,
        /// What the system said.
        source: io::Error,
    },
    /// Memory could not be pre-faulted.
    #[error("cannot have {bytes} bytes of memory at once: {source}; ask for less, or let it come as it is used")]
    Populate {
        /// The bytes to pre-fault.
        bytes: u64,
        /// The system's error.
        source: io::Error,
    },
    /// Memory could not be returned to the system.
    #[error("cannot give {bytes} bytes of memory back: {source}; they can be used as before")]
    Discard {
        /// The bytes to return.
        bytes: u64,
        /// The system's error, or that these bytes are not allocated.
        source: io::Error,
    },
    /// A shared region's file could not be sized, for example because its file system is full.
    #[error("cannot allocate {bytes} bytes in the region's file: {source}")]
    Allocate {
        /// The requested size of the file.
        bytes: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The file's size could not be read.
    #[error("cannot read the size of the region's file: {source}")]
    Inspect {
        /// The system's error.
        source: io::Error,
    },
    /// The file is not a region.
    #[error("not a region: its first word is {found:#018x}; is this the right file?")]
    Magic {
        /// The first word.
        found: u64,
    },
    /// The region was made by another version of this library.
    #[error(
        "the region has format {found}, and this library reads format {known}; open it with the library that made it"
    )]
    Format {
        /// The region's format.
        found: u64,
        /// The format that this library reads.
        known: u64,
    },
    /// The superblock is damaged.
    #[error("the region's superblock is corrupt: checksum {found:#010x}, computed {computed:#010x}")]
    Checksum {
        /// The checksum found.
        found: u32,
        /// The checksum of the words found.
        computed: u32,
    },
    /// The region was created with an engine of another kind. Accesses by both would not be atomic
    /// with each other.
    #[error(
        "the region was made with an engine {found}, and this engine is one {ours}; open it with an engine of its kind"
    )]
    OtherEngine {
        /// The engine kind of the region.
        found: &'static str,
        /// The kind of the given engine.
        ours: &'static str,
    },
    /// The file may be truncated by the process that made it, which would kill others.
    #[error("the region's file is not sealed against shrinking; make it with `Region::shared`")]
    Unsealed,
    /// The file is smaller than its superblock says.
    #[error(
        "the region's file has {found} bytes where its superblock promises {promised}; it was cut short or is still being made"
    )]
    Size {
        /// The file's size.
        found: u64,
        /// The size that the superblock says.
        promised: u64,
    },
    /// The superblock's count of allocated bytes is out of range.
    #[error(
        "the superblock says that {found} bytes of {capacity} are allocated, which cannot be; a process that maps the region has damaged it"
    )]
    Allocated {
        /// The count.
        found: u64,
        /// The region's capacity.
        capacity: u64,
    },
    /// The engine cannot protect memory of this kind.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// An access beyond what is allocated in a region, or not aligned to a word.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Offset, OutOfBounds, Region};
///
/// let region = Region::anonymous(NoHtm, 64 << 10)?;
/// let wild = Offset::new(1 << 40);
/// assert_eq!(region.words(wild, 1).unwrap_err(), OutOfBounds { at: wild, words: 1 });
/// # Ok::<(), drtm_rdma::RegionError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{words} words at {at} are not in the region; the link that led there is stale or corrupt")]
pub struct OutOfBounds {
    /// The first offset of the access.
    pub at: Offset,
    /// The number of words.
    pub words: usize,
}
