//! Sources of rows over several nodes: what tables, columns and indexes do in a [`ClusterTx`].

use std::future::Future;

use drtm_rdma::Fabric;

use super::ClusterTx;
use crate::{
    AsKey, Codec, Config, Error, Index, IndexKeys, Key, KeyRange, KeyedRow, Multi, Pairs, Rows, Stored, Table, Unique,
    Uniqueness,
    schema::{
        key::ByRef,
        table::{HasOrder, Kind},
    },
    tx::position::Ends,
};

/// What [`Point`](crate::Point) needs of a source over several nodes.
#[doc(hidden)]
pub trait PointOverNodes: Rows {
    fn points<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        keys: impl IntoIterator<Item = impl AsKey<Self::Key>>,
    ) -> impl Future<Output = Result<Vec<Option<Self::Row>>, Error>>;
    fn point<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        key: impl AsKey<Self::Key>,
    ) -> impl Future<Output = Result<Option<Self::Row>, Error>>;
    fn has_point<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        key: impl AsKey<Self::Key>,
    ) -> impl Future<Output = Result<bool, Error>>;
}

/// Where a range is.
#[doc(hidden)]
#[derive(Debug)]
pub struct Reach {
    /// Among the rows, or the entries, of the table that it goes through.
    pub(super) ends: Ends,
    /// Among the keys by which that table is divided, if those are others.
    pub(super) by: Option<Ends>,
}

/// What [`Sorted`](crate::Sorted) needs of a source over several nodes.
#[doc(hidden)]
pub trait SortedOverNodes: Rows {
    /// Returns the database and the number of the table that a range goes through: of rows, or of
    /// an index's entries.
    fn scanned(self) -> (u32, u16);
    /// Returns where a range is.
    fn reach(range: impl KeyRange<Self::Key>) -> Reach;
    /// Returns the rows of entries that were found.
    fn found<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        entries: Vec<u32>,
    ) -> impl Future<Output = Result<Vec<KeyedRow<Self>>, Error>>;
}

impl<R: Stored> PointOverNodes for R {
    async fn points<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> Result<Vec<Option<R::Row>>, Error> {
        let rows = tx.rows_of(self.table(), keys)?;
        tx.look_up(&rows).await?;
        rows.into_iter().map(|row| tx.decode(self, row)).collect()
    }

    async fn point<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        key: impl AsKey<R::Key>,
    ) -> Result<Option<R::Row>, Error> {
        let row = tx.row(self.table(), key)?;
        tx.look_up(&[row]).await?;
        tx.decode(self, row)
    }

    async fn has_point<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        key: impl AsKey<R::Key>,
    ) -> Result<bool, Error> {
        let row = tx.row(self.table(), key)?;
        tx.look_up(&[row]).await?;
        Ok(tx.is_there(row))
    }
}

impl<R: Stored<Kind: HasOrder>> SortedOverNodes for R {
    fn scanned(self) -> (u32, u16) {
        let table = self.table();
        (table.database, table.number)
    }

    fn reach(range: impl KeyRange<R::Key>) -> Reach {
        Reach { ends: Ends::new(range), by: None }
    }

    async fn found<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        entries: Vec<u32>,
    ) -> Result<Vec<KeyedRow<Self>>, Error> {
        let of_row = |row| match (tx.key::<R::Key>(row), tx.decode(self, row)?) {
            (Some(key), Some(value)) => Ok((key, value)),
            _ => Err(Error::Key { table: tx.worker.table_name(self.table().number) }),
        };
        entries.into_iter().map(of_row).collect()
    }
}

impl<K: Key, C: Codec, I: Key, O: Kind> PointOverNodes for IndexKeys<K, C, I, Unique, O> {
    async fn points<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        by: impl IntoIterator<Item = impl AsKey<I>>,
    ) -> Result<Vec<Option<K>>, Error> {
        self.index.entries().points(tx, by).await
    }

    async fn point<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        by: impl AsKey<I>,
    ) -> Result<Option<K>, Error> {
        self.index.entries().point(tx, by).await
    }

    async fn has_point<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        by: impl AsKey<I>,
    ) -> Result<bool, Error> {
        self.index.entries().has_point(tx, by).await
    }
}

impl<K: Key, C: Codec, I: Key, O: Kind> PointOverNodes for Index<K, C, I, Unique, O> {
    async fn points<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        by: impl IntoIterator<Item = impl AsKey<I>>,
    ) -> Result<Vec<Option<(K, C::Value)>>, Error> {
        let keys = self.keys().points(tx, by).await?;
        let mut rows = rows_of_entries(self, tx, keys.iter().flatten()).await?.into_iter();
        Ok(keys.into_iter().map(|key| key.and_then(|key| Some((key, rows.next()?)))).collect())
    }

    async fn point<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        by: impl AsKey<I>,
    ) -> Result<Option<(K, C::Value)>, Error> {
        let Some(key) = self.keys().point(tx, by).await? else { return Ok(None) };
        let row = rows_of_entries(self, tx, [&key]).await?.pop();
        Ok(row.map(|row| (key, row)))
    }

    async fn has_point<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        by: impl AsKey<I>,
    ) -> Result<bool, Error> {
        self.keys().has_point(tx, by).await
    }
}

