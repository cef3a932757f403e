//! Handling completions: returning buffers, delivering values to the waiting coroutines, and waking
//! these.

use crate::{
    Counters, NodeId, VerbError,
    endpoint::{
        buffers::Pool,
        port::{Events, Frame, Ticket, Verb},
        tickets::{Completed, Gives, Part, Tickets, Value},
    },
    executor::{tasks::TaskSet, timers::Timers},
};

/// The state that completions change.
#[derive(Debug)]
pub(crate) struct Completions {
    pub(super) tickets: Tickets,
    pub(super) words: Pool<u64>,
    pub(super) bytes: Pool<u8>,
    pub(super) counters: Counters,
    /// Coroutines that are ready to run.
    pub(crate) ready: TaskSet,
    /// Coroutines that wait for room in a queue or for a buffer.
    pub(super) crowded: TaskSet,
    /// Coroutines that wait for changes of nodes' presence.
    pub(crate) watchers: TaskSet,
    /// Coroutines that sleep.
    pub(crate) timers: Timers,
    /// Operations that are posted and not completed, including those without a ticket.
    pub(crate) under_way: usize,
    /// Unanswered calls.
    pub(crate) calls: usize,
    /// Replies that are no longer waited for.
    pub(super) unwanted: Vec<Frame>,
    /// Nodes to which the queue has ended, and is not connected again.
    pub(super) ended: Vec<NodeId>,
}

impl Completions {
    /// Delivers the outcome of an operation to its waiter. Returns whether it was still open.
    #[inline(always)]
    fn settle<V: Part>(&mut self, ticket: Ticket, outcome: Result<V, VerbError>) -> bool {
        self.ready.take_all(&mut self.crowded);
        match self.tickets.complete(ticket) {
            Completed::Awaited(operation) => {
                self.ready.insert(operation.deliver(outcome));
                true
            }
            Completed::Unwanted => {
                self.discard(outcome);
                true
            }
            Completed::Stale => {
                self.discard(outcome);
                false
            }
        }
    }

    /// Ends an operation that is no call.
    #[inline(always)]
    fn end<V: Part>(&mut self, ticket: Option<Ticket>, outcome: Result<V, VerbError>) {
        match ticket {
            Some(ticket) => drop(self.settle(ticket, outcome)),
            None => {
                self.ready.take_all(&mut self.crowded);
                self.discard(outcome);
            }
        }
    }

    #[cold]
    fn discard<V: Part>(&mut self, outcome: Result<V, VerbError>) {
        let Ok(part) = outcome else { return };
        let mut value = Value::default();
        part.put(&mut value);
        if V::GIVES == Gives::Words {
            self.words.put(value.words);
        }
        self.unwanted.extend(value.reply.map(|(_, frame)| frame));
    }
}

impl Events for Completions {
    #[inline(always)]
    fn completed(&mut self, ticket: Option<Ticket>, verb: Verb, result: Result<u64, VerbError>) {
        self.under_way -= 1;
        match verb {
            Verb::Read { into, .. } => match result {
                Ok(_) => self.end(ticket, Ok(into)),
                Err(error) => {
                    self.words.put(into);
                    self.end::<()>(ticket, Err(error));
                }
            },
            Verb::Write { from, .. } => {
                self.words.put(from);
                self.end(ticket, result.map(|_| ()));
            }
            Verb::CompareSwap { .. } | Verb::FetchAdd { .. } => self.end(ticket, result),
            Verb::Send { bytes, .. } => {
                self.bytes.put(bytes);
                self.end(ticket, result.map(|_| ()));
            }
            Verb::Call { bytes, .. } => {
                self.bytes.put(bytes);
                // A delivered call ends with its reply.
                if let (Err(error), Some(ticket)) = (result, ticket)
                    && self.settle::<()>(ticket, Err(error))
                {
                    self.calls -= 1;
                }
                self.ready.take_all(&mut self.crowded);
            }
        }
    }

    fn replied(&mut self, ticket: Ticket, from: NodeId, frame: Option<Frame>) {
        if let (Some(phase), Some(frame)) = (self.tickets.call_phase(ticket), &frame) {
            self.counters.phase(phase).bytes_in += frame.len() as u64;
        }
        let outcome = match frame {
            Some(frame) => Ok((from, frame)),
            None => Err(VerbError::Unanswered { node: from }),
        };
        if self.settle(ticket, outcome) {
            self.calls -= 1;
        }
    }

    fn departed(&mut self, node: NodeId, error: VerbError) {
        if !self.ended.contains(&node) {
            self.ended.push(node);
        }
        while let Some(ticket) = self.tickets.call_to(node) {
            self.settle::<()>(ticket, Err(error));
            self.calls -= 1;
        }
    }

    fn changed(&mut self) {
        self.ready.take_all(&mut self.watchers);
    }
}
