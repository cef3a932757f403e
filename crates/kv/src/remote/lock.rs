//! Locking another node's records.

use drtm_rdma::{Batch, Pending, Port, Remote, VerbError, Verbs, Words};

use super::{
    error::RemoteError,
    image::{Image, LEAST_WORDS, Whole},
    record::RecordPeer,
};
use crate::{
    Acquire, Head, Holder, Leases, Location, Look, State, Version, acquire,
    record::{HEAD, STATE, keys::Keys},
};

/// Words to be read after the lock was taken.
struct Line {
    at: Option<Remote>,
    is: Option<[u64; LINE]>,
    /// Whether the first doorbell of the attempt has taken the lock.
    is_prompt: bool,
}

/// A record that its holder has locked. It stays locked until it is [written](Self::post_write), or
/// until its owner unlocks it for the holder. Dropping the `RecordLock` does not unlock the record,
/// since that takes a round trip.
///
/// # Example
///
/// See [`RecordPeer`].
#[derive(Debug)]
#[must_use = "the record stays locked until it is written or unlocked"]
pub struct RecordLock {
    pub(super) location: Location,
    /// The key word.
    pub(super) key: u64,
    pub(super) whole: Whole,
    line: Option<[u64; LINE]>,
    is_prompt: bool,
}

/// The words of a line.
const LINE: usize = 4;

