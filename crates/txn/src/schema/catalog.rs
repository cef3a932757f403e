//! The tables of a database: found by number, without a lock; opened by name.

mod change;
mod numbers;

use std::{
    collections::VecDeque,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

pub(crate) use self::change::Dropped;
use self::numbers::NewTable;
pub(crate) use self::numbers::next_use;
use crate::{
    Codec, Error, Key, Table, TableDef,
    db::{
        lifecycle::Admission,
        name::{self, Name},
    },
    durability::format::TableShape,
    index::Indexes,
    memory::storage::{KeyRef, Storage},
    model::sync::Mutex,
    schema::table::{Kind, Reach, TableInfo, Types},
    trace::event,
    tx::located::{Asked, Left, Located},
};
use drtm_htm::Engine;
use drtm_kv::{AsOf, Handle, KvError, Past, PrefetchMask, Store, ValueSink, Version, Whereabouts, Worker};

/// The most tables that a database can have, including those of indexes.
pub(crate) const MOST_TABLES: usize = 1024;

/// The most identities of tables in a log. None is reused.
pub(crate) const MOST_IDS: u16 = u16::MAX;

/// The database of a dropped table.
const NO_DATABASE: u32 = u32::MAX;

/// What a handle of a cluster's table has as its database. Such a handle means the same at every
/// node, so no database of a node takes it.
pub(crate) const OF_CLUSTER: u32 = u32::MAX - 1;

/// A table that is open.
#[derive(Debug)]
pub(crate) struct Opened<E: Engine> {
    pub(crate) number: u16,
    /// The database that the table is in, until it is dropped. A handle's database is compared with
    /// it. A table that got the number of a dropped one has another, so that no handle of that one
    /// refers to it.
    database: AtomicU32,
    /// What `database` was set to for this use of the number. It stays when the table is dropped.
    used_as: AtomicU32,
    pub(crate) name: Name,
    pub(crate) storage: Storage<E>,
    /// The bytes of a key that packs into a word.
    key_size: AtomicUsize,
    /// The bytes of a value, if all values have the same number, or [`VARIES`].
    value_size: AtomicUsize,
    pub(crate) indexes: Indexes,
    /// The number of the first version from which on the table is whole. A snapshot that ends
    /// before it does not see all entries of an index that was created later.
    pub(crate) whole_since: AtomicU64,
    standing: AtomicU8,
    /// The database's count of changes from which on transactions wait while all rows are removed;
    /// or zero.
    cleared_at: AtomicU64,
    identity: Mutex<Identity>,
}

/// What a table is.
#[derive(Clone, Debug, Default)]
struct Identity {
    /// The types that it was opened with. A recovered table has none until it is opened.
    types: Option<Types>,
    /// Identifies the table across restarts. An index's table has none.
    shape: Option<TableShape>,
}

/// The size of values that vary in size.
const VARIES: usize = usize::MAX;

/// The table can be found by its name.
const OPEN: u8 = 0;
/// It was the table of an index that could not be created. It is empty, and can be reused for the
/// same index.
const EMPTY: u8 = 1;
/// It was the table of an index that could not be created, and is not empty, so it is never used
/// again.
const LOST: u8 = 2;
/// The table was dropped.
const DROPPED: u8 = 3;

impl<E: Engine> Opened<E> {
    /// Returns the bytes of a key that packs into a word.
    #[inline(always)]
    pub(crate) fn key_size(&self) -> usize {
        self.key_size.load(Relaxed)
    }

    /// Returns the bytes of a value, if all values have the same number.
    #[inline(always)]
    pub(crate) fn value_size(&self) -> Option<usize> {
        Some(self.value_size.load(Relaxed)).filter(|size| *size != VARIES)
    }

    /// Returns what a handle of the table has as its database.
    pub(crate) fn used_as(&self) -> u32 {
        self.used_as.load(SeqCst)
    }

    fn types(&self) -> Option<Types> {
        self.identity.lock().types.clone()
    }

    fn shape(&self) -> Option<TableShape> {
        self.identity.lock().shape.clone()
    }

    fn stands(&self, standing: u8) -> bool {
        self.standing.load(Relaxed) == standing
    }

    /// Returns whether a definition opens the table.
    pub(crate) fn fits<K: Key, C: Codec, O: Kind>(&self, def: TableDef<K, C, O>) -> bool {
        match self.types() {
            Some(its) => its.are_as(&def.types(None)),
            None => self.shape().is_some_and(|its| def.opens(&its, &def.shape())),
        }
    }

    /// Sets the types of the table. Refuses types other than the table has, or other than those
    /// that were recorded.
    fn give_types<K: Key, C: Codec, O: Kind>(&self, def: TableDef<K, C, O>, types: &Types) -> Result<(), Error> {
        let is_other = |is: String, asked: String| Err(Error::OtherTypes { name: self.name.get(), is, asked });
        match self.types() {
            Some(its) if its.are_as(types) => return Ok(()),
            Some(its) => return is_other(its.to_string(), types.to_string()),
            None => {}
        }
        // Only now, and without the lock: a type is described by deserializing it.
        let shape = def.shape();
        let identity = &mut *self.identity.lock();
        match (&identity.types, &identity.shape) {
            (Some(its), _) if its.are_as(types) => Ok(()),
            (Some(its), _) => is_other(its.to_string(), types.to_string()),
            (None, Some(its)) if def.opens(its, &shape) && !types.is_index() => {
                identity.types = Some(types.clone());
                Ok(())
            }
            (None, its) => is_other(its.as_ref().map_or_else(String::new, ToString::to_string), shape.to_string()),
        }
    }

    /// Retires the table, so that it can no longer be found by its name.
    pub(crate) fn retire(&self, is_empty: bool) {
        self.standing.store(if is_empty { EMPTY } else { LOST }, SeqCst);
    }

    /// Reads what a row was before a version, by its located record if there is one.
    #[inline(always)]
    pub(crate) fn read_past<O: Reach>(
        &self,
        located: Option<Handle>,
        key: KeyRef<'_>,
        before: Version,
        into: &mut impl ValueSink,
    ) -> Result<Past, KvError> {
        let view = AsOf::new(before);
        if let (Some(at), KeyRef::Word(word)) = (located, key)
            && let Some(past) = self.storage.read_at::<O, _>(at, word, view, into)
        {
            return Ok(past);
        }
        self.storage.read_past::<O>(key, view, into)
    }

    /// Prefetches the records of rows whose buckets were prefetched.
    #[inline(always)]
    fn locate(&self, asked: Asked<'_>) -> Left {
        match &self.storage {
            Storage::HashOfWords(table) => asked.locate(|word, bucket, lines| table.locate(word, bucket, lines)),
            _ => Left::NOTHING,
        }
    }

    /// Prefetches rows that are going to be read, as far as `lines` says. In a tree it prefetches
    /// the leaves that the keys belong to.
    #[inline(always)]
    pub(crate) fn prefetch<O: Reach>(
        &self,
        worker: &mut Worker<E>,
        located: &mut Located,
        words: &[u64],
        lines: &'static PrefetchMask,
        advance: impl FnOnce(&mut Located),
    ) {
        match &self.storage {
            Storage::TreeOfWords(tree) if O::SORTED => words.iter().for_each(|word| tree.prefetch(worker, *word)),
            Storage::HashOfWords(table) if O::HASHED => {
                let rows = table.prefetch(words.iter().copied());
                if !located.note(self.number, rows, lines, advance) {
                    // There is no room to remember their places, but they are prefetched all the
                    // same.
                    table.prefetch(words.iter().copied()).for_each(|_| ());
                    table.prefetch(words.iter().copied()).for_each(|(word, bucket)| {
                        table.locate(word, bucket, lines);
                    });
                }
            }
            _ => {}
        }
    }
}

/// The tables. Clones are the same catalog.
#[derive(Debug)]
pub(crate) struct Catalog<E: Engine> {
    /// The number of the database in this process.
    database: u32,
    tables: Arc<[OnceLock<Opened<E>>]>,
    /// The descriptions of tables for a sink, by their numbers.
    infos: Arc<[OnceLock<TableInfo>]>,
    /// The count of tables. It is locked while a table is created, renamed or dropped, so that
    /// names stay unique.
    count: Arc<Mutex<Count<E>>>,
    /// The database's count of changes when a table was last dropped.
    dropped_at: Arc<AtomicU64>,
}

impl<E: Engine> Clone for Catalog<E> {
    fn clone(&self) -> Self {
        let Self { database, tables, infos, count, dropped_at } = self;
        let (tables, infos, count) = (Arc::clone(tables), Arc::clone(infos), Arc::clone(count));
        Self { database: *database, tables, infos, count, dropped_at: Arc::clone(dropped_at) }
    }
}

/// Returns the name that the table `name` has while a migration fills it.
pub(crate) fn beside(name: &str) -> String {
    format!("{name} (migrating)")
}

/// A table as a log records it.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) number: u16,
    pub(crate) id: u16,
    pub(crate) shape: TableShape,
    pub(crate) indexes: Vec<String>,
}

