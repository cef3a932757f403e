//! Several rows at a time, as a piece of a cluster accesses them.

use super::access::{Named, PieceTx};
use crate::{
    AsKey, Codec, Key, KeyRange, KeyedRow, Ordered, Point, Prefetched, Sorted, Table,
    chopped::{Source, Stop, permits::Access},
    schema::table::Kind,
};

impl<T: Named> PieceTx<'_, T> {
    /// Returns the values of several rows, which are looked up together. Needs what
    /// [`get`](Self::get) does.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::get_many`](crate::Transaction::get_many), or when it is not declared.
    ///
    /// # Example
    ///
    /// See [`range`](Self::range).
    pub async fn get_many<R: Point + Source>(
        &mut self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> Result<Vec<Option<R::Row>>, Stop> {
        self.check_read(&rows)?;
        self.tx.get_many(rows, keys).await.map_err(Stop)
    }

    /// Returns the rows of a range, in order. Needs what [`get`](Self::get) does.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::range`](crate::Transaction::range), or when it is not declared.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{
    ///     Error, Ordered, Pod, TableDef,
    ///     chopping::{Piece, Table, Transaction},
    ///     cluster::{Cluster, Partition, chopped::Procedures},
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
    /// let mut builder = Cluster::builder().nodes(2);
    /// let lines = builder.table(LINES, Partition::by("order", |key| key.0.into()));
    /// let shop = builder.progress("shop");
    /// let nodes = builder.start()?;
    /// let mut shop = Procedures::new(&nodes[0].node(), shop);
    /// let write = shop.procedure::<u32>(WRITE).piece("lines", async move |tx, order| {
    ///     tx.prefetch(lines, [(*order, 1)]).await?;
    ///     tx.insert(lines, (*order, 3), &30).await?;
    ///     tx.insert_many(lines, [((*order, 1), &10), ((*order, 2), &20)]).await
    /// });
    /// let write = shop.add(write);
    /// let ship = shop.procedure::<(u32, u64)>(SHIP).piece("lines", async move |tx, (order, sum)| {
    ///     let all = (*order, 0)..=(*order, u32::MAX);
    ///     *sum = tx.range(lines, all.clone()).await?.iter().map(|(_, amount)| *amount).sum();
    ///     assert_eq!(tx.get_many(lines, [(*order, 2), (*order, 4)]).await?, [Some(20), None]);
    ///     assert_eq!(tx.first(lines, all.clone()).await?, Some(((*order, 1), 10)));
    ///     assert_eq!(tx.last(lines, all.clone()).await?, Some(((*order, 3), 30)));
    ///     assert_eq!(tx.remove(lines, (*order, 3)).await?, Some(30));
    ///     tx.pop_first(lines, all).await.map(drop)
    /// });
    /// let ship = shop.add(ship);
    /// shop.register()?;
    ///
    /// write.run(&nodes[0], 7).wait()?;
    /// assert_eq!(ship.run(&nodes[0], (7, 0)).wait()?, (7, 60));
    /// # Ok::<(), Error>(())
    /// ```
    pub async fn range<R: Sorted + Source>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
    ) -> Result<Vec<KeyedRow<R>>, Stop> {
        self.check_read(&rows)?;
        self.tx.range(rows, range).await.map_err(Stop)
    }

    /// Returns the first row of a range, or `None` if there is none. Needs what [`get`](Self::get)
    /// does.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::first`](crate::Transaction::first), or when it is not declared.
    ///
    /// # Example
    ///
    /// See [`range`](Self::range).
    pub async fn first<R: Sorted + Source>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
    ) -> Result<Option<KeyedRow<R>>, Stop> {
        self.check_read(&rows)?;
        self.tx.first(rows, range).await.map_err(Stop)
    }

    /// Returns the last row of a range, or `None` if there is none. Needs what [`get`](Self::get)
    /// does.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::last`](crate::Transaction::last), or when it is not declared.
    ///
    /// # Example
    ///
    /// See [`range`](Self::range).
    pub async fn last<R: Sorted + Source>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
    ) -> Result<Option<KeyedRow<R>>, Stop> {
        self.check_read(&rows)?;
        self.tx.last(rows, range).await.map_err(Stop)
    }

    /// Inserts several rows that do not exist yet. Needs a declared insertion or append.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::insert_many`](crate::Transaction::insert_many), or when it is not
    /// declared.
    ///
    /// # Example
    ///
    /// See [`range`](Self::range).
    pub async fn insert_many<'v, K: Key, C: Codec<Given: 'v>, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        rows: impl IntoIterator<Item = (K, &'v C::Given)>,
    ) -> Result<(), Stop> {
        self.check(table.number, Access::INSERT)?;
        self.tx.insert_many(table, rows).await.map_err(Stop)
    }

    /// Removes the first row of a range, and returns its key and value, or `None` if the range is
    /// empty. Needs a declared removal.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::pop_first`](crate::Transaction::pop_first), or when it is not
    /// declared.
    ///
    /// # Example
    ///
    /// See [`range`](Self::range).
    pub async fn pop_first<K: Key, C: Codec>(
        &mut self,
        table: Table<K, C, Ordered>,
        range: impl KeyRange<K>,
    ) -> Result<Option<(K, C::Value)>, Stop> {
        self.check(table.number, Access::REMOVE)?;
        self.tx.pop_first(table, range).await.map_err(Stop)
    }

    /// Prefetches rows that the piece is going to access. It reads nothing for the piece, so it
    /// needs no declaration.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::prefetch`](crate::Transaction::prefetch).
    ///
    /// # Example
    ///
    /// See [`range`](Self::range).
    pub async fn prefetch<R: Prefetched>(
        &mut self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> Result<(), Stop> {
        self.tx.prefetch(rows, keys).await.map_err(Stop)
    }
}
