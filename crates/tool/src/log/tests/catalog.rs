//! The tools on a log with dropped and renamed tables, and a dropped index.

use super::*;
use crate::log::fold::Left;

/// Writes the files of a disk to a directory.
fn laid(name: &str, disk: &Image) -> Directory {
    let directory = Directory::of(name, &[]);
    for name in Storage::list(disk).expect("a disk") {
        let bytes = Storage::open(disk, &name, Access::Read).and_then(|file| file.read()).expect("it is listed");
        fs::write(directory.path().join(name), bytes).expect("space");
    }
    directory
}

/// Returns the tables' identities, names and numbers of indexes.
fn tables(folded: &Folded<'_>) -> Vec<(u16, String, usize)> {
    folded.tables.iter().map(|(id, (shape, indexes))| (*id, shape.name.clone(), indexes.len())).collect()
}

#[test]
fn what_was_dropped_is_not_salvaged_and_what_was_renamed_has_its_name() {
    let disk = Image::default();
    run(&disk, 0);
    let disk = disk.after_kill();
    let db = open(&disk);
    db.drop_index("pairs by second").expect("it is recorded");
    db.rename_table("pairs", "renamed").expect("it is there");
    db.drop_table("texts").expect("it is there");
    let texts = db.table(TEXTS).expect("a table");
    db.transact(|tx| tx.put(texts, "new".to_owned(), b"new")).expect("no fault");
    for step in 0..3 {
        match step {
            0 => {}
            1 => drop(db.checkpoint().expect("no fault")),
            _ => db.rename_table("renamed", "again").expect("it is there"),
        }
        let directory = laid("catalog", &disk.after_kill());
        let contents = Contents::read(directory.path()).expect("it is there");
        let folded = fold(&contents.survey(), false);
        let name = if step == 2 { "again" } else { "renamed" };
        assert_eq!(tables(&folded), [(0, name.to_owned(), 0), (2, "texts".to_owned(), 0)], "step {step}");
        assert_eq!(folded.left, Left::default(), "step {step}");
        let salvaged = rows(&folded);
        assert!(salvaged.keys().any(|(table, _)| *table == 0));
        let new: Vec<_> = salvaged.iter().filter(|((table, _), _)| *table != 0).collect();
        assert_eq!(new, [(&(2, b"new".to_vec()), &b"new".to_vec())], "step {step}");
        // The database agrees, and so does a database of what was salvaged.
        let copy = Directory::of("catalog-copy", &[]);
        rewrite::write(copy.path(), &folded).expect("space");
        for directory in [&directory, &copy] {
            let db = trial::open(directory.path(), MEMORY).expect("it is not damaged");
            let count = |table: u16| salvaged.keys().filter(|(one, _)| *one == table).count() as u64;
            assert_eq!(db.tables().expect("sound"), [(name, count(0)), ("texts", count(2))], "step {step}");
        }
    }
}

#[test]
fn a_name_that_two_tables_have_as_a_drop_is_lost_is_the_newer_ones() {
    let disk = Image::default();
    let db = open(&disk);
    let pairs = db.table(PAIRS).expect("a table");
    db.transact(|tx| tx.put(pairs, 1, &Pair::default())).expect("no fault");
    db.drop_table("pairs").expect("it is there");
    let pairs = db.table(PAIRS).expect("a table");
    db.transact(|tx| tx.put(pairs, 2, &Pair::default())).expect("no fault");
    let mut segments = segments(&disk.after_kill());
    // The record of the drop is the only one of its kind.
    let (_, bytes) = segments.first_mut().expect("there is one");
    let is_drop = |at: &usize| bytes[*at..].starts_with(&[2, 0, 5, 0]);
    let at = (0..bytes.len()).step_by(4).find(is_drop).expect("it was logged");
    bytes[at + 4] ^= 1;
    let mut contents = Contents::of(segments);
    contents.checkpoints = Vec::new();
    let folded = fold(&contents.survey(), false);
    assert_eq!(tables(&folded), [(0, "pairs 0".to_owned(), 0), (1, "pairs".to_owned(), 0)]);
    assert_eq!((folded.left.doubled_names, folded.rows.len()), (1, 2));
}
