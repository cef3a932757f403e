//! Indexes of a cluster's tables, as sources of rows.
//!
//! An index's entries are rows of a table of the cluster that has no handle, divided among
//! the owners by what rows are found by. So an entry is mostly at another node than its row. A
//! transaction that writes a row changes its entries as it changes rows (`tx/upkeep.rs`), and every
//! phase of it treats them alike.

use std::marker::PhantomData;

use drtm_rdma::{Fabric, NodeId};
use smallvec::SmallVec;

use super::{
    ClusterTable, ClusterTx, Partition, Point, Sorted,
    table::{everywhere, owner_of},
};
use crate::{
    AsKey, Codec, Config, Error, Hash, Key, KeyRange, KeyedRow, Rows, Unique, Uniqueness,
    schema::{copied::copied, table::Kind},
    tx::{position::Ends, rows::sealed::Sealed},
};

/// An index of a cluster's table. It is small and can be copied.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{LocalConfig, LocalFabric, NodeId};
/// use drtm_txn::{
///     Builder, Error, IndexDef, Multi, Serde, Config, TableDef,
///     cluster::{Cluster, Node, Partition},
/// };
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug)]
/// struct Plain;
///
/// impl Config for Plain {
///     type Engine = NoHtm;
/// }
///
/// #[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
/// struct User {
///     email: String,
///     city: Option<String>,
/// }
///
/// const USERS: TableDef<u64, Serde<User>> = TableDef::hash("users");
/// const BY_EMAIL: IndexDef<u64, Serde<User>, String> = IndexDef::unique("users by email", |_, user| Some(user.email));
/// const BY_CITY: IndexDef<u64, Serde<User>, String, Multi> = IndexDef::multi("users by city", |_, user| user.city);
///
/// let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
/// let start = |node| {
///     let builder = Builder::new().memory(16 << 20);
///     let mut node = Node::<_, Plain>::builder(NoHtm, &fabric, node, builder)?.owners([NodeId(0), NodeId(1)])?;
///     let users = node.table(USERS, Partition::by("number", |number| *number))?;
///     let by_email = node.index(users, BY_EMAIL, Partition::hash())?;
///     let by_city = node.index(users, BY_CITY, Partition::hash())?;
///     Ok::<_, Error>((Cluster::start(node.start()?, 1)?, users, by_email, by_city))
/// };
/// let (one, users, by_email, by_city) = start(NodeId(0))?;
/// let (_two, ..) = start(NodeId(1))?;
///
/// let user = |email: &str| User { email: email.to_owned(), city: Some("Bern".to_owned()) };
/// let (ann, bob) = (user("ann@x.org"), user("bob@x.org"));
/// one.transact(async move |tx| {
///     tx.insert(users, 1, &ann).await?;
///     tx.insert(users, 2, &bob).await
/// })
/// .wait()?;
/// let found = one.transact(async move |tx| {
///     let bob = tx.get(by_email.keys(), "bob@x.org").await?;
///     Ok((bob, tx.count(by_city, "Bern"..="Bern").await?))
/// });
/// assert_eq!(found.wait()?, (Some(2), 2));
/// let twice = one.transact(async move |tx| tx.update(users, 1, |user| user.email = "bob@x.org".into()).await);
/// assert!(matches!(twice.wait(), Err(Error::Duplicate { index: "users by email" })));
/// # Ok::<(), Error>(())
/// ```
pub struct ClusterIndex<K, C, I, U = Unique, O = Hash> {
    pub(super) table: ClusterTable<K, C, O>,
    number: u16,
    name: &'static str,
    partition: Partition<I>,
    types: PhantomData<fn() -> U>,
}

/// The keys of the rows of an index, in the index's order.
///
/// # Example
///
/// See [`ClusterIndex`].
pub struct ClusterIndexKeys<K, C, I, U = Unique, O = Hash> {
    index: ClusterIndex<K, C, I, U, O>,
}

copied! {
    <K, C, I, U, O> ClusterIndex<K, C, I, U, O> as "ClusterIndex" { table, name, partition };
    <K, C, I, U, O> ClusterIndexKeys<K, C, I, U, O> as "ClusterIndexKeys" { index };
}

impl<K: Key, C, I: Key, U: Uniqueness, O> ClusterIndex<K, C, I, U, O> {
    pub(super) const fn new(
        table: ClusterTable<K, C, O>,
        number: u16,
        name: &'static str,
        partition: Partition<I>,
    ) -> Self {
        Self { table, number, name, partition, types: PhantomData }
    }

    /// The keys of the index's rows, as a source of rows: the table is not looked at.
    ///
    /// # Example
    ///
    /// See [`ClusterIndex`].
    #[must_use]
    pub const fn keys(self) -> ClusterIndexKeys<K, C, I, U, O> {
        ClusterIndexKeys { index: self }
    }
}

impl<K: Key, C, I: Key, O> ClusterIndex<K, C, I, Unique, O> {
    /// The entries, each of which is found by what its row is found by.
    const fn entries(self) -> ClusterTable<I, <Unique as Uniqueness>::Codec<K>, crate::Ordered> {
        ClusterTable::new(self.number, self.name, self.partition)
    }
}

