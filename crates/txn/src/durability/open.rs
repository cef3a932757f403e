//! Opening a directory: locking it, recovering it, and preparing a segment that voids undecided
//! epochs.
//!
//! What recovery reads needs neither room nor write permission. If only the rest of opening fails
//! for want of these, the database is opened all the same. On a read-only disk it is only read. On
//! a full disk it also takes commits as soon as there is room for a segment.

use std::{
    hash::{BuildHasher, RandomState},
    io,
    sync::Arc,
};

use drtm_htm::Engine;

use super::{
    Durability, Log, LogError,
    checkpoint::{CheckpointImage, newest, remove},
    format::{CheckpointHeader, INCOMPLETE, LOCK, SegmentHeader, is_part, number_of, segment_name, sequence_of},
    log::{LogConfig, Memory, UNFINISHED, Writer, WriterConfig},
    progress::Observer,
    recovery::{Base, Segments},
    replay::{Sources, replay},
    storage::{Access, DirectoryLock, Storage, is_full},
};
use crate::{Error, mutation::Mutation, trace::event};

/// Recovers a database from its log, and opens the log for writing, unless it is only to be read.
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
    let (lock, mut read_only) = lock(&**storage, &config)?;
    // Another process may have created it meanwhile.
    let names = admit(&**storage, creation)?;
    let is_unfinished = |name: &String| name.strip_suffix(UNFINISHED).is_some_and(is_part);
    let (unfinished, names): (Vec<_>, Vec<_>) = names.into_iter().partition(is_unfinished);
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
    let note = replay(sources, (store, catalog), observer, fault)?;
    let (begins, finished) = recovered.survey()?;
    let last = recovered.last.map(|(last, end)| (last.sequence, end));
    if read_only.is_some() && last.is_none() {
        return Err(LogError::io("create a database in", directory)(io::ErrorKind::ReadOnlyFilesystem.into()).into());
    }
    let (log, sequence) = recovered.last.map_or_else(|| (random(), 0), |(last, _)| (last.log, last.sequence));
    let segment = SegmentHeader { log, sequence: sequence + 1, after: recovered.durable, begins };
    let config_of_writer = WriterConfig { limit: segment_bytes, fault };
    let writer = Writer::new(Arc::clone(storage), segment, config_of_writer, finished);
    if read_only.is_none()
        && let Err(error) = tidy_up(&**storage, last, header, (unfinished, names))
    {
        read_only = Some(unwritable(error, &config)?);
    }
    if fault != Some(Mutation::NumberNotRestored) {
        store.region().engine().store(snapshots.number(store)?, begins);
    }
    event!(info, directory = directory.as_str(), epoch = recovered.durable, "a log has been recovered");
    let last_checkpoint = header.map_or(0, |header| header.number);
    let is_written = read_only.is_none();
    let log = Log::new(memory, config, (Arc::clone(storage), lock), (writer, last_checkpoint, read_only), note);
    if is_written {
        log.begin(last.is_none())?;
        if mode == Durability::Async {
            log.start_flusher()?;
        }
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

/// Locks a directory: for reading, if it is only to be read, or is on a read-only disk. Also
/// returns why it is only read; `None` if it is written.
fn lock(storage: &dyn Storage, config: &LogConfig) -> Result<(Box<dyn DirectoryLock>, Option<String>), Error> {
    let directory = storage.name();
    let lock = |access| match storage.lock(access).map_err(LogError::io("lock", &directory))? {
        Ok(lock) => Ok(lock),
        Err(holder) => Err(LogError::InUse { directory: directory.clone(), holder }),
    };
    if config.read_only {
        return Ok((lock(Access::Read)?, Some("it was opened so".to_owned())));
    }
    match lock(Access::Write) {
        Err(error) => {
            let why = unwritable(error, config)?;
            Ok((lock(Access::Read)?, Some(why)))
        }
        Ok(lock) => Ok((lock, None)),
    }
}

/// Returns why a directory is not written, if it can be read all the same. Otherwise, and for a
/// node of a cluster, returns the error.
fn unwritable(error: LogError, config: &LogConfig) -> Result<String, LogError> {
    match &error {
        LogError::Io { source, .. }
            if !config.lags && (source.kind() == io::ErrorKind::ReadOnlyFilesystem || is_full(source)) =>
        {
            let why = error.to_string();
            event!(warn, why = why.as_str(), "a database is opened for reading only");
            Ok(why)
        }
        _ => Err(error),
    }
}

/// Makes durable what was read of the last segment, and frees the space of what is void or
/// replaced.
fn tidy_up(
    storage: &dyn Storage,
    last: Option<(u64, u64)>,
    checkpoint: Option<CheckpointHeader>,
    (unfinished, names): (Vec<String>, Vec<String>),
) -> Result<(), LogError> {
    remove(storage, &unfinished)?;
    if let Some((sequence, end)) = last {
        // The writes of a killed process may be only in the system's cache.
        let name = segment_name(sequence);
        let file = storage.open(&name, Access::Write).map_err(LogError::io("open", &name))?;
        file.sync().map_err(LogError::io("sync", &name))?;
        // No frame begins behind the last valid one.
        file.truncate(end).map_err(LogError::io("truncate", name))?;
    }
    let Some(checkpoint) = checkpoint else { return Ok(()) };
    let is_older = |name: &String| {
        number_of(name).is_some_and(|number| number < checkpoint.number)
            || sequence_of(name).is_some_and(|sequence| sequence < checkpoint.first)
    };
    let older: Vec<_> = names.into_iter().filter(is_older).collect();
    if !older.is_empty() {
        // The checkpoint's name must be durable before what it replaces is removed.
        storage.sync_directory().map_err(LogError::io("sync", storage.name()))?;
    }
    remove(storage, &older)
}

/// Returns a random number that identifies a log.
fn random() -> u128 {
    let half = || u128::from(RandomState::new().hash_one(std::process::id()));
    half() << 64 | half()
}
