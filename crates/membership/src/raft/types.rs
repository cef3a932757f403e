//! What openraft is to agree on, in its terms.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    configuration::Configuration,
    error::Error,
    ledger::{Decision, RequestName},
};

/// A voter: one life of a node's directory.
///
/// A node that lost its directory, or has none, comes back as another voter, with another id: it
/// has forgotten how it voted.
///
/// # Example
///
/// See [`Raft`](crate::Raft).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Voter {
    /// Random, and never used again.
    pub id: u64,
    /// Which node it is. Of a node's voters, the last one counts.
    pub node: u32,
    /// Where the node listens, as its transport writes that.
    pub address: String,
}

impl fmt::Display for Voter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "voter {:016x} of node {} at {}", self.id, self.node, self.address)
    }
}

/// A log entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Logged {
    Proposal(Proposal),
    /// It changes nothing. When it is applied, so is all that was committed before it.
    Barrier,
}

/// A configuration, and which one it is to replace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Proposal {
    pub(crate) name: RequestName,
    pub(crate) expected: u32,
    pub(crate) content: Vec<u8>,
}

/// What an entry did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Applied {
    /// It changes no configuration: a barrier, a leader's first entry, or a change of voters.
    Nothing,
    Replaced(u32, Vec<u8>),
    Outdated(u32, Vec<u8>),
    Unclear,
}

impl From<Decision> for Applied {
    fn from(decision: Decision) -> Self {
        let parts = |of: Configuration| (of.number(), of.content().to_vec());
        match decision {
            Decision::Replaced(new) => {
                let (number, content) = parts(new);
                Self::Replaced(number, content)
            }
            Decision::Outdated(current) => {
                let (number, content) = parts(current);
                Self::Outdated(number, content)
            }
            Decision::Unclear => Self::Unclear,
        }
    }
}

impl Applied {
    /// Returns what the request is answered with.
    pub(crate) fn outcome(self) -> Result<Configuration, Error> {
        match self {
            Self::Replaced(number, content) => Ok(Configuration::new(number, content)),
            Self::Outdated(number, content) => Err(Error::Outdated { current: Configuration::new(number, content) }),
            Self::Unclear => Err(Error::unknown("the number that is expected is too old, or not there yet")),
            Self::Nothing => Err(Error::unknown("the log has another entry in its place")),
        }
    }
}

openraft::declare_raft_types!(
    /// The types of this crate's use of openraft.
    #[derive(Serialize, Deserialize)]
    pub(crate) Types:
        D = Logged,
        R = Applied,
        NodeId = u64,
        Node = Voter,
        Entry = openraft::Entry<Types>,
        SnapshotData = Vec<u8>,
        AsyncRuntime = openraft::TokioRuntime,
);

pub(crate) type StorageError = openraft::StorageError<u64>;
pub(crate) type LogId = openraft::LogId<u64>;
pub(crate) type Vote = openraft::Vote<u64>;
pub(crate) type Entry = openraft::Entry<Types>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<u64, Voter>;
pub(crate) type StoredMembership = openraft::StoredMembership<u64, Voter>;
