//! The database handle: one node, in memory, shared by any number of threads.

mod builder;
mod checkpoint;
mod close;
mod compact;
pub(crate) mod config;
pub(crate) mod inner;
pub(crate) mod lifecycle;
#[cfg(all(test, feature = "bincode"))]
pub(crate) mod limits;
#[cfg(feature = "metrics")]
mod metrics;
mod migrate;
pub(crate) mod name;
mod options;
mod report;
mod retry;
mod schema;
pub(crate) mod stats;
pub(crate) mod unfinished;

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

pub use builder::Builder;
pub use compact::Compacted;
pub use options::Options;
use retry::Retry;
#[cfg(test)]
pub(crate) use {
    builder::{DURABILITY, MEMORY},
    close::PATIENCE,
};

use crate::{
    Codec, CommitToken, Config, DefaultConfig, Error, Key, Mode, ReadOnly, Snapshot, Table, TableDef, Tx, Update,
    db::{inner::Inner, lifecycle::thread_name},
    durability::format::CatalogChange,
    schema::{catalog::beside, table::Kind},
};

/// An in-memory transactional database. Clones share one database, and any thread may use them.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, Pod, TableDef};
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
pub struct Db<S: Config = DefaultConfig> {
    pub(crate) inner: Arc<Inner<S>>,
}

impl<S: Config> Clone for Db<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<S: Config> Db<S> {
    /// Opens a table, and creates it if no table has that name.
    ///
    /// # Errors
    ///
    /// [`Error::OtherTypes`] if the table is open, or was written, with other types;
    /// [`Error::Unmigrated`] if a [migration](Self::migrate) of it was interrupted;
    /// [`Error::TooManyTables`]; [`Error::Closed`]; or when memory has run out.
    ///
    /// # Example
    ///
    /// See [`TableDef`].
    pub fn table<K: Key, C: Codec, O: Kind>(&self, def: TableDef<K, C, O>) -> Result<Table<K, C, O>, Error> {
        if self.inner.catalog.named(&beside(def.name())).is_some() {
            return Err(Error::Unmigrated { table: def.name() });
        }
        self.open_table(def)
    }

    /// [Opens](Self::table) a table, even if a migration is under way.
    fn open_table<K: Key, C: Codec, O: Kind>(&self, def: TableDef<K, C, O>) -> Result<Table<K, C, O>, Error> {
        self.inner.lifecycle.admit_opening(self.inner.engine())?;
        let db = &*self.inner;
        let announce = |id, shape| db.announce(&CatalogChange::Table(id, shape));
        let table = db.catalog.open(&db.store, (def, def.types(None)), announce)?;
        db.after_announcement()?;
        Ok(table)
    }

    /// Runs `body` in a serializable transaction, retrying on conflict. Its writes become visible
    /// atomically. Returns the closure's result. (A closure with its own error type is for
    /// [`try_transact`](Self::try_transact).)
    ///
    /// If the closure fails, none of its writes are applied, and its error is returned.
    ///
    /// # What a closure must not do
    ///
    /// - *Rely on a single run.* The closure is run again on a conflict, so its side effects
    ///   outside the database are repeated. It should do its work through the transaction, and
    ///   return the rest.
    /// - *Trust what it reads before the commit.* A run that will be retried may have seen rows of
    ///   different moments. Its errors and panics are discarded. But a panic still reaches the
    ///   panic hook, and with `panic = "abort"` it ends the process. A loop may not end, and an
    ///   index may be out of bounds. Where that matters, use [opacity](Options::opaque).
    /// - *Wait for another thread's transaction that writes what this one reads.* Each of its runs
    ///   then fails, and it retries for ever, unless the [options](Self::transact_with) bound it.
    ///   It delays other transactions meanwhile: by at most 2 s at a time, and those that write
    ///   nothing that it has read only once it has failed four times more.
    /// - *Read for longer than others wait.* A transaction that fails repeatedly gets priority, for
    ///   100 ms at first and 2 s in the end. One whose single run takes longer may never commit
    ///   among writers: [`read`](Self::read) does not conflict.
    /// - *Run another closure of the same database.* This fails with [`Error::Nested`].
    ///
    /// # Errors
    ///
    /// The closure's error; [`Error::Nested`] within the closure of another transaction;
    /// [`Error::Closed`]; or when memory has run out.
    ///
    /// # Panics
    ///
    /// Panics if the closure panics. The database is then as if the transaction had never run.
    ///
    /// # Example
    ///
    /// See [`Db`].
    // The compiler shows the line of a parameter that a closure does not match.
    #[inline]
    pub fn transact<T>(
        &self,
        body: impl FnMut(&mut Tx<'_, S>) -> Result<T, Error>, // with another error type: `try_transact`
    ) -> Result<T, Error> {
        self.try_transact(body)
    }

    /// Like [`transact`](Self::transact), but for a closure with its own error type.
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
    /// use drtm::{Db, Error, Pod, TableDef};
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
        self.run::<T, F, Update>(const { &Options::new() }, body)
    }

