//! Locking rows: one decision, whichever executor carries it out.
//!
//! A record's lock is taken as [`drtm_kv::acquire()`] decides. Its executors are an htm transaction
//! for all rows of this node that were fetched, a swap by verb, and the
//! [request](super::requests::lock) that the owner serves. What the transaction holds of each row
//! is its [`Hold`], so that what it must give up is known at any moment. See `docs/decisions/0086`.

use std::rc::Rc;

use drtm_htm::Engine;
use drtm_kv::ReadEntry;
use drtm_rdma::{Fabric, NodeId, Phase, Port, VerbError};
use smallvec::SmallVec;

use super::{
    ClusterError, ClusterTx, Form,
    ask::Ask,
    coordinator::Coordinator,
    peers::{Fence, Locked, all},
    round::keep_first,
    state::{Hold, Intent, Op, Place, Row, Sight, State},
};
use crate::{Config, Conflict, Error, commit::epoch::has_version_in, mutation::Mutation};

/// How often a row is looked up again that was not where it was found.
const LOOKUPS: u32 = 8;

impl<F: Fabric, S: Config<Engine = F::Engine>> ClusterTx<'_, F, S> {
    /// Locks rows, and reads the lines of their owners: one round.
    ///
    /// # Errors
    ///
    /// When a row is not locked. Others may be.
    pub(super) async fn acquire(&mut self, of: impl Fn(&Row) -> bool) -> Result<(), Error> {
        let mut asks = self.ask(Ask::Lock, of);
        // A lock that is taken by verbs brings the line with it.
        let mut asked: SmallVec<[NodeId; 8]> = SmallVec::new();
        if let Some(state) = &self.state {
            for ask in &asks {
                let node = ask.node(state);
                if !asked.contains(&node) && !self.worker.is_by_verbs(state, *ask) {
                    asked.push(node);
                }
            }
        }
        self.state().ask_lines(&mut asks, Ask::Line, |node| asked.contains(&node));
        self.round(Phase::Lock, &asks).await
    }

    /// Locks what is written of this node, and looks again at what is read, at one moment: where
    /// there is transactional memory. What is left to do, such as memory for values, is done when
    /// the rows are asked for their locks once more.
    pub(super) fn acquire_in_htm(&mut self) -> Result<(), Error> {
        let db = &self.worker.node.home.db;
        if !db.engine().has_htm() || db.store.region().is_swapped_by_nic() {
            return Ok(());
        }
        let (id, worker) = (self.worker.id(), Rc::clone(&self.worker));
        let state = self.state();
        let view = Rc::clone(&state.view);
        let is_here = |row: &&mut Row| view.is_here(row.shard, id) && row.is_read() && row.hold == Hold::None;
        let (mut writes, mut reads) = (Vec::new(), Vec::new());
        for row in state.rows.iter_mut().filter(is_here) {
            let Some(at) = row.at() else { continue };
            let seen = ReadEntry { at, version: row.seen };
            if row.is_written() { writes.push(seen) } else { reads.push(seen) }
        }
        if !writes.is_empty() && worker.participant().enter(state.holder, &writes, &reads)? {
            let locked = state.rows.iter_mut().filter(is_here).filter(|row| row.is_written() && row.at().is_some());
            locked.for_each(|row| row.hold = Hold::Locked);
        }
        Ok(())
    }
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Returns whether a row of another node is locked by verbs.
    pub(super) fn is_locked_by_verbs(&self, state: &State<'e, F::Port>, row: &Row) -> bool {
        state.forms.lock == Form::OneSided
            && !self.commits_whole(state.node_at(row.shard))
            && self.swaps()
            && !state.claims
            && (row.keeps_its_length() || self.is_seizable(state, row))
    }

    /// Returns whether verbs lock a row before the transaction runs, and read it with that.
    fn is_seizable(&self, state: &State<'e, F::Port>, row: &Row) -> bool {
        row.intent == Intent::Write && row.op == Op::Nothing && self.is_leased_by_verbs(state, row)
    }

    /// Locks rows by verbs, all at the same time. Those that were not read are looked up before,
    /// and read with the lock; where they are not found by verbs, they are missed.
    ///
    /// # Errors
    ///
    /// When a row is not locked.
    pub(super) async fn lock_by_verbs(
        &self,
        state: &mut State<'e, F::Port>,
        phase: Phase,
        rows: &[u32],
    ) -> Result<(), Error> {
        let is_unknown = |row: &u32| state.rows[*row as usize].location().is_none();
        let unknown: SmallVec<[u32; 16]> = rows.iter().copied().filter(is_unknown).collect();
        self.find_all(state, phase, &unknown, false).await?;
        let (mut left, mut outcome) = (SmallVec::<[u32; 16]>::from_slice(rows), Ok(()));
        self.begin_round(state);
        for _ in 0..LOOKUPS {
            left.retain(|row| state.rows[*row as usize].sight != Sight::Missed);
            if left.is_empty() {
                break;
            }
            let locked = self.lock_each(state, phase, &left).await;
            let (mut moved, mut taken) = (SmallVec::<[u32; 16]>::new(), SmallVec::<[u32; 16]>::new());
            for (row, locked) in left.iter().zip(locked) {
                let known = &mut state.rows[*row as usize];
                if let (Err(Error::Conflict(Conflict::Moved)), Sight::Unknown) = (&locked, known.sight) {
                    known.hold = Hold::None;
                    moved.push(*row);
                    continue;
                }
                let fence = locked.as_ref().ok().and_then(|locked| {
                    let [.., view, turns] = locked.line?;
                    Some(Fence { view, turns })
                });
                let mut swapped = state.note_swapped(*row, locked, S::has(Mutation::SnapshotsOverwritten));
                if let (Ok(()), Some(fence)) = (&swapped, fence) {
                    let node = state.node_of(*row);
                    swapped = self.note_fence_of(state, node, fence);
                }
                state.blame(Some(*row), &swapped);
                keep_first(&mut outcome, swapped);
                taken.push(*row);
            }
            // When the lines of all owners are known.
            taken.iter().for_each(|row| keep_first(&mut outcome, state.check_next_version(*row)));
            left = moved;
            if left.is_empty() {
                break;
            }
            self.find_all(state, phase, &left, true).await?;
        }
        outcome?;
        if !left.is_empty() {
            return Err(Conflict::Moved.into());
        }
        self.check_locations(state, phase, rows).await
    }

    /// Locks rows, all at the same time. With the last one of each owner comes the owner's line,
    /// and with those that were not read, since the last one may turn out to be gone. Values of
    /// rows that have not changed since they were read are not read again.
    async fn lock_each(
        &self,
        state: &mut State<'e, F::Port>,
        phase: Phase,
        rows: &[u32],
    ) -> Vec<Result<Locked, Error>> {
        let (verbs, holder) = (self.endpoint().during(phase), (state.holder, self.leases()));
        let mut with_line = state.are_last(rows);
        for (number, with_line) in rows.iter().zip(&mut with_line) {
            let row = &mut state.rows[*number as usize];
            // Until it is known that it is not, a swap at this place may have locked what is there.
            if let Place::Found(location) = row.place {
                row.hold = Hold::Swapping(location);
            }
            *with_line |= row.sight == Sight::Unknown;
        }
        let state = &*state;
        let lock = |(number, with_line): (&u32, bool)| {
            let row = &state.rows[*number as usize];
            let (peer, store) = (self.peer_of(state, row), state.store_of(row));
            async move {
                let Some(location) = row.location() else { return Err(Conflict::Moved.into()) };
                let key = row.key.in_bytes(&state.arena.keys);
                let seen = row.is_read().then_some(row.seen);
                let is_dead = |holder| self.is_told_of(holder);
                peer?.lock(verbs, store, key, (location, seen), holder, (with_line, S::has, is_dead)).await
            }
        };
        all(self.endpoint(), rows.iter().zip(with_line).map(lock)).await
    }

    /// Gives up the locks that swaps may have taken, of whatever rows, where they were posted. They
    /// take effect before: operations to a node take effect in order, and none of a connection that
    /// has ended is left when there is another one.
    ///
    /// # Errors
    ///
    /// When it is not known that one was given up.
    pub(super) async fn unlock_by_verbs(
        &self,
        state: &mut State<'e, F::Port>,
        phase: Phase,
        rows: &[u32],
    ) -> Result<(), Error> {
        let (verbs, holder, mut outcome) = (self.endpoint().during(phase), state.holder, Ok(()));
        let unlocked = {
            let unlock = |number: &u32| {
                let row = &state.rows[*number as usize];
                let (hold, by_address) = (row.hold, !S::has(Mutation::StaleLocksKept));
                async move {
                    match hold {
                        Hold::Swapping(location) if by_address => location.unlock(verbs, holder).await,
                        _ => Ok(()),
                    }
                }
            };
            all(self.endpoint(), rows.iter().map(unlock)).await
        };
        for (number, unlocked) in rows.iter().zip(unlocked) {
            let node = state.node_of(*number);
            let row = &mut state.rows[*number as usize];
            match unlocked {
                // There is no such place, so nothing is locked there.
                Ok(()) | Err(VerbError::OutOfBounds { .. }) => row.hold = Hold::None,
                Err(_) if self.has_done(state, node) => {}
                Err(source) => {
                    keep_first(&mut outcome, Err(ClusterError::OneSided { node, source: source.into() }.into()));
                }
            }
        }
        outcome
    }
}

