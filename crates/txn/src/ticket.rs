//! The starvation ticket: so that a transaction which has failed again and again succeeds.
//!
//! There is one in a database. Whoever has it locks what it reads when it reads it, and keeps it locked until it ends; and nobody else makes or takes out
//! records meanwhile, so that no key comes into what it has read. Others do not wait for its locks while they have some: they give up, and
//! are run again. So nothing that the holder has seen changes any more, and it fails only if somebody was in the midst of something when it began.

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering::Relaxed};

#[derive(Debug, Default)]
pub(crate) struct Ticket {
    queue: Mutex<()>,
    is_taken: AtomicBool,
}

/// The ticket, until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken<'t> {
    ticket: &'t Ticket,
    turn: Option<MutexGuard<'t, ()>>,
}

impl Ticket {
    /// Waits for the ticket.
    #[cold]
    pub(crate) fn take(&self) -> Taken<'_> {
        let turn = self.queue.lock();
        self.is_taken.store(true, Relaxed);
        Taken { ticket: self, turn: Some(turn) }
    }

    /// Whether somebody has it. Who hears of it late only makes the holder try once more.
    #[inline(always)]
    pub(crate) fn is_taken(&self) -> bool {
        self.is_taken.load(Relaxed)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.ticket.is_taken.store(false, Relaxed);
        // To whoever has waited longest.
        if let Some(turn) = self.turn.take() {
            MutexGuard::unlock_fair(turn);
        }
    }
}
