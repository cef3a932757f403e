//! Pilaf's table: cuckoo hashing with three hashes and one slot of 32 bytes for each, read in turn.

use std::sync::Arc;

use drtm_htm::NoHtm;
use drtm_rdma::Region;

use super::scheme::{Peer, Scheme, Slots, hash, number_of, remote};
use crate::Error;

const HASHES: u64 = 3;

/// The number of moves after which an insertion fails.
const PATIENCE: u32 = 100_000;

/// A table of single slots.
#[derive(Debug)]
pub(super) struct Cuckoo {
    /// Only every second entry is a slot, so that each slot has 32 bytes.
    slots: Slots,
    count: u64,
}

impl Cuckoo {
    fn slot(&self, key: u64, which: u64) -> u64 {
        2 * (hash(key, which) % self.count)
    }

    /// Inserts into the first empty one of the key's three slots. If there is none, replaces a key,
    /// which moves to another slot of its own.
    fn insert(&self, mut key: u64, mut number: u64, random: &mut fastrand::Rng) -> Result<(), Error> {
        for _ in 0..PATIENCE {
            for which in 0..HASHES {
                let slot = self.slot(key, which);
                if self.slots.get(slot)?.is_none() {
                    return self.slots.set(slot, key, number);
                }
            }
            let slot = self.slot(key, random.u64(0..HASHES));
            let evicted = self.slots.get(slot)?;
            self.slots.set(slot, key, number)?;
            match evicted {
                Some(evicted) => (key, number) = evicted,
                None => return Ok(()),
            }
        }
        Err(Error::DoesNotFit { scheme: "cuckoo" })
    }
}

impl Scheme for Cuckoo {
    fn build(region: &Arc<Region<NoHtm>>, keys: &[u64], occupancy: f64, seed: u64) -> Result<Self, Error> {
        let count = (keys.len() as f64 / occupancy).ceil() as u64;
        let table = Self { slots: Slots::new(region, 2 * count)?, count };
        let mut random = fastrand::Rng::with_seed(seed);
        for (index, key) in keys.iter().enumerate() {
            table.insert(*key, index as u64 + 1, &mut random)?;
        }
        Ok(table)
    }

    async fn prepare(&mut self, _peer: Peer<'_>) -> Result<(), Error> {
        Ok(())
    }

    async fn find(&self, peer: Peer<'_>, key: u64) -> Result<Option<u64>, Error> {
        for which in 0..HASHES {
            let fetched = peer.read(remote(self.slots.place(self.slot(key, which))), 4).await?;
            if let Some(number) = number_of(&fetched[..2], key) {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }
}
