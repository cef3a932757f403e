//! A transaction over many nodes: what a body does with rows, and its end.

use std::{
    borrow::Borrow,
    fmt, mem,
    ops::{Bound, RangeBounds},
    rc::Rc,
    time::Duration,
};

use drtm_rdma::{Fabric, NodeId, Phase};
use smallvec::SmallVec;

use super::{
    ClusterTable,
    ask::{Ask, Asks},
    coordinator::Coordinator,
    state::{Op, Row, Span, State},
};
use crate::{
    AsKey, Codec, Conflict, Embedded, Error, Key, KeyRange, Ordered, Setting,
    arena::{Arena, ArenaKey},
    mutation::Mutation,
    storage::KeyRef,
    table::Kind,
    tx::encode,
};

/// How often a row that another transaction has locked is read again.
const PATIENCE: u32 = 12;

/// The longest of these pauses: two to this power of microseconds.
const LONGEST: u32 = 6;

/// How often the lock of a claimed row is tried.
const CLAIM_PATIENCE: u32 = 1 << 10;

/// A transaction of more rows than this claims none.
const MOST_CLAIMED: usize = 1 << 8;

/// A transaction over the nodes of a cluster. Dropped without a commit, it has never happened.
///
/// # Example
///
/// See [`Node`](super::Node).
pub struct ClusterTx<'e, F: Fabric, S: Setting<Engine = F::Engine> = Embedded> {
    pub(super) worker: Rc<Coordinator<'e, F, S>>,
    /// Until it is dropped.
    pub(super) state: Option<Box<State<'e, F::Port>>>,
}

impl<'e, F: Fabric, S: Setting<Engine = F::Engine>> ClusterTx<'e, F, S> {
    pub(super) fn new(worker: Rc<Coordinator<'e, F, S>>, state: Box<State<'e, F::Port>>) -> Self {
        Self { worker, state: Some(state) }
    }

