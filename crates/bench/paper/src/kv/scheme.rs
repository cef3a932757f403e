//! Common parts of the compared hash tables: memory on one node, and lookups from another.

use std::sync::Arc;

use drtm_htm::{Engine, NoHtm};
use drtm_rdma::{LocalPort, NodeId, Offset, Region, RegionId, Remote, Verbs};

use crate::Error;

/// A worker's connection to the other node, on the in-process fabric.
pub(super) type Peer<'e> = Verbs<'e, LocalPort<NoHtm>>;

/// A hash table that maps each key to a number: its index plus one.
pub(super) trait Scheme: Sized {
    /// Builds a table of these keys in `region`, with this share of its slots in use.
    fn build(region: &Arc<Region<NoHtm>>, keys: &[u64], occupancy: f64, seed: u64) -> Result<Self, Error>;

    /// Does what a peer does before its first lookup.
    async fn prepare(&mut self, peer: Peer<'_>) -> Result<(), Error>;

    /// Looks a key up from another node. Returns its number.
    async fn find(&self, peer: Peer<'_>, key: u64) -> Result<Option<u64>, Error>;
}

/// The node that owns the table.
pub(super) const OWNER: NodeId = NodeId(1);

/// Returns the remote address of an offset in the table's region.
pub(super) fn remote(offset: Offset) -> Remote {
    Remote { node: OWNER, region: RegionId(0), offset }
}

/// An array of slots of two words, key and number, in buckets. A number of zero is an empty slot.
#[derive(Debug)]
pub(super) struct Slots {
    region: Arc<Region<NoHtm>>,
    at: Offset,
}

impl Slots {
    pub(super) const BYTES: u64 = 16;

    pub(super) fn new(region: &Arc<Region<NoHtm>>, count: u64) -> Result<Self, Error> {
        let at = region.extend(count * Self::BYTES, 64)?;
        Ok(Self { region: Arc::clone(region), at })
    }

    pub(super) fn place(&self, slot: u64) -> Offset {
        self.at + slot * Self::BYTES
    }

    /// Returns a slot's key and number; `None` if the slot is empty.
    pub(super) fn get(&self, slot: u64) -> Result<Option<(u64, u64)>, Error> {
        let words = self.region.array::<2>(self.place(slot))?;
        let [key, number] = [0, 1].map(|word| self.region.engine().load(&words[word]));
        Ok((number != 0).then_some((key, number)))
    }

    pub(super) fn set(&self, slot: u64, key: u64, number: u64) -> Result<(), Error> {
        let words = self.region.array::<2>(self.place(slot))?;
        self.region.engine().store(&words[0], key);
        self.region.engine().store(&words[1], number);
        Ok(())
    }

    pub(super) fn clear(&self, slot: u64) -> Result<(), Error> {
        self.set(slot, 0, 0)
    }
}

/// Returns a key's number among fetched slots.
pub(super) fn number_of(fetched: &[u64], key: u64) -> Option<u64> {
    fetched.as_chunks::<2>().0.iter().find(|[found, number]| *found == key && *number != 0).map(|[_, number]| *number)
}

/// Returns one of several practically independent hashes of a key.
pub(super) fn hash(key: u64, which: u64) -> u64 {
    let mixed = (key ^ which.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 32
}
