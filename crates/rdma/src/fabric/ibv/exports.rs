//! The regions of a node, as its NIC knows them; and as a peer's endpoint has been told.
//!
//! A NIC is told of memory that is there, and a region grows. So a region is registered in parts:
//! at first what is allocated, and some more; and when a peer asks for something behind that,
//! another part. Each part begins some way before the end of the one before it, so that every
//! operation is within a part.

use std::sync::Arc;

use drtm_htm::{Engine, Word};
use parking_lot::{Mutex, RwLock};

use crate::{Buffers, FabricError, NodeId, Region, RegionId};

use super::{
    VerbsError,
    setup::{Answer, Extent},
    sys::{Device, Registration},
};

/// Regions that a node can register.
const REGIONS: usize = 256;

/// Parts are whole pages.
const PAGE: u64 = 4 << 10;

/// A part ends at a multiple of this, unless the region ends before.
const GRAIN: u64 = 2 << 20;

/// A part has at least this share more than there was, so that there are few of them.
const SHARE: u64 = 8;

/// How much of a part is in the one before it, too: the most that an operation accesses.
const OVERLAP: u64 = Buffers::LARGE as u64;

/// A region, and its parts in order.
#[derive(Debug)]
struct Export<E: Engine> {
    parts: Mutex<Vec<(Extent, Registration)>>,
    region: Arc<Region<E>>,
}

impl<E: Engine> Export<E> {
    /// Registers what is allocated and was not registered.
    fn catch_up(&self, device: &Arc<Device>, parts: &mut Vec<(Extent, Registration)>) -> Result<u64, VerbsError> {
        let allocated = self.region.allocated().min(self.region.capacity());
        let before = parts.last().map_or(0, |(last, _)| last.end);
        if allocated <= before {
            return Ok(allocated);
        }
        let (start, end) = next_part(before, allocated, self.region.capacity(), self.region.file().is_none());
        let registration = Registration::of_region(device, &self.region, start, end - start)?;
        parts.push((Extent { start, end, key: registration.remote_key() }, registration));
        Ok(allocated)
    }
}

/// Returns where the next part begins and ends, given where the last one ends. Behind the end of a
/// file there is no memory, so `ahead` says whether it may exceed what is allocated.
fn next_part(before: u64, allocated: u64, capacity: u64, ahead: bool) -> (u64, u64) {
    let start = before.saturating_sub(OVERLAP);
    let end = if ahead {
        allocated.max(before + before / SHARE).next_multiple_of(GRAIN)
    } else {
        allocated.next_multiple_of(PAGE)
    };
    (start, end.min(capacity))
}

/// The regions of a node.
#[derive(Debug)]
pub(super) struct Exports<E: Engine> {
    all: RwLock<Vec<Arc<Export<E>>>>,
}

impl<E: Engine> Exports<E> {
    pub(super) fn new() -> Self {
        Self { all: RwLock::default() }
    }

    pub(super) fn register(
        &self,
        device: &Arc<Device>,
        node: NodeId,
        region: Arc<Region<E>>,
    ) -> Result<Result<RegionId, FabricError>, VerbsError> {
        let export = Export { parts: Mutex::default(), region };
        export.catch_up(device, &mut export.parts.lock())?;
        let mut all = self.all.write();
        if all.len() == REGIONS {
            return Ok(Err(FabricError::TooManyRegions { node, most: REGIONS }));
        }
        all.push(Arc::new(export));
        Ok(Ok(RegionId((all.len() - 1) as u16)))
    }

    /// Returns where the NIC finds a word, and the key for that. `None` for a word of no region.
    pub(super) fn place(&self, device: &Arc<Device>, word: &Word) -> Result<Option<(u64, u32)>, VerbsError> {
        let all = self.all.read();
        let found = all.iter().find_map(|export| Some((export, export.region.offset_of(word)?)));
        let Some((export, at)) = found else { return Ok(None) };
        let mut parts = export.parts.lock();
        if parts.last().is_none_or(|(last, _)| last.end <= at) {
            export.catch_up(device, &mut parts)?;
        }
        let part = parts.iter().find(|(extent, _)| (extent.start..extent.end).contains(&at));
        match part {
            Some((extent, _)) => Ok(Some((at, extent.key))),
            None => unreachable!("a word that can be named is allocated, and so registered"),
        }
    }

    /// Returns what a peer is told of a region.
    pub(super) fn tell(&self, device: &Arc<Device>, region: RegionId) -> Result<Answer, VerbsError> {
        let export = self.all.read().get(usize::from(region.0)).cloned();
        let Some(export) = export else { return Ok(Answer::UnknownRegion) };
        let mut parts = export.parts.lock();
        let allocated = export.catch_up(device, &mut parts)?;
        Ok(Answer::Region { allocated, extents: parts.iter().map(|(extent, _)| *extent).collect() })
    }
}

/// A peer's region, as far as is known.
#[derive(Debug, Default)]
pub(super) struct Known {
    allocated: u64,
    extents: Vec<Extent>,
}

impl Known {
    pub(super) fn new(allocated: u64, extents: Vec<Extent>) -> Self {
        Self { allocated, extents }
    }

    /// Returns the key for so many bytes at an offset. `None` if they are not known to be
    /// allocated.
    #[inline]
    pub(super) fn key(&self, at: u64, bytes: u64) -> Option<u32> {
        let end = at.checked_add(bytes).filter(|end| *end <= self.allocated)?;
        let part = self.extents.iter().find(|extent| end <= extent.end)?;
        (part.start <= at).then_some(part.key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However a region grows, every operation within what is allocated is within one part.
        #[test]
        fn every_operation_is_within_a_part(
            steps in proptest::collection::vec(1..40_000_000_u64, 1..20),
            ahead in any::<bool>(),
            place in any::<prop::sample::Index>(),
            words in 1..=OVERLAP / 8,
        ) {
            let capacity = 1 << 32;
            let mut known = Known::default();
            for step in steps {
                known.allocated += step * 8;
                let before = known.extents.last().map_or(0, |last| last.end);
                if known.allocated > before {
                    let (start, end) = next_part(before, known.allocated, capacity, ahead);
                    prop_assert!(start.is_multiple_of(PAGE) && end.is_multiple_of(PAGE) && end <= capacity);
                    known.extents.push(Extent { start, end, key: known.extents.len() as u32 });
                }
            }
            let bytes = (words * 8).min(known.allocated);
            let at = place.index((known.allocated - bytes) as usize / 8 + 1) as u64 * 8;
            let key = known.key(at, bytes).expect("it is allocated");
            let part = known.extents[key as usize];
            prop_assert!(part.start <= at && at + bytes <= part.end);
            prop_assert_eq!(known.key(known.allocated, 8), None);
            prop_assert_eq!(known.key(!7, 16), None);
        }
    }

    #[test]
    fn parts_are_few() {
        let (mut end, mut parts) = (0, 0);
        while end < 1 << 40 {
            end = next_part(end, end + 1, 1 << 41, true).1;
            parts += 1;
        }
        assert!(parts < 130, "{parts}");
    }
}
