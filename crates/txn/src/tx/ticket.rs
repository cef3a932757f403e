//! The starvation ticket, with which a transaction that has failed repeatedly succeeds
//! (`docs/decisions/0033`).
//!
//! A database has one ticket, and it is held for a bounded time. It locks nothing. Its holder
//! publishes *claims*: the places that its failed runs have touched. These are rows, leaves that
//! ranges passed, and buckets or leaves in which keys were absent. Another transaction that is
//! about to write a claimed place yields: it waits, with no lock held, until the holder has ended
//! or its time is over.
//!
//! A holder whose runs fail in spite of its claims has read other places each time, or more of
//! them. After [`CLAIMING`] such runs it claims every place (`docs/decisions/0071`). Only commits
//! that had begun before can make it fail from then on, each of them once.
//!
//! Correctness does not depend on claims. The holder is validated like any other transaction, and a
//! thread that sees the claims late only makes the holder run once more. So a claim may be ignored,
//! and it is ignored
//!
//! - when the time is over, whatever the holder's closure waits for;
//! - by the holder's own thread, which may have other transactions.

use std::{
    thread,
    time::{Duration, Instant},
};

use drtm_htm::Waiter;
use drtm_kv::Handle;
use drtm_rdma::Offset;
use rustc_hash::FxHashSet;

use crate::model::{
    bounds::{MODEL, either},
    sync::{AtomicBool, Mutex, Ordering::Relaxed, ThreadName},
};

/// How long a transaction holds the ticket at first. Each holding that ends by time doubles the
/// transaction's next one, up to the longest.
pub(crate) const TERM: Duration = Duration::from_millis(100);
pub(crate) const LONGEST_TERM: Duration = Duration::from_secs(2);

/// The number of runs of a holder that fail in spite of its claims before it claims every place.
pub(crate) const CLAIMING: u32 = either(4, 1);

/// Under model checking, which has no time: the number of times that other threads check a holding
/// before it is over.
const MODEL_LOOKS: u32 = 3;

/// How often a waiting thread checks before it sleeps between checks, and how long it sleeps: at
/// first, and at most. Many waiting threads must leave the processors to the holder.
const LOOKS: u32 = 64;
const NAP: Duration = Duration::from_micros(50);
const LONGEST_NAP: Duration = Duration::from_millis(2);

/// A place that the holder of the ticket has touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Claim {
    /// A row.
    Record(Handle),
    /// A bucket or a leaf, into which keys must not be inserted.
    Guard(Offset),
}

#[derive(Debug, Default)]
pub(crate) struct Ticket {
    is_taken: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of holdings so far.
    count: u64,
    holding: Option<Holding>,
}

#[derive(Debug)]
struct Holding {
    number: u64,
    thread: ThreadName,
    until: Instant,
    looks: u32,
    /// The number of its runs that have failed.
    failed: u32,
    claims: FxHashSet<Claim>,
}

/// The held ticket. Dropping it gives the ticket back; it also ends when its time is over.
#[derive(Debug)]
pub(crate) struct Held<'t> {
    ticket: &'t Ticket,
    number: u64,
}

