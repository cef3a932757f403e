//! The tree as another node sees it: nodes fetched by one-sided READs.
//!
//! # Whole nodes
//!
//! A node has eight cache lines, and a READ may fetch each at another moment. So a node is only
//! taken at its word if its stamp, as it was in a READ that has arrived before, and as it is once
//! more afterwards, is the same, and not locked: three READs, one after the other. Inner nodes are
//! always read so, before they are believed or remembered; what they say leads to memory that once
//! was such a node, and always will be one's.
//!
//! A leaf need not be whole for a key to be found in it: the key's record says itself whether it is
//! the key's. That a key is not there is only concluded from a whole leaf.
//!
//! # Remembered nodes
//!
//! With a [cache](crate::Cache), inner nodes are remembered, and a lookup is one READ of a leaf. A
//! remembered way may be out of date; the leaf says by its level and its range whether it is the
//! key's. If not, the node above it is forgotten, and if what is fetched then in its place leads to
//! a node that does not fit either, the one above that, up to the root, which never moves.

use std::sync::Arc;

use drtm_rdma::{Offset, Port, Remote, Verbs};

use super::{header, node};
use crate::{
    Location, NodeCache, Turn,
    keys::Inline,
    layout::{FANOUT, NODE_HEADER, NODE_WORDS, Place, Stamp},
    peer::{KnownTurn, Patience, PeerError},
};

/// A tree on another node. Threads can share it.
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

/// What became of one way down.
enum Way {
    Found(Location),
    Absent,
    /// It was out of date, or led to a node that is being changed.
    Lost,
}

impl TreePeer {
    /// A tree at a place on another node: the header is fetched, and checked.
    ///
    /// # Errors
    ///
    /// When it cannot be reached, or is not such a tree.
    pub async fn open<P: Port>(verbs: Verbs<'_, P>, at: Remote) -> Result<Self, PeerError> {
        let (expected, found) = (super::kind::<Inline>(), verbs.read_word(at).await?);
        if found != expected {
            return Err(PeerError::NotThisTable { at, expected, found });
        }
        let turn = KnownTurn::of(verbs, at).await?;
        Ok(Self { at, root: at + 8 * header::ROOT as u64, cache: None, turn })
    }

    /// The same, remembering inner nodes in a cache that any number of peers of any trees can
    /// share.
    #[must_use]
    pub fn with_cache(self, cache: Arc<NodeCache>) -> Self {
        Self { cache: Some(cache), ..self }
    }

    /// Looks up where a key's record is. By the time the record is read it may be elsewhere, which
    /// the record tells: look it up [again](Self::find_again) then.
    ///
    /// # Errors
    ///
    /// When an operation fails, or the tree is corrupt.
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

    /// Looks a key up anew, after the record at the location that was [found](Self::find) has
    /// turned out not to be the key's any more.
    ///
    /// # Errors
    ///
    /// As for [`find`](Self::find).
    pub async fn find_again<P: Port>(&self, verbs: Verbs<'_, P>, key: u64) -> Result<Option<Location>, PeerError> {
        // What was known of the turn may be why the record could not be told from another.
        self.turn.refresh(verbs).await?;
        self.find(verbs, key).await
    }

    /// From the root down to the key's leaf. If the way is out of date, the remembered node that
    /// has led astray is forgotten.
    async fn descend<P: Port>(&self, verbs: Verbs<'_, P>, key: u64) -> Result<Way, PeerError> {
        let (mut at, mut above, mut level) = (self.root, None, None);
        let since = self.turn.get();
        loop {
            // Leaves are not remembered; what was an inner node may be a leaf now.
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

    /// Looks for a key in its leaf, as it was fetched.
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

/// The node as it was at one moment, if since an earlier READ, which has found this stamp, it has
/// not been changed.
async fn whole<P: Port>(verbs: Verbs<'_, P>, at: Remote, before: Stamp) -> Result<Option<Fetched>, PeerError> {
    if before.is_locked() {
        return Ok(None);
    }
    let node = fetch(verbs, at).await?;
    let after = Stamp(verbs.read_word(at + 8 * node::STAMP as u64).await?);
    Ok((after == before).then_some(node))
}

/// A node's words as they have arrived: perhaps of several moments, and perhaps no node's.
struct Fetched([u64; NODE_WORDS]);

impl Fetched {
    fn stamp(&self) -> Stamp {
        Stamp(self.0[node::STAMP])
    }

    /// Whether this is a node of the tree, to which the key belongs, and of this level, so that a
    /// way has an end even in a tree that is corrupt.
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

    /// A leaf's entry for this key.
    fn record(&self, key: u64) -> Option<Place> {
        let slot = self.keys().binary_search(&key).ok()?;
        Some(Place::from_link(self.link(slot)))
    }

    /// The offset of an inner node's child for this key.
    fn child(&self, key: u64) -> u64 {
        // The first key is the node's lowest, so at least one is not above `key`, unless the tree
        // is corrupt.
        let slot = self.keys().partition_point(|first| *first <= key).saturating_sub(1);
        8 * Place::from_link(self.link(slot)).word
    }
}
