//! The cluster's time, which every node knows as well as it has measured it.
//!
//! It is what the clock of one node, the *reference*, shows: the first that owns rows. Others ask
//! for it, by a message each. The reply was given between sending and receiving, so a node knows
//! two moments between which the reference's clock was when the reply came. From then on it counts
//! by its own clock, and the two moments part, by what clocks may differ in speed. What it knew
//! already and what it has just measured are both true, so only what they have in common is kept.
//! If that is nothing, a clock is not what it was said to be: the node says so, and grants and
//! takes no leases any more.
//!
//! DrTM's DELTA is half of what lies between the two moments. A lease has expired when the first is
//! after its end, and holds as long as the second is before it, so nodes need not know how well
//! others have measured. See `docs/decisions/0051`.
//!
//! Each node publishes the first moment in its memory, on a cache line of its own: DrTM's softtime.
//! Threads without a clock, such as those of the node's own database, and hardware transactions
//! compare leases to it. One that is old makes them wait longer, and nothing else.

use std::{cell::Cell, time::Duration};

use drtm_rdma::{Incarnation, NodeId, Time};

/// Lease ends are microseconds.
const UNIT: u64 = 1_000;

/// What a node believes of clocks, and how long its leases are.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use drtm::cluster::Timing;
///
/// // Clocks of one machine are one clock.
/// let timing = Timing { drift: 0, most: Duration::from_micros(100), ..Timing::default() };
/// assert_eq!(timing.lease, Duration::from_micros(400));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How often the reference's clock is asked for.
    pub measure: Duration,
    /// How often the time is published to threads that have no clock.
    pub publish: Duration,
    /// How much faster or slower than the reference's clock a node's may be, in parts per million.
    pub drift: u32,
    /// The most by which the time may be uncertain. Transactions that need it are refused where it
    /// is more.
    pub most: Duration,
    /// How long a lease is from when it is taken, for a transaction that writes.
    pub lease: Duration,
    /// How long a lease is for a transaction that only reads.
    pub read_only_lease: Duration,
}

impl Default for Timing {
    /// Leases are as long as DrTM's. Clocks differ by twice of what NTP corrects a clock by.
    fn default() -> Self {
        Self {
            measure: Duration::from_millis(10),
            publish: Duration::from_millis(1),
            drift: 1_000,
            most: Duration::from_millis(10),
            lease: Duration::from_micros(400),
            read_only_lease: Duration::from_millis(1),
        }
    }
}

/// What a node knows of the cluster's time: two moments of the reference's clock, between which it
/// is.
///
/// # Example
///
/// See [`Worker::time`](super::Worker::time).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterTime {
    /// It is not earlier.
    pub earliest: Time,
    /// It is not later.
    pub latest: Time,
}

impl ClusterTime {
    pub(super) fn exactly(at: Time) -> Self {
        Self { earliest: at, latest: at }
    }

    /// Returns by how much the moment in the middle may be wrong: DrTM's DELTA.
    #[must_use]
    pub fn uncertainty(&self) -> Duration {
        self.latest.since(self.earliest) / 2
    }

    /// Returns the earliest time, in the unit of lease ends.
    pub(super) fn least(&self) -> u64 {
        self.earliest.nanos() / UNIT
    }

    /// Returns the latest time, in the unit of lease ends.
    pub(super) fn most(&self) -> u64 {
        self.latest.nanos().div_ceil(UNIT)
    }

    /// Returns when a lease ends that is taken now.
    pub(super) fn lease_end(&self, duration: Duration) -> u64 {
        self.most() + u64::try_from(duration.as_micros()).unwrap_or(u64::MAX >> 16)
    }
}

/// What the reference's clock may have shown when this node's showed `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    at: Time,
    is: ClusterTime,
}

/// Returns by how much two clocks can drift apart while one of them counts `passed`. Adds a
/// nanosecond, and one for each rounding.
fn parted(passed: Duration, drift: u32) -> Duration {
    let parts = passed.as_nanos() * u128::from(drift) / 1_000_000;
    Duration::from_nanos(u64::try_from(parts).unwrap_or(u64::MAX).saturating_add(2))
}

