//! Where a worker inserts into trees, so that it need not search for the leaf each time.
//!
//! Keys often ascend: those of a tree, or those that have their first columns in common, of which
//! there may be many that take turns (the orders of several districts, the events of several
//! devices). So one leaf is remembered for each upper half of a key's word. Nothing depends on what
//! is remembered: a leaf says itself which keys belong there.

use drtm_rdma::Offset;

/// Where a worker has inserted last, or is about to: what comes next often belongs there too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Last {
    /// The leaf's place.
    pub(crate) leaf: u64,
    /// The word that was inserted, or is going to be.
    pub(crate) word: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    tree: Offset,
    last: Last,
}

impl Entry {
    /// No tree is there.
    const NOTHING: Self = Self { tree: Offset::new(u64::MAX), last: Last { leaf: 0, word: 0 } };

    #[inline(always)]
    fn is_of(&self, tree: Offset, word: u64) -> bool {
        self.tree == tree && upper(self.last.word) == upper(word)
    }
}

/// What the keys have in common that ascend together.
#[inline(always)]
fn upper(word: u64) -> u64 {
    word >> (u64::BITS / 2)
}

/// Those of one worker, in whichever trees. A later one may take the place of an earlier one.
#[derive(Debug)]
pub(crate) struct Lasts(Box<[Entry; 1 << BITS]>);

const BITS: u32 = 8;

impl Default for Lasts {
    fn default() -> Self {
        Self(Box::new([Entry::NOTHING; 1 << BITS]))
    }
}

impl Lasts {
    /// Bytes of the heap that it has.
    pub(crate) const BYTES: usize = size_of::<[Entry; 1 << BITS]>();

    /// Multiplied so that upper halves which follow one another are far apart.
    #[inline(always)]
    fn slot(tree: Offset, word: u64) -> usize {
        let mixed = (tree.word().rotate_left(u64::BITS / 2) ^ upper(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> (u64::BITS - BITS)) as usize
    }

    /// Where this key probably belongs.
    #[inline(always)]
    pub(crate) fn of(&self, tree: Offset, word: u64) -> Option<Last> {
        let entry = self.0[Self::slot(tree, word)];
        entry.is_of(tree, word).then_some(entry.last)
    }

    /// Remembers what was inserted last.
    #[inline(always)]
    pub(crate) fn set(&mut self, tree: Offset, last: Last) {
        self.0[Self::slot(tree, last.word)] = Entry { tree, last };
    }

    /// Remembers where a word is going to be inserted. What was inserted last of its like is still
    /// known then.
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
        // Ten that follow one another do not drive each other out.
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
