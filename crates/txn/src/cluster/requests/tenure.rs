//! Leases on the view, and who may change it: see [`tenure`](crate::cluster::tenure).

use std::time::Duration;

use drtm_membership::Heartbeat;
use drtm_rdma::{Cost, Fabric, Incarnation};

use super::{Answer, Binds, On, Request, Serving};
use crate::cluster::{Refusal, wire::messages};

messages! {
    /// Asks for a lease on a view, and says which heartbeat the node has heard last: zero for none.
    AskFor { view: u32, heard: u64, }
    /// A heartbeat: its number, and if a lease is granted, from which one it counts and for how
    /// long, in nanoseconds.
    Beat { number: u64, from: u64, lasts: u64, }
    /// Asks for the leave to change this view, or one before it. Names the caller's incarnation.
    ProbeFor { view: u32, incarnation: u32, }
    /// Whether the caller has it, and in which view the node is.
    Probed { is_free: bool, view: u32, }
}

impl From<Beat> for Heartbeat {
    fn from(Beat { number, from, lasts }: Beat) -> Self {
        Self { number, grant: (from > 0).then_some((from, Duration::from_nanos(lasts))) }
    }
}

/// Asks the leader of a view for a lease.
pub(in crate::cluster) enum Renew {}

impl Request for Renew {
    const NUMBER: u16 = 31;
    const COST: Option<Cost> = Some(Cost::Lookup);
    const BINDS: Binds = Binds::Incarnation;
    type Body<'a> = AskFor;
    type Reply<'a> = Beat;

    fn serve<'p, F: Fabric, S: On<F>>(body: AskFor, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let Serving { worker, caller, .. } = at;
        let (node, endpoint) = (&worker.node, worker.endpoint());
        let here = endpoint.presence(caller).here();
        if here.is_none_or(|incarnation| node.home.changing.is_evicted(caller, incarnation)) {
            return Err(Refusal::Revoked);
        }
        if here.is_some_and(|incarnation| node.view.view().has_other_life(caller, incarnation)) {
            // What the other life has promised is not this one's.
            return Err(Refusal::OtherView);
        }
        // A node that has acknowledged the next view grants nothing in this one.
        let is_between = node.view.is_between();
        let tenure = node.tenure.as_ref().filter(|_| !is_between);
        let heartbeat = tenure.and_then(|tenure| tenure.grant(endpoint.now(), body.view, (caller, body.heard)));
        let Some(Heartbeat { number, grant }) = heartbeat else {
            node.tenure.iter().for_each(|tenure| tenure.note_asked(endpoint.now(), caller));
            return Err(Refusal::OtherView);
        };
        let (from, lasts) = grant.unwrap_or_default();
        let lasts = u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX);
        Ok(Beat { number, from, lasts })
    }
}

/// Asks a member whether the caller may change the view: whether it has promised another one to
/// acknowledge no view of the caller's.
pub(in crate::cluster) enum Probe {}

impl Request for Probe {
    const NUMBER: u16 = 32;
    const COST: Option<Cost> = Some(Cost::Lookup);
    const BINDS: Binds = Binds::Incarnation;
    type Body<'a> = ProbeFor;
    type Reply<'a> = Probed;

    fn serve<'p, F: Fabric, S: On<F>>(body: ProbeFor, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let Serving { worker, caller, .. } = at;
        let node = &worker.node;
        if node.home.changing.is_evicted(caller, Incarnation(body.incarnation)) {
            return Err(Refusal::Revoked);
        }
        let view = node.view.number();
        let is_free = view <= body.view && worker.may_acknowledge(caller);
        Ok(Probed { is_free, view })
    }
}
