//! Lookups with a cache. Each depends on the ones before, so keys are drawn by their weight.

use std::sync::Arc;

use drtm_kv::BucketCache;

use super::{cluster::Cluster, counting::Counting};
use crate::Error;

/// READs per lookup, with a cache of each size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reads {
    /// With an initially empty cache, during as many lookups as there are keys.
    pub(super) cold: f64,
    /// During the same number of lookups afterwards.
    pub(super) warm: f64,
}

/// Looks keys up in a table, with caches of these sizes in bytes. `weight` is the frequency of a
/// key by its rank.
pub(super) fn reads(
    records: u64,
    occupancy: f64,
    seed: u64,
    sizes: &[u64],
    weight: impl Fn(usize) -> f64,
) -> Result<Vec<Reads>, Error> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut counting = Counting::<Cluster>::new(records, occupancy, &mut random, seed)?;
    // Hot keys are independent of the order of insertion.
    let mut ranked: Vec<usize> = (0..counting.keys.len()).collect();
    random.shuffle(&mut ranked);
    let sums: Vec<f64> = (0..ranked.len())
        .scan(0.0, |sum, rank| {
            *sum += weight(rank);
            Some(*sum)
        })
        .collect();
    let total = sums.last().copied().unwrap_or_default();
    sizes
        .iter()
        .map(|bytes| {
            counting.scheme.remember(Arc::new(BucketCache::new(*bytes)?));
            let mut look_up_many = || -> Result<f64, Error> {
                let mut reads = 0;
                for _ in 0..records {
                    let drawn = random.f64() * total;
                    let rank = sums.partition_point(|sum| *sum <= drawn).min(ranked.len() - 1);
                    reads += counting.look_up(ranked[rank])?;
                }
                Ok(reads as f64 / records as f64)
            };
            Ok(Reads { cold: look_up_many()?, warm: look_up_many()? })
        })
        .collect()
}
