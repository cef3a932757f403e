//! Reads that a savepoint does not undo: a transaction validates what it has read, even where the
//! write that read it was undone.

use drtm_htm::NoHtm;
use drtm_txn::{Builder, Conflict, Db, Entry, Error, Mutation, Ordered, Pod, Table, TableDef, Tx};

use crate::{On, with_fault};

const WORDS: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("words");
const NAMES: TableDef<Vec<u8>, Pod<u64>> = TableDef::hash("names");

type Transaction<'db> = Tx<'db, On<NoHtm>>;

#[derive(Clone, Copy)]
struct Tables {
    words: Table<u64, Pod<u64>, Ordered>,
    names: Table<Vec<u8>, Pod<u64>>,
}

impl Tables {
    const NAME: &[u8] = b"a name that is longer than a word";
    const NO_NAME: &[u8] = b"another name that is longer than a word";

    fn new(db: &Db<On<NoHtm>>) -> Result<Self, Error> {
        let tables = Self { words: db.table(WORDS)?, names: db.table(NAMES)? };
        db.transact(|tx| {
            (0..100).try_for_each(|key| tx.put(tables.words, key, &key))?;
            tx.put(tables.names, Self::NAME, &1)
        })?;
        Ok(tables)
    }
}

/// Writes a row, and by that reads it, or its absence.
type Write = fn(&mut Transaction<'_>, Tables) -> Result<(), Error>;

/// Each write, and one of the same row by another transaction.
const WRITES: [(&str, Write, Write); 9] = [
    ("update", |tx, on| tx.update(on.words, 1, |value| *value += 1).map(drop), put_word),
    ("remove", |tx, on| tx.remove(on.words, 1).map(drop), put_word),
    ("put what was read", |tx, on| tx.get(on.words, 1).and_then(|_| tx.put(on.words, 1, &2)), put_word),
    ("update the next", |tx, on| tx.range_mut(on.words, 1..)?.update_next(|_, value| *value += 1).map(drop), put_word),
    ("remove the next", |tx, on| tx.range_mut(on.words, 1..)?.remove_next().map(drop), put_word),
    ("update each", |tx, on| tx.range_mut(on.words, 1..=1)?.update_each(|_, value| *value += 1), put_word),
    ("update a name", |tx, on| tx.update(on.names, Tables::NAME, |value| *value += 1).map(drop), put_name),
    (
        "remove an entry",
        |tx, on| match tx.entry(on.names, Tables::NAME)? {
            Entry::Occupied(row) => row.remove().map(drop),
            Entry::Vacant(_) => unreachable!("it is there"),
        },
        put_name,
    ),
    (
        "insert a name",
        |tx, on| tx.insert(on.names, Tables::NO_NAME, &7),
        |tx, on| tx.insert(on.names, Tables::NO_NAME, &1),
    ),
];

fn put_word(tx: &mut Transaction<'_>, on: Tables) -> Result<(), Error> {
    tx.put(on.words, 1, &77)
}

fn put_name(tx: &mut Transaction<'_>, on: Tables) -> Result<(), Error> {
    tx.put(on.names, Tables::NAME, &77)
}

/// Runs a write, undoes it, lets another transaction write the row, and commits.
fn undone(write: Write, of_other: Write) -> Result<(), Error> {
    let db = Builder::new().memory(16 << 20).build_with(NoHtm)?;
    let tables = Tables::new(&db)?;
    let mut tx = db.begin()?;
    tx.put(tables.words, 50, &1)?;
    let before = tx.savepoint();
    write(&mut tx, tables)?;
    tx.return_to(before)?;
    db.transact(|tx| of_other(tx, tables))?;
    tx.commit()
}

#[test]
fn what_an_undone_write_has_read_is_validated() {
    for (name, write, of_other) in WRITES {
        let ended = undone(write, of_other);
        let is_conflict =
            matches!(ended, Err(Error::Conflict(Conflict::Validation | Conflict::Phantom | Conflict::Moved)));
        assert!(is_conflict, "{name}: {ended:?}");
        let forgotten = with_fault(Mutation::UndoneReadsForgotten, || undone(write, of_other));
        assert!(forgotten.is_ok(), "{name}: the fault is not noticed: {forgotten:?}");
    }
}
