//! What a node says of itself: its name, its clock, its line, whether its log is durable, and that
//! it closes.

use drtm_htm::Engine;
use drtm_rdma::{Cost, Fabric, Incarnation, Port};

use super::{About, Answer, Binds, On, Request, Serving, TxRequest};
use crate::{
    Error,
    cluster::{
        Refusal,
        shared::VERSION,
        state::State,
        view::View,
        wire::{messages, parts::Welcome},
    },
};

messages! {
    /// Introduces a node: what it believes the cluster to be.
    Hello<'a> { version: u32, engine: &'a str, protocol: &'a str, tables: &'a str, lease: u64, view: View, }
    /// Says that the caller closes, or that all is done there that others had begun.
    Closes { incarnation: u32, is_done: bool, }
    /// An owner's line: its snapshot number, and its count of changes.
    LineIs { epoch: u64, count: u64, }
}

/// Introduces the caller, which must believe the cluster to be what the node that serves does.
pub(in crate::cluster) enum Introduce {}

impl Request for Introduce {
    const NUMBER: u16 = 1;
    const COST: Option<Cost> = None;
    const BINDS: Binds = Binds::Nothing;
    type Body<'a> = Hello<'a>;
    type Reply<'a> = Welcome;

    fn serve<'p, F: Fabric, S: On<F>>(hello: Hello<'_>, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let Serving { worker, caller, .. } = at;
        let node = &worker.node;
        let here = worker.endpoint().presence(caller).here();
        if here.is_some_and(|incarnation| node.home.changing.is_evicted(caller, incarnation)) {
            return Err(Refusal::Revoked);
        }
        let Hello { version, engine, protocol, tables, lease, view } = hello;
        let is_alike =
            (version, engine, protocol, tables) == (VERSION, node.engine_name(), node.protocol.name, &node.described);
        if !is_alike || lease != node.lease_in_nanos() {
            return Err(Refusal::Other);
        }
        if let Some(incarnation) = here {
            let is_known = node.closings.has_met(caller, incarnation) || view.has(caller);
            if node.view.is_between() && !is_known {
                // The driver has been told whom this node has met, and would not ask another one.
                return Err(Refusal::OtherView);
            }
            node.closings.meet(caller, incarnation);
        }
        // The caller may know a newer view.
        node.install(view).map_err(|_| Refusal::Other)?;
        Ok(node.welcome())
    }
}

/// Notes that the caller closes, so that nothing is begun there any more; or that all is done.
pub(in crate::cluster) enum Close {}

impl Request for Close {
    const NUMBER: u16 = 26;
    const COST: Option<Cost> = None;
    const BINDS: Binds = Binds::Nothing;
    type Body<'a> = Closes;
    type Reply<'a> = ();

    fn serve<'p, F: Fabric, S: On<F>>(closes: Closes, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let Closes { incarnation, is_done } = closes;
        at.worker.node.note_closing(at.caller, Incarnation(incarnation), is_done);
        Ok(())
    }
}

/// Reads the clock of the node that serves, in nanoseconds.
pub(in crate::cluster) enum Clock {}

impl Request for Clock {
    const NUMBER: u16 = 21;
    const COST: Option<Cost> = None;
    const BINDS: Binds = Binds::Incarnation;
    type Body<'a> = ();
    type Reply<'a> = u64;

    fn serve<'p, F: Fabric, S: On<F>>((): (), Serving { worker, .. }: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        Ok(worker.endpoint().now().nanos())
    }
}

/// Reads the line of an owner, after every lock that was taken before. As a transaction's request:
/// after its locks, so that its snapshot number is the epoch in which the transaction commits.
pub(in crate::cluster) enum Line {}

impl Request for Line {
    const NUMBER: u16 = 5;
    const COST: Option<Cost> = Some(Cost::Check);
    type Body<'a> = ();
    type Reply<'a> = LineIs;

    fn serve<'p, F: Fabric, S: On<F>>((): (), at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let Serving { participant, .. } = at;
        drtm_htm::fence_locked();
        let db = &participant.home.db;
        let epoch = db.engine().load(db.snapshot_number()?);
        Ok(LineIs { epoch, count: participant.count()? })
    }
}

impl TxRequest for Line {
    type Of = Self;
    const ABOUT: About = About::Owner;

    fn body<P: Port>(_: &State<'_, P>, _: u32) {}

    fn answered<P: Port>(state: &mut State<'_, P>, owner: u32, line: LineIs) -> Result<(), Error> {
        let owner = &mut state.owners[owner as usize];
        owner.note_count(line.count);
        owner.note_number(line.epoch, false);
        Ok(())
    }
}

/// Reads the line of an owner for its count of changes alone.
pub(in crate::cluster) enum Count {}

impl TxRequest for Count {
    type Of = Line;
    const ABOUT: About = About::Owner;

    fn body<P: Port>(_: &State<'_, P>, _: u32) {}

    fn answered<P: Port>(state: &mut State<'_, P>, owner: u32, line: LineIs) -> Result<(), Error> {
        state.owners[owner as usize].note_count(line.count);
        Ok(())
    }
}

/// Looks whether an owner's log has all up to an epoch, or all that is visible now, if that is
/// zero. Answers zero if it has; otherwise the epoch for the next look.
pub(in crate::cluster) enum Durable {}

impl Request for Durable {
    const NUMBER: u16 = 25;
    const COST: Option<Cost> = Some(Cost::Check);
    const BINDS: Binds = Binds::Incarnation;
    type Body<'a> = u64;
    type Reply<'a> = u64;

    fn serve<'p, F: Fabric, S: On<F>>(epoch: u64, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let Serving { participant, .. } = at;
        match &participant.home.db.log {
            Some(log) => log.look(epoch).map_err(|_| Refusal::LogFailed),
            None => Ok(0),
        }
    }
}

impl TxRequest for Durable {
    type Of = Self;
    const ABOUT: About = About::Owner;

    fn body<P: Port>(state: &State<'_, P>, owner: u32) -> u64 {
        state.owners[owner as usize].awaits
    }

    fn answered<P: Port>(state: &mut State<'_, P>, owner: u32, epoch: u64) -> Result<(), Error> {
        state.owners[owner as usize].awaits = epoch;
        Ok(())
    }
}
