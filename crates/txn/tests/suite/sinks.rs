//! Sinks receive every change and nothing else. They may refuse, and may panic.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
};

use drtm_htm::{Emulated, Engine, NoHtm};
use drtm_txn::{
    Builder, Commit, Db, Error, IndexDef, Multi, Ordered, Pod, Raw, RowChange, Sink, SinkError, TableDef, part,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::On;

/// A transaction's change of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Put(Vec<u8>),
    Patch(usize, Vec<u8>),
    Remove,
}

/// A row that a transaction has written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    table: &'static str,
    is_index: bool,
    key: Vec<u8>,
    change: Change,
}

impl Written {
    fn new(table: &'static str, key: impl Into<Vec<u8>>, change: Change) -> Self {
        Self { table, is_index: false, key: key.into(), change }
    }
}

/// Records each transaction, and the last version of each row.
#[derive(Debug, Default)]
struct Notes {
    commits: Mutex<Vec<Vec<Written>>>,
    versions: Mutex<std::collections::HashMap<(u16, Vec<u8>), u64>>,
}

/// A value that the sink refuses, and one that makes it panic.
const REFUSED: &[u8] = b"refused";
const UNHEARD: &[u8] = b"unheard of";

impl Sink for Notes {
    fn commit(&self, commit: &Commit<'_>) -> Result<(), SinkError> {
        let values = || commit.rows().map(|row| row.change());
        if values().any(|change| change == RowChange::Put(REFUSED)) {
            return Err("a value that is refused".into());
        }
        assert!(values().all(|change| change != RowChange::Put(UNHEARD)), "not that");
        let mut versions = self.versions.lock().expect("it panics before it locks");
        for row in commit.rows() {
            let known = versions.insert((row.table_number(), row.key().to_vec()), row.version().number());
            assert!(row.version() > row.previous(), "versions grow");
            assert_eq!(row.version().is_removed(), row.change() == RowChange::Remove);
            if !row.previous().is_removed() {
                assert_eq!(known, Some(row.previous().number()), "no version is passed over");
            }
        }
        let written = commit.rows().map(|row| Written {
            table: row.table(),
            is_index: row.is_index(),
            key: row.key().to_vec(),
            change: match row.change() {
                RowChange::Put(value) => Change::Put(value.to_vec()),
                RowChange::Patch { offset, bytes } => Change::Patch(offset, bytes.to_vec()),
                RowChange::Remove => Change::Remove,
                other => panic!("another kind of change: {other:?}"),
            },
        });
        let written = written.collect();
        self.commits.lock().expect("it panics before it locks").push(written);
        Ok(())
    }
}

const TEXTS: TableDef<(u8, u16), Raw> = TableDef::hash("texts");
const COUNTS: TableDef<String, Pod<u64>, Ordered> = TableDef::ordered("counts");
const PAIRS: TableDef<u8, Pod<Pair>> = TableDef::hash("pairs");
const BY_COUNT: IndexDef<String, Pod<u64>, u64, Multi> = IndexDef::multi("counts by count", |_, count| Some(count));

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Pair {
    first: u64,
    second: u64,
}

fn database<E: Engine>(engine: E) -> (Db<On<E>>, Arc<Notes>) {
    let notes = Arc::new(Notes::default());
    (Builder::new().memory(64 << 20).sink(notes.clone()).build_with(engine).expect("a database"), notes)
}

fn told(notes: &Notes) -> Vec<Vec<Written>> {
    std::mem::take(&mut *notes.commits.lock().expect("it panics before it locks"))
}

