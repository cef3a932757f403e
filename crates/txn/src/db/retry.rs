//! Retrying a closure: whether it runs again, and whether it holds the ticket.

use std::{
    thread,
    time::{Duration, Instant},
};

use drtm_htm::Waiter;
use drtm_kv::{forget_lack, has_lacked_memory};

use super::options::Options;
use crate::{
    Config, Conflict, Error,
    db::inner::{Inner, Thread},
    memory::reclaim,
    model::{
        bounds::{ROWS_TRIED, TRIES},
        sync::this_thread,
    },
    trace::{self, event},
    tx::ticket::{Held, LONGEST_TERM, TERM, doubled},
};

/// How long a transaction for which there is no memory waits for others to end, and how long it
/// sleeps between looks.
const MEMORY_PATIENCE: Duration = Duration::from_millis(100);
const NAP: Duration = Duration::from_micros(200);

/// How often a closure is run again because memory has been found.
const MOST_FOR_MEMORY: u32 = 16;

/// The state of a closure's retries.
pub(super) struct Retry<'d> {
    waiter: Waiter,
    /// The number of failed runs.
    pub(super) runs: u32,
    /// The number of failed runs after which the transaction asks for the ticket, and of rows that
    /// runs have tried since it last could ask.
    next_ticket: u32,
    rows: usize,
    ticket: Option<Held<'d>>,
    /// How often it has held the ticket until its time was over.
    expired: u32,
    /// How many runs failed for want of memory that was there then.
    for_memory: u32,
}

impl<'d> Retry<'d> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        // An explicit transaction of this thread may have lacked memory before.
        forget_lack();
        Self { waiter: Waiter::new(), runs: 0, next_ticket: TRIES, rows: 0, ticket: None, expired: 0, for_memory: 0 }
    }

    /// Returns whether this is the first run.
    #[inline(always)]
    pub(super) fn is_first(&self) -> bool {
        self.runs == 0
    }

    /// Returns whether a run that has failed was perhaps in want of memory, and there is some now:
    /// then there is to be another one. The closure must have ended.
    #[cold]
    #[inline(never)]
    pub(super) fn finds_memory<S: Config>(
        &mut self,
        db: &'d Inner<S>,
        thread: &Thread<S::Engine>,
        options: &Options,
    ) -> Result<bool, Error> {
        let has_lacked = has_lacked_memory();
        if !has_lacked || options.is_bounded() || self.for_memory >= MOST_FOR_MEMORY {
            return Ok(false);
        }
        self.runs += 1;
        self.for_memory += 1;
        // What waits for all transactions does not wait for this one.
        thread.slot.leave(db.engine());
        await_memory(db, thread)
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
        self.rows = self.rows.saturating_add(thread.tried.take());
        if self.ticket.as_ref().is_some_and(|ticket| !ticket.is_current()) && self.expire() {
            event!(
                warn,
                database = db.number,
                tries = runs,
                "a transaction takes longer than others wait for it: read in `Db::read`, or write less at once"
            );
        }
        if writes && self.ticket.is_none() && (runs >= self.next_ticket || self.rows >= ROWS_TRIED) {
            event!(
                warn,
                database = db.number,
                tries = runs,
                "a transaction that has failed too often asks for the ticket"
            );
            let term = doubled(TERM, self.expired, LONGEST_TERM);
            self.ticket = db.ticket.take(this_thread(thread.slot.name), term);
        }
        self.waiter.pause();
        Ok(())
    }

    /// Lets other transactions go first, as the ticket has expired. Returns whether no ticket would
    /// be longer.
    fn expire(&mut self) -> bool {
        self.ticket = None;
        self.next_ticket = self.runs + TRIES;
        self.rows = 0;
        self.expired += 1;
        doubled(TERM, self.expired - 1, LONGEST_TERM) == LONGEST_TERM
    }
}

/// Waits a while for the memory that was wanted: until what may know retired spans has ended.
/// Returns whether there is some. This thread must not run a transaction.
#[cold]
fn await_memory<S: Config>(db: &Inner<S>, thread: &Thread<S::Engine>) -> Result<bool, Error> {
    let until = Instant::now() + MEMORY_PATIENCE;
    loop {
        if db.store.find_memory() || db.store.free_spans() > db.store.waiting_spans() {
            return Ok(true);
        }
        if Instant::now() >= until {
            return Ok(false);
        }
        try_garbage(db, thread)?;
        thread::sleep(NAP);
    }
}

/// Tries to take back some of what transactions have left behind. This thread must not run one.
pub(super) fn try_garbage<S: Config>(db: &Inner<S>, thread: &Thread<S::Engine>) -> Result<(), Error> {
    if db.garbage.is_empty() {
        return Ok(());
    }
    let mut state = db.take(thread)?;
    let visit = db.store.visit();
    let tried = reclaim::try_some(db, &mut state);
    drop(visit);
    db.give_back(thread, state);
    Ok(tried?)
}
