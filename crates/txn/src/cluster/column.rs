//! Columns of a cluster's tables: parts of every row, as sources of rows.

use std::ops::Range;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{ClusterTable, Stored};
use crate::{
    Codec, CodecError, Flat, Key, Part, Rows,
    schema::{copied::copied, part::WORD, table::Kind},
    tx::rows::sealed::Sealed,
};

/// A column of a cluster's table: a part of every row, as a source of rows.
///
/// # Example
///
/// See [`ClusterTable::column`].
pub struct ClusterColumn<K, C: Codec, O, T> {
    table: ClusterTable<K, C, O>,
    part: Part<C::Value, T>,
}

copied! {
    <K, C: Codec, O, T> ClusterColumn<K, C, O, T> as "ClusterColumn" { table, part };
}

impl<K: Key, C: Flat, O: Kind> ClusterTable<K, C, O> {
    /// A part of every row of the table, as a source of rows, as [`Table::column`] gives it.
    ///
    /// Between nodes, whole rows travel: a column saves decoding, and says what a transaction is
    /// about. Another transaction that changes another column of the row is a conflict all the
    /// same.
    ///
    /// [`Table::column`]: crate::Table::column
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{LocalConfig, LocalFabric, NodeId};
    /// use drtm_txn::{Builder, Error, Part, Pod, Config, TableDef, cluster::{Cluster, Node, Partition}};
    /// use zerocopy::{FromBytes, Immutable, IntoBytes};
    ///
    /// #[derive(Debug)]
    /// struct Plain;
    ///
    /// impl Config for Plain {
    ///     type Engine = NoHtm;
    /// }
    ///
    /// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
    /// #[repr(C)]
    /// struct Customer {
    ///     balance: i64,
    ///     name: [u8; 24],
    /// }
    ///
    /// const CUSTOMERS: TableDef<u64, Pod<Customer>> = TableDef::hash("customers");
    /// const BALANCE: Part<Customer, i64> = drtm_txn::part!(Customer, balance);
    ///
    /// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
    /// let builder = Builder::new().memory(16 << 20);
    /// let mut node = Node::<_, Plain>::builder(NoHtm, &fabric, NodeId(0), builder)?.owners([NodeId(0)])?;
    /// let customers = node.table(CUSTOMERS, Partition::hash())?;
    /// let balances = customers.column(BALANCE);
    /// let cluster = Cluster::start(node.start()?, 1)?;
    /// let left = cluster.transact(async move |tx| {
    ///     tx.put(customers, 7, Customer { balance: 10, name: [b'x'; 24] }).await?;
    ///     tx.update(balances, 7, |balance| *balance -= 3).await?;
    ///     tx.get(balances, 7).await
    /// });
    /// assert_eq!(left.wait()?, Some(7));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn column<T>(self, part: Part<C::Value, T>) -> ClusterColumn<K, C, O, T>
    where
        T: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        ClusterColumn { table: self, part }
    }
}

impl<K, C: Codec, O, T> Sealed for ClusterColumn<K, C, O, T> {}

impl<K: Key, C: Flat, O: Kind, T: FromBytes + IntoBytes + Immutable + KnownLayout> Rows for ClusterColumn<K, C, O, T> {
    type Key = K;
    type Row = T;
}

impl<K: Key, C: Flat, O: Kind, T: FromBytes + IntoBytes + Immutable + KnownLayout> Stored
    for ClusterColumn<K, C, O, T>
{
    type Given = T;
    type View<'b> = T;
    type Codec = C;
    type Kind = O;

    fn table(self) -> ClusterTable<K, C, O> {
        self.table
    }

    fn decode(self, whole: &[u8]) -> Result<T, CodecError> {
        self.part.read(whole.get(WORD * self.part.span().skipped as usize..).unwrap_or(&[]))
    }

    fn show(self, whole: &[u8]) -> Result<T, CodecError> {
        self.decode(whole)
    }

    fn encode(self, given: &T, was: Range<usize>, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        let start = bytes.len();
        bytes.extend_from_within(was);
        let skipped = start + WORD * self.part.span().skipped as usize;
        self.part.write(bytes.get_mut(skipped..).unwrap_or(&mut []), given)
    }
}
