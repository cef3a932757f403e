//! What is wrong with a cluster, in numbers and in words.

use std::time::Duration;

/// What is wrong with a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wrong {
    /// Transfers that were acknowledged and are not there.
    pub lost: u64,
    /// Sums that are not what was put in.
    pub torn: u64,
    /// Histories that are not strictly serializable, replicas that differ, and what else is wrong.
    pub anomalies: u64,
    /// Calls that do not end, and locks that are held at the end.
    pub stuck: u64,
}

impl std::ops::AddAssign for Wrong {
    fn add_assign(&mut self, other: Self) {
        let Self { lost, torn, anomalies, stuck } = other;
        self.lost += lost;
        self.torn += torn;
        self.anomalies += anomalies;
        self.stuck += stuck;
    }
}

impl Wrong {
    /// Returns whether anything is wrong.
    pub fn is_any(&self) -> bool {
        *self != Self::default()
    }
}

/// What a client was told, by the count of its transfers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    /// The last that was acknowledged.
    pub(crate) acknowledged: u64,
    /// The last that was begun.
    pub(crate) begun: u64,
}

impl Told {
    /// Says what is wrong with a client's mark.
    pub(crate) fn judge(&self, client: u64, found: u64, wrong: &mut Wrong, findings: &mut Vec<String>) {
        let Self { acknowledged, begun } = *self;
        if found < acknowledged {
            wrong.lost += acknowledged - found;
            findings.push(format!("client {client} was told of {acknowledged} transfers, and {found} are there"));
        }
        if found > begun {
            wrong.anomalies += 1;
            findings.push(format!("client {client} has begun {begun} transfers, and {found} are there"));
        }
    }
}

/// Returns percentiles of times: of each, the least that so many percent do not exceed. `None` if
/// there are no times.
pub fn percentiles<const N: usize>(times: &[Duration], percent: [f64; N]) -> [Option<Duration>; N] {
    let mut times = times.to_vec();
    times.sort_unstable();
    percent.map(|percent| {
        let rank = (percent / 100.0 * times.len() as f64).ceil() as usize;
        times.get(rank.max(1) - 1).copied()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_taken() {
        let times: Vec<_> = (1..=200).rev().map(Duration::from_millis).collect();
        let found = percentiles(&times, [50.0, 99.0, 100.0]);
        assert_eq!(found, [100, 198, 200].map(|ms| Some(Duration::from_millis(ms))));
        assert_eq!(percentiles(&times[..1], [50.0, 99.0]), [Some(Duration::from_millis(200)); 2]);
        assert_eq!(percentiles(&[], [50.0]), [None]);
    }

    #[test]
    fn marks_tell_what_is_lost_and_what_never_was() {
        let judged = |found| {
            let (mut wrong, mut findings) = (Wrong::default(), Vec::new());
            Told { acknowledged: 5, begun: 7 }.judge(0, found, &mut wrong, &mut findings);
            assert_eq!(wrong.is_any(), !findings.is_empty());
            (wrong.lost, wrong.anomalies)
        };
        assert_eq!([3, 5, 6, 7, 8].map(judged), [(2, 0), (0, 0), (0, 0), (0, 0), (0, 1)]);
    }
}
