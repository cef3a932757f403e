//! A directory that the processes of one machine share: names of files decide.
//!
//! Configuration `n` is the file `configuration.n`, and it is made by linking a file that is
//! already complete to that name. A link fails if the name is taken. So one of two proposals for
//! a number gets it, no lock is held by a process that may die, and no reader sees a part of a
//! file. A name is never free again: an outdated file is replaced by one that says that it is
//! outdated, so that a process that was stopped for long cannot give its number out twice.
//!
//! Nothing is synced. What the processes share is memory, which does not outlive the machine's
//! running either.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;

use crate::{
    Membership,
    answer::Answer,
    configuration::Configuration,
    error::Error,
    latest::Latest,
    ledger,
    mutation::Mutation,
    sealed_file::{self, Kind},
};

const CONFIGURATION: Kind = Kind(1);
const OUTDATED: Kind = Kind(2);

/// Options of a [`Directory`].
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use drtm_membership::{Directory, DirectoryOptions};
///
/// let path = std::env::temp_dir().join(format!("drtm-options-{}", std::process::id()));
/// let mut options = DirectoryOptions::default();
/// options.interval = Duration::from_millis(1);
/// let membership = Directory::open_with(&path, options)?;
/// # std::fs::remove_dir_all(&path).expect("it is here");
/// # Ok::<(), drtm_membership::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DirectoryOptions {
    /// How often a handle looks for a newer configuration while something waits for one. A look
    /// is one system call.
    pub interval: Duration,
    #[doc(hidden)]
    pub fault: Option<Mutation>,
}

impl Default for DirectoryOptions {
    fn default() -> Self {
        Self { interval: Duration::from_millis(5), fault: None }
    }
}

/// The configuration of processes on one machine, in a directory that they share.
///
/// # Example
///
/// See [the crate](crate).
#[derive(Debug)]
pub struct Directory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    options: DirectoryOptions,
    latest: Latest,
    /// Whether a thread looks for newer configurations.
    has_watcher: Mutex<bool>,
}

/// Proposals that this process has made.
static PROPOSALS: AtomicU64 = AtomicU64::new(0);

impl Directory {
    /// Opens a directory, and creates it if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Disk`] or [`Error::Damaged`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_with(path, DirectoryOptions::default())
    }

    /// Opens a directory with options.
    ///
    /// # Errors
    ///
    /// [`Error::Disk`] or [`Error::Damaged`].
    pub fn open_with(path: &Path, options: DirectoryOptions) -> Result<Self, Error> {
        fs::create_dir_all(path).map_err(|why| Error::disk(path, why))?;
        let latest = Latest::new(Configuration::none(), options.fault);
        let inner = Inner { path: path.to_owned(), options, latest, has_watcher: Mutex::new(false) };
        inner.look(inner.newest_name()?)?;
        Ok(Self(Arc::new(inner)))
    }
}

impl Inner {
    fn name(&self, number: u32) -> PathBuf {
        self.path.join(format!("configuration.{number:010}"))
    }

