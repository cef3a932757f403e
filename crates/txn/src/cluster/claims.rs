//! Claims: rows that a starved transaction locks before its body runs, and the end of that.
//!
//! Rows are locked one after the other, in one order for all transactions, so that none waits in a
//! circle. But a body may wait for something else: for another thread's transaction on a row that
//! it has claimed, for example. So the rows are unlocked [`HOLDING`] after the body has begun, and
//! the body runs on. Claims decide nothing: what it has read is validated like any other
//! transaction's. A transaction that fetches its rows first has a body that cannot wait.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};

use drtm_kv::{Handle, Holder};
use drtm_rdma::{Fabric, NodeId, Phase, Time};

use super::{
    ClusterError, ClusterTx,
    ask::Ask,
    coordinator::Coordinator,
    requests::{
        Call,
        lock::{Unlock, UnlockRow},
    },
    state::{GivenUp, Hold, Place, Row, Sight, State},
    wire::stamp::Stamp,
};
use crate::{Config, Conflict, Error};

/// For how long a transaction holds claims at most.
const HOLDING: Duration = Duration::from_millis(100);

/// How often the lock of a claimed row is tried.
const CLAIM_PATIENCE: u32 = 1 << 10;

/// A transaction of more rows than this claims none.
const MOST_CLAIMED: usize = 1 << 8;

/// How many claims are given up by one message.
const UNLOCKED_AT_ONCE: usize = 16;

/// A row that is claimed.
#[derive(Clone, Copy, Debug)]
struct Claimed {
    node: NodeId,
    stamp: Stamp,
    table: u16,
    at: Handle,
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> ClusterTx<'e, F, S> {
    /// Begins once more, when the transaction is over. If it `claims` rows, those of this run are
    /// to be [locked](Self::claim) first.
    pub(super) async fn run_again(&mut self, claims: bool) {
        let view = self.worker.latest_view().await;
        let state = self.state();
        if claims && state.rows.len() <= MOST_CLAIMED && state.view.number() == view.number() {
            state.clear_for_claims();
        } else {
            state.clear();
            state.view = view;
        }
    }

    /// Locks rows of the last run, if it is to: `all` of them, or those that were contended, if any
    /// was. It waits for them until the transaction's `deadline` at most.
    pub(super) async fn claim(&mut self, all: bool, deadline: Option<Time>) -> Result<(), Error> {
        if !self.state().claims {
            return Ok(());
        }
        if let Some(state) = &mut self.state {
            self.worker.reserve_log_for_claims(state).await?;
        }
        let State { rows: known, arena, view, .. } = self.state();
        let all = all || known.iter().all(|row| !row.is_contended);
        let claimed = known.iter().zip(0..).filter(|(row, _)| !row.is_final && (all || row.is_contended));
        let mut rows: Vec<u32> = claimed.map(|(_, number)| number).collect();
        rows.sort_unstable_by_key(|row| {
            let row = &known[*row as usize];
            (view.primary(row.shard), row.table, row.key.in_bytes(&arena.keys))
        });
        if let Some(state) = &mut self.state {
            self.worker.lock_ahead(state, rows.iter().copied())?;
        }
        for row in &rows {
            self.claim_one(*row, deadline).await?;
        }
        self.fetch(&rows).await
    }

