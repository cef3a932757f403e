//! What an executor does while no coroutine is ready: it spins, and then sleeps.
//!
//! Sleeping and waking takes microseconds, a completion on shared memory less than one. So it spins
//! first: some rounds as fast as it can, so that it finds an answer when it comes, and then rounds
//! that each yield the processor. After a sleep that spinning would have saved, it spins twice as
//! long. After any other sleep it spins half as long.
//!
//! An executor that waits for the system, as with sockets, spins for a shorter time and does not
//! yield the processor meanwhile: its sleep ends as soon as there is input. Where input comes again
//! and again only when it has gone to sleep, and then at once, spinning is what keeps it from
//! coming: the peer waits for this processor. Then it hardly spins, for some turns, before it tries
//! again.

use std::time::Duration;

use crate::Time;

/// Rounds that do not yield: a few microseconds, longer than another process takes to answer.
const EAGER: u32 = 64;

/// Rounds that yield before a sleep: the least, the initial, and the most.
const LEAST: u32 = 16;
const FIRST: u32 = 128;
const MOST: u32 = 2048;

/// Rounds that are too few to read the clock, where rounds do not yield.
const FEW: u32 = 4;

/// The longest time of spinning.
const LONG: Duration = Duration::from_micros(200);

/// The longest time of spinning without yielding: a few round trips of a fast network.
const BRIEF: Duration = Duration::from_micros(50);

/// Spinning where that keeps input from coming: longer than it takes to find what is there.
const BRIEFEST: Duration = Duration::from_micros(3);

/// How often in a row input comes only during the sleep until spinning is taken to be the cause,
/// and for how many sleeps it is.
const STRIKES: u32 = 6;
const SKIPPED: u32 = 16;

/// A sleep that input has ended at once, or as soon as the peer has spun as long.
const PROMPT: Duration = Duration::from_micros(150);

/// A sleep that was too short to be worth while.
const SHORT: Duration = Duration::from_micros(50);

pub(crate) struct Idle {
    /// Rounds without a ready coroutine.
    rounds: u32,
    /// The number of such rounds, after the eager ones, before a sleep.
    budget: u32,
    since: Option<Time>,
    /// Since when it spins.
    spins_since: Option<Time>,
    /// How often in a row spinning was in vain, and a short sleep was not.
    strikes: u32,
    /// Sleeps before which it hardly spins.
    skipped: u32,
    /// Whether it has slept since a coroutine ran.
    slept: bool,
    /// The length of the next sleep while a peer takes no messages.
    blocked: Duration,
}

impl Default for Idle {
    fn default() -> Self {
        Self {
            rounds: 0,
            budget: FIRST,
            since: None,
            spins_since: None,
            strikes: 0,
            skipped: 0,
            slept: false,
            blocked: Self::FIRST_BLOCKED,
        }
    }
}

impl Idle {
    /// The longest sleep of an endpoint that waits for a peer to take messages: the peer does not
    /// signal that it has.
    pub(crate) const BLOCKED: Duration = Duration::from_millis(1);
    const FIRST_BLOCKED: Duration = Duration::from_micros(20);

    /// Resets the state, after a coroutine ran.
    #[inline]
    pub(crate) fn end(&mut self) {
        if self.rounds > 0 {
            let strikes = if self.slept { self.strikes } else { 0 };
            *self = Self { budget: self.budget, strikes, skipped: self.skipped, ..Self::default() };
        }
    }

    /// Begins to spin anew, after something was done for others.
    pub(crate) fn begin_again(&mut self) {
        let since = self.since;
        self.end();
        self.since = since;
    }

