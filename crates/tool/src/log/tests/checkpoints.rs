//! Directories with checkpoints: valid, damaged and unfinished.

use std::fs;

use drtm_txn::durability::format::{INCOMPLETE, checkpoint_name, number_of, sequence_of};

use super::*;
use crate::log::verify::examine;

/// The files of a directory.
type Files = BTreeMap<String, Vec<u8>>;

/// Keys of rows that are written once.
const ONCE: std::ops::Range<u64> = 100..108;

fn files(disk: &Image) -> Files {
    let names = Storage::list(disk).expect("a disk");
    let read = |name: String| {
        let bytes = Storage::open(disk, &name, Access::Read).and_then(|file| file.read()).expect("it is listed");
        (name, bytes)
    };
    names.into_iter().map(read).collect()
}

/// Makes a checkpoint whose rows are nowhere else.
fn checkpoint(disk: &Image) {
    let db = open(disk);
    let (pairs, texts) = (db.table(PAIRS).expect("a table"), db.table(TEXTS).expect("a table"));
    db.index(pairs, BY_SECOND).expect("an index");
    db.transact(|tx| {
        ONCE.into_iter().try_for_each(|number| {
            tx.put(pairs, number as u32, &Pair { first: number, second: number })?;
            tx.put(texts, format!("once {number}"), &[number as u8; 20])
        })
    })
    .expect("no fault");
    assert!(db.checkpoint().expect("no fault").rows > 16);
}

/// Returns a log that starts with a checkpoint.
fn checkpointed() -> Image {
    let disk = Image::default();
    run(&disk, 0);
    let disk = disk.after_kill();
    run(&disk, 10);
    checkpoint(&disk);
    run(&disk, 20);
    disk.after_kill()
}

/// Replaces the files of a directory.
fn lay(directory: &Directory, files: &Files) {
    for file in fs::read_dir(directory.path()).expect("it is there") {
        let file = file.expect("a file");
        if !files.contains_key(&*file.file_name().to_string_lossy()) {
            fs::remove_file(file.path()).expect("it is there");
        }
    }
    for (name, bytes) in files {
        fs::write(directory.path().join(name), bytes).expect("space");
    }
}

/// Returns the contents of files that are in no directory.
fn contents_of(files: &Files) -> Contents {
    let of = |number: fn(&str) -> Option<u64>| {
        let named = files.iter().filter_map(|(name, bytes)| Some((number(name)?, bytes.clone())));
        named.collect::<Vec<_>>()
    };
    let mut contents = Contents::of(of(sequence_of));
    contents.checkpoints = of(number_of);
    contents
}

/// Returns the damage that verifying reports, and what salvaging finds.
fn told(directory: &Directory) -> (Option<(String, u64)>, Rows, crate::log::fold::Left) {
    let verdict = examine(directory.path(), MEMORY).expect("it is no other failure");
    let contents = Contents::read(directory.path()).expect("it is there");
    let folded = fold(&contents.survey(), false);
    (verdict.damage.map(|damage| (damage.file, damage.offset)), rows(&folded), folded.left)
}

/// Returns the rows that opening the database reads.
fn whole(directory: &Directory) -> Rows {
    rows_of(&trial::open(directory.path(), MEMORY).expect("it is not damaged"))
}

fn names(files: &Files, number: fn(&str) -> Option<u64>) -> Vec<u64> {
    files.keys().filter_map(|name| number(name)).collect()
}

#[test]
fn a_checkpoint_and_removed_segments_are_no_damage() {
    let files = files(&checkpointed());
    assert_eq!(names(&files, number_of), [1]);
    let first = *names(&files, sequence_of).first().expect("there are segments");
    assert!(first > 1, "older ones are removed");
    let directory = Directory::of("checkpoint", &[]);
    lay(&directory, &files);
    let (damage, salvaged, left) = told(&directory);
    assert_eq!(damage, None);
    assert_eq!(salvaged, whole(&directory));
    assert!(salvaged.len() > 16 && left == crate::log::fold::Left::default(), "{left:?}");
    // The salvaged log has no checkpoint, and the same rows.
    let copy = Directory::of("checkpoint-copy", &[]);
    let contents = Contents::read(directory.path()).expect("it is there");
    rewrite::write(copy.path(), &fold(&contents.survey(), false)).expect("space");
    assert_eq!((told(&copy).0, whole(&copy)), (None, salvaged));
    drop(contents);
    // Damage in obsolete segments does not matter.
    let mut stale = files.clone();
    stale.insert(segment_name(1), vec![7; 1_000]);
    lay(&directory, &stale);
    let (damage, salvaged, left) = told(&directory);
    assert_eq!((damage, salvaged, left.damaged_bytes), (None, whole(&directory), 0));
    // Damage in needed segments does.
    let mut missing = files.clone();
    missing.retain(|name, _| sequence_of(name) != Some(first));
    lay(&directory, &missing);
    let (damage, ..) = told(&directory);
    assert_eq!(damage.expect("a segment is missing").1, 0);
    missing.retain(|name, _| sequence_of(name).is_none());
    lay(&directory, &missing);
    let (damage, salvaged, left) = told(&directory);
    assert_eq!(damage, Some((segment_name(first), 0)));
    assert!(salvaged.len() > 16 && !left.damages.is_empty(), "{left:?}");
}

