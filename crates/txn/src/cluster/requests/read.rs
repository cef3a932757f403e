//! Reading a row, and reading it under a lease.

use drtm_kv::{Current, ForHolder, Handle, Holder, KvError, Leases, Lend, NoValue, ReadEntry, Version};
use drtm_rdma::{
    Cost, Fabric, Port,
    rpc::{Decode, DecodeError, Encode, Reader},
};

use super::{Answer, On, Request, Serving, TxRequest};
#[cfg(feature = "hades")]
use crate::cluster::costs::Access;
use crate::{
    Conflict, Error,
    cluster::{
        Refusal,
        state::{Place, Sight, State},
        wire::{Wire, messages},
    },
    memory::storage::{Absence, KeyRef},
    schema::table::Any,
};

messages! {
    /// Asks for a row: the table, as the cluster numbers it, and the key.
    ReadRow<'a> { table: u16, key: KeyRef<'a>, holder: Holder, }
    /// Asks for a row that does not change until a time, or until the end of a lease that it has.
    LeaseRow<'a> { table: u16, key: KeyRef<'a>, holder: Holder, until: u64, }
    /// What an owner found where a row was looked for, and its count of changes from before.
    Found<'a> { count: u64, is: Is<'a>, }
    /// A row, and until when it is leased, if it has a record.
    LeasedRow<'a> { end: u64, found: Found<'a>, }
}

/// See [`Found`].
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) enum Is<'a> {
    /// A record. If its version is a removed one, the row is not there.
    Record { at: Handle, version: Version, value: &'a [u8] },
    /// No record, as long as this guard holds.
    Nothing(Absence),
    /// A record that another transaction has locked.
    Locked(Handle),
}

impl<'a> Wire<'a> for Is<'a> {
    fn put(&self, into: &mut Vec<u8>) {
        match *self {
            Self::Record { at, version, value } => {
                into.push(0);
                at.put(into);
                version.put(into);
                value.encode(into);
            }
            Self::Nothing(absence) => {
                into.push(1);
                absence.put(into);
            }
            Self::Locked(at) => {
                into.push(2);
                at.put(into);
            }
        }
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(from)? {
            0 => Self::Record { at: Wire::take(from)?, version: Wire::take(from)?, value: Decode::decode(from)? },
            1 => Self::Nothing(Wire::take(from)?),
            2 => Self::Locked(Wire::take(from)?),
            _ => return Err(DecodeError::Invalid { what: "row" }),
        })
    }
}

/// Reads a row.
pub(in crate::cluster) enum Read {}

impl Request for Read {
    const NUMBER: u16 = 2;
    const COST: Option<Cost> = Some(Cost::Lookup);
    type Body<'a> = ReadRow<'a>;
    type Reply<'a> = Found<'a>;

    fn serve<'p, F: Fabric, S: On<F>>(body: ReadRow<'_>, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let Serving { participant, worker, .. } = at;
        let ReadRow { table, key, holder } = body;
        let count = participant.count()?;
        let served = participant.home.store_for(table, key)?;
        let read = match served.storage.read::<Any, _>(key, ForHolder(holder), &mut participant.value) {
            Err(KvError::Busy) => {
                // Where it is can be said all the same: to lock it later, it need not be looked up
                // again.
                let located = served.storage.read::<Any, _>(key, Current, &mut NoValue)?;
                let at = located.map_err(|_| Refusal::Locked)?.at;
                return match participant.locked(at, |holder| worker.is_dead(holder)) {
                    Refusal::Locked => Ok(Found { count, is: Is::Locked(at) }),
                    refusal => Err(refusal),
                };
            }
            read => read?,
        };
        let is = match read {
            Ok(ReadEntry { at, version }) => {
                #[cfg(feature = "hades")]
                worker.charge_access(at, Access::Read);
                let value: &[u8] = if version.is_removed() { &[] } else { &participant.value };
                Is::Record { at, version, value }
            }
            Err(absence) => Is::Nothing(absence),
        };
        Ok(Found { count, is })
    }
}

