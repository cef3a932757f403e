//! One node: the meaning of its words, and how they are changed.
//!
//! A reader loads the stamp, then what it needs, then the stamp again. What it read is valid only
//! if the stamp is unchanged. A writer locks a node by a CAS from the stamp that it has seen to a
//! locked one. So everything that it has read still holds. It does not lock a node that no thread
//! knows yet. Keys and links are stored relaxed. The fence after locking, and the release store of
//! the next stamp, order them.

use drtm_htm::{Engine, LINE_WORDS, Word, fence_acquire, fence_release, prefetch};
use drtm_rdma::Offset;

use super::{LeafChange, NodeVersion, Table};
use crate::{
    KvError,
    mutation::{self, Mutation},
    store::layout::{FANOUT, NODE_HEADER, NODE_WORDS, Stamp},
};

pub(super) const STAMP: usize = 0;
pub(super) const LOW: usize = 1;
pub(super) const HIGH: usize = 2;
const RIGHT: usize = 3;
const KEYS: usize = NODE_HEADER;
const LINKS: usize = KEYS + FANOUT;

/// The number of keys in a search window, of which the last is compared first: as many as share a
/// cache line.
const WINDOW: usize = LINE_WORDS;

pub(super) type Words = [Word; NODE_WORDS];

/// A node's memory.
#[derive(Debug)]
pub(super) struct Node<'t, E: Engine> {
    engine: &'t E,
    words: &'t Words,
    /// The offset in words from the region's beginning.
    pub(super) place: u64,
}

impl<E: Engine> Clone for Node<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Engine> Copy for Node<'_, E> {}

impl<'t, E: Engine> Node<'t, E> {
    #[inline(always)]
    pub(super) fn new(engine: &'t E, words: &'t Words, place: u64) -> Self {
        Self { engine, words, place }
    }

    #[inline(always)]
    pub(super) fn stamp(self) -> Stamp {
        Stamp(self.engine.load(&self.words[STAMP]))
    }

    /// Returns whether what was read since the node had this stamp is valid.
    #[inline(always)]
    pub(super) fn still(self, stamp: Stamp) -> bool {
        fence_acquire();
        self.engine.load_relaxed(&self.words[STAMP]) == stamp.0 || mutation::includes(Mutation::NodeWithoutStamp)
    }

    /// Returns the lowest key that belongs to the node.
    #[inline(always)]
    pub(super) fn low(self) -> u64 {
        self.engine.load_relaxed(&self.words[LOW])
    }

    /// Returns the highest key that belongs to the node.
    #[inline(always)]
    pub(super) fn high(self) -> u64 {
        self.engine.load_relaxed(&self.words[HIGH])
    }

    /// Returns the next node of this level, or zero.
    #[inline(always)]
    pub(super) fn right(self) -> u64 {
        self.engine.load_relaxed(&self.words[RIGHT])
    }

    #[inline(always)]
    pub(super) fn key(self, slot: usize) -> u64 {
        self.engine.load_relaxed(&self.words[KEYS + slot])
    }

    #[inline(always)]
    pub(super) fn link(self, slot: usize) -> u64 {
        self.engine.load_relaxed(&self.words[LINKS + slot])
    }

    /// Returns a key and its link. The slot wraps, so that loops over slots have no bounds check.
    #[inline(always)]
    pub(super) fn entry(self, slot: usize) -> (u64, u64) {
        let load = |first: usize| self.engine.load_relaxed(&self.words[(first + slot) % NODE_WORDS]);
        (load(KEYS), load(LINKS))
    }

    /// Returns the link at a slot, for a prefetch. The slot may be out of range: the link is
    /// arbitrary then.
    #[inline(always)]
    pub(super) fn link_or_nonsense(self, slot: usize) -> u64 {
        self.engine.load_relaxed(&self.words[LINKS.wrapping_add(slot) % NODE_WORDS])
    }

    /// Prefetches all of the node's memory at once, so that a search need not wait for one cache
    /// line after the other.
    #[inline(always)]
    pub(super) fn prefetch(self) {
        self.words.as_chunks::<LINE_WORDS>().0.iter().for_each(|line| prefetch(&line[0]));
    }

    /// Prefetches the stamp and the link of this slot.
    #[inline(always)]
    pub(super) fn prefetch_link(self, slot: usize) {
        prefetch(&self.words[STAMP]);
        prefetch(&self.words[LINKS + slot.min(FANOUT - 1)]);
    }

    /// Returns how many of the first `count` keys are below this one.
    #[inline(always)]
    pub(super) fn below(self, count: usize, key: u64) -> usize {
        self.leading(count, |other| other < key)
    }

    /// Returns how many of the first `count` keys are at most this one.
    #[inline(always)]
    pub(super) fn up_to(self, count: usize, key: u64) -> usize {
        self.leading(count, |other| other <= key)
    }

