//! Read-only transactions, which several readers share.
//!
//! A read takes the transaction's state for as long as it lasts. While a closure is shown a row,
//! the read that shows it is not over. If the closure reads too, it gets another state: the read
//! is *nested*. At the end, what nested reads have seen is added to the read set, and validated
//! with it.

use std::{
    cell::{OnceCell, RefCell},
    fmt,
};

use super::{Lend, Range, ReadOnly, Tx, lend::Lender};
use crate::{
    AsKey, Codec, Config, Conflict, DefaultConfig, Durability, Error, Flow, Key, KeyRange, Point, Prefetched, Sorted,
    Stored, Table, inner::Inner, snapshots, table::Kind,
};

/// A read-only transaction, or a snapshot. It never blocks or aborts writers.
///
/// All reads take `&self`. So several ranges can be open at once, and rows can be read while a
/// range is open, or while a closure is shown a row. A snapshot can move to another thread, but
/// threads cannot share it: it is `Send`, and not `Sync`.
///
/// A read within a closure that is shown a row sees what any other read of the transaction sees. In
/// a [snapshot](crate::Db::snapshot) that is the snapshot. In [`Db::read`](crate::Db::read) it is
/// validated when the transaction ends, together with all others. If such closures read more than
/// about a thousand rows, the transaction runs again in a snapshot.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, Ordered, Pod, Serde, TableDef};
///
/// const ORDERS: TableDef<(u32, u32), Pod<u64>, Ordered> = TableDef::ordered("orders");
/// const ITEMS: TableDef<u64, Serde<String>> = TableDef::hash("items");
/// let db = Db::new()?;
/// let (orders, items) = (db.table(ORDERS)?, db.table(ITEMS)?);
/// db.transact(|tx| {
///     tx.insert(items, 17, &"nails".to_owned())?;
///     tx.insert(items, 18, &"nuts".to_owned())?;
///     tx.insert(orders, (7, 1), &18)?;
///     tx.insert(orders, (7, 2), &17)
/// })?;
/// let ordered: Vec<_> = db.read(|tx| {
///     let of_customer = tx.range(orders, (7, 0)..=(7, u32::MAX))?;
///     of_customer.rows().filter_map(|row| row.and_then(|(_, item)| tx.get(items, item)).transpose()).collect()
/// })?;
/// assert_eq!(ordered, ["nuts", "nails"]);
///
/// // A row can be read while another one is shown.
/// let snapshot = db.snapshot()?;
/// let name = snapshot.view(orders, (7, 1), |item| snapshot.get(items, item))?;
/// assert_eq!(name.transpose()?.flatten().as_deref(), Some("nuts"));
/// # Ok::<(), Error>(())
/// ```
///
/// ```
/// fn moves<T: Send>() {}
/// moves::<drtm::Snapshot<'_>>();
/// ```
///
/// ```compile_fail
/// fn is_shared<T: Sync>() {}
/// is_shared::<drtm::Snapshot<'_>>();
/// ```
///
/// A snapshot has no methods that write. This does not compile:
///
/// ```compile_fail
/// use drtm::{Db, Error, Raw, TableDef};
///
/// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
/// let db = Db::new()?;
/// let notes = db.table(NOTES)?;
/// db.read(|tx| tx.put(notes, &1, b"no"))?;
/// # Ok::<(), Error>(())
/// ```
///
/// It does not end while a range of it is open. Neither does this compile:
///
/// ```compile_fail
/// use drtm::{Db, Error, Ordered, Raw, TableDef};
///
/// const NOTES: TableDef<u64, Raw, Ordered> = TableDef::ordered("notes");
/// let db = Db::new()?;
/// let notes = db.table(NOTES)?;
/// let snapshot = db.snapshot()?;
/// let mut rows = snapshot.range(notes, ..)?;
/// snapshot.commit()?;
/// rows.next()?;
/// # Ok::<(), Error>(())
/// ```
pub struct Snapshot<'db, S: Config = DefaultConfig> {
    db: &'db Inner<S>,
    main: RefCell<Tx<'db, S, ReadOnly>>,
    nested: OnceCell<Box<Nested<'db, S>>>,
    /// The snapshot that all of its reads see. `None` if it began to read in the present.
    since: Option<snapshots::Opened>,
}

