//! The regions that a node has registered.

use std::sync::{Arc, OnceLock};

use drtm_htm::Engine;
use parking_lot::Mutex;

use crate::{FabricError, NodeId, Region, RegionId};

/// The most regions that a node can register.
const REGIONS: usize = 256;

/// Regions by their numbers.
#[derive(Debug)]
pub(crate) struct Registry<E: Engine> {
    /// Filled from the front, and then never changed, so it is read without a lock.
    regions: Box<[OnceLock<Arc<Region<E>>>]>,
    registration: Mutex<()>,
}

impl<E: Engine> Registry<E> {
    pub(crate) fn new() -> Self {
        Self { regions: (0..REGIONS).map(|_| OnceLock::new()).collect(), registration: Mutex::new(()) }
    }

    /// Registers a region of a node, unless the node is gone.
    pub(crate) fn register(
        &self,
        node: NodeId,
        region: Arc<Region<E>>,
        is_over: impl FnOnce() -> bool,
    ) -> Result<RegionId, FabricError> {
        let _one_at_a_time = self.registration.lock();
        if is_over() {
            return Err(FabricError::Closed { node });
        }
        let full = FabricError::TooManyRegions { node, most: REGIONS };
        let index = self.regions.iter().position(|place| place.get().is_none()).ok_or(full)?;
        self.regions[index].set(region).map_err(|_| full)?;
        Ok(RegionId(index as u16))
    }

    #[inline(always)]
    pub(crate) fn get(&self, region: RegionId) -> Option<&Arc<Region<E>>> {
        self.regions.get(usize::from(region.0))?.get()
    }
}
