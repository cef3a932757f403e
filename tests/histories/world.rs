//! A database with a table of each shape. Rows are named by small numbers, and a value identifies
//! its write.

use std::ops::{Bound, ControlFlow, RangeBounds};

use drtm_txn::{Config, Db, Error, Ordered, Raw, Table, TableDef, Tx};

/// A key longer than a word. All but the shortest share a prefix, so that a tree needs layers.
type Name = Vec<u8>;

const WORDS: TableDef<u64, Raw> = TableDef::hash("words");
const NAMES: TableDef<Name, Raw> = TableDef::hash("names");
const SORTED_WORDS: TableDef<u64, Raw, Ordered> = TableDef::ordered("sorted words");
const SORTED_NAMES: TableDef<Name, Raw, Ordered> = TableDef::ordered("sorted names");

/// A row: its table, and its key's number, in the order of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) table: u32,
    pub(crate) key: u64,
}

/// The number of tables: two hash tables, and two ordered ones.
pub(crate) const TABLES: u32 = 4;

/// The first of the ordered tables.
pub(crate) const FIRST_SORTED: u32 = 2;

impl Place {
    /// Returns the place of a row that a hook received.
    pub(crate) fn of(table: &str, key: &[u8]) -> Self {
        let known = [WORDS.name(), NAMES.name(), SORTED_WORDS.name(), SORTED_NAMES.name()];
        let table = known.iter().position(|name| *name == table).expect("one of the tables") as u32;
        let key = match key.try_into() {
            Ok(word) if table == 0 || table == FIRST_SORTED => u64::from_be_bytes(word),
            _ => number(key),
        };
        Self { table, key }
    }
}

fn name(key: u64) -> Name {
    let prefix = if key < 2 { "" } else { "the same for all " };
    format!("{prefix}{key:03}{}", "and on".repeat(key as usize % 3)).into_bytes()
}

fn number(name: &[u8]) -> u64 {
    let text = std::str::from_utf8(name).expect("written above");
    let digits = text.trim_start_matches("the same for all ").get(..3).expect("three digits");
    digits.parse().expect("digits")
}

/// Bytes of the shortest values.
pub(crate) const SHORTEST: usize = 8;

/// Returns the value of a write. Half of the values are longer than the others, so that rows move.
pub(crate) fn value(write: u64) -> Vec<u8> {
    let length = [0, 0, 0, 3, 90, 300][write as usize % 6];
    let mut value = write.to_le_bytes().to_vec();
    value.resize(SHORTEST + length, write as u8);
    value
}

/// Returns the write that a value belongs to. Asserts that the value is not torn.
pub(crate) fn value_of(bytes: &[u8]) -> u64 {
    let write = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    assert_eq!(bytes, value(write), "a torn value");
    write
}

/// A database with its tables.
#[derive(Debug)]
pub(crate) struct World<S: Config> {
    pub(crate) db: Db<S>,
    words: Table<u64, Raw>,
    names: Table<Name, Raw>,
    sorted_words: Table<u64, Raw, Ordered>,
    sorted_names: Table<Name, Raw, Ordered>,
}

/// Runs an expression with a place's table and key.
macro_rules! at {
    ($world:expr, $place:expr, |$table:ident, $key:ident| $body:expr) => {{
        let (world, Place { table, key }) = ($world, $place);
        match table {
            0 => {
                let ($table, $key) = (world.words, &key);
                $body
            }
            1 => {
                let ($table, $key) = (world.names, &name(key));
                $body
            }
            2 => {
                let ($table, $key) = (world.sorted_words, &key);
                $body
            }
            _ => {
                let ($table, $key) = (world.sorted_names, &name(key));
                $body
            }
        }
    }};
}

