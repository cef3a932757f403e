//! The database: one node, in memory, used by any number of threads.

use std::{
    cell::{Cell, RefCell},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use drtm_htm::{Engine, Native, Waiter, Word};
use drtm_kv::{KvError, Store};
use thread_local::ThreadLocal;

use crate::{
    Codec, Embedded, Error, Key, Mode, Setting, Snapshot, Stats, Table, TableDef, Tx, Unlogged,
    budget::Budget,
    catalog::Catalog,
    garbage,
    snapshots::Snapshots,
    stats::Registry,
    table::Kind,
    ticket::{self, Ticket},
    work::Work,
};

/// A database in memory. Clones are the same database, and any thread may use them.
///
/// # Example
///
/// ```
/// use drtm_txn::{Db, Error, Pod, TableDef};
///
/// const ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("accounts");
///
/// let db = Db::new()?;
/// let accounts = db.table(ACCOUNTS)?;
/// db.transact(|tx| {
///     tx.insert(accounts, &1, &100)?;
///     tx.insert(accounts, &2, &0)
/// })?;
///
/// std::thread::scope(|scope| {
///     for _ in 0..2 {
///         scope.spawn(|| {
///             for _ in 0..10 {
///                 let paid = db.transact(|tx| {
///                     tx.update(accounts, &1, |balance| *balance -= 5)?;
///                     tx.update(accounts, &2, |balance| *balance += 5)
///                 });
///                 paid.expect("there is enough memory");
///             }
///         });
///     }
/// });
/// assert_eq!(db.transact(|tx| tx.get_many(accounts, &[1, 2]))?, [Some(0), Some(100)]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Db<S: Setting = Embedded> {
    pub(crate) inner: Arc<Inner<S>>,
}

impl<S: Setting> Clone for Db<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

#[derive(Debug)]
pub(crate) struct Inner<S: Setting> {
    /// Which database of this process it is.
    pub(crate) number: u32,
    pub(crate) store: Store<S::Engine>,
    pub(crate) catalog: Catalog<S::Engine>,
    pub(crate) hook: S::Hook,
    threads: ThreadLocal<Thread<S::Engine>>,
    registry: Registry,
    pub(crate) snapshots: Snapshots,
    pub(crate) past: Budget,
    pub(crate) garbage: garbage::Queue,
    pub(crate) ticket: Ticket,
}

/// What a thread keeps from one transaction to the next.
#[derive(Debug)]
struct Thread<E: Engine> {
    /// States that no transaction is using. More than one only if several are open at once.
    spare: RefCell<Vec<Box<Work<E>>>>,
    /// Whether a closure is being run.
    is_busy: Cell<bool>,
}

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
}

/// Memory that a database may use if nothing else is said. It is reserved, not used.
const MEMORY: u64 = 64 << 30;

/// Memory for older versions of rows, if nothing else is said.
const OLDER_VERSIONS: u64 = 1 << 30;

/// The least memory with which a database can begin. The model checker makes one for each execution, word by word.
const LEAST_MEMORY: u64 = if cfg!(drtm_loom) { 8 << 10 } else { 4 << 20 };

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// The defaults.
    #[must_use]
    pub const fn new() -> Self {
        Self { memory: MEMORY, at_once: 0, older_versions: OLDER_VERSIONS }
    }

    /// How many bytes the database may use at most. Only addresses are reserved for it; memory is taken as rows come.
    #[must_use]
    pub const fn memory(self, bytes: u64) -> Self {
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
    pub const fn at_once(self, bytes: u64) -> Self {
        Self { at_once: bytes, ..self }
    }

    /// How many bytes of the memory may be used for what rows were, as far as open snapshots need it. What cannot be kept is forgotten, and a snapshot that asks
    /// for it is told so; writers never are.
    #[must_use]
    pub const fn older_versions(self, bytes: u64) -> Self {
        Self { older_versions: bytes, ..self }
    }

    /// Makes the database, with the transactional memory that the machine has.
    ///
    /// # Errors
    ///
    /// When the configuration describes none, or memory cannot be had.
    pub fn build(self) -> Result<Db, Error> {
        self.build_with(Native::chosen()?, Unlogged)
    }

    /// Makes a database of another [setting](Setting).
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build).
    pub fn build_with<S: Setting>(self, engine: S::Engine, hook: S::Hook) -> Result<Db<S>, Error> {
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
            hook,
            threads: ThreadLocal::new(),
            registry: Registry::default(),
            snapshots,
            past: Budget::new(self.older_versions),
            garbage: garbage::Queue::new(),
            ticket: Ticket::default(),
        };
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

impl<S: Setting> Db<S> {
    /// Opens a table, which is made if there is none of that name.
    ///
    /// # Errors
    ///
    /// [`Error::OtherTypes`] if the table is open with others; [`Error::TooManyTables`]; or when memory has run out.
    ///
    /// # Example
    ///
    /// See [`TableDef`].
    pub fn table<K: Key, C: Codec, O: Kind>(&self, def: TableDef<K, C, O>) -> Result<Table<K, C, O>, Error> {
        let number = self.inner.catalog.open(&self.inner.store, def)?;
        Ok(Table::new(self.inner.number, number))
    }

