//! Why an owner refuses.

/// Why an owner refuses a request.
///
/// # Example
///
/// ```
/// use drtm::cluster::Refusal;
///
/// assert!(Refusal::Full.to_string().contains("memory"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Another transaction has the record locked.
    #[error("another transaction has the row locked")]
    Locked = 1,
    /// The record is not where it was.
    #[error("the row has moved")]
    Moved = 2,
    /// There is no memory for the value.
    #[error("its memory is full: remove rows, or start it with more")]
    Full = 3,
    /// It serves no such table.
    #[error("it has no table of this number: start all nodes with the same tables")]
    NoTable = 4,
    /// The key is none of the table's.
    #[error("the key is none of the table's: start all nodes with the same tables")]
    NotItsKey = 5,
    /// The key or the value is longer than that of any row.
    #[error("the key or the value is too long: divide the row")]
    TooLong = 6,
    /// The record is not locked by the transaction that wants to write it.
    #[error("the transaction does not hold the lock of a row that it wants to write")]
    NotHeld = 7,
    /// It is closing.
    #[error("it is closing")]
    Closed = 8,
    /// Its store is corrupt.
    #[error("its store is corrupt: restore it")]
    Corrupt = 9,
    /// The table has no order.
    #[error("the table has no order: ranges are of ordered tables")]
    NotOrdered = 12,
    /// It believes the cluster to be another.
    #[error("it was started with other tables, partitions, or another engine or version: start all alike")]
    Other = 10,
    /// The table is replicated, and only read.
    #[error("the table is replicated, and only read: start all nodes with the same tables")]
    ReadOnly = 13,
    /// A node that is gone has the row locked.
    #[error("a node that has died has the row locked: recover that node, or restart the cluster")]
    HolderDead = 11,
    /// The node was taken for dead, and what it had locked was freed.
    #[error("it took this node for dead, and has revoked its access: restart this node")]
    Revoked = 14,
    /// Its log cannot be written any more.
    #[error("its log cannot be written any more: see its directory, and restart it")]
    LogFailed = 15,
    /// The request is of another view than the node's, or is for another of its incarnations. The
    /// requester is given the newer view when it meets the node again.
    #[error("it is in another view, or another incarnation: run the transaction again")]
    OtherView = 16,
    /// Its NIC has squashed the transaction, which conflicts with another one.
    #[error("its NIC has squashed the transaction: run it again")]
    Squashed = 17,
    /// The shard is served, and keeps its rows.
    #[error("the shard is not lost, and keeps its rows")]
    NotLost = 18,
    /// Its nodes agree on no view.
    #[error("its nodes have no membership, by which they would agree on another view")]
    NoMembership = 19,
    /// The node that is to be replaced is here.
    #[error("the node is here: stop it first")]
    StillHere = 20,
    /// Another node has the address.
    #[error("another node has the address")]
    AddressTaken = 21,
    /// No owner has the number.
    #[error("no owner has the number")]
    NoSuchNode = 22,
}

impl Refusal {
    const ALL: [Self; 22] = [
        Self::Locked,
        Self::Moved,
        Self::Full,
        Self::NoTable,
        Self::NotItsKey,
        Self::TooLong,
        Self::NotHeld,
        Self::Closed,
        Self::Corrupt,
        Self::Other,
        Self::HolderDead,
        Self::NotOrdered,
        Self::ReadOnly,
        Self::Revoked,
        Self::LogFailed,
        Self::OtherView,
        Self::Squashed,
        Self::NotLost,
        Self::NoMembership,
        Self::StillHere,
        Self::AddressTaken,
        Self::NoSuchNode,
    ];

    /// Returns the refusal of a number.
    pub(in crate::cluster) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| *refusal as u32 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_a_number() {
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::from_number(refusal as u32), Some(refusal));
        }
        assert_eq!(Refusal::from_number(0), None);
    }
}
