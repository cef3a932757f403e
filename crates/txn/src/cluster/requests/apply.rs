//! What a transaction changes at a node: one request, carried out whole or refused.
//!
//! A node that has a log, or that frees what dead clients have locked, gets all that a transaction
//! changes there at once (decisions 58 and 60). Elsewhere, a change that is longer than a message
//! goes in several. Verbs write the rows that they have locked.

use std::convert::Infallible;

use drtm_kv::{Handle, Holder};
use drtm_rdma::{
    Cost, Fabric, NodeId, Port,
    rpc::{DecodeError, Encode, Reader},
};
use smallvec::SmallVec;

use super::{About, Answer, Binds, On, Request, Serving, TxRequest};
#[cfg(feature = "hades")]
use crate::cluster::costs::Access;
use crate::{
    Config, Durability, Error,
    cluster::{
        ClusterError, Refusal,
        ask::{Ask, Asks},
        coordinator::Coordinator,
        participant::{Held, Participant},
        protocol::Detection,
        state::{Hold, Op, Part, Row, State},
        view::View,
        wire::{
            Many, Wire, messages,
            parts::{Change, ChangedRow},
        },
    },
    memory::arena::{Arena, ArenaKey},
    mutation::Mutation,
};

/// The most that a message has beside the rows of one request.
const BESIDE: usize = 64;

messages! {
    /// What a transaction changes at a node. It is carried out whole, or refused.
    ApplyRows<'a> { holder: Holder, epoch: u64, rows: Changes<'a>, }
}

/// Rows that are changed: of a message, or of a transaction of this node.
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) enum Changes<'a> {
    /// As they are encoded.
    Encoded(Many<'a, ChangedRow<'a>>),
    /// These, as their transaction knows them.
    Known(Known<'a>),
}

/// Rows as their transaction knows them.
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) struct Known<'a> {
    view: &'a View,
    numbers: &'a [u32],
    rows: &'a [Row],
    arena: &'a Arena,
    /// Whether their owner logs them, so that it needs the values of inserted rows again.
    are_logged: bool,
}

impl<'a> Known<'a> {
    fn row(&self, number: u32) -> ChangedRow<'a> {
        let row = &self.rows[number as usize];
        let bytes = self.arena.values.bytes();
        let change = match row.op {
            Op::Put(value) => Change::Put(value.of(bytes)),
            Op::Publish(value) => Change::Publish(self.are_logged.then(|| value.of(bytes))),
            Op::Nothing | Op::Remove => Change::Remove,
        };
        ChangedRow {
            table: self.view.store_of(row.table, row.shard),
            key: row.key.in_bytes(&self.arena.keys),
            at: row.at().unwrap_or_default(),
            change,
        }
    }
}

impl<'a> Changes<'a> {
    /// Returns what a transaction makes of these rows of its own.
    #[cfg(feature = "hades")]
    pub(super) fn of<P: Port>(state: &'a State<'_, P>, numbers: &'a [u32], are_logged: bool) -> Self {
        let (view, rows, arena) = (&*state.view, &*state.rows, &state.arena);
        Self::Known(Known { view, numbers, rows, arena, are_logged })
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Encoded(rows) => rows.len(),
            Self::Known(known) => known.numbers.len(),
        }
    }

    /// Calls `each` with one row after the other, until it fails.
    #[inline]
    pub(super) fn try_for_each<E>(&self, mut each: impl FnMut(ChangedRow<'a>) -> Result<(), E>) -> Result<(), E> {
        match self {
            Self::Encoded(rows) => rows.iter().try_for_each(each),
            Self::Known(known) => known.numbers.iter().try_for_each(|number| each(known.row(*number))),
        }
    }
}

impl<'a> Wire<'a> for Changes<'a> {
    fn put(&self, into: &mut Vec<u8>) {
        let before = into.len();
        0_u32.encode(into);
        let Ok(()) = self.try_for_each(|row| {
            row.encode(into);
            Ok::<_, Infallible>(())
        });
        let length = (into.len() - before - size_of::<u32>()) as u32;
        into[before..before + size_of::<u32>()].copy_from_slice(&length.to_le_bytes());
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Wire::take(from).map(Self::Encoded)
    }
}

