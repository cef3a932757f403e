//! The entry of a key in a table, whether there is a row or not: looked up once, then read and
//! written in place.

use std::{borrow::Borrow, fmt, marker::PhantomData};

use super::{Exclusive, read::Row};
use crate::{
    AsKey, Codec, Config, DefaultConfig, Error, Key, Raw, Table,
    schema::{
        catalog::Opened,
        key::ByRef,
        table::{Any, Kind},
    },
    tx::projection::Projection,
};

/// The entry of a key in a table, like that of a map: returned by [`Tx::entry`](crate::Tx::entry).
/// The row is looked up once, whatever is then done.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, Pod, TableDef};
///
/// const WORDS: TableDef<String, Pod<u64>> = TableDef::hash("words");
/// let db = Db::new()?;
/// let words = db.table(WORDS)?;
/// let times = db.transact(|tx| {
///     for word in "to be or not to be".split(' ') {
///         tx.entry(words, word)?.and_modify(|times| *times += 1)?.or_insert(1)?;
///     }
///     tx.entry(words, "be")?.or_default()
/// })?;
/// assert_eq!(times, 2);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub enum Entry<'t, 'db, K: Key, C: Codec, S: Config = DefaultConfig, A: AsKey<K> = &'t K> {
    /// There is a row with the key.
    Occupied(OccupiedEntry<'t, 'db, K, C, S, A>),
    /// There is no row with the key.
    Vacant(VacantEntry<'t, 'db, K, C, S, A>),
}

/// The entry of a row that exists.
///
/// # Example
///
/// ```
/// use drtm::{Db, Entry, Error, Pod, TableDef};
///
/// const LEASES: TableDef<u64, Pod<u32>> = TableDef::hash("leases");
/// let db = Db::new()?;
/// let leases = db.table(LEASES)?;
/// let use_it = || {
///     db.transact(|tx| match tx.entry(leases, &1)? {
///         Entry::Vacant(entry) => entry.insert(&1).map(|()| "taken"),
///         Entry::Occupied(mut entry) => match entry.get()? {
///             0 => entry.remove().map(|_| "used up"),
///             _ => entry.update(|uses| *uses -= 1).map(|()| "used"),
///         },
///     })
/// };
/// assert_eq!([use_it()?, use_it()?, use_it()?, use_it()?], ["taken", "used", "used up", "taken"]);
/// # Ok::<(), Error>(())
/// ```
pub struct OccupiedEntry<'t, 'db, K: Key, C: Codec, S: Config = DefaultConfig, A: AsKey<K> = &'t K> {
    place: Place<'t, 'db, S, A>,
    /// The row as it was found. `None` once it has been changed.
    row: Option<Row>,
    /// The decoded value, once it has been read.
    value: Option<C::Value>,
    types: PhantomData<fn() -> K>,
}

impl<K: Key, C: Codec, S: Config, A: AsKey<K> + fmt::Debug> fmt::Debug for OccupiedEntry<'_, '_, K, C, S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OccupiedEntry").field("key", self.key()).field("row", &self.row).finish_non_exhaustive()
    }
}

/// The entry of a key that has no row.
///
/// # Example
///
/// See [`OccupiedEntry`].
#[derive(Debug)]
pub struct VacantEntry<'t, 'db, K: Key, C: Codec, S: Config = DefaultConfig, A: AsKey<K> = &'t K> {
    place: Place<'t, 'db, S, A>,
    row: Row,
    types: PhantomData<fn() -> (K, C)>,
}

/// The common part of both kinds of entries.
#[derive(Debug)]
struct Place<'t, 'db, S: Config, A> {
    tx: &'t mut Exclusive<'db, S>,
    opened: &'db Opened<S::Engine>,
    key: A,
}

impl<S: Config, A> Place<'_, '_, S, A> {
    fn find<K: Key>(&mut self) -> Result<Row, Error>
    where
        A: AsKey<K>,
    {
        let Self { tx, opened, key } = self;
        tx.with_key(ByRef(key), |tx, key| tx.row::<Raw, Any>(opened, key, &Projection::TO_READ))
    }

    fn write<K: Key, C: Codec>(&mut self, row: Row, value: &C::Given) -> Result<(), Error>
    where
        A: AsKey<K>,
    {
        let Self { tx, opened, key } = self;
        let value = tx.keep_value::<C>(opened, value)?;
        tx.with_key(ByRef(key), |tx, key| tx.put_row::<Any>(opened, key, row, value))
    }
}

