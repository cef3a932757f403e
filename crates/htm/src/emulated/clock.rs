//! The timer interrupts.

use std::time::Instant;

use super::config::Timer;

/// One worker's view of the timer.
#[derive(Debug)]
pub(super) enum Clock {
    Off,
    Wall {
        /// Interrupts occur at multiples of the period from here on.
        origin: Instant,
        period_ns: u64,
        /// The number of interrupts before the transaction began.
        at_begin: u64,
    },
    Virtual {
        now: u64,
        next: u64,
        period: u64,
        access: u64,
    },
}

impl Clock {
    /// Makes a clock whose first interrupt occurs at a moment drawn from `random`.
    pub(super) fn new(timer: Timer, origin: Instant, random: &mut fastrand::Rng) -> Self {
        match timer {
            Timer::Off => Self::Off,
            Timer::Wall { period } => {
                Self::Wall { origin, period_ns: u64::try_from(period.as_nanos()).unwrap_or(u64::MAX), at_begin: 0 }
            }
            Timer::Virtual { period, access } => {
                Self::Virtual { now: 0, next: 1 + random.u64(0..period), period, access }
            }
        }
    }

    /// Begins a transaction. An interrupt that occurs during the beginning is before it, not in it.
    pub(super) fn begin(&mut self) {
        match self {
            Self::Off => {}
            Self::Wall { origin, period_ns, at_begin } => *at_begin = ticks(*origin, *period_ns),
            Self::Virtual { access, .. } => {
                let cost = *access;
                self.advance(cost);
            }
        }
    }

    /// Charges one access. Returns whether an interrupt has occurred since the last check.
    pub(super) fn access(&mut self) -> bool {
        match self {
            Self::Off => false,
            Self::Wall { origin, period_ns, at_begin } => ticks(*origin, *period_ns) != *at_begin,
            Self::Virtual { access, .. } => {
                let cost = *access;
                self.advance(cost)
            }
        }
    }

    /// Runs an empty loop, in real or in virtual time. Returns whether an interrupt has occurred
    /// since the last check.
    pub(super) fn spin(&mut self, iterations: u64) -> bool {
        match self {
            Self::Off => {
                crate::access::spin(iterations);
                false
            }
            Self::Wall { origin, period_ns, at_begin } => {
                crate::access::spin(iterations);
                ticks(*origin, *period_ns) != *at_begin
            }
            Self::Virtual { .. } => self.advance(iterations),
        }
    }

    /// Advances virtual time, but at most to the next interrupt: there the transaction ends.
    fn advance(&mut self, by: u64) -> bool {
        let Self::Virtual { now, next, period, .. } = self else { return false };
        let then = now.saturating_add(by);
        let fallen = then >= *next;
        if fallen {
            *now = *next;
            *next = next.saturating_add(*period);
        } else {
            *now = then;
        }
        fallen
    }
}

fn ticks(origin: Instant, period_ns: u64) -> u64 {
    u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX) / period_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn virtual_clock(period: u64) -> Clock {
        Clock::Virtual { now: 0, next: period, period, access: 1 }
    }

    #[test]
    fn interrupts_fall_once_a_period() {
        let mut clock = virtual_clock(10);
        let fallen: Vec<u64> = (1..=35).filter(|_| clock.access()).collect();
        assert_eq!(fallen, [10, 20, 30]);
    }

    #[test]
    fn an_aborted_transaction_loses_only_the_time_up_to_the_interrupt() {
        let mut clock = virtual_clock(10);
        assert!(clock.spin(1_000));
        assert!(!clock.spin(9));
        assert!(clock.access());
    }

    #[test]
    fn a_wall_clock_counts_from_the_transaction_s_beginning() {
        let origin = Instant::now();
        let mut clock = Clock::Wall { origin, period_ns: 1, at_begin: 0 };
        clock.begin();
        while Instant::now() == origin {}
        assert!(clock.spin(1_000));
        let mut slow = Clock::Wall { origin, period_ns: u64::MAX, at_begin: 0 };
        slow.begin();
        assert!(!slow.access());
    }
}
