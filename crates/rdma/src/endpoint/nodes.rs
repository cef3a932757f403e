//! The other nodes, as an endpoint sees them come and go.

use std::future::poll_fn;

use crate::{Endpoint, Incarnation, NodeEvent, NodeId, Port, Presence, VerbError};

impl<P: Port> Endpoint<P> {
    /// How a node stands: whether it is here, and as which incarnation.
    #[must_use]
    pub fn presence(&self, node: NodeId) -> Presence {
        self.inner().port.presence(node)
    }

    /// Waits until a node has come, left, died or come back, and tells of it: of each change since
    /// the endpoint was made once, to one of those that wait at this endpoint.
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

    /// Makes this endpoint's queue to a node belong to the incarnation of it that is here now, and
    /// gives that.
    ///
    /// Until this is called, operations to a node that came back fail as those to one that is gone:
    /// the new incarnation has other memory, where the old one's addresses mean nothing.
    ///
    /// # Errors
    ///
    /// [`VerbError::Gone`] when the node is not here, [`VerbError::UnknownNode`] when it never was.
    pub fn reconnect(&self, node: NodeId) -> Result<Incarnation, VerbError> {
        loop {
            // What is under way to the old incarnation ends before there is a new one.
            self.progress();
            if let Some(incarnation) = self.inner().port.reconnect(node)? {
                return Ok(incarnation);
            }
            std::thread::yield_now();
        }
    }
}