/// Runs an expression with the rows of a table's range.
macro_rules! in_range {
    ($world:expr, $tx:ident.$method:ident, $table:expr, $range:expr, $is_up:expr, $walk:ident) => {
        match $table {
            FIRST_SORTED => {
                let table = $world.sorted_words;
                let rows = $tx.$method(table, $range)?;
                $walk!(if $is_up { rows } else { rows.rev() }, |key| key)
            }
            _ => {
                let (low, high) = $range;
                let (table, named) = ($world.sorted_names, (low.map(name), high.map(name)));
                let rows = $tx.$method(table, named)?;
                $walk!(if $is_up { rows } else { rows.rev() }, |key: Name| number(&key))
            }
        }
    };
}

impl<S: Config> World<S> {
    pub(crate) fn new(db: Db<S>) -> Self {
        Self {
            words: db.table(WORDS).expect("memory"),
            names: db.table(NAMES).expect("memory"),
            sorted_words: db.table(SORTED_WORDS).expect("memory"),
            sorted_names: db.table(SORTED_NAMES).expect("memory"),
            db,
        }
    }

    pub(crate) fn get(&self, tx: &mut Tx<'_, S>, place: Place) -> Result<Option<u64>, Error> {
        Ok(at!(self, place, |table, key| tx.get(table, key))?.map(|value| value_of(&value)))
    }

    pub(crate) fn view(&self, tx: &mut Tx<'_, S>, place: Place) -> Result<Option<u64>, Error> {
        at!(self, place, |table, key| tx.view(table, key, value_of))
    }

    pub(crate) fn contains(&self, tx: &mut Tx<'_, S>, place: Place) -> Result<bool, Error> {
        at!(self, place, |table, key| tx.contains(table, key))
    }

    pub(crate) fn put(&self, tx: &mut Tx<'_, S>, place: Place, write: u64) -> Result<(), Error> {
        at!(self, place, |table, key| tx.put(table, key, &value(write)))
    }

