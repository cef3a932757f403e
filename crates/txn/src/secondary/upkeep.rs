//! The indexes of a table, as its writers know them.
//!
//! A table's indexes are gathered until somebody writes to it. Then they are fixed: no row can come into the table that an index does not know of,
//! and a writer sees whether there are any by one flag, which never changes again.

use std::{
    any::Any,
    fmt, mem,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use super::{Entries, IndexDef, Keys, Uniqueness};
use crate::{Codec, Error, Key, Ordered, TableDef};

/// The indexes of a table.
#[derive(Debug, Default)]
pub(crate) struct Indexes {
    /// Whether it is certain that there are none, and never will be.
    are_none: AtomicBool,
    fixed: OnceLock<Box<[Box<dyn Lister>]>>,
    /// Until they are fixed, which is done with this held.
    gathered: Mutex<Vec<Box<dyn Lister>>>,
}

/// Knows a row's entries in an index. Without types, which the table has.
trait Lister: Send + Sync {
    /// The index's name.
    fn name(&self) -> &'static str;

    /// Adds the entries of a row, whose key is of the table's type.
    fn list(&self, row: &dyn Any, value: &[u8], entries: &mut Entries) -> Result<(), Error>;
}

impl fmt::Debug for dyn Lister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lister").field(&self.name()).finish()
    }
}

/// An index that is open.
struct Opened<K, C: Codec, I, U> {
    def: IndexDef<K, C, I, U>,
    /// The number of its own table.
    number: u16,
    /// The name of the table whose rows it finds.
    table: &'static str,
}

impl<K: Key, C: Codec, I: Key, U: Uniqueness> Lister for Opened<K, C, I, U> {
    fn name(&self) -> &'static str {
        self.def.name
    }

    fn list(&self, row: &dyn Any, value: &[u8], entries: &mut Entries) -> Result<(), Error> {
        let table = self.table;
        let row: &K = row.downcast_ref().ok_or(Error::Key { table })?;
        let view = C::view(value).map_err(|source| Error::Codec { table, source })?;
        let mut add = |by| entries.add(self.number, U::IS_UNIQUE, &U::key(by, row));
        match self.def.keys {
            Keys::AtMostOne(key) => key(row, view).map_or(Ok(()), add),
            Keys::Several(keys) => keys(row, view).into_iter().try_for_each(&mut add),
        }
    }
}

impl Indexes {
    /// The number of the index that is defined like this, whose table `open` opens.
    pub(super) fn open<K: Key, C: Codec, I: Key, U: Uniqueness>(
        &self,
        table: &'static str,
        def: IndexDef<K, C, I, U>,
        open: impl FnOnce(TableDef<U::Key<K, I>, U::Codec<K>, Ordered>) -> Result<u16, Error>,
    ) -> Result<u16, Error> {
        let mut gathered = self.gathered.lock();
        let fixed = self.fixed.get();
        let mut known = fixed.map_or(gathered.as_slice(), |fixed| fixed).iter();
        let is_known = known.any(|index| index.name() == def.name);
        if !is_known && fixed.is_some() {
            return Err(Error::TooLate { index: def.name, table });
        }
        let number = open(def.entries(table))?;
        if !is_known {
            gathered.push(Box::new(Opened { def, number, table }));
        }
        Ok(number)
    }

    /// Whether there are none. To be asked before anything is written: there come no others from then on.
    #[inline(always)]
    pub(crate) fn are_none(&self) -> bool {
        // Once set it stays, and who does not see it yet asks on.
        self.are_none.load(Relaxed) || self.fix().is_empty()
    }

    #[cold]
    #[inline(never)]
    fn fix(&self) -> &[Box<dyn Lister>] {
        if let Some(fixed) = self.fixed.get() {
            return fixed;
        }
        let mut gathered = self.gathered.lock();
        let fixed = self.fixed.get_or_init(|| mem::take(&mut *gathered).into_boxed_slice());
        self.are_none.store(fixed.is_empty(), Relaxed);
        fixed
    }

    /// Adds the entries of a row.
    pub(crate) fn list(&self, row: &dyn Any, value: &[u8], entries: &mut Entries) -> Result<(), Error> {
        self.fix().iter().try_for_each(|index| index.list(row, value, entries))
    }
}
