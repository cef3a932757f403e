//! Locking a row, and giving the lock up.

use drtm_kv::{Handle, Holder, Version};
use drtm_rdma::{Cost, Fabric, Port, rpc::RpcError};

use super::{Answer, Binds, On, Request, Serving, TxRequest};
#[cfg(feature = "hades")]
use crate::cluster::{Refusal, costs::Access};
use crate::{
    Conflict, Error,
    cluster::{
        state::{Hold, Op, State},
        wire::messages,
    },
    commit::{self, write_set::WriteOp},
    memory::{arena::ArenaRange, storage::KeyRef},
};

messages! {
    /// Asks for the lock of a record, and for memory for a value of this length, if it is to have
    /// one.
    LockRow<'a> { table: u16, key: KeyRef<'a>, at: Handle, seen: Version, holder: Holder, length: Option<u32>, }
    /// The version of a record that is locked.
    Before { version: Version, }
    /// Gives up a lock, if the holder has it.
    UnlockRow { table: u16, at: Handle, holder: Holder, }
}

/// Locks a record, and reserves memory for a value of a length. Answers its version.
pub(in crate::cluster) enum Lock {}

impl Request for Lock {
    const NUMBER: u16 = 4;
    const COST: Option<Cost> = Some(Cost::Lock);
    type Body<'a> = LockRow<'a>;
    type Reply<'a> = Before;

    fn serve<'p, F: Fabric, S: On<F>>(body: LockRow<'_>, mut serving: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let LockRow { table, key, at, seen, holder, length } = body;
        // Where conflicts are found by lines, a claim respects the locks of directories, as the
        // commits of others respect claims.
        #[cfg(feature = "hades")]
        if let Some(nic) = &serving.worker.node.nic
            && nic.has_locked(&serving.worker.lines_of(at)?)
        {
            return Err(Refusal::Locked);
        }
        #[cfg(feature = "hades")]
        serving.worker.charge_access(at, Access::Lock);
        let participant = &mut *serving.participant;
        let number = participant.home.store_to_write(table, key)?.number;
        participant.check_log()?;
        let mut write = participant.write(number, key, (at, seen), |_| {
            Ok(match length {
                Some(length) => WriteOp::Put(ArenaRange::between(0, length as usize)?),
                None => WriteOp::Remove,
            })
        })?;
        let home = &participant.home;
        let locked = commit::lock_row(&home.db, &mut participant.state, &mut write, holder);
        if let Err(Error::Conflict(Conflict::Locked)) = locked {
            return Err(serving.locked(at));
        }
        let (version, reserved) = locked?;
        if let Some(memory) = reserved
            && let Some(other) = home.reservations.put(holder, at, memory)
        {
            participant.state.worker.give_back(other);
        }
        Ok(Before { version })
    }
}

impl TxRequest for Lock {
    type Of = Self;

    fn body<'a, P: Port>(state: &'a State<'_, P>, row: u32) -> LockRow<'a> {
        let row = &state.rows[row as usize];
        // Verbs bring no count of changes: the owner looks whether it is still this key's.
        let seen = if row.location().is_some() { Version::default() } else { row.seen };
        // The record may have no room for the value that the row is to have.
        let length = match row.op {
            Op::Put(value) => Some(value.length() as u32),
            Op::Nothing | Op::Publish(_) | Op::Remove => None,
        };
        let (key, at) = (row.key.in_bytes(&state.arena.keys), row.at().unwrap_or_default());
        LockRow { table: state.store_of(row), key, at, seen, holder: state.holder, length }
    }

    fn sent<P: Port>(state: &mut State<'_, P>, row: u32) {
        let hold = &mut state.rows[row as usize].hold;
        // What is claimed is asked for again, for memory.
        if *hold == Hold::None {
            *hold = Hold::Asked;
        }
    }

    fn failed<P: Port>(state: &mut State<'_, P>, row: u32, error: &RpcError) {
        let hold = &mut state.rows[row as usize].hold;
        // What is refused has not happened. Otherwise the lock may be there.
        if *hold == Hold::Asked && (error.refused().is_some() || error.is_certain()) {
            *hold = Hold::None;
        }
    }

    fn answered<P: Port>(state: &mut State<'_, P>, row: u32, Before { version }: Before) -> Result<(), Error> {
        state.note_locked(row, Hold::Locked, version)
    }
}

/// Gives up a lock, if the holder has it, and what was reserved under it.
pub(in crate::cluster) enum Unlock {}

impl Request for Unlock {
    const NUMBER: u16 = 9;
    const COST: Option<Cost> = Some(Cost::Lock);
    const BINDS: Binds = Binds::Incarnation;
    type Body<'a> = UnlockRow;
    type Reply<'a> = ();

    fn serve<'p, F: Fabric, S: On<F>>(body: UnlockRow, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let Serving { participant, .. } = at;
        let UnlockRow { at, holder, .. } = body;
        participant.unlock(at, holder);
        Ok(())
    }
}

impl TxRequest for Unlock {
    type Of = Self;

    fn body<P: Port>(state: &State<'_, P>, row: u32) -> UnlockRow {
        let row = &state.rows[row as usize];
        UnlockRow { table: state.store_of(row), at: row.at().unwrap_or_default(), holder: state.holder }
    }

    fn answered<P: Port>(state: &mut State<'_, P>, row: u32, (): ()) -> Result<(), Error> {
        state.rows[row as usize].hold = Hold::None;
        Ok(())
    }
}

impl<P: Port> State<'_, P> {
    /// Notes that a row is locked, by what, and which version it has.
    pub(in crate::cluster) fn note_locked(&mut self, number: u32, hold: Hold, before: Version) -> Result<(), Error> {
        let row = &mut self.rows[number as usize];
        row.hold = hold;
        if row.is_read() && row.seen != before {
            return Err(Conflict::Validation.into());
        }
        row.seen = before;
        Ok(())
    }
}
