//! The errors of a log.

use std::{fmt, io};

use super::storage::is_full;

/// Why a log cannot be opened or written.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, LogError};
///
/// let directory = std::env::temp_dir().join(format!("drtm-in-use-{}", std::process::id()));
/// let db = Db::create(&directory)?;
/// match Db::open(&directory) {
///     Err(Error::Log(LogError::InUse { holder, .. })) => {
///         assert_eq!(holder, format!("process {}", std::process::id()));
///     }
///     other => panic!("{other:?}"),
/// }
/// drop(db);
/// # std::fs::remove_dir_all(&directory).expect("it is there");
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum LogError {
    /// There is no database in the directory, or no directory.
    NoDatabase {
        /// The directory.
        directory: String,
    },
    /// There is a database in the directory, which was to get a new one.
    DatabaseExists {
        /// The directory.
        directory: String,
    },
    /// There is no database in the directory, but other files: it may be the wrong directory.
    Foreign {
        /// The directory.
        directory: String,
        /// The names of the first few of these files.
        files: Vec<String>,
    },
    /// An I/O operation failed.
    Io {
        /// The operation.
        action: &'static str,
        /// The file.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// The log is damaged before its end, so that acknowledged transactions may be lost.
    Damaged {
        /// The file.
        file: String,
        /// The offset in the file.
        offset: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// The log was written in another format.
    OtherFormat {
        /// The file.
        file: String,
        /// The format's version.
        found: u32,
        /// The only version that this program reads.
        reads: u32,
    },
    /// The rows take more memory than the database has.
    TooLittleMemory {
        /// The memory that it has.
        given: u64,
        /// The memory that the rows need, approximately.
        needed: u64,
    },
    /// The directory has a backup that was not finished.
    Incomplete {
        /// The directory.
        directory: String,
    },
    /// Another process or database has the directory open.
    InUse {
        /// The directory.
        directory: String,
        /// The holder of the directory.
        holder: String,
    },
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDatabase { directory } => {
                write!(f, "there is no database in {directory}: make one with `Db::create` or `Builder::create(true)`")
            }
            Self::DatabaseExists { directory } => {
                write!(f, "{directory} has a database already: open it with `Db::open`, or choose another directory")
            }
            Self::Foreign { directory, files } => write!(
                f,
                "{directory} has no database, but other files ({}): choose another directory, or an empty one",
                files.join(", ")
            ),
            Self::Io { action, file, source } => write!(f, "cannot {action} {file}: {source}{}", remedy(source)),
            Self::Damaged { file, offset, why } => write!(
                f,
                "the log is damaged: {why} in {file} at offset {offset}; restore a copy, since transactions that \
                 were acknowledged may be lost"
            ),
            Self::OtherFormat { file, found, reads } => write!(
                f,
                "{file} has format {found}, and this program reads format {reads}: use the program that wrote it"
            ),
            Self::TooLittleMemory { given, needed } => write!(
                f,
                "the database has {given} bytes of memory, and its rows take about {needed}: give it more \
                 (`Builder::memory`)"
            ),
            Self::Incomplete { directory } => {
                write!(f, "{directory} has a backup that was not finished: remove it, and make another")
            }
            Self::InUse { directory, holder } => write!(f, "{directory} is in use by {holder}: close it there first"),
        }
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Returns what to do about an error of the system, where that is known.
fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "; allow this process to read and write there, or choose another directory",
        _ if is_full(source) => "; make room there",
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => "; name a directory, not a file",
        io::ErrorKind::ReadOnlyFilesystem => "; mount it writable, or choose another directory",
        _ => "",
    }
}

impl LogError {
    pub(super) fn io(action: &'static str, file: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let file = file.into();
        move |source| Self::Io { action, file, source }
    }
}
