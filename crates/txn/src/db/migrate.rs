//! Converting the rows of a table to other types, in steps that can be interrupted.
//!
//! The rows move to a new table beside the old one, a few in each transaction: it inserts them
//! there and removes them here. So what is left in the old table is what is left to do, and a crash
//! leaves each row in exactly one of both. Then the old table is dropped, and the new one gets its
//! name. Every step finds out from the catalog alone whether it is still to be done:
//!
//! ```text
//! old    beside   renamed    next step
//! there  -        -          create the table beside it
//! there  there    -          move rows; take over the names of indexes; drop the old table
//! -      there    -          rename it
//! -      -        there      none
//! ```
//!
//! As long as there is a table beside it, [`Db::table`] opens no table of that name, by any
//! definition: it would lack rows.

use std::borrow::Borrow;

use super::Db;
use crate::{
    Codec, Config, Error, Key, Table, TableDef,
    db::{inner::Inner, lifecycle::Admission},
    durability::format::CatalogChange,
    memory::storage::OwnedKey,
    mutation::Mutation,
    schema::{
        catalog::{Opened, beside},
        table::Kind,
    },
    trace::event,
};

/// The number of rows that move in one transaction.
const BATCH: usize = 256;

impl<S: Config> Db<S> {
    /// Converts the rows of a table whose types have changed, and opens it with its new definition.
    /// If that was done before, this only opens the table, and if there is none, it creates it. So
    /// a program calls this in place of [`table`](Self::table) when it starts.
    ///
    /// `old` is the definition that the table was written with, and `new` usually has the same
    /// name. `convert` returns the new key and value of a row. It may be called several times for
    /// the same row.
    ///
    /// The rows move in small transactions. If this fails or the process ends, at any step, nothing
    /// is lost, and the next call continues. Until it has finished, [`table`](Self::table) refuses
    /// the new name with [`Error::Unmigrated`].
    ///
    /// Names of indexes that are recorded in the log move with the rows. Open them as usual
    /// afterwards ([`index`](Self::index)), with definitions for the new types. Handles of the old
    /// table and its indexes become invalid.
    ///
    /// No other thread may use the table meanwhile: a row that it writes may be lost.
    ///
    /// # Errors
    ///
    /// The error of `convert`. [`Error::Exists`] if two rows get the same key.
    /// [`Error::OtherTypes`] if the table was written with neither definition.
    /// [`Error::NameTaken`] if there is a table of each of two names. [`Error::Nested`] within the
    /// closure of a transaction. [`Error::OfCluster`]. Otherwise as for
    /// [`transact`](Self::transact) and [`table`](Self::table).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, IndexDef, Multi, Postcard, TableDef};
    /// use serde::{Deserialize, Serialize};
    ///
    /// /// The types of the program's first release.
    /// mod v1 {
    ///     #[derive(serde::Serialize, serde::Deserialize)]
    ///     pub struct User {
    ///         pub name: String,
    ///     }
    /// }
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct User {
    ///     name: String,
    ///     age: Option<u32>,
    /// }
    ///
    /// const OLD: TableDef<u64, Postcard<v1::User>> = TableDef::hash("users");
    /// const USERS: TableDef<u64, Postcard<User>> = TableDef::hash("users");
    /// const BY_NAME: IndexDef<u64, Postcard<User>, String, Multi> =
    ///     IndexDef::multi("users by name", |_, user| Some(user.name));
    ///
    /// let db = Db::new()?;
    /// let old = db.table(OLD)?;
    /// db.transact(|tx| tx.put(old, 7, &v1::User { name: "Ada".to_owned() }))?;
    ///
    /// let users = db.migrate(OLD, USERS, |key, old| Ok((key, User { name: old.name, age: None })))?;
    /// let by_name = db.index(users, BY_NAME)?;
    /// assert_eq!(db.read(|tx| tx.range(by_name, "Ada"..="Ada")?.count())?, 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn migrate<K: Key, C: Codec, O: Kind, L: Key, D: Codec, P: Kind>(
        &self,
        old: TableDef<K, C, O>,
        new: TableDef<L, D, P>,
        mut convert: impl FnMut(K, C::Value) -> Result<(L, D::Value), Error>,
    ) -> Result<Table<L, D, P>, Error>
    where
        D::Value: Borrow<D::Given>,
    {
        if self.is_in_closure() {
            return Err(Error::Nested);
        }
        let Inner { catalog, lifecycle, .. } = &*self.inner;
        lifecycle.admit(self.inner.engine(), false)?;
        let name = beside(new.name());
        let has_old = catalog.named(old.name()).is_some();
        match catalog.named(new.name()) {
            Some(_) if has_old && old.name() != new.name() => {
                return Err(Error::NameTaken { name: new.name().to_owned() });
            }
            Some(table) if catalog.named(&name).is_none() && table.fits(new) => return self.table(new),
            _ => {}
        }
        if has_old {
            let from = self.open_table(old)?;
            let opened = catalog.opened(from.database, from.number, || Admission::LATEST)?;
            opened.indexes.check_own(&opened.name)?;
            let to = self.open_table(new.named(&name))?;
            self.move_rows(opened, (from, to), &mut convert)?;
            self.move_indexes((opened, catalog.opened(to.database, to.number, || Admission::LATEST)?))?;
            self.drop_table(old.name())?;
            event!(info, table = new.name(), "a table has been migrated");
        }
        if catalog.named(&name).is_some() {
            self.rename_table(&name, new.name())?;
        }
        self.table(new)
    }

