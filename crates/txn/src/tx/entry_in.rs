//! A row's place in a table, by the operations of [`Transaction`].

use std::{borrow::Borrow, fmt};

use crate::{
    AsKey, Codec, Error, Hash, Key, Table, Transaction,
    schema::{key::ByRef, table::Kind},
};

/// A row's place in a table, of any [`Transaction`]: [`Transaction::entry`] returns it. It is what
/// [`Entry`](crate::Entry) is in a [`Tx`](crate::Tx).
///
/// # Example
///
/// ```
/// use drtm::{Db, EntryIn, Error, OneNode, Pod, Table, TableDef, Transaction, ready};
///
/// type Leases = Table<u64, Pod<u32>>;
/// const LEASES: TableDef<u64, Pod<u32>> = TableDef::hash("leases");
///
/// async fn use_it(tx: &mut impl Transaction, leases: Leases) -> Result<&'static str, Error> {
///     Ok(match tx.entry(leases, 1).await? {
///         EntryIn::Vacant(entry) => entry.insert(&1).await.map(|()| "taken")?,
///         EntryIn::Occupied(entry) => match *entry.get() {
///             0 => entry.remove().await.map(|_| "used up")?,
///             _ => entry.update(|uses| *uses -= 1).await.map(|()| "used")?,
///         },
///     })
/// }
///
/// let db = Db::new()?;
/// let leases = db.table(LEASES)?;
/// for expected in ["taken", "used", "used up", "taken"] {
///     assert_eq!(db.transact(|tx| ready(use_it(&mut OneNode(tx), leases)))?, expected);
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub enum EntryIn<'t, T, K, C: Codec, O = Hash, A = K> {
    /// There is a row.
    Occupied(OccupiedIn<'t, T, K, C, O, A>),
    /// There is no row.
    Vacant(VacantIn<'t, T, K, C, O, A>),
}

/// The place of a row that exists.
///
/// # Example
///
/// See [`EntryIn`].
pub struct OccupiedIn<'t, T, K, C: Codec, O = Hash, A = K> {
    place: Place<'t, T, K, C, O, A>,
    value: C::Value,
}

/// The place of a row that does not exist.
///
/// # Example
///
/// See [`EntryIn`].
pub struct VacantIn<'t, T, K, C, O = Hash, A = K> {
    place: Place<'t, T, K, C, O, A>,
}

struct Place<'t, T, K, C, O, A> {
    tx: &'t mut T,
    table: Table<K, C, O>,
    key: A,
}

impl<'t, T: Transaction, K: Key, C: Codec, O: Kind, A: AsKey<K>> EntryIn<'t, T, K, C, O, A> {
    pub(super) async fn find(tx: &'t mut T, table: Table<K, C, O>, key: A) -> Result<Self, Error> {
        let value = tx.get(table, ByRef(&key)).await?;
        let place = Place { tx, table, key };
        Ok(match value {
            Some(value) => Self::Occupied(OccupiedIn { place, value }),
            None => Self::Vacant(VacantIn { place }),
        })
    }

