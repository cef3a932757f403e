//! Secondary indexes: finding rows by keys that are computed from them.
//!
//! An index is itself an ordered table of the database. The value of an entry in a unique index is
//! the row's key. In a non-unique index, the row's key is the last part of the entry's key, since
//! many rows can share the first part. A transaction that writes a row changes its entries too. So
//! an index is read, isolated, rolled back and logged like every table, and needs no protocol of
//! its own.

mod build;
mod entries;
mod upkeep;

use std::{fmt, marker::PhantomData};

pub(crate) use self::upkeep::{Lister, Writers, lister};
pub(crate) use self::{
    entries::{Entries, Entry, RowEntries},
    upkeep::{Indexes, Listed},
};
use crate::{
    Codec, CodecError, Hash, Key, Ordered, Pod, Table, TableDef,
    db::name::kept,
    schema::{copied::copied, table::Definition},
    tx::rows::sealed::Sealed,
};

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Unique {}
    impl Sealed for super::Multi {}
}

/// How many rows an index can have under one key. It is a type, so that only unique indexes have a
/// lookup of a single row.
///
/// # Example
///
/// See [`IndexDef`].
pub trait Uniqueness: sealed::Sealed + Copy + fmt::Debug + Send + Sync + 'static {
    #[doc(hidden)]
    const IS_UNIQUE: bool;

    /// The key of an entry.
    #[doc(hidden)]
    type Key<K: Key, I: Key>: Key;

    /// The value of an entry.
    #[doc(hidden)]
    type Codec<K: Key>: Codec;

    #[doc(hidden)]
    fn key<K: Key, I: Key>(by: I, row: &K) -> Self::Key<K, I>;

    /// Returns the index key of an entry, from the entry's key alone.
    #[doc(hidden)]
    fn by<K: Key, I: Key>(key: Self::Key<K, I>) -> I;

    /// Returns the index key of an entry, and the key of its row.
    #[doc(hidden)]
    fn entry<K: Key, I: Key>(key: Self::Key<K, I>, value: <Self::Codec<K> as Codec>::Value) -> (I, K);
}

/// At most one row under each key.
///
/// # Example
///
/// See [`IndexDef`].
#[derive(Clone, Copy, Debug)]
pub struct Unique;

/// Any number of rows under each key.
///
/// # Example
///
/// See [`IndexDef`].
#[derive(Clone, Copy, Debug)]
pub struct Multi;

impl Uniqueness for Unique {
    const IS_UNIQUE: bool = true;
    type Key<K: Key, I: Key> = I;
    type Codec<K: Key> = RowKey<K>;

    fn key<K: Key, I: Key>(by: I, _row: &K) -> I {
        by
    }

    fn by<K: Key, I: Key>(key: I) -> I {
        key
    }

    fn entry<K: Key, I: Key>(key: I, value: K) -> (I, K) {
        (key, value)
    }
}

impl Uniqueness for Multi {
    const IS_UNIQUE: bool = false;
    type Key<K: Key, I: Key> = (I, K);
    type Codec<K: Key> = Pod<()>;

    fn key<K: Key, I: Key>(by: I, row: &K) -> (I, K) {
        (by, row.clone())
    }

    fn by<K: Key, I: Key>(key: (I, K)) -> I {
        key.0
    }

    fn entry<K: Key, I: Key>(key: (I, K), (): ()) -> (I, K) {
        key
    }
}

/// A row's key as a value.
#[doc(hidden)]
#[derive(Debug)]
pub struct RowKey<K>(PhantomData<fn() -> K>);

impl<K: Key> Codec for RowKey<K> {
    type Value = K;
    type Given = K;
    type View<'b> = K;
    const FAMILY: &'static str = "key";

    fn describe() -> String {
        K::describe()
    }

