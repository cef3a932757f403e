//! The indexes of a table, as seen by its writers.
//!
//! They are a list that only grows at its end, so that a writer iterates over it without a lock.
//! One flag tells a writer whether there are any. An index that could not be created, or was
//! dropped, stays in the list and is skipped. An index of the same definition reuses its place
//! later, so the list is never longer than the number of definitions that tables of this number
//! have had.
//!
//! A thread that adds an index, or gives one up, then advances the database's count of changes (see
//! `lifecycle`). Every writer that commits after that has seen the new list.

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
use crate::{Codec, Error, Key, db::name::Name, memory::storage::KeyRef};

/// The indexes of a table.
#[derive(Debug, Default)]
pub(crate) struct Indexes {
    /// Whether there may be any index.
    has_some: AtomicBool,
    first: OnceLock<Box<Listed>>,
    /// The database's count of changes after the last change of these indexes.
    changed_at: AtomicU64,
    /// Held while an index is added or dropped.
    turn: Mutex<()>,
    /// The indexes that are recorded in the log.
    names: Mutex<Names>,
    /// Whether one of these has not been opened yet.
    has_unopened: AtomicBool,
    /// Which transactions may write the table, as a number of [`Writers`].
    writers: AtomicU8,
}

/// Which transactions may write a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Writers {
    /// Transactions of its database.
    Own,
    /// Transactions of its database and of a cluster: the table has no indexes.
    Shared,
    /// Only transactions of a cluster: its index entries may be on other nodes.
    Cluster,
    /// None: every node of a cluster has the same rows.
    Nothing,
}

impl Writers {
    const ALL: [Self; 4] = [Self::Own, Self::Shared, Self::Cluster, Self::Nothing];
}

/// The names of indexes that are recorded in a log.
#[derive(Debug, Default)]
struct Names {
    opened: Vec<String>,
    unopened: Vec<String>,
}

/// A change that has not finished: it is later than all that have.
const UNDER_WAY: u64 = u64::MAX;

/// An index in the list.
#[derive(Debug)]
pub(crate) struct Listed {
    index: Box<dyn Lister>,
    /// The number of the index's own table. It changes only while the index is given up.
    number: AtomicU16,
    stage: AtomicU8,
    next: OnceLock<Box<Self>>,
}

/// Existing rows are getting their entries one by one. Writers maintain the entries that exist.
const PARTIAL: u8 = 0;
/// Every row has its entries.
const WHOLE: u8 = 1;
/// The index could not be created, or was dropped.
const GIVEN_UP: u8 = 2;

/// Lists a row's entries in an index. It has no type parameters; the table has them.
pub(crate) trait Lister: Any + Send + Sync {
    /// Returns the index's name.
    fn name(&self) -> &'static str;

    /// Returns whether another lister, of a definition with the same types, lists the same entries.
    fn is_as(&self, other: &dyn Any) -> bool;

    /// Adds the entries of a row, whose key has the table's type. `own` is the number of the
    /// index's table, and whether the index is partial: then the entries may be missing.
    fn list(&self, row: KeyRef<'_>, value: &[u8], own: (u16, bool), entries: &mut Entries) -> Result<(), Error>;
}

impl fmt::Debug for dyn Lister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lister").field(&self.name()).finish()
    }
}

/// Returns the lister of an index's entries.
pub(crate) fn lister<K: Key, C: Codec, I: Key, U: Uniqueness>(def: IndexDef<K, C, I, U>, table: Name) -> impl Lister {
    Opened { def, table }
}

/// An index that is open.
pub(super) struct Opened<K, C: Codec, I, U> {
    pub(super) def: IndexDef<K, C, I, U>,
    /// The name of the indexed table.
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
    /// Adds the entries of a row, unless the index is given up.
    pub(crate) fn list(&self, row: KeyRef<'_>, value: &[u8], entries: &mut Entries) -> Result<(), Error> {
        match self.stage.load(Acquire) {
            GIVEN_UP => Ok(()),
            stage => self.index.list(row, value, (self.number.load(Relaxed), stage == PARTIAL), entries),
        }
    }

    /// Marks the index as whole: every row has its entries.
    pub(super) fn mark_whole(&self) {
        self.stage.store(WHOLE, Release);
    }
}

