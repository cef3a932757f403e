//! One-sided reads of another node's records.

use std::marker::PhantomData;

use drtm_rdma::{Atomicity, Cost, Port, Remote, VerbError, Verbs, Words};

use super::{
    error::RemoteError,
    fetch::{Expected, Looked, Suspicion, look},
    image::Whole,
};
use crate::{
    Head, Holder, Location, Look, State, Turn, Version, hash,
    record::{HEAD, HEADER_WORDS, STATE, VERSION, keys::Keys},
    remote::peer::turns_of,
    store::bounds::{LONGEST, TRIES},
    table::base::{self, FLAGS},
};

/// The records of a table on another node. Threads and coroutines can share the handle.
///
/// The table must be [made for peers](crate::HashConfig::for_peers). The place of a key's record
/// comes from a [lookup](crate::HashPeer::find). On [`Look::Stale`], look the key up again.
///
/// While others write the record, reading retries for a moment, and other coroutines run meanwhile.
/// The result is [`Look::Busy`] then.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use drtm_htm::NoHtm;
/// use drtm_kv::{HashConfig, HashPeer, Holder, Inline, KvTable, Leases, Look, RecordPeer, Store};
/// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Phase, Region, Remote, block_on};
///
/// // Node 1 has a table for its peers.
/// let memory = Arc::new(Region::anonymous(NoHtm, 16 << 20)?);
/// let store = Store::in_region_of(NodeId(1), 0, memory)?;
/// let table = store.hash_table(HashConfig::default().for_peers())?;
/// table.insert(&mut store.worker()?, 7, b"seven")?;
/// let fabric = LocalFabric::new(2, LocalConfig::perfect());
/// let region = fabric.register(NodeId(1), Arc::clone(store.region()))?;
///
/// // Node 0 reads a record, and changes it, without node 1 doing anything.
/// let endpoint = fabric.endpoint(NodeId(0))?;
/// let verbs = endpoint.during(Phase::Execute);
/// let at = Remote { node: NodeId(1), region, offset: table.location() };
/// let me = (Holder::new(0, 0, 1, 0), Leases::None);
/// block_on(&endpoint, async {
///     let lookup = HashPeer::<Inline>::open(verbs, at).await?;
///     let records = RecordPeer::<Inline>::open(verbs, at).await?;
///     let location = lookup.find(verbs, 7).await?.expect("inserted above");
///     let mut value = Vec::new();
///     let Look::Found(read) = records.read(verbs, location, 7, &mut value).await? else { panic!("no other thread runs") };
///     assert_eq!(value, b"seven");
///
///     let locked = records.lock(verbs, location, 7, me, &mut value, (None, None)).await?;
///     let Look::Found(lock) = locked else { panic!("no other thread runs") };
///     assert_eq!(lock.version(), read.version);
///     lock.post_write::<Inline, _>(verbs, 7, (read.version.next(), b"SEVEN"))?.await?;
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// let mut value = [0; 5];
/// assert!(table.get(7, &mut value)?.is_some());
/// assert_eq!(&value, b"SEVEN");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RecordPeer<K: Keys> {
    pub(super) expected: Expected,
    /// Whether the owner's processors swap by its NIC.
    by_loopback: bool,
    keys: PhantomData<K>,
}

/// A record's version and state: what [`RecordPeer::check`] and [`RecordPeer::read`] find.
///
/// # Example
///
/// ```
/// use drtm_kv::{Holder, KvTable, Standing, Version};
///
/// let (mine, other) = (Holder::new(1, 0, 2, 0), Holder::new(3, 0, 4, 0));
/// let standing = Standing { version: Version::new(5), state: other.into() };
/// assert!(!standing.is_still(Version::new(5), mine), "another is about to write it");
/// assert!(Standing { state: mine.into(), ..standing }.is_still(Version::new(5), mine));
/// assert!(!Standing { state: mine.into(), ..standing }.is_still(Version::new(4), mine));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The version of its value.
    pub version: Version,
    /// Its lock and lease. [`RecordPeer::check`] loads them no later than the version.
    pub state: State,
}

impl Standing {
    /// Returns whether the version is this one, and no other holder has locked the record.
    ///
    /// # Example
    ///
    /// See [`Standing`].
    #[must_use]
    pub fn is_still(&self, version: Version, holder: Holder) -> bool {
        self.version == version && self.state.may_be_read_by(holder)
    }
}

impl<K: Keys> RecordPeer<K> {
    /// Opens the records of the hash table at this place.
    ///
    /// # Errors
    ///
    /// When the table cannot be reached, has other keys, or is not made for peers.
    ///
    /// # Example
    ///
    /// See [`RecordPeer`].
    pub async fn open<P: Port>(verbs: Verbs<'_, P>, at: Remote) -> Result<Self, RemoteError> {
        let header = verbs.read(at, FLAGS + 1).await?;
        let found = header[0];
        if found != hash::kind::<K>() {
            return Err(RemoteError::NotThisTable { at, found });
        }
        if !base::are_checked(header[FLAGS]) {
            return Err(RemoteError::NotForPeers { at });
        }
        Ok(Self { expected: Expected::new(), by_loopback: false, keys: PhantomData })
    }

    /// Says that processors of the owner swap state words [by its NIC](drtm_rdma::Region::swap_by),
    /// so that peers may swap them too, on a fabric whose swaps are atomic with each other only.
    #[must_use]
    pub fn swapped_by_loopback(self, is_so: bool) -> Self {
        Self { by_loopback: is_so, ..self }
    }

