//! Migrations: interrupted at every call to the disk, and continued.

use drtm_txn::{
    Db, Error, IndexDef, Multi, Mutation, Ordered, Pod, Postcard, Table, TableDef,
    durability::storage::{Fault, Image},
};
use serde::{Deserialize, Serialize};

use super::{Sound, open, open_with};

mod old {
    use super::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    pub(super) struct User {
        pub(super) name: String,
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct User {
    name: String,
    age: Option<u8>,
}

const OLD: TableDef<u32, Postcard<old::User>> = TableDef::hash("users");
const OLD_BY_NAME: IndexDef<u32, Postcard<old::User>, String, Multi> =
    IndexDef::multi("users by name", |_, user| Some(user.name));

/// Keys of another type, and another kind of table.
const NEW: TableDef<(u8, u32), Postcard<User>, Ordered> = TableDef::ordered("users");
const BY_NAME: IndexDef<(u8, u32), Postcard<User>, String, Multi> =
    IndexDef::multi("users by name", |_, user| Some(user.name));

/// More than two batches.
const USERS: u32 = 600;

fn name(key: u32) -> String {
    format!("user {}", key % 10)
}

type Users = Table<(u8, u32), Postcard<User>, Ordered>;

fn migrate(db: &Db<Sound>) -> Result<Users, Error> {
    db.migrate(OLD, NEW, |key, old| Ok(((7, key), User { age: Some(old.name.len() as u8), name: old.name })))
}

/// A disk with the old table.
fn prepared() -> Result<Image, Error> {
    let disk = Image::default();
    let db = open(&disk)?;
    let users = db.table(OLD)?;
    db.index(users, OLD_BY_NAME)?;
    db.transact(|tx| (0..USERS).try_for_each(|key| tx.insert(users, key, &old::User { name: name(key) })))?;
    db.checkpoint()?;
    Ok(disk)
}

/// Checks that every row has moved once, and that nothing else is there.
fn check(db: &Db<Sound>) -> Result<(), Error> {
    let users = migrate(db)?;
    let rows: Vec<_> = db.read(|tx| tx.range(users, ..)?.rows().collect())?;
    assert_eq!(rows.len(), USERS as usize);
    for (key, (found, user)) in (0..).zip(rows) {
        assert_eq!((found, user), ((7, key), User { name: name(key), age: Some(6) }));
    }
    let names: Vec<_> = db.tables()?.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["users"]);
    assert!(matches!(db.table(OLD), Err(Error::OtherTypes { .. })));
    // The index is still known, so that it is not forgotten.
    match db.transact(|tx| tx.remove(users, (7, 0)).map(drop)) {
        Err(Error::IndexNotOpened { table: "users", index }) => assert_eq!(index, "users by name"),
        other => panic!("{other:?}"),
    }
    let by_name = db.index(users, BY_NAME)?;
    assert_eq!(db.read(|tx| tx.range(by_name, "user 3"..="user 3")?.count())?, u64::from(USERS / 10));
    db.transact(|tx| tx.put(users, (8, 0), &User { name: "Ada".to_owned(), age: None }))
}

/// Opens a database and migrates it. The disk may fail meanwhile.
fn attempt(disk: &Image, fault: Option<Mutation>) -> Result<(), Error> {
    let db = open_with(disk, fault)?;
    migrate(&db)?;
    db.close()
}

/// Crashes the machine, or kills the process, at each call. Returns what was wrong first.
fn crash_everywhere(fault: Option<Mutation>) -> Option<Error> {
    let base = prepared().expect("it has no fault");
    let mut random = fastrand::Rng::with_seed(7);
    for call in 0.. {
        let (disk, mut crashes) = (base.after_kill(), 0);
        disk.fail_at(call, Fault::Crash);
        let is_done = attempt(&disk, fault).is_ok();
        // The one that continues is interrupted too, sometimes.
        let mut disk = disk;
        loop {
            disk = if random.bool() { disk.after_crash(&mut |most| random.u64(..most)) } else { disk.after_kill() };
            if crashes == 2 || random.bool() {
                break;
            }
            crashes += 1;
            disk.fail_at(random.u64(..60), Fault::Crash);
            // It fails, or comes to the end before.
            drop(attempt(&disk, fault));
        }
        let db = open_with(&disk, fault).expect("it is not damaged");
        // Neither definition opens a table that lacks rows.
        match (db.table(NEW), db.tables().expect("it is open").len()) {
            (Err(Error::Unmigrated { table: "users" }), _) => {
                assert!(matches!(db.table(OLD), Err(Error::Unmigrated { .. })));
            }
            (Ok(_) | Err(Error::OtherTypes { .. }), 1) => {}
            (other, tables) => panic!("{other:?}, {tables} tables"),
        }
        drop(db);
        let db = open_with(&disk, fault).expect("it is not damaged");
        if let Err(error) = migrate(&db) {
            return Some(error);
        }
        check(&db).expect("it is sound");
        if is_done {
            assert!(call > 50, "{call} calls");
            return None;
        }
    }
    None
}

#[test]
fn a_migration_can_be_interrupted_at_every_step() {
    if let Some(error) = crash_everywhere(None) {
        panic!("{error}");
    }
}

/// A row that is in both tables after a crash is noticed.
#[test]
fn rows_that_are_left_behind_are_found() {
    let found = crash_everywhere(Some(Mutation::MigratedRowsLeft));
    assert!(matches!(found, Some(Error::Exists { .. })), "{found:?}");
}

/// An error of the closure leaves every row in one of both tables.
#[test]
fn a_migration_that_fails_can_be_continued() -> Result<(), Error> {
    let disk = prepared()?;
    let db = open(&disk)?;
    let mut left = 100;
    let failed = db.migrate(OLD, NEW, |key, old| {
        left -= 1;
        let user = User { age: Some(old.name.len() as u8), name: old.name };
        if left > 0 { Ok(((7, key), user)) } else { Err(Error::aborted("this row is odd")) }
    });
    assert!(matches!(failed, Err(Error::Aborted { .. })), "{failed:?}");
    assert!(matches!(db.table(NEW), Err(Error::Unmigrated { table: "users" })));
    let said = db.table(OLD).map(drop).expect_err("it lacks rows").to_string();
    assert!(said.contains("`Db::migrate`"), "{said}");
    // Two rows with the same key.
    let failed = db.migrate(OLD, NEW, |_, old| Ok(((1, 1), User { name: old.name, age: None })));
    assert!(matches!(failed, Err(Error::Exists { .. })), "{failed:?}");
    check(&db)?;
    // And there is nothing left to do.
    assert!(db.migrate(OLD, NEW, |_, _| Err(Error::aborted("none"))).is_ok());
    Ok(())
}

#[test]
fn a_migration_that_cannot_be_is_refused() -> Result<(), Error> {
    const OTHER: TableDef<u32, Pod<u64>> = TableDef::hash("users");
    let disk = Image::default();
    let db = open(&disk)?;
    let users = db.table(OTHER)?;
    db.transact(|tx| tx.put(users, 1, &1))?;
    assert!(matches!(migrate(&db), Err(Error::OtherTypes { name: "users", .. })));
    assert!(db.tables()?.len() == 1 && db.table(OTHER).is_ok(), "nothing has begun");
    // Another table has the name.
    const RENAMED: TableDef<u32, Pod<i64>> = TableDef::hash("people");
    db.table(RENAMED)?;
    let taken = db.migrate(OTHER, RENAMED, |key, value| Ok((key, value as i64)));
    assert!(matches!(taken, Err(Error::NameTaken { ref name }) if name == "people"), "{taken:?}");
    db.drop_table("people")?;
    let people = db.migrate(OTHER, RENAMED, |key, value| Ok((key, value as i64)))?;
    assert_eq!(db.read(|tx| tx.get(people, 1))?, Some(1));
    let nested = db.transact(|_| db.migrate(OTHER, RENAMED, |key, value| Ok((key, value as i64))).map(drop));
    assert!(matches!(nested, Err(Error::Nested)), "{nested:?}");
    // Where there is no table, there is nothing to convert.
    let none = db.migrate(OLD, NEW, |_, _| Err(Error::aborted("none")))?;
    assert_eq!(db.read(|tx| tx.len(none))?, 0);
    Ok(())
}
