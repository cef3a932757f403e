//! Changing to the next view, which one node of those that are left drives: see
//! [`change`](crate::cluster::change).

use std::cmp::Ordering;

use drtm_kv::{Holder, InAnyState, NoValue, ReadEntry};
use drtm_rdma::{Cost, Fabric, FabricError, Incarnation, NodeId, Presence};

use super::{
    Answer, Binds, On, Request, Serving,
    apply::{Apply, ApplyRows, Changes},
};
use crate::{
    Config, Durability,
    cluster::{
        Refusal,
        coordinator::Coordinator,
        shard::ShardId,
        view::View,
        wire::{
            Many, Wire, messages,
            parts::{Change, ChangedRow},
        },
    },
    memory::storage::KeyRef,
    mutation::Mutation,
    schema::table::Any,
};

/// What a message has beside a part of a report.
const BESIDE: usize = 64;

messages! {
    /// A life of a node.
    LifeOf { node: u16, incarnation: u32, }
    /// Asks to serve nothing of the present view any more, before the one of this number, nor to
    /// take records of these.
    PrepareFor<'a> { view: u32, dead: Many<'a, LifeOf>, }
    /// A life of a node that is no member, and whether its records are not taken any more: the
    /// driver, or one before it, has taken it for dead.
    Known { node: u16, incarnation: u32, is_closed: bool, }
    /// The view that is installed, whether the node has nothing left to decide in it, and which
    /// lives of other nodes may have a part in the change: those that it has met, or was told of.
    Prepared<'a> { view: u32, is_quiet: bool, known: Many<'a, Known>, }
    /// A part of what a node has of dead producers, and how long all of it is.
    Reported<'a> { length: u64, part: &'a [u8], }
    /// A row of a decided transaction: its key as it is encoded, its version, and its value.
    CarriedRow<'a> { table: u16, key: &'a [u8], version: u64, value: Option<&'a [u8]>, }
    /// Rows of a shard that a dead coordinator had decided to write.
    CarryRows<'a> { holder: Holder, epoch: u64, shard: u16, rows: Many<'a, CarriedRow<'a>>, }
    /// A transaction of a dead coordinator.
    Named { holder: Holder, sequence: u64, }
    /// Transactions of dead coordinators that are completed: the first ones of a list, or more of
    /// them. All others are undone, once the list is whole. Once all nodes have decided, each is
    /// told the next view instead, before any node opens it, and notes it.
    DecideOn<'a> { is_first: bool, is_last: bool, complete: Many<'a, Named>, next: Option<View>, }
}

/// Closes the view, and the rings of dead producers.
pub(in crate::cluster) enum Prepare {}

impl Request for Prepare {
    const NUMBER: u16 = 30;
    const COST: Option<Cost> = Some(Cost::Update);
    const BINDS: Binds = Binds::Incarnation;
    type Body<'a> = PrepareFor<'a>;
    type Reply<'a> = Prepared<'a>;

