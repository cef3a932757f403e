//! Incarnations of nodes, as this process sees them: their memory, and their presence.

use std::sync::{Arc, OnceLock};

use drtm_htm::{Engine, LINE_WORDS, Word};

use crate::{
    Incarnation, NodeId, Region, Remote, VerbError,
    fabric::lifetime::{Life, Lifetime},
};

use super::{REGIONS, control::Control};

/// One incarnation.
#[derive(Debug)]
pub struct Peer<E: Engine> {
    lifetime: Lifetime,
    pub(super) control: Control,
    /// Set as they become known, and then never changed, so they are read without a lock.
    pub(super) regions: Box<[OnceLock<Arc<Region<E>>>]>,
}

impl<E: Engine> Life for Peer<E> {
    #[inline(always)]
    fn lifetime(&self) -> &Lifetime {
        &self.lifetime
    }
}

impl<E: Engine> Peer<E> {
    pub(super) fn new(node: NodeId, incarnation: Incarnation, control: Control) -> Self {
        let regions = (0..REGIONS).map(|_| OnceLock::new()).collect();
        Self { lifetime: Lifetime::new(node, incarnation), control, regions }
    }

    /// Returns a region. `None` if it is registered, but not known here yet.
    #[inline(always)]
    fn region(&self, at: Remote) -> Result<Option<&Arc<Region<E>>>, VerbError> {
        match self.regions.get(usize::from(at.region.0)).and_then(OnceLock::get) {
            Some(region) => Ok(Some(region)),
            None => self.unknown(at),
        }
    }

    #[cold]
    fn unknown(&self, at: Remote) -> Result<Option<&Arc<Region<E>>>, VerbError> {
        if usize::from(at.region.0) < self.control.regions().min(REGIONS) {
            return Ok(None);
        }
        Err(VerbError::UnknownRegion { node: self.node(), region: at.region })
    }

    /// Returns words of this node, and the engine to access them with. `None` if the region is not
    /// known here yet.
    #[inline(always)]
    pub(super) fn words(&self, at: Remote, count: usize) -> Result<Option<(&E, &[Word])>, VerbError> {
        if self.is_over() {
            return Err(self.gone());
        }
        let Some(region) = self.region(at)? else { return Ok(None) };
        let words = region.words(at.offset, count).map_err(|_| VerbError::OutOfBounds { at, words: count })?;
        Ok(Some((region.engine(), words)))
    }

    /// Prefetches the lines of a READ that is posted. It is a hint.
    #[inline(always)]
    pub(super) fn prefetch(&self, at: Remote, words: usize) {
        /// A processor does not prefetch more lines at a time.
        const MOST: usize = 8 * LINE_WORDS;
        if let Some(region) = self.regions.get(usize::from(at.region.0)).and_then(OnceLock::get) {
            let mut word = at.offset.word();
            let end = word + words.min(MOST) as u64;
            while word < end {
                region.prefetch(word);
                word = (word | (LINE_WORDS as u64 - 1)) + 1;
            }
        }
    }
}