    /// Returns the slot of the child that this key belongs to.
    #[inline(always)]
    pub(super) fn child(self, count: usize, key: u64) -> usize {
        // The first key is the node's lowest, so at least one is not above `key`, unless the node
        // is being changed.
        self.up_to(count, key).saturating_sub(1)
    }

    /// Returns how many of the first `count` keys satisfy `before`, which holds up to some slot.
    ///
    /// It has no branches, since they could not be predicted. Each of its three steps loads several
    /// keys that do not wait for each other. They are at the ends of the windows, at the ends of
    /// the pairs of one window, and in one pair. A binary search would take five steps.
    #[inline(always)]
    fn leading(self, count: usize, before: impl Fn(u64) -> bool) -> usize {
        let is_before = |slot| usize::from(before(self.key(slot)));
        if count < WINDOW {
            return (0..count).map(is_before).sum();
        }
        let windows: usize = (1..=FANOUT / WINDOW).map(|end| is_before((end * WINDOW).min(count) - 1)).sum();
        // The last window ends with the last key, and so overlaps with the previous one.
        let window = (windows * WINDOW).min(count - WINDOW);
        let pair = window + 2 * (1..WINDOW / 2).map(|end| is_before(window + 2 * end - 1)).sum::<usize>();
        pair + is_before(pair) + is_before(pair + 1)
    }

    pub(super) fn set_low(self, low: u64) {
        self.engine.store_relaxed(&self.words[LOW], low);
    }

    /// Sets the end of the range, and the next node of this level, where the range continues.
    pub(super) fn set_end(self, high: u64, right: u64) {
        self.engine.store_relaxed(&self.words[HIGH], high);
        self.engine.store_relaxed(&self.words[RIGHT], right);
    }

    /// Sets the link of a leaf's entry, without a new stamp: readers may follow the link at once.
    pub(super) fn point(self, slot: usize, link: u64) {
        self.engine.store(&self.words[LINKS + slot], link);
    }

    pub(super) fn set(self, slot: usize, key: u64, link: u64) {
        self.engine.store_relaxed(&self.words[KEYS + slot], key);
        self.engine.store_relaxed(&self.words[LINKS + slot], link);
    }

    /// Inserts an entry among the first `count`, and shifts those behind it.
    pub(super) fn insert(self, count: usize, slot: usize, key: u64, link: u64) {
        for from in (slot..count).rev() {
            self.set(from + 1, self.key(from), self.link(from));
        }
        self.set(slot, key, link);
    }

    /// Removes an entry among the first `count`, and closes the gap.
    pub(super) fn remove(self, count: usize, slot: usize) {
        for from in slot + 1..count {
            self.set(from - 1, self.key(from), self.link(from));
        }
    }

    /// Copies another node's entries in these slots to the slots from `slot` on.
    pub(super) fn copy(self, slot: usize, from: Self, slots: std::ops::Range<usize>) {
        for (to, slot) in (slot..).zip(slots) {
            self.set(to, from.key(slot), from.link(slot));
        }
    }

    /// Publishes a changed or filled node with this stamp. Returns its version.
    pub(super) fn publish(self, stamp: Stamp) -> NodeVersion {
        self.engine.store(&self.words[STAMP], stamp.0);
        NodeVersion::new(self.place, stamp)
    }
}

/// A node that is being filled. It is locked, and only a stale link leads to it.
pub(super) struct Blank<'t, E: Engine> {
    pub(super) node: Node<'t, E>,
    /// The stamp of its memory's last use.
    last: Stamp,
}

impl<'t, E: Engine> Blank<'t, E> {
    /// Locks a node to which no valid link leads any more.
    pub(super) fn of(node: Node<'t, E>) -> Self {
        // An atomic exchange reads the last stamp, whichever thread wrote it. Readers that still
        // have the node's place detect the lock.
        let last = Stamp(node.engine.fetch_or(&node.words[STAMP], Stamp(0).locked().0));
        fence_release();
        Self { node, last }
    }

    /// Makes it a node of the tree. Returns its version.
    pub(super) fn publish(&self, level: u8, count: usize) -> NodeVersion {
        self.node.publish(self.last.changed(count).at_level(level))
    }

    /// Unlocks a node that was not needed. Returns its place.
    pub(super) fn retire(self) -> u64 {
        self.node.publish(self.last.retired());
        self.node.place
    }
}

impl<E: Engine> Table<E> {
    /// Takes a node to fill.
    pub(super) fn blank(&self) -> Result<Blank<'_, E>, KvError> {
        Ok(Blank::of(self.node(self.pool.take(&self.base.store)?)?))
    }
}

