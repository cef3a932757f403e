//! Finding the leaf of a key.

use drtm_htm::Engine;
use drtm_rdma::{Offset, OutOfBounds};

use super::{
    PerLevel, Table,
    hints::Hints,
    insert_point::InsertPoint,
    kind::Kind,
    node::{Node, Seen},
};
use crate::{
    KvError, Turn, Visibility, Worker,
    record::{
        Look, Record, WholeKey,
        value_sink::{NoValue, ValueSink},
    },
    store::lasts::Last,
};

/// The highest level whose nodes are prefetched: leaves are level 0.
const PREFETCHED_LEVELS: u8 = 1;

/// A node on the path from the root to a leaf, and the slot of the next child.
#[derive(Debug)]
pub(super) struct Step<'t, E: Engine> {
    pub(super) seen: Seen<'t, E>,
    pub(super) slot: usize,
}

impl<E: Engine> Table<E> {
    #[inline(always)]
    pub(super) fn node(&self, place: u64) -> Result<Node<'_, E>, KvError> {
        Ok(self.node_at(place)?)
    }

    /// Returns the node at a place, like [`node`](Self::node), for hints, which need no `KvError`.
    #[inline(always)]
    pub(super) fn node_at(&self, place: u64) -> Result<Node<'_, E>, OutOfBounds> {
        // The product wraps, for words that were never the place of a node. Validating the node or
        // the hint that the place came from detects that.
        Ok(Node::new(self.engine(), self.region().array(Offset::new(place.wrapping_mul(8)))?, place))
    }

    #[inline(always)]
    pub(super) fn root(&self) -> Result<Node<'_, E>, KvError> {
        self.node(self.root)
    }

    /// Returns the root of the whole tree, with its current stamp.
    #[inline(always)]
    pub(super) fn top(&self) -> Result<Seen<'_, E>, KvError> {
        let node = self.root()?;
        Ok(Seen { node, stamp: node.stamp() })
    }

    /// Returns the leaf that a key belongs to, in a tree of one layer.
    #[inline(always)]
    pub(super) fn leaf(&self, key: u64) -> Result<Seen<'_, E>, KvError> {
        Ok(until!(self.try_leaf(self.top()?, key)?))
    }

    /// Descends from a root to the leaf that a key belongs to. `None`: a node on the path is being
    /// changed.
    #[inline(always)]
    pub(super) fn try_leaf<'t>(&'t self, root: Seen<'t, E>, key: u64) -> Result<Option<Seen<'t, E>>, KvError> {
        self.try_node(root, key, 0)
    }

    /// Descends from a root to a key's node on this level, which the root is not below. `None`: a
    /// node on the path is being changed.
    ///
    /// A node's stamp is loaded before its parent is validated for the last time. If the parent is
    /// unchanged, the node was its child when it had this stamp, so the key belongs to it. A writer
    /// that changes a node's range, splits it, or removes it from the tree, first locks its parent,
    /// or the topmost root. Only then does the node get another stamp.
    ///
    /// This also holds if the node's memory is reused, even in another layer: the node has left the
    /// tree before. A layer's root has no parent but the leaf that leads there, and is
    /// [entered](Self::enter) in the same way.
    #[inline(always)]
    pub(super) fn try_node<'t>(&'t self, root: Seen<'t, E>, key: u64, to: u8) -> Result<Option<Seen<'t, E>>, KvError> {
        let Seen { mut node, mut stamp } = root;
        if !stamp.is_readable() {
            return Ok(None);
        }
        for level in (to..stamp.level()).rev() {
            let parent = Seen { node, stamp };
            // This may never have been the place of a node. Validating the parent detects that, and
            // until then the memory is only loaded.
            let child = self.node(node.link(node.child(stamp.count(), key)));
            if let Ok(child) = child {
                // Higher nodes are in the processor's caches anyway.
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

    /// Prefetches the leaf that a key probably belongs to, without waiting for it. Also prefetches
    /// the record if a hint leads to it. Nothing is validated.
    #[inline(always)]
    pub(super) fn prefetch_leaf(&self, worker: &mut Worker<E>, key: u64) -> Result<(), KvError> {
        if self.prefetch_hinted(Hints::hash(key)) {
            return Ok(());
        }
        let Seen { mut node, mut stamp } = self.top()?;
        for level in (0..stamp.level()).rev() {
            node = self.node(node.link(node.child(stamp.count(), key)))?;
            if level == 0 {
                node.prefetch();
                worker.lasts.expect(self.base.at, Last { leaf: node.place, word: key });
                break;
            }
            stamp = node.stamp();
        }
        Ok(())
    }

    /// Returns the insert point of a word under a root that is `depth` roots below the topmost.
    /// `None`: a node on the path is being changed.
    #[inline(always)]
    pub(super) fn try_spot<'t>(
        &'t self,
        root: Seen<'t, E>,
        depth: usize,
        word: u64,
    ) -> Result<Option<InsertPoint<'t, E>>, KvError> {
        let Some(leaf) = self.try_leaf(root, word)? else { return Ok(None) };
        let count = leaf.stamp.count();
        let slot = leaf.node.below(count, word);
        let is_there = slot < count && leaf.node.key(slot) == word;
        let link = is_there.then(|| leaf.node.link(slot));
        Ok(leaf.node.still(leaf.stamp).then_some(InsertPoint { root, depth, word, leaf, slot, link }))
    }

    /// Returns the leaf at this place, and the slot for a key that is absent, in a tree of one
    /// layer. `None`: the key belongs elsewhere, is present, or the leaf is full. A leaf whose own
    /// range has the key is the right one, however it was found, since a node's memory stays in its
    /// tree.
    #[inline(always)]
    pub(super) fn gap_at(&self, place: u64, key: u64) -> Option<(Seen<'_, E>, usize)> {
        let leaf = self.leaf_at(place, key).ok()??;
        let (node, count) = (leaf.node, leaf.stamp.count());
        // Keys often ascend.
        let is_last = count > 0 && node.key(count - 1) < key;
        let slot = if is_last { count } else { node.below(count, key) };
        let is_there = slot < count && node.key(slot) == key;
        (!is_there && !leaf.stamp.is_full() && node.still(leaf.stamp)).then_some((leaf, slot))
    }

    /// Returns the insert point of a key in a tree of one layer.
    #[inline(always)]
    pub(super) fn insert_point(&self, key: u64) -> Result<InsertPoint<'_, E>, KvError> {
        Ok(until!(self.try_spot(self.top()?, 0, key)?))
    }

    /// Calls `look` with the key's record until it has read the record consistently. `Err` has the
    /// insert point of a key that is absent. A hint may lead to another key's record, in which
    /// `look` must find nothing.
    #[inline(always)]
    pub(super) fn search<K: Kind, T>(
        &self,
        key: K::Key<'_>,
        mut look: impl FnMut(&Record<'_, E>) -> Result<Look<T>, OutOfBounds>,
    ) -> Result<Result<T, InsertPoint<'_, E>>, KvError> {
        let hash = Hints::hash(K::word(key));
        let mut hinted = self.hinted(hash);
        let waiting = self.base.patience.begin();
        loop {
            let (point, record) = match hinted.take() {
                Some(record) => (None, record),
                None => {
                    let point = K::insert_point(self, key)?;
                    let Some(place) = point.record() else { return Ok(Err(point)) };
                    (Some(point), Record::at(self.region(), place)?)
                }
            };
            let look = look(&record)?;
            let Some(point) = point else {
                if let Look::Found(found) = look {
                    return Ok(Ok(found));
                }
                // A hint says nothing about absence.
                continue;
            };
            match look {
                Look::Found(found) => {
                    self.leave_hint::<K>(hash, &point, &record)?;
                    return Ok(Ok(found));
                }
                Look::Absent => return Ok(Err(point)),
                // This is the only key that begins like this one, if its leaf is unchanged.
                Look::Other if !K::FITS && point.leaf.node.still(point.leaf.stamp) => return Ok(Err(point)),
                // The record was removed, moved or written since the leaf was read.
                Look::Other | Look::Stale | Look::Busy => waiting.pause()?,
            }
        }
    }

    /// Reads a key's record. `Err`: the key has no record, and belongs at this insert point.
    #[inline(always)]
    pub(super) fn read<K: Kind, V: Visibility>(
        &self,
        key: K::Key<'_>,
        mut view: V,
        into: &mut impl ValueSink,
    ) -> Result<Result<V::Found, InsertPoint<'_, E>>, KvError> {
        self.search::<K, _>(key, |record| record.read::<K::InRecord, V>(WholeKey::<K::InRecord>(key), &mut view, into))
    }

    /// [Reads](Self::read) a key that will be inserted if it is absent. The caller must validate
    /// what was found.
    #[inline(always)]
    pub(super) fn read_to_put<K: Kind, V: Visibility + Copy>(
        &self,
        key: K::Key<'_>,
        view: V,
    ) -> Result<Result<V::Found, InsertPoint<'_, E>>, KvError> {
        loop {
            let since = Turn::of(self.region());
            let read = self.read::<K, _>(key, view, &mut NoValue)?;
            // For a byte string, another key's record may have said that the key is absent. The
            // incarnation of that record may have wrapped around.
            if K::FITS || read.is_ok() || since.holds_in(self.region()) {
                return Ok(read);
            }
        }
    }

    /// Returns the nodes from the root to the leaf of a key, each the child of the previous one.
    /// `None`: a node on the path is being changed.
    pub(super) fn try_path<'t>(
        &'t self,
        root: Seen<'t, E>,
        key: u64,
    ) -> Result<Option<PerLevel<Step<'t, E>>>, KvError> {
        let mut path = PerLevel::new();
        let Seen { mut node, mut stamp } = root;
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
            let before = Seen { node, stamp };
            node = self.node(next)?;
            stamp = node.stamp();
            // Otherwise the node may belong to another layer by now.
            if !before.node.still(before.stamp) {
                return Ok(None);
            }
        }
    }
}
