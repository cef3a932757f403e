//! The figures that are reported of a cluster only.

use std::collections::BTreeMap;

use drtm_report::table;
use serde::Serialize;

use super::{
    plan::Plan,
    tally::{PHASES, Sent, Tally},
};
use crate::latency::Percentiles;

/// The averages per committed transaction. What aborted runs sent is included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct PerTransaction {
    round_trips: f64,
    messages: f64,
    one_sided: f64,
    bytes: f64,
    /// Microseconds of waiting for other nodes.
    wait_us: f64,
    /// Microseconds that a round of requests took. `None` without rounds.
    round_us: Option<f64>,
}

impl PerTransaction {
    fn of(sent: &Sent, committed: u64) -> Self {
        let each = |count: u64| if committed == 0 { 0.0 } else { count as f64 / committed as f64 };
        Self {
            round_trips: each(sent.round_trips),
            messages: each(sent.messages),
            one_sided: each(sent.one_sided),
            bytes: each(sent.bytes),
            wait_us: each(sent.waited_nanos) / 1_000.0,
            round_us: (sent.rounds > 0).then(|| sent.waited_nanos as f64 / sent.rounds as f64 / 1_000.0),
        }
    }

    fn row(&self, name: &str) -> Vec<String> {
        let numbers = [self.round_trips, self.messages, self.one_sided].map(|number| format!("{number:.3}"));
        let round = self.round_us.map_or_else(|| "-".to_owned(), |took| format!("{took:.1}"));
        let others = [format!("{:.1}", self.bytes), format!("{:.1}", self.wait_us), round];
        [name.to_owned()].into_iter().chain(numbers).chain(others).collect()
    }
}

/// The figures of a cluster, for scripts.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Coroutines of each worker.
    coroutines: u16,
    /// Microseconds of all nodes' processor time per committed transaction.
    cpu_us: Option<f64>,
    backups: u16,
    per_transaction: PerTransaction,
    per_phase: BTreeMap<&'static str, PerTransaction>,
}

impl Figures {
    /// Computes the figures of a run.
    pub fn new(plan: &Plan, tally: &Tally) -> Self {
        let mut all = Sent::default();
        tally.phases.iter().for_each(|sent| all.add(sent));
        let phases = tally.phases.iter().zip(PHASES).filter(|(sent, _)| **sent != Sent::default());
        Self {
            coroutines: plan.coroutines,
            cpu_us: tally
                .cpu_nanos
                .filter(|_| tally.committed > 0)
                .map(|cpu| cpu as f64 / tally.committed as f64 / 1_000.0),
            backups: plan.backups,
            per_transaction: PerTransaction::of(&all, tally.committed),
            per_phase: phases.map(|(sent, (_, name))| (name, PerTransaction::of(sent, tally.committed))).collect(),
        }
    }

    /// Returns the number of coroutines of each thread.
    pub fn coroutines(&self) -> u16 {
        self.coroutines
    }

    /// Formats the figures.
    pub fn text(&self) -> String {
        let rows = PHASES.iter().filter_map(|(_, name)| Some(self.per_phase.get(name)?.row(name)));
        let headers =
            ["per committed transaction", "round trips", "messages", "one-sided", "bytes", "wait, us", "a round, us"];
        let sent = table(&headers, 1, rows.chain([self.per_transaction.row("all")]));
        match self.cpu_us {
            Some(cpu) => format!("{sent}\n\nprocessor time of a committed transaction, on all nodes: {cpu:.1} us"),
            None => sent,
        }
    }
}

impl Tally {
    /// Returns the latencies of all kinds that ran.
    pub fn percentiles(&self, kinds: &'static [&'static str]) -> BTreeMap<&'static str, Percentiles> {
        let kinds = kinds.iter().zip(&self.latencies);
        kinds.filter_map(|(kind, latencies)| Some((*kind, latencies.percentiles()?))).collect()
    }

    /// Returns the most memory of a process, in MiB.
    pub fn most_memory_mib(&self) -> Option<u64> {
        self.most_memory.map(|bytes| bytes >> 20)
    }
}