impl Row {
    /// Returns whether it was read by verbs, and is given a value as long as the one that was read.
    fn keeps_its_length(&self) -> bool {
        let Op::Put(value) = self.op else { return false };
        self.location().is_some() && self.value.is_some_and(|read| read.length() == value.length())
    }

    /// Returns whether it is locked, and its new value needs no memory that is not reserved.
    pub(super) fn is_ready(&self) -> bool {
        self.may_be_locked()
            && match self.op {
                Op::Put(value) => self.was_there() && self.value.is_some_and(|was| was.length() == value.length()),
                Op::Remove => true,
                Op::Nothing | Op::Publish(_) => false,
            }
    }
}

impl<P: Port> State<'_, P> {
    /// Notes what came of a swap: the lock, the owner's line, and what the row is if it was not
    /// read before.
    fn note_swapped(&mut self, number: u32, locked: Result<Locked, Error>, overwrites: bool) -> Result<(), Error> {
        let node = self.node_of(number);
        let row = &mut self.rows[number as usize];
        let Locked { lock, line, value } = match locked {
            Ok(locked) => locked,
            Err(error) => {
                // A conflict says that the lock was not taken, or has been given up.
                if let Error::Conflict(_) = error {
                    row.hold = Hold::None;
                }
                return Err(error);
            }
        };
        let before = lock.version();
        let hold = Hold::Swapped(self.locks.len() as u32);
        self.locks.push(lock);
        if row.sight == Sight::Unknown {
            (row.hold, row.seen, row.sight) = (hold, before, Sight::Read);
            let (range, ()) = self.arena.values.append(|bytes| {
                bytes.extend_from_slice(&value);
                Ok(())
            })?;
            row.value = Some(range);
        }
        if let Some([epoch, open, ..]) = line {
            self.owner(node).note_number(epoch, open == 0 || overwrites);
        }
        self.note_locked(number, hold, before)
    }

    /// Checks that a row that is locked by verbs can be given a version in its owner's epoch.
    /// Otherwise its owner finds it one in a later epoch, once it locks the row itself.
    fn check_next_version(&self, number: u32) -> Result<(), Error> {
        match self.lock_of(number) {
            Some(lock) if !has_version_in(self.epoch_of(number), lock.version()) => Err(Conflict::Locked.into()),
            _ => Ok(()),
        }
    }
}