#[derive(Debug)]
struct Count<E: Engine> {
    /// The number of tables, including those of indexes.
    tables: usize,
    /// The identity of the next table that is not an index's. None is reused.
    next_id: u16,
    /// Whether peers read rows by verbs.
    for_peers: bool,
    /// The numbers of dropped tables whose storage is empty, for reuse with it.
    spare: Vec<u16>,
    /// Former tables of numbers that were used again, by what their handles have as their
    /// database: for errors. The oldest are forgotten.
    former: VecDeque<(u16, u32, &'static str)>,
    /// Empty storage without a number: of tables that could not be announced, and of tables that
    /// were dropped in a node of a cluster.
    unused: Vec<Storage<E>>,
}

impl<E: Engine> Count<E> {
    /// Returns the identity of the next table that a log records.
    fn unused_id(&self) -> Result<u16, Error> {
        if self.next_id == MOST_IDS {
            return Err(Error::TooManyTables { most: MOST_IDS.into() });
        }
        Ok(self.next_id)
    }
}

impl<E: Engine> Catalog<E> {
    pub(crate) fn new(database: u32, for_peers: bool) -> Self {
        let tables = (0..MOST_TABLES).map(|_| OnceLock::new()).collect();
        let infos = (0..MOST_TABLES).map(|_| OnceLock::new()).collect();
        let count =
            Count { tables: 0, next_id: 0, for_peers, spare: Vec::new(), former: VecDeque::new(), unused: Vec::new() };
        Self { database, tables, infos, count: Arc::new(Mutex::new(count)), dropped_at: Arc::default() }
    }

