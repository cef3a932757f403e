//! How a database is made.

use std::{
    path::PathBuf,
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use crossbeam_queue::SegQueue;
#[cfg(feature = "tracing")]
use drtm_htm::Engine;
use drtm_htm::Native;
use drtm_kv::{Store, Watch};
use drtm_rdma::capacity_within_limits;
use thread_local::ThreadLocal;

use super::Db;
use crate::{
    Config, Durability, Error, LogError, Sink,
    bounds::LEAST_MEMORY,
    budget::Budget,
    catalog::Catalog,
    durability::{
        self, LogConfig, Observer, Progress,
        storage::{Files, Storage},
    },
    garbage,
    inner::Inner,
    lifecycle::Lifecycle,
    mutation::Mutation,
    snapshots::Snapshots,
    stats::Registry,
    ticket::Ticket,
    trace::event,
};

/// How a database is to be made.
///
/// # Example
///
/// ```
/// use drtm::{Builder, Error};
///
/// let db = Builder::new().memory(64 << 20).build()?;
/// db.transact(|_| Ok(()))?;
/// assert!(matches!(Builder::new().memory(10).build(), Err(Error::Config { .. })));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    /// What was asked for.
    memory: Option<u64>,
    prefault: u64,
    pub(crate) older_versions: u64,
    sink: Option<Arc<dyn Sink>>,
    path: Option<PathBuf>,
    storage: Option<Arc<dyn Storage>>,
    durability: Option<Durability>,
    pub(crate) flush_within: Duration,
    pub(crate) sync_within: Option<Duration>,
    pub(crate) segment_bytes: u64,
    pub(crate) checkpoint_every: u64,
    pub(crate) most_logged: usize,
    observer: Observer,
    fault: Option<Mutation>,
    for_peers: bool,
    hints: bool,
}

/// Where a log is, and when commits wait for it.
type LogPlace = (Arc<dyn Storage>, Durability);

/// Memory that a database may use if nothing else is said. It is reserved, not used.
pub(crate) const MEMORY: u64 = 64 << 30;

/// When commits of a database with a path return, if nothing else is said.
pub(crate) const DURABILITY: Durability = Durability::Sync;

/// Memory for older versions of rows, if nothing else is said.
const OLDER_VERSIONS: u64 = 1 << 30;

/// How long a commit takes at most to begin to become durable, if it is not waited for and nothing
/// else is said.
const FLUSH_WITHIN: Duration = Duration::from_millis(10);

/// The size from which on a log begins another segment, and the least that can be chosen.
const SEGMENT: u64 = 64 << 20;
const LEAST_SEGMENT: u64 = 1 << 10;

/// How many bytes of log there are between checkpoints, if nothing else is said.
const CHECKPOINT_EVERY: u64 = 1 << 30;

