//! Parts of rows, beside whole rows: random programs compared with a model, threads that must not
//! tear a row, and partial writes that replace the whole row.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex},
    thread,
};

use drtm_htm::{Emulated, NoHtm};
use drtm_testing::rounds;
use drtm_txn::{
    Builder, Commit, Config, Db, Error, Hash, IndexDef, Key, Kind, Multi, Ordered, Part, Pod, RowChange, Sink,
    SinkError, Table, TableDef, Tx, part,
};
use proptest::{collection::vec, prelude::*};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::On;

/// Fields that begin and end within words, at word boundaries, and at the row's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Row {
    head: [u8; 3],
    word: [u8; 5],
    across: [u8; 10],
    many: [[u8; 7]; 3],
    long: Long,
    tail: [u8; 6],
}

/// More bytes than an operation copies at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Long([u8; 270]);

impl Default for Long {
    fn default() -> Self {
        Self([0; 270])
    }
}

const HEAD: Part<Row, [u8; 3]> = part!(Row, head);
const WORD: Part<Row, [u8; 5]> = part!(Row, word);
const ACROSS: Part<Row, [u8; 10]> = part!(Row, across);
const MANY: Part<Row, [[u8; 7]; 3]> = part!(Row, many);
const LONG: Part<Row, Long> = part!(Row, long);
const TAIL: Part<Row, [u8; 6]> = part!(Row, tail);

impl Row {
    fn of(byte: u8) -> Self {
        Self {
            head: [byte; 3],
            word: [byte; 5],
            across: [byte; 10],
            many: [[byte; 7]; 3],
            long: Long([byte; 270]),
            tail: [byte; 6],
        }
    }
}

/// Runs an expression with a part, given by its number, and with its field.
macro_rules! with_part {
    ($number:expr, |$part:ident, $field:ident| $body:expr) => {
        match $number % 7 {
            0 => with_part!(@ HEAD, |row: &mut Row| &mut row.head, [u8; 3], $part, $field, $body),
            1 => with_part!(@ WORD, |row: &mut Row| &mut row.word, [u8; 5], $part, $field, $body),
            2 => with_part!(@ ACROSS, |row: &mut Row| &mut row.across, [u8; 10], $part, $field, $body),
            3 => with_part!(@ LONG, |row: &mut Row| &mut row.long, Long, $part, $field, $body),
            4 => with_part!(@ TAIL, |row: &mut Row| &mut row.tail, [u8; 6], $part, $field, $body),
            5 => with_part!(@ MANY, |row: &mut Row| &mut row.many, [[u8; 7]; 3], $part, $field, $body),
            _ => with_part!(@ MANY.item(1).expect("there are three"), |row: &mut Row| &mut row.many[1], [u8; 7], $part, $field, $body),
        }
    };
    (@ $which:expr, $of:expr, $type:ty, $part:ident, $field:ident, $body:expr) => {{
        let $part = $which;
        let $field: fn(&mut Row) -> &mut $type = $of;
        $body
    }};
}

#[derive(Clone, Debug)]
enum Step {
    Get(u8),
    GetPart(u8, u8),
    Put(u8, u8),
    Insert(u8, u8),
    Update(u8, u8),
    UpdatePart(u8, u8, u8),
    Remove(u8),
    Scan,
    Save,
    Return,
}

fn steps() -> impl Strategy<Value = Vec<(bool, Vec<Step>)>> {
    let (key, part, byte) = (0..4_u8, 0..7_u8, 1..255_u8);
    let step = prop_oneof![
        2 => key.clone().prop_map(Step::Get),
        3 => (key.clone(), part.clone()).prop_map(|(key, part)| Step::GetPart(key, part)),
        1 => (key.clone(), byte.clone()).prop_map(|(key, byte)| Step::Put(key, byte)),
        2 => (key.clone(), byte.clone()).prop_map(|(key, byte)| Step::Insert(key, byte)),
        1 => (key.clone(), byte.clone()).prop_map(|(key, byte)| Step::Update(key, byte)),
        6 => (key.clone(), part.clone(), byte.clone()).prop_map(|(key, part, byte)| Step::UpdatePart(key, part, byte)),
        1 => key.prop_map(Step::Remove),
        1 => Just(Step::Scan),
        1 => Just(Step::Save),
        1 => Just(Step::Return),
    ];
    vec((any::<bool>(), vec(step, 1..12)), 1..8)
}

