//! Finding the leaf for a key.

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
    lasts::Last,
    record::{Look, Record, WholeKey},
    value_sink::{NoValue, ValueSink},
};

/// The highest level whose nodes are asked for ahead: leaves are level 0.
const PREFETCHED_LEVELS: u8 = 1;

/// A node on the way from the root to a leaf, and the slot of the child that is next.
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

    /// The same for who takes it as a hint, and has no use for an error.
    #[inline(always)]
    pub(super) fn node_at(&self, place: u64) -> Result<Node<'_, E>, OutOfBounds> {
        // Wrapping, for words that were never the place of a node: that is found out when whoever
        // told of them is looked at again.
        Ok(Node::new(self.engine(), self.region().array(Offset::new(place.wrapping_mul(8)))?, place))
    }

    #[inline(always)]
    pub(super) fn root(&self) -> Result<Node<'_, E>, KvError> {
        self.node(self.root)
    }

    /// The root of the whole tree, as it is now.
    #[inline(always)]
    pub(super) fn top(&self) -> Result<Seen<'_, E>, KvError> {
        let node = self.root()?;
        Ok(Seen { node, stamp: node.stamp() })
    }

    /// The leaf that a key belongs to, in a tree of one layer.
    #[inline(always)]
    pub(super) fn leaf(&self, key: u64) -> Result<Seen<'_, E>, KvError> {
        Ok(until!(self.try_leaf(self.top()?, key)?))
    }

    /// From a root down to the leaf that a key belongs to. `None`: somebody is changing a node on
    /// the way.
    #[inline(always)]
    pub(super) fn try_leaf<'t>(&'t self, root: Seen<'t, E>, key: u64) -> Result<Option<Seen<'t, E>>, KvError> {
        self.try_node(root, key, 0)
    }

    /// The same, to the node on this level, which the root is not below.
    ///
    /// A node's stamp is loaded before its parent is looked at for the last time. If the parent is
    /// still what it was, then the node was its child when it had this stamp, and so the key
    /// belongs there: whoever changes what belongs to a node, divides it, or takes it out of the
    /// tree, locks its parent, or the root above all, before the node gets another stamp.
    ///
    /// That also holds where a node's memory is used again, in another layer perhaps: it has left
    /// the tree before. A layer's root has no parent but the leaf that leads there, and is [come
    /// to](Self::enter) in the same way.
    #[inline(always)]
    pub(super) fn try_node<'t>(&'t self, root: Seen<'t, E>, key: u64, to: u8) -> Result<Option<Seen<'t, E>>, KvError> {
        let Seen { mut node, mut stamp } = root;
        if !stamp.is_readable() {
            return Ok(None);
        }
        for level in (to..stamp.level()).rev() {
            let parent = Seen { node, stamp };
            // Perhaps this was never the place of a node. That is known once the parent has been
            // looked at again, and until then nothing but loads is done.
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

    /// Asks for the leaf that a key probably belongs to, without waiting for it, and for its record
    /// if that is known: nothing is looked at twice.
    #[inline(always)]
    pub(super) fn ask_for_leaf(&self, worker: &mut Worker<E>, key: u64) -> Result<(), KvError> {
        if self.ask_for_hinted(Hints::hash(key)) {
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

    /// Where a word is, or would be, under a root that is `depth` roots below the topmost. `None`,
    /// as for [`try_leaf`](Self::try_leaf).
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

    /// The leaf at this place and the slot where a key would be, in a tree of one layer: if the key
    /// belongs there, is not there, and there is room. A leaf that says so itself is the right one,
    /// however it was found, since a node's memory stays in its tree.
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

    /// Where a key is, or would be, in a tree of one layer.
    #[inline(always)]
    pub(super) fn insert_point(&self, key: u64) -> Result<InsertPoint<'_, E>, KvError> {
        Ok(until!(self.try_spot(self.top()?, 0, key)?))
    }

    /// Looks at the key's record with `look`, as often as it takes for it to be found whole, or
    /// found not to be there: in this leaf, then. In another key's record, which a hint may lead
    /// to, `look` must find nothing.
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
                // A hint tells no more.
                continue;
            };
            match look {
                Look::Found(found) => {
                    self.leave_hint::<K>(hash, &point, &record)?;
                    return Ok(Ok(found));
                }
                Look::Absent => return Ok(Err(point)),
                // The only key that begins like this one, if its leaf is still what it was.
                Look::Other if !K::FITS && point.leaf.node.still(point.leaf.stamp) => return Ok(Err(point)),
                // Removed, moved or being written since the leaf was looked at.
                Look::Other | Look::Stale | Look::Busy => waiting.pause()?,
            }
        }
    }

    /// Reads a key's record. `Err`: where it would be, if it has none.
    #[inline(always)]
    pub(super) fn read<K: Kind, V: Visibility>(
        &self,
        key: K::Key<'_>,
        mut view: V,
        into: &mut impl ValueSink,
    ) -> Result<Result<V::Found, InsertPoint<'_, E>>, KvError> {
        self.search::<K, _>(key, |record| record.read::<K::Kept, V>(WholeKey::<K::Kept>(key), &mut view, into))
    }

    /// [Reads](Self::read) a key that is to be put there if it is missed. What is found, the caller
    /// has to look at.
    #[inline(always)]
    pub(super) fn read_to_put<K: Kind, V: Visibility + Copy>(
        &self,
        key: K::Key<'_>,
        view: V,
    ) -> Result<Result<V::Found, InsertPoint<'_, E>>, KvError> {
        loop {
            let since = Turn::of(self.region());
            let read = self.read::<K, _>(key, view, &mut NoValue)?;
            // Of a byte string, it is another key's record that says so, and that may have come
            // round.
            if K::FITS || read.is_ok() || since.holds_in(self.region()) {
                return Ok(read);
            }
        }
    }

    /// The nodes from the root to the leaf for a key, each the child of the one before. `None`, as
    /// for [`try_leaf`](Self::try_leaf).
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
            // Or it may be another layer's by now.
            if !before.node.still(before.stamp) {
                return Ok(None);
            }
        }
    }
}
