//! Locking what is read: for the transaction that has the [ticket](crate::ticket).

use drtm_htm::Waiter;
use drtm_kv::{Locking, ReadEntry};

use super::{Mode, Tx};
use crate::{Conflict, Error, Setting};

impl<S: Setting, M: Mode> Tx<'_, S, M> {
    /// Whether this transaction locks what it reads.
    #[inline(always)]
    pub(super) fn has_ticket(&self) -> bool {
        M::WRITES && self.has_ticket
    }

    /// Locks a record, unless it is locked already. False if it is not as it was seen: then it must be looked at again.
    #[cold]
    pub(super) fn lock_for_read(&mut self, seen: ReadEntry) -> Result<bool, Error> {
        let db = self.db;
        let records = db.store.records();
        let waiter = Waiter::new();
        let state = self.state();
        loop {
            match records.lock(seen.at, state.holder)? {
                Locking::Taken { version, .. } if version == seen.version => {
                    state.reads.held.push(seen.at);
                    return Ok(true);
                }
                Locking::Taken { .. } => {
                    records.unlock(seen.at);
                    return Ok(false);
                }
                Locking::Gone => return Ok(false),
                Locking::Mine { .. } => return Ok(true),
                // In the midst of a commit, which does not wait for this one.
                Locking::Held(_) => waiter.pause(),
            }
        }
    }

    /// Makes way for the one who has the ticket, before records are made.
    #[inline(always)]
    pub(super) fn yield_to_ticket(&mut self) -> Result<(), Error> {
        if self.db.ticket.is_taken() && !self.has_ticket { Err(self.doom(Conflict::Yielded)) } else { Ok(()) }
    }
}
