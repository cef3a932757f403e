//! A transaction as a piece has it: each access is checked against the piece's description.

use std::{borrow::Borrow, fmt, ops::AddAssign};

use super::{
    additions::{Addable, Sum, defer},
    permits::{Access, Permits},
    source::Source,
    stop::Stop,
};
use crate::{
    AsKey, Codec, Config, DefaultConfig, Error, Flow, Key, KeyRange, KeyedRow, Point, Sorted, Stored, Table, Tx,
    mutation::Mutation, schema::table::Kind,
};

/// A transaction, as a piece accesses it. An access that the piece's description does not have is
/// refused with [`ChoppedError::Undeclared`](crate::ChoppedError::Undeclared).
///
/// A piece that may abort returns an [`Abort`](super::Abort), any other one a [`Stop`], which it
/// cannot make. So this does not compile:
///
/// ```compile_fail
/// use drtm::{Db, chopped::{Abort, Procedures}, chopping::{Piece, Table, Transaction}};
///
/// const STOCK: Table = Table::new("stock", &[]);
/// const SELL: Transaction = Transaction::new("sell", &[Piece::new("take", &[STOCK.update("*")])]);
/// let db = Db::new().unwrap();
/// let mut shop = Procedures::new(&db, "shop");
/// let sell = shop.procedure::<u64>(SELL).piece("take", |_, _| Err(Abort::because("I can")));
/// ```
///
/// # Example
///
/// ```
/// use drtm::{
///     ChoppedError, Db, Error, Pod, TableDef,
///     chopped::{Abort, Procedures},
///     chopping::{Piece, Table, Transaction},
/// };
///
/// const STOCK: Table = Table::new("stock", &[]);
/// const TAKE: Transaction = Transaction::new("take", &[
///     Piece::new("take", &[STOCK.update("*")]).may_abort(),
/// ]);
/// const STOCKS: TableDef<u64, Pod<u64>> = TableDef::hash("stock");
///
/// let db = Db::new()?;
/// let stocks = db.table(STOCKS)?;
/// db.transact(|tx| tx.put(stocks, 7, &1))?;
/// let mut shop = Procedures::new(&db, "shop");
/// let take = shop.procedure::<u64>(TAKE).may_abort("take", move |tx, item| {
///     let left = tx.get(stocks, *item)?.ok_or_else(|| Abort::because("no such item"))?;
///     if left == 0 {
///         // This is not declared.
///         tx.remove(stocks, *item)?;
///     }
///     tx.update(stocks, *item, |left| *left -= 1)?;
///     Ok(())
/// });
/// let take = shop.add(take);
/// shop.register()?;
///
/// take.run(7)?;
/// let Err(Error::Chopped(refused)) = take.run(7) else { panic!("it is refused") };
/// assert!(matches!(*refused, ChoppedError::Undeclared { table: "stock", access: "remove", .. }));
/// assert!(matches!(take.run(8), Err(Error::Aborted { .. })));
/// # Ok::<(), Error>(())
/// ```
pub struct PieceTx<'t, 'db, S: Config = DefaultConfig> {
    pub(super) tx: &'t mut Tx<'db, S>,
    pub(super) permits: &'t Permits,
    /// Additions that are deferred.
    pub(super) additions: &'t mut Vec<u8>,
}

impl<S: Config> fmt::Debug for PieceTx<'_, '_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PieceTx").field("piece", &self.permits.piece).finish_non_exhaustive()
    }
}

impl<'t, 'db, S: Config> PieceTx<'t, 'db, S> {
    pub(super) fn new(tx: &'t mut Tx<'db, S>, permits: &'t Permits, additions: &'t mut Vec<u8>) -> Self {
        Self { tx, permits, additions }
    }

    #[inline]
    pub(super) fn check(&self, table: u16, access: Access) -> Result<(), Stop> {
        if self.permits.has(table, access) || S::has(Mutation::UndeclaredAllowed) {
            return Ok(());
        }
        Err(self.refuse(table, access))
    }

    #[cold]
    fn refuse(&self, table: u16, access: Access) -> Stop {
        Stop(self.permits.refuse(self.tx.name_of(table), access))
    }

    fn check_read<R: Source>(&self, rows: &R) -> Result<(), Stop> {
        if R::IS_INDEX {
            self.check(rows.base(), Access::SEARCH)?;
        }
        if R::HAS_ROWS { self.check(rows.base(), Access::READ) } else { Ok(()) }
    }

    /// Returns the value of a row, or `None` if there is none. Needs a declared read, or an access
    /// that includes one. An index also needs a search of its table.
    ///
    /// # Errors
    ///
    /// As for [`Tx::get`], or when it is not declared.
    ///
    /// # Example
    ///
    /// See [`PieceTx`].
    #[inline]
    pub fn get<R: Point + Source>(&self, rows: R, key: impl AsKey<R::Key>) -> Result<Option<R::Row>, Stop> {
        self.check_read(&rows)?;
        self.tx.get(rows, key).map_err(Stop)
    }

