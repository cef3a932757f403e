//! A round: requests to any number of owners, all under way at the same time, and the transaction
//! is told of their answers (`answers`).
//!
//! Each request has a local form, a call of this node's own participant, and a message form; some
//! have a one-sided form (`reach`), too. Protocol code says what is to be done, and not how.
//! Requests to one owner that do not fit one message go in several, one after the other, so that
//! the last is carried out last.

use drtm_kv::{Holder, Version};
use drtm_rdma::{
    Fabric, NodeId, Phase,
    rpc::{Calls, Results, RpcError},
};

use super::{
    ClusterError,
    ask::{Ask, Asked, Asks, cost},
    coordinator::Coordinator,
    participant::Participant,
    state::{Culprit, Op, ScannedRange, Sent, State},
    wire::{
        Append, AppendTo, Apply, ApplyRow, Before, Change, Check, CheckRow, Durable, Guard, GuardOf, Lease, LeaseRow,
        Line, Lock, LockRow, Place, PlaceRow, Read, ReadRow, Reap, ReapRow, Refusal, Scan, ScanRows, Unlock, UnlockRow,
    },
};
use crate::{Config, Conflict, Error, mutation::Mutation, tx::position::Way};

/// Bytes of rows of a range that are read at once on this node.
const PAGE: usize = 1 << 16;

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Asks, and waits for all answers. They have changed the state, those after a failure too.
    ///
    /// # Errors
    ///
    /// The first that there is.
    pub(super) async fn round(&self, state: &mut State<'e, F::Port>, phase: Phase, asks: &[Ask]) -> Result<(), Error> {
        let is_remote = asks.iter().any(|ask| state.node_of(*ask) != self.id());
        let began = is_remote.then(|| self.endpoint().now());
        let mut outcome = self.post(state, phase, asks).await;
        keep_first(&mut outcome, self.collect(state).await);
        // What was missed in the memory of its owner, that one has to say.
        let missed: Asks = asks.iter().copied().filter(|ask| state.was_missed(*ask)).collect();
        if !missed.is_empty() && outcome.is_ok() {
            outcome = self.post(state, phase, &missed).await;
            keep_first(&mut outcome, self.collect(state).await);
        }
        if let Some(began) = began {
            self.count_round(phase, self.endpoint().now().since(began));
        }
        outcome
    }

    /// Asks, and waits for what verbs find, but not for messages, nor for rows to be written.
    ///
    /// # Errors
    ///
    /// The first that there is.
    pub(super) async fn post(&self, state: &mut State<'e, F::Port>, phase: Phase, asks: &[Ask]) -> Result<(), Error> {
        let mut outcome = Ok(());
        let mut by_verbs = Asks::new();
        for owner in 0..state.owners.len() {
            let node = state.owners[owner].node;
            if node != self.id() && asks.iter().any(|ask| state.node_of(*ask) == node) {
                // Nothing is asked of a node that does not know this one. The others are asked all
                // the same: they may have to carry out what is decided, or give up locks.
                if let Err(error) = self.greet(node).await {
                    keep_first(&mut outcome, Err(state.not_greeted(node, error)));
                    continue;
                }
                let mut by_message = Asks::new();
                for ask in asks.iter().filter(|ask| state.node_of(**ask) == node) {
                    if self.is_one_sided(state, *ask) { by_verbs.push(*ask) } else { by_message.push(*ask) }
                }
                if self.commits_whole(node) {
                    let is_apply = |ask: &Ask| matches!(ask, Ask::Apply(_));
                    let applies: Asks = by_message.iter().copied().filter(is_apply).collect();
                    by_message.retain(|ask| !is_apply(ask));
                    if !applies.is_empty() {
                        keep_first(&mut outcome, self.send_whole(state, node, phase, applies).await);
                    }
                }
                if !by_message.is_empty() {
                    keep_first(&mut outcome, self.send(state, node, phase, &by_message).await);
                }
            }
        }
        // What is here is done while the messages are on their way.
        if self.commits_whole(self.id()) {
            keep_first(&mut outcome, self.apply_whole(state, asks));
        }
        for ask in asks {
            let is_done = matches!(ask, Ask::Apply(_)) && self.commits_whole(self.id());
            if state.node_of(*ask) == self.id() && !is_done {
                self.endpoint().charge(cost(*ask));
                let settled = state.ask_here::<S>(*ask, &mut self.participant(), |holder| self.is_dead(holder));
                state.blame(ask.row(), &settled);
                keep_first(&mut outcome, settled);
            }
        }
        if !by_verbs.is_empty() {
            keep_first(&mut outcome, self.reach(state, phase, &by_verbs).await);
        }
        outcome
    }

    /// Sends requests to one other node.
    async fn send(
        &self,
        state: &mut State<'e, F::Port>,
        node: NodeId,
        phase: Phase,
        mut asks: &[Ask],
    ) -> Result<(), Error> {
        let mut outcome = Ok(());
        while !asks.is_empty() {
            let mut calls = self.rpc(phase).to(node);
            let mut asked = Vec::new();
            while let Some((ask, others)) = asks.split_first() {
                match state.encode(*ask, &mut calls) {
                    Ok(slot) => asked.push(slot),
                    Err(RpcError::Full) if !asked.is_empty() => break,
                    Err(RpcError::Full) => return Err(self.too_long(state, *ask)),
                    Err(error) => return Err(ClusterError::Unreachable { node, source: error }.into()),
                }
                asks = others;
            }
            match calls.post(None).await {
                Ok(posted) => {
                    state.note_sent(&asked);
                    state.sent.push(Sent { posted, asked });
                }
                Err(source) => {
                    state.note_sent(&asked);
                    return Err(state.failed(node, source));
                }
            }
            if !asks.is_empty() {
                keep_first(&mut outcome, self.collect(state).await);
            }
        }
        outcome
    }

    /// Waits for everything that is under way.
    ///
    /// # Errors
    ///
    /// The first that there is.
    pub(super) async fn collect(&self, state: &mut State<'e, F::Port>) -> Result<(), Error> {
        let mut outcome = Ok(());
        let given_up = state.given_up.take().into_iter().filter(|_| !S::has(Mutation::ClaimsNotAwaited));
        state.sent.extend(given_up.map(|posted| Sent { posted, asked: Vec::new() }));
        while let Some(sent) = state.sent.last_mut() {
            let node = sent.posted.node();
            let results = sent.posted.results().await;
            let Some(sent) = state.sent.pop() else { break };
            match results {
                Ok(results) => {
                    for asked in &sent.asked {
                        let settled = state.settle(node, asked, &results);
                        state.blame(asked.row(), &settled);
                        keep_first(&mut outcome, settled);
                    }
                }
                Err(error) => {
                    if S::has(Mutation::UnknownLocksForgotten) {
                        let locks = sent.asked.iter().filter(|asked| matches!(asked, Asked::Lock(..)));
                        locks.filter_map(Asked::row).for_each(|row| state.rows[row as usize].is_locked = false);
                    }
                    keep_first(&mut outcome, Err(state.failed(node, error)));
                }
            }
        }
        while let Some((node, written)) = state.written.last_mut() {
            let (node, written) = (*node, written.await);
            state.written.pop();
            if let Err(source) = written {
                keep_first(&mut outcome, Err(state.failed(node, source.into())));
            }
        }
        outcome
    }

    fn too_long(&self, state: &State<'e, F::Port>, ask: Ask) -> Error {
        let most = self.endpoint().capabilities().max_message_bytes;
        let table = match ask {
            Ask::Read(row) | Ask::Lease(row) | Ask::Place(row) | Ask::Lock(row) | Ask::Apply(row) | Ask::Reap(row) => {
                self.table_name(state.rows[row as usize].table)
            }
            _ => "",
        };
        ClusterError::RowTooLong { table, most }.into()
    }
}