fn what_happens_is_told<E: Engine>(engine: E) -> Result<(), Error> {
    let (db, notes) = database(engine);
    let (texts, counts, pairs) = (db.table(TEXTS)?, db.table(COUNTS)?, db.table(PAIRS)?);
    db.transact(|tx| {
        tx.insert(texts, (1, 2), b"one")?;
        tx.insert(counts, "a".to_owned(), &7)?;
        tx.insert(pairs, 3, &Pair { first: 1, second: 2 })
    })?;
    let refused = db.transact(|tx| tx.put(texts, (1, 2), b"never").and(Err::<(), _>(Error::aborted("no"))));
    assert!(refused.is_err());
    db.transact(|tx| tx.update(pairs.column(part!(Pair, second)), 3, |second| *second = 9).map(drop))?;
    db.transact(|tx| tx.put(texts, (1, 2), b"longer than it was"))?;
    db.transact(|tx| tx.remove(texts, (1, 2)).map(drop))?;
    db.transact(|tx| tx.insert(texts, (1, 2), b"again"))?;
    db.transact(|tx| tx.get(texts, (1, 2)).map(drop))?;
    let mut tx = db.begin()?;
    tx.insert(texts, (5, 5), b"gone at once")?;
    tx.remove(texts, (5, 5))?;
    tx.update(counts, "a".to_owned(), |count| *count += 1)?;
    tx.commit()?;
    let text = |change| Written::new("texts", [1, 0, 2], change);
    let count = |count: u64| Written::new("counts", *b"a", Change::Put(count.to_le_bytes().into()));
    let pair = |change| Written::new("pairs", [3], change);
    let expected = [
        vec![
            text(Change::Put(b"one".to_vec())),
            count(7),
            pair(Change::Put(Pair { first: 1, second: 2 }.as_bytes().to_vec())),
        ],
        vec![pair(Change::Patch(8, 9_u64.to_le_bytes().into()))],
        vec![text(Change::Put(b"longer than it was".to_vec()))],
        vec![text(Change::Remove)],
        vec![text(Change::Put(b"again".to_vec()))],
        vec![Written::new("texts", [5, 0, 5], Change::Remove), count(8)],
    ];
    assert_eq!(told(&notes), expected);
    Ok(())
}

fn entries_of_indexes_are_told_as_such<E: Engine>(engine: E) -> Result<(), Error> {
    let (db, notes) = database(engine);
    let counts = db.table(COUNTS)?;
    db.index(counts, BY_COUNT)?;
    db.transact(|tx| tx.insert(counts, "a".to_owned(), &1))?;
    db.transact(|tx| tx.update(counts, "a".to_owned(), |count| *count = 2).map(drop))?;
    let entry = |count: u64, change| Written {
        is_index: true,
        ..Written::new("counts by count", [&count.to_be_bytes()[..], b"a"].concat(), change)
    };
    let count = |count: u64| Written::new("counts", *b"a", Change::Put(count.to_le_bytes().into()));
    let put = || Change::Put(Vec::new());
    let expected = [vec![count(1), entry(1, put())], vec![count(2), entry(1, Change::Remove), entry(2, put())]];
    assert_eq!(told(&notes), expected);
    Ok(())
}

/// Runs transactions of one and of several writes that the sink stops. Checks that everything is
/// unchanged and unlocked.
fn nothing_is_left_of_what_a_sink_stops<E: Engine>(
    engine: E,
    value: &[u8],
    run: impl Fn(&dyn Fn() -> Result<(), Error>),
) -> Result<(), Error> {
    let (db, notes) = database(engine);
    let texts = db.table(TEXTS)?;
    db.transact(|tx| tx.put(texts, (1, 1), b"first"))?;
    told(&notes);
    run(&|| db.transact(|tx| tx.put(texts, (1, 1), value)));
    run(&|| {
        db.transact(|tx| {
            tx.put(texts, (1, 1), value)?;
            tx.insert(texts, (1, 2), &[7; 600])?;
            tx.put(texts, (1, 3), b"new")
        })
    });
    run(&|| {
        let mut tx = db.begin()?;
        tx.put(texts, (1, 1), value)?;
        tx.commit()
    });
    assert_eq!(told(&notes), [[]; 0]);
    let found = db.read(|tx| tx.get_many(texts, [(1, 1), (1, 2), (1, 3)]))?;
    assert_eq!(found, [Some(b"first".to_vec()), None, None]);
    db.transact(|tx| {
        assert!(tx.remove(texts, (1, 1))?.is_some(), "nothing has it locked");
        tx.insert(texts, (1, 2), b"second")
    })?;
    assert_eq!(told(&notes).len(), 1);
    assert_eq!(db.tables()?, [("texts", 1)], "no record is left of what was not inserted");
    Ok(())
}