    /// Like [`transact`](Self::transact), but with [`Options`]: a limit on the number of runs, a
    /// deadline, or [opacity](Options::opaque).
    ///
    /// # Errors
    ///
    /// [`Error::Contended`] when the options do not allow another run; otherwise as for
    /// [`transact`](Self::transact).
    ///
    /// # Panics
    ///
    /// As for [`transact`](Self::transact).
    ///
    /// # Example
    ///
    /// See [`Options`].
    #[inline]
    pub fn transact_with<T>(
        &self,
        options: Options,
        body: impl FnMut(&mut Tx<'_, S>) -> Result<T, Error>, // with another error type: `try_transact_with`
    ) -> Result<T, Error> {
        self.run::<T, Error, Update>(&options.begun(), body)
    }

    /// Like [`transact_with`](Self::transact_with), but for a closure with its own error type.
    ///
    /// # Errors
    ///
    /// As for [`transact_with`](Self::transact_with).
    ///
    /// # Panics
    ///
    /// As for [`transact`](Self::transact).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Options};
    ///
    /// #[derive(Debug)]
    /// enum Failure {
    ///     NoCoffee,
    ///     Database(Error),
    /// }
    ///
    /// impl From<Error> for Failure {
    ///     fn from(error: Error) -> Self {
    ///         Self::Database(error)
    ///     }
    /// }
    ///
    /// let db = Db::new()?;
    /// let once = Options::new().attempts(1);
    /// let failed = db.try_transact_with(once, |_| Err::<(), _>(Failure::NoCoffee));
    /// assert!(matches!(failed, Err(Failure::NoCoffee)));
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn try_transact_with<T, F: From<Error>>(
        &self,
        options: Options,
        body: impl FnMut(&mut Tx<'_, S>) -> Result<T, F>,
    ) -> Result<T, F> {
        self.run::<T, F, Update>(&options.begun(), body)
    }

    /// Like [`transact`](Self::transact), but returns before the transaction is durable. The
    /// returned token can be waited for, or awaited.
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
    /// See [`CommitToken`].
    pub fn submit<T>(
        &self,
        mut body: impl FnMut(&mut Tx<'_, S>) -> Result<T, Error>,
    ) -> Result<(T, CommitToken), Error> {
        let value = self.run::<T, Error, Update>(const { &Options::new() }, |tx: &mut Tx<'_, S>| {
            tx.be_submitted();
            body(tx)
        })?;
        let db = &*self.inner;
        Ok((value, CommitToken::new(db.log.as_ref(), db.thread().submitted.get())))
    }

    /// Runs a read-only transaction. It never blocks or aborts writers. It sees a consistent state,
    /// no older than its begin.
    ///
    /// A transaction that reads up to about a thousand rows is validated at its end, and retried if
    /// validation fails. One that reads more, or that has failed, continues in a
    /// [snapshot](Self::snapshot), which never conflicts.
    ///
    /// In a database whose commits are [`Sync`](crate::Durability::Sync), it returns when the rows
    /// that it has read are durable. If it has found keys absent, or continued in a snapshot, it
    /// waits for everything that was committed before. To read what is not durable yet, without
    /// waiting, call [`set_durability`](Tx::set_durability) with
    /// [`Async`](crate::Durability::Async) in the closure, or use a [snapshot](Self::snapshot).
    ///
    /// # Errors
    ///
    /// The closure's error; [`Error::Nested`] within the closure of another transaction;
    /// [`Error::Closed`]; or [`Error::SnapshotTooOld`] when there was no memory for older versions
    /// that its snapshot needed. When it has read what is not durable: [`Error::NotYetDurable`] if
    /// that does not become durable in time or the disk is full, and [`Error::Poisoned`] if the log
    /// has failed.
    ///
    /// # Panics
    ///
    /// As for [`transact`](Self::transact).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Ordered, Pod, TableDef};
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
    pub fn read<T>(
        &self,
        body: impl FnMut(&mut Snapshot<'_, S>) -> Result<T, Error>, // with another error type: `try_read`
    ) -> Result<T, Error> {
        self.try_read(body)
    }

    /// Like [`read`](Self::read), but for a closure with its own error type.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    ///
    /// # Panics
    ///
    /// As for [`transact`](Self::transact).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef};
    ///
    /// const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
    /// let db = Db::new()?;
    /// let counters = db.table(COUNTERS)?;
    /// let read = || -> Result<u64, Box<dyn std::error::Error>> {
    ///     db.try_read(|tx| tx.get(counters, 1)?.ok_or_else(|| "no such counter".into()))
    /// };
    /// assert_eq!(read().unwrap_err().to_string(), "no such counter");
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn try_read<T, F: From<Error>>(&self, body: impl FnMut(&mut Snapshot<'_, S>) -> Result<T, F>) -> Result<T, F> {
        self.run::<T, F, ReadOnly>(const { &Options::new() }, body)
    }

    /// Opens a snapshot: a read-only transaction over the current state, for as long as it is kept.
    /// It never conflicts with writers, and never delays them. Older versions of rows are kept for
    /// it as rows change, within the [memory](Builder::older_versions) for them.
    ///
    /// # Errors
    ///
    /// [`Error::Nested`] within the closure of a transaction; [`Error::Closed`].
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef};
    ///
    /// const PRICES: TableDef<u64, Pod<u64>> = TableDef::hash("prices");
    /// let db = Db::new()?;
    /// let prices = db.table(PRICES)?;
    /// db.transact(|tx| tx.put(prices, &1, &10))?;
    ///
    /// let yesterday = db.snapshot()?;
    /// db.transact(|tx| {
    ///     tx.put(prices, &1, &12)?;
    ///     tx.put(prices, &2, &7)
    /// })?;
    /// assert_eq!(yesterday.get_many(prices, &[1, 2])?, [Some(10), None]);
    /// assert_eq!(db.snapshot()?.get_many(prices, &[1, 2])?, [Some(12), Some(7)]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn snapshot(&self) -> Result<Snapshot<'_, S>, Error> {
        let mut snapshot: Snapshot<'_, S> = self.begin_any(false)?;
        snapshot.turn_to_snapshot()?;
        Ok(snapshot)
    }

    /// Runs a transaction's closure, retrying until it commits or fails.
    #[inline]
    fn run<T, F: From<Error>, M: Mode>(
        &self,
        options: &Options,
        mut body: impl FnMut(&mut Tx<'_, S, M>) -> Result<T, F>,
    ) -> Result<T, F> {
        let thread = self.inner.thread();
        let (_until_the_end, mut admission) = self.inner.enter(thread)?;
        let mut retry = Retry::new();
        loop {
            // `None`: there was no memory, and there is some now.
            let conflict = {
                let mut state = self.inner.take(thread)?;
                state.session.admission = admission;
                let mut tx = Tx::<S, M>::new(&self.inner, state, options.is_opaque, options.is_bounded());
                if !M::WRITES && !retry.is_first() {
                    tx.turn_to_snapshot()?;
                }
                let done = catch_unwind(AssertUnwindSafe(|| body(&mut tx)));
                match done {
                    Ok(Ok(value)) => match tx.try_commit(thread) {
                        Ok(()) => return Ok(value),
                        Err(Error::Conflict(conflict)) => Some(conflict),
                        Err(_) if retry.finds_memory(&self.inner, thread, options)? => None,
                        Err(error) => return Err(error.into()),
                    },
                    broken_off => match (tx.validation_error(), broken_off) {
                        (Some(conflict), _) => {
                            tx.end(Some(conflict), Some(thread));
                            Some(conflict)
                        }
                        (None, Ok(failed)) => {
                            tx.end(None, Some(thread));
                            if !retry.finds_memory(&self.inner, thread, options)? {
                                return failed;
                            }
                            None
                        }
                        (None, Err(panic)) => {
                            tx.end(None, None);
                            resume_unwind(panic)
                        }
                    },
                }
            };
            if let Some(conflict) = conflict {
                retry.again(&self.inner, thread, conflict, options, M::WRITES)?;
            }
            admission = self.inner.admit_again(thread)?;
        }
    }

    /// Begins a transaction, which is then [committed](Tx::commit) or dropped. All that it reads is
    /// consistent: a read that would not be fails with [`Error::Conflict`]. A thread can have
    /// several such transactions.
    ///
    /// # Errors
    ///
    /// [`Error::Nested`] within the closure of a transaction; [`Error::Closed`].
    ///
    /// # Example
    ///
    /// See [`Tx`].
    pub fn begin(&self) -> Result<Tx<'_, S>, Error> {
        self.begin_any(true)
    }

    /// Returns whether this thread is running a transaction's closure.
    pub(crate) fn is_in_closure(&self) -> bool {
        self.inner.thread().slot.is_active(self.inner.engine())
    }

    /// Begins a transaction that runs no closure.
    fn begin_any<M: Mode>(&self, is_opaque: bool) -> Result<Tx<'_, S, M>, Error> {
        let (db, engine) = (&*self.inner, self.inner.engine());
        let thread = db.thread();
        if thread.slot.is_active(engine) {
            return Err(Error::Nested);
        }
        let admission = db.lifecycle.admit(engine, false)?;
        let mut state = db.take(thread)?;
        state.session.admission = admission;
        state.session.enter(engine, &db.lifecycle, thread_name());
        Ok(Tx::new(db, state, is_opaque, false))
    }
}