/// How many bytes a transaction can write that is logged.
const MOST_LOGGED: usize = 1 << 30;

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// The defaults.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            memory: None,
            prefault: 0,
            older_versions: OLDER_VERSIONS,
            sink: None,
            path: None,
            storage: None,
            durability: None,
            flush_within: FLUSH_WITHIN,
            sync_within: None,
            segment_bytes: SEGMENT,
            checkpoint_every: CHECKPOINT_EVERY,
            most_logged: MOST_LOGGED,
            observer: Observer::NONE,
            fault: None,
            for_peers: false,
            hints: true,
        }
    }

    /// How many bytes the database may use at most. Only addresses are reserved for it; memory is
    /// taken as rows come.
    ///
    /// If this is not called, it may use 64 GiB, or less where the process may: half of the address
    /// space that it is limited to (`ulimit -v`), and as much memory as its control groups have.
    #[must_use]
    pub fn memory(self, bytes: u64) -> Self {
        Self { memory: Some(bytes), ..self }
    }

    /// How many bytes of the memory to have at once, and not when rows come: the system takes its
    /// time to provide memory, and this is when.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Builder, Error};
    ///
    /// let db = Builder::new().memory(64 << 20).prefault(16 << 20).build()?;
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn prefault(self, bytes: u64) -> Self {
        Self { prefault: bytes, ..self }
    }

    /// Lets ordered tables note where keys were found, so that they are found again without a way
    /// down the tree: true by default. These hints take 17 to 34 bytes for each key, and count
    /// against [`memory`](Self::memory): see [`MemoryUse::hints`](crate::MemoryUse::hints).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Builder, Error, Ordered, Pod, TableDef};
    ///
    /// const COUNTERS: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("counters");
    /// let db = Builder::new().memory(64 << 20).hints(false).build()?;
    /// let counters = db.table(COUNTERS)?;
    /// db.transact(|tx| (0..5_000).try_for_each(|key| tx.put(counters, key, &7)))?;
    /// db.read(|tx| (0..5_000).try_for_each(|key| tx.get(counters, key).map(drop)))?;
    /// assert_eq!(db.memory().hints, 0);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn hints(self, are_kept: bool) -> Self {
        Self { hints: are_kept, ..self }
    }

    /// How many bytes of the memory may be used for what rows were, as far as open snapshots need
    /// it. What cannot be kept is forgotten, and a snapshot that asks for it is told so; writers
    /// never are.
    #[must_use]
    pub fn older_versions(self, bytes: u64) -> Self {
        Self { older_versions: bytes, ..self }
    }

    /// Sets the [sink](Sink) that is told of every transaction before it commits, and may refuse
    /// it.
    ///
    /// # Example
    ///
    /// See [`Sink`].
    #[must_use]
    pub fn sink(self, sink: Arc<dyn Sink>) -> Self {
        Self { sink: Some(sink), ..self }
    }

    /// Keeps the database in a directory, which is created if it is not there. What is there is
    /// recovered.
    ///
    /// Commits are [`Sync`](Durability::Sync) unless [something else](Self::durability) is chosen.
    ///
    /// # Example
    ///
    /// See [`Durability`], [`Db::open`].
    #[must_use]
    pub fn path(self, directory: impl Into<PathBuf>) -> Self {
        Self { path: Some(directory.into()), ..self }
    }

    /// Chooses when commits are safe from a crash. Needs a [path](Self::path), unless it is
    /// [`None`](Durability::None), which allows none.
    ///
    /// # Example
    ///
    /// See [`Durability`].
    #[must_use]
    pub fn durability(self, durability: Durability) -> Self {
        Self { durability: Some(durability), ..self }
    }

    /// Sets how long after its commit an [`Async`](Durability::Async) transaction waits, at most,
    /// until it is written: 10 ms by default. It is durable as soon as the disk has done that.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use drtm::{Db, Durability, Error};
    ///
    /// let directory = std::env::temp_dir().join(format!("drtm-flush-within-{}", std::process::id()));
    /// let builder = Db::builder().path(&directory).durability(Durability::Async);
    /// let db = builder.flush_within(Duration::from_millis(2)).build()?;
    /// db.close()?;
    /// # drop(db);
    /// # std::fs::remove_dir_all(&directory).expect("it is there");
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn flush_within(self, delay: Duration) -> Self {
        Self { flush_within: delay, ..self }
    }

    /// Sets how long a [`Sync`](Durability::Sync) commit waits at most until it is durable. Then it
    /// gets [`Error::NotYetDurable`]. Without this, it waits as long as it takes.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use drtm::{Db, Error};
    ///
    /// let directory = std::env::temp_dir().join(format!("drtm-sync-within-{}", std::process::id()));
    /// let db = Db::builder().path(&directory).sync_within(Duration::from_secs(10)).build()?;
    /// # drop(db);
    /// # std::fs::remove_dir_all(&directory).expect("it is there");
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn sync_within(self, patience: Duration) -> Self {
        Self { sync_within: Some(patience), ..self }
    }

    /// Makes a [checkpoint](Db::checkpoint) whenever so many bytes were logged since the last one,
    /// in a thread of its own: 1 GiB by default. With `u64::MAX`, none is made but on demand.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error};
    ///
    /// let directory = std::env::temp_dir().join(format!("drtm-checkpoint-every-{}", std::process::id()));
    /// let db = Db::builder().path(&directory).checkpoint_every(64 << 20).build()?;
    /// # drop(db);
    /// # std::fs::remove_dir_all(&directory).expect("it is there");
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn checkpoint_every(self, bytes: u64) -> Self {
        Self { checkpoint_every: bytes, ..self }
    }

    /// Calls a function while a database is recovered, from several threads perhaps, with how far
    /// it has come.
    ///
    /// # Example
    ///
    /// See [`Progress`].
    #[must_use]
    pub fn on_recovery(self, observe: impl Fn(&Progress) + Send + Sync + 'static) -> Self {
        Self { observer: Observer::new(observe), ..self }
    }

    /// Makes something wrong with the log, to see whether that is noticed.
    #[doc(hidden)]
    #[must_use]
    pub fn fault(self, fault: Mutation) -> Self {
        Self { fault: Some(fault), ..self }
    }

    /// Lets a transaction that is logged write only so many bytes, 1 GiB by default: for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn most_logged(self, bytes: usize) -> Self {
        Self { most_logged: bytes.min(MOST_LOGGED), ..self }
    }

    /// Keeps the database in other storage than a directory, with segments of about this size: for
    /// tests.
    #[doc(hidden)]
    #[must_use]
    pub fn storage(self, storage: Arc<dyn Storage>, segment_bytes: u64) -> Self {
        Self { storage: Some(storage), segment_bytes: segment_bytes.max(LEAST_SEGMENT), ..self }
    }

    /// Returns where the log is, and when commits wait for it; `None` if there is to be no log.
    fn log(&self) -> Result<Option<LogPlace>, Error> {
        let refused = |must_be, is: &str| Err(Error::Config { what: "durability", must_be, is: is.to_owned() });
        match (&self.storage, &self.path, self.durability) {
            (None, None, None | Some(Durability::None)) => Ok(None),
            (None, None, Some(_)) => refused("`None`, or have a path", "without a path"),
            (_, _, Some(Durability::None)) => refused("`Async` or `Sync`, or have no path", "`None`, with a path"),
            (Some(storage), _, mode) => Ok(Some((Arc::clone(storage), mode.unwrap_or(DURABILITY)))),
            (None, Some(path), mode) => {
                let files = Files::open(path.clone());
                let file = path.display().to_string();
                let files = files.map_err(|source| LogError::Io { action: "open the directory", file, source })?;
                Ok(Some((Arc::new(files), mode.unwrap_or(DURABILITY))))
            }
        }
    }

    /// Makes the database, with the transactional memory that the machine has.
    ///
    /// # Errors
    ///
    /// When the configuration describes none, or memory cannot be had.
    pub fn build(self) -> Result<Db, Error> {
        self.build_with(Native::chosen()?)
    }

    /// Makes a database of another [setting](Config).
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build).
    pub fn build_with<S: Config>(self, engine: S::Engine) -> Result<Db<S>, Error> {
        let memory = self.capacity()?;
        self.build_in(Store::in_memory(engine, memory)?)
    }

    /// Lets peers read rows by themselves: they can tell whole rows from torn ones.
    #[cfg(not(feature = "model"))]
    pub(crate) fn for_peers(self) -> Self {
        Self { for_peers: true, ..self }
    }

    /// Refuses what a node of a cluster cannot tell its commits to.
    #[cfg(not(feature = "model"))]
    pub(crate) fn refuse_told(&self) -> Result<(), Error> {
        let is_told = self.sink.is_some() || self.path.is_some() || self.storage.is_some();
        if is_told {
            let is = "with a path or a sink".to_owned();
            return Err(Error::Config { what: "the database of a node", must_be: "in memory, without a sink", is });
        }
        Ok(())
    }

    /// How many bytes the database may use at most.
    pub(crate) fn capacity(&self) -> Result<u64, Error> {
        let memory = self.memory.unwrap_or_else(|| capacity_within_limits(MEMORY));
        if memory < LEAST_MEMORY {
            return Err(Error::Config {
                what: "the memory of a database",
                must_be: "at least 4 MiB",
                is: format!("{memory} bytes"),
            });
        }
        Ok(memory)
    }

    /// Makes a database in a store in which there is nothing.
    pub(crate) fn build_in<S: Config>(self, store: Store<S::Engine>) -> Result<Db<S>, Error> {
        static DATABASES: AtomicU32 = AtomicU32::new(0);
        if self.prefault > 0 {
            store.region().populate(self.prefault)?;
        }
        let store = if self.hints { store } else { store.without_hints() };
        let snapshots = Snapshots::create(&store)?;
        let number = DATABASES.fetch_add(1, Relaxed);
        let catalog = Catalog::new(number, self.for_peers);
        let log = match self.log()? {
            None => None,
            Some((storage, mode)) => {
                let Self { flush_within, sync_within, segment_bytes, checkpoint_every, most_logged, .. } = self;
                let fault = S::FAULT.or(self.fault);
                let config =
                    LogConfig { mode, flush_within, sync_within, segment_bytes, checkpoint_every, most_logged, fault };
                Some(durability::open(&storage, (&store, &snapshots, &catalog), config, &self.observer)?)
            }
        };
        let lifecycle = Lifecycle::new(store.region().engine());
        let inner: Inner<S> = Inner {
            number,
            store,
            catalog,
            is_told: self.sink.is_some() || log.is_some(),
            for_peers: self.for_peers,
            sink: self.sink,
            log,
            lifecycle,
            threads: ThreadLocal::new(),
            registry: Registry::default(),
            snapshots,
            past: Budget::new(self.older_versions),
            garbage: garbage::Queue::new(),
            ticket: Ticket::default(),
            idle: SegQueue::new(),
        };
        event!(
            info,
            database = inner.number,
            memory = inner.store.region().capacity(),
            older_versions = self.older_versions,
            has_regions = inner.engine().has_regions(),
            "a database is open"
        );
        let inner = Arc::new(inner);
        let watch: Weak<dyn Watch> = Arc::downgrade(&inner) as _;
        inner.store.watched_by(watch);
        Ok(Db { inner })
    }
}

