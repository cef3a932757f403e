//! Deadlines: what waits for another node beyond its own is interrupted.
//!
//! A transaction is a state that its worker owns, so an interrupted one is ended as a dropped one
//! is: it is carried out if it was decided, and given up otherwise.

use std::{future::Future, pin::Pin, time::Duration};

use drtm_rdma::{Fabric, NodeId, Port, Time};

use super::{ClusterError, coordinator::Coordinator, state::State};
use crate::{Config, mutation::Mutation};

/// For how long a run goes on when its deadline has passed: it need not be interrupted if it waits
/// for nothing that is slow.
const GRACE: Duration = Duration::from_millis(20);

impl<F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'_, F, S> {
    /// Waits for a future until shortly after a deadline. `None`: it was interrupted then. The
    /// future stays where it is: that of a transaction is long.
    pub(super) async fn by<T>(&self, deadline: Option<Time>, future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match deadline.filter(|_| !S::has(Mutation::DeadlinesIgnored)) {
            // From now on, if it had passed before.
            Some(deadline) => self.endpoint().before(deadline.max(self.endpoint().now()) + GRACE, future).await.ok(),
            None => Some(future.await),
        }
    }
}

impl<P: Port> State<'_, P> {
    /// Returns the error of a transaction that is interrupted now.
    pub(super) fn interrupted(&self) -> ClusterError {
        ClusterError::Interrupted { waits_for: self.waits_for(), may_have_happened: self.is_decided }
    }

    /// Returns a node whose answer is outstanding, if there is one.
    fn waits_for(&self) -> Option<NodeId> {
        self.sent.iter().flat_map(|sent| &sent.asked).map(|ask| ask.node(self)).next()
    }
}
