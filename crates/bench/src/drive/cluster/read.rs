//! Reads of a cluster's rows by workloads' checks, after all transactions have ended.

use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    AsKey, Codec, Config, Key, Kind,
    cluster::{ClusterTable, Worker},
};

use crate::Error;

/// The number of rows that are read at a time.
const AT_A_TIME: usize = 64;

/// Reads the rows of these keys from all nodes. Missing rows are left out.
pub(crate) async fn read<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>, K: Key + Copy, C: Codec, O: Kind>(
    worker: &Worker<'_, F, S>,
    table: ClusterTable<K, C, O>,
    keys: impl Iterator<Item = K>,
) -> Result<Vec<(K, C::Value)>, Error>
where
    for<'k> &'k K: AsKey<K>,
{
    let keys: Vec<K> = keys.collect();
    let mut rows = Vec::new();
    for keys in keys.chunks(AT_A_TIME) {
        let found = worker.transact(async |tx| tx.get_many(table, keys).await).await?;
        rows.extend(keys.iter().copied().zip(found).filter_map(|(key, row)| Some((key, row?))));
    }
    Ok(rows)
}
