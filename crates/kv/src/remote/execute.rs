//! Carrying out a request on a table, whatever the table's kind and keys.

use std::ops::Bound;

use drtm_htm::Engine;

use super::{
    refusal::Refusal,
    wire::{Answer, HEAD, Request, put_row},
};
use crate::{
    Handle, Holder, KvError, KvTable, Leases, Locking, Version, Worker, keys::Keys, layout::Place, record::Record,
};

/// What was said to a request.
pub(super) enum Said {
    /// It is in the reply already.
    Put,
    Answer(Answer<'static>),
}

impl Said {
    fn done_or_not(version: Option<Version>) -> Self {
        Self::Answer(version.map_or(Answer::Not, Answer::Done))
    }
}

/// Why a request was not carried out.
pub(super) enum Failure {
    Busy,
    Refused(Refusal),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<KvError> for Failure {
    fn from(error: KvError) -> Self {
        match error {
            KvError::Busy => Self::Busy,
            error => Self::Refused(error.into()),
        }
    }
}

/// Room for a value before its length is known.
const LIKELY: usize = 256;

/// A request that is being carried out.
pub(super) struct Job<'j, E: Engine> {
    pub(super) worker: &'j mut Worker<E>,
    pub(super) request: Request<'j>,
    /// The longest that the reply may be.
    pub(super) most: usize,
    pub(super) reply: &'j mut Vec<u8>,
}

impl<E: Engine> Job<'_, E> {
    pub(super) fn on<K: Keys, T: KvTable<E, K>>(self, table: &T) -> Result<Said, Failure> {
        let worker = self.worker;
        Ok(match self.request {
            Request::Get { key } => return get::<E, K, T>(table, self::key::<K>(key)?, self.most, self.reply),
            Request::Insert { key, value } => Said::done_or_not(table.insert(worker, self::key::<K>(key)?, value)?),
            Request::Put { key, value } => Said::done_or_not(Some(table.put(worker, self::key::<K>(key)?, value)?)),
            Request::Update { key, value } => Said::done_or_not(table.update(worker, self::key::<K>(key)?, value)?),
            Request::Remove { key } => Said::done_or_not(table.remove(worker, self::key::<K>(key)?)?),
            Request::Range { low, high, rows } => {
                let range = (bound::<K>(low)?, bound::<K>(high)?);
                return rows_of::<E, K, T>(table, range, rows, self.most, self.reply);
            }
            Request::Lock { key, place, holder, leases } => {
                lock::<E, K, T>(table, self::key::<K>(key)?, place, (holder, leases))?
            }
            // Done before, since it needs no table.
            Request::Unlock { .. } => Said::Answer(Answer::Stale),
        })
    }
}

fn key<K: Keys>(bytes: &[u8]) -> Result<K::Key<'_>, Refusal> {
    K::from_bytes(bytes).ok_or(Refusal::NotItsKey { length: bytes.len() })
}

fn bound<K: Keys>(bound: Bound<&[u8]>) -> Result<Bound<K::Key<'_>>, Refusal> {
    Ok(match bound {
        Bound::Included(bytes) => Bound::Included(key::<K>(bytes)?),
        Bound::Excluded(bytes) => Bound::Excluded(key::<K>(bytes)?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

fn get<E: Engine, K: Keys, T: KvTable<E, K>>(
    table: &T,
    key: K::Key<'_>,
    most: usize,
    reply: &mut Vec<u8>,
) -> Result<Said, Failure> {
    let most = most.saturating_sub(HEAD);
    let mut room = LIKELY.min(most);
    loop {
        reply.resize(HEAD + room, 0);
        let Some(read) = table.get(key, &mut reply[HEAD..])? else { return Ok(Said::Answer(Answer::Not)) };
        if read.length > most {
            return Err(Refusal::ReplyTooLong { length: read.length, most }.into());
        }
        if read.length <= room {
            reply.truncate(HEAD + read.length);
            Answer::put_value_head(reply, read.version);
            return Ok(Said::Put);
        }
        room = read.length;
    }
}

fn rows_of<'k, E: Engine, K: Keys, T: KvTable<E, K>>(
    table: &T,
    range: (Bound<K::Key<'k>>, Bound<K::Key<'k>>),
    limit: u64,
    most: usize,
    reply: &mut Vec<u8>,
) -> Result<Said, Failure> {
    reply.resize(HEAD, 0);
    let (mut count, mut too_long) = (0, None);
    let more = table.visit(range, |key, value, version| {
        if u64::from(count) >= limit {
            return false;
        }
        match put_row(reply, most, key, value, version) {
            Ok(()) => {
                count += 1;
                true
            }
            Err(length) => {
                too_long = Some(length);
                false
            }
        }
    })?;
    match (more, too_long) {
        (None, _) => Err(Refusal::NotOrdered.into()),
        // Not even the first: whoever asks again would get no further.
        (_, Some(length)) if count == 0 => {
            Err(Refusal::ReplyTooLong { length, most: most.saturating_sub(HEAD) }.into())
        }
        (Some(more), _) => {
            Answer::put_rows_head(reply, count, more);
            Ok(Said::Put)
        }
    }
}

/// Locks the key's record, if it is where the peer believes it to be.
fn lock<E: Engine, K: Keys, T: KvTable<E, K>>(
    table: &T,
    key: K::Key<'_>,
    place: Place,
    (holder, leases): (Holder, Leases),
) -> Result<Said, Failure> {
    let (at, store) = (Handle::of(place), table.store());
    let since = store.turn();
    if !table.leads_to(key, at)? {
        return Ok(Said::Answer(Answer::Stale));
    }
    Ok(match Record::at(store.region(), place).map_err(KvError::from)?.lock_as_it_is(holder, leases) {
        // Removed, or another's by now, if its incarnation has come round.
        Locking::Taken { version, .. } if version.is_removed() || !store.is_within(since) => {
            store.records().unlock(at);
            Said::Answer(Answer::Stale)
        }
        Locking::Taken { version, .. } => Said::Answer(Answer::Done(version)),
        Locking::Mine { .. } | Locking::Held(_) => Said::Answer(Answer::Busy),
        Locking::Gone => Said::Answer(Answer::Stale),
    })
}
