//! Processes that share a directory.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process,
    sync::Arc,
    thread,
    time::Duration,
};

use drtm_membership::{Configuration, Directory, DirectoryOptions, Error, Membership, mutation::Mutation};

use crate::{
    driver,
    processes::{Process, say},
};

/// A folder that is removed with this.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("drtm-membership-{name}-{}", process::id()));
        // Left by a run that was killed, with the same id.
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It may never have been made.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path, fault: Option<Mutation>) -> Arc<dyn Membership> {
    let mut options = DirectoryOptions::default();
    options.fault = fault;
    Arc::new(Directory::open_with(path, options).expect("a directory"))
}

#[test]
fn histories_are_linearizable() {
    for seed in 0..drtm_testing::rounds(8) {
        let folder = Folder::new(&format!("history-{seed}"));
        let members = (0..4).map(|_| open(&folder.0, None)).collect();
        let summary = driver::run_threads(members, 100, seed).judge();
        let summary = summary.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert!(summary.replaced > 10 && summary.reads > 10, "{summary:?}");
        let members = (0..3).map(|_| open(&folder.0, None)).collect();
        // Number 0 is long past.
        let history = driver::run(members, &mut driver::RealTime::new(), 5, seed);
        assert!(history.expect("all are told").operations.len() > 15);
    }
}

#[test]
fn a_name_that_is_taken_from_another_is_found() {
    let is_found = |seed| {
        let folder = Folder::new(&format!("taken-{seed}"));
        let members = (0..4).map(|_| open(&folder.0, Some(Mutation::NameTaken))).collect();
        driver::run_threads(members, 100, seed).judge().is_err()
    };
    assert!((0..50).any(is_found));
}

#[test]
fn limits_hold() {
    let folder = Folder::new("limits");
    crate::limits(&*open(&folder.0, None), |answer| answer.wait());
}

/// A process that replaces the configuration as fast as it can, and says what it has done.
pub(crate) fn process(arguments: &[&str]) {
    let (path, name) = (Path::new(arguments[0]), arguments[1]);
    let membership = open(path, None);
    let mut current = membership.read().wait().expect("a directory");
    for count in 0.. {
        let content = format!("{name} {count}");
        current = match membership.replace(current.number(), content.as_bytes()).wait() {
            Ok(new) => {
                say(&format!("{} {content}", new.number()));
                new
            }
            Err(Error::Outdated { current }) => current,
            Err(error) => panic!("{error}"),
        };
    }
}

#[test]
fn processes_are_killed_at_any_moment() {
    let folder = Folder::new("killed");
    let watcher = open(&folder.0, None);
    let (mut said, mut random) = (BTreeMap::new(), fastrand::Rng::with_seed(7));
    for round in 0..drtm_testing::rounds(12) {
        let names = [0, 1].map(|number| format!("{round}-{number}"));
        let path = folder.0.to_str().expect("a path of letters");
        let processes = names.each_ref().map(|name| Process::start("directory", &[path, name]));
        assert!(processes.iter().all(|process| process.line(Duration::from_secs(30)).is_some()), "both make progress");
        thread::sleep(Duration::from_micros(random.u64(..20_000)));
        for line in processes.into_iter().flat_map(Process::kill) {
            let (number, content) = line.split_once(' ').expect("a number and a content");
            // The last line may be cut off.
            let Ok(number) = number.parse::<u32>() else { continue };
            let before = said.insert(number, content.to_owned());
            assert_eq!(before, None, "number {number} is given out twice");
        }
        // What is left is whole, no lock is held, and nothing that was said is lost.
        let current = watcher.read().wait().expect("no torn file is seen");
        let (highest, content) = said.last_key_value().expect("something was said");
        assert!(current.number() >= *highest);
        if current.number() == *highest {
            assert!(current.content().starts_with(content.as_bytes()));
        }
        let next = watcher.replace(current.number(), b"between").wait();
        assert_eq!(next, Ok(Configuration::new(current.number() + 1, *b"between")));
    }
    let leftovers = fs::read_dir(&folder.0).expect("a directory");
    let is_leftover = |name: &str| name.starts_with("proposal.");
    let leftovers =
        leftovers.filter(|entry| is_leftover(&entry.as_ref().expect("an entry").file_name().to_string_lossy()));
    assert_eq!(leftovers.count(), 0, "what the dead have left is removed");
}
