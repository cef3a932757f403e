//! Counted and checked lookups: a table on one node, and a worker of another node that looks keys
//! up.

use std::sync::Arc;

use drtm_htm::NoHtm;
use drtm_rdma::{Endpoint, Fabric, LocalConfig, LocalFabric, LocalPort, NodeId, Phase, Region, block_on};

use super::scheme::{OWNER, Scheme};
use crate::Error;

/// A table of random keys. A key's number is its index plus one.
#[derive(Debug)]
pub(super) struct Counting<S> {
    pub(super) keys: Vec<u64>,
    pub(super) scheme: S,
    endpoint: Endpoint<LocalPort<NoHtm>>,
}

impl<S: Scheme> Counting<S> {
    pub(super) fn new(records: u64, occupancy: f64, random: &mut fastrand::Rng, seed: u64) -> Result<Self, Error> {
        let keys: Vec<u64> = (0..records).map(|_| random.u64(1..)).collect();
        let region = Arc::new(Region::anonymous(NoHtm, (64 << 20) + records * 512)?);
        let mut scheme = S::build(&region, &keys, occupancy, seed)?;
        let fabric = LocalFabric::new(2, LocalConfig::perfect());
        fabric.register(OWNER, region)?;
        let endpoint = fabric.endpoint(NodeId(0))?;
        block_on(&endpoint, scheme.prepare(endpoint.during(Phase::Lookup)))?;
        let counting = Self { keys, scheme, endpoint };
        // Warm-up: learns addresses, and is not counted.
        counting.look_all_up()?;
        Ok(counting)
    }

    /// Returns the READs that find a key.
    pub(super) fn look_up(&self, index: usize) -> Result<u64, Error> {
        let (key, expected) = (self.keys[index], index as u64 + 1);
        let counted = || self.endpoint.counters().total().reads;
        let before = counted();
        match block_on(&self.endpoint, self.scheme.find(self.endpoint.during(Phase::Lookup), key))? {
            Some(found) if found == expected => Ok(counted() - before),
            found => Err(Error::WrongAnswer { key, expected, found }),
        }
    }

    /// Returns the READs for each key.
    pub(super) fn look_all_up(&self) -> Result<Vec<u64>, Error> {
        (0..self.keys.len()).map(|index| self.look_up(index)).collect()
    }
}