impl<'db, S: Config> Exclusive<'db, S> {
    #[inline]
    pub(crate) fn entry<'t, K: Key, C: Codec, O: Kind, A: AsKey<K>>(
        &'t mut self,
        table: Table<K, C, O>,
        key: A,
    ) -> Result<Entry<'t, 'db, K, C, S, A>, Error> {
        let opened = self.opened(table)?;
        let mut place = Place { tx: self, opened, key };
        let row = place.find::<K>()?;
        Ok(match row.found {
            Some(_) => Entry::Occupied(OccupiedEntry { place, row: Some(row), value: None, types: PhantomData }),
            None => Entry::Vacant(VacantEntry { place, row, types: PhantomData }),
        })
    }
}

impl<K: Key, C: Codec, S: Config, A: AsKey<K>> Entry<'_, '_, K, C, S, A> {
    /// Returns the entry's key, as it was given.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef};
    ///
    /// const WORDS: TableDef<String, Pod<u64>> = TableDef::hash("words");
    /// let db = Db::new()?;
    /// let words = db.table(WORDS)?;
    /// db.transact(|tx| {
    ///     let entry = tx.entry(words, "be")?;
    ///     assert_eq!(*entry.key(), "be");
    ///     entry.put(&1)
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn key(&self) -> &A {
        match self {
            Self::Occupied(entry) => entry.key(),
            Self::Vacant(entry) => entry.key(),
        }
    }

    /// Sets the row's value, whether it exists or not.
    ///
    /// # Errors
    ///
    /// As for [`Tx::put`](crate::Tx::put).
    ///
    /// # Example
    ///
    /// See [`key`](Self::key).
    #[inline]
    pub fn put(self, value: &C::Given) -> Result<(), Error> {
        match self {
            Self::Occupied(entry) => entry.put(value),
            Self::Vacant(entry) => entry.insert(value),
        }
    }

    /// Changes the row's value, if it exists.
    ///
    /// # Errors
    ///
    /// As for [`Tx::put`](crate::Tx::put).
    ///
    /// # Example
    ///
    /// See [`Entry`].
    #[inline]
    pub fn and_modify(mut self, change: impl FnOnce(&mut C::Value)) -> Result<Self, Error>
    where
        C::Value: Borrow<C::Given>,
    {
        if let Self::Occupied(entry) = &mut self {
            entry.change(change)?;
        }
        Ok(self)
    }

    /// Inserts the row with this value, if it does not exist. Returns the row's value.
    ///
    /// # Errors
    ///
    /// As for [`Tx::put`](crate::Tx::put).
    ///
    /// # Example
    ///
    /// See [`Entry`].
    #[inline]
    pub fn or_insert(self, value: C::Value) -> Result<C::Value, Error>
    where
        C::Value: Borrow<C::Given>,
    {
        self.or_insert_with(|| value)
    }

    /// Inserts the row with the value that `make` returns, if it does not exist. Returns the row's
    /// value.
    ///
    /// # Errors
    ///
    /// As for [`Tx::put`](crate::Tx::put).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Serde, TableDef};
    ///
    /// const NAMES: TableDef<u64, Serde<String>> = TableDef::hash("names");
    /// let db = Db::new()?;
    /// let names = db.table(NAMES)?;
    /// let name = || db.transact(|tx| tx.entry(names, &7)?.or_insert_with(|| "seven".to_owned()));
    /// assert_eq!((name()?, name()?), ("seven".to_owned(), "seven".to_owned()));
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn or_insert_with(self, make: impl FnOnce() -> C::Value) -> Result<C::Value, Error>
    where
        C::Value: Borrow<C::Given>,
    {
        match self {
            Self::Occupied(entry) => entry.into_value(),
            Self::Vacant(entry) => {
                let value = make();
                entry.insert(value.borrow())?;
                Ok(value)
            }
        }
    }

    /// Inserts the row with its type's default value, if it does not exist. Returns the row's
    /// value.
    ///
    /// # Errors
    ///
    /// As for [`Tx::put`](crate::Tx::put).
    ///
    /// # Example
    ///
    /// See [`Entry`].
    #[inline]
    pub fn or_default(self) -> Result<C::Value, Error>
    where
        C::Value: Borrow<C::Given> + Default,
    {
        self.or_insert_with(C::Value::default)
    }
}

impl<K: Key, C: Codec, S: Config, A: AsKey<K>> OccupiedEntry<'_, '_, K, C, S, A> {
    /// Returns the entry's key, as it was given.
    ///
    /// # Example
    ///
    /// See [`Entry::key`].
    #[must_use]
    pub fn key(&self) -> &A {
        &self.place.key
    }

    /// Returns the row's value.
    ///
    /// # Errors
    ///
    /// As for [`Tx::get`](crate::Tx::get).
    ///
    /// # Example
    ///
    /// See [`OccupiedEntry`].
    #[inline]
    pub fn get(&mut self) -> Result<&C::Value, Error> {
        let value = self.value()?;
        Ok(self.value.insert(value))
    }

