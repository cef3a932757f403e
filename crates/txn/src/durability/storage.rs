//! The interface to stable storage: one directory of files, with only those operations that a log
//! needs.
//!
//! All disk operations of a log use [`Storage`] and [`StoredFile`], so that tests can replace the
//! disk. `Image`, of the feature `simulated-disk`, separates synced from unsynced writes, can crash
//! at any call, and can make any call fail.

mod files;
#[cfg(feature = "simulated-disk")]
mod image;

use std::{fmt::Debug, io};

pub use self::files::Files;
#[cfg(feature = "simulated-disk")]
pub use self::image::{Fault, Image};

/// One directory of files.
pub trait Storage: Send + Sync + Debug + 'static {
    /// Returns the directory's name, for messages.
    fn name(&self) -> String;

    /// Locks the directory until the returned value is dropped: against all others, or against
    /// writers only. Returns the holder if it is already locked.
    ///
    /// # Errors
    ///
    /// The system's.
    fn lock(&self, access: Access) -> io::Result<Result<Box<dyn DirectoryLock>, String>>;

    /// Creates an empty file. Replaces an existing file of that name.
    ///
    /// # Errors
    ///
    /// The system's.
    fn create(&self, name: &str) -> io::Result<Box<dyn StoredFile>>;

    /// Opens an existing file.
    ///
    /// # Errors
    ///
    /// The system's.
    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn StoredFile>>;

    /// Renames a file.
    ///
    /// # Errors
    ///
    /// The system's.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// The system's.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns the names of all files.
    ///
    /// # Errors
    ///
    /// The system's.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes the names of files durable, not their contents.
    ///
    /// # Errors
    ///
    /// The system's.
    fn sync_directory(&self) -> io::Result<()>;
}

/// What a directory is locked, or a file opened, for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading. Nothing is created or changed, the lock file included.
    Read,
    /// Reading and writing.
    Write,
}

/// Returns whether an error says that a disk, or a quota on it, is full.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A file.
pub trait StoredFile: Send + Sync + Debug {
    /// Returns the whole content.
    ///
    /// # Errors
    ///
    /// The system's.
    fn read(&self) -> io::Result<Vec<u8>>;

    /// Returns the file's length in bytes.
    ///
    /// # Errors
    ///
    /// The system's.
    fn length(&self) -> io::Result<u64> {
        Ok(self.read()?.len() as u64)
    }

    /// Reads bytes from an offset on, and returns how many: zero at the file's end. The default
    /// implementation reads the whole content.
    ///
    /// # Errors
    ///
    /// The system's.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let content = self.read()?;
        let rest = usize::try_from(offset).ok().and_then(|offset| content.get(offset..)).unwrap_or_default();
        let read = rest.len().min(into.len());
        into[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    /// Writes a prefix of some bytes at an offset, and returns its length.
    ///
    /// # Errors
    ///
    /// The system's.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Allocates space up to this length, so that a write below it does not fail on a full disk.
    ///
    /// # Errors
    ///
    /// The system's.
    fn reserve(&self, length: u64) -> io::Result<()>;

    /// Truncates the file to this length.
    ///
    /// # Errors
    ///
    /// The system's.
    fn truncate(&self, length: u64) -> io::Result<()>;

    /// Makes the content durable.
    ///
    /// # Errors
    ///
    /// The system's. Earlier writes may then be lost, even if a later call succeeds.
    fn sync(&self) -> io::Result<()>;
}

/// A locked directory. Dropping it unlocks the directory.
pub trait DirectoryLock: Send + Sync + Debug {}

/// Writes all of these bytes at an offset.
///
/// # Errors
///
/// The system's.
pub(super) fn write_all_at(file: &dyn StoredFile, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(offset, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = bytes.get(written..).unwrap_or(&[]);
                offset += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fills a buffer from an offset on.
///
/// # Errors
///
/// The system's, or when the file ends earlier.
pub(super) fn read_all_at(file: &dyn StoredFile, mut offset: u64, mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        match file.read_at(offset, into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                into = into.get_mut(read..).unwrap_or_default();
                offset += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
