//! Backups beside writers, and reports of recoveries.

use std::sync::{Arc, Mutex};

use drtm_htm::NoHtm;
use drtm_testing::rounds;
use drtm_txn::{
    Db, Durability, Error, LogError, Raw, RecoveryStep, TableDef,
    durability::storage::{Fault, Image, Storage},
};

use super::{Rows, Sound, Tables, builder, hooked::Hooked, open};

/// Fills a database, and backs it up to a disk while it is written. Returns the possible rows of
/// the backup.
fn back_up(to: &Image, seed: u64) -> (Result<(), Error>, Vec<Rows>) {
    let from = Image::default();
    let db = open(&from).expect("it has no fault");
    let tables = Tables::of(&db).expect("it has no fault");
    let mut rows = Rows::none();
    for number in 0..10 {
        tables.run(seed * 100 + number, &mut rows).expect("it has no fault");
        if number == 4 && seed.is_multiple_of(2) {
            db.checkpoint().expect("it has no fault");
        }
    }
    let states = Arc::new(Mutex::new(vec![rows.clone()]));
    let hooked = Hooked::new(to);
    let (other, pairs, texts, noted, mut next) = (db.clone(), tables.pairs, tables.texts, Arc::clone(&states), 50);
    hooked.before_writes(move || {
        next += 1;
        let tables = Tables { db: &other, pairs, texts };
        tables.run(seed * 100 + next, &mut rows).expect("it has no fault");
        noted.lock().expect("no panic").push(rows.clone());
    });
    let target: Arc<dyn Storage> = Arc::new(hooked.clone());
    let made = db.backup_to(&target);
    hooked.no_more();
    let states = states.lock().expect("no panic").clone();
    // The database continues unaffected.
    drop(db);
    let db = open(&from).expect("it has no fault");
    let rows = Tables::of(&db).and_then(|tables| tables.rows()).expect("it is there");
    assert_eq!(states.last(), Some(&rows));
    (made.map(drop), states)
}

#[test]
fn a_backup_opens_by_itself_with_a_prefix_of_what_was_committed_meanwhile() {
    for seed in 0..rounds(6) {
        let to = Image::default();
        let (made, states) = back_up(&to, seed);
        made.expect("it has no fault");
        assert!(states.len() > 2);
        let to = to.after_crash(&mut |most| most - 1);
        let db = open(&to).expect("it opens");
        let tables = Tables::of(&db).expect("they are there");
        let rows = tables.rows().expect("memory");
        assert!(states.contains(&rows), "{rows:?}");
        // The backup is an ordinary database.
        let mut next = rows;
        tables.run(seed * 100 + 99, &mut next).expect("it has no fault");
        drop(db);
        let db = open(&to).expect("it opens");
        assert_eq!(Tables::of(&db).and_then(|tables| tables.rows()).expect("it is there"), next);
    }
}

#[test]
fn a_backup_that_was_broken_off_is_none_or_whole() {
    let whole = Image::default();
    back_up(&whole, 1).0.expect("it has no fault");
    for fault in [Fault::Crash, Fault::Device, Fault::NoSpace] {
        for call in 0..whole.calls() {
            let to = Image::default();
            to.fail_at(call, fault);
            let (made, states) = back_up(&to, 1);
            let mut random = fastrand::Rng::with_seed(call);
            let left = to.after_crash(&mut |most| random.u64(0..most));
            let has_any = !left.list().expect("it has no fault").is_empty();
            match open(&left) {
                // The backup has not begun yet.
                Ok(_) if !has_any => assert!(made.is_err()),
                Ok(db) => {
                    let rows = Tables::of(&db).and_then(|tables| tables.rows()).expect("it is there");
                    assert!(states.contains(&rows), "{fault:?} at {call}: {rows:?}");
                }
                Err(Error::Log(LogError::Incomplete { .. })) => assert!(made.is_err(), "{fault:?} at {call}"),
                Err(error) => panic!("{fault:?} at {call}: {error}"),
            }
        }
    }
}

#[test]
fn a_backup_goes_where_no_database_is() -> Result<(), Error> {
    let (one, other) = (Image::default(), Image::default());
    let db = open(&one)?;
    Tables::of(&db)?;
    let target: Arc<dyn Storage> = Arc::new(other.clone());
    let there = open(&other)?;
    assert!(matches!(db.backup_to(&target), Err(Error::Log(LogError::InUse { .. }))));
    drop(there);
    assert!(matches!(db.backup_to(&target), Err(Error::Config { .. })));
    assert!(matches!(Db::new()?.backup_to(&target), Err(Error::Config { .. })));
    Ok(())
}

const MANY: TableDef<u64, Raw> = TableDef::hash("many");

#[test]
fn a_recovery_tells_how_far_it_has_come_and_how_much_memory_it_needs() -> Result<(), Error> {
    let disk = Image::default();
    let large = || builder(&disk, Durability::Async).memory(256 << 20);
    let db = large().build_with::<Sound>(NoHtm)?;
    let many = db.table(MANY)?;
    let put = |keys: std::ops::Range<u64>| {
        db.transact(|tx| keys.clone().try_for_each(|key| tx.put(many, key, &[key as u8; 100])))
    };
    (0..20).try_for_each(|part| put(2_000 * part..2_000 * (part + 1)))?;
    db.checkpoint()?;
    put(39_000..60_000)?;
    let taken = db.memory().tables;
    drop(db);
    // Memory for only a part of it.
    let needed = match builder(&disk, Durability::Async).memory(6 << 20).build_with::<Sound>(NoHtm) {
        Err(Error::Log(LogError::TooLittleMemory { given, needed })) => {
            assert!(given == 6 << 20 && needed < 3 * taken, "{needed}, and it took {taken}");
            needed
        }
        other => panic!("{other:?}"),
    };
    let steps = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&steps);
    let watched = builder(&disk, Durability::Async).memory(needed).on_recovery(move |progress| {
        noted.lock().expect("no panic").push(*progress);
    });
    let db = watched.build_with::<Sound>(NoHtm)?;
    let many = db.table(MANY)?;
    assert_eq!(db.read(|tx| tx.get(many, 59_999))?, Some(vec![59_999_u64 as u8; 100]));
    assert_eq!(db.tables()?, [("many", 60_000)]);
    for step in [RecoveryStep::Log, RecoveryStep::Checkpoint, RecoveryStep::Replay] {
        let steps = steps.lock().expect("no panic");
        let of_it: Vec<_> = steps.iter().filter(|progress| progress.step == step).collect();
        let most = of_it.iter().map(|progress| progress.done).max();
        assert!(of_it.len() > 1 && most == of_it.first().map(|progress| progress.total), "{step:?}: {of_it:?}");
    }
    Ok(())
}
