//! Tables that are created, renamed and dropped, and indexes, over restarts, crashes, checkpoints
//! and backups, compared with a model.

use std::{collections::BTreeMap, sync::Arc, thread};

use drtm_htm::NoHtm;
use drtm_testing::rounds;
use drtm_txn::{
    Builder, Db, Durability, Error, IndexDef, Multi, Mutation, Ordered, Pod, TableDef,
    durability::storage::{Fault, Image, Storage},
};
use parking_lot::Mutex;
use proptest::prelude::*;

use super::{Sound, builder, hooked::Hooked, open, open_with, with};

const TABLES: [TableDef<u32, Pod<u64>, Ordered>; 3] =
    [TableDef::ordered("one"), TableDef::ordered("two"), TableDef::ordered("three")];
const BY_VALUE: IndexDef<u32, Pod<u64>, u64, Multi> = IndexDef::multi("by value", |_, value| Some(value / 2));

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(usize),
    Drop(usize),
    Clear(usize),
    Rename(usize, usize),
    Index(usize),
    DropIndex,
    Put(usize, u32),
    Remove(usize, u32),
    Checkpoint,
    Reopen,
    Backup,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = || 0..3_usize;
    let step = prop_oneof![
        4 => name().prop_map(Step::Open),
        2 => name().prop_map(Step::Drop),
        2 => name().prop_map(Step::Clear),
        2 => (name(), name()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => name().prop_map(Step::Index),
        1 => Just(Step::DropIndex),
        8 => (name(), 0..4_u32).prop_map(|(table, key)| Step::Put(table, key)),
        2 => (name(), 0..4_u32).prop_map(|(table, key)| Step::Remove(table, key)),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
        1 => Just(Step::Backup),
    ];
    prop::collection::vec(step, 0..40)
}

fn random_step(random: &mut fastrand::Rng) -> Step {
    let (one, other, key) = (random.usize(0..3), random.usize(0..3), random.u32(0..4));
    match random.u32(0..23) {
        0..4 => Step::Open(one),
        4..7 => Step::Drop(one),
        7..9 => Step::Rename(one, other),
        9 | 10 => Step::Index(one),
        11 => Step::DropIndex,
        12 => Step::Checkpoint,
        13 | 14 => Step::Remove(one, key),
        21 | 22 => Step::Clear(one),
        _ => Step::Put(one, key),
    }
}

/// A table: its rows, and whether the index exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rows {
    rows: BTreeMap<u32, u64>,
    is_indexed: bool,
}

/// The tables of a database, by name.
type Model = BTreeMap<&'static str, Rows>;

/// Reads a database's tables, whether its index is open or not.
fn observe(db: &Db<Sound>) -> Result<Model, Error> {
    let mut model = Model::new();
    for (name, _) in db.tables()? {
        let Some(def) = TABLES.into_iter().find(|def| def.name() == name) else {
            assert_eq!(name, "by value");
            continue;
        };
        let table = db.table(def)?;
        let rows = db.read(|tx| tx.range(table, ..)?.rows().collect())?;
        model.insert(name, Rows { rows, is_indexed: false });
        // The index exists if it is not open, or if the table can open it and it is not new.
        let refused = db.transact(|tx| tx.put(table, 9, &9).and_then(|()| Err::<(), _>(Error::aborted("to look"))));
        let is_indexed = match refused {
            Err(Error::IndexNotOpened { .. }) => true,
            Err(Error::Aborted { .. }) => {
                db.tables()?.iter().any(|(name, _)| *name == "by value") && { db.index(table, BY_VALUE).is_ok() }
            }
            other => panic!("{other:?}"),
        };
        model.entry(name).or_default().is_indexed = is_indexed;
    }
    Ok(model)
}