/// Reads the rows of a table, if it is ordered.
trait Walk: Kind {
    fn walk<S: Config, K: Key>(
        tx: &mut Tx<'_, S>,
        table: Table<K, Pod<Row>, Self>,
    ) -> Result<Option<Vec<(K, Row)>>, Error>
    where
        Self: Sized;
}

impl Walk for Hash {
    fn walk<S: Config, K: Key>(_: &mut Tx<'_, S>, _: Table<K, Pod<Row>, Self>) -> Result<Option<Vec<(K, Row)>>, Error> {
        Ok(None)
    }
}

impl Walk for Ordered {
    fn walk<S: Config, K: Key>(
        tx: &mut Tx<'_, S>,
        table: Table<K, Pod<Row>, Self>,
    ) -> Result<Option<Vec<(K, Row)>>, Error> {
        tx.range(table, ..)?.rows().collect::<Result<_, _>>().map(Some)
    }
}

/// Runs programs on a table, and compares the results with a map.
fn agree<S: Config, K: Key + Ord + Clone + Debug, O: Walk>(
    db: &Db<S>,
    table: Table<K, Pod<Row>, O>,
    key_of: impl Fn(u8) -> K,
    programs: &[(bool, Vec<Step>)],
) -> Result<(), TestCaseError> {
    let mut model: BTreeMap<K, Row> = BTreeMap::new();
    for (commits, steps) in programs {
        let mut now = model.clone();
        let mut tx = db.begin().expect("open");
        let mut saved = None;
        for step in steps {
            match step {
                Step::Get(key) => {
                    let key = key_of(*key);
                    prop_assert_eq!(tx.get(table, &key).expect("alone"), now.get(&key).copied());
                }
                Step::GetPart(key, part) => {
                    let key = key_of(*key);
                    with_part!(part, |part, field| {
                        let expected = now.get_mut(&key).map(|row| *field(row));
                        prop_assert_eq!(tx.get(table.column(part), &key).expect("alone"), expected);
                    });
                }
                Step::Put(key, byte) => {
                    tx.put(table, &key_of(*key), &Row::of(*byte)).expect("alone");
                    now.insert(key_of(*key), Row::of(*byte));
                }
                Step::Insert(key, byte) => {
                    let key = key_of(*key);
                    match tx.insert(table, &key, &Row::of(*byte)) {
                        Ok(()) => prop_assert!(now.insert(key, Row::of(*byte)).is_none()),
                        Err(Error::Exists { .. }) => prop_assert!(now.contains_key(&key)),
                        Err(error) => prop_assert!(false, "{error}"),
                    }
                }
                Step::Update(key, byte) => {
                    let key = key_of(*key);
                    let was = tx.update(table, &key, |row| std::mem::replace(row, Row::of(*byte))).expect("alone");
                    prop_assert_eq!(was, now.get(&key).copied());
                    now.entry(key).and_modify(|row| *row = Row::of(*byte));
                }
                Step::UpdatePart(key, part, byte) => {
                    let key = key_of(*key);
                    with_part!(part, |part, field| {
                        let change = |value: &mut _| std::mem::replace(value, *field(&mut Row::of(*byte)));
                        let was = tx.update(table.column(part), &key, change).expect("alone");
                        prop_assert_eq!(was, now.get_mut(&key).map(|row| change(field(row))));
                    });
                }
                Step::Remove(key) => {
                    let key = key_of(*key);
                    prop_assert_eq!(tx.remove(table, &key).expect("alone"), now.remove(&key));
                }
                Step::Scan => {
                    if let Some(rows) = O::walk(&mut tx, table).expect("alone") {
                        prop_assert_eq!(rows, now.clone().into_iter().collect::<Vec<_>>());
                    }
                }
                Step::Save => saved = Some((tx.savepoint(), now.clone())),
                Step::Return => {
                    if let Some((savepoint, then)) = saved.take() {
                        tx.return_to(savepoint).expect("its own");
                        now = then;
                    }
                }
            }
        }
        if *commits {
            tx.commit().expect("alone");
            model = now;
        } else {
            drop(tx);
        }
        for key in (0..4).map(&key_of) {
            let found = db.read(|tx| tx.get(table, &key)).expect("alone");
            prop_assert_eq!(found, model.get(&key).copied());
            let tail = db.read(|tx| tx.get(table.column(TAIL), &key)).expect("alone");
            prop_assert_eq!(tail, model.get(&key).map(|row| row.tail));
        }
    }
    Ok(())
}

