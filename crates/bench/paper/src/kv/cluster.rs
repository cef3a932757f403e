//! Ours: cluster chaining, eight keys to a bucket.

use std::sync::Arc;

use drtm_htm::{Engine, NoHtm};
use drtm_kv::{BucketCache, HashConfig, HashPeer, HashTable, Inline, KvTable, Store};
use drtm_rdma::{Offset, Region};

use super::scheme::{Peer, Scheme, remote};
use crate::Error;

/// A table of the store's, and the peer that looks keys up in it.
#[derive(Debug)]
pub(super) struct Cluster {
    region: Arc<Region<NoHtm>>,
    table: HashTable<NoHtm>,
    peer: Option<HashPeer<Inline>>,
}

impl Cluster {
    /// Remembers buckets in this cache from now on.
    pub(super) fn remember(&mut self, cache: Arc<BucketCache>) {
        self.peer = self.peer.take().map(|peer| peer.with_cache(cache));
    }
}

/// Where a record's value begins. The table is the store's own, so the layout is known here only
/// for checking.
const VALUE: u64 = 32;

impl Scheme for Cluster {
    fn build(region: &Arc<Region<NoHtm>>, keys: &[u64], occupancy: f64, _seed: u64) -> Result<Self, Error> {
        let store = Store::in_region(Arc::clone(region))?;
        let config = HashConfig::for_keys(keys.len() as u64).with_occupancy(occupancy).fixed();
        let table = store.hash_table(config)?;
        let mut worker = store.worker().expect("a worker");
        for (index, key) in keys.iter().enumerate() {
            table.insert(&mut worker, *key, &(index as u64 + 1).to_le_bytes())?;
        }
        Ok(Self { region: Arc::clone(region), table, peer: None })
    }

    async fn prepare(&mut self, peer: Peer<'_>) -> Result<(), Error> {
        self.peer = Some(HashPeer::open(peer, remote(self.table.location())).await?);
        Ok(())
    }

    async fn find(&self, peer: Peer<'_>, key: u64) -> Result<Option<u64>, Error> {
        let Some(table) = &self.peer else { return Ok(None) };
        let Some(location) = table.find(peer, key).await? else { return Ok(None) };
        // The record itself is looked at from its own node: what counts is finding it.
        let value = Offset::new(location.record.offset.bytes() + VALUE);
        Ok(Some(self.region.engine().load(&self.region.words(value, 1)?[0])))
    }
}
