//! Writes, by the one that has the transaction for itself; and its end.

use std::borrow::Borrow;

use super::{Entry, Mode, Range, Savepoint, Tx};
use crate::{
    AsKey, Codec, CommitToken, Config, Durability, Error, Key, KeyRange, Sorted, Stored, Table, schema::table::Kind,
};

impl<'db, S: Config> Tx<'db, S> {
    /// Sets a row's value, whether the row exists or not.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`]; or when the key or the value is too long, the value cannot be encoded,
    /// or memory has run out.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef};
    ///
    /// const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
    /// let db = Db::new()?;
    /// let counters = db.table(COUNTERS)?;
    /// db.transact(|tx| {
    ///     tx.put(counters, &1, &1)?;
    ///     tx.put(counters, &1, &2)
    /// })?;
    /// assert_eq!(db.transact(|tx| tx.get(counters, &1))?, Some(2));
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn put<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
        value: &C::Given,
    ) -> Result<(), Error> {
        self.exclusive().place(table, key, value, true)
    }

    /// Inserts a row that does not exist yet.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] if it exists; otherwise as for [`put`](Self::put).
    ///
    /// # Example
    ///
    /// See [`Error`].
    #[inline]
    pub fn insert<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
        value: &C::Given,
    ) -> Result<(), Error> {
        self.exclusive().place(table, key, value, false)
    }

    /// Changes the value of an existing row. Returns what `change` returns, or `None` if there is
    /// no such row.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef};
    ///
    /// const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
    /// let db = Db::new()?;
    /// let counters = db.table(COUNTERS)?;
    /// db.transact(|tx| tx.put(counters, &1, &10))?;
    /// let was = db.transact(|tx| tx.update(counters, &1, |count| std::mem::replace(count, 11)))?;
    /// assert_eq!(was, Some(10));
    /// assert_eq!(db.transact(|tx| tx.update(counters, &2, |count| *count += 1))?, None);
    /// # Ok::<(), Error>(())
    /// ```
    #[inline(always)]
    pub fn update<R: Stored, X>(
        &mut self,
        rows: R,
        key: impl AsKey<R::Key>,
        change: impl FnOnce(&mut R::Row) -> X,
    ) -> Result<Option<X>, Error>
    where
        R::Row: Borrow<R::Given>,
    {
        self.exclusive().update(rows, key, change)
    }

    /// Removes a row, and returns its value. Returns `None` if there is no such row.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put). [`Error::Codec`] if the value cannot be decoded. The row is then
    /// still there; [`put`](Self::put) replaces it, and [`clear`](Self::clear) removes all rows.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef};
    ///
    /// const TASKS: TableDef<u64, Pod<u64>> = TableDef::hash("tasks");
    /// let db = Db::new()?;
    /// let tasks = db.table(TASKS)?;
    /// db.transact(|tx| tx.put(tasks, &1, &10))?;
    /// assert_eq!(db.transact(|tx| tx.remove(tasks, &1))?, Some(10));
    /// assert_eq!(db.transact(|tx| tx.remove(tasks, &1))?, None);
    /// # Ok::<(), Error>(())
    /// ```
    #[doc(alias = "take")]
    #[inline]
    pub fn remove<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<Option<C::Value>, Error> {
        self.exclusive().remove(table, key)
    }

    /// Inserts several rows that do not exist yet. In an ordered table with keys that pack into
    /// eight bytes, ascending neighbours are inserted together: an order's lines, say, or events.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] if one of them exists; the rows before it are then inserted. Otherwise as
    /// for [`put`](Self::put), and some of the rows before may be inserted. To continue without any
    /// of them, return to a [savepoint](Self::savepoint).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Ordered, Pod, TableDef};
    ///
    /// const LINES: TableDef<(u32, u8), Pod<u64>, Ordered> = TableDef::ordered("lines");
    /// let db = Db::new()?;
    /// let lines = db.table(LINES)?;
    /// let order = [((7, 1), 100), ((7, 2), 250), ((7, 3), 80)];
    /// db.transact(|tx| tx.insert_many(lines, order.iter().map(|(key, amount)| (*key, amount))))?;
    /// assert_eq!(db.transact(|tx| tx.range(lines, (7, 0)..=(7, u8::MAX))?.count())?, 3);
    ///
    /// let again = db.transact(|tx| tx.insert_many(lines, [((7, 4), &5), ((7, 2), &5)]));
    /// assert!(matches!(again, Err(Error::Exists { table: "lines" })));
    /// assert_eq!(db.transact(|tx| tx.get(lines, &(7, 4)))?, None, "all of it, or nothing");
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn insert_many<'v, K: Key, C: Codec<Given: 'v>, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        rows: impl IntoIterator<Item = (K, &'v C::Given)>,
    ) -> Result<(), Error> {
        self.exclusive().insert_many(table, rows)
    }

    /// Removes the rows of a table for which `keep` returns false. Returns how many. All of them
    /// are in one transaction's write set.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef};
    ///
    /// /// When sessions end.
    /// const SESSIONS: TableDef<u64, Pod<u64>> = TableDef::hash("sessions");
    /// let db = Db::new()?;
    /// let sessions = db.table(SESSIONS)?;
    /// db.transact(|tx| (0..100).try_for_each(|session| tx.put(sessions, session, &(1_000 + session))))?;
    /// let ended = db.transact(|tx| tx.retain(sessions, |_, end| end > 1_030))?;
    /// assert_eq!(ended, 31);
    /// assert_eq!(db.read(|tx| tx.len(sessions))?, 69);
    /// assert_eq!(db.transact(|tx| tx.clear(sessions))?, 69);
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn retain<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        keep: impl FnMut(&K, C::View<'_>) -> bool,
    ) -> Result<u64, Error> {
        self.exclusive().retain(table, keep)
    }

    /// Removes all rows of a table, without reading their values unless it has indexes. Returns how
    /// many there were.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    ///
    /// # Example
    ///
    /// See [`retain`](Self::retain).
    #[inline]
    pub fn clear<K: Key, C: Codec, O: Kind>(&mut self, table: Table<K, C, O>) -> Result<u64, Error> {
        self.exclusive().clear(table)
    }

    /// Takes a savepoint.
    ///
    /// # Example
    ///
    /// See [`Savepoint`].
    #[inline]
    pub fn savepoint(&mut self) -> Savepoint {
        self.exclusive().savepoint()
    }

    /// Undoes the writes since a savepoint. The savepoint stays valid.
    ///
    /// # Errors
    ///
    /// [`Error::OtherSavepoint`] if the savepoint belongs to another transaction, or to a part that
    /// was undone.
    ///
    /// # Example
    ///
    /// See [`Savepoint`].
    #[inline]
    pub fn return_to(&mut self, savepoint: Savepoint) -> Result<(), Error> {
        self.exclusive().return_to(savepoint)
    }

    /// Looks up a key's entry, to read and write the row there.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`Entry`].
    #[inline]
    pub fn entry<'t, K: Key, C: Codec, O: Kind, A: AsKey<K>>(
        &'t mut self,
        table: Table<K, C, O>,
        key: A,
    ) -> Result<Entry<'t, 'db, K, C, S, A>, Error> {
        self.exclusive().entry(table, key)
    }

    /// Returns the rows of a range, in the order of their keys, to be changed or removed. Nothing
    /// else can use the transaction while the range is open, but the range
    /// [lends](Range::tx) it.
    ///
    /// # Errors
    ///
    /// As for [`range`](Self::range).
    ///
    /// # Example
    ///
    /// See [`Range::update_next`].
    #[inline]
    pub fn range_mut<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
    ) -> Result<Range<'db, R, &mut Self, S>, Error> {
        let at = self.exclusive().range_in(rows, range)?;
        Ok(Range::new(self, at))
    }
}