/// A transaction for nested reads, and one for those that are nested in these.
struct Nested<'db, S: Config> {
    tx: RefCell<Tx<'db, S, ReadOnly>>,
    next: OnceCell<Box<Self>>,
}

impl<S: Config> Drop for Nested<'_, S> {
    fn drop(&mut self) {
        let tx = self.tx.get_mut();
        // It neither commits nor aborts.
        if let Some(mut state) = tx.state.take() {
            state.is_nested = false;
            state.clear();
            tx.db.give_to_others(state);
        }
    }
}

impl<S: Config> fmt::Debug for Snapshot<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("since", &self.since).finish_non_exhaustive()
    }
}

impl<'db, S: Config> Snapshot<'db, S> {
    #[inline(always)]
    pub(crate) fn new(tx: Tx<'db, S, ReadOnly>) -> Self {
        Self { db: tx.db, main: RefCell::new(tx), nested: OnceCell::new(), since: None }
    }

    /// Continues in a snapshot of now, which has read nothing yet.
    #[cold]
    pub(crate) fn turn_to_snapshot(&mut self) -> Result<(), Error> {
        let main = self.main.get_mut();
        main.turn_to_snapshot()?;
        self.since = main.snapshot;
        Ok(())
    }

    /// Calls `read` with a transaction that is not in use.
    #[inline(always)]
    pub(super) fn with<T>(&self, read: impl FnOnce(&mut Tx<'db, S, ReadOnly>) -> Result<T, Error>) -> Result<T, Error> {
        let tx = if self.main.try_borrow_mut().is_ok() { &self.main } else { self.nested()? };
        read(&mut tx.borrow_mut())
    }

    /// Returns a transaction for a nested read.
    #[cold]
    #[inline(never)]
    fn nested(&self) -> Result<&RefCell<Tx<'db, S, ReadOnly>>, Error> {
        let mut place = &self.nested;
        loop {
            let nested = match place.get() {
                Some(nested) => nested,
                None => {
                    let nested = self.begin_nested()?;
                    place.get_or_init(|| nested)
                }
            };
            if nested.tx.try_borrow_mut().is_ok() {
                return Ok(&nested.tx);
            }
            place = &nested.next;
        }
    }

