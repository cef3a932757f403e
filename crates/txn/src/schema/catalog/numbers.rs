//! Numbers of tables, and how that of a dropped table is used again.
//!
//! A handle has its table's number, and what tells this *use* of the number from others. A table
//! has the same in place of its database, and each use of a handle compares both anyway. So a
//! handle of a dropped table does not refer to the table that has its number later.
//!
//! A number is free when the dropped table's rows have been taken out: then no operation is left
//! that was admitted before the drop, and none that was admitted later has reached the table. The
//! next table gets the number together with the empty storage, if that is of its kind. So what is
//! fixed for a number is its kind of storage. A log identifies tables by other numbers, which are
//! never used again.

use std::sync::atomic::{
    AtomicU8, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use drtm_htm::Engine;
use drtm_kv::Store;

use super::{Catalog, Count, DROPPED, Identity, MOST_TABLES, OPEN, Opened, VARIES};
use crate::{
    Error, db::name::Name, index::Indexes, memory::storage::Storage, model::sync::Mutex, schema::table::TableInfo,
};

/// How many former tables are remembered for errors.
const MOST_FORMER: usize = 1 << 12;

/// Returns a number that tells databases of this process apart, and uses of their tables' numbers.
pub(crate) fn next_use() -> u32 {
    static USES: AtomicU32 = AtomicU32::new(0);
    USES.fetch_add(1, Relaxed)
}

/// A table that is created.
pub(super) struct NewTable {
    pub(super) name: &'static str,
    pub(super) id: u16,
    pub(super) key_size: usize,
    pub(super) value_size: Option<usize>,
    pub(super) is_index: bool,
    pub(super) identity: Identity,
}

/// What a new table gets: a number of its own, or that of a dropped table with its storage.
pub(super) enum Place<E: Engine> {
    New(Storage<E>),
    Former(u16),
}

impl<E: Engine> Count<E> {
    /// Returns a place to the catalog, after the creation of its table has failed.
    pub(super) fn give_back(&mut self, place: Place<E>) {
        match place {
            Place::New(storage) => self.unused.push(storage),
            Place::Former(number) => self.spare.push(number),
        }
    }

    /// Returns the name that a table had in an earlier use of its number. `None` if there was no
    /// such use, or it is forgotten.
    pub(super) fn former(&self, number: u16, used_as: u32) -> Option<&'static str> {
        let is_it = |former: &&(u16, u32, &'static str)| (former.0, former.1) == (number, used_as);
        self.former.iter().find(is_it).map(|(.., name)| *name)
    }
}

impl<E: Engine> Catalog<E> {
    /// Returns a place for a table of this kind, with about this many rows.
    #[inline(never)]
    pub(super) fn place(
        &self,
        count: &mut Count<E>,
        store: &Store<E>,
        (is_ordered, fits): (bool, bool),
        rows: u64,
    ) -> Result<Place<E>, Error> {
        let is_full = count.tables == MOST_TABLES;
        let is_as = |number: &u16| self.get(*number).is_some_and(|table| table.storage.is_as(is_ordered, fits));
        if (rows == 0 || is_full)
            && let Some(at) = count.spare.iter().position(is_as)
        {
            return Ok(Place::Former(count.spare.swap_remove(at)));
        }
        if is_full {
            return Err(Error::TooManyTables { most: MOST_TABLES });
        }
        let unused = count.unused.iter().position(|unused| rows == 0 && unused.is_as(is_ordered, fits));
        Ok(Place::New(match unused {
            Some(at) => count.unused.swap_remove(at),
            None => Storage::create(store, is_ordered, fits, rows, count.for_peers)?,
        }))
    }

    /// Puts a new table into its place. Returns its number.
    #[inline(never)]
    pub(super) fn put(&self, count: &mut Count<E>, place: Place<E>, new: NewTable) -> u16 {
        match place {
            Place::Former(number) => {
                self.put_again(count, number, new);
                number
            }
            Place::New(storage) => {
                let number = count.tables;
                let NewTable { name, id, key_size, value_size, is_index, identity } = new;
                let name = Name::new(name);
                self.infos[number].get_or_init(|| TableInfo::new(name.clone(), id, key_size, is_index));
                self.tables[number].get_or_init(|| Opened {
                    number: number as u16,
                    database: self.database.into(),
                    used_as: self.database.into(),
                    name,
                    storage,
                    key_size: key_size.into(),
                    value_size: value_size.unwrap_or(VARIES).into(),
                    indexes: Indexes::default(),
                    whole_since: AtomicU64::new(0),
                    standing: AtomicU8::new(OPEN),
                    cleared_at: AtomicU64::new(0),
                    identity: Mutex::new(identity),
                });
                count.tables += 1;
                number as u16
            }
        }
    }

    /// Gives the number of a dropped table to a new one. Nothing uses the number.
    fn put_again(&self, count: &mut Count<E>, number: u16, new: NewTable) {
        let (Some(table), Some(info)) = (self.get(number), self.infos[usize::from(number)].get()) else { return };
        debug_assert!(table.stands(DROPPED) && table.is_dropped(), "the number {number} is in use");
        if count.former.len() == MOST_FORMER {
            count.former.pop_front();
        }
        count.former.push_back((number, table.used_as(), table.name.get()));
        let NewTable { name, id, key_size, value_size, is_index, identity } = new;
        info.become_another(name, id, key_size, is_index);
        table.key_size.store(key_size, Relaxed);
        table.value_size.store(value_size.unwrap_or(VARIES), Relaxed);
        *table.identity.lock() = identity;
        table.indexes.begin_with(Vec::new());
        table.whole_since.store(0, SeqCst);
        let used_as = next_use();
        table.used_as.store(used_as, SeqCst);
        table.standing.store(OPEN, SeqCst);
        // Last: from here on, handles find it.
        table.database.store(used_as, SeqCst);
    }
}