    /// Moves all rows from one table to another.
    fn move_rows<K: Key, C: Codec, O: Kind, L: Key, D: Codec, P: Kind>(
        &self,
        opened: &Opened<S::Engine>,
        (from, to): (Table<K, C, O>, Table<L, D, P>),
        convert: &mut impl FnMut(K, C::Value) -> Result<(L, D::Value), Error>,
    ) -> Result<(), Error>
    where
        D::Value: Borrow<D::Given>,
    {
        // A row that leaves has no entries in an index that was not opened.
        let _without = opened.indexes.without_unopened();
        loop {
            let (mut tour, mut keys, mut count) = (opened.storage.tour()?, Vec::<OwnedKey>::new(), 0);
            loop {
                let has_more = opened.storage.visit_some(&mut tour, |key| keys.push(key.into()))?;
                if keys.len() >= BATCH || !has_more {
                    count += keys.len();
                    for some in keys.chunks(BATCH) {
                        self.move_some(opened, some, (from, to), convert)?;
                    }
                    keys.clear();
                }
                if !has_more {
                    break;
                }
            }
            // A tour of a table that changes can miss a row. It visits removed ones, too, as long
            // as a snapshot needs them.
            if count == 0 || self.read(|tx| Ok(tx.len(from)? == 0))? {
                return Ok(());
            }
        }
    }

    /// Moves a few rows, in one transaction.
    fn move_some<K: Key, C: Codec, O: Kind, L: Key, D: Codec, P: Kind>(
        &self,
        opened: &Opened<S::Engine>,
        keys: &[OwnedKey],
        (from, to): (Table<K, C, O>, Table<L, D, P>),
        convert: &mut impl FnMut(K, C::Value) -> Result<(L, D::Value), Error>,
    ) -> Result<(), Error>
    where
        D::Value: Borrow<D::Given>,
    {
        let leaves_rows = self.inner.log.as_ref().is_some_and(|log| log.has(Mutation::MigratedRowsLeft));
        let mut moved = Vec::new();
        self.transact(|tx| {
            moved.clear();
            for key in keys {
                let decode = || key.as_ref().decode().ok_or_else(|| Error::Key { table: opened.name.get() });
                let key: K = decode()?;
                let Some(value) = tx.get(from, &key)? else { continue };
                let (as_new, value) = convert(key.clone(), value)?;
                tx.insert(to, &as_new, value.borrow())?;
                if leaves_rows {
                    moved.push(key);
                } else {
                    tx.remove(from, &key)?;
                }
            }
            Ok(())
        })?;
        if leaves_rows {
            self.transact(|tx| moved.iter().try_for_each(|key| tx.remove(from, key).map(drop)))?;
        }
        Ok(())
    }

    /// Records the names of a table's indexes for another table.
    fn move_indexes(&self, (from, to): (&Opened<S::Engine>, &Opened<S::Engine>)) -> Result<(), Error> {
        let db = &*self.inner;
        let id = db.catalog.id(to.number).unwrap_or_default();
        let _turn = to.indexes.turn();
        for name in from.indexes.logged() {
            let announce = || db.announce(&CatalogChange::Index(id, name.clone()));
            to.indexes.expect(&name, announce, || db.lifecycle.advance_count(db.engine()))?;
        }
        Ok(())
    }
}
