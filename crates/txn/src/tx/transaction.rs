//! The operations of a transaction's body, whatever it runs on: a database of one node, or a
//! cluster.

use std::{borrow::Borrow, fmt, future::Future, ops::Bound};

use super::Savepoint;
use crate::{
    AsKey, Codec, Error, Flow, Hash, Key, KeyRange, KeyedRow, Ordered, Point, Prefetched, Sorted, Stored, Table,
    schema::{key::ByRef, table::Kind},
    tx::rows::sealed::Sealed,
};

/// A transaction that reads and writes rows: of one database, as [`OneNode`](crate::OneNode), or of
/// a cluster's nodes (`cluster::ClusterTx`). A body that is generic over this trait is written once
/// and runs on both.
///
/// Methods are futures. On one node they are done when they are called, and [ready] at once. There,
/// a short body executes about a tenth more instructions than with the methods of
/// [`Tx`](crate::Tx), since the compiler makes a state machine of it. The methods of a cluster's
/// transaction wait for other nodes. One that takes or returns several rows is one round trip to
/// all of their owners.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, OneNode, Pod, Table, TableDef, Transaction, ready};
///
/// type Accounts = Table<u64, Pod<i64>>;
/// const ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("accounts");
///
/// /// Moves money, on one node or between nodes.
/// async fn pay(tx: &mut impl Transaction, accounts: Accounts, from: u64, to: u64, sum: i64) -> Result<(), Error> {
///     tx.prefetch(accounts, [from, to]).await?;
///     let left = tx.update(accounts, from, |balance| {
///         *balance -= sum;
///         *balance
///     });
///     if left.await?.is_none_or(|left| left < 0) {
///         return Err(Error::aborted("not covered"));
///     }
///     tx.entry(accounts, to).await?.and_modify(|balance| *balance += sum).await?.or_insert(sum).await?;
///     Ok(())
/// }
///
/// let db = Db::new()?;
/// let accounts = db.table(ACCOUNTS)?;
/// db.transact(|tx| tx.insert(accounts, 1, &100))?;
/// db.transact(|tx| ready(pay(&mut OneNode(tx), accounts, 1, 2, 30)))?;
/// assert_eq!(db.read(|tx| tx.get_many(accounts, [1, 2]))?, [Some(70), Some(30)]);
/// # Ok::<(), Error>(())
/// ```
///
/// [ready]: std::task::Poll::Ready
pub trait Transaction: Sealed {
    /// Returns the row of a key. Returns `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`]; [`Error::OtherDatabase`]; [`Error::Codec`] if the value cannot be
    /// decoded; in a cluster, [`Error::Cluster`] if an owner cannot be asked.
    ///
    /// # Example
    ///
    /// See [`Transaction`].
    fn get<R: Point>(
        &mut self,
        rows: R,
        key: impl AsKey<R::Key>,
    ) -> impl Future<Output = Result<Option<R::Row>, Error>>;

