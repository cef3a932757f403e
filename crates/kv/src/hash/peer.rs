//! The hash table as another node reads it: buckets are fetched by one-sided READs.
//!
//! A lookup takes one READ if the key is in its main bucket, as most are, and one more for each
//! overflow bucket before it. The places of segments are fetched once and never change. The number
//! of buckets is a guess that the buckets themselves correct.
//!
//! # Absence
//!
//! A bucket's two cache lines may be fetched at different moments. A key that is found was present.
//! A key that is not found may have been moved from a line that was fetched late to a bucket that
//! was not read. So the version is read once more after all other READs have arrived. The key is
//! only absent if the version is unchanged and the lock was free.
//!
//! # Cached buckets
//!
//! With a [cache](crate::Cache), every fetched bucket is cached, and a lookup begins with the
//! cached buckets of the key's chain. If the key is there, nothing is fetched. Its record may have
//! been removed since, which the record itself says. If the key is not there, that says nothing: it
//! may have been inserted since, or moved by a split. So the chain is fetched as if nothing were
//! cached, and cached again.

mod places;

use std::{marker::PhantomData, sync::Arc};

use drtm_rdma::{Port, Remote, Verbs};

use super::{
    header,
    hint::Hint,
    numbering::Numbering,
    segments::{self, Bucket},
};
use crate::{
    BucketCache, Location, Turn,
    record::keys::Keys,
    remote::peer::{KnownTurn, Patience, PeerError},
    store::{
        bounds::MODEL,
        layout::{BUCKET_BYTES, BUCKET_WORDS, Bits, Place, SLOTS, key_word, meta_word},
    },
    table::base,
};
use places::Places;

/// A hash table on another node. Threads can share the handle.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use drtm_htm::NoHtm;
/// use drtm_kv::{HashConfig, HashPeer, Inline, KvTable, Store};
/// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Phase, Remote, block_on};
///
/// // Node 1 has a table.
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let table = store.hash_table(HashConfig::default())?;
/// table.insert(&mut store.worker()?, 7, b"seven")?;
/// let fabric = LocalFabric::new(2, LocalConfig::perfect());
/// let region = fabric.register(NodeId(1), Arc::clone(store.region()))?;
///
/// // Node 0 looks keys up in it, without node 1 doing anything.
/// let endpoint = fabric.endpoint(NodeId(0))?;
/// let verbs = endpoint.during(Phase::Lookup);
/// let at = Remote { node: NodeId(1), region, offset: table.location() };
/// let peer = block_on(&endpoint, HashPeer::<Inline>::open(verbs, at))?;
/// let before = endpoint.counters().total().reads;
/// assert!(block_on(&endpoint, peer.find(verbs, 7))?.is_some());
/// // One READ fetched the segment's place, which is known from now on, and one fetched the bucket.
/// assert!(endpoint.counters().total().reads - before <= 2);
/// assert!(block_on(&endpoint, peer.find(verbs, 8))?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The location must be checked: when the record is read, it may be another key's. The key must
/// then be looked up again, until the record is the key's:
///
/// ```
/// use drtm_kv::{HashPeer, Inline, KvTable, Location, PeerError};
/// use drtm_rdma::{Port, Verbs};
///
/// /// Returns a record's first words. `None`: the key is absent.
/// async fn header<P: Port>(verbs: Verbs<'_, P>, peer: &HashPeer<Inline>, key: u64) -> Result<Option<Vec<u64>>, PeerError> {
///     let mut found = peer.find(verbs, key).await?;
///     while let Some(Location { record, incarnation, .. }) = found {
///         let words = verbs.read(record, 4).await?;
///         if words[0] == key && words[1] >> 50 == u64::from(incarnation) {
///             return Ok(Some(words.to_vec()));
///         }
///         found = peer.find_again(verbs, key).await?;
///     }
///     Ok(None)
/// }
/// ```
#[derive(Debug)]
pub struct HashPeer<K: Keys> {
    at: Remote,
    numbering: Numbering,
    /// The number of buckets when it was last fetched.
    hint: Hint,
    main: Places,
    overflow: Places,
    cache: Option<Arc<BucketCache>>,
    turn: KnownTurn,
    keys: PhantomData<K>,
}

/// A bucket, and behind it a turn from before it was fetched.
type Fetched = [u64; BUCKET_WORDS + 1];

