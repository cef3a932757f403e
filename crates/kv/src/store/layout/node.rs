//! The tree's node: its words, and the stamp, which has the node's kind and detects changes.
//!
//! ```text
//! word 0      stamp
//!      1      low: the lowest key that belongs here
//!      2      high: the highest key that belongs here
//!      3      right: the place of the next node of this level, 0: none
//!      4..    keys, in order
//!      4+F..  links, one for each key; F is the fanout, 30
//! ```
//!
//! The stamp:
//!
//! ```text
//!  63                                          14 13      7 6      2     1      0
//! +----------------------------------------------+---------+--------+------+------+
//! | number (50)                                  | count   | level  | used | lock |
//! |                                              | (7)     | (5)    |      |      |
//! +----------------------------------------------+---------+--------+------+------+
//! ```
//!
//! | field | meaning |
//! |---|---|
//! | lock | a thread is changing the node |
//! | used | the node is part of the tree; not, in memory that is free, fresh memory's zeros included |
//! | level | how far it is from the leaves, which are level 0 |
//! | count | entries in it |
//! | number | grows with every change of its keys, fences or links, and over all uses of its memory; at ten million changes a second it would last three years |
//!
//! A leaf's link is a record's place and incarnation, as in a hash table's slot. In a tree of byte
//! strings it can also be the place of the next layer's root, which bit 40 says. An inner node's
//! link is the place of the child that has the keys from the entry's key on. The first entry's key
//! is the node's low key.

use super::{Field, PLACE_BITS, Place};
pub(crate) use crate::store::bounds::FANOUT;
use crate::store::bounds::MODEL;

/// The number of words before the keys.
pub(crate) const NODE_HEADER: usize = 4;

/// The number of words in a node.
pub(crate) const NODE_WORDS: usize = NODE_HEADER + 2 * FANOUT;

const _: () = assert!(MODEL || NODE_WORDS * 8 == 512);

const LOCK: Field = Field::new(0, 1);
const USED: Field = LOCK.then(1);
const LEVEL: Field = USED.then(5);
const COUNT: Field = LEVEL.then(7);
const NUMBER: Field = COUNT.then(50);

/// Lock, used and level, for checking all of them with one comparison.
const STATE: Field = Field::new(0, 7);

const _: () = assert!(LEVEL.max() << 2 | 0b11 == STATE.max());
const _: () = assert!(NUMBER.ends_word() && FANOUT as u64 <= COUNT.max() && FANOUT >= 2);

/// A node's first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(pub(crate) u64);

impl Stamp {
    /// Makes the stamp of a node's first use.
    pub(crate) const fn new(level: u8, count: usize) -> Self {
        Self(0).changed(count).at_level(level)
    }

    #[inline(always)]
    pub(crate) const fn is_locked(self) -> bool {
        LOCK.get(self.0) != 0
    }

    /// Returns whether the node is part of the tree, and not locked.
    #[inline(always)]
    pub(crate) const fn is_readable(self) -> bool {
        self.0 & 0b11 == 0b10
    }

    /// Returns whether the node is part of the tree on this level, and not locked.
    #[inline(always)]
    pub(crate) const fn is_readable_at(self, level: u8) -> bool {
        STATE.get(self.0) == LEVEL.set(USED.set(0, 1), level as u64)
    }

    #[inline(always)]
    pub(crate) const fn level(self) -> u8 {
        LEVEL.get(self.0) as u8
    }

    /// Returns the number of entries. It is at most the fanout, whatever the word is.
    #[inline(always)]
    pub(crate) const fn count(self) -> usize {
        let count = COUNT.get(self.0) as usize;
        if count < FANOUT { count } else { FANOUT }
    }

    pub(crate) const fn is_full(self) -> bool {
        self.count() == FANOUT
    }

    pub(crate) const fn locked(self) -> Self {
        Self(LOCK.set(self.0, 1))
    }

    pub(crate) const fn unlocked(self) -> Self {
        Self(LOCK.set(self.0, 0))
    }

    /// Returns the stamp after a change: with this many entries, in use, and not locked.
    pub(crate) const fn changed(self, count: usize) -> Self {
        let next = NUMBER.set(self.0, NUMBER.get(self.0) + 1);
        Self(USED.set(COUNT.set(next, count as u64), 1)).unlocked()
    }

    pub(crate) const fn at_level(self, level: u8) -> Self {
        Self(LEVEL.set(self.0, level as u64))
    }

    /// Returns the stamp after the node has left the tree.
    pub(crate) const fn retired(self) -> Self {
        Self(USED.set(self.changed(0).0, 0))
    }
}

/// A bit of a leaf's link that a record's place and incarnation do not use: whether the link leads
/// to a layer.
const LAYER: Field = Field::new(PLACE_BITS, 1);

/// What a leaf's link leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Record(Place),
    /// The root of the next layer, for keys that have all slices so far in common.
    Layer(u64),
}

impl Target {
    #[inline(always)]
    pub(crate) const fn of(link: u64) -> Self {
        let place = Place::from_link(link);
        if LAYER.get(link) == 0 { Self::Record(place) } else { Self::Layer(place.word) }
    }

    pub(crate) const fn to_link(self) -> u64 {
        match self {
            Self::Record(place) => place.to_link(),
            Self::Layer(word) => LAYER.set(Place { word, incarnation: 0 }.to_link(), 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_tells_records_and_layers_apart() {
        let record = Target::Record(Place { word: Place::MAX_WORD, incarnation: 0x3FFF });
        for target in [record, Target::Layer(Place::MAX_WORD), Target::Layer(1)] {
            assert_eq!(Target::of(target.to_link()), target);
        }
    }

    #[test]
    fn every_change_gives_another_stamp() {
        let stamp = Stamp::new(3, 7);
        assert_eq!((stamp.level(), stamp.count(), stamp.is_readable()), (3, 7, true));
        let changed = stamp.locked().changed(7);
        assert!(changed != stamp && changed.is_readable());
        assert_eq!((changed.level(), changed.count()), (3, 7));
        let retired = changed.locked().retired();
        assert!(!retired.is_readable() && !retired.is_locked());
        let again = retired.locked().changed(7).at_level(3);
        assert!(again.is_readable() && again != changed && again != stamp);
    }

    #[test]
    fn a_locked_stamp_is_the_same_but_for_the_lock() {
        let stamp = Stamp::new(0, FANOUT);
        assert!(stamp.is_full() && stamp.locked().is_locked() && !stamp.locked().is_readable());
        assert!(stamp.is_readable_at(0) && !stamp.is_readable_at(1) && !stamp.locked().is_readable_at(0));
        assert_eq!(stamp.locked().unlocked(), stamp);
    }

    #[test]
    fn zeros_are_no_node_and_garbage_counts_no_more_than_there_is() {
        assert!(!Stamp(0).is_readable());
        assert_eq!(Stamp(u64::MAX).count(), FANOUT);
    }
}