/// Writes rows that the holder has locked, and unlocks them: all of them, or none.
pub(in crate::cluster) enum Apply {}

impl Request for Apply {
    const NUMBER: u16 = 8;
    const COST: Option<Cost> = Some(Cost::Update);
    const BINDS: Binds = Binds::Incarnation;
    type Body<'a> = ApplyRows<'a>;
    type Reply<'a> = ();

    fn times(body: &ApplyRows<'_>) -> usize {
        body.rows.len()
    }

    fn serve<'p, F: Fabric, S: On<F>>(body: ApplyRows<'_>, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let Serving { worker, participant, .. } = at;
        let ApplyRows { holder, epoch, rows } = body;
        let home = &*worker.node.home;
        // They are decoded and found once, and none is written before all are found to be held.
        let mut held = SmallVec::<[Held<'_>; 8]>::new();
        #[cfg(feature = "hades")]
        let _ = rows.try_for_each(|row| {
            worker.charge_access(row.at, Access::Write);
            Ok::<_, Infallible>(())
        });
        rows.try_for_each(|row| home.held(row, holder).map(|row| held.push(row)))?;
        let write = |participant: &mut Participant<S>, row| participant.write_held(home, row, (holder, epoch));
        let Some(log) = &home.db.log else { return held.iter().try_for_each(|row| write(participant, row)) };
        let logger = participant.state.session.participant.clone().ok_or(Refusal::LogFailed)?;
        if S::has(Mutation::RowsLoggedApart) {
            return held.chunks(1).try_for_each(|row| {
                let logged = participant.log_rows(home, (log, &logger), row, epoch);
                let written = logged.and_then(|_open| write(participant, &row[0]));
                // Lets a flush come in between.
                let _ = log.request_flush();
                std::thread::sleep(std::time::Duration::from_millis(5));
                written
            });
        }
        let logged = participant.log_rows(home, (log, &logger), &held, epoch);
        let mut noted = Ok(());
        if let (Some(logs), Ok((_open, logged_in)), Some(row)) = (&worker.node.cooperative, &logged, held.first()) {
            noted = logs.note(holder, (row.hash(epoch), *logged_in)).map_err(|_| Refusal::LogFailed);
        }
        // It is decided, and happens, whatever has become of the log.
        let written = held.iter().try_for_each(|row| write(participant, row));
        written.and(noted).and(logged.map(drop))
    }
}

impl TxRequest for Apply {
    type Of = Self;
    const ABOUT: About = About::Part;

    fn body<'a, P: Port>(state: &'a State<'_, P>, part: u32) -> ApplyRows<'a> {
        let (numbers, Part { node, is_logged, .. }) = (state.parts.rows_of(part), &state.parts.parts[part as usize]);
        let (view, rows, arena) = (&*state.view, &*state.rows, &state.arena);
        let known = Known { view, numbers, rows, arena, are_logged: *is_logged };
        ApplyRows { holder: state.holder, epoch: state.epoch_at(*node), rows: Changes::Known(known) }
    }

    fn sent<P: Port>(state: &mut State<'_, P>, part: u32) {
        let State { parts, rows, .. } = state;
        parts.rows_of(part).iter().for_each(|row| rows[*row as usize].hold = Hold::Sent);
    }
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Returns whether commits at a node are carried out whole there, and rows locked by message:
    /// where it has a log, which gets one record of each transaction, and where conflicts are found
    /// by cache lines.
    pub(in crate::cluster) fn commits_whole(&self, node: NodeId) -> bool {
        self.protocol().detection != Detection::Versions
            || self.durability_of(node).is_some() && !S::has(Mutation::LogsBypassed)
    }

    /// Returns when a node's log has what is written to it. `None` without a log, or if it was not
    /// met.
    pub(in crate::cluster) fn durability_of(&self, node: NodeId) -> Option<Durability> {
        if node == self.id() {
            return self.node.home.durability();
        }
        self.peer(node).and_then(|peer| peer.durability)
    }