impl Db {
    /// An empty database.
    ///
    /// # Errors
    ///
    /// When memory cannot be had.
    pub fn new() -> Result<Self, Error> {
        Builder::new().build()
    }

    /// Opens a database that is kept in a directory, with what was committed to it: an empty one if
    /// nothing was. A commit returns when it is [durable](Durability::Sync).
    ///
    /// Tables and indexes are opened as those of any database; their definitions must be what they
    /// were.
    ///
    /// # Errors
    ///
    /// [`Error::Log`] when the log is in use, is damaged or of another format, or the system
    /// refuses; or when memory cannot be had.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Raw, TableDef};
    ///
    /// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    /// let directory = std::env::temp_dir().join(format!("drtm-open-{}", std::process::id()));
    ///
    /// let db = Db::open(&directory)?;
    /// let notes = db.table(NOTES)?;
    /// db.transact(|tx| tx.put(notes, &1, b"kept"))?;
    /// drop(db);
    ///
    /// let db = Db::open(&directory)?;
    /// let notes = db.table(NOTES)?;
    /// assert_eq!(db.read(|tx| tx.get(notes, &1))?.as_deref(), Some(&b"kept"[..]));
    /// # drop(db);
    /// # std::fs::remove_dir_all(&directory).expect("it is there");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn open(directory: impl Into<PathBuf>) -> Result<Self, Error> {
        Builder::new().path(directory).build()
    }

    /// How to make one with other than the default settings.
    #[must_use]
    pub const fn builder() -> Builder {
        Builder::new()
    }
}