    fn begin_nested(&self) -> Result<Box<Nested<'db, S>>, Error> {
        let db = self.db;
        let mut state = db.take(db.thread())?;
        state.session.admission = db.lifecycle.now(db.engine());
        state.is_nested = true;
        let mut tx = Tx::new(db, state, false, false);
        tx.snapshot = self.since;
        Ok(Box::new(Nested { tx: RefCell::new(tx), next: OnceCell::new() }))
    }

    /// Returns the transaction with all that it has read, to be ended.
    #[inline(always)]
    pub(crate) fn whole(&mut self) -> &mut Tx<'db, S, ReadOnly> {
        if self.nested.get().is_some() {
            self.absorb();
        }
        self.main.get_mut()
    }

    /// Adds what nested reads have seen to the read set.
    #[cold]
    #[inline(never)]
    fn absorb(&mut self) {
        let main = self.main.get_mut();
        // Its own reads are of the snapshot in which it has continued, and the nested ones are not.
        let is_mixed = main.past().is_some() && self.since.is_none();
        let mut rest = self.nested.take();
        while let Some(mut nested) = rest {
            rest = nested.next.take();
            let tx = nested.tx.get_mut();
            let reads = &mut tx.state().reads;
            if is_mixed && !reads.is_empty() {
                main.doomed.get_or_insert(Conflict::Validation);
            }
            main.state().reads.absorb(reads);
            main.doomed = main.doomed.or(tx.doomed);
        }
    }

    /// Calls `read` with the transaction in exclusive use: for code that reads in
    /// [either mode](crate::Mode).
    ///
    /// # Example
    ///
    /// See [`Mode`](crate::Mode).
    #[inline]
    pub fn exclusive<T>(&mut self, read: impl FnOnce(&mut Tx<'db, S, ReadOnly>) -> T) -> T {
        let since = self.since.take();
        let main = self.whole();
        let done = read(main);
        // It may be another one now: a mutable reference allows to swap.
        (self.db, self.since) = (main.db, since.and(main.snapshot));
        done
    }

    /// Chooses whether the end waits until what was read is durable. Like [`Tx::set_durability`].
    ///
    /// # Errors
    ///
    /// As for [`Tx::set_durability`].
    ///
    /// # Example
    ///
    /// See [`Tx::set_durability`].
    pub fn set_durability(&mut self, durability: Durability) -> Result<(), Error> {
        self.main.get_mut().set_durability(durability)
    }

    /// Ends the transaction. Fails if what it has read was not true at one moment. With a log it
    /// also waits, if the durability demands it, until all that it has read is durable.
    ///
    /// # Errors
    ///
    /// As for [`Tx::commit`]. A [snapshot](crate::Db::snapshot) never conflicts.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef};
    ///
    /// const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
    /// let db = Db::new()?;
    /// let counters = db.table(COUNTERS)?;
    /// let snapshot = db.snapshot()?;
    /// assert_eq!(snapshot.get(counters, &1)?, None);
    /// snapshot.commit()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn commit(mut self) -> Result<(), Error> {
        let thread = self.db.thread();
        self.whole().try_commit(thread)
    }
}

impl<S: Config> Lender for &Snapshot<'_, S> {}

impl<'db, S: Config> Lend<'db, S> for &Snapshot<'db, S> {
    type Mode = ReadOnly;

    #[inline(always)]
    fn lend<T>(&mut self, read: impl FnOnce(&mut Tx<'db, S, ReadOnly>) -> Result<T, Error>) -> Result<T, Error> {
        self.with(read)
    }
}

/// The reads of [`Tx`], which has their examples: they take `&self` here.
impl<'db, S: Config> Snapshot<'db, S> {
    /// Returns a row's value. `None` if there is no such row. Like [`Tx::get`].
    ///
    /// # Errors
    ///
    /// As for [`Tx::get`].
    ///
    /// # Example
    ///
    /// See [`Snapshot`].
    #[inline]
    pub fn get<R: Point>(&self, rows: R, key: impl AsKey<R::Key>) -> Result<Option<R::Row>, Error> {
        self.with(|tx| tx.get(rows, key))
    }