    /// There until the transaction ends, which takes the transaction itself.
    pub(super) fn state(&mut self) -> &mut State<'e, F::Port> {
        match &mut self.state {
            Some(state) => state,
            None => unreachable!("the transaction has ended"),
        }
    }

    /// Asks in the name of this transaction.
    pub(super) async fn round(&mut self, phase: Phase, asks: &[Ask]) -> Result<(), Error> {
        match &mut self.state {
            Some(state) if !asks.is_empty() => self.worker.round(state, phase, asks).await,
            _ => Ok(()),
        }
    }

    /// The number of the row with a key, which is added if it is new.
    pub(super) fn row<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<u32, Error> {
        let mut buffer = mem::take(&mut self.state().arena.key);
        let key = encode(key, &mut buffer);
        let owner = table.owner(key, self.worker.owners());
        let row = owner.and_then(|owner| self.state().row(table.number, key, owner));
        self.state().arena.key = buffer;
        row
    }

    /// Looks rows up that are not known yet, all at once.
    pub(super) async fn fetch(&mut self, rows: &[u32]) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            let state = self.state();
            let is_wanted = |row: &Row| !row.is_written() && (!row.is_known || row.was_there() && row.value.is_none());
            let wanted = rows.iter().copied().filter(|row| is_wanted(&state.rows[*row as usize]));
            let mut wanted: SmallVec<[u32; 16]> = wanted.collect();
            wanted.sort_unstable();
            wanted.dedup();
            let asks: Asks = wanted.into_iter().map(Ask::Read).collect();
            let outcome = self.round(Phase::Execute, &asks).await;
            if !self.is_to_be_repeated(&outcome, &mut tries, PATIENCE).await {
                return outcome;
            }
        }
    }

    /// Whether a round is to be tried once more, since it has met a row that is locked: after a
    /// pause, which is longer each time, and only so often.
    async fn is_to_be_repeated(&self, outcome: &Result<(), Error>, tries: &mut u32, most: u32) -> bool {
        let is_locked = matches!(outcome, Err(Error::Conflict(Conflict::Locked)));
        if !is_locked || *tries >= most {
            return false;
        }
        self.worker.endpoint().sleep(Duration::from_micros(1 << (*tries).min(LONGEST))).await;
        *tries += 1;
        true
    }

    pub(super) fn decode<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        row: u32,
    ) -> Result<Option<C::Value>, Error> {
        let value = self.state().value(row).map(C::decode).transpose();
        value.map_err(|source| Error::Codec { table: table.name, source })
    }

    /// Gives a row a value, of which others hear at the commit.
    pub(super) fn give<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        row: u32,
        value: &C::Given,
    ) -> Result<(), Error> {
        let state = self.state();
        let kept = state
            .arena
            .keep_value(|bytes| C::encode(value, bytes).map_err(|source| Error::Codec { table: table.name, source }));
        state.rows[row as usize].op = Op::Put(kept?);
        Ok(())
    }

    /// A row's value, if there is such a row.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`]; when the owner cannot be asked; or when the value is none of the
    /// codec's.
    pub async fn get<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<Option<C::Value>, Error> {
        let row = self.row(table, key)?;
        self.fetch(&[row]).await?;
        self.decode(table, row)
    }

    /// The values of several rows, in one round trip to all of their owners.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn get_many<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        keys: impl IntoIterator<Item = impl AsKey<K>>,
    ) -> Result<Vec<Option<C::Value>>, Error> {
        let rows = keys.into_iter().map(|key| self.row(table, key)).collect::<Result<Vec<_>, _>>()?;
        self.fetch(&rows).await?;
        rows.into_iter().map(|row| self.decode(table, row)).collect()
    }

    /// Looks rows up that are going to be read or updated, in one round trip to all of their
    /// owners.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn prefetch<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        keys: impl IntoIterator<Item = impl AsKey<K>>,
    ) -> Result<(), Error> {
        let rows = keys.into_iter().map(|key| self.row(table, key)).collect::<Result<SmallVec<[u32; 16]>, _>>()?;
        self.fetch(&rows).await
    }

    /// Whether there is such a row.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn contains<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<bool, Error> {
        let row = self.row(table, key)?;
        self.fetch(&[row]).await?;
        Ok(self.state().rows[row as usize].is_there())
    }

    /// The rows of a range of an ordered table, of all owners, in the order of their keys. As long
    /// as the transaction has not ended, no other can bring a row into the range, or take one out.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn range<K: Key, C: Codec>(
        &mut self,
        table: ClusterTable<K, C, Ordered>,
        range: impl KeyRange<K>,
    ) -> Result<Vec<(K, C::Value)>, Error> {
        let (low, high) = range.ends();
        let mut bytes = Vec::new();
        let bounds = [
            keep_bound(&mut self.state().arena, low, &mut bytes)?,
            keep_bound(&mut self.state().arena, high, &mut bytes)?,
        ];
        let first = self.state().spans.len();
        for owner in self.worker.owners().to_vec() {
            let [low, high] = bounds;
            self.state().owner(owner);
            self.state().spans.push(Span { table: table.number, owner, low, high, is_whole: false });
        }
        let mut tries = 0;
        loop {
            let left = self.state().spans.iter().zip(0..).skip(first).filter(|(span, _)| !span.is_whole);
            let asks: Asks = left.map(|(_, number)| Ask::Scan(number)).collect();
            if asks.is_empty() {
                break;
            }
            let outcome = self.round(Phase::Execute, &asks).await;
            if outcome.is_err() && !self.is_to_be_repeated(&outcome, &mut tries, PATIENCE).await {
                outcome?;
            }
        }
        self.rows_in(table, bounds)
    }

    /// The rows of a range that the transaction knows, all of which it has read.
    fn rows_in<K: Key, C: Codec>(
        &mut self,
        table: ClusterTable<K, C, Ordered>,
        [low, high]: [Bound<ArenaKey>; 2],
    ) -> Result<Vec<(K, C::Value)>, Error> {
        let state = &*self.state();
        let keys = &state.arena.keys;
        let range = (low.map(|key| key.in_bytes(keys)), high.map(|key| key.in_bytes(keys)));
        let of_table = state
            .rows
            .iter()
            .zip(0..)
            .filter(|(row, _)| row.table == table.number && (row.is_known || row.is_written()) && row.is_there());
        let mut found: Vec<(KeyRef<'_>, u32)> = of_table
            .map(|(row, number)| (row.key.in_bytes(keys), number))
            .filter(|(key, _)| range.contains(key))
            .collect();
        found.sort_unstable();
        let of_row = |(key, number): (KeyRef<'_>, u32)| {
            let key = key.decode::<K>().ok_or(Error::Key { table: table.name })?;
            let value = C::decode(state.value(number).unwrap_or_default());
            Ok((key, value.map_err(|source| Error::Codec { table: table.name, source })?))
        };
        found.into_iter().map(of_row).collect()
    }

    /// Gives a row a value, whether it is there or not. No other node is asked before the commit.
    ///
    /// # Errors
    ///
    /// When the value cannot be encoded.
    pub async fn put<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
        value: impl Borrow<C::Given>,
    ) -> Result<(), Error> {
        let row = self.row(table, key)?;
        self.give(table, row, value.borrow())
    }

    /// Inserts a row that is not there.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`]; otherwise as for [`get`](Self::get).
    pub async fn insert<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
        value: impl Borrow<C::Given>,
    ) -> Result<(), Error> {
        let number = self.row(table, key)?;
        self.fetch(&[number]).await?;
        if self.state().rows[number as usize].is_there() {
            return Err(Error::Exists { table: table.name });
        }
        self.give(table, number, value.borrow())
    }

    /// Changes a row's value, if there is such a row. Gives what the change gives.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn update<K: Key, C: Codec, O: Kind, R>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
        change: impl FnOnce(&mut C::Value) -> R,
    ) -> Result<Option<R>, Error>
    where
        C::Value: Borrow<C::Given>,
    {
        let row = self.row(table, key)?;
        self.fetch(&[row]).await?;
        let Some(mut value) = self.decode(table, row)? else { return Ok(None) };
        let result = change(&mut value);
        self.give(table, row, value.borrow())?;
        Ok(Some(result))
    }

    /// Removes a row. Tells whether it was there.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn remove<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: ClusterTable<K, C, O>,
        key: impl AsKey<K>,
    ) -> Result<bool, Error> {
        let number = self.row(table, key)?;
        self.fetch(&[number]).await?;
        let row = &mut self.state().rows[number as usize];
        let is_there = row.is_there();
        if is_there {
            // What was never there is as it was.
            row.op = if row.was_there() || !row.is_known { Op::Remove } else { Op::Nothing };
        }
        Ok(is_there)
    }

    /// Ends the transaction: makes everything that it has written happen, at one moment.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] when others have changed what it has read, and nothing has happened
    /// then; [`ClusterError`](super::ClusterError) where an owner fails, which says what has
    /// happened.
    pub async fn commit(mut self) -> Result<(), Error> {
        self.try_commit().await
    }

    /// Gives the transaction up: nothing has happened.
    pub async fn abort(mut self) {
        self.give_up().await;
    }

    /// As [`commit`](Self::commit). The transaction is over then, and may be [run
    /// again](Self::run_again).
    pub(super) async fn try_commit(&mut self) -> Result<(), Error> {
        let prepared = self.prepare().await;
        if prepared.is_ok() {
            self.state().is_decided = true;
        }
        let waits = !self.worker.protocol().is_passive;
        let finished = self.finish(waits).await;
        prepared.and(finished)
    }

    /// As [`abort`](Self::abort).
    pub(super) async fn give_up(&mut self) {
        // Nothing has been decided, so nothing can be unknown of it.
        let _ = self.finish(true).await;
    }

    /// Gives the transaction up, after a look at whether all that it has read is still so.
    pub(super) async fn validate(&mut self) -> Result<(), Error> {
        let valid = self.check(|_| true).await;
        self.give_up().await;
        valid
    }

    /// Begins once more, when the transaction is over. If it `claims` rows, those of this run are
    /// to be [locked](Self::claim) first.
    pub(super) fn run_again(&mut self, claims: bool) {
        let state = self.state();
        if claims && state.rows.len() <= MOST_CLAIMED {
            state.clear_for_claims();
        } else {
            state.clear();
        }
    }

    /// Locks rows of the last run, if it is to: one after the other, in one order for all
    /// transactions, so that none waits in a circle. `All` of them, or those that were contended, if
    /// any was.
    pub(super) async fn claim(&mut self, all: bool) -> Result<(), Error> {
        if !self.state().claims {
            return Ok(());
        }
        if let Some(state) = &mut self.state {
            self.worker.reserve_log_for_claims(state).await?;
        }
        let State { rows: known, arena, .. } = self.state();
        let all = all || known.iter().all(|row| !row.is_contended);
        let claimed = known.iter().zip(0..).filter(|(row, _)| all || row.is_contended);
        let mut rows: Vec<u32> = claimed.map(|(_, number)| number).collect();
        rows.sort_unstable_by_key(|row| {
            let row = &known[*row as usize];
            (row.owner, row.table, row.key.in_bytes(&arena.keys))
        });
        for row in &rows {
            self.claim_one(*row).await?;
        }
        self.fetch(&rows).await
    }

    /// Locks a row as soon as it is free, if it has a record.
    async fn claim_one(&mut self, row: u32) -> Result<(), Error> {
        let mut tries = 0;
        while self.state().rows[row as usize].at.is_some() {
            let outcome = self.round(Phase::Lock, &[Ask::Lock(row)]).await;
            if self.is_to_be_repeated(&outcome, &mut tries, CLAIM_PATIENCE).await {
                continue;
            }
            match outcome {
                Ok(()) => break,
                Err(Error::Conflict(Conflict::Moved)) if tries < CLAIM_PATIENCE => {
                    // It is looked up once more, and then locked where it is now.
                    self.state().rows[row as usize].at = None;
                    self.fetch(&[row]).await?;
                    let found = &mut self.state().rows[row as usize];
                    (found.is_known, found.is_read) = (false, false);
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Requests about rows.
    pub(super) fn ask(&mut self, ask: impl Fn(u32) -> Ask, of: impl Fn(&Row) -> bool) -> Asks {
        let rows = self.state().rows.iter().zip(0..);
        rows.filter(|(row, _)| of(row)).map(|(_, number)| ask(number)).collect()
    }

    /// Requests for the lines of some owners.
    fn ask_lines(&self, asks: &mut Asks, ask: impl Fn(u32) -> Ask, of: impl Fn(&State<'e, F::Port>, NodeId) -> bool) {
        let Some(state) = &self.state else { return };
        let owners = state.owners.iter().zip(0..).filter(|(owner, _)| of(state, owner.node));
        asks.extend(owners.map(|(_, number)| ask(number)));
    }

    /// Does everything that can stop the transaction. What it writes is locked then, unless that
    /// fails.
    async fn prepare(&mut self) -> Result<(), Error> {
        if self.state().rows.iter().any(Row::is_written) {
            self.reserve_log().await?;
            self.place().await?;
            self.lock().await?;
            self.worker.fence();
        } else if self.state().is_of_one_moment(S::has(Mutation::LockedReadsBelieved)) {
            return Ok(());
        }
        if !S::has(Mutation::CommitWithoutValidation) {
            self.check(|row| !row.is_written()).await?;
        }
        match &mut self.state {
            Some(state) => self.worker.log(state).await,
            None => Ok(()),
        }
    }

    /// Reserves space at backups.
    pub(super) async fn reserve_log(&mut self) -> Result<(), Error> {
        match &mut self.state {
            Some(state) => self.worker.reserve_log(state).await,
            None => Ok(()),
        }
    }

    /// Finds records for rows that are to be written, or has them made.
    pub(super) async fn place(&mut self) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            let asks = self.ask(Ask::Place, |row| row.is_written() && row.at.is_none());
            let outcome = self.round(Phase::Execute, &asks).await;
            if !self.is_to_be_repeated(&outcome, &mut tries, PATIENCE).await {
                return outcome;
            }
        }
    }

    /// Locks what is to be written, and reads the owners' lines: one round.
    async fn lock(&mut self) -> Result<(), Error> {
        let asks = self.ask(Ask::Lock, Row::is_written);
        self.lock_rows(asks).await
    }

    /// Locks rows, and reads the owners' lines: one round.
    pub(super) async fn lock_rows(&mut self, mut asks: Asks) -> Result<(), Error> {
        // A lock that is taken one-sidedly brings the line with it.
        let locks = asks.clone();
        let is_asked = |state: &State<'e, F::Port>, node| {
            locks.iter().any(|lock| state.node_of(*lock) == node && !self.worker.is_one_sided(state, *lock))
        };
        self.ask_lines(&mut asks, Ask::Line, is_asked);
        self.round(Phase::Lock, &asks).await
    }

    /// Looks again at what was read, guards included, and at the owners' lines: one round.
    pub(super) async fn check(&mut self, of: impl Fn(&Row) -> bool) -> Result<(), Error> {
        let mut asks = self.ask(Ask::Check, |row| row.is_read && row.at.is_some() && of(row));
        let guards = self.state().missing.len() as u32;
        if !S::has(Mutation::CommitDespitePhantoms) {
            asks.extend((0..guards).map(Ask::Guard));
        }
        let has_read = |state: &State<'e, F::Port>, node| {
            state.rows.iter().any(|row| row.owner == node && row.is_read && row.location.is_none() && of(row))
                || state.missing.iter().any(|missing| missing.owner == node)
        };
        self.ask_lines(&mut asks, Ask::Count, has_read);
        self.round(Phase::Validate, &asks).await?;
        Ok(self.state().check_turns()?)
    }

    /// Carries a decided transaction out, or gives up what an undecided one has taken; whatever was
    /// done of that before. The transaction has ended then, unless it does not wait (`waits`) for
    /// the last phase of one that is decided: that is the worker's then, as if the transaction was
    /// dropped.
    ///
    /// # Errors
    ///
    /// When it is not known whether all of a decided transaction was carried out.
    pub(super) async fn finish(&mut self, waits: bool) -> Result<(), Error> {
        // What is under way may still take a lock.
        let mut outcome = match &mut self.state {
            Some(state) => {
                let collected = self.worker.collect(state).await;
                if state.is_decided { collected } else { Ok(()) }
            }
            None => return Ok(()),
        };
        if let Some(state) = &mut self.state
            && state.is_decided
        {
            self.worker.settle_log(state);
        }
        if self.state().is_decided {
            if S::has(Mutation::UnlockBeforeWriteBack) {
                let state = self.state();
                let early: Asks = (0..state.rows.len() as u32)
                    .filter(|row| state.is_written_by_verbs(*row))
                    .map(Ask::Unlock)
                    .collect();
                outcome = outcome.and(self.round(Phase::Commit, &early).await);
            }
            let mut asks = self.ask(Ask::Apply, |row| row.is_written() && !row.is_sent);
            asks.extend(self.ask(Ask::Unlock, |row| row.is_locked && !row.is_written()));
            if !waits && let Some(state) = &mut self.state {
                // The worker waits for the end.
                return outcome.and(self.worker.post(state, Phase::Commit, &asks).await);
            }
            let applied = self.round(Phase::Commit, &asks).await;
            outcome = outcome.and(applied);
            let asks = self.ask(Ask::Reap, |row| row.is_made && !row.is_written());
            // A record that stays behind is in no transaction's way.
            let _ = self.round(Phase::Other, &asks).await;
        } else {
            let mut asks = self.ask(Ask::Unlock, |row| row.is_locked && row.at.is_some());
            asks.extend(self.ask(Ask::Reap, |row| row.is_made));
            // An owner that cannot be asked any more has taken its locks with it.
            let _ = self.round(Phase::Commit, &asks).await;
            if let Some(state) = &mut self.state {
                self.worker.void_log(state).await;
            }
        }
        self.state().is_over = true;
        outcome
    }
}

/// Keeps the key of a bound until the transaction ends.
fn keep_bound<K: Key>(
    arena: &mut Arena,
    bound: Bound<impl AsKey<K>>,
    buffer: &mut Vec<u8>,
) -> Result<Bound<ArenaKey>, Error> {
    Ok(match bound {
        Bound::Included(key) => Bound::Included(arena.keep_key(encode(key, buffer))?),
        Bound::Excluded(key) => Bound::Excluded(arena.keep_key(encode(key, buffer))?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

impl<F: Fabric, S: Setting<Engine = F::Engine>> Drop for ClusterTx<'_, F, S> {
    fn drop(&mut self) {
        match self.state.take() {
            Some(state) if state.is_over => self.worker.recycle(state),
            Some(state) => self.worker.abandon(state),
            None => {}
        }
    }
}

impl<F: Fabric, S: Setting<Engine = F::Engine>> fmt::Debug for ClusterTx<'_, F, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.state.as_ref().map(|state| state.rows.len());
        f.debug_struct("ClusterTx").field("rows", &rows).finish_non_exhaustive()
    }
}
