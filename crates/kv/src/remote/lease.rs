//! One-sided leases of another node's records: DrTM's shared lock.

use drtm_rdma::{Port, Remote, Verbs};

use super::{error::RemoteError, record::RecordPeer};
use crate::{
    Head, Leases, Lend, Location, Look, State, Version, lend,
    record::{HEAD, STATE, keys::Keys},
};

/// The result of reading a record under a lease.
///
/// # Example
///
/// See [`RecordPeer::lease_and_read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leased {
    /// The version of its value.
    pub version: Version,
    /// The end of the lease: the value does not change before.
    pub end: u64,
    /// Two words of the owner, read after the lease was taken, or found to run. `None`: they were
    /// not wanted, or the queue had no room.
    pub words: Option<[u64; 2]>,
    /// Whether the lease was taken, or found to run, by the first doorbell: no later than anything
    /// posted after that doorbell.
    pub is_prompt: bool,
}

impl<K: Keys> RecordPeer<K> {
    /// Leases the record until a time, or shares a lease that runs, and reads its value. It takes
    /// one round trip if the record is free or its lease runs, and two if its lease has expired.
    /// `leases` says what the caller knows about expired leases.
    ///
    /// The value is valid as long as the time is known to be before the lease's end.
    ///
    /// Also reads two words of the owner in the same round trip, if the first is given. The record
    /// is the key's if the location [holds](Location::is_within) in a turn that is read afterwards.
    ///
    /// # Errors
    ///
    /// [`RemoteError::NotAtomic`] where CAS is not atomic with the processors'. Also when an
    /// operation fails, or when the record is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use std::sync::Arc;
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{HashConfig, HashPeer, Inline, KvTable, Leases, Look, RecordPeer, Store};
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
    /// block_on(&endpoint, async {
    ///     let lookup = HashPeer::<Inline>::open(verbs, at).await?;
    ///     let records = RecordPeer::<Inline>::open(verbs, at).await?;
    ///     let location = lookup.find(verbs, 7).await?.expect("inserted above");
    ///     let mut value = Vec::new();
    ///     // The time is 100, and the lease ends at 500.
    ///     let leased = records.lease_and_read(verbs, location, 7, (500, Leases::At(100)), None, &mut value).await?;
    ///     let Look::Found(leased) = leased else { panic!("no other thread runs") };
    ///     assert_eq!((leased.end, &value[..]), (500, &b"seven"[..]));
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn lease_and_read<P: Port>(
        &self,
        verbs: Verbs<'_, P>,
        location: Location,
        key: K::Key<'_>,
        (until, leases): (u64, Leases),
        words_at: Option<Remote>,
        value: &mut Vec<u8>,
    ) -> Result<Look<Leased>, RemoteError> {
        self.check_atomicity(verbs)?;
        let (at, to) = (location.record + 8 * STATE as u64, State::leased_until(until));
        let mut from = State::FREE;
        let (end, fetched, more) = loop {
            let mut batch = verbs.batch();
            let swap = batch.compare_swap(at, from.0, to.0);
            let read = batch.read(location.record, self.expected.words(verbs));
            let more = words_at.map(|at| batch.read(at, 2));
            let (found, fetched, more) = match (swap, read) {
                (Ok(swap), Ok(read)) => {
                    batch.ring();
                    let (found, fetched) = (State(swap.await?), read.await.ok());
                    // A failed READ does not matter here: what it should have read is read again,
                    // or that fails, too.
                    let more = match more {
                        Some(Ok(words)) => words.await.ok().map(|words| [words[0], words[1]]),
                        _ => None,
                    };
                    (found, fetched, more)
                }
                _ => {
                    // The queue had no room for all at once.
                    drop((batch, more));
                    (State(verbs.compare_swap(at, from.0, to.0).await?), None, None)
                }
            };
            if found == from {
                break (until, fetched, more);
            }
            // Free memory is locked, and stays locked for long.
            let is_gone = |words: &[u64]| Head(words[HEAD]).incarnation() != location.incarnation;
            if fetched.as_ref().is_some_and(|words| is_gone(words)) {
                return Ok(Look::Stale);
            }
            match lend(found, leases) {
                Lend::Swap(next) => from = next,
                Lend::Shared(end) => break (end, fetched, more),
                Lend::Locked(_) => return Ok(Look::Busy),
            }
        };
        let is_prompt = from == State::FREE && fetched.is_some();
        let looked = self.look(verbs, location, key, fetched, (None, value)).await?;
        Ok(looked.map(|whole| Leased { version: whole.version, end, words: more, is_prompt }))
    }
}
