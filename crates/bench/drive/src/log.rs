//! A workload's log: its place, when commits wait for it, and how many bytes it takes.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use clap::ValueEnum;
use drtm_txn::{
    Builder, Config, Db, Durability,
    durability::storage::{Access, DirectoryLock, Files, Storage, StoredFile},
};
use serde::Serialize;

use super::workers::Tally;
use crate::Error;

/// When a commit is safe from a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum DurabilityName {
    /// Never: there is no log
    #[default]
    None,
    /// Within 10 ms after it returns
    Async,
    /// When it returns
    Sync,
}

impl DurabilityName {
    /// Returns the mode of commits; `None` if there is no log.
    pub fn mode(self) -> Option<Durability> {
        match self {
            Self::None => None,
            Self::Async => Some(Durability::Async),
            Self::Sync => Some(Durability::Sync),
        }
    }
}

/// The size of a log's segments: the database's default.
const SEGMENT: u64 = 64 << 20;

/// Longer than the database takes to write pending commits when no others arrive.
const SETTLED: Duration = Duration::from_millis(50);

/// Where a log is placed, and when commits wait for it.
#[derive(Clone, Copy, Debug)]
pub struct LogPlace<'o> {
    /// The directory, which is empty or not there yet.
    pub directory: &'o Path,
    /// Whether commits wait for the log.
    pub mode: Durability,
}

impl LogPlace<'_> {
    /// Returns the log's meter. The directory must be empty or not there yet.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory has files.
    pub fn fresh(&self) -> Result<Arc<Meter>, Error> {
        drtm_report::refuse_occupied(self.directory)?;
        Meter::open(self.directory.to_owned()).map(Arc::new)
    }
}

/// A directory that counts bytes written to it, and syncs.
#[derive(Debug)]
pub struct Meter {
    files: Files,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    bytes: AtomicU64,
    syncs: AtomicU64,
}

/// The bytes and syncs of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub bytes: u64,
    pub syncs: u64,
}

impl Meter {
    fn open(directory: PathBuf) -> Result<Self, Error> {
        let files = Files::create(directory.clone()).map_err(drtm_report::Error::file(&directory))?;
        Ok(Self { files, counts: Arc::default() })
    }

    /// Opens the database in the directory.
    pub fn database<S: Config>(
        self: &Arc<Self>,
        builder: Builder,
        mode: Durability,
        engine: S::Engine,
    ) -> Result<Db<S>, Error> {
        let storage: Arc<dyn Storage> = Arc::clone(self) as _;
        Ok(builder.storage(storage, SEGMENT).durability(mode).build_with::<S>(engine)?)
    }

    /// Returns the bytes and syncs so far.
    pub fn written(&self) -> Written {
        let Counts { bytes, syncs } = &*self.counts;
        Written { bytes: bytes.load(Relaxed), syncs: syncs.load(Relaxed) }
    }

    /// Waits until the database has written all commits that did not wait for the log.
    pub fn settle(&self) -> Written {
        loop {
            let before = self.written();
            thread::sleep(SETTLED);
            if self.written() == before {
                return before;
            }
        }
    }
}

/// A file that counts bytes written to it.
#[derive(Debug)]
struct Metered {
    file: Box<dyn StoredFile>,
    counts: Arc<Counts>,
}

impl Meter {
    fn metered(&self, file: Box<dyn StoredFile>) -> Box<dyn StoredFile> {
        Box::new(Metered { file, counts: Arc::clone(&self.counts) })
    }
}

impl Storage for Meter {
    fn name(&self) -> String {
        self.files.name()
    }

    fn lock(&self, access: Access) -> io::Result<Result<Box<dyn DirectoryLock>, String>> {
        self.files.lock(access)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StoredFile>> {
        Ok(self.metered(self.files.create(name)?))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn StoredFile>> {
        Ok(self.metered(self.files.open(name, access)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.files.sync_directory()
    }
}

impl StoredFile for Metered {
    fn read(&self) -> io::Result<Vec<u8>> {
        self.file.read()
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write_at(offset, bytes)?;
        self.counts.bytes.fetch_add(written as u64, Relaxed);
        Ok(written)
    }

    fn reserve(&self, length: u64) -> io::Result<()> {
        self.file.reserve(length)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()?;
        self.counts.syncs.fetch_add(1, Relaxed);
        Ok(())
    }
}

/// Counters of a log, for the report.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Logged {
    pub log_bytes_per_transaction: f64,
    pub log_bytes_per_s: f64,
    pub log_syncs_per_s: f64,
    /// Seconds that opening the database again took.
    pub recovery_s: f64,
    /// Rows after recovery.
    pub recovery_rows: u64,
    /// Bytes written to the directory before recovery.
    pub recovery_log_bytes: u64,
}

impl Logged {
    /// Creates the counters of a run: bytes written before it and until its end, the time of
    /// recovery, and the rows after it.
    pub(super) fn of(
        run: &Tally,
        (before, after): (Written, Written),
        (recovery, recovery_rows): (Duration, u64),
    ) -> Self {
        let (bytes, syncs) = (after.bytes - before.bytes, after.syncs - before.syncs);
        let of = |all: u64, count: f64| if count > 0.0 { all as f64 / count } else { 0.0 };
        let seconds = run.time.as_secs_f64();
        Self {
            log_bytes_per_transaction: of(bytes, run.committed as f64),
            log_bytes_per_s: of(bytes, seconds),
            log_syncs_per_s: of(syncs, seconds),
            recovery_s: recovery.as_secs_f64(),
            recovery_rows,
            recovery_log_bytes: after.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_counted_and_a_directory_with_files_is_refused() {
        let directory = std::env::temp_dir().join(format!("drtm-meter-{}", std::process::id()));
        let place = LogPlace { directory: &directory, mode: Durability::Sync };
        let meter = place.fresh().expect("it is not there");
        let file = Storage::create(&*meter, "a").expect("a file");
        assert_eq!(file.write_at(0, &[1; 10]).expect("space"), 10);
        file.sync().expect("a disk");
        assert_eq!(meter.settle(), Written { bytes: 10, syncs: 1 });
        assert!(matches!(place.fresh(), Err(Error::Output(drtm_report::Error::Occupied { .. }))));
        std::fs::remove_dir_all(&directory).expect("it is there");
    }
}
