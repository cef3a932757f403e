//! How long an operation waits for a record that another thread has locked or is writing.
//!
//! A thread that only does this operation waits without limit. A message handler must not: the
//! lock's holder, perhaps on another node, may be waiting for that handler. So a handle of a table
//! can be *impatient*: its operations soon fail with [`KvError::Busy`], and have changed nothing.

use std::cell::Cell;

use drtm_htm::Waiter;

use crate::KvError;

/// How often an operation retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Without limit.
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

/// The waiting of one operation.
#[derive(Debug)]
pub(crate) struct Waiting {
    waiter: Waiter,
    left: Cell<Option<u32>>,
}

impl Waiting {
    /// Waits a little. `Err`: the operation has waited long enough.
    #[cold]
    pub(crate) fn pause(&self) -> Result<(), KvError> {
        if let Some(left) = self.left.get() {
            self.left.set(Some(left.checked_sub(1).ok_or(KvError::Busy)?));
        }
        self.waiter.pause();
        Ok(())
    }
}