    /// Returns the highest number that a file has. It is a hint, since another may be linked now.
    fn newest_name(&self) -> Result<u32, Error> {
        let entries = fs::read_dir(&self.path).map_err(|why| Error::disk(&self.path, why))?;
        let mut newest = 0;
        for entry in entries {
            let name = entry.map_err(|why| Error::disk(&self.path, why))?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("configuration."));
            newest = newest.max(number.and_then(|number| number.parse().ok()).unwrap_or(0));
        }
        Ok(newest)
    }

    /// Reads the configuration in force: the last one from number `from` on.
    ///
    /// It is in force at the moment at which the next name is not there yet.
    fn look(&self, from: u32) -> Result<Configuration, Error> {
        let mut newest = self.latest.known();
        let mut next = from.max(newest.number().saturating_add(1));
        // The last file that was there, if it is outdated: then a newer one is there as well.
        let mut outdated = None;
        loop {
            let path = self.name(next);
            match self.file(&path)? {
                None => break,
                Some(Some(content)) => (newest, outdated) = (Configuration::new(next, content), None),
                Some(None) => outdated = Some(path),
            }
            let Some(number) = next.checked_add(1) else { break };
            next = number;
        }
        if let Some(path) = outdated {
            return Err(Error::damaged(&path, "it says that a newer file is there, and there is none"));
        }
        self.latest.publish(&newest);
        Ok(newest)
    }

    /// Reads a file: `None` if there is none, and `Some(None)` if it is outdated.
    fn file(&self, path: &Path) -> Result<Option<Option<Vec<u8>>>, Error> {
        match fs::read(path) {
            Ok(bytes) if sealed_file::open(OUTDATED, &bytes, None).is_ok() => Ok(Some(None)),
            Ok(bytes) => {
                let content = sealed_file::open(CONFIGURATION, &bytes, self.options.fault);
                Ok(Some(Some(content.map_err(|why| Error::damaged(path, why))?.to_vec())))
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(Error::disk(path, why)),
        }
    }

    fn read(&self) -> Result<Configuration, Error> {
        self.look(0)
    }

    fn replace(&self, expected: u32, content: &[u8]) -> Result<Configuration, Error> {
        let number = ledger::next_number(expected, content)?;
        let current = self.read()?;
        if current.number() != expected {
            return Err(Error::Outdated { current });
        }
        let proposal = self.proposal(number);
        fs::write(&proposal, sealed_file::seal(CONFIGURATION, content)).map_err(|why| Error::disk(&proposal, why))?;
        let linked = if self.options.fault == Some(Mutation::NameTaken) {
            fs::rename(&proposal, self.name(number))
        } else {
            fs::hard_link(&proposal, self.name(number))
        };
        if let Err(why) = linked {
            // It is removed by what was linked before it, if not here.
            let _ = fs::remove_file(&proposal);
            return Err(match why.kind() {
                // Not found: what was linked before it has removed it.
                io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound => match self.read()? {
                    current if current.number() != expected => Error::Outdated { current },
                    _ => Error::disk(&proposal, why),
                },
                _ => Error::disk(&proposal, why),
            });
        }
        let configuration = Configuration::new(number, content);
        self.latest.publish(&configuration);
        self.tidy(number);
        Ok(configuration)
    }

    /// Names a file that is going to have the name of a configuration, as no other call does. A
    /// process that dies leaves it, and its number says until when.
    fn proposal(&self, number: u32) -> PathBuf {
        let proposals = PROPOSALS.fetch_add(1, Relaxed);
        self.path.join(format!("proposal.{number:010}.{}.{proposals}", process::id()))
    }

    /// Removes proposals for numbers that are taken, and the contents of older configurations.
    ///
    /// What fails here is done after the next replacement, or costs a few bytes.
    fn tidy(&self, number: u32) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        for name in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
            let mut parts = name.split('.');
            let (kind, of) = (parts.next(), parts.next().and_then(|of| of.parse::<u32>().ok()));
            let (Some(kind), Some(of)) = (kind, of) else { continue };
            let path = self.path.join(&name);
            if kind == "proposal" && of <= number {
                let _ = fs::remove_file(path);
            } else if kind == "configuration" && of < number && !self.is_outdated(&path) {
                // Others of this process may do the same now, each with a file of its own.
                let mark = self.proposal(of);
                let marked = fs::write(&mark, sealed_file::seal(OUTDATED, &[]));
                let _ = marked.and_then(|()| fs::rename(&mark, path));
            }
        }
    }

    /// Returns whether a file says that it is outdated. Its length tells it without a read.
    fn is_outdated(&self, path: &Path) -> bool {
        let length = fs::metadata(path).map(|about| about.len());
        length.is_ok_and(|length| length == sealed_file::seal(OUTDATED, &[]).len() as u64)
            && matches!(self.file(path), Ok(Some(None)))
    }

    /// Starts the thread that looks for newer configurations, unless it runs.
    fn start_watcher(self: &Arc<Self>) {
        let mut has_watcher = self.has_watcher.lock();
        if *has_watcher {
            return;
        }
        let (inner, interval) = (Arc::downgrade(self), self.options.interval);
        let thread = thread::Builder::new().name("drtm-membership".into());
        match thread.spawn(move || {
            while Self::watch_once(&inner) {
                thread::sleep(interval);
            }
        }) {
            Ok(_) => *has_watcher = true,
            Err(why) => self.latest.end(&Error::unavailable(why)),
        }
    }

    /// Looks once, if anything waits. Returns whether to go on.
    fn watch_once(inner: &Weak<Self>) -> bool {
        let Some(inner) = inner.upgrade() else { return false };
        let mut has_watcher = inner.has_watcher.lock();
        *has_watcher = inner.latest.is_watched();
        let goes_on = *has_watcher;
        drop(has_watcher);
        if goes_on && let Err(why) = inner.read() {
            inner.latest.end(&why);
        }
        goes_on
    }
}

