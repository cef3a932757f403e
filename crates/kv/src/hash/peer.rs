//! The hash table as another node sees it: buckets fetched by one-sided READs.
//!
//! A lookup is one READ where the key is in its main bucket, as most are, and one more for each overflow bucket in front of it. Where
//! segments of buckets are is learned once and stays true; how many buckets there are is a guess that the buckets themselves correct.
//!
//! # Absence
//!
//! A bucket's two cache lines may come from different moments. A key that is found was there. A key that is not found may have been moved
//! from a line that was fetched late to a bucket that was not looked at. So absence is only concluded if the version, read once more after all
//! else has arrived, is what it was and nobody held the lock.

use std::{
    marker::PhantomData,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use drtm_rdma::{Port, Remote, VerbError, Verbs};

use super::{
    header,
    numbering::Numbering,
    segments::{self, Bucket, Kept},
};
use crate::{
    keys::Keys,
    layout::{BUCKET_BYTES, BUCKET_WORDS, Bits, SLOTS, key_word, meta_word},
};

/// A hash table on another node that cannot be reached, or is none.
///
/// # Example
///
/// See [`HashPeer`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// An operation failed.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// There is no table at that place, or one of another kind.
    #[error("no hash table at {at}: expected {expected:#018x}, found {found:#018x}; was it made with these keys?")]
    NotThisTable {
        /// Where it was looked for.
        at: Remote,
        /// The word that describes the table asked for.
        expected: u64,
        /// The word found.
        found: u64,
    },
    /// A link leads to a bucket that is not there.
    #[error("the hash table at {at} is corrupt: bucket {bucket} is not there")]
    NoBucket {
        /// The table.
        at: Remote,
        /// The bucket.
        bucket: u64,
    },
}

/// Where a record is on its node, and in which use of that memory: to be checked against what is found there.
///
/// # Example
///
/// See [`HashPeer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Location {
    /// The record.
    pub record: Remote,
    /// The incarnation that its head must have.
    pub incarnation: u16,
}

/// A hash table on another node. Threads can share it.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use drtm_htm::NoHtm;
/// use drtm_kv::{HashConfig, HashPeer, Inline, Store};
/// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Phase, Remote, block_on};
///
/// // Node 1 has a table.
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let table = store.hash_table(HashConfig::default())?;
/// table.insert(&mut store.worker(), 7, b"seven")?;
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
/// // One READ told where the segment is, which is known from now on, and one fetched the bucket.
/// assert!(endpoint.counters().total().reads - before <= 2);
/// assert!(block_on(&endpoint, peer.find(verbs, 8))?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct HashPeer<K: Keys> {
    at: Remote,
    numbering: Numbering,
    /// As many as there were when last looked.
    buckets: AtomicU64,
    main: Places,
    overflow: Places,
    keys: PhantomData<K>,
}

impl<K: Keys> HashPeer<K> {
    /// A table at a place on another node: the header is fetched, and checked.
    ///
    /// # Errors
    ///
    /// When it cannot be reached, or is not such a table.
    pub async fn open<P: Port>(verbs: Verbs<'_, P>, at: Remote) -> Result<Self, PeerError> {
        let header = verbs.read(at, header::KEYS).await?;
        let (expected, found) = (header::HASH_TABLE | K::CODE, header[header::KIND]);
        if found != expected {
            return Err(PeerError::NotThisTable { at, expected, found });
        }
        let numbering = Numbering::new(header[header::BASE]).ok_or(PeerError::NoBucket { at, bucket: 0 })?;
        Ok(Self {
            at,
            numbering,
            buckets: AtomicU64::new(header[header::BUCKETS]),
            main: Places::new(at + 8 * header::MAIN as u64),
            overflow: Places::new(at + 8 * header::OVERFLOW as u64),
            keys: PhantomData,
        })
    }

