//! The tree as another node reads it: nodes are fetched by one-sided READs.
//!
//! # Consistent nodes
//!
//! A node has eight cache lines, and a READ may fetch each at another moment. A node is consistent
//! if the READs before and after it have found the same unlocked stamp: three READs, one after the
//! other. Inner nodes are always read so before they are used or cached. Their links lead to memory
//! that was such a node once, and will always be a node's.
//!
//! A leaf need not be consistent for a key to be found in it: the key's record itself says whether
//! it is the key's. A key is only absent from a consistent leaf.
//!
//! # Cached nodes
//!
//! With a [cache](crate::Cache), inner nodes are cached, and a lookup is one READ of a leaf. A
//! cached path may be outdated. The leaf's level and range say whether it is the key's. If not, the
//! node above it is dropped from the cache. If the node that is then fetched in its place also
//! leads to a wrong node, the one above that is dropped. This goes up to the root, which never
//! moves.

use std::sync::Arc;

use drtm_rdma::{Offset, Port, Remote, Verbs};

use super::{header, node};
use crate::{
    Location, NodeCache, Turn,
    keys::Inline,
    layout::{FANOUT, NODE_HEADER, NODE_WORDS, Place, Stamp},
    peer::{KnownTurn, Patience, PeerError},
};

/// A tree on another node. Threads can share the handle.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use drtm_htm::NoHtm;
/// use drtm_kv::{KvTable, NodeCache, Store, TreePeer};
/// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Phase, Remote, block_on};
///
/// // Node 1 has a tree.
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let tree = store.tree()?;
/// tree.load(&mut store.worker()?, (0..10_000).map(|key| (key, b"value")))?;
/// let fabric = LocalFabric::new(2, LocalConfig::perfect());
/// let region = fabric.register(NodeId(1), Arc::clone(store.region()))?;
///
/// // Node 0 looks keys up in it, without node 1 doing anything.
/// let endpoint = fabric.endpoint(NodeId(0))?;
/// let verbs = endpoint.during(Phase::Lookup);
/// let at = Remote { node: NodeId(1), region, offset: tree.location() };
/// let peer = block_on(&endpoint, TreePeer::open(verbs, at))?.with_cache(Arc::new(NodeCache::new(1 << 20)?));
/// assert!(block_on(&endpoint, peer.find(verbs, 7))?.is_some());
/// let before = endpoint.counters().total().reads;
/// assert!(block_on(&endpoint, peer.find(verbs, 8))?.is_some());
/// assert_eq!(endpoint.counters().total().reads - before, 1, "the inner nodes are remembered");
/// assert!(block_on(&endpoint, peer.find(verbs, 10_000))?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TreePeer {
    at: Remote,
    root: Remote,
    cache: Option<Arc<NodeCache>>,
    turn: KnownTurn,
}

/// The outcome of one descent.
enum Way {
    Found(Location),
    Absent,
    /// The path was outdated, or led to a node that is being changed.
    Lost,
}

impl TreePeer {
    /// Opens a tree at a place on another node. Fetches and checks its header.
    ///
    /// # Errors
    ///
    /// When the tree cannot be reached, or the place has no such tree.
    ///
    /// # Example
    ///
    /// See [`TreePeer`].
    pub async fn open<P: Port>(verbs: Verbs<'_, P>, at: Remote) -> Result<Self, PeerError> {
        let (expected, found) = (super::kind::<Inline>(), verbs.read_word(at).await?);
        if found != expected {
            return Err(PeerError::NotThisTable { at, expected, found });
        }
        let turn = KnownTurn::of(verbs, at).await?;
        Ok(Self { at, root: at + 8 * header::ROOT as u64, cache: None, turn })
    }

    /// Adds a cache for inner nodes. Any number of peers of any trees can share a cache.
    ///
    /// # Example
    ///
    /// See [`TreePeer`].
    #[must_use]
    pub fn with_cache(self, cache: Arc<NodeCache>) -> Self {
        Self { cache: Some(cache), ..self }
    }

    /// Looks up where a key's record is. `None`: the key is absent. When the record is read, it may
    /// be elsewhere, which the record itself says. Call [`find_again`](Self::find_again) then.
    ///
    /// # Errors
    ///
    /// When an operation fails, or when the tree is corrupt.
    pub async fn find<P: Port>(&self, verbs: Verbs<'_, P>, key: u64) -> Result<Option<Location>, PeerError> {
        let mut patience = Patience::with(self.at);
        loop {
            patience.try_again()?;
            match self.descend(verbs, key).await? {
                Way::Found(location) => return Ok(Some(location)),
                Way::Absent => return Ok(None),
                Way::Lost => {}
            }
        }
    }

    /// Looks a key up again, after the record at the location that was [found](Self::find) has
    /// turned out to be another's.
    ///
    /// # Errors
    ///
    /// Like [`find`](Self::find).
    pub async fn find_again<P: Port>(&self, verbs: Verbs<'_, P>, key: u64) -> Result<Option<Location>, PeerError> {
        // With an outdated turn, the record could not be distinguished from another.
        self.turn.refresh(verbs).await?;
        self.find(verbs, key).await
    }