impl<K, C, I, U, O> Sealed for ClusterIndex<K, C, I, U, O> {}
impl<K, C, I, U, O> Sealed for ClusterIndexKeys<K, C, I, U, O> {}

impl<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind> Rows for ClusterIndexKeys<K, C, I, U, O> {
    type Key = I;
    type Row = K;
}

impl<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind> Rows for ClusterIndex<K, C, I, U, O> {
    type Key = I;
    type Row = (K, C::Value);
}

impl<K: Key, C: Codec, I: Key, O: Kind> Point for ClusterIndexKeys<K, C, I, Unique, O> {
    async fn get_many<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        by: impl IntoIterator<Item = impl AsKey<I>>,
    ) -> Result<Vec<Option<K>>, Error> {
        self.index.entries().get_many(tx, by).await
    }

    async fn get<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        by: impl AsKey<I>,
    ) -> Result<Option<K>, Error> {
        self.index.entries().get(tx, by).await
    }

    async fn contains<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        by: impl AsKey<I>,
    ) -> Result<bool, Error> {
        self.index.entries().contains(tx, by).await
    }
}

impl<K: Key, C: Codec, I: Key, O: Kind> Point for ClusterIndex<K, C, I, Unique, O> {
    async fn get_many<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        by: impl IntoIterator<Item = impl AsKey<I>>,
    ) -> Result<Vec<Option<(K, C::Value)>>, Error> {
        let keys = self.keys().get_many(tx, by).await?;
        let mut rows = self.of_entries(tx, keys.iter().flatten()).await?.into_iter();
        Ok(keys.into_iter().map(|key| key.and_then(|key| Some((key, rows.next()?)))).collect())
    }

    async fn get<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        by: impl AsKey<I>,
    ) -> Result<Option<(K, C::Value)>, Error> {
        let Some(key) = self.keys().get(tx, by).await? else { return Ok(None) };
        let row = self.of_entries(tx, [&key]).await?.pop();
        Ok(row.map(|row| (key, row)))
    }

    async fn contains<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        by: impl AsKey<I>,
    ) -> Result<bool, Error> {
        self.keys().contains(tx, by).await
    }
}

impl<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind> ClusterIndex<K, C, I, U, O> {
    /// Reads the rows that entries have.
    async fn of_entries<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        keys: impl IntoIterator<Item = &K>,
    ) -> Result<Vec<C::Value>, Error> {
        let rows: Option<Vec<_>> = self.table.get_many(tx, keys).await?.into_iter().collect();
        match rows {
            Some(rows) => Ok(rows),
            None => Err(tx.disagreement(self.name, self.table.name).await),
        }
    }
}

impl<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind> Sorted for ClusterIndexKeys<K, C, I, U, O> {
    fn entries(self) -> (u16, &'static str) {
        (self.index.number, self.index.name)
    }

    fn are_everywhere(self) -> bool {
        self.index.partition.is_replicated()
    }

    fn reach(
        self,
        range: impl KeyRange<I>,
        owners: &[NodeId],
        here: NodeId,
    ) -> Result<(Ends, SmallVec<[NodeId; 8]>), Error> {
        let ClusterIndex { name, partition, .. } = self.index;
        let (start, end) = range.ends();
        // All entries that are found by one key are at one owner.
        let whole = Ends::new::<I>((
            start.as_ref().map(crate::schema::key::ByRef),
            end.as_ref().map(crate::schema::key::ByRef),
        ));
        let nodes = match whole.only() {
            Some(key) => SmallVec::from_slice(&[owner_of((name, &partition), key, owners, here)?]),
            None => everywhere(&partition, owners, here),
        };
        Ok((Ends::of_entries::<K, I, U>((start, end)), nodes))
    }

    async fn rows<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        found: Vec<u32>,
    ) -> Result<Vec<(I, K)>, Error> {
        let index = self.index.name;
        let of_entry = |row| {
            let (key, value) = (tx.key::<U::Key<K, I>>(row), tx.value(row).map(U::Codec::<K>::decode));
            let (Some(key), Some(value)) = (key, value) else { return Err(Error::Key { table: index }) };
            Ok(U::entry(key, value.map_err(|source| Error::Codec { table: index, source })?))
        };
        found.into_iter().map(of_entry).collect()
    }
}

impl<K: Key, C: Codec, I: Key, U: Uniqueness, O: Kind> Sorted for ClusterIndex<K, C, I, U, O> {
    fn entries(self) -> (u16, &'static str) {
        self.keys().entries()
    }

    fn are_everywhere(self) -> bool {
        self.keys().are_everywhere()
    }

    fn reach(
        self,
        range: impl KeyRange<I>,
        owners: &[NodeId],
        here: NodeId,
    ) -> Result<(Ends, SmallVec<[NodeId; 8]>), Error> {
        self.keys().reach(range, owners, here)
    }

    async fn rows<'e, F: Fabric, S: Config<Engine = F::Engine>>(
        self,
        tx: &mut ClusterTx<'e, F, S>,
        found: Vec<u32>,
    ) -> Result<Vec<KeyedRow<Self>>, Error> {
        let entries = self.keys().rows(tx, found).await?;
        let rows = self.of_entries(tx, entries.iter().map(|(_, key)| key)).await?;
        Ok(entries.into_iter().zip(rows).map(|((by, key), row)| (by, (key, row))).collect())
    }
}