    /// Returns how many bytes of rows one request has room for.
    fn room(&self) -> usize {
        self.endpoint().capabilities().max_message_bytes.saturating_sub(BESIDE)
    }

    /// Checks that what a transaction writes fits messages: at each node one, if it is carried out
    /// whole there. Meets the owners that it has not met.
    ///
    /// # Errors
    ///
    /// [`ClusterError::TooLargeForOne`] and [`ClusterError::RowTooLong`]; or when an owner cannot
    /// be asked.
    pub(in crate::cluster) async fn check_fits(&self, state: &State<'e, F::Port>) -> Result<(), Error> {
        let (room, most) = (self.room(), self.endpoint().capabilities().max_message_bytes);
        let written = state.rows.iter().filter(|row| row.is_written());
        let remote = written.map(|row| (state.node_at(row.shard), row)).filter(|(node, _)| *node != self.id());
        // Bytes of the nodes that carry them out whole.
        let mut whole: SmallVec<[(NodeId, usize); 4]> = SmallVec::new();
        for (node, row) in remote {
            let bytes = row.changed_bytes();
            if bytes > room {
                return Err(ClusterError::RowTooLong { table: self.table_name(row.table), most }.into());
            }
            match whole.iter_mut().find(|(known, _)| *known == node) {
                Some((_, sum)) => *sum += bytes,
                None => {
                    self.greet(node).await.map_err(|error| state.not_greeted(node, error))?;
                    whole.push((node, bytes));
                }
            }
        }
        match whole.into_iter().find(|(node, bytes)| *bytes > room && self.commits_whole(*node)) {
            Some(_) => Err(ClusterError::TooLargeForOne { most }.into()),
            None => Ok(()),
        }
    }

    /// Divides what a decided transaction still has to write among those that carry it out.
    /// Returns the requests.
    pub(in crate::cluster) fn divide_changes(&self, state: &mut State<'e, F::Port>) -> Asks {
        let mut parts = std::mem::take(&mut state.parts);
        parts.clear();
        let is_left = |row: &Row| row.is_written() && row.hold != Hold::Sent;
        parts.rows.extend(state.rows.iter().zip(0..).filter(|(row, _)| is_left(row)).map(|(_, number)| number));
        let by_whom = |row: u32| (state.node_of(row), state.is_written_by_verbs(row));
        if !parts.rows.is_sorted_by_key(|row| by_whom(*row)) {
            parts.rows.sort_unstable_by_key(|row| (by_whom(*row), *row));
        }
        let (room, mut bytes) = (self.room(), 0);
        for (at, row) in parts.rows.iter().enumerate() {
            let ((node, is_by_verbs), more) = (by_whom(*row), state.rows[*row as usize].changed_bytes());
            bytes += more;
            match parts.parts.last_mut().filter(|part| (part.node, part.is_by_verbs) == (node, is_by_verbs)) {
                Some(part) if bytes <= room || is_by_verbs || node == self.id() => part.rows.end = at + 1,
                _ => {
                    let is_logged = self.durability_of(node).is_some();
                    parts.parts.push(Part { node, rows: at..at + 1, is_by_verbs, is_logged });
                    bytes = more;
                }
            }
        }
        state.parts = parts;
        (0..state.parts.parts.len() as u32).map(Ask::Apply).collect()
    }
}

impl Row {
    /// Returns how many bytes its change takes in a message.
    fn changed_bytes(&self) -> usize {
        let key = 1 + match self.key {
            ArenaKey::Word(_) => size_of::<u64>(),
            ArenaKey::Bytes(key) => size_of::<u32>() + key.length(),
        };
        let value = match self.op {
            Op::Put(value) | Op::Publish(value) => size_of::<u32>() + value.length(),
            Op::Nothing | Op::Remove => 0,
        };
        size_of::<u16>() + key + size_of::<Handle>() + 1 + value
    }
}