    /// Shows a row without copying it. Returns what `see` returns, or `None` if there is no such
    /// row.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, OneNode, Raw, Table, TableDef, Transaction, ready};
    ///
    /// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    ///
    /// async fn length(tx: &mut impl Transaction, notes: Table<u64, Raw>) -> Result<Option<usize>, Error> {
    ///     tx.put(notes, 7, *b"seven").await?;
    ///     tx.view(notes, 7, |note| note.len()).await
    /// }
    ///
    /// let db = Db::new()?;
    /// let notes = db.table(NOTES)?;
    /// assert_eq!(db.transact(|tx| ready(length(&mut OneNode(tx), notes)))?, Some(5));
    /// # Ok::<(), Error>(())
    /// ```
    fn view<R: Stored, X>(
        &mut self,
        rows: R,
        key: impl AsKey<R::Key>,
        see: impl FnOnce(R::View<'_>) -> X,
    ) -> impl Future<Output = Result<Option<X>, Error>>;

    /// Returns the rows of several keys, in the order of the keys.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`insert_many`](Self::insert_many).
    fn get_many<R: Point>(
        &mut self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> impl Future<Output = Result<Vec<Option<R::Row>>, Error>>;

    /// Returns whether there is a row with this key.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`remove`](Self::remove).
    fn contains<R: Point>(&mut self, rows: R, key: impl AsKey<R::Key>) -> impl Future<Output = Result<bool, Error>>;

    /// Looks up rows that are going to be read or changed.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`Transaction`].
    fn prefetch<R: Prefetched>(
        &mut self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> impl Future<Output = Result<(), Error>>;

    /// Sets a row's value, whether the row exists or not.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`]; [`Error::Duplicate`]; when the key or the value is too long, the value
    /// cannot be encoded, or memory has run out. In a cluster also [`Error::Replicated`]; other
    /// nodes are asked at the commit only, unless the table has indexes.
    ///
    /// # Example
    ///
    /// See [`view`](Self::view).
    fn put<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
        value: impl Borrow<C::Given>,
    ) -> impl Future<Output = Result<(), Error>>;

    /// Inserts a row that does not exist yet.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] if it exists; otherwise as for [`put`](Self::put) and [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`remove`](Self::remove).
    fn insert<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
        value: impl Borrow<C::Given>,
    ) -> impl Future<Output = Result<(), Error>>;

    /// Inserts several rows that do not exist yet.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert). Some of the rows may be inserted then: return to a
    /// [savepoint](Self::savepoint) to continue without them.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Ordered, OneNode, Pod, Table, TableDef, Transaction, ready};
    ///
    /// type Lines = Table<(u32, u8), Pod<u64>, Ordered>;
    /// const LINES: TableDef<(u32, u8), Pod<u64>, Ordered> = TableDef::ordered("lines");
    ///
    /// async fn order(tx: &mut impl Transaction, lines: Lines) -> Result<Vec<Option<u64>>, Error> {
    ///     tx.insert_many(lines, [((7, 1), &100), ((7, 2), &250)]).await?;
    ///     let before = tx.savepoint();
    ///     if tx.insert_many(lines, [((7, 3), &80), ((7, 1), &5)]).await.is_err() {
    ///         tx.return_to(before)?;
    ///     }
    ///     tx.get_many(lines, [(7, 1), (7, 2), (7, 3)]).await
    /// }
    ///
    /// let db = Db::new()?;
    /// let lines = db.table(LINES)?;
    /// assert_eq!(db.transact(|tx| ready(order(&mut OneNode(tx), lines)))?, [Some(100), Some(250), None]);
    /// # Ok::<(), Error>(())
    /// ```
    fn insert_many<'v, K: Key, C: Codec<Given: 'v>, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        rows: impl IntoIterator<Item = (K, &'v C::Given)>,
    ) -> impl Future<Output = Result<(), Error>>;

    /// Changes the value of an existing row. Returns what `change` returns, or `None` if there is
    /// no such row.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put) and [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`Transaction`].
    fn update<R: Stored, X>(
        &mut self,
        rows: R,
        key: impl AsKey<R::Key>,
        change: impl FnOnce(&mut R::Row) -> X,
    ) -> impl Future<Output = Result<Option<X>, Error>>
    where
        R::Row: Borrow<R::Given>;

    /// Removes a row, and returns its value. Returns `None` if there is no such row.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put) and [`get`](Self::get).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, OneNode, Pod, Table, TableDef, Transaction, ready};
    ///
    /// const TASKS: TableDef<u64, Pod<u64>> = TableDef::hash("tasks");
    ///
    /// async fn take(tx: &mut impl Transaction, tasks: Table<u64, Pod<u64>>) -> Result<(Option<u64>, bool), Error> {
    ///     tx.insert(tasks, 1, &10).await?;
    ///     Ok((tx.remove(tasks, 1).await?, tx.contains(tasks, 1).await?))
    /// }
    ///
    /// let db = Db::new()?;
    /// let tasks = db.table(TASKS)?;
    /// assert_eq!(db.transact(|tx| ready(take(&mut OneNode(tx), tasks)))?, (Some(10), false));
    /// # Ok::<(), Error>(())
    /// ```
    #[doc(alias = "take")]
    fn remove<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: impl AsKey<K>,
    ) -> impl Future<Output = Result<Option<C::Value>, Error>>;

