//! FaRM's table: hopscotch hashing with a neighbourhood of eight, as a pair of buckets of four, and
//! overflow chains.
//!
//! A key is in its bucket or the next one, which one READ fetches together, or in a chain of
//! overflow buckets.

use std::{collections::HashMap, sync::Arc};

use drtm_htm::NoHtm;
use drtm_rdma::Region;

use super::scheme::{Peer, Scheme, Slots, hash, number_of, remote};
use crate::Error;

/// Slots in a bucket, half the neighbourhood.
const BUCKET: u64 = 4;

/// Words in a bucket.
const WORDS: usize = 2 * BUCKET as usize;

/// The number of buckets that an insertion searches for a free slot.
const REACH: u64 = 64;

/// Buckets of four slots, and overflow buckets.
#[derive(Debug)]
pub(super) struct Hopscotch {
    slots: Slots,
    buckets: u64,
    /// The chains. A real peer learns of a chain from the pair that it fetches first.
    chains: HashMap<u64, Vec<u64>>,
    overflow: Slots,
    overflows: u64,
}

impl Hopscotch {
    fn home(&self, key: u64) -> u64 {
        hash(key, 0) % self.buckets
    }

    fn free_slot(&self, slots: &Slots, bucket: u64) -> Result<Option<u64>, Error> {
        for slot in bucket * BUCKET..(bucket + 1) * BUCKET {
            if slots.get(slot)?.is_none() {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    fn insert(&mut self, key: u64, number: u64) -> Result<(), Error> {
        let home = self.home(key);
        // Finds the nearest free slot, and brings it nearer by moving keys away from home.
        let last = self.buckets.min(home + REACH);
        let mut room = None;
        for bucket in home..=last {
            if let Some(slot) = self.free_slot(&self.slots, bucket)? {
                room = Some(slot);
                break;
            }
        }
        while let Some(slot) = room {
            let bucket = slot / BUCKET;
            if bucket <= home + 1 {
                return self.slots.set(slot, key, number);
            }
            room = self.hop(bucket - 1, slot)?;
        }
        self.chain(home, key, number)
    }

    /// Moves a key that is at home in `bucket` to the free `slot` behind it. Returns the slot that
    /// it leaves.
    fn hop(&self, bucket: u64, slot: u64) -> Result<Option<u64>, Error> {
        for from in bucket * BUCKET..(bucket + 1) * BUCKET {
            if let Some((key, number)) = self.slots.get(from)?
                && self.home(key) == bucket
            {
                self.slots.set(slot, key, number)?;
                self.slots.clear(from)?;
                return Ok(Some(from));
            }
        }
        Ok(None)
    }

    fn chain(&mut self, home: u64, key: u64, number: u64) -> Result<(), Error> {
        let last = self.chains.get(&home).and_then(|chain| chain.last()).copied();
        if let Some(last) = last
            && let Some(slot) = self.free_slot(&self.overflow, last)?
        {
            return self.overflow.set(slot, key, number);
        }
        let new = self.overflows;
        self.overflows += 1;
        self.chains.entry(home).or_default().push(new);
        self.overflow.set(new * BUCKET, key, number)
    }
}

impl Scheme for Hopscotch {
    fn build(region: &Arc<Region<NoHtm>>, keys: &[u64], occupancy: f64, _seed: u64) -> Result<Self, Error> {
        let buckets = (keys.len() as f64 / occupancy / BUCKET as f64).ceil() as u64;
        // One more bucket behind the last, and overflow buckets for the largest possible number of
        // keys.
        let slots = Slots::new(region, (buckets + 1) * BUCKET)?;
        let overflow = Slots::new(region, keys.len() as u64 * BUCKET)?;
        let mut table = Self { slots, buckets, chains: HashMap::new(), overflow, overflows: 0 };
        for (index, key) in keys.iter().enumerate() {
            table.insert(*key, index as u64 + 1)?;
        }
        Ok(table)
    }

    async fn prepare(&mut self, _peer: Peer<'_>) -> Result<(), Error> {
        Ok(())
    }

    async fn find(&self, peer: Peer<'_>, key: u64) -> Result<Option<u64>, Error> {
        let home = self.home(key);
        let pair = peer.read(remote(self.slots.place(home * BUCKET)), 2 * WORDS).await?;
        if let Some(number) = number_of(&pair, key) {
            return Ok(Some(number));
        }
        drop(pair);
        for bucket in self.chains.get(&home).into_iter().flatten() {
            let fetched = peer.read(remote(self.overflow.place(bucket * BUCKET)), WORDS).await?;
            if let Some(number) = number_of(&fetched, key) {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }
}
