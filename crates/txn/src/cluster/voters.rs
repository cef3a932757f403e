//! The owners of a cluster agree on its view among themselves, by Raft: each is a voter. What
//! voters say to each other goes by letters of the fabric, which go on whatever the view is.
//!
//! A voter is known by its node's number, and reached wherever the fabric reaches that node. Its
//! log is in the node's directory. See `docs/decisions/0123`.

use std::{
    path::Path,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use drtm_membership::{LONGEST_MESSAGE, Raft, RaftOptions, Transport, Voter};
use drtm_rdma::{Fabric, LONGEST_LETTER, Letters, NodeId, TakeLetter};

use super::ClusterError;
use crate::Error;

/// The folder of a voter, in its node's directory.
const FOLDER: &str = "membership";

// A message is one letter.
const _: () = assert!(LONGEST_MESSAGE <= LONGEST_LETTER);

/// Voters' messages, as letters.
struct ByLetter(Arc<dyn Letters>);

impl Transport for ByLetter {
    fn send(&self, to: &Voter, message: Vec<u8>) {
        if let Ok(node) = to.address.parse() {
            // One that is dropped is as good as lost: the voter sends it again.
            self.0.send(NodeId(node), message);
        }
    }
}

/// Returns what a node is called among voters.
fn name_of(node: NodeId) -> String {
    node.0.to_string()
}

/// Starts the voter of an owner, which enters the cluster of the others in the background. If it
/// `bootstraps`, it makes one where there is none. A node that is no owner has none: it learns the
/// view from owners.
pub(super) fn start<F: Fabric>(
    fabric: &F,
    node: NodeId,
    owners: &[NodeId],
    directory: Option<&Path>,
    bootstraps: bool,
) -> Result<Option<Arc<Raft>>, Error> {
    if !owners.contains(&node) {
        let refused = ClusterError::NoVoter { node };
        return if bootstraps { Err(refused.into()) } else { Ok(None) };
    }
    // Letters can come before there is a voter that they are for.
    let voter = Arc::new(OnceLock::<Weak<Raft>>::new());
    let its = Arc::clone(&voter);
    let take: TakeLetter = Box::new(move |_, letter| {
        if let Some(raft) = its.get().and_then(Weak::upgrade) {
            // Messages for former voters of this node, and from theirs, are refused.
            let _ = raft.receive(letter);
        }
    });
    let letters = fabric.letters(node, take).map_err(ClusterError::Fabric)?;
    let folder = directory.map(|directory| directory.join(FOLDER));
    let transport = Arc::new(ByLetter(letters));
    let raft = Raft::start(folder.as_deref(), node.0.into(), &name_of(node), transport, options());
    let raft = Arc::new(raft.map_err(ClusterError::Membership)?);
    // It is set once.
    let _ = voter.set(Arc::downgrade(&raft));
    let others = owners.iter().filter(|owner| **owner != node);
    let others = others.map(|owner| (owner.0.into(), name_of(*owner))).collect();
    // It goes on until it is in, or the node ends: nothing waits for it.
    drop(raft.enter(others, bootstraps));
    Ok(Some(raft))
}

/// Returns options for a machine whose processors are busy with transactions. A leader that is gone
/// is replaced within the lease of the view's leader, or soon after.
fn options() -> RaftOptions {
    let mut options = RaftOptions::default();
    options.heartbeat = Duration::from_millis(100);
    options.election = Duration::from_millis(500)..Duration::from_millis(1000);
    options
}
