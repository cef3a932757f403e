//! Several rows at a time, as a piece accesses them.

use std::borrow::Borrow;

use super::{access::PieceTx, permits::Access, stop::Stop};
use crate::{AsKey, Codec, Config, Flow, Key, KeyRange, Ordered, Prefetched, Table, schema::table::Kind};

impl<S: Config> PieceTx<'_, '_, S> {
    /// Prefetches rows that the piece is going to access. It is a hint, and reads nothing, so it
    /// needs no declaration.
    ///
    /// # Errors
    ///
    /// As for [`Tx::prefetch`](crate::Tx::prefetch).
    ///
    /// # Example
    ///
    /// See [`update_each`](Self::update_each).
    #[inline]
    pub fn prefetch<R: Prefetched>(
        &self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> Result<(), Stop> {
        self.tx.prefetch(rows, keys).map_err(Stop)
    }

    /// Inserts several rows that do not exist yet. Needs a declared insertion or append.
    ///
    /// # Errors
    ///
    /// As for [`Tx::insert_many`](crate::Tx::insert_many), or when it is not declared.
    ///
    /// # Example
    ///
    /// See [`update_each`](Self::update_each).
    #[inline]
    pub fn insert_many<'v, K: Key, C: Codec<Given: 'v>, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        rows: impl IntoIterator<Item = (K, &'v C::Given)>,
    ) -> Result<(), Stop> {
        self.check(table.number, Access::INSERT)?;
        self.tx.insert_many(table, rows).map_err(Stop)
    }

    /// Changes the values of the rows of a range, until it ends or `change` breaks off. Needs a
    /// declared update.
    ///
    /// # Errors
    ///
    /// As for [`Range::update_each`](crate::Range::update_each), or when it is not declared.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{
    ///     Db, Error, Ordered, Pod, TableDef,
    ///     chopped::Procedures,
    ///     chopping::{Piece, Table, Transaction},
    /// };
    ///
    /// const LINE: Table = Table::new("line", &[]);
    /// const WRITE: Transaction =
    ///     Transaction::new("write", &[Piece::new("lines", &[LINE.insert()])]);
    /// const SHIP: Transaction = Transaction::new("ship", &[
    ///     Piece::new("lines", &[LINE.update("*"), LINE.remove()]),
    /// ]);
    /// const LINES: TableDef<(u32, u32), Pod<u64>, Ordered> = TableDef::ordered("line");
    ///
    /// let db = Db::new()?;
    /// let lines = db.table(LINES)?;
    /// let mut shop = Procedures::new(&db, "shop");
    /// let write = shop.procedure::<u32>(WRITE).piece("lines", move |tx, order| {
    ///     tx.prefetch(lines, [(*order, 1)])?;
    ///     tx.insert_many(lines, [((*order, 1), &10), ((*order, 2), &20)])
    /// });
    /// let write = shop.add(write);
    /// let ship = shop.procedure::<u32>(SHIP).piece("lines", move |tx, order| {
    ///     let all = (*order, 0)..=(*order, u32::MAX);
    ///     tx.update_each(lines, all.clone(), |_, amount| *amount += 1)?;
    ///     tx.pop_first(lines, all).map(drop)
    /// });
    /// let ship = shop.add(ship);
    /// shop.register()?;
    ///
    /// write.run(7)?;
    /// ship.run(7)?;
    /// assert_eq!(db.read(|tx| tx.get_many(lines, &[(7, 1), (7, 2)]))?, [None, Some(21)]);
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn update_each<K: Key, C: Codec, F: Flow>(
        &mut self,
        table: Table<K, C, Ordered>,
        range: impl KeyRange<K>,
        change: impl FnMut(&K, &mut C::Value) -> F,
    ) -> Result<(), Stop>
    where
        C::Value: Borrow<C::Given>,
    {
        self.check(table.number, Access::UPDATE)?;
        self.tx.range_mut(table, range).and_then(|mut rows| rows.update_each(change)).map_err(Stop)
    }

    /// Removes the first row of a range, and returns its key and value, or `None` if the range is
    /// empty. Needs a declared removal.
    ///
    /// # Errors
    ///
    /// As for [`Range::pop_first`](crate::Range::pop_first), or when it is not declared.
    ///
    /// # Example
    ///
    /// See [`update_each`](Self::update_each).
    #[inline]
    pub fn pop_first<K: Key, C: Codec>(
        &mut self,
        table: Table<K, C, Ordered>,
        range: impl KeyRange<K>,
    ) -> Result<Option<(K, C::Value)>, Stop> {
        self.check(table.number, Access::REMOVE)?;
        self.tx.range_mut(table, range).and_then(|rows| rows.pop_first()).map_err(Stop)
    }
}
