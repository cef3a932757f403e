//! Full disks: commits are refused before they happen, what has happened is kept until there is
//! room, and reads go on.

use std::{fs, path::Path, process::Command, sync::Arc, time::Duration};

use drtm_htm::NoHtm;
use drtm_txn::{
    Builder, Db, Durability, Error, LogError, Mutation, Ordered, Raw, Table, TableDef,
    durability::storage::{Image, Storage},
};

use super::{Sound, with};

const TEXTS: TableDef<u32, Raw, Ordered> = TableDef::ordered("texts");
const OTHERS: TableDef<u32, Raw> = TableDef::hash("others");
type Texts = Table<u32, Raw, Ordered>;

const NEVER: Duration = Duration::from_secs(3_600);
const SEGMENT: u64 = 64 << 10;

fn database(disk: &Image, fault: Option<Mutation>) -> Result<(Db<Sound>, Texts), Error> {
    let builder = Builder::new().memory(16 << 20).storage(Arc::new(disk.clone()), SEGMENT).flush_within(NEVER);
    let db = with(builder, fault).build_with(NoHtm)?;
    let texts = db.table(TEXTS)?;
    Ok((db, texts))
}

/// Returns the keys after a crash that loses everything unsynced.
fn durable(disk: &Image) -> Vec<u32> {
    let disk = disk.after_crash(&mut |most| most - 1);
    let (db, texts) = database(&disk, None).expect("it opens");
    db.read(|tx| tx.range(texts, ..)?.rows().map(|row| row.map(|(key, _)| key)).collect()).expect("memory")
}

fn has_unfinished(disk: &Image) -> bool {
    disk.list().expect("names").iter().any(|name| name.ends_with(".new"))
}