    /// Runs a transaction: `body` as often as it takes for one run to see nothing but what is true all at once, and then everything that it has written
    /// happens at one moment. Gives what the closure gives.
    ///
    /// If the closure fails, nothing has happened, and its error is given. An error or a panic of a run that has seen what is not true together counts for
    /// nothing: the closure is run again.
    ///
    /// # Errors
    ///
    /// The closure's; [`Error::Nested`] within the closure of another transaction; or when memory has run out.
    ///
    /// # Panics
    ///
    /// With the closure's panic, after which the database is as if the transaction had not been.
    ///
    /// # Example
    ///
    /// See [`Db`].
    #[inline]
    pub fn transact<T>(&self, body: impl FnMut(&mut Tx<'_, S>) -> Result<T, Error>) -> Result<T, Error> {
        self.try_transact(body)
    }

    /// As [`transact`](Self::transact), for a closure with errors of its own.
    ///
    /// # Errors
    ///
    /// As for [`transact`](Self::transact).
    ///
    /// # Panics
    ///
    /// As for [`transact`](Self::transact).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Db, Error, Pod, TableDef};
    ///
    /// #[derive(Debug)]
    /// enum Refused {
    ///     Overdrawn { by: i64 },
    ///     Database(Error),
    /// }
    ///
    /// impl From<Error> for Refused {
    ///     fn from(error: Error) -> Self {
    ///         Self::Database(error)
    ///     }
    /// }
    ///
    /// const ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("accounts");
    /// let db = Db::new()?;
    /// let accounts = db.table(ACCOUNTS)?;
    /// let withdraw = |amount: i64| {
    ///     db.try_transact(|tx| {
    ///         let left = tx.get(accounts, &1)?.unwrap_or(0) - amount;
    ///         if left < 0 {
    ///             return Err(Refused::Overdrawn { by: -left });
    ///         }
    ///         Ok(tx.put(accounts, &1, &left)?)
    ///     })
    /// };
    /// assert!(matches!(withdraw(5), Err(Refused::Overdrawn { by: 5 })));
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn try_transact<T, F: From<Error>>(&self, body: impl FnMut(&mut Tx<'_, S>) -> Result<T, F>) -> Result<T, F> {
        self.run(body)
    }

    /// Runs a transaction that only reads. It never gets in the way of those that write, and what it sees is all true at one moment, not before it was begun.
    ///
    /// One that reads little is checked in the end, as others are, and run again if that fails. One that reads more, or that has failed,
    /// goes on in a [snapshot](Self::snapshot), and does not fail.
    ///
    /// # Errors
    ///
    /// The closure's; [`Error::Nested`] within the closure of another transaction; or when there is no room for a snapshot, or for what rows were in it.
    ///
    /// # Panics
    ///
    /// As for [`transact`](Self::transact).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Db, Error, Ordered, Pod, TableDef};
    ///
    /// const STOCK: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("stock");
    /// let db = Db::new()?;
    /// let stock = db.table(STOCK)?;
    /// db.transact(|tx| (0..1_000).try_for_each(|item| tx.insert(stock, &item, &5)))?;
    /// let all: u64 = db.read(|tx| tx.range(stock, ..)?.rows().map(|row| Ok(row?.1)).sum())?;
    /// assert_eq!(all, 5_000);
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn read<T>(&self, body: impl FnMut(&mut Snapshot<'_, S>) -> Result<T, Error>) -> Result<T, Error> {
        self.try_read(body)
    }

    /// As [`read`](Self::read), for a closure with errors of its own.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    ///
    /// # Panics
    ///
    /// As for [`transact`](Self::transact).
    #[inline]
    pub fn try_read<T, F: From<Error>>(&self, body: impl FnMut(&mut Snapshot<'_, S>) -> Result<T, F>) -> Result<T, F> {
        self.run(body)
    }

    /// Everything as it is now, for as long as it is wanted: a transaction that only reads, never fails for what others write, and is not noticed by them. What rows
    /// were is kept for it as they change, as far as there is [memory](Builder::older_versions) for that.
    ///
    /// # Errors
    ///
    /// [`Error::TooManySnapshots`]; [`Error::Nested`] within the closure of a transaction.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Db, Error, Pod, TableDef};
    ///
    /// const PRICES: TableDef<u64, Pod<u64>> = TableDef::hash("prices");
    /// let db = Db::new()?;
    /// let prices = db.table(PRICES)?;
    /// db.transact(|tx| tx.put(prices, &1, &10))?;
    ///
    /// let mut yesterday = db.snapshot()?;
    /// db.transact(|tx| {
    ///     tx.put(prices, &1, &12)?;
    ///     tx.put(prices, &2, &7)
    /// })?;
    /// assert_eq!(yesterday.get_many(prices, &[1, 2])?, [Some(10), None]);
    /// assert_eq!(db.snapshot()?.get_many(prices, &[1, 2])?, [Some(12), Some(7)]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn snapshot(&self) -> Result<Snapshot<'_, S>, Error> {
        let mut tx = self.open(false)?;
        tx.turn_to_snapshot()?;
        Ok(tx)
    }

    /// Runs a transaction's closure until it has ended.
    #[inline]
    fn run<T, F: From<Error>, M: Mode>(&self, mut body: impl FnMut(&mut Tx<'_, S, M>) -> Result<T, F>) -> Result<T, F> {
        let thread = self.inner.thread();
        if thread.is_busy.replace(true) {
            return Err(Error::Nested.into());
        }
        let _until_the_end = Busy(&thread.is_busy);
        let waiter = Waiter::new();
        let (mut tries, mut ticket) = (0, None);
        loop {
            if M::WRITES && tries == ticket::TRIES {
                ticket = Some(self.inner.ticket.take());
            }
            let mut tx = Tx::new(&self.inner, self.inner.take(thread), false, ticket.is_some());
            if !M::WRITES && tries > 0 {
                tx.turn_to_snapshot()?;
            }
            tries += 1;
            match catch_unwind(AssertUnwindSafe(|| body(&mut tx))) {
                Ok(Ok(value)) => match tx.try_commit() {
                    Ok(()) => return Ok(value),
                    Err(Error::Conflict(_)) => {}
                    Err(error) => return Err(error.into()),
                },
                Ok(Err(error)) => match tx.refuted() {
                    None => return Err(error),
                    Some(conflict) => tx.end(Some(conflict)),
                },
                Err(panic) => match tx.refuted() {
                    None => {
                        drop(tx);
                        resume_unwind(panic)
                    }
                    Some(conflict) => tx.end(Some(conflict)),
                },
            }
            waiter.pause();
        }
    }

    /// Begins a transaction, to be [committed](Tx::commit) or dropped. What it reads is always true all at once: a read that would not be fails, with
    /// [`Error::Conflict`]. A thread can have several.
    ///
    /// # Errors
    ///
    /// [`Error::Nested`] within the closure of a transaction.
    ///
    /// # Example
    ///
    /// See [`Tx`].
    pub fn begin(&self) -> Result<Tx<'_, S>, Error> {
        self.open(true)
    }

    /// A transaction that no closure is run in.
    fn open<M: Mode>(&self, is_opaque: bool) -> Result<Tx<'_, S, M>, Error> {
        let thread = self.inner.thread();
        if thread.is_busy.get() {
            return Err(Error::Nested);
        }
        Ok(Tx::new(&self.inner, self.inner.take(thread), is_opaque, false))
    }

    /// What has become of transactions so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.registry.sum()
    }

    /// What became of hardware regions so far, where there are such.
    #[must_use]
    pub fn regions(&self) -> drtm_htm::Stats {
        self.inner.store.regions()
    }

    /// Bytes of memory that hold what rows were, for open snapshots, or until somebody notices that none needs them any longer.
    #[must_use]
    pub fn older_versions(&self) -> u64 {
        self.inner.past.used()
    }

    /// Who is told of commits.
    #[must_use]
    pub fn hook(&self) -> &S::Hook {
        &self.inner.hook
    }

    /// The tables that are open, indexes included: their names, and how many records each has. A record of a row that is just being inserted or removed counts too.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Db, Error, Raw, TableDef};
    ///
    /// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    /// let db = Db::new()?;
    /// let notes = db.table(NOTES)?;
    /// db.transact(|tx| tx.insert(notes, &1, b"one"))?;
    /// assert_eq!(db.tables()?, [("notes", 1)]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn tables(&self) -> Result<Vec<(&'static str, u64)>, Error> {
        self.inner.catalog.all().map(|table| Ok((table.name, table.index.records()?))).collect()
    }
}

