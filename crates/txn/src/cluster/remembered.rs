//! What a node remembers of the memory of others: of each, in one view and one incarnation.

use std::{rc::Rc, sync::Arc};

use drtm_kv::BucketCache;
use drtm_rdma::{Incarnation, NodeId};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::{ClusterError, peers::Peer};

/// In which view a node was met, and as which incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) view: u32,
    pub(super) incarnation: Incarnation,
}

/// A node that a worker has met.
#[derive(Clone, Debug)]
pub(super) struct Met {
    pub(super) life: Life,
    /// When it was found to be in the view: see [`Current::moment`](super::view::Current::moment).
    /// Zero: it is to be met anew.
    pub(super) moment: u64,
    pub(super) peer: Rc<Peer>,
}

/// Where rows of other nodes were: a cache for each node, which ends with its life. Workers of a
/// node share them.
#[derive(Debug)]
pub(super) struct Caches {
    /// Of each.
    bytes: u64,
    by_node: Mutex<FxHashMap<NodeId, (Life, Arc<BucketCache>)>>,
}

impl Caches {
    /// Makes caches that have so many bytes together, if so many nodes are met.
    pub(super) fn new(bytes: u64, nodes: usize) -> Self {
        Self { bytes: bytes / nodes.max(1) as u64, by_node: Mutex::default() }
    }

    /// Returns the cache for a node in this life. One of another life is forgotten.
    ///
    /// # Errors
    ///
    /// When memory cannot be had.
    pub(super) fn of(&self, node: NodeId, life: Life) -> Result<Arc<BucketCache>, ClusterError> {
        let mut by_node = self.by_node.lock();
        if let Some((known, cache)) = by_node.get(&node)
            && *known == life
        {
            return Ok(Arc::clone(cache));
        }
        let cache = Arc::new(BucketCache::new(self.bytes)?);
        by_node.insert(node, (life, Arc::clone(&cache)));
        Ok(cache)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_ends_with_a_life() {
        let caches = Caches::new(1 << 20, 2);
        let life = Life { view: 1, incarnation: Incarnation(3) };
        let of = |node, life| caches.of(NodeId(node), life).expect("memory");
        let first = of(1, life);
        assert!(Arc::ptr_eq(&first, &of(1, life)), "workers share it");
        assert!(!Arc::ptr_eq(&first, &of(2, life)));
        assert!(!Arc::ptr_eq(&first, &of(1, Life { incarnation: Incarnation(4), ..life })));
        assert!(!Arc::ptr_eq(&first, &of(1, Life { view: 2, ..life })));
    }
}