    fn encode(value: &K, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        value.write(bytes, true);
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<K, CodecError> {
        K::from_bytes(bytes).ok_or_else(|| CodecError::Decode { reason: "they are no key of a row".to_owned() })
    }

    fn view(bytes: &[u8]) -> Result<K, CodecError> {
        Self::decode(bytes)
    }
}

/// A function that gives a row's index key, if it has one.
type AtMostOne<K, C, I> = fn(&K, <C as Codec>::View<'_>) -> Option<I>;

/// A function that gives any number of index keys of a row.
type Several<K, C, I> = fn(&K, <C as Codec>::View<'_>) -> Vec<I>;

enum Keys<K, C: Codec, I> {
    AtMostOne(AtMostOne<K, C, I>),
    Several(Several<K, C, I>),
}

impl<K, C: Codec, I> Clone for Keys<K, C, I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, C: Codec, I> Copy for Keys<K, C, I> {}

/// An index's definition: its name, and the function that computes a row's keys. Define it as a
/// constant, beside the table's.
///
/// `K` and `C` are the table's types of keys and values, and `I` is the type of the index's keys.
/// The function gets the row's key, and its value as a [view](Codec::View) of the codec. It must
/// depend on nothing else: when a row changes, its old entries are found by calling the function on
/// the old value.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, IndexDef, Multi, Serde, TableDef};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct User {
///     email: String,
///     city: Option<String>,
/// }
///
/// const USERS: TableDef<u64, Serde<User>> = TableDef::hash("users");
/// const BY_EMAIL: IndexDef<u64, Serde<User>, String> = IndexDef::unique("users by email", |_, user| Some(user.email));
/// const BY_CITY: IndexDef<u64, Serde<User>, String, Multi> = IndexDef::multi("users by city", |_, user| user.city);
///
/// let db = Db::new()?;
/// let users = db.table(USERS)?;
/// let (by_email, by_city) = (db.index(users, BY_EMAIL)?, db.index(users, BY_CITY)?);
///
/// db.transact(|tx| {
///     tx.insert(users, &1, &User { email: "ann@x.org".into(), city: Some("Bern".into()) })?;
///     tx.insert(users, &2, &User { email: "bob@x.org".into(), city: Some("Bern".into()) })?;
///     tx.insert(users, &3, &User { email: "cy@x.org".into(), city: None })
/// })?;
///
/// let (bob, in_bern) = db.transact(|tx| {
///     let bob = tx.get(by_email.keys(), "bob@x.org")?;
///     Ok((bob, tx.range(by_city, "Bern"..="Bern")?.count()?))
/// })?;
/// assert_eq!((bob, in_bern), (Some(2), 2));
///
/// let twice = db.transact(|tx| tx.update(users, &1, |user| user.email = "bob@x.org".into()));
/// assert!(matches!(twice, Err(Error::Duplicate { index: "users by email" })));
/// # Ok::<(), Error>(())
/// ```
pub struct IndexDef<K, C: Codec, I, U = Unique> {
    name: &'static str,
    keys: Keys<K, C, I>,
    kind: PhantomData<fn() -> U>,
}

impl<K: Key, C: Codec, I: Key> IndexDef<K, C, I, Unique> {
    /// Defines an index with at most one row under each key. A row for which `key` returns `None`
    /// is not in it.
    ///
    /// # Example
    ///
    /// See [`IndexDef`].
    #[must_use]
    pub const fn unique(name: &'static str, key: AtMostOne<K, C, I>) -> Self {
        Self { name, keys: Keys::AtMostOne(key), kind: PhantomData }
    }

    /// Like [`unique`](Self::unique), but a row can have several keys. Each of them belongs to this
    /// row alone.
    ///
    /// # Example
    ///
    /// See [`IndexDef::multi_each`].
    #[must_use]
    pub const fn unique_each(name: &'static str, keys: Several<K, C, I>) -> Self {
        Self { name, keys: Keys::Several(keys), kind: PhantomData }
    }
}

impl<K: Key, C: Codec, I: Key> IndexDef<K, C, I, Multi> {
    /// Defines an index with any number of rows under each key. A row for which `key` returns
    /// `None` is not in it.
    ///
    /// # Example
    ///
    /// See [`IndexDef`].
    #[must_use]
    pub const fn multi(name: &'static str, key: AtMostOne<K, C, I>) -> Self {
        Self { name, keys: Keys::AtMostOne(key), kind: PhantomData }
    }

    /// Like [`multi`](Self::multi), but a row can have several keys.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, IndexDef, Multi, Serde, TableDef};
    ///
    /// const TAGS: TableDef<u64, Serde<Vec<String>>> = TableDef::hash("tags of notes");
    /// const BY_TAG: IndexDef<u64, Serde<Vec<String>>, String, Multi> =
    ///     IndexDef::multi_each("notes by tag", |_, tags| tags);
    ///
    /// let db = Db::new()?;
    /// let tags = db.table(TAGS)?;
    /// let by_tag = db.index(tags, BY_TAG)?;
    /// let green = db.transact(|tx| {
    ///     tx.put(tags, &1, &vec!["green".to_owned(), "old".to_owned()])?;
    ///     tx.put(tags, &2, &vec!["green".to_owned()])?;
    ///     let mut rows = tx.range(by_tag.keys(), "green"..="green")?;
    ///     let mut green = Vec::new();
    ///     while let Some((_, note)) = rows.next()? {
    ///         green.push(note);
    ///     }
    ///     Ok(green)
    /// })?;
    /// assert_eq!(green, [1, 2]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn multi_each(name: &'static str, keys: Several<K, C, I>) -> Self {
        Self { name, keys: Keys::Several(keys), kind: PhantomData }
    }
}

impl<K: Key, C: Codec, I: Key, U: Uniqueness> IndexDef<K, C, I, U> {
    /// Returns the index's name. Names of tables and indexes are unique together.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{IndexDef, Pod};
    ///
    /// const BY_SCORE: IndexDef<u64, Pod<u32>, u32> = IndexDef::unique("by score", |_, score| Some(score));
    /// assert_eq!(BY_SCORE.name(), "by score");
    /// ```
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Replaces the name by one that is no constant: for an index of a table that was
    /// [named](TableDef::named) at run time.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, IndexDef, Pod, TableDef};
    ///
    /// const SCORES: TableDef<u64, Pod<u32>> = TableDef::hash("scores");
    /// const BY_SCORE: IndexDef<u64, Pod<u32>, u32> = IndexDef::unique("by score", |_, score| Some(score));
    /// let db = Db::new()?;
    /// for game in ["chess", "go"] {
    ///     let scores = db.table(SCORES.named(&format!("scores of {game}")))?;
    ///     let by_score = db.index(scores, BY_SCORE.named(&format!("{game} by score")))?;
    ///     db.transact(|tx| tx.insert(scores, 1, &900))?;
    ///     assert_eq!(db.read(|tx| tx.get(by_score.keys(), 900))?, Some(1));
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: kept(name), ..self }
    }

