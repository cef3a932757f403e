//! One-sided forms: which requests verbs carry out, and what comes of them.

use std::rc::Rc;

use drtm_kv::RemoteError;
use drtm_rdma::{Atomicity, Fabric, Phase, VerbError};

use super::{
    ClusterError, Form,
    coordinator::Coordinator,
    peers::{Glimpse, Locked, Peer, all},
    round::keep_first,
    state::{Op, Row, State},
};
use crate::{
    Config, Conflict, Error,
    commit::epoch::{has_version_in, version_in},
    mutation::Mutation,
};

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Whether verbs may swap state words: all that others do to these is atomic with that.
    pub(super) fn swaps(&self) -> bool {
        match self.endpoint().capabilities().atomicity {
            Atomicity::Global => true,
            Atomicity::Hca => self.node.by_loopback,
            Atomicity::None => false,
        }
    }

    /// Returns whether a row of another node is locked by verbs.
    pub(super) fn is_locked_by_verbs(&self, state: &State<'e, F::Port>, number: u32) -> bool {
        let row = &state.rows[number as usize];
        state.forms.lock == Form::OneSided
            && !self.commits_whole(row.owner)
            && self.swaps()
            && !state.claims
            && (row.keeps_its_length() || self.is_seizable(row))
    }

    /// Locks rows by verbs: those that are read with that, and those that were read before.
    pub(super) async fn lock_by_verbs(
        &self,
        state: &mut State<'e, F::Port>,
        phase: Phase,
        rows: &[u32],
    ) -> Result<(), Error> {
        let (seized, known): (Vec<u32>, Vec<u32>) =
            rows.iter().partition(|row| self.is_seizable(&state.rows[**row as usize]));
        let mut outcome = Ok(());
        if !seized.is_empty() {
            keep_first(&mut outcome, self.seize_all(state, phase, &seized).await);
        }
        if !known.is_empty() {
            keep_first(&mut outcome, self.lock_all(state, phase, &known).await);
        }
        outcome
    }

    /// The memory of the node of a row that was looked up there.
    pub(super) fn peer_of(&self, row: &Row) -> Result<Rc<Peer>, Error> {
        self.peer(row.owner).ok_or_else(|| ClusterError::NotHere { node: row.owner }.into())
    }

    /// Looks up where rows of other nodes are.
    pub(super) async fn locate(&self, state: &State<'e, F::Port>, rows: &[u32]) -> Result<(), Error> {
        let verbs = self.endpoint().during(Phase::Lookup);
        let others = rows.iter().map(|row| &state.rows[*row as usize]).filter(|row| row.owner != self.id());
        let others: Vec<&Row> = others.collect();
        for row in &others {
            self.greet(row.owner).await?;
        }
        let look = |row: &&Row| {
            let (peer, table, key) = (self.peer_of(row), row.table, row.key.in_bytes(&state.arena.keys));
            async move { peer?.find(verbs, table, key, false).await.map(drop) }
        };
        all(self.endpoint(), others.iter().map(look).collect()).await.into_iter().collect()
    }

    pub(super) async fn read_all(
        &self,
        state: &mut State<'e, F::Port>,
        phase: Phase,
        rows: &[u32],
    ) -> Result<(), Error> {
        let (verbs, holder) = (self.endpoint().during(phase), (state.holder, S::has as fn(Mutation) -> bool));
        let glimpses = {
            let keys = &state.arena.keys;
            let look = |number: &u32| {
                let row = &state.rows[*number as usize];
                let peer = self.peer_of(row);
                async move { peer?.read(verbs, row.table, row.key.in_bytes(keys), holder).await }
            };
            all(self.endpoint(), rows.iter().map(look).collect()).await
        };
        let mut outcome = Ok(());
        for (row, glimpse) in rows.iter().zip(glimpses) {
            let read = glimpse.and_then(|glimpse| state.has_glimpsed(*row, glimpse));
            state.blame(Some(*row), &read);
            keep_first(&mut outcome, read);
        }
        outcome
    }

    pub(super) async fn check_all(
        &self,
        state: &mut State<'e, F::Port>,
        phase: Phase,
        rows: &[u32],
    ) -> Result<(), Error> {
        let (verbs, holder) = (self.endpoint().during(phase), state.holder);
        let checked = {
            let keys = &state.arena.keys;
            let check = |number: &u32| {
                let row = &state.rows[*number as usize];
                let peer = self.peer_of(row);
                async move {
                    let Some(location) = row.location else { return Err(Conflict::Validation.into()) };
                    peer?.check(verbs, row.table, row.key.in_bytes(keys), (location, row.seen), holder, S::has).await
                }
            };
            all(self.endpoint(), rows.iter().map(check).collect()).await
        };
        let mut outcome = Ok(());
        for (row, checked) in rows.iter().zip(checked) {
            state.blame(Some(*row), &checked);
            keep_first(&mut outcome, checked);
        }
        outcome
    }

    async fn lock_all(&self, state: &mut State<'e, F::Port>, phase: Phase, rows: &[u32]) -> Result<(), Error> {
        let is_last = |state: &State<'e, F::Port>, number: u32| {
            let is_here = |other: &&u32| state.rows[**other as usize].owner == state.rows[number as usize].owner;
            rows.iter().rfind(is_here) == Some(&number)
        };
        let locked = self.lock_each(state, phase, (rows, true), is_last).await;
        let mut outcome = Ok(());
        for (row, locked) in rows.iter().zip(locked) {
            let locked = state.has_locked_by_verbs(*row, locked, S::has(Mutation::SnapshotsOverwritten));
            state.blame(Some(*row), &locked);
            keep_first(&mut outcome, locked);
        }
        for row in rows {
            keep_first(&mut outcome, state.has_a_next_version(*row));
        }
        outcome
    }

    /// Locks rows, all at the same time. With those that are `last`, or taken late, comes the line
    /// of their owners. If they are known, the values of those that have not changed are not read.
    pub(super) async fn lock_each(
        &self,
        state: &mut State<'e, F::Port>,
        phase: Phase,
        (rows, are_known): (&[u32], bool),
        is_last: impl Fn(&State<'e, F::Port>, u32) -> bool,
    ) -> Vec<Result<Locked, Error>> {
        let (verbs, holder) = (self.endpoint().during(phase), (state.holder, self.leases()));
        for row in rows {
            // Until it is known that it is not.
            state.rows[*row as usize].is_locked = true;
        }
        let state = &*state;
        let lock = |number: &u32| {
            let row = &state.rows[*number as usize];
            let (peer, is_last) = (self.peer_of(row), is_last(state, *number));
            async move {
                let Some(location) = row.location else { return Err(Conflict::Moved.into()) };
                let key = row.key.in_bytes(&state.arena.keys);
                let seen = (are_known && row.is_read).then_some(row.seen);
                peer?.lock(verbs, row.table, key, (location, seen), holder, (is_last, S::has)).await
            }
        };
        all(self.endpoint(), rows.iter().map(lock).collect()).await
    }

    /// Posts the writes of rows that were locked by verbs.
    pub(super) async fn write_all(
        &self,
        state: &mut State<'e, F::Port>,
        phase: Phase,
        rows: &[u32],
    ) -> Result<(), Error> {
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
        let row = &state.rows[number as usize];
        let owner = row.owner;
        let Some(lock) = state.lock_of(number) else { return Room::Enough };
        let version = match () {
            () if S::has(Mutation::VersionNotWritten) => lock.version(),
            () if S::has(Mutation::EpochNotWritten) => lock.version().next(),
            () => version_in(state.epoch_of(number), lock.version()),
        };
        let value = state.value(number).unwrap_or_default();
        match lock.post_write(self.endpoint().during(phase), version, value) {
            Ok(pending) => state.written.push((owner, pending)),
            Err(RemoteError::Verb(VerbError::QueueFull { .. } | VerbError::BuffersExhausted { .. })) => {
                return Room::None;
            }
            Err(RemoteError::Verb(error)) => {
                keep_first(outcome, Err(ClusterError::OutcomeUnknown { node: owner, source: error.into() }.into()));
            }
            Err(source) => keep_first(outcome, Err(ClusterError::OneSided { node: owner, source }.into())),
        }
        state.rows[number as usize].is_sent = true;
        Room::Enough
    }
}

