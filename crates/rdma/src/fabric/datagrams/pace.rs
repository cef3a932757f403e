//! When an endpoint sends a probe, and when it gives up.

use std::time::Duration;

use crate::Time;

/// The longest wait between two probes, as a multiple of the first.
const LONGEST: u32 = 32;

/// What it is time for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Wait,
    Probe,
    /// Nothing was heard for longer than the deadline.
    GiveUp,
}

/// Probes without an answer, at the least, before it gives up.
const PROBES: u32 = 4;

/// The times of one stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// How long to wait for an acknowledgement or a reply before the first probe. Each further
    /// probe waits twice as long.
    first: Duration,
    deadline: Duration,
    /// When the next probe is due. `None` while nothing is waited for.
    due: Option<Time>,
    wait: Duration,
    /// When the first probe was sent since the node was heard last, and how many were.
    probes: (Time, u32),
}

impl Pace {
    pub(crate) fn new(first: Duration, deadline: Duration) -> Self {
        Self { first, deadline, due: None, wait: first, probes: (Time::default(), 0) }
    }

    /// Notes that a datagram of the node has arrived. After progress the next probe is a while
    /// away.
    pub(crate) fn heard(&mut self, now: Time, progress: bool) {
        self.probes.1 = 0;
        if progress && let Some(due) = &mut self.due {
            self.wait = self.first;
            *due = now + self.first;
        }
    }

    /// Returns what it is time for. `waits` says whether something is waited for.
    pub(crate) fn step(&mut self, now: Time, waits: bool) -> Step {
        if !waits {
            (self.due, self.wait, self.probes.1) = (None, self.first, 0);
            return Step::Wait;
        }
        let due = self.due.get_or_insert(now + self.first);
        if now < *due {
            return Step::Wait;
        }
        // An endpoint that was not polled for long has sent no probes.
        let (since, count) = &mut self.probes;
        if *count >= PROBES && now.since(*since) > self.deadline {
            return Step::GiveUp;
        }
        if *count == 0 {
            *since = now;
        }
        *count += 1;
        self.wait = (2 * self.wait).min(LONGEST * self.first);
        *due = now + self.wait;
        Step::Probe
    }

    /// Returns when [`step`](Self::step) returns something else than [`Step::Wait`].
    pub(crate) fn due(&self) -> Option<Time> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    /// Runs a pace from one moment on, a step each millisecond, as long as something is waited for.
    fn probes(pace: &mut Pace, millis: std::ops::Range<u64>) -> (u64, Option<u64>) {
        let mut count = 0;
        for now in millis {
            match pace.step(at(now), true) {
                Step::Wait => {}
                Step::Probe => count += 1,
                Step::GiveUp => return (count, Some(now)),
            }
        }
        (count, None)
    }

    #[test]
    fn probes_become_rarer_and_end_at_the_deadline() {
        let mut pace = Pace::new(Duration::from_millis(4), Duration::from_millis(1000));
        let (count, end) = probes(&mut pace, 0..10_000);
        // At 4, 12, 28, 60, 124 and 252 ms, and then every 128 ms.
        assert_eq!((count, end), (11, Some(1020)));
    }

    #[test]
    fn a_node_that_answers_is_waited_for() {
        let mut pace = Pace::new(Duration::from_millis(4), Duration::from_millis(1000));
        for round in 0..100 {
            assert_eq!(probes(&mut pace, round * 900..(round + 1) * 900).1, None);
            pace.heard(at((round + 1) * 900), false);
        }
        assert_eq!(pace.step(at(95_000), false), Step::Wait);
        assert_eq!(pace.due(), None);
        assert_eq!(probes(&mut pace, 95_000..95_004), (0, None));
    }

    #[test]
    fn progress_puts_the_next_probe_off() {
        let mut pace = Pace::new(Duration::from_millis(4), Duration::from_millis(1000));
        for now in 0..10_000 {
            assert_eq!(pace.step(at(now), true), Step::Wait);
            pace.heard(at(now), true);
        }
    }

    /// An endpoint that was not polled has not asked, so it has no reason to give up.
    #[test]
    fn a_pause_is_no_silence() {
        let mut pace = Pace::new(Duration::from_millis(4), Duration::from_millis(1000));
        for pause in 0..PROBES {
            assert_eq!(
                pace.step(at(u64::from(pause) * 5_000), true),
                if pause == 0 { Step::Wait } else { Step::Probe }
            );
        }
    }
}
