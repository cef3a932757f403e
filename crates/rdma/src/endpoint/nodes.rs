//! The presence of other nodes, as an endpoint sees it.

use std::future::poll_fn;

use crate::{Endpoint, Incarnation, NodeEvent, NodeId, Port, Presence, VerbError};

impl<P: Port> Endpoint<P> {
    /// Returns the presence of a node: whether it is here, and as which incarnation.
    #[must_use]
    pub fn presence(&self, node: NodeId) -> Presence {
        self.inner().port.presence(node)
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

    /// Connects this endpoint's queue to the incarnation of a node that is here now, and returns
    /// it.
    ///
    /// Until this is called, operations to a node that came back fail like those to one that is
    /// gone: the new incarnation has other memory, where the old one's addresses are invalid.
    ///
    /// # Errors
    ///
    /// [`VerbError::Gone`] if the node is not here. [`VerbError::UnknownNode`] if it never was.
    pub fn reconnect(&self, node: NodeId) -> Result<Incarnation, VerbError> {
        loop {
            // Operations that are pending to the old incarnation end before the new connection.
            self.progress();
            if let Some(incarnation) = self.inner().port.reconnect(node)? {
                return Ok(incarnation);
            }
            std::thread::yield_now();
        }
    }
}