    /// Inserts a row. Returns whether it was absent.
    pub(crate) fn insert(&self, tx: &mut Tx<'_, S>, place: Place, write: u64) -> Result<bool, Error> {
        match at!(self, place, |table, key| tx.insert(table, key, &value(write))) {
            Ok(()) => Ok(true),
            Err(Error::Exists { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Inserts rows of consecutive keys, all or none. Returns whether all were absent.
    pub(crate) fn insert_many(&self, tx: &mut Tx<'_, S>, first: Place, writes: &[u64]) -> Result<bool, Error> {
        let before = tx.savepoint();
        let values: Vec<_> = writes.iter().map(|write| value(*write)).collect();
        let rows = (first.key..).zip(values.iter().map(Vec::as_slice));
        let named = rows.clone().map(|(key, value)| (name(key), value));
        let inserted = match first.table {
            0 => tx.insert_many(self.words, rows),
            1 => tx.insert_many(self.names, named),
            2 => tx.insert_many(self.sorted_words, rows),
            _ => tx.insert_many(self.sorted_names, named),
        };
        match inserted {
            Ok(()) => Ok(true),
            Err(Error::Exists { .. }) => tx.return_to(before).map(|()| false),
            Err(error) => Err(error),
        }
    }

    /// Updates a row. Returns its old write.
    pub(crate) fn update(&self, tx: &mut Tx<'_, S>, place: Place, write: u64) -> Result<Option<u64>, Error> {
        at!(self, place, |table, key| tx.update(table, key, |bytes| {
            let was = value_of(bytes);
            *bytes = value(write);
            was
        }))
    }

    pub(crate) fn remove(&self, tx: &mut Tx<'_, S>, place: Place) -> Result<bool, Error> {
        at!(self, place, |table, key| tx.remove(table, key).map(|row| row.is_some()))
    }

    pub(crate) fn take(&self, tx: &mut Tx<'_, S>, place: Place) -> Result<Option<u64>, Error> {
        Ok(at!(self, place, |table, key| tx.remove(table, key))?.map(|value| value_of(&value)))
    }

    /// Calls `see` with the rows of a table until it returns `false`.
    pub(crate) fn walk(
        &self,
        tx: &mut Tx<'_, S>,
        table: u32,
        mut see: impl FnMut(u64, u64) -> bool,
    ) -> Result<(), Error> {
        let mut see = |key, value: &[u8]| {
            if see(key, value_of(value)) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        match table {
            0 => tx.walk(self.words, see),
            1 => tx.walk(self.names, |key, value| see(number(&key), value)),
            2 => tx.walk(self.sorted_words, see),
            _ => tx.walk(self.sorted_names, |key, value| see(number(&key), value)),
        }
    }

    /// Removes the rows of a table that `keep` rejects.
    pub(crate) fn retain(
        &self,
        tx: &mut Tx<'_, S>,
        table: u32,
        mut keep: impl FnMut(u64, u64) -> bool,
    ) -> Result<u64, Error> {
        let mut keep = |key, value: &[u8]| keep(key, value_of(value));
        match table {
            0 => tx.retain(self.words, |key, value| keep(*key, value)),
            1 => tx.retain(self.names, |key, value| keep(number(key), value)),
            2 => tx.retain(self.sorted_words, |key, value| keep(*key, value)),
            _ => tx.retain(self.sorted_names, |key, value| keep(number(key), value)),
        }
    }

    /// Calls `see` with the rows of a range until it returns `false`.
    pub(crate) fn range(
        &self,
        tx: &mut Tx<'_, S>,
        table: u32,
        range: (Bound<u64>, Bound<u64>),
        is_up: bool,
        mut see: impl FnMut(u64, u64) -> bool,
    ) -> Result<(), Error> {
        macro_rules! walk {
            ($rows:expr, $number:expr) => {{
                let mut rows = $rows;
                // Views the first row by itself, and the others by `view_each`.
                let Some((key, write)) = rows.view_next(value_of)? else { return Ok(()) };
                if see($number(key), write) {
                    rows.view_each(|key, value| {
                        if see($number(key), value_of(value)) {
                            ControlFlow::Continue(())
                        } else {
                            ControlFlow::Break(())
                        }
                    })?;
                }
            }};
        }
        in_range!(self, tx.range, table, range, is_up, walk);
        Ok(())
    }

    /// Writes the rows of a range one by one. Calls `see` with their old writes.
    pub(crate) fn change_range(
        &self,
        tx: &mut Tx<'_, S>,
        table: u32,
        range: (Bound<u64>, Bound<u64>),
        is_up: bool,
        writes: &[u64],
        mut see: impl FnMut(u64, u64),
    ) -> Result<(), Error> {
        let mut writes = writes.iter().copied().peekable();
        macro_rules! walk {
            ($rows:expr, $number:expr) => {
                $rows.update_each(|key, bytes| {
                    see($number(key.clone()), value_of(bytes));
                    *bytes = value(writes.next().expect("it is told when there are no more"));
                    if writes.peek().is_some() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                })?
            };
        }
        in_range!(self, tx.range_mut, table, range, is_up, walk);
        Ok(())
    }

    /// Returns the first or the last row of a range.
    pub(crate) fn end_of(
        &self,
        tx: &mut Tx<'_, S>,
        table: u32,
        range: (Bound<u64>, Bound<u64>),
        is_first: bool,
    ) -> Result<Option<(u64, u64)>, Error> {
        let named = (range.start_bound().map(|key| name(*key)), range.end_bound().map(|key| name(*key)));
        Ok(match (table, is_first) {
            (FIRST_SORTED, true) => {
                tx.range(self.sorted_words, range)?.first()?.map(|(key, value)| (key, value_of(&value)))
            }
            (FIRST_SORTED, false) => {
                tx.range(self.sorted_words, range)?.last()?.map(|(key, value)| (key, value_of(&value)))
            }
            (_, true) => {
                tx.range(self.sorted_names, named)?.first()?.map(|(key, value)| (number(&key), value_of(&value)))
            }
            (_, false) => {
                tx.range(self.sorted_names, named)?.last()?.map(|(key, value)| (number(&key), value_of(&value)))
            }
        })
    }
}