impl Ticket {
    /// Waits for the ticket, but not longer than one holding, and takes it for this long. Returns
    /// `None` if another transaction has got it by then.
    #[cold]
    pub(crate) fn take(&self, thread: ThreadName, term: Duration) -> Option<Held<'_>> {
        let (mut nap, mut first) = (Nap::default(), None);
        loop {
            let mut state = self.state.lock();
            match state.current(self) {
                None => return Some(self.begin(&mut state, thread, term)),
                Some(holding) if *first.get_or_insert(holding.number) != holding.number => return None,
                Some(_) => {}
            }
            drop(state);
            nap.pause();
        }
    }

    fn begin(&self, state: &mut State, thread: ThreadName, term: Duration) -> Held<'_> {
        state.count += 1;
        let (number, until, claims) = (state.count, Instant::now() + term, FxHashSet::default());
        state.holding = Some(Holding { number, thread, until, looks: MODEL_LOOKS, failed: 0, claims });
        self.is_taken.store(true, Relaxed);
        Held { ticket: self, number }
    }

    /// Returns whether the ticket is held, or was a moment ago.
    #[inline(always)]
    pub(crate) fn is_taken(&self) -> bool {
        self.is_taken.load(Relaxed)
    }

    /// Returns whether the ticket is held, and its time is not over.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.is_taken() && self.state.lock().current(self).is_some()
    }

    /// Claims the places of a failed run, if this thread holds the ticket. Counts the run, but for
    /// a deliberate fault.
    #[cold]
    pub(crate) fn claim(&self, thread: ThreadName, places: impl Iterator<Item = Claim>, is_counted: bool) {
        if let Some(holding) = &mut self.state.lock().holding
            && holding.thread == thread
        {
            holding.failed += u32::from(is_counted);
            if !holding.claims_all() {
                holding.claims.extend(places);
            }
        }
    }

    /// Gives the ticket back if this thread holds it: its transaction has committed, and may still
    /// wait until it is durable.
    #[cold]
    pub(crate) fn give_back(&self, thread: ThreadName) {
        let mut state = self.state.lock();
        if state.holding.as_ref().is_some_and(|holding| holding.thread == thread) {
            state.end(self);
        }
    }

    /// Waits while another thread claims one of these places.
    #[cold]
    #[inline(never)]
    pub(crate) fn yield_to_ticket(&self, thread: ThreadName, places: impl Iterator<Item = Claim>) {
        let Some(number) = self.claimed_in(thread, places) else { return };
        let mut nap = Nap::default();
        while self.state.lock().current(self).is_some_and(|holding| holding.number == number) {
            nap.pause();
        }
    }

    /// Returns the number of the holding in which another thread claims one of these places.
    fn claimed_in(&self, thread: ThreadName, mut places: impl Iterator<Item = Claim>) -> Option<u64> {
        let mut state = self.state.lock();
        let holding = state.current(self)?;
        let is_claimed = holding.thread != thread && places.any(|place| holding.has_claimed(place));
        is_claimed.then_some(holding.number)
    }
}

impl State {
    /// Returns the current holding. Ends it if its time is over.
    fn current(&mut self, ticket: &Ticket) -> Option<&mut Holding> {
        if self.holding.as_mut().is_some_and(Holding::check_over) {
            self.end(ticket);
        }
        self.holding.as_mut()
    }

    fn end(&mut self, ticket: &Ticket) {
        self.holding = None;
        ticket.is_taken.store(false, Relaxed);
    }
}

impl Holding {
    fn claims_all(&self) -> bool {
        self.failed > CLAIMING
    }

    fn has_claimed(&self, place: Claim) -> bool {
        self.claims_all() || self.claims.contains(&place)
    }

    /// Checks whether the time is over. A model counts the checks instead.
    fn check_over(&mut self) -> bool {
        if MODEL {
            self.looks = self.looks.saturating_sub(1);
            return self.looks == 0;
        }
        Instant::now() >= self.until
    }
}

impl Held<'_> {
    /// Returns whether the time is not over.
    pub(crate) fn is_current(&self) -> bool {
        self.ticket.state.lock().holding.as_ref().is_some_and(|holding| holding.number == self.number)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut state = self.ticket.state.lock();
        if state.holding.as_ref().is_some_and(|holding| holding.number == self.number) {
            state.end(self.ticket);
        }
    }
}

/// Returns a time that has doubled this often, up to the longest.
pub(crate) fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    1_u32.checked_shl(times).map_or(longest, |factor| first.saturating_mul(factor).min(longest))
}

/// Waits a little, and longer after some iterations.
#[derive(Default)]
struct Nap {
    waiter: Waiter,
    looks: u32,
}

