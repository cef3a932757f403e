//! Why a log takes no more transactions: it has failed, it is only read, or its disk is full.

use std::sync::{
    OnceLock,
    atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
};

use parking_lot::Mutex;

use crate::{Error, LogError, trace::event};

#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Whether there is any reason: all that a commit looks at.
    are_any: AtomicBool,
    /// The error after which nothing can be written any more.
    failed: OnceLock<String>,
    /// Why the log was opened for reading only.
    read_only: Option<String>,
    /// Why nothing could be written when it was tried last.
    full: Mutex<Option<String>>,
}

impl Refusals {
    pub(super) fn new(read_only: Option<String>) -> Self {
        Self { are_any: AtomicBool::new(read_only.is_some()), read_only, ..Self::default() }
    }

    #[inline(always)]
    pub(super) fn are_any(&self) -> bool {
        self.are_any.load(Acquire)
    }

    /// Returns the error after which nothing can be written any more.
    pub(super) fn failed(&self) -> Option<&String> {
        self.failed.get()
    }

    /// Checks that the log may be written, whether its disk is full or not.
    pub(super) fn check_lasting(&self) -> Result<(), Error> {
        match (self.failed.get(), &self.read_only) {
            (Some(reason), _) => Err(Error::Poisoned { reason: reason.clone() }),
            (None, Some(reason)) => Err(Error::ReadOnly { reason: reason.clone() }),
            (None, None) => Ok(()),
        }
    }

    /// Checks that there is no reason.
    pub(super) fn check(&self) -> Result<(), Error> {
        if !self.are_any() {
            return Ok(());
        }
        self.check_lasting()?;
        self.full.lock().clone().map_or(Ok(()), |reason| Err(Error::DiskFull { reason }))
    }

    pub(super) fn fail(&self, error: &Error) {
        let reason = error.to_string();
        event!(error, reason = reason.as_str(), "the log cannot be written any more");
        self.failed.get_or_init(|| reason);
        self.are_any.store(true, Release);
    }

    /// Remembers that the disk is full. The caller holds the writer. Returns the reason.
    pub(super) fn disk_is_full(&self, error: &LogError) -> String {
        let reason = error.to_string();
        if self.full.lock().replace(reason.clone()).is_none() {
            event!(warn, reason = reason.as_str(), "the log's disk is full: commits are refused until there is room");
        }
        self.are_any.store(true, Release);
        reason
    }

    /// Remembers that the disk has room. The caller holds the writer.
    pub(super) fn disk_has_room(&self) {
        if self.are_any() && self.full.lock().take().is_some() {
            event!(info, "the log's disk has room again");
            self.are_any.store(self.check_lasting().is_err(), Release);
        }
    }
}
