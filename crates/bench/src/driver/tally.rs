//! What became of transactions, counted by kind.

use std::{marker::PhantomData, time::Duration};

use hdrhistogram::Histogram;

use super::Kinds;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was committed.
    Committed,
    /// It was rolled back because of what it asked for, or found nothing: it is over.
    Refused,
    /// It was given up because of other transactions.
    GivenUp,
}

/// A transaction that is over.
///
/// # Example
///
/// ```
/// use drtm_bench::{driver::{Done, Outcome}, ycsb::Kind};
///
/// let retried = Done { conflicts: 3, ..Done::committed(Kind::Read) };
/// assert_eq!((retried.outcome, Done::committed(Kind::Read).conflicts), (Outcome::Committed, 0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done<K> {
    /// What it was.
    pub kind: K,
    /// How it ended.
    pub outcome: Outcome,
    /// Attempts that others have made fail.
    pub conflicts: u32,
}

impl<K> Done<K> {
    /// Committed at the first attempt.
    #[inline]
    pub fn committed(kind: K) -> Self {
        Self { kind, outcome: Outcome::Committed, conflicts: 0 }
    }

    /// Refused at the first attempt.
    #[inline]
    pub fn refused(kind: K) -> Self {
        Self { outcome: Outcome::Refused, ..Self::committed(kind) }
    }
}

/// How many transactions ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the outcomes")]
pub struct Counts {
    pub committed: u64,
    pub refused: u64,
    pub given_up: u64,
    /// Attempts that others have made fail.
    pub conflicts: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.committed += other.committed;
        self.refused += other.refused;
        self.given_up += other.given_up;
        self.conflicts += other.conflicts;
    }
}

/// The longest time that is told from longer ones.
const LONGEST: Duration = Duration::from_secs(100);

/// Two digits: a hundredth, in 30 KiB for each kind, so that counting does not push much else out of the caches.
const DIGITS: u8 = 2;

/// What is counted, by kind of transaction.
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use drtm_bench::{driver::{Done, Tally}, ycsb::Kind};
///
/// let mut tally = Tally::new();
/// tally.count(Done::committed(Kind::Read));
/// tally.time(Kind::Read, Duration::from_nanos(350));
/// assert_eq!(tally.counts(Kind::Read).committed, 1);
/// assert_eq!(tally.latency(Kind::Read).map(|times| times.max() / 10), Some(35), "in nanoseconds");
/// ```
#[derive(Clone, Debug)]
pub struct Tally<K> {
    counts: Vec<Counts>,
    /// In nanoseconds. Empty for bounds that no histogram can have, which those above are not.
    latencies: Vec<Histogram<u64>>,
    kinds: PhantomData<K>,
}

impl<K: Kinds> Tally<K> {
    /// With nothing counted. All memory that it will need is allocated now.
    pub fn new() -> Self {
        let latencies = K::ALL.iter().filter_map(|_| Histogram::new_with_bounds(1, nanos(LONGEST), DIGITS).ok());
        Self { counts: vec![Counts::default(); K::ALL.len()], latencies: latencies.collect(), kinds: PhantomData }
    }

    /// Counts a transaction.
    #[inline]
    pub fn count(&mut self, done: Done<K>) {
        let counts = &mut self.counts[done.kind.index()];
        counts.conflicts += u64::from(done.conflicts);
        match done.outcome {
            Outcome::Committed => counts.committed += 1,
            Outcome::Refused => counts.refused += 1,
            Outcome::GivenUp => counts.given_up += 1,
        }
    }

    /// Notes how long one took. What is longer than 100 s counts as that.
    #[inline]
    pub fn time(&mut self, kind: K, time: Duration) {
        if let Some(times) = self.latencies.get_mut(kind.index()) {
            times.saturating_record(nanos(time));
        }
    }

    /// Adds what another worker has counted.
    pub fn add(&mut self, other: &Self) {
        for (one, two) in self.counts.iter_mut().zip(&other.counts) {
            one.add(two);
        }
        for (one, two) in self.latencies.iter_mut().zip(&other.latencies) {
            // Fails if bounds differ, which are the same for all.
            let added = one.add(two);
            debug_assert!(added.is_ok(), "{added:?}");
        }
    }

    /// How many of a kind ended how.
    pub fn counts(&self, kind: K) -> Counts {
        self.counts[kind.index()]
    }

    /// How many ended how.
    pub fn total(&self) -> Counts {
        let mut total = Counts::default();
        for counts in &self.counts {
            total.add(counts);
        }
        total
    }

    /// How long those of a kind took, in nanoseconds, from beginning to end with all attempts, whatever the outcome; `None` if none was timed.
    pub fn latency(&self, kind: K) -> Option<&Histogram<u64>> {
        self.latencies.get(kind.index()).filter(|times| !times.is_empty())
    }
}

impl<K: Kinds> Default for Tally<K> {
    fn default() -> Self {
        Self::new()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
