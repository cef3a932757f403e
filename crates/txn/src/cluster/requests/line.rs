//! What an owner says of itself: its line, and whether its log is durable.

use drtm_htm::Engine;
use drtm_rdma::{Cost, Fabric, NodeId, Port};

use super::{Request, Serving, TxRequest};
use crate::{
    Config, Error,
    cluster::{Refusal, state::State, wire::messages},
};

messages! {
    /// An owner's line: its snapshot number, and its count of changes.
    LineIs { epoch: u64, count: u64, }
}

/// Reads the line of an owner, after every lock that was taken before. As a transaction's request:
/// after its locks, so that its snapshot number is the epoch in which the transaction commits.
pub(in crate::cluster) enum Line {}

impl Request for Line {
    const NUMBER: u16 = 5;
    const COST: Option<Cost> = Some(Cost::Lock);
    type Body<'a> = ();
    type Reply<'a> = LineIs;

    fn serve<'p, F: Fabric, S: Config<Engine = F::Engine>>(
        (): (),
        Serving { participant, .. }: Serving<'p, '_, F, S>,
    ) -> Result<LineIs, Refusal> {
        drtm_htm::fence_locked();
        let db = &participant.home.db;
        let epoch = db.engine().load(db.snapshot_number()?);
        Ok(LineIs { epoch, count: participant.count()? })
    }
}

impl TxRequest for Line {
    type Of = Self;

    fn node<P: Port>(state: &State<'_, P>, owner: u32) -> NodeId {
        state.owners[owner as usize].node
    }

    fn row<P: Port>(_: &State<'_, P>, _: u32) -> Option<u32> {
        None
    }

    fn body<'a, P: Port>(_: &'a State<'_, P>, _: u32) {}

    fn answered<P: Port>(state: &mut State<'_, P>, owner: u32, line: LineIs) -> Result<(), Error> {
        let owner = &mut state.owners[owner as usize];
        owner.has_count(line.count);
        owner.has_number(line.epoch, false);
        Ok(())
    }
}

/// Reads the line of an owner for its count of changes alone.
pub(in crate::cluster) enum Count {}

impl TxRequest for Count {
    type Of = Line;

    fn node<P: Port>(state: &State<'_, P>, owner: u32) -> NodeId {
        state.owners[owner as usize].node
    }

    fn row<P: Port>(_: &State<'_, P>, _: u32) -> Option<u32> {
        None
    }

    fn body<'a, P: Port>(_: &'a State<'_, P>, _: u32) {}

    fn answered<P: Port>(state: &mut State<'_, P>, owner: u32, line: LineIs) -> Result<(), Error> {
        state.owners[owner as usize].has_count(line.count);
        Ok(())
    }
}

/// Looks whether an owner's log has all up to an epoch, or all that is visible now, if that is
/// zero. Answers zero if it has; otherwise the epoch for the next look.
pub(in crate::cluster) enum Durable {}

impl Request for Durable {
    const NUMBER: u16 = 25;
    const COST: Option<Cost> = Some(Cost::Lock);
    type Body<'a> = u64;
    type Reply<'a> = u64;

    fn serve<'p, F: Fabric, S: Config<Engine = F::Engine>>(
        epoch: u64,
        Serving { participant, .. }: Serving<'p, '_, F, S>,
    ) -> Result<u64, Refusal> {
        match &participant.home.db.log {
            Some(log) => log.look(epoch).map_err(|_| Refusal::LogFailed),
            None => Ok(0),
        }
    }
}

impl TxRequest for Durable {
    type Of = Self;

    fn node<P: Port>(state: &State<'_, P>, owner: u32) -> NodeId {
        state.owners[owner as usize].node
    }

    fn row<P: Port>(_: &State<'_, P>, _: u32) -> Option<u32> {
        None
    }

    fn body<'a, P: Port>(state: &'a State<'_, P>, owner: u32) -> u64 {
        state.owners[owner as usize].awaits
    }

    fn answered<P: Port>(state: &mut State<'_, P>, owner: u32, epoch: u64) -> Result<(), Error> {
        state.owners[owner as usize].awaits = epoch;
        Ok(())
    }
}
