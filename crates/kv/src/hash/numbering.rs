//! The bucket of a hash, in a table of any number of buckets.
//!
//! This is linear hashing. A table begins with some number of buckets, its *base*, among which the
//! hash's highest bits choose evenly. It grows by splitting them in the order of their numbers:
//! bucket `n` into `n` and `n + base`, by the hash's lowest bit. When each has been split, the next
//! round begins, with twice as many buckets and by the next bit. The number of times that a bucket
//! has been split is its *depth*.

use std::hint::select_unpredictable;

/// The numbering of buckets in a table with this base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbering {
    base: u64,
}

impl Numbering {
    /// Returns `None` for a base of zero, which no table has.
    pub(super) fn new(base: u64) -> Option<Self> {
        (base > 0).then_some(Self { base })
    }

    /// Returns the bucket of a hash among those of this depth.
    #[inline(always)]
    pub(super) fn bucket(self, hash: u64, depth: u32) -> u64 {
        let among_base = (u128::from(hash) * u128::from(self.base)) >> u64::BITS;
        // Wraps, for a depth that was read from memory that is not a table's.
        (self.base.wrapping_mul(hash & ((1 << (depth % u64::BITS)) - 1))).wrapping_add(among_base as u64)
    }

    /// Returns the line of its bucket that a key is put into if there is room. It depends on the
    /// half of the base bucket's hashes that the hash is in, whatever the depth.
    #[inline(always)]
    pub(super) fn line(self, hash: u64) -> usize {
        (hash.wrapping_mul(self.base) >> (u64::BITS - 1)) as usize
    }

    /// Returns the bucket of a hash in a table of this many buckets, each of which was split
    /// `rounds` times, and some once more.
    #[inline(always)]
    pub(super) fn guess(self, hash: u64, buckets: u64, rounds: u32) -> u64 {
        let split = self.bucket(hash, rounds + 1);
        // If the bucket does not exist yet, it is a child, and its parent exists: all buckets of
        // this round do. If the header is corrupt, the bucket may not be a child, and is returned
        // as it is.
        let whole = split.min(split.wrapping_sub(self.base.wrapping_shl(rounds)));
        // Both are equally likely, so a branch would often be mispredicted.
        select_unpredictable(split < buckets, split, whole)
    }

    /// Returns how often each bucket has been split in a table of this many buckets.
    pub(super) fn rounds(self, buckets: u64) -> u32 {
        (buckets / self.base).checked_ilog2().unwrap_or(0)
    }

    /// Returns a bucket's depth when it was created, which includes the splits of its parent.
    pub(super) fn first_depth(self, bucket: u64) -> u32 {
        (bucket / self.base).checked_ilog2().map_or(0, |round| round + 1)
    }

    /// Returns the bucket that is split off from this one by a bit of the hash.
    pub(super) fn child(self, bucket: u64, bit: u32) -> u64 {
        bucket.wrapping_add(self.base.wrapping_shl(bit))
    }

    /// Returns the bucket that this one is split off from, by the bit before its first depth.
    /// `None`: the bucket is one of the base.
    pub(super) fn parent(self, bucket: u64) -> Option<u64> {
        let bit = self.first_depth(bucket).checked_sub(1)?;
        Some(bucket - (self.base << bit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASES: [u64; 6] = [1, 2, 3, 16, 17, 1000];

    fn hashes() -> impl Iterator<Item = u64> {
        (0..5_000_u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ n << 40)
    }

    #[test]
    fn each_bucket_gets_about_as_many_hashes() {
        for base in BASES {
            let numbering = Numbering::new(base).expect("not zero");
            let mut counts = vec![0_u32; base as usize];
            hashes().for_each(|hash| counts[numbering.bucket(hash, 0) as usize] += 1);
            let mean = 5_000 / base as u32;
            assert!(counts.iter().all(|count| *count <= 3 * mean.max(5)), "base {base}: {counts:?}");
        }
    }

    #[test]
    fn each_line_of_a_bucket_gets_about_as_many_hashes() {
        for base in BASES {
            let numbering = Numbering::new(base).expect("not zero");
            let mut counts = vec![[0_u32; 2]; base as usize];
            hashes().for_each(|hash| counts[numbering.bucket(hash, 0) as usize][numbering.line(hash)] += 1);
            let mean = 2_500 / base as u32;
            assert!(counts.as_flattened().iter().all(|count| *count <= 3 * mean.max(5)), "base {base}: {counts:?}");
        }
    }

    #[test]
    fn fewer_buckets_than_there_can_be_lead_to_none_beyond_the_base() {
        for base in BASES {
            let numbering = Numbering::new(base).expect("not zero");
            for buckets in 0..base.min(20) {
                let guess = |hash| numbering.guess(hash, buckets, numbering.rounds(buckets));
                assert!(hashes().all(|hash| guess(hash) < base), "{buckets} of base {base}");
            }
        }
    }

    #[test]
    fn a_bucket_more_takes_keys_from_its_parent_alone() {
        for base in BASES {
            let numbering = Numbering::new(base).expect("not zero");
            for buckets in base..(9 * base).min(600) {
                let guess = |hash, buckets| numbering.guess(hash, buckets, numbering.rounds(buckets));
                let mut moved = 0;
                for hash in hashes() {
                    let (before, after) = (guess(hash, buckets), guess(hash, buckets + 1));
                    assert!(before < buckets);
                    if before != after {
                        moved += 1;
                        assert_eq!((after, numbering.parent(after)), (buckets, Some(before)));
                        let depth = numbering.first_depth(after);
                        assert_eq!(numbering.child(before, depth - 1), after);
                        assert_eq!((numbering.bucket(hash, depth), numbering.bucket(hash, depth - 1)), (after, before));
                    }
                }
                assert!(moved > 0, "{buckets} of base {base}");
            }
            assert!((0..base).all(|bucket| numbering.parent(bucket).is_none()));
        }
    }
}