/// Restores, when it is dropped, the check that recorded indexes are open.
struct Without<'i>(&'i Indexes);

impl Drop for Without<'_> {
    fn drop(&mut self) {
        self.0.has_unopened.store(!self.0.names.lock().unopened.is_empty(), SeqCst);
    }
}

impl Indexes {
    fn all(&self) -> impl Iterator<Item = &Listed> {
        std::iter::successors(self.first.get(), |listed| listed.next.get()).map(|listed| &**listed)
    }

    /// Makes them those of a new table: indexes that a log has recorded, none of them open.
    pub(crate) fn begin_with(&self, recorded: Vec<String>) {
        self.all().for_each(|listed| listed.stage.store(GIVEN_UP, SeqCst));
        self.writers.store(Writers::Own as u8, SeqCst);
        self.has_unopened.store(!recorded.is_empty(), SeqCst);
        *self.names.lock() = Names { opened: Vec::new(), unopened: recorded };
        // With unopened indexes, a writer takes the slow path.
        self.look_again();
    }

    /// Records an open index, and calls `announce` unless the log has it already.
    ///
    /// # Errors
    ///
    /// The errors of `announce`; the index is then not recorded.
    pub(super) fn record(&self, name: &str, announce: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let mut names = self.names.lock();
        match names.unopened.iter().position(|one| one == name) {
            Some(at) => {
                let name = names.unopened.remove(at);
                names.opened.push(name);
            }
            // The lock is held during the announcement, so that `logged` includes it from then on.
            None => {
                announce()?;
                names.opened.push(name.to_owned());
            }
        }
        self.has_unopened.store(!names.unopened.is_empty(), Release);
        Ok(())
    }

    /// Removes the name of an index, and calls `announce` if the log has it.
    ///
    /// # Errors
    ///
    /// The errors of `announce`; the name then stays.
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

    /// Returns the name of an index that must be opened before the table is written. `None` if
    /// there is none.
    pub(crate) fn not_opened(&self) -> Option<String> {
        if self.has_unopened.load(Acquire) { self.names.lock().unopened.first().cloned() } else { None }
    }

    /// Records an index that is not open, and calls `announce` unless the log has it already.
    /// `publish` notifies writers.
    ///
    /// # Errors
    ///
    /// The errors of `announce`; the index is then not recorded.
    pub(crate) fn expect(
        &self,
        name: &str,
        announce: impl FnOnce() -> Result<(), Error>,
        publish: impl FnOnce() -> u64,
    ) -> Result<(), Error> {
        let mut names = self.names.lock();
        if names.opened.iter().chain(&names.unopened).any(|one| one == name) {
            return Ok(());
        }
        announce()?;
        names.unopened.push(name.to_owned());
        drop(names);
        self.change(publish, || {
            self.has_unopened.store(true, SeqCst);
            self.has_some.store(true, SeqCst);
        });
        Ok(())
    }

    /// Lets the table be written although recorded indexes are not open, until the returned value
    /// is dropped.
    pub(crate) fn without_unopened(&self) -> impl Drop {
        self.has_unopened.store(false, SeqCst);
        Without(self)
    }

    /// Sets which transactions may write the table from now on. `publish` notifies running ones.
    pub(crate) fn set_writers(&self, writers: Writers, publish: impl FnOnce() -> u64) {
        self.change(publish, || {
            self.writers.store(writers as u8, SeqCst);
            // It may send writers to the slow path.
            self.look_again();
        });
    }

    /// Returns which transactions may write the table.
    pub(crate) fn writers(&self) -> Writers {
        let writers = self.writers.load(Acquire);
        Writers::ALL.into_iter().find(|one| *one as u8 == writers).unwrap_or(Writers::Own)
    }

    /// Refuses a writer that is a transaction of the database alone.
    pub(crate) fn check_writer(&self, table: &Name) -> Result<(), Error> {
        match self.writers() {
            Writers::Own | Writers::Shared => Ok(()),
            Writers::Cluster => Err(Error::OfCluster { table: table.get() }),
            Writers::Nothing => Err(Error::Replicated { table: table.get() }),
        }
    }

    /// Refuses to change the schema of a cluster's table.
    pub(crate) fn check_own(&self, table: &Name) -> Result<(), Error> {
        if self.writers() == Writers::Own { Ok(()) } else { Err(Error::OfCluster { table: table.get() }) }
    }

