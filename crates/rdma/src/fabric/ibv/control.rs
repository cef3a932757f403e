//! An endpoint's questions to nodes, which go by TCP.

use std::io;

use drtm_htm::Engine;

use crate::{
    Buffers, NodeId, VerbError,
    endpoint::{
        backend::Backend,
        buffers::Pool,
        port::{Events, Frame, Ticket, Verb, Work},
    },
    fabric::tcp::TcpPort,
};

use super::{VerbsError, setup::Request};

/// What is asked of all nodes together at a time.
const QUESTIONS: usize = 256;

/// The questions of one endpoint.
#[derive(Debug)]
pub(super) struct Control {
    buffers: Pool<u8>,
    asked: u32,
    heard: Vec<Heard>,
    changed: bool,
}

/// What TCP tells of a question, or of a node.
#[derive(Debug)]
pub(super) enum Heard {
    Answer(NodeId, Ticket, Option<Frame>),
    Departed(NodeId),
}

impl Control {
    pub(super) fn new() -> Self {
        let buffers = Pool::new(&Buffers { small: QUESTIONS, medium: 0, large: 0 });
        Self { buffers, asked: 0, heard: Vec::new(), changed: false }
    }

    /// Asks a node. The answer comes by the ticket.
    pub(super) fn ask<E: Engine>(
        &mut self,
        tcp: &mut TcpPort<E>,
        node: NodeId,
        request: &Request,
    ) -> Result<Ticket, VerbsError> {
        let failed = |error: VerbError| VerbsError::System { what: "ask a node", source: io::Error::other(error) };
        tcp.reserve(node).map_err(failed)?;
        let Some(bytes) = self.buffers.copy(&request.encode()) else {
            tcp.release(node);
            return Err(failed(VerbError::BuffersExhausted { bytes: Buffers::SMALL }));
        };
        self.asked = self.asked.wrapping_add(1);
        let ticket = Ticket { index: u32::from(node.0), generation: self.asked };
        tcp.post(Work { ticket: Some(ticket), verb: Verb::Call { to: node, bytes } });
        Ok(ticket)
    }

    /// Returns the next answer or departure.
    pub(super) fn next(&mut self) -> Option<Heard> {
        self.heard.pop()
    }

    /// Returns whether nodes have come or gone since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }
}

impl Events for Control {
    fn completed(&mut self, _ticket: Option<Ticket>, verb: Verb, result: Result<u64, VerbError>) {
        let node = verb.node();
        if let Verb::Call { bytes, .. } | Verb::Send { bytes, .. } = verb {
            self.buffers.put(bytes);
        }
        // One that was delivered is over with its answer.
        if result.is_err() {
            self.heard.push(Heard::Departed(node));
        }
    }

    fn replied(&mut self, ticket: Ticket, from: NodeId, frame: Option<Frame>) {
        self.heard.push(Heard::Answer(from, ticket, frame));
    }

    fn departed(&mut self, node: NodeId, _error: VerbError) {
        self.heard.push(Heard::Departed(node));
    }

    fn changed(&mut self) {
        self.changed = true;
    }
}