fn is_refused(run: &dyn Fn() -> Result<(), Error>) {
    match run() {
        Err(error @ Error::Refused { .. }) => assert!(error.to_string().contains("a value that is refused")),
        other => panic!("it is not refused: {other:?}"),
    }
}

fn panics(run: &dyn Fn() -> Result<(), Error>) {
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
}

macro_rules! on_engines {
    ($($name:ident, $on_htm:ident: |$engine:ident| $test:expr;)+) => {$(
        #[test]
        fn $name() {
            let $engine = NoHtm;
            $test.expect("memory");
        }

        #[test]
        fn $on_htm() {
            let $engine = Emulated::default();
            $test.expect("memory");
        }
    )+};
}

on_engines! {
    a_sink_is_told_what_happens, a_sink_is_told_what_happens_in_htm:
        |engine| what_happens_is_told(engine);
    a_sink_is_told_of_indexes, a_sink_is_told_of_indexes_in_htm:
        |engine| entries_of_indexes_are_told_as_such(engine);
    a_refused_transaction_leaves_nothing, a_refused_transaction_leaves_nothing_in_htm:
        |engine| nothing_is_left_of_what_a_sink_stops(engine, REFUSED, is_refused);
    a_panic_of_a_sink_leaves_nothing, a_panic_of_a_sink_leaves_nothing_in_htm:
        |engine| nothing_is_left_of_what_a_sink_stops(engine, UNHEARD, panics);
}

/// Uses its own database.
#[derive(Debug, Default)]
struct Curious(std::sync::OnceLock<Own>);

type Own = (Db<On<NoHtm>>, drtm_txn::Table<u64, Pod<u64>>);

impl Sink for Curious {
    fn commit(&self, _: &Commit<'_>) -> Result<(), SinkError> {
        let Some((db, rows)) = self.0.get() else { return Ok(()) };
        assert!(matches!(db.begin().map(drop), Err(Error::Nested)));
        assert!(matches!(db.snapshot().map(drop), Err(Error::Nested)));
        assert!(matches!(db.transact(|tx| tx.get(*rows, 1)), Err(Error::Nested)));
        Ok(db.read(|tx| tx.get(*rows, 1)).map(drop)?)
    }
}

/// A sink that uses its database gets an error, in closures and in explicit transactions.
#[test]
fn a_sink_that_reads_its_database_is_refused() {
    const ROWS: TableDef<u64, Pod<u64>> = TableDef::hash("rows");
    crate::waits::ends(|| {
        let curious = Arc::new(Curious::default());
        let db: Db<On<NoHtm>> = Builder::new().memory(8 << 20).sink(curious.clone()).build_with(NoHtm).expect("memory");
        let rows = db.table(ROWS).expect("memory");
        db.transact(|tx| tx.put(rows, 1, &1)).expect("it is not curious yet");
        curious.0.set((db.clone(), rows)).expect("once");
        let nested = |ended: Result<(), Error>| match ended {
            Err(Error::Refused { source }) => matches!(source.downcast_ref(), Some(Error::Nested)),
            _ => false,
        };
        assert!(nested(db.transact(|tx| tx.put(rows, 1, &2))));
        assert!(nested(db.begin().and_then(|mut tx| tx.put(rows, 1, &3).and_then(|()| tx.commit()))));
        assert_eq!(db.read(|tx| tx.get(rows, 1)).expect("it is over"), Some(1));
    });
}