    /// Returns the table of a handle, for a transaction that was admitted under this word.
    // The field that marks a dropped table is one that a handle is compared with anyway. It is read
    // before the transaction relies on the table: a thread that drops a table advances the
    // database's count of changes afterwards, and a commit reads that count.
    #[inline(always)]
    pub(crate) fn opened(
        &self,
        database: u32,
        number: u16,
        admitted: impl FnOnce() -> Admission,
    ) -> Result<&Opened<E>, Error> {
        match self.get(number) {
            Some(opened) if opened.database.load(Relaxed) == database => Ok(opened),
            _ => self.not_there(database, number, admitted()),
        }
    }

    /// Returns the table with this number, even if it was dropped.
    #[inline(always)]
    pub(crate) fn get(&self, number: u16) -> Option<&Opened<E>> {
        self.tables.get(usize::from(number))?.get()
    }

    /// Returns the descriptions of tables for a sink, by their numbers.
    #[inline]
    pub(crate) fn infos(&self) -> &[OnceLock<TableInfo>] {
        &self.infos
    }

    /// Returns where a row is, if it was prefetched.
    #[inline(always)]
    pub(crate) fn located<O: Reach>(&self, located: &mut Located, table: u16, word: u64) -> Option<Handle> {
        if located.is_empty() {
            return None;
        }
        if located.step() {
            self.advance_prefetches(located, false);
        }
        if !O::HASHED {
            return None;
        }
        match located.find(table, word) {
            Whereabouts::Record(at) => Some(at),
            Whereabouts::Unknown => None,
            Whereabouts::Bucket(_) => self.located_in_time(located, table, word),
        }
    }

