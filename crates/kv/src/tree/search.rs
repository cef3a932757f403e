//! Finding the leaf for a key.

use drtm_htm::{Engine, Waiter};
use drtm_rdma::Offset;

use super::{
    Table,
    node::{Node, Seen},
};
use crate::{
    KvError,
    layout::Place,
    record::{Look, Record},
};

/// The highest level whose nodes are asked for ahead: leaves are level 0.
const PREFETCHED_LEVELS: u8 = 1;

/// Where a key is in its leaf, or would be: as of the leaf's stamp.
#[derive(Debug)]
pub(super) struct Spot<'t, E: Engine> {
    pub(super) leaf: Seen<'t, E>,
    pub(super) slot: usize,
    /// The key's record, if the key is there.
    pub(super) record: Option<Place>,
}

/// A node on the way from the root to a leaf, and the slot of the child that is next.
#[derive(Debug)]
pub(super) struct Step<'t, E: Engine> {
    pub(super) seen: Seen<'t, E>,
    pub(super) slot: usize,
}

impl<E: Engine> Table<E> {
    #[inline(always)]
    pub(super) fn node(&self, place: u64) -> Result<Node<'_, E>, KvError> {
        Ok(Node::new(self.engine(), self.region().array(Offset::new(8 * place))?, place))
    }

    #[inline(always)]
    pub(super) fn root(&self) -> Result<Node<'_, E>, KvError> {
        self.node(self.root)
    }

    /// The root, as it is now.
    #[inline(always)]
    pub(super) fn top(&self) -> Result<Seen<'_, E>, KvError> {
        let node = self.root()?;
        Ok(Seen { node, stamp: node.stamp() })
    }

    /// The leaf that a key belongs to.
    #[inline(always)]
    pub(super) fn leaf(&self, key: u64) -> Result<Seen<'_, E>, KvError> {
        let waiter = Waiter::new();
        loop {
            if let Some(leaf) = self.try_leaf(self.top()?, key)? {
                return Ok(leaf);
            }
            waiter.pause();
        }
    }

    /// From a root down. `None`: somebody is changing a node on the way.
    ///
    /// A node's stamp is loaded before its parent is looked at for the last time. If the parent is still what it was, then the node was its child
    /// when it had this stamp, and so the key belongs there: whoever changes what belongs to a node, divides it, or takes it out of the tree, locks its
    /// parent, or the root above all, before the node gets another stamp.
    #[inline(always)]
    fn try_leaf<'t>(&'t self, root: Seen<'t, E>, key: u64) -> Result<Option<Seen<'t, E>>, KvError> {
        let Seen { mut node, mut stamp } = root;
        if !stamp.is_readable() {
            return Ok(None);
        }
        for level in (0..stamp.level()).rev() {
            let parent = Seen { node, stamp };
            // Perhaps this was never the place of a node. That is known once the parent has been looked at again, and until then nothing but loads is done.
            let child = self.node(node.link(node.child(stamp.count(), key)));
            if let Ok(child) = child {
                // What is further above is in the processor's caches anyhow.
                if level <= PREFETCHED_LEVELS {
                    child.prefetch();
                }
                (node, stamp) = (child, child.stamp());
            }
            if !parent.node.still(parent.stamp) {
                return Ok(None);
            }
            child?;
            if !stamp.is_readable_at(level) {
                return Ok(None);
            }
        }
        Ok(Some(Seen { node, stamp }))
    }

    /// Where a key is, or would be.
    #[inline(always)]
    pub(super) fn spot(&self, key: u64) -> Result<Spot<'_, E>, KvError> {
        loop {
            let leaf = self.leaf(key)?;
            let count = leaf.stamp.count();
            let slot = leaf.node.below(count, key);
            let is_there = slot < count && leaf.node.key(slot) == key;
            let record = is_there.then(|| Place::from_link(leaf.node.link(slot)));
            if leaf.node.still(leaf.stamp) {
                return Ok(Spot { leaf, slot, record });
            }
        }
    }

    /// Looks at the key's record with `look`, as often as it takes for it to be found whole, or found not to be there: in this leaf, then.
    #[inline(always)]
    pub(super) fn search<T>(
        &self,
        key: u64,
        mut look: impl FnMut(&Record<'_, E>) -> Result<Look<T>, KvError>,
    ) -> Result<Result<T, Seen<'_, E>>, KvError> {
        let waiter = Waiter::new();
        loop {
            let spot = self.spot(key)?;
            let Some(place) = spot.record else { return Ok(Err(spot.leaf)) };
            match look(&Record::at(self.region(), place)?)? {
                Look::Found(found) => return Ok(Ok(found)),
                // Removed, moved or being written since the leaf was looked at.
                Look::Other | Look::Stale | Look::Busy => waiter.pause(),
            }
        }
    }

    /// The nodes from the root to the leaf for a key, each the child of the one before.
    pub(super) fn path(&self, key: u64) -> Result<Vec<Step<'_, E>>, KvError> {
        let waiter = Waiter::new();
        loop {
            if let Some(path) = self.try_path(key)? {
                return Ok(path);
            }
            waiter.pause();
        }
    }

    fn try_path(&self, key: u64) -> Result<Option<Vec<Step<'_, E>>>, KvError> {
        let mut path = Vec::new();
        let mut node = self.root()?;
        let mut stamp = node.stamp();
        let mut level = stamp.level();
        loop {
            if !stamp.is_readable() || stamp.level() != level || key < node.low() || key > node.high() {
                return Ok(None);
            }
            let slot = if level == 0 { 0 } else { node.child(stamp.count(), key) };
            let next = node.link(slot);
            if !node.still(stamp) {
                return Ok(None);
            }
            path.push(Step { seen: Seen { node, stamp }, slot });
            if level == 0 {
                return Ok(Some(path));
            }
            level -= 1;
            node = self.node(next)?;
            stamp = node.stamp();
        }
    }
}