/// Opens the index where it is recorded, and compares it with the rows.
fn check_index(db: &Db<Sound>, model: &Model) -> Result<(), Error> {
    for def in TABLES.into_iter().filter(|def| model.get(def.name()).is_some_and(|table| table.is_indexed)) {
        let index = db.index(db.table(def)?, BY_VALUE)?;
        let mut entries: Vec<_> = db.read(|tx| tx.range(index, ..)?.rows().collect())?;
        entries.sort_by_key(|(_, (key, _))| *key);
        let expected = model[def.name()].rows.iter().map(|(key, value)| (value / 2, (*key, *value)));
        assert_eq!(entries, expected.collect::<Vec<_>>());
    }
    Ok(())
}

/// Runs a step that changes the database, if the model allows it. Returns the new model.
fn carry_out(db: &Db<Sound>, model: &Model, step: Step, value: u64) -> (Model, Result<(), Error>) {
    let mut next = model.clone();
    let name = |table: usize| TABLES[table].name();
    let done = match step {
        Step::Open(table) => {
            next.entry(name(table)).or_default();
            db.table(TABLES[table]).map(drop)
        }
        Step::Drop(table) if next.remove(name(table)).is_some() => db.drop_table(name(table)),
        Step::Rename(from, to) if next.contains_key(name(from)) && !next.contains_key(name(to)) => {
            let table = next.remove(name(from)).unwrap_or_default();
            next.insert(name(to), table);
            db.rename_table(name(from), name(to))
        }
        Step::Index(table) => match next.values().position(|table| table.is_indexed) {
            None if next.contains_key(name(table)) => {
                next.entry(name(table)).or_default().is_indexed = true;
                db.table(TABLES[table]).and_then(|table| db.index(table, BY_VALUE)).map(drop)
            }
            _ => Ok(()),
        },
        Step::DropIndex => match next.values_mut().find(|table| table.is_indexed) {
            Some(table) => {
                table.is_indexed = false;
                db.drop_index("by value")
            }
            None => Ok(()),
        },
        Step::Put(table, key) if next.contains_key(name(table)) => {
            next.entry(name(table)).or_default().rows.insert(key, value);
            db.table(TABLES[table]).and_then(|table| db.transact(|tx| tx.put(table, key, &value)))
        }
        Step::Remove(table, key) if next.contains_key(name(table)) => {
            next.entry(name(table)).or_default().rows.remove(&key);
            db.table(TABLES[table]).and_then(|table| db.transact(|tx| tx.remove(table, key).map(drop)))
        }
        Step::Clear(table) if next.contains_key(name(table)) => {
            next.entry(name(table)).or_default().rows.clear();
            db.table(TABLES[table]).and_then(|table| db.clear_table(table))
        }
        Step::Checkpoint => db.checkpoint().map(drop),
        Step::Drop(_)
        | Step::Clear(_)
        | Step::Rename(..)
        | Step::Put(..)
        | Step::Remove(..)
        | Step::Reopen
        | Step::Backup => Ok(()),
    };
    (next, done)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn tables_that_come_and_go_are_as_in_a_model_over_restarts(steps in steps(), drops_unopened: bool) {
        let disk = Image::default();
        let mut db = open(&disk).expect("it has no fault");
        let mut model = Model::new();
        for (step, value) in steps.into_iter().zip(1_u64..) {
            match step {
                Step::Reopen => {
                    drop(db);
                    db = open(&disk).expect("it has no fault");
                    prop_assert_eq!(observe(&db).expect("it has no fault"), model.clone());
                    if drops_unopened && value.is_multiple_of(2) {
                        // The index was not opened since.
                        model = carry_out(&db, &model, Step::DropIndex, value).0;
                    }
                    check_index(&db, &model).expect("it has no fault");
                }
                Step::Backup => {
                    let copy = Image::default();
                    let target: Arc<dyn Storage> = Arc::new(copy.clone());
                    db.backup_to(&target).expect("it has no fault");
                    let copy = open(&copy).expect("it is a database");
                    prop_assert_eq!(observe(&copy).expect("it has no fault"), model.clone());
                }
                step => {
                    let (next, done) = carry_out(&db, &model, step, value);
                    done.unwrap_or_else(|error| panic!("{step:?}: {error}"));
                    model = next;
                }
            }
        }
        prop_assert_eq!(observe(&db).expect("it has no fault"), model);
    }
}