    /// Looks up a key's entry, to read and write the row there.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`EntryIn`].
    fn entry<'t, K: Key, C: Codec, O: Kind, A: AsKey<K>>(
        &'t mut self,
        table: Table<K, C, O>,
        key: A,
    ) -> impl Future<Output = Result<EntryIn<'t, Self, K, C, O, A>, Error>>
    where
        Self: Sized,
    {
        EntryIn::find(self, table, key)
    }

    /// Returns the rows of a range, in the order of their keys. No other transaction inserts a key
    /// into the range, or removes one, before this one commits.
    ///
    /// All rows are read at once, where [`Tx::range`](crate::Tx::range) gives a cursor: over a
    /// network, each step of a cursor would be a round trip.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`range_limit`](Self::range_limit).
    fn range<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
    ) -> impl Future<Output = Result<Vec<KeyedRow<R>>, Error>> {
        self.range_limit(rows, range, usize::MAX)
    }

    /// Returns the first rows of a range, `limit` at most. What is behind them may change
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, KeyedRow, Ordered, OneNode, Pod, Table, TableDef, Transaction, ready};
    ///
    /// type Queue = Table<u64, Pod<u64>, Ordered>;
    /// const QUEUE: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("queue");
    ///
    /// async fn ends(tx: &mut impl Transaction, queue: Queue) -> Result<[Vec<KeyedRow<Queue>>; 2], Error> {
    ///     for number in 1..=9 {
    ///         tx.put(queue, number, &(10 * number)).await?;
    ///     }
    ///     assert_eq!(tx.range(queue, 2..4).await?, [(2, 20), (3, 30)]);
    ///     assert_eq!((tx.first(queue, ..).await?, tx.last(queue, ..).await?), (Some((1, 10)), Some((9, 90))));
    ///     assert_eq!((tx.count(queue, 5..).await?, tx.all(queue, 6).await?.len()), (5, 1));
    ///     assert_eq!(tx.pop_first(queue, ..).await?, Some((1, 10)));
    ///     assert_eq!(tx.pop_last(queue, ..).await?, Some((9, 90)));
    ///     Ok([tx.range_limit(queue, .., 2).await?, tx.range_back_limit(queue, ..=7, 2).await?])
    /// }
    ///
    /// let db = Db::new()?;
    /// let queue = db.table(QUEUE)?;
    /// assert_eq!(db.transact(|tx| ready(ends(&mut OneNode(tx), queue)))?, [[(2, 20), (3, 30)], [(7, 70), (6, 60)]]);
    /// # Ok::<(), Error>(())
    /// ```
    fn range_limit<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<KeyedRow<R>>, Error>>;

    /// Returns the rows of a range in descending order. Otherwise like [`range`](Self::range).
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`range_limit`](Self::range_limit).
    fn range_back<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
    ) -> impl Future<Output = Result<Vec<KeyedRow<R>>, Error>> {
        self.range_back_limit(rows, range, usize::MAX)
    }

    /// Returns the last rows of a range, the very last one first, and `limit` at most. Otherwise
    /// like [`range_limit`](Self::range_limit).
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`range_limit`](Self::range_limit).
    fn range_back_limit<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<KeyedRow<R>>, Error>>;

    /// Returns the first row of a range. Returns `None` if the range is empty.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`range_limit`](Self::range_limit).
    fn first<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
    ) -> impl Future<Output = Result<Option<KeyedRow<R>>, Error>>;

    /// Returns the last row of a range. Returns `None` if the range is empty.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`range_limit`](Self::range_limit).
    fn last<R: Sorted>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
    ) -> impl Future<Output = Result<Option<KeyedRow<R>>, Error>>;

    /// Returns the rows that have this key: of an index that is not unique, all rows under the key.
    /// In a cluster, one node is asked.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`range_limit`](Self::range_limit).
    fn all<R: Sorted>(
        &mut self,
        rows: R,
        key: impl AsKey<R::Key>,
    ) -> impl Future<Output = Result<Vec<KeyedRow<R>>, Error>> {
        async move { self.range(rows, (Bound::Included(ByRef(&key)), Bound::Included(ByRef(&key)))).await }
    }

    /// Counts the rows of a range, by reading all of them.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`range_limit`](Self::range_limit).
    fn count<R: Sorted>(&mut self, rows: R, range: impl KeyRange<R::Key>) -> impl Future<Output = Result<u64, Error>>;

    /// Shows the rows of a range in the order of their keys, without copying them: `limit` rows at
    /// most, or until `visit` breaks off.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Ordered, OneNode, Pod, Table, TableDef, Transaction, ready};
    ///
    /// type Lines = Table<(u32, u8), Pod<u64>, Ordered>;
    /// const LINES: TableDef<(u32, u8), Pod<u64>, Ordered> = TableDef::ordered("lines");
    ///
    /// async fn total(tx: &mut impl Transaction, lines: Lines, order: u32) -> Result<u64, Error> {
    ///     let mut total = 0;
    ///     tx.view_each(lines, (order, 0)..=(order, u8::MAX), usize::MAX, |_, amount| total += amount).await?;
    ///     Ok(total)
    /// }
    ///
    /// let db = Db::new()?;
    /// let lines = db.table(LINES)?;
    /// db.transact(|tx| tx.insert_many(lines, [((7, 1), &100), ((7, 2), &250), ((8, 1), &1)]))?;
    /// assert_eq!(db.transact(|tx| ready(total(&mut OneNode(tx), lines, 7)))?, 350);
    /// # Ok::<(), Error>(())
    /// ```
    fn view_each<R: Stored<Kind = Ordered>, F: Flow>(
        &mut self,
        rows: R,
        range: impl KeyRange<R::Key>,
        limit: usize,
        visit: impl FnMut(R::Key, R::View<'_>) -> F,
    ) -> impl Future<Output = Result<(), Error>>;

    /// Removes the first row of a range, and returns it. Returns `None` if the range is empty.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put) and [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`range_limit`](Self::range_limit).
    fn pop_first<K: Key, C: Codec>(
        &mut self,
        table: Table<K, C, Ordered>,
        range: impl KeyRange<K>,
    ) -> impl Future<Output = Result<Option<(K, C::Value)>, Error>>;

    /// Removes the last row of a range, and returns it. Returns `None` if the range is empty.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put) and [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`range_limit`](Self::range_limit).
    fn pop_last<K: Key, C: Codec>(
        &mut self,
        table: Table<K, C, Ordered>,
        range: impl KeyRange<K>,
    ) -> impl Future<Output = Result<Option<(K, C::Value)>, Error>>;

    /// Shows all rows of a table, until they end or `visit` breaks off. Rows of an ordered table
    /// come in key order, those of a hash table in no order. If the transaction commits, they are
    /// all the rows there were at one moment.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`retain`](Self::retain).
    fn walk<K: Key, C: Codec, O: Kind, F: Flow>(
        &mut self,
        table: Table<K, C, O>,
        visit: impl FnMut(K, C::View<'_>) -> F,
    ) -> impl Future<Output = Result<(), Error>>;

    /// Counts the rows of a table, by reading all of them.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`retain`](Self::retain).
    fn len<K: Key, C: Codec, O: Kind>(&mut self, table: Table<K, C, O>) -> impl Future<Output = Result<u64, Error>>;

    /// Removes the rows of a table for which `keep` returns false. Returns how many. All of them
    /// are in one transaction's write set.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put) and [`get`](Self::get).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, OneNode, Pod, Table, TableDef, Transaction, ready};
    ///
    /// /// When sessions end.
    /// const SESSIONS: TableDef<u64, Pod<u64>> = TableDef::hash("sessions");
    ///
    /// async fn tidy(tx: &mut impl Transaction, sessions: Table<u64, Pod<u64>>) -> Result<[u64; 4], Error> {
    ///     for session in 0..100 {
    ///         tx.put(sessions, session, &(1_000 + session)).await?;
    ///     }
    ///     let ended = tx.retain(sessions, |_, end| end > 1_030).await?;
    ///     let mut last = 0;
    ///     tx.walk(sessions, |_, end| last = last.max(end)).await?;
    ///     Ok([ended, last, tx.len(sessions).await?, tx.clear(sessions).await?])
    /// }
    ///
    /// let db = Db::new()?;
    /// let sessions = db.table(SESSIONS)?;
    /// assert_eq!(db.transact(|tx| ready(tidy(&mut OneNode(tx), sessions)))?, [31, 1_099, 69, 69]);
    /// # Ok::<(), Error>(())
    /// ```
    fn retain<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        keep: impl FnMut(&K, C::View<'_>) -> bool,
    ) -> impl Future<Output = Result<u64, Error>>;

    /// Removes all rows of a table. Returns how many there were.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put) and [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`retain`](Self::retain).
    fn clear<K: Key, C: Codec, O: Kind>(&mut self, table: Table<K, C, O>) -> impl Future<Output = Result<u64, Error>>;

    /// Takes a savepoint.
    ///
    /// # Example
    ///
    /// See [`insert_many`](Self::insert_many).
    fn savepoint(&mut self) -> Savepoint;

    /// Undoes the writes since a savepoint. The savepoint stays valid.
    ///
    /// # Errors
    ///
    /// [`Error::OtherSavepoint`] if the savepoint belongs to another transaction, or to a part that
    /// was undone.
    ///
    /// # Example
    ///
    /// See [`insert_many`](Self::insert_many).
    fn return_to(&mut self, savepoint: Savepoint) -> Result<(), Error>;
}

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
    async fn find(tx: &'t mut T, table: Table<K, C, O>, key: A) -> Result<Self, Error> {
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
        self.place.put(self.value.borrow()).await?;
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
