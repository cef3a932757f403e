//! Virtual time, and the clocks of nodes.

use std::time::Duration;

use crate::Time;

/// Virtual time, in picoseconds: an operation of a NIC takes a few thousand.
pub(super) type Picos = u64;

pub(super) const NANO: Picos = 1_000;

/// The beginning of virtual time. It is not zero, so that a clock that is behind has a valid time
/// too.
pub(super) const BEGINNING: Picos = 1_000_000_000 * NANO;

pub(super) fn picos(duration: Duration) -> Picos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).saturating_mul(NANO)
}

/// A node's clock: its offset, and its speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeClock {
    /// The nanoseconds that it is ahead.
    skew: i64,
    /// The parts per billion that it is fast.
    drift: i64,
    /// The least time that it shows, so that it never goes back.
    floor: u64,
}

const BILLION: i128 = 1_000_000_000;

impl NodeClock {
    pub(super) fn new(skew: i64, drift: i64) -> Self {
        // A clock that stands still or runs backwards is not allowed.
        Self { skew, drift: drift.clamp(-900_000_000, 900_000_000), floor: 0 }
    }

    /// Changes its offset and speed, from `now` on.
    pub(super) fn adjust(&mut self, skew: i64, drift: i64, now: Picos) {
        let floor = self.at(now).nanos();
        *self = Self { floor, ..Self::new(skew, drift) };
    }

    /// Returns the time that it shows.
    pub(super) fn at(&self, now: Picos) -> Time {
        let nanos = i128::from(now / NANO);
        let passed = nanos - i128::from(BEGINNING / NANO);
        let shown = nanos + i128::from(self.skew) + passed * i128::from(self.drift) / BILLION;
        let shown = u64::try_from(shown.max(0)).unwrap_or(u64::MAX);
        Time::from_nanos(shown.max(self.floor))
    }

    /// Returns the first moment at which it shows `time`, or more.
    pub(super) fn when(&self, time: Time) -> Picos {
        if time.nanos() <= self.floor {
            return 0;
        }
        let beginning = i128::from(BEGINNING / NANO);
        let wanted = i128::from(time.nanos()) - i128::from(self.skew) - beginning;
        let nanos = beginning + wanted * BILLION / (BILLION + i128::from(self.drift)) - 2;
        let clamp = |nanos: i128| u64::try_from(nanos.max(0)).unwrap_or(u64::MAX).saturating_mul(NANO);
        // The division rounds, so the last few nanoseconds are searched.
        let mut moment = clamp(nanos);
        while moment < u64::MAX - NANO && self.at(moment) < time {
            moment += NANO;
        }
        moment
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_moment_is_found_again(
            skew in -500_000_000..500_000_000_i64,
            drift in -100_000_000..100_000_000_i64,
            after in 0..10_000_000_000_u64,
        ) {
            let clock = NodeClock::new(skew, drift);
            let time = clock.at(BEGINNING + after * NANO);
            let moment = clock.when(time);
            prop_assert!(clock.at(moment) >= time);
            prop_assert!(clock.at(moment - NANO) < time, "not earlier");
        }
    }

    #[test]
    fn a_clock_never_goes_back() {
        let mut clock = NodeClock::new(5_000, 0);
        let before = clock.at(BEGINNING);
        clock.adjust(0, 0, BEGINNING);
        assert_eq!(clock.at(BEGINNING), before);
        assert_eq!(clock.at(BEGINNING + 4_000 * NANO), before);
        assert!(clock.at(BEGINNING + 6_000 * NANO) > before);
        assert_eq!(clock.when(before), 0, "it shows that already");
    }
}