/// Runs random steps until the disk stops, or all are done. Before them, the database is one of
/// `possible`. Returns its possible states afterwards.
fn run(disk: &Image, fault: Option<Mutation>, seed: u64, possible: Vec<Model>) -> Result<Vec<Model>, String> {
    let Ok(db) = with(builder(disk, Durability::Sync), fault).build_with::<Sound>(NoHtm) else {
        return Ok(possible);
    };
    let mut model = observe(&db).map_err(|error| error.to_string())?;
    if !possible.contains(&model) {
        return Err(format!("recovered {model:?}\nwhich is none of {possible:?}"));
    }
    // A recorded index may also be dropped before it is opened.
    if !seed.is_multiple_of(3) && check_index(&db, &model).is_err() {
        return Ok(vec![model]);
    }
    let mut random = fastrand::Rng::with_seed(seed);
    for number in 0..12 {
        let step = random_step(&mut random);
        match carry_out(&db, &model, step, seed * 100 + number) {
            (next, Ok(())) => model = next,
            (_, Err(Error::IndexNotOpened { .. })) => {}
            (next, Err(_)) => return Ok(vec![model, next]),
        }
    }
    Ok(vec![model])
}

/// Runs with a crash at a call, then with another crash, and reopens the database.
fn check(fault: Option<Mutation>, seed: u64, first: u64, second: u64) -> Result<(), String> {
    let mut random = fastrand::Rng::with_seed(seed ^ first << 32 ^ second << 48);
    let mut choose = |most| random.u64(0..most);
    let disk = Image::recycling();
    disk.fail_at(first, Fault::Crash);
    let left = run(&disk, fault, seed, vec![Model::new()])?;
    let disk = disk.after_crash(&mut choose);
    disk.fail_at(second, Fault::Crash);
    let left = run(&disk, fault, seed + 1, left)?;
    let disk = if seed.is_multiple_of(4) { disk.after_kill() } else { disk.after_crash(&mut choose) };
    // Without another crash everything must succeed.
    let left = run(&disk, fault, seed + 2, left)?;
    let db = open_with(&disk.after_kill(), fault).map_err(|error| error.to_string())?;
    let model = observe(&db).map_err(|error| error.to_string())?;
    check_index(&db, &model).map_err(|error| error.to_string())?;
    if left == [model.clone()] { Ok(()) } else { Err(format!("{model:?}\ninstead of {left:?}")) }
}

fn check_all(fault: Option<Mutation>, seeds: u64) -> Result<u64, String> {
    let mut images = 0;
    for seed in 0..seeds {
        let disk = Image::default();
        run(&disk, fault, seed, vec![Model::new()])?;
        let calls = disk.calls();
        for first in 0..=calls {
            check(fault, seed, first, fastrand::Rng::with_seed(seed * 1_000 + first).u64(0..calls))
                .map_err(|why| format!("seed {seed}, call {first}: {why}"))?;
            images += 2;
        }
    }
    Ok(images)
}

#[test]
fn at_every_crash_a_change_of_the_catalog_has_happened_or_not() {
    let images = check_all(None, rounds(40)).unwrap_or_else(|why| panic!("{why}"));
    assert!(images > 1_000, "{images} images");
}

#[test]
fn crash_images_notice_identities_that_are_used_twice() {
    assert!(check_all(Some(Mutation::IdsReused), 20).is_err());
}

#[test]
fn crash_images_notice_rows_that_come_back_after_all_were_removed() {
    assert!(check_all(Some(Mutation::ClearNotReplayed), 20).is_err());
}

