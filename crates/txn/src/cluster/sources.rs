//! Sources of rows of a cluster, as a database has them: tables, columns of tables, indexes, and
//! the keys of indexes (`docs/decisions/0037`).

use std::{future::Future, ops::Range};

use drtm_rdma::{Fabric, NodeId};
use smallvec::SmallVec;

use super::{
    ClusterTable, ClusterTx,
    table::{everywhere, owner_of},
};
use crate::{
    AsKey, Codec, CodecError, Config, Error, Key, KeyRange, KeyedRow, Rows,
    schema::table::{HasOrder, Kind},
    tx::{position::Ends, rows::sealed::Sealed},
};

/// Nodes that are asked for a range.
pub(super) type Asked = SmallVec<[NodeId; 8]>;

/// Rows of a cluster that are found by their key: [`ClusterTx::get`].
///
/// # Example
///
/// See [`ClusterIndex`](super::ClusterIndex).
pub trait Point: Rows {
    #[doc(hidden)]
    fn get_many<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        keys: impl IntoIterator<Item = impl AsKey<Self::Key>>,
    ) -> impl Future<Output = Result<Vec<Option<Self::Row>>, Error>>;
    #[doc(hidden)]
    fn get<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        key: impl AsKey<Self::Key>,
    ) -> impl Future<Output = Result<Option<Self::Row>, Error>>;
    #[doc(hidden)]
    fn contains<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        key: impl AsKey<Self::Key>,
    ) -> impl Future<Output = Result<bool, Error>>;
}

/// Rows of a cluster in the order of their keys: [`ClusterTx::range`].
///
/// # Example
///
/// See [`ClusterIndex`](super::ClusterIndex).
pub trait Sorted: Rows {
    /// The table that a range goes through: of rows, or of an index's entries.
    #[doc(hidden)]
    fn entries(self) -> (u16, &'static str);
    /// Whether every node has all of them.
    #[doc(hidden)]
    fn are_everywhere(self) -> bool;
    /// Where a range is among the entries, and which nodes have them.
    #[doc(hidden)]
    fn reach(
        self,
        range: impl KeyRange<Self::Key>,
        owners: &[NodeId],
        here: NodeId,
    ) -> Result<(Ends, SmallVec<[NodeId; 8]>), Error>;
    /// Makes rows of entries that were found.
    #[doc(hidden)]
    fn rows<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        found: Vec<u32>,
    ) -> impl Future<Output = Result<Vec<KeyedRow<Self>>, Error>>;
}

/// Rows of a cluster as a table has them, whole or in part: tables and columns. They can be updated
/// and prefetched.
///
/// # Example
///
/// See [`ClusterTable::column`].
pub trait Stored: Rows {
    /// A row that is given: [`Codec::Given`].
    type Given: ?Sized;
    /// A row that is shown where it is, as far as its codec can: [`Codec::View`].
    type View<'b>;
    #[doc(hidden)]
    type Codec: Codec;
    #[doc(hidden)]
    type Kind: Kind;
    #[doc(hidden)]
    fn table(self) -> ClusterTable<Self::Key, Self::Codec, Self::Kind>;
    #[doc(hidden)]
    fn decode(self, whole: &[u8]) -> Result<Self::Row, CodecError>;
    #[doc(hidden)]
    fn show(self, whole: &[u8]) -> Result<Self::View<'_>, CodecError>;
    /// Appends the whole row to the bytes among which it is as it was.
    #[doc(hidden)]
    fn encode(self, given: &Self::Given, was: Range<usize>, bytes: &mut Vec<u8>) -> Result<(), CodecError>;
}

impl<K, C, O> Sealed for ClusterTable<K, C, O> {}

impl<K: Key, C: Codec, O: Kind> Rows for ClusterTable<K, C, O> {
    type Key = K;
    type Row = C::Value;
}

impl<K: Key, C: Codec, O: Kind> Stored for ClusterTable<K, C, O> {
    type Given = C::Given;
    type View<'b> = C::View<'b>;
    type Codec = C;
    type Kind = O;

    fn table(self) -> Self {
        self
    }

    fn decode(self, whole: &[u8]) -> Result<C::Value, CodecError> {
        C::decode(whole)
    }

    fn show(self, whole: &[u8]) -> Result<C::View<'_>, CodecError> {
        C::view(whole)
    }

    fn encode(self, given: &C::Given, _was: Range<usize>, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        C::encode(given, bytes)
    }
}

impl<R: Stored> Point for R {
    async fn get_many<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> Result<Vec<Option<R::Row>>, Error> {
        let rows = tx.rows_of(self.table(), keys)?;
        tx.fetch(&rows).await?;
        rows.into_iter().map(|row| tx.decode(self, row)).collect()
    }

    async fn get<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        key: impl AsKey<R::Key>,
    ) -> Result<Option<R::Row>, Error> {
        let row = tx.row(self.table(), key)?;
        tx.fetch(&[row]).await?;
        tx.decode(self, row)
    }

    async fn contains<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        key: impl AsKey<R::Key>,
    ) -> Result<bool, Error> {
        let row = tx.row(self.table(), key)?;
        tx.fetch(&[row]).await?;
        Ok(tx.is_there(row))
    }
}

impl<R: Stored<Kind: HasOrder>> Sorted for R {
    fn entries(self) -> (u16, &'static str) {
        let table = self.table();
        (table.number, table.name)
    }

    fn are_everywhere(self) -> bool {
        self.table().is_replicated()
    }

    fn reach(
        self,
        range: impl KeyRange<R::Key>,
        owners: &[NodeId],
        here: NodeId,
    ) -> Result<(Ends, SmallVec<[NodeId; 8]>), Error> {
        let table = self.table();
        let ends = Ends::new::<R::Key>(range);
        let nodes = match ends.only() {
            Some(key) => Asked::from_slice(&[owner_of((table.name, &table.partition), key, owners, here)?]),
            None => everywhere(&table.partition, owners, here),
        };
        Ok((ends, nodes))
    }

    async fn rows<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        found: Vec<u32>,
    ) -> Result<Vec<KeyedRow<Self>>, Error> {
        let name = self.table().name;
        let of_row = |row| match (tx.key::<R::Key>(row), tx.decode(self, row)?) {
            (Some(key), Some(value)) => Ok((key, value)),
            _ => Err(Error::Key { table: name }),
        };
        found.into_iter().map(of_row).collect()
    }
}
