//! Executing a request on a table, whatever the table's kind and keys.

use std::ops::Bound;

use drtm_htm::Engine;

use super::{
    refusal::Refusal,
    wire::{Answer, HEAD, Request, put_row},
};
use crate::{
    Handle, Holder, KvError, KvTable, Leases, Locking, Version, Worker, keys::Keys, layout::Place, record::Record,
};

/// The room for a value before its length is known.
const LIKELY: usize = 256;

/// A request that is being executed.
pub(super) struct Job<'j, E: Engine> {
    pub(super) worker: &'j mut Worker<E>,
    pub(super) request: Request<'j>,
    /// The longest possible reply, in bytes.
    pub(super) most: usize,
    pub(super) reply: &'j mut Vec<u8>,
}

impl<E: Engine> Job<'_, E> {
    /// Executes the request, and writes the answer to the reply. `Err` has an answer to send
    /// instead.
    pub(super) fn on<K: Keys, T: KvTable<E, K>>(self, table: &T) -> Result<(), Answer<'static>> {
        let Self { worker, request, most, reply } = self;
        let done = match request {
            Request::Get { key } => return get::<E, K, T>(table, self::key::<K>(key)?, most, reply),
            Request::Insert { key, value } => table.insert(worker, self::key::<K>(key)?, value)?,
            Request::Put { key, value } => Some(table.put(worker, self::key::<K>(key)?, value)?),
            Request::Update { key, value } => table.update(worker, self::key::<K>(key)?, value)?,
            Request::Remove { key } => table.remove(worker, self::key::<K>(key)?)?,
            Request::Range { low, high, rows } => {
                let range = (bound::<K>(low)?, bound::<K>(high)?);
                return rows_of::<E, K, T>(table, range, rows, most, reply);
            }
            Request::Lock { key, place, holder, leases } => {
                Some(lock::<E, K, T>(table, self::key::<K>(key)?, place, (holder, leases))?)
            }
            Request::Unlock { place, holder } => {
                let record = Record::at(table.store().region(), place).map_err(KvError::from)?;
                record.release(holder).map_err(Answer::Held)?;
                Some(Version::default())
            }
        };
        done.map_or(Answer::Not, Answer::Done).put(reply);
        Ok(())
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
) -> Result<(), Answer<'static>> {
    let most = most.saturating_sub(HEAD);
    let mut room = LIKELY.min(most);
    loop {
        reply.resize(HEAD + room, 0);
        let Some(read) = table.get(key, &mut reply[HEAD..])? else { return Err(Answer::Not) };
        if read.length > most {
            return Err(Refusal::ReplyTooLong { length: read.length, most }.into());
        }
        if read.length <= room {
            reply.truncate(HEAD + read.length);
            Answer::put_value_head(reply, read.version);
            return Ok(());
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
) -> Result<(), Answer<'static>> {
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
        // Not even the first row fits: a retry would get no further.
        (_, Some(length)) if count == 0 => {
            Err(Refusal::ReplyTooLong { length, most: most.saturating_sub(HEAD) }.into())
        }
        (Some(more), _) => {
            Answer::put_rows_head(reply, count, more);
            Ok(())
        }
    }
}

/// Locks the key's record, if it is at the place that the peer expects. Returns its version.
fn lock<E: Engine, K: Keys, T: KvTable<E, K>>(
    table: &T,
    key: K::Key<'_>,
    place: Place,
    (holder, leases): (Holder, Leases),
) -> Result<Version, Answer<'static>> {
    let since = table.turn();
    if !table.leads_to(key, Handle::of(place))? {
        return Err(Answer::Stale);
    }
    let record = Record::at(table.store().region(), place).map_err(KvError::from)?;
    match record.lock_as_it_is(holder, leases) {
        // The record was removed, or is another's by now, if its incarnation has wrapped around.
        Locking::Taken { version, .. } if version.is_removed() || !table.is_within(since) => {
            record.unlock();
            Err(Answer::Stale)
        }
        Locking::Taken { version, .. } => Ok(version),
        Locking::Mine { .. } | Locking::Held(_) => Err(Answer::Busy),
        Locking::Gone => Err(Answer::Stale),
    }
}
