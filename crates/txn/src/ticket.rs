//! The starvation ticket, with which a transaction that has failed repeatedly succeeds
//! (`docs/decisions/0033`).
//!
//! A database has one ticket, and it is held for a bounded time. It locks nothing. Its holder
//! publishes *claims*: the places that its failed runs have touched. These are rows, leaves that
//! ranges passed, and buckets or leaves in which keys were absent. Another transaction that is
//! about to write a claimed place yields: it waits, with no lock held, until the holder has ended
//! or its time is over.
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

use crate::{
    bounds::{MODEL, either},
    sync::{AtomicBool, Mutex, Ordering::Relaxed, ThreadName},
};

/// The longest time that the ticket is held.
pub(crate) const TERM: Duration = Duration::from_millis(100);

/// Under model checking, which has no time: the number of times that other threads check a holding
/// before it is over.
const MODEL_LOOKS: u32 = 3;

/// How often a waiting thread checks before it sleeps between checks, and how long it sleeps.
const LOOKS: u32 = 64;
const NAP: Duration = Duration::from_micros(50);

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
    claims: FxHashSet<Claim>,
}

/// The held ticket. Dropping it gives the ticket back; it also ends when its time is over.
#[derive(Debug)]
pub(crate) struct Held<'t> {
    ticket: &'t Ticket,
    number: u64,
}

impl Ticket {
    /// Waits for the ticket, but not longer than one holding. Returns `None` if another transaction
    /// has got it by then.
    #[cold]
    pub(crate) fn take(&self, thread: ThreadName) -> Option<Held<'_>> {
        let (mut nap, mut first) = (Nap::default(), None);
        loop {
            let mut state = self.state.lock();
            match state.current(self) {
                None => return Some(self.begin(&mut state, thread)),
                Some(holding) if *first.get_or_insert(holding.number) != holding.number => return None,
                Some(_) => {}
            }
            drop(state);
            nap.pause();
        }
    }

    fn begin(&self, state: &mut State, thread: ThreadName) -> Held<'_> {
        state.count += 1;
        let (number, until) = (state.count, Instant::now() + TERM);
        state.holding = Some(Holding { number, thread, until, looks: MODEL_LOOKS, claims: FxHashSet::default() });
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

    /// Adds claims, if this thread holds the ticket.
    #[cold]
    pub(crate) fn claim(&self, thread: ThreadName, places: impl Iterator<Item = Claim>) {
        if let Some(holding) = &mut self.state.lock().holding
            && holding.thread == thread
        {
            holding.claims.extend(places);
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
        let is_claimed = holding.thread != thread && places.any(|place| holding.claims.contains(&place));
        is_claimed.then_some(holding.number)
    }
}

impl State {
    /// Returns the current holding. Ends it if its time is over.
    fn current(&mut self, ticket: &Ticket) -> Option<&mut Holding> {
        if self.holding.as_mut().is_some_and(Holding::is_over) {
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
    fn is_over(&mut self) -> bool {
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

/// Waits a little, and longer after some iterations.
#[derive(Default)]
struct Nap {
    waiter: Waiter,
    looks: u32,
}

impl Nap {
    fn pause(&mut self) {
        self.looks += 1;
        if self.looks < either(LOOKS, u32::MAX) { self.waiter.pause() } else { thread::sleep(NAP) }
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
        let held = ticket.take(1).expect("it is free");
        ticket.claim(2, [guard(8)].into_iter());
        ticket.claim(1, [guard(16)].into_iter());
        assert!(ticket.is_taken() && held.is_current());
        assert_eq!(ticket.claimed_in(2, [guard(8), guard(24)].into_iter()), None, "no holder claims it");
        assert_eq!(ticket.claimed_in(1, [guard(16)].into_iter()), None, "it is its own");
        assert_eq!(ticket.claimed_in(2, [guard(8), guard(16)].into_iter()), Some(1));
        drop(held);
        assert_eq!(ticket.claimed_in(2, [guard(16)].into_iter()), None, "it is over");
        assert!(!ticket.is_taken());
    }

    #[test]
    fn a_holding_ends_by_itself() {
        let ticket = Ticket::default();
        let held = ticket.take(1).expect("it is free");
        ticket.claim(1, [guard(16)].into_iter());
        // The loop ends by time alone: the holder does nothing.
        ticket.yield_to_ticket(2, [guard(16)].into_iter());
        assert!(!ticket.is_taken() && !held.is_current());
        let next = ticket.take(2).expect("it is over");
        drop(held);
        assert!(next.is_current(), "an earlier holder ends nothing");
    }

    #[test]
    fn a_thread_waits_for_one_holding_at_most() {
        let ticket = Ticket::default();
        let held = ticket.take(1).expect("it is free");
        // The first holder has not given it back.
        let next = ticket.take(2).expect("the first holding is over");
        assert!(next.is_current() && !held.is_current());
    }
}
