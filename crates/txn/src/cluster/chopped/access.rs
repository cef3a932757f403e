//! A distributed transaction as a piece has it: each access is checked against the piece's
//! description.

use std::{borrow::Borrow, fmt, ops::AddAssign};

use drtm_rdma::Fabric;

use super::super::ClusterTx;
use crate::{
    AsKey, Codec, Config, Error, Key, OneNode, Point, Stored, Table, Transaction,
    chopped::{
        Addable, Source, Stop, Sum,
        additions::defer,
        permits::{Access, Permits},
    },
    mutation::Mutation,
    schema::table::Kind,
};

/// A transaction that knows the names of tables.
///
/// # Example
///
/// See [`PieceTx`].
pub trait Named: Transaction {
    /// Returns the name of a table.
    #[doc(hidden)]
    fn name_of(&self, table: u16) -> &'static str;

    /// Returns whether what is not declared is allowed, which is a deliberate fault.
    #[doc(hidden)]
    fn allows_all(&self) -> bool;
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Named for ClusterTx<'_, F, S> {
    fn name_of(&self, table: u16) -> &'static str {
        self.worker.table_name(table)
    }

    fn allows_all(&self) -> bool {
        S::has(Mutation::UndeclaredAllowed)
    }
}

impl<S: Config> Named for OneNode<'_, '_, S> {
    fn name_of(&self, table: u16) -> &'static str {
        self.0.name_of(table)
    }

    fn allows_all(&self) -> bool {
        S::has(Mutation::UndeclaredAllowed)
    }
}

/// A [`Transaction`], as a piece accesses it: of a cluster, or, for code that is written
/// [once for both](crate::chopped::PieceTx::ready), of one node. An access that the piece's
/// description does not have is refused with
/// [`ChoppedError::Undeclared`](crate::ChoppedError::Undeclared).
///
/// A piece that may abort returns an [`Abort`](crate::chopped::Abort), any other one a [`Stop`],
/// which it cannot make. So this does not compile:
///
/// ```compile_fail
/// use drtm::{chopped::Abort, chopping::{Piece, Table, Transaction}, cluster::{Cluster, chopped::Procedures}};
///
/// const STOCK: Table = Table::new("stock", &[]);
/// const SELL: Transaction = Transaction::new("sell", &[Piece::new("take", &[STOCK.update("*")])]);
/// let mut builder = Cluster::builder();
/// let shop = builder.progress("shop");
/// let nodes = builder.start().unwrap();
/// let mut shop = Procedures::new(&nodes[0].node(), shop);
/// let sell = shop.procedure::<u64>(SELL).piece("take", async |_, _| Err(Abort::because("I can")));
/// ```
///
/// # Example
///
/// ```
/// use drtm::{
///     ChoppedError, Error, Pod, TableDef, Transaction as _,
///     chopping::{Piece, Table, Transaction},
///     cluster::{Cluster, Partition, chopped::Procedures},
/// };
///
/// const STOCK: Table = Table::new("stock", &[]);
/// const TAKE: Transaction = Transaction::new("take", &[Piece::new("take", &[STOCK.update("*")])]);
/// const STOCKS: TableDef<u64, Pod<u64>> = TableDef::hash("stock");
///
/// let mut builder = Cluster::builder();
/// let (stocks, shop) = (builder.table(STOCKS, Partition::hash()), builder.progress("shop"));
/// let node = &builder.start()?[0];
/// node.transact(async move |tx| tx.put(stocks, 7, &1).await).wait()?;
/// let mut shop = Procedures::new(&node.node(), shop);
/// let take = shop.procedure::<u64>(TAKE).piece("take", async move |tx, item| {
///     if tx.get(stocks, *item).await? == Some(0) {
///         // This is not declared.
///         tx.remove(stocks, *item).await?;
///     }
///     tx.update(stocks, *item, |left| *left -= 1).await.map(drop)
/// });
/// let take = shop.add(take);
/// shop.register()?;
///
/// take.run(node, 7).wait()?;
/// let Err(Error::Chopped(refused)) = take.run(node, 7).wait() else { panic!("it is refused") };
/// assert!(matches!(*refused, ChoppedError::Undeclared { table: "stock", access: "remove", .. }));
/// # Ok::<(), Error>(())
/// ```
pub struct PieceTx<'t, T> {
    pub(super) tx: &'t mut T,
    permits: &'t Permits,
    /// Additions that are deferred. `None` in a cluster.
    additions: Option<&'t mut Vec<u8>>,
}

impl<T> fmt::Debug for PieceTx<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PieceTx").field("piece", &self.permits.piece).finish_non_exhaustive()
    }
}

