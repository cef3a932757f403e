//! Transactions that fetch their rows before they run, as DrTM's do: see [`Worker::transact_on`].
//!
//! 1. *Start*: ranges are read. Then rows of other nodes that are to be written are locked, and
//!    those that are only read are leased, all in one round; rows of this node are read.
//! 2. *Run*: the body is a function of what was fetched: its operations are ready at once.
//! 3. *Commit*: rows of this node that it has written are locked, and those that it has only read
//!    are looked at again. Then every lock is held, and the leases are confirmed: that is the
//!    moment at which the transaction happens. Rows are written and unlocked after it.
//!
//! No step waits for a lock or a lease while it holds others, but for a transaction that has
//! failed again and again: it [claims](ClusterTx::claim) its rows in one order for all, and then it
//! may wait. See `docs/decisions/0051`.

use std::rc::Rc;

use drtm_rdma::{Fabric, Phase};

use super::{
    ClusterTx, Sets, Worker,
    ask::{Ask, Asks},
    protocol::Detection,
    round::keep_first,
    state::{Intent, Place, Row},
    tx::PATIENCE,
    worker::CLAIM_AFTER,
};
use crate::{Config, Conflict, Error, mutation::Mutation, ready};

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Worker<'e, F, S> {
    /// Runs `body` in a serializable transaction on rows that are fetched before, retrying on
    /// conflict: DrTM's transactions. Its writes become visible atomically. Returns the body's
    /// result.
    ///
    /// Rows of other nodes that are going to be written are locked first, and those that are only
    /// read are leased. A lease is not given back: until it ends, none can lock the row. Rows are
    /// what `declare` says. Others that the body comes to abort it, and are found out by a run that
    /// locks nothing, together with all the others. If nothing is declared, all rows are found out
    /// so. The body must come to the same rows whenever it sees the same values. Its operations are
    /// ready at once, and it must not wait for anything else.
    ///
    /// Where conflicts are found by [cache lines](super::Detection), the transaction runs like any
    /// other.
    ///
    /// A transaction that writes nothing validates nothing of other nodes, but for keys that are
    /// not there, and for ranges: it confirms that all its leases hold at one moment.
    ///
    /// # Errors
    ///
    /// As for [`transact`](Self::transact), and those of [`time`](Self::time);
    /// [`Error::NotReady`] if the body waits.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{
    ///     Builder, Config, Error, Pod, TableDef, Transaction,
    ///     cluster::{Node, Partition, Protocol},
    ///     htm::NoHtm,
    ///     rdma::{Executor, LocalConfig, LocalFabric, NodeId},
    /// };
    ///
    /// #[derive(Debug)]
    /// struct Plain;
    ///
    /// impl Config for Plain {
    ///     type Engine = NoHtm;
    /// }
    ///
    /// const ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("accounts");
    ///
    /// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
    /// let builder = Builder::new().memory(16 << 20);
    /// let mut node = Node::<_, Plain>::builder_for(NoHtm, &fabric, NodeId(0), builder, Protocol::DRTM)?
    ///     .owners([NodeId(0)])?;
    /// let accounts = node.table(ACCOUNTS, Partition::hash())?;
    /// let node = node.start()?;
    /// let endpoint = node.endpoint()?;
    /// let worker = node.worker(&endpoint)?;
    /// let mut executor = Executor::new(&endpoint);
    /// worker.serve(&executor.spawner());
    /// executor.spawn(async move {
    ///     let opened = worker.transact_on(
    ///         |_| Ok(()),
    ///         async |tx| {
    ///             tx.insert(accounts, 1, &100).await?;
    ///             tx.insert(accounts, 2, &0).await
    ///         },
    ///     );
    ///     opened.await.expect("there is room");
    ///     let paid = worker.transact_on(
    ///         |sets| {
    ///             sets.write(accounts, 1)?;
    ///             sets.write(accounts, 2)
    ///         },
    ///         async |tx| {
    ///             tx.update(accounts, 1, |balance| *balance -= 30).await?;
    ///             tx.update(accounts, 2, |balance| *balance += 30).await?;
    ///             tx.get(accounts, 2).await
    ///         },
    ///     );
    ///     assert_eq!(paid.await.expect("it is its own node"), Some(30));
    /// });
    /// executor.run();
    /// # Ok::<(), Error>(())
    /// ```
    pub async fn transact_on<T>(
        &self,
        declare: impl FnOnce(&mut Sets<'_, 'e, F, S>) -> Result<(), Error>,
        mut body: impl AsyncFnMut(&mut ClusterTx<'e, F, S>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut tx = self.begin().await;
        tx.is_on_fetched = true;
        if let Err(error) = declare(&mut Sets { tx: &mut tx }) {
            return Err(tx.give_up(error).await);
        }
        if self.protocol().detection != Detection::Versions {
            drop(tx);
            return self.transact(body).await;
        }
        let (mut runs, mut scouts) = (0, tx.state().rows.is_empty() && tx.state().ranges.is_empty());
        loop {
            // That in which it fails, if it does: the next run may be in another one.
            let mut view = tx.state().view.number();
            let mut ended = Ok(());
            if scouts {
                ended = tx.scout(&mut body).await;
                // It has locked nothing.
                keep_first(&mut ended, tx.finish(true).await);
                tx.run_again_on(runs >= CLAIM_AFTER).await;
                scouts = ended.is_err();
            }
            let ended = match ended {
                Ok(()) => {
                    view = tx.state().view.number();
                    tx.run_on(&mut body).await
                }
                Err(error) => Err(error),
            };
            match tx.until_next_view(view, ended, None).await {
                Err(Error::Conflict(cause)) => {
                    self.count(cause);
                    if cause == Conflict::Unfetched {
                        scouts = true;
                    } else {
                        runs += 1;
                        self.pause(runs).await;
                    }
                    tx.run_again_on(runs >= CLAIM_AFTER && cause != Conflict::View).await;
                }
                ended => return ended,
            }
        }
    }
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> ClusterTx<'e, F, S> {
    /// Runs the body until it comes to no row that was not fetched. Nothing is locked meanwhile,
    /// and what the body sees may never have been there together. The rows and ranges that its last
    /// run has used are those of the transaction.
    async fn scout<T>(&mut self, body: &mut impl AsyncFnMut(&mut Self) -> Result<T, Error>) -> Result<(), Error> {
        loop {
            let rows: Vec<u32> = (0..self.state().rows.len() as u32).collect();
            self.fetch(&rows).await?;
            self.fetch_ranges(PATIENCE).await?;
            let state = self.state();
            (state.is_scout, state.is_outside) = (true, false);
            state.rows.iter_mut().for_each(|row| row.intent = Intent::Unknown);
            state.ranges.iter_mut().for_each(|range| range.is_used = false);
            // Only where it has gone counts: what it gives, the run after this one says.
            let _ = ready(body(self));
            let state = self.state();
            state.forget_writes();
            state.undo.clear();
            if !state.is_outside {
                return Ok(());
            }
        }
    }

    /// Begins once more, on the same rows and ranges.
    async fn run_again_on(&mut self, claims: bool) {
        let view = self.worker.latest_view().await;
        let state = self.state();
        state.clear_for_claims();
        state.forget_unused();
        (state.claims, state.is_scout, state.is_outside) = (claims, false, false);
        if !claims {
            state.enter(view);
        }
    }

    /// Runs once: the transaction is over then, and may be run again.
    async fn run_on<T>(&mut self, body: &mut impl AsyncFnMut(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let value = match self.start().await {
            Ok(()) => ready(body(self)),
            Err(error) => return Err(self.give_up(error).await),
        };
        // Whatever the body has made of that.
        let value = if self.state().is_outside { Err(Conflict::Unfetched.into()) } else { value };
        let error = match value {
            Ok(value) => match self.enter().await {
                Ok(()) => {
                    self.state().is_decided = true;
                    self.finish(true).await?;
                    return self.until_durable().await.map(|()| value);
                }
                Err(error) => error,
            },
            Err(error @ Error::Conflict(_)) => error,
            // What it has seen may never have been there.
            Err(error) => self.confirm().await.err().unwrap_or(error),
        };
        Err(self.give_up(error).await)
    }

    /// Locks, leases and reads the rows.
    async fn start(&mut self) -> Result<(), Error> {
        let state = self.state();
        let of_ranges = state.ranges.iter().flat_map(|range| state.view.heads_of(range.reach));
        state.check_served(state.rows.iter().map(|row| row.shard).chain(of_ranges))?;
        for owner in 0..self.state().owners.len() {
            let node = self.state().owners[owner].node;
            if node != self.worker.id()
                && let Some(state) = &mut self.state
            {
                self.worker.meet(state, node).await?;
            }
        }
        if let Some(state) = self.state.as_mut().filter(|_| self.worker.node.cooperative.is_some()) {
            let leases = self.worker.protocol().leases;
            let is_locked = |row: &Row| match row.intent {
                Intent::Unknown => false,
                Intent::Read => !leases,
                Intent::Write => true,
            };
            let rows = state.rows.iter().zip(0..).filter(|(row, _)| is_locked(row));
            let rows: Vec<u32> = rows.map(|(_, number)| number).collect();
            self.worker.lock_ahead(state, rows.into_iter())?;
        }
        // The only step that waits for rows which others have locked: before this transaction locks
        // any, or, if it claims, for so short a time that two which wait for each other give up.
        if self.state().claims {
            self.claim(true, None).await?;
            self.fetch_ranges(PATIENCE).await?;
        } else {
            self.fetch_ranges(PATIENCE).await?;
            self.lock_and_lease().await?;
        }
        self.lock_rest().await
    }

    /// Locks rows that are found by verbs, leases what is read of other nodes, and reads the
    /// others: one round.
    async fn lock_and_lease(&mut self) -> Result<(), Error> {
        let id = self.worker.id();
        let (mut leases, mut writes) = (false, false);
        let view = Rc::clone(&self.state().view);
        for row in &self.state().rows {
            leases |= !view.is_here(row.shard, id) && row.intent == Intent::Read;
            writes |= row.intent == Intent::Write;
        }
        if leases {
            let time = self.worker.time().await?;
            let timing = self.worker.node.timing;
            self.state().leases_until = time.lease_end(if writes { timing.lease } else { timing.read_only_lease });
        }
        let worker = Rc::clone(&self.worker);
        let state = self.state();
        let used = state.rows.iter().zip(0..).filter(|(row, _)| row.intent != Intent::Unknown);
        let asks: Asks = used
            .map(|(row, number)| match row.intent {
                _ if view.is_here(row.shard, id) => Ask::Read(number),
                Intent::Read => Ask::Lease(number),
                _ if worker.is_locked_by_verbs(state, row) => Ask::Lock(number),
                _ => Ask::Read(number),
            })
            .collect();
        self.round(Phase::Lock, &asks).await
    }

    /// Reads rows of other nodes that verbs did not find, and locks them by message.
    async fn lock_rest(&mut self) -> Result<(), Error> {
        let (id, view) = (self.worker.id(), Rc::clone(&self.state().view));
        let is_left = |row: &Row| !view.is_here(row.shard, id) && row.intent == Intent::Write && !row.may_be_locked();
        let asks = self.ask(Ask::Read, |row| is_left(row) && !row.is_known());
        self.round(Phase::Lock, &asks).await?;
        self.acquire(|row| is_left(row) && row.place != Place::Nowhere).await
    }

    /// Prepares the commit, when the body has run: everything that can stop the transaction.
    async fn enter(&mut self) -> Result<(), Error> {
        self.reserve_log().await?;
        self.place().await?;
        self.acquire_in_htm()?;
        // Rows that are here, or were claimed, are locked once more in any case: that brings the
        // epoch.
        let (id, claims, view) = (self.worker.id(), self.state().claims, Rc::clone(&self.state().view));
        let is_left = |row: &Row| row.is_written() && (claims || view.is_here(row.shard, id) || !row.is_ready());
        self.acquire(is_left).await?;
        self.worker.fence();
        // All that was read is so now, when all that is written is locked. Leases that end while
        // the records are on their way refuse nothing.
        self.confirm().await?;
        match &mut self.state {
            Some(state) => {
                self.worker.check_view(state)?;
                self.worker.log(state).await
            }
            None => Ok(()),
        }
    }

    /// Looks again at what is neither locked nor leased, and then confirms the leases, also that on
    /// the view. If all hold, all that was read was so at one moment in between.
    async fn confirm(&mut self) -> Result<(), Error> {
        if !S::has(Mutation::CommitWithoutValidation) {
            self.check(|row| !row.is_written() && !row.may_be_locked() && row.lease == 0).await?;
        }
        if !S::has(Mutation::LeaseNotConfirmed) {
            self.check_lease()?;
        }
        match &self.state {
            Some(state) => self.worker.confirm(state),
            None => Ok(()),
        }
    }
}
