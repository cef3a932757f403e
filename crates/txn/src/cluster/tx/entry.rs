//! A row's place in a table of a cluster, whether there is a row or not.

use std::{borrow::Borrow, fmt};

use drtm_rdma::Fabric;

use super::ClusterTx;
use crate::{
    AsKey, Codec, Config, DefaultConfig, Error, Hash, Key,
    cluster::{ClusterTable, state::Op},
    schema::table::Kind,
};

/// A row's place in a cluster's table, as maps have it: [`ClusterTx::entry`] gives it. The row is
/// looked up once, whatever is then done.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{LocalConfig, LocalFabric, NodeId};
/// use drtm_txn::{Builder, Error, Pod, Config, TableDef, cluster::{Cluster, Node, Partition}};
///
/// #[derive(Debug)]
/// struct Plain;
///
/// impl Config for Plain {
///     type Engine = NoHtm;
/// }
///
/// const WORDS: TableDef<String, Pod<u64>> = TableDef::hash("words");
///
/// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
/// let builder = Builder::new().memory(16 << 20);
/// let mut node = Node::<_, Plain>::builder(NoHtm, &fabric, NodeId(0), builder)?.owners([NodeId(0)])?;
/// let words = node.table(WORDS, Partition::hash())?;
/// let cluster = Cluster::start(node.start()?, 1)?;
/// let times = cluster.transact(async move |tx| {
///     for word in "to be or not to be".split(' ') {
///         tx.entry(words, word).await?.and_modify(|times| *times += 1).await?.or_insert(1).await?;
///     }
///     tx.entry(words, "be").await?.or_default().await
/// });
/// assert_eq!(times.wait()?, 2);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub enum ClusterEntry<'t, 'e, K, C: Codec, F: Fabric, S: Config<Engine = F::Engine> = DefaultConfig, O = Hash> {
    /// There is a row.
    Occupied(ClusterOccupiedEntry<'t, 'e, K, C, F, S, O>),
    /// There is none.
    Vacant(ClusterVacantEntry<'t, 'e, K, C, F, S, O>),
}

/// Where a row of a cluster's table is.
///
/// # Example
///
/// See [`ClusterVacantEntry`].
pub struct ClusterOccupiedEntry<'t, 'e, K, C: Codec, F: Fabric, S: Config<Engine = F::Engine> = DefaultConfig, O = Hash>
{
    place: Place<'t, 'e, K, C, F, S, O>,
    value: C::Value,
}

/// Where a row of a cluster's table is not.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{LocalConfig, LocalFabric, NodeId};
/// use drtm_txn::{
///     Builder, Error, Pod, Config, TableDef,
///     cluster::{Cluster, ClusterEntry, Node, Partition},
/// };
///
/// #[derive(Debug)]
/// struct Plain;
///
/// impl Config for Plain {
///     type Engine = NoHtm;
/// }
///
/// const LEASES: TableDef<u64, Pod<u32>> = TableDef::hash("leases");
///
/// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
/// let builder = Builder::new().memory(16 << 20);
/// let mut node = Node::<_, Plain>::builder(NoHtm, &fabric, NodeId(0), builder)?.owners([NodeId(0)])?;
/// let leases = node.table(LEASES, Partition::hash())?;
/// let cluster = Cluster::start(node.start()?, 1)?;
/// let use_it = || {
///     cluster
///         .transact(async move |tx| match tx.entry(leases, 1).await? {
///             ClusterEntry::Vacant(entry) => entry.insert(&1).await.map(|()| "taken"),
///             ClusterEntry::Occupied(entry) => match *entry.get() {
///                 0 => entry.remove().await.map(|_| "used up"),
///                 _ => entry.update(|uses| *uses -= 1).await.map(|()| "used"),
///             },
///         })
///         .wait()
/// };
/// assert_eq!([use_it()?, use_it()?, use_it()?, use_it()?], ["taken", "used", "used up", "taken"]);
/// # Ok::<(), Error>(())
/// ```
pub struct ClusterVacantEntry<'t, 'e, K, C: Codec, F: Fabric, S: Config<Engine = F::Engine> = DefaultConfig, O = Hash> {
    place: Place<'t, 'e, K, C, F, S, O>,
}

/// What both have.
struct Place<'t, 'e, K, C, F: Fabric, S: Config<Engine = F::Engine>, O> {
    tx: &'t mut ClusterTx<'e, F, S>,
    table: ClusterTable<K, C, O>,
    row: u32,
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> ClusterTx<'e, F, S> {
    /// Finds a row's place, to read and write the row there.
    ///
    /// # Errors
    ///
    /// [`Error::Replicated`]; otherwise as for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`ClusterEntry`].
    pub async fn entry<'t, K: Key, C: Codec, O: Kind>(
        &'t mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<ClusterEntry<'t, 'e, K, C, F, S, O>, Error> {
        let row = self.row_to_write(table, key)?;
        self.fetch(&[row]).await?;
        let value = self.decode(table, row)?;
        let place = Place { tx: self, table, row };
        Ok(match value {
            Some(value) => ClusterEntry::Occupied(ClusterOccupiedEntry { place, value }),
            None => ClusterEntry::Vacant(ClusterVacantEntry { place }),
        })
    }
}

