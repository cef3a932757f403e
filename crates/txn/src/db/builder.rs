//! Configuring and creating a database.

use std::{
    io::ErrorKind,
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use crossbeam_queue::SegQueue;
#[cfg(feature = "tracing")]
use drtm_htm::Engine;
use drtm_htm::Native;
use drtm_kv::{MOST_MEMORY, Store, Watch};
use drtm_rdma::capacity_within_limits;
use thread_local::ThreadLocal;

use super::Db;
use crate::{
    Config, Durability, Error, LogError, Sink,
    db::{inner::Inner, lifecycle::Lifecycle, stats::Registry, unfinished::tables::programs},
    durability::{
        self, Creation, LogConfig, Observer, Progress,
        storage::{Files, Storage},
    },
    memory::{budget::Budget, garbage, quiescence::Quiescence},
    model::bounds::LEAST_MEMORY,
    mutation::Mutation,
    schema::catalog::{Catalog, next_use},
    snapshot::Snapshots,
    trace::event,
    tx::ticket::Ticket,
};

/// Configures and creates a database.
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
    /// The memory limit, if one was set.
    memory: Option<u64>,
    prefault: u64,
    pub(crate) older_versions: u64,
    sink: Option<Arc<dyn Sink>>,
    path: Option<PathBuf>,
    storage: Option<Arc<dyn Storage>>,
    creation: Creation,
    durability: Option<Durability>,
    pub(crate) flush_within: Duration,
    pub(crate) sync_within: Option<Duration>,
    pub(crate) segment_bytes: u64,
    pub(crate) checkpoint_every: u64,
    pub(crate) most_logged: usize,
    read_only: bool,
    observer: Observer,
    fault: Option<Mutation>,
    for_peers: bool,
    /// Whether it is a node's of a cluster.
    of_cluster: bool,
    /// Whether only the database's own threads have its memory.
    is_own: bool,
    hints: bool,
}

/// A log's storage, and when commits wait for it.
type LogPlace = (Arc<dyn Storage>, Durability);

/// The default memory limit. The memory is reserved, not used.
pub(crate) const MEMORY: u64 = 64 << 30;

/// The default durability of a database with a path.
pub(crate) const DURABILITY: Durability = Durability::Sync;

/// The default memory for older versions of rows.
const OLDER_VERSIONS: u64 = 1 << 30;

/// The default delay until a commit that is not waited for begins to become durable.
const FLUSH_WITHIN: Duration = Duration::from_millis(10);

/// The default size at which the log begins another segment, and the least that can be chosen.
const SEGMENT: u64 = 64 << 20;
const LEAST_SEGMENT: u64 = 1 << 10;

/// The default number of log bytes between checkpoints.
const CHECKPOINT_EVERY: u64 = 1 << 30;

