//! Commits that stop at every step, and files with everything that can be wrong with them.

use std::{
    cell::Cell,
    fs,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use drtm_htm::{Emulated, NoHtm};

use super::*;

thread_local! {
    /// How many steps a commit goes on for.
    static LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// Stops a commit if it is to.
pub(super) fn step() -> Result<(), NvError> {
    LEFT.set(LEFT.get().wrapping_sub(1));
    if LEFT.get() == u32::MAX { Err(NvError::Header { why: "the process was killed" }) } else { Ok(()) }
}

/// A file's name, which is removed at the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        Self(std::env::temp_dir().join(format!("drtm-nv-{}-{number}", std::process::id())))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A region with a guard and four words, which have been committed once.
fn region(place: &Place) -> (NvRegion<NoHtm>, Offset) {
    let region = NvRegion::create(NoHtm, &place.0, 1 << 20, 8).expect("a file");
    let at = region.region().extend(40, 8).expect("room");
    let mut writer = region.writer().expect("the first");
    assert_eq!(writer.commit_if(at, (0, 1), &[(at + 8, &[1; 4])]).expect("room"), Ok(()));
    (region, at)
}

fn words(region: &NvRegion<NoHtm>, at: Offset) -> Vec<u64> {
    region.region().words(at, 5).expect("there").iter().map(|word| NoHtm.load(word)).collect()
}

#[test]
fn a_commit_that_is_killed_at_any_step_is_whole_or_not_there() {
    let mut ends = Vec::new();
    for steps in 0..20 {
        let place = Place::new();
        let (region, at) = region(&place);
        let mut writer = region.writer().expect("the second");
        LEFT.set(steps);
        let committed = writer.commit_if(at, (1, 2), &[(at + 8, &[2, 2]), (at + 24, &[2, 2])]);
        LEFT.set(u32::MAX);
        drop((writer, region));
        // Opened twice, as by two that recover it.
        let (one, other) = (NvRegion::open(NoHtm, &place.0), NvRegion::open(NoHtm, &place.0));
        let found = words(&one.expect("it is whole"), at);
        assert_eq!(found, words(&other.expect("it is whole"), at));
        assert!(found == [1; 5] || found == [2; 5], "after {steps} steps: {found:?}");
        ends.push((found[0], committed.is_ok()));
    }
    assert!(ends.is_sorted() && ends.contains(&(1, false)) && ends.contains(&(2, false)), "{ends:?}");
    assert_eq!(ends.last(), Some(&(2, true)));
}

#[test]
fn another_guard_refuses_a_commit() {
    let place = Place::new();
    let (region, at) = region(&place);
    let mut writer = region.writer().expect("the second");
    assert_eq!(writer.commit_if(at, (0, 2), &[(at + 8, &[2])]).expect("room"), Err(1));
    assert_eq!(words(&region, at), [1; 5]);
    let long = writer.commit_if(at, (1, 2), &[(at, &[3; 9])]);
    assert!(matches!(long, Err(NvError::Words { asked: 9, most: 8 })));
    let far = writer.commit_if(at, (1, 2), &[(Offset::new(1 << 40), &[3])]);
    assert!(matches!(far, Err(NvError::OutOfBounds(_))));
    assert_eq!(words(&region, at), [1; 5]);
}

#[test]
fn writers_with_one_guard_exclude_each_other() {
    let place = Place::new();
    let (region, at) = region(&place);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut writer = region.writer().expect("few");
            scope.spawn(move || {
                for _ in 0..500 {
                    loop {
                        let now = NoHtm.load(&writer.region.region().words(at, 1).expect("there")[0]) & !HELD;
                        let next = now + 1;
                        if writer.commit_if(at, (now, next), &[(at + 8, &[next; 4])]).expect("room").is_ok() {
                            break;
                        }
                    }
                }
            });
        }
    });
    assert_eq!(words(&region, at), [1_001; 5]);
}

/// Changes a file of a commit that was killed when its redo was whole.
fn damaged(damage: impl Fn(&fs::File, u64)) -> NvError {
    let place = Place::new();
    let (region, at) = region(&place);
    let mut writer = region.writer().expect("the second");
    LEFT.set(3);
    let killed = writer.commit_if(at, (1, 2), &[(at + 8, &[2; 4])]);
    LEFT.set(u32::MAX);
    assert!(killed.is_err());
    let redo = writer.redo.bytes();
    drop((writer, region));
    let file = fs::File::options().write(true).open(&place.0).expect("it is there");
    damage(&file, redo);
    NvRegion::open(NoHtm, &place.0).expect_err("it is damaged")
}

#[test]
fn a_damaged_redo_is_an_error() {
    let put = |word: usize, value: u64| {
        damaged(move |file, redo| file.write_all_at(&value.to_le_bytes(), redo + 8 * word as u64).expect("written"))
    };
    for (word, value) in [(MARK, 5), (COUNT, 4), (COUNT, u64::MAX), (SUM, 1), (BEFORE, 64), (BEFORE + 1, 3)] {
        let error = put(word, value);
        assert!(matches!(error, NvError::Redo { writer: 1, .. }), "{word}: {error}");
    }
}

#[test]
fn a_file_of_something_else_is_an_error() {
    let place = Place::new();
    fs::write(&place.0, [7; 4096]).expect("written");
    assert!(matches!(NvRegion::open(NoHtm, &place.0), Err(NvError::Region(_))));
    assert!(matches!(NvRegion::create(NoHtm, &place.0, 1 << 20, 8), Err(NvError::File { .. })));
    let other = Place::new();
    let file = fs::File::options().read(true).write(true).create_new(true).open(&other.0).expect("a file");
    Region::create(NoHtm, file, 1 << 20).expect("a region");
    assert!(matches!(NvRegion::open(NoHtm, &other.0), Err(NvError::Header { .. })));
    assert!(matches!(NvRegion::create(Emulated::default(), &Place::new().0, 1 << 20, 8), Err(NvError::Region(_))));
}

#[test]
fn there_are_only_so_many_writers() {
    let place = Place::new();
    let region = NvRegion::create(NoHtm, &place.0, 1 << 20, 1).expect("a file");
    let all = (0..MOST_WRITERS).map(|_| region.writer().map(drop)).filter(Result::is_ok).count();
    assert_eq!(all, MOST_WRITERS);
    assert!(matches!(region.writer(), Err(NvError::Writers { .. })));
}
