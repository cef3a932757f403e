//! Tables: their definitions, and handles of open tables.

use std::{
    any::TypeId,
    fmt,
    marker::PhantomData,
    sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering::Relaxed},
};

use crate::{
    Codec, Key,
    db::name::{Name, kept},
    durability::format::TableShape,
    schema::{
        codec::describe::{LONGEST, shortened},
        copied::copied,
    },
};

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Hash {}
    impl Sealed for super::Ordered {}
}

/// How a table finds its rows. It is a type, so that only ordered tables have ranges.
///
/// # Example
///
/// See [`TableDef`].
pub trait Kind: sealed::Sealed + Reach + Copy + fmt::Debug + Send + Sync + 'static {
    #[doc(hidden)]
    const ORDERED: bool;
}

/// The kind of tables whose rows are in order. It is public only as the bound of
/// [`Sorted`](crate::Sorted): other crates cannot name it.
#[diagnostic::on_unimplemented(
    message = "a hash table has no order, and so no ranges",
    note = "define the table by `TableDef::ordered` to read it in the order of its keys",
    note = "`Tx::walk` reads all rows of a hash table, in no order"
)]
pub trait HasOrder: Kind {}

impl HasOrder for Ordered {}

/// The kinds of tables that an operation may access, so that code for others is not compiled. It is
/// public only as a supertrait of [`Kind`]: other crates cannot name it.
pub trait Reach {
    #[doc(hidden)]
    const HASHED: bool;
    #[doc(hidden)]
    const SORTED: bool;
}

/// Tables of any kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Any;

impl Reach for Any {
    const HASHED: bool = true;
    const SORTED: bool = true;
}

impl Reach for Hash {
    const HASHED: bool = true;
    const SORTED: bool = false;
}

impl Reach for Ordered {
    const HASHED: bool = false;
    const SORTED: bool = true;
}

/// Finds rows by a hash of the key: faster for single rows.
///
/// # Example
///
/// See [`TableDef`].
#[derive(Clone, Copy, Debug)]
pub struct Hash;

/// Keeps rows in key order: allows ranges too.
///
/// # Example
///
/// See [`TableDef`].
#[derive(Clone, Copy, Debug)]
pub struct Ordered;

impl Kind for Hash {
    const ORDERED: bool = false;
}

impl Kind for Ordered {
    const ORDERED: bool = true;
}

/// Types of which no value is stored.
type Typed<T> = PhantomData<fn() -> T>;

/// A table's definition: its name, and the types of its keys and values. Define it as a constant.
///
/// Within a process, all handles of a table have the same types. A durable database records each
/// table's kind, how keys and values are encoded ([`Key::shape`], [`Codec::FAMILY`]) and in how
/// many bytes, and the types themselves, as their [description](Codec::describe) or
/// [version](Self::version). Opening it with others fails with
/// [`Error::OtherTypes`](crate::Error::OtherTypes), since they could misread its bytes. A type that
/// was renamed says so with [`was`](Self::was), and [`Db::migrate`](crate::Db::migrate) converts
/// the rows of one that has changed. Modules are not recorded, so types can move.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, Ordered, Pod, Raw, TableDef};
///
/// const BALANCES: TableDef<u64, Pod<i64>> = TableDef::hash("balances");
/// const EVENTS: TableDef<(u32, u64), Raw, Ordered> = TableDef::ordered("events");
///
/// let db = Db::new()?;
/// let (balances, events) = (db.table(BALANCES)?, db.table(EVENTS)?);
/// db.transact(|tx| {
///     tx.put(balances, &1, &100)?;
///     tx.insert(events, &(7, 1), b"opened")
/// })?;
///
/// const MISTAKEN: TableDef<u64, Pod<u32>> = TableDef::hash("balances");
/// assert!(matches!(db.table(MISTAKEN), Err(Error::OtherTypes { name: "balances", .. })));
/// # Ok::<(), Error>(())
/// ```
pub struct TableDef<K, C, O = Hash> {
    name: &'static str,
    /// The expected number of rows.
    pub(crate) rows: u64,
    /// The version of the types, in place of their description.
    version: Option<u16>,
    /// Other descriptions of the types.
    was: &'static [&'static str],
    types: Typed<(K, C, O)>,
}

impl<K: Key, C: Codec> TableDef<K, C, Hash> {
    /// Defines a hash table.
    ///
    /// # Example
    ///
    /// See [`TableDef`].
    #[must_use]
    pub const fn hash(name: &'static str) -> Self {
        Self { name, rows: 0, version: None, was: &[], types: PhantomData }
    }

    /// Allocates room for this many rows at once. A table grows by itself; this saves the growth if
    /// the number is known.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef};
    ///
    /// const STOCK: TableDef<u64, Pod<u64>> = TableDef::hash("stock").with_room_for(100_000);
    /// let db = Db::new()?;
    /// let stock = db.table(STOCK)?;
    /// db.transact(|tx| tx.put(stock, 1, &7))?;
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn with_room_for(self, rows: u64) -> Self {
        Self { rows, ..self }
    }
}