    /// Refuses to change a table that has an index which is recorded and was not opened.
    pub(crate) fn check_opened(&self, table: &Name) -> Result<(), Error> {
        match self.not_opened() {
            Some(index) => Err(Error::IndexNotOpened { table: table.get(), index }),
            None => Ok(()),
        }
    }

    /// Returns whether there is a whole index of this name.
    pub(super) fn have(&self, name: &str) -> bool {
        self.all().any(|listed| listed.index.name() == name && listed.stage.load(Acquire) == WHOLE)
    }

    /// Returns whether there is an index of this name, open or recorded.
    pub(crate) fn know(&self, name: &str) -> bool {
        self.have(name) || self.logged().iter().any(|one| one == name)
    }

    /// Locks the indexes, while one is added or dropped.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Adds an index without entries, whose own table has this number. `publish` notifies writers
    /// and returns the change's count. The caller holds the [turn](Self::turn).
    pub(super) fn add(&self, index: Box<dyn Lister>, number: u16, publish: impl FnOnce() -> u64) -> &Listed {
        let is_left = |listed: &&Listed| listed.stage.load(Relaxed) == GIVEN_UP && listed.index.is_as(&*index);
        let left = self.all().find(is_left);
        let listed = left.unwrap_or_else(|| self.append(index));
        self.change(publish, || {
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

    /// Gives up an index that could not be created. The caller holds the [turn](Self::turn).
    pub(super) fn give_up(&self, listed: &Listed, publish: impl FnOnce() -> u64) {
        self.change(publish, || {
            listed.stage.store(GIVEN_UP, SeqCst);
            self.look_again();
        });
    }

    /// Gives up an index that was dropped, whether it was open or only recorded. The caller holds
    /// the [turn](Self::turn).
    pub(crate) fn remove(&self, name: &str, publish: impl FnOnce() -> u64) {
        self.change(publish, || {
            let named = self.all().filter(|listed| listed.index.name() == name);
            named.for_each(|listed| listed.stage.store(GIVEN_UP, SeqCst));
            self.look_again();
        });
    }

    /// Updates the flag that says whether there may be any index.
    fn look_again(&self) {
        let is_refused = matches!(self.writers(), Writers::Cluster | Writers::Nothing);
        let has_some = is_refused
            || self.all().any(|listed| listed.stage.load(Relaxed) != GIVEN_UP)
            || self.not_opened().is_some();
        self.has_some.store(has_some, SeqCst);
    }

    fn change(&self, publish: impl FnOnce() -> u64, change: impl FnOnce()) {
        // A transaction admitted before must look again, whatever the change's count will be.
        self.changed_at.store(UNDER_WAY, SeqCst);
        change();
        self.changed_at.store(publish(), SeqCst);
    }

    /// Returns the database's count of changes after the last change of these indexes.
    pub(crate) fn changed_at(&self) -> u64 {
        self.changed_at.load(SeqCst)
    }

    /// Returns whether a writer may assume that there are no indexes.
    #[inline(always)]
    pub(crate) fn are_none(&self) -> bool {
        // A writer that sees the flag late was admitted under an earlier count, and fails at its
        // commit.
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
        // Dropping and creating it again does not lengthen the list either.
        for _ in 0..50 {
            let by_value = db.index(items, BY_VALUE)?;
            db.transact(|tx| tx.put(items, 4, &9))?;
            assert_eq!(db.read(|tx| tx.get(by_value.keys(), 9))?, Some(4));
            db.transact(|tx| tx.remove(items, 4).map(drop))?;
            assert_eq!(db.read(|tx| tx.get(by_value.keys(), 9))?, None);
            db.drop_index("by value")?;
        }
        assert_eq!(walked(), 2);
        // It can be created once there are no duplicates.
        db.transact(|tx| tx.remove(items, 3).map(drop))?;
        let by_parity = db.index(items, BY_PARITY)?;
        assert_eq!(db.read(|tx| tx.get(by_parity.keys(), 1))?, Some(1));
        let twice = db.transact(|tx| tx.put(items, 5, &5));
        assert!(matches!(twice, Err(Error::Duplicate { index: "by parity" })), "{twice:?}");
        assert_eq!(walked(), 2);
        Ok(())
    }
}