impl TxRequest for Read {
    type Of = Self;

    fn body<'a, P: Port>(state: &'a State<'_, P>, row: u32) -> ReadRow<'a> {
        let row = &state.rows[row as usize];
        ReadRow { table: state.store_of(row), key: row.key.in_bytes(&state.arena.keys), holder: state.holder }
    }

    fn answered<P: Port>(state: &mut State<'_, P>, row: u32, found: Found<'_>) -> Result<(), Error> {
        state.note_found(row, &found)
    }
}

/// Leases a row until a time, or shares the lease that it has, and reads it.
pub(in crate::cluster) enum Lease {}

impl Request for Lease {
    const NUMBER: u16 = 20;
    const COST: Option<Cost> = Some(Cost::Lookup);
    type Body<'a> = LeaseRow<'a>;
    type Reply<'a> = LeasedRow<'a>;

    fn serve<'p, F: Fabric, S: On<F>>(body: LeaseRow<'_>, mut at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let LeaseRow { table, key, holder, until } = body;
        let count = at.participant.count()?;
        let home = &at.participant.home;
        let record = match home.store_for(table, key)?.storage.read::<Any, _>(key, Current, &mut NoValue)? {
            Ok(located) => located.at,
            Err(absence) => return Ok(LeasedRow { end: 0, found: Found { count, is: Is::Nothing(absence) } }),
        };
        let end = match home.db.store.records().lease(record, until, Leases::None)? {
            Some(Lend::Shared(end)) => end,
            Some(_) => return Err(at.locked(record)),
            None => return Err(Refusal::Moved),
        };
        // Under the lease from here on, so that it is one row's value.
        let found = Read::serve(ReadRow { table, key, holder }, at)?;
        match found.is {
            Is::Record { at: now_at, .. } if now_at == record => Ok(LeasedRow { end, found }),
            Is::Locked(_) => Err(Refusal::Locked),
            _ => Err(Refusal::Moved),
        }
    }
}

impl TxRequest for Lease {
    type Of = Self;

    fn body<'a, P: Port>(state: &'a State<'_, P>, row: u32) -> LeaseRow<'a> {
        let ReadRow { table, key, holder } = Read::body(state, row);
        LeaseRow { table, key, holder, until: state.leases_until }
    }

    fn answered<P: Port>(state: &mut State<'_, P>, row: u32, leased: LeasedRow<'_>) -> Result<(), Error> {
        state.rows[row as usize].lease = leased.end;
        state.note_found(row, &leased.found)
    }
}

impl<P: Port> State<'_, P> {
    /// Notes what was found of a row.
    pub(super) fn note_found(&mut self, number: u32, found: &Found<'_>) -> Result<(), Error> {
        let row = &mut self.rows[number as usize];
        let (shard, was_at, was_read) = (row.shard, row.at(), row.is_read());
        match found.is {
            Is::Record { at, version, value } => {
                if was_read && (was_at != Some(at) || row.seen != version) {
                    return Err(Conflict::Validation.into());
                }
                (row.place, row.seen) = (Place::At(at), version);
                let (range, ()) = self.arena.values.append(|bytes| {
                    bytes.extend_from_slice(value);
                    Ok(())
                })?;
                row.value = Some(range);
            }
            Is::Nothing(absence) => {
                if was_at.is_some() && was_read {
                    return Err(Conflict::Validation.into());
                }
                // It may have been locked when it was looked for before, and is gone.
                row.place = Place::Nowhere;
                if !row.is_final {
                    self.guards.note(self.view.head(shard), absence, Some(number));
                }
            }
            Is::Locked(at) => {
                if was_at.is_none() {
                    row.place = Place::At(at);
                }
                return Err(Conflict::Locked.into());
            }
        }
        // What stays as it is need not be looked at again.
        row.sight = if row.is_final { Sight::Known } else { Sight::Read };
        self.owner(self.node_at(shard)).note_count(found.count);
        Ok(())
    }
}
