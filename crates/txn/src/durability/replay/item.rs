//! What is replayed: entries, still encoded, with what they are sorted by.

use std::hash::BuildHasher;

use drtm_kv::Version;
use rustc_hash::FxBuildHasher;

use crate::{commit::epoch::epoch_of, durability::format::Entry};

/// An entry of the log, or a row of a checkpoint.
#[derive(Clone, Copy)]
pub(super) struct Item<'s> {
    /// The key's first bytes, in the order of keys.
    pub(super) prefix: u64,
    pub(super) version: u64,
    pub(super) encoded: &'s [u8],
    /// The number of its record, or [`OF_CHECKPOINT`].
    pub(super) record: usize,
    pub(super) table: u16,
}

/// In place of a record's number: a row of a checkpoint.
pub(super) const OF_CHECKPOINT: usize = usize::MAX;

impl<'s> Item<'s> {
    pub(super) fn new(entry: &Entry<'_>, encoded: &'s [u8], record: usize) -> Self {
        Self { prefix: prefix(entry.key), version: entry.version, encoded, record, table: entry.table }
    }

    pub(super) fn epoch(&self) -> u64 {
        epoch_of(Version::new(self.version))
    }

    pub(super) fn is_of_checkpoint(&self) -> bool {
        self.record == OF_CHECKPOINT
    }

    /// Returns what items of one row are sorted by. A row of a checkpoint is behind the entry that
    /// wrote it.
    pub(super) fn order(&self) -> (u64, bool) {
        (self.version, self.is_of_checkpoint())
    }
}

/// Returns the first bytes of a key as a number, in the order of keys.
fn prefix(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    let length = key.len().min(first.len());
    first[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(first)
}

/// Returns the hash of a row's name.
pub(super) fn hash_of(table: u16, key: &[u8]) -> u64 {
    FxBuildHasher.hash_one((table, key))
}

/// Returns the share to which an entry's row belongs.
pub(super) fn share_of<'v, T>(shares: &'v mut [T], entry: &Entry<'_>) -> &'v mut T {
    let number = share_number(hash_of(entry.table, entry.key), shares.len());
    &mut shares[number]
}

/// Returns the number of the share to which a row belongs, by the [hash](hash_of) of its name.
pub(super) fn share_number(hash: u64, shares: usize) -> usize {
    (hash >> 32) as usize % shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_lower_prefix_is_of_a_lower_key(one in prop::collection::vec(0..3_u8, 0..12), other in prop::collection::vec(0..3_u8, 0..12)) {
            prop_assert!(prefix(&one) == prefix(&other) || (prefix(&one) < prefix(&other)) == (one < other));
            prop_assert!(one.len() != other.len() || one.len() > 8 || (prefix(&one) == prefix(&other)) == (one == other));
        }
    }
}
