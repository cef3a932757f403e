//! Patience: how long an operation waits for a record that somebody else has locked or is writing.
//!
//! A thread that has nothing else to do waits as long as it takes. One that has, must not: whoever
//! holds the record, on another node perhaps, may be waiting for just this thread to answer a
//! message. So a handle of a table can be *impatient*: its operations give up then, with
//! [`KvError::Busy`], and have changed nothing.

use std::cell::Cell;

use drtm_htm::Waiter;

use crate::KvError;

/// How often an operation looks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As often as it takes.
    Endless,
    /// A few times: enough for a thread of this node that is in the midst of a write.
    Short,
}

const SHORT: u32 = 10;

impl Patience {
    pub(crate) fn begin(self) -> Waiting {
        let left = match self {
            Self::Endless => None,
            Self::Short => Some(SHORT),
        };
        Waiting { waiter: Waiter::new(), left: Cell::new(left) }
    }
}

/// One operation's waiting.
#[derive(Debug)]
pub(crate) struct Waiting {
    waiter: Waiter,
    left: Cell<Option<u32>>,
}

impl Waiting {
    /// Waits a little; an error if it has been long enough.
    #[cold]
    pub(crate) fn pause(&self) -> Result<(), KvError> {
        if let Some(left) = self.left.get() {
            self.left.set(Some(left.checked_sub(1).ok_or(KvError::Busy)?));
        }
        self.waiter.pause();
        Ok(())
    }
}
