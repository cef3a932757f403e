//! The errors of regions.

use std::{fmt, io};

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
#[derive(Debug)]
#[non_exhaustive]
pub enum RegionError {
    /// The region's capacity is used up.
    Full {
        /// The requested bytes.
        asked: u64,
        /// Bytes that were left.
        left: u64,
        /// The region's capacity.
        capacity: u64,
    },
    /// The capacity is out of range.
    Capacity {
        /// The requested capacity.
        asked: u64,
        /// The least capacity.
        least: u64,
        /// The largest capacity.
        most: u64,
    },
    /// Address space could not be reserved, or a file could not be mapped.
    Map {
        /// The bytes to map.
        bytes: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The system has not set so many huge pages aside.
    HugePages {
        /// How much.
        bytes: u64,
        /// How many pages that takes.
        pages: u64,
        /// What the system said.
        source: io::Error,
    },
    /// Memory could not be pre-faulted.
    Populate {
        /// The bytes to pre-fault.
        bytes: u64,
        /// The system's error.
        source: io::Error,
    },
    /// Memory could not be returned to the system.
    Discard {
        /// The bytes to return.
        bytes: u64,
        /// The system's error, or that these bytes are not allocated.
        source: io::Error,
    },
    /// A shared region's file could not be sized, for example because its file system is full.
    Allocate {
        /// The requested size of the file.
        bytes: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The file's size could not be read.
    Inspect {
        /// The system's error.
        source: io::Error,
    },
    /// The file is not a region.
    Magic {
        /// The first word.
        found: u64,
    },
    /// The region was made by another version of this library.
    Format {
        /// The region's format.
        found: u64,
        /// The format that this library reads.
        known: u64,
    },
    /// The superblock is damaged.
    Checksum {
        /// The checksum found.
        found: u32,
        /// The checksum of the words found.
        computed: u32,
    },
    /// The region was created with an engine of another kind. Accesses by both would not be atomic
    /// with each other.
    OtherEngine {
        /// The engine kind of the region.
        found: &'static str,
        /// The kind of the given engine.
        ours: &'static str,
    },
    /// The file may be truncated by the process that made it, which would kill others.
    Unsealed,
    /// The file is smaller than its superblock says.
    Size {
        /// The file's size.
        found: u64,
        /// The size that the superblock says.
        promised: u64,
    },
    /// The superblock's count of allocated bytes is out of range.
    Allocated {
        /// The count.
        found: u64,
        /// The region's capacity.
        capacity: u64,
    },
    /// The engine cannot protect memory of this kind.
    Engine(EngineError),
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { asked, left, capacity } => write!(
                f,
                "region full: {asked} bytes asked for, {left} left of {capacity}; create it with a larger capacity"
            ),
            Self::Capacity { asked, least, most } => {
                write!(f, "a region's capacity must be from {least} to {most} bytes, and {asked} was asked for")
            }
            Self::Map { bytes, source } => write!(f, "cannot map {bytes} bytes: {source}"),
            Self::HugePages { bytes, pages, source } => write!(
                f,
                "no {pages} huge pages of 2 MiB for {bytes} bytes: {source}; set more aside with `sysctl \
                 vm.nr_hugepages`, or do without"
            ),
            Self::Populate { bytes, source } => write!(
                f,
                "cannot have {bytes} bytes of memory at once: {source}; ask for less, or let it come as it is used"
            ),
            Self::Discard { bytes, source } => {
                write!(f, "cannot give {bytes} bytes of memory back: {source}; they can be used as before")
            }
            Self::Allocate { bytes, source } => {
                write!(f, "cannot allocate {bytes} bytes in the region's file: {source}")
            }
            Self::Inspect { source } => write!(f, "cannot read the size of the region's file: {source}"),
            Self::Magic { found } => {
                write!(f, "not a region: its first word is {found:#018x}; is this the right file?")
            }
            Self::Format { found, known } => write!(
                f,
                "the region has format {found}, and this library reads format {known}; open it with the library \
                 that made it"
            ),
            Self::Checksum { found, computed } => {
                write!(f, "the region's superblock is corrupt: checksum {found:#010x}, computed {computed:#010x}")
            }
            Self::OtherEngine { found, ours } => write!(
                f,
                "the region was made with an engine {found}, and this engine is one {ours}; open it with an engine \
                 of its kind"
            ),
            Self::Unsealed => {
                f.write_str("the region's file is not sealed against shrinking; make it with `Region::shared`")
            }
            Self::Size { found, promised } => write!(
                f,
                "the region's file has {found} bytes where its superblock promises {promised}; it was cut short or \
                 is still being made"
            ),
            Self::Allocated { found, capacity } => write!(
                f,
                "the superblock says that {found} bytes of {capacity} are allocated, which cannot be; a process \
                 that maps the region has damaged it"
            ),
            Self::Engine(why) => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for RegionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Map { source, .. } => Some(source),
            Self::HugePages { source, .. } => Some(source),
            Self::Populate { source, .. } => Some(source),
            Self::Discard { source, .. } => Some(source),
            Self::Allocate { source, .. } => Some(source),
            Self::Inspect { source } => Some(source),
            Self::Engine(why) => why.source(),
            _ => None,
        }
    }
}

impl From<EngineError> for RegionError {
    fn from(why: EngineError) -> Self {
        Self::Engine(why)
    }
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBounds {
    /// The first offset of the access.
    pub at: Offset,
    /// The number of words.
    pub words: usize,
}

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, words } = self;
        write!(f, "{words} words at {at} are not in the region; the link that led there is stale or corrupt")
    }
}

impl std::error::Error for OutOfBounds {}