/// Says that no closure is being run any more, however it ends.
struct Busy<'t>(&'t Cell<bool>);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl<S: Setting> Inner<S> {
    #[inline(always)]
    pub(crate) fn engine(&self) -> &S::Engine {
        self.store.region().engine()
    }

    #[inline(always)]
    pub(crate) fn snapshot_number(&self) -> Result<&Word, KvError> {
        self.snapshots.number(&self.store)
    }

    #[inline]
    fn thread(&self) -> &Thread<S::Engine> {
        self.threads.get_or(|| Thread { spare: RefCell::default(), is_busy: Cell::new(false) })
    }

    /// A state for a transaction of this thread.
    #[inline]
    fn take(&self, thread: &Thread<S::Engine>) -> Box<Work<S::Engine>> {
        // The model checker's threads are all the same one here, and must not have each other's: that of a lock's holder knows what it has locked.
        let spare = if cfg!(drtm_loom) { None } else { thread.spare.borrow_mut().pop() };
        spare.unwrap_or_else(|| Box::new(Work::new(self.store.worker(), self.registry.register())))
    }

    /// Keeps a state for this thread's next transaction.
    #[inline]
    pub(crate) fn give_back(&self, work: Box<Work<S::Engine>>) {
        self.thread().spare.borrow_mut().push(work);
    }
}
