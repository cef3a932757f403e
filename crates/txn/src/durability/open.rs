//! Opening a directory: locking it, recovering it, and starting a segment that voids undecided
//! epochs.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use drtm_htm::Engine;

use super::{
    Durability, Log, LogError,
    checkpoint::{CheckpointImage, newest, remove},
    format::{INCOMPLETE, LOCK, SegmentHeader, number_of, segment_name, sequence_of},
    log::{LogConfig, Memory, UNFINISHED, Writer, WriterConfig},
    progress::Observer,
    recovery::{Base, Segments},
    replay::{Sources, replay},
    storage::Storage,
};
use crate::{Error, mutation::Mutation, trace::event};

/// Recovers a database from its log, and opens the log for writing.
pub(crate) fn open<E: Engine>(
    (storage, creation): (&Arc<dyn Storage>, Creation),
    memory: Memory<'_, E>,
    config: LogConfig,
    observer: &Observer,
) -> Result<Arc<Log<E>>, Error> {
    let LogConfig { mode, segment_bytes, fault, .. } = config;
    let (store, snapshots, catalog) = memory;
    let directory = storage.name();
    // Nothing is written to a directory that is refused, not even the lock.
    admit(&**storage, creation)?;
    let lock = match storage.lock().map_err(LogError::io("lock", &directory))? {
        Ok(lock) => lock,
        Err(holder) => return Err(LogError::InUse { directory, holder }.into()),
    };
    // Another process may have created it meanwhile.
    let names = admit(&**storage, creation)?;
    let is_unfinished = |name: &String| name.strip_suffix(UNFINISHED).is_some_and(is_part);
    let (unfinished, names): (Vec<_>, Vec<_>) = names.into_iter().partition(is_unfinished);
    remove(&**storage, &unfinished)?;
    let checkpoint = match newest(&names) {
        None => None,
        Some((name, number)) => Some(CheckpointImage::open(&**storage, name, number)?),
    };
    let header = checkpoint.as_ref().map(|checkpoint| checkpoint.header);
    let base = header.map(|header| Base { log: header.log, first: header.first, since: header.since });
    let segments = Segments::read(&**storage, &names, base, observer)?;
    let recovered = segments.recover(fault)?;
    if let Some(checkpoint) = &checkpoint
        && checkpoint.end.until > recovered.durable
        && fault != Some(Mutation::CheckpointTooEarly)
    {
        return Err(checkpoint.damaged(0, "the log ends before the checkpoint does").into());
    }
    let sources = Sources { recovered: &recovered, checkpoint: checkpoint.as_ref() };
    replay(sources, (store, catalog), observer, fault)?;
    let (begins, finished) = recovered.survey()?;
    let mut previous = None;
    let (log, sequence) = match recovered.last {
        None => (random(), 0),
        Some((last, end)) => {
            // What was read may not be durable yet: the writes of a killed process may be only in
            // the system's cache.
            let name = segment_name(last.sequence);
            let file = storage.open(&name).map_err(LogError::io("open", &name))?;
            file.sync().map_err(LogError::io("sync", &name))?;
            previous = Some((file, name, end));
            (last.log, last.sequence)
        }
    };
    let segment = SegmentHeader { log, sequence: sequence + 1, after: recovered.durable, begins };
    let writer = Writer::create(Arc::clone(storage), segment, WriterConfig { limit: segment_bytes, fault }, finished)?;
    // The bytes behind the last valid frame are void now, and their space is freed.
    if let Some((file, name, end)) = previous {
        file.truncate(end).map_err(LogError::io("truncate", name))?;
    }
    // Files that the checkpoint replaces are removed too. Its name is durable by now.
    if let Some(header) = header {
        let is_older = |name: &String| {
            number_of(name).is_some_and(|number| number < header.number)
                || sequence_of(name).is_some_and(|sequence| sequence < header.first)
        };
        remove(&**storage, &names.into_iter().filter(is_older).collect::<Vec<_>>())?;
    }
    if fault != Some(Mutation::NumberNotRestored) {
        store.region().engine().store(snapshots.number(store)?, begins);
    }
    event!(info, directory = directory.as_str(), epoch = recovered.durable, "a log has been recovered");
    let last_checkpoint = header.map_or(0, |header| header.number);
    let log = Log::new(memory, config, (Arc::clone(storage), lock), (writer, last_checkpoint));
    if mode == Durability::Async {
        log.start_flusher()?;
    }
    Ok(log)
}

/// Whether opening a directory creates a database there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Creation {
    /// There must be one.
    No,
    /// If there is none.
    IfMissing,
    /// There must be none.
    New,
}

/// The most names of files that an error lists.
const MOST_NAMED: usize = 4;

/// Returns whether a file of this name is a segment or a checkpoint.
fn is_part(name: &str) -> bool {
    sequence_of(name).is_some() || number_of(name).is_some()
}

/// Returns the names of a directory's files, if a database may be opened or created there.
fn admit(storage: &dyn Storage, creation: Creation) -> Result<Vec<String>, LogError> {
    let directory = storage.name();
    let names = storage.list().map_err(LogError::io("list", &directory))?;
    if names.iter().any(|name| name == INCOMPLETE) {
        return Err(LogError::Incomplete { directory });
    }
    let is_own = |name: &str| name == LOCK || is_part(name.strip_suffix(UNFINISHED).unwrap_or(name));
    let foreign = || names.iter().filter(|name| !is_own(name)).take(MOST_NAMED).cloned().collect::<Vec<_>>();
    match (names.iter().any(|name| is_part(name)), creation) {
        (true, Creation::New) => Err(LogError::DatabaseExists { directory }),
        // The file system or a tool may have put other files there: `docs/decisions/0077`.
        (true, Creation::No | Creation::IfMissing) => Ok(names),
        (false, _) if !foreign().is_empty() => Err(LogError::Foreign { directory, files: foreign() }),
        (false, Creation::No) => Err(LogError::NoDatabase { directory }),
        (false, Creation::IfMissing | Creation::New) => Ok(names),
    }
}

/// Returns a random number that identifies a log.
fn random() -> u128 {
    let half = || u128::from(RandomState::new().hash_one(std::process::id()));
    half() << 64 | half()
}