    /// Shows a row's value to `visit` without copying it. Returns what `visit` returns, or `None`
    /// if there is no such row. Like [`Tx::view`].
    ///
    /// # Errors
    ///
    /// As for [`Tx::view`].
    ///
    /// # Example
    ///
    /// See [`Snapshot`].
    #[inline]
    pub fn view<R: Stored, X>(
        &self,
        rows: R,
        key: impl AsKey<R::Key>,
        visit: impl FnOnce(R::View<'_>) -> X,
    ) -> Result<Option<X>, Error> {
        self.with(|tx| tx.view(rows, key, visit))
    }

    /// Returns whether there is such a row. Like [`Tx::contains`].
    ///
    /// # Errors
    ///
    /// As for [`Tx::contains`].
    ///
    /// # Example
    ///
    /// See [`Tx::contains`].
    #[inline]
    pub fn contains<R: Point>(&self, rows: R, key: impl AsKey<R::Key>) -> Result<bool, Error> {
        self.with(|tx| tx.contains(rows, key))
    }

    /// Returns the values of several rows, in the order of the keys. Like [`Tx::get_many`].
    ///
    /// # Errors
    ///
    /// As for [`Tx::get_many`].
    ///
    /// # Example
    ///
    /// See [`Tx::get_many`].
    #[inline]
    pub fn get_many<R: Stored>(
        &self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> Result<Vec<Option<R::Row>>, Error> {
        self.with(|tx| tx.get_many(rows, keys))
    }

    /// Shows the rows of several keys, in the order of the keys. Like [`Tx::view_many`].
    ///
    /// # Errors
    ///
    /// As for [`Tx::view_many`].
    ///
    /// # Example
    ///
    /// See [`Tx::view_many`].
    #[inline]
    pub fn view_many<R: Stored, F: Flow>(
        &self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
        visit: impl FnMut(Option<R::View<'_>>) -> F,
    ) -> Result<(), Error> {
        self.with(|tx| tx.view_many(rows, keys, visit))
    }

    /// Prefetches rows that are going to be read. Like [`Tx::prefetch`].
    ///
    /// # Errors
    ///
    /// As for [`Tx::prefetch`].
    ///
    /// # Example
    ///
    /// See [`Tx::prefetch`].
    #[inline]
    pub fn prefetch<R: Prefetched>(
        &self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> Result<(), Error> {
        self.with(|tx| tx.prefetch(rows, keys))
    }

    /// Returns the rows of a range, in the order of their keys. Several ranges can be open at once.
    /// Like [`Tx::range`].
    ///
    /// # Errors
    ///
    /// As for [`Tx::range`].
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Ordered, Pod, TableDef};
    ///
    /// const OLD: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("old prices");
    /// const NEW: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("new prices");
    /// let db = Db::new()?;
    /// let (old, new) = (db.table(OLD)?, db.table(NEW)?);
    /// db.transact(|tx| {
    ///     [(1, 10), (2, 20), (4, 40)].iter().try_for_each(|(item, price)| tx.put(old, item, price))?;
    ///     [(2, 25), (3, 30), (4, 40)].iter().try_for_each(|(item, price)| tx.put(new, item, price))
    /// })?;
    /// let changed = db.read(|tx| {
    ///     let (mut left, mut right) = (tx.range(old, ..)?, tx.range(new, ..)?);
    ///     let (mut a, mut b, mut changed) = (left.next()?, right.next()?, Vec::new());
    ///     while let (Some((item, before)), Some((other, after))) = (a, b) {
    ///         if item == other && before != after {
    ///             changed.push(item);
    ///         }
    ///         if item <= other {
    ///             a = left.next()?;
    ///         }
    ///         if other <= item {
    ///             b = right.next()?;
    ///         }
    ///     }
    ///     Ok(changed)
    /// })?;
    /// assert_eq!(changed, [2]);
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn range<R: Sorted>(&self, rows: R, range: impl KeyRange<R::Key>) -> Result<Range<'db, R, &Self, S>, Error> {
        let at = self.with(|tx| tx.range_in(rows, range))?;
        Ok(Range::new(self, at))
    }

    /// Shows all rows of a table, until they end or `visit` breaks off. Like [`Tx::walk`].
    ///
    /// # Errors
    ///
    /// As for [`Tx::walk`].
    ///
    /// # Example
    ///
    /// See [`Tx::walk`].
    #[inline]
    pub fn walk<K: Key, C: Codec, O: Kind, F: Flow>(
        &self,
        table: Table<K, C, O>,
        visit: impl FnMut(K, C::View<'_>) -> F,
    ) -> Result<(), Error> {
        self.with(|tx| tx.walk(table, visit))
    }

    /// Counts the rows of a table, by reading all of them. Like [`Tx::len`].
    ///
    /// # Errors
    ///
    /// As for [`Tx::len`].
    ///
    /// # Example
    ///
    /// See [`Tx::len`].
    #[inline]
    pub fn len<K: Key, C: Codec, O: Kind>(&self, table: Table<K, C, O>) -> Result<u64, Error> {
        self.with(|tx| tx.len(table))
    }
}
