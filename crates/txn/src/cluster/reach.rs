//! One-sided forms: which requests verbs carry out, and what comes of them.

use std::rc::Rc;

use drtm_kv::{Bytes, Inline, RemoteError, Turn};
use drtm_rdma::{Atomicity, Fabric, NodeId, Phase, VerbError};
use smallvec::SmallVec;

use super::{
    ClusterError, Form, Refusal,
    ask::Ask,
    coordinator::Coordinator,
    peers::{Fence, Glimpse, Peer, all},
    round::keep_first,
    state::{Hold, Op, Place, Row, Sight, State},
    view::NO_VIEW,
};
use crate::{Config, Conflict, Error, commit::epoch::version_in, memory::storage::KeyRef, mutation::Mutation};

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Returns whether verbs may swap state words: all that others do to these is atomic with that.
    pub(super) fn swaps(&self) -> bool {
        match self.endpoint().capabilities().atomicity {
            Atomicity::Global => true,
            Atomicity::Hca => self.node.by_loopback,
            Atomicity::None => false,
        }
    }

    /// Returns whether verbs carry a request to another node out.
    pub(super) fn is_by_verbs(&self, state: &State<'e, F::Port>, ask: Ask) -> bool {
        let row = |number: u32| &state.rows[number as usize];
        match ask {
            Ask::Read(number) => {
                let Row { sight, shard, table, .. } = *row(number);
                state.forms.read == Form::OneSided
                    && sight != Sight::Missed
                    && self.peer(state.node_at(shard)).is_some_and(|peer| peer.has(state.view.store_of(table, shard)))
            }
            Ask::Lease(number) => self.is_leased_by_verbs(state, row(number)),
            Ask::Lock(number) => self.is_locked_by_verbs(state, row(number)),
            Ask::Unlock(number) => matches!(row(number).hold, Hold::Swapping(_)),
            Ask::Check(number) => row(number).location().is_some(),
            Ask::Apply(part) => state.parts.is_by_verbs(part),
            Ask::Log(_) | Ask::Void(_) => self.logs_by_verbs(ask.node(state)),
            _ => false,
        }
    }

    /// Carries requests out by verbs, all of a kind at the same time.
    ///
    /// # Errors
    ///
    /// The first that there is.
    pub(super) async fn reach(&self, state: &mut State<'e, F::Port>, phase: Phase, asks: &[Ask]) -> Result<(), Error> {
        if let [Ask::Log(_) | Ask::Void(_), ..] = asks {
            return self.write_log(state, phase, asks).await;
        }
        let of =
            |kind: fn(Ask) -> Option<u32>| -> SmallVec<[u32; 16]> { asks.iter().copied().filter_map(kind).collect() };
        let mut outcome = Ok(());
        let rows = of(|ask| if let Ask::Read(row) = ask { Some(row) } else { None });
        keep_first(&mut outcome, self.read_all(state, phase, &rows).await);
        let rows = of(|ask| if let Ask::Lease(row) = ask { Some(row) } else { None });
        keep_first(&mut outcome, self.lease_all(state, phase, &rows).await);
        let rows = of(|ask| if let Ask::Lock(row) = ask { Some(row) } else { None });
        keep_first(&mut outcome, self.lock_by_verbs(state, phase, &rows).await);
        let rows = of(|ask| if let Ask::Unlock(row) = ask { Some(row) } else { None });
        keep_first(&mut outcome, self.unlock_by_verbs(state, phase, &rows).await);
        let rows = of(|ask| if let Ask::Check(row) = ask { Some(row) } else { None });
        keep_first(&mut outcome, self.check_all(state, phase, &rows).await);
        for part in of(|ask| if let Ask::Apply(part) = ask { Some(part) } else { None }) {
            let rows: SmallVec<[u32; 16]> = state.parts.rows_of(part).into();
            keep_first(&mut outcome, self.write_all(state, phase, &rows).await);
        }
        outcome
    }

    /// Returns the memory of the node of a row, for verbs.
    ///
    /// # Errors
    ///
    /// [`Conflict::View`] if another transaction has met another incarnation of that node than this
    /// one has: places in the memory of one are not used in the other's.
    pub(super) fn peer_of(&self, state: &State<'e, F::Port>, row: &Row) -> Result<Rc<Peer>, Error> {
        let node = state.node_at(row.shard);
        let met = self.met(node).ok_or(ClusterError::NotHere { node })?;
        match state.met(node) == Some(met.life.incarnation) || S::has(Mutation::IncarnationsMixed) {
            true => Ok(met.peer),
            false => Err(Conflict::View.into()),
        }
    }

    /// Forgets the turns of owners before a round that reads them: those of an earlier round say
    /// nothing of what this one finds.
    pub(super) fn begin_round(&self, state: &mut State<'e, F::Port>) {
        if !S::has(Mutation::OldTurnsBelieved) {
            state.forget_turns();
        }
    }

    /// Notes the words of a node that verbs have read after what they did there. Checks that the
    /// node was in the transaction's view then.
    ///
    /// # Errors
    ///
    /// [`Conflict::View`]; [`Refusal::Closed`] if it closes.
    pub(super) fn note_fence_of(
        &self,
        state: &mut State<'e, F::Port>,
        node: NodeId,
        Fence { view, turns }: Fence,
    ) -> Result<(), Error> {
        let owner = state.owner(node);
        if !(owner.knows_turns() && S::has(Mutation::OldTurnsBelieved)) {
            owner.note_turns(turns);
        }
        if view == u64::from(state.view.number()) || S::has(Mutation::ViewNotRead) {
            return Ok(());
        }
        if view == u64::from(NO_VIEW) {
            return Err(ClusterError::Refused { node, reason: Refusal::Closed }.into());
        }
        self.meet_anew(node);
        Err(Conflict::View.into())
    }

    /// Checks that the records of rows that verbs have found are still those that they found: no
    /// name can have come round since. The turns of their owners were read after the records, in
    /// this round, or are read now.
    ///
    /// # Errors
    ///
    /// [`Conflict::Moved`]: a row is looked up again, by the next run.
    pub(super) async fn check_locations(
        &self,
        state: &mut State<'e, F::Port>,
        phase: Phase,
        rows: &[u32],
    ) -> Result<(), Error> {
        if S::has(Mutation::TurnsNotChecked) {
            return Ok(());
        }
        for number in rows {
            let (row, node) = (&state.rows[*number as usize], state.node_of(*number));
            let Some(location) = row.location() else { continue };
            let (peer, store) = (self.peer_of(state, row)?, state.store_of(row));
            let turns = match state.turns_of(*number) {
                Some(turns) => turns,
                // What would have brought them was not found.
                None => {
                    let fence = peer.read_fence(self.endpoint().during(phase)).await?;
                    self.note_fence_of(state, node, fence)?;
                    fence.turns
                }
            };
            if !location.is_within(Turn::from_word(turns)) {
                peer.note_turns(store, turns);
                let moved = Err(Conflict::Moved.into());
                state.blame(Some(*number), &moved);
                return moved;
            }
        }
        Ok(())
    }

    /// Looks up where rows of other nodes are.
    pub(super) async fn locate(&self, state: &mut State<'e, F::Port>, rows: &[u32]) -> Result<(), Error> {
        let verbs = self.endpoint().during(Phase::Lookup);
        let is_other = |row: &u32| state.node_of(*row) != self.id();
        let others: Vec<u32> = rows.iter().copied().filter(is_other).collect();
        state.check_served(rows.iter().map(|row| state.rows[*row as usize].shard))?;
        for row in &others {
            self.meet(state, state.node_of(*row)).await?;
        }
        let state = &*state;
        let others: Vec<&Row> = others.iter().map(|row| &state.rows[*row as usize]).collect();
        let look = |row: &&Row| {
            let (peer, table, key) =
                (self.peer_of(state, row), state.store_of(row), row.key.in_bytes(&state.arena.keys));
            async move { peer?.find(verbs, table, key, false).await.map(drop) }
        };
        all(self.endpoint(), others.iter().map(look)).await.into_iter().collect()
    }

    async fn read_all(&self, state: &mut State<'e, F::Port>, phase: Phase, rows: &[u32]) -> Result<(), Error> {
        let (verbs, holder) = (self.endpoint().during(phase), (state.holder, S::has as fn(Mutation) -> bool));
        let glimpses = {
            let keys = &state.arena.keys;
            let look = |number: &u32| {
                let row = &state.rows[*number as usize];
                let (peer, store) = (self.peer_of(state, row), state.store_of(row));
                let is_dead = |holder| self.is_told_of(holder);
                async move { peer?.read(verbs, store, row.key.in_bytes(keys), holder, is_dead).await }
            };
            all(self.endpoint(), rows.iter().map(look)).await
        };
        let mut outcome = Ok(());
        for (row, glimpse) in rows.iter().zip(glimpses) {
            let read = glimpse.and_then(|glimpse| state.note_glimpsed(*row, glimpse));
            state.blame(Some(*row), &read);
            keep_first(&mut outcome, read);
        }
        outcome
    }

    async fn check_all(&self, state: &mut State<'e, F::Port>, phase: Phase, rows: &[u32]) -> Result<(), Error> {
        self.begin_round(state);
        let (verbs, holder) = (self.endpoint().during(phase), state.holder);
        // The rows, and then the fence of each node that has some.
        let last = rows.iter().zip(state.are_last(rows)).filter(|(_, is_last)| *is_last);
        let looks: SmallVec<[(u32, bool); 16]> =
            rows.iter().map(|row| (*row, false)).chain(last.map(|(row, _)| (*row, true))).collect();
        let seen = {
            let keys = &state.arena.keys;
            let look = |(number, is_fence): &(u32, bool)| {
                let (row, is_fence) = (&state.rows[*number as usize], *is_fence);
                let (peer, store) = (self.peer_of(state, row), state.store_of(row));
                async move {
                    if is_fence {
                        return peer?.read_fence(verbs).await.map(Some);
                    }
                    let Some(location) = row.location() else { return Err(Conflict::Validation.into()) };
                    let key = row.key.in_bytes(keys);
                    let checked = peer?.check(verbs, store, key, (location, row.seen), holder, S::has).await;
                    checked.map(|()| None)
                }
            };
            all(self.endpoint(), looks.iter().map(look)).await
        };
        let mut outcome = Ok(());
        for ((row, is_fence), seen) in looks.iter().zip(seen) {
            let node = state.node_of(*row);
            let checked = seen.and_then(|fence| fence.map_or(Ok(()), |fence| self.note_fence_of(state, node, fence)));
            state.blame((!is_fence).then_some(*row), &checked);
            keep_first(&mut outcome, checked);
        }
        outcome?;
        self.check_locations(state, phase, rows).await
    }

    /// Posts the writes of rows that were locked by verbs.
    async fn write_all(&self, state: &mut State<'e, F::Port>, phase: Phase, rows: &[u32]) -> Result<(), Error> {
        let mut outcome = Ok(());
        let mut rows = rows.iter();
        loop {
            let posted = self.endpoint().together(|| {
                rows.by_ref().find(|row| self.post_write(state, phase, **row, &mut outcome) == Room::None)
            });
            // There was no room for this one: what is under way makes some.
            let Some(row) = posted else { return outcome };
            while self.post_write(state, phase, *row, &mut outcome) == Room::None {
                self.endpoint().yield_now().await;
            }
        }
    }

    /// Posts the write of a row that was locked by verbs, if there is room. A failure to is the
    /// outcome.
    fn post_write(
        &self,
        state: &mut State<'e, F::Port>,
        phase: Phase,
        number: u32,
        outcome: &mut Result<(), Error>,
    ) -> Room {
        let owner = state.node_of(number);
        let Some(lock) = state.lock_of(number) else { return Room::Enough };
        let version = match () {
            () if S::has(Mutation::VersionNotWritten) => lock.version(),
            () if S::has(Mutation::EpochNotWritten) => lock.version().next(),
            () => version_in(state.epoch_of(number), lock.version()),
        };
        let value = state.value(number).unwrap_or_default();
        let verbs = self.endpoint().during(phase);
        let posted = match state.rows[number as usize].key.in_bytes(&state.arena.keys) {
            KeyRef::Word(key) => lock.post_write::<Inline, _>(verbs, key, (version, value)),
            KeyRef::Bytes(key) => lock.post_write::<Bytes, _>(verbs, key, (version, value)),
        };
        match posted {
            Ok(pending) => state.written.push((owner, pending)),
            Err(RemoteError::Verb(VerbError::QueueFull { .. } | VerbError::BuffersExhausted { .. })) => {
                return Room::None;
            }
            Err(_) if self.has_done(state, owner) => {}
            Err(RemoteError::Verb(error)) => {
                let failed = Err(ClusterError::OutcomeUnknown { node: owner, source: error.into() }.into());
                keep_first(outcome, self.forgive(state, failed));
            }
            Err(source) => {
                let failed = Err(ClusterError::OneSided { node: owner, source }.into());
                keep_first(outcome, self.forgive(state, failed));
            }
        }
        state.rows[number as usize].hold = Hold::Sent;
        Room::Enough
    }
}