fn name(key: u8) -> String {
    format!("a name that is longer than a word {key}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn parts_are_parts_of_rows(programs in steps()) {
        let db = Builder::new().memory(16 << 20).build_with::<On<NoHtm>>(NoHtm).expect("memory");
        let hashed = db.table(TableDef::<u64, Pod<Row>>::hash("hashed")).expect("room");
        agree(&db, hashed, u64::from, &programs)?;
        let sorted = db.table(TableDef::<String, Pod<Row>, Ordered>::ordered("sorted")).expect("room");
        agree(&db, sorted, name, &programs)?;
    }

    #[test]
    fn a_sink_can_follow_all_rows(programs in steps()) {
        let ears = Arc::new(Ears::default());
        let db = Builder::new().memory(16 << 20).sink(ears.clone()).build_with::<On<NoHtm>>(NoHtm).expect("memory");
        let sorted = db.table(TableDef::<u64, Pod<Row>, Ordered>::ordered("sorted")).expect("room");
        agree(&db, sorted, u64::from, &programs)?;
        // The last reported value of each row is its value.
        let told = ears.0.lock().expect("no thread panicked").clone();
        let rows: BTreeMap<Vec<u8>, Vec<u8>> = db
            .read(|tx| tx.range(sorted, ..)?.rows().collect::<Result<Vec<_>, _>>())
            .expect("alone")
            .into_iter()
            .map(|(key, row): (u64, Row)| (key.to_be_bytes().to_vec(), row.as_bytes().to_vec()))
            .collect();
        prop_assert_eq!(told, rows);
    }

    #[test]
    fn indexes_follow_changes_of_parts(programs in steps()) {
        let db = Builder::new().memory(16 << 20).build_with::<On<NoHtm>>(NoHtm).expect("memory");
        let hashed = db.table(TableDef::<u64, Pod<Row>>::hash("hashed")).expect("room");
        let by_word = db.index(hashed, BY_WORD).expect("room");
        agree(&db, hashed, u64::from, &programs)?;
        db.read(|tx| {
            for key in 0..4 {
                if let Some(row) = tx.get(hashed, key)? {
                    let found: Vec<_> = tx.range(by_word, row.word.to_vec()..=row.word.to_vec())?.rows().collect::<Result<_, _>>()?;
                    assert!(found.iter().any(|(_, (at, by))| (at, by) == (&key, &row)), "{key} is not found by what it is");
                    assert!(found.iter().all(|(_, (_, by))| by.word == row.word), "{key} is found by what it was");
                }
            }
            Ok(())
        })
        .expect("alone");
    }
}

const BY_WORD: IndexDef<u64, Pod<Row>, Vec<u8>, Multi> = IndexDef::multi("by word", |_, row| Some(row.word.to_vec()));

/// All rows, as a sink learns them.
#[derive(Debug, Default)]
struct Ears(Mutex<BTreeMap<Vec<u8>, Vec<u8>>>);

impl Sink for Ears {
    fn commit(&self, commit: &Commit<'_>) -> Result<(), SinkError> {
        let mut rows = self.0.lock().expect("no thread panics here");
        for row in commit.rows() {
            match row.change() {
                RowChange::Put(value) => drop(rows.insert(row.key().to_vec(), value.to_vec())),
                RowChange::Patch { offset, bytes } => {
                    let value = rows.get_mut(row.key()).expect("a patch is of a row that is there");
                    value[offset..offset + bytes.len()].copy_from_slice(bytes);
                }
                _ => drop(rows.remove(row.key())),
            }
        }
        Ok(())
    }
}

