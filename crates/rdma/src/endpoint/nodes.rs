//! The presence of other nodes, as an endpoint sees it.

use std::future::poll_fn;

use crate::{Endpoint, Incarnation, NodeEvent, NodeId, Port, Presence, VerbError};

impl<P: Port> Endpoint<P> {
    /// Returns the presence of a node: whether it is here, and as which incarnation.
    #[must_use]
    pub fn presence(&self, node: NodeId) -> Presence {
        self.inner().port.presence(node)
    }

    /// Returns whether a node takes nothing of this incarnation any more, as far as this endpoint
    /// has found: it was [revoked](crate::Fabric::revoke) there, or taken for dead.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Fabric, Incarnation, NicProfile, NodeId, Sim, SimConfig};
    ///
    /// let sim = Sim::<NoHtm>::new(2, SimConfig::new(&NicProfile::CONNECTX_4));
    /// let endpoint = sim.fabric().endpoint(NodeId(1))?;
    /// assert!(!endpoint.is_refused_by(NodeId(0)));
    /// sim.fabric().revoke(NodeId(0), NodeId(1), Incarnation(1))?;
    /// assert!(endpoint.is_refused_by(NodeId(0)));
    /// # Ok::<(), drtm_rdma::FabricError>(())
    /// ```
    #[must_use]
    pub fn is_refused_by(&self, node: NodeId) -> bool {
        self.inner().port.is_refused_by(node)
    }

    /// Waits until a node has joined, left, died or come back, and returns that event. Each change
    /// since the endpoint was created is returned once, to one of its waiters.
    pub async fn next_event(&self) -> NodeEvent {
        poll_fn(|context| {
            self.poll_with(context, |inner, task| {
                let event = inner.port.next_event();
                if event.is_none() {
                    inner.completions.watchers.insert(task);
                }
                event
            })
        })
        .await
    }

    /// Returns whether this endpoint's queue to a node has ended, so that all operations to it fail
    /// until [`reconnect`](Self::reconnect) succeeds.
    ///
    /// A queue ends with the node's incarnation, and between machines also where the connection
    /// breaks or the node is suspected. So the same incarnation may be here.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Phase, block_on};
    ///
    /// let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
    /// let endpoint = fabric.endpoint(NodeId(0))?;
    /// block_on(&endpoint, endpoint.during(Phase::Other).send(NodeId(1), b"hello"))?;
    /// fabric.kill(NodeId(1))?;
    /// fabric.revive(NodeId(1))?;
    /// let refused = block_on(&endpoint, endpoint.during(Phase::Other).send(NodeId(1), b"hello"));
    /// assert!(refused.is_err() && endpoint.needs_reconnect(NodeId(1)));
    /// endpoint.reconnect(NodeId(1))?;
    /// assert!(!endpoint.needs_reconnect(NodeId(1)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn needs_reconnect(&self, node: NodeId) -> bool {
        self.inner().completions.ended.contains(&node)
    }

    /// Connects this endpoint's queue to the incarnation of a node that is here now, and returns
    /// it.
    ///
    /// Until this is called, operations to a node that came back fail like those to one that is
    /// gone: the new incarnation has other memory, where the old one's addresses are invalid.
    ///
    /// # Errors
    ///
    /// [`VerbError::Gone`] if the node is not here. [`VerbError::NotJoined`] if it never was.
    /// [`VerbError::UnknownNode`] if the fabric has no such node.
    pub fn reconnect(&self, node: NodeId) -> Result<Incarnation, VerbError> {
        loop {
            // Operations that are pending to the old incarnation end before the new connection.
            self.progress();
            let mut inner = self.inner();
            if let Some(incarnation) = inner.port.reconnect(node)? {
                inner.completions.ended.retain(|ended| *ended != node);
                return Ok(incarnation);
            }
            drop(inner);
            std::thread::yield_now();
        }
    }
}
