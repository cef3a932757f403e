//! Inserting into a full leaf: it is split, and so are the nodes above it that are full too.
//!
//! The nodes that will change are locked as they were seen, from the leaf up to the first with
//! room. A new node is taken for each full one. A thread never waits for a lock while it holds one.
//! If a node has changed since the descent, all nodes are unlocked unchanged, and the insertion
//! starts again. With all locks held, nothing can fail any more. The uppermost node is changed
//! first, so that the link to a new node exists before anything has moved. Until then the new node
//! is locked, and a reader that reaches it retries. So a thread that locks nodes always finds a
//! consistent tree.
//!
//! A root never moves: when it is full, its entries move to two new nodes below it.

use drtm_htm::Engine;

use super::{
    LeafChange, NodeVersion, Table,
    insert_point::{InsertPoint, Put},
    node::{Locked, Node, Seen},
};
use crate::{
    KvError, Version,
    record::Record,
    store::layout::{FANOUT, Place},
};

/// A key and its link.
type Entry = (u64, u64);

/// The two nodes that replace one.
struct Divided {
    left: NodeVersion,
    right: NodeVersion,
    /// Whether the new entry is in the left node.
    is_left: bool,
}

impl<E: Engine> Table<E> {
    /// Puts a record into the full leaf in which its key was not found. `before` is the key that
    /// the same worker has inserted last.
    #[cold]
    #[inline(never)]
    pub(super) fn put_dividing(
        &self,
        point: &InsertPoint<'_, E>,
        before: Option<u64>,
        (place, version): (Place, Version),
        note: &mut impl FnMut(LeafChange),
    ) -> Result<Put, KvError> {
        let Some(leaf) = point.leaf.try_lock() else { return Ok(Put::Retry) };
        if let Some(floor) = self.base.floor_above(version)? {
            return Ok(Put::Below(floor));
        }
        let (was, record) = (leaf.before(), Record::at(self.region(), place)?);
        Ok(match self.divide(point.root, leaf, (point.word, place.to_link()), before)? {
            Some(Divided { left, right, is_left }) => {
                // Unlocked only now, since the split can fail. Until here others wait for the
                // record.
                record.unlock();
                note(LeafChange { before: was, after: left, split_off: Some(right) });
                Put::Done(if is_left { left } else { right }.at.word())
            }
            None => Put::Retry,
        })
    }

    /// Splits a full node under this root, and adds an entry. `None`: a node above has changed, and
    /// nothing has been done.
    #[inline(never)]
    fn divide<'t>(
        &'t self,
        root: Seen<'t, E>,
        full: Locked<'t, E>,
        entry: Entry,
        before: Option<u64>,
    ) -> Result<Option<Divided>, KvError> {
        if full.node.place == root.node.place {
            return self.grow(full, entry, before).map(Some);
        }
        let level = full.seen.level();
        let cut = Cut::of(full.node, entry.0, before);
        let right = self.blank()?;
        let separator = cut.separator(full.node, entry);
        match self.put_above(root, level + 1, (separator, right.node.place)) {
            Ok(true) => {
                let (left_count, right_count) = cut.apply(full.node, right.node, entry);
                let right = right.publish(level, right_count);
                let left = full.seen.changed(left_count);
                Ok(Some(Divided { left: full.release_as(left), right, is_left: cut.stays }))
            }
            failed => {
                self.pool.give([right.retire()]);
                failed.map(|_| None)
            }
        }
    }

    /// Puts an entry into its node on this level. Returns whether that was possible.
    #[inline(never)]
    fn put_above(&self, root: Seen<'_, E>, level: u8, entry: Entry) -> Result<bool, KvError> {
        let Some(node) = self.try_node(root, entry.0, level)? else { return Ok(false) };
        let Some(locked) = node.try_lock() else { return Ok(false) };
        if locked.seen.is_full() {
            return Ok(self.divide(root, locked, entry, None)?.is_some());
        }
        let count = locked.count();
        locked.node.insert(count, locked.node.below(count, entry.0), entry.0, entry.1);
        locked.release(count + 1);
        Ok(true)
    }

    /// Moves a full root's entries, and one more, to two new nodes below it.
    #[inline(never)]
    fn grow(&self, root: Locked<'_, E>, entry: Entry, before: Option<u64>) -> Result<Divided, KvError> {
        let level = root.seen.level();
        let left = self.blank()?;
        let right = match self.blank() {
            Ok(right) => right,
            Err(error) => {
                self.pool.give([left.retire()]);
                return Err(error);
            }
        };
        let (low, place) = (root.node.low(), left.node.place);
        left.node.copy(0, root.node, 0..FANOUT);
        left.node.set_low(low);
        left.node.set_end(root.node.high(), 0);
        let cut = Cut::of(left.node, entry.0, before);
        let separator = cut.separator(left.node, entry);
        let (left_count, right_count) = cut.apply(left.node, right.node, entry);
        root.node.set(0, low, place);
        root.node.set(1, separator, right.node.place);
        let (left, right) = (left.publish(level, left_count), right.publish(level, right_count));
        let stamp = root.seen.changed(2).at_level(level + 1);
        root.release_as(stamp);
        Ok(Divided { left, right, is_left: cut.stays })
    }
}

