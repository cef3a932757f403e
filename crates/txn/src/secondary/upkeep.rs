//! The indexes of a table, as its writers know them.
//!
//! They are a list that only grows at its end, so that a writer goes through it without a lock; and
//! a writer sees whether there are any by one flag. An index that could not be made, or was
//! dropped, stays in the list, and is passed over. An index of the same definition takes its place
//! later, so the list is never longer than the program has definitions.
//!
//! Who adds an index, or gives one up, changes the database's terms then (see `gate`). From there
//! on every writer that commits has known the list as it is.

use std::{
    any::Any,
    fmt, ptr,
    sync::{
        OnceLock,
        atomic::{
            AtomicBool, AtomicU8, AtomicU16, AtomicU64,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
        },
    },
};

use parking_lot::{Mutex, MutexGuard};

use super::{Entries, IndexDef, Keys, Uniqueness};
use crate::{Codec, Error, Key, name::Name, storage::KeyRef};

/// The indexes of a table.
#[derive(Debug, Default)]
pub(crate) struct Indexes {
    /// Whether there may be any.
    has_some: AtomicBool,
    first: OnceLock<Box<Listed>>,
    /// Which change of the terms was the last of these indexes'.
    changed_at: AtomicU64,
    /// Held while one is added.
    turn: Mutex<()>,
    /// Those that the log has.
    names: Mutex<Names>,
    /// Whether one of them was not opened yet.
    has_unopened: AtomicBool,
    /// What may write the table, as a number of [`Writers`].
    writers: AtomicU8,
}

/// What may write a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Writers {
    /// The transactions of its database.
    Own,
    /// These, and a cluster's: it has no indexes.
    Shared,
    /// A cluster's only: its entries in indexes may be on other nodes.
    Cluster,
    /// None any more: every node of a cluster has the same rows.
    Nobody,
}

impl Writers {
    const ALL: [Self; 4] = [Self::Own, Self::Shared, Self::Cluster, Self::Nobody];
}

/// Names of indexes that a log has.
#[derive(Debug, Default)]
struct Names {
    opened: Vec<String>,
    unopened: Vec<String>,
}

/// A change that is not over yet: later than all that are.
const UNDER_WAY: u64 = u64::MAX;

/// An index in the list.
#[derive(Debug)]
pub(crate) struct Listed {
    index: Box<dyn Lister>,
    /// The number of the index's own table. It changes while the index is given up only.
    number: AtomicU16,
    stage: AtomicU8,
    next: OnceLock<Box<Self>>,
}

/// Rows that were there before get their entries one after the other. Writers keep the entries that
/// there are.
const PARTIAL: u8 = 0;
/// Every row has its entries.
const WHOLE: u8 = 1;
/// It could not be made, or was dropped.
const GIVEN_UP: u8 = 2;

/// Knows a row's entries in an index. Without types, which the table has.
pub(crate) trait Lister: Any + Send + Sync {
    /// The index's name.
    fn name(&self) -> &'static str;

    /// Returns whether another one, of a definition with the same types, lists the same entries.
    fn is_as(&self, other: &dyn Any) -> bool;

    /// Adds the entries of a row, whose key is of the table's type. The index's own table has this
    /// number. Entries of a partial index may not be there.
    fn list(&self, row: KeyRef<'_>, value: &[u8], own: (u16, bool), entries: &mut Entries) -> Result<(), Error>;
}

impl fmt::Debug for dyn Lister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lister").field(&self.name()).finish()
    }
}

/// What knows a row's entries in an index.
#[cfg(not(feature = "model"))]
pub(crate) fn lister<K: Key, C: Codec, I: Key, U: Uniqueness>(def: IndexDef<K, C, I, U>, table: Name) -> impl Lister {
    Opened { def, table }
}

/// An index that is open.
pub(super) struct Opened<K, C: Codec, I, U> {
    pub(super) def: IndexDef<K, C, I, U>,
    /// The name of the table whose rows it finds.
    pub(super) table: Name,
}

impl<K: Key, C: Codec, I: Key, U: Uniqueness> Lister for Opened<K, C, I, U> {
    fn name(&self) -> &'static str {
        self.def.name
    }

    fn is_as(&self, other: &dyn Any) -> bool {
        let Some(Self { def, .. }) = other.downcast_ref() else { return false };
        // Two functions at one address do the same.
        let is_same = match (self.def.keys, def.keys) {
            (Keys::AtMostOne(one), Keys::AtMostOne(other)) => ptr::fn_addr_eq(one, other),
            (Keys::Several(one), Keys::Several(other)) => ptr::fn_addr_eq(one, other),
            _ => false,
        };
        is_same && self.def.name == def.name
    }

    fn list(
        &self,
        row: KeyRef<'_>,
        value: &[u8],
        (number, is_partial): (u16, bool),
        entries: &mut Entries,
    ) -> Result<(), Error> {
        let row: K = row.decode().ok_or_else(|| Error::Key { table: self.table.get() })?;
        let view = C::view(value).map_err(|source| Error::Codec { table: self.table.get(), source })?;
        let mut add = |by| entries.add((number, U::IS_UNIQUE, is_partial), &U::key(by, &row));
        match self.def.keys {
            Keys::AtMostOne(key) => key(&row, view).map_or(Ok(()), add),
            Keys::Several(keys) => keys(&row, view).into_iter().try_for_each(&mut add),
        }
    }
}

