//! Requests of producers of rings to the backups that keep them.

use drtm_kv::Holder;
use drtm_rdma::{Cost, Fabric, Port};

use super::{About, Answer, Binds, On, Request, Serving, TxRequest};
use crate::{
    Error,
    cluster::{
        Refusal,
        state::State,
        wire::{messages, parts::RingPlace},
    },
};

messages! {
    /// Asks a backup for a ring, for the worker with this name.
    OpenRingFor { producer: Holder, }
    /// Writes bytes of a record into a ring.
    AppendTo<'a> { ring: u32, producer: Holder, position: u64, bytes: &'a [u8], }
    /// Tells up to where the records of a ring are decided, or void.
    SettleUpTo { ring: u32, producer: Holder, settled: u64, }
}

/// Makes a ring for a worker of any node.
pub(in crate::cluster) enum OpenRing {}

impl Request for OpenRing {
    const NUMBER: u16 = 22;
    const COST: Option<Cost> = Some(Cost::Update);
    const BINDS: Binds = Binds::Incarnation;
    type Body<'a> = OpenRingFor;
    type Reply<'a> = RingPlace;

    fn serve<'p, F: Fabric, S: On<F>>(body: OpenRingFor, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let OpenRingFor { producer } = body;
        at.check_producer(producer)?;
        if at.participant.home.changing.is_closed(producer) {
            return Err(Refusal::Revoked);
        }
        at.participant.backup()?.open(producer)
    }
}

/// Writes bytes of a record into a ring. Answers up to where the ring is free.
pub(in crate::cluster) enum Append {}

impl Request for Append {
    const NUMBER: u16 = 23;
    const COST: Option<Cost> = Some(Cost::Append);
    const BINDS: Binds = Binds::Incarnation;
    type Body<'a> = AppendTo<'a>;
    type Reply<'a> = u64;

    fn serve<'p, F: Fabric, S: On<F>>(body: AppendTo<'_>, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let AppendTo { ring, producer, position, bytes } = body;
        at.check_producer(producer)?;
        at.participant.backup()?.write((ring, producer), position, bytes)
    }
}

/// Notes up to where records of a ring are settled. Answers up to where the ring is free.
pub(in crate::cluster) enum Settle {}

impl Request for Settle {
    const NUMBER: u16 = 24;
    const COST: Option<Cost> = None;
    const BINDS: Binds = Binds::Incarnation;
    type Body<'a> = SettleUpTo;
    type Reply<'a> = u64;

    fn serve<'p, F: Fabric, S: On<F>>(body: SettleUpTo, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let SettleUpTo { ring, producer, settled } = body;
        at.check_producer(producer)?;
        at.participant.backup()?.settle((ring, producer), settled)
    }
}

/// Writes a piece of a record, by its number, to a backup.
pub(in crate::cluster) enum Log {}

impl TxRequest for Log {
    type Of = Append;
    const ABOUT: About = About::Piece;

    fn body<'a, P: Port>(state: &'a State<'_, P>, piece: u32) -> AppendTo<'a> {
        let (ring, position, bytes) = state.log.piece(piece);
        AppendTo { ring, producer: state.holder.in_slot(0), position, bytes }
    }

    fn answered<P: Port>(state: &mut State<'_, P>, piece: u32, freed: u64) -> Result<(), Error> {
        state.log.note_freed(piece, freed);
        Ok(())
    }
}

/// Makes a record void that a backup has.
pub(in crate::cluster) enum Void {}

impl TxRequest for Void {
    type Of = Append;
    const ABOUT: About = About::Record;

    fn body<'a, P: Port>(state: &'a State<'_, P>, record: u32) -> AppendTo<'a> {
        let (ring, position, bytes) = state.log.void(record);
        AppendTo { ring, producer: state.holder.in_slot(0), position, bytes }
    }
}
