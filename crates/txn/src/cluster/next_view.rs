//! What a node that is gone means for transactions, where these are recorded: nothing but a delay.
//!
//! A transaction that is decided has succeeded: what it writes there is at the shard's copies, and
//! its next primary has it. Another one ends as if it had met another view, once there is one.

use std::time::Duration;

use drtm_rdma::{Fabric, NodeId, Time};

use super::{ClusterError, ClusterTx, Refusal, coordinator::Coordinator, state::State, worker::FREED_AFTER};
use crate::{Config, Conflict, Error, mutation::Mutation};

/// For how long a transaction without a deadline waits for a view without a node that is gone:
/// where the view is changed by hand; and where nodes change it by themselves, in leases, and at
/// least and at most.
const BY_HAND: Duration = Duration::from_secs(1);
const LEASES: u32 = 10;
const BY_THEMSELVES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];
/// A silent node is out after one, and the view has to change then.
const LEAST_LEASES: u32 = 3;

/// The first and the longest pause between two looks.
const FIRST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(1);

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Forgives that a node may not have heard of a decided transaction: the copies of its shards
    /// have it, or its rows end with it. Unless it is gone, the worker tells it again.
    ///
    /// # Errors
    ///
    /// All others.
    pub(super) fn forgive(&self, state: &mut State<'e, F::Port>, outcome: Result<(), Error>) -> Result<(), Error> {
        match outcome {
            Err(Error::Cluster(error)) if state.is_decided => match error.unreached() {
                Some(node) if self.is_recorded() || self.restores(node) => {
                    state.log.note_unheard(node);
                    // Without backups, no other node has what that one may have on its disk.
                    let may_come_back = self.node.log.backups == 0 && self.durability_of(node).is_some();
                    if may_come_back && !self.restores(node) { Err(error.into()) } else { Ok(()) }
                }
                _ => Err(error.into()),
            },
            outcome => outcome,
        }
    }

    /// Waits for the next view, or for a lease, if a transaction of `view` has ended since a node
    /// is gone or closes, or since the view changes. Returns a conflict then, since the transaction
    /// runs again. It waits until the transaction's deadline, if that has one.
    ///
    /// # Errors
    ///
    /// Those of the transaction, also where no view has come.
    pub(super) async fn until_next_view<T>(
        &self,
        (view, is_in_doubt): (u32, bool),
        ended: Result<T, Error>,
        deadline: Option<Time>,
    ) -> Result<T, Error> {
        let until = deadline.unwrap_or_else(|| self.endpoint().now() + self.patience_for_view());
        let too_late = |waits_for: NodeId, ended: Result<T, Error>| match deadline {
            Some(_) => {
                let waits_for = Some(waits_for);
                Err(ClusterError::Interrupted { waits_for, may_have_happened: is_in_doubt }.into())
            }
            None => ended,
        };
        let out = || Err(ClusterError::Evicted { may_have_happened: is_in_doubt }.into());
        let node = &self.node;
        let is_next = || node.view.number() > view && !node.view.is_between();
        match &ended {
            // It is of no use to run again: what is in its way may stay for ever.
            Err(Error::Conflict(_)) if self.is_out() => out(),
            Err(Error::Conflict(Conflict::View)) if node.view.is_between() || !self.may_serve() => {
                let _ = self.pause_until(until, || !node.view.is_between() && self.may_serve() || self.is_out()).await;
                match self.is_out() {
                    true => out(),
                    false if self.may_serve() || node.view.is_between() => ended,
                    false => {
                        let leader = node.view.view().leader();
                        too_late(leader, Err(ClusterError::NoLease { leader }.into()))
                    }
                }
            }
            // What may have been carried out is not run again.
            Err(Error::Cluster(ClusterError::OutcomeUnknown { .. })) => ended,
            // What has begun nothing at a node that closes goes on when that has left.
            Err(Error::Cluster(ClusterError::Refused { node: closes, reason: Refusal::Closed }))
                if node.tenure.is_some() =>
            {
                match self.pause_until(until, || is_next() || self.is_out()).await {
                    _ if self.is_out() => out(),
                    true => Err(Conflict::View.into()),
                    false => too_late(*closes, ended),
                }
            }
            Err(Error::Cluster(error)) if self.node.cooperative.is_some() => {
                let Some(unreached) = error.unreached().filter(|node| self.restores(*node)) else { return ended };
                match self.until_met_or(until, unreached, || false).await {
                    true => Err(Conflict::View.into()),
                    false => too_late(unreached, ended),
                }
            }
            Err(Error::Cluster(error)) if self.is_recorded() => {
                let Some(unreached) = error.unreached().filter(|node| *node != self.id()) else { return ended };
                let goes_on = match self.is_missing(unreached) {
                    true => self.pause_until(until, || is_next() || self.is_out()).await,
                    // It is silent, and the view changes; or it can be met again.
                    false if node.tenure.is_some() => {
                        self.until_met_or(until, unreached, || is_next() || self.is_out()).await
                    }
                    false => false,
                };
                match goes_on {
                    _ if self.is_out() => out(),
                    true => Err(Conflict::View.into()),
                    false => too_late(unreached, ended),
                }
            }
            _ => ended,
        }
    }

    /// Returns whether the view is without this node.
    pub(super) fn is_out(&self) -> bool {
        self.node.is_out()
    }

    /// Returns whether a node is gone, as far as is known.
    fn is_missing(&self, node: NodeId) -> bool {
        self.endpoint().presence(node).here().is_none()
    }

    /// Waits until a node can be met that could not be asked, or until something holds, or it is
    /// too late. Returns whether that is so.
    async fn until_met_or(&self, until: Time, node: NodeId, holds: impl Fn() -> bool) -> bool {
        let mut pause = FIRST;
        while !holds() {
            let met = self.endpoint().before(until, self.greet(node)).await;
            if matches!(met, Ok(Ok(_))) {
                return true;
            }
            if self.endpoint().now() >= until {
                return false;
            }
            self.endpoint().sleep(pause).await;
            pause = LONGEST.min(pause * 2);
        }
        true
    }

    /// Returns for how long a transaction without a deadline waits for the next view.
    pub(super) fn patience_for_view(&self) -> Duration {
        let [least, most] = BY_THEMSELVES;
        match &self.node.tenure {
            Some(tenure) => {
                let lease = tenure.terms.lease;
                (LEASES * lease).clamp(least, most.max(LEAST_LEASES * lease))
            }
            None if self.node.cooperative.is_some() => most,
            None => BY_HAND,
        }
    }

    /// Waits until something holds, or it is too late. Returns whether it does.
    async fn pause_until(&self, until: Time, holds: impl Fn() -> bool) -> bool {
        let mut pause = FIRST;
        while !holds() {
            if self.endpoint().now() >= until {
                return false;
            }
            self.endpoint().sleep(pause).await;
            pause = LONGEST.min(pause * 2);
        }
        true
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> ClusterTx<'_, F, S> {
    /// Waits as [`Coordinator::until_next_view`] does, after a run in `view`. The next run forgets
    /// what this one has locked. So where an owner could not be asked to free that, and is met
    /// again, it is asked once more before.
    ///
    /// # Errors
    ///
    /// Those of the transaction, also where no view has come.
    pub(super) async fn until_next_view<T>(
        &mut self,
        view: u32,
        mut ended: Result<T, Error>,
        deadline: Option<Time>,
    ) -> Result<T, Error> {
        let is_in_doubt = self.state().log.is_in_doubt;
        loop {
            ended = self.worker.until_next_view((view, is_in_doubt), ended, deadline).await;
            let conflict = match &ended {
                Err(Error::Conflict(conflict)) if self.state().owes && !S::has(Mutation::OwedForgotten) => *conflict,
                _ => return ended,
            };
            ended = self.finish(true).await.and_then(|()| Err(conflict.into()));
            if self.state().owes {
                self.worker.endpoint().sleep(FREED_AFTER).await;
            }
        }
    }
}