impl Listed {
    /// Adds the entries of a row.
    pub(super) fn list(&self, row: KeyRef<'_>, value: &[u8], entries: &mut Entries) -> Result<(), Error> {
        match self.stage.load(Acquire) {
            GIVEN_UP => Ok(()),
            stage => self.index.list(row, value, (self.number.load(Relaxed), stage == PARTIAL), entries),
        }
    }

    /// Every row has its entries now.
    pub(super) fn is_whole_now(&self) {
        self.stage.store(WHOLE, Release);
    }
}

impl Indexes {
    fn all(&self) -> impl Iterator<Item = &Listed> {
        std::iter::successors(self.first.get(), |listed| listed.next.get()).map(|listed| &**listed)
    }

    /// Indexes that a log has, and which are not open.
    pub(crate) fn recorded(names: Vec<String>) -> Self {
        // A writer looks here then.
        let has_some = !names.is_empty();
        Self {
            has_some: AtomicBool::new(has_some),
            has_unopened: AtomicBool::new(has_some),
            names: Mutex::new(Names { opened: Vec::new(), unopened: names }),
            ..Self::default()
        }
    }

    /// Notes that an index is open, which is announced unless the log has it already.
    ///
    /// # Errors
    ///
    /// Those of `announce`; the index is not noted then.
    pub(super) fn record(&self, name: &str, announce: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let mut names = self.names.lock();
        match names.unopened.iter().position(|one| one == name) {
            Some(at) => {
                let name = names.unopened.remove(at);
                names.opened.push(name);
            }
            // The lock is held meanwhile, so that what is announced is in `logged` from then on.
            None => {
                announce()?;
                names.opened.push(name.to_owned());
            }
        }
        self.has_unopened.store(!names.unopened.is_empty(), Release);
        Ok(())
    }

    /// Takes the name of an index back, which is announced if the log has it.
    ///
    /// # Errors
    ///
    /// Those of `announce`; the name stays then.
    pub(crate) fn unrecord(&self, name: &str, announce: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let mut names = self.names.lock();
        if names.opened.iter().chain(&names.unopened).any(|one| one == name) {
            announce()?;
            names.opened.retain(|one| one != name);
            names.unopened.retain(|one| one != name);
            self.has_unopened.store(!names.unopened.is_empty(), Release);
        }
        Ok(())
    }

    /// Returns the names of the indexes that the log has.
    pub(crate) fn logged(&self) -> Vec<String> {
        let names = self.names.lock();
        names.opened.iter().chain(&names.unopened).cloned().collect()
    }

    /// Returns the name of an index that must be opened before the table is written, if there is
    /// one.
    pub(crate) fn not_opened(&self) -> Option<String> {
        if self.has_unopened.load(Acquire) { self.names.lock().unopened.first().cloned() } else { None }
    }

    /// Sets what may write the table from now on; `tell` tells those that do.
    #[cfg(not(feature = "model"))]
    pub(crate) fn set_writers(&self, writers: Writers, tell: impl FnOnce() -> u64) {
        self.change(tell, || {
            self.writers.store(writers as u8, SeqCst);
            // A writer looks closer then.
            self.look_again();
        });
    }

    /// What may write the table.
    pub(crate) fn writers(&self) -> Writers {
        let writers = self.writers.load(Acquire);
        Writers::ALL.into_iter().find(|one| *one as u8 == writers).unwrap_or(Writers::Own)
    }

    /// Refuses a writer that is a transaction of the database alone.
    pub(crate) fn check_writer(&self, table: &Name) -> Result<(), Error> {
        match self.writers() {
            Writers::Own | Writers::Shared => Ok(()),
            Writers::Cluster => Err(Error::OfCluster { table: table.get() }),
            Writers::Nobody => Err(Error::Replicated { table: table.get() }),
        }
    }

    /// Refuses to change the table itself, if it is one of a cluster.
    pub(crate) fn check_own(&self, table: &Name) -> Result<(), Error> {
        if self.writers() == Writers::Own { Ok(()) } else { Err(Error::OfCluster { table: table.get() }) }
    }

    /// Whether there is one of this name, of every row.
    pub(super) fn have(&self, name: &str) -> bool {
        self.all().any(|listed| listed.index.name() == name && listed.stage.load(Acquire) == WHOLE)
    }

    /// Returns whether there is one of this name, open or recorded.
    pub(crate) fn know(&self, name: &str) -> bool {
        self.have(name) || self.logged().iter().any(|one| one == name)
    }

    /// Waits until nobody else adds an index, or drops one.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Adds an index, which has no entries yet, and whose own table has this number; `tell` tells
    /// writers and gives the change's number. With one's turn.
    pub(super) fn add(&self, index: Box<dyn Lister>, number: u16, tell: impl FnOnce() -> u64) -> &Listed {
        let is_left = |listed: &&Listed| listed.stage.load(Relaxed) == GIVEN_UP && listed.index.is_as(&*index);
        let left = self.all().find(is_left);
        let listed = left.unwrap_or_else(|| self.append(index));
        self.change(tell, || {
            listed.number.store(number, SeqCst);
            listed.stage.store(PARTIAL, SeqCst);
            self.has_some.store(true, SeqCst);
        });
        listed
    }

