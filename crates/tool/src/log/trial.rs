//! Opens a database on a directory without changing it: reads come from the directory, writes are
//! discarded.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use drtm_htm::NoHtm;
use drtm_txn::{
    Builder, Config, Db, Durability,
    durability::storage::{Access, DirectoryLock, Storage, StoredFile},
};

/// The configuration without htm transactions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plain;

impl Config for Plain {
    type Engine = NoHtm;
}

/// Opens the database of a directory without changing the directory. The caller must have locked
/// it.
///
/// # Errors
///
/// Returns the error of opening it.
pub(super) fn open(directory: &Path, memory: u64) -> Result<Db<Plain>, drtm_txn::Error> {
    let trial: Arc<dyn Storage> = Arc::new(Trial { directory: directory.to_owned() });
    let builder = Builder::new().memory(memory).storage(trial, u64::MAX).create(false);
    builder.durability(Durability::Sync).build_with(NoHtm)
}

#[derive(Debug)]
struct Trial {
    directory: PathBuf,
}

/// The caller holds the lock.
#[derive(Debug)]
struct NoLock;

impl DirectoryLock for NoLock {}

/// A file whose changes are discarded.
#[derive(Debug)]
struct TrialFile {
    /// `None` for a file that was created.
    file: Option<File>,
}

impl Storage for Trial {
    fn name(&self) -> String {
        self.directory.display().to_string()
    }

    fn lock(&self, _access: Access) -> io::Result<Result<Box<dyn DirectoryLock>, String>> {
        Ok(Ok(Box::new(NoLock)))
    }

    fn create(&self, _name: &str) -> io::Result<Box<dyn StoredFile>> {
        Ok(Box::new(TrialFile { file: None }))
    }

    fn open(&self, name: &str, _access: Access) -> io::Result<Box<dyn StoredFile>> {
        Ok(Box::new(TrialFile { file: Some(File::open(self.directory.join(name))?) }))
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.directory)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }
}

impl StoredFile for TrialFile {
    fn read(&self) -> io::Result<Vec<u8>> {
        self.file.as_ref().map_or_else(|| Ok(Vec::new()), StoredFile::read)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.as_ref().map_or(Ok(0), StoredFile::length)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.as_ref().map_or(Ok(0), |file| StoredFile::read_at(file, offset, into))
    }

    fn write_at(&self, _offset: u64, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn reserve(&self, _length: u64) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, _length: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
