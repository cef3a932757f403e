//! What refuses clusters in a program that is built without them.

use std::process::ExitCode;

use drtm_htm::NoHtm;
use drtm_txn::Config;

use super::{plan::Plan, tally::Gathered, workload::ClusterWorkload};
use crate::{Error, FabricName};

/// Refuses a cluster, with the command that has it.
///
/// # Errors
///
/// [`Error::NoClusters`], always.
pub fn run<S: Config<Engine = NoHtm>, W: ClusterWorkload>(
    _workload: &W,
    fabric: FabricName,
    plan: &Plan,
) -> Result<Gathered<W::Count>, Error> {
    Err(refusal(plan.nodes, fabric))
}

fn refusal(nodes: u16, fabric: FabricName) -> Error {
    // Clusters within one process are for studies, which this program does not have either.
    let fabric = if matches!(fabric, FabricName::Local | FabricName::Sim(_)) { FabricName::Shm } else { fabric };
    Error::NoClusters { nodes, fabric }
}

/// Returns `None`: no process of this program is a cluster's node.
pub fn run_as_member(_member: impl Fn(&str) -> Option<ExitCode>) -> Option<ExitCode> {
    None
}

/// Fails: no process of this program is a cluster's node.
pub fn run_member<W: ClusterWorkload>() -> ExitCode {
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use drtm_report::Failure;

    use super::*;

    #[test]
    fn a_cluster_is_refused_with_the_command_that_has_it() {
        for (asked, offered) in [(FabricName::Local, "shm"), (FabricName::Shm, "shm"), (FabricName::Tcp, "tcp")] {
            let refusal = refusal(2, asked);
            let command = "cargo run --release --features cluster --example tpcc -- --nodes 2 --fabric";
            assert!(refusal.to_string().ends_with(&format!("{command} {offered}")), "{refusal}");
            assert_eq!(refusal.exit_status(), 2);
        }
    }
}
