//! One-sided forms: which requests verbs carry out, and what comes of them.

use std::rc::Rc;

use drtm_kv::RemoteError;
use drtm_rdma::{Atomicity, Fabric, Phase, VerbError};

use super::{
    ClusterError, Form,
    ask::Ask,
    coordinator::Coordinator,
    peers::{Glimpse, Locked, Peer, all},
    round::keep_first,
    state::{Op, Row, State},
};
use crate::{
    Conflict, Error, Setting,
    epoch::{has_version_in, version_in},
    mutation::Mutation,
};

impl<'e, F: Fabric, S: Setting<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Whether a request to another node is carried out by verbs.
    pub(super) fn is_one_sided(&self, state: &State<'e, F::Port>, ask: Ask) -> bool {
        let protocol = self.protocol();
        if !protocol.is_one_sided() {
            return false;
        }
        match ask {
            Ask::Read(row) => {
                let row = &state.rows[row as usize];
                protocol.read == Form::OneSided
                    && !row.is_missed
                    && self.peer(row.owner).is_some_and(|peer| peer.has(row.table))
            }
            Ask::Check(row) => state.rows[row as usize].location.is_some(),
            Ask::Lock(row) => {
                protocol.lock == Form::OneSided
                    && self.endpoint().capabilities().atomicity == Atomicity::Global
                    && !state.claims
                    && state.rows[row as usize].keeps_its_length()
            }
            Ask::Apply(row) => state.is_written_by_verbs(row),
            _ => false,
        }
    }

    /// Carries requests out by verbs, all at the same time.
    pub(super) async fn reach(&self, state: &mut State<'e, F::Port>, phase: Phase, asks: &[Ask]) -> Result<(), Error> {
        let mut outcome = Ok(());
        let of_kind = |kind: fn(Ask) -> Option<u32>| -> Vec<u32> { asks.iter().filter_map(|ask| kind(*ask)).collect() };
        let reads = of_kind(|ask| if let Ask::Read(row) = ask { Some(row) } else { None });
        if !reads.is_empty() {
            keep_first(&mut outcome, self.read_all(state, phase, &reads).await);
        }
        let checks = of_kind(|ask| if let Ask::Check(row) = ask { Some(row) } else { None });
        if !checks.is_empty() {
            keep_first(&mut outcome, self.check_all(state, phase, &checks).await);
        }
        let locks = of_kind(|ask| if let Ask::Lock(row) = ask { Some(row) } else { None });
        if !locks.is_empty() {
            keep_first(&mut outcome, self.lock_all(state, phase, &locks).await);
        }
        for row in of_kind(|ask| if let Ask::Apply(row) = ask { Some(row) } else { None }) {
            keep_first(&mut outcome, self.write_one(state, phase, row).await);
        }
        outcome
    }

    /// The memory of the node of a row that was looked up there.
    fn peer_of(&self, row: &Row) -> Result<Rc<Peer>, Error> {
        self.peer(row.owner).ok_or_else(|| ClusterError::NotHere { node: row.owner }.into())
    }

    async fn read_all(&self, state: &mut State<'e, F::Port>, phase: Phase, rows: &[u32]) -> Result<(), Error> {
        let verbs = self.endpoint().during(phase);
        let glimpses = {
            let keys = &state.arena.keys;
            let look = |number: &u32| {
                let row = &state.rows[*number as usize];
                let peer = self.peer_of(row);
                async move { peer?.read(verbs, row.table, row.key.in_bytes(keys)).await }
            };
            all(rows.iter().map(look).collect()).await
        };
        let mut outcome = Ok(());
        for (row, glimpse) in rows.iter().zip(glimpses) {
            let settled = glimpse.and_then(|glimpse| state.has_glimpsed(*row, glimpse));
            state.blame(Some(*row), &settled);
            keep_first(&mut outcome, settled);
        }
        outcome
    }

    async fn check_all(&self, state: &mut State<'e, F::Port>, phase: Phase, rows: &[u32]) -> Result<(), Error> {
        let (verbs, holder, keys) = (self.endpoint().during(phase), state.holder, &state.arena.keys);
        let check = |number: &u32| {
            let row = &state.rows[*number as usize];
            let peer = self.peer_of(row);
            async move {
                let Some(location) = row.location else { return Err(Conflict::Validation.into()) };
                peer?
                    .check(
                        verbs,
                        row.table,
                        row.key.in_bytes(keys),
                        (location, row.seen),
                        holder,
                        S::has(Mutation::LocksOverlooked),
                    )
                    .await
            }
        };
        let mut outcome = Ok(());
        let all_checked = all(rows.iter().map(check).collect()).await;
        for (row, checked) in rows.iter().zip(all_checked) {
            state.blame(Some(*row), &checked);
            keep_first(&mut outcome, checked);
        }
        outcome
    }

    async fn lock_all(&self, state: &mut State<'e, F::Port>, phase: Phase, rows: &[u32]) -> Result<(), Error> {
        let (verbs, holder) = (self.endpoint().during(phase), state.holder);
        for row in rows {
            // Until it is known that it is not.
            state.rows[*row as usize].is_locked = true;
        }
        let locked = {
            let keys = &state.arena.keys;
            let lock = |number: &u32| {
                let row = &state.rows[*number as usize];
                let peer = self.peer_of(row);
                async move {
                    let Some(location) = row.location else { return Err(Conflict::Moved.into()) };
                    peer?.lock(verbs, row.table, row.key.in_bytes(keys), location, holder).await
                }
            };
            all(rows.iter().map(lock).collect()).await
        };
        let mut outcome = Ok(());
        for (row, locked) in rows.iter().zip(locked) {
            let settled = state.has_locked_by_verbs(*row, locked, S::has(Mutation::SnapshotsOverwritten));
            state.blame(Some(*row), &settled);
            keep_first(&mut outcome, settled);
        }
        outcome
    }

    /// Posts the write of a row that was locked by verbs.
    async fn write_one(&self, state: &mut State<'e, F::Port>, phase: Phase, number: u32) -> Result<(), Error> {
        let verbs = self.endpoint().during(phase);
        loop {
            let row = &state.rows[number as usize];
            let (owner, peer) = (row.owner, self.peer_of(row)?);
            let Some(lock) = state.lock_of(number) else { return Ok(()) };
            let version = version_in(state.epoch_of(number), lock.version());
            let value = state.value(number).unwrap_or_default();
            let key = row.key.in_bytes(&state.arena.keys);
            match peer.post_write(verbs, row.table, key, lock, (version, value)) {
                Ok(pending) => {
                    state.rows[number as usize].is_sent = true;
                    state.written.push((owner, pending));
                    return Ok(());
                }
                Err(RemoteError::Verb(VerbError::QueueFull { .. } | VerbError::BuffersExhausted { .. })) => {
                    self.endpoint().yield_now().await;
                }
                Err(RemoteError::Verb(error)) => {
                    state.rows[number as usize].is_sent = true;
                    return Err(ClusterError::OutcomeUnknown { node: owner, source: error.into() }.into());
                }
                Err(source) => {
                    state.rows[number as usize].is_sent = true;
                    return Err(ClusterError::OneSided { node: owner, source }.into());
                }
            }
        }
    }
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
    fn is_written_by_verbs(&self, number: u32) -> bool {
        self.owner_of(number).is_some_and(|owner| owner.is_plain) && self.lock_of(number).is_some()
    }

    fn has_glimpsed(&mut self, number: u32, glimpse: Glimpse) -> Result<(), Error> {
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

    fn has_locked_by_verbs(
        &mut self,
        number: u32,
        locked: Result<Locked, Error>,
        overwrites: bool,
    ) -> Result<(), Error> {
        let Locked { lock, line: [epoch, open] } = match locked {
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
        self.owner(node).has_number(epoch, open == 0 || overwrites);
        self.has_locked(number, before)?;
        // Its owner finds it a version in a later epoch, once it locks the row itself.
        if has_version_in(epoch, before) { Ok(()) } else { Err(Conflict::Locked.into()) }
    }
}