    /// Returns the definition of the table that holds the index's entries.
    pub(crate) const fn entries(&self) -> TableDef<U::Key<K, I>, U::Codec<K>, Ordered> {
        TableDef::ordered(self.name)
    }
}

/// The handle of an index of the table with this definition, by keys of type `I`.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, IndexDef, IndexOf, Multi, Pod, TableDef, TableOf};
///
/// type Scores = TableDef<u64, Pod<u32>>;
/// const SCORES: Scores = Scores::hash("scores");
/// const BY_SCORE: IndexDef<u64, Pod<u32>, u32, Multi> = IndexDef::multi("by score", |_, score| Some(score));
///
/// struct Ranking {
///     scores: TableOf<Scores>,
///     by_score: IndexOf<Scores, u32, Multi>,
/// }
///
/// let db = Db::new()?;
/// let scores = db.table(SCORES)?;
/// let ranking = Ranking { scores, by_score: db.index(scores, BY_SCORE)? };
/// db.transact(|tx| tx.insert(ranking.scores, 1, &900))?;
/// let best = db.read(|tx| tx.range(ranking.by_score, ..)?.last())?;
/// assert_eq!(best.map(|(score, _)| score), Some(900));
/// # Ok::<(), Error>(())
/// ```
pub type IndexOf<D, I, U = Unique> =
    Index<<D as Definition>::Key, <D as Definition>::Codec, I, U, <D as Definition>::Kind>;

/// A handle of an open index. It is small and `Copy`. [`IndexOf`] names it by its table's
/// definition.
///
/// # Example
///
/// See [`IndexDef`].
pub struct Index<K, C, I, U = Unique, O = Hash> {
    pub(crate) table: Table<K, C, O>,
    /// The database and the number of the table of its entries.
    database: u32,
    number: u16,
    types: PhantomData<fn() -> (I, U)>,
}