/// A table is dropped, renamed, and another is created, before every write to a checkpoint.
#[test]
fn catalogs_change_while_checkpoints_are_made() -> Result<(), Error> {
    for seed in 0..rounds(30) {
        let disk = Image::default();
        let hooked = Hooked::new(&disk);
        let db = hooked.builder(Durability::Sync).build_with::<Sound>(NoHtm)?;
        let mut random = fastrand::Rng::with_seed(seed);
        let mut model = Model::new();
        for table in TABLES {
            let rows: BTreeMap<u32, u64> = (0..random.u32(0..60)).map(|key| (key, u64::from(key))).collect();
            let opened = db.table(table)?;
            db.transact(|tx| rows.iter().try_for_each(|(key, value)| tx.put(opened, key, value)))?;
            model.insert(table.name(), Rows { rows, is_indexed: false });
        }
        let states = Arc::new(Mutex::new(vec![model]));
        let (other, noted) = (db.clone(), Arc::clone(&states));
        hooked.before_writes(move || {
            for _ in 0..random.u32(0..3) {
                let step = match random_step(&mut random) {
                    Step::Checkpoint => Step::Drop(0),
                    step => step,
                };
                let before = noted.lock().last().cloned().unwrap_or_default();
                let (next, done) = carry_out(&other, &before, step, random.u64(1_000..2_000));
                done.expect("it has no fault");
                noted.lock().push(next);
            }
        });
        let made = db.checkpoint();
        hooked.no_more();
        made?;
        let model = states.lock().last().cloned().unwrap_or_default();
        assert_eq!(observe(&db)?, model, "seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for disk in [disk.after_kill(), disk.after_crash(&mut |most| random.u64(0..most))] {
            let db = open(&disk)?;
            assert_eq!(observe(&db)?, model, "seed {seed}");
            check_index(&db, &model)?;
        }
    }
    Ok(())
}

#[test]
fn identities_are_not_used_again_even_if_their_tables_are_in_no_file_any_more() -> Result<(), Error> {
    let [one, two, _] = TABLES;
    let disk = Image::default();
    let db = open(&disk)?;
    db.table(one)?;
    let dropped = db.table(two)?;
    db.transact(|tx| tx.put(dropped, 1, &1))?;
    db.drop_table("two")?;
    // The log has nothing of it any more.
    db.checkpoint()?;
    drop(db);
    let db = open(&disk)?;
    let two = db.table(two)?;
    db.transact(|tx| tx.put(two, 2, &2))?;
    drop(db);
    // A drop of the same identity would be damage.
    let db = open(&disk)?;
    assert_eq!(db.read(|tx| tx.range(db.table(TABLES[1])?, ..)?.rows().collect::<Result<Vec<_>, _>>())?, [(2, 2)]);
    db.drop_table("two")?;
    drop(db);
    assert_eq!(open(&disk)?.tables()?, [("one", 0)]);
    Ok(())
}

#[test]
fn an_index_that_is_recorded_and_not_open_can_be_dropped() -> Result<(), Error> {
    let disk = Image::default();
    let db = open(&disk)?;
    let table = db.table(TABLES[0])?;
    db.index(table, BY_VALUE)?;
    db.transact(|tx| tx.put(table, 1, &1))?;
    drop(db);
    let db = open(&disk)?;
    let table = db.table(TABLES[0])?;
    let put = |db: &Db<Sound>, table| db.transact(|tx| tx.put(table, 1, &2));
    let mut running = db.begin()?;
    assert!(matches!(put(&db, table), Err(Error::IndexNotOpened { table: "one", .. })));
    assert!(matches!(running.put(table, 1, &2), Err(Error::IndexNotOpened { .. })));
    db.rename_table("one", "two")?;
    assert!(matches!(put(&db, table), Err(Error::IndexNotOpened { table: "two", .. })));
    db.drop_index("by value")?;
    put(&db, table)?;
    assert!(matches!(db.drop_index("by value"), Err(Error::NoSuchIndex { .. })));
    drop(running);
    drop(db);
    let db = open(&disk)?;
    put(&db, db.table(TABLES[1])?)?;
    Ok(())
}

