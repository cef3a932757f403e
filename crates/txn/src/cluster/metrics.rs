//! Publishing a node's figures to the `metrics` facade, when somebody asks.

use drtm_rdma::{Fabric, Phase};
use metrics::{Label, Unit, counter, describe_counter, describe_gauge, gauge};

use super::Cluster;
use crate::{Config, Conflict};

const COMMITTED: &str = "drtm_cluster_transactions_committed_total";
const CONFLICTS: &str = "drtm_cluster_transactions_conflicts_total";
const ROUNDS: &str = "drtm_cluster_rounds_total";
const ROUNDS_TOOK: &str = "drtm_cluster_rounds_nanoseconds_total";
const VERBS: &str = "drtm_cluster_verbs_total";
const MESSAGES: &str = "drtm_cluster_messages_total";
const BYTES: &str = "drtm_cluster_bytes_total";
const UNDER_WAY: &str = "drtm_cluster_transactions_under_way";

impl<F: Fabric, S: Config<Engine = F::Engine>> Cluster<F, S> {
    /// Describes the figures of [`publish_metrics`](Self::publish_metrics) to the recorder of the
    /// crate `metrics`.
    ///
    /// # Example
    ///
    /// See [`publish_metrics`](Self::publish_metrics).
    pub fn describe_metrics(&self) {
        describe_counter!(COMMITTED, Unit::Count, "Transactions of the node that committed");
        describe_counter!(CONFLICTS, Unit::Count, "Runs of bodies that were given up, by cause");
        describe_counter!(ROUNDS, Unit::Count, "Rounds of requests to other nodes, by phase");
        describe_counter!(ROUNDS_TOOK, Unit::Nanoseconds, "How long these rounds took, by phase");
        describe_counter!(VERBS, Unit::Count, "One-sided operations on other nodes' memory, by phase");
        describe_counter!(MESSAGES, Unit::Count, "Messages that were sent, replies included, by phase");
        describe_counter!(BYTES, Unit::Bytes, "Bytes of values and messages, by phase and direction");
        describe_gauge!(UNDER_WAY, Unit::Count, "Transactions that were given to the node and have not ended");
    }

    /// Passes the node's figures to the recorder of the crate `metrics`. Call it when they are
    /// needed. Those of the node's own database are published by
    /// [`Db::publish_metrics`](crate::Db::publish_metrics).
    ///
    /// | name | kind | labels | what it is |
    /// |---|---|---|---|
    /// | `drtm_cluster_transactions_committed_total` | counter | | [`ClusterStats::commits`](super::ClusterStats::commits) |
    /// | `drtm_cluster_transactions_conflicts_total` | counter | `cause`: a [`Conflict`]'s [name](Conflict::name) | [`ClusterStats::conflicts`](super::ClusterStats::conflicts) |
    /// | `drtm_cluster_rounds_total`, `drtm_cluster_rounds_nanoseconds_total` | counter | `phase`: a [`Phase`]'s [name](Phase::name) | [`ClusterStats::rounds`](super::ClusterStats::rounds) |
    /// | `drtm_cluster_verbs_total`, `drtm_cluster_messages_total` | counter | `phase` | [`ClusterStats::counters`](super::ClusterStats::counters) |
    /// | `drtm_cluster_bytes_total` | counter | `phase`, `direction`: `in`, `out` | the same |
    /// | `drtm_cluster_transactions_under_way` | gauge | | [`ClusterStats::under_way`](super::ClusterStats::under_way) |
    ///
    /// Each also has the label `node`, since a process can have several.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::cluster::Cluster;
    ///
    /// for node in Cluster::builder().nodes(2).start()? {
    ///     // The application has installed a recorder before, which an exporter of its choice provides.
    ///     node.describe_metrics();
    ///     node.publish_metrics();
    /// }
    /// # Ok::<(), drtm::Error>(())
    /// ```
    pub fn publish_metrics(&self) {
        let node = Label::new("node", self.node().id().0.to_string());
        let alone = || vec![node.clone()];
        let with = |name: &'static str, value: &'static str| vec![node.clone(), Label::new(name, value)];

        let stats = self.stats();
        counter!(COMMITTED, alone()).absolute(stats.commits);
        for cause in Conflict::ALL {
            counter!(CONFLICTS, with("cause", cause.name())).absolute(stats.conflicts(cause));
        }
        for phase in Phase::ALL {
            let (rounds, tally, of_phase) = (stats.rounds(phase), stats.counters[phase], with("phase", phase.name()));
            counter!(ROUNDS, of_phase.clone()).absolute(rounds.count);
            counter!(ROUNDS_TOOK, of_phase.clone()).absolute(rounds.took.as_nanos() as u64);
            counter!(VERBS, of_phase.clone()).absolute(tally.operations());
            counter!(MESSAGES, of_phase.clone()).absolute(tally.messages());
            for (direction, bytes) in [("in", tally.bytes_in), ("out", tally.bytes_out)] {
                let labels = [&of_phase[..], &[Label::new("direction", direction)]].concat();
                counter!(BYTES, labels).absolute(bytes);
            }
        }
        gauge!(UNDER_WAY, alone()).set(stats.under_way as f64);
    }
}
