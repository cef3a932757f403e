//! Inserting into a leaf that is full: it is divided, and so are those above it that are full too.
//!
//! The new nodes are allocated first. Then the nodes that will change are locked, from the leaf up to the first with room. Nobody waits for a lock
//! while holding one: if a node has changed since the way down, all is unlocked as it was and the insertion begins again. With all
//! locks held nothing can fail any more. Whoever locks nodes therefore always finds a proper tree.
//!
//! A root stays where it is: when it is full, its entries move to two new nodes below it.

use drtm_htm::Engine;

use super::{
    LeafChange, NodeVersion, Table,
    change::Put,
    node::{Locked, Node, Seen},
};
use crate::{
    KvError, Version,
    layout::{FANOUT, Place, Stamp},
};

/// A node that is being filled, with the stamp of its memory's last use.
type Blank<'t, E> = (Node<'t, E>, Stamp);

impl<E: Engine> Table<E> {
    /// Puts a record into the leaf where its key was not found, under this root, dividing what has no room.
    #[cold]
    #[inline(never)]
    pub(super) fn put_dividing(
        &self,
        (root, word): (Seen<'_, E>, u64),
        place: Place,
        version: Version,
        note: &mut impl FnMut(LeafChange),
    ) -> Result<Put, KvError> {
        let Some(path) = self.try_path(root, word)? else { return Ok(Put::Retry) };
        let full = path.iter().rev().take_while(|step| step.seen.stamp.is_full()).count();
        if full == 0 {
            return Ok(Put::Retry);
        }
        let grows = full == path.len();
        let mut places = self.pool.take(self.region(), full + usize::from(grows))?;
        // The last of them has room, unless it is the root and the tree grows.
        let locks: Option<Vec<_>> = path.iter().rev().take(full + 1).map(|step| step.seen.try_lock()).collect();
        let put = match locks {
            None => Ok(Put::Retry),
            Some(locks) => self.divide_path(locks, &mut places, (root.node.place, word), (place, version), note),
        };
        self.pool.give(places);
        put
    }

    /// Inserts into locked nodes, given from the leaf up. Uses the places up if it does.
    fn divide_path(
        &self,
        locks: Vec<Locked<'_, E>>,
        places: &mut Vec<u64>,
        (root, key): (u64, u64),
        (place, version): (Place, Version),
        note: &mut impl FnMut(LeafChange),
    ) -> Result<Put, KvError> {
        let leaf = &locks[0];
        let slot = leaf.node.below(leaf.count(), key);
        if slot < leaf.count() && leaf.node.key(slot) == key {
            return Ok(Put::Retry);
        }
        if let Some(floor) = self.floor_above(version)? {
            return Ok(Put::Below(floor));
        }
        let nodes: Vec<_> = places.iter().map(|place| self.node(*place)).collect::<Result<_, _>>()?;
        places.clear();
        let mut blanks = nodes.into_iter().map(|node| (node, node.claim()));
        let mut entry = (key, place.to_link());
        let mut counts = Vec::with_capacity(locks.len());
        // The two leaves that there will be for the one. It comes first, and is full.
        let (before, mut lower, mut upper) = (leaf.before(), None, None);
        for locked in &locks {
            counts.push(match (locked.seen.is_full(), blanks.next()) {
                (true, Some(right)) if locked.node.place != root => {
                    let (left, separator, published) = divide(locked.node, locked.seen.level(), &right, entry);
                    entry = (separator, right.0.place);
                    upper = upper.or(Some(published));
                    left
                }
                (true, Some(left)) => {
                    // The root. There is one node more for it.
                    if let Some(right) = blanks.next() {
                        let (left, right) = grow(locked, &left, &right, entry);
                        if locked.seen.level() == 0 {
                            (lower, upper) = (Some(left), Some(right));
                        }
                    }
                    2
                }
                _ => {
                    let count = locked.count();
                    locked.node.insert(count, locked.node.below(count, entry.0), entry.0, entry.1);
                    count + 1
                }
            });
        }
        for (locked, count) in locks.into_iter().zip(counts) {
            let level = if locked.seen.is_full() && locked.node.place == root { 1 } else { 0 };
            let stamp = locked.seen.changed(count).at_level(locked.seen.level() + level);
            lower = lower.or(Some(locked.release_as(stamp)));
        }
        note(LeafChange { before, after: lower.unwrap_or(before), split_off: upper });
        Ok(Put::Done)
    }
}

/// Divides a full node, with one entry more, between itself and a new node to its right. Gives how many entries it keeps, and the key at which the other
/// begins, and what the new node is.
///
/// In the middle; but an entry that is added at the end begins the new node alone, so that ascending keys leave full nodes behind.
fn divide<E: Engine>(
    node: Node<'_, E>,
    level: u8,
    right: &Blank<'_, E>,
    (key, link): (u64, u64),
) -> (usize, u64, NodeVersion) {
    let (right, last) = *right;
    let slot = node.below(FANOUT, key);
    let kept = if slot == FANOUT { FANOUT } else { FANOUT / 2 };
    let moved = FANOUT - kept;
    right.copy(0, node, kept..FANOUT);
    let (left_count, right_count) = if slot <= kept && moved > 0 {
        node.insert(kept, slot, key, link);
        (kept + 1, moved)
    } else {
        right.insert(moved, slot - kept, key, link);
        (kept, moved + 1)
    };
    let separator = right.key(0);
    right.set_low(separator);
    right.set_high(node.high());
    right.set_right(node.right());
    let published = right.publish(last.changed(right_count).at_level(level));
    node.set_high(separator - 1);
    node.set_right(right.place);
    (left_count, separator, published)
}

/// Moves a full root's entries, and one more, to two new nodes below it. Gives what these are.
fn grow<E: Engine>(
    root: &Locked<'_, E>,
    left: &Blank<'_, E>,
    right: &Blank<'_, E>,
    entry: (u64, u64),
) -> (NodeVersion, NodeVersion) {
    let ((node, last), level) = (*left, root.seen.level());
    node.copy(0, root.node, 0..FANOUT);
    node.set_low(root.node.low());
    node.set_high(root.node.high());
    node.set_right(0);
    let (count, separator, upper) = divide(node, level, right, entry);
    let lower = node.publish(last.changed(count).at_level(level));
    root.node.set(0, root.node.low(), node.place);
    root.node.set(1, separator, right.0.place);
    (lower, upper)
}
