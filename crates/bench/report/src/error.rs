//! Errors of what a command writes.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::Failure;

/// A report or a file could not be written. Every message says what to do instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A directory that must be empty has files.
    #[error("{} has files: name a directory that is empty or not there yet", path.display())]
    Occupied {
        /// The directory.
        path: PathBuf,
    },

    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },

    /// The report itself could not be written.
    #[error("cannot write the report: {0}")]
    Report(#[source] io::Error),
}

impl Failure for Error {
    fn exit_status(&self) -> u8 {
        match self {
            Self::Report(_) => 1,
            Self::Occupied { .. } | Self::File { .. } => 2,
        }
    }

    fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Report(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl Error {
    /// Returns a function that makes an error of the system one of writing `path`.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::File { path: path.to_owned(), source }
    }
}

/// Refuses a directory that has files, and a path that is not a directory.
///
/// # Errors
///
/// [`Error::Occupied`].
pub fn refuse_occupied(directory: &Path) -> Result<(), Error> {
    let is_occupied = match fs::read_dir(directory) {
        Ok(mut files) => files.next().is_some(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    };
    if is_occupied { Err(Error::Occupied { path: directory.to_owned() }) } else { Ok(()) }
}
