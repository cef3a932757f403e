//! A transaction over many nodes: what a body does with rows, each in a file of its own, and its
//! end.

#[cfg(feature = "hades")]
mod lines;
mod range;
mod read;
mod transaction;
mod upkeep;
mod write;

use std::{fmt, rc::Rc, time::Duration};

use drtm_rdma::{Fabric, Phase};

use super::{
    ask::{Ask, Asks},
    coordinator::Coordinator,
    round::keep_first,
    state::{Culprit, Hold, Place, Row, Sight, State},
};
use crate::{Config, Conflict, DefaultConfig, Durability, Error, mutation::Mutation};

/// How often a row that another transaction has locked is read again.
pub(super) const PATIENCE: u32 = 12;

/// The longest of these pauses: two to this power of microseconds.
const LONGEST: u32 = 6;

/// How soon an owner is asked again whether its log is durable, and how often that doubles.
const FLUSHED_AFTER: Duration = Duration::from_micros(20);
const LONGEST_LOOK: u32 = 5;

/// A transaction over the nodes of a cluster. Dropped without a commit, it has never happened.
///
/// # Example
///
/// See [`Node`](super::Node).
pub struct ClusterTx<'e, F: Fabric, S: Config<Engine = F::Engine> = DefaultConfig> {
    pub(super) worker: Rc<Coordinator<'e, F, S>>,
    /// Until it is dropped.
    pub(super) state: Option<Box<State<'e, F::Port>>>,
    /// Whether each read checks that all that was read is true at one moment.
    is_opaque: bool,
    /// Whether its body runs on rows that were fetched before.
    pub(super) is_on_fetched: bool,
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> ClusterTx<'e, F, S> {
    pub(super) fn new(worker: Rc<Coordinator<'e, F, S>>, state: Box<State<'e, F::Port>>) -> Self {
        Self { worker, state: Some(state), is_opaque: false, is_on_fetched: false }
    }

    /// Checks at each read that all that was read is true at one moment, if `is_opaque`.
    pub(super) fn be_opaque(&mut self, is_opaque: bool) {
        self.is_opaque = is_opaque;
    }

    /// Returns the state, which is there until the transaction ends and takes itself.
    pub(super) fn state(&mut self) -> &mut State<'e, F::Port> {
        match &mut self.state {
            Some(state) => state,
            None => unreachable!("the transaction has ended"),
        }
    }

    /// Asks in the name of this transaction.
    pub(super) async fn round(&mut self, phase: Phase, asks: &[Ask]) -> Result<(), Error> {
        #[cfg(feature = "hades")]
        if phase == Phase::Execute && self.worker.node.nic.is_some() && !asks.is_empty() {
            return self.round_of_lines(asks).await;
        }
        match &mut self.state {
            Some(state) if !asks.is_empty() => self.worker.round(state, phase, asks).await,
            _ => Ok(()),
        }
    }

    /// Pauses if a round has met a row that is locked, and is to be tried once more: longer each
    /// time, and only so often. Returns whether it is.
    pub(super) async fn pause_before_retry(&mut self, outcome: &Result<(), Error>, tries: &mut u32, most: u32) -> bool {
        let is_locked = matches!(outcome, Err(Error::Conflict(Conflict::Locked)));
        if !is_locked || *tries >= most {
            return false;
        }
        self.worker.endpoint().sleep(Duration::from_micros(1 << (*tries).min(LONGEST))).await;
        *tries += 1;
        // It may be out of the way by now.
        self.state().culprit = None;
        true
    }

    /// Returns the row that the transaction was in conflict over, if it is known: its table, and
    /// its encoded key.
    pub(super) fn culprit(&self) -> (Option<&'static str>, Vec<u8>) {
        let mut bytes = Vec::new();
        let Some(state) = &self.state else { return (None, bytes) };
        let Some(Culprit::Row(row)) = state.culprit else { return (None, bytes) };
        let Row { table, key, .. } = state.rows[row as usize];
        key.in_bytes(&state.arena.keys).write(self.worker.key_size(table), &mut bytes);
        (Some(self.worker.table_name(table)), bytes)
    }

    /// Introduces this node to all owners.
    pub(super) async fn greet_owners(&mut self) -> Result<(), Error> {
        let view = self.worker.view();
        for member in view.members() {
            if member.node != self.worker.id() {
                self.worker.greet(member.node).await?;
            }
        }
        Ok(())
    }

    /// Commits the transaction. Its writes become visible atomically.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] when others have changed what it has read, and nothing has happened
    /// then; [`ClusterError`](super::ClusterError) where an owner fails, which says what has
    /// happened.
    pub async fn commit(mut self) -> Result<(), Error> {
        self.try_commit().await
    }

    /// Aborts the transaction: nothing is written.
    pub async fn abort(mut self) {
        // What stays locked for now is the worker's.
        let _ = self.finish(true).await;
    }

    /// Like [`commit`](Self::commit), but after a conflict the transaction may be [run
    /// again](Self::run_again).
    pub(super) async fn try_commit(&mut self) -> Result<(), Error> {
        let mut ended = self.prepare().await;
        if ended.is_ok() {
            self.state().is_decided = true;
        }
        let waits = !self.worker.protocol().is_passive || !self.worker.serves.get() || self.awaits_owners();
        keep_first(&mut ended, self.finish(waits).await);
        ended?;
        self.worker.count_commit();
        self.until_durable().await
    }

    /// Returns whether commits wait for the log of an owner that the transaction has accessed.
    fn awaits_owners(&self) -> bool {
        let Some(state) = &self.state else { return false };
        state.owners.iter().any(|owner| self.worker.durability_of(owner.node) == Some(Durability::Sync))
    }

    /// Waits until all is durable that the transaction has written and read, at the owners whose
    /// commits wait for that. It has ended before, and holds nothing.
    ///
    /// # Errors
    ///
    /// When that is not known of an owner.
    pub(super) async fn until_durable(&mut self) -> Result<(), Error> {
        if !self.awaits_owners() || S::has(Mutation::OwnersNotAwaited) {
            return Ok(());
        }
        let mut asks = Asks::new();
        let is_awaited = |worker: &Coordinator<'e, F, S>, node| worker.durability_of(node) == Some(Durability::Sync);
        let worker = Rc::clone(&self.worker);
        self.state().ask_lines(&mut asks, Ask::Durable, |node| is_awaited(&worker, node));
        // What is under way is the worker's if this is dropped.
        self.state().is_over = false;
        let mut tries = 0;
        let ended = loop {
            if let Err(error) = self.round(Phase::Log, &asks).await {
                break Err(error);
            }
            let state = self.state();
            asks.retain(|ask| matches!(ask, Ask::Durable(owner) if state.owners[*owner as usize].awaits > 0));
            if let Some(state) = &self.state {
                // What was done at a node that has closed is on its disk. One that is started again
                // restores what is not.
                let is_left = |node| !worker.has_done(state, node) && !state.log.unheard.contains(&node);
                asks.retain(|ask| is_left(ask.node(state)));
            }
            if asks.is_empty() {
                break Ok(());
            }
            self.worker.endpoint().sleep(FLUSHED_AFTER * (1 << tries.min(LONGEST_LOOK))).await;
            tries += 1;
        };
        // What it owes is the worker's.
        let state = self.state();
        state.is_over = !state.owes;
        ended
    }

    /// Gives the transaction up because of an error, which it returns. If that is a conflict, the
    /// transaction is over, and may be [run again](Self::run_again). So where rows may stay locked,
    /// it is the error of their owner instead.
    pub(super) async fn give_up(&mut self, error: Error) -> Error {
        match (error, self.finish(true).await) {
            (Error::Conflict(_), Err(worse)) => worse,
            (error, _) => error,
        }
    }

    /// Gives the transaction up, after a look at whether all that it has read is still so.
    pub(super) async fn validate(&mut self) -> Result<(), Error> {
        let mut valid = self.check(|_| true).await;
        keep_first(&mut valid, self.check_lease());
        keep_first(&mut valid, self.finish(true).await);
        valid
    }

    /// Checks that what was read may be returned.
    ///
    /// # Errors
    ///
    /// [`Conflict::View`] if this node has no lease on the view.
    pub(super) fn check_lease(&self) -> Result<(), Error> {
        if self.worker.may_serve() { Ok(()) } else { Err(Conflict::View.into()) }
    }

    /// Returns requests about rows.
    pub(super) fn ask(&mut self, ask: impl Fn(u32) -> Ask, of: impl Fn(&Row) -> bool) -> Asks {
        let rows = self.state().rows.iter().zip(0..);
        rows.filter(|(row, _)| of(row)).map(|(_, number)| ask(number)).collect()
    }

    /// Prepares the commit: everything that can stop the transaction. What it writes is locked
    /// afterwards, unless this fails.
    async fn prepare(&mut self) -> Result<(), Error> {
        #[cfg(feature = "hades")]
        if self.worker.node.nic.is_some() {
            return self.prepare_lines().await;
        }
        if self.state().rows.iter().any(Row::is_written) {
            self.reserve_log().await?;
            self.place().await?;
            self.acquire(Row::is_written).await?;
            self.worker.fence();
        } else if self
            .state()
            .is_of_one_moment(S::has(Mutation::LockedReadsBelieved) || S::has(Mutation::SingleReadsBelieved))
        {
            return self.check_lease();
        }
        if !S::has(Mutation::CommitWithoutValidation) {
            self.check(|row| !row.is_written()).await?;
        }
        match &mut self.state {
            Some(state) => {
                self.worker.check_view(state)?;
                self.worker.log(state).await
            }
            None => Ok(()),
        }
    }

    /// Reserves space at backups.
    pub(super) async fn reserve_log(&mut self) -> Result<(), Error> {
        match &mut self.state {
            Some(state) => {
                state.check_served(state.rows.iter().filter(|row| row.is_written()).map(|row| row.shard))?;
                self.worker.check_fits(state).await?;
                self.worker.reserve_log(state).await?;
                self.worker.write_ahead_fits(state)
            }
            None => Ok(()),
        }
    }

    /// Finds records for rows that are to be written, or has them made.
    pub(super) async fn place(&mut self) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            let asks = self.ask(Ask::Place, |row| row.is_written() && row.place == Place::Nowhere);
            let outcome = self.round(Phase::Execute, &asks).await;
            if S::has(Mutation::InsertedOver) && matches!(outcome, Err(Error::Conflict(Conflict::Phantom))) {
                continue;
            }
            if !self.pause_before_retry(&outcome, &mut tries, PATIENCE).await {
                return outcome;
            }
        }
    }

    /// Looks again at what was read, guards included, and at the owners' lines: one round.
    pub(super) async fn check(&mut self, of: impl Fn(&Row) -> bool) -> Result<(), Error> {
        #[cfg(feature = "hades")]
        if self.worker.node.nic.is_some() {
            return self.check_lines(true).await;
        }
        let is_read = |row: &Row| row.is_read() && row.place != Place::Nowhere && of(row);
        let mut asks = self.ask(Ask::Check, is_read);
        if !S::has(Mutation::CommitDespitePhantoms) {
            asks.extend(self.state().guards.needed().map(Ask::Guard));
        }
        let counted = self.state().counted(of);
        self.state().ask_lines(&mut asks, Ask::Count, |node| counted.contains(&node));
        self.round(Phase::Validate, &asks).await?;
        if S::has(Mutation::TurnsNotChecked) {
            return Ok(());
        }
        Ok(self.state().check_turns()?)
    }

    /// Carries a decided transaction out, or gives up what an undecided one has taken; whatever was
    /// done of that before. The transaction has ended then, unless it does not wait (`waits`) for
    /// the last phase of one that is decided: that is the worker's then, as if the transaction was
    /// dropped. So are locks whose owner cannot be asked, until it is met again or is gone.
    ///
    /// # Errors
    ///
    /// When it is not known whether all of a decided transaction was carried out; or when a lock of
    /// another one may not be free.
    pub(super) async fn finish(&mut self, waits: bool) -> Result<(), Error> {
        // What is under way may still take a lock.
        let mut outcome = match &mut self.state {
            Some(state) => {
                let collected = self.worker.collect(state).await;
                if state.is_decided { collected } else { Ok(()) }
            }
            None => return Ok(()),
        };
        if self.state().is_decided {
            if S::has(Mutation::UnlockBeforeWriteBack) {
                let state = self.state();
                let by_verbs = (0..state.rows.len() as u32).filter(|row| state.is_written_by_verbs(*row));
                let early: Asks = by_verbs.map(Ask::Unlock).collect();
                let holds: Vec<Hold> = state.rows.iter().map(|row| row.hold).collect();
                outcome = outcome.and(self.round(Phase::Commit, &early).await);
                self.state().rows.iter_mut().zip(holds).for_each(|(row, hold)| row.hold = hold);
            }
            let mut asks = match &mut self.state {
                Some(state) => self.worker.divide_changes(state),
                None => Asks::new(),
            };
            asks.extend(self.ask(Ask::Unlock, |row| row.may_be_locked() && !row.is_written()));
            #[cfg(feature = "hades")]
            self.update_by_lines(&mut asks);
            if !waits && let Some(state) = &mut self.state {
                // The worker waits for the end.
                let posted = self.worker.post(state, Phase::Commit, &asks).await;
                state.is_over = S::has(Mutation::PassiveStatesReused);
                return outcome.and(posted);
            }
            let applied = self.round(Phase::Commit, &asks).await;
            outcome = outcome.and(applied);
            let asks = self.ask(Ask::Reap, |row| row.sight == Sight::Made && !row.is_written());
            // A record that stays behind is in no transaction's way.
            let _ = self.round(Phase::Other, &asks).await;
            // What backups apply and free is carried out: until then they have it for whoever has
            // to carry it out instead.
            if let Some(state) = &mut self.state {
                match S::has(Mutation::SettledTooSoon) {
                    true => state.log.unheard.clear(),
                    false => self.worker.carry_unheard(state).await,
                }
            }
            if self.worker.node.cooperative.is_some() && self.state().log.unheard.is_empty() {
                // Until then it is restored from its log. What fails is told when it is waited for.
                let durable = self.until_durable().await;
                outcome = outcome.and(durable);
                if let Some(state) = &mut self.state {
                    self.worker.carry_unheard(state).await;
                }
            }
            let is_carried_out = !self.is_owing();
            if let Some(state) = self.state.as_mut().filter(|_| is_carried_out) {
                self.worker.settle_log(state);
            }
        } else {
            // Before the first unlock: what may be completed in this one's place keeps its locks.
            if let Some(state) = &mut self.state {
                self.worker.void_log(state).await;
            }
            let is_locked = |row: &Row| row.may_be_locked() || S::has(Mutation::OthersUnlocked);
            let mut asks = self.ask(Ask::Unlock, |row| is_locked(row) && row.place != Place::Nowhere);
            if !self.state().owes {
                asks.extend(self.ask(Ask::Reap, |row| row.sight == Sight::Made));
            }
            #[cfg(feature = "hades")]
            self.give_up_lines(&mut asks);
            outcome = self.round(Phase::Commit, &asks).await;
        }
        let owes = self.is_owing() && !S::has(Mutation::UnlocksNotRepeated);
        if let Some(state) = self.state.as_ref().filter(|_| !owes) {
            self.worker.free_slot(state);
        }
        let state = self.state();
        #[cfg(feature = "hades")]
        if !owes {
            state.in_nics = None;
        }
        (state.is_over, state.owes) = (!owes, owes);
        if owes || state.is_decided { outcome } else { Ok(()) }
    }

    /// Returns whether rows are locked, or may be, that are not freed by what was sent, or whether
    /// an owner may not have heard that the transaction is decided. One that is gone has taken its
    /// locks with it.
    fn is_owing(&self) -> bool {
        let Some(state) = &self.state else { return false };
        let may_be_met = |row: &Row| {
            let node = state.node_at(row.shard);
            self.worker.may_be_met_again(node, state.met(node))
        };
        #[cfg(feature = "hades")]
        if self.owes_lines() {
            return true;
        }
        !state.log.unheard.is_empty() || state.rows.iter().any(|row| row.may_be_locked() && may_be_met(row))
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Drop for ClusterTx<'_, F, S> {
    fn drop(&mut self) {
        match self.state.take() {
            Some(state) if state.is_over => self.worker.recycle(state),
            Some(state) => self.worker.abandon(state),
            None => {}
        }
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> fmt::Debug for ClusterTx<'_, F, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.state.as_ref().map(|state| state.rows.len());
        f.debug_struct("ClusterTx").field("rows", &rows).finish_non_exhaustive()
    }
}