    /// Looks up where a key's record is. (Of a key that is a byte string, the fingerprint is looked up: the record tells.)
    ///
    /// # Errors
    ///
    /// When an operation fails, or the table is corrupt.
    pub async fn find<P: Port>(&self, verbs: Verbs<'_, P>, key: K::Key<'_>) -> Result<Option<Location>, PeerError> {
        let word = K::word(key);
        let hash = K::hash(word);
        let mut number = self.guess(hash);
        loop {
            let Some(main) = self.main.of(verbs, number).await? else {
                number = self.split_off(number)?;
                continue;
            };
            let bucket = fetch(verbs, main).await?;
            let mut current = bucket;
            loop {
                if let Some(location) = self.slot(&current, word) {
                    return Ok(Some(location));
                }
                let link = Bits::link(current[meta_word(Bits::LINK_SLOT)]);
                if link == 0 {
                    break;
                }
                let next = self.overflow.of(verbs, link).await?;
                current = fetch(verbs, next.ok_or(PeerError::NoBucket { at: self.at, bucket: link })?).await?;
            }
            let right = match Bits::depth(bucket[meta_word(Bits::DEPTH_SLOT)]) {
                None => self.split_off(number)?,
                Some(depth) => self.numbering.bucket(hash, depth),
            };
            if right != number {
                // The number of buckets has changed, as far as this key is concerned.
                number = right;
                self.refresh(verbs).await?;
                continue;
            }
            let version = verbs.read_word(main + 8 * meta_word(Bits::VERSION_SLOT) as u64).await?;
            let before = bucket[meta_word(Bits::VERSION_SLOT)];
            if !Bits::is_locked(version) && Bits::version(version) == Bits::version(before) {
                return Ok(None);
            }
        }
    }

    /// A key's slot in a bucket that was fetched.
    fn slot(&self, bucket: &[u64; BUCKET_WORDS], word: u64) -> Option<Location> {
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
            let record = Remote { offset: drtm_rdma::Offset::new(8 * place), ..self.at };
            Some(Location { record, incarnation })
        })
    }

    /// Where a search for this hash begins.
    fn guess(&self, hash: u64) -> u64 {
        let buckets = self.buckets.load(Relaxed);
        self.numbering.guess(hash, buckets, self.numbering.rounds(buckets))
    }

    /// The bucket that this one was split off, or will be.
    fn split_off(&self, bucket: u64) -> Result<u64, PeerError> {
        self.numbering.parent(bucket).ok_or(PeerError::NoBucket { at: self.at, bucket })
    }

    async fn refresh<P: Port>(&self, verbs: Verbs<'_, P>) -> Result<(), PeerError> {
        let buckets = verbs.read_word(self.at + 8 * header::BUCKETS as u64).await?;
        self.buckets.store(buckets, Relaxed);
        Ok(())
    }
}

async fn fetch<P: Port>(verbs: Verbs<'_, P>, at: Remote) -> Result<[u64; BUCKET_WORDS], PeerError> {
    let words = verbs.read(at, BUCKET_WORDS).await?;
    let mut bucket = [0; BUCKET_WORDS];
    bucket.copy_from_slice(&words);
    Ok(bucket)
}

/// Where segments of buckets are, as far as it has been asked for.
#[derive(Debug)]
struct Places {
    header: Remote,
    /// By segment: the offset, or zero for not known. As many as can be numbered with little memory; others are asked for anew.
    known: Box<[AtomicU64]>,
}

const REMEMBERED: usize = 1 << 16;

impl Places {
    fn new(header: Remote) -> Self {
        Self { header, known: (0..REMEMBERED).map(|_| AtomicU64::new(0)).collect() }
    }

    /// A bucket's place, if its segment is there.
    async fn of<P: Port>(&self, verbs: Verbs<'_, P>, bucket: u64) -> Result<Option<Remote>, PeerError> {
        let (segment, within) = segments::locate(bucket);
        let known = self.known.get(segment).map_or(0, |known| known.load(Relaxed));
        let begins = if known != 0 { known } else { self.ask(verbs, segment).await? };
        let offset = drtm_rdma::Offset::new(begins + within * BUCKET_BYTES);
        Ok((begins != 0).then_some(Remote { offset, ..self.header }))
    }

    async fn ask<P: Port>(&self, verbs: Verbs<'_, P>, segment: usize) -> Result<u64, PeerError> {
        let begins = match segments::kept(segment) {
            Kept::Header(word) => verbs.read_word(self.header + 8 * word as u64).await?,
            Kept::Directory { word, index, .. } => match verbs.read_word(self.header + 8 * word as u64).await? {
                0 => 0,
                directory => {
                    let offset = drtm_rdma::Offset::new(directory + 8 * index);
                    verbs.read_word(Remote { offset, ..self.header }).await?
                }
            },
        };
        if let Some(known) = self.known.get(segment) {
            known.store(begins, Relaxed);
        }
        Ok(begins)
    }
}

const _: () = assert!(size_of::<Bucket>() as u64 == BUCKET_BYTES || cfg!(drtm_loom));
