//! The read set: what must be unchanged when the transaction commits.

use drtm_kv::{BucketVersion, NodeVersion, PhantomGuard, ReadEntry};

use crate::{
    Config,
    commit::{guards::GuardIndex, write_set::WriteTarget},
    memory::{
        heap_size::vec_bytes,
        storage::{Absence, Shift},
    },
    mutation::Mutation,
    tx::ticket::Claim,
};

/// The number of reads and writes at which the read set is validated for the first time before the
/// commit.
const FIRST_CHECK: usize = 256;

/// Rows that were read, and the guards of keys that were absent.
#[derive(Debug)]
pub(crate) struct ReadSet {
    /// Rows that were read and are not written.
    pub(crate) records: Vec<ReadEntry>,
    /// The leaves that ranges have passed, and those in which keys were absent.
    pub(crate) leaves: Vec<NodeVersion>,
    /// Buckets in which keys were absent.
    pub(crate) buckets: Vec<BucketVersion>,
    /// The number of reads and writes at which the set is validated next.
    pub(crate) next_check: usize,
    leaf_index: GuardIndex,
    bucket_index: GuardIndex,
}

impl Default for ReadSet {
    fn default() -> Self {
        let (records, leaves, buckets) = Default::default();
        let (leaf_index, bucket_index) = Default::default();
        Self { records, leaves, buckets, next_check: FIRST_CHECK, leaf_index, bucket_index }
    }
}

impl ReadSet {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.leaves.is_empty() && self.buckets.is_empty()
    }

    /// Returns its size on the heap, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let indexes = self.leaf_index.bytes() + self.bucket_index.bytes();
        vec_bytes(&self.records) + vec_bytes(&self.leaves) + vec_bytes(&self.buckets) + indexes
    }

    /// Returns whether it has guards of absent keys or of ranges.
    pub(crate) fn has_guards(&self) -> bool {
        !self.leaves.is_empty() || !self.buckets.is_empty()
    }

    /// Returns whether everything was read at one moment, so that nothing has to be validated.
    #[inline(always)]
    pub(crate) fn is_of_one_moment(&self) -> bool {
        self.leaves.is_empty() && self.records.len() + self.buckets.len() <= 1
    }

    /// Adds the guard of a key that is absent.
    #[inline]
    pub(crate) fn track_absent(&mut self, absence: Absence) {
        match absence {
            Absence::Bucket(bucket) => self.buckets.push(bucket),
            Absence::Leaf(leaf) => self.leaves.push(leaf),
        }
    }

    /// Updates the guards after a change that this transaction has made itself.
    pub(crate) fn follow<S: Config>(&mut self, mut shift: Shift) {
        if S::has(Mutation::SplitsNotGuarded) {
            match &mut shift {
                Shift::Leaf(change) => change.split_off = None,
                Shift::Bucket(change) => change.split_off = None,
            }
        }
        match shift {
            Shift::Leaf(change) => self.leaf_index.carry(&mut self.leaves, change),
            Shift::Bucket(change) => self.bucket_index.carry(&mut self.buckets, change),
        }
    }

    /// Removes a row that is going to be written, if it was read last. Returns whether it was.
    #[inline(always)]
    pub(crate) fn untrack(&mut self, seen: ReadEntry) -> bool {
        self.records.pop_if(|last| *last == seen).is_some()
    }

    /// Returns a guard to hold while application code changes a row that was read, but is not in
    /// the set. If that code fails or panics, the guard adds the row.
    #[inline(always)]
    pub(crate) fn pending(&mut self, record: WriteTarget) -> PendingRead<'_> {
        PendingRead { reads: self, record }
    }

    /// Takes over all that another set has.
    pub(crate) fn absorb(&mut self, other: &mut Self) {
        self.records.append(&mut other.records);
        self.leaves.append(&mut other.leaves);
        self.buckets.append(&mut other.buckets);
    }

    /// Returns the places that were read.
    pub(crate) fn places(&self) -> impl Iterator<Item = Claim> {
        let records = self.records.iter().map(|seen| Claim::Record(seen.at));
        let leaves = self.leaves.iter().map(|leaf| Claim::Guard(leaf.place()));
        let buckets = self.buckets.iter().map(|bucket| Claim::Guard(bucket.place()));
        records.chain(leaves).chain(buckets)
    }

    /// Empties the set.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.leaves.clear();
        self.buckets.clear();
        self.next_check = FIRST_CHECK;
        self.leaf_index.clear();
        self.bucket_index.clear();
    }
}

/// A row that was read to be changed. Dropping it adds the row to the read set.
#[derive(Debug)]
pub(crate) struct PendingRead<'r> {
    reads: &'r mut ReadSet,
    record: WriteTarget,
}

impl PendingRead<'_> {
    /// Ends the guard: the row is written, and so need not be in the read set.
    #[inline(always)]
    pub(crate) fn done(self) {
        std::mem::forget(self);
    }
}

impl Drop for PendingRead<'_> {
    #[cold]
    fn drop(&mut self) {
        if let WriteTarget::Seen(seen) = self.record {
            self.reads.records.push(seen);
        }
    }
}
