//! What fabrics need of a region besides its words: memory that is shared by a file, and words that
//! are alarms.

use std::fs::File;

#[cfg(feature = "verbs")]
use drtm_htm::Word;
use drtm_htm::{Engine, Sharing};
use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create},
    io::Errno,
};

use super::{OutOfBounds, Region, RegionError, superblock};
use crate::{Offset, sync::alarm::Alarm};

impl<E: Engine> Region<E> {
    /// Creates a region that other processes can map when they get its file, which the fabric
    /// passes. The file has no name and no size limit but the machine's memory, and is sealed
    /// against truncation.
    ///
    /// # Errors
    ///
    /// As for [`create`](Self::create).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::Region;
    ///
    /// let region = Region::shared(NoHtm, 1 << 30)?;
    /// let offset = region.extend(64, 64)?;
    /// # let _ = offset;
    /// # Ok::<(), drtm_rdma::RegionError>(())
    /// ```
    pub fn shared(engine: E, capacity: u64) -> Result<Self, RegionError> {
        engine.admits(Sharing::Processes)?;
        let failed = |errno: Errno| RegionError::Allocate { bytes: superblock::BYTES, source: errno.into() };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file: File = memfd_create("drtm-region", flags).map_err(failed)?.into();
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::SEAL).map_err(failed)?;
        Self::create(engine, file, capacity)
    }

    /// Opens a region that another process created with [`shared`](Self::shared): one whose file
    /// cannot be truncated.
    pub(crate) fn open_sealed(engine: E, file: File) -> Result<Self, RegionError> {
        match fcntl_get_seals(&file) {
            Ok(seals) if seals.contains(SealFlags::SHRINK) => Self::open(engine, file),
            _ => Err(RegionError::Unsealed),
        }
    }

    /// Returns the address of a word, for code that accesses memory by itself.
    #[cfg(feature = "verbs")]
    pub(crate) fn address(&self, word: u64) -> *const Word {
        self.mapping.address(word)
    }

    /// Returns the offset of a word, if it is one of this region's.
    #[cfg(feature = "verbs")]
    pub(crate) fn offset_of(&self, word: &Word) -> Option<u64> {
        let offset = std::ptr::from_ref(word).addr().checked_sub(self.mapping.address(0).addr())? as u64;
        (offset < self.capacity).then_some(offset)
    }

    /// Returns the file of a shared region, to be passed to other processes.
    pub(crate) fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Returns a word as an alarm. All processes that map it use it as one, and never as a word.
    pub(crate) fn alarm(&self, at: Offset) -> Result<&Alarm, OutOfBounds> {
        self.words(at, 1)?;
        // SAFETY: in bounds, as just checked; and this crate uses these words as alarms only, so
        // that no access of another size meets them.
        Ok(unsafe { self.mapping.alarm(at.word() as usize) })
    }
}
