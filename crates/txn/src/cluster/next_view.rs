//! What a node that is gone means for transactions, where its shards have backups: nothing but a
//! delay.
//!
//! A transaction that is decided has succeeded: what it writes there is at the shard's copies, and
//! its next primary has it. Another one ends as if it had met another view, once there is one.

use std::time::Duration;

use drtm_rdma::{Fabric, NodeId};

use super::{ClusterError, coordinator::Coordinator, state::State};
use crate::{Config, Conflict, Error};

/// For how long a transaction waits for a view without a node that is gone, if its deadline is not
/// earlier: where the view is changed by hand, and where nodes change it by themselves.
const BY_HAND: Duration = Duration::from_secs(1);
const BY_ITSELF: Duration = Duration::from_secs(10);

/// The first and the longest pause between two looks.
const FIRST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(1);

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Forgives that a node may not have heard of a decided transaction: the copies of its shards
    /// have it. Unless it is gone, the worker tells it again.
    ///
    /// # Errors
    ///
    /// All others.
    pub(super) fn forgive(&self, state: &mut State<'e, F::Port>, outcome: Result<(), Error>) -> Result<(), Error> {
        match outcome {
            Err(Error::Cluster(error)) if state.is_decided && self.has_backups() => match error.unreached() {
                Some(node) => {
                    state.log.note_unheard(node);
                    Ok(())
                }
                None => Err(error.into()),
            },
            outcome => outcome,
        }
    }

    /// Waits for the next view if a transaction of `view` has ended since a node is gone, or since
    /// the view changes. Returns a conflict then, since the transaction runs again.
    ///
    /// # Errors
    ///
    /// Those of the transaction, also where no view has come.
    pub(super) async fn until_next_view<T>(&self, view: u32, ended: Result<T, Error>) -> Result<T, Error> {
        let node = &self.node;
        match &ended {
            Err(Error::Conflict(Conflict::View)) if node.view.is_between() => {
                let _ = self.pause_until(|| !node.view.is_between()).await;
                ended
            }
            // What may have been carried out is not run again.
            Err(Error::Cluster(ClusterError::OutcomeUnknown { .. })) => ended,
            Err(Error::Cluster(error))
                if self.has_backups() && error.unreached().is_some_and(|node| self.is_missing(node)) =>
            {
                match self.pause_until(|| node.view.number() > view && !node.view.is_between()).await {
                    true => Err(Conflict::View.into()),
                    false => ended,
                }
            }
            _ => ended,
        }
    }

    /// Returns whether a node is gone, as far as is known.
    fn is_missing(&self, node: NodeId) -> bool {
        node != self.id() && self.endpoint().presence(node).here().is_none()
    }

    /// Waits until something holds, for a while. Returns whether it does.
    async fn pause_until(&self, holds: impl Fn() -> bool) -> bool {
        let patience = if self.node.membership.is_some() { BY_ITSELF } else { BY_HAND };
        let (until, mut pause) = (self.endpoint().now() + patience, FIRST);
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