    /// Prefetches records of rows whose buckets were prefetched, if they are due, or if this row is
    /// the next and one of them. Returns whether some were.
    #[inline(never)]
    pub(crate) fn flush_prefetch(&self, located: &mut Located, table: u16, word: u64) -> bool {
        if located.step() {
            self.advance_prefetches(located, false);
            return true;
        }
        let is_waiting = |located: &Located| matches!(located.next(table, word), Some(Whereabouts::Bucket(_)));
        is_waiting(located) && {
            self.advance_prefetches(located, true);
            !is_waiting(located)
        }
    }

    /// Returns where a row is whose record was not prefetched yet. First prefetches the records of
    /// all waiting rows.
    #[cold]
    #[inline(never)]
    fn located_in_time(&self, located: &mut Located, table: u16, word: u64) -> Option<Handle> {
        self.advance_prefetches(located, true);
        match located.find(table, word) {
            Whereabouts::Record(at) => Some(at),
            Whereabouts::Bucket(_) | Whereabouts::Unknown => None,
        }
    }

    /// Prefetches the records of rows whose buckets are due. `is_needed` says that the transaction
    /// accesses a waiting row: then all of them are due.
    #[inline(never)]
    pub(crate) fn advance_prefetches(&self, located: &mut Located, is_needed: bool) {
        located.advance(is_needed, |table, asked| self.get(table).map_or(Left::NOTHING, |table| table.locate(asked)));
    }

    /// Returns the open tables and their numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u16, &Opened<E>)> {
        self.made().filter(|(_, table)| table.stands(OPEN))
    }

    fn made(&self) -> impl Iterator<Item = (u16, &Opened<E>)> {
        (0..).zip(self.tables.iter().map_while(OnceLock::get))
    }

    /// Returns the identity of a table.
    pub(crate) fn id(&self, number: u16) -> Option<u16> {
        Some(self.infos.get(usize::from(number))?.get()?.id())
    }

    /// Returns the table with this identity, if it was recovered.
    pub(crate) fn with_id(&self, id: u16) -> Option<&Opened<E>> {
        // Without the lock of a table's identity: recovery looks each row's table up.
        let is_it = |info: &TableInfo| info.id() == id && !info.is_index();
        let has_it = |number: u16| self.infos[usize::from(number)].get().is_some_and(is_it);
        self.all().find(|(number, _)| has_it(*number)).map(|(_, table)| table)
    }

    /// Returns what a log records of all tables that were announced before this, and the identity
    /// of the next table.
    pub(crate) fn recorded(&self) -> (Vec<Recorded>, u16) {
        let count = self.count.lock();
        let recorded = self.all().filter_map(|(number, table)| {
            let (id, shape) = (self.id(number)?, table.shape()?);
            let shape = TableShape { name: table.name.get().to_owned(), ..shape };
            Some(Recorded { number, id, shape, indexes: table.indexes.logged() })
        });
        (recorded.collect(), count.next_id)
    }

    /// Sets the least identity of tables to come.
    pub(crate) fn begin_identities_at(&self, id: u16) {
        let mut count = self.count.lock();
        count.next_id = count.next_id.max(id);
    }

    /// Creates a table that a log has recorded. It has no types until it is opened.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyTables`], or when memory has run out.
    pub(crate) fn restore(
        &self,
        store: &Store<E>,
        id: u16,
        shape: TableShape,
        indexes: Vec<String>,
    ) -> Result<(), Error> {
        self.add_untyped(&mut self.count.lock(), store, (id, shape, indexes))
    }

    fn add_untyped(
        &self,
        count: &mut Count<E>,
        store: &Store<E>,
        (id, shape, indexes): (u16, TableShape, Vec<String>),
    ) -> Result<(), Error> {
        let size = |size: Option<u32>| size.map(|size| size as usize);
        let (key_size, value_size) = (size(shape.key_size), size(shape.value_size));
        let fits = key_size.is_some_and(|size| size <= size_of::<u64>());
        let place = self.place(count, store, (shape.is_ordered, fits), 0)?;
        let (name, key_size) = (name::kept(&shape.name), key_size.unwrap_or(0));
        let identity = Identity { types: None, shape: Some(shape) };
        let new = NewTable { name, id, key_size, value_size, is_index: false, identity };
        let number = self.put(count, place, new);
        if let Some(opened) = self.get(number) {
            opened.indexes.begin_with(indexes);
        }
        count.next_id = count.next_id.max(id.saturating_add(1));
        Ok(())
    }