impl<K: Key, C, I: Key, U: Uniqueness, O> Index<K, C, I, U, O> {
    /// Returns the keys of the index's rows, as a source of rows: reading it does not access the
    /// table.
    ///
    /// # Example
    ///
    /// See [`IndexDef`].
    #[must_use]
    #[inline(always)]
    pub const fn keys(self) -> IndexKeys<K, C, I, U, O> {
        IndexKeys { index: self }
    }

    /// Returns the handle of an index of `table`, whose entries are in `entries`.
    pub(crate) const fn new(table: Table<K, C, O>, entries: Table<U::Key<K, I>, U::Codec<K>, Ordered>) -> Self {
        Self { table, database: entries.database, number: entries.number, types: PhantomData }
    }

    pub(crate) const fn entries(self) -> Table<U::Key<K, I>, U::Codec<K>, Ordered> {
        Table::new(self.database, self.number)
    }
}

impl<K: Key, C, I: Key, O> Index<K, C, I, Multi, O> {
    /// Returns the index's rows by pairs of an index key and a row's key, so that a range can begin
    /// behind any row of a key. With [`within`](crate::within), it stays within that key.
    ///
    /// # Example
    ///
    /// ```
    /// use std::ops::Bound::{Excluded, Unbounded};
    ///
    /// use drtm::{Db, Error, IndexDef, Multi, Pod, TableDef, within};
    ///
    /// const TASKS: TableDef<u64, Pod<u32>> = TableDef::hash("tasks");
    /// const BY_OWNER: IndexDef<u64, Pod<u32>, u32, Multi> = IndexDef::multi("tasks by owner", |_, owner| Some(owner));
    ///
    /// let db = Db::new()?;
    /// let tasks = db.table(TASKS)?;
    /// let by_owner = db.index(tasks, BY_OWNER)?;
    /// db.transact(|tx| (0..100_u32).try_for_each(|task| tx.put(tasks, u64::from(task), &(task % 3))))?;
    ///
    /// /// The next two tasks of an owner, after a page that ended with `last`.
    /// let page = |owner: u32, last: u64| {
    ///     db.read(|tx| {
    ///         let rest = tx.range(by_owner.pairs(), within(owner, (Excluded(last), Unbounded)))?;
    ///         rest.rows().take(2).map(|row| Ok(row?.0.1)).collect::<Result<Vec<u64>, Error>>()
    ///     })
    /// };
    /// assert_eq!(page(1, 1)?, [4, 7]);
    /// assert_eq!(page(1, 94)?, [97]);
    /// // And backwards, without access to the table.
    /// let before = db.read(|tx| tx.range(by_owner.keys().pairs(), within(1, ..7))?.last())?;
    /// assert_eq!(before, Some(((1, 4), ())));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    #[inline(always)]
    pub const fn pairs(self) -> Pairs<Self> {
        Pairs { of: self }
    }
}

impl<K: Key, C, I: Key, O> IndexKeys<K, C, I, Multi, O> {
    /// Returns the pairs of an index key and a row's key: reading them does not access the table.
    ///
    /// # Example
    ///
    /// See [`Index::pairs`].
    #[must_use]
    #[inline(always)]
    pub const fn pairs(self) -> Pairs<Self> {
        Pairs { of: self }
    }
}

/// An index, or its keys, by pairs of an index key and a row's key.
///
/// # Example
///
/// See [`Index::pairs`].
#[derive(Clone, Copy, Debug)]
pub struct Pairs<R> {
    pub(crate) of: R,
}

/// The keys of the rows of an index, in the index's order.
///
/// # Example
///
/// See [`Index::keys`].
pub struct IndexKeys<K, C, I, U = Unique, O = Hash> {
    pub(crate) index: Index<K, C, I, U, O>,
}

impl<K, C, I, U, O> Sealed for Index<K, C, I, U, O> {}
impl<K, C, I, U, O> Sealed for IndexKeys<K, C, I, U, O> {}
impl<R: Sealed> Sealed for Pairs<R> {}

copied! {
    <K, C: Codec, I, U> IndexDef<K, C, I, U> as "IndexDef" { name };
    <K, C, I, U, O> Index<K, C, I, U, O> as "Index" { table, number };
    <K, C, I, U, O> IndexKeys<K, C, I, U, O> as "IndexKeys" { index };
}