    fn serve<'p, F: Fabric, S: On<F>>(body: PrepareFor<'_>, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let Serving { worker, participant, caller } = at;
        let node = &worker.node;
        if caller != node.node && !worker.may_acknowledge(caller) {
            return Ok(Prepared { view: node.view.number(), is_quiet: false, known: Many::new(&[], 0) });
        }
        let view = node.suspend_view(body.view).map_err(|_| Refusal::Corrupt)?;
        if view >= body.view {
            return Ok(Prepared { view, is_quiet: false, known: Many::new(&[], 0) });
        }
        let changing = &node.home.changing;
        *changing.awaited.lock() = (0, 0);
        changing.close(body.dead.iter().map(|LifeOf { node, incarnation }| (node, incarnation)));
        if S::has(Mutation::UnlockedBeforeCarried) {
            changing.open();
        }
        // Nothing that they have posted takes effect after this, and they do not come back.
        let mut dead = body.dead.iter().map(|LifeOf { node, incarnation }| (NodeId(node), Incarnation(incarnation)));
        let is_cut_off = node.tenure.is_none()
            || S::has(Mutation::AccessLeft)
            || dead.all(|(other, incarnation)| match node.fabric.revoke(node.node, other, incarnation) {
                Ok(is_done) => is_done,
                // It was never here.
                Err(error) => matches!(error, FabricError::UnknownNode { .. }),
            });
        // What they have written until then is found.
        let closed = match &node.home.backup {
            Some(backup) if is_cut_off => {
                backup.close(|producer| changing.is_closed(producer), !S::has(Mutation::ReplicasNotLogged))
            }
            _ => Ok(()),
        };
        let is_quiet = match closed {
            Ok(()) => changing.is_quiet() && is_cut_off,
            Err(Refusal::Locked) => false,
            Err(refusal) => return Err(refusal),
        };
        let (members, mut count) = (node.view.view(), 0);
        participant.value.clear();
        let has_left =
            |(other, life)| matches!(worker.endpoint().presence(other), Presence::Left(last) if last >= life);
        // Those that are closed are told as such.
        let is_met =
            |(other, life)| !members.has(other) && !has_left((other, life)) && !changing.is_evicted(other, life);
        let met = node.closings.lives().into_iter().filter(|life| is_met(*life)).map(|life| (life, false));
        let closed = changing.closing().into_iter().filter(|(other, life)| !changing.is_out(*other, *life));
        for ((other, life), is_closed) in met.chain(closed.map(|life| (life, true))) {
            Known { node: other.0, incarnation: life.0, is_closed }.put(&mut participant.value);
            count += 1;
        }
        Ok(Prepared { view, is_quiet, known: Many::new(&participant.value, count) })
    }
}

/// Says what there is of dead producers, from a byte of it on.
pub(in crate::cluster) enum Report {}

impl Request for Report {
    const NUMBER: u16 = 27;
    const COST: Option<Cost> = Some(Cost::Lookup);
    const BINDS: Binds = Binds::Incarnation;
    type Body<'a> = u64;
    type Reply<'a> = Reported<'a>;

    fn serve<'p, F: Fabric, S: On<F>>(from: u64, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let Serving { worker, participant, .. } = at;
        let home = &worker.node.home;
        let mut report = home.changing.report.lock();
        if from == 0 {
            report.clear();
            if let Some(backup) = &home.backup {
                backup.report(&mut report);
            }
        }
        let room = worker.endpoint().capabilities().max_message_bytes.saturating_sub(BESIDE);
        let left = report.get(from as usize..).unwrap_or_default();
        participant.value.clear();
        participant.value.extend_from_slice(&left[..left.len().min(room)]);
        Ok(Reported { length: report.len() as u64, part: &participant.value })
    }
}

/// Writes rows that a dead coordinator had decided to write, and unlocks them, where it had not
/// done so.
pub(in crate::cluster) enum Carry {}

impl Request for Carry {
    const NUMBER: u16 = 28;
    const COST: Option<Cost> = Some(Cost::Update);
    const BINDS: Binds = Binds::Incarnation;
    type Body<'a> = CarryRows<'a>;
    type Reply<'a> = ();

    fn times(body: &CarryRows<'_>) -> usize {
        body.rows.len()
    }