    /// Waits a little, and yields the processor if `yields`.
    pub(crate) fn spin(&mut self, yields: bool) {
        self.rounds = self.rounds.saturating_add(1);
        if yields && self.rounds > EAGER {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }

    /// Returns whether it has spun enough: by rounds, or by time, if rounds take long because other
    /// threads use the processor.
    pub(crate) fn is_due(&mut self, clock: impl FnOnce() -> Time, yields: bool) -> bool {
        // If each round polls sockets, only time counts: the number of rounds in a round trip
        // varies little.
        if yields && self.rounds >= EAGER + self.budget {
            return true;
        }
        if self.rounds < if yields { EAGER } else { FEW } {
            return false;
        }
        let now = clock();
        self.since.get_or_insert(now);
        let long = match (yields, self.skipped) {
            (true, _) => LONG,
            (false, 0) => BRIEF,
            (false, _) => BRIEFEST,
        };
        now.since(*self.spins_since.get_or_insert(now)) > long
    }

    /// Returns whether no coroutine was ready for longer than `patience`.
    pub(crate) fn has_lasted(&mut self, now: Time, patience: Option<Duration>) -> bool {
        let since = *self.since.get_or_insert(now);
        patience.is_some_and(|patience| now.since(since) > patience)
    }

    /// Returns how long to sleep at most.
    pub(crate) fn nap_at_most(&mut self, blocked: bool, now: Time, patience: Option<Duration>) -> Option<Duration> {
        let patience = patience.map(|patience| {
            let lasted = self.since.map_or(Duration::ZERO, |since| now.since(since));
            // A little longer, so that the patience is over by then.
            patience.saturating_sub(lasted) + SHORT
        });
        if !blocked {
            return patience;
        }
        let at_most = self.blocked;
        self.blocked = (at_most * 2).min(Self::BLOCKED);
        Some(patience.map_or(at_most, |patience| patience.min(at_most)))
    }

    /// Adapts the spinning to the length of a sleep.
    pub(crate) fn napped(&mut self, long: Duration) {
        self.slept = true;
        if self.skipped > 0 {
            self.skipped -= 1;
        } else if long >= PROMPT {
            self.strikes = 0;
        } else {
            self.strikes += 1;
            if self.strikes >= STRIKES {
                // The next try is one.
                (self.strikes, self.skipped) = (STRIKES - 1, SKIPPED);
            }
        }
        self.budget = if long < SHORT { (self.budget * 2).min(MOST) } else { (self.budget / 2).max(LEAST) };
        // After one more round, it may sleep again.
        self.rounds = self.rounds.max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_sleeps_make_it_spin_longer_and_long_ones_shorter() {
        let mut idle = Idle::default();
        for _ in 0..20 {
            idle.napped(Duration::from_micros(5));
        }
        assert_eq!(idle.budget, MOST);
        idle.end();
        assert_eq!(idle.budget, MOST, "it is remembered");
        for _ in 0..20 {
            idle.napped(Duration::from_millis(5));
        }
        assert_eq!(idle.budget, LEAST);
    }

    /// Spins until it is time to sleep, by a clock that goes on by a microsecond each time. Returns
    /// how long that was.
    fn spun(idle: &mut Idle) -> u64 {
        let mut micros = 0;
        let mut clock = || {
            micros += 1;
            Time::default() + Duration::from_micros(micros)
        };
        while !idle.is_due(&mut clock, false) {
            idle.spin(false);
        }
        micros
    }

    #[test]
    fn spinning_that_keeps_input_from_coming_is_left_off_for_a_while() {
        let mut idle = Idle::default();
        let mut spins = |sleeps: u32, slept: u64| {
            let spin = |_| {
                let spun = spun(&mut idle);
                idle.napped(Duration::from_micros(slept));
                idle.end();
                spun > BRIEFEST.as_micros() as u64 + 2
            };
            (0..sleeps).map(spin).filter(|spun| *spun).count() as u32
        };
        assert_eq!(spins(STRIKES, 5), STRIKES);
        assert_eq!(spins(SKIPPED, 5), 0, "it was in vain");
        assert_eq!(spins(1, 5), 1, "it tries again");
        assert_eq!(spins(SKIPPED, 5), 0);
        assert_eq!(spins(1, 5000), 1, "there was nothing to come");
        assert_eq!(spins(STRIKES, 5), STRIKES);
        assert_eq!(spins(SKIPPED, 5), 0);
        // What comes while it spins shows that spinning does no harm.
        for _ in 0..100 {
            spun(&mut idle);
            idle.napped(Duration::from_micros(5));
            idle.end();
            idle.spin(false);
            idle.end();
        }
        assert_eq!(idle.skipped, 0);
    }

    #[test]
    fn the_first_rounds_do_not_read_the_clock() {
        let mut idle = Idle::default();
        for _ in 0..EAGER {
            assert!(!idle.is_due(|| panic!("an eager round"), true));
            idle.spin(true);
        }
        let mut reads = 0;
        let mut clock = || {
            reads += 1;
            Time::default()
        };
        for _ in 0..FIRST {
            assert!(!idle.is_due(&mut clock, true));
            idle.spin(true);
        }
        assert!(idle.is_due(&mut clock, true), "it has spun as often as it may");
        assert_eq!(reads, FIRST);
    }
}