/// The most cached overflow buckets that a lookup reads. They may be from different moments, and
/// even form a cycle.
const REMEMBERED: usize = 8;

impl<K: Keys> HashPeer<K> {
    /// Opens a table at a place on another node. Fetches and checks its header.
    ///
    /// # Errors
    ///
    /// When the table cannot be reached, or the place has no such table.
    ///
    /// # Example
    ///
    /// See [`HashPeer`].
    pub async fn open<P: Port>(verbs: Verbs<'_, P>, at: Remote) -> Result<Self, PeerError> {
        let turn = KnownTurn::of(verbs, at).await?;
        let header = verbs.read(at, header::KEYS).await?;
        let (expected, found) = (super::kind::<K>(), header[base::KIND]);
        if found != expected {
            return Err(PeerError::NotThisTable { at, expected, found });
        }
        let first = checked(at, header[header::BASE])?;
        let numbering = Numbering::new(first).ok_or(PeerError::NoBucket { at, bucket: 0 })?;
        let hint = Hint::new(numbering);
        hint.set(checked(at, header[header::BUCKETS])?);
        Ok(Self {
            at,
            numbering,
            hint,
            main: Places::new(at, header::MAIN),
            overflow: Places::new(at, header::OVERFLOW),
            cache: None,
            turn,
            keys: PhantomData,
        })
    }

    /// Adds a cache for fetched buckets. Any number of peers of any tables can share a cache.
    ///
    /// # Example
    ///
    /// See [`Cache`](crate::Cache).
    #[must_use]
    pub fn with_cache(self, cache: Arc<BucketCache>) -> Self {
        Self { cache: Some(cache), ..self }
    }

    /// Looks up where a key's record is, or was when its bucket was cached. `None`: the key is
    /// absent, which is as certain as without a cache.
    ///
    /// The caller checks the record's incarnation and key. If the record is no longer there, call
    /// [`find_again`](Self::find_again). A byte string is looked up by its fingerprint, so the
    /// record may be another key's.
    ///
    /// # Errors
    ///
    /// When an operation fails, or when the table is corrupt.
    pub async fn find<P: Port>(&self, verbs: Verbs<'_, P>, key: K::Key<'_>) -> Result<Option<Location>, PeerError> {
        let word = K::word(key);
        if let Some(cache) = &self.cache
            && let Some(location) = self.recall(verbs, cache, word).await?
        {
            return Ok(Some(location));
        }
        self.search(verbs, word).await
    }

    /// Notes that this turn was counted at the table's node. What was cached too long before is not
    /// used any more.
    ///
    /// # Example
    ///
    /// See [`Location::is_within`].
    pub fn note_turns(&self, turn: Turn) {
        self.turn.raise(turn);
    }

    /// Looks a key up again, after the record at the location that was [found](Self::find) has
    /// turned out to be another's. Ignores cached buckets, and replaces them by those that it
    /// fetches.
    ///
    /// # Errors
    ///
    /// Like [`find`](Self::find).
    pub async fn find_again<P: Port>(
        &self,
        verbs: Verbs<'_, P>,
        key: K::Key<'_>,
    ) -> Result<Option<Location>, PeerError> {
        // With an outdated turn, the record could not be distinguished from another.
        self.turn.refresh(verbs).await?;
        self.search(verbs, K::word(key)).await
    }

    /// Looks a key up in the cached buckets of its chain. If the main bucket is cached and a bucket
    /// behind it is not, only that one is fetched.
    async fn recall<P: Port>(
        &self,
        verbs: Verbs<'_, P>,
        cache: &BucketCache,
        word: u64,
    ) -> Result<Option<Location>, PeerError> {
        let number = self.hint.guess(K::hash(word));
        let Some(main) = self.main.of(verbs, number).await? else { return Ok(None) };
        let Some(mut bucket) = cache.get(main) else { return Ok(None) };
        for _ in 0..REMEMBERED {
            if let Some(location) = self.slot(&bucket, word) {
                // What has come round may be another record's.
                return Ok(Some(location).filter(|location| location.is_within(self.turn.get())));
            }
            let link = link(&bucket);
            if link == 0 {
                break;
            }
            let Some(next) = self.overflow.of(verbs, link).await? else { break };
            bucket = match cache.get(next) {
                Some(remembered) => remembered,
                None => self.fetch(verbs, next).await?,
            };
        }
        Ok(None)
    }

