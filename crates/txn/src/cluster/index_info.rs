//! What nodes know of a table's indexes, to keep their entries.

use std::{fmt, marker::PhantomData};

use crate::{
    Codec, Error, IndexDef, Key, Uniqueness,
    db::name::Name,
    index::{Entries, Lister, lister},
    memory::storage::KeyRef,
    tx::encode,
};

/// What a node knows of an index: which entries a row has, and what an entry is found by.
/// Without types, which the table has.
pub(super) trait IndexInfo: Send + Sync {
    /// Returns the index's name.
    fn name(&self) -> &'static str;

    /// Adds the entries of a row, whose key is of the table's type.
    fn list(&self, row: KeyRef<'_>, value: &[u8], entries: &mut Entries) -> Result<(), Error>;

    /// Returns what an entry is found by, by which entries are divided among the owners. It may be
    /// encoded into `bytes`.
    fn by<'b>(&self, entry: KeyRef<'_>, bytes: &'b mut Vec<u8>) -> Result<KeyRef<'b>, Error>;
}

impl fmt::Debug for dyn IndexInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IndexInfo").field(&self.name()).finish()
    }
}

type Types<K, I, U> = PhantomData<fn() -> (K, I, U)>;

struct Definition<L, K, I, U> {
    name: &'static str,
    number: u16,
    lister: L,
    types: Types<K, I, U>,
}

/// Returns what a node knows of an index, whose entries are in the table of this number.
pub(super) fn index_info<K: Key, C: Codec, I: Key, U: Uniqueness>(
    def: IndexDef<K, C, I, U>,
    number: u16,
    table: &'static str,
) -> Box<dyn IndexInfo> {
    let lister = lister(def, Name::new(table));
    Box::new(Definition { name: def.name(), number, lister, types: Types::<K, I, U>::default() })
}

impl<L: Lister, K: Key, I: Key, U: Uniqueness> IndexInfo for Definition<L, K, I, U> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn list(&self, row: KeyRef<'_>, value: &[u8], entries: &mut Entries) -> Result<(), Error> {
        self.lister.list(row, value, (self.number, false), entries)
    }

    fn by<'b>(&self, entry: KeyRef<'_>, bytes: &'b mut Vec<u8>) -> Result<KeyRef<'b>, Error> {
        let key: U::Key<K, I> = entry.decode().ok_or(Error::Key { table: self.name })?;
        Ok(encode::<I>(&U::by::<K, I>(key), bytes))
    }
}