#[test]
fn a_drop_that_cannot_be_logged_has_not_happened() -> Result<(), Error> {
    let disk = Image::default();
    let db = open(&disk)?;
    let table = db.table(TABLES[0])?;
    db.index(table, BY_VALUE)?;
    db.transact(|tx| tx.put(table, 1, &1))?;
    disk.fail_at(disk.calls(), Fault::Device);
    assert!(matches!(db.transact(|tx| tx.put(table, 2, &2)), Err(Error::OutcomeUnknown { .. })));
    for refused in [db.drop_table("one"), db.rename_table("one", "two"), db.drop_index("by value")] {
        assert!(matches!(refused, Err(Error::Poisoned { .. })), "{refused:?}");
    }
    // Memory is unchanged.
    assert_eq!(db.snapshot()?.get(table, 1)?, Some(1));
    let index = db.index(table, BY_VALUE)?;
    assert_eq!(db.snapshot()?.range(index, ..)?.count()?, 2);
    drop(db);
    assert!(observe(&open(&disk.after_kill())?)?["one"].is_indexed);
    Ok(())
}

#[test]
fn a_drop_whose_write_fails_is_told_to_be_unknown() -> Result<(), Error> {
    for change in [|db: &Db<Sound>| db.drop_table("one"), |db: &Db<Sound>| db.rename_table("one", "two")] {
        let disk = Image::default();
        let db = open(&disk)?;
        db.table(TABLES[0])?;
        disk.fail_at(disk.calls(), Fault::Device);
        assert!(matches!(change(&db), Err(Error::OutcomeUnknown { .. })));
    }
    Ok(())
}

/// Threads write to tables that come and go. No row of a table is logged in a later epoch than its
/// drop, which recovery would report as damage.
#[test]
fn no_row_is_logged_behind_the_drop_of_its_table() {
    for seed in 0..rounds(3) {
        let disk = Image::default();
        let build = || -> Result<Db<Sound>, Error> {
            let builder = Builder::new().memory(64 << 20).storage(Arc::new(disk.clone()), 64 << 10);
            builder.durability(Durability::Async).build_with(NoHtm)
        };
        let db = build().expect("it has no fault");
        thread::scope(|scope| {
            let writers: Vec<_> = (0..3_u32)
                .map(|number| {
                    let db = &db;
                    scope.spawn(move || {
                        let mut random = fastrand::Rng::with_seed(seed * 10 + u64::from(number));
                        for value in 0..2_000 {
                            let Ok(table) = db.table(TABLES[random.usize(0..3)]) else { break };
                            match db.transact(|tx| tx.put(table, random.u32(0..20), &value)) {
                                Ok(()) | Err(Error::Dropped { .. }) => {}
                                Err(error) => panic!("{error}"),
                            }
                        }
                    })
                })
                .collect();
            let mut random = fastrand::Rng::with_seed(seed);
            for round in 0..300_u32 {
                let (from, to) = (random.usize(0..3), random.usize(0..3));
                let changed = match random.u8(0..4) {
                    0 => db.rename_table(TABLES[from].name(), TABLES[to].name()),
                    _ => db.drop_table(TABLES[from].name()),
                };
                match changed {
                    Ok(()) | Err(Error::NoSuchTable { .. } | Error::NameTaken { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                if round.is_multiple_of(50) {
                    db.checkpoint().expect("it has no fault");
                }
                thread::yield_now();
            }
            writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        });
        let model = observe(&db).expect("it has no fault");
        drop(db);
        assert_eq!(observe(&build().expect("it is not damaged")).expect("it has no fault"), model);
    }
}
