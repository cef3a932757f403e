//! Latencies of transactions.

use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A thread's latencies of one kind of transaction, to one percent.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

/// The longest latency that the histogram resolves: a minute, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;

/// Percentiles of latencies, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
}

impl Default for Latencies {
    fn default() -> Self {
        // The bounds are valid constants, so this cannot fail.
        match Histogram::new_with_bounds(1, LONGEST, 2) {
            Ok(histogram) => Self(histogram),
            Err(error) => unreachable!("{error}"),
        }
    }
}

impl Serialize for Latencies {
    /// Serializes pairs of a latency and its count.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter_recorded().map(|at| (at.value_iterated_to(), at.count_at_value())))
    }
}

impl<'de> Deserialize<'de> for Latencies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut latencies = Self::default();
        for (time, count) in Vec::<(u64, u64)>::deserialize(deserializer)? {
            latencies.0.saturating_record_n(time, count);
        }
        Ok(latencies)
    }
}

impl Latencies {
    /// Records one transaction's latency.
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds);
    }

    /// Adds the latencies of another thread, or of another kind.
    pub fn add(&mut self, other: &Self) {
        // Both have the same bounds.
        let added = self.0.add(&other.0);
        debug_assert!(added.is_ok());
    }

    /// Returns the number of transactions.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the mean, in microseconds: 0 if there was no transaction.
    pub fn mean(&self) -> f64 {
        self.0.mean() / 1_000.0
    }

    /// Returns a percentile, in microseconds: 0 if there was no transaction.
    pub fn percentile(&self, percent: f64) -> f64 {
        self.0.value_at_percentile(percent) as f64 / 1_000.0
    }

    /// Returns the percentiles; `None` if there was no transaction.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let at = |percent| self.0.value_at_percentile(percent) as f64 / 1_000.0;
        (!self.0.is_empty()).then(|| Percentiles { p50: at(50.0), p90: at(90.0), p99: at(99.0), p999: at(99.9) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_a_percent_and_add_up() {
        let (mut all, mut late) = (Latencies::default(), Latencies::default());
        assert_eq!(all.percentiles(), None);
        (1..=900).for_each(|us| all.record(us * 1_000));
        (901..=1_000).for_each(|us| late.record(us * 1_000));
        late.record(60 * LONGEST);
        all.add(&late);
        let Percentiles { p50, p90, p99, p999 } = all.percentiles().expect("there are some");
        let sent = serde_json::to_string(&all).expect("pairs");
        let received: Latencies = serde_json::from_str(&sent).expect("pairs");
        assert_eq!((received.percentiles(), received.count()), (all.percentiles(), all.count()));
        for (found, expected) in [(p50, 500.0), (p90, 900.0), (p99, 990.0), (p999, 1_000.0)] {
            assert!((found / expected - 1.0_f64).abs() < 0.015, "{found} for {expected}");
        }
    }
}
