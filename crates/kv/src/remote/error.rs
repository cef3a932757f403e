//! The errors of records on other nodes.

use drtm_rdma::{Remote, VerbError};

/// An error of a one-sided operation on another node's record.
///
/// # Example
///
/// ```
/// use drtm_kv::RemoteError;
///
/// let error = RemoteError::OtherLength { is: 8, given: 9 };
/// assert!(error.to_string().starts_with("a value of 9 bytes does not fit the record of one of 8"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// Locks and leases can only be taken one-sidedly where a NIC's compare-and-swap is atomic with
    /// the processors'.
    #[error("the fabric's compare-and-swap is not atomic with processors': ask the owner for the lock or the lease")]
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
    /// The key of a write is not that of the record that was locked.
    #[error("the record that is locked at {at} is another key's; write it with the key that it was locked by")]
    OtherKey {
        /// The record.
        at: Remote,
    },
    /// A value that is written in place must have the previous value's length.
    #[error("a value of {given} bytes does not fit the record of one of {is}; update it by message, which can move it")]
    OtherLength {
        /// The length of the previous value.
        is: usize,
        /// The length of the new value.
        given: usize,
    },
}