/// Whether there is room for another operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Enough,
    None,
}

impl<P: drtm_rdma::Port> State<'_, P> {
    /// Returns for each of several rows whether it is the last one of its node.
    pub(super) fn are_last(&self, rows: &[u32]) -> SmallVec<[bool; 16]> {
        let mut nodes = SmallVec::<[NodeId; 8]>::new();
        let mut are_last: SmallVec<[bool; 16]> = SmallVec::from_elem(false, rows.len());
        for (row, is_last) in rows.iter().zip(&mut are_last).rev() {
            let node = self.node_of(*row);
            *is_last = !nodes.contains(&node);
            if *is_last {
                nodes.push(node);
            }
        }
        are_last
    }

    /// Returns whether a row is written by verbs: it was locked so, and its owner need not keep
    /// what it was.
    pub(super) fn is_written_by_verbs(&self, number: u32) -> bool {
        let Op::Put(value) = self.rows[number as usize].op else { return false };
        let is_plain = self.owner_of(number).is_some_and(|owner| owner.is_plain);
        is_plain && self.lock_of(number).is_some_and(|lock| lock.value_length() == value.length())
    }

    /// Notes what verbs have found of a row.
    pub(super) fn note_glimpsed(&mut self, number: u32, glimpse: Glimpse) -> Result<(), Error> {
        let row = &mut self.rows[number as usize];
        match glimpse {
            Glimpse::Record { location, version, value } => {
                let at = location.handle();
                if row.is_read() && (row.at() != Some(at) || row.seen != version) {
                    return Err(Conflict::Validation.into());
                }
                (row.place, row.seen) = (Place::Found(location), version);
                let (range, ()) = self.arena.values.append(|bytes| {
                    bytes.extend_from_slice(&value);
                    Ok(())
                })?;
                (row.value, row.sight) = (Some(range), Sight::Read);
                Ok(())
            }
            Glimpse::Busy(location) => {
                if row.place == Place::Nowhere {
                    row.place = Place::At(location.handle());
                }
                Err(Conflict::Locked.into())
            }
            Glimpse::Nothing => {
                row.sight = Sight::Missed;
                Ok(())
            }
        }
    }
}
