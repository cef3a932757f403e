//! Reads of a cluster's rows beside its transactions: by workloads' checks, after all of these have
//! ended, and to fill caches before they begin.

use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{AsKey, Codec, Config, Key, Kind, Table, Transaction as _, cluster::Worker};

use crate::Error;

/// The number of rows that are read at a time.
const AT_A_TIME: usize = 64;

/// Reads the rows of these keys from all nodes. Missing rows are left out.
pub async fn read<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>, K: Key + Copy, C: Codec, O: Kind>(
    worker: &Worker<'_, F, S>,
    table: Table<K, C, O>,
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

/// Looks up the rows of these keys, so that their places are cached.
pub async fn look_up<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>, K: Key + Copy, C: Codec, O: Kind>(
    worker: &Worker<'_, F, S>,
    table: Table<K, C, O>,
    mut keys: impl Iterator<Item = K>,
) -> Result<(), Error>
where
    for<'k> &'k K: AsKey<K>,
{
    loop {
        let some: Vec<K> = keys.by_ref().take(AT_A_TIME).collect();
        if some.is_empty() {
            return Ok(());
        }
        worker.transact(async |tx| tx.locate(table, &some).await).await?;
    }
}