    /// Descends from the root to the key's leaf. If the path is outdated, drops the cached node
    /// with the wrong link.
    async fn descend<P: Port>(&self, verbs: Verbs<'_, P>, key: u64) -> Result<Way, PeerError> {
        let (mut at, mut above, mut level) = (self.root, None, None);
        let since = self.turn.get();
        loop {
            // Leaves are not cached. A cached inner node may be a leaf by now.
            let remembered = if level == Some(0) { None } else { self.remembered(at) };
            let is_remembered = remembered.is_some();
            let mut node = match remembered {
                Some(node) => node,
                None => fetch(verbs, at).await?,
            };
            let stamp = node.stamp();
            if !node.is_for(key, level) {
                if let Some(misleading) = if is_remembered { Some(at) } else { above } {
                    self.forget(misleading);
                }
                return Ok(Way::Lost);
            }
            if stamp.level() == 0 {
                return self.look(verbs, (at, since), &node, key).await;
            }
            if !is_remembered {
                match whole(verbs, at, stamp).await? {
                    Some(whole) => node = whole,
                    None => return Ok(Way::Lost),
                }
                if let Some(cache) = &self.cache {
                    cache.put(at, &node.0);
                }
            }
            let below = Remote { offset: Offset::new(node.child(key)), ..self.at };
            (at, above, level) = (below, Some(at), Some(stamp.level() - 1));
        }
    }

    /// Looks a key up in its leaf, as it was fetched.
    async fn look<P: Port>(
        &self,
        verbs: Verbs<'_, P>,
        (at, since): (Remote, Turn),
        leaf: &Fetched,
        key: u64,
    ) -> Result<Way, PeerError> {
        if let Some(place) = leaf.record(key) {
            return Ok(Way::Found(Location::of(place, self.at, since)));
        }
        Ok(match whole(verbs, at, leaf.stamp()).await? {
            Some(leaf) if !leaf.is_for(key, Some(0)) => Way::Lost,
            Some(leaf) => leaf.record(key).map_or(Way::Absent, |place| Way::Found(Location::of(place, self.at, since))),
            None => Way::Lost,
        })
    }

    fn remembered(&self, at: Remote) -> Option<Fetched> {
        self.cache.as_ref()?.get(at).map(Fetched)
    }

    fn forget(&self, at: Remote) {
        if let Some(cache) = &self.cache {
            cache.forget(at);
        }
    }
}

async fn fetch<P: Port>(verbs: Verbs<'_, P>, at: Remote) -> Result<Fetched, PeerError> {
    let words = verbs.read(at, NODE_WORDS).await?;
    let mut node = Fetched([0; NODE_WORDS]);
    node.0.copy_from_slice(&words);
    Ok(node)
}

/// Fetches a consistent node. `None`: it is locked, or has changed since an earlier READ found the
/// stamp `before`.
async fn whole<P: Port>(verbs: Verbs<'_, P>, at: Remote, before: Stamp) -> Result<Option<Fetched>, PeerError> {
    if before.is_locked() {
        return Ok(None);
    }
    let node = fetch(verbs, at).await?;
    let after = Stamp(verbs.read_word(at + 8 * node::STAMP as u64).await?);
    Ok((after == before).then_some(node))
}

/// A node's fetched words: perhaps from different moments, and perhaps not of a node.
struct Fetched([u64; NODE_WORDS]);

impl Fetched {
    fn stamp(&self) -> Stamp {
        Stamp(self.0[node::STAMP])
    }

    /// Returns whether this is a node of the tree, to which the key belongs, and of this level. The
    /// check of the level bounds a descent even in a corrupt tree.
    fn is_for(&self, key: u64, level: Option<u8>) -> bool {
        let stamp = self.stamp();
        let range = self.0[node::LOW]..=self.0[node::HIGH];
        stamp.is_used() && level.is_none_or(|level| stamp.level() == level) && range.contains(&key)
    }

    fn keys(&self) -> &[u64] {
        &self.0[NODE_HEADER..][..self.stamp().count()]
    }

    fn link(&self, slot: usize) -> u64 {
        self.0[NODE_HEADER + FANOUT + slot]
    }

    /// Returns the record of a leaf's entry for this key.
    fn record(&self, key: u64) -> Option<Place> {
        let slot = self.keys().binary_search(&key).ok()?;
        Some(Place::from_link(self.link(slot)))
    }

    /// Returns the offset of an inner node's child for this key.
    fn child(&self, key: u64) -> u64 {
        // The first key is the node's lowest, so at least one is not above `key`, unless the tree
        // is corrupt.
        let slot = self.keys().partition_point(|first| *first <= key).saturating_sub(1);
        8 * Place::from_link(self.link(slot)).word
    }
}