    /// Locks a row as soon as it is free, if it has a record.
    async fn claim_one(&mut self, row: u32, deadline: Option<Time>) -> Result<(), Error> {
        let mut tries = 0;
        while self.state().rows[row as usize].place != Place::Nowhere {
            let outcome = self.round(Phase::Lock, &[Ask::Lock(row)]).await;
            if deadline.is_none_or(|deadline| self.worker.endpoint().now() < deadline)
                && self.pause_before_retry(&outcome, &mut tries, CLAIM_PATIENCE).await
            {
                continue;
            }
            match outcome {
                Ok(()) => break,
                Err(Error::Conflict(Conflict::Moved)) if tries < CLAIM_PATIENCE => {
                    // It is looked up once more, and then locked where it is now.
                    self.state().rows[row as usize].place = Place::Nowhere;
                    self.fetch(&[row]).await?;
                    self.state().rows[row as usize].sight = Sight::Unknown;
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns whether the time of what the transaction has claimed is over.
    pub(super) fn has_claimed_in_vain(&mut self) -> bool {
        let now = self.worker.endpoint().now();
        self.state().claims_until.is_some_and(|until| until <= now)
    }

    /// Runs the body. What it has claimed is unlocked after [`HOLDING`], or at the `deadline`, and
    /// the body runs on.
    ///
    /// # Errors
    ///
    /// The body's; or when it is not known whether a row was unlocked.
    pub(super) async fn run<T>(
        &mut self,
        body: &mut impl AsyncFnMut(&mut Self) -> Result<T, Error>,
        deadline: Option<Time>,
    ) -> Result<T, Error> {
        if !self.state().claims {
            return body(self).await;
        }
        let until = self.worker.endpoint().now() + HOLDING;
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        self.state().claims_until = Some(until);
        let worker = Rc::clone(&self.worker);
        let state = self.state();
        let (holder, given_up, is_over) = (state.holder, Rc::clone(&state.given_up), &Cell::new(false));
        let locked = state.rows.iter().filter(|row| row.may_be_locked());
        let claim = |row: &Row| {
            let node = state.node_at(row.shard);
            Some(Claimed { node, stamp: state.stamp(node), table: row.table, at: row.at()? })
        };
        let mut claimed: Vec<Claimed> = locked.filter_map(claim).collect();
        claimed.sort_unstable_by_key(|row| row.node);
        let ended = {
            let mut running = pin!(body(self));
            let mut giving_up = pin!(async {
                worker.endpoint().sleep(until.since(worker.endpoint().now())).await;
                is_over.set(true);
                worker.unlock_claims(holder, &claimed, &given_up).await
            });
            let (mut ended, mut sent) = (None, None);
            poll_fn(move |context| {
                if ended.is_none() {
                    ended = ready(running.as_mut().poll(context));
                }
                if sent.is_none() {
                    sent = ready(giving_up.as_mut().poll(context));
                }
                // What is being sent when the body ends is waited for.
                match (ended.take(), sent.take()) {
                    (Some(ended), None) if !is_over.get() => Poll::Ready(ended),
                    (Some(ended), Some(sent)) => Poll::Ready(sent.and(ended)),
                    (one, other) => {
                        (ended, sent) = (one, other);
                        Poll::Pending
                    }
                }
            })
            .await
        };
        if let Some(state) = &mut self.state
            && is_over.get()
        {
            // It must not be carried out later than what is locked from here on in the same name.
            worker.collect(state).await?;
            if ended.is_ok() {
                state.rows.iter_mut().for_each(|row| row.hold = Hold::None);
            }
            state.claims = false;
        }
        ended
    }
}

fn ready<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Unlocks rows that a transaction has claimed. Does not wait for the answers.
    async fn unlock_claims(
        &self,
        holder: Holder,
        claimed: &[Claimed],
        given_up: &GivenUp<'e, F::Port>,
    ) -> Result<(), Error> {
        for rows in claimed.chunk_by(|one, next| one.node == next.node) {
            let node = rows[0].node;
            if node == self.id() {
                rows.iter().for_each(|row| self.participant().unlock(row.at, holder));
                continue;
            }
            let failed = |source| Error::from(ClusterError::Unreachable { node, source });
            // As many as fit a message, whatever its length.
            for rows in rows.chunks(UNLOCKED_AT_ONCE) {
                let mut calls = self.rpc(Phase::Lock).tagged(rows[0].stamp.tag()).to(node);
                for Claimed { table, at, .. } in rows {
                    let unlock = UnlockRow { table: *table, at: *at, holder };
                    calls.add::<Call<Unlock>>(&unlock).map_err(failed)?;
                }
                let posted = calls.post(None).await.map_err(failed)?;
                given_up.borrow_mut().push(posted);
            }
        }
        Ok(())
    }
}