/// A node as it was seen, with the stamp that validates everything read from it.
#[derive(Debug)]
pub(super) struct Seen<'t, E: Engine> {
    pub(super) node: Node<'t, E>,
    pub(super) stamp: Stamp,
}

impl<E: Engine> Clone for Seen<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Engine> Copy for Seen<'_, E> {}

impl<'t, E: Engine> Seen<'t, E> {
    /// Makes an error about this node.
    pub(super) fn inconsistent(self, what: &'static str) -> KvError {
        KvError::Inconsistent { at: Offset::new(8 * self.node.place), what }
    }

    /// Locks the node if its stamp is unchanged. The links of a leaf may have changed: to where
    /// updates have moved its records.
    pub(super) fn try_lock(self) -> Option<Locked<'t, E>> {
        let Node { engine, words, .. } = self.node;
        let seen = if mutation::includes(Mutation::LockWithoutStamp) { self.node.stamp() } else { self.stamp };
        if seen.is_locked() {
            return None;
        }
        engine.compare_exchange(&words[STAMP], seen.0, seen.locked().0).ok()?;
        fence_release();
        Some(Locked { node: self.node, seen })
    }
}

/// A node that was seen, without a borrow of the tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    place: u64,
    stamp: Stamp,
}

impl Known {
    /// No node.
    pub(super) const NOTHING: Self = Self { place: 0, stamp: Stamp(0) };

    pub(super) fn is_there(self) -> bool {
        self.place != 0
    }

    #[inline(always)]
    pub(super) fn of<E: Engine>(seen: Seen<'_, E>) -> Self {
        Self { place: seen.node.place, stamp: seen.stamp }
    }

    #[inline(always)]
    pub(super) fn seen<E: Engine>(self, table: &Table<E>) -> Result<Seen<'_, E>, KvError> {
        Ok(Seen { node: table.node(self.place)?, stamp: self.stamp })
    }
}

/// A node whose lock is held. Dropping it unlocks the node with its old stamp. Only links of a leaf
/// may have been changed then.
#[derive(Debug)]
pub(super) struct Locked<'t, E: Engine> {
    pub(super) node: Node<'t, E>,
    pub(super) seen: Stamp,
}

impl<E: Engine> Locked<'_, E> {
    /// Returns the number of entries before the change.
    pub(super) fn count(&self) -> usize {
        self.seen.count()
    }

    /// Returns the version before the change.
    pub(super) fn before(&self) -> NodeVersion {
        NodeVersion::new(self.node.place, self.seen)
    }

    /// Unlocks the node as one that has changed and has this many entries.
    pub(super) fn release(self, count: usize) -> LeafChange {
        let (before, stamp) = (self.before(), self.seen.changed(count));
        LeafChange { before, after: self.release_as(stamp), split_off: None }
    }

    /// Unlocks the node with this stamp. Returns its version.
    pub(super) fn release_as(self, stamp: Stamp) -> NodeVersion {
        let after = self.node.publish(stamp);
        std::mem::forget(self);
        after
    }

    /// Unlocks the node as one that has left the tree. Returns its place.
    pub(super) fn retire(self) -> u64 {
        let stays = mutation::includes(Mutation::LeaveWithoutStamp);
        let (place, stamp) = (self.node.place, if stays { self.seen } else { self.seen.retired() });
        self.release_as(stamp);
        place
    }
}

impl<E: Engine> Drop for Locked<'_, E> {
    fn drop(&mut self) {
        self.node.publish(self.seen);
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use drtm_htm::NoHtm;

    use super::*;

    #[test]
    fn a_search_counts_the_keys_below() {
        let words: Words = std::array::from_fn(|_| Word::new(0));
        let node = Node::new(&NoHtm, &words, 1);
        for count in 0..=FANOUT {
            for slot in 0..count {
                node.set(slot, 10 * (slot as u64 + 1), 0);
            }
            for key in 0..10 * (count as u64 + 2) {
                let below = (0..count).filter(|slot| node.key(*slot) < key).count();
                assert_eq!(node.below(count, key), below, "{key} among {count}");
            }
            assert_eq!(node.child(count, u64::MAX), count.saturating_sub(1));
        }
    }

    #[test]
    fn inserted_and_removed_entries_leave_the_others_in_order() {
        let words: Words = std::array::from_fn(|_| Word::new(0));
        let node = Node::new(&NoHtm, &words, 1);
        for (count, key) in [5_u64, 1, 3, 9, 7].into_iter().enumerate() {
            node.insert(count, node.below(count, key), key, 100 + key);
        }
        node.remove(5, 2);
        let entries: Vec<_> = (0..4).map(|slot| (node.key(slot), node.link(slot))).collect();
        assert_eq!(entries, [(1, 101), (3, 103), (7, 107), (9, 109)]);
    }
}