    /// Consumes the entry, and returns the row's value.
    ///
    /// # Errors
    ///
    /// As for [`Tx::get`](crate::Tx::get).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Entry, Error, Pod, TableDef};
    ///
    /// const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
    /// let db = Db::new()?;
    /// let counters = db.table(COUNTERS)?;
    /// db.transact(|tx| tx.put(counters, 1, &7))?;
    /// let (value, taken) = db.transact(|tx| {
    ///     let Entry::Occupied(entry) = tx.entry(counters, 1)? else { return Err(Error::aborted("no counter")) };
    ///     let value = entry.into_value()?;
    ///     let Entry::Occupied(entry) = tx.entry(counters, 1)? else { return Err(Error::aborted("no counter")) };
    ///     Ok((value, entry.remove()?))
    /// })?;
    /// assert_eq!((value, taken), (7, 7));
    /// assert!(!db.read(|tx| tx.contains(counters, 1))?);
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn into_value(mut self) -> Result<C::Value, Error> {
        self.value()
    }

    /// Sets the row's value.
    ///
    /// # Errors
    ///
    /// As for [`Tx::put`](crate::Tx::put).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Entry, Error, Pod, TableDef};
    ///
    /// const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
    /// let db = Db::new()?;
    /// let counters = db.table(COUNTERS)?;
    /// db.transact(|tx| tx.put(counters, 1, &7))?;
    /// db.transact(|tx| match tx.entry(counters, 1)? {
    ///     Entry::Occupied(entry) => entry.put(&8),
    ///     Entry::Vacant(entry) => entry.insert(&1),
    /// })?;
    /// assert_eq!(db.read(|tx| tx.get(counters, 1))?, Some(8));
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn put(mut self, value: &C::Given) -> Result<(), Error> {
        let row = self.row()?;
        self.place.write::<K, C>(row, value)
    }

    /// Changes the row's value. Returns what `change` returns.
    ///
    /// # Errors
    ///
    /// As for [`Tx::put`](crate::Tx::put).
    ///
    /// # Example
    ///
    /// See [`OccupiedEntry`].
    #[inline]
    pub fn update<R>(mut self, change: impl FnOnce(&mut C::Value) -> R) -> Result<R, Error>
    where
        C::Value: Borrow<C::Given>,
    {
        self.change(change)
    }

    /// Removes the row, and returns its value.
    ///
    /// # Errors
    ///
    /// As for [`Tx::remove`](crate::Tx::remove).
    ///
    /// # Example
    ///
    /// See [`OccupiedEntry`].
    #[inline]
    pub fn remove(mut self) -> Result<C::Value, Error> {
        let value = self.value()?;
        let Row { found: Some(found), record: Some(record) } = self.row()? else { return Ok(value) };
        let Place { tx, opened, key } = self.place;
        tx.with_key(key, |tx, key| tx.remove_found(opened, key, found, record))?;
        Ok(value)
    }

    /// Returns the row, and looks it up again if it was changed.
    fn row(&mut self) -> Result<Row, Error> {
        match self.row {
            Some(row) => Ok(row),
            None => Ok(*self.row.insert(self.place.find::<K>()?)),
        }
    }

    /// Returns the value, and decodes it if that was not done yet.
    fn value(&mut self) -> Result<C::Value, Error> {
        if let Some(value) = self.value.take() {
            return Ok(value);
        }
        let row = self.row()?;
        let Place { tx, opened, .. } = &mut self.place;
        match row.found {
            Some(found) => tx.decode::<C>(opened, found),
            None => Err(Error::Missing { table: opened.name.get() }),
        }
    }

    fn change<R>(&mut self, change: impl FnOnce(&mut C::Value) -> R) -> Result<R, Error>
    where
        C::Value: Borrow<C::Given>,
    {
        let (mut value, row) = (self.value()?, self.row()?);
        let result = change(&mut value);
        self.place.write::<K, C>(row, (*self.value.insert(value)).borrow())?;
        self.row = None;
        Ok(result)
    }
}

impl<K: Key, C: Codec, S: Config, A: AsKey<K>> VacantEntry<'_, '_, K, C, S, A> {
    /// Returns the entry's key, as it was given.
    ///
    /// # Example
    ///
    /// See [`Entry::key`].
    #[must_use]
    pub fn key(&self) -> &A {
        &self.place.key
    }

    /// Inserts the row.
    ///
    /// # Errors
    ///
    /// As for [`Tx::put`](crate::Tx::put).
    ///
    /// # Example
    ///
    /// See [`OccupiedEntry`].
    #[inline]
    pub fn insert(mut self, value: &C::Given) -> Result<(), Error> {
        self.place.write::<K, C>(self.row, value)
    }
}