    /// Looks a key up in buckets that are fetched now.
    async fn search<P: Port>(&self, verbs: Verbs<'_, P>, word: u64) -> Result<Option<Location>, PeerError> {
        let hash = K::hash(word);
        let mut patience = Patience::with(self.at);
        let mut number = self.hint.guess(hash);
        loop {
            patience.try_again()?;
            let Some(main) = self.main.of(verbs, number).await? else {
                number = self.parent(number)?;
                continue;
            };
            let bucket = self.fetch(verbs, main).await?;
            let mut current = bucket;
            loop {
                if let Some(location) = self.slot(&current, word) {
                    return Ok(Some(location));
                }
                let link = link(&current);
                if link == 0 {
                    break;
                }
                patience.try_again()?;
                let next = self.overflow.of(verbs, link).await?;
                current = self.fetch(verbs, next.ok_or(PeerError::NoBucket { at: self.at, bucket: link })?).await?;
            }
            let right = match Bits::depth(bucket[meta_word(Bits::DEPTH_SLOT)]) {
                None => self.parent(number)?,
                Some(depth) if depth <= segments::MOST.ilog2() => self.numbering.bucket(hash, depth),
                Some(depth) => {
                    return Err(PeerError::Corrupt { at: self.at, what: "the depth of a bucket", found: depth.into() });
                }
            };
            if right != number {
                // The number of buckets has changed for this key.
                number = right;
                self.refresh(verbs).await?;
                continue;
            }
            let version = verbs.read_word(main + 8 * meta_word(Bits::VERSION_SLOT) as u64).await?;
            let before = bucket[meta_word(Bits::VERSION_SLOT)];
            let is_same = !Bits::is_locked(version) && Bits::version(version) == Bits::version(before);
            // The version may have wrapped around.
            if is_same && self.turn.refresh(verbs).await? {
                return Ok(None);
            }
        }
    }

    /// Returns the bucket that a bucket will be split off from, if it does not exist yet.
    fn parent(&self, bucket: u64) -> Result<u64, PeerError> {
        self.numbering.parent(bucket).ok_or(PeerError::NoBucket { at: self.at, bucket })
    }

    /// Returns the location in a key's slot of a fetched bucket.
    fn slot(&self, bucket: &Fetched, word: u64) -> Option<Location> {
        (0..SLOTS).find_map(|slot| {
            let meta = bucket[meta_word(slot)];
            let place = Bits::place(meta);
            if bucket[key_word(slot)] != word || place == 0 {
                return None;
            }
            let incarnation = if Bits::lends_its_tag(slot) {
                u16::from_le_bytes(Bits::lenders(slot).map(|lender| Bits::spare(bucket[meta_word(lender)])))
            } else {
                Bits::tag(meta)
            };
            let since = Turn(bucket[BUCKET_WORDS]);
            Some(Location::of(Place { word: place, incarnation }, self.at, since))
        })
    }

    async fn fetch<P: Port>(&self, verbs: Verbs<'_, P>, at: Remote) -> Result<Fetched, PeerError> {
        let turn = self.turn.get();
        let words = verbs.read(at, BUCKET_WORDS).await?;
        let mut bucket = [0; BUCKET_WORDS + 1];
        bucket[..BUCKET_WORDS].copy_from_slice(&words);
        bucket[BUCKET_WORDS] = turn.0;
        if let Some(cache) = &self.cache {
            cache.put(at, &bucket);
        }
        Ok(bucket)
    }

    async fn refresh<P: Port>(&self, verbs: Verbs<'_, P>) -> Result<(), PeerError> {
        let buckets = verbs.read_word(self.at + 8 * header::BUCKETS as u64).await?;
        self.hint.set(checked(self.at, buckets)?);
        Ok(())
    }
}

/// Checks that a table can have this number of buckets.
fn checked(at: Remote, buckets: u64) -> Result<u64, PeerError> {
    match buckets {
        segments::FIRST..=segments::MOST => Ok(buckets),
        found => Err(PeerError::Corrupt { at, what: "the number of buckets", found }),
    }
}

fn link(bucket: &Fetched) -> u64 {
    Bits::link(bucket[meta_word(Bits::LINK_SLOT)])
}

const _: () = assert!(size_of::<Bucket>() as u64 == BUCKET_BYTES || MODEL);