impl<S: Config, M: Mode> Tx<'_, S, M> {
    /// Chooses when this transaction's commit returns: as soon as it is durable, or at once. It
    /// overrides the [database's](crate::Builder::durability) choice.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for [`Durability::None`], and in a database that is in memory only.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Durability, Error, Raw, TableDef};
    ///
    /// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    /// let directory = std::env::temp_dir().join(format!("drtm-choice-{}", std::process::id()));
    /// let db = Db::builder().path(&directory).create(true).durability(Durability::Sync).build()?;
    /// let notes = db.table(NOTES)?;
    /// db.transact(|tx| {
    ///     tx.set_durability(Durability::Async)?;
    ///     tx.put(notes, &1, b"not worth waiting for")
    /// })?;
    /// # drop(db);
    /// # std::fs::remove_dir_all(&directory).expect("it is there");
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn set_durability(&mut self, durability: Durability) -> Result<(), Error> {
        self.main.get_mut().set_durability(durability)
    }

    /// Makes the commit of this run return before the transaction is durable.
    pub(crate) fn be_submitted(&mut self) {
        self.main.get_mut().be_submitted();
    }

    /// Commits the transaction: its writes become visible atomically.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] when other transactions have changed what this one has read; or when
    /// memory has run out. Its writes are then not applied.
    ///
    /// # Example
    ///
    /// See [`Tx`].
    #[inline]
    pub fn commit(mut self) -> Result<(), Error> {
        let thread = self.db.thread();
        self.try_commit(thread)
    }

    /// Like [`commit`](Self::commit), but returns before the transaction is durable. The returned
    /// token can be waited for, or awaited.
    ///
    /// # Errors
    ///
    /// As for [`commit`](Self::commit).
    ///
    /// # Example
    ///
    /// See [`CommitToken`].
    #[inline]
    pub fn submit(mut self) -> Result<CommitToken, Error> {
        self.be_submitted();
        let (db, thread) = (self.db, self.db.thread());
        self.try_commit(thread)?;
        Ok(CommitToken::new(db.log.as_ref(), thread.submitted.get()))
    }
}