/// Where a full node is split that gets one more entry.
///
/// It is split in the middle. But an entry that is added at the end begins the new node alone, so
/// that ascending keys leave full nodes behind. Keys that seem to ascend between others are treated
/// in the same way. The keys behind them move, and the next ones are added at the end.
struct Cut {
    /// How many entries stay, without the new one.
    kept: usize,
    /// The slot of the new entry, among all.
    slot: usize,
    /// Whether the new entry stays.
    stays: bool,
}

impl Cut {
    fn of<E: Engine>(node: Node<'_, E>, key: u64, before: Option<u64>) -> Self {
        let slot = node.below(FANOUT, key);
        if slot == FANOUT {
            return Self { kept: FANOUT, slot, stays: false };
        }
        if slot > 0 && before == Some(node.key(slot - 1)) {
            return Self { kept: slot, slot, stays: true };
        }
        Self { kept: FANOUT / 2, slot, stays: slot <= FANOUT / 2 }
    }

    /// Returns the lowest key that belongs to the new node.
    fn separator<E: Engine>(&self, node: Node<'_, E>, (key, _): Entry) -> u64 {
        if !self.stays && self.slot == self.kept { key } else { node.key(self.kept) }
    }

    /// Moves the upper entries to a new node to the right, and adds the new entry. Returns how many
    /// entries the two nodes have.
    fn apply<E: Engine>(&self, node: Node<'_, E>, right: Node<'_, E>, entry: Entry) -> (usize, usize) {
        let &Self { kept, slot, stays } = self;
        let (separator, moved) = (self.separator(node, entry), FANOUT - kept);
        right.copy(0, node, kept..FANOUT);
        if stays {
            node.insert(kept, slot, entry.0, entry.1);
        } else {
            right.insert(moved, slot - kept, entry.0, entry.1);
        }
        right.set_low(separator);
        right.set_end(node.high(), node.right());
        node.set_end(separator - 1, right.place);
        if stays { (kept + 1, moved) } else { (kept, moved + 1) }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use drtm_htm::{NoHtm, Word};

    use super::*;
    use crate::tree::node::Words;

    #[test]
    fn a_node_is_divided_so_that_all_keys_stay_in_order_and_where_they_belong() {
        let keys = |node: Node<'_, NoHtm>, count: usize| (0..count).map(|slot| node.key(slot)).collect::<Vec<_>>();
        for key in (5..=10 * FANOUT as u64 + 5).step_by(10) {
            // The key below it is the one that was inserted last, or another is.
            for before in [key.checked_sub(5), Some(key + 5), None] {
                let [left, right]: [Words; 2] = std::array::from_fn(|_| std::array::from_fn(|_| Word::new(0)));
                let (left, right) = (Node::new(&NoHtm, &left, 1), Node::new(&NoHtm, &right, 2));
                (0..FANOUT).for_each(|slot| left.set(slot, 10 * slot as u64, 7 + 10 * slot as u64));
                left.set_end(1_000, 3);
                let cut = Cut::of(left, key, before);
                let separator = cut.separator(left, (key, 7 + key));
                let (left_count, right_count) = cut.apply(left, right, (key, 7 + key));
                let all = [keys(left, left_count), keys(right, right_count)].concat();
                assert!(all.len() == FANOUT + 1 && all.is_sorted() && all.contains(&key), "{key}, {before:?}: {all:?}");
                assert!(left_count.min(right_count) > 0 && left_count.max(right_count) <= FANOUT);
                assert!(keys(left, left_count).iter().all(|key| *key < separator));
                assert_eq!((right.key(0), right.low(), right.high(), right.right()), (separator, separator, 1_000, 3));
                assert_eq!((left.high(), left.right()), (separator - 1, 2));
                let (node, slot) = if key < separator {
                    (left, left.below(left_count, key))
                } else {
                    (right, right.below(right_count, key))
                };
                assert_eq!(node.entry(slot), (key, 7 + key));
            }
        }
    }
}