/// Commits rows from this key on, until the disk is full. Returns the first key that was refused.
fn fill<S: drtm_txn::Config>(db: &Db<S>, texts: Texts, first: u32) -> u32 {
    let mut key = first;
    loop {
        match db.transact(|tx| tx.put(texts, key, &[key as u8; 1_000])) {
            Ok(()) => key += 1,
            Err(Error::DiskFull { reason }) => {
                assert!(reason.contains("cannot"), "{reason}");
                return key;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_commit_is_refused_and_later_ones_succeed_when_there_is_room() -> Result<(), Error> {
    let disk = Image::default();
    let (db, texts) = database(&disk, None)?;
    let mut next = 0;
    for room in [100 << 10, 130 << 10, 1] {
        disk.limit(Some(disk.used() + room));
        let full = fill(&db, texts, next);
        assert!(matches!(db.check_writable(), Err(Error::DiskFull { .. })));
        assert!(matches!(db.table(OTHERS), Err(Error::DiskFull { .. })), "a table is a change, too");
        // Reads of anything go on, since all that is visible is durable.
        db.read(|tx| {
            assert_eq!(tx.len(texts)?, u64::from(full));
            assert_eq!(tx.get(texts, full)?, None, "what was refused has not happened");
            Ok(())
        })?;
        assert_eq!(durable(&disk), (0..full).collect::<Vec<_>>());
        assert!(!has_unfinished(&disk));
        disk.limit(None);
        db.transact(|tx| tx.put(texts, full, b"there is room"))?;
        db.check_writable()?;
        next = full + 1;
    }
    assert!(next > 150, "{next}");
    drop(db);
    assert_eq!(durable(&disk), (0..next).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn a_smaller_segment_is_tried_first() -> Result<(), Error> {
    let disk = Image::default();
    let (db, texts) = database(&disk, None)?;
    let segments = || disk.list().expect("names").iter().filter(|name| name.ends_with(".log")).count();
    let mut key = 0;
    while segments() == 1 {
        // There is room for this commit and the next one, and never for all of a segment.
        disk.limit(Some(disk.used() + SEGMENT / 2));
        db.transact(|tx| tx.put(texts, key, &[1; 1_000]))?;
        key += 1;
    }
    assert!(u64::from(key) * 1_000 > SEGMENT / 2);
    assert_eq!(durable(&disk).len() as u32, key);
    Ok(())
}

/// Commits a transaction that is larger than the reserved space, on a full disk. Returns whether it
/// survives when there was room again.
fn is_kept_until_there_is_room(fault: Option<Mutation>) -> Result<bool, Error> {
    let disk = Image::default();
    let (db, texts) = database(&disk, fault)?;
    disk.limit(Some(disk.used()));
    let large = db.transact(|tx| (0..2).try_for_each(|key| tx.put(texts, key, &[1; 60_000])));
    let Err(error @ Error::NotYetDurable { full: Some(_), thread: None, .. }) = large else { panic!("{large:?}") };
    assert!(error.to_string().contains("there is no room for the log"), "{error}");
    if fault.is_none() {
        // A reader is told that it is not durable. The next commit would have no room, either.
        assert!(matches!(db.read(|tx| tx.get(texts, 1)), Err(Error::NotYetDurable { full: Some(_), .. })));
        assert!(matches!(db.transact(|tx| tx.put(texts, 2, b"refused")), Err(Error::DiskFull { .. })));
    }
    let seen = db.read(|tx| {
        tx.set_durability(Durability::Async)?;
        Ok(tx.get(texts, 1)?.map(|text| text.len()))
    })?;
    assert_eq!(seen, Some(60_000));
    assert!(durable(&disk).is_empty());
    disk.limit(None);
    db.transact(|tx| tx.put(texts, 3, b"later"))?;
    let kept = durable(&disk);
    assert!(kept.contains(&3));
    Ok(kept == [0, 1, 3])
}

#[test]
fn what_has_happened_is_written_when_there_is_room() -> Result<(), Error> {
    assert!(is_kept_until_there_is_room(None)?);
    assert!(!is_kept_until_there_is_room(Some(Mutation::FullFrameForgotten))?, "the fault is noticed");
    Ok(())
}

/// Closing keeps the directory while it must still be written, and can be tried again.
#[test]
fn a_database_on_a_full_disk_is_closed_once_there_is_room() -> Result<(), Error> {
    let disk = Image::default();
    let (db, texts) = database(&disk, None)?;
    disk.limit(Some(disk.used()));
    let large = db.transact(|tx| (0..2).try_for_each(|key| tx.put(texts, key, &[1; 60_000])));
    assert!(matches!(large, Err(Error::NotYetDurable { full: Some(_), .. })));
    assert!(matches!(db.close(), Err(Error::NotYetDurable { full: Some(_), .. })));
    assert!(matches!(db.transact(|tx| tx.get(texts, 1)), Err(Error::Closed)));
    assert!(matches!(database(&disk, None), Err(Error::Log(LogError::InUse { .. }))));
    disk.limit(None);
    db.close()?;
    assert_eq!(durable(&disk), [0, 1]);
    database(&disk, None)?;
    Ok(())
}

/// A database that is dropped writes nothing afterwards: another one may have the directory.
#[test]
fn what_a_dropped_database_could_not_write_is_not_written_later() -> Result<(), Error> {
    let disk = Image::default();
    let (db, texts) = database(&disk, None)?;
    disk.limit(Some(disk.used()));
    let ((), token) = db.submit(|tx| (0..2).try_for_each(|key| tx.put(texts, key, &[1; 60_000])))?;
    assert!(matches!(token.wait(), Err(Error::NotYetDurable { full: Some(_), .. })));
    drop(db);
    disk.limit(None);
    let (other, texts) = database(&disk, None)?;
    other.transact(|tx| tx.put(texts, 7, b"acknowledged"))?;
    assert!(matches!(token.wait(), Err(Error::OutcomeUnknown { .. })));
    other.transact(|tx| tx.put(texts, 8, b"acknowledged"))?;
    assert_eq!(durable(&disk), [7, 8]);
    Ok(())
}

#[test]
fn a_full_disk_is_opened_read_and_written_once_there_is_room() -> Result<(), Error> {
    let disk = Image::default();
    let (db, texts) = database(&disk, None)?;
    db.transact(|tx| (0..50).try_for_each(|key| tx.put(texts, key, &[1; 1_000])))?;
    db.checkpoint()?;
    db.transact(|tx| tx.put(texts, 50, b"behind the checkpoint"))?;
    let disk = disk.after_kill();
    disk.limit(Some(1));
    let names = disk.list().expect("names");
    let (db, texts) = database(&disk, None)?;
    assert_eq!(disk.list().expect("names"), names, "nothing was left behind");
    assert!(matches!(db.check_writable(), Err(Error::DiskFull { .. })));
    assert_eq!(db.read(|tx| tx.len(texts))?, 51);
    assert!(matches!(db.transact(|tx| tx.put(texts, 51, b"no room")), Err(Error::DiskFull { .. })));
    assert!(matches!(db.checkpoint(), Err(Error::DiskFull { .. })));
    assert_eq!(db.read(|tx| tx.get(texts, 51))?, None);
    disk.limit(None);
    db.transact(|tx| tx.put(texts, 52, b"room"))?;
    db.checkpoint()?;
    db.transact(|tx| tx.put(texts, 53, b"room"))?;
    let expected: Vec<u32> = (0..=50).chain([52, 53]).collect();
    assert_eq!(durable(&disk), expected);
    drop(db);
    // A database that closes on a full disk without having found room is as it was.
    let disk = disk.after_kill();
    disk.limit(Some(1));
    database(&disk, None)?.0.close()?;
    disk.limit(None);
    assert_eq!(durable(&disk), expected);
    Ok(())
}

#[test]
fn a_new_database_on_a_full_disk_is_an_error_and_leaves_nothing() {
    let disk = Image::default();
    disk.limit(Some(10));
    assert!(matches!(database(&disk, None), Err(Error::Log(_))));
    assert!(disk.list().expect("names").is_empty());
}

#[test]
fn a_checkpoint_that_finds_no_room_leaves_the_log_as_it_was() -> Result<(), Error> {
    let disk = Image::default();
    let (db, texts) = database(&disk, None)?;
    db.transact(|tx| (0..50).try_for_each(|key| tx.put(texts, key, &[1; 1_000])))?;
    disk.limit(Some(disk.used()));
    assert!(matches!(db.checkpoint(), Err(Error::Log(_))));
    assert!(!has_unfinished(&disk));
    db.transact(|tx| tx.put(texts, 50, &[1; 100]))?;
    disk.limit(None);
    db.checkpoint()?;
    assert_eq!(durable(&disk), (0..=50).collect::<Vec<_>>());
    Ok(())
}

/// A small file system of its own. It is unmounted when it is dropped.
struct Mounted(std::path::PathBuf);

impl Mounted {
    /// Returns `None` where mounting is not allowed.
    fn new(bytes: u64) -> Option<Self> {
        let path = std::env::temp_dir().join(format!("drtm-full-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        let mounted = Self(path);
        mount(&["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"], &mounted.0).then_some(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
        let _ = fs::remove_dir(&self.0);
    }
}

fn mount(arguments: &[&str], at: &Path) -> bool {
    Command::new("mount").args(arguments).arg(at).output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_real_file_system_that_is_full_and_then_read_only() -> Result<(), Error> {
    let Some(mounted) = Mounted::new(10 << 20) else {
        println!("skipped: this process may not mount a file system");
        return Ok(());
    };
    let [directory, filler, spare] = ["db", "filler", "spare"].map(|name| mounted.0.join(name));
    let open = || -> Result<(Db, Texts), Error> {
        let db = Db::builder().path(&directory).create(true).memory(64 << 20).build()?;
        let texts = db.table(TEXTS)?;
        Ok((db, texts))
    };
    let names = || -> Vec<_> {
        fs::read_dir(&directory).expect("a directory").map(|entry| entry.expect("one").file_name()).collect()
    };
    fs::write(&filler, vec![1; 4 << 20]).expect("room");
    fs::write(&spare, vec![1; 2 << 20]).expect("room");
    let (db, texts) = open()?;
    let full = fill(&db, texts, 0);
    assert!(full > 1_000, "{full}");
    fs::remove_file(&filler).expect("it is there");
    let more = fill(&db, texts, full);
    assert!(more > full + 1_000, "{more}");
    db.close()?;
    drop(db);
    // What closing has freed is used up, to the last byte.
    let mut rest = fs::File::create(&filler).expect("a name");
    while std::io::Write::write_all(&mut rest, &[1; 4096]).is_ok() {}
    let before = names();
    let (db, texts) = open()?;
    assert_eq!(names(), before);
    assert_eq!(db.read(|tx| tx.len(texts))?, u64::from(more));
    assert!(matches!(db.transact(|tx| tx.put(texts, more, b"full")), Err(Error::DiskFull { .. })));
    fs::remove_file(&spare).expect("it is there");
    db.transact(|tx| tx.put(texts, more, b"room"))?;
    drop((db, rest));
    assert!(mount(&["-o", "remount,ro"], &mounted.0), "it was mounted by this process");
    let (db, texts) = open()?;
    assert_eq!(db.read(|tx| tx.len(texts))?, u64::from(more) + 1);
    let Err(Error::ReadOnly { reason }) = db.check_writable() else { panic!("it is read-only") };
    assert!(reason.starts_with("cannot"), "{reason}");
    Ok(())
}
