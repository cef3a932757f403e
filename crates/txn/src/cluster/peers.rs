//! Other nodes' memory, and what verbs do there for a transaction: the one-sided forms of reading,
//! checking, locking and writing a row.

use std::{
    future::{Future, poll_fn},
    sync::Arc,
    task::Poll,
};

use drtm_kv::{
    BucketCache, Bytes, HashPeer, Holder, Inline, Keys, Leases, Location, Look, PeerError, RecordLock, RecordPeer,
    RemoteError, Standing, Turn, Version,
};
use drtm_rdma::{Endpoint, NodeId, Offset, Port, RegionId, Remote, Verbs};

use super::{ClusterError, Refusal, wire::parts::Welcome};
use crate::{Conflict, Durability, Error, memory::storage::KeyRef, mutation::Mutation};

/// A node, as its peers reach into its memory.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) node: NodeId,
    /// Its snapshot number; behind it, how many snapshots are open there; the number of its view;
    /// and its turns.
    line: Remote,
    /// When its log has what is written to it: `None` without a log.
    pub(super) durability: Option<Durability>,
    pub(super) tables: Vec<Option<TablePeer>>,
}

/// A hash table of another node.
#[derive(Debug)]
pub(super) enum TablePeer {
    Words(HashPeer<Inline>, RecordPeer<Inline>),
    Bytes(HashPeer<Bytes>, RecordPeer<Bytes>),
}

/// What was found of a row.
#[derive(Debug)]
pub(super) enum Glimpse {
    /// Its record, with its value.
    Record { location: Location, version: Version, value: Vec<u8> },
    /// No record. Its owner has to say so, with a guard.
    Nothing,
    /// A record that is being written, or that another transaction has locked.
    Busy(Location),
}

/// What an owner's words say of what verbs have read there before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fence {
    /// The number of its view.
    pub(super) view: u64,
    /// How often names of its memory may have come round since what was read there was found.
    pub(super) turns: u64,
}

/// What was locked of a row: the lock, and the owner's line after that.
#[derive(Debug)]
pub(super) struct Locked {
    pub(super) lock: RecordLock,
    /// As it was read after the lock. Absent if another's, which is taken in the same round, is.
    pub(super) line: Option<[u64; 4]>,
    /// The value that the row has.
    pub(super) value: Vec<u8>,
}

/// Runs an expression with a table's peers and a key of its.
macro_rules! at {
    ($peer:expr, $table:expr, $key:expr, |$lookup:ident, $records:ident, $name:ident| $body:expr, else $other:expr) => {
        match ($peer.tables.get(usize::from($table)), $key) {
            (Some(Some(TablePeer::Words($lookup, $records))), KeyRef::Word($name)) => $body,
            (Some(Some(TablePeer::Bytes($lookup, $records))), KeyRef::Bytes($name)) => $body,
            _ => $other,
        }
    };
}
pub(super) use at;

impl Peer {
    /// Opens the tables of a node that has said where they are, as tables of words or of bytes.
    pub(super) async fn open<P: Port>(
        verbs: Verbs<'_, P>,
        node: NodeId,
        welcome: &Welcome,
        are_words: impl Fn(usize) -> bool,
        (cache, by_loopback): (Option<&Arc<BucketCache>>, bool),
    ) -> Result<Self, Error> {
        let at = |offset: u64| Remote { node, region: RegionId(welcome.region), offset: Offset::new(offset) };
        let mut tables = Vec::new();
        for (place, number) in welcome.tables.iter().zip(0..) {
            let Some(place) = place.map(at) else {
                tables.push(None);
                continue;
            };
            tables.push(Some(if are_words(number) {
                let (lookup, records) = open_table(verbs, place, (cache, by_loopback)).await?;
                TablePeer::Words(lookup, records)
            } else {
                let (lookup, records) = open_table(verbs, place, (cache, by_loopback)).await?;
                TablePeer::Bytes(lookup, records)
            }));
        }
        Ok(Self { node, line: at(welcome.line), durability: welcome.durability, tables })
    }

    /// Returns the region of its memory.
    pub(super) fn region(&self) -> RegionId {
        self.line.region
    }

    /// Returns where the number of its view is, and behind it its turns.
    pub(super) fn fence(&self) -> Remote {
        self.line + 16
    }

