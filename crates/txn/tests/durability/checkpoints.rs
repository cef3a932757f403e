//! Checkpoints: their contents, the truncation of the log, and damage.

use std::{
    sync::{Arc, mpsc::channel},
    thread,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_testing::rounds;
use drtm_txn::{
    Commit, Db, Durability, Error, LogError, Mutation, Ordered, Pod, Raw, Sink, SinkError, TableDef,
    durability::{
        format::{
            CheckpointEnd, CheckpointHeader, RecordKind, checkpoint_name, number_of, records, segment_name, sequence_of,
        },
        storage::{Access, Image, Storage},
    },
    part,
};
use parking_lot::Mutex;
use proptest::prelude::*;

use super::{Pair, Rows, Sound, Tables, builder, hooked::Hooked, open, open_with, with};

const WORDS: TableDef<u64, Pod<u64>> = TableDef::hash("words");
const NAMES: TableDef<String, Raw> = TableDef::hash("names");
const SORTED: TableDef<(u16, u64), Pod<u64>, Ordered> = TableDef::ordered("sorted");
const TEXTS: TableDef<String, Raw, Ordered> = TableDef::ordered("sorted names");

proptest! {
    #[test]
    fn headers_and_ends_of_checkpoints_come_back(log: u128, number: u64, since: u64, first: u64, rows: u64, next_table: u16) {
        let header = CheckpointHeader { log, number, since, first };
        prop_assert_eq!(CheckpointHeader::decode(&header.encode()), Ok(header));
        prop_assert_eq!(number_of(&checkpoint_name(number)), Some(number));
        prop_assert_eq!((number_of(&segment_name(number)), sequence_of(&checkpoint_name(number))), (None, None));
        let (mut bytes, end) = (Vec::new(), CheckpointEnd { until: since, rows, next_table });
        end.encode(&mut bytes, 5).expect("it is short");
        let (_, record) = records(&bytes).next().expect("a record").expect("it was written");
        prop_assert_eq!((record.kind, CheckpointEnd::decode(&record)), (RecordKind::End, Ok(end)));
    }
}

fn names(disk: &Image) -> Vec<String> {
    disk.after_kill().list().expect("it has no fault")
}

#[test]
fn every_row_of_every_kind_of_table_comes_back_with_its_version_though_they_change_meanwhile() -> Result<(), Error> {
    const ROWS: u64 = 300;
    let disk = Image::default();
    let hooked = Hooked::new(&disk);
    let db = hooked.builder(Durability::Sync).memory(64 << 20).build_with::<Sound>(NoHtm)?;
    let (words, names, sorted, texts) = (db.table(WORDS)?, db.table(NAMES)?, db.table(SORTED)?, db.table(TEXTS)?);
    let put = move |db: &Db<Sound>, key: u64, value: u64| {
        db.transact(|tx| {
            tx.put(words, key, &value)?;
            tx.put(names, format!("name {key}"), &value.to_le_bytes())?;
            tx.put(sorted, ((key % 7) as u16, key), &value)?;
            tx.put(texts, format!("a long common beginning {key}"), &vec![value as u8; (value % 90) as usize])
        })
    };
    (0..ROWS).try_for_each(|key| put(&db, key, key))?;
    // Hash tables grow, trees split, values move, and rows come and go during the checkpoint.
    let (other, mut next) = (db.clone(), ROWS);
    hooked.before_writes(move || {
        for _ in 0..2 {
            put(&other, next, next).expect("it has no fault");
            put(&other, next % ROWS, next).expect("it has no fault");
            let gone = other.transact(|tx| {
                tx.remove(words, next - ROWS)?;
                tx.remove(texts, format!("a long common beginning {}", next - ROWS))
            });
            gone.expect("it has no fault");
            next += 1;
        }
    });
    let made = db.checkpoint()?;
    hooked.no_more();
    assert!(made.rows > 4 * ROWS / 2 && made.bytes > 20 * made.rows, "{made:?}");
    for step in 0..2 {
        let all = |db: &Db<Sound>| -> Result<_, Error> {
            let (words, names, sorted, texts) =
                (db.table(WORDS)?, db.table(NAMES)?, db.table(SORTED)?, db.table(TEXTS)?);
            let keys: Vec<u64> = (0..4 * ROWS).collect();
            let text: Vec<String> = keys.iter().map(|key| format!("name {key}")).collect();
            db.read(|tx| {
                Ok((
                    tx.get_many(words, &keys)?,
                    tx.get_many(names, &text)?,
                    tx.range(sorted, ..)?.rows().collect::<Result<Vec<_>, _>>()?,
                    tx.range(texts, ..)?.rows().collect::<Result<Vec<_>, _>>()?,
                ))
            })
        };
        let before = all(&db)?;
        assert!(before.0.iter().flatten().count() > 100 && before.2.len() > ROWS as usize);
        let opened = large(&disk.after_crash(&mut |most| most - 1))?;
        assert_eq!(all(&opened)?, before, "step {step}");
        db.transact(|tx| tx.update(words, 2 * ROWS - 1, |value| *value += 1))?;
        put(&db, 3 * ROWS - 1, 5)?;
    }
    Ok(())
}

fn large(disk: &Image) -> Result<Db<Sound>, Error> {
    builder(disk, Durability::Sync).memory(64 << 20).build_with(NoHtm)
}

#[test]
fn what_it_takes_the_place_of_is_removed_and_nothing_else() -> Result<(), Error> {
    let disk = Image::default();
    let db = open(&disk)?;
    let tables = Tables::of(&db)?;
    let mut rows = Rows::none();
    for round in 1..4 {
        (0..40).try_for_each(|number| tables.run(100 * round + number, &mut rows))?;
        assert!(names(&disk).len() > 4, "{:?}", names(&disk));
        db.checkpoint()?;
        let left = names(&disk);
        assert!(left.contains(&checkpoint_name(round)) && left.len() == 2, "{left:?}");
        let db = open(&disk.after_crash(&mut |most| most - 1))?;
        assert_eq!(Tables::of(&db)?.rows()?, rows);
    }
    // Also with an empty log behind it, and as the second of two.
    db.checkpoint()?;
    drop(db);
    let db = open(&disk)?;
    assert_eq!(Tables::of(&db)?.rows()?, rows);
    Ok(())
}

#[test]
fn a_database_in_memory_has_no_checkpoints() -> Result<(), Error> {
    assert!(matches!(Db::new()?.checkpoint(), Err(Error::Config { .. })));
    let db = open(&Image::default())?;
    db.close()?;
    assert!(matches!(db.checkpoint(), Err(Error::Closed)));
    Ok(())
}

#[test]
fn they_are_made_by_themselves_as_the_log_grows() -> Result<(), Error> {
    let disk = Image::default();
    let db = builder(&disk, Durability::Sync).checkpoint_every(8 << 10).build_with::<Sound>(NoHtm)?;
    let tables = Tables::of(&db)?;
    let mut rows = Rows::none();
    let mut seed = 0;
    while !names(&disk).iter().any(|name| number_of(name) > Some(3)) {
        tables.run(seed, &mut rows)?;
        seed += 1;
    }
    drop(db);
    let segments = names(&disk).iter().filter(|name| sequence_of(name).is_some()).count() as u64;
    assert!(segments * 1024 < 200 << 10, "{segments} segments");
    let db = open(&disk)?;
    assert_eq!(Tables::of(&db)?.rows()?, rows);
    Ok(())
}

/// Patches a row and removes it in one epoch, while a checkpoint is made that does not contain it,
/// and whose last epoch this is. The log then has a patch without the value before it.
fn patched_and_removed_in_the_last_epoch() -> Result<Image, Error> {
    let disk = Image::default();
    let hooked = Hooked::new(&disk);
    let db = hooked.builder(Durability::Async).build_with::<Sound>(NoHtm)?;
    let tables = Tables::of(&db)?;
    let first = tables.pairs.column(part!(Pair, first));
    db.transact(|tx| tx.put(tables.pairs, 1, &Pair { first: 1, second: 1 }))?;
    let other = db.clone();
    hooked.before_writes({
        let pairs = tables.pairs;
        move || {
            let patched = other.transact(|tx| tx.update(first, 1, |first| *first += 1));
            if patched.expect("it has no fault").is_some() {
                other.transact(|tx| tx.remove(pairs, 1)).expect("it has no fault");
            }
        }
    });
    assert_eq!(db.checkpoint()?.rows, 0, "the row is gone before it is read");
    hooked.no_more();
    Ok(disk.after_crash(&mut |most| most - 1))
}

#[test]
fn a_row_may_be_missing_that_was_removed_in_the_last_epoch_of_a_checkpoint() -> Result<(), Error> {
    let disk = patched_and_removed_in_the_last_epoch()?;
    let db = open(&disk.after_kill())?;
    assert_eq!(db.read(|tx| tx.len(Tables::of(&db)?.pairs))?, 0);
    match open_with(&disk, Some(Mutation::LastEpochExcluded)) {
        Err(Error::Log(LogError::Damaged { why, .. })) => assert!(why.contains("patch"), "{why}"),
        other => panic!("the fault is not noticed: {other:?}"),
    }
    Ok(())
}

/// Returns a small database with a checkpoint, and entries behind it.
fn small() -> Result<(Image, Vec<Rows>), Error> {
    let disk = Image::default();
    let db = open(&disk)?;
    let tables = Tables::of(&db)?;
    let put = |number: u64| {
        db.transact(|tx| {
            tx.put(tables.pairs, number as u32 % 3, &Pair { first: number, second: 1 })?;
            tx.put(tables.texts, format!("text {}", number % 2), &[number as u8; 5])
        })
    };
    (0..4).try_for_each(put)?;
    db.checkpoint()?;
    put(4)?;
    let rows = tables.rows()?;
    db.close()?;
    Ok((disk, vec![rows]))
}

#[test]
fn every_truncation_and_every_flipped_bit_of_a_checkpoint_is_refused() -> Result<(), Error> {
    let (disk, rows) = small()?;
    let name = checkpoint_name(1);
    let bytes = Storage::open(&disk, &name, Access::Read).and_then(|file| file.read()).expect("it is there");
    let is_refused = |disk: &Image, why: &str| match open(disk) {
        Err(Error::Log(LogError::Damaged { file, .. } | LogError::OtherFormat { file, .. })) => {
            assert_eq!(file, name, "{why}");
        }
        Err(error) => panic!("{why}: {error}"),
        Ok(db) => panic!("{why}: it opens, with {:?}", Tables::of(&db).and_then(|tables| tables.rows())),
    };
    for length in 0..bytes.len() {
        let disk = disk.after_kill();
        disk.damage(&name, |bytes| bytes.truncate(length));
        is_refused(&disk, &format!("cut off at {length}"));
    }
    for bit in 0..8 * bytes.len() {
        let disk = disk.after_kill();
        disk.damage(&name, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        is_refused(&disk, &format!("bit {bit} flipped"));
    }
    let db = open(&disk)?;
    assert!(rows.contains(&Tables::of(&db)?.rows()?));
    Ok(())
}

#[test]
fn a_checkpoint_whose_log_is_missing_is_refused() -> Result<(), Error> {
    let (disk, _) = small()?;
    let segments: Vec<_> = names(&disk).into_iter().filter(|name| sequence_of(name).is_some()).collect();
    for name in segments {
        let disk = disk.after_kill();
        disk.remove(&name).expect("it is there");
        assert!(matches!(open(&disk), Err(Error::Log(LogError::Damaged { .. }))), "without {name}");
    }
    Ok(())
}

/// Reports when a transaction that writes this row is about to be logged.
#[derive(Debug)]
struct Tell(Mutex<std::sync::mpsc::Sender<()>>);

impl Sink for Tell {
    fn commit(&self, commit: &Commit<'_>) -> Result<(), SinkError> {
        if commit.rows().any(|row| row.table() == "words") {
            self.0.lock().send(())?;
        }
        Ok(())
    }
}

/// Makes a checkpoint while another thread is about to write its row. Returns whether the row is
/// lost.
fn loses_a_row(fault: Option<Mutation>) -> bool {
    let disk = Image::default();
    let (tell, told) = channel();
    let sink = Arc::new(Tell(Mutex::new(tell)));
    let builder = with(builder(&disk, Durability::Async).sink(sink), fault);
    let db = builder.build_with::<Sound>(NoHtm).expect("a database");
    let words = db.table(WORDS).expect("a table");
    thread::scope(|scope| {
        let writer = scope.spawn(|| db.transact(|tx| tx.put(words, 1, &7)));
        told.recv().expect("it commits");
        thread::sleep(Duration::from_millis(3));
        db.checkpoint().expect("it has no fault");
        writer.join().expect("no panic").expect("it has no fault");
    });
    drop(db);
    let db = open(&disk).expect("it can be opened");
    let words = db.table(WORDS).expect("it is there");
    db.read(|tx| tx.get(words, 1)).expect("memory").is_none()
}

#[test]
fn no_row_is_lost_that_is_being_written_when_a_checkpoint_begins() {
    assert!((0..rounds(5)).all(|_| !loses_a_row(None)));
    assert!((0..50).any(|_| loses_a_row(Some(Mutation::EpochClearedEarly))), "the fault is noticed");
}
