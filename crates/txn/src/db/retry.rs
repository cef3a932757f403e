//! Retrying a closure: whether it runs again, and whether it holds the ticket.

use drtm_htm::Waiter;

use super::options::Options;
use crate::{
    Config, Conflict, Error,
    bounds::TRIES,
    inner::{Inner, Thread},
    sync::this_thread,
    ticket::Held,
    trace::{self, event},
};

/// The state of a closure's retries.
pub(super) struct Retry<'d> {
    waiter: Waiter,
    /// The number of failed runs.
    pub(super) runs: u32,
    /// The number of failed runs after which the transaction asks for the ticket.
    next_ticket: u32,
    ticket: Option<Held<'d>>,
}

impl<'d> Retry<'d> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self { waiter: Waiter::new(), runs: 0, next_ticket: TRIES, ticket: None }
    }

    /// Returns whether this is the first run.
    #[inline(always)]
    pub(super) fn is_first(&self) -> bool {
        self.runs == 0
    }

    /// Prepares the next run after a failed one.
    ///
    /// # Errors
    ///
    /// [`Error::Contended`] if the options allow no other run.
    #[cold]
    #[inline(never)]
    pub(super) fn again<S: Config>(
        &mut self,
        db: &'d Inner<S>,
        thread: &Thread<S::Engine>,
        conflict: Conflict,
        options: &Options,
        writes: bool,
    ) -> Result<(), Error> {
        self.runs += 1;
        let runs = self.runs;
        trace::failed(db.number, runs);
        if options.are_exhausted(runs) {
            let (table, key) = thread.culprit.take().map_or((None, Vec::new()), |row| (Some(row.table), row.key));
            return Err(Error::Contended { attempts: runs, conflict, table, key });
        }
        if self.ticket.as_ref().is_some_and(|ticket| !ticket.is_current()) {
            // The ticket has expired, and other transactions go first.
            self.ticket = None;
            self.next_ticket = runs + TRIES;
        }
        if writes && self.ticket.is_none() && runs >= self.next_ticket {
            event!(
                warn,
                database = db.number,
                tries = runs,
                "a transaction that has failed too often asks for the ticket"
            );
            self.ticket = db.ticket.take(this_thread(thread.slot.name));
        }
        self.waiter.pause();
        Ok(())
    }
}