    /// Returns the table of this name that is shaped as another one, and creates it if there is
    /// none. Before it is created, `announce` gets its identity and shape. It has no types. `None`
    /// if the other one is an index's, which has no shape.
    ///
    /// # Errors
    ///
    /// [`Error::OtherTypes`], [`Error::TooManyTables`]; or when memory has run out.
    pub(crate) fn replica(
        &self,
        store: &Store<E>,
        (name, of): (&str, &Opened<E>),
        announce: impl FnOnce(u16, TableShape) -> Result<(), Error>,
    ) -> Result<Option<&Opened<E>>, Error> {
        let Some(shape) = of.shape().map(|shape| TableShape { name: name.to_owned(), ..shape }) else {
            return Ok(None);
        };
        let mut count = self.count.lock();
        if let Some(table) = self.named(name) {
            return match &table.shape() {
                Some(its) if its.is_as(&shape) => Ok(Some(table)),
                its => {
                    let is = its.as_ref().map_or_else(String::new, ToString::to_string);
                    Err(Error::OtherTypes { name: table.name.get(), is, asked: shape.to_string() })
                }
            };
        }
        let id = count.unused_id()?;
        announce(id, shape.clone())?;
        self.add_untyped(&mut count, store, (id, shape, Vec::new()))?;
        Ok(self.named(name))
    }

    /// Returns a handle of the table with this definition. `None` if there is no table of its name.
    ///
    /// # Errors
    ///
    /// [`Error::OtherTypes`] if a table of its name has other types.
    pub(crate) fn find<K: Key, C: Codec, O: Kind>(
        &self,
        def: TableDef<K, C, O>,
        types: &Types,
    ) -> Result<Option<Table<K, C, O>>, Error> {
        for (number, table) in self.all() {
            let used_as = table.used_as();
            if table.name.get() != def.name() {
                continue;
            }
            let is_it = table.give_types(def, types);
            // Otherwise it was dropped meanwhile, and the number is another table's.
            if table.used_as() == used_as {
                return is_it.map(|()| Some(Table::new(used_as, number)));
            }
        }
        Ok(None)
    }

    /// Returns a handle of the table with this definition, and creates it if there is none.
    /// Before it is created, `announce` gets its identity and shape, unless it is an index's table.
    pub(crate) fn open<K: Key, C: Codec, O: Kind>(
        &self,
        store: &Store<E>,
        (def, types): (TableDef<K, C, O>, Types),
        announce: impl FnOnce(u16, TableShape) -> Result<(), Error>,
    ) -> Result<Table<K, C, O>, Error> {
        let mut count = self.count.lock();
        if let Some(table) = self.find(def, &types)? {
            return Ok(table);
        }
        let has_types = |table: &Opened<E>| table.types().is_some_and(|its| its.are_as(&types));
        let is_the_same = |table: &Opened<E>| table.stands(EMPTY) && table.name.get() == def.name() && has_types(table);
        if let Some((number, table)) = self.made().find(|(_, table)| is_the_same(table)) {
            table.standing.store(OPEN, SeqCst);
            return Ok(Table::new(table.used_as(), number));
        }
        let id = if types.is_index() { count.next_id } else { count.unused_id()? };
        let place = self.place(&mut count, store, (O::ORDERED, K::FITS), def.rows)?;
        let (is_index, key_size) = (types.is_index(), K::SIZE.unwrap_or(0));
        let shape = (!is_index).then(|| def.shape());
        if let Some(shape) = &shape {
            if let Err(error) = announce(id, shape.clone()) {
                count.give_back(place);
                return Err(error);
            }
            count.next_id += 1;
        }
        let identity = Identity { types: Some(types), shape };
        let new = NewTable { name: def.name(), id, key_size, value_size: C::SIZE, is_index, identity };
        let number = self.put(&mut count, place, new);
        event!(debug, table = def.name(), is_ordered = O::ORDERED, "a table has been made");
        Ok(Table::new(self.get(number).map_or(self.database, Opened::used_as), number))
    }
}