    /// Sets the row's value, whether the row exists or not.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::put`].
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, OneNode, Pod, Table, TableDef, Transaction, ready};
    ///
    /// type Words = Table<String, Pod<u64>>;
    /// const WORDS: TableDef<String, Pod<u64>> = TableDef::hash("words");
    ///
    /// async fn count(tx: &mut impl Transaction, words: Words) -> Result<u64, Error> {
    ///     for word in "to be or not to be".split(' ') {
    ///         tx.entry(words, word).await?.and_modify(|times| *times += 1).await?.or_insert(1).await?;
    ///     }
    ///     tx.entry(words, "or").await?.put(&9).await?;
    ///     Ok(tx.entry(words, "or").await?.or_default().await? + tx.entry(words, "be").await?.or_insert_with(|| 5).await?)
    /// }
    ///
    /// let db = Db::new()?;
    /// let words = db.table(WORDS)?;
    /// assert_eq!(db.transact(|tx| ready(count(&mut OneNode(tx), words)))?, 9 + 2);
    /// # Ok::<(), Error>(())
    /// ```
    pub async fn put(self, value: &C::Given) -> Result<(), Error> {
        match self {
            Self::Occupied(entry) => entry.put(value).await,
            Self::Vacant(entry) => entry.insert(value).await,
        }
    }

    /// Changes the row's value, if the row exists.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::put`].
    ///
    /// # Example
    ///
    /// See [`put`](Self::put).
    pub async fn and_modify(mut self, change: impl FnOnce(&mut C::Value)) -> Result<Self, Error>
    where
        C::Value: Borrow<C::Given>,
    {
        if let Self::Occupied(entry) = &mut self {
            entry.change(change).await?;
        }
        Ok(self)
    }

    /// Inserts the row with this value, if it does not exist. Returns the value that it has then.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::put`].
    ///
    /// # Example
    ///
    /// See [`put`](Self::put).
    pub async fn or_insert(self, value: C::Value) -> Result<C::Value, Error>
    where
        C::Value: Borrow<C::Given>,
    {
        self.or_insert_with(|| value).await
    }

    /// Inserts the row with the value that `make` returns, if it does not exist. Returns the value
    /// that it has then.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::put`].
    ///
    /// # Example
    ///
    /// See [`put`](Self::put).
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

    /// Inserts the row with its type's default value, if it does not exist. Returns the value that
    /// it has then.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::put`].
    ///
    /// # Example
    ///
    /// See [`put`](Self::put).
    pub async fn or_default(self) -> Result<C::Value, Error>
    where
        C::Value: Borrow<C::Given> + Default,
    {
        self.or_insert_with(C::Value::default).await
    }
}

impl<T: Transaction, K: Key, C: Codec, O: Kind, A: AsKey<K>> OccupiedIn<'_, T, K, C, O, A> {
    /// Returns the row's value.
    ///
    /// # Example
    ///
    /// See [`EntryIn`].
    #[must_use]
    pub fn get(&self) -> &C::Value {
        &self.value
    }

    /// Consumes the entry, and returns the row's value.
    ///
    /// # Example
    ///
    /// See [`EntryIn`].
    #[must_use]
    pub fn into_value(self) -> C::Value {
        self.value
    }

    /// Sets the row's value.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::put`].
    ///
    /// # Example
    ///
    /// See [`EntryIn::put`].
    pub async fn put(mut self, value: &C::Given) -> Result<(), Error> {
        self.place.put(value).await
    }

    /// Changes the row's value. Returns what `change` returns.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::put`].
    ///
    /// # Example
    ///
    /// See [`EntryIn`].
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
    /// As for [`Transaction::remove`].
    ///
    /// # Example
    ///
    /// See [`EntryIn`].
    pub async fn remove(self) -> Result<C::Value, Error> {
        let Self { place: Place { tx, table, key }, value } = self;
        tx.remove(table, ByRef(&key)).await?;
        Ok(value)
    }

    async fn change<X>(&mut self, change: impl FnOnce(&mut C::Value) -> X) -> Result<X, Error>
    where
        C::Value: Borrow<C::Given>,
    {
        let result = change(&mut self.value);
        self.place.put((&self.value).borrow()).await?;
        Ok(result)
    }
}

impl<T: Transaction, K: Key, C: Codec, O: Kind, A: AsKey<K>> VacantIn<'_, T, K, C, O, A> {
    /// Inserts the row.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::put`].
    ///
    /// # Example
    ///
    /// See [`EntryIn`].
    pub async fn insert(mut self, value: &C::Given) -> Result<(), Error> {
        self.place.put(value).await
    }
}

impl<T: Transaction, K: Key, C: Codec, O: Kind, A: AsKey<K>> Place<'_, T, K, C, O, A> {
    async fn put(&mut self, value: &C::Given) -> Result<(), Error> {
        self.tx.put(self.table, ByRef(&self.key), value).await
    }
}

impl<T, K, C: Codec, O, A> fmt::Debug for OccupiedIn<'_, T, K, C, O, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OccupiedIn").field("table", &self.place.table).finish_non_exhaustive()
    }
}

impl<T, K, C, O, A> fmt::Debug for VacantIn<'_, T, K, C, O, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VacantIn").field("table", &self.place.table).finish_non_exhaustive()
    }
}