/// The words of a line that are being read: in one READ where that cannot tear them, and by one
/// READ for each, in order, elsewhere.
enum LineWords<'e, P: Port> {
    Together(Posted<'e, P>),
    InTurn([Posted<'e, P>; LINE]),
}

/// Words that are being read, if the queue had room.
type Posted<'e, P> = Result<Pending<'e, P, Words<'e, P>>, VerbError>;

impl<'e, P: Port> LineWords<'e, P> {
    fn post(verbs: Verbs<'e, P>, batch: &mut Batch<'e, P>, at: Remote) -> Self {
        if verbs.endpoint().capabilities().reads_at_once(at.offset, LINE) {
            Self::Together(batch.read(at, LINE))
        } else {
            Self::InTurn([0, 8, 16, 24].map(|word| batch.read(at + word, 1)))
        }
    }

    async fn fetched(self) -> Option<[u64; LINE]> {
        Some(match self {
            Self::Together(words) => {
                let words = words.ok()?.await.ok()?;
                std::array::from_fn(|word| words[word])
            }
            Self::InTurn(words) => {
                let mut line = [0; LINE];
                for (word, fetched) in line.iter_mut().zip(words) {
                    *word = fetched.ok()?.await.ok()?[0];
                }
                line
            }
        })
    }
}

impl RecordLock {
    /// Returns the words that were [read after](RecordPeer::lock) the lock was taken. `None`: the
    /// queue had no room.
    #[must_use]
    pub fn line(&self) -> Option<[u64; LINE]> {
        self.line
    }

    /// Returns whether the first doorbell of the attempt has taken the lock. The lock was then
    /// taken no later than anything posted after that doorbell.
    #[must_use]
    pub fn is_prompt(&self) -> bool {
        self.is_prompt
    }

    /// Returns the record's version, which does not change while the record is locked.
    #[must_use]
    pub fn version(&self) -> Version {
        self.whole.version
    }

    /// Returns the length of the record's value. A value that is written in place must have this
    /// length.
    #[must_use]
    pub fn value_length(&self) -> usize {
        self.whole.shape.value
    }
}

impl<K: Keys> RecordPeer<K> {
    /// Locks the record for a holder if it is free, with what the holder knows about leases, and
    /// reads its value. It takes one round trip, and waits for no other holder.
    ///
    /// Also reads four words of the owner in the same round trip: after the lock was taken, and
    /// none later than the next. They are the lock's [line](RecordLock::line).
    ///
    /// If the record still has the version that the caller has `seen` there, its value is not
    /// fetched again, and `value` is invalid.
    ///
    /// The record is the key's if the location [holds](Location::is_within) in a turn that the
    /// caller reads afterwards.
    ///
    /// # Errors
    ///
    /// [`RemoteError::NotAtomic`] where CAS is not atomic with the processors'. Also when an
    /// operation fails, or when the record is corrupt. The record is not locked then, unless the
    /// fabric has failed without a definite outcome.
    pub async fn lock<P: Port>(
        &self,
        verbs: Verbs<'_, P>,
        location: Location,
        key: K::Key<'_>,
        (holder, leases): (Holder, Leases),
        value: &mut Vec<u8>,
        (line_at, seen): (Option<Remote>, Option<Version>),
    ) -> Result<Look<RecordLock>, RemoteError> {
        self.check_atomicity(verbs)?;
        let mut line = Line { at: line_at, is: None, is_prompt: false };
        let words = seen.map_or_else(|| self.expected.words(verbs), |_| LEAST_WORDS);
        let mut fetched = match swap_and_fetch(verbs, location, (holder, leases), words, &mut line).await?.found() {
            Ok(fetched) => fetched,
            Err(not_had) => return Ok(not_had),
        };
        let Line { is: line, is_prompt, .. } = line;
        let locked = |whole| Look::Found(RecordLock { location, key: K::word(key), whole, line, is_prompt });
        if let Some(seen) = seen
            && let Some(words) = fetched.take()
            && let Some(whole) = Image::unchanged::<K>(&words, location.incarnation, key, seen)
        {
            return Ok(locked(whole));
        }
        let looked = self.look(verbs, location, key, fetched, (Some(holder), value)).await;
        let not_it = match looked.map(Look::found) {
            Ok(Ok(whole)) => return Ok(locked(whole)),
            Ok(Err(other)) => Ok(other),
            Err(error) => Err(error),
        };
        // The record is another one by now, or not readable, so it is unlocked.
        location.unlock(verbs, holder).await?;
        not_it
    }
}

/// Swaps the state word as [`acquire()`] decides, at first as that of a free record. Fetches the
/// record's first words in the same batch.
async fn swap_and_fetch<'e, P: Port>(
    verbs: Verbs<'e, P>,
    location: Location,
    (holder, leases): (Holder, Leases),
    count: usize,
    line: &mut Line,
) -> Result<Look<Option<Words<'e, P>>>, RemoteError> {
    let at = location.record + 8 * STATE as u64;
    let mut seen = State::FREE;
    while let Acquire::Swap(from) = acquire(seen, holder, leases) {
        let mut batch = verbs.batch();
        let swap = batch.compare_swap(at, from.0, holder.word());
        let read = batch.read(location.record, count);
        let line_words = line.at.map(|at| LineWords::post(verbs, &mut batch, at));
        (line.is, line.is_prompt) = (None, false);
        let (found, words) = match (swap, read) {
            (Ok(swap), Ok(read)) => {
                batch.ring();
                let (found, words) = (State(swap.await?), read.await);
                if let Some(words) = line_words {
                    line.is = words.fetched().await;
                }
                line.is_prompt = seen == State::FREE;
                (found, Some(words))
            }
            _ => {
                // The queue had no room for all at once.
                drop((batch, line_words));
                (State(verbs.compare_swap(at, from.0, holder.word()).await?), None)
            }
        };
        // An out-of-bounds READ does not matter here: the record is fetched again.
        let words = match words {
            None | Some(Err(VerbError::OutOfBounds { .. })) => None,
            Some(Ok(words)) => Some(words),
            Some(Err(error)) => {
                if found == from {
                    location.unlock(verbs, holder).await?;
                }
                return Err(error.into());
            }
        };
        if found == from {
            return Ok(Look::Found(words));
        }
        // Free memory is locked too, and stays locked for long.
        if words.is_some_and(|words| Head(words[HEAD]).incarnation() != location.incarnation) {
            return Ok(Look::Stale);
        }
        seen = found;
    }
    Ok(Look::Busy)
}

