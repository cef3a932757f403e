//! Damages a small log in every way: nothing panics, and every report is true.

mod catalog;
mod checkpoints;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use drtm_htm::NoHtm;
use drtm_txn::{
    Builder, Db, Durability, Error as DbError, IndexDef, LogError, Ordered, Pod, Raw, TableDef,
    durability::{
        format::{FRAME_HEADER, SEGMENT_HEADER, segment_name},
        storage::{Access, Fault, Image, Storage},
    },
    part,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{
    fold::{Folded, fold},
    rewrite,
    survey::Contents,
    trial::{self, Plain},
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Pair {
    first: u64,
    second: u64,
}

const PAIRS: TableDef<u32, Pod<Pair>> = TableDef::hash("pairs");
const TEXTS: TableDef<String, Raw, Ordered> = TableDef::ordered("texts");
const BY_SECOND: IndexDef<u32, Pod<Pair>, u64> = IndexDef::unique("pairs by second", |_, pair| Some(pair.second));

const MEMORY: u64 = 16 << 20;

/// Rows, by table and key.
type Rows = BTreeMap<(u16, Vec<u8>), Vec<u8>>;

fn open(disk: &Image) -> Db<Plain> {
    let builder = Builder::new().memory(MEMORY).storage(Arc::new(disk.clone()), 4 << 10);
    builder.durability(Durability::Sync).build_with(NoHtm).expect("a database")
}

/// Runs some transactions: puts, patches, a removal.
fn run(disk: &Image, from: u64) {
    let db = open(disk);
    let (pairs, texts) = (db.table(PAIRS).expect("a table"), db.table(TEXTS).expect("a table"));
    db.index(pairs, BY_SECOND).expect("an index");
    for number in from..from + 5 {
        db.transact(|tx| {
            let key = number as u32 % 3;
            tx.put(pairs, key, &Pair { first: number, second: number })?;
            tx.put(texts, format!("text {key}"), &[number as u8; 20])
        })
        .expect("no fault");
        db.transact(|tx| {
            tx.update(pairs.column(part!(Pair, first)), number as u32 % 3, |first| *first += 100)?;
            tx.remove(texts, format!("text {}", (number + 1) % 3)).map(drop)
        })
        .expect("no fault");
    }
}

/// Returns a log of three segments. The processes that wrote the first two were killed.
fn small_log() -> Vec<(u64, Vec<u8>)> {
    let disk = Image::default();
    run(&disk, 0);
    let disk = disk.after_kill();
    run(&disk, 10);
    let disk = disk.after_kill();
    run(&disk, 20);
    segments(&disk.after_kill())
}

fn segments(disk: &Image) -> Vec<(u64, Vec<u8>)> {
    let names = (1..).map(|sequence| (sequence, segment_name(sequence)));
    names
        .map_while(|(sequence, name)| Some((sequence, Storage::open(disk, &name, Access::Read).ok()?.read().ok()?)))
        .collect()
}

fn rows(folded: &Folded<'_>) -> Rows {
    folded.rows.iter().map(|row| ((row.table, row.key.to_vec()), row.value.to_vec())).collect()
}

/// Returns the rows that a database reads.
fn rows_of(db: &Db<Plain>) -> Rows {
    let (pairs, texts) = (db.table(PAIRS).expect("a table"), db.table(TEXTS).expect("a table"));
    let (pairs, texts) = db
        .read(|tx| {
            let pairs = (0..200_u32).map(|key| Ok(tx.get(pairs, key)?.map(|pair| (key, pair))));
            let pairs: Vec<_> = pairs.collect::<Result<_, DbError>>()?;
            Ok((pairs, tx.range(texts, ..)?.rows().collect::<Result<Vec<_>, _>>()?))
        })
        .expect("memory");
    let mut all = Rows::new();
    all.extend(
        pairs.into_iter().flatten().map(|(key, pair)| ((0, key.to_be_bytes().to_vec()), pair.as_bytes().to_vec())),
    );
    all.extend(texts.into_iter().map(|(key, text)| ((1, key.into_bytes()), text)));
    all
}

/// A directory with segments, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn of(name: &str, segments: &[(u64, Vec<u8>)]) -> Self {
        let path = std::env::temp_dir().join(format!("drtm-log-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory");
        let directory = Self(path);
        directory.write(segments);
        directory
    }

    fn write(&self, segments: &[(u64, Vec<u8>)]) {
        for (sequence, bytes) in segments {
            fs::write(self.0.join(segment_name(*sequence)), bytes).expect("space");
        }
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the first damage that opening the database reports.
fn damage(directory: &Path) -> Option<(String, u64)> {
    match trial::open(directory, MEMORY) {
        Ok(_) => None,
        Err(DbError::Log(LogError::Damaged { file, offset, .. })) => Some((file, offset)),
        Err(DbError::Log(LogError::OtherFormat { file, .. })) => Some((file, 0)),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn what_is_not_damaged_is_read_as_the_database_reads_it() {
    let log = small_log();
    let contents = Contents::of(log.clone());
    let survey = contents.survey();
    assert!(survey.damages.is_empty(), "{:?}", survey.damages);
    assert_eq!(survey.segments.len(), 3);
    assert!(survey.segments.iter().all(|segment| !segment.frames.is_empty() && segment.holes.is_empty()));
    let folded = fold(&survey, false);
    let directory = Directory::of("whole", &log);
    let before: Vec<_> =
        fs::read_dir(directory.path()).expect("it is there").map(|file| file.expect("a file").file_name()).collect();
    let db = trial::open(directory.path(), MEMORY).expect("it is not damaged");
    let expected = rows_of(&db);
    assert!(expected.len() >= 4, "{expected:?}");
    assert_eq!(rows(&folded), expected);
    let left = &folded.left;
    assert_eq!(
        (left.patches, left.stale_rows, left.lost_rows, left.orphaned_rows, left.damaged_bytes),
        (0, 0, 0, 0, 0)
    );
    drop(db);
    let after: Vec<_> =
        fs::read_dir(directory.path()).expect("it is there").map(|file| file.expect("a file").file_name()).collect();
    assert_eq!(before, after, "a trial leaves the directory as it is");
}

#[test]
fn a_rewritten_log_is_the_same_database() {
    let log = small_log();
    let contents = Contents::of(log);
    let folded = fold(&contents.survey(), false);
    let directory = Directory::of("rewritten", &[]);
    rewrite::write(directory.path(), &folded).expect("space");
    let copy = Contents::read(directory.path()).expect("it was written");
    let again = fold(&copy.survey(), false);
    assert!(again.left.damages.is_empty());
    assert_eq!((rows(&again), &again.tables), (rows(&folded), &folded.tables));
    drop(copy);
    // Versions and epochs continue: the log is opened twice, with transactions between.
    for number in 0..2_u64 {
        let db: Db = Db::builder().memory(MEMORY).path(directory.path()).build().expect("a database");
        let pairs = db.table(PAIRS).expect("a table");
        let first = db.read(|tx| tx.get(pairs, 1)).expect("memory").expect("it is there").first;
        assert!(number == 0 || first == 1_000, "{first}");
        let refused = db.transact(|tx| tx.put(pairs, 1, &Pair { first: 1_000, second: 1_000 }));
        assert!(matches!(refused, Err(DbError::IndexNotOpened { .. })), "indexes are recorded");
        db.index(pairs, BY_SECOND).expect("an index");
        db.transact(|tx| tx.put(pairs, 1, &Pair { first: 1_000, second: 1_000 })).expect("a disk");
        db.close().expect("a disk");
    }
}

/// Applies a change to a copy of a log, and checks the reports. Returns what opening it reports.
fn check(
    log: &[(u64, Vec<u8>)],
    directory: &Directory,
    at: (usize, usize),
    change: impl FnOnce(&mut Vec<u8>),
) -> Option<(String, u64)> {
    let (segment, offset) = at;
    let mut log = log.to_vec();
    change(&mut log[segment].1);
    let contents = Contents::of(log.clone());
    let survey = contents.survey();
    let found = survey.damages.first().map(|damage| (damage.file.clone(), damage.offset));
    // With and without unclosed records.
    for unclosed in [false, true] {
        let folded = fold(&survey, unclosed);
        for ((table, key), value) in rows(&folded) {
            let is_possible = match table {
                0 => value.len() == size_of::<Pair>() && key.len() == 4,
                1 => value.len() == 20 && value.iter().all(|byte| *byte == value[0]),
                _ => false,
            };
            assert!(is_possible, "segment {segment}, {offset}: {key:?} {value:?}");
        }
    }
    directory.write(&log);
    let refused = damage(directory.path());
    assert!(
        refused.is_none() || found.is_some(),
        "segment {segment}, {offset}: opening says {refused:?}, and the survey {found:?}"
    );
    refused
}

#[test]
fn every_flipped_byte_is_named_or_torn_and_the_rest_is_salvaged() {
    let log = small_log();
    let directory = Directory::of("flipped", &log);
    let contents = Contents::of(log.clone());
    let survey = contents.survey();
    let whole = rows(&fold(&survey, false));
    // The offsets of the frames of each segment, with its header first.
    let places: Vec<Vec<usize>> = survey
        .segments
        .iter()
        .map(|segment| [0].into_iter().chain(segment.frames.iter().map(|frame| frame.offset)).collect())
        .collect();
    let (mut named, mut torn) = (0, 0);
    for (segment, places) in places.iter().enumerate() {
        let end = survey.segments[segment].end;
        for offset in (0..end).step_by(7) {
            let hit = places.iter().rev().find(|place| **place <= offset).copied().expect("the header at least");
            let refused = check(&log, &directory, (segment, offset), |bytes| bytes[offset] ^= 1 << (offset % 8));
            let is_last = segment == 2 && Some(&hit) == places.last();
            match refused {
                None => {
                    assert!(is_last, "segment {segment}, {offset} is damaged, and opens");
                    torn += 1;
                }
                Some((file, at)) => {
                    assert!(!is_last, "segment {segment}, {offset}");
                    // The damage is at the end of a segment if the next builds on more.
                    assert_eq!((file, at), (segment_name(segment as u64 + 1), hit as u64), "{offset}");
                    named += 1;
                }
            }
            let mut damaged = log.clone();
            damaged[segment].1[offset] ^= 1 << (offset % 8);
            let contents = Contents::of(damaged);
            let folded = fold(&contents.survey(), true);
            let salvaged = rows(&folded);
            // Rows of the last segment's undamaged frames are intact, whatever happened before.
            let lacks = whole.iter().filter(|(key, value)| salvaged.get(*key) != Some(value)).count();
            assert!(lacks <= 2, "segment {segment}, {offset}: {lacks} rows of {} are not as they were", whole.len());
        }
    }
    assert!(named > 50 && torn > 5, "{named} {torn}");
}

#[test]
fn every_truncation_and_every_missing_segment_is_told() {
    let log = small_log();
    let directory = Directory::of("cut", &log);
    for segment in 0..log.len() {
        let end = Contents::of(log.clone()).survey().segments[segment].end;
        for length in (0..end).step_by(13).chain([SEGMENT_HEADER - 1, SEGMENT_HEADER, SEGMENT_HEADER + FRAME_HEADER]) {
            let refused = check(&log, &directory, (segment, length), |bytes| bytes.truncate(length));
            let is_last = segment == log.len() - 1;
            assert_eq!(refused.is_none(), is_last && length >= SEGMENT_HEADER, "segment {segment} cut at {length}");
        }
        directory.write(&log);
        fs::remove_file(directory.path().join(segment_name(segment as u64 + 1))).expect("it is there");
        let refused = damage(directory.path());
        assert_eq!(refused.is_none(), segment == log.len() - 1, "{segment}: {refused:?}");
        let rest: Vec<_> = log.iter().filter(|(sequence, _)| *sequence != segment as u64 + 1).cloned().collect();
        let contents = Contents::of(rest);
        let survey = contents.survey();
        assert_eq!(survey.damages.is_empty(), segment == log.len() - 1, "{:?}", survey.damages);
        let folded = fold(&survey, true);
        // Without the first segment, the tables are unknown.
        assert_eq!(folded.left.orphaned_rows > 0, segment == 0, "{:?}", folded.left);
    }
}

#[test]
fn zeros_noise_and_swapped_files_are_told() {
    let log = small_log();
    let directory = Directory::of("noise", &log);
    let mut random = fastrand::Rng::with_seed(5);
    for round in 0..200 {
        let segment = random.usize(0..log.len());
        let end = Contents::of(log.clone()).survey().segments[segment].end;
        let (from, length) = (random.usize(0..end), random.usize(1..200));
        let to = (from + length).min(end);
        check(&log, &directory, (segment, from), |bytes| match round % 3 {
            0 => bytes[from..to].fill(0),
            1 => random.fill(&mut bytes[from..to]),
            _ => drop(bytes.drain(from..to)),
        });
    }
    // A segment with another's name.
    let mut swapped = log.clone();
    let (first, second) = (log[0].1.clone(), log[1].1.clone());
    (swapped[0].1, swapped[1].1) = (second, first);
    let contents = Contents::of(swapped.clone());
    assert!(!contents.survey().damages.is_empty());
    directory.write(&swapped);
    assert!(damage(directory.path()).is_some());
    // Files that are no segments.
    for bytes in [Vec::new(), vec![0; 10], vec![0; 10_000], b"drtm-log".repeat(100)] {
        let contents = Contents::of(vec![(1, bytes.clone()), (2, bytes)]);
        let survey = contents.survey();
        assert_eq!((survey.damages.len() >= 2, fold(&survey, true).rows.len()), (true, 0));
    }
}

#[test]
fn without_its_header_the_only_segment_is_still_read() {
    let disk = Image::default();
    run(&disk, 0);
    let mut log = segments(&disk.after_kill());
    let whole = rows(&fold(&Contents::of(log.clone()).survey(), false));
    // Flips a bit of the checksum; the log's identity stays valid.
    log[0].1[61] ^= 1;
    let contents = Contents::of(log);
    let survey = contents.survey();
    assert_eq!(survey.damages[0].offset, 0);
    assert_eq!(rows(&fold(&survey, false)), whole);
}

#[test]
fn a_torn_write_is_no_damage_and_is_left() {
    let disk = Image::default();
    run(&disk, 0);
    let disk = disk.after_kill();
    let db = open(&disk);
    let texts = db.table(TEXTS).expect("a table");
    db.transact(|tx| tx.put(texts, "text 0".to_owned(), &[1; 20])).expect("no fault");
    disk.fail_at(disk.calls(), Fault::Crash);
    assert!(db.transact(|tx| tx.put(texts, "text 1".to_owned(), &[2; 3_000])).is_err());
    // Half of the written sectors are present.
    let mut is_there = false;
    let torn = disk.after_crash(&mut |most| {
        if most == 6 {
            is_there = !is_there;
            return if is_there { 0 } else { 5 };
        }
        0
    });
    let log = segments(&torn);
    let contents = Contents::of(log.clone());
    let survey = contents.survey();
    assert!(survey.damages.is_empty(), "{:?}", survey.damages);
    let (segment, hole) = survey.torn().expect("half of a write");
    assert!(segment.number == 2 && hole.end - hole.offset > 500, "{hole:?}");
    let directory = Directory::of("torn", &log);
    assert_eq!(damage(directory.path()), None);
    assert_eq!(rows(&fold(&survey, false)).get(&(1, b"text 1".to_vec())).map(Vec::len), Some(20));
}
