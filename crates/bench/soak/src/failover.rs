//! `drtm-bench soak failover`: nodes of clusters are killed, stopped, cut off and started again
//! while a bank runs on them, and what is left is checked.
//!
//! - `rounds`: simulated clusters, one after the other.
//! - `processes`: one cluster of processes, seen from outside. `member` is such a process; `told`
//!   is what it says.
//! - `tally`: counters, and the report.

mod member;
mod processes;
mod rounds;
mod tally;
#[cfg(test)]
mod tests;
mod told;

use std::time::{Duration, Instant};

use clap::{Args as ClapArgs, value_parser};
use drtm_drive::{FabricName, Plain, cluster::ProtocolOf, seconds};
use drtm_report::Report;

use crate::{Error, lasting::bank::Shape};

pub(crate) use member::run as run_member;

/// Kill, stop and cut off nodes of a cluster with backups under load, start them again, and check
/// what is left
///
/// Clients move money between accounts at all owners; each counts its transfers in a row of its
/// own. One node ends at a time, owners and clients in turn; the next one when every shard has as
/// many replicas as before, and every node is back.
///
///   sim        clusters in virtual time, one after the other, that differ by their seed. Nodes
///              crash, stall beyond their lease, and are cut off alone and together. Histories are
///              judged and replicas compared. Failover times are virtual
///   shm, tcp   one cluster of processes of this program: SIGKILL, and on tcp SIGSTOP beyond the
///              lease. This process, which is not part of it, records what clients were told. In
///              network namespaces (scripts/netns/test), nodes are cut off, too
///
/// failovers_ms: from the kill of an owner until the first transaction that began later, on a row
/// that it served, is acknowledged; null if no owner was killed. lost: transfers that were
/// acknowledged and are not there at the end. torn: sums that are not exact at the end. anomalies:
/// histories that are not strictly serializable, sums that a transaction read and that never were,
/// replicas that differ, processes that end by themselves. stuck: calls that do not end, nodes that
/// do not come back, and locks that are held at the end.
///
/// JSON: {simulated, kills, pauses, partitions, restarts, failovers_ms: {p50, p99, max},
/// acknowledged, lost, torn, anomalies, stuck}
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The fabric: sim[:PROFILE] (simulated), shm or tcp (processes)
    #[arg(long, default_value = "sim")]
    fabric: FabricName,

    /// Nodes that own rows
    #[arg(long, value_parser = value_parser!(u16).range(3..=16), default_value_t = 3, value_name = "N")]
    nodes: u16,

    /// Nodes that only run transactions
    #[arg(long, value_parser = value_parser!(u16).range(1..=8), default_value_t = 2, value_name = "N")]
    clients: u16,

    /// Backups of each owner
    #[arg(long, value_parser = value_parser!(u16).range(1..=8), default_value_t = 1, value_name = "K")]
    backups: u16,

    /// Commit protocol
    #[arg(long, value_parser = ProtocolOf::parser(), value_name = "NAME")]
    protocol: Option<ProtocolOf>,

    /// Milliseconds that a node may be silent [default: 1 on sim, 1000 on tcp, 3000 on shm, where
    /// the system tells of deaths]
    #[arg(long, value_parser = value_parser!(u64).range(1..=60_000), value_name = "MS")]
    lease: Option<u64>,

    /// On every second simulated cluster, lose and delay packets, and let the register of views
    /// answer late or not at all
    #[arg(long)]
    lossy: bool,

    /// Seconds to run: the last round, or repair, is completed
    #[arg(long, value_parser = seconds, default_value = "10", value_name = "S")]
    secs: Duration,
}

/// Accounts of each owner.
const ACCOUNTS: u64 = 8;

impl Args {
    /// Runs it, and reports what was found.
    ///
    /// # Errors
    ///
    /// Returns an error if the options do not fit, the run fails, or a check does not hold.
    pub(crate) fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let refused = |option, with, instead| Err(drtm_drive::Error::Options { option, with, instead }.into());
        if self.backups >= self.nodes {
            return refused("--backups", "so few nodes", "each backup is another node, so use fewer, or more nodes");
        }
        if self.lossy && !self.fabric.is_simulated() {
            return refused("--lossy", "real processes", "leave it out, or use --fabric sim");
        }
        let end = Instant::now() + self.secs;
        let tally = match self.fabric {
            FabricName::Sim(profile) => rounds::soak::<Plain>(self.shape(1), (profile, self.lossy), seed, end)?,
            FabricName::Shm => processes::soak(self.shape(3_000), processes::Way::Shm, seed, self.secs)?,
            FabricName::Tcp => processes::soak(self.shape(1_000), processes::Way::Tcp, seed, self.secs)?,
            _ => return refused("--fabric", "soak failover", "use sim, shm or tcp, where nodes can be killed"),
        };
        tally.print(self, report)
    }

    fn shape(&self, lease: u64) -> Shape {
        Shape {
            owners: self.nodes,
            clients: self.clients,
            backups: self.backups,
            protocol: self.protocol.unwrap_or_default().protocol,
            lease: Duration::from_millis(self.lease.unwrap_or(lease)),
            accounts: ACCOUNTS * u64::from(self.nodes),
        }
    }
}
