//! The tables of a database: found by number, without a lock; opened by name.

mod change;

use std::sync::{
    Arc, OnceLock,
    atomic::{
        AtomicU8, AtomicU32, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
};

pub(crate) use self::change::Dropped;
use crate::{
    Codec, Error, Key, TableDef,
    durability::format::TableShape,
    located::{Asked, Left, Located},
    name::{self, Name},
    secondary::Indexes,
    storage::{KeyRef, Storage},
    sync::Mutex,
    table::{Kind, Reach, TableInfo, Types},
    trace::event,
};
use drtm_htm::Engine;
use drtm_kv::{AsOf, Handle, KvError, Past, PrefetchMask, Store, ValueSink, Version, Whereabouts, Worker};

/// The most tables that a database can have, those of indexes and dropped ones included. No number
/// is used twice, so that a handle of a table that was dropped never leads to another.
pub(crate) const MOST_TABLES: usize = 1024;

/// The most identities that tables can have as long as there is a log of them. None is used twice.
pub(crate) const MOST_IDS: u16 = u16::MAX;

/// In place of a database: the table was dropped.
const NO_DATABASE: u32 = u32::MAX;

/// A table that is open.
#[derive(Debug)]
pub(crate) struct Opened<E: Engine> {
    pub(crate) number: u16,
    /// The database that the table is in, until it is dropped: what a handle is compared with.
    database: AtomicU32,
    pub(crate) name: Name,
    pub(crate) storage: Storage<E>,
    /// Bytes of a key that packs into a word.
    pub(crate) key_size: usize,
    /// Bytes of a value, if all have as many.
    pub(crate) value_size: Option<usize>,
    pub(crate) indexes: Indexes,
    /// The first moment from which on it is whole: a snapshot that ends before does not see all of
    /// an index that was made from rows later.
    pub(crate) whole_since: AtomicU64,
    standing: AtomicU8,
    /// What it was opened with. A table that was recovered has no types until it is opened.
    types: OnceLock<Types>,
    /// What identifies it over a restart, unless it is an index's.
    shape: Option<TableShape>,
}

/// It can be found by its name.
const OPEN: u8 = 0;
/// It was the table of an index that could not be made. It is empty, and can be used by the same
/// again.
const EMPTY: u8 = 1;
/// The same, but something is left in it, so it is of no use any more.
const LOST: u8 = 2;
/// It was dropped.
const DROPPED: u8 = 3;

impl<E: Engine> Opened<E> {
    fn new(info: &TableInfo, storage: Storage<E>, value_size: Option<usize>) -> Self {
        Self {
            number: 0,
            database: AtomicU32::new(NO_DATABASE),
            name: info.name.clone(),
            storage,
            key_size: info.key_size,
            value_size,
            indexes: Indexes::default(),
            whole_since: AtomicU64::new(0),
            standing: AtomicU8::new(OPEN),
            types: OnceLock::new(),
            shape: None,
        }
    }

    fn stands(&self, standing: u8) -> bool {
        self.standing.load(Relaxed) == standing
    }

    /// Opens the table with these types, if it has them, or was recovered as a table of this shape.
    fn give_types(&self, types: &Types, shape: &TableShape) -> Result<(), Error> {
        let is_other = |is: String, asked: String| Err(Error::OtherTypes { name: self.name.get(), is, asked });
        match (self.types.get(), &self.shape) {
            (Some(its), _) if its.are_as(types) => Ok(()),
            (Some(its), _) => is_other(its.to_string(), types.to_string()),
            (None, Some(its)) if its.is_as(shape) && !types.is_index() => {
                self.types.get_or_init(|| types.clone());
                Ok(())
            }
            (None, its) => is_other(its.as_ref().map_or_else(String::new, ToString::to_string), shape.to_string()),
        }
    }

    /// Takes the table's name from it.
    pub(crate) fn retire(&self, is_empty: bool) {
        self.standing.store(if is_empty { EMPTY } else { LOST }, SeqCst);
    }

    /// Reads what a row was before a version, from where it was located if it was.
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

    /// Asks for records whose buckets were asked for.
    #[inline(always)]
    fn locate(&self, asked: Asked<'_>) -> Left {
        match &self.storage {
            Storage::HashOfWords(table) => asked.locate(|word, bucket, lines| table.locate(word, bucket, lines)),
            _ => Left::NOTHING,
        }
    }

    /// Asks for the memory of rows that are going to be read, as far as it is wanted. In a tree it
    /// is asked for the leaves where the keys belong.
    #[inline(always)]
    pub(crate) fn prefetch<O: Reach>(
        &self,
        worker: &mut Worker<E>,
        located: &mut Located,
        words: &[u64],
        lines: &'static PrefetchMask,
        go_on: impl FnOnce(&mut Located),
    ) {
        match &self.storage {
            Storage::TreeOfWords(tree) if O::SORTED => words.iter().for_each(|word| tree.prefetch(worker, *word)),
            Storage::HashOfWords(table) if O::HASHED => {
                let rows = table.prefetch(words.iter().copied());
                if !located.note(self.number, rows, lines, go_on) {
                    // Not remembered, but asked for all the same.
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
    /// Which database of this process it is of.
    database: u32,
    tables: Arc<[OnceLock<Opened<E>>]>,
    /// What a sink is told of them, by their numbers.
    infos: Arc<[OnceLock<TableInfo>]>,
    /// How many there are. Held while one is made, renamed or dropped, so that no name is made
    /// twice.
    count: Arc<Mutex<Count<E>>>,
    /// Which change of the database's terms was the last by which a table was dropped.
    dropped_at: Arc<AtomicU64>,
}

impl<E: Engine> Clone for Catalog<E> {
    fn clone(&self) -> Self {
        let Self { database, tables, infos, count, dropped_at } = self;
        let (tables, infos, count) = (Arc::clone(tables), Arc::clone(infos), Arc::clone(count));
        Self { database: *database, tables, infos, count, dropped_at: Arc::clone(dropped_at) }
    }
}

/// What a log has of a table.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) number: u16,
    pub(crate) id: u16,
    pub(crate) shape: TableShape,
    pub(crate) indexes: Vec<String>,
}

#[derive(Debug)]
struct Count<E: Engine> {
    /// Tables, those of indexes included.
    tables: usize,
    /// The identity of the next table that is none of an index. None is used twice.
    next_id: u16,
    /// Whether peers read rows by themselves.
    for_peers: bool,
    /// What tables were kept in that were dropped. There is nothing in it.
    spare: Vec<Storage<E>>,
}

impl<E: Engine> Count<E> {
    /// Returns storage for a table of about so many rows.
    fn storage(
        &mut self,
        store: &Store<E>,
        (is_ordered, fits): (bool, bool),
        rows: u64,
    ) -> Result<Storage<E>, KvError> {
        match self.spare.iter().position(|spare| spare.is_as(is_ordered, fits)) {
            Some(at) if rows == 0 => Ok(self.spare.swap_remove(at)),
            _ => Storage::create(store, is_ordered, fits, rows, self.for_peers),
        }
    }
}

impl<E: Engine> Catalog<E> {
    pub(crate) fn new(database: u32, for_peers: bool) -> Self {
        let tables = (0..MOST_TABLES).map(|_| OnceLock::new()).collect();
        let infos = (0..MOST_TABLES).map(|_| OnceLock::new()).collect();
        let count = Count { tables: 0, next_id: 0, for_peers, spare: Vec::new() };
        Self { database, tables, infos, count: Arc::new(Mutex::new(count)), dropped_at: Arc::default() }
    }

    /// Returns the table of a handle.
    // What says that the table was dropped is what a handle's database is compared with anyway. It
    // is read before the transaction relies on it: whoever drops a table tells so by the database's
    // terms afterwards, which a commit reads.
    #[inline(always)]
    pub(crate) fn opened(&self, database: u32, number: u16) -> Result<&Opened<E>, Error> {
        match self.get(number) {
            Some(opened) if opened.database.load(Relaxed) == database => Ok(opened),
            _ => self.not_there(database, number),
        }
    }

    /// Returns the table with this number, be it that it was dropped.
    #[inline(always)]
    pub(crate) fn get(&self, number: u16) -> Option<&Opened<E>> {
        self.tables.get(usize::from(number))?.get()
    }

    /// What a sink is told of tables, by their numbers.
    #[inline]
    pub(crate) fn infos(&self) -> &[OnceLock<TableInfo>] {
        &self.infos
    }

    /// Where a row is, if it was asked for.
    #[inline(always)]
    pub(crate) fn located<O: Reach>(&self, located: &mut Located, table: u16, word: u64) -> Option<Handle> {
        if located.is_empty() {
            return None;
        }
        if located.step() {
            self.go_on(located, false);
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

    /// Asks for records of rows whose buckets were asked for, if it is time, or if this row, which
    /// is come to next, is one of them. Whether some were.
    #[inline(never)]
    pub(crate) fn flush_prefetch(&self, located: &mut Located, table: u16, word: u64) -> bool {
        if located.step() {
            self.go_on(located, false);
            return true;
        }
        let is_waiting = |located: &Located| matches!(located.next(table, word), Some(Whereabouts::Bucket(_)));
        is_waiting(located) && {
            self.go_on(located, true);
            !is_waiting(located)
        }
    }

    /// Where a row is whose record is yet to be asked for, as those of all of the table that are:
    /// it is time.
    #[cold]
    #[inline(never)]
    fn located_in_time(&self, located: &mut Located, table: u16, word: u64) -> Option<Handle> {
        self.go_on(located, true);
        match located.find(table, word) {
            Whereabouts::Record(at) => Some(at),
            Whereabouts::Bucket(_) | Whereabouts::Unknown => None,
        }
    }

    /// Asks for records of rows whose buckets were asked for a while ago; of all if the transaction
    /// `is_come_to` one of them.
    #[inline(never)]
    pub(crate) fn go_on(&self, located: &mut Located, is_come_to: bool) {
        located.go_on(is_come_to, |table, asked| self.get(table).map_or(Left::NOTHING, |table| table.locate(asked)));
    }

    /// Those that are open, and their numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u16, &Opened<E>)> {
        self.made().filter(|(_, table)| table.stands(OPEN))
    }

    fn made(&self) -> impl Iterator<Item = (u16, &Opened<E>)> {
        (0..).zip(self.tables.iter().map_while(OnceLock::get))
    }

    /// Returns the identity of a table.
    pub(crate) fn id(&self, number: u16) -> Option<u16> {
        Some(self.infos.get(usize::from(number))?.get()?.id)
    }

    /// Returns the table with this identity, if it was recovered.
    pub(crate) fn with_id(&self, id: u16) -> Option<&Opened<E>> {
        let number = self.infos.iter().position(|info| info.get().is_some_and(|info| info.id == id && !info.is_index));
        self.tables.get(number?)?.get()
    }

    /// Returns what a log has of all tables that were announced before this, and the identity of
    /// the next one.
    pub(crate) fn recorded(&self) -> (Vec<Recorded>, u16) {
        let count = self.count.lock();
        let recorded = self.all().filter_map(|(number, table)| {
            let (id, shape) = (self.id(number)?, table.shape.clone()?);
            let shape = TableShape { name: table.name.get().to_owned(), ..shape };
            Some(Recorded { number, id, shape, indexes: table.indexes.logged() })
        });
        (recorded.collect(), count.next_id)
    }

    /// Lets no table get an identity below this.
    pub(crate) fn begin_identities_at(&self, id: u16) {
        let mut count = self.count.lock();
        count.next_id = count.next_id.max(id);
    }

    /// Makes a table that a log has, and which has no types until it is opened.
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
        let mut count = self.count.lock();
        let size = |size: Option<u32>| size.map(|size| size as usize);
        let (key_size, value_size) = (size(shape.key_size), size(shape.value_size));
        let fits = key_size.is_some_and(|size| size <= size_of::<u64>());
        let storage = count.storage(store, (shape.is_ordered, fits), 0)?;
        let name = Name::new(name::kept(&shape.name));
        let info = TableInfo { id, name, key_size: key_size.unwrap_or(0), is_index: false };
        let opened = Opened {
            indexes: Indexes::recorded(indexes),
            shape: Some(shape),
            ..Opened::new(&info, storage, value_size)
        };
        self.add(&mut count, info, opened)?;
        count.next_id = count.next_id.max(id.saturating_add(1));
        Ok(())
    }

    /// Adds a table behind all others.
    fn add(&self, count: &mut Count<E>, info: TableInfo, opened: Opened<E>) -> Result<u16, Error> {
        let number = count.tables;
        let Some(slot) = self.tables.get(number) else { return Err(Error::TooManyTables { most: MOST_TABLES }) };
        self.infos[number].get_or_init(|| info);
        slot.get_or_init(|| Opened { number: number as u16, database: self.database.into(), ..opened });
        count.tables += 1;
        Ok(number as u16)
    }

    /// Returns the number of the table that is defined like this, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::OtherTypes`] if there is another of its name.
    pub(crate) fn find<K: Key, C: Codec, O: Kind>(
        &self,
        def: TableDef<K, C, O>,
        types: &Types,
    ) -> Result<Option<u16>, Error> {
        let Some((number, table)) = self.all().find(|(_, table)| table.name.get() == def.name()) else {
            return Ok(None);
        };
        table.give_types(types, &def.shape())?;
        Ok(Some(number))
    }

    /// The number of the table that is defined like this, which is made if there is none. Before it
    /// is, `announce` is told its identity and shape, unless it is the table of an index.
    pub(crate) fn open<K: Key, C: Codec, O: Kind>(
        &self,
        store: &Store<E>,
        (def, types): (TableDef<K, C, O>, Types),
        announce: impl FnOnce(u16, TableShape) -> Result<(), Error>,
    ) -> Result<u16, Error> {
        let mut count = self.count.lock();
        if let Some(number) = self.find(def, &types)? {
            return Ok(number);
        }
        let has_types = |table: &Opened<E>| table.types.get().is_some_and(|its| its.are_as(&types));
        let is_the_same = |table: &Opened<E>| table.stands(EMPTY) && table.name.get() == def.name() && has_types(table);
        if let Some((number, table)) = self.made().find(|(_, table)| is_the_same(table)) {
            table.standing.store(OPEN, SeqCst);
            return Ok(number);
        }
        if count.tables == MOST_TABLES {
            return Err(Error::TooManyTables { most: MOST_TABLES });
        }
        if count.next_id == MOST_IDS && !types.is_index() {
            return Err(Error::TooManyTables { most: MOST_IDS.into() });
        }
        let storage = count.storage(store, (O::ORDERED, K::FITS), def.rows)?;
        let (name, key_size) = (Name::new(def.name()), K::SIZE.unwrap_or(0));
        let info = TableInfo { id: count.next_id, name, key_size, is_index: types.is_index() };
        let shape = (!types.is_index()).then(|| def.shape());
        if let Some(shape) = &shape {
            if let Err(error) = announce(info.id, shape.clone()) {
                count.spare.push(storage);
                return Err(error);
            }
            count.next_id += 1;
        }
        let opened = Opened { types: types.into(), shape, ..Opened::new(&info, storage, C::SIZE) };
        let number = self.add(&mut count, info, opened)?;
        drop(count);
        event!(debug, table = def.name(), is_ordered = O::ORDERED, "a table has been made");
        Ok(number)
    }
}