#[test]
fn every_flipped_bit_of_a_checkpoint_is_named_and_the_rest_is_salvaged() {
    let files = files(&checkpointed());
    let directory = Directory::of("checkpoint-flipped", &[]);
    lay(&directory, &files);
    let before = whole(&directory);
    let name = checkpoint_name(1);
    let bytes = &files[&name];
    let contents = contents_of(&files);
    let survey = contents.survey();
    let frames = survey.checkpoints[0].file.frames.iter().map(|frame| frame.offset);
    let places: Vec<_> = std::iter::once(0).chain(frames).collect();
    assert_eq!(places.len(), 5, "a header, the catalog, two tables, an end");
    drop(survey);
    drop(contents);
    let (mut most, mut complete, mut changed) = (0, 0, files.clone());
    for bit in 0..bytes.len() * 8 {
        let flip = |files: &mut Files| files.get_mut(&name).expect("it is there")[bit / 8] ^= 1 << (bit % 8);
        flip(&mut changed);
        let hit = places.iter().rev().find(|place| **place <= bit / 8).copied().expect("the header at least");
        // Opening takes long, so not every bit is tried, but every position in a byte is.
        if bit % 37 == 0 {
            fs::write(directory.path().join(&name), &changed[&name]).expect("space");
            assert_eq!(told(&directory).0, Some((name.clone(), hit as u64)), "bit {bit}");
        }
        let contents = contents_of(&changed);
        let folded = fold(&contents.survey(), false);
        let (salvaged, left) = (rows(&folded), &folded.left);
        let first = &left.damages[0];
        assert_eq!((&first.file, first.offset), (&name, hit as u64), "bit {bit}");
        // At most one table's rows are lost, and the checkpoint's end tells their number.
        let lost: Vec<_> = before.iter().filter(|(key, value)| salvaged.get(*key) != Some(value)).collect();
        let is_of_one = lost.iter().all(|(key, _)| key.0 == lost[0].0.0);
        assert!(is_of_one && salvaged.iter().all(|row| before.contains_key(row.0)), "bit {bit}: {lost:?}");
        assert_eq!(lost.is_empty(), left.missing_rows == 0, "bit {bit}: {lost:?} {left:?}");
        most = most.max(lost.len());
        complete += u64::from(lost.is_empty());
        drop(folded);
        drop(contents);
        flip(&mut changed);
    }
    assert!(most >= ONCE.count() && complete > 1_000, "{most} {complete}");
}

#[test]
fn every_truncation_of_a_checkpoint_is_named() {
    let mut files = files(&checkpointed());
    let directory = Directory::of("checkpoint-cut", &[]);
    let name = checkpoint_name(1);
    let bytes = files[&name].clone();
    for length in (0..bytes.len()).step_by(11).chain([bytes.len() + 8]) {
        let mut cut = bytes.clone();
        cut.resize(length, 0);
        files.insert(name.clone(), cut);
        lay(&directory, &files);
        let (damage, _, left) = told(&directory);
        assert_eq!(damage.expect("it is cut").0, name, "{length}");
        assert!(left.damages.iter().any(|damage| damage.file == name), "{length}: {left:?}");
    }
}

#[test]
fn a_damaged_checkpoint_falls_back_to_an_older_one() {
    let disk = checkpointed();
    let mut all = files(&disk);
    checkpoint(&disk);
    run(&disk, 30);
    let newer = files(&disk.after_kill());
    let directory = Directory::of("checkpoint-older", &[]);
    lay(&directory, &newer);
    let before = whole(&directory);
    // The state of a crash that left the older checkpoint with its segments, and a damaged newer
    // one.
    newer.iter().for_each(|(name, bytes)| drop(all.insert(name.clone(), bytes.clone())));
    assert_eq!(names(&all, number_of), [1, 2]);
    lay(&directory, &all);
    assert_eq!(told(&directory).0, None, "both are whole");
    let second = checkpoint_name(2);
    let middle = all[&second].len() / 2;
    all.get_mut(&second).expect("it is there")[middle] ^= 1;
    lay(&directory, &all);
    let contents = Contents::read(directory.path()).expect("it is there");
    assert_eq!(contents.survey().base.map(|(header, _)| header.number), Some(1));
    drop(contents);
    let (damage, salvaged, left) = told(&directory);
    assert_eq!(damage.expect("it is damaged").0, second);
    assert_eq!((salvaged, left.missing_rows), (before, 0), "the log has what the checkpoint has lost");
}

#[test]
fn an_unfinished_backup_is_told() {
    let mut files = files(&checkpointed());
    files.insert(INCOMPLETE.to_owned(), Vec::new());
    let directory = Directory::of("incomplete", &[]);
    lay(&directory, &files);
    let (damage, salvaged, left) = told(&directory);
    assert_eq!(damage, Some((INCOMPLETE.to_owned(), 0)));
    assert!(salvaged.len() > 16 && left.damages[0].file == INCOMPLETE, "{left:?}");
    files.retain(|name, _| name == INCOMPLETE);
    lay(&directory, &files);
    assert_eq!(told(&directory).0, Some((INCOMPLETE.to_owned(), 0)));
}
