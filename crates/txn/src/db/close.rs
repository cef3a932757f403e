//! Closing a database.

use std::time::Duration;

use super::Db;
use crate::{
    Config, Error,
    trace::{event, within},
};

/// How long [`Db::close`] waits for transactions.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

impl<S: Config> Db<S> {
    /// Closes the database, for all its clones and permanently. From now on, every operation fails
    /// with [`Error::Closed`]. Transactions and snapshots that are open may finish: this waits
    /// until they have, for five seconds at most. After that nothing commits, and the
    /// [sink](crate::Sink) is not called again.
    ///
    /// The [statistics](Self::stats) can still be read. The memory is freed when the last clone is
    /// dropped. Closing a closed database has no effect.
    ///
    /// A transaction of another thread that only reads a few rows, and begins at that very moment,
    /// may be missed. It then reads on for a while in memory that no longer changes.
    ///
    /// # Errors
    ///
    /// [`Error::OutcomeUnknown`] if the log could not be written: all that was acknowledged as
    /// durable is durable, but perhaps not the rest.
    ///
    /// [`Error::NotYetDurable`] if there is something that is not durable, and the disk is full.
    /// The database then admits no transactions, but keeps its directory. It can be closed again
    /// when there is room. What is not durable by then is lost when the last clone is dropped.
    ///
    /// [`Error::InTransaction`] if this thread has begun a transaction or a snapshot that has not
    /// ended: it would wait for itself. The database stays open.
    ///
    /// [`Error::StillRunning`] if transactions or snapshots have not ended within five seconds.
    /// Perhaps this thread holds one that another thread began, or one was leaked. To wait for
    /// another time, use [`close_within`](Self::close_within).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef};
    ///
    /// const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
    /// let db = Db::new()?;
    /// let counters = db.table(COUNTERS)?;
    /// let clone = db.clone();
    /// let counting = std::thread::spawn(move || {
    ///     let mut counted = 0;
    ///     while clone.transact(|tx| tx.put(counters, &1, &counted)).is_ok() {
    ///         counted += 1;
    ///     }
    ///     counted
    /// });
    /// db.close()?;
    /// assert!(matches!(db.read(|tx| tx.get(counters, &1)), Err(Error::Closed)));
    /// let counted = counting.join().expect("it does not panic");
    /// assert_eq!(db.stats().commits, counted);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn close(&self) -> Result<(), Error> {
        self.close_within(Some(PATIENCE))
    }

    /// Like [`close`](Self::close), but waits for at most `patience`, or without a limit if that is
    /// `None`.
    ///
    /// # Errors
    ///
    /// [`Error::StillRunning`] when the time is over. The database then admits no new transactions;
    /// open ones may still finish, and this can be called again to wait longer. Otherwise as for
    /// [`close`](Self::close).
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use drtm::{Db, Error};
    ///
    /// let db = Db::new()?;
    /// std::thread::scope(|scope| {
    ///     let tx = db.begin()?;
    ///     // Another thread that closes waits for it.
    ///     let closing = scope.spawn(|| db.close_within(Some(Duration::from_millis(5))));
    ///     let closed = closing.join().expect("it does not panic");
    ///     assert!(matches!(closed, Err(Error::StillRunning { transactions: 1 })));
    ///     assert!(matches!(db.close(), Err(Error::InTransaction)), "this thread would wait for itself");
    ///     tx.commit()?;
    ///     db.close()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn close_within(&self, patience: Option<Duration>) -> Result<(), Error> {
        let db = &*self.inner;
        within!("close", [database = db.number], {
            let closed = db.lifecycle.close(db.engine(), db.thread().slot.name, patience);
            let closed = closed.and_then(|()| db.log.as_ref().map_or(Ok(()), |log| log.shut_down()));
            match &closed {
                Ok(()) => event!(info, database = db.number, "a database is closed"),
                Err(_why) => event!(warn, database = db.number, why = %_why, "a database is not closed"),
            }
            closed
        })
    }

    /// Returns whether the database has been [closed](Self::close), even if transactions are still
    /// finishing.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error};
    ///
    /// let db = Db::new()?;
    /// assert!(!db.is_closed());
    /// db.close()?;
    /// assert!(db.is_closed());
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.lifecycle.is_closed(self.inner.engine())
    }
}