/// The largest number of bytes that a logged transaction can write.
const MOST_LOGGED: usize = 1 << 30;

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// Returns the directory, if the database has one of the file system's.
    #[cfg(feature = "raft")]
    pub(crate) fn directory(&self) -> Option<&std::path::Path> {
        self.path.as_deref()
    }

    /// Creates a builder with the default settings.
    ///
    /// # Example
    ///
    /// See [`Builder`].
    #[must_use]
    pub const fn new() -> Self {
        Self {
            memory: None,
            prefault: 0,
            older_versions: OLDER_VERSIONS,
            sink: None,
            path: None,
            storage: None,
            creation: Creation::No,
            durability: None,
            flush_within: FLUSH_WITHIN,
            sync_within: None,
            segment_bytes: SEGMENT,
            checkpoint_every: CHECKPOINT_EVERY,
            most_logged: MOST_LOGGED,
            read_only: false,
            observer: Observer::NONE,
            fault: None,
            for_peers: false,
            of_cluster: false,
            is_own: false,
            hints: true,
        }
    }

    /// Sets the most bytes that the database may use. Only addresses are reserved; memory is taken
    /// as rows are inserted.
    ///
    /// The default is 64 GiB, or less where the process is limited: half of its address space limit
    /// (`ulimit -v`), and as much memory as its control groups allow.
    ///
    /// # Example
    ///
    /// See [`Builder`].
    #[must_use]
    pub fn memory(self, bytes: u64) -> Self {
        Self { memory: Some(bytes), ..self }
    }

    /// Pre-faults this many bytes at open, rather than as rows are inserted.
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

    /// Sets whether ordered tables keep hints of where keys were found: true by default. A hint
    /// saves a later lookup the descent of the tree. Hints take 17 to 34 bytes for each key, and
    /// count against [`memory`](Self::memory): see [`MemoryUse::hints`](crate::MemoryUse::hints).
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

    /// Sets the most bytes of the memory that older versions of rows may use. They are kept only as
    /// far as open snapshots need them. A version that does not fit is dropped, and a snapshot that
    /// needs it gets an error. Writers never do.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Builder, Error};
    ///
    /// let db = Builder::new().older_versions(64 << 20).build()?;
    /// assert_eq!(db.older_versions(), 0, "no snapshot needs any");
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn older_versions(self, bytes: u64) -> Self {
        Self { older_versions: bytes, ..self }
    }

    /// Sets the [sink](Sink) that observes every transaction before it commits, and may refuse it.
    ///
    /// # Example
    ///
    /// See [`Sink`].
    #[must_use]
    pub fn sink(self, sink: Arc<dyn Sink>) -> Self {
        Self { sink: Some(sink), ..self }
    }

    /// Keeps the database in a directory, and recovers it from there. Without
    /// [`create`](Self::create) or [`create_new`](Self::create_new), it must be there already.
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

    /// Sets whether a database is created if there is none in the [directory](Self::path): false by
    /// default, as in [`std::fs::OpenOptions`]. The directory is created too, with its parents. A
    /// directory that has other files is refused.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, LogError};
    ///
    /// let directory = std::env::temp_dir().join(format!("drtm-create-{}", std::process::id()));
    /// let absent = Db::builder().path(&directory).build();
    /// assert!(matches!(absent, Err(Error::Log(LogError::NoDatabase { .. }))));
    /// let db = Db::builder().path(&directory).create(true).build()?;
    /// # drop(db);
    /// # std::fs::remove_dir_all(&directory).expect("it is there");
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn create(self, creates: bool) -> Self {
        Self { creation: if creates { Creation::IfMissing } else { Creation::No }, ..self }
    }

    /// Sets whether the database is new: one that is there already is refused, with
    /// [`LogError::DatabaseExists`]. False by default. Of this and [`create`](Self::create), the
    /// last call counts.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, LogError};
    ///
    /// let directory = std::env::temp_dir().join(format!("drtm-create-new-{}", std::process::id()));
    /// let create = || Db::builder().path(&directory).create_new(true).build();
    /// drop(create()?);
    /// assert!(matches!(create(), Err(Error::Log(LogError::DatabaseExists { .. }))));
    /// # std::fs::remove_dir_all(&directory).expect("it is there");
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn create_new(self, is_new: bool) -> Self {
        Self { creation: if is_new { Creation::New } else { Creation::No }, ..self }
    }

    /// Chooses when commits are durable. Needs a [path](Self::path), except for
    /// [`None`](Durability::None), which allows no path.
    ///
    /// # Example
    ///
    /// See [`Durability`].
    #[must_use]
    pub fn durability(self, durability: Durability) -> Self {
        Self { durability: Some(durability), ..self }
    }

    /// Sets how long an [`Async`](Durability::Async) transaction waits after its commit, at most,
    /// until it is written: 10 ms by default. It is durable as soon as the disk has finished that
    /// write.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use drtm::{Db, Durability, Error};
    ///
    /// let directory = std::env::temp_dir().join(format!("drtm-flush-within-{}", std::process::id()));
    /// let builder = Db::builder().path(&directory).create(true).durability(Durability::Async);
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

    /// Sets how long a [`Sync`](Durability::Sync) commit waits, at most, until it is durable. After
    /// that it fails with [`Error::NotYetDurable`]. Without this, it waits without a limit.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use drtm::{Db, Error};
    ///
    /// let directory = std::env::temp_dir().join(format!("drtm-sync-within-{}", std::process::id()));
    /// let db = Db::builder().path(&directory).create(true).sync_within(Duration::from_secs(10)).build()?;
    /// # drop(db);
    /// # std::fs::remove_dir_all(&directory).expect("it is there");
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn sync_within(self, patience: Duration) -> Self {
        Self { sync_within: Some(patience), ..self }
    }

    /// Makes a [checkpoint](Db::checkpoint) each time this many bytes have been logged since the
    /// last one, in a background thread: 1 GiB by default. With `u64::MAX`, checkpoints are made
    /// only on demand.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error};
    ///
    /// let directory = std::env::temp_dir().join(format!("drtm-checkpoint-every-{}", std::process::id()));
    /// let db = Db::builder().path(&directory).create(true).checkpoint_every(64 << 20).build()?;
    /// # drop(db);
    /// # std::fs::remove_dir_all(&directory).expect("it is there");
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn checkpoint_every(self, bytes: u64) -> Self {
        Self { checkpoint_every: bytes, ..self }
    }

    /// Opens the database in a directory for reading only: nothing in the directory is created or
    /// changed, whatever [`create`](Self::create) says. A transaction that writes gets
    /// [`Error::ReadOnly`].
    ///
    /// Any number of processes can have a directory open so at a time, while none has it open for
    /// writing. Without this, a directory on a read-only disk is opened so, too:
    /// [`Db::check_writable`] tells.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef};
    ///
    /// const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
    /// let directory = std::env::temp_dir().join(format!("drtm-read-only-{}", std::process::id()));
    /// let db = Db::create(&directory)?;
    /// let counters = db.table(COUNTERS)?;
    /// db.transact(|tx| tx.put(counters, 1, &7))?;
    /// drop(db);
    ///
    /// let db = Db::builder().path(&directory).read_only(true).build()?;
    /// let counters = db.table(COUNTERS)?;
    /// assert_eq!(db.read(|tx| tx.get(counters, 1))?, Some(7));
    /// assert!(matches!(db.transact(|tx| tx.put(counters, 1, &8)), Err(Error::ReadOnly { .. })));
    /// # drop(db);
    /// # std::fs::remove_dir_all(&directory).expect("it is there");
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn read_only(self, is_read_only: bool) -> Self {
        Self { read_only: is_read_only, ..self }
    }

    /// Sets a function that is called with the progress of recovery, possibly from several threads.
    ///
    /// # Example
    ///
    /// See [`Progress`].
    #[must_use]
    pub fn on_recovery(self, observe: impl Fn(&Progress) + Send + Sync + 'static) -> Self {
        Self { observer: Observer::new(observe), ..self }
    }

    /// Injects a fault into the log, so that tests can check that it is detected.
    #[doc(hidden)]
    #[must_use]
    pub fn fault(self, fault: Mutation) -> Self {
        Self { fault: Some(fault), ..self }
    }

    /// Limits the bytes that a logged transaction can write, 1 GiB by default: for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn most_logged(self, bytes: usize) -> Self {
        Self { most_logged: bytes.min(MOST_LOGGED), ..self }
    }

    /// Keeps the database in other storage than a directory, with segments of about this size: for
    /// tests. It is created if there is none.
    #[doc(hidden)]
    #[must_use]
    pub fn storage(self, storage: Arc<dyn Storage>, segment_bytes: u64) -> Self {
        let segment_bytes = segment_bytes.max(LEAST_SEGMENT);
        Self { storage: Some(storage), segment_bytes, creation: Creation::IfMissing, ..self }
    }

    /// Returns whether opening creates a database.
    fn creation(&self) -> Creation {
        if self.read_only { Creation::No } else { self.creation }
    }

    /// Returns the log's storage, and when commits wait for it. `None` if there is no log.
    fn log(&self) -> Result<Option<LogPlace>, Error> {
        let refused = |must_be, is: &str| Err(Error::Config { what: "durability", must_be, is: is.to_owned() });
        match (&self.storage, &self.path, self.durability) {
            (None, None, _) if self.read_only => Err(Error::Config {
                what: "a database that is only read",
                must_be: "in a directory",
                is: "in memory".to_owned(),
            }),
            (None, None, None | Some(Durability::None)) => Ok(None),
            (None, None, Some(_)) => refused("`None`, or have a path", "without a path"),
            (_, _, Some(Durability::None)) => refused("`Async` or `Sync`, or have no path", "`None`, with a path"),
            (Some(storage), _, mode) => Ok(Some((Arc::clone(storage), mode.unwrap_or(DURABILITY)))),
            (None, Some(path), mode) => {
                let directory = path.display().to_string();
                let files = match self.creation() {
                    Creation::No => Files::open(path.clone()),
                    Creation::IfMissing | Creation::New => Files::create(path.clone()),
                };
                let files = files.map_err(|source| match source.kind() {
                    ErrorKind::NotFound => LogError::NoDatabase { directory },
                    _ => LogError::Io { action: "open the directory", file: directory, source },
                })?;
                Ok(Some((Arc::new(files), mode.unwrap_or(DURABILITY))))
            }
        }
    }

    /// Creates the database, with the transactional memory that the machine has.
    ///
    /// # Errors
    ///
    /// When the configuration is invalid, or memory cannot be allocated.
    ///
    /// # Example
    ///
    /// See [`Builder`].
    pub fn build(self) -> Result<Db, Error> {
        self.build_with(Native::chosen()?)
    }

    /// Creates a database of another [configuration](Config).
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build).
    ///
    /// # Example
    ///
    /// See [`Config`].
    pub fn build_with<S: Config>(self, engine: S::Engine) -> Result<Db<S>, Error> {
        let memory = self.capacity()?;
        // No other process or node can have it.
        Self { is_own: true, ..self }.build_in(Store::in_memory(engine, memory)?)
    }

    /// Lets peers read rows directly from memory: rows get what peers need to detect torn reads.
    pub(crate) fn for_peers(self) -> Self {
        Self { for_peers: true, ..self }
    }

    /// Makes it the database of a node. Refuses a sink, which could refuse what other nodes have
    /// decided.
    pub(crate) fn of_cluster(self) -> Result<Self, Error> {
        if self.sink.is_some() {
            let (what, must_be) = ("the database of a node", "without a sink");
            return Err(Error::Config { what, must_be, is: "with a sink".to_owned() });
        }
        Ok(Self { of_cluster: true, ..self })
    }

    /// Returns the most bytes that the database may use.
    pub(crate) fn capacity(&self) -> Result<u64, Error> {
        let memory = self.memory.unwrap_or_else(|| capacity_within_limits(MEMORY));
        if !(LEAST_MEMORY..=MOST_MEMORY).contains(&memory) {
            return Err(Error::Config {
                what: "the memory of a database (`Builder::memory`)",
                must_be: "from 4 MiB to 8 TiB",
                is: format!("{memory} bytes"),
            });
        }
        Ok(memory)
    }

    /// Creates a database in an empty store.
    pub(crate) fn build_in<S: Config>(self, store: Store<S::Engine>) -> Result<Db<S>, Error> {
        if self.prefault > 0 {
            store.region().populate(self.prefault)?;
        }
        let store = if self.hints { store } else { store.without_hints() };
        let snapshots = Snapshots::create(&store)?;
        let number = next_use();
        let catalog = Catalog::new(number, self.for_peers);
        let creation = self.creation();
        let log = match self.log()? {
            None => None,
            Some((storage, mode)) => {
                let Self { flush_within, sync_within, segment_bytes, checkpoint_every, most_logged, read_only, .. } =
                    self;
                let fault = S::fault().or(self.fault);
                let lags = self.of_cluster;
                let config = LogConfig {
                    mode,
                    flush_within,
                    sync_within,
                    segment_bytes,
                    checkpoint_every,
                    most_logged,
                    lags,
                    read_only,
                    fault,
                };
                Some(durability::open((&storage, creation), (&store, &snapshots, &catalog), config, &self.observer)?)
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
            garbage: garbage::Queue::default(),
            #[cfg(feature = "hades")]
            keeper: std::sync::OnceLock::new(),
            ticket: Ticket::default(),
            idle: SegQueue::new(),
            quiescence: if self.is_own { Quiescence::of_threads() } else { Quiescence::of_peers() },
        };
        event!(
            info,
            database = inner.number,
            memory = inner.store.region().capacity(),
            older_versions = self.older_versions,
            has_htm = inner.engine().has_htm(),
            "a database is open"
        );
        if inner.log.as_ref().is_some_and(|log| !log.has(Mutation::UnfinishedServed)) {
            inner.lifecycle.begin_unfinished(inner.engine(), programs(&inner.catalog)?);
        }
        let inner = Arc::new(inner);
        let watch: Weak<dyn Watch> = Arc::downgrade(&inner) as _;
        inner.store.watched_by(watch);
        Ok(Db { inner })
    }
}