/// Reads the rows that an index's entries lead to.
async fn rows_of_entries<'k, 'e, K, C, I, U, O, F, S>(
    index: Index<K, C, I, U, O>,
    tx: &mut ClusterTx<'e, F, S>,
    keys: impl IntoIterator<Item = &'k K>,
) -> Result<Vec<C::Value>, Error>
where
    K: Key + 'k,
    C: Codec,
    I: Key,
    U: Uniqueness,
    O: Kind,
    F: Fabric,
    S: Config<Engine = F::Engine>,
{
    let rows: Option<Vec<_>> = index.table.points(tx, keys).await?.into_iter().collect();
    match rows {
        Some(rows) => Ok(rows),
        None => Err(tx.disagreement(index.entries().number, index.table.number).await),
    }
}

/// Decodes an entry of an index: the index's key, and the row's.
fn entry<K: Key, I: Key, U: Uniqueness, F: Fabric, S: Config<Engine = F::Engine>>(
    tx: &ClusterTx<'_, F, S>,
    entries: Table<U::Key<K, I>, U::Codec<K>, crate::Ordered>,
    row: u32,
) -> Result<(I, K), Error> {
    match (tx.key::<U::Key<K, I>>(row), tx.decode(entries, row)?) {
        (Some(key), Some(value)) => Ok(U::entry(key, value)),
        _ => Err(Error::Key { table: tx.worker.table_name(entries.number) }),
    }
}

impl<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind> SortedOverNodes for IndexKeys<K, C, I, U, O> {
    fn scanned(self) -> (u32, u16) {
        let entries = self.index.entries();
        (entries.database, entries.number)
    }

    fn reach(range: impl KeyRange<I>) -> Reach {
        let (start, end) = range.ends();
        // All entries that are found by one key are at one owner.
        let by = Ends::new::<I>((start.as_ref().map(ByRef), end.as_ref().map(ByRef)));
        Reach { ends: Ends::of_entries::<K, I, U>((start, end)), by: Some(by) }
    }

    async fn found<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        entries: Vec<u32>,
    ) -> Result<Vec<(I, K)>, Error> {
        entries.into_iter().map(|row| entry::<K, I, U, F, S>(tx, self.index.entries(), row)).collect()
    }
}

impl<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind> SortedOverNodes for Index<K, C, I, U, O> {
    fn scanned(self) -> (u32, u16) {
        self.keys().scanned()
    }

    fn reach(range: impl KeyRange<I>) -> Reach {
        <IndexKeys<K, C, I, U, O> as SortedOverNodes>::reach(range)
    }

    async fn found<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        entries: Vec<u32>,
    ) -> Result<Vec<KeyedRow<Self>>, Error> {
        let entries = self.keys().found(tx, entries).await?;
        let rows = rows_of_entries(self, tx, entries.iter().map(|(_, key)| key)).await?;
        Ok(entries.into_iter().zip(rows).map(|((by, key), row)| (by, (key, row))).collect())
    }
}

/// Returns where a range of pairs is. Pairs are divided by the first of both, so that a range of
/// several is asked for everywhere.
fn reach_of_pairs<I: Key, K: Key>(range: impl KeyRange<(I, K)>) -> Reach {
    let ends = Ends::new(range);
    let only = ends.only().and_then(|pair| pair.decode::<(I, K)>());
    let by = only.map_or_else(|| Ends::new::<I>(..), |(first, _)| Ends::new::<I>(&first..=&first));
    Reach { ends, by: Some(by) }
}

impl<K: Key, C: Codec, I: Key, O: Kind> SortedOverNodes for Pairs<IndexKeys<K, C, I, Multi, O>> {
    fn scanned(self) -> (u32, u16) {
        self.of.scanned()
    }

    fn reach(range: impl KeyRange<(I, K)>) -> Reach {
        reach_of_pairs::<I, K>(range)
    }

    async fn found<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        entries: Vec<u32>,
    ) -> Result<Vec<((I, K), ())>, Error> {
        Ok(self.of.found(tx, entries).await?.into_iter().map(|pair| (pair, ())).collect())
    }
}

impl<K: Key, C: Codec, I: Key, O: Kind> SortedOverNodes for Pairs<Index<K, C, I, Multi, O>> {
    fn scanned(self) -> (u32, u16) {
        self.of.scanned()
    }

    fn reach(range: impl KeyRange<(I, K)>) -> Reach {
        reach_of_pairs::<I, K>(range)
    }

    async fn found<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        entries: Vec<u32>,
    ) -> Result<Vec<((I, K), C::Value)>, Error> {
        let rows = self.of.found(tx, entries).await?;
        Ok(rows.into_iter().map(|(by, (key, row))| ((by, key), row)).collect())
    }
}
