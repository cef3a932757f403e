//! What a node's transactions did, and what that took. Each worker counts for itself.

use std::{ops::Add, time::Duration};

use drtm_rdma::{Counters, Phase};

use crate::Conflict;

/// Rounds of requests that went to other nodes, and how long they took.
///
/// # Example
///
/// See [`ClusterStats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rounds {
    /// How many.
    pub count: u64,
    /// From the first request to the last answer, all rounds together.
    pub took: Duration,
}

/// What the transactions of a node's threads did since they started, or those of one worker.
///
/// # Example
///
/// ```
/// use drtm::{Pod, TableDef, Transaction, cluster::{Cluster, Partition}, rdma::Phase};
///
/// const ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("accounts");
///
/// let mut builder = Cluster::builder().nodes(2);
/// let accounts = builder.table(ACCOUNTS, Partition::by("number", |number| *number));
/// let nodes = builder.start()?;
/// // The row is on the second node.
/// nodes[0].transact(async move |tx| tx.put(accounts, 1, &100).await).wait()?;
///
/// let stats = nodes[0].stats();
/// assert_eq!((stats.commits, stats.retries(), stats.under_way), (1, 0, 0));
/// assert_eq!(stats.rounds(Phase::Commit).count, 1);
/// assert!(stats.counters[Phase::Commit].bytes_out > 0);
/// # Ok::<(), drtm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterStats {
    /// Transactions that committed.
    pub commits: u64,
    /// Transactions that were given to the node's threads and have not ended, those that wait for
    /// their turn included. Zero of a worker.
    pub under_way: u64,
    /// Threads that did not answer in time, as a body blocks them. Of these, this has what they
    /// answered last.
    pub blocked_threads: u64,
    /// Verbs, messages and bytes, by phase.
    pub counters: Counters,
    pub(super) conflicts: [u64; Conflict::ALL.len()],
    pub(super) rounds: [Rounds; Phase::ALL.len()],
}

impl ClusterStats {
    /// Returns how many runs of bodies were given up for this cause.
    ///
    /// # Example
    ///
    /// See [`ClusterStats`].
    #[must_use]
    pub fn conflicts(&self, cause: Conflict) -> u64 {
        self.conflicts[cause.index()]
    }

    /// Returns how many runs of bodies were given up, whatever the cause.
    ///
    /// # Example
    ///
    /// See [`ClusterStats`].
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.conflicts.iter().sum()
    }

    /// Returns the rounds of a phase to other nodes that were waited for. A round takes one round
    /// trip, and a second one where verbs have missed a row.
    ///
    /// # Example
    ///
    /// See [`ClusterStats`].
    #[must_use]
    pub fn rounds(&self, phase: Phase) -> Rounds {
        self.rounds[phase as usize]
    }
}

impl Add for Rounds {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { count: self.count + other.count, took: self.took + other.took }
    }
}

impl Add for ClusterStats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            commits: self.commits + other.commits,
            under_way: self.under_way + other.under_way,
            blocked_threads: self.blocked_threads + other.blocked_threads,
            counters: self.counters + other.counters,
            conflicts: std::array::from_fn(|cause| self.conflicts[cause] + other.conflicts[cause]),
            rounds: std::array::from_fn(|phase| self.rounds[phase] + other.rounds[phase]),
        }
    }
}
