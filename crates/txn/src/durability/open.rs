//! Opening a directory: its lock, recovery, and the segment that voids what has not happened.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use drtm_htm::Engine;
use drtm_kv::Store;

use super::{
    Durability, Log, LogError,
    format::{SegmentHeader, segment_name},
    log::Writer,
    recovery::Segments,
    replay::replay,
    storage::Storage,
};
use crate::{Error, catalog::Catalog, mutation::Mutation, snapshots::Snapshots, trace::event};

/// How a log is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogConfig {
    pub(crate) mode: Durability,
    pub(crate) flush_within: Duration,
    pub(crate) segment_bytes: u64,
    pub(crate) fault: Option<Mutation>,
}

/// Recovers a database from its log, and opens the log for what comes.
pub(crate) fn open<E: Engine>(
    storage: &Arc<dyn Storage>,
    (store, snapshots, catalog): (&Store<E>, &Snapshots, &Catalog<E>),
    config: LogConfig,
) -> Result<Arc<Log<E>>, Error> {
    let LogConfig { mode, flush_within, segment_bytes, fault } = config;
    let directory = storage.name();
    let lock = match storage.lock().map_err(LogError::io("lock", &directory))? {
        Ok(lock) => lock,
        Err(holder) => return Err(LogError::InUse { directory, holder }.into()),
    };
    let segments = Segments::read(&**storage)?;
    let recovered = segments.recover(fault)?;
    replay(&recovered, (store, catalog), fault)?;
    let begins = recovered.next_epoch()?;
    let mut previous = None;
    let (log, sequence) = match recovered.last {
        None => (random(), 0),
        Some((last, end)) => {
            // What was read may not be durable yet: a process that is killed leaves it in the system's memory.
            let name = segment_name(last.sequence);
            let file = storage.open(&name).map_err(LogError::io("open", &name))?;
            file.sync().map_err(LogError::io("sync", &name))?;
            previous = Some((file, name, end));
            (last.log, last.sequence)
        }
    };
    let header = SegmentHeader { log, sequence: sequence + 1, after: recovered.durable, begins };
    let syncs_directory = fault != Some(Mutation::DirectoryNotSynced);
    let writer = Writer::create(Arc::clone(storage), header, segment_bytes, syncs_directory)?;
    // What is behind the last valid frame is void now, and its space is the system's again.
    if let Some((file, name, end)) = previous {
        file.truncate(end).map_err(LogError::io("truncate", name))?;
    }
    if fault != Some(Mutation::NumberNotRestored) {
        store.region().engine().store(snapshots.number(store)?, begins);
    }
    event!(info, directory = directory.as_str(), epoch = recovered.durable, "a log has been recovered");
    let log = Log::new((store, snapshots), mode, fault, (writer, lock));
    if mode == Durability::Async {
        log.flush_every(flush_within)?;
    }
    Ok(log)
}

/// Returns a number that no other log has.
fn random() -> u128 {
    let half = || u128::from(RandomState::new().hash_one(std::process::id()));
    half() << 64 | half()
}
