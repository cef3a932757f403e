//! Making records for rows that are inserted, and taking out those that were made in vain.

use drtm_kv::{Current, Handle, Holder, KvError, NoValue, ReadEntry, Version};
use drtm_rdma::{Cost, Fabric, Port};
use smallvec::SmallVec;

use super::{Answer, Binds, On, Request, Serving, TxRequest};
use crate::{
    Config, Conflict, Error,
    cluster::{
        ClusterError, Refusal,
        participant::Participant,
        state::{self, Op, Sight, State},
        wire::{messages, parts::Shifted},
    },
    memory::{
        reclaim,
        storage::{Expected, KeyRef, Shift},
    },
    mutation::Mutation,
    schema::table::Any,
    tx::state::TxState,
};

messages! {
    /// Asks for a record for a key that may be inserted, with this value in it if it is made.
    PlaceRow<'a> { table: u16, key: KeyRef<'a>, holder: Holder, value: &'a [u8], }
    /// Takes out a record that was made for an insertion which has not happened.
    ReapRow<'a> { table: u16, key: KeyRef<'a>, at: Handle, seen: Version, }
    /// The record that an owner found or made for a key, what that did to guards, and the owner's
    /// count of changes from before. An insertion changes one guard, and a split another.
    Placed { count: u64, at: Handle, version: Version, is_made: bool, shifts: SmallVec<[Shifted; 2]>, }
}

/// Finds a record for a row that is to be written, or makes one.
pub(in crate::cluster) enum Place {}

impl Request for Place {
    const NUMBER: u16 = 3;
    const COST: Option<Cost> = Some(Cost::Insert);
    type Body<'a> = PlaceRow<'a>;
    type Reply<'a> = Placed;

    fn serve<'p, F: Fabric, S: On<F>>(body: PlaceRow<'_>, mut at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let PlaceRow { table, key, value, .. } = body;
        let participant = &mut *at.participant;
        let count = participant.count()?;
        let served = participant.home.store_to_write(table, key)?;
        let mut shifts = SmallVec::new();
        let note = |shift: Shift| {
            let mut shifted = Shifted::from(shift);
            if S::has(Mutation::SplitsNotGuarded) {
                shifted.split_off = None;
            }
            shifts.push(shifted);
        };
        let placed = served.storage.place::<Any>(&mut participant.state.worker, key, value, &Expected::Nothing, note);
        if let Err(KvError::Busy) = placed
            && let Ok(ReadEntry { at: record, .. }) = served.storage.read::<Any, _>(key, Current, &mut NoValue)?
        {
            return Err(at.locked(record));
        }
        let (ReadEntry { at, version }, is_made) = match placed? {
            drtm_kv::Placed::Found(found) => (found, false),
            drtm_kv::Placed::Made(made) => (made, true),
        };
        Ok(Placed { count, at, version, is_made, shifts })
    }
}

impl TxRequest for Place {
    type Of = Self;

    fn body<'a, P: Port>(state: &'a State<'_, P>, number: u32) -> PlaceRow<'a> {
        let row = &state.rows[number as usize];
        let (key, value) = (row.key.in_bytes(&state.arena.keys), state.value(number).unwrap_or_default());
        PlaceRow { table: state.store_of(row), key, holder: state.holder, value }
    }

    fn answered<P: Port>(state: &mut State<'_, P>, number: u32, placed: Placed) -> Result<(), Error> {
        let node = state.node_of(number);
        let row = &mut state.rows[number as usize];
        let head = state.view.head(row.shard);
        // Its guard, which would tell of another insertion, is not needed any more.
        let has_come = row.sight == Sight::Read && !placed.version.is_removed();
        (row.place, row.seen) = (state::Place::At(placed.at), placed.version);
        row.sight = if row.sight == Sight::Read { Sight::Read } else { Sight::Known };
        if placed.is_made {
            if !placed.version.is_removed() {
                return Err(ClusterError::Nonsense { node, what: "a new row is there already" }.into());
            }
            row.sight = Sight::Made;
            if let Op::Put(value) = row.op {
                row.op = Op::Publish(value);
            }
        }
        state.guards.shift(head, &placed.shifts);
        state.guards.release(number);
        state.owner(node).note_count(placed.count);
        if has_come { Err(Conflict::Phantom.into()) } else { Ok(()) }
    }
}

/// Takes out a record that was made for a row which is not inserted.
pub(in crate::cluster) enum Reap {}

impl Request for Reap {
    const NUMBER: u16 = 10;
    const COST: Option<Cost> = Some(Cost::Insert);
    const BINDS: Binds = Binds::Incarnation;
    type Body<'a> = ReapRow<'a>;
    type Reply<'a> = ();

    fn serve<'p, F: Fabric, S: On<F>>(body: ReapRow<'_>, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        // Another transaction may be about to write it, which has only locked its lines yet.
        reap(at.participant, body, true)
    }
}

/// Takes a record out that was made for an insertion which has not happened. With `asks_nic`, the
/// NIC may keep it for now, which the caller must not have locked.
pub(super) fn reap<S: Config>(
    participant: &mut Participant<S>,
    row: ReapRow<'_>,
    asks_nic: bool,
) -> Result<(), Refusal> {
    let ReapRow { table, key, at, seen } = row;
    let home = &participant.home;
    let number = home.store_to_write(table, key)?.number;
    // A record of a row that is there is not one that was made for an insertion which failed.
    if !seen.is_removed() {
        return Err(Refusal::Moved);
    }
    let TxState { worker, session, .. } = &mut *participant.state;
    let seen = ReadEntry { at, version: seen };
    let reap = if asks_nic { reclaim::reap_unless_kept } else { reclaim::reap };
    Ok(reap(&home.db, (worker, &session.counters), number, key, seen)?)
}

impl TxRequest for Reap {
    type Of = Self;

    fn body<'a, P: Port>(state: &'a State<'_, P>, row: u32) -> ReapRow<'a> {
        let row = &state.rows[row as usize];
        let key = row.key.in_bytes(&state.arena.keys);
        ReapRow { table: state.store_of(row), key, at: row.at().unwrap_or_default(), seen: row.seen }
    }
}