impl Db {
    /// Creates an empty database in memory.
    ///
    /// # Errors
    ///
    /// When memory cannot be allocated.
    ///
    /// # Example
    ///
    /// See [`Db`].
    pub fn new() -> Result<Self, Error> {
        Builder::new().build()
    }

    /// Opens the database in a directory, with all that was committed to it. A commit returns when
    /// it is [durable](Durability::Sync). [`create`](Self::create) makes a database where there is
    /// none.
    ///
    /// Tables and indexes are opened as those of any database. Their definitions must be the ones
    /// they were created with.
    ///
    /// # Errors
    ///
    /// [`Error::Log`] when there is no database, or the log is in use, is damaged, has another
    /// format, or an I/O operation fails; or when memory cannot be allocated.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, LogError, Raw, TableDef};
    ///
    /// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    /// let directory = std::env::temp_dir().join(format!("drtm-open-{}", std::process::id()));
    /// assert!(matches!(Db::open(&directory), Err(Error::Log(LogError::NoDatabase { .. }))));
    ///
    /// let db = Db::create(&directory)?;
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

    /// Opens the database in a directory like [`open`](Self::open), but creates an empty one if
    /// there is none. The directory must be absent or empty then.
    ///
    /// [`Builder::create_new`] refuses a database that is there already.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open). [`LogError::Foreign`] if there is no database, but the
    /// directory has files.
    ///
    /// # Example
    ///
    /// See [`open`](Self::open).
    pub fn create(directory: impl Into<PathBuf>) -> Result<Self, Error> {
        Builder::new().path(directory).create(true).build()
    }

    /// Returns a builder, to change the default settings.
    ///
    /// # Example
    ///
    /// See [`Durability`].
    #[must_use]
    pub const fn builder() -> Builder {
        Builder::new()
    }
}
