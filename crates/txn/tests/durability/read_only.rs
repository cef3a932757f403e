//! Databases that are opened for reading only: because they are told to, or because their disk is.

use drtm_htm::NoHtm;
use drtm_txn::{
    Builder, Db, Durability, Error, LogError,
    durability::storage::{Image, Storage},
};

use super::{Rows, Sound, TEXTS, Tables, builder, open};

fn reading(disk: &Image) -> Result<Db<Sound>, Error> {
    builder(disk, Durability::Sync).read_only(true).build_with(NoHtm)
}

/// Returns a disk with a database, as a process that was killed has left it, and the rows.
fn written() -> Result<(Image, Rows), Error> {
    let (disk, mut rows) = (Image::default(), Rows::none());
    let db = open(&disk)?;
    let tables = Tables::of(&db)?;
    (0..20).try_for_each(|seed| tables.run(seed, &mut rows))?;
    db.checkpoint()?;
    (20..30).try_for_each(|seed| tables.run(seed, &mut rows))?;
    let disk = disk.after_kill();
    disk.create("checkpoint-99.new").expect("room");
    Ok((disk, rows))
}

/// Returns the names of all files, and their bytes together.
fn contents(disk: &Image) -> (Vec<String>, u64) {
    (disk.list().expect("names"), disk.used())
}

fn check_reads_only(db: &Db<Sound>, rows: &Rows) -> Result<(), Error> {
    let tables = Tables::of(db)?;
    assert_eq!(tables.rows()?, *rows);
    // A transaction that removes a key that is not there changes nothing.
    let refused = (0..20).filter(|seed| match tables.run(*seed, &mut rows.clone()) {
        Err(Error::ReadOnly { .. }) => true,
        other => other.map(|()| false).expect("it writes nothing"),
    });
    assert!(refused.count() > 15);
    assert!(matches!(db.table(TEXTS.named("others")), Err(Error::ReadOnly { .. })));
    assert!(matches!(db.drop_table("texts"), Err(Error::ReadOnly { .. })));
    assert!(matches!(db.checkpoint(), Err(Error::ReadOnly { .. })));
    assert!(matches!(db.check_writable(), Err(Error::ReadOnly { .. })));
    assert_eq!(tables.rows()?, *rows, "nothing has happened");
    Ok(())
}

#[test]
fn nothing_is_created_or_changed() -> Result<(), Error> {
    let (disk, rows) = written()?;
    let before = contents(&disk);
    let db = reading(&disk)?;
    check_reads_only(&db, &rows)?;
    assert_eq!(contents(&disk), before);
    db.close()?;
    drop(db);
    assert_eq!(contents(&disk), before);
    assert_eq!(Tables::of(&open(&disk)?)?.rows()?, rows);
    Ok(())
}

#[test]
fn a_read_only_disk_is_read() -> Result<(), Error> {
    let (disk, rows) = written()?;
    let before = contents(&disk);
    disk.read_only(true);
    let db = open(&disk)?;
    check_reads_only(&db, &rows)?;
    drop(db);
    assert_eq!(contents(&disk), before);
    disk.read_only(false);
    assert_eq!(Tables::of(&open(&disk)?)?.rows()?, rows);
    Ok(())
}

#[test]
fn there_are_several_readers_or_one_writer() -> Result<(), Error> {
    let (disk, _) = written()?;
    let is_in_use = |opened: Result<Db<Sound>, Error>| matches!(opened, Err(Error::Log(LogError::InUse { .. })));
    let (one, other) = (reading(&disk)?, reading(&disk)?);
    drop(one);
    assert!(is_in_use(open(&disk)));
    drop(other);
    let writer = open(&disk)?;
    assert!(is_in_use(reading(&disk)));
    drop(writer);
    reading(&disk)?;
    Ok(())
}

#[test]
fn directories_are_locked_alike_and_never_made() -> Result<(), Error> {
    let directory = std::env::temp_dir().join(format!("drtm-read-only-directory-{}", std::process::id()));
    let reading = || Builder::new().path(&directory).memory(16 << 20).read_only(true).build();
    let writing = || Builder::new().path(&directory).create(true).memory(16 << 20).build();
    assert!(matches!(reading(), Err(Error::Log(LogError::NoDatabase { .. }))));
    assert!(!directory.exists());
    let holder = |opened: Result<Db, Error>| match opened {
        Err(Error::Log(LogError::InUse { holder, .. })) => holder,
        other => panic!("{other:?}"),
    };
    let writer = writing()?;
    writer.table(TEXTS)?;
    assert_eq!(holder(reading()), format!("process {}", std::process::id()));
    drop(writer);
    let readers = (reading()?, reading()?);
    assert!(readers.0.table(TEXTS).is_ok());
    assert_eq!(holder(writing()), "processes that only read it");
    drop(readers);
    std::fs::remove_file(directory.join("LOCK")).expect("it is there");
    reading()?.table(TEXTS)?;
    assert!(!directory.join("LOCK").exists());
    std::fs::remove_dir_all(directory).expect("it is there");
    Ok(())
}

#[test]
fn memory_cannot_be_read_only_and_an_empty_disk_has_no_database() {
    assert!(matches!(Builder::new().read_only(true).build(), Err(Error::Config { .. })));
    assert!(matches!(reading(&Image::default()), Err(Error::Log(LogError::NoDatabase { .. }))));
}
