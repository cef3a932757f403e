//! The places of a worker's last insertions into trees, so that it need not search for the leaf
//! each time.
//!
//! Keys often ascend: those of a tree, or those that share their first columns. There may be many
//! such sequences, which interleave (the orders of several districts, the events of several
//! devices). So one leaf is kept for each upper half of a key word. It is only a hint: a leaf
//! itself has the range of its keys.

use drtm_rdma::Offset;

/// The place of a worker's last or next insertion. The following key often belongs there too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Last {
    /// The leaf's place.
    pub(crate) leaf: u64,
    /// The word that was inserted, or will be.
    pub(crate) word: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    tree: Offset,
    last: Last,
}

impl Entry {
    /// An entry of no tree.
    const NOTHING: Self = Self { tree: Offset::new(u64::MAX), last: Last { leaf: 0, word: 0 } };

    #[inline(always)]
    fn is_of(&self, tree: Offset, word: u64) -> bool {
        self.tree == tree && upper(self.last.word) == upper(word)
    }
}

/// Returns the part of the key word that ascending keys share.
#[inline(always)]
fn upper(word: u64) -> u64 {
    word >> (u64::BITS / 2)
}

/// The entries of one worker, for all trees. A new entry may replace an old one.
#[derive(Debug)]
pub(crate) struct Lasts(Box<[Entry; 1 << BITS]>);

const BITS: u32 = 8;

impl Default for Lasts {
    fn default() -> Self {
        Self(Box::new([Entry::NOTHING; 1 << BITS]))
    }
}

impl Lasts {
    /// The number of bytes of the heap that it uses.
    pub(crate) const BYTES: usize = size_of::<[Entry; 1 << BITS]>();

    /// Returns the slot of an entry. The product separates consecutive upper halves.
    #[inline(always)]
    fn slot(tree: Offset, word: u64) -> usize {
        let mixed = (tree.word().rotate_left(u64::BITS / 2) ^ upper(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> (u64::BITS - BITS)) as usize
    }

    /// Returns where this key probably belongs.
    #[inline(always)]
    pub(crate) fn of(&self, tree: Offset, word: u64) -> Option<Last> {
        let entry = self.0[Self::slot(tree, word)];
        entry.is_of(tree, word).then_some(entry.last)
    }

    /// Stores the last insertion.
    #[inline(always)]
    pub(crate) fn set(&mut self, tree: Offset, last: Last) {
        self.0[Self::slot(tree, last.word)] = Entry { tree, last };
    }

    /// Stores the place of the next insertion. The last insertion with the same upper half stays
    /// known.
    #[inline(always)]
    pub(crate) fn expect(&mut self, tree: Offset, next: Last) {
        let entry = &mut self.0[Self::slot(tree, next.word)];
        let word = if entry.is_of(tree, next.word) { entry.last.word } else { next.word };
        *entry = Entry { tree, last: Last { word, ..next } };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREES: [Offset; 2] = [Offset::new(64), Offset::new(1 << 20)];

    #[test]
    fn keys_that_begin_alike_have_one_leaf_and_others_have_theirs() {
        let mut lasts = Lasts::default();
        let word = |column: u64, row: u64| column << 32 | row;
        for tree in TREES {
            assert_eq!(lasts.of(tree, 0), None);
            for column in 1..=10 {
                let last = Last { leaf: tree.word() + column, word: word(column, 7) };
                lasts.set(tree, last);
                assert_eq!(lasts.of(tree, word(column, 900)), Some(last));
            }
        }
        // Ten consecutive ones do not replace each other.
        for tree in TREES {
            let known = (1..=10).filter(|column| lasts.of(tree, word(*column, 8)).is_some());
            assert!(known.count() >= 9);
            assert_eq!(lasts.of(tree, word(11, 7)), None);
        }
    }

    #[test]
    fn what_is_expected_is_found_where_it_belongs_and_what_was_inserted_is_still_known() {
        let [tree, other] = TREES;
        let mut lasts = Lasts::default();
        let (known, next) = (Last { leaf: 8, word: 5 }, Last { leaf: 16, word: 70 });
        lasts.expect(tree, next);
        assert_eq!((lasts.of(tree, 71), lasts.of(other, 71)), (Some(next), None));
        lasts.set(tree, known);
        assert_eq!(lasts.of(tree, 71), Some(known));
        lasts.expect(tree, next);
        assert_eq!(lasts.of(tree, 71), Some(Last { leaf: 16, word: 5 }));
    }
}