impl<'t, T: Named> PieceTx<'t, T> {
    pub(crate) fn new(tx: &'t mut T, permits: &'t Permits, additions: Option<&'t mut Vec<u8>>) -> Self {
        Self { tx, permits, additions }
    }

    pub(super) fn check(&self, table: u16, access: Access) -> Result<(), Stop> {
        if self.permits.has(table, access) || self.tx.allows_all() {
            return Ok(());
        }
        Err(Stop(self.permits.refuse(self.tx.name_of(table), access)))
    }

    pub(super) fn check_read<R: Source>(&self, rows: &R) -> Result<(), Stop> {
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
    /// As for [`Transaction::get`], or when it is not declared.
    ///
    /// # Example
    ///
    /// See [`PieceTx`].
    pub async fn get<R: Point + Source>(&mut self, rows: R, key: impl AsKey<R::Key>) -> Result<Option<R::Row>, Stop> {
        self.check_read(&rows)?;
        self.tx.get(rows, key).await.map_err(Stop)
    }

    /// Shows a row in place. Returns what `visit` returns, or `None` if there is no such row. Needs
    /// what [`get`](Self::get) does.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::view`], or when it is not declared.
    ///
    /// # Example
    ///
    /// See [`Transaction::view`].
    pub async fn view<R: Stored, X>(
        &mut self,
        rows: R,
        key: impl AsKey<R::Key>,
        visit: impl FnOnce(R::View<'_>) -> X,
    ) -> Result<Option<X>, Stop> {
        self.check_read(&rows)?;
        self.tx.view(rows, key, visit).await.map_err(Stop)
    }

    /// Changes the value of an existing row. Returns what `change` returns, or `None` if there is
    /// no such row. Needs a declared update.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::update`], or when it is not declared.
    ///
    /// # Example
    ///
    /// See [`PieceTx`].
    pub async fn update<R: Stored, X>(
        &mut self,
        rows: R,
        key: impl AsKey<R::Key>,
        change: impl FnOnce(&mut R::Row) -> X,
    ) -> Result<Option<X>, Stop>
    where
        R::Row: Borrow<R::Given>,
    {
        self.check(rows.table().number, Access::UPDATE)?;
        self.tx.update(rows, key, change).await.map_err(Stop)
    }

    /// Sets a row's value, whether the row exists or not. Needs a declared insertion and a declared
    /// update.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::put`], or when it is not declared.
    ///
    /// # Example
    ///
    /// See [`Transaction::put`].
    pub async fn put<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
        value: impl Borrow<C::Given>,
    ) -> Result<(), Stop> {
        self.check(table.number, Access::INSERT)?;
        self.check(table.number, Access::UPDATE)?;
        self.tx.put(table, key, value).await.map_err(Stop)
    }

    /// Inserts a row that does not exist yet. Needs a declared insertion or append.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::insert`], or when it is not declared.
    ///
    /// # Example
    ///
    /// See [`range`](Self::range).
    pub async fn insert<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
        value: impl Borrow<C::Given>,
    ) -> Result<(), Stop> {
        self.check(table.number, Access::INSERT)?;
        self.tx.insert(table, key, value).await.map_err(Stop)
    }

    /// Removes a row, and returns its value, or `None` if there is no such row. Needs a declared
    /// removal.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::remove`], or when it is not declared.
    ///
    /// # Example
    ///
    /// See [`PieceTx`].
    pub async fn remove<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<Option<C::Value>, Stop> {
        self.check(table.number, Access::REMOVE)?;
        self.tx.remove(table, key).await.map_err(Stop)
    }

    /// Adds to a sum, and learns nothing of it. Needs a declared addition. The row must exist. On
    /// one node, it may be [deferred](crate::chopped::PieceTx::add).
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] if the row does not exist; otherwise as for [`Transaction::update`], or
    /// when it is not declared.
    ///
    /// # Example
    ///
    /// See [`chopped`](super).
    pub async fn add<R: Addable>(&mut self, sum: Sum<R>, key: impl AsKey<R::Key>, by: R::Row) -> Result<(), Stop>
    where
        R::Row: AddAssign + Borrow<R::Given>,
    {
        let table = sum.rows.table().number;
        self.check(table, Access::ADD)?;
        if let Some(additions) = &mut self.additions
            && self.permits.defers & 1 << sum.number != 0
        {
            let written = defer::<R>(additions, sum.id, |bytes| key.write_key(bytes, true), by.borrow());
            return written.map_err(|source| Stop(Error::Codec { table: self.tx.name_of(table), source }));
        }
        match self.tx.update(sum.rows, key, |sum| *sum += by).await.map_err(Stop)? {
            Some(()) => Ok(()),
            None => Err(Stop(Error::Missing { table: self.tx.name_of(table) })),
        }
    }
}
