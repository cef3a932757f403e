//! Removing empty leaves from the tree.
//!
//! Nodes are not rebalanced: a node leaves the tree when it is empty. An empty leaf leaves together
//! with the inner nodes above it that have no other child: the *chain*. It hangs from the *fork*,
//! the lowest inner node on the path that has another child. The fork's child beside the chain, and
//! below that the nodes nearest to the chain, one for each level, are the *spine*.
//!
//! If the spine is to the left of the chain, each of its nodes takes over the range of the chain's
//! node on its level:
//!
//! ```text
//!           fork                          fork
//!          /    \                        /
//!         s      c         ->           s
//!       / | \     \                   / | \
//!      .  .  S     C                 .  .  S
//! ```
//!
//! If it is to the right, each of the chain's nodes takes over the entries of the spine's node on
//! its level. So no node further left must be found, since no link leads to the left. In both cases
//! the nodes on the right leave the tree, and the fork has one child less.
//!
//! As with splits, all nodes are locked as they were seen, or none, without waiting. The nodes that
//! leave can be reused at once: a reader that has an old place detects that its stamp has changed.

use drtm_htm::Engine;

use super::{
    PerLevel, Table,
    node::{Locked, Seen},
    search::Step,
};
use crate::{KvError, store::bounds::MODEL};

impl<E: Engine> Table<E> {
    /// Removes the leaf of this key from the tree, which has one layer, if it is empty.
    #[cold]
    pub(super) fn reclaim(&self, key: u64) -> Result<(), KvError> {
        until!(self.try_reclaim(self.top()?, key)?.then_some(()));
        until!(self.try_lower(self.top()?)?.then_some(()));
        Ok(())
    }

    /// Attempts to remove the leaf of this key, under this root, from the tree. Returns whether
    /// nothing is left to do.
    pub(super) fn try_reclaim(&self, root: Seen<'_, E>, key: u64) -> Result<bool, KvError> {
        let Some(path) = self.try_path(root, key)? else { return Ok(false) };
        let Some((leaf, inner)) = path.split_last() else { return Ok(true) };
        if leaf.seen.stamp.count() > 0 {
            return Ok(true);
        }
        // Without a fork, the tree is empty, and the root can take over the entries of the nodes
        // below it.
        let Some(fork) = inner.iter().rposition(|step| step.seen.stamp.count() > 1) else { return Ok(true) };
        let (fork, chain) = (&path[fork], &path[fork + 1..]);
        let leftward = fork.slot > 0;
        let Some(spine) = self.spine(fork, leftward, chain.len())? else { return Ok(false) };
        let Some(locked_fork) = fork.seen.try_lock() else { return Ok(false) };
        let Some(chain) = lock_all(chain.iter().map(|step| step.seen)) else { return Ok(false) };
        let Some(spine) = lock_all(spine) else { return Ok(false) };

        let (kept, gone) = if leftward { (spine, chain) } else { (chain, spine) };
        let counts: PerLevel<_> = kept.iter().zip(&gone).map(|(kept, gone)| merge(kept, gone, leftward)).collect();
        let count = locked_fork.count();
        locked_fork.node.remove(count, fork.slot + usize::from(!leftward));
        for (kept, count) in kept.into_iter().zip(counts) {
            kept.release(count);
        }
        locked_fork.release(count - 1);
        let gone: PerLevel<_> = gone.into_iter().map(Locked::retire).collect();
        self.pool.give(gone);
        if !MODEL {
            self.hints.make_room(self.base.keys()?, || self.region().allocated());
        }
        Ok(true)
    }

    /// Returns the nodes beside a chain of this length, from below the fork to the leaves. `None`:
    /// one of them is being changed.
    fn spine(
        &self,
        fork: &Step<'_, E>,
        leftward: bool,
        length: usize,
    ) -> Result<Option<PerLevel<Seen<'_, E>>>, KvError> {
        let mut spine = PerLevel::new();
        let Seen { node: mut above, stamp: mut above_stamp } = fork.seen;
        let mut slot = if leftward { fork.slot - 1 } else { fork.slot + 1 };
        while spine.len() < length {
            let next = above.link(slot);
            if !above.still(above_stamp) {
                return Ok(None);
            }
            let node = self.node(next)?;
            let stamp = node.stamp();
            if !stamp.is_readable() || stamp.level() + 1 != above_stamp.level() {
                return Ok(None);
            }
            slot = if leftward { stamp.count().saturating_sub(1) } else { 0 };
            spine.push(Seen { node, stamp });
            (above, above_stamp) = (node, stamp);
        }
        Ok(Some(spine))
    }

    /// Attempts to let a root take over the entries of its only child. Returns whether nothing is
    /// left to do.
    pub(super) fn try_lower(&self, root: Seen<'_, E>) -> Result<bool, KvError> {
        let (level, count) = (root.stamp.level(), root.stamp.count());
        let child = root.node.link(0);
        if !root.stamp.is_readable() || !root.node.still(root.stamp) {
            return Ok(false);
        }
        if level == 0 || count > 1 {
            return Ok(true);
        }
        let node = self.node(child)?;
        let child = Seen { node, stamp: node.stamp() };
        if !child.stamp.is_readable() {
            return Ok(false);
        }
        let Some(root) = root.try_lock() else { return Ok(false) };
        let Some(child) = child.try_lock() else { return Ok(false) };
        let count = child.count();
        root.node.copy(0, child.node, 0..count);
        let stamp = root.seen.changed(count).at_level(child.seen.level());
        root.release_as(stamp);
        self.pool.give([child.retire()]);
        // It may be possible to lower the root again.
        Ok(false)
    }
}

/// Locks all nodes or none.
pub(super) fn lock_all<'t, E: Engine>(nodes: impl IntoIterator<Item = Seen<'t, E>>) -> Option<PerLevel<Locked<'t, E>>> {
    nodes.into_iter().map(Seen::try_lock).collect()
}

/// Lets a node take over the range, and the remaining entries, of the node to its right. Returns
/// how many entries it has then.
fn merge<E: Engine>(kept: &Locked<'_, E>, gone: &Locked<'_, E>, leftward: bool) -> usize {
    kept.node.set_end(gone.node.high(), gone.node.right());
    if leftward {
        return kept.count();
    }
    // The chain's node keeps its only child, which takes over from the first child on the spine. A
    // leaf has nothing to keep.
    let first = kept.count();
    kept.node.copy(first, gone.node, first..gone.count());
    gone.count()
}