    fn serve<'p, F: Fabric, S: On<F>>(body: CarryRows<'_>, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let CarryRows { holder, epoch, shard, rows } = body;
        let (node, records) = (&at.worker.node, at.participant.home.db.store.records());
        let (home, view) = (&node.home, node.view.view());
        let (mut bytes, mut count) = (Vec::new(), 0);
        for CarriedRow { table, key, version, value } in rows.iter() {
            let store = view.store_of(table, ShardId(shard));
            let storage = &home.store(store)?.storage;
            let key_size = home.tables.get(usize::from(table)).map_or(0, |table| table.key_size);
            let word_size = storage.takes(KeyRef::Word(0)).then_some(key_size);
            let key = KeyRef::of_encoding(key, word_size).ok_or(Refusal::NotItsKey)?;
            // Verbs of the coordinator may have written a part of the record.
            let Ok(ReadEntry { at, .. }) = storage.read::<Any, _>(key, InAnyState, &mut NoValue)? else { continue };
            // What is unlocked was carried out.
            let Some(before) = records.held_version(at, holder) else { continue };
            match before.number().cmp(&version) {
                Ordering::Less => {}
                // Verbs may have written the version, and not all of the value.
                Ordering::Equal if !S::has(Mutation::TornRowsLeft) && records.step_back(at, holder).is_some() => {}
                _ => continue,
            }
            let change = value.map_or(Change::Remove, Change::Put);
            ChangedRow { table: store, key, at, change }.put(&mut bytes);
            count += 1;
        }
        if count == 0 {
            return Ok(());
        }
        let rows = Changes::Encoded(Many::new(&bytes, count));
        Apply::serve::<F, S>(ApplyRows { holder, epoch, rows }, at)
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'_, F, S> {
    /// Returns whether the log has all that is applied, where commits wait for logs. What was
    /// acknowledged may be in the memory of this node alone, which serves it next.
    fn has_flushed(&self) -> bool {
        let home = &self.node.home;
        let Some(log) = home.db.log.as_ref().filter(|log| log.mode() == Durability::Sync) else { return true };
        let mut awaited = home.changing.awaited.lock();
        let (view, now) = (*awaited, self.node.view.number());
        let epoch = if view.0 == now { view.1 } else { 0 };
        if view.0 == now && epoch == 0 {
            return true;
        }
        // A log that has failed is told of by the node as an owner, and stops no change.
        *awaited = (now, log.look(epoch).unwrap_or(0));
        awaited.1 == 0
    }

    /// Notes in the node's directory, if it has one, that all are ready for a view. Returns whether
    /// the log has the note, whatever commits wait for.
    fn has_noted(&self, next: &View) -> bool {
        let home = &self.node.home;
        // Where views are changed by hand, no node asks for notes.
        let is_noted = self.node.membership.is_some() && !S::has(Mutation::ReadyNotNoted);
        let Some(log) = home.db.log.as_ref().filter(|_| is_noted) else { return true };
        let mut noting = home.changing.noting.lock();
        if noting.0 > next.number() {
            return true;
        }
        // A log that has failed, or is only read, stops no change: its node has no directory any
        // more.
        if noting.0 < next.number() {
            *noting = (next.number(), log.note(&next.to_note()).unwrap_or(0));
        }
        if noting.1 > 0 && !S::has(Mutation::NotesNotAwaited) {
            noting.1 = log.look(noting.1).unwrap_or(0);
            return noting.1 == 0;
        }
        true
    }
}

/// Completes transactions of dead coordinators, and undoes their other ones. Answers whether there
/// was room for all that is applied; or if the next view is told, whether that is noted.
pub(in crate::cluster) enum Decide {}

impl Request for Decide {
    const NUMBER: u16 = 29;
    const COST: Option<Cost> = Some(Cost::Update);
    const BINDS: Binds = Binds::Incarnation;
    type Body<'a> = DecideOn<'a>;
    type Reply<'a> = bool;

    fn serve<'p, F: Fabric, S: On<F>>(body: DecideOn<'_>, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let home = &at.worker.node.home;
        if let Some(next) = body.next {
            if !next.is_of_shape(&at.worker.node.first_view) {
                return Err(Refusal::Corrupt);
            }
            let is_noted = at.worker.has_noted(&next);
            home.changing.note_ready(next);
            return Ok(is_noted);
        }
        let mut complete = home.changing.complete.lock();
        if body.is_first {
            complete.clear();
        }
        complete.extend(body.complete.iter().map(|Named { holder, sequence }| (holder, sequence)));
        match &home.backup {
            Some(backup) if body.is_last => {
                let is_applied = backup.decide(&complete, (!S::has(Mutation::ReplicasNotLogged), S::has))?;
                Ok(is_applied && at.worker.has_flushed())
            }
            _ => Ok(true),
        }
    }
}

/// Says the last view for which all were ready, as far as the node was told: in this life, or in an
/// earlier one, which has noted it in the directory.
pub(in crate::cluster) enum Recall {}

impl Request for Recall {
    const NUMBER: u16 = 38;
    const COST: Option<Cost> = Some(Cost::Lookup);
    const BINDS: Binds = Binds::Incarnation;
    type Body<'a> = ();
    type Reply<'a> = Option<View>;

    fn serve<'p, F: Fabric, S: On<F>>((): (), at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        Ok(at.worker.node.home.changing.told_ready())
    }
}
