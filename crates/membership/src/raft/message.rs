//! What voters say to each other: requests and replies, each in an envelope, as postcard encodes
//! it.

use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};
use serde::{Deserialize, Serialize};

use super::types::{Applied, Proposal, SnapshotMeta, Types, Vote, Voter};
use crate::error::Error;

/// The first byte of a message: the version of all that follows.
const VERSION: u8 = 2;

/// A message, with what it takes to know whether it is meant for its receiver.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Envelope {
    /// The cluster. 0: the sender belongs to none yet.
    pub(crate) group: u64,
    pub(crate) from: Voter,
    /// The voter that is meant. 0: whichever is at the address.
    pub(crate) to: u64,
    /// The number that the requester gave to the call.
    pub(crate) call: u64,
    pub(crate) body: Body,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Body {
    Ask(Ask),
    Reply(Reply),
}

/// What a voter asks of another one.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<u64>),
    Snapshot {
        vote: Vote,
        meta: SnapshotMeta,
        data: Vec<u8>,
    },
    /// The rest is the leader's to answer.
    Read,
    Replace(Proposal),
    Admit(Voter),
    /// Whether the voter belongs to a cluster.
    Stands,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Append(AppendEntriesResponse<u64>),
    Vote(VoteResponse<u64>),
    Snapshot(SnapshotResponse<u64>),
    Read(u32, Vec<u8>),
    Replace(Applied),
    Admitted,
    /// Which cluster it belongs to, or 0; and whether it is to make one.
    Stands {
        group: u64,
        founds: bool,
    },
    /// Nothing was done: ask the leader, if one is known.
    NotLeader(Option<Voter>),
    /// It failed. What was asked for may have happened.
    Failed(String),
}

impl Envelope {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, postcard::Error> {
        postcard::to_extend(self, vec![VERSION])
    }

    pub(crate) fn decode(message: &[u8]) -> Result<Self, Error> {
        match message.split_first() {
            Some((&VERSION, rest)) => match postcard::take_from_bytes(rest) {
                Ok((envelope, [])) => Ok(envelope),
                _ => Err(Error::Message { why: "it is not encoded as a message" }),
            },
            _ => Err(Error::Message { why: "it is of another version" }),
        }
    }
}