/// Whether there is room for another operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Enough,
    None,
}

impl Row {
    /// Whether it was read one-sidedly, and is given a value as long as the one that was read.
    fn keeps_its_length(&self) -> bool {
        let Op::Put(value) = self.op else { return false };
        let is_there = self.location.is_some_and(|location| self.at == Some(location.handle()));
        is_there && self.value.is_some_and(|read| read.length() == value.length())
    }
}

impl<P: drtm_rdma::Port> State<'_, P> {
    /// Whether a row is written by verbs: it was locked so, and its owner need not keep what it
    /// was.
    pub(super) fn is_written_by_verbs(&self, number: u32) -> bool {
        let Op::Put(value) = self.rows[number as usize].op else { return false };
        let is_plain = self.owner_of(number).is_some_and(|owner| owner.is_plain);
        is_plain && self.lock_of(number).is_some_and(|lock| lock.value_length() == value.length())
    }

    pub(super) fn has_glimpsed(&mut self, number: u32, glimpse: Glimpse) -> Result<(), Error> {
        let row = &mut self.rows[number as usize];
        match glimpse {
            Glimpse::Record { location, version, value } => {
                let at = location.handle();
                if row.is_read && (row.at != Some(at) || row.seen != version) {
                    return Err(Conflict::Validation.into());
                }
                (row.at, row.location, row.seen) = (Some(at), Some(location), version);
                let (range, ()) = self.arena.values.append(|bytes| {
                    bytes.extend_from_slice(&value);
                    Ok(())
                })?;
                (row.value, row.is_known, row.is_read) = (Some(range), true, true);
                Ok(())
            }
            Glimpse::Busy(location) => {
                row.at = row.at.or(Some(location.handle()));
                Err(Conflict::Locked.into())
            }
            Glimpse::Nothing => {
                row.is_missed = true;
                Ok(())
            }
        }
    }

    pub(super) fn has_locked_by_verbs(
        &mut self,
        number: u32,
        locked: Result<Locked, Error>,
        overwrites: bool,
    ) -> Result<(), Error> {
        let Locked { lock, line, .. } = match locked {
            Ok(locked) => locked,
            Err(error) => {
                // A conflict says that the lock was not taken, or has been given up.
                self.rows[number as usize].is_locked = !matches!(error, Error::Conflict(_));
                return Err(error);
            }
        };
        let before = lock.version();
        self.locks.push((number, lock));
        let node = self.rows[number as usize].owner;
        if let Some([epoch, open]) = line {
            self.owner(node).has_number(epoch, open == 0 || overwrites);
        }
        self.note_locked(number, before)
    }

    /// Whether a row that is locked can be given a version in its owner's epoch. Its owner finds it
    /// one in a later epoch, once it locks the row itself.
    pub(super) fn has_a_next_version(&self, number: u32) -> Result<(), Error> {
        match self.lock_of(number) {
            Some(lock) if !has_version_in(self.epoch_of(number), lock.version()) => Err(Conflict::Locked.into()),
            _ => Ok(()),
        }
    }
}