/// The constant sum of all parts of a row, byte by byte.
const TOTAL: u8 = 200;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Shared {
    one: u8,
    filler: Long,
    other: u8,
}

const ONE: Part<Shared, u8> = part!(Shared, one);
const OTHER: Part<Shared, u8> = part!(Shared, other);

/// Threads move an amount between two parts of a row, by parts and by whole rows, while others
/// read.
fn nothing_is_torn<S: Config>(db: &Db<S>) {
    let table = db.table(TableDef::<u64, Pod<Shared>>::hash("shared")).expect("room");
    let row = Shared { one: TOTAL, filler: Long([7; 270]), other: 0 };
    db.transact(|tx| (0..3).try_for_each(|key| tx.insert(table, key, &row))).expect("room");
    let rounds = rounds(1_500);
    thread::scope(|scope| {
        for mover in 0..2_u64 {
            scope.spawn(move || {
                for round in 0..rounds {
                    let (key, amount) = ((round + mover) % 3, (round % 7) as u8);
                    db.transact(|tx| {
                        if round % 5 == mover {
                            tx.update(table, key, |row| {
                                (row.one, row.other) = (row.other, row.one);
                                row.filler.0[round as usize % 270] = 7;
                            })?;
                            return Ok(());
                        }
                        let moved = tx.update(table.column(ONE), key, |one| {
                            let moved = amount.min(*one);
                            *one -= moved;
                            moved
                        })?;
                        tx.update(table.column(OTHER), key, |other| *other += moved.expect("it is there"))?;
                        Ok(())
                    })
                    .expect("in the end");
                }
            });
        }
        scope.spawn(move || {
            for round in 0..rounds {
                let key = round % 3;
                let (one, other) = db
                    .read(|tx| Ok((tx.get(table.column(ONE), key)?, tx.get(table.column(OTHER), key)?)))
                    .expect("in the end");
                assert_eq!(one.expect("there") + other.expect("there"), TOTAL, "what is read is true together");
                let snapshot = db.snapshot().expect("there are few");
                let row = snapshot.get(table, key).expect("readable").expect("there");
                let parts = (snapshot.get(table.column(ONE), key), snapshot.get(table.column(OTHER), key));
                assert_eq!((row.one + row.other, row.filler), (TOTAL, Long([7; 270])));
                assert_eq!((parts.0.expect("readable"), parts.1.expect("readable")), (Some(row.one), Some(row.other)));
            }
        });
    });
}

#[test]
fn rows_of_which_parts_are_written_are_whole() {
    nothing_is_torn(&Builder::new().memory(64 << 20).build_with::<On<NoHtm>>(NoHtm).expect("memory"));
}

#[test]
fn rows_of_which_parts_are_written_are_whole_in_regions() {
    let engine = Emulated::default();
    nothing_is_torn(&Builder::new().memory(64 << 20).build_with::<On<Emulated>>(engine).expect("memory"));
}

#[test]
fn a_part_that_was_changed_meanwhile_is_a_conflict() {
    let db = Builder::new().memory(16 << 20).build_with::<On<NoHtm>>(NoHtm).expect("memory");
    let table = db.table(TableDef::<u64, Pod<Row>>::hash("rows")).expect("room");
    db.transact(|tx| tx.insert(table, 1, &Row::of(1))).expect("room");
    let mut late = db.begin().expect("open");
    late.update(table.column(TAIL), 1, |tail| *tail = [9; 6]).expect("it is there");
    db.transact(|tx| tx.update(table.column(HEAD), 1, |head| *head = [2; 3])).expect("nothing else is in the way");
    // A patch of an old version conflicts, whichever part the others have changed.
    assert!(matches!(late.get(table, 1), Err(Error::Conflict(_))));
    assert!(matches!(late.commit(), Err(Error::Conflict(_))));
    let row = db.read(|tx| tx.get(table, 1)).expect("readable");
    assert_eq!(row, Some(Row { head: [2; 3], ..Row::of(1) }));
    assert_eq!(db.transact(|tx| tx.update(table.column(HEAD), 2, |_| ())).expect("readable"), None);
}
