//! The commit of a transaction whose conflicts are found by cache lines: *Intend-to-commit*,
//! *Validation plus updates*, and the end of one that does not commit.
//!
//! An answer to *Intend-to-commit* is the *Ack*. Memory for values is reserved then, so that a
//! decided transaction cannot fail for lack of it. No record is locked between the two: what keeps
//! others away is the lock of the directory. A record is only locked while its value is written, so
//! that snapshots and the log of the node see whole commits.

use drtm_htm::{Engine, fence_locked};
use drtm_kv::{Handle, Holder, Locking, Version};
use drtm_rdma::{
    Cost, Fabric, Port,
    machine::{Kind, Message, Stopped, TxId},
    rpc::Encode as _,
};

use super::{
    super::{
        About, Answer, Binds, On, Request, Serving, TxRequest,
        apply::{Apply, ApplyRows, Changes},
    },
    Lines,
};
use crate::{
    Config, Conflict, Error,
    cluster::{
        Refusal,
        participant::Participant,
        state::{Hold, Op, Row, State},
        wire::{Many, messages},
    },
    commit::{self, write_set::WriteOp},
    memory::{
        arena::{Arena, ArenaRange},
        storage::KeyRef,
    },
};

/// It is only read.
const READ: u8 = 0;
/// It gets no other value: it is removed, or becomes visible.
const KEEPS: u8 = 1;
/// It gets a value of this length.
const PUTS: u8 = 2;

messages! {
    /// A row that a transaction is going to write, or has read by software.
    Intended<'a> { table: u16, key: KeyRef<'a>, at: Handle, seen: Version, effect: u8, length: u32, }
    /// Asks to lock what a transaction has accessed.
    IntendRows<'a> { tx: TxId, holder: Holder, rows: Many<'a, Intended<'a>>, }
    /// What a decided transaction changes. With the last of it, its locks end.
    UpdateRows<'a> { tx: TxId, rows: ApplyRows<'a>, }
    /// Gives up what a transaction has in the filters and locks of a node.
    EndTx { tx: TxId, }
    /// Says that a transaction was squashed.
    SquashTx { tx: TxId, why: Stopped, }
}

/// Encodes what is intended of a row.
pub(in crate::cluster) fn encode_intended(store: u16, row: &Row, arena: &Arena, into: &mut Vec<u8>) {
    let (effect, length) = match row.op {
        Op::Nothing => (READ, 0),
        Op::Publish(_) | Op::Remove => (KEEPS, 0),
        Op::Put(value) => (PUTS, value.length() as u32),
    };
    let (key, at) = (row.key.in_bytes(&arena.keys), row.at().unwrap_or_default());
    Intended { table: store, key, at, seen: row.seen, effect, length }.encode(into);
}

/// Locks what a transaction has accessed, and squashes others.
pub(in crate::cluster) enum Intend {}

impl Request for Intend {
    const NUMBER: u16 = 45;
    const COST: Option<Cost> = None;
    type Body<'a> = IntendRows<'a>;
    type Reply<'a> = ();

    fn serve<'p, F: Fabric, S: On<F>>(body: IntendRows<'_>, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let Serving { worker, participant, caller } = at;
        let IntendRows { tx, holder, rows } = body;
        let squashed = worker.act(tx, caller, |nic| {
            nic.check()?;
            participant.check_log()?;
            let (mut reads, mut writes) = (Lines::new(), Lines::new());
            for row in rows.iter() {
                let lines = worker.lines_of(row.at)?;
                if row.effect == READ {
                    reads.extend(lines);
                    continue;
                }
                writes.extend(lines);
                let at = row.at;
                match reserve(participant, row, holder) {
                    Err(Refusal::Locked) => return Err(participant.locked(at, |holder| worker.is_dead(holder))),
                    reserved => reserved?,
                }
            }
            nic.lock(&reads, &writes)
        })?;
        worker.squash(squashed);
        Ok(())
    }
}

/// Checks that a row can be written, and reserves memory for its value. It is locked afterwards
/// only if it was before.
fn reserve<S: Config>(participant: &mut Participant<S>, row: Intended<'_>, holder: Holder) -> Result<(), Refusal> {
    let Intended { table, key, at, seen, effect, length } = row;
    let number = participant.home.store_to_write(table, key)?.number;
    let mut write = participant.write(number, key, (at, seen), |_| {
        Ok(match effect {
            PUTS => WriteOp::Put(ArenaRange::between(0, length as usize)?),
            _ => WriteOp::Remove,
        })
    })?;
    let home = &participant.home;
    let was_held = home.db.store.records().held_version(at, holder).is_some();
    let locked = commit::lock_row(&home.db, &mut participant.state, &mut write, holder);
    if let Err(Error::Conflict(Conflict::Locked)) = locked {
        return Err(Refusal::Locked);
    }
    let (_, reserved) = locked?;
    if let Some(memory) = reserved
        && let Some(other) = home.reservations.put(holder, at, memory)
    {
        participant.state.worker.give_back(other);
    }
    if !was_held {
        home.db.store.records().unlock_if_held(at, holder);
    }
    Ok(())
}

impl TxRequest for Intend {
    type Of = Self;
    const ABOUT: About = About::NicPart;

