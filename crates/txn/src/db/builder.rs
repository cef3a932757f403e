//! How a database is made.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

#[cfg(feature = "tracing")]
use drtm_htm::Engine;
use drtm_htm::Native;
use drtm_kv::Store;
use thread_local::ThreadLocal;

use super::Db;
use crate::{
    Error, Setting, Sink, bounds::LEAST_MEMORY, budget::Budget, catalog::Catalog, garbage, inner::Inner,
    lifecycle::Lifecycle, snapshots::Snapshots, stats::Registry, ticket::Ticket, trace::event,
};

/// How a database is to be made.
///
/// # Example
///
/// ```
/// use drtm_txn::{Builder, Error};
///
/// let db = Builder::new().memory(64 << 20).build()?;
/// db.transact(|_| Ok(()))?;
/// assert!(matches!(Builder::new().memory(10).build(), Err(Error::Config { .. })));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    memory: u64,
    at_once: u64,
    older_versions: u64,
    sink: Option<Arc<dyn Sink>>,
}

/// Memory that a database may use if nothing else is said. It is reserved, not used.
const MEMORY: u64 = 64 << 30;

/// Memory for older versions of rows, if nothing else is said.
const OLDER_VERSIONS: u64 = 1 << 30;

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// The defaults.
    #[must_use]
    pub const fn new() -> Self {
        Self { memory: MEMORY, at_once: 0, older_versions: OLDER_VERSIONS, sink: None }
    }

    /// How many bytes the database may use at most. Only addresses are reserved for it; memory is taken as rows come.
    #[must_use]
    pub fn memory(self, bytes: u64) -> Self {
        Self { memory: bytes, ..self }
    }

    /// How many bytes of the memory to have at once, and not when rows come: the system takes its time to provide memory, and this is when.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Builder, Error};
    ///
    /// let db = Builder::new().memory(64 << 20).at_once(16 << 20).build()?;
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn at_once(self, bytes: u64) -> Self {
        Self { at_once: bytes, ..self }
    }

    /// How many bytes of the memory may be used for what rows were, as far as open snapshots need it. What cannot be kept is forgotten, and a snapshot that asks
    /// for it is told so; writers never are.
    #[must_use]
    pub fn older_versions(self, bytes: u64) -> Self {
        Self { older_versions: bytes, ..self }
    }

    /// Sets the [sink](Sink) that is told of every transaction before it commits, and may refuse it.
    ///
    /// # Example
    ///
    /// See [`Sink`].
    #[must_use]
    pub fn sink(self, sink: Arc<dyn Sink>) -> Self {
        Self { sink: Some(sink), ..self }
    }

    /// Makes the database, with the transactional memory that the machine has.
    ///
    /// # Errors
    ///
    /// When the configuration describes none, or memory cannot be had.
    pub fn build(self) -> Result<Db, Error> {
        self.build_with(Native::chosen()?)
    }

    /// Makes a database of another [setting](Setting).
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build).
    pub fn build_with<S: Setting>(self, engine: S::Engine) -> Result<Db<S>, Error> {
        static DATABASES: AtomicU32 = AtomicU32::new(0);
        if self.memory < LEAST_MEMORY {
            return Err(Error::Config {
                what: "the memory of a database",
                must_be: "at least 4 MiB",
                is: format!("{} bytes", self.memory),
            });
        }
        let store = Store::in_memory(engine, self.memory)?;
        if self.at_once > 0 {
            store.region().populate(self.at_once)?;
        }
        let snapshots = Snapshots::create(&store)?;
        let inner: Inner<S> = Inner {
            number: DATABASES.fetch_add(1, Relaxed),
            store,
            catalog: Catalog::new(),
            sink: self.sink,
            lifecycle: Lifecycle::default(),
            threads: ThreadLocal::new(),
            registry: Registry::default(),
            snapshots,
            past: Budget::new(self.older_versions),
            garbage: garbage::Queue::new(),
            ticket: Ticket::default(),
        };
        event!(
            info,
            database = inner.number,
            memory = self.memory,
            older_versions = self.older_versions,
            has_regions = inner.engine().has_regions(),
            "a database is open"
        );
        Ok(Db { inner: Arc::new(inner) })
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

    /// How to make one with other than the default settings.
    #[must_use]
    pub const fn builder() -> Builder {
        Builder::new()
    }
}