    /// Reads the number of its view, and its turns.
    pub(super) async fn read_fence<P: Port>(&self, verbs: Verbs<'_, P>) -> Result<Fence, Error> {
        let words = verbs.read(self.fence(), 2).await.map_err(|error| one_sided(self.node, error.into()))?;
        Ok(Fence { view: words[0], turns: words[1] })
    }

    /// Forgets where rows of a table were, if that is too long ago.
    pub(super) fn note_turns(&self, table: u16, turns: u64) {
        match self.tables.get(usize::from(table)) {
            Some(Some(TablePeer::Words(lookup, _))) => lookup.note_turns(Turn::from_word(turns)),
            Some(Some(TablePeer::Bytes(lookup, _))) => lookup.note_turns(Turn::from_word(turns)),
            _ => {}
        }
    }

    /// Returns whether rows of a table are found one-sidedly.
    pub(super) fn has(&self, table: u16) -> bool {
        matches!(self.tables.get(usize::from(table)), Some(Some(_)))
    }

    /// Checks that a row which another transaction has locked, or is writing, is not one that a
    /// dead node has locked.
    ///
    /// # Errors
    ///
    /// [`Refusal::HolderDead`].
    pub(super) async fn check_holder<P: Port>(
        &self,
        verbs: Verbs<'_, P>,
        location: Location,
        is_dead: impl Fn(Holder) -> bool,
    ) -> Result<(), Error> {
        let holder = location.holder(verbs).await.map_err(|error| one_sided(self.node, error.into()))?;
        match holder.is_some_and(is_dead) {
            true => Err(ClusterError::Refused { node: self.node, reason: Refusal::HolderDead }.into()),
            false => Ok(()),
        }
    }

    /// Looks a row up, and reads it for a holder. What another one has locked is about to change,
    /// so that a transaction that had read it would fail later.
    pub(super) async fn read<P: Port>(
        &self,
        verbs: Verbs<'_, P>,
        table: u16,
        key: KeyRef<'_>,
        (holder, has): (Holder, fn(Mutation) -> bool),
        is_dead: impl Fn(Holder) -> bool,
    ) -> Result<Glimpse, Error> {
        at!(self, table, key, |lookup, records, key| {
            let failed = |source| not_found(self.node, source);
            let mut found = lookup.find(verbs, key).await.map_err(failed)?;
            loop {
                let Some(location) = found else { return Ok(Glimpse::Nothing) };
                let mut value = Vec::new();
                let read = records.read(verbs, location, key, &mut value).await;
                match read.map_err(|error| one_sided(self.node, error))? {
                    Look::Found(Standing { state, .. })
                        if !state.may_be_read_by(holder) && !has(Mutation::LockedReadsBelieved) =>
                    {
                        if state.holder().is_some_and(&is_dead) {
                            return Err(ClusterError::Refused { node: self.node, reason: Refusal::HolderDead }.into());
                        }
                        return Ok(Glimpse::Busy(location));
                    }
                    Look::Found(Standing { version, .. }) => return Ok(Glimpse::Record { location, version, value }),
                    Look::Busy => {
                        self.check_holder(verbs, location, &is_dead).await?;
                        return Ok(Glimpse::Busy(location));
                    }
                    Look::Stale => {
                        let again = lookup.find_again(verbs, key).await.map_err(failed)?;
                        if again == found {
                            // It was removed, and is about to be taken out: its owner knows.
                            return Ok(Glimpse::Nothing);
                        }
                        found = again;
                    }
                    _ => return Ok(Glimpse::Nothing),
                }
            }
        }, else Ok(Glimpse::Nothing))
    }

    /// Returns whether a row is as it was read, and no other transaction has it locked.
    pub(super) async fn check<P: Port>(
        &self,
        verbs: Verbs<'_, P>,
        table: u16,
        key: KeyRef<'_>,
        (location, seen): (Location, Version),
        holder: Holder,
        has: fn(Mutation) -> bool,
    ) -> Result<(), Error> {
        at!(self, table, key, |_lookup, records, _key| {
            match records.check(verbs, location).await.map_err(|error| one_sided(self.node, error))? {
                Look::Found(standing) if standing.is_still(seen, holder) => Ok(()),
                Look::Found(standing) if has(Mutation::LocksOverlooked) && standing.version == seen => Ok(()),
                Look::Stale if has(Mutation::StaleLocationsBelieved) => Ok(()),
                _ => Err(Conflict::Validation.into()),
            }
        }, else Err(Conflict::Validation.into()))
    }