    fn body<'a, P: Port>(state: &'a State<'_, P>, part: u32) -> IntendRows<'a> {
        let (bytes, count) = &state.nic_part(part).intended;
        IntendRows { tx: state.tx_in_nics(), holder: state.holder, rows: Many::new(bytes, *count) }
    }

    fn sent<P: Port>(state: &mut State<'_, P>, part: u32) {
        // What is reserved for them is given up with a lock.
        for number in state.nic_part(part).rows.clone() {
            let hold = &mut state.rows[number as usize].hold;
            if *hold == Hold::None {
                *hold = Hold::Asked;
            }
        }
    }

    fn answered<P: Port>(state: &mut State<'_, P>, part: u32, (): ()) -> Result<(), Error> {
        if let Some(known) = &mut state.in_nics {
            known.parts[part as usize].has_acknowledged = true;
        }
        Ok(())
    }
}

/// Writes what a decided transaction has changed, and ends it here.
pub(in crate::cluster) enum Update {}

impl Request for Update {
    const NUMBER: u16 = 46;
    const COST: Option<Cost> = None;
    const BINDS: Binds = Binds::Incarnation;
    type Body<'a> = UpdateRows<'a>;
    type Reply<'a> = ();

    fn serve<'p, F: Fabric, S: On<F>>(body: UpdateRows<'_>, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let (worker, participant) = (at.worker, at.participant);
        let UpdateRows { tx, rows } = body;
        let caller = at.caller;
        let home = &*worker.node.home;
        let lock = |at: Handle| {
            let records = home.db.store.records();
            match records.held_version(at, rows.holder) {
                Some(_) => Ok(()),
                None => match records.lock(at, rows.holder)? {
                    Locking::Taken { .. } => Ok(()),
                    _ => Err(Refusal::NotHeld),
                },
            }
        };
        worker.act(tx, caller, |nic| {
            let applied = rows.rows.try_for_each(|row| lock(row.at)).and_then(|()| {
                // Behind the locks: a snapshot sees all of this commit, or nothing.
                fence_locked();
                let epoch = home.db.engine().load(home.db.snapshot_number()?);
                let ApplyRows { holder, rows, .. } = rows;
                if nic.is_by_software() {
                    // The processor writes what other protocols write, and versions.
                    rows.try_for_each(|row| {
                        worker.endpoint().charge(Cost::Update);
                        nic.touch(&worker.lines_of(row.at)?, Kind::Write);
                        Ok::<_, Refusal>(())
                    })?;
                }
                Apply::serve(ApplyRows { holder, epoch, rows }, Serving { worker, participant, caller })
            });
            // It is decided, whatever has become of its values.
            nic.commit();
            applied
        })
    }
}

impl TxRequest for Update {
    type Of = Self;
    const ABOUT: About = About::NicPart;

    fn body<'a, P: Port>(state: &'a State<'_, P>, part: u32) -> UpdateRows<'a> {
        let part = state.nic_part(part);
        let rows = Changes::of(state, &part.rows, part.is_logged);
        // The node reads the epoch under its locks.
        UpdateRows { tx: state.tx_in_nics(), rows: ApplyRows { holder: state.holder, epoch: 0, rows } }
    }

    fn sent<P: Port>(state: &mut State<'_, P>, part: u32) {
        let State { in_nics, rows, .. } = state;
        if let Some(known) = in_nics {
            let part = &mut known.parts[part as usize];
            part.is_over = true;
            part.rows.iter().for_each(|row| rows[*row as usize].hold = Hold::Sent);
        }
    }
}

/// Gives up what an undecided transaction has here.
pub(in crate::cluster) enum End {}

impl Request for End {
    const NUMBER: u16 = 47;
    const COST: Option<Cost> = None;
    const BINDS: Binds = Binds::Incarnation;
    type Body<'a> = EndTx;
    type Reply<'a> = ();

    fn serve<'p, F: Fabric, S: On<F>>(body: EndTx, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        at.worker.act(body.tx, at.caller, |nic| {
            nic.leave();
            Ok(())
        })
    }
}

impl TxRequest for End {
    type Of = Self;
    const ABOUT: About = About::NicPart;

    fn body<P: Port>(state: &State<'_, P>, _: u32) -> EndTx {
        EndTx { tx: state.tx_in_nics() }
    }

    fn answered<P: Port>(state: &mut State<'_, P>, part: u32, (): ()) -> Result<(), Error> {
        if let Some(known) = &mut state.in_nics {
            known.parts[part as usize].is_over = true;
        }
        Ok(())
    }
}

/// Squashes a transaction of the node that is told.
pub(in crate::cluster) enum Squash {}

impl Request for Squash {
    const NUMBER: u16 = 48;
    const COST: Option<Cost> = None;
    const BINDS: Binds = Binds::Incarnation;
    type Body<'a> = SquashTx;
    type Reply<'a> = ();

    fn serve<'p, F: Fabric, S: On<F>>(body: SquashTx, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let SquashTx { tx, why } = body;
        if tx.node != at.worker.id() {
            return Err(Refusal::Other);
        }
        let nic = at.worker.node.nic.as_ref().ok_or(Refusal::Other)?;
        nic.receive(&Message::Squash { tx, why });
        Ok(())
    }
}
