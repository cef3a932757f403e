//! What nodes know of a table's indexes, to keep their entries.

use std::{fmt, marker::PhantomData};

use drtm_rdma::NodeId;

use super::{Partition, table::owner_of};
use crate::{
    Codec, Error, IndexDef, Key, Uniqueness,
    db::name::Name,
    index::{Entries, Lister, lister},
    memory::storage::KeyRef,
    tx::encode,
};

/// What a node knows of an index: which entries a row has, and which node has an entry. Without
/// types, which the table has.
pub(super) trait IndexInfo: Send + Sync {
    /// The index's name.
    fn name(&self) -> &'static str;

    /// Adds the entries of a row, whose key is of the table's type.
    fn list(&self, row: KeyRef<'_>, value: &[u8], entries: &mut Entries) -> Result<(), Error>;

    /// Which of the owners has an entry.
    fn owner(&self, entry: KeyRef<'_>, owners: &[NodeId], here: NodeId) -> Result<NodeId, Error>;
}

impl fmt::Debug for dyn IndexInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IndexInfo").field(&self.name()).finish()
    }
}

struct Definition<L, K, I, U> {
    name: &'static str,
    number: u16,
    lister: L,
    partition: Partition<I>,
    types: PhantomData<fn() -> (K, U)>,
}

/// What a node is to know of an index, whose entries are in the table of this number.
pub(super) fn index_info<K: Key, C: Codec, I: Key, U: Uniqueness>(
    def: IndexDef<K, C, I, U>,
    number: u16,
    table: &'static str,
    partition: Partition<I>,
) -> Box<dyn IndexInfo> {
    let lister = lister(def, Name::new(table));
    Box::new(Definition { name: def.name(), number, lister, partition, types: PhantomData::<fn() -> (K, U)> })
}

impl<L: Lister, K: Key, I: Key, U: Uniqueness> IndexInfo for Definition<L, K, I, U> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn list(&self, row: KeyRef<'_>, value: &[u8], entries: &mut Entries) -> Result<(), Error> {
        self.lister.list(row, value, (self.number, false), entries)
    }

    fn owner(&self, entry: KeyRef<'_>, owners: &[NodeId], here: NodeId) -> Result<NodeId, Error> {
        let key: U::Key<K, I> = entry.decode().ok_or(Error::Key { table: self.name })?;
        let mut bytes = Vec::new();
        owner_of((self.name, &self.partition), encode::<I>(&U::by::<K, I>(key), &mut bytes), owners, here)
    }
}