impl<K: Key, C: Codec> TableDef<K, C, Ordered> {
    /// Defines an ordered table.
    ///
    /// # Example
    ///
    /// See [`TableDef`].
    #[must_use]
    pub const fn ordered(name: &'static str) -> Self {
        Self { name, rows: 0, version: None, was: &[], types: PhantomData }
    }
}

impl<K: Key, C: Codec, O: Kind> TableDef<K, C, O> {
    /// Returns the table's name.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Pod, TableDef};
    ///
    /// const STOCK: TableDef<u64, Pod<u64>> = TableDef::hash("stock");
    /// assert_eq!(STOCK.name(), "stock");
    /// ```
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Replaces the name by one that is no constant: for tables that are only known at run time.
    ///
    /// The name is kept until the process ends, once for each different name. A database can have
    /// 1,024 tables and indexes at the same time.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef};
    ///
    /// const VISITS: TableDef<u64, Pod<u64>> = TableDef::hash("visits");
    /// let db = Db::new()?;
    /// for year in 2024..=2026 {
    ///     let visits = db.table(VISITS.named(&format!("visits of {year}")))?;
    ///     db.transact(|tx| tx.put(visits, 1, &year))?;
    /// }
    /// let of_2025 = db.table(VISITS.named("visits of 2025"))?;
    /// assert_eq!(db.read(|tx| tx.get(of_2025, 1))?, Some(2025));
    /// assert_eq!(db.tables()?.len(), 3);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: kept(name), ..self }
    }

    /// Sets a version of the table's types, which identifies them in place of their
    /// [description](Codec::describe).
    ///
    /// The application then answers for the types: when one changes so that it would misread its
    /// old bytes, the definition gets the next version. A table that was written with another
    /// version, or with none, is refused.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Postcard, TableDef};
    ///
    /// const USERS: TableDef<u64, Postcard<String>> = TableDef::hash("users").version(1);
    /// let db = Db::new()?;
    /// db.table(USERS)?;
    /// assert!(matches!(db.table(USERS.version(2)), Err(Error::OtherTypes { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn version(self, version: u16) -> Self {
        Self { version: Some(version), ..self }
    }

    /// Accepts a table whose types are recorded in one of these ways, as
    /// [`Error::OtherTypes`](crate::Error::OtherTypes) shows them: the application says that they
    /// mean the same.
    ///
    /// Keys and values must still be encoded alike. What is recorded stays, so the definition keeps
    /// this as long as there are such databases. For a type that serde describes,
    /// `#[serde(rename = "...")]` with its old name does the same.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Postcard, TableDef};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct User {
    ///     name: String,
    /// }
    ///
    /// /// The same, by a better name.
    /// #[derive(Serialize, Deserialize)]
    /// struct Customer {
    ///     name: String,
    /// }
    ///
    /// const USERS: TableDef<u64, Postcard<User>> = TableDef::hash("users");
    /// const CUSTOMERS: TableDef<u64, Postcard<Customer>> =
    ///     TableDef::hash("users").was(&["u64 to User{name:string}"]);
    ///
    /// let directory = std::env::temp_dir().join(format!("drtm-was-{}", std::process::id()));
    /// let db = Db::create(&directory)?;
    /// let users = db.table(USERS)?;
    /// db.transact(|tx| tx.put(users, 7, &User { name: "Ada".to_owned() }))?;
    /// drop(db);
    ///
    /// let db = Db::open(&directory)?;
    /// let customers = db.table(CUSTOMERS)?;
    /// assert_eq!(db.read(|tx| tx.get(customers, 7))?.map(|customer| customer.name).as_deref(), Some("Ada"));
    /// # drop(db);
    /// # std::fs::remove_dir_all(&directory).expect("it is there");
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn was(self, others: &'static [&'static str]) -> Self {
        Self { was: others, ..self }
    }

    /// Returns what identifies the table across restarts.
    pub(crate) fn shape(&self) -> TableShape {
        TableShape {
            name: self.name.to_owned(),
            is_ordered: O::ORDERED,
            key_size: K::SIZE.and_then(|size| size.try_into().ok()),
            value_size: C::SIZE.and_then(|size| size.try_into().ok()),
            key: K::shape(),
            codec: C::FAMILY.to_owned(),
            types: match self.version {
                Some(version) => format!("version {version}"),
                None => shortened(format!("{} to {}", K::describe(), C::describe()), LONGEST),
            },
        }
    }

    /// Returns whether a recorded table can be opened by this definition, whose shape is given.
    pub(crate) fn opens(&self, recorded: &TableShape, shape: &TableShape) -> bool {
        recorded.is_as(shape) || recorded.is_encoded_as(shape) && self.was.contains(&&*recorded.types)
    }

    /// Returns the types that identify the table. The entries of an index differ from a table of
    /// the same name, and from another table's index.
    pub(crate) fn types(&self, of: Option<(u16, Name)>) -> Types {
        Types {
            ids: [TypeId::of::<K>(), TypeId::of::<C>(), TypeId::of::<O>()],
            names: [std::any::type_name::<K>(), std::any::type_name::<C>()],
            is_ordered: O::ORDERED,
            version: self.version,
            of,
        }
    }
}

