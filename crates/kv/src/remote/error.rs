//! The errors of tables and records on other nodes.

use drtm_rdma::{Remote, VerbError};

use super::Refusal;
use crate::State;

/// An error of an operation on another node's table or record.
///
/// # Example
///
/// ```
/// use drtm_kv::{KvTable, Refusal, RemoteError};
///
/// let error = RemoteError::from(Refusal::NoTable { table: 3 });
/// assert_eq!(error.to_string(), "the owner serves no table 3; register it with the service before its number is handed out");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// A lease can only be taken one-sidedly where a NIC's compare-and-swap is atomic with the
    /// processors'.
    #[error("the fabric's compare-and-swap is not atomic with processors': ask the owner for the lease")]
    NotAtomic,
    /// An operation of the fabric failed.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// There is no table at that place, or one with other keys.
    #[error("no table at {at} that has these keys: found {found:#018x}; was it made with them?")]
    NotThisTable {
        /// The place.
        at: Remote,
        /// The word that was found.
        found: u64,
    },
    /// The table's records have no checksums, so torn READs cannot be detected.
    #[error("the table at {at} is not made for peers; make it so, or ask its owner by message")]
    NotForPeers {
        /// The table.
        at: Remote,
    },
    /// A record contradicts its checksum although it is not being written.
    #[error("the record at {at} is corrupt: it contradicts its checksum, and no write is in progress; restore it")]
    Corrupt {
        /// The record.
        at: Remote,
    },
    /// Another holder has locked the record, or none has.
    #[error("the record at {at} is not locked by the holder named: its state is {found:?}; nothing was changed")]
    NotHolder {
        /// The record.
        at: Remote,
        /// Its state.
        found: State,
    },
    /// A value that is written in place must have the previous value's length.
    #[error("a value of {given} bytes does not fit the record of one of {is}; update it by message, which can move it")]
    OtherLength {
        /// The length of the previous value.
        is: usize,
        /// The length of the new value.
        given: usize,
    },
    /// The request is longer than a message can be.
    #[error("a request of {bytes} bytes, and messages have at most {most}; split the value over several keys")]
    RequestTooLong {
        /// Its length.
        bytes: usize,
        /// The longest possible message.
        most: usize,
    },
    /// The record was locked or being written for longer than the operation waits.
    #[error("the record is locked, or being written, for longer than an operation waits; try again later")]
    Busy,
    /// The owner refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The owner's reply cannot be decoded.
    #[error("the owner's reply cannot be understood: {what}; do both nodes run the same version?")]
    Reply {
        /// What is wrong with it.
        what: &'static str,
    },
}
