//! Which forms a worker uses under [`Protocol::AUTO`](super::Protocol::AUTO): it tries all of them
//! from time to time, and keeps to those under which its transactions end soonest.
//!
//! What a form costs others is as important as what it costs the one that uses it: a message takes
//! the owner's processor, and a verb its NIC. So all workers try the same forms at the same time:
//! time is divided into slots, by the fabric's clock, and the first slots of each period are for
//! trying one way each. Then a worker sees in its own transactions what all pay. Where nodes'
//! clocks differ, each sees what the others do now, and its own part.

use std::time::Duration;

use drtm_rdma::Time;

use super::protocol::{Form, Forms};

/// What is chosen from: a row is locked one-sidedly only where it was read so.
pub(super) const WAYS: [Forms; 3] = [
    Forms { read: Form::Message, lock: Form::Message },
    Forms { read: Form::OneSided, lock: Form::Message },
    Forms { read: Form::OneSided, lock: Form::OneSided },
];

/// Slots of a period, of which the first are for trying.
const PERIOD: u64 = 64;

/// The shortest and the longest slot: two to this power of nanoseconds.
const SLOT: [u32; 2] = [15, 27];

/// How many transactions are remembered: each later one counts as one of so many.
const MEMORY: u32 = 16;

/// Another way is taken if it needs less than this part of the time.
const BETTER: f64 = 0.97;

/// A transaction's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    way: u8,
    /// Whether the way was being tried, so that its time tells something.
    is_trial: bool,
}

impl Choice {
    pub(super) fn forms(self) -> Forms {
        WAYS[usize::from(self.way)]
    }
}

/// How long transactions take.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    nanos: f64,
    seen: u32,
}

impl Mean {
    fn add(&mut self, took: Duration) {
        self.seen = (self.seen + 1).min(MEMORY);
        self.nanos += (took.as_nanos() as f64 - self.nanos) / f64::from(self.seen);
    }
}

/// One worker's choices. See the [module](self).
#[derive(Debug)]
pub(super) struct Chooser {
    ways: [Mean; WAYS.len()],
    all: Mean,
    best: usize,
}

impl Chooser {
    /// One that begins with this way.
    pub(super) fn new(forms: Forms) -> Self {
        let best = WAYS.iter().position(|way| *way == forms).unwrap_or_default();
        Self { ways: Default::default(), all: Mean::default(), best }
    }

    /// What a transaction that begins now is to use.
    pub(super) fn choose(&mut self, now: Time) -> Choice {
        let length = 4.0 * self.all.nanos;
        let power = (length.max(1.0).log2() as u32).clamp(SLOT[0], SLOT[1]);
        let (slot, within) = (now.nanos() >> power, now.nanos() & ((1 << power) - 1));
        // In the beginning there is nothing to keep to.
        let is_new = self.ways.iter().any(|way| way.seen < MEMORY / 2);
        let place = if is_new { slot % WAYS.len() as u64 } else { slot % PERIOD };
        match usize::try_from(place) {
            // Those that began in the slot before are still at it in the first half.
            Ok(way) if way < WAYS.len() => Choice { way: way as u8, is_trial: within >> (power - 1) != 0 },
            _ => {
                self.decide();
                Choice { way: self.best as u8, is_trial: false }
            }
        }
    }

    /// Takes the way that needs least.
    fn decide(&mut self) {
        let least = self.ways.iter().enumerate().min_by(|(_, one), (_, other)| one.nanos.total_cmp(&other.nanos));
        if let Some((way, mean)) = least
            && mean.nanos < BETTER * self.ways[self.best].nanos
        {
            self.best = way;
        }
    }

    /// A transaction has committed.
    pub(super) fn ended(&mut self, choice: Choice, took: Duration) {
        self.all.add(took);
        if choice.is_trial {
            self.ways[usize::from(choice.way)].add(took);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Runs transactions one after the other, which take so long by way. Gives how many took each
    /// way.
    fn run(chooser: &mut Chooser, now: &mut u64, transactions: u32, took: impl Fn(usize) -> u64) -> [u32; 3] {
        let mut ways = [0; 3];
        for _ in 0..transactions {
            let choice = chooser.choose(Time::from_nanos(*now));
            let nanos = took(usize::from(choice.way));
            *now += nanos;
            chooser.ended(choice, Duration::from_nanos(nanos));
            ways[usize::from(choice.way)] += 1;
        }
        ways
    }

    #[test]
    fn the_best_way_is_found_and_found_again() {
        for best in 0..3 {
            let (mut chooser, mut now) = (Chooser::new(WAYS[2]), 12_345);
            let took = |best: usize| move |way: usize| if way == best { 20_000 } else { 30_000 };
            run(&mut chooser, &mut now, 1_000, took(best));
            let ways = run(&mut chooser, &mut now, 10_000, took(best));
            assert!(ways[best] > 9_400, "{ways:?}");
            // Things change.
            let other = (best + 1) % 3;
            run(&mut chooser, &mut now, 2_000, took(other));
            let ways = run(&mut chooser, &mut now, 10_000, took(other));
            assert!(ways[other] > 9_400, "{ways:?}");
        }
    }

    #[test]
    fn ways_that_are_as_good_are_kept_to() {
        let (mut chooser, mut now) = (Chooser::new(WAYS[1]), 0);
        run(&mut chooser, &mut now, 1_000, |_| 10_000);
        let best = chooser.best;
        run(&mut chooser, &mut now, 10_000, |way| 10_000 - 100 * way as u64);
        assert_eq!(chooser.best, best);
    }

    #[test]
    fn workers_try_the_same_at_the_same_time() {
        let mut choosers = [Chooser::new(WAYS[0]), Chooser::new(WAYS[2])];
        let mut nows = [0; 2];
        for (chooser, now) in choosers.iter_mut().zip(&mut nows) {
            run(chooser, now, 2_000, |way| 20_000 + 1_000 * way as u64);
        }
        let [mut one, mut other] = choosers;
        let tried = (0..100_000).filter(|step| {
            let now = Time::from_nanos(nows[0].max(nows[1]) + step * 1_000);
            let [one, other] = [one.choose(now), other.choose(now)];
            assert_eq!(one.is_trial, other.is_trial);
            assert!(!one.is_trial || one == other);
            one.is_trial
        });
        assert!((1_000..10_000).contains(&tried.count()));
    }

    proptest! {
        #[test]
        fn any_times_will_do(times in proptest::collection::vec((any::<u64>(), any::<u64>()), 1..200)) {
            let mut chooser = Chooser::new(WAYS[0]);
            for (now, took) in times {
                let choice = chooser.choose(Time::from_nanos(now));
                prop_assert!(WAYS.contains(&choice.forms()));
                chooser.ended(choice, Duration::from_nanos(took));
            }
        }
    }
}