fn before(time: Time, by: Duration) -> Time {
    Time::from_nanos(time.nanos().saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
}

impl Reading {
    /// Returns the reading of a request: when it was sent, the time that the reply told, and when
    /// that was received.
    pub(super) fn of_trip(sent: Time, told: Time, received: Time, drift: u32) -> Self {
        let trip = received.since(sent);
        let latest = told + trip + parted(trip, drift);
        Self { at: received, is: ClusterTime { earliest: told, latest } }
    }

    /// Returns what the reference's clock may show at a later moment of this node's clock.
    pub(super) fn at(self, now: Time, drift: u32) -> ClusterTime {
        let passed = now.since(self.at);
        let apart = parted(passed, drift);
        ClusterTime { earliest: before(self.is.earliest + passed, apart), latest: self.is.latest + passed + apart }
    }

    /// Intersects the reading with a newer one. Returns `None` if they contradict each other.
    fn and(self, newer: Self, drift: u32) -> Option<Self> {
        let older = self.at(newer.at, drift);
        let is =
            ClusterTime { earliest: older.earliest.max(newer.is.earliest), latest: older.latest.min(newer.is.latest) };
        (is.earliest <= is.latest).then_some(Self { is, ..newer })
    }
}

/// What a worker has measured.
#[derive(Debug, Default)]
pub(super) struct WorkerClock {
    /// Which node's clock was read, and in which of its incarnations.
    of: Cell<Option<(NodeId, Incarnation)>>,
    pub(super) reading: Cell<Option<Reading>>,
    /// Whether two readings have contradicted each other.
    pub(super) is_wrong: Cell<bool>,
    pub(super) published_at: Cell<Time>,
}

impl WorkerClock {
    /// Sets whose clock is read. Forgets what was read of another node, or in another incarnation.
    pub(super) fn set_reference(&self, node: NodeId, incarnation: Incarnation) {
        if self.of.replace(Some((node, incarnation))) != Some((node, incarnation)) {
            self.reading.set(None);
            self.is_wrong.set(false);
        }
    }

    /// Returns whether it is a node's clock that was read.
    pub(super) fn is_of(&self, node: NodeId) -> bool {
        self.of.get().is_some_and(|(of, _)| of == node)
    }

    /// Adds a reading. Returns whether it agrees with those before.
    pub(super) fn add_reading(&self, reading: Reading, drift: u32) -> bool {
        let known = match self.reading.get() {
            Some(known) => known.and(reading, drift),
            None => Some(reading),
        };
        match known {
            Some(known) => self.reading.set(Some(known)),
            None => self.is_wrong.set(true),
        }
        known.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A clock that was set to something once, and is fast by parts per million.
    #[derive(Clone, Copy, Debug)]
    struct Shows {
        at_zero: i128,
        fast: i64,
    }

    impl Shows {
        fn at(self, truth: u64) -> Time {
            let passed = i128::from(truth) * i128::from(1_000_000 + self.fast) / 1_000_000;
            Time::from_nanos(u64::try_from(self.at_zero + passed).expect("after its beginning"))
        }
    }

    proptest! {
        /// However clocks are set, and however slow either way of a message is: the time is within
        /// what is known, at every moment, as long as clocks drift no more than was said.
        #[test]
        fn the_time_is_where_it_is_known_to_be(
            skew in 0..1_i128 << 50,
            fast in -400..400_i64,
            trips in prop::collection::vec((1..10_000_000_u64, 0..3_000_000_u64, 0..3_000_000_u64), 1..30),
        ) {
            const DRIFT: u32 = 401;
            let (reference, own) = (Shows { at_zero: 1 << 40, fast: 0 }, Shows { at_zero: skew, fast });
            let (clock, mut truth) = (WorkerClock::default(), 0);
            for (pause, there, back) in trips {
                truth += pause;
                let sent = own.at(truth);
                let told = reference.at(truth + there);
                truth += there + back;
                let reading = Reading::of_trip(sent, told, own.at(truth), DRIFT);
                prop_assert!(clock.add_reading(reading, DRIFT), "no reading is wrong");
                for later in [0, 1, 1_000_000, 1_000_000_000] {
                    let is = clock.reading.get().expect("it was read").at(own.at(truth + later), DRIFT);
                    let truly = reference.at(truth + later);
                    prop_assert!(is.earliest <= truly && truly <= is.latest, "{is:?} {truly}");
                }
                let is = clock.reading.get().expect("it was read").is;
                prop_assert!(is.latest.since(is.earliest) <= reading.is.latest.since(reading.is.earliest));
            }
        }

        /// A clock that drifts more than it may is found out as soon as that shows.
        #[test]
        fn a_clock_that_drifts_too_much_is_found_out(fast in 2_000..900_000_i64, is_slow: bool, trip in 1..100_000_u64) {
            const DRIFT: u32 = 1_000;
            let fast = if is_slow { -fast } else { fast };
            let (reference, own) = (Shows { at_zero: 0, fast: 0 }, Shows { at_zero: 5, fast });
            let clock = WorkerClock::default();
            let found = (0..50_u64).any(|round| {
                let truth = round * 50_000_000;
                let told = reference.at(truth + trip / 2);
                !clock.add_reading(Reading::of_trip(own.at(truth), told, own.at(truth + trip), DRIFT), DRIFT)
            });
            prop_assert!(found && clock.is_wrong.get());
        }
    }

    #[test]
    fn lease_ends_are_rounded_so_that_no_one_is_early() {
        let time = ClusterTime { earliest: Time::from_nanos(1_999), latest: Time::from_nanos(2_001) };
        assert_eq!((time.least(), time.most()), (1, 3));
        assert_eq!(time.lease_end(Duration::from_micros(400)), 403);
        assert_eq!(time.uncertainty(), Duration::from_nanos(1));
    }
}