impl Membership for Directory {
    fn read(&self) -> Answer<Configuration> {
        Answer::ready(self.0.read())
    }

    fn replace(&self, expected: u32, content: &[u8]) -> Answer<Configuration> {
        Answer::ready(self.0.replace(expected, content))
    }

    fn watch(&self, after: u32) -> Answer<Configuration> {
        let answer = self.0.latest.watch(after);
        self.0.start_watcher();
        answer
    }

    fn known(&self) -> Configuration {
        self.0.latest.known()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.0.latest.end(&Error::Closed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("drtm-directory-{name}-{}", process::id()));
        // Left by a run that was killed, with the same id.
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn a_process_that_dies_leaves_nothing_that_matters() {
        let path = folder("dies");
        let membership = Directory::open(&path).expect("a directory");
        membership.replace(0, b"one").wait().expect("the first");
        // A process that died before it linked its proposal, and one that had written half of it.
        let whole = sealed_file::seal(CONFIGURATION, b"never");
        fs::write(path.join("proposal.0000000002.1.0"), &whole).expect("a file");
        fs::write(path.join("proposal.0000000002.2.0"), &whole[..9]).expect("a file");
        assert_eq!(membership.read().wait(), Ok(Configuration::new(1, *b"one")));
        let second = membership.replace(1, b"two").wait().expect("the second");
        // And one that died after the link, before it removed its proposal.
        fs::hard_link(path.join("configuration.0000000002"), path.join("proposal.0000000002.3.0")).expect("a link");
        assert_eq!(membership.read().wait(), Ok(second));
        membership.replace(2, b"three").wait().expect("the third");
        let names = fs::read_dir(&path).expect("a directory").map(|entry| entry.expect("an entry").file_name());
        assert!(names.into_iter().all(|name| name.to_string_lossy().starts_with("configuration.")));
        fs::remove_dir_all(&path).expect("it is here");
    }

    #[test]
    fn a_number_is_not_given_out_twice_after_its_file_is_outdated() {
        let path = folder("twice");
        let membership = Directory::open(&path).expect("a directory");
        for number in 0..5 {
            membership.replace(number, &[number as u8]).wait().expect("the next");
        }
        // A process that was stopped after it had read number 1.
        let late = membership.0.proposal(2);
        fs::write(&late, sealed_file::seal(CONFIGURATION, b"late")).expect("a file");
        let linked = fs::hard_link(&late, membership.0.name(2));
        assert_eq!(linked.expect_err("it is taken").kind(), io::ErrorKind::AlreadyExists);
        let sizes = |number| fs::metadata(membership.0.name(number)).expect("a file").len();
        assert_eq!((sizes(1), sizes(5)), (24, 25), "contents go, names stay");
        assert_eq!(Directory::open(&path).expect("a directory").known().number(), 5);
        fs::remove_dir_all(&path).expect("it is here");
    }

    #[test]
    fn damage_is_told_and_the_known_configuration_stays() {
        let path = folder("damage");
        let membership = Directory::open(&path).expect("a directory");
        let one = membership.replace(0, b"one").wait().expect("the first");
        let other = Directory::open(&path).expect("a directory");
        let whole = sealed_file::seal(CONFIGURATION, b"two");
        for length in 0..whole.len() {
            fs::write(membership.0.name(2), &whole[..length]).expect("a file");
            assert!(matches!(other.read().wait(), Err(Error::Damaged { .. })), "{length} bytes");
            assert!(matches!(other.replace(1, b"three").wait(), Err(Error::Damaged { .. })));
        }
        assert!(matches!(other.watch(1).wait(), Err(Error::Damaged { .. })));
        assert_eq!(other.known(), one);
        fs::remove_dir_all(&path).expect("it is here");
    }
}
