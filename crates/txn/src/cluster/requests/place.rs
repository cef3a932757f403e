//! Making records for rows that are inserted, and taking out those that were made in vain.

use drtm_kv::{Current, GuardChange, Handle, Holder, KvError, NoValue, ReadEntry, Version};
use drtm_rdma::{
    Cost, Fabric, Port,
    rpc::{Decode, DecodeError, Encode, Reader},
};
use smallvec::SmallVec;

use super::{Request, Serving, TxRequest};
use crate::{
    Config, Error,
    cluster::{
        ClusterError, Refusal,
        state::{self, Op, Sight, State},
        wire::{Wire, messages},
    },
    memory::{
        reclaim,
        storage::{Absence, Expected, KeyRef, Shift},
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
}

/// What one of a transaction's own insertions did to a guard.
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) struct Shifted {
    pub(in crate::cluster) before: Absence,
    pub(in crate::cluster) after: Absence,
    pub(in crate::cluster) split_off: Option<Absence>,
}

impl From<Shift> for Shifted {
    fn from(shift: Shift) -> Self {
        fn of<G: Into<Absence>>(change: GuardChange<G>) -> Shifted {
            let GuardChange { before, after, split_off, .. } = change;
            Shifted { before: before.into(), after: after.into(), split_off: split_off.map(Into::into) }
        }
        match shift {
            Shift::Bucket(change) => of(change),
            Shift::Leaf(change) => of(change),
        }
    }
}

/// The record that an owner found or made for a key, what that did to guards, and the owner's count
/// of changes from before.
#[derive(Clone, Debug)]
pub(in crate::cluster) struct Placed {
    count: u64,
    at: Handle,
    version: Version,
    is_made: bool,
    /// An insertion changes one guard, and a split another.
    shifts: SmallVec<[Shifted; 2]>,
}

impl Encode for Placed {
    fn encode(&self, into: &mut Vec<u8>) {
        self.count.encode(into);
        self.at.put(into);
        self.version.put(into);
        self.is_made.encode(into);
        (self.shifts.len() as u8).encode(into);
        for shift in &self.shifts {
            shift.before.put(into);
            shift.after.put(into);
            shift.split_off.put(into);
        }
    }
}

impl<'a> Decode<'a> for Placed {
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = Decode::decode(from)?;
        let (at, version) = (Wire::take(from)?, Wire::take(from)?);
        let is_made = Decode::decode(from)?;
        let mut shifts = SmallVec::new();
        for _ in 0..u8::decode(from)? {
            let (before, after) = (Wire::take(from)?, Wire::take(from)?);
            shifts.push(Shifted { before, after, split_off: Wire::take(from)? });
        }
        Ok(Self { count, at, version, is_made, shifts })
    }
}

/// Finds a record for a row that is to be written, or makes one.
pub(in crate::cluster) enum Place {}

impl Request for Place {
    const NUMBER: u16 = 3;
    const COST: Option<Cost> = Some(Cost::Insert);
    type Body<'a> = PlaceRow<'a>;
    type Reply<'a> = Placed;

    fn serve<'p, F: Fabric, S: Config<Engine = F::Engine>>(
        PlaceRow { table, key, value, .. }: PlaceRow<'_>,
        mut at: Serving<'p, '_, F, S>,
    ) -> Result<Placed, Refusal> {
        let participant = &mut *at.participant;
        let count = participant.count()?;
        let served = participant.home.table_to_write(table, key)?;
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
        PlaceRow { table: row.table, key, holder: state.holder, value }
    }

    fn answered<P: Port>(state: &mut State<'_, P>, number: u32, placed: Placed) -> Result<(), Error> {
        let row = &mut state.rows[number as usize];
        let node = row.owner;
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
        state.guards.shift(node, &placed.shifts);
        state.owner(node).has_count(placed.count);
        Ok(())
    }
}

/// Takes out a record that was made for a row which is not inserted.
pub(in crate::cluster) enum Reap {}

impl Request for Reap {
    const NUMBER: u16 = 10;
    const COST: Option<Cost> = Some(Cost::Insert);
    type Body<'a> = ReapRow<'a>;
    type Reply<'a> = ();

    fn serve<'p, F: Fabric, S: Config<Engine = F::Engine>>(
        ReapRow { table, key, at, seen }: ReapRow<'_>,
        Serving { participant, .. }: Serving<'p, '_, F, S>,
    ) -> Result<(), Refusal> {
        let home = &participant.home;
        let number = home.table_to_write(table, key)?.number;
        // A record of a row that is there is not one that was made for an insertion which failed.
        if !seen.is_removed() {
            return Err(Refusal::Moved);
        }
        let TxState { worker, session, .. } = &mut *participant.state;
        let seen = ReadEntry { at, version: seen };
        Ok(reclaim::reap(&home.db, (worker, &session.counters), number, key, seen)?)
    }
}

impl TxRequest for Reap {
    type Of = Self;

    fn body<'a, P: Port>(state: &'a State<'_, P>, row: u32) -> ReapRow<'a> {
        let row = &state.rows[row as usize];
        let key = row.key.in_bytes(&state.arena.keys);
        ReapRow { table: row.table, key, at: row.at().unwrap_or_default(), seen: row.seen }
    }

    fn answered<P: Port>(_: &mut State<'_, P>, _: u32, (): ()) -> Result<(), Error> {
        Ok(())
    }
}
