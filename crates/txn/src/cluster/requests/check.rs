//! Validation: of a row that was read, and of the guard of a key that was missing.

use drtm_kv::{Handle, Holder, ReadEntry, Version};
use drtm_rdma::{Cost, Fabric, Port};

use super::{About, Answer, On, Request, Serving, TxRequest};
#[cfg(feature = "hades")]
use crate::cluster::costs::Access;
use crate::{
    Conflict, Error,
    cluster::{state::State, wire::messages},
    memory::storage::Absence,
};

messages! {
    /// Asks whether a record is as it was seen.
    CheckRow { at: Handle, seen: Version, holder: Holder, }
    /// Asks whether a guard is as it was.
    CheckGuard { absence: Absence, }
}

/// Looks whether a record is as it was seen, and no other transaction has it locked.
pub(in crate::cluster) enum Check {}

impl Request for Check {
    const NUMBER: u16 = 6;
    const COST: Option<Cost> = Some(Cost::Check);
    type Body<'a> = CheckRow;
    type Reply<'a> = bool;

    fn serve<'p, F: Fabric, S: On<F>>(body: CheckRow, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        #[cfg(feature = "hades")]
        at.worker.charge_access(body.at, Access::Check);
        let Serving { participant, .. } = at;
        let CheckRow { at, seen, holder } = body;
        Ok(participant.home.db.store.records().is_still(ReadEntry { at, version: seen }, holder))
    }
}

impl TxRequest for Check {
    type Of = Self;

    fn body<P: Port>(state: &State<'_, P>, row: u32) -> CheckRow {
        let row = &state.rows[row as usize];
        CheckRow { at: row.at().unwrap_or_default(), seen: row.seen, holder: state.holder }
    }

    fn answered<P: Port>(_: &mut State<'_, P>, _: u32, is_still: bool) -> Result<(), Error> {
        if is_still { Ok(()) } else { Err(Conflict::Validation.into()) }
    }
}

/// Looks whether no key has come to where one was missing.
pub(in crate::cluster) enum Guard {}

impl Request for Guard {
    const NUMBER: u16 = 7;
    const COST: Option<Cost> = Some(Cost::Check);
    type Body<'a> = CheckGuard;
    type Reply<'a> = bool;

    fn serve<'p, F: Fabric, S: On<F>>(body: CheckGuard, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let Serving { participant, .. } = at;
        let CheckGuard { absence } = body;
        let records = participant.home.db.store.records();
        Ok(match absence {
            Absence::Bucket(bucket) => records.is_unchanged(&bucket),
            Absence::Leaf(leaf) => records.is_unchanged(&leaf),
        })
    }
}

impl TxRequest for Guard {
    type Of = Self;
    const ABOUT: About = About::Guard;

    fn body<P: Port>(state: &State<'_, P>, guard: u32) -> CheckGuard {
        CheckGuard { absence: state.guards.get(guard).absence }
    }

    fn answered<P: Port>(_: &mut State<'_, P>, _: u32, holds: bool) -> Result<(), Error> {
        if holds { Ok(()) } else { Err(Conflict::Phantom.into()) }
    }
}
