//! The owner's reasons to refuse a request: errors that are sent in messages.

use crate::KvError;

/// What an owner refuses, or cannot execute. Nothing has changed at the owner.
///
/// # Example
///
/// See [`TablePeer`](crate::TablePeer).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The request cannot be decoded.
    #[error("the owner cannot understand the request: {what}; do both nodes run the same version?")]
    Malformed {
        /// What is wrong with it.
        what: String,
    },
    /// The owner serves no such table.
    #[error("the owner serves no table {table}; register it with the service before its number is handed out")]
    NoTable {
        /// The number in the request.
        table: u16,
    },
    /// The table has other keys.
    #[error("{length} bytes are no key of that table; ask for it with the keys that it was made with")]
    NotItsKey {
        /// The key's length.
        length: usize,
    },
    /// The request is for a range of a table without order.
    #[error("that table is a hash table, which has no ranges; use a tree")]
    NotOrdered,
    /// The value is longer than a record can hold.
    #[error("a value of {length} bytes; the longest is {longest}: split it over several records")]
    ValueTooLong {
        /// Its length.
        length: usize,
        /// The longest possible value.
        longest: usize,
    },
    /// The requested value is longer than a reply.
    #[error(
        "a value of {length} bytes does not fit a reply of {most}; read it one-sidedly, from a table made for peers"
    )]
    ReplyTooLong {
        /// Its length.
        length: usize,
        /// The room in a reply.
        most: usize,
    },
    /// The owner's region is full.
    #[error(
        "the owner's region is full: {asked} bytes were needed, and {left} are left; make it larger, or remove keys"
    )]
    RegionFull {
        /// The bytes that were needed.
        asked: u64,
        /// The bytes that are left.
        left: u64,
    },
    /// The table has as many overflow buckets as links can address.
    #[error("the hash table has run out of overflow buckets; let it grow, or make it with more buckets")]
    TooCrowded,
    /// The request is for a lock in the name of another node than the sender's.
    #[error(
        "a lock in the name of node {owner}, asked for by another; use the state that a worker of the node locks with"
    )]
    NotItsName {
        /// The node of the lock.
        owner: u8,
    },
    /// Another error occurred at the owner.
    #[error("the owner failed: {why}")]
    Failed {
        /// Its error.
        why: String,
    },
}

impl Refusal {
    pub(super) fn malformed(what: &str) -> Self {
        Self::Malformed { what: what.to_owned() }
    }

    /// Returns the code, two numbers, and a text.
    pub(super) fn to_parts(&self) -> (u8, u64, u64, &str) {
        match self {
            Self::Malformed { what } => (1, 0, 0, what),
            Self::NoTable { table } => (2, u64::from(*table), 0, ""),
            Self::NotItsKey { length } => (3, *length as u64, 0, ""),
            Self::NotOrdered => (4, 0, 0, ""),
            Self::ValueTooLong { length, longest } => (5, *length as u64, *longest as u64, ""),
            Self::ReplyTooLong { length, most } => (6, *length as u64, *most as u64, ""),
            Self::RegionFull { asked, left } => (7, *asked, *left, ""),
            Self::TooCrowded => (8, 0, 0, ""),
            Self::NotItsName { owner } => (9, u64::from(*owner), 0, ""),
            Self::Failed { why } => (10, 0, 0, why),
        }
    }

    /// Returns the refusal of these parts. `None`: there is no such code.
    pub(super) fn from_parts(code: u8, a: u64, b: u64, text: &[u8]) -> Option<Self> {
        let text = || String::from_utf8_lossy(text).into_owned();
        Some(match code {
            1 => Self::Malformed { what: text() },
            2 => Self::NoTable { table: a as u16 },
            3 => Self::NotItsKey { length: a as usize },
            4 => Self::NotOrdered,
            5 => Self::ValueTooLong { length: a as usize, longest: b as usize },
            6 => Self::ReplyTooLong { length: a as usize, most: b as usize },
            7 => Self::RegionFull { asked: a, left: b },
            8 => Self::TooCrowded,
            9 => Self::NotItsName { owner: a as u8 },
            10 => Self::Failed { why: text() },
            _ => return None,
        })
    }
}

impl From<KvError> for Refusal {
    fn from(error: KvError) -> Self {
        match error {
            KvError::ValueTooLong { length, longest } => Self::ValueTooLong { length, longest },
            KvError::KeyTooLong { length, .. } => Self::NotItsKey { length },
            KvError::Full(shortage) => Self::RegionFull { asked: shortage.asked, left: shortage.left },
            KvError::TooCrowded => Self::TooCrowded,
            other => Self::Failed { why: other.to_string() },
        }
    }
}
