//! Finding the leaf for a key.

use drtm_htm::{Engine, Waiter};
use drtm_rdma::{Offset, OutOfBounds};

use super::{
    Table,
    node::{Node, Seen},
};
use crate::{
    KvError,
    layout::Place,
    record::{Look, Record},
};

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

    /// The leaf that a key belongs to.
    #[inline(always)]
    pub(super) fn leaf(&self, key: u64) -> Result<Seen<'_, E>, KvError> {
        let waiter = Waiter::new();
        loop {
            if let Some(leaf) = self.try_leaf(key)? {
                return Ok(leaf);
            }
            waiter.pause();
        }
    }

    /// From the root down, and to the right where a node has been divided since its parent was looked at. `None`: somebody is changing a node on the
    /// way, or has taken it out of the tree.
    #[inline(always)]
    fn try_leaf(&self, key: u64) -> Result<Option<Seen<'_, E>>, KvError> {
        let mut node = self.root()?;
        let mut stamp = node.stamp();
        let mut level = stamp.level();
        loop {
            if !stamp.is_readable() || stamp.level() != level || key < node.low() {
                return Ok(None);
            }
            let beyond = key > node.high();
            let next = match (beyond, level) {
                (true, _) => node.right(),
                (false, 0) => 0,
                (false, _) => node.link(node.child(stamp.count(), key)),
            };
            // Before the link is followed: only a link that was there leads to a node.
            if !node.still(stamp) {
                return Ok(None);
            }
            if !beyond {
                if level == 0 {
                    return Ok(Some(Seen { node, stamp }));
                }
                level -= 1;
            }
            node = self.node(next)?;
            stamp = node.stamp();
        }
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
        mut look: impl FnMut(&Record<'_, E>) -> Result<Look<T>, OutOfBounds>,
    ) -> Result<Result<T, Seen<'_, E>>, KvError> {
        let waiting = self.patience.begin();
        loop {
            let spot = self.spot(key)?;
            let Some(place) = spot.record else { return Ok(Err(spot.leaf)) };
            match look(&Record::at(self.region(), place)?)? {
                Look::Found(found) => return Ok(Ok(found)),
                // Removed, moved or being written since the leaf was looked at.
                Look::Other | Look::Stale | Look::Busy => waiting.pause()?,
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
