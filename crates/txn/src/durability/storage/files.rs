//! A directory of the file system.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use drtm_rdma::system;

use super::{Access, DirectoryLock, Storage, StoredFile, is_full};
use crate::durability::format::LOCK;

/// How often a lock that another process holds is tried, and how long to wait in between.
const LOCK_TRIES: u32 = 40;
const LOCK_NAP: Duration = Duration::from_millis(5);

/// A directory of the file system.
#[derive(Debug)]
pub struct Files {
    directory: PathBuf,
}

impl Files {
    /// Opens an existing directory.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn open(directory: PathBuf) -> io::Result<Self> {
        fs::read_dir(&directory)?;
        Ok(Self { directory })
    }

    /// Opens a directory, and creates it with its parents if it does not exist.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn create(directory: PathBuf) -> io::Result<Self> {
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.is_dir();
        let missing: Vec<_> = directory.ancestors().take_while(is_missing).collect();
        fs::create_dir_all(&directory)?;
        for path in missing {
            // Its own name must be durable too.
            if let Some(parent) = path.canonicalize()?.parent() {
                File::open(parent)?.sync_all()?;
            }
        }
        Self::open(directory)
    }
}

#[derive(Debug)]
struct Locked {
    _file: File,
}

impl DirectoryLock for Locked {}

/// A directory without a lock file.
#[derive(Debug)]
struct NeverLocked;

impl DirectoryLock for NeverLocked {}

/// Names this process in the lock file, for messages. A full disk may have no room for that.
fn write_holder(file: &File) -> io::Result<()> {
    let holder = format!("process {}", std::process::id());
    let written = file.write_all_at(holder.as_bytes(), 0).and_then(|()| file.set_len(holder.len() as u64));
    written.or_else(|error| if is_full(&error) { file.set_len(0) } else { Err(error) })
}

impl Storage for Files {
    fn name(&self) -> String {
        self.directory.display().to_string()
    }

    fn lock(&self, access: Access) -> io::Result<Result<Box<dyn DirectoryLock>, String>> {
        let path = self.directory.join(LOCK);
        let writes = access == Access::Write;
        let mut file = match OpenOptions::new().read(true).write(writes).create(writes).truncate(false).open(path) {
            // No database has had the directory open for writing.
            Err(error) if !writes && error.kind() == io::ErrorKind::NotFound => return Ok(Ok(Box::new(NeverLocked))),
            opened => opened?,
        };
        let lock = |file: &File| if writes { file.try_lock() } else { file.try_lock_shared() };
        let mut locked = lock(&file);
        // A killed process may hold its lock for a moment.
        for _ in 0..LOCK_TRIES {
            if !matches!(locked, Err(TryLockError::WouldBlock)) {
                break;
            }
            thread::sleep(LOCK_NAP);
            locked = lock(&file);
        }
        match locked {
            Ok(()) => {
                if writes {
                    write_holder(&file)?;
                }
                Ok(Ok(Box::new(Locked { _file: file })))
            }
            // The file still names the last writer.
            Err(TryLockError::WouldBlock) if writes && file.try_lock_shared().is_ok() => {
                Ok(Err("processes that only read it".to_owned()))
            }
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                file.read_to_string(&mut holder)?;
                Ok(Err(if holder.is_empty() { "another process".to_owned() } else { holder }))
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StoredFile>> {
        let path = self.directory.join(name);
        Ok(Box::new(OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn StoredFile>> {
        let path = self.directory.join(name);
        Ok(Box::new(OpenOptions::new().read(true).write(access == Access::Write).open(path)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.directory.join(from), self.directory.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.directory.join(name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.directory)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }
}

impl StoredFile for File {
    fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.metadata()?.len()).map_err(io::Error::other)?];
        self.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        FileExt::read_at(self, into, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn reserve(&self, length: u64) -> io::Result<()> {
        system::allocate(self, length)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