    /// Appends an index that is given up so far.
    fn append(&self, index: Box<dyn Lister>) -> &Listed {
        let mut end = &self.first;
        while let Some(listed) = end.get() {
            end = &listed.next;
        }
        let (number, stage) = (AtomicU16::new(0), AtomicU8::new(GIVEN_UP));
        end.get_or_init(|| Box::new(Listed { index, number, stage, next: OnceLock::new() }))
    }

    /// Gives an index up, which could not be made. With one's turn.
    pub(super) fn give_up(&self, listed: &Listed, tell: impl FnOnce() -> u64) {
        self.change(tell, || {
            listed.stage.store(GIVEN_UP, SeqCst);
            self.look_again();
        });
    }

    /// Gives an index up that was dropped, whether it was open or only recorded. With one's turn.
    pub(crate) fn remove(&self, name: &str, tell: impl FnOnce() -> u64) {
        self.change(tell, || {
            let named = self.all().filter(|listed| listed.index.name() == name);
            named.for_each(|listed| listed.stage.store(GIVEN_UP, SeqCst));
            self.look_again();
        });
    }

    /// Finds out whether there may be any.
    fn look_again(&self) {
        let is_refused = matches!(self.writers(), Writers::Cluster | Writers::Nobody);
        let has_some = is_refused
            || self.all().any(|listed| listed.stage.load(Relaxed) != GIVEN_UP)
            || self.not_opened().is_some();
        self.has_some.store(has_some, SeqCst);
    }

    fn change(&self, tell: impl FnOnce() -> u64, change: impl FnOnce()) {
        // Whoever has come in before is to look again, whichever number it will be.
        self.changed_at.store(UNDER_WAY, SeqCst);
        change();
        self.changed_at.store(tell(), SeqCst);
    }

    /// Which change of the terms was the last of these indexes'.
    pub(crate) fn changed_at(&self) -> u64 {
        self.changed_at.load(SeqCst)
    }

    /// Whether there are none, as far as a writer need know.
    #[inline(always)]
    pub(crate) fn are_none(&self) -> bool {
        // Who sees it late has come in under earlier terms, and will be told so.
        !self.has_some.load(Relaxed)
    }

    /// Adds the entries of a row.
    pub(crate) fn list(&self, row: KeyRef<'_>, value: &[u8], entries: &mut Entries) -> Result<(), Error> {
        self.all().try_for_each(|listed| listed.list(row, value, entries))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Builder, Db, Error, IndexDef, Pod, TableDef};

    const ITEMS: TableDef<u64, Pod<u64>> = TableDef::hash("items");
    const BY_PARITY: IndexDef<u64, Pod<u64>, u64> = IndexDef::unique("by parity", |_, item| Some(item % 2));
    const BY_VALUE: IndexDef<u64, Pod<u64>, u64> = IndexDef::unique("by value", |_, item| Some(item));

    #[test]
    fn indexes_that_cannot_be_made_leave_nothing_that_writers_walk() -> Result<(), Error> {
        let db: Db = Builder::new().memory(16 << 20).build()?;
        let items = db.table(ITEMS)?;
        db.transact(|tx| (1..=3).try_for_each(|key| tx.put(items, key, &key)))?;
        let walked = || db.inner.catalog.get(items.number).map_or(0, |opened| opened.indexes.all().count());
        let attempt = || match db.index(items, BY_PARITY) {
            Err(Error::NotUnique { .. }) => Ok(()),
            other => other.map(|_| panic!("there are duplicates")),
        };
        attempt()?;
        let tables = db.tables()?;
        for _ in 0..1_000 {
            attempt()?;
        }
        assert_eq!((walked(), db.tables()?), (1, tables));
        // Nor does one that is dropped and made again.
        for _ in 0..50 {
            let by_value = db.index(items, BY_VALUE)?;
            db.transact(|tx| tx.put(items, 4, &9))?;
            assert_eq!(db.read(|tx| tx.get(by_value.keys(), 9))?, Some(4));
            db.transact(|tx| tx.remove(items, 4).map(drop))?;
            assert_eq!(db.read(|tx| tx.get(by_value.keys(), 9))?, None);
            db.drop_index("by value")?;
        }
        assert_eq!(walked(), 2);
        // It can be made as soon as there are no duplicates.
        db.transact(|tx| tx.remove(items, 3).map(drop))?;
        let by_parity = db.index(items, BY_PARITY)?;
        assert_eq!(db.read(|tx| tx.get(by_parity.keys(), 1))?, Some(1));
        let twice = db.transact(|tx| tx.put(items, 5, &5));
        assert!(matches!(twice, Err(Error::Duplicate { index: "by parity" })), "{twice:?}");
        assert_eq!(walked(), 2);
        Ok(())
    }
}
