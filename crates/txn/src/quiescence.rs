//! Whether everything has ended that may know memory which is to be cut anew for rows of another
//! size.
//!
//! A stale place is written before it is checked: the lock of a record is a swap of a word from
//! zero. In memory that holds another row by then, this would change a value. So it must be certain
//! that nothing has a place there: no transaction, snapshot or prefetch, and no garbage. Three
//! steps tell, in this order:
//!
//! 1. *A barrier.* A transaction marks itself as active by a plain store, since a fence would cost
//!    each of them. The system has all processors that run this process pass a barrier
//!    (`membarrier`). A transaction whose mark is not seen after it begins to read after it, and
//!    finds nothing that leads into the memory.
//! 2. *Marks.* No transaction is active that was admitted before the turn in which the memory was
//!    retired. Its prefetches and hints have ended with it: a hint is believed by what its leaf
//!    says, each time.
//! 3. *Garbage.* Entries that begin from now on have another age, and all of the present one are
//!    waited for. One that is just beginning is of a transaction that began after the retirement,
//!    and has a record that is in use.
//!
//! Where peers may have places, or the system has no such barrier, nothing is ever certain, and
//! memory keeps its size.

use drtm_htm::Engine;

use crate::{garbage::Queue, lifecycle::Lifecycle, sync::Mutex};

#[derive(Debug)]
pub(crate) struct Quiescence {
    is_certain: bool,
    /// The turn that was asked about last, and the age that garbage had then.
    asked: Mutex<(u64, u64)>,
}

impl Quiescence {
    /// For a database whose memory only its own threads know.
    pub(crate) fn of_threads() -> Self {
        Self { is_certain: barrier::register(), asked: Mutex::default() }
    }

    /// For a database whose memory others may know.
    pub(crate) fn of_peers() -> Self {
        Self { is_certain: false, asked: Mutex::default() }
    }

    /// Whether it can be certain.
    pub(crate) fn is_certain(&self) -> bool {
        self.is_certain
    }

    /// Whether all has ended that began before a turn.
    pub(crate) fn since<E: Engine>(&self, turn: u64, engine: &E, lifecycle: &Lifecycle, garbage: &Queue) -> bool {
        if !self.is_certain || !barrier::pass() || !lifecycle.has_passed(engine, turn) {
            return false;
        }
        let mut asked = self.asked.lock();
        if asked.0 != turn {
            let Some(age) = garbage.grow_older() else { return false };
            *asked = (turn, age);
        }
        garbage.is_drained_of(asked.1)
    }
}

#[cfg(not(feature = "model"))]
mod barrier {
    use rustix::thread::{MembarrierCommand, membarrier};

    /// Lets this process use the barrier. Whether it can.
    pub(super) fn register() -> bool {
        membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok() && pass()
    }

    /// Has all processors that run this process pass a barrier.
    pub(super) fn pass() -> bool {
        membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

/// The model checker knows no such barrier.
#[cfg(feature = "model")]
mod barrier {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn pass() -> bool {
        false
    }
}
