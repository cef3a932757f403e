//! The door to stable storage: one directory of files, and no more of a file system than a log
//! needs.
//!
//! Everything that a log does to a disk goes through [`Storage`] and [`StoredFile`], so that tests
//! can replace the disk: [`Image`] keeps apart what was synced and what was not, crashes at any
//! call, and makes any call fail.

mod files;
mod image;

use std::{fmt::Debug, io};

pub use self::{
    files::Files,
    image::{Fault, Image},
};

/// One directory of files.
pub trait Storage: Send + Sync + Debug + 'static {
    /// Returns the directory's name, for messages.
    fn name(&self) -> String;

    /// Locks the directory until the returned value is dropped. Returns the holder if it is locked
    /// already.
    ///
    /// # Errors
    ///
    /// The system's.
    fn lock(&self) -> io::Result<Result<Box<dyn DirectoryLock>, String>>;

    /// Creates an empty file. One of that name is replaced.
    ///
    /// # Errors
    ///
    /// The system's.
    fn create(&self, name: &str) -> io::Result<Box<dyn StoredFile>>;

    /// Opens a file that is there.
    ///
    /// # Errors
    ///
    /// The system's.
    fn open(&self, name: &str) -> io::Result<Box<dyn StoredFile>>;

    /// Gives a file another name.
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

/// A file.
pub trait StoredFile: Send + Sync + Debug {
    /// Returns the whole content.
    ///
    /// # Errors
    ///
    /// The system's.
    fn read(&self) -> io::Result<Vec<u8>>;

    /// Returns how many bytes the file has.
    ///
    /// # Errors
    ///
    /// The system's.
    fn length(&self) -> io::Result<u64> {
        Ok(self.read()?.len() as u64)
    }

    /// Reads bytes from an offset on, and returns how many: none at the file's end. Unless it is
    /// implemented, this reads the whole content.
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

    /// Writes the first of some bytes at an offset, and returns how many.
    ///
    /// # Errors
    ///
    /// The system's.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Takes space up to this length, so that a write below it does not meet a full disk.
    ///
    /// # Errors
    ///
    /// The system's.
    fn reserve(&self, length: u64) -> io::Result<()>;

    /// Cuts the file off behind this length.
    ///
    /// # Errors
    ///
    /// The system's.
    fn truncate(&self, length: u64) -> io::Result<()>;

    /// Makes the content durable.
    ///
    /// # Errors
    ///
    /// The system's. What was written before may be lost then, even if a later call succeeds.
    fn sync(&self) -> io::Result<()>;
}

/// A locked directory: unlocked when it is dropped.
pub trait DirectoryLock: Send + Sync + Debug {}

/// Writes all of some bytes at an offset.
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

/// Reads as many bytes as there is room for, from an offset on.
///
/// # Errors
///
/// The system's, or when the file ends before.
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
