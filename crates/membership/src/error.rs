//! Errors. Each says whether a replacement can have happened.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::configuration::{Configuration, MOST_BYTES};

/// Why a request has no answer, or not the one that was hoped for.
///
/// # Example
///
/// ```
/// use drtm_membership::{Configuration, Fixed, Membership};
///
/// let membership = Fixed::new(Configuration::new(1, *b"two nodes"));
/// let error = membership.replace(1, b"three nodes").wait().unwrap_err();
/// assert!(!error.may_have_happened());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The expected configuration is not the one in force. Nothing has changed by this request.
    #[error("{current} is in force: read it, and decide again")]
    Outdated {
        /// The configuration that is in force instead.
        current: Configuration,
    },
    /// The membership is fixed. Nothing has changed.
    #[error("the membership is fixed: start the cluster with an engine of agreement to change it")]
    Fixed,
    /// The content has more than [`MOST_BYTES`]. Nothing has changed.
    #[error("a configuration of {bytes} bytes is too large: it can have {MOST_BYTES}")]
    TooLarge {
        /// The length of the content.
        bytes: usize,
    },
    /// The last number has been given out. Nothing has changed.
    #[error("no number is left for another configuration")]
    NoNumber,
    /// The engine of agreement could not be asked. Nothing has changed by this request, nor will.
    #[error("the membership cannot be asked ({why}): go on in the known configuration, ask again later")]
    Unavailable {
        /// What went wrong.
        why: String,
    },
    /// No answer came. The replacement may have happened, or may still happen.
    #[error("no answer came ({why}), the configuration may be replaced by now: read it")]
    Unknown {
        /// What went wrong.
        why: String,
    },
    /// The engine of agreement refused the request. Nothing has changed.
    #[error("the membership refused the request: {why}")]
    Refused {
        /// What it said.
        why: String,
    },
    /// What is stored is damaged: it never came about by writing, crashes included.
    #[error("{} is damaged ({why}): remove this voter's directory, and let it join again", path.display())]
    Damaged {
        /// The file, or the key, that is damaged.
        path: PathBuf,
        /// How.
        why: String,
    },
    /// A file could not be read or written.
    #[error("{}: {why}", path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// Another process uses the directory.
    #[error("{} is in use by another process: give each voter a directory of its own", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The bytes are no message, or not one for this voter.
    #[error("a message was not taken: {why}")]
    Message {
        /// What is wrong with it.
        why: &'static str,
    },
    /// The handle is being dropped. A request that was not answered may have happened if it was
    /// to replace a configuration, and this is then reported as [`Error::Unknown`].
    #[error("the membership is closed")]
    Closed,
}

impl Error {
    /// Returns whether the configuration may have been replaced by this request, or may still be.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }

    pub(crate) fn disk(path: &Path, why: impl ToString) -> Self {
        Self::Disk { path: path.to_owned(), why: why.to_string() }
    }

    pub(crate) fn damaged(path: &Path, why: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), why: why.to_string() }
    }

    pub(crate) fn unavailable(why: impl ToString) -> Self {
        Self::Unavailable { why: why.to_string() }
    }

    pub(crate) fn unknown(why: impl ToString) -> Self {
        Self::Unknown { why: why.to_string() }
    }
}