    /// Locks a row in a holder's name. Reads its owner's line after that, if it is the last lock of
    /// its round there, or is taken late. A value of the version that was seen is not read again.
    pub(super) async fn lock<P: Port>(
        &self,
        verbs: Verbs<'_, P>,
        table: u16,
        key: KeyRef<'_>,
        (location, seen): (Location, Option<Version>),
        holder: (Holder, Leases),
        (is_last, has, is_dead): (bool, fn(Mutation) -> bool, impl Fn(Holder) -> bool),
    ) -> Result<Locked, Error> {
        at!(self, table, key, |_lookup, records, key| {
            let mut value = Vec::new();
            let line = is_last.then_some(self.line);
            let locked = records.lock(verbs, location, key, holder, &mut value, (line, seen)).await;
            let lock = match locked.map_err(|error| one_sided(self.node, error))? {
                Look::Found(lock) => lock,
                Look::Busy => {
                    self.check_holder(verbs, location, is_dead).await?;
                    return Err(Conflict::Locked.into());
                }
                _ => return Err(Conflict::Moved.into()),
            };
            let line = match lock.line() {
                Some(line) => Some(line),
                None if !is_last && (lock.is_prompt() || has(Mutation::LateLinesNotRead)) => None,
                // One after the other, so that a snapshot is seen that was opened before the number
                // was read.
                None => {
                    let failed = |error: drtm_rdma::VerbError| one_sided(self.node, error.into());
                    let mut line = [0; 4];
                    for (word, at) in line.iter_mut().zip((0..).step_by(8)) {
                        *word = verbs.read_word(self.line + at).await.map_err(failed)?;
                    }
                    Some(line)
                }
            };
            Ok(Locked { lock, line, value })
        }, else Err(Conflict::Moved.into()))
    }
}

/// Opens a table, with what is remembered of where rows were.
async fn open_table<K: Keys, P: Port>(
    verbs: Verbs<'_, P>,
    place: Remote,
    (cache, by_loopback): (Option<&Arc<BucketCache>>, bool),
) -> Result<(HashPeer<K>, RecordPeer<K>), Error> {
    let node = place.node;
    let lookup = HashPeer::open(verbs, place).await.map_err(|error| not_found(node, error))?;
    let records = RecordPeer::open(verbs, place).await.map_err(|error| one_sided(node, error))?;
    let records = records.swapped_by_loopback(by_loopback);
    let lookup = match cache {
        Some(cache) => lookup.with_cache(Arc::clone(cache)),
        None => lookup,
    };
    Ok((lookup, records))
}

/// Returns what a failure to look a row up is for a transaction.
pub(super) fn not_found(node: NodeId, source: PeerError) -> Error {
    ClusterError::Lookup { node, source }.into()
}

/// Returns what a failure of verbs is for a transaction.
pub(super) fn one_sided(node: NodeId, source: RemoteError) -> Error {
    ClusterError::OneSided { node, source }.into()
}

/// How many futures are polled at the same time.
const AT_ONCE: usize = 128;

/// Runs futures at the same time, and gives what they give, in order. What they post at the same
/// time shares doorbells. Of many, the later ones begin as the earlier ones end.
pub(super) async fn all<P: Port, T>(
    endpoint: &Endpoint<P>,
    futures: impl ExactSizeIterator<Item = impl Future<Output = T>>,
) -> Vec<T> {
    if futures.len() == 0 {
        return Vec::new();
    }
    let mut outputs: Vec<Option<T>> = (0..futures.len()).map(|_| None).collect();
    let mut waiting = futures.enumerate();
    let mut running: Vec<_> = waiting.by_ref().take(AT_ONCE).map(|(at, future)| (at, Box::pin(future))).collect();
    poll_fn(|context| {
        endpoint.together(|| {
            let mut next = 0;
            while let Some((at, future)) = running.get_mut(next) {
                let Poll::Ready(value) = future.as_mut().poll(context) else {
                    next += 1;
                    continue;
                };
                outputs[*at] = Some(value);
                // Another one takes its place, and is polled next.
                match waiting.next() {
                    Some((at, future)) => running[next] = (at, Box::pin(future)),
                    None => drop(running.swap_remove(next)),
                }
            }
        });
        if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let ended = |output: Option<T>| match output {
        Some(output) => output,
        None => unreachable!("all futures have ended"),
    };
    outputs.into_iter().map(ended).collect()
}
