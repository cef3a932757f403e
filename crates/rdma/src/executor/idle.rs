//! What an executor does while no coroutine can go on: it spins, and then sleeps.
//!
//! To sleep and be woken takes microseconds, a completion on shared memory less than one. So it
//! spins first, and the longer, the sooner its last sleeps ended: twice as long after a sleep that
//! spinning would have saved, half as long after another.
//!
//! What waits for the system to bring something, as sockets do, spins for a shorter time and does
//! not give its processor away meanwhile: it has a sleep that ends as soon as there is something.

use std::time::Duration;

use crossbeam_utils::Backoff;

use crate::Time;

/// Rounds of spinning before a sleep: at the least, at first, at the most. After the first few,
/// each gives the processor away.
const LEAST: u32 = 16;
const FIRST: u32 = 128;
const MOST: u32 = 2048;

/// Rounds that are too short for a look at the clock.
const FEW: u32 = 4;

/// Spinning that has lasted long enough.
const LONG: Duration = Duration::from_micros(200);

/// Spinning that has lasted long enough where it keeps the processor: a few round trips of a fast
/// network.
const BRIEF: Duration = Duration::from_micros(50);

/// A sleep that was not worth it.
const SHORT: Duration = Duration::from_micros(50);

pub(crate) struct Idle {
    /// Rounds without anything to run.
    rounds: u32,
    /// How many of them before a sleep.
    budget: u32,
    since: Option<Time>,
    backoff: Backoff,
    /// The next sleep while a peer takes no messages.
    blocked: Duration,
}

impl Default for Idle {
    fn default() -> Self {
        Self { rounds: 0, budget: FIRST, since: None, backoff: Backoff::new(), blocked: Self::FIRST_BLOCKED }
    }
}

impl Idle {
    /// The longest sleep of an endpoint that waits for a peer to take messages: a peer does not say
    /// when it has.
    pub(crate) const BLOCKED: Duration = Duration::from_millis(1);
    const FIRST_BLOCKED: Duration = Duration::from_micros(20);

    /// A coroutine ran.
    #[inline]
    pub(crate) fn end(&mut self) {
        if self.rounds > 0 {
            *self = Self { budget: self.budget, ..Self::default() };
        }
    }

    /// Waits a little, and gives the processor away where that is asked.
    pub(crate) fn spin(&mut self, yields: bool) {
        self.rounds = self.rounds.saturating_add(1);
        if yields {
            self.backoff.snooze();
        } else {
            std::hint::spin_loop();
        }
    }

    /// Whether there was enough spinning: by rounds, or by time, where each takes long because
    /// others want the processor.
    pub(crate) fn is_due(&mut self, clock: impl FnOnce() -> Time, yields: bool) -> bool {
        // Where each round is a look at sockets, time alone says how long is enough: a round trip
        // is always so many rounds.
        if yields && self.rounds >= self.budget {
            return true;
        }
        if self.rounds < FEW {
            return false;
        }
        let now = clock();
        now.since(*self.since.get_or_insert(now)) > if yields { LONG } else { BRIEF }
    }

    /// Whether there has been nothing to run for longer than there is patience for.
    pub(crate) fn has_lasted(&mut self, now: Time, patience: Option<Duration>) -> bool {
        let since = *self.since.get_or_insert(now);
        patience.is_some_and(|patience| now.since(since) > patience)
    }

    /// How long to sleep at the most.
    pub(crate) fn nap_at_most(&mut self, blocked: bool, now: Time, patience: Option<Duration>) -> Option<Duration> {
        let patience = patience.map(|patience| {
            let lasted = self.since.map_or(Duration::ZERO, |since| now.since(since));
            // A little longer, so that it is over then.
            patience.saturating_sub(lasted) + SHORT
        });
        if !blocked {
            return patience;
        }
        let at_most = self.blocked;
        self.blocked = (at_most * 2).min(Self::BLOCKED);
        Some(patience.map_or(at_most, |patience| patience.min(at_most)))
    }

    /// A sleep was so long.
    pub(crate) fn napped(&mut self, long: Duration) {
        self.budget = if long < SHORT { (self.budget * 2).min(MOST) } else { (self.budget / 2).max(LEAST) };
        // One more round, and it may sleep again.
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
}