impl Nap {
    fn pause(&mut self) {
        self.looks += 1;
        match self.looks.checked_sub(either(LOOKS, u32::MAX)) {
            None => self.waiter.pause(),
            Some(naps) => thread::sleep(doubled(NAP, naps, LONGEST_NAP)),
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    fn guard(place: u64) -> Claim {
        Claim::Guard(Offset::new(place))
    }

    #[test]
    fn claims_are_waited_for_by_others_only_and_only_where_they_are() {
        let ticket = Ticket::default();
        let held = ticket.take(1, TERM).expect("it is free");
        ticket.claim(2, [guard(8)].into_iter(), true);
        ticket.claim(1, [guard(16)].into_iter(), true);
        assert!(ticket.is_taken() && held.is_current());
        assert_eq!(ticket.claimed_in(2, [guard(8), guard(24)].into_iter()), None, "no holder claims it");
        assert_eq!(ticket.claimed_in(1, [guard(16)].into_iter()), None, "it is its own");
        assert_eq!(ticket.claimed_in(2, [guard(8), guard(16)].into_iter()), Some(1));
        drop(held);
        assert_eq!(ticket.claimed_in(2, [guard(16)].into_iter()), None, "it is over");
        assert!(!ticket.is_taken());
    }

    #[test]
    fn a_holder_that_fails_too_often_claims_all() {
        let ticket = Ticket::default();
        let held = ticket.take(1, LONGEST_TERM).expect("it is free");
        for run in 0..u64::from(CLAIMING) {
            ticket.claim(1, [guard(run)].into_iter(), true);
            assert_eq!(ticket.claimed_in(2, [guard(run)].into_iter()), Some(1));
            assert_eq!(ticket.claimed_in(2, [guard(run + 1)].into_iter()), None);
        }
        ticket.claim(1, std::iter::empty(), true);
        assert_eq!(ticket.claimed_in(2, [guard(1 << 30)].into_iter()), Some(1));
        assert_eq!(ticket.claimed_in(1, [guard(1 << 30)].into_iter()), None, "it is its own");
        assert_eq!(ticket.claimed_in(2, std::iter::empty()), None, "it writes nothing");
        drop(held);
        let _next = ticket.take(2, LONGEST_TERM).expect("it is free");
        assert_eq!(ticket.claimed_in(1, [guard(1 << 30)].into_iter()), None, "the next holder has claimed nothing");
    }

    #[test]
    fn only_its_holder_gives_the_ticket_back() {
        let ticket = Ticket::default();
        let held = ticket.take(1, LONGEST_TERM).expect("it is free");
        ticket.give_back(2);
        assert!(held.is_current());
        ticket.give_back(1);
        assert!(!ticket.is_taken());
        let next = ticket.take(2, LONGEST_TERM).expect("it is free");
        drop(held);
        assert!(next.is_current(), "an earlier holder ends nothing");
    }

    #[test]
    fn times_double_up_to_the_longest() {
        let terms: Vec<u128> = (0..6).map(|times| doubled(TERM, times, LONGEST_TERM).as_millis()).collect();
        assert_eq!(terms, [100, 200, 400, 800, 1_600, 2_000]);
        assert_eq!(doubled(NAP, u32::MAX, LONGEST_NAP), LONGEST_NAP);
    }

    #[test]
    fn a_holding_ends_by_itself() {
        let ticket = Ticket::default();
        let held = ticket.take(1, TERM).expect("it is free");
        ticket.claim(1, [guard(16)].into_iter(), true);
        // The loop ends by time alone: the holder does nothing.
        ticket.yield_to_ticket(2, [guard(16)].into_iter());
        assert!(!ticket.is_taken() && !held.is_current());
        let next = ticket.take(2, TERM).expect("it is over");
        drop(held);
        assert!(next.is_current(), "an earlier holder ends nothing");
    }

    #[test]
    fn a_thread_waits_for_one_holding_at_most() {
        let ticket = Ticket::default();
        let held = ticket.take(1, TERM).expect("it is free");
        // The first holder has not given it back.
        let next = ticket.take(2, TERM).expect("the first holding is over");
        assert!(next.is_current() && !held.is_current());
    }
}