/// Keeps the first of several failures. A conflict counts less than what is worse.
pub(super) fn keep_first(outcome: &mut Result<(), Error>, other: Result<(), Error>) {
    match (&outcome, &other) {
        (Ok(()), _) | (Err(Error::Conflict(_)), Err(Error::Cluster(_))) => *outcome = other,
        _ => {}
    }
}

impl<P: drtm_rdma::Port> State<'_, P> {
    /// Which node a request goes to.
    pub(super) fn node_of(&self, ask: Ask) -> NodeId {
        match ask {
            Ask::Line(owner) | Ask::Count(owner) | Ask::Durable(owner) => self.owners[owner as usize].node,
            Ask::Guard(missing) => self.missing[missing as usize].owner,
            Ask::Scan(span) => self.spans[span as usize].owner,
            Ask::Log(piece) => self.log.node_of_piece(piece),
            Ask::Void(record) => self.log.node_of_record(record),
            Ask::Read(row)
            | Ask::Lease(row)
            | Ask::Place(row)
            | Ask::Lock(row)
            | Ask::Check(row)
            | Ask::Apply(row)
            | Ask::Unlock(row)
            | Ask::Reap(row) => self.rows[row as usize].owner,
        }
    }

    /// Notes what was in the way, if this outcome is a conflict, and the first.
    pub(super) fn blame(&mut self, row: Option<u32>, outcome: &Result<(), Error>) {
        if let Err(Error::Conflict(_)) = outcome {
            if let Some(row) = row {
                self.rows[row as usize].is_contended = true;
            }
            self.culprit.get_or_insert(row.map_or(Culprit::Unknown, Culprit::Row));
        }
    }

    /// Whether a row was looked up by verbs, and missed.
    fn was_missed(&self, ask: Ask) -> bool {
        matches!(ask, Ask::Read(row) | Ask::Lease(row) if self.rows[row as usize].is_missed && !self.rows[row as usize].is_known)
    }

    /// The change that a commit makes of a row.
    pub(super) fn change(&self, row: u32) -> Change<'_> {
        match self.rows[row as usize].op {
            Op::Put(value) => Change::Put(value.of(self.arena.values.bytes())),
            Op::Publish(_) => Change::Publish(None),
            Op::Nothing | Op::Remove => Change::Remove,
        }
    }

    /// The length of the value that a row is to have, for which its record may have no room.
    fn new_length(&self, row: u32) -> Option<u32> {
        match self.rows[row as usize].op {
            Op::Put(value) => Some(value.length() as u32),
            Op::Nothing | Op::Publish(_) | Op::Remove => None,
        }
    }

    /// Adds a request to a message.
    fn encode(&self, ask: Ask, calls: &mut Calls<'_, P>) -> Result<Asked, RpcError> {
        let (holder, borrows) = (self.holder, std::marker::PhantomData);
        let row = |row: u32| {
            let row = &self.rows[row as usize];
            (row.table, row.key.in_bytes(&self.arena.keys), row.at.unwrap_or_default(), row.seen)
        };
        Ok(match ask {
            Ask::Read(number) => {
                let (table, key, ..) = row(number);
                Asked::Read(number, calls.add::<Read>(&ReadRow { table, key, holder, borrows })?)
            }
            Ask::Lease(number) => {
                let ((table, key, ..), until) = (row(number), self.leases_until);
                Asked::Lease(number, calls.add::<Lease>(&LeaseRow { table, key, holder, until, borrows })?)
            }
            Ask::Scan(number) => {
                let ScannedRange { table, low, high, way, most, .. } = self.spans[number as usize];
                let [low, high] = [low, high].map(|bound| bound.map(|key| key.in_bytes(&self.arena.keys)));
                let is_back = way == Way::Down;
                let rows = ScanRows { table, low, high, holder, is_back, most, borrows };
                Asked::Scan(number, calls.add::<Scan>(&rows)?)
            }
            Ask::Place(number) => {
                let (table, key, ..) = row(number);
                let value = self.value(number).unwrap_or_default();
                Asked::Place(number, calls.add::<Place>(&PlaceRow { table, key, holder, value, borrows })?)
            }
            Ask::Lock(number) => {
                let (table, key, at, seen) = row(number);
                // Verbs bring no count of changes: the owner looks whether it is still
                // this key's.
                let seen = if self.rows[number as usize].location.is_some() { Version::default() } else { seen };
                let length = self.new_length(number);
                Asked::Lock(number, calls.add::<Lock>(&LockRow { table, key, at, seen, holder, length, borrows })?)
            }
            Ask::Line(owner) => Asked::Line(owner, calls.add::<Line>(&())?),
            Ask::Count(owner) => Asked::Count(owner, calls.add::<Line>(&())?),
            Ask::Check(number) => {
                let (_, _, at, seen) = row(number);
                Asked::Check(number, calls.add::<Check>(&CheckRow { at, seen, holder, borrows })?)
            }
            Ask::Guard(number) => Asked::Guard(calls.add::<Guard>(&GuardOf(self.missing[number as usize].absence))?),
            Ask::Apply(number) => {
                let (table, key, at, _) = row(number);
                let (epoch, change) = (self.epoch_of(number), self.change(number));
                Asked::Apply(number, calls.add::<Apply>(&ApplyRow { table, key, at, holder, epoch, change, borrows })?)
            }
            Ask::Unlock(number) => {
                let (table, _, at, _) = row(number);
                Asked::Unlock(number, calls.add::<Unlock>(&UnlockRow { table, at, holder, borrows })?)
            }
            Ask::Reap(number) => {
                let (table, key, at, seen) = row(number);
                Asked::Reap(calls.add::<Reap>(&ReapRow { table, key, at, seen, borrows })?)
            }
            Ask::Log(piece) => {
                let (ring, position, bytes) = self.log.piece(piece);
                let producer = holder.in_slot(0);
                Asked::Log(piece, calls.add::<Append>(&AppendTo { ring, producer, position, bytes, borrows })?)
            }
            Ask::Void(record) => {
                let (ring, position, bytes) = self.log.void(record);
                let producer = holder.in_slot(0);
                Asked::Void(calls.add::<Append>(&AppendTo { ring, producer, position, bytes, borrows })?)
            }
            Ask::Durable(owner) => Asked::Durable(owner, calls.add::<Durable>(&self.owners[owner as usize].awaits)?),
        })
    }

    pub(super) fn epoch_of(&self, row: u32) -> u64 {
        self.owner_of(row).map_or(0, |owner| owner.epoch)
    }

    /// Notes that requests are on their way, before anything is known of their outcome.
    pub(super) fn note_sent(&mut self, asked: &[Asked]) {
        for asked in asked {
            match asked {
                // Until the answer says otherwise.
                Asked::Lock(row, _) => self.rows[*row as usize].is_locked = true,
                Asked::Apply(row, _) => self.rows[*row as usize].is_sent = true,
                Asked::ApplyAll(rows, _) => {
                    rows.iter().filter_map(|ask| ask.row()).for_each(|row| self.rows[row as usize].is_sent = true);
                }
                _ => {}
            }
        }
    }

    /// Carries a request out on this node.
    fn ask_here<S: Config>(
        &mut self,
        ask: Ask,
        owner: &mut Participant<S>,
        is_dead: impl Fn(Holder) -> bool,
    ) -> Result<(), Error> {
        let holder = self.holder;
        let row = |this: &Self, row: u32| {
            let row = &this.rows[row as usize];
            (row.table, row.at.unwrap_or_default(), row.seen)
        };
        let refused = |refusal| refused(NodeId(holder.node().into()), refusal);
        match ask {
            Ask::Read(number) => {
                let table = row(self, number).0;
                let key = self.rows[number as usize].key.in_bytes(&self.arena.keys);
                let found = owner.read(table, key, holder, is_dead).map_err(refused)?;
                self.has_found(number, &found)
            }
            Ask::Lease(number) => {
                let (table, until) = (row(self, number).0, self.leases_until);
                let key = self.rows[number as usize].key.in_bytes(&self.arena.keys);
                let leased = owner.lease(table, key, holder, until, is_dead).map_err(refused)?;
                self.has_leased(number, &leased)
            }
            Ask::Scan(number) => {
                let ScannedRange { table, low, high, way, most, .. } = self.spans[number as usize];
                let [low, high] = [low, high].map(|bound| bound.map(|key| key.in_bytes(&self.arena.keys)));
                let scanned = owner.scan(table, (low, high, way), holder, (most, PAGE), is_dead).map_err(refused)?;
                self.has_scanned(number, &scanned)
            }
            Ask::Place(number) => {
                let table = row(self, number).0;
                let key = self.rows[number as usize].key.in_bytes(&self.arena.keys);
                let value = self.value(number).unwrap_or_default();
                let placed = owner.place(table, key, value, is_dead).map_err(refused)?;
                self.has_placed(number, &placed)
            }
            Ask::Lock(number) => {
                let (table, at, seen) = row(self, number);
                let key = self.rows[number as usize].key.in_bytes(&self.arena.keys);
                let before =
                    owner.lock(table, key, (at, seen), holder, self.new_length(number), is_dead).map_err(refused)?;
                self.has_locked(number, before)
            }
            Ask::Line(number) => {
                let line = owner.line().map_err(refused)?;
                self.has_line(number, line);
                Ok(())
            }
            Ask::Count(number) => {
                let line = owner.line().map_err(refused)?;
                self.owners[number as usize].has_count(line.count);
                Ok(())
            }
            Ask::Check(number) => {
                let (_, at, seen) = row(self, number);
                if owner.check(at, seen, holder) { Ok(()) } else { Err(Conflict::Validation.into()) }
            }
            Ask::Guard(number) => {
                if owner.guard(self.missing[number as usize].absence) {
                    Ok(())
                } else {
                    Err(Conflict::Phantom.into())
                }
            }
            Ask::Apply(number) => {
                self.rows[number as usize].is_sent = true;
                let (table, at, _) = row(self, number);
                let key = self.rows[number as usize].key.in_bytes(&self.arena.keys);
                let change = (self.epoch_of(number), self.change(number));
                let node = self.node_of(ask);
                owner.apply(table, key, at, holder, change).map_err(|refusal| outcome_unknown(node, refusal))
            }
            Ask::Unlock(number) => {
                owner.unlock(row(self, number).1, holder);
                self.rows[number as usize].is_locked = false;
                Ok(())
            }
            Ask::Reap(number) => {
                let (table, at, seen) = row(self, number);
                let key = self.rows[number as usize].key.in_bytes(&self.arena.keys);
                owner.reap(table, key, at, seen).map_err(refused)
            }
            Ask::Log(piece) => {
                let (ring, position, bytes) = self.log.piece(piece);
                let freed = owner.append((ring, holder.in_slot(0)), position, bytes).map_err(refused)?;
                self.log.has_freed(piece, freed);
                Ok(())
            }
            Ask::Void(record) => {
                let (ring, position, bytes) = self.log.void(record);
                owner.append((ring, holder.in_slot(0)), position, bytes).map(drop).map_err(refused)
            }
            Ask::Durable(number) => {
                let node = self.node_of(ask);
                let awaited = &mut self.owners[number as usize].awaits;
                let looked = owner.durable(*awaited).map(|epoch| *awaited = epoch);
                looked.map_err(|refusal| outcome_unknown(node, refusal))
            }
        }
    }

    /// Takes note of one answer to a message.
    fn settle(&mut self, node: NodeId, asked: &Asked, results: &Results<'_, P>) -> Result<(), Error> {
        match asked {
            Asked::Read(row, slot) => {
                let found = results.get(slot).map_err(|error| self.failed(node, error))?;
                self.has_found(*row, &found)
            }
            Asked::Lease(row, slot) => {
                let leased = results.get(slot).map_err(|error| self.failed(node, error))?;
                self.has_leased(*row, &leased)
            }
            Asked::Scan(span, slot) => {
                let scanned = results.get(slot).map_err(|error| self.failed(node, error))?;
                self.has_scanned(*span, &scanned)
            }
            Asked::Place(row, slot) => {
                let placed = results.get(slot).map_err(|error| self.failed(node, error))?;
                self.has_placed(*row, &placed)
            }
            Asked::Lock(row, slot) => match results.get(slot) {
                Ok(Before(before)) => self.has_locked(*row, before),
                Err(error) => {
                    // What is refused has not happened. Otherwise the lock may be there.
                    self.rows[*row as usize].is_locked = error.refused().is_none() && !error.is_certain();
                    Err(self.failed(node, error))
                }
            },
            Asked::Line(owner, slot) => {
                let line = results.get(slot).map_err(|error| self.failed(node, error))?;
                self.has_line(*owner, line);
                Ok(())
            }
            Asked::Count(owner, slot) => {
                let line = results.get(slot).map_err(|error| self.failed(node, error))?;
                self.owners[*owner as usize].has_count(line.count);
                Ok(())
            }
            Asked::Check(_, slot) => match results.get(slot).map_err(|error| self.failed(node, error))? {
                true => Ok(()),
                false => Err(Conflict::Validation.into()),
            },
            Asked::Guard(slot) => match results.get(slot).map_err(|error| self.failed(node, error))? {
                true => Ok(()),
                false => Err(Conflict::Phantom.into()),
            },
            Asked::Apply(_, slot) => results.get(slot).map_err(|error| self.failed(node, error)),
            Asked::ApplyAll(_, slot) => results.get(slot).map_err(|error| self.failed(node, error)),
            Asked::Unlock(row, slot) => {
                results.get(slot).map_err(|error| self.failed(node, error))?;
                self.rows[*row as usize].is_locked = false;
                Ok(())
            }
            Asked::Reap(slot) => results.get(slot).map_err(|error| self.failed(node, error)),
            Asked::Log(piece, slot) => {
                let freed = results.get(slot).map_err(|error| self.failed(node, error))?;
                self.log.has_freed(*piece, freed);
                Ok(())
            }
            Asked::Durable(owner, slot) => {
                let epoch = results.get(slot).map_err(|error| self.failed(node, error))?;
                self.owners[*owner as usize].awaits = epoch;
                Ok(())
            }
            Asked::Void(slot) => results.get(slot).map(drop).map_err(|error| self.failed(node, error)),
        }
    }

    /// What a failure to ask means for the transaction.
    pub(super) fn failed(&self, node: NodeId, source: RpcError) -> Error {
        // A row that is locked cannot be refused, and what is decided happens.
        if self.is_decided {
            return ClusterError::OutcomeUnknown { node, source }.into();
        }
        match (source.refused().map(Refusal::from_number), source) {
            (Some(Some(reason)), _) => refused(node, reason),
            (Some(None), _) => ClusterError::Nonsense { node, what: "a refusal for a reason that is not known" }.into(),
            (None, RpcError::Reply(_)) => ClusterError::Nonsense { node, what: "a reply that is none" }.into(),
            (None, source) => ClusterError::Unreachable { node, source }.into(),
        }
    }

    /// The same of a failure to meet an owner.
    pub(super) fn not_greeted(&self, node: NodeId, error: Error) -> Error {
        match error {
            Error::Cluster(ClusterError::Unreachable { source, .. }) => self.failed(node, source),
            error => error,
        }
    }
}

/// What a refusal means for a transaction that is decided.
pub(super) fn outcome_unknown(node: NodeId, refusal: Refusal) -> Error {
    ClusterError::OutcomeUnknown { node, source: RpcError::Refused { reason: refusal as u32 } }.into()
}

/// What a refusal means for a transaction that has not been decided.
fn refused(node: NodeId, reason: Refusal) -> Error {
    match reason {
        Refusal::Locked => Conflict::Locked.into(),
        Refusal::Moved => Conflict::Moved.into(),
        reason => ClusterError::Refused { node, reason }.into(),
    }
}