    /// Shows a row in place. Returns what `visit` returns, or `None` if there is no such row. Needs
    /// what [`get`](Self::get) does.
    ///
    /// # Errors
    ///
    /// As for [`Tx::view`], or when it is not declared.
    ///
    /// # Example
    ///
    /// See [`Tx::view`].
    #[inline]
    pub fn view<R: Stored, X>(
        &self,
        rows: R,
        key: impl AsKey<R::Key>,
        visit: impl FnOnce(R::View<'_>) -> X,
    ) -> Result<Option<X>, Stop> {
        self.check_read(&rows)?;
        self.tx.view(rows, key, visit).map_err(Stop)
    }

    /// Returns the first row of a range, or `None` if there is none. Needs what [`get`](Self::get)
    /// does.
    ///
    /// # Errors
    ///
    /// As for [`Tx::range`], or when it is not declared.
    ///
    /// # Example
    ///
    /// See [`Range::first`](crate::Range::first).
    #[inline]
    pub fn first<R: Sorted + Source>(
        &self,
        rows: R,
        range: impl KeyRange<R::Key>,
    ) -> Result<Option<KeyedRow<R>>, Stop> {
        self.check_read(&rows)?;
        self.tx.range(rows, range).and_then(|range| range.first()).map_err(Stop)
    }

    /// Returns the last row of a range, or `None` if there is none. Needs what [`get`](Self::get)
    /// does.
    ///
    /// # Errors
    ///
    /// As for [`Tx::range`], or when it is not declared.
    ///
    /// # Example
    ///
    /// See [`Range::last`](crate::Range::last).
    #[inline]
    pub fn last<R: Sorted + Source>(&self, rows: R, range: impl KeyRange<R::Key>) -> Result<Option<KeyedRow<R>>, Stop> {
        self.check_read(&rows)?;
        self.tx.range(rows, range).and_then(|range| range.last()).map_err(Stop)
    }

    /// Calls `visit` with the rows of a range, in order, until it says to stop. Needs what
    /// [`get`](Self::get) does.
    ///
    /// # Errors
    ///
    /// As for [`Tx::range`], or when it is not declared.
    ///
    /// # Example
    ///
    /// See [`Tx::range`].
    pub fn for_each<R: Sorted + Source, F: Flow>(
        &self,
        rows: R,
        range: impl KeyRange<R::Key>,
        mut visit: impl FnMut(R::Key, R::Row) -> F,
    ) -> Result<(), Stop> {
        self.check_read(&rows)?;
        let mut range = self.tx.range(rows, range).map_err(Stop)?;
        while let Some((key, row)) = range.next().map_err(Stop)? {
            if visit(key, row).flow().is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Changes the value of an existing row. Returns what `change` returns, or `None` if there is
    /// no such row. Needs a declared update.
    ///
    /// # Errors
    ///
    /// As for [`Tx::update`], or when it is not declared.
    ///
    /// # Example
    ///
    /// See [`PieceTx`].
    #[inline]
    pub fn update<R: Stored, X>(
        &mut self,
        rows: R,
        key: impl AsKey<R::Key>,
        change: impl FnOnce(&mut R::Row) -> X,
    ) -> Result<Option<X>, Stop>
    where
        R::Row: Borrow<R::Given>,
    {
        self.check(rows.table().number, Access::UPDATE)?;
        self.tx.update(rows, key, change).map_err(Stop)
    }

    /// Sets a row's value, whether the row exists or not. Needs a declared insertion and a declared
    /// update.
    ///
    /// # Errors
    ///
    /// As for [`Tx::put`], or when it is not declared.
    ///
    /// # Example
    ///
    /// See [`Tx::put`].
    #[inline]
    pub fn put<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
        value: &C::Given,
    ) -> Result<(), Stop> {
        self.check(table.number, Access::INSERT)?;
        self.check(table.number, Access::UPDATE)?;
        self.tx.put(table, key, value).map_err(Stop)
    }

    /// Inserts a row that does not exist yet. Needs a declared insertion or append.
    ///
    /// # Errors
    ///
    /// As for [`Tx::insert`], or when it is not declared.
    ///
    /// # Example
    ///
    /// See [`Tx::insert`].
    #[inline]
    pub fn insert<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
        value: &C::Given,
    ) -> Result<(), Stop> {
        self.check(table.number, Access::INSERT)?;
        self.tx.insert(table, key, value).map_err(Stop)
    }

    /// Removes a row, and returns its value, or `None` if there is no such row. Needs a declared
    /// removal.
    ///
    /// # Errors
    ///
    /// As for [`Tx::remove`], or when it is not declared.
    ///
    /// # Example
    ///
    /// See [`PieceTx`].
    #[inline]
    pub fn remove<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<Option<C::Value>, Stop> {
        self.check(table.number, Access::REMOVE)?;
        self.tx.remove(table, key).map_err(Stop)
    }

    /// Adds to a sum, and learns nothing of it. Needs a declared addition. If the analysis defers
    /// it, the row shows it after the next publication. The row must exist.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] if the row does not exist and the addition is not deferred; otherwise as
    /// for [`Tx::update`], or when it is not declared.
    ///
    /// # Example
    ///
    /// See [`Sum`].
    #[inline]
    pub fn add<R: Addable>(&mut self, sum: Sum<R>, key: impl AsKey<R::Key>, by: R::Row) -> Result<(), Stop>
    where
        R::Row: AddAssign + Borrow<R::Given>,
    {
        let table = sum.rows.table().number;
        self.check(table, Access::ADD)?;
        if self.permits.defers & 1 << sum.number != 0 {
            let written = defer::<R>(self.additions, sum.id, |bytes| key.write_key(bytes, true), by.borrow());
            return written.map_err(|source| Stop(Error::Codec { table: self.tx.name_of(table), source }));
        }
        match self.tx.update(sum.rows, key, |sum| *sum += by).map_err(Stop)? {
            Some(()) => Ok(()),
            None => Err(Stop(Error::Missing { table: self.tx.name_of(table) })),
        }
    }
}