/// The types that a table was opened with.
#[derive(Clone, Debug)]
pub(crate) struct Types {
    ids: [TypeId; 3],
    names: [&'static str; 2],
    is_ordered: bool,
    version: Option<u16>,
    /// The number and name of the table that it indexes, if it holds an index's entries. The number
    /// tells tables apart.
    of: Option<(u16, Name)>,
}

/// A table, as described to a sink.
#[derive(Debug)]
pub(crate) struct TableInfo {
    pub(crate) name: Name,
    /// The identity, the size of keys, and whether it is an index. They change when another table
    /// gets the number.
    id: AtomicU16,
    key_size: AtomicU32,
    is_index: AtomicBool,
}

impl TableInfo {
    pub(crate) fn new(name: Name, id: u16, key_size: usize, is_index: bool) -> Self {
        Self { name, id: id.into(), key_size: AtomicU32::new(key_size as u32), is_index: is_index.into() }
    }

    /// Makes it that of another table. No transaction writes to a table of this number.
    pub(crate) fn become_another(&self, name: &'static str, id: u16, key_size: usize, is_index: bool) {
        self.name.set(name);
        self.id.store(id, Relaxed);
        self.key_size.store(key_size as u32, Relaxed);
        self.is_index.store(is_index, Relaxed);
    }

    /// Returns what identifies the table across restarts. An index has no such identity: its
    /// entries follow from rows.
    #[inline(always)]
    pub(crate) fn id(&self) -> u16 {
        self.id.load(Relaxed)
    }

    /// Returns the bytes of a key that packs into a word.
    #[inline(always)]
    pub(crate) fn key_size(&self) -> usize {
        self.key_size.load(Relaxed) as usize
    }

    /// Returns whether it holds the entries of an index.
    #[inline(always)]
    pub(crate) fn is_index(&self) -> bool {
        self.is_index.load(Relaxed)
    }
}

impl Types {
    pub(crate) fn is_index(&self) -> bool {
        self.of.is_some()
    }

    /// Returns the number of the table that it indexes, if it holds an index's entries.
    pub(crate) fn of(&self) -> Option<u16> {
        self.of.as_ref().map(|(number, _)| *number)
    }

    /// Returns whether a handle of these types may refer to a table of the others.
    pub(crate) fn are_as(&self, others: &Self) -> bool {
        (self.ids, self.version, self.of()) == (others.ids, others.version, others.of())
    }
}

impl fmt::Display for Types {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [key, codec] = self.names;
        match &self.of {
            Some((_, table)) => write!(f, "an index of `{}` with entries of {key} to {codec}", table.get()),
            None => {
                let kind = if self.is_ordered { "an ordered table" } else { "a hash table" };
                write!(f, "{kind} of {key} to {codec}")?;
                self.version.map_or(Ok(()), |version| write!(f, ", version {version}"))
            }
        }
    }
}

/// A definition of a table, as a type: [`TableOf`] and [`IndexOf`](crate::IndexOf) name handles by
/// it. Implemented by [`TableDef`].
///
/// # Example
///
/// See [`TableOf`].
pub trait Definition: sealed::Sealed {
    /// The type of keys.
    type Key;
    /// The codec of values.
    type Codec;
    /// How rows are found.
    type Kind;
}

impl<K, C, O> sealed::Sealed for TableDef<K, C, O> {}

impl<K, C, O> Definition for TableDef<K, C, O> {
    type Key = K;
    type Codec = C;
    type Kind = O;
}

/// The handle of the table with this definition, so that the types of keys and values are written
/// once.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, Ordered, Pod, TableDef, TableOf};
///
/// type Events = TableDef<(u32, u64), Pod<i64>, Ordered>;
/// const EVENTS: Events = Events::ordered("events");
///
/// struct Journal {
///     db: Db,
///     events: TableOf<Events>,
/// }
///
/// let db = Db::new()?;
/// let journal = Journal { events: db.table(EVENTS)?, db };
/// journal.db.transact(|tx| tx.insert(journal.events, (1, 1), &30))?;
/// # Ok::<(), Error>(())
/// ```
pub type TableOf<D> = Table<<D as Definition>::Key, <D as Definition>::Codec, <D as Definition>::Kind>;

/// A handle of an open table. It is small and `Copy`. [`TableOf`] names it by its definition.
///
/// # Example
///
/// See [`TableDef`].
pub struct Table<K, C, O = Hash> {
    /// Identifies the database, and this use of the number.
    pub(crate) database: u32,
    pub(crate) number: u16,
    types: Typed<(K, C, O)>,
}

impl<K, C, O> Table<K, C, O> {
    pub(crate) const fn new(database: u32, number: u16) -> Self {
        Self { database, number, types: PhantomData }
    }

    /// Returns the handle as one of an ordered table, once the table is known to be one.
    pub(crate) const fn as_ordered(self) -> Table<K, C, Ordered> {
        Table::new(self.database, self.number)
    }
}

copied! {
    <K, C, O> TableDef<K, C, O> as "TableDef" { name, rows, version };
    <K, C, O> Table<K, C, O> as "Table" { number };
}
