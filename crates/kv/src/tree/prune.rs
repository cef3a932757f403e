//! Removing the empty nodes and layers on the path of a key from a tree of byte strings.
//!
//! Within a layer, this is done as in a tree of integers (see `reclaim`). In addition, a layer
//! whose root is an empty leaf leaves, with the entry that leads to it. If that was the only entry
//! of the layer above, that layer leaves as well, and so on: all of them at once. A layer with one
//! key stays.
//!
//! As always, all affected nodes are locked as they were seen, or none. They are the leaf that has
//! the entry, and the roots of the layers that leave. A reader that still has the place of such a
//! root detects that its stamp has changed, and starts again at the top.

use drtm_htm::Engine;
use smallvec::smallvec;

use super::{PerLevel, Table, insert_point::InsertPoint, node::Locked, reclaim::lock_all};
use crate::KvError;

impl<E: Engine> Table<E> {
    #[cold]
    pub(super) fn prune(&self, key: &[u8]) -> Result<(), KvError> {
        until!(self.try_prune(key)?.then_some(()));
        Ok(())
    }

    /// Takes one step. Returns whether nothing is left to do.
    fn try_prune(&self, key: &[u8]) -> Result<bool, KvError> {
        let mut above = PerLevel::new();
        let Some(last) = self.try_way(key, |point| above.push(point))? else { return Ok(false) };
        if last.root.stamp.level() > 0 && last.root.stamp.count() == 1 {
            self.try_lower(last.root)?;
        } else if last.leaf.stamp.count() > 0 {
            return Ok(true);
        } else if !is_one_leaf(&last) {
            self.try_reclaim(last.root, last.word)?;
        } else if above.is_empty() {
            return Ok(true);
        } else {
            self.try_drop_layers(last, above);
        }
        Ok(false)
    }

    /// Removes a layer that is an empty leaf, given the points where the path enters the layers.
    fn try_drop_layers(&self, empty: InsertPoint<'_, E>, mut above: PerLevel<InsertPoint<'_, E>>) {
        let mut gone: PerLevel<_> = smallvec![empty.leaf];
        while let Some(point) = above.pop() {
            if !above.is_empty() && is_one_leaf(&point) && point.leaf.stamp.count() == 1 {
                gone.push(point.leaf);
                continue;
            }
            let Some(kept) = point.leaf.try_lock() else { return };
            let Some(gone) = lock_all(gone) else { return };
            let count = kept.count();
            kept.node.remove(count, point.slot);
            kept.release(count - 1);
            let gone: PerLevel<_> = gone.into_iter().map(Locked::retire).collect();
            self.pool.give(gone);
            return;
        }
    }
}

/// Returns whether a layer's root is its only node.
fn is_one_leaf<E: Engine>(point: &InsertPoint<'_, E>) -> bool {
    point.leaf.node.place == point.root.node.place
}