impl Location {
    /// Unlocks whatever record is at this place, if this holder has locked it. A swap by an
    /// outdated location may have locked another row's record, which only its place leads to.
    ///
    /// Takes effect after all swaps that this endpoint has posted before.
    ///
    /// # Errors
    ///
    /// When the operation fails.
    ///
    /// # Example
    ///
    /// ```
    /// use std::sync::Arc;
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{HashConfig, HashPeer, Holder, Inline, KvTable, Leases, RecordPeer, Store};
    /// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Phase, Region, Remote, block_on};
    ///
    /// let memory = Arc::new(Region::anonymous(NoHtm, 16 << 20)?);
    /// let store = Store::in_region_of(NodeId(1), 0, memory)?;
    /// let table = store.hash_table(HashConfig::default().for_peers())?;
    /// table.insert(&mut store.worker()?, 7, b"seven")?;
    /// let fabric = LocalFabric::new(2, LocalConfig::perfect());
    /// let region = fabric.register(NodeId(1), Arc::clone(store.region()))?;
    ///
    /// let endpoint = fabric.endpoint(NodeId(0))?;
    /// let verbs = endpoint.during(Phase::Execute);
    /// let at = Remote { node: NodeId(1), region, offset: table.location() };
    /// let me = Holder::new(0, 0, 1, 0);
    /// block_on(&endpoint, async {
    ///     let location = HashPeer::<Inline>::open(verbs, at).await?.find(verbs, 7).await?.expect("inserted above");
    ///     let records = RecordPeer::<Inline>::open(verbs, at).await?;
    ///     let _lock = records.lock(verbs, location, 7, (me, Leases::None), &mut Vec::new(), (None, None)).await?;
    ///     assert_eq!(store.records().holder_of(location.handle()), Some(me));
    ///     location.unlock(verbs, Holder::new(0, 0, 2, 0)).await?;
    ///     assert_eq!(store.records().holder_of(location.handle()), Some(me), "it is another's");
    ///     location.unlock(verbs, me).await?;
    ///     assert_eq!(store.records().holder_of(location.handle()), None);
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn unlock<P: Port>(self, verbs: Verbs<'_, P>, holder: Holder) -> Result<(), VerbError> {
        verbs.compare_swap(self.record + 8 * STATE as u64, holder.word(), State::FREE.0).await.map(drop)
    }

    /// Reads which transaction has locked whatever record is at this place. `None`: it is not
    /// locked.
    ///
    /// # Errors
    ///
    /// When the operation fails.
    ///
    /// # Example
    ///
    /// ```
    /// use std::sync::Arc;
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{HashConfig, HashPeer, Holder, Inline, KvTable, Leases, RecordPeer, Store};
    /// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Phase, Region, Remote, block_on};
    ///
    /// let memory = Arc::new(Region::anonymous(NoHtm, 16 << 20)?);
    /// let store = Store::in_region_of(NodeId(1), 0, memory)?;
    /// let table = store.hash_table(HashConfig::default().for_peers())?;
    /// table.insert(&mut store.worker()?, 7, b"seven")?;
    /// let fabric = LocalFabric::new(2, LocalConfig::perfect());
    /// let region = fabric.register(NodeId(1), Arc::clone(store.region()))?;
    ///
    /// let endpoint = fabric.endpoint(NodeId(0))?;
    /// let verbs = endpoint.during(Phase::Execute);
    /// let at = Remote { node: NodeId(1), region, offset: table.location() };
    /// let me = Holder::new(0, 0, 1, 0);
    /// block_on(&endpoint, async {
    ///     let location = HashPeer::<Inline>::open(verbs, at).await?.find(verbs, 7).await?.expect("inserted above");
    ///     let records = RecordPeer::<Inline>::open(verbs, at).await?;
    ///     assert_eq!(location.holder(verbs).await?, None);
    ///     let _lock = records.lock(verbs, location, 7, (me, Leases::None), &mut Vec::new(), (None, None)).await?;
    ///     assert_eq!(location.holder(verbs).await?, Some(me));
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn holder<P: Port>(self, verbs: Verbs<'_, P>) -> Result<Option<Holder>, VerbError> {
        Ok(State(verbs.read_word(self.record + 8 * STATE as u64).await?).holder())
    }
}
