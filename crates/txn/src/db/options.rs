//! Options of a closure's transaction.

use std::time::{Duration, Instant};

/// Options for [`Db::transact_with`](crate::Db::transact_with). By default a transaction is retried
/// without a limit, as [`Db::transact`](crate::Db::transact) does.
///
/// # Example
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use drtm::{Db, Error, Options, Pod, TableDef};
///
/// const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
/// let db = Db::new()?;
/// let counters = db.table(COUNTERS)?;
/// db.transact(|tx| tx.put(counters, &1, &0))?;
///
/// let patience = Options::new().attempts(3).deadline(Instant::now() + Duration::from_secs(1));
/// let mut other = 0;
/// let failed = db.transact_with(patience, |tx| {
///     let count = tx.get(counters, &1)?.unwrap_or(0);
///     // Another thread is always faster.
///     other += 1;
///     std::thread::scope(|scope| scope.spawn(|| db.transact(|tx| tx.put(counters, &1, &other))).join())
///         .expect("no panic")?;
///     tx.put(counters, &1, &(count + 1))
/// });
/// match failed {
///     Err(Error::Contended { attempts: 3, table: Some("counters"), key, .. }) => assert_eq!(key, 1_u64.to_be_bytes()),
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    attempts: Option<u32>,
    deadline: Option<Instant>,
    patience: Option<Duration>,
    pub(crate) is_opaque: bool,
}

impl Options {
    /// Returns the options of [`Db::transact`](crate::Db::transact).
    ///
    /// # Example
    ///
    /// See [`Options`].
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self { attempts: None, deadline: None, patience: None, is_opaque: false }
    }

    /// Limits the number of runs of the closure. It is run at least once.
    ///
    /// # Example
    ///
    /// See [`Options`].
    #[must_use]
    #[inline]
    pub const fn attempts(self, most: u32) -> Self {
        Self { attempts: Some(most), ..self }
    }

    /// Sets a time after which the closure is not retried. A run is not interrupted. A transaction
    /// that is about to commit may wait for one that has starved: up to 100 ms at first, and up to
    /// 2 s for one that has starved repeatedly.
    ///
    /// # Example
    ///
    /// See [`Options`].
    #[must_use]
    #[inline]
    pub const fn deadline(self, at: Instant) -> Self {
        Self { deadline: Some(at), ..self }
    }

    /// Sets a [deadline](Self::deadline) this long after the transaction begins.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use drtm::{Db, Error, Options, Pod, TableDef};
    ///
    /// const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
    /// let db = Db::new()?;
    /// let counters = db.table(COUNTERS)?;
    /// db.transact(|tx| tx.put(counters, &1, &0))?;
    ///
    /// let mut other = 0;
    /// let failed = db.transact_with(Options::new().within(Duration::ZERO), |tx| {
    ///     let count = tx.get(counters, &1)?.unwrap_or(0);
    ///     // Another thread is faster.
    ///     other += 1;
    ///     std::thread::scope(|scope| scope.spawn(|| db.transact(|tx| tx.put(counters, &1, &other))).join())
    ///         .expect("no panic")?;
    ///     tx.put(counters, &1, &(count + 1))
    /// });
    /// assert!(matches!(failed, Err(Error::Contended { attempts: 1, .. })));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    #[inline]
    pub const fn within(self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self }
    }

    /// Makes every read check that all rows read so far are consistent. A read that would not be
    /// fails with [`Error::Conflict`](crate::Error::Conflict), and the closure is retried.
    ///
    /// Without it, a run that will be retried may see rows of different moments.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Options, Pod, TableDef};
    ///
    /// const PARTS: TableDef<u64, Pod<i64>> = TableDef::hash("parts of a hundred");
    /// let db = Db::new()?;
    /// let parts = db.table(PARTS)?;
    /// db.transact(|tx| tx.put(parts, &1, &30).and_then(|()| tx.put(parts, &2, &70)))?;
    /// db.transact_with(Options::new().opaque(), |tx| {
    ///     let (one, two) = (tx.get(parts, &1)?.unwrap_or(0), tx.get(parts, &2)?.unwrap_or(0));
    ///     // Holds in every run, so that code that relies on it does not meet anything else.
    ///     assert_eq!(one + two, 100);
    ///     tx.put(parts, &1, &(one + 1))?;
    ///     tx.put(parts, &2, &(two - 1))
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    #[inline]
    pub const fn opaque(self) -> Self {
        Self { is_opaque: true, ..self }
    }

    /// Returns the options of a transaction that begins now, with its patience as a deadline.
    #[inline]
    pub(crate) fn begun(self) -> Self {
        let Some(patience) = self.patience else { return self };
        // A deadline beyond the range of `Instant` is none.
        let until = Instant::now().checked_add(patience);
        let deadline = match (self.deadline, until) {
            (Some(deadline), Some(until)) => Some(deadline.min(until)),
            (deadline, until) => deadline.or(until),
        };
        Self { deadline, patience: None, ..self }
    }

    /// Returns how long the closure may be retried from now on. `None` means without a limit.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let left = self.deadline.map(|at| at.saturating_duration_since(Instant::now()));
        match (left, self.patience) {
            (Some(left), Some(patience)) => Some(left.min(patience)),
            (left, patience) => left.or(patience),
        }
    }

    /// Returns the deadline of options that have [begun](Self::begun).
    pub(crate) fn until(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns whether the options limit the closure's runs.
    #[inline(always)]
    pub(crate) const fn is_bounded(&self) -> bool {
        self.attempts.is_some() || self.deadline.is_some()
    }

    /// Returns whether `runs` is the most that the options allow.
    pub(crate) fn allows_no_more_than(&self, runs: u32) -> bool {
        self.attempts.is_some_and(|most| runs >= most)
    }

    /// Returns whether the closure may not be run again after this many runs.
    pub(crate) fn are_exhausted(&self, runs: u32) -> bool {
        self.allows_no_more_than(runs) || self.deadline.is_some_and(|at| Instant::now() >= at)
    }
}
