//! The memory of a node that has died, read-only.

use std::{fmt, sync::Arc};

use drtm_htm::Engine;

use crate::{Offset, OutOfBounds, Region};

/// A region of a dead incarnation, for recovery to read: returned by
/// [`Fabric::salvage`](crate::Fabric::salvage).
///
/// Its contents are as the incarnation left them, except for operations of peers that were pending.
/// It is read-only.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use drtm_htm::{Engine, NoHtm};
/// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Region};
///
/// let fabric = LocalFabric::new(2, LocalConfig::perfect());
/// let memory = Arc::new(Region::anonymous(NoHtm, 1 << 20)?);
/// let offset = memory.extend(8, 8)?;
/// NoHtm.store(&memory.words(offset, 1)?[0], 7);
/// let region = fabric.register(NodeId(1), memory)?;
///
/// assert!(fabric.salvage(NodeId(1), region).is_err(), "it is alive");
/// fabric.kill(NodeId(1))?;
/// let remains = fabric.salvage(NodeId(1), region)?;
/// assert_eq!(remains.load(offset)?, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Salvage<E: Engine> {
    region: Arc<Region<E>>,
}

impl<E: Engine> Salvage<E> {
    pub(crate) fn new(region: Arc<Region<E>>) -> Self {
        Self { region }
    }

    /// Returns the bytes that were allocated, from the region's beginning.
    #[must_use]
    pub fn allocated(&self) -> u64 {
        self.region.allocated()
    }

    /// Returns the root with this index, below [`ROOTS`](crate::ROOTS). `None` if there is no such
    /// root.
    #[must_use]
    pub fn root(&self, index: usize) -> Option<u64> {
        self.region.root(index).map(|word| self.region.engine().load(word))
    }

    /// Returns the word at an offset.
    ///
    /// # Errors
    ///
    /// When it is not allocated, or the offset is not aligned to a word.
    pub fn load(&self, at: Offset) -> Result<u64, OutOfBounds> {
        let words = self.region.words(at, 1)?;
        Ok(self.region.engine().load(&words[0]))
    }

    /// Copies words to `into`, as many as it has.
    ///
    /// # Errors
    ///
    /// When they are not all allocated, or the offset is not aligned to a word.
    pub fn read(&self, at: Offset, into: &mut [u64]) -> Result<(), OutOfBounds> {
        for (word, value) in self.region.words(at, into.len())?.iter().zip(into) {
            *value = self.region.engine().load(word);
        }
        Ok(())
    }
}

impl<E: Engine> fmt::Debug for Salvage<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Salvage").field("allocated", &self.allocated()).finish_non_exhaustive()
    }
}