impl<K: Key, C: Codec, F: Fabric, S: Config<Engine = F::Engine>, O: Kind> ClusterEntry<'_, '_, K, C, F, S, O> {
    /// Gives the row a value, whether it is there or not.
    ///
    /// # Errors
    ///
    /// As for [`ClusterTx::put`].
    pub async fn put(self, value: &C::Given) -> Result<(), Error> {
        match self {
            Self::Occupied(entry) => entry.put(value).await,
            Self::Vacant(entry) => entry.insert(value).await,
        }
    }

    /// Changes the row's value, if it is there.
    ///
    /// # Errors
    ///
    /// As for [`ClusterTx::update`].
    pub async fn and_modify(mut self, change: impl FnOnce(&mut C::Value)) -> Result<Self, Error>
    where
        C::Value: Borrow<C::Given>,
    {
        if let Self::Occupied(entry) = &mut self {
            entry.change(change).await?;
        }
        Ok(self)
    }

    /// Inserts the row with this value, if it is not there. Gives the value that it has then.
    ///
    /// # Errors
    ///
    /// As for [`ClusterTx::put`].
    pub async fn or_insert(self, value: C::Value) -> Result<C::Value, Error>
    where
        C::Value: Borrow<C::Given>,
    {
        self.or_insert_with(|| value).await
    }

    /// Inserts the row with the value that `make` gives, if it is not there. Gives the value that
    /// it has then.
    ///
    /// # Errors
    ///
    /// As for [`ClusterTx::put`].
    pub async fn or_insert_with(self, make: impl FnOnce() -> C::Value) -> Result<C::Value, Error>
    where
        C::Value: Borrow<C::Given>,
    {
        match self {
            Self::Occupied(entry) => Ok(entry.into_value()),
            Self::Vacant(entry) => {
                let value = make();
                entry.insert(value.borrow()).await?;
                Ok(value)
            }
        }
    }

    /// Inserts the row with its type's default value, if it is not there. Gives the value that it
    /// has then.
    ///
    /// # Errors
    ///
    /// As for [`ClusterTx::put`].
    pub async fn or_default(self) -> Result<C::Value, Error>
    where
        C::Value: Borrow<C::Given> + Default,
    {
        self.or_insert_with(C::Value::default).await
    }
}

impl<K: Key, C: Codec, F: Fabric, S: Config<Engine = F::Engine>, O: Kind> ClusterOccupiedEntry<'_, '_, K, C, F, S, O> {
    /// The row's value.
    #[must_use]
    pub fn get(&self) -> &C::Value {
        &self.value
    }

    /// The row's value, to keep.
    #[must_use]
    pub fn into_value(self) -> C::Value {
        self.value
    }

    /// Gives the row another value.
    ///
    /// # Errors
    ///
    /// As for [`ClusterTx::put`].
    pub async fn put(self, value: &C::Given) -> Result<(), Error> {
        let Place { tx, table, row } = self.place;
        tx.give(table, row, value).await
    }

    /// Changes the row's value. Gives what `change` gives.
    ///
    /// # Errors
    ///
    /// As for [`ClusterTx::update`].
    pub async fn update<X>(mut self, change: impl FnOnce(&mut C::Value) -> X) -> Result<X, Error>
    where
        C::Value: Borrow<C::Given>,
    {
        self.change(change).await
    }

    /// Removes the row, and returns its value.
    ///
    /// # Errors
    ///
    /// As for [`ClusterTx::remove`].
    pub async fn remove(self) -> Result<C::Value, Error> {
        let Self { place: Place { tx, table, row }, value } = self;
        tx.write(row, Op::Remove, table.name).await?;
        Ok(value)
    }

    async fn change<X>(&mut self, change: impl FnOnce(&mut C::Value) -> X) -> Result<X, Error>
    where
        C::Value: Borrow<C::Given>,
    {
        let Self { place: Place { tx, table, row }, value } = self;
        let result = change(value);
        tx.give(*table, *row, (*value).borrow()).await?;
        Ok(result)
    }
}

impl<K: Key, C: Codec, F: Fabric, S: Config<Engine = F::Engine>, O: Kind> ClusterVacantEntry<'_, '_, K, C, F, S, O> {
    /// Inserts a row.
    ///
    /// # Errors
    ///
    /// As for [`ClusterTx::put`].
    pub async fn insert(self, value: &C::Given) -> Result<(), Error> {
        let Place { tx, table, row } = self.place;
        tx.give(table, row, value).await
    }
}

impl<K, C: Codec, F: Fabric, S: Config<Engine = F::Engine>, O> fmt::Debug
    for ClusterOccupiedEntry<'_, '_, K, C, F, S, O>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterOccupiedEntry").field("table", &self.place.table.name).finish_non_exhaustive()
    }
}

impl<K, C: Codec, F: Fabric, S: Config<Engine = F::Engine>, O> fmt::Debug
    for ClusterVacantEntry<'_, '_, K, C, F, S, O>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterVacantEntry").field("table", &self.place.table.name).finish_non_exhaustive()
    }
}
