//! What can be wrong with an [`NvRegion`](super::NvRegion).

use std::{fmt, io, path::PathBuf};

use crate::{OutOfBounds, RegionError};

/// Why a region in memory that outlives the process cannot be made, opened, or written.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{NvError, NvRegion};
///
/// let missing = NvRegion::open(NoHtm, std::path::Path::new("/dev/shm/drtm-no-such-file"));
/// assert!(matches!(missing, Err(NvError::File { .. })));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum NvError {
    /// The file cannot be made, or opened.
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is no region, or has no room.
    Region(RegionError),
    /// The words are not in the region.
    OutOfBounds(OutOfBounds),
    /// The region is not one of committed words, or its header is damaged.
    Header {
        /// What is wrong with it.
        why: &'static str,
    },
    /// A writer's redo is damaged: what it has committed last is not known.
    Redo {
        /// The writer's number.
        writer: usize,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A commit stores too many words.
    Words {
        /// How many.
        asked: u64,
        /// How many it may store.
        most: u64,
    },
    /// The region has as many writers as it can have.
    Writers {
        /// How many.
        most: usize,
    },
}

impl fmt::Display for NvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, source } => write!(f, "cannot open {}: {source}", path.display()),
            Self::Region(why) => why.fmt(f),
            Self::OutOfBounds(why) => why.fmt(f),
            Self::Header { why } => {
                write!(f, "not a region of committed words, or its header is damaged: {why}; is this the right file?")
            }
            Self::Redo { writer, why } => {
                write!(f, "the redo of writer {writer} is damaged: {why}; what it committed last may be missing")
            }
            Self::Words { asked, most } => write!(f, "a commit of {asked} words, which may store {most}"),
            Self::Writers { most } => write!(f, "a region has {most} writers at most; open it again to have others"),
        }
    }
}

impl std::error::Error for NvError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File { source, .. } => Some(source),
            Self::Region(why) => Some(why),
            Self::OutOfBounds(why) => Some(why),
            _ => None,
        }
    }
}

impl From<RegionError> for NvError {
    fn from(why: RegionError) -> Self {
        Self::Region(why)
    }
}

impl From<OutOfBounds> for NvError {
    fn from(why: OutOfBounds) -> Self {
        Self::OutOfBounds(why)
    }
}
