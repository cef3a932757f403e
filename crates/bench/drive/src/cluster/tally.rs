//! The counters of workers. Processes send them to each other.

use std::time::Duration;

use drtm_rdma::{Counters, Phase};
use drtm_txn::{Conflict, cluster::Rounds};
use serde::{Deserialize, Serialize};

use crate::latency::Latencies;

/// What one phase of transactions has sent, counted where the transactions ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Sent {
    /// Doorbells with operations that a transaction waited for.
    pub(super) round_trips: u64,
    /// Requests, and the replies to them.
    pub(super) messages: u64,
    /// One-sided operations.
    pub(super) one_sided: u64,
    /// The bytes of all these, without headers of the fabric.
    pub(super) bytes: u64,
    /// Rounds of requests to other nodes that a transaction waited for, and how long they took.
    pub(super) rounds: u64,
    pub(super) waited_nanos: u64,
}

impl Sent {
    pub(super) fn add(&mut self, other: &Self) {
        self.round_trips += other.round_trips;
        self.messages += other.messages;
        self.one_sided += other.one_sided;
        self.bytes += other.bytes;
        self.rounds += other.rounds;
        self.waited_nanos += other.waited_nanos;
    }
}

/// The phases in which transactions send something. What a node does for another one is counted by
/// that one.
pub(super) const PHASES: [(Phase, &str); 6] = [
    (Phase::Lookup, "lookup"),
    (Phase::Execute, "execute"),
    (Phase::Lock, "lock"),
    (Phase::Validate, "validate"),
    (Phase::Log, "log"),
    (Phase::Commit, "commit"),
];

/// The sums of workers' counters while counting was on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tally {
    /// The longest time for which a worker counted.
    pub nanos: u64,
    pub committed: u64,
    /// Transactions that the workload aborted.
    pub given_up: u64,
    /// Conflicts, in the order of [`Conflict::ALL`].
    pub conflicts: [u64; Conflict::ALL.len()],
    /// Latencies of each kind, of committed and aborted transactions.
    pub(super) latencies: Vec<Latencies>,
    /// What was sent in each phase, in the order of [`PHASES`].
    pub(super) phases: [Sent; PHASES.len()],
    /// The most memory of a process, in bytes, if the system reports it.
    pub(super) most_memory: Option<u64>,
    /// Processor time of all processes while they counted. `None` in a simulation.
    pub(super) cpu_nanos: Option<u64>,
}

impl Tally {
    pub(super) fn new(kinds: usize) -> Self {
        Self {
            nanos: 0,
            committed: 0,
            given_up: 0,
            conflicts: Default::default(),
            latencies: vec![Latencies::default(); kinds],
            phases: Default::default(),
            most_memory: None,
            cpu_nanos: None,
        }
    }

    /// Returns the number of transactions of each kind.
    pub fn counts(&self) -> impl Iterator<Item = u64> {
        self.latencies.iter().map(Latencies::count)
    }

    /// Returns the latencies of transactions of all kinds.
    pub fn latencies(&self) -> Latencies {
        let mut all = Latencies::default();
        self.latencies.iter().for_each(|latencies| all.add(latencies));
        all
    }

    /// Returns for how long transactions waited for rounds of requests of a phase.
    pub fn waited(&self, phase: Phase) -> Duration {
        let waited = self.phases.iter().zip(PHASES).find(|(_, (of, _))| *of == phase);
        Duration::from_nanos(waited.map_or(0, |(sent, _)| sent.waited_nanos))
    }

    /// Adds the counters of a worker of another process.
    pub(super) fn add(&mut self, other: &Self) {
        self.nanos = self.nanos.max(other.nanos);
        self.committed += other.committed;
        self.given_up += other.given_up;
        self.conflicts.iter_mut().zip(other.conflicts).for_each(|(all, one)| *all += one);
        self.latencies.iter_mut().zip(&other.latencies).for_each(|(all, one)| all.add(one));
        self.phases.iter_mut().zip(&other.phases).for_each(|(all, one)| all.add(one));
        self.most_memory = self.most_memory.max(other.most_memory);
        self.cpu_nanos = self.cpu_nanos.into_iter().chain(other.cpu_nanos).reduce(|one, other| one + other);
    }

    /// Adds the counters of another worker of the same process.
    pub(super) fn add_here(&mut self, other: &Self) {
        // Each worker has read the time of the whole process.
        let cpu_nanos = self.cpu_nanos.max(other.cpu_nanos);
        self.add(other);
        self.cpu_nanos = cpu_nanos;
    }

    /// Adds the difference of an endpoint's counters, and the rounds of each phase.
    pub(super) fn add_sent(&mut self, counters: Counters, rounds: impl Fn(Phase) -> Rounds) {
        for (sent, (phase, _)) in self.phases.iter_mut().zip(PHASES) {
            let (counted, rounds) = (counters[phase], rounds(phase));
            sent.add(&Sent {
                round_trips: counted.round_trips,
                // Each call has a reply, which the other end counts as sent.
                messages: counted.sends + 2 * counted.calls,
                one_sided: counted.operations(),
                bytes: counted.bytes_out + counted.bytes_in,
                rounds: rounds.count,
                waited_nanos: rounds.took.as_nanos() as u64,
            });
        }
    }
}

/// The sums of all workers, and the violated conditions.
#[derive(Debug)]
pub struct Gathered<C> {
    /// The counters of all nodes.
    pub tally: Tally,
    /// The sum of the counters that the check needs.
    pub count: C,
    /// The violated conditions, in words.
    pub violations: Vec<String>,
}