    /// Checks that a swap of a state word by verbs is atomic with those of the owner's processors.
    pub(super) fn check_atomicity<P: Port>(&self, verbs: Verbs<'_, P>) -> Result<(), RemoteError> {
        match verbs.endpoint().capabilities().atomicity {
            Atomicity::Global => Ok(()),
            Atomicity::Hca if self.by_loopback => Ok(()),
            Atomicity::Hca | Atomicity::None => Err(RemoteError::NotAtomic),
        }
    }

    /// Reads the record's value consistently, and its state with it. On any other result, `value`
    /// is invalid.
    ///
    /// A record that is locked, but not being written yet, can be read: its value is still the last
    /// one. A lock that was taken or given up meanwhile may or may not be seen. Only
    /// [`check`](Self::check) says that there was none.
    ///
    /// The record is another table's if the location is too old, which a
    /// [later turn](Location::is_within) says.
    ///
    /// # Errors
    ///
    /// When an operation fails, or when the record is corrupt.
    pub async fn read<P: Port>(
        &self,
        verbs: Verbs<'_, P>,
        location: Location,
        key: K::Key<'_>,
        value: &mut Vec<u8>,
    ) -> Result<Look<Standing>, RemoteError> {
        let looked = self.look(verbs, location, key, None, (None, value)).await?;
        Ok(looked.map(|Whole { version, state, .. }| Standing { version, state }))
    }

    /// Reads the record until it is consistent, at most for a moment. A lock of this holder is no
    /// reason for a torn one.
    pub(super) async fn look<P: Port>(
        &self,
        verbs: Verbs<'_, P>,
        location: Location,
        key: K::Key<'_>,
        mut fetched: Option<Words<'_, P>>,
        (holder, value): (Option<Holder>, &mut Vec<u8>),
    ) -> Result<Look<Whole>, RemoteError> {
        let mut suspicion = Suspicion::default();
        for tries in 1..TRIES {
            let looked = look::<K, P>(verbs, location, key, &self.expected, fetched.take(), value).await?;
            verbs.endpoint().charge(Cost::Copy(value.len()));
            match looked {
                Looked::At(Look::Busy) => {}
                Looked::At(found) => return Ok(found),
                Looked::Torn(version, state) if suspicion.is_proven_by(version, state, holder) => {
                    return Err(RemoteError::Corrupt { at: location.record });
                }
                Looked::Torn(..) => {}
            }
            for _ in 0..LONGEST.min(1 << tries.min(31)) {
                verbs.endpoint().yield_now().await;
            }
        }
        Ok(Look::Busy)
    }

    /// Reads the record's version and state without its value, to validate a version that was read
    /// before: by one READ, where a line is fetched at once. The record is the one that was read if
    /// the location [holds](Location::is_within) in a turn that the caller reads afterwards.
    ///
    /// # Errors
    ///
    /// When an operation fails.
    pub async fn check<P: Port>(&self, verbs: Verbs<'_, P>, location: Location) -> Result<Look<Standing>, RemoteError> {
        let [state, version, head] = match standing(verbs, location).await? {
            Some(words) => words,
            None => match standing_in_turn(verbs, location).await? {
                Some(words) => words,
                None => return Ok(Look::Stale),
            },
        };
        let version = Version(version);
        Ok(if Head(head).incarnation() != location.incarnation || version.is_removed() {
            Look::Stale
        } else if version.is_writing() {
            Look::Busy
        } else {
            Look::Found(Standing { version, state: State(state) })
        })
    }
}

/// What a validation looks at, none of it later than the next.
///
/// The order matters. A lock that was taken before the version was read is seen. So no transaction
/// was about to change a free record of some version. The incarnation is that of the version, or
/// later.
const STANDING: [usize; 3] = [STATE, VERSION, HEAD];

/// Reads the words of [`STANDING`] in one doorbell, before anything that is posted later. `None`:
/// the queue had no room.
async fn standing<P: Port>(verbs: Verbs<'_, P>, location: Location) -> Result<Option<[u64; 3]>, VerbError> {
    const FIRST: usize = HEAD;
    const { assert!(FIRST < STATE && FIRST < VERSION, "the words from the first on have all of them") };
    let word = |word: usize| location.record + 8 * word as u64;
    let mut batch = verbs.batch();
    if verbs.endpoint().capabilities().reads_at_once(word(FIRST).offset, HEADER_WORDS - FIRST) {
        let Ok(words) = batch.read(word(FIRST), HEADER_WORDS - FIRST) else { return Ok(None) };
        batch.ring();
        let words = words.await?;
        return Ok(Some(STANDING.map(|word| words[word - FIRST])));
    }
    // One READ fetches them in any order. Several READs to one node stay in order.
    let posted = STANDING.map(|at| batch.read(word(at), 1));
    let [Ok(state), Ok(version), Ok(head)] = posted else { return Ok(None) };
    batch.ring();
    Ok(Some([state.await?[0], version.await?[0], head.await?[0]]))
}

/// Reads the words one after the other, where the queue had no room for all at once, and then the
/// turn: what the caller reads may have been posted before. `None`: the location is outdated.
async fn standing_in_turn<P: Port>(verbs: Verbs<'_, P>, location: Location) -> Result<Option<[u64; 3]>, VerbError> {
    let mut words = [0; STANDING.len()];
    for (word, value) in STANDING.into_iter().zip(&mut words) {
        *value = verbs.read_word(location.record + 8 * word as u64).await?;
    }
    let turn = Turn(verbs.read_word(turns_of(location.record)).await?);
    Ok(location.is_within(turn).then_some(words))
}
