//! Notes: the last one counts, over restarts, crashes and checkpoints.

use drtm_htm::NoHtm;
use drtm_testing::rounds;
use drtm_txn::{
    Db, Durability, Error, Mutation,
    durability::storage::{Fault, Image},
};

use super::{Rows, Sound, Tables, hooked::Hooked, open, open_with};

/// Returns a disk after a crash that has kept nothing but what was synced.
fn after_crash(disk: &Image) -> Image {
    disk.after_crash(&mut |choices| choices - 1)
}

#[test]
fn the_last_note_comes_back() -> Result<(), Error> {
    let disk = Image::recycling();
    let db = open(&disk)?;
    assert_eq!(db.noted(), None);
    // Tables and rows are beside it.
    let (tables, mut rows) = (Tables::of(&db)?, Rows::none());
    (0..8).try_for_each(|seed| tables.run(seed, &mut rows))?;
    db.note(b"one")?.wait()?;
    let token = db.note(b"two")?;
    assert_eq!(db.noted().as_deref(), Some(&b"two"[..]), "it need not be durable");
    token.wait()?;
    let disk = after_crash(&disk);
    let db = open(&disk)?;
    assert_eq!(db.noted().as_deref(), Some(&b"two"[..]));
    assert_eq!(Tables::of(&db)?.rows()?, rows);
    // An empty one, and one that is longer than a segment, are notes, too.
    for note in [&[][..], &[7; 5_000]] {
        db.note(note)?.wait()?;
        assert_eq!(open(&after_crash(&disk))?.noted().as_deref(), Some(note));
    }
    Ok(())
}

#[test]
fn a_note_that_is_not_durable_may_be_lost_and_the_one_before_is_not() -> Result<(), Error> {
    let disk = Image::default();
    let db = Hooked::new(&disk).builder(Durability::Async).build_with::<Sound>(NoHtm)?;
    db.note(b"one")?.wait()?;
    let token = db.note(b"two")?;
    assert!(!token.is_durable(), "no flush is under way");
    assert_eq!(open(&after_crash(&disk))?.noted().as_deref(), Some(&b"one"[..]));
    token.wait()?;
    assert_eq!(open(&after_crash(&disk))?.noted().as_deref(), Some(&b"two"[..]));
    Ok(())
}

/// Makes checkpoints, after which the segment is gone that has the note. Returns the note that is
/// recovered then.
fn after_checkpoints(fault: Option<Mutation>) -> Result<Option<Vec<u8>>, Error> {
    let disk = Image::recycling();
    let db = open_with(&disk, fault)?;
    let (tables, mut rows) = (Tables::of(&db)?, Rows::none());
    db.note(b"one")?.wait()?;
    for seed in 0..4 {
        tables.run(seed, &mut rows)?;
        db.checkpoint()?;
    }
    let again = open(&after_crash(&disk))?;
    assert_eq!(Tables::of(&again)?.rows()?, rows);
    Ok(again.noted())
}

#[test]
fn a_checkpoint_has_the_note() -> Result<(), Error> {
    assert_eq!(after_checkpoints(None)?.as_deref(), Some(&b"one"[..]));
    assert_eq!(after_checkpoints(Some(Mutation::NoteLeftOut))?, None, "the log has none any more");
    Ok(())
}

#[test]
fn a_backup_has_the_note() -> Result<(), Error> {
    let directory = std::env::temp_dir().join(format!("drtm-noted-{}", std::process::id()));
    let db = open(&Image::default())?;
    db.note(b"one")?.wait()?;
    db.backup(&directory)?;
    let copy: Db = Db::open(&directory)?;
    assert_eq!(copy.noted().as_deref(), Some(&b"one"[..]));
    drop(copy);
    std::fs::remove_dir_all(&directory).expect("it is there");
    Ok(())
}

/// Notes something before one write of a checkpoint: its header, its catalog, its rows, or its end.
/// Returns whether the checkpoint had such a write.
fn noted_at(write: u32, waits: bool) -> Result<bool, Error> {
    let disk = Image::default();
    let hooked = Hooked::new(&disk);
    let db = hooked.builder(Durability::Sync).build_with::<Sound>(NoHtm)?;
    let (tables, mut rows) = (Tables::of(&db)?, Rows::none());
    (0..8).try_for_each(|seed| tables.run(seed, &mut rows))?;
    db.note(b"before")?.wait()?;
    let (other, mut writes) = (db.clone(), 0);
    hooked.before_writes(move || {
        if writes == write {
            let token = other.note(b"meanwhile").expect("it has no fault");
            if waits {
                token.wait().expect("it has no fault");
            }
        }
        writes += 1;
    });
    db.checkpoint()?;
    hooked.no_more();
    let is_noted = db.noted().as_deref() == Some(b"meanwhile");
    tables.run(9, &mut rows)?;
    let expected = if is_noted { &b"meanwhile"[..] } else { b"before" };
    // The transaction is of a later epoch, and durable.
    let again = open(&after_crash(&disk))?;
    assert_eq!((again.noted().as_deref(), Tables::of(&again)?.rows()?), (Some(expected), rows));
    db.note(b"after")?.wait()?;
    assert_eq!(open(&after_crash(&disk))?.noted().as_deref(), Some(&b"after"[..]));
    Ok(is_noted)
}

#[test]
fn a_note_that_comes_while_a_checkpoint_is_made_wins() -> Result<(), Error> {
    for waits in [false, true] {
        let mut writes = 0;
        while noted_at(writes, waits)? {
            writes += 1;
        }
        assert!(writes >= 4, "a header, the catalog, rows and an end, and not {writes}");
    }
    Ok(())
}

/// Notes numbers, until the disk fails, beside rows and checkpoints. Returns the last that is
/// durable, and the last that was begun.
fn note_until_failure(disk: &Image, from: u8) -> (u8, u8) {
    let (mut durable, mut begun) = (from, from);
    let mut run = || -> Result<(), Error> {
        let db = open(disk)?;
        assert_eq!(db.noted(), Some(from).filter(|from| *from > 0).map(|from| vec![from]));
        let (tables, mut rows) = (Tables::of(&db)?, Rows::none());
        rows.clone_from(&tables.rows()?);
        for number in from + 1..from + 6 {
            begun = number;
            let token = db.note(&[number])?;
            if number % 2 == 0 {
                db.checkpoint()?;
            }
            token.wait()?;
            durable = number;
            tables.run(number.into(), &mut rows)?;
        }
        Ok(())
    };
    // Where the disk fails, the note may be there or not.
    let _ = run();
    (durable, begun)
}

#[test]
fn at_every_crash_the_last_note_is_there_or_one_that_was_begun() -> Result<(), Error> {
    let whole = Image::recycling();
    assert_eq!(note_until_failure(&whole, 0), (5, 5));
    for seed in 0..rounds(4) {
        let mut random = fastrand::Rng::with_seed(seed);
        for call in 0..whole.calls() {
            let disk = Image::recycling();
            disk.fail_at(call, Fault::Crash);
            let (durable, begun) = note_until_failure(&disk, 0);
            let disk = disk.after_crash(&mut |choices| random.u64(0..choices));
            let noted = open(&disk)?.noted();
            let number = noted.as_ref().map_or(0, |note| note[0]);
            assert!((durable..=begun).contains(&number), "{number}, and not from {durable} to {begun}, at call {call}");
            // It goes on from there.
            let next = note_until_failure(&disk, number);
            assert_eq!(next, (number + 5, number + 5));
        }
    }
    Ok(())
}
